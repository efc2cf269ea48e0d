/*
 * Zones: the ladder that a request climbs (design §4), from what lies ready to the last resort.
 *
 * Ready and ordered memory are alike to it: a FREE block may be used in place. What makes them
 * differ is moving pages, and that is the backing's business. Where one stream is busy the fences
 * are moved on by ordering, so that placement depends on the program's calls alone and a loop
 * settles into one layout; where several are, by asking which have passed, and ordering comes only
 * after a little growth, because it is a barrier.
 */
#include <errno.h>

#include "pool/spans.h"

/* How many tight fits are looked at for one that needs no handle cut, and keeps out of the views'
 * way.
 */
#define FITS 8
#define NAPS 64
#define WARY_SHIFT 2

/* Two ways to keep out of the way of views: of those that are in use meanwhile, or of any in the
 * whole round. Neither settles every loop, so they take turns as views are made; in a loop that has
 * settled nobody asks. Without slack the second, which keeps less memory in place. */
static bool wary(const struct vs_pool *pool)
{
    return pool->config.slack_bytes == 0 || (pool->views_made >> WARY_SHIFT & 1);
}

/* The lock is held. 0: nothing fits as it lies. */
static uint32_t find_fit(struct vs_pool *pool, const struct vs_zone *zone, unsigned name,
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
    uint32_t first = 0, first_units = 0;
    for (unsigned i = 0; number && i < FITS; i++) {
        uint32_t fitted = *units;
        if (!block->big || vs_big_fit(pool, block, &fitted) == 0) {
            uint64_t bytes = (uint64_t)fitted << UNIT_BITS;
            if (name != ZONE_LARGE || pool->views == 0 ||
                !(wary(pool) ? vs_loops_viewed(pool, block->address, bytes)
                             : vs_loops_wants(pool, block->address, bytes))) {
                *units = fitted;
                return number;
            }
            if (!first) {
                first = number;
                first_units = fitted;
            }
        }
        number = vs_tree_from(pool, &zone->free, block->units, block->address + 1);
        block = number ? block_at(pool, number) : NULL;
    }
    *units = first ? first_units : *units;
    return first;
}

static bool viewable(const struct vs_pool *pool, unsigned zone, uint32_t units)
{
    return zone == ZONE_LARGE && pool->config.backing == VS_POOL_VMM &&
           (uint64_t)units << UNIT_BITS >= VIEW_MIN;
}

/* What is before an address goes back; the block is in no tree. */
static uint32_t cut_before(struct vs_pool *pool, uint32_t number, uint64_t address)
{
    uint64_t before = address - block_at(pool, number)->address;
    uint32_t rest = before ? vs_block_cut(pool, number, before) : 0;
    if (!rest) {
        return number;
    }
    vs_block_list(pool, number, BLOCK_FREE);
    return rest;
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
    return cut_before(pool, number, start);
}

/* Does the large zone remember where its requests lay? Native ones are not placed at all. */
static bool remembers(const struct vs_pool *pool, unsigned zone)
{
    return zone == ZONE_LARGE && pool->config.backing == VS_POOL_VMM;
}

static void remember(struct vs_pool *pool, uint32_t units, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    block->turn = vs_loops_placed(pool, units, block->address);
}

/* Makes the part of a FREE block from `place` on (0: where it fits best) a block. */
static int carve(struct vs_pool *pool, uint32_t found, uint64_t place, uint32_t units,
                 enum vs_block_state state, uint32_t *number)
{
    vs_block_unlist(pool, found);
    found = place ? cut_before(pool, found, place) : align(pool, found, units);
    struct vs_block *block = block_at(pool, found);
    if (block->units > units) {
        uint32_t rest = vs_block_cut(pool, found, (uint64_t)units << UNIT_BITS);
        if (rest) {
            vs_block_list(pool, rest, BLOCK_FREE);
        }
        /* Without host memory for the rest the block keeps it. */
    }
    block->state = (uint8_t)state;
    int rc = vs_page_start_set(pool, found);
    if (rc) {
        vs_block_release(pool, found, BLOCK_FREE);
        return rc;
    }
    vs_pool_live(pool, (int64_t)block_bytes(block));
    pool->allocs++;
    *number = found;
    return 0;
}

/* The FREE block that all of a request at an address lies in; 0 if there is none, or a handle of
 * several pages would have to be shared. */
static uint32_t free_around(const struct vs_pool *pool, uint64_t address, uint32_t units)
{
    uint32_t number = vs_free_block_at(pool, address);
    const struct vs_block *block = number ? block_at(pool, number) : NULL;
    return block && !block->big && block->address <= address &&
                   block_end(block) >= address + ((uint64_t)units << UNIT_BITS)
               ? number
               : 0;
}

/* Where it lay in the round before. -EAGAIN: it can't, or there is none. */
static int try_expected(struct vs_pool *pool, uint32_t units, enum vs_block_state state,
                        uint32_t *number, bool *expected)
{
    uint64_t place = vs_loops_expect(pool, units);
    *expected = place != 0;
    if (!place) {
        return -EAGAIN;
    }
    uint32_t found = free_around(pool, place, units);
    if (found) {
        return carve(pool, found, place, units, state, number);
    }
    return viewable(pool, ZONE_LARGE, units) && vs_view_take_at(pool, units, place, number)
               ? 0
               : -EAGAIN;
}

/* Its place of the round before is taken: one that is in nobody's way, in the tightest free blocks.
 */
static int try_between(struct vs_pool *pool, uint32_t units, enum vs_block_state state,
                       uint32_t *number)
{
    const struct vs_tree *tree = &pool->zones[ZONE_LARGE].free;
    uint64_t bytes = (uint64_t)units << UNIT_BITS;
    uint32_t found = vs_tree_from(pool, tree, units, 0);
    for (unsigned i = 0; found && i < FITS; i++) {
        const struct vs_block *block = block_at(pool, found);
        uint64_t start =
            vs_zone_askew(block->address, bytes) ? page_up(block->address) : block->address;
        uint64_t place =
            block->big ? 0 : vs_loops_avoid(pool, start, block_end(block), bytes, wary(pool));
        if (place) {
            return carve(pool, found, place, units, state, number);
        }
        found = vs_tree_from(pool, tree, block->units, block->address + 1);
    }
    return -EAGAIN;
}

static bool fences_pend(const struct vs_pool *pool)
{
    return pool->pending > 0 && atomic_load_explicit(&pool->epochs.freed, memory_order_relaxed) >
                                    vs_epochs_available(&pool->epochs);
}

static int try_locked(struct vs_pool *pool, unsigned name, uint32_t units,
                      enum vs_block_state state, bool early, uint32_t *number)
{
    uint32_t fitted = units;
    if (remembers(pool, name)) {
        bool expected;
        int rc = try_expected(pool, units, state, number, &expected);
        if (rc != -EAGAIN) {
            return rc;
        }
        uint64_t round = expected ? pool->loops.next - pool->loops.expected : 0;
        if (early && fences_pend(pool) &&
            (round >= VS_LOOP_LONG || pool->pending >= pool->config.slack_bytes / 2)) {
            return -EBUSY;
        }
    }
    if (remembers(pool, name) && pool->loops.expected &&
        pool->loops.next - pool->loops.expected >= VS_LOOP_LONG) {
        int rc = try_between(pool, units, state, number);
        if (rc != -EAGAIN) {
            return rc;
        }
    }
    uint32_t found = find_fit(pool, &pool->zones[name], name, &fitted);
    if (found) {
        return carve(pool, found, 0, fitted, state, number);
    }
    return viewable(pool, name, units) && vs_view_take(pool, units, number) ? 0 : -EAGAIN;
}

int vs_zone_try(struct vs_pool *pool, unsigned name, uint32_t units, enum vs_block_state state,
                bool early, uint32_t *number)
{
    pool_lock(pool);
    vs_blocks_drain(pool);
    int rc = try_locked(pool, name, units, state, early, number);
    if (rc == 0 && remembers(pool, name)) {
        remember(pool, units, *number);
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
    uint64_t limit = peak + peak / 1000 * pool->config.slack_permille + pool->config.slack_bytes;
    pool_unlock(pool);
    return limit;
}

static int grow_zone(struct vs_pool *pool, unsigned zone, uint32_t units, uint64_t limit,
                     enum vs_block_state state, uint32_t *number)
{
    return pool->config.backing == VS_POOL_VMM
               ? vs_vmm_grow(pool, zone, units, limit, state, number)
               : vs_native_grow(pool, zone, units, limit, state, number);
}

/* The backing's growth, remembered where that is of use. */
static int grow(struct vs_pool *pool, unsigned zone, uint32_t units, uint64_t limit,
                enum vs_block_state state, uint32_t *number)
{
    int rc = grow_zone(pool, zone, units, limit, state, number);
    if (rc == 0 && remembers(pool, zone)) {
        pool_lock(pool);
        remember(pool, units, *number);
        pool_unlock(pool);
    }
    return rc;
}

/* For a request that would have to move pages: a view instead, with new memory for what free pages
 * lack. */
static int grow_or_view(struct vs_pool *pool, unsigned zone, uint32_t units, uint64_t limit,
                        enum vs_block_state state, uint32_t *number)
{
    uint64_t bytes = page_up((uint64_t)units << UNIT_BITS), lacking;
    pool_lock(pool);
    uint64_t whole = pool->zones[ZONE_LARGE].free.whole;
    bool grows = pool->reserved + bytes <= limit && pool->reserved + bytes <= pool->full_at;
    pool_unlock(pool);
    lacking = whole < bytes ? bytes - whole : 0;
    if (!grows && viewable(pool, zone, units)) {
        int rc = lacking > 0 ? vs_vmm_add(pool, lacking) : 0;
        rc = rc ? rc : vs_view_make(pool, units, number);
        if (rc == 0) {
            pool_lock(pool);
            remember(pool, units, *number);
            pool_unlock(pool);
        }
        if (rc != -EAGAIN && rc != -ENOMEM) {
            return rc;
        }
    }
    return grow(pool, zone, units, limit, state, number);
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

int vs_zone_try_grow(struct vs_pool *pool, unsigned zone, uint32_t units, enum vs_block_state state,
                     uint32_t *number)
{
    int rc = vs_zone_try(pool, zone, units, state, false, number);
    if (rc == -EAGAIN && vs_zone_rotates(pool, (uint64_t)units << UNIT_BITS)) {
        rc = grow(pool, zone, units, UINT64_MAX, state, number);
    }
    return rc;
}

int vs_zone_alloc(struct vs_pool *pool, unsigned zone, uint32_t units, enum vs_block_state state,
                  struct vs_pool_request *request, uint32_t *number)
{
    uint64_t bytes = (uint64_t)units << UNIT_BITS;
    bool first = true;
    unsigned naps = 0;

    bool one_stream = zone == ZONE_LARGE && pool->ops.one_stream(pool->world);

    for (;; first = false) {
        int rc = vs_zone_try(pool, zone, units, state, first && one_stream, number);
        if (rc == -EBUSY) {
            rc = vs_zone_fences(pool);
            if (rc < 0) {
                return rc;
            }
            rc = vs_zone_try(pool, zone, units, state, false, number);
        }
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
        if (vs_spans_flush(pool, false) > 0) {
            continue;
        }
        rc = grow_or_view(pool, zone, units, limit_for(pool, bytes), state, number);
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
