/* VRAMSHIM_REPORT: one case per accepted and refused form, and expansion. */
#include "testing.h"

#include <errno.h>
#include <string.h>

#include "report/pattern.h"
#include "report/report.h"

static const struct vs_pattern_facts facts = {42, "node/7", "/usr/bin/python3.11"};

static void accepted(void **unused)
{
    (void)unused;
    static const char *const specs[] = {
        "stderr",
        "none",
        "a.json",
        "/x/y.txt",
        "stderr,a.json",
        " a.json , b.txt ",
        "%p.json",
        "%h-%e-%q{RANK}-%%.txt",
        "a b.json",
        ".json",
        "1.json,2.json,3.json,4.json,5.json,6.json,7.json,8.json",
        "a.json,a.json",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        if (vs_report_spec_check(specs[i]))
            fail_msg("%s: %s", specs[i], vs_report_spec_check(specs[i]));
}

static void refused(void **unused)
{
    (void)unused;
    static const char *const cases[][2] = {
        {"", "empty"},
        {",", "empty"},
        {"a.json,", "empty"},
        {"a.json,,b.json", "empty"},
        {"  ", "empty"},
        {"none,stderr", "alone"},
        {"a.json,none", "alone"},
        {"stdout", ".json or .txt"},
        {"Stderr", ".json or .txt"},
        {"a.html", ".json or .txt"},
        {"a.JSON", ".json or .txt"},
        {"json", ".json or .txt"},
        {"/tmp/", ".json or .txt"},
        {"%x.json", "only %p"},
        {"%.json", "only %p"},
        {"%q.json", "followed by"},
        {"%q{X.json", "followed by"},
        {"%q{}.json", "names no variable"},
        {"1.json,2.json,3.json,4.json,5.json,6.json,7.json,8.json,9.json", "at most 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *wrong = vs_report_spec_check(cases[i][0]);
        if (!wrong || !strstr(wrong, cases[i][1]))
            fail_msg("\"%s\": %s", cases[i][0], wrong ? wrong : "accepted");
    }
}

static void very_long(void **unused)
{
    (void)unused;
    static char spec[3 * VS_PATTERN_PATH];
    memset(spec, 'a', sizeof spec - 1);
    memcpy(spec + sizeof spec - 6, ".json", 6);
    assert_string_equal(vs_report_spec_check(spec), "a path is too long");
    snprintf(spec, sizeof spec, "%%q{%0200d}.json", 1);
    assert_non_null(vs_report_spec_check(spec));
}

static int expand(const char *spec, char path[VS_PATTERN_PATH])
{
    struct vs_pattern_item item[VS_PATTERN_ITEMS];
    size_t count;
    assert_null(vs_pattern_parse(spec, item, &count));
    return vs_pattern_expand(&item[count - 1], &facts, path);
}

static void expansion(void **unused)
{
    (void)unused;
    static char path[VS_PATTERN_PATH], huge[VS_PATTERN_PATH + 1];
    setenv("VS_A", "dir/7", 1);
    unsetenv("VS_B");
    assert_int_equal(expand("%p-%h-%e-%q{VS_A}-%q{VS_B}-%%.json", path), 0);
    assert_string_equal(path, "42-node_7-python3.11-dir/7--%.json");
    assert_int_equal(expand("stderr, x y.txt ", path), 0);
    assert_string_equal(path, "x y.txt");
    setenv("VS_A", "%p", 1); /* expanded once */
    assert_int_equal(expand("%q{VS_A}.txt", path), 0);
    assert_string_equal(path, "%p.txt");
    memset(huge, 'x', sizeof huge - 1);
    setenv("VS_A", huge, 1);
    assert_int_equal(expand("%q{VS_A}.txt", path), -ENAMETOOLONG);
}

/* Random specs: each is refused, or every path in it expands. */
static void random_specs(void **unused)
{
    (void)unused;
    static const char *const pieces[] = {"%", "p",     "h",    "e",    "q",      "{",   "}",
                                         ",", ".json", ".txt", "none", "stderr", " ",   "/",
                                         "a", "%p",    "%q{",  "\xff", "%%",     "VS_A"};
    static char path[VS_PATTERN_PATH];
    uint64_t random = testing_seed();
    unsigned good = 0;
    setenv("VS_A", "x", 1);
    for (int round = 0; round < 300000; round++) {
        char spec[128] = "";
        struct vs_pattern_item item[VS_PATTERN_ITEMS];
        size_t count;
        for (unsigned left = 1 + testing_random(&random) % 12; left > 0; left--)
            strcat(spec, pieces[testing_random(&random) % (sizeof pieces / sizeof *pieces)]);
        if (vs_pattern_parse(spec, item, &count))
            continue;
        good++;
        assert_in_range(count, 1, VS_PATTERN_ITEMS);
        for (size_t i = 0; i < count; i++) {
            if (item[i].type < VS_PATTERN_JSON)
                continue;
            assert_int_equal(vs_pattern_expand(&item[i], &facts, path), 0);
            assert_true(strlen(path) >= 4);
        }
    }
    assert_true(good > 1000);
}

static void types(void **unused)
{
    (void)unused;
    struct vs_pattern_item item[VS_PATTERN_ITEMS];
    size_t count;
    assert_null(vs_pattern_parse("stderr,a.json,b.txt", item, &count));
    assert_int_equal(count, 3);
    assert_int_equal(item[0].type, VS_PATTERN_STDERR);
    assert_int_equal(item[1].type, VS_PATTERN_JSON);
    assert_int_equal(item[2].type, VS_PATTERN_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),  cmocka_unit_test(refused), cmocka_unit_test(very_long),
        cmocka_unit_test(expansion), cmocka_unit_test(types),   cmocka_unit_test(random_specs),
    };
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
