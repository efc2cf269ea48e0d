/*
 * What pool.h says, call by call, on both backings. The device is the bookkeeping one, whose fences
 * pass at once, with a switch that keeps them from passing.
 */
#include "pool/pool.h"
#include "report/cli/replay_device.h"
#include "tests/unit/report/testing.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

/* A device, its switch, and a pool on it. */
struct fixture {
    struct vs_replay_device device; /* first: the ops' world */
    struct vs_pool_ops ops;
    struct vs_pool *pool;
    bool busy;   /* fences do not pass by themselves */
    bool refuse; /* neither record nor order: capturing */
    bool many;   /* several streams are busy */
    unsigned waits, orders;
};

static int busy_query(void *world, uint32_t fence)
{
    (void)fence;
    return ((struct fixture *)world)->busy;
}

static int busy_wait(void *world, uint32_t fence)
{
    (void)fence;
    ((struct fixture *)world)->waits++;
    return 0;
}

static int busy_order(void *world, uint32_t fence)
{
    struct fixture *fixture = world;

    (void)fence;
    fixture->orders += !fixture->refuse;
    return fixture->refuse;
}

static int busy_record(void *world, uint32_t fence)
{
    struct fixture *fixture = world;

    return fixture->refuse ? 1 : vs_replay_device_ops.record(world, fence);
}

static bool busy_one_stream(void *world)
{
    return !((struct fixture *)world)->many;
}

static void config_of(struct vs_pool_config *config, enum vs_pool_backing backing)
{
    vs_pool_config_default(config, backing, 1024 * MIB);
}

static void open_with(struct fixture *fixture, const struct vs_pool_config *config, uint64_t cap)
{
    int error = 0;

    memset(fixture, 0, sizeof(*fixture));
    vs_replay_device_init(&fixture->device, cap);
    fixture->ops = vs_replay_device_ops;
    fixture->ops.record = busy_record;
    fixture->ops.order = busy_order;
    fixture->ops.query = busy_query;
    fixture->ops.wait = busy_wait;
    fixture->ops.one_stream = busy_one_stream;
    fixture->pool = vs_pool_new(config, &fixture->ops, fixture, &error);
    assert_non_null(fixture->pool);
}

static void open_default(struct fixture *fixture, enum vs_pool_backing backing, uint64_t cap)
{
    struct vs_pool_config config;

    config_of(&config, backing);
    open_with(fixture, &config, cap);
}

static void close_fixture(struct fixture *fixture)
{
    fixture->busy = fixture->refuse = false;
    assert_int_equal(vs_pool_validate(fixture->pool), 0);
    vs_pool_free_all(fixture->pool, false);
    assert_null(fixture->device.breach);
    if (vs_replay_device_leak(&fixture->device)) {
        fail_msg("at the end %s", vs_replay_device_leak(&fixture->device));
    }
    vs_replay_device_fini(&fixture->device);
}

static int try(struct fixture *fixture, uint64_t bytes, uint64_t *address)
{
    struct vs_pool_request request = {.bytes = bytes};

    return vs_pool_alloc(fixture->pool, &request, address);
}

static uint64_t take(struct fixture *fixture, uint64_t bytes)
{
    uint64_t address = 0;

    assert_int_equal(try(fixture, bytes, &address), 0);
    assert_int_equal(address % 512, 0);
    assert_true(vs_replay_device_usable(&fixture->device, address, bytes));
    return address;
}

static void drop(struct fixture *fixture, uint64_t address)
{
    assert_int_equal(vs_pool_free(fixture->pool, address), 0);
}

static struct vs_pool_stats stats_of(struct fixture *fixture)
{
    struct vs_pool_stats stats;

    vs_pool_stats(fixture->pool, &stats);
    return stats;
}

static const enum vs_pool_backing both[] = {VS_POOL_VMM, VS_POOL_NATIVE};

#define EACH_BACKING(i) for (int i = 0; i < 2; i++)

static void takes_nothing_at_first(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        open_default(&fixture, both[i], 64 * MIB);
        assert_int_equal(fixture.device.charged, 0);
        assert_int_equal(stats_of(&fixture).reserved_bytes, 0);
        assert_false(vs_pool_open_epoch(fixture.pool));
        assert_int_equal(vs_pool_close_epoch(fixture.pool), 0);
        assert_int_equal(vs_pool_settle(fixture.pool), 0);
        assert_int_equal(vs_pool_trim(fixture.pool, 0, true), 0);
        close_fixture(&fixture);
    }
    vs_pool_free_all(NULL, false);
}

static void finds_blocks(void **state)
{
    static const uint64_t sizes[] = {1,   512,     513,         4096,    100000,
                                     MIB, 2 * MIB, 3 * MIB + 1, 20 * MIB};
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        open_default(&fixture, both[i], 256 * MIB);
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            uint64_t address = take(&fixture, sizes[s]), start, bytes;

            assert_int_equal(vs_pool_find(fixture.pool, address, &start, &bytes), 0);
            assert_int_equal(start, address);
            assert_true(bytes >= sizes[s]);
            assert_int_equal(vs_pool_find(fixture.pool, address + sizes[s] - 1, &start, &bytes), 0);
            assert_int_equal(start, address);
            drop(&fixture, address);
            assert_int_not_equal(vs_pool_find(fixture.pool, address, &start, &bytes), 0);
        }
        close_fixture(&fixture);
    }
}

static void refuses_wrong_frees(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        uint64_t small, large, start, bytes;

        open_default(&fixture, both[i], 256 * MIB);
        small = take(&fixture, 5000);
        large = take(&fixture, 9 * MIB);
        assert_int_equal(vs_pool_free(fixture.pool, 0), -ENOENT);
        assert_int_equal(vs_pool_free(fixture.pool, 4096), -ENOENT);
        assert_int_equal(vs_pool_free(fixture.pool, UINT64_MAX), -ENOENT);
        assert_int_equal(vs_pool_free(fixture.pool, small + 1), -EINVAL);
        assert_int_equal(vs_pool_free(fixture.pool, small + 512), -EINVAL);
        assert_int_equal(vs_pool_free(fixture.pool, large + 2 * MIB), -EINVAL);
        assert_int_equal(vs_pool_find(fixture.pool, 4096, &start, &bytes), -ENOENT);
        assert_false(vs_pool_open_epoch(fixture.pool));
        drop(&fixture, small);
        drop(&fixture, large);
        assert_int_equal(vs_pool_free(fixture.pool, small), -EINVAL);
        assert_int_equal(vs_pool_free(fixture.pool, large), -EINVAL);
        close_fixture(&fixture);
    }
}

static void epochs_open_and_close(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        uint64_t address;
        uint64_t records;

        open_default(&fixture, both[i], 64 * MIB);
        address = take(&fixture, MIB);
        assert_false(vs_pool_open_epoch(fixture.pool));
        drop(&fixture, address);
        if (vs_pool_open_epoch(fixture.pool)) { /* it may have closed it in the free */
            assert_int_equal(vs_pool_close_epoch(fixture.pool), 0);
        }
        assert_false(vs_pool_open_epoch(fixture.pool));
        records = fixture.device.records;
        assert_int_equal(records, 1);
        assert_int_equal(vs_pool_close_epoch(fixture.pool), 0);
        assert_int_equal(fixture.device.records, records);
        /* One fence for many frees. */
        for (int n = 0; n < 10; n++) {
            uint64_t addresses[5];

            for (int k = 0; k < 5; k++) {
                addresses[k] = take(&fixture, 3000);
            }
            for (int k = 0; k < 5; k++) {
                drop(&fixture, addresses[k]);
            }
            vs_pool_close_epoch(fixture.pool);
        }
        assert_in_range(fixture.device.records, records, records + 10);
        assert_int_equal(stats_of(&fixture).records, fixture.device.records);
        close_fixture(&fixture);
    }
}

/* A free never waits, and neither does an allocation that order can serve. */
static void orders_rather_than_waits(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        uint64_t address;

        open_default(&fixture, both[i], 32 * MIB);
        fixture.busy = true;
        for (int n = 0; n < 100; n++) {
            address = take(&fixture, 24 * MIB);
            drop(&fixture, address);
            vs_pool_close_epoch(fixture.pool);
        }
        assert_int_equal(fixture.waits, 0);
        assert_true(fixture.orders > 0);
        assert_true(fixture.device.peak <= 32 * MIB);
        assert_int_equal(vs_pool_settle(fixture.pool), 0);
        assert_true(fixture.waits > 0);
        assert_int_equal(stats_of(&fixture).pending_bytes, 0);
        close_fixture(&fixture);
    }
}

/* In a capture only what the host has seen free: what was freed in it is kept aside. */
static void captures_keep_frees_aside(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        struct vs_pool_request request = {.bytes = 20 * MIB, .capturing = true};
        uint64_t address;

        open_default(&fixture, both[i], 32 * MIB);
        address = take(&fixture, 20 * MIB);
        fixture.refuse = true;
        drop(&fixture, address);
        assert_true(vs_pool_close_epoch(fixture.pool) > 0);
        assert_true(vs_pool_open_epoch(fixture.pool));
        assert_int_equal(vs_pool_alloc(fixture.pool, &request, &address), -ENOMEM);
        assert_int_equal(request.verdict, VS_POOL_PENDING);
        fixture.refuse = false;
        request.capturing = false;
        assert_int_equal(vs_pool_alloc(fixture.pool, &request, &address), 0);
        drop(&fixture, address);
        assert_int_equal(vs_pool_settle(fixture.pool), 0);
        close_fixture(&fixture);
    }
}

/* A capture of many launches: each of them tries to close the epoch, and is refused. */
static void long_captures(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        uint64_t address;

        open_default(&fixture, both[i], 32 * MIB);
        address = take(&fixture, MIB);
        fixture.refuse = fixture.busy = true;
        drop(&fixture, address);
        alarm(20); /* rather than for ever */
        for (unsigned n = 0; n < 3 * VS_POOL_FENCES; n++) {
            assert_true(vs_pool_close_epoch(fixture.pool) > 0);
        }
        alarm(0);
        fixture.refuse = fixture.busy = false;
        assert_int_equal(vs_pool_close_epoch(fixture.pool), 0);
        assert_int_equal(vs_pool_settle(fixture.pool), 0);
        close_fixture(&fixture);
    }
}

/* More epochs than there are fences, none of them seen: the oldest are waited for. */
static void more_epochs_than_fences(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        open_default(&fixture, both[i], 32 * MIB);
        fixture.busy = true;
        alarm(20);
        for (unsigned n = 0; n < 3 * VS_POOL_FENCES; n++) {
            drop(&fixture, take(&fixture, 3000));
            assert_int_equal(vs_pool_close_epoch(fixture.pool), 0);
        }
        alarm(0);
        assert_in_range(fixture.waits, 1, 3 * VS_POOL_FENCES);
        close_fixture(&fixture);
    }
}

/* An address that leaves the context must be settled, and in a capture that cannot be had. */
static void settling_in_a_capture_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        uint64_t address;

        open_default(&fixture, both[i], 32 * MIB);
        address = take(&fixture, MIB);
        fixture.refuse = true;
        drop(&fixture, address);
        assert_int_not_equal(vs_pool_settle(fixture.pool), 0);
        fixture.refuse = false;
        assert_int_equal(vs_pool_settle(fixture.pool), 0);
        close_fixture(&fixture);
    }
}

static void says_why_not(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        struct vs_pool_request request = {.bytes = 65 * MIB};
        uint64_t address = 77;

        open_default(&fixture, both[i], 64 * MIB);
        assert_int_equal(vs_pool_alloc(fixture.pool, &request, &address), -ENOMEM);
        assert_int_equal(request.verdict, VS_POOL_FULL);
        request.bytes = UINT64_MAX;
        assert_int_equal(vs_pool_alloc(fixture.pool, &request, &address), -ENOMEM);
        request.bytes = UINT64_MAX - VS_POOL_PAGE;
        assert_int_equal(vs_pool_alloc(fixture.pool, &request, &address), -ENOMEM);
        assert_int_equal(fixture.device.charged, 0);
        close_fixture(&fixture);
    }
}

static void keeps_and_trims(void **state)
{
    struct vs_pool_config config;
    struct fixture fixture;
    uint64_t addresses[8];

    (void)state;
    EACH_BACKING(i)
    {
        config_of(&config, both[i]);
        config.keep_bytes = 32 * MIB;
        open_with(&fixture, &config, 256 * MIB);
        assert_int_equal(vs_pool_reserve(fixture.pool, 32 * MIB), 0);
        assert_in_range(fixture.device.charged, 32 * MIB, 34 * MIB);
        for (int k = 0; k < 8; k++) {
            addresses[k] = take(&fixture, 10 * MIB);
        }
        for (int k = 0; k < 8; k++) {
            drop(&fixture, addresses[k]);
        }
        assert_true(fixture.device.charged >= 80 * MIB);
        assert_true(vs_pool_trim(fixture.pool, 0, true) > 0);
        assert_in_range(fixture.device.charged, 32 * MIB, 48 * MIB);
        assert_int_equal(stats_of(&fixture).reserved_bytes, fixture.device.charged);
        close_fixture(&fixture);
    }
}

static void trims_above(void **state)
{
    struct vs_pool_config config;
    struct fixture fixture;
    uint64_t addresses[16];

    (void)state;
    EACH_BACKING(i)
    {
        config_of(&config, both[i]);
        config.trim_above = 20 * MIB;
        open_with(&fixture, &config, 256 * MIB);
        for (int k = 0; k < 16; k++) {
            addresses[k] = take(&fixture, 10 * MIB);
        }
        for (int k = 0; k < 16; k++) {
            drop(&fixture, addresses[k]);
            if (vs_pool_wants_trim(fixture.pool)) { /* as its owner asks after a free */
                vs_pool_trim(fixture.pool, config.trim_above, false);
            }
            assert_in_range(stats_of(&fixture).free_bytes, 0, 20 * MIB + VS_POOL_PAGE);
        }
        assert_false(vs_pool_wants_trim(fixture.pool));
        assert_int_equal(fixture.waits, 0);
        close_fixture(&fixture);
    }
}

static void decays(void **state)
{
    struct fixture fixture;

    (void)state;
    EACH_BACKING(i)
    {
        uint64_t address;
        int calls = 0;

        open_default(&fixture, both[i], 256 * MIB);
        address = take(&fixture, 50 * MIB);
        drop(&fixture, address);
        vs_pool_close_epoch(fixture.pool);
        vs_pool_decay(fixture.pool);
        assert_true(fixture.device.charged >= 50 * MIB);
        while (vs_pool_decay(fixture.pool) && calls < 30) {
            calls++;
        }
        assert_in_range(calls, 1, 20);
        assert_int_equal(fixture.device.charged, 0);
        assert_int_equal(fixture.waits, 0);
        close_fixture(&fixture);
    }
}

static void the_context_ends(void **state)
{
    struct fixture fixture;

    (void)state;
    open_default(&fixture, VS_POOL_VMM, 256 * MIB);
    take(&fixture, 50 * MIB);
    take(&fixture, 5000);
    vs_pool_free_all(fixture.pool, true);
    assert_null(fixture.device.breach);
    assert_null(vs_replay_device_leak(&fixture.device));
    vs_replay_device_fini(&fixture.device);

    open_default(&fixture, VS_POOL_NATIVE, 256 * MIB);
    take(&fixture, 50 * MIB);
    vs_pool_free_all(fixture.pool, true);
    assert_null(fixture.device.breach);
    assert_int_equal(fixture.device.gives, 0); /* the context took it along */
    assert_int_equal(fixture.device.host_bytes, 0);
    vs_replay_device_fini(&fixture.device);
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

/* The places that a random program of few sizes gets. */
static void places_of(enum vs_pool_backing backing, uint32_t faults, uint64_t most,
                      uint64_t *places, unsigned count)
{
    uint64_t live[24] = {0}, sizes[8], seed = 7 + most;
    struct vs_pool_config config;
    struct fixture fixture;

    config_of(&config, backing);
    config.faults = faults;
    open_with(&fixture, &config, 1024 * MIB);
    for (unsigned i = 0; i < 8; i++) {
        sizes[i] = 512 + draw(&seed) % most;
        sizes[i] = i % 2 ? sizes[i] : (sizes[i] + 2 * MIB - 1) & ~(2 * MIB - 1);
    }
    for (unsigned i = 0; i < count; i++) {
        uint64_t *block = &live[draw(&seed) % 24];

        if (*block) {
            drop(&fixture, *block);
        }
        if (draw(&seed) % 2) {
            vs_pool_close_epoch(fixture.pool);
        }
        *block = places[i] = take(&fixture, sizes[draw(&seed) % 8]);
        if (i % 64 == 0) {
            assert_int_equal(vs_pool_validate(fixture.pool), 0);
        }
    }
    for (unsigned i = 0; i < 24; i++) {
        if (live[i]) {
            drop(&fixture, live[i]);
        }
    }
    close_fixture(&fixture);
}

/* What has just become free may be handed out again without being joined with its like and cut
 * anew, but only where that leads to the same places. */
static void places_do_not_depend_on_the_way_there(void **state)
{
    static uint64_t as_is[4000], joined[4000];
    static const uint64_t most[] = {1500 * 1024, 9 * MIB, 40 * MIB};

    (void)state;
    for (int backing = VS_POOL_VMM; backing <= VS_POOL_NATIVE; backing++) {
        for (unsigned i = 0; i < 3; i++) {
            places_of(backing, 0, most[i], as_is, 4000);
            places_of(backing, VS_POOL_JOIN_FIRST, most[i], joined, 4000);
            assert_memory_equal(as_is, joined, sizeof(joined));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_nothing_at_first),
        cmocka_unit_test(finds_blocks),
        cmocka_unit_test(refuses_wrong_frees),
        cmocka_unit_test(epochs_open_and_close),
        cmocka_unit_test(orders_rather_than_waits),
        cmocka_unit_test(captures_keep_frees_aside),
        cmocka_unit_test(long_captures),
        cmocka_unit_test(more_epochs_than_fences),
        cmocka_unit_test(settling_in_a_capture_is_refused),
        cmocka_unit_test(says_why_not),
        cmocka_unit_test(keeps_and_trims),
        cmocka_unit_test(trims_above),
        cmocka_unit_test(decays),
        cmocka_unit_test(the_context_ends),
        cmocka_unit_test(places_do_not_depend_on_the_way_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
