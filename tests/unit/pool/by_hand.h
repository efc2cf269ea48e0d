/*
 * Programs by hand, for the world of world.h: nothing finishes unless the test says so or the host
 * waits.
 */
#ifndef VS_TESTS_UNIT_POOL_BY_HAND_H
#define VS_TESTS_UNIT_POOL_BY_HAND_H

#include "tests/unit/pool/world_internal.h"
#include "tests/unit/report/testing.h"

#include <errno.h>

#define MIB (UINT64_C(1) << 20)
#define DEVICE_BYTES (1024 * MIB)
#define PLAIN WORLD_PLAIN
#define STREAMS 4 /* 0 … 3 are there, and known to the pool */

static struct world world;
static struct choices choices;

static const enum vs_pool_backing both[] = {VS_POOL_VMM, VS_POOL_NATIVE};
#define EACH_BACKING(i) for (int i = 0; i < 2; i++)

static inline void begin_with(const struct vs_pool_config *config, uint64_t cap)
{
    choices = (struct choices){.state = 1};
    assert_true(world_init(&world, config, cap, &choices));
    world.frozen = true;
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        world.stream[i].alive = i < STREAMS;
        assert_true(i >= STREAMS || world_stream_number(&world, i));
    }
}

static inline void begin(enum vs_pool_backing backing, uint64_t cap)
{
    struct vs_pool_config config;

    vs_pool_config_default(&config, backing, DEVICE_BYTES);
    begin_with(&config, cap);
}

static inline void check(void)
{
    world_check(&world);
    if (world.breach[0]) {
        fail_msg("%s", world.breach);
    }
}

static inline void end(void)
{
    check();
    world.frozen = false;
    world_fini(&world, false);
    if (world.breach[0]) {
        fail_msg("the end: %s", world.breach);
    }
}

static inline size_t index_of(uint64_t start)
{
    size_t index = 0;

    while (index < world.live_count && world.live[index].start != start) {
        index++;
    }
    assert_true(index < world.live_count);
    return index;
}

/* The block's start; 0: out of memory. */
static inline uint64_t try(uint32_t stream, uint64_t bytes)
{
    size_t index;
    int result = world_alloc_on(&world, stream, bytes, &index);

    assert_true(result == 0 || result == -ENOMEM);
    check();
    return result ? 0 : world.live[index].start;
}

static inline uint64_t take(uint32_t stream, uint64_t bytes)
{
    uint64_t start = try(stream, bytes);

    assert_true(start != 0);
    return start;
}

static inline void drop(uint64_t start, uint32_t stream)
{
    size_t index = index_of(start);

    assert_int_equal(
        stream == PLAIN ? world_free(&world, index) : world_free_on(&world, index, stream), 0);
    check();
}

static inline void use(uint64_t start, uint32_t stream)
{
    world_submit(&world, stream, index_of(start), 1, false);
    check();
}

/* Work on nothing. */
static inline void run(uint32_t stream, bool held)
{
    world_submit(&world, stream, 0, 0, held);
    check();
}

/* A block that work used, on a stream that then goes on: freed there. */
static inline void take_and_drop(uint32_t stream, uint64_t bytes)
{
    uint64_t start = take(stream, bytes);

    use(start, stream);
    drop(start, stream);
    run(stream, false);
}

static inline void finish_all(void)
{
    while (world_step(&world)) {
        continue;
    }
}

/* What the device was asked since: that makes anybody wait; anything at all. */
static inline uint32_t waits(void)
{
    return world.asked.orders + world.asked.waits + world.stream_asked.orders +
           world.stream_asked.waits;
}

static inline uint32_t fences(void)
{
    return waits() + world.asked.records + world.asked.queries + world.stream_asked.records +
           world.stream_asked.queries;
}

#endif
