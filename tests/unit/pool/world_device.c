/*
 * The device's side of the world (see world.h): the bookkeeping device with failures, and what may
 * be unmapped and released.
 */
#include "tests/unit/pool/world_internal.h"

#include <errno.h>

/* Addresses that are unmapped: no block lies there, and the host knows that what went through them
 * is done. */
static void check_unmapped(struct world *world, uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; !world->ended && at < address + bytes; at += VS_POOL_PAGE) {
        const struct world_window *window = world_window(world, at);
        uint32_t column;

        if (window && window->used) {
            world_broke(world, "a page with %s block is unmapped at %jx",
                        window->used > window->aside ? "a live" : "a just freed", (uintmax_t)at);
        }
        column = window ? world_beyond(&window->uses, &world->seen, NULL) : WORLD_COLUMNS;
        if (column < WORLD_COLUMNS) {
            world_broke(world,
                        "a page is unmapped at %jx: submission %u went through there, up to %u "
                        "are seen (stream %u)",
                        (uintmax_t)at, window->uses.of[column], world->seen.of[column], column);
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
    int failed = world_mishap(data, true);

    return failed ? failed : vs_replay_device_ops.reserve(data, bytes, address);
}

static void world_unreserve(void *data, uint64_t address, uint64_t bytes)
{
    vs_replay_device_ops.unreserve(data, address, bytes);
}

static int world_create(void *data, uint64_t bytes, uint64_t *handle)
{
    int failed = world_mishap(data, true);

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
    int failed = world_mishap(world, true);

    if (world->lend_permille && choose(world->choices, 1000) < world->lend_permille) {
        handle = another(world, bytes, handle);
    }
    return failed ? failed : vs_replay_device_ops.map(data, address, bytes, handle);
}

static int world_access(void *data, uint64_t address, uint64_t bytes)
{
    int failed = world_mishap(data, true);

    return failed ? failed : vs_replay_device_ops.access(data, address, bytes);
}

static int world_unmap(void *data, uint64_t address, uint64_t bytes)
{
    int failed = world_mishap(data, false);

    if (failed) {
        ((struct world *)data)->stuck += bytes;
        return failed;
    }
    check_unmapped(data, address, bytes);
    return vs_replay_device_ops.unmap(data, address, bytes);
}

static int world_take(void *data, uint64_t bytes, uint64_t *address)
{
    int failed = world_mishap(data, true);

    return failed ? failed : vs_replay_device_ops.take(data, bytes, address);
}

static int world_give(void *data, uint64_t address, uint64_t bytes)
{
    int failed = world_mishap(data, false);

    if (failed) {
        return failed;
    }
    check_unmapped(data, address, bytes);
    check_released(data, WORLD_PAGE_OF(0, address / VS_POOL_PAGE), bytes);
    return vs_replay_device_ops.give(data, address, bytes);
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

static uint64_t world_room(void *data)
{
    const struct world *world = data;

    return world->uncapped ? UINT64_MAX : world->base.cap - world->base.charged;
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
    .stream_record = world_stream_record,
    .stream_order = world_stream_order,
    .stream_query = world_stream_query,
    .stream_wait = world_stream_wait,
    .room = world_room,
    .one_stream = world_one_stream,
    .host_map = world_host_map,
    .host_unmap = world_host_unmap,
    .nap = world_nap,
    .reserved = world_reserved,
};
