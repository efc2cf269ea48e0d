/*
 * The printf subset against printf itself, cutting, escaping, and the distance of words.
 */
#include "tests/unit/options/cases.h"

#include <limits.h>

#include "shim/nearest.h"
#include "shim/text.h"

#define SAME(...)                                                                                  \
    do {                                                                                           \
        char ours_[256], theirs_[256];                                                             \
        size_t used_ = vs_text_format(ours_, sizeof(ours_), __VA_ARGS__);                          \
        snprintf(theirs_, sizeof(theirs_), __VA_ARGS__);                                           \
        assert_string_equal(ours_, theirs_);                                                       \
        assert_int_equal(used_, strlen(theirs_));                                                  \
    } while (0)

static void formats_as_printf_does(void **state)
{
    int here;

    (void)state;
    SAME("plain");
    SAME("%s|%.*s|%.*s|%c|%%", "text", 2, "text", 9, "text", 'x');
    SAME("%d %d %d %i", 0, INT_MAX, INT_MIN, -7);
    SAME("%u %u %x %x", 0U, UINT_MAX, 0xdeadbeefU, 0U);
    SAME("%ld %ld %lu %lx", LONG_MAX, LONG_MIN, ULONG_MAX, ULONG_MAX);
    SAME("%lld %lld %llu %llx", LLONG_MAX, LLONG_MIN, ULLONG_MAX, ULLONG_MAX);
    SAME("%zu %ju %jd", (size_t)-1, UINTMAX_MAX, INTMAX_MIN);
    SAME("%p", (void *)&here);
}

static void cuts_what_does_not_fit(void **state)
{
    char out[8];
    const char *volatile nothing = NULL; /* hidden from the compiler, which would warn */

    (void)state;
    memset(out, 'z', sizeof(out));
    assert_int_equal(vs_text_format(out, 5, "%s", "abcdefgh"), 4);
    assert_string_equal(out, "abcd");
    assert_int_equal(out[5], 'z');
    assert_int_equal(vs_text_format(out, 1, "%d", 12345), 0);
    assert_string_equal(out, "");
    assert_int_equal(vs_text_format(NULL, 0, "%d", 12345), 0);
    assert_int_equal(vs_text_format(out, sizeof(out), "%s", nothing), 6);
    assert_string_equal(out, "(null)");
}

static const char *escaped(const char *text)
{
    static char out[VS_TEXT_SHOWN];

    return vs_text_escape(out, sizeof(out), text, strlen(text));
}

static void escapes_what_a_terminal_must_not_see(void **state)
{
    char out[11];

    (void)state;
    assert_string_equal(escaped("8GiB"), "8GiB");
    assert_string_equal(escaped("a\nb\tc"), "a\\nb\\tc");
    assert_string_equal(escaped("\033[31m"), "\\x1b[31m");
    assert_string_equal(escaped("\x9b\x7f\xff"), "\\x9b\\x7f\\xff");
    assert_string_equal(escaped("\"\\"), "\\\"\\\\");
    assert_string_equal(vs_text_escape(out, sizeof(out), "0123456789", 10), "0123456789");
    assert_string_equal(vs_text_escape(out, sizeof(out), "0123456789a", 11), "0123456...");
    assert_string_equal(vs_text_escape(out, sizeof(out), "012345\n\n\n\n", 10), "012345...");
}

static unsigned distance(const char *a, const char *b)
{
    return vs_nearest_distance(a, strlen(a), b, strlen(b));
}

static void measures_distances(void **state)
{
    char a[200], b[200];

    (void)state;
    assert_int_equal(distance("", ""), 0);
    assert_int_equal(distance("", "abc"), 3);
    assert_int_equal(distance("abc", ""), 3);
    assert_int_equal(distance("LIMIT", "LIMIT"), 0);
    assert_int_equal(distance("LIMT", "LIMIT"), 1);
    assert_int_equal(distance("LIMMIT", "LIMIT"), 1);
    assert_int_equal(distance("LINIT", "LIMIT"), 1);
    assert_int_equal(distance("LIMTI", "LIMIT"), 1);
    assert_int_equal(distance("kitten", "sitting"), 3);
    memset(a, 'a', sizeof(a));
    memset(b, 'b', sizeof(b));
    assert_int_equal(vs_nearest_distance(a, sizeof(a), b, sizeof(b)), VS_NEAREST_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_as_printf_does),
        cmocka_unit_test(cuts_what_does_not_fit),
        cmocka_unit_test(escapes_what_a_terminal_must_not_see),
        cmocka_unit_test(measures_distances),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
