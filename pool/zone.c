/*
 * Zones: the ladder that a request climbs (design §4), from what lies ready to the last resort.
 *
 * Ready and ordered memory are alike to it: a FREE block may be used in place. What makes them
 * differ is moving pages, and that is the backing's business. Where one stream is busy the fences
 * are moved on by ordering, so that placement depends on the program's calls alone and a loop
 * settles into one layout; where several are, by asking which have passed, and ordering comes only
 * after a little growth, because it is a barrier.
 */
#include "pool/internal.h"

#include <errno.h>

/* How many tight fits are looked at for one that needs no handle cut. */
#define FITS 4
#define NAPS 64

/* The lock is held. 0: nothing fits as it lies. */
static uint32_t find_fit(const struct vs_pool *pool, const struct vs_zone *zone, unsigned name,
                         uint32_t *units)
{
    uint32_t number = vs_tree_from(pool, &zone->free, *units, 0);
    if (!number) {
        return 0;
    }
    const struct vs_block *block = block_at(pool, number);
    if (pool->config.backing == VS_POOL_NATIVE && name == ZONE_LARGE) {
        /* Never split, so it must be nearly as large as wanted. */
        bool near = block->units - *units <= *units / 8;
        *units = block->units;
        return near ? number : 0;
    }
    for (unsigned i = 0; number && block->big && i < FITS; i++) {
        uint32_t fitted = *units;
        if (vs_big_fit(pool, block, &fitted) == 0) {
            *units = fitted;
            return number;
        }
        number = vs_tree_from(pool, &zone->free, block->units, block->address + 1);
        block = number ? block_at(pool, number) : NULL;
    }
    return number && !block->big ? number : 0;
}

/* A block of whole pages goes to a page's start, where there is room for that, so that its pages
 * are its own. The block is in no tree; what is before it goes back. */
static uint32_t align(struct vs_pool *pool, uint32_t number, uint32_t units)
{
    struct vs_block *block = block_at(pool, number);
    uint64_t bytes = (uint64_t)units << UNIT_BITS, start = page_up(block->address);
    if (!vs_zone_askew(block->address, bytes) || start + bytes > block_end(block) || block->big) {
        return number;
    }
    uint32_t rest = vs_block_cut(pool, number, start - block->address);
    if (!rest) {
        return number;
    }
    vs_block_list(pool, number, BLOCK_FREE);
    return rest;
}

int vs_zone_try(struct vs_pool *pool, unsigned name, uint32_t units, enum vs_block_state state,
                uint32_t *number)
{
    struct vs_zone *zone = &pool->zones[name];
    int rc = -EAGAIN;

    pool_lock(pool);
    vs_blocks_drain(pool);
    uint32_t found = find_fit(pool, zone, name, &units);
    if (found) {
        struct vs_block *block = block_at(pool, found);
        vs_block_unlist(pool, found);
        found = align(pool, found, units);
        block = block_at(pool, found);
        if (block->units > units) {
            uint32_t rest = vs_block_cut(pool, found, (uint64_t)units << UNIT_BITS);
            if (rest) {
                vs_block_list(pool, rest, BLOCK_FREE);
            }
            /* Without host memory for the rest the block keeps it. */
        }
        block->state = (uint8_t)state;
        rc = vs_page_start_set(pool, found);
        if (rc) {
            vs_block_release(pool, found, BLOCK_FREE);
        } else {
            vs_pool_live(pool, (int64_t)block_bytes(block));
            pool->allocs++;
            *number = found;
        }
    }
    pool_unlock(pool);
    return rc;
}

int vs_zone_fences(struct vs_pool *pool)
{
    int rc = vs_epochs_close(&pool->epochs, &pool->ops, pool->world);
    if (rc < 0) {
        return rc;
    }
    if (pool->ops.one_stream(pool->world)) {
        rc = vs_epochs_order(&pool->epochs, &pool->ops, pool->world);
        if (rc != 0) {
            return rc;
        }
    }
    return vs_epochs_poll(&pool->epochs, &pool->ops, pool->world);
}

static uint64_t peak_with(const struct vs_pool *pool, uint64_t bytes)
{
    uint64_t with = pool->live + bytes;
    return with > pool->live_peak ? with : pool->live_peak;
}

bool vs_zone_rotates(struct vs_pool *pool, uint64_t bytes)
{
    pool_lock(pool);
    uint64_t after = pool->reserved + page_up(bytes);
    bool fine = after <= peak_with(pool, bytes) + pool->config.slack_bytes &&
                after <= pool->full_at && pool->config.slack_bytes > 0;
    pool_unlock(pool);
    return fine;
}

/* How far reserved may go with this request before free memory is moved instead. */
static uint64_t limit_for(struct vs_pool *pool, uint64_t bytes)
{
    pool_lock(pool);
    uint64_t peak = peak_with(pool, bytes);
    uint64_t limit = peak + peak / 1000 * pool->slack_permille + pool->config.slack_bytes;
    pool_unlock(pool);
    return limit;
}

static int grow(struct vs_pool *pool, unsigned zone, uint32_t units, uint64_t limit,
                enum vs_block_state state, uint32_t *number)
{
    return pool->config.backing == VS_POOL_VMM
               ? vs_vmm_grow(pool, zone, units, limit, state, number)
               : vs_native_grow(pool, zone, units, limit, state, number);
}

static bool final(int rc)
{
    return rc != -ENOMEM && rc != -EAGAIN;
}

static enum vs_pool_verdict verdict_of(struct vs_pool *pool, uint64_t bytes)
{
    enum vs_pool_verdict verdict = VS_POOL_FULL;
    pool_lock(pool);
    if (vs_epochs_unclosed(&pool->epochs) && pool->pending > 0 &&
        pool->reserved - pool->live >= bytes) {
        verdict = VS_POOL_PENDING;
    } else if (pool->config.backing == VS_POOL_NATIVE &&
               pool->reserved - pool->live - pool->pending >= bytes) {
        verdict = VS_POOL_FRAGMENTED;
    }
    pool_unlock(pool);
    return verdict;
}

int vs_zone_alloc(struct vs_pool *pool, unsigned zone, uint32_t units, enum vs_block_state state,
                  struct vs_pool_request *request, uint32_t *number)
{
    uint64_t bytes = (uint64_t)units << UNIT_BITS;
    bool first = true;
    unsigned naps = 0;

    for (;; first = false) {
        int rc = vs_zone_try(pool, zone, units, state, number);
        if (rc != -EAGAIN) {
            return rc;
        }
        if (first) {
            atomic_fetch_add_explicit(&pool->misses, 1, memory_order_relaxed);
        }
        if (vs_zone_rotates(pool, bytes)) {
            rc = grow(pool, zone, units, UINT64_MAX, state, number);
            if (final(rc)) {
                return rc;
            }
        }
        rc = vs_zone_fences(pool);
        if (rc < 0) {
            return rc;
        }
        if (rc > 0) {
            if (first) {
                atomic_fetch_sub_explicit(&pool->misses, 1, memory_order_relaxed);
            }
            continue;
        }
        rc = grow(pool, zone, units, limit_for(pool, bytes), state, number);
        if (final(rc)) {
            return rc;
        }
        if (!request->capturing) {
            int more = vs_epochs_order(&pool->epochs, &pool->ops, pool->world);
            if (more < 0) {
                return more;
            }
            if (more > 0) {
                continue;
            }
        }
        int more = vs_epochs_wait_some(&pool->epochs, UINT64_MAX, &pool->ops, pool->world);
        if (more < 0) {
            return more;
        }
        if (more > 0) {
            continue;
        }
        if (vs_slab_flush(pool) > 0) {
            continue;
        }
        rc = grow(pool, zone, units, UINT64_MAX, state, number);
        if (final(rc)) {
            return rc;
        }
        if (atomic_load(&pool->transits) > 0 || (rc == -EAGAIN && naps++ < NAPS)) {
            pool->ops.nap(pool->world); /* somebody holds memory that may yet come back */
            continue;
        }
        request->verdict = verdict_of(pool, bytes);
        return -ENOMEM;
    }
}
