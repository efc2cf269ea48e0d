/*
 * The whole table: one case per accepted and per rejected form of each option, what is said about
 * it, and that what is shown parses again to the same.
 */
#include "tests/unit/options/cases.h"

static struct vs_options options;

static int load(struct heard *heard, char *const *environment)
{
    const struct vs_options_listener listener = {hear, heard};

    memset(heard, 0, sizeof(*heard));
    return vs_options_load(&options, environment, &listener);
}

#define LOAD(heard, ...) load(heard, (char *[]){__VA_ARGS__, NULL})

static const char *text(enum vs_option option)
{
    static char out[VS_OPTIONS_TEXT];

    return vs_options_text(&options, option, out, sizeof(out));
}

static void nothing_set_is_the_defaults(void **state)
{
    static const char *const wanted[VS_OPTION_COUNT] = {
        "none", "none",   "on",   "none",  "none", "on",   "auto", "0",    "none", "10000", "auto",
        "none", "stderr", "auto", "64KiB", "off",  "none", "none", "none", NULL,   "0"};
    struct heard heard;

    (void)state;
    assert_int_equal(load(&heard, NULL), 0);
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        assert_false(options.given[i]);
        if (wanted[i])
            assert_string_equal(text((enum vs_option)i), wanted[i]);
    }
    assert_non_null(strstr(options.dir, "/vramshim-"));
    assert_int_equal(options.dir[0], '/');
    assert_int_equal(heard.count, 0);
    assert_int_equal(LOAD(&heard, "PATH=/bin", "VRAMSHIM=1", "vramshim_limit=x", "VRAMSHIM_LIMIT"),
                     0);
    assert_int_equal(heard.count, 0);
}

static void accepts(void **state)
{
    static const struct {
        enum vs_option option;
        const char *value;
        const char *shown;
    } cases[] = {
        {VS_OPTION_LIMIT, "8GiB", "8GiB"},
        {VS_OPTION_LIMIT, "50%", "50%"},
        {VS_OPTION_LIMIT, "0=8G,GPU-ab=50%", "0=8GiB,GPU-ab=50%"},
        {VS_OPTION_FRACTION, "0.5", "0.5"},
        {VS_OPTION_FRACTION, " 1 ", "1"},
        {VS_OPTION_COUNT_CONTEXT, "0", "off"},
        {VS_OPTION_COUNT_CONTEXT, "1", "on"},
        {VS_OPTION_COUNT_CONTEXT, "off", "off"},
        {VS_OPTION_COUNT_CONTEXT, "ON", "on"},
        {VS_OPTION_COUNT_CONTEXT, "False", "off"},
        {VS_OPTION_COUNT_CONTEXT, "true", "on"},
        {VS_OPTION_COUNT_CONTEXT, "no", "off"},
        {VS_OPTION_COUNT_CONTEXT, "yes", "on"},
        {VS_OPTION_POOL, "off", "off"},
        {VS_OPTION_BACKING, "auto", "auto"},
        {VS_OPTION_BACKING, "vmm", "vmm"},
        {VS_OPTION_BACKING, "NATIVE", "native"},
        {VS_OPTION_POOL_SIZE, "0", "0"},
        {VS_OPTION_POOL_SIZE, "2G", "2GiB"},
        {VS_OPTION_TRIM_ABOVE, "0", "0"},
        {VS_OPTION_TRIM_ABOVE, "1GiB", "1GiB"},
        {VS_OPTION_POOL_DECAY_MS, "-1", "-1"},
        {VS_OPTION_POOL_DECAY_MS, "0", "0"},
        {VS_OPTION_POOL_DECAY_MS, "2147483647", "2147483647"},
        {VS_OPTION_STRICT_FREE, "auto", "auto"},
        {VS_OPTION_STRICT_FREE, "on", "on"},
        {VS_OPTION_STRICT_FREE, "off", "off"},
        {VS_OPTION_STRICT_FREE, "yes", "on"},
        {VS_OPTION_STRICT_FREE, "0", "off"},
        {VS_OPTION_OVERFLOW, "none", "none"},
        {VS_OPTION_OVERFLOW, "managed", "managed"},
        {VS_OPTION_REPORT, "none", "none"},
        {VS_OPTION_REPORT, "/tmp/a.json,stderr", "/tmp/a.json,stderr"},
        {VS_OPTION_STACKS, "python", "python"},
        {VS_OPTION_STACKS, "native", "native"},
        {VS_OPTION_STACKS, "off", "off"},
        {VS_OPTION_STACKS, "false", "off"},
        {VS_OPTION_STACK_MIN, "0", "0"},
        {VS_OPTION_STACK_MIN, "1MiB", "1MiB"},
        {VS_OPTION_LEAK_SCAN, "on", "on"},
        {VS_OPTION_SUPPRESSIONS, "leaks.supp", "leaks.supp"},
        {VS_OPTION_TRACE, "/tmp/t r a c e ", "/tmp/t r a c e "},
        {VS_OPTION_LEAK_EXIT_CODE, "0", "0"},
        {VS_OPTION_LEAK_EXIT_CODE, "255", "255"},
        {VS_OPTION_DIR, "/run/user/1000/v", "/run/user/1000/v"},
        {VS_OPTION_VERBOSE, "0", "0"},
        {VS_OPTION_VERBOSE, "2", "2"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char entry[256];
        struct heard heard;

        snprintf(entry, sizeof(entry), "%s=%s", vs_options_table[cases[i].option].name,
                 cases[i].value);
        assert_int_equal(LOAD(&heard, entry), 0);
        if (heard.count || !options.given[cases[i].option])
            fail_msg("%s: %s", entry, heard.count ? heard.line[0] : "not given");
        assert_string_equal(text(cases[i].option), cases[i].shown);
    }
}

static void refuses_or_ignores(void **state)
{
    static const struct {
        enum vs_option option;
        const char *value;
        const char *why;
    } cases[] = {
        {VS_OPTION_LIMIT, "lots", "begin with a digit"},
        {VS_OPTION_LIMIT, "0", "0 would allow nothing"},
        {VS_OPTION_LIMIT, " ", "blank"},
        {VS_OPTION_LIMIT, "none", "begin with a digit"},
        {VS_OPTION_LIMIT, "0=8GiB,1=8GB", "write GiB (at \"1=8GB\")"},
        {VS_OPTION_FRACTION, "1.5", "more than 1"},
        {VS_OPTION_FRACTION, "0,5", "point"},
        {VS_OPTION_COUNT_CONTEXT, "maybe", "neither on nor off"},
        {VS_OPTION_COUNT_CONTEXT, "2", "neither on nor off"},
        {VS_OPTION_POOL, "o", "neither on nor off"},
        {VS_OPTION_BACKING, "v", "none of the words"},
        {VS_OPTION_BACKING, "auto,vmm", "none of the words"},
        {VS_OPTION_BACKING, "off", "none of the words"},
        {VS_OPTION_POOL_SIZE, "50%", "unit is unknown"},
        {VS_OPTION_POOL_SIZE, "-1", "negative"},
        {VS_OPTION_TRIM_ABOVE, "99999999T", "too large"},
        {VS_OPTION_POOL_DECAY_MS, "-2", "out of range"},
        {VS_OPTION_POOL_DECAY_MS, "10s", "whole number"},
        {VS_OPTION_POOL_DECAY_MS, "2147483648", "out of range"},
        {VS_OPTION_STRICT_FREE, "always", "none of the words"},
        {VS_OPTION_OVERFLOW, "host", "none of the words"},
        {VS_OPTION_OVERFLOW, "off", "none of the words"},
        {VS_OPTION_REPORT, "report.xml", ""},
        {VS_OPTION_STACKS, "on", "none of the words"},
        {VS_OPTION_STACK_MIN, "64KB", "write KiB"},
        {VS_OPTION_LEAK_SCAN, "-", "neither on nor off"},
        {VS_OPTION_LEAK_EXIT_CODE, "256", "out of range"},
        {VS_OPTION_LEAK_EXIT_CODE, "-1", "out of range"},
        {VS_OPTION_VERBOSE, "3", "out of range"},
        {VS_OPTION_VERBOSE, "debug", "whole number"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct vs_option_info *info = &vs_options_table[cases[i].option];
        char entry[256], start[256], before[64];
        struct heard heard;
        int result;

        load(&heard, NULL);
        snprintf(before, sizeof(before), "%s", text(cases[i].option));
        snprintf(entry, sizeof(entry), "%s=%s", info->name, cases[i].value);
        result = LOAD(&heard, entry);
        if (heard.count != 1 || options.given[cases[i].option])
            fail_msg("%s: %u lines", entry, heard.count);
        assert_int_equal(result, info->cap ? VS_OPTIONS_BAD_CAP : 0);
        assert_int_equal(heard.level[0], 0);
        assert_int_equal(heard.option[0], cases[i].option);
        assert_string_equal(text(cases[i].option), before);
        /* It names the variable, the value and what is accepted. */
        snprintf(start, sizeof(start), "%s=\"%s\" %s: ", info->name,
                 strcmp(cases[i].value, " ") == 0 ? "" : cases[i].value,
                 info->cap ? "refused" : "ignored");
        assert_memory_equal(heard.line[0], start, strlen(start));
        assert_heard(&heard, cases[i].why);
        assert_heard(&heard, "; accepted: ");
        assert_heard(&heard, info->accepted);
        if (!info->cap)
            assert_heard(&heard, "; using ");
    }
}

static void empty_is_unset(void **state)
{
    (void)state;
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        char entry[64];
        struct heard heard;

        snprintf(entry, sizeof(entry), "%s=", vs_options_table[i].name);
        assert_int_equal(LOAD(&heard, entry), 0);
        assert_int_equal(heard.count, 0);
        assert_false(options.given[i]);
    }
}

static void the_first_of_two_counts(void **state)
{
    struct heard heard;

    (void)state;
    assert_int_equal(LOAD(&heard, "VRAMSHIM_LIMIT=8GiB", "VRAMSHIM_LIMIT=junk"), 0);
    assert_string_equal(text(VS_OPTION_LIMIT), "8GiB");
    assert_int_equal(LOAD(&heard, "VRAMSHIM_LIMIT=", "VRAMSHIM_LIMIT=8GiB"), 0);
    assert_string_equal(text(VS_OPTION_LIMIT), "none");
    assert_int_equal(heard.count, 0);
}

static void groups_need_both(void **state)
{
    static const struct {
        char *environment[5];
        const char *said; /* NULL: fine */
    } cases[] = {
        {{"VRAMSHIM_GROUP=a.B_c-1", "VRAMSHIM_GROUP_LIMIT=8GiB", NULL}, NULL},
        {{"VRAMSHIM_GROUP=g", "VRAMSHIM_GROUP_LIMIT=50%", "VRAMSHIM_DIR=/run/g", NULL}, NULL},
        {{"VRAMSHIM_GROUP=", "VRAMSHIM_GROUP_LIMIT=", NULL}, NULL},
        {{"VRAMSHIM_GROUP=g", NULL}, "VRAMSHIM_GROUP_LIMIT is not set"},
        {{"VRAMSHIM_GROUP=g", "VRAMSHIM_GROUP_LIMIT=", NULL}, "VRAMSHIM_GROUP_LIMIT is not set"},
        {{"VRAMSHIM_GROUP_LIMIT=8GiB", NULL}, "VRAMSHIM_GROUP is not set"},
        {{"VRAMSHIM_GROUP=a/b", "VRAMSHIM_GROUP_LIMIT=8GiB", NULL}, "not allowed"},
        {{"VRAMSHIM_GROUP=a b", "VRAMSHIM_GROUP_LIMIT=8GiB", NULL}, "not allowed"},
        {{"VRAMSHIM_GROUP=\xc3\xa4", "VRAMSHIM_GROUP_LIMIT=8GiB", NULL}, "\\xc3\\xa4"},
        {{"VRAMSHIM_GROUP=a/b", NULL}, "not allowed"},
        {{"VRAMSHIM_GROUP=12345678901234567890123456789012345678901234567890123456789012345",
          "VRAMSHIM_GROUP_LIMIT=8GiB", NULL},
         "longer than 64"},
        {{"VRAMSHIM_GROUP=g", "VRAMSHIM_GROUP_LIMIT=0", NULL}, "0 would allow nothing"},
        {{"VRAMSHIM_GROUP=g", "VRAMSHIM_GROUP_LIMIT=0=8GiB", NULL}, "unit is unknown"},
        {{"VRAMSHIM_GROUP=g", "VRAMSHIM_GROUP_LIMIT=1G", "VRAMSHIM_DIR=here", NULL}, "\"here\""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct heard heard;

        assert_int_equal(load(&heard, cases[i].environment),
                         cases[i].said ? VS_OPTIONS_BAD_CAP : 0);
        if (cases[i].said)
            assert_heard(&heard, cases[i].said);
        assert_int_equal(heard.count, cases[i].said ? 1 : 0);
    }
}

static void an_unusable_folder_splits_no_group(void **state)
{
    static char dir[VS_OPTIONS_PATH_SIZE + 32] = "VRAMSHIM_DIR=/";
    struct heard heard;

    (void)state;
    memset(dir + strlen(dir), 'd', VS_OPTIONS_PATH_SIZE);
    assert_int_equal(LOAD(&heard, dir), 0);
    assert_heard(&heard, "VRAMSHIM_DIR=\"/ddd");
    assert_heard(&heard, "...\" ignored: it is too long");
    assert_int_equal(LOAD(&heard, dir, "VRAMSHIM_GROUP=g", "VRAMSHIM_GROUP_LIMIT=1G"),
                     VS_OPTIONS_BAD_CAP);
    assert_heard(&heard, "VRAMSHIM_GROUP=\"g\" refused");
}

static void a_pool_may_not_pass_the_cap(void **state)
{
    struct heard heard;

    (void)state;
    assert_int_equal(LOAD(&heard, "VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_LIMIT=8GiB"), 0);
    assert_int_equal(heard.count, 0);
    assert_int_equal(LOAD(&heard, "VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_LIMIT=7GiB"),
                     VS_OPTIONS_BAD_CAP);
    assert_heard(&heard, "VRAMSHIM_POOL_SIZE=\"8GiB\" refused: more than the cap of 7GiB");
    assert_int_equal(
        LOAD(&heard, "VRAMSHIM_POOL_SIZE=8GiB", "VRAMSHIM_GROUP_LIMIT=7GiB", "VRAMSHIM_GROUP=g"),
        VS_OPTIONS_BAD_CAP);
}

static void every_bad_value_is_said(void **state)
{
    struct heard heard;

    (void)state;
    assert_int_equal(LOAD(&heard, "VRAMSHIM_FRACTION=2", "VRAMSHIM_POOL=x", "VRAMSHIM_LIMIT=y",
                          "VRAMSHIM_LIMMIT=1G"),
                     VS_OPTIONS_BAD_CAP);
    assert_int_equal(heard.count, 4);
}

static void unknown_names_get_the_nearest(void **state)
{
    static const struct {
        char *entry;
        const char *said;
    } cases[] = {
        {"VRAMSHIM_LIMMIT=8GiB", "VRAMSHIM_LIMMIT is not an option and is ignored; nearest: "
                                 "VRAMSHIM_LIMIT"},
        {"VRAMSHIM_limit=8GiB", "VRAMSHIM_limit is"},
        {"VRAMSHIM_STACKMIN=1", "nearest: VRAMSHIM_STACK_MIN"},
        {"VRAMSHIM_VERBOSITY=1", "nearest: VRAMSHIM_VERBOSE"},
        {"VRAMSHIM_=1", "VRAMSHIM_ is"},
        {"VRAMSHIM_\033[2J=1", "VRAMSHIM_\\x1b[2J is"},
        {"VRAMSHIM_LIMMIT=", "nearest: VRAMSHIM_LIMIT"},
    };
    char names[40][32], *environment[41];
    struct heard heard;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(LOAD(&heard, cases[i].entry), 0);
        assert_int_equal(heard.count, 1);
        assert_int_equal(heard.option[0], VS_OPTION_COUNT);
        assert_heard(&heard, cases[i].said);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof(names[i]), "VRAMSHIM_X%d=1", i);
        environment[i] = names[i];
    }
    environment[40] = NULL;
    load(&heard, environment);
    assert_int_equal(heard.count, 9);
    assert_heard(&heard, "32 more VRAMSHIM_ names");
}

static void long_values_are_cut(void **state)
{
    static char entry[70000] = "VRAMSHIM_LIMIT=";
    struct heard heard;

    (void)state;
    memset(entry + strlen(entry), '\033', sizeof(entry) - 100);
    assert_int_equal(LOAD(&heard, entry), VS_OPTIONS_BAD_CAP);
    assert_true(strlen(heard.line[0]) < 500);
    assert_heard(&heard, "\\x1b...");
    assert_heard(&heard, "accepted: a size");
}

static void announces(void **state)
{
    struct heard heard;
    const struct vs_options_listener listener = {hear, &heard};

    (void)state;
    load(&heard, NULL);
    vs_options_announce(&options, &listener);
    assert_int_equal(heard.count, 0);

    LOAD(&heard, "VRAMSHIM_REPORT=none", "VRAMSHIM_POOL=off", "VRAMSHIM_VERBOSE=1");
    vs_options_announce(&options, &listener);
    assert_int_equal(heard.count, 3);
    for (unsigned i = 0; i < heard.count; i++)
        assert_int_equal(heard.level[i], 1);
    assert_string_equal(heard.line[1], "VRAMSHIM_REPORT=none");
    /* A line per option that does nothing yet, and a loud one for a cap that does not hold for all.
     */
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        const struct vs_option_info *info = &vs_options_table[i];
        unsigned expected;

        memset(&heard, 0, sizeof(heard));
        load(&heard, NULL);
        options.given[i] = true;
        vs_options_announce(&options, &listener);
        expected = info->cap && (!info->acts || info->partly) ? 2 : 1;
        assert_int_equal(heard.count, expected);
        if (expected == 2) {
            assert_int_equal(heard.level[0], 0);
            assert_heard(&heard, "NOT limited");
        }
        assert_int_equal(strstr(heard.line[expected - 1], "does nothing yet") != NULL, !info->acts);
    }
}

static void the_dump_parses_again(void **state)
{
    static struct vs_options again;
    static struct vs_options_dump dump, again_dump;
    static char entries[VS_OPTION_COUNT][VS_OPTIONS_TEXT + 64];
    char *environment[VS_OPTION_COUNT + 1];
    struct heard heard;
    const struct vs_options_listener listener = {hear, &heard};
    int count = 0;

    (void)state;
    LOAD(&heard, "VRAMSHIM_LIMIT=0=8G,GPU-ab=12.5%", "VRAMSHIM_FRACTION=.25", "VRAMSHIM_GROUP=g",
         "VRAMSHIM_GROUP_LIMIT=50%", "VRAMSHIM_STACKS=native", "VRAMSHIM_POOL_DECAY_MS=-1",
         "VRAMSHIM_TRIM_ABOVE=3000", "VRAMSHIM_DIR=/x", "VRAMSHIM_REPORT=/a.json,stderr");
    assert_int_equal(heard.count, 0);
    assert_int_equal(vs_options_dump(&options, &dump), VS_OPTION_COUNT);
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        assert_string_equal(dump.options[i].name, vs_options_table[i].name);
        assert_non_null(dump.options[i].value);
        if (!options.given[i])
            continue;
        snprintf(entries[count], sizeof(entries[count]), "%s=%s", dump.options[i].name,
                 dump.options[i].value);
        environment[count] = entries[count];
        count++;
    }
    assert_int_equal(count, 9);
    environment[count] = NULL;
    assert_int_equal(vs_options_load(&again, environment, &listener), 0);
    vs_options_dump(&again, &again_dump);
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        assert_int_equal(again.given[i], options.given[i]);
        assert_string_equal(again_dump.options[i].value, dump.options[i].value);
    }
}

static void the_table_is_whole(void **state)
{
    (void)state;
    assert_int_equal(VS_OPTION_COUNT, 21);
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        const char *name = vs_options_table[i].name;

        assert_int_equal(vs_options_find(name, strlen(name)), i);
        assert_int_equal(vs_options_nearest(name, strlen(name)), i);
        assert_true(strlen(vs_options_table[i].meaning) > 0);
    }
    assert_int_equal(vs_options_find("VRAMSHIM_LIMI", 13), VS_OPTION_COUNT);
    assert_int_equal(vs_options_find("VRAMSHIM_LIMIT", 13), VS_OPTION_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_set_is_the_defaults),
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses_or_ignores),
        cmocka_unit_test(empty_is_unset),
        cmocka_unit_test(the_first_of_two_counts),
        cmocka_unit_test(groups_need_both),
        cmocka_unit_test(an_unusable_folder_splits_no_group),
        cmocka_unit_test(a_pool_may_not_pass_the_cap),
        cmocka_unit_test(every_bad_value_is_said),
        cmocka_unit_test(unknown_names_get_the_nearest),
        cmocka_unit_test(long_values_are_cut),
        cmocka_unit_test(announces),
        cmocka_unit_test(the_dump_parses_again),
        cmocka_unit_test(the_table_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
