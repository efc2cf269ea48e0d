/*
 * One case per accepted and per rejected form of a number.
 */
#include "tests/unit/options/cases.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

static void accepts_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"007", 7},
        {"1K", KIB},
        {"1KiB", KIB},
        {"512M", 512 * MIB},
        {"512MiB", 512 * MIB},
        {"8G", 8 * GIB},
        {"8GiB", 8 * GIB},
        {"8g", 8 * GIB},
        {"8gib", 8 * GIB},
        {"8GIB", 8 * GIB},
        {"2T", 2 * TIB},
        {"2TiB", 2 * TIB},
        {"0GiB", 0},
        {"9223372036854775807", INT64_MAX},
        {"9007199254740991K", UINT64_C(9007199254740991) * KIB},
        {"8388607T", 8388607 * TIB},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t bytes = 77;
        const char *why = vs_size_parse(cases[i].text, strlen(cases[i].text), &bytes);

        if (why)
            fail_msg("%s: %s", cases[i].text, why);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void refuses_sizes(void **state)
{
    static const struct {
        const char *text;
        const char *why;
    } cases[] = {
        {"", "no number"},
        {"-1", "negative"},
        {"-8GiB", "negative"},
        {"+8GiB", "begin with a digit"},
        {"GiB", "begin with a digit"},
        {" 8GiB", "begin with a digit"},
        {"abc", "begin with a digit"},
        {"0x10", "unit is unknown"},
        {"8GiB ", "unit is unknown"},
        {"8 GiB", "blank"},
        {"8KB", "write KiB"},
        {"8MB", "write MiB"},
        {"8GB", "write GiB"},
        {"8gb", "write GiB"},
        {"8TB", "write TiB"},
        {"8Gi", "unit is unknown"},
        {"8GiBs", "unit is unknown"},
        {"8P", "unit is unknown"},
        {"8B", "unit is unknown"},
        {"8%", "unit is unknown"},
        {"1.5GiB", "whole number"},
        {"1,5GiB", "whole number"},
        {"1e9", "unit is unknown"},
        {"9223372036854775808", "too large"},
        {"18446744073709551615", "too large"},
        {"18446744073709551616", "too large"},
        {"99999999999999999999999999999999", "too large"},
        {"9007199254740992K", "too large"},
        {"8388608T", "too large"},
        {"18014398509481985K", "too large"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t bytes = 77;
        const char *why = vs_size_parse(cases[i].text, strlen(cases[i].text), &bytes);

        if (!why || !strstr(why, cases[i].why))
            fail_msg("\"%s\": %s", cases[i].text, why ? why : "accepted");
        assert_int_equal(bytes, 77);
    }
    {
        uint64_t bytes = 77;

        /* A NUL inside a slice is no end. */
        assert_non_null(vs_size_parse("8\0G", 3, &bytes));
        assert_null(vs_size_parse("8GiBjunk", 4, &bytes));
        assert_int_equal(bytes, 8 * GIB);
    }
}

static void reads_integers(void **state)
{
    static const struct {
        const char *text;
        int64_t low, high;
        bool fine;
        int64_t value;
    } cases[] = {
        {"0", -1, 10, true, 0},
        {"-1", -1, 10, true, -1},
        {"10", -1, 10, true, 10},
        {"-2", -1, 10, false, 0},
        {"11", -1, 10, false, 0},
        {"", -1, 10, false, 0},
        {"-", -1, 10, false, 0},
        {"+1", -1, 10, false, 0},
        {"1s", -1, 10, false, 0},
        {"1.0", -1, 10, false, 0},
        {" 1", -1, 10, false, 0},
        {"--1", -1, 10, false, 0},
        {"0x1", -1, 10, false, 0},
        {"255", 0, 255, true, 255},
        {"256", 0, 255, false, 0},
        {"9223372036854775807", 0, INT64_MAX, true, INT64_MAX},
        {"9223372036854775808", 0, INT64_MAX, false, 0},
        {"18446744073709551617", 0, INT64_MAX, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t value = 0;
        const char *why = vs_size_parse_integer(cases[i].text, strlen(cases[i].text), cases[i].low,
                                                cases[i].high, &value);

        if (!why != cases[i].fine)
            fail_msg("\"%s\": %s", cases[i].text, why ? why : "accepted");
        assert_int_equal(value, cases[i].value);
    }
}

static void reads_fractions(void **state)
{
    static const struct {
        const char *text;
        uint32_t ppb; /* 0 = refused */
        const char *why;
    } cases[] = {
        {"1", 1000000000, NULL},
        {"1.0", 1000000000, NULL},
        {"1.", 1000000000, NULL},
        {"1.000000000000", 1000000000, NULL},
        {"0.5", 500000000, NULL},
        {".5", 500000000, NULL},
        {"00.25", 250000000, NULL},
        {"0.05", 50000000, NULL},
        {"0.000000001", 1, NULL},
        {"0.9999999999", 999999999, NULL},
        {"0.1234567899", 123456789, NULL},
        {"0", 0, "0 would allow nothing"},
        {"0.0", 0, "0 would allow nothing"},
        {"0.0000000001", 0, "too small"},
        {"1.0000000001", 0, "more than 1"},
        {"1.1", 0, "more than 1"},
        {"2", 0, "more than 1"},
        {"99999999999999999999999999", 0, "more than 1"},
        {"-0.5", 0, "negative"},
        {"0,5", 0, "point"},
        {"50%", 0, "VRAMSHIM_LIMIT"},
        {"", 0, "decimal number"},
        {".", 0, "decimal number"},
        {"+0.5", 0, "decimal number"},
        {"5e-1", 0, "decimal number"},
        {"0.5.5", 0, "decimal number"},
        {"0.5 ", 0, "decimal number"},
        {"nan", 0, "decimal number"},
        {"inf", 0, "decimal number"},
        {"0x1p-1", 0, "decimal number"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint32_t ppb = 0;
        const char *why = vs_size_parse_fraction(cases[i].text, strlen(cases[i].text), &ppb);

        if (!why != !cases[i].why || (why && !strstr(why, cases[i].why)))
            fail_msg("\"%s\": %s", cases[i].text, why ? why : "accepted");
        assert_int_equal(ppb, cases[i].ppb);
    }
}

static void reads_amounts(void **state)
{
    static const struct {
        const char *text;
        struct vs_amount amount;
        const char *why;
    } cases[] = {
        {"8GiB", {8 * GIB, 0}, NULL},
        {"1", {1, 0}, NULL},
        {"100%", {0, 1000000000}, NULL},
        {"50%", {0, 500000000}, NULL},
        {"12.5%", {0, 125000000}, NULL},
        {"0.0000001%", {0, 1}, NULL},
        {"0", {0, 0}, "0 would allow nothing"},
        {"0GiB", {0, 0}, "0 would allow nothing"},
        {"0%", {0, 0}, "0 would allow nothing"},
        {"0.00000001%", {0, 0}, "too small"},
        {"100.1%", {0, 0}, "more than 100%"},
        {"101%", {0, 0}, "more than 100%"},
        {"-5%", {0, 0}, "negative"},
        {"%", {0, 0}, "decimal number"},
        {"50%%", {0, 0}, "decimal number"},
        {"50 %", {0, 0}, "decimal number"},
        {"junk", {0, 0}, "begin with a digit"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct vs_amount amount = {0, 0};
        const char *why = vs_size_parse_amount(cases[i].text, strlen(cases[i].text), &amount);

        if (!why != !cases[i].why || (why && !strstr(why, cases[i].why)))
            fail_msg("\"%s\": %s", cases[i].text, why ? why : "accepted");
        assert_int_equal(amount.bytes, cases[i].amount.bytes);
        assert_int_equal(amount.ppb, cases[i].amount.ppb);
    }
}

static void amounts_come_to_bytes(void **state)
{
    const struct vs_amount half = {0, 500000000}, all = {0, 1000000000}, third = {0, 333333333};
    const struct vs_amount least = {0, 1}, size = {8 * GIB, 0};

    (void)state;
    assert_int_equal(vs_size_of_amount(half, 80 * GIB), 40 * GIB);
    assert_int_equal(vs_size_of_amount(all, 80 * GIB + 1), 80 * GIB + 1);
    assert_int_equal(vs_size_of_amount(all, INT64_MAX), INT64_MAX);
    assert_int_equal(vs_size_of_amount(all, UINT64_MAX), UINT64_MAX);
    assert_int_equal(vs_size_of_amount(third, 150754820096), 50251606648);
    assert_int_equal(vs_size_of_amount(size, 80 * GIB), 8 * GIB);
    /* Above the device: the device. */
    assert_int_equal(vs_size_of_amount(size, 4 * GIB), 4 * GIB);
    /* Never 0, which would read as no cap. */
    assert_int_equal(vs_size_of_amount(least, 1000), 1);
}

static void writes_what_it_reads(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0"},
        {1, "1"},
        {1000, "1000"},
        {KIB, "1KiB"},
        {1536, "1536"},
        {64 * KIB, "64KiB"},
        {1536 * MIB, "1536MiB"},
        {8 * GIB, "8GiB"},
        {4096 * TIB, "4096TiB"},
        {INT64_MAX, "9223372036854775807"},
    };
    char out[VS_SIZE_TEXT];

    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++)
        assert_string_equal(vs_size_text(out, sizes[i].bytes), sizes[i].text);
    assert_string_equal(vs_size_fraction_text(out, 1000000000), "1");
    assert_string_equal(vs_size_fraction_text(out, 500000000), "0.5");
    assert_string_equal(vs_size_fraction_text(out, 1), "0.000000001");
    assert_string_equal(vs_size_amount_text(out, (struct vs_amount){0, 125000000}), "12.5%");
    assert_string_equal(vs_size_amount_text(out, (struct vs_amount){0, 1}), "0.0000001%");
    assert_string_equal(vs_size_amount_text(out, (struct vs_amount){8 * GIB, 0}), "8GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_sizes),        cmocka_unit_test(refuses_sizes),
        cmocka_unit_test(reads_integers),       cmocka_unit_test(reads_fractions),
        cmocka_unit_test(reads_amounts),        cmocka_unit_test(amounts_come_to_bytes),
        cmocka_unit_test(writes_what_it_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
