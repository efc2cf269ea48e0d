/* Grouping leaks: order, bounds, sums. */
#include "testing.h"

#include <string.h>

#include "report/leaks.h"

static struct vs_leaks_grouping grouping;
static struct vs_leaks leaks;

static void expect(uint32_t at, uint32_t device, uint64_t size, uint64_t count, uint64_t total)
{
    assert_true(at < leaks.count);
    assert_int_equal(leaks.leak[at].device, device);
    assert_int_equal(leaks.leak[at].size_bytes, size);
    assert_int_equal(leaks.leak[at].count, count);
    assert_int_equal(leaks.leak[at].total_bytes, total);
}

static void none(void **unused)
{
    (void)unused;
    vs_leaks_open(&grouping, 0);
    vs_leaks_close(&grouping, &leaks);
    assert_int_equal(leaks.count, 0);
}

static void groups_and_order(void **unused)
{
    (void)unused;
    vs_leaks_open(&grouping, 10);
    vs_leaks_add(&grouping, 0, VS_KIND_PLAIN, 100, 1, false);
    vs_leaks_add(&grouping, 1, VS_KIND_PLAIN, 100, 1, false);
    vs_leaks_add(&grouping, 0, VS_KIND_ASYNC, 100, 1, false);
    vs_leaks_add(&grouping, 0, VS_KIND_PLAIN, 100, 2, false);
    vs_leaks_add(&grouping, 0, VS_KIND_PLAIN, 100, 1, true);
    vs_leaks_add(&grouping, 0, VS_KIND_PLAIN, 1000, 1, false);
    vs_leaks_close(&grouping, &leaks);
    assert_int_equal(leaks.count, 5);
    expect(0, 0, 1000, 1, 1000);
    expect(1, 0, 100, 3, 300);
    expect(2, 0, 100, 1, 100);
    assert_int_equal(leaks.leak[2].kind, VS_KIND_PLAIN);
    assert_true(leaks.leak[2].with_context);
    assert_int_equal(leaks.leak[3].kind, VS_KIND_ASYNC);
    expect(4, 1, 100, 1, 100);
}

/* More distinct sizes than are listed, in random order: the largest are listed, all else is summed.
 */
static void bounded(void **unused)
{
    (void)unused;
    enum { SIZES = 5000 };
    static unsigned order[SIZES];
    uint64_t random = testing_seed(), total = 0, listed = 0;
    for (unsigned i = 0; i < SIZES; i++)
        order[i] = i;
    for (unsigned i = SIZES - 1; i > 0; i--) {
        unsigned with = testing_random(&random) % (i + 1), held = order[i];
        order[i] = order[with];
        order[with] = held;
    }
    vs_leaks_open(&grouping, SIZES);
    for (unsigned i = 0; i < SIZES; i++) {
        vs_leaks_add(&grouping, order[i] % 2, VS_KIND_PLAIN, order[i] + 1, 1, false);
        total += order[i] + 1;
    }
    vs_leaks_add_rest(&grouping, 5, 77, 7);
    vs_leaks_close(&grouping, &leaks);
    assert_int_equal(leaks.count, VS_LEAKS_LISTED + 3);
    for (unsigned i = 0; i < VS_LEAKS_LISTED; i++) {
        expect(i, (SIZES - 1 - i) % 2, SIZES - i, 1, SIZES - i);
        listed += SIZES - i;
    }
    for (unsigned i = VS_LEAKS_LISTED; i < leaks.count; i++)
        assert_int_equal(leaks.leak[i].kind, VS_KIND_COUNT);
    assert_int_equal(leaks.leak[VS_LEAKS_LISTED].total_bytes +
                         leaks.leak[VS_LEAKS_LISTED + 1].total_bytes,
                     total - listed);
    assert_int_equal(leaks.leak[VS_LEAKS_LISTED].count + leaks.leak[VS_LEAKS_LISTED + 1].count,
                     SIZES - VS_LEAKS_LISTED);
    expect(VS_LEAKS_LISTED + 2, 5, 0, 7, 77);
}

/* Fewer places than distinct sizes (a wrong guess, or no memory): nothing is lost. */
static void too_few_places(void **unused)
{
    (void)unused;
    uint64_t count = 0, bytes = 0;
    vs_leaks_open(&grouping, 1);
    for (unsigned i = 1; i <= 1000; i++)
        vs_leaks_add(&grouping, 0, VS_KIND_PLAIN, i, 1, false);
    vs_leaks_close(&grouping, &leaks);
    for (uint32_t i = 0; i < leaks.count; i++) {
        count += leaks.leak[i].count;
        bytes += leaks.leak[i].total_bytes;
    }
    assert_int_equal(count, 1000);
    assert_int_equal(bytes, 500500);
    memset(&grouping, 0, sizeof grouping);
    vs_leaks_add(&grouping, 2, VS_KIND_PLAIN, 10, 3, false);
    vs_leaks_close(&grouping, &leaks);
    assert_int_equal(leaks.count, 1);
    expect(0, 2, 0, 3, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none),
        cmocka_unit_test(groups_and_order),
        cmocka_unit_test(bounded),
        cmocka_unit_test(too_few_places),
    };
    return cmocka_run_group_tests_name("leaks", tests, NULL, NULL);
}
