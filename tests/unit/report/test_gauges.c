/*
 * The gauges against a model that knows the truth: lanes are played by one thread in a chosen
 * order, so that it is known at each step what is live and what was live at the most. Then real
 * threads.
 */
#include "testing.h"

#include <pthread.h>
#include <string.h>

#include "report/gauges.h"

#define MIB UINT64_C(1048576)
#define LANES VS_GAUGE_LANES
#define LIVE 64 /* blocks of a lane */

static struct vs_gauges gauges;
static struct vs_timeline timeline;
static struct {
    uint64_t now, peak, peak_at, allocs, alloc_bytes, frees;
} model;
static uint64_t t_ns;
static uint64_t block[LANES][LIVE];
static uint64_t rng;

static int reset(void **unused)
{
    (void)unused;
    memset(&gauges, 0, sizeof gauges);
    memset(&model, 0, sizeof model);
    memset(&timeline, 0, sizeof timeline);
    vs_timeline_init(&timeline);
    memset(block, 0, sizeof block);
    t_ns = 1000;
    rng = testing_seed();
    return 0;
}

static void change(uint32_t lane, enum vs_gauge_call call, uint64_t bytes, uint32_t kind)
{
    struct vs_gauge_change it = {call, bytes, t_ns, kind, lane};
    vs_gauges_live(&gauges, &it, &timeline, 0);
}

static void take(uint32_t lane, uint64_t bytes)
{
    model.now += bytes;
    model.allocs++;
    model.alloc_bytes += bytes;
    if (model.now > model.peak) {
        model.peak = model.now;
        model.peak_at = t_ns;
    }
    change(lane, VS_GAUGE_ALLOC, bytes, VS_KIND_POOL);
}

static void give(uint32_t lane, uint64_t bytes)
{
    model.now -= bytes;
    model.frees++;
    change(lane, VS_GAUGE_FREE, bytes, VS_KIND_POOL);
}

static uint64_t any_size(void)
{
    return (testing_random(&rng) % (UINT64_C(1024) << testing_random(&rng) % 14)) + 1;
}

/* One call of a lane, on a random block of a random lane: frees happen anywhere. */
static void any_call(uint32_t lane)
{
    uint64_t *at = &block[testing_random(&rng) % LANES][testing_random(&rng) % LIVE];
    if (*at) {
        give(lane, *at);
        *at = 0;
    } else {
        *at = any_size();
        take(lane, *at);
    }
}

static struct vs_gauges_now reading(void)
{
    struct vs_gauges_now now;
    vs_gauges_read(&gauges, false, &now);
    return now;
}

static void expect_sums(void)
{
    struct vs_gauge_totals totals;
    assert_int_equal(reading().live, model.now);
    assert_int_equal(reading().pool_live, model.now);
    vs_gauges_calls(&gauges, &totals);
    assert_int_equal(totals.allocs, model.allocs);
    assert_int_equal(totals.alloc_bytes, model.alloc_bytes);
    assert_int_equal(totals.frees, model.frees);
}

static void expect_exact(void)
{
    expect_sums();
    assert_int_equal(gauges.collecting, 0);
    assert_int_equal(gauges.live.now, model.now);
    assert_int_equal(gauges.live.peak, model.peak);
    assert_int_equal(gauges.live_peak_at_ns, model.peak_at);
    assert_int_equal(gauges.pool_live.peak, model.peak);
}

static void expect_bounded(uint32_t lanes)
{
    expect_sums();
    assert_true(gauges.live.peak <= model.peak);
    assert_true(gauges.live.peak + (uint64_t)VS_GAUGE_BAND * lanes >= model.peak);
    assert_int_equal(gauges.pool_live.peak, gauges.live.peak);
    for (uint32_t i = 0; i < LANES; i++) {
        assert_true(gauges.lane[i].held[VS_KIND_POOL] <= (uint64_t)VS_GAUGE_BAND);
    }
}

static void one_lane_is_exact(void **unused)
{
    (void)unused;
    for (int i = 0; i < 100000; i++) {
        any_call(5);
        t_ns += testing_random(&rng) % 2;
        expect_exact();
    }
}

/* As a framework's forward and backward threads: many calls of one, then many of the other, however
 * quickly. */
static void phases_are_exact(void **unused)
{
    (void)unused;
    for (uint32_t phase = 0; phase < 20000; phase++)
        for (uint64_t i = 0, n = 17 + testing_random(&rng) % 3; i < n; i++) {
            any_call(phase % 3);
            expect_exact();
        }
}

/* One call each, handed over: slow enough not to be taken for simultaneous. */
static void turns_are_exact(void **unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 100000; i++) {
        any_call(i % LANES);
        t_ns += i % 1000 == 0;
        expect_exact();
    }
}

static void run_together(uint32_t lanes, int calls)
{
    for (int i = 0; i < calls; i++) {
        any_call(testing_random(&rng) % lanes);
        t_ns += testing_random(&rng) % 4096 == 0;
        expect_bounded(lanes);
    }
}

static void together_is_bounded(void **unused)
{
    (void)unused;
    for (uint32_t lanes = 2; lanes <= LANES; lanes++) {
        run_together(lanes, 2000);
        run_together(lanes, 20000);
        assert_int_equal(gauges.collecting, 1);
    }
}

/* The worst: everybody allocates just below what would be passed on, all at once, then frees. */
static void spike_is_bounded(void **unused)
{
    (void)unused;
    run_together(LANES, 5000);
    assert_int_equal(gauges.collecting, 1);
    for (uint32_t i = 0; i < LANES; i++)
        while (gauges.lane[i].held[VS_KIND_POOL] + 4096 <= (uint64_t)VS_GAUGE_BAND)
            take(i, 4096);
    expect_bounded(LANES);
    uint64_t top = model.peak;
    for (int i = 0; i < 2000; i++)
        give((uint32_t)i % LANES, 4096);
    expect_bounded(LANES);
    assert_int_equal(model.peak, top);
}

/* What one lane allocates and another frees: the gauges go below zero, and nobody sees it. */
static void freed_elsewhere(void **unused)
{
    (void)unused;
    run_together(4, 10000);
    assert_int_equal(gauges.collecting, 1);
    for (uint32_t i = 0; i < LANES; i++)
        for (uint32_t k = 0; k < LIVE; k++)
            if (block[i][k]) {
                give(7, block[i][k]);
                block[i][k] = 0;
            }
    assert_int_equal(model.now, 0);
    expect_bounded(5);
    for (int i = 0; i < 10000; i++) {
        take(1, 100000);
        expect_bounded(6);
        give(9, 100000);
        expect_bounded(6);
    }
}

/* Once one lane is alone for some ticks, everything is exact again. */
static void alone_again(void **unused)
{
    (void)unused;
    for (int round = 0; round < 20; round++) {
        run_together(8, 20000);
        assert_int_equal(gauges.collecting, 1);
        for (int i = 0; i < 6; i++) {
            t_ns++;
            any_call(3);
        }
        assert_int_equal(gauges.collecting, 0);
        expect_bounded(8);
        for (uint32_t i = 0; i < LANES; i++)
            assert_int_equal(gauges.lane[i].held[VS_KIND_POOL], 0);
        assert_int_equal(gauges.live.now, model.now);
        take(3, model.peak - model.now + 1); /* a peak from here on is exact, and so is its time */
        expect_exact();
        give(3, model.now);
        memset(block, 0, sizeof block);
        expect_exact();
    }
}

static void expect_within(const struct vs_gauge *gauge, uint64_t peak, unsigned bands)
{
    assert_true(gauge->peak <= peak);
    assert_true(gauge->peak + bands * (uint64_t)VS_GAUGE_BAND >= peak);
}

/* Each kind is collected by itself; readers see all of it, peaks as far as the bands allow. */
static void other_kinds(void **unused)
{
    (void)unused;
    uint64_t live = 0, async = 0, past = 0, peak = 0, async_peak = 0, used_peak = 0;
    run_together(8, 20000);
    assert_int_equal(gauges.collecting, 1);
    vs_gauges_reserved(&gauges, 100 * (int64_t)MIB, t_ns, &timeline, 0);
    assert_int_equal(gauges.reserved.now, 100 * MIB);
    for (uint32_t i = 0; i < 1000; i++) {
        bool fewer = i % 4 == 3;
        uint64_t bytes = MIB + i / 4;
        change(i % 5, fewer ? VS_GAUGE_FREE : VS_GAUGE_ALLOC, bytes, VS_KIND_ASYNC);
        change(i % 3, VS_GAUGE_ALLOC, 1, VS_KIND_OVERFLOW);
        async += fewer ? -bytes : bytes;
        past++;
        live = model.now + async + past;
        peak = live > peak ? live : peak;
        async_peak = async > async_peak ? async : async_peak;
        used_peak = 100 * MIB + async_peak;
        assert_int_equal(reading().by_kind[VS_KIND_ASYNC], async);
        assert_int_equal(reading().by_kind[VS_KIND_OVERFLOW], past);
        assert_int_equal(reading().by_kind[VS_KIND_POOL], 100 * MIB);
        assert_int_equal(reading().used, 100 * MIB + async);
        assert_int_equal(reading().live, live);
        assert_int_equal(reading().pool_live, model.now);
        expect_within(&gauges.by_kind[VS_KIND_ASYNC], async_peak, 5);
        expect_within(&gauges.used, used_peak, 5);
    }
    assert_int_equal(gauges.collecting, 1);
    expect_within(&gauges.live, peak, 8 + 5 + 3);
    assert_int_equal(gauges.reserved.peak, 100 * MIB);
    vs_gauges_reserved(&gauges, -100 * (int64_t)MIB, t_ns, &timeline, 0);
    assert_int_equal(reading().used, async);
    for (int i = 0; i < 6; i++) {
        t_ns++;
        change(0, VS_GAUGE_ALLOC, 0, VS_KIND_ASYNC);
    }
    assert_int_equal(gauges.collecting, 0);
    assert_int_equal(gauges.by_kind[VS_KIND_ASYNC].now, async);
    assert_int_equal(gauges.by_kind[VS_KIND_OVERFLOW].now, past);
    assert_int_equal(gauges.used.now, async);
    assert_int_equal(gauges.live.now, live);
}

/* What is not of a pool begins it, too: threads that only take such memory meet as often. */
static void other_kinds_begin_it(void **unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 4096; i++)
        change(i % 2, VS_GAUGE_ALLOC, 1000, VS_KIND_PLAIN);
    assert_int_equal(gauges.collecting, 1);
    assert_int_equal(reading().used, 4096 * 1000);
}

/* Each thread makes many calls in a row, so that they seldom take turns, and finds the lock held:
 * that is at the same time, and no tick of the clock passes. */
static void *crowd(void *argument)
{
    for (int i = 0; i < 20000000 && !gauges.collecting; i++) {
        struct vs_gauge_change it = {VS_GAUGE_ALLOC, 1, 1000, VS_KIND_PLAIN,
                                     (uint32_t)(uintptr_t)argument};
        vs_lock_take(&gauges.lock);
        gauges.score = 0; /* of turns there are too few */
        vs_lock_drop(&gauges.lock);
        vs_gauges_live(&gauges, &it, &timeline, 0);
    }
    return NULL;
}

static void crowds_begin_it(void **unused)
{
    (void)unused;
    pthread_t thread[2];
    for (uintptr_t t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, crowd, (void *)t), 0);
    for (int t = 0; t < 2; t++)
        pthread_join(thread[t], NULL);
    assert_int_equal(gauges.collecting, 1);
}

/* Whatever moves is told to the timeline: a new bucket begins with the state before it. */
static void timeline_is_told(void **unused)
{
    (void)unused;
    const struct vs_timeline_bucket *bucket = timeline.bucket;
    vs_gauges_reserved(&gauges, 500, 10, &timeline, 2);
    assert_int_equal(timeline.count, 1);
    assert_int_equal(bucket[0].top.reserved_bytes, 500);
    t_ns = 20;
    change(0, VS_GAUGE_ALLOC, 100, VS_KIND_POOL); /* of device 0 */
    assert_int_equal(bucket[1].top.live_bytes, 100);
    assert_int_equal(bucket[1].top.used_bytes, 500);
    vs_gauges_reserved(&gauges, -200, 10 * MIB, &timeline, 0);
    assert_int_equal(bucket[1].last.reserved_bytes, 500);
    assert_int_equal(bucket[2].top.reserved_bytes, 300);
    assert_int_equal(bucket[2].top.used_bytes, 300);
    t_ns = 20 * MIB;
    change(0, VS_GAUGE_ALLOC, 7, VS_KIND_ASYNC);
    assert_int_equal(bucket[2].last.live_bytes, 100);
    assert_int_equal(bucket[2].last.used_bytes, 300);
    assert_int_equal(bucket[3].top.live_bytes, 107);
    assert_int_equal(bucket[3].top.used_bytes, 307);
}

static void undone(void **unused)
{
    (void)unused;
    struct vs_gauge_totals totals;
    change(0, VS_GAUGE_ALLOC, 100, VS_KIND_POOL);
    change(0, VS_GAUGE_ALLOC, 1000, VS_KIND_POOL);
    change(0, VS_GAUGE_UNDO, 1000, VS_KIND_POOL);
    change(0, VS_GAUGE_GONE, 100, VS_KIND_POOL);
    vs_gauges_calls(&gauges, &totals);
    assert_int_equal(totals.allocs, 1);
    assert_int_equal(totals.alloc_bytes, 100);
    assert_int_equal(totals.frees, 0);
    assert_int_equal(reading().live, 0);
}

/* Real threads. The truth lies between what is certainly live (counted after an allocation, before
 * a free) and what may be (the other way round). */
#define THREADS 4
static _Atomic uint64_t surely, maybe, surely_peak, maybe_peak, clock_now;

static void lift(_Atomic uint64_t *peak, uint64_t to)
{
    uint64_t seen = atomic_load(peak);
    while (to > seen && !atomic_compare_exchange_weak(peak, &seen, to)) {
    }
}

static bool lanes_shared;

static void *work(void *argument)
{
    uint64_t random = ((uint64_t)(uintptr_t)argument + 1) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t live[LIVE] = {0};
    uint32_t lane = lanes_shared ? (uint32_t)(uintptr_t)argument / 2 : vs_gauges_lane();
    for (int i = 0; i < 100000; i++) {
        uint64_t *at = &live[testing_random(&random) % LIVE];
        uint64_t bytes = *at ? *at : testing_random(&random) % (2 * MIB) + 1;
        /* Now and then some ticks in a row: where the others sleep, collecting ends. */
        uint64_t now = atomic_fetch_add(&clock_now, i % 2000 < 6);
        struct vs_gauge_change it = {*at ? VS_GAUGE_FREE : VS_GAUGE_ALLOC, bytes, now, VS_KIND_POOL,
                                     lane};
        if (*at) {
            atomic_fetch_sub(&surely, bytes);
            vs_gauges_live(&gauges, &it, &timeline, 0);
            atomic_fetch_sub(&maybe, bytes);
            *at = 0;
        } else {
            lift(&maybe_peak, atomic_fetch_add(&maybe, bytes) + bytes);
            vs_gauges_live(&gauges, &it, &timeline, 0);
            lift(&surely_peak, atomic_fetch_add(&surely, bytes) + bytes);
            *at = bytes;
        }
        if (i % 1000 == 0)
            reading();
    }
    for (int i = 0; i < LIVE; i++)
        if (live[i]) {
            struct vs_gauge_change it = {VS_GAUGE_FREE, live[i], atomic_load(&clock_now),
                                         VS_KIND_POOL, lane};
            atomic_fetch_sub(&surely, live[i]);
            vs_gauges_live(&gauges, &it, &timeline, 0);
            atomic_fetch_sub(&maybe, live[i]);
        }
    return NULL;
}

static void race(void)
{
    pthread_t thread[THREADS];
    struct vs_gauge_totals totals;
    atomic_store(&clock_now, 1);
    atomic_store(&surely_peak, 0);
    atomic_store(&maybe_peak, 0);
    atomic_store(&surely, 0);
    atomic_store(&maybe, 0);
    for (uintptr_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, work, (void *)t), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    assert_int_equal(reading().live, 0);
    vs_gauges_calls(&gauges, &totals);
    assert_int_equal(totals.allocs, totals.frees);
    assert_true(gauges.live.peak <= maybe_peak);
    assert_true(gauges.live.peak + (uint64_t)VS_GAUGE_BAND * THREADS >= surely_peak);
    t_ns = atomic_load(&clock_now);
    for (int i = 0; i < 6; i++) {
        t_ns++;
        change(0, VS_GAUGE_GONE, 0, VS_KIND_POOL);
    }
    assert_int_equal(gauges.collecting, 0);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(gauges.lane[i].held[VS_KIND_POOL], 0);
    assert_int_equal(gauges.live.now, 0);
}

static void threads(void **unused)
{
    (void)unused;
    lanes_shared = false;
    race();
}

/* More threads than lanes. */
static void threads_that_share(void **unused)
{
    (void)unused;
    lanes_shared = true;
    race();
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_lane_is_exact),
        TEST(phases_are_exact),
        TEST(turns_are_exact),
        TEST(together_is_bounded),
        TEST(spike_is_bounded),
        TEST(freed_elsewhere),
        TEST(alone_again),
        TEST(other_kinds),
        TEST(other_kinds_begin_it),
        TEST(crowds_begin_it),
        TEST(timeline_is_told),
        TEST(undone),
        TEST(threads),
        TEST(threads_that_share),
    };
    return cmocka_run_group_tests_name("gauges", tests, NULL, NULL);
}
