/*
 * The device's side of the world (see world.h): the bookkeeping device with time, captures, rules
 * of fences and failures around it.
 */
#include "tests/unit/pool/world_internal.h"

#include <errno.h>

/* May this call fail now? 0, -ENOMEM where the device may say so, or -EIO. */
static int mishap(struct world *world, bool memory)
{
    if (world->fail_permille == 0 || choose(world->choices, 1000) >= world->fail_permille) {
        return 0;
    }
    world->failures++;
    return memory && choose(world->choices, 3) ? -ENOMEM : -EIO;
}

static bool can_finish(const struct world *world, uint32_t number)
{
    uint32_t slot = number % WORLD_AHEAD;

    if (world->ahead[slot].done || world->ahead[slot].held ||
        world->ahead[slot].need > world->finished) {
        return false;
    }
    for (uint32_t before = world->finished + 1; before < number; before++) {
        if (!world->ahead[before % WORLD_AHEAD].done &&
            world->ahead[before % WORLD_AHEAD].stream == world->ahead[slot].stream) {
            return false;
        }
    }
    return true;
}

bool world_step(struct world *world)
{
    uint32_t ahead = world->submitted - world->finished;
    uint32_t first = (uint32_t)choose(world->choices, ahead);

    for (uint32_t i = 0; i < ahead; i++) {
        uint32_t number = world->finished + 1 + (first + i) % ahead;

        if (can_finish(world, number)) {
            world->ahead[number % WORLD_AHEAD].done = true;
            while (world->finished < world->submitted &&
                   world->ahead[(world->finished + 1) % WORLD_AHEAD].done) {
                world->finished++;
            }
            return true;
        }
    }
    return false;
}

void world_let_go(struct world *world)
{
    for (uint32_t i = 0; i < WORLD_AHEAD; i++) {
        world->ahead[i].held = false;
    }
    world->held = 0;
}

/* Addresses that are unmapped: no block lies there, and the host knows that what went through them
 * is done. */
static void check_unmapped(struct world *world, uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; !world->ended && at < address + bytes; at += VS_POOL_PAGE) {
        const struct world_window *window = world_window(world, at);

        if (window && window->used) {
            world_broke(world, "a page with %s block is unmapped at %jx",
                        window->used > window->aside ? "a live" : "a just freed", (uintmax_t)at);
        }
        if (window && window->last_use > world->seen) {
            world_broke(world,
                        "a page is unmapped at %jx: submission %u went through there, up to %u "
                        "are seen",
                        (uintmax_t)at, window->last_use, world->seen);
        }
    }
}

static void check_released(struct world *world, uint64_t first, uint64_t bytes)
{
    for (uint64_t i = 0; !world->ended && i < bytes / VS_POOL_PAGE; i++) {
        world_page_gone(world, first + i);
    }
}

static int world_reserve(void *data, uint64_t bytes, uint64_t *address)
{
    int failed = mishap(data, true);

    return failed ? failed : vs_replay_device_ops.reserve(data, bytes, address);
}

static void world_unreserve(void *data, uint64_t address, uint64_t bytes)
{
    vs_replay_device_ops.unreserve(data, address, bytes);
}

static int world_create(void *data, uint64_t bytes, uint64_t *handle)
{
    int failed = mishap(data, true);

    return failed ? failed : vs_replay_device_ops.create(data, bytes, handle);
}

static void world_release(void *data, uint64_t handle, uint64_t bytes)
{
    check_released(data, WORLD_PAGE_OF(handle, 0), bytes);
    vs_replay_device_ops.release(data, handle, bytes);
}

/* A handle of the same size that is mapped elsewhere; the one given where there is none. */
static uint64_t another(struct world *world, uint64_t bytes, uint64_t handle)
{
    uint32_t count = world->base.handle_count;
    uint32_t first = (uint32_t)choose(world->choices, count);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = 1 + (first + i) % count;

        if (number != handle && world->base.handles[number].bytes == bytes &&
            world->base.handles[number].mappings) {
            return number;
        }
    }
    return handle;
}

static int world_map(void *data, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct world *world = data;
    int failed = mishap(world, true);

    if (world->lend_permille && choose(world->choices, 1000) < world->lend_permille) {
        handle = another(world, bytes, handle);
    }
    return failed ? failed : vs_replay_device_ops.map(data, address, bytes, handle);
}

static int world_access(void *data, uint64_t address, uint64_t bytes)
{
    int failed = mishap(data, true);

    return failed ? failed : vs_replay_device_ops.access(data, address, bytes);
}

static int world_unmap(void *data, uint64_t address, uint64_t bytes)
{
    int failed = mishap(data, false);

    if (failed) {
        ((struct world *)data)->stuck += bytes;
        return failed;
    }
    check_unmapped(data, address, bytes);
    return vs_replay_device_ops.unmap(data, address, bytes);
}

static int world_take(void *data, uint64_t bytes, uint64_t *address)
{
    int failed = mishap(data, true);

    return failed ? failed : vs_replay_device_ops.take(data, bytes, address);
}

static int world_give(void *data, uint64_t address, uint64_t bytes)
{
    int failed = mishap(data, false);

    if (failed) {
        return failed;
    }
    check_unmapped(data, address, bytes);
    check_released(data, WORLD_PAGE_OF(0, address / VS_POOL_PAGE), bytes);
    return vs_replay_device_ops.give(data, address, bytes);
}

static int world_record(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = mishap(world, false);

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    if (world->capturing && !(world->config.faults & VS_POOL_RECORD_IN_CAPTURE)) {
        return 1;
    }
    if (world->capturing) { /* what is below the pool is to refuse, and with this fault does not */
        world_broke(world, "an event of the context is recorded in a capture, and ends it");
    }
    if (world->open_free && world->submitted > world->open_free_at) {
        world_broke(world, "a fence covers submission %u, made after a free at %u",
                    world->submitted, world->open_free_at);
    }
    world->open_free = false;
    world->aside = false;
    world->recorded[fence] = world->submitted;
    return 0;
}

static int world_order(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = mishap(world, false);

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    if (world->capturing || world->cannot_order) {
        return 1;
    }
    for (uint32_t n = world->finished + 1; n <= world->recorded[fence]; n++) {
        if (world->ahead[n % WORLD_AHEAD].held) {
            world_broke(world,
                        "a deadlock: later work is to wait for submission %u, which only later "
                        "work can end",
                        n);
        }
    }
    if (world->recorded[fence] > world->barrier) {
        world->barrier = world->recorded[fence];
    }
    return 0;
}

static void saw(struct world *world, uint32_t fence)
{
    if (world->recorded[fence] > world->seen) {
        world->seen = world->recorded[fence];
    }
}

static int world_query(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = mishap(world, false);

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    if (choose(world->choices, 4) == 0) {
        world_step(world);
    }
    if (world->recorded[fence] > world->finished) {
        return 1;
    }
    saw(world, fence);
    return 0;
}

static int world_wait(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = mishap(world, false);

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    while (world->recorded[fence] > world->finished) {
        if (!world_step(world)) {
            world_broke(world, "a deadlock: the host waits for submission %u, which cannot finish",
                        world->finished + 1);
            world_let_go(world);
        }
    }
    saw(world, fence);
    return 0;
}

static bool world_one_stream(void *data)
{
    struct world *world = data;

    return world->streams == 1 || choose(world->choices, 2);
}

static void *world_host_map(void *data, size_t bytes)
{
    struct world *world = data;

    if (world->pool && choose(world->choices, 1000) < world->host_permille) {
        world->failures++;
        return NULL;
    }
    return vs_replay_device_ops.host_map(data, bytes);
}

static void world_host_unmap(void *data, void *at, size_t bytes)
{
    vs_replay_device_ops.host_unmap(data, at, bytes);
}

static void world_nap(void *data)
{
    world_step(data);
}

static void world_reserved(void *data, int64_t delta)
{
    vs_replay_device_ops.reserved(data, delta);
}

const struct vs_pool_ops world_ops = {
    .reserve = world_reserve,
    .unreserve = world_unreserve,
    .create = world_create,
    .release = world_release,
    .map = world_map,
    .access = world_access,
    .unmap = world_unmap,
    .take = world_take,
    .give = world_give,
    .record = world_record,
    .order = world_order,
    .query = world_query,
    .wait = world_wait,
    .one_stream = world_one_stream,
    .host_map = world_host_map,
    .host_unmap = world_host_unmap,
    .nap = world_nap,
    .reserved = world_reserved,
};
