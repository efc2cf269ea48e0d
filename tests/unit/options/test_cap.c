/*
 * Caps: spelling, and what they come to on the devices that are there.
 */
#include "tests/unit/options/cases.h"

#include <errno.h>

#define GIB (UINT64_C(1) << 30)
#define UUID_A "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
#define UUID_B "GPU-8932aaaa-0000-1111-2222-333333333333"
#define UUID_M "MIG-5c89852c-d268-5c7f-8a37-b06fbf5ad0b9"

static const struct vs_options_device three[] = {
    {UUID_A, 80 * GIB}, {UUID_B, 40 * GIB}, {UUID_M, 10 * GIB}};

static void accepts_caps(void **state)
{
    static const struct {
        const char *text;
        const char *canonical;
    } cases[] = {
        {"8GiB", "8GiB"},
        {"50%", "50%"},
        {" 8G ", "8GiB"},
        {"0=8GiB", "0=8GiB"},
        {"0=8G,1=4096M", "0=8GiB,1=4GiB"},
        {"0=8GiB,GPU-8932f937=50%", "0=8GiB,GPU-8932f937=50%"},
        {" 0 = 8GiB , 1 = 50% ", "0=8GiB,1=50%"},
        {UUID_A "=1GiB", UUID_A "=1GiB"},
        {"gpu-8932F937=1GiB", "gpu-8932F937=1GiB"},
        {"MIG-5c89=12.5%", "MIG-5c89=12.5%"},
        {"MIG-GPU-8932f937-d72c/3/0=1G", "MIG-GPU-8932f937-d72c/3/0=1GiB"},
        {"999=1", "999=1"},
    };
    struct vs_cap cap;
    char out[VS_CAP_TEXT];
    const char *item;
    size_t length;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *why = vs_cap_parse(cases[i].text, strlen(cases[i].text), &cap, &item, &length);

        if (why)
            fail_msg("%s: %s", cases[i].text, why);
        vs_cap_text(&cap, out, sizeof(out));
        assert_string_equal(out, cases[i].canonical);
    }
}

static void refuses_caps(void **state)
{
    static const struct {
        const char *text;
        const char *why;
        const char *item;
    } cases[] = {
        {"", "no number", ""},
        {"0", "0 would allow nothing", "0"},
        {"junk", "begin with a digit", "junk"},
        {"8GB", "write GiB", "8GB"},
        {"0=8GB", "write GiB", "0=8GB"},
        {"0=8GiB,1=0", "0 would allow nothing", "1=0"},
        {"0=8GiB,1=101%", "more than 100%", "1=101%"},
        {"0=8GiB,", "empty", ""},
        {",0=8GiB", "empty", ""},
        {"0=8GiB,,1=4GiB", "empty", ""},
        {",", "empty", ""},
        {"8GiB,4GiB", "names no device", "8GiB"},
        {"0=8GiB,4GiB", "names no device", "4GiB"},
        {"0=8GiB,0=4GiB", "named twice", "0=4GiB"},
        {"0=8GiB,00=4GiB", "named twice", "00=4GiB"},
        {"GPU-ab=1G,gpu-AB=2G", "named twice", "gpu-AB=2G"},
        {"0=", "no number", "0="},
        {"=8GiB", "GPU- or MIG-", "=8GiB"},
        {"-1=8GiB", "GPU- or MIG-", "-1=8GiB"},
        {"8932f937=8GiB", "neither an index nor a UUID", "8932f937=8GiB"},
        {"1000=8GiB", "neither an index nor a UUID", "1000=8GiB"},
        {"GPU-=8GiB", "GPU- or MIG-", "GPU-=8GiB"},
        {"TPU-1=8GiB", "GPU- or MIG-", "TPU-1=8GiB"},
        {"GPU-a b=8GiB", "no UUID has", "GPU-a b=8GiB"},
        {"0=8GiB=1", "unit is unknown", "0=8GiB=1"},
        {"0=8GiB;1=4GiB", "unit is unknown", "0=8GiB;1=4GiB"},
        {"GPU-0123456789012345678901234567890123456789012345678901234567890123=1", "too long",
         "GPU-0123456789012345678901234567890123456789012345678901234567890123=1"},
    };
    struct vs_cap cap;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *item = "";
        size_t length = 0;
        const char *why = vs_cap_parse(cases[i].text, strlen(cases[i].text), &cap, &item, &length);

        if (!why || !strstr(why, cases[i].why))
            fail_msg("\"%s\": %s", cases[i].text, why ? why : "accepted");
        assert_int_equal(length, strlen(cases[i].item));
        assert_memory_equal(item, cases[i].item, length);
    }
}

static void holds_so_many_entries(void **state)
{
    char text[1024] = "";
    struct vs_cap cap;
    const char *item;
    size_t length, used = 0;

    (void)state;
    for (int i = 0; i < VS_CAP_MAX_ENTRIES; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d=8G", i ? "," : "", i);
    assert_null(vs_cap_parse(text, used, &cap, &item, &length));
    assert_int_equal(cap.count, VS_CAP_MAX_ENTRIES);
    used += (size_t)snprintf(text + used, sizeof(text) - used, ",%d=8G", VS_CAP_MAX_ENTRIES);
    assert_string_equal(vs_cap_parse(text, used, &cap, &item, &length), "the list is too long");
}

static struct vs_options options;

static int load(const char *limit, const char *fraction, struct heard *heard)
{
    char a[512], b[64];
    char *environment[3] = {NULL, NULL, NULL};
    int count = 0;
    const struct vs_options_listener listener = {hear, heard};

    if (limit) {
        snprintf(a, sizeof(a), "VRAMSHIM_LIMIT=%s", limit);
        environment[count++] = a;
    }
    if (fraction) {
        snprintf(b, sizeof(b), "VRAMSHIM_FRACTION=%s", fraction);
        environment[count++] = b;
    }
    memset(heard, 0, sizeof(*heard));
    return vs_options_load(&options, environment, &listener);
}

static void finds_each_device_its_limit(void **state)
{
    static const struct {
        const char *limit, *fraction;
        uint64_t want[3];
    } cases[] = {
        {NULL, NULL, {0, 0, 0}},
        {"8GiB", NULL, {8 * GIB, 8 * GIB, 8 * GIB}},
        {"100GiB", NULL, {80 * GIB, 40 * GIB, 10 * GIB}},
        {"50%", NULL, {40 * GIB, 20 * GIB, 5 * GIB}},
        {NULL, "0.5", {40 * GIB, 20 * GIB, 5 * GIB}},
        {"8GiB", "0.5", {8 * GIB, 8 * GIB, 5 * GIB}},
        {"90%", "0.5", {40 * GIB, 20 * GIB, 5 * GIB}},
        {"1=8GiB", NULL, {0, 8 * GIB, 0}},
        {"1=8GiB", "0.5", {40 * GIB, 8 * GIB, 5 * GIB}},
        {UUID_B "=8GiB,0=50%", NULL, {40 * GIB, 8 * GIB, 0}},
        {"gpu-8932F=8GiB", NULL, {8 * GIB, 0, 0}},
        {"MIG-5=8GiB", NULL, {0, 0, 8 * GIB}},
    };
    struct heard heard;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(load(cases[i].limit, cases[i].fraction, &heard), 0);
        for (unsigned device = 0; device < 3; device++) {
            uint64_t limit = 77;

            assert_int_equal(vs_options_limit_for(&options, device, three[device].uuid,
                                                  three[device].total_bytes, &limit),
                             0);
            if (limit != cases[i].want[device])
                fail_msg("case %zu device %u: %ju", i, device, (uintmax_t)limit);
        }
    }
}

static void unknown_size_or_uuid(void **state)
{
    struct heard heard;
    uint64_t limit = 77;

    (void)state;
    assert_int_equal(load("50%", NULL, &heard), 0);
    assert_int_equal(vs_options_limit_for(&options, 0, NULL, 0, &limit), -EINVAL);
    assert_int_equal(load(NULL, NULL, &heard), 0);
    assert_int_equal(vs_options_limit_for(&options, 0, NULL, 0, &limit), 0);
    assert_int_equal(limit, 0);
    assert_int_equal(load("GPU-8932f=8GiB", NULL, &heard), 0);
    assert_int_equal(vs_options_limit_for(&options, 0, NULL, GIB, &limit), 0);
    assert_int_equal(limit, 0);
}

static void checks_lists_against_devices(void **state)
{
    static const struct {
        const char *limit;
        unsigned devices;
        int result;
        const char *said; /* NULL: nothing */
    } cases[] = {
        {"8GiB", 3, 0, NULL},
        {"0=8GiB,1=8GiB,2=8GiB", 3, 0, NULL},
        {"7=8GiB", 0, 0, NULL},
        {"0=8GiB,1=8GiB", 1, 0, "no visible device for \"1=8GiB\""},
        {"0=8GiB,GPU-ffff=50%,9=1%", 3, 0, "no visible device for \"GPU-ffff=50%\", \"9=1%\""},
        {"3=8GiB", 3, 1, "names no visible device: \"3=8GiB\""},
        {"GPU-ffff=8GiB,5=1GiB", 3, 1, "names no visible device: \"GPU-ffff=8GiB\", \"5=1GiB\""},
        {"GPU-8932=8GiB", 3, 1, "more than one device: \"GPU-8932=8GiB\" (2 devices)"},
        {"0=8GiB,GPU-8932f=4GiB", 3, 1,
         "the same device: \"0=8GiB\" and \"GPU-8932f=4GiB\" (device 0)"},
        {"GPU-8932f=8GiB,GPU-8932f9=4GiB", 3, 1, "the same device"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct heard heard;
        const struct vs_options_listener listener = {hear, &heard};

        assert_int_equal(load(cases[i].limit, NULL, &heard), 0);
        assert_int_equal(vs_options_check_devices(&options, three, cases[i].devices, &listener),
                         cases[i].result);
        if (cases[i].said) {
            assert_heard(&heard, cases[i].said);
            assert_heard(&heard, "VRAMSHIM_LIMIT");
            assert_heard(&heard, "accepted: a size");
        }
        assert_int_equal(heard.count, cases[i].said ? 1 : 0);
    }
}

static void a_reservation_stays_under_the_cap(void **state)
{
    static const struct {
        char *environment[4];
        int result;
    } cases[] = {
        {{"VRAMSHIM_POOL_SIZE=8GiB", NULL}, 0},
        {{"VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_FRACTION=0.8", NULL}, 0},
        {{"VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_FRACTION=0.7", NULL}, 1},
        {{"VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_LIMIT=0=7GiB", NULL}, 1},
        {{"VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_LIMIT=0=8GiB", NULL}, 0},
        {{"VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_GROUP=g", "VRAMSHIM_GROUP_LIMIT=70%", NULL}, 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct heard heard = {0};
        const struct vs_options_listener listener = {hear, &heard};

        assert_int_equal(vs_options_load(&options, cases[i].environment, &listener), 0);
        assert_int_equal(vs_options_check_devices(&options, three, 3, &listener), cases[i].result);
        assert_int_equal(heard.count, cases[i].result);
        if (cases[i].result)
            assert_heard(&heard, "VRAMSHIM_POOL_SIZE refused: more than the cap: 8GiB of ");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_caps),
        cmocka_unit_test(refuses_caps),
        cmocka_unit_test(holds_so_many_entries),
        cmocka_unit_test(finds_each_device_its_limit),
        cmocka_unit_test(unknown_size_or_uuid),
        cmocka_unit_test(checks_lists_against_devices),
        cmocka_unit_test(a_reservation_stays_under_the_cap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
