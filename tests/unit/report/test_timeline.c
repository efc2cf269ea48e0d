/* The timeline, with time handed in: what survives of peaks and drops, and how many rows there are.
 */
#include "testing.h"

#include <pthread.h>
#include <string.h>

#include "report/timeline.h"

#define MS UINT64_C(1048576) /* the first width of a bucket */

static struct vs_timeline timeline;
static struct vs_timeline_sample now[VS_LEDGER_MAX_DEVICES];
static struct vs_timeline_row rows[VS_TIMELINE_ROWS];

static int reset(void **unused)
{
    (void)unused;
    memset(&timeline, 0, sizeof timeline);
    memset(now, 0, sizeof now);
    vs_timeline_init(&timeline);
    return 0;
}

/* The device's live bytes become live; reserved and used follow from them. */
static void event(uint32_t device, uint64_t t_ns, uint64_t live)
{
    struct vs_timeline_sample before = now[device];
    now[device] = (struct vs_timeline_sample){t_ns, live, live * 2, live + 1};
    vs_timeline_event(&timeline, device, &before, &now[device]);
}

static size_t finish(uint64_t t_ns)
{
    for (size_t d = 0; d < VS_LEDGER_MAX_DEVICES; d++)
        now[d].t_ns = t_ns;
    memset(rows, 0xee, sizeof rows);
    size_t count = vs_timeline_rows(&timeline, now, rows);
    assert_true(count <= VS_TIMELINE_ROWS);
    for (size_t i = 1; i < count; i++)
        assert_true(rows[i - 1].sample.t_ns <= rows[i].sample.t_ns);
    return count;
}

static void expect(size_t row, uint32_t device, uint64_t t_ns, uint64_t live)
{
    assert_int_equal(rows[row].device, device);
    assert_int_equal(rows[row].sample.t_ns, t_ns);
    assert_int_equal(rows[row].sample.live_bytes, live);
    assert_int_equal(rows[row].sample.reserved_bytes, live * 2);
    if (live)
        assert_int_equal(rows[row].sample.used_bytes, live + 1);
}

static void nothing(void **unused)
{
    (void)unused;
    assert_int_equal(finish(5 * MS), 0);
}

static void peak_and_drop_in_one_bucket(void **unused)
{
    (void)unused;
    event(0, 10, 100);
    event(0, 20, 300);
    event(0, 30, 50);
    event(0, 40, 200);
    event(0, 50, 0);
    assert_int_equal(finish(7 * MS), 2);
    expect(0, 0, 20, 300);
    expect(1, 0, 7 * MS, 0);
}

/* A bucket closes with the state that it ended in, at its end. */
static void drop_before_idle_time(void **unused)
{
    (void)unused;
    event(0, 10, 100);
    event(0, 20, 30);
    event(0, 50 * MS + 3, 70);
    assert_int_equal(finish(50 * MS + 4), 4);
    expect(0, 0, 10, 100);
    expect(1, 0, MS - 1, 30);
    expect(2, 0, 50 * MS + 3, 70);
    expect(3, 0, 50 * MS + 4, 70);
}

static void equal_peaks_keep_the_first(void **unused)
{
    (void)unused;
    event(0, 10, 100);
    event(0, 20, 10);
    event(0, 30, 100);
    finish(40);
    expect(0, 0, 10, 100);
}

static void late_thread(void **unused)
{
    (void)unused;
    event(0, 2 * MS, 10);
    event(0, 1 * MS, 99); /* its clock was read before the other's */
    assert_int_equal(finish(3 * MS), 2);
    expect(0, 0, 2 * MS, 99);
}

static void devices_apart(void **unused)
{
    (void)unused;
    event(3, 5, 30);
    event(63, 5, 40);
    event(0, 6, 1);
    assert_int_equal(finish(10), 6);
    expect(0, 3, 5, 30);
    expect(1, 63, 5, 40);
    expect(2, 0, 6, 1);
    expect(3, 0, 10, 1);
    expect(4, 3, 10, 30);
    expect(5, 63, 10, 40);
}

static void same_bucket_needs_no_record(void **unused)
{
    (void)unused;
    event(0, 10, 100);
    vs_lock_take(&timeline.lock); /* would hang if the quick path took it */
    event(0, 11, 99);
    event(0, 12, 100);
    vs_lock_drop(&timeline.lock);
}

/* When buckets double: pairs keep the higher top and the later end, and the open one goes on. */
static void widening(void **unused)
{
    (void)unused;
    const uint64_t full = VS_TIMELINE_BUCKETS;
    for (uint64_t i = 0; i <= full; i++) {
        event(0, i * MS, i % 2 ? 500 + i : 9000 - i);
        event(0, i * MS + 1, i % 2 ? 7 : 6);
    }
    event(0, full * MS + 2, 77777); /* in the bucket that was open when they doubled */
    event(0, full * MS + 3, 3);
    assert_int_equal(finish(full * MS + 4), full + 2);
    for (uint64_t i = 0; i < full / 2; i++) {
        expect(2 * i, 0, 2 * i * MS, 9000 - 2 * i);
        expect(2 * i + 1, 0, (2 * i + 2) * MS - 1, 7);
    }
    expect(full, 0, full * MS + 2, 77777);
    expect(full + 1, 0, full * MS + 4, 3);
    event(0, (full + 2) * MS, 1);
    assert_int_equal(finish((full + 2) * MS), full + 3);
    expect(full + 1, 0, (full + 2) * MS - 1, 3);
}

/* A device whose newest bucket moved when another one's event made them double. */
static void widening_by_another_device(void **unused)
{
    (void)unused;
    for (uint64_t i = 0; i < VS_TIMELINE_BUCKETS - 1; i++)
        event(0, i * MS, 10);
    const uint64_t t = (VS_TIMELINE_BUCKETS - 1) * MS;
    event(1, t, 20);
    event(0, t, 10); /* doubles */
    event(1, t + 1, 30);
    event(1, t + 2, 5);
    size_t count = finish(t + 3), found = 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].device == 1)
            found += rows[i].sample.live_bytes == (found ? 5 : 30);
        else
            assert_int_equal(rows[i].sample.live_bytes, 10);
    }
    assert_int_equal(found, 2);
}

/* One narrow spike among a million events of a day: it survives, and so does the last state. */
static void long_run(void **unused)
{
    (void)unused;
    const uint64_t step = 86400000000000 / 1000000;
    uint64_t random = testing_seed();
    uint64_t spike = testing_random(&random) % 1000000;
    for (uint64_t i = 0; i < 1000000; i++) {
        event(0, i * step, testing_random(&random) % 1000);
        if (i == spike) {
            event(0, i * step + 1, 123456);
            event(0, i * step + 2, 5);
        }
    }
    size_t count = finish(1000000 * step);
    assert_true(count > VS_TIMELINE_ROWS / 4);
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += rows[i].sample.live_bytes == 123456 && rows[i].sample.t_ns == spike * step + 1;
    assert_int_equal(found, 1);
    assert_int_equal(rows[count - 1].sample.t_ns, 1000000 * step);
    assert_int_equal(rows[count - 1].sample.live_bytes, now[0].live_bytes);
}

/* Against a naive model: per device the highest sample ever is there, every row tells a state that
 * the device was in at that time, and the end is right. */
static void many_devices(void **unused)
{
    (void)unused;
    enum { DEVICES = VS_LEDGER_MAX_DEVICES, EVENTS = 200000 };
    uint64_t random = testing_seed();
    struct {
        uint64_t t_ns, live;
        uint32_t device;
    } *log = calloc(EVENTS, sizeof *log);
    uint64_t peak[DEVICES] = {0}, t = 1;
    bool seen[DEVICES] = {false}, ended[DEVICES] = {false};
    for (size_t i = 0; i < EVENTS; i++) {
        t += testing_random(&random) % (i % 1000 == 0 ? 1000 * MS : MS / 8) + 1;
        log[i].t_ns = t;
        log[i].device = (uint32_t)(testing_random(&random) % DEVICES);
        log[i].live = testing_random(&random) % 100000 + 1;
        event(log[i].device, t, log[i].live);
        if (log[i].live > peak[log[i].device])
            peak[log[i].device] = log[i].live;
    }
    size_t count = finish(t + 1);
    assert_true(count >= DEVICES * 2);
    uint64_t state[DEVICES] = {0};
    for (size_t i = 0, at = 0; i < count; i++) {
        uint32_t d = rows[i].device;
        for (; at < EVENTS && log[at].t_ns <= rows[i].sample.t_ns; at++)
            state[log[at].device] = log[at].live;
        assert_int_equal(rows[i].sample.live_bytes, state[d]);
        seen[d] = seen[d] || rows[i].sample.live_bytes == peak[d];
        ended[d] = rows[i].sample.t_ns == t + 1 && rows[i].sample.live_bytes == now[d].live_bytes;
    }
    for (size_t d = 0; d < DEVICES; d++) {
        assert_true(seen[d]);
        assert_true(ended[d]);
    }
    free(log);
}

static void *hammer(void *argument)
{
    uint32_t device = (uint32_t)(uintptr_t)argument;
    for (uint64_t i = 0; i < 20000; i++) {
        struct vs_timeline_sample before = {0, i, 0, i}, after = {i * MS / 4, i + 1, 0, i + 1};
        vs_timeline_event(&timeline, device % 2, &before, &after);
    }
    return NULL;
}

static void threads(void **unused)
{
    (void)unused;
    pthread_t thread[4];
    for (uintptr_t t = 0; t < 4; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, hammer, (void *)t), 0);
    for (int t = 0; t < 4; t++)
        pthread_join(thread[t], NULL);
    now[0].live_bytes = now[1].live_bytes = 1;
    size_t count = finish(20000 * MS), found = 0;
    for (size_t i = 0; i < count; i++)
        found += rows[i].sample.live_bytes == 20000;
    assert_true(found >= 2);
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing),
        TEST(peak_and_drop_in_one_bucket),
        TEST(drop_before_idle_time),
        TEST(equal_peaks_keep_the_first),
        TEST(late_thread),
        TEST(devices_apart),
        TEST(same_bucket_needs_no_record),
        TEST(widening),
        TEST(widening_by_another_device),
        TEST(long_run),
        TEST(many_devices),
        TEST(threads),
    };
    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
