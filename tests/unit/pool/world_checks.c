/*
 * Checks of the world's pool as a whole (see world.h).
 */
#include "tests/unit/pool/world_internal.h"

void world_settle(struct world *world)
{
    uint64_t failures = world->failures;
    int result = vs_pool_settle(world->pool);

    uint32_t column = world_beyond(&world->freed_uses, &world->seen, NULL);

    if (result == 0 && column < WORLD_COLUMNS) {
        world_broke(world, "settled%s, but submission %u used freed memory and %u is seen",
                    world->capturing ? " in a capture" : "", world->freed_uses.of[column],
                    world->seen.of[column]);
    }
    if (result && !world->capturing && world->failures == failures) {
        world_broke(world, "settling returned %d, and nothing had failed", result);
    }
}

/* What the smallest piece is that could go. */
static uint64_t least_piece(const struct world *world)
{
    uint64_t least = UINT64_MAX;

    if (world->config.backing == VS_POOL_VMM) {
        return VS_POOL_PAGE;
    }
    for (uint32_t i = 0; i < world->base.whole_count; i++) {
        if (world->base.wholes[i].bytes < least) {
            least = world->base.wholes[i].bytes;
        }
    }
    return least;
}

void world_trim(struct world *world, uint64_t keep, bool wait)
{
    uint64_t failures = world->failures;
    uint64_t before = world->base.charged;
    uint64_t given = vs_pool_trim(world->pool, keep, wait);

    if (before - world->base.charged != given) {
        world_broke(world, "trimming says %ju bytes, and gave %ju", (uintmax_t)given,
                    (uintmax_t)(before - world->base.charged));
    }
    if (given > 0 && world->base.charged < world->config.keep_bytes) {
        world_broke(world, "trimmed to %ju bytes, below what is to be kept",
                    (uintmax_t)world->base.charged);
    }
    if (wait && keep == 0 && !world->capturing && world->failures == failures &&
        world->live_count == 0 && !world->host_permille && !world->lost &&
        world->base.charged > 0 &&
        world->base.charged >= world->config.keep_bytes + world->stuck + least_piece(world)) {
        world_broke(world, "trimmed to nothing, but %ju bytes are held",
                    (uintmax_t)world->base.charged);
    }
}

void world_check(struct world *world)
{
    struct vs_pool_stats stats;
    int number = vs_pool_validate(world->pool);

    if (number) {
        world_broke(world, "vs_pool_validate: %d", number);
    }
    if (world->base.breach) {
        world_broke(world, "%s", world->base.breach);
    }
    vs_pool_stats(world->pool, &stats);
    if (stats.reserved_bytes != world->base.charged ||
        (uint64_t)world->base.reserved != world->base.charged) {
        world_broke(world, "reserved: %ju by the statistics, %jd as said, %ju by the device",
                    (uintmax_t)stats.reserved_bytes, (intmax_t)world->base.reserved,
                    (uintmax_t)world->base.charged);
    }
    if (stats.live_bytes < world->occupied_bytes ||
        (stats.live_bytes > world->occupied_bytes && !world->host_permille)) {
        world_broke(world, "live: %ju by the statistics, %ju in truth", (uintmax_t)stats.live_bytes,
                    (uintmax_t)world->occupied_bytes);
    }
    if (stats.block_bytes != stats.live_bytes ||
        stats.free_bytes != stats.reserved_bytes - stats.block_bytes) {
        world_broke(world, "blocks occupy %ju, %ju are live, %ju free, of %ju",
                    (uintmax_t)stats.block_bytes, (uintmax_t)stats.live_bytes,
                    (uintmax_t)stats.free_bytes, (uintmax_t)stats.reserved_bytes);
    }
    if (stats.reserved_peak < stats.reserved_bytes || stats.live_peak < stats.live_bytes ||
        stats.reserved_peak > world->base.cap || stats.pending_bytes > stats.free_bytes ||
        stats.largest_free_bytes > stats.free_bytes || stats.pinned_bytes > stats.free_bytes) {
        world_broke(world, "statistics contradict each other");
    }
}
