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
#include "pool/streams.h"

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
static uint32_t find_fit(struct vs_pool *pool, const struct vs_want *want, uint32_t *units)
{
    uint32_t number = vs_stream_fit(pool, want->zone, want->stream, *units, 0);
    if (!number) {
        return 0;
    }
    const struct vs_block *block = block_at(pool, number);
    if (pool->config.backing == VS_POOL_NATIVE && want->zone == ZONE_LARGE) {
        return vs_zone_fits(pool, want, block, units) ? number : 0;
    }
    uint32_t first = 0, first_units = 0;
    for (unsigned i = 0; number && i < FITS; i++) {
        uint32_t fitted = *units;
        if (!block->big || vs_big_fit(pool, block, &fitted) == 0) {
            uint64_t bytes = (uint64_t)fitted << UNIT_BITS;
            if (want->zone != ZONE_LARGE || pool->views == 0 ||
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
        number = vs_stream_fit(pool, want->zone, want->stream, block->units, block->address + 1);
        block = number ? block_at(pool, number) : NULL;
    }
    *units = first ? first_units : *units;
    return first;
}

static bool viewable(struct vs_pool *pool, const struct vs_want *want)
{
    return want->zone == ZONE_LARGE && pool->config.backing == VS_POOL_VMM &&
           (uint64_t)want->units << UNIT_BITS >= pool->config.view_min &&
           vs_views_may(pool, want->stream);
}

/* Where in a FREE block a request goes: blocks of whole pages to a page's start, where there is
 * room for that, so that their pages are their own. */
static uint64_t place_in(const struct vs_block *block, uint64_t bytes)
{
    uint64_t start = page_up(block->address);
    return vs_zone_askew(block->address, bytes) && !block->big && start + bytes <= block_end(block)
               ? start
               : block->address;
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

/* Makes a part of a FREE block a block; without host memory for what is left, all of it. */
static int carve(struct vs_pool *pool, uint32_t found, uint64_t start, uint32_t units,
                 enum vs_block_state state, uint32_t *number)
{
    *number = vs_block_cut_out(pool, found, start, start + ((uint64_t)units << UNIT_BITS));
    if (!*number) {
        vs_block_unlist(pool, found);
        *number = found;
    }
    return vs_block_serve(pool, *number, block_at(pool, *number)->units, state);
}

/* The FREE block that all of a request at an address lies in; 0 if there is none, or a handle of
 * several pages would have to be shared. */
static uint32_t free_around(const struct vs_pool *pool, uint64_t address,
                            const struct vs_want *want)
{
    uint32_t number = vs_free_block_at(pool, address);
    const struct vs_block *block = number ? block_at(pool, number) : NULL;
    return block && !block->big && block->address <= address &&
                   block_end(block) >= address + ((uint64_t)want->units << UNIT_BITS) &&
                   vs_stream_usable(pool, want->stream, block)
               ? number
               : 0;
}

/* A block of the right size has just become free. Is it where the request would go, were it joined
 * with what is free beside it? Then it can be had as it is. place: of the round before, or 0. */
static bool stands(struct vs_pool *pool, uint32_t number, uint64_t place)
{
    struct vs_block *block = block_at(pool, number);
    const struct vs_block *prev = block->prev ? block_at(pool, block->prev) : NULL;
    const struct vs_block *next = block->next ? block_at(pool, block->next) : NULL;
    block->state = BLOCK_FREE;
    prev = prev && vs_block_joins(pool, prev) ? prev : NULL;
    next = next && vs_block_joins(pool, block) ? next : NULL;
    block->state = BLOCK_BUSY;
    if (block->big || (prev && prev->big) || (next && next->big)) {
        return false;
    }
    if (place) {
        return block->address == place;
    }
    if (prev || vs_zone_askew(block->address, block_bytes(block)) ||
        (block->zone == ZONE_LARGE && pool->views > 0)) {
        return false;
    }
    uint32_t key = block->units + (next ? next->units : 0);
    uint32_t tightest = vs_stream_fit(pool, block->zone, block->stream, block->units, 0);
    if (next && tightest == block->next) {
        tightest = vs_stream_fit(pool, block->zone, block->stream, next->units, next->address + 1);
    }
    const struct vs_block *other = tightest ? block_at(pool, tightest) : NULL;
    return !other || other->units > key || (other->units == key && other->address > block->address);
}

/* Where it lay in the round before. -EAGAIN: it can't. */
static int try_expected(struct vs_pool *pool, const struct vs_want *want, uint64_t place,
                        uint32_t *number)
{
    uint32_t found = free_around(pool, place, want);
    if (found) {
        return carve(pool, found, place, want->units, want->state, number);
    }
    return viewable(pool, want) && vs_view_take_at(pool, want->units, place, number) ? 0 : -EAGAIN;
}

/* Its place of the round before is taken: one that is in nobody's way, in the tightest free blocks.
 */
static int try_between(struct vs_pool *pool, const struct vs_want *want, uint32_t *number)
{
    uint64_t bytes = (uint64_t)want->units << UNIT_BITS;
    uint32_t found = vs_stream_fit(pool, ZONE_LARGE, want->stream, want->units, 0);
    for (unsigned i = 0; found && i < FITS; i++) {
        const struct vs_block *block = block_at(pool, found);
        uint64_t start =
            vs_zone_askew(block->address, bytes) ? page_up(block->address) : block->address;
        uint64_t place =
            block->big ? 0 : vs_loops_avoid(pool, start, block_end(block), bytes, wary(pool));
        if (place) {
            return carve(pool, found, place, want->units, want->state, number);
        }
        found = vs_stream_fit(pool, ZONE_LARGE, want->stream, block->units, block->address + 1);
    }
    return -EAGAIN;
}

bool vs_zone_fits(const struct vs_pool *pool, const struct vs_want *want,
                  const struct vs_block *block, uint32_t *units)
{
    if (pool->config.backing == VS_POOL_NATIVE && want->zone == ZONE_LARGE) {
        bool near = block->units - *units <= *units / 8; /* never split */
        *units = block->units;
        return near;
    }
    return !block->big || vs_big_fit(pool, block, units) == 0;
}

/* Memory of another stream that this one comes after. */
static int try_after(struct vs_pool *pool, const struct vs_want *want, uint32_t *number)
{
    uint32_t units = want->units;
    uint32_t found =
        want->stream ? vs_stream_fit_after(pool, want->zone, want->stream, want->units) : 0;
    const struct vs_block *block = found ? block_at(pool, found) : NULL;
    if (!found || !vs_zone_fits(pool, want, block, &units)) {
        return -EAGAIN;
    }
    uint64_t start = place_in(block, (uint64_t)units << UNIT_BITS);
    return carve(pool, found, start, units, want->state, number);
}

/* May moving the fences on be worth more than another place? That of a long round might be free
 * then, or much be in fewer pieces. */
static bool fences_first(const struct vs_pool *pool, uint64_t round)
{
    return pool->pending > 0 &&
           atomic_load_explicit(&pool->epochs.freed, memory_order_relaxed) >
               vs_epochs_available(&pool->epochs) &&
           (round >= VS_LOOP_LONG || pool->pending >= pool->config.slack_bytes / 2);
}

/* fresh: a block of this size that has just become free and is neither listed nor joined; or 0. */
static int try_locked(struct vs_pool *pool, const struct vs_want *want, bool early, uint32_t fresh,
                      uint32_t *number)
{
    uint32_t units = want->units;
    uint64_t place = remembers(pool, want->zone) ? vs_loops_expect(pool, units) : 0;
    uint64_t round = place ? pool->loops.next - pool->loops.expected : 0;
    bool busy = early && remembers(pool, want->zone) && fences_first(pool, round);
    if (fresh && (place || !busy) && stands(pool, fresh, place)) {
        *number = fresh;
        return vs_block_serve(pool, fresh, units, want->state);
    }
    if (fresh) {
        vs_block_release(pool, fresh, BLOCK_FREE);
    }
    int rc = place ? try_expected(pool, want, place, number) : -EAGAIN;
    if (rc == -EAGAIN && busy) {
        return -EBUSY;
    }
    if (rc == -EAGAIN && round >= VS_LOOP_LONG) {
        rc = try_between(pool, want, number);
    }
    if (rc != -EAGAIN) {
        return rc;
    }
    uint32_t fitted = units, found = find_fit(pool, want, &fitted);
    if (found) {
        uint64_t start = place_in(block_at(pool, found), (uint64_t)fitted << UNIT_BITS);
        return carve(pool, found, start, fitted, want->state, number);
    }
    if (viewable(pool, want) && vs_view_take(pool, units, number)) {
        return 0;
    }
    return try_after(pool, want, number);
}

/* The stream that wants it has just freed as much, and it lies apart yet: that block, which is not
 * parked any more; or 0. The lock is held. */
static uint32_t take_parked(struct vs_pool *pool, const struct vs_want *want)
{
    uint32_t number = pool->parked;
    const struct vs_block *block = block_at(pool, number);
    if (block->units != want->units || block->stream != want->stream || block->zone != want->zone ||
        want->state != BLOCK_LIVE) {
        vs_parked_go(pool);
        return 0;
    }
    pool->parked = 0;
    return number;
}

/* Where places are remembered it is had if it is the one that would be chosen. */
static int try_all(struct vs_pool *pool, const struct vs_want *want, bool early, uint32_t *number)
{
    uint32_t parked = pool->parked ? take_parked(pool, want) : 0, fresh;
    if (parked && !remembers(pool, want->zone)) {
        *number = parked;
        vs_block_serve_whole(pool, parked);
        return 0;
    }
    fresh = parked || pool->config.faults & VS_POOL_JOIN_FIRST
                ? vs_blocks_drain_for(pool, ZONE_NONE, 0)
                : vs_blocks_drain_for(pool, want->zone, want->units);
    return try_locked(pool, want, early, parked ? parked : fresh, number);
}

int vs_zone_try(struct vs_pool *pool, const struct vs_want *want, bool early, uint32_t *number)
{
    pool_lock_parked(pool);
    int rc = try_all(pool, want, early, number);
    if (rc == 0 && remembers(pool, want->zone)) {
        remember(pool, want->units, *number);
    }
    if (rc == 0 &&
        __builtin_expect(atomic_load_explicit(&pool->pressed, memory_order_relaxed), 0)) {
        vs_streams_relax(pool);
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

/* The backing's growth, remembered where that is of use. */
static int grow(struct vs_pool *pool, const struct vs_want *want, uint64_t limit, uint32_t *number)
{
    int rc = pool->config.backing == VS_POOL_VMM ? vs_vmm_grow(pool, want, limit, number)
                                                 : vs_native_grow(pool, want, limit, number);
    if (rc == 0 && remembers(pool, want->zone)) {
        pool_lock(pool);
        remember(pool, want->units, *number);
        pool_unlock(pool);
    }
    return rc;
}

/* For a request that would have to move pages: a view instead, with new memory for what free pages
 * lack. */
static int grow_or_view(struct vs_pool *pool, const struct vs_want *want, uint64_t limit,
                        uint32_t *number)
{
    uint64_t bytes = page_up((uint64_t)want->units << UNIT_BITS), lacking;
    pool_lock(pool);
    uint64_t whole = pool->zones[ZONE_LARGE].free.whole;
    whole += want->stream ? free_tree(pool, ZONE_LARGE, want->stream)->whole : 0;
    bool grows = pool->reserved + bytes <= limit && pool->reserved + bytes <= pool->full_at;
    bool views = !grows && viewable(pool, want);
    if (!grows && pool->stream_count > 0) {
        vs_streams_press(pool);
    }
    pool_unlock(pool);
    lacking = whole < bytes ? bytes - whole : 0;
    if (views) {
        int rc = lacking > 0 ? vs_vmm_add(pool, lacking) : 0;
        rc = rc ? rc : vs_view_make(pool, want, number);
        if (rc == 0) {
            pool_lock(pool);
            remember(pool, want->units, *number);
            pool_unlock(pool);
        }
        if (rc != -EAGAIN && rc != -ENOMEM) {
            return rc;
        }
    }
    return grow(pool, want, limit, number);
}

static enum vs_pool_verdict verdict_of(struct vs_pool *pool, uint64_t bytes)
{
    enum vs_pool_verdict verdict = VS_POOL_FULL;
    pool_lock(pool);
    bool pending =
        (vs_epochs_unclosed(&pool->epochs) && pool->pending > 0) || vs_streams_free_bytes(pool) > 0;
    if (pending && pool->reserved - pool->live >= bytes) {
        verdict = VS_POOL_PENDING;
    } else if (pool->config.backing == VS_POOL_NATIVE &&
               pool->reserved - pool->live - pool->pending >= bytes) {
        verdict = VS_POOL_FRAGMENTED;
    }
    pool_unlock(pool);
    return verdict;
}

int vs_zone_try_grow(struct vs_pool *pool, const struct vs_want *want, uint32_t *number)
{
    int rc = vs_zone_try(pool, want, false, number);
    if (rc == -EAGAIN && vs_zone_rotates(pool, (uint64_t)want->units << UNIT_BITS)) {
        rc = grow(pool, want, UINT64_MAX, number);
    }
    return rc;
}

/* What lies ready. In a loop it may be worth a fence that the place of the round before is free. */
static int ready(struct vs_pool *pool, const struct vs_want *want, bool first, uint32_t *number)
{
    int rc = vs_zone_try(pool, want, first, number);
    if (rc == -EBUSY) {
        rc = pool->ops.one_stream(pool->world) ? vs_zone_fences(pool) : 0;
        return rc < 0 ? rc : vs_zone_try(pool, want, false, number);
    }
    return rc;
}

/* Rungs: 0 or an error is the answer; -EAGAIN and -ENOMEM lead to the next one; MORE: there may be
 * more now, so from the top. */
enum { MORE = 1 };

static bool final(int rc)
{
    return rc != -ENOMEM && rc != -EAGAIN;
}

/* Moving the fences on, of the context and of other streams. MORE, 0 or an error. */
static int move_fences(struct vs_pool *pool, const struct vs_want *want)
{
    int rc = vs_zone_fences(pool);
    return rc != 0 || pool->stream_count == 0 ? rc : vs_streams_poll(pool, want->stream);
}

/* Everything that costs no wait: what spans and the slack leave, moving pages, ordering. */
static int climb(struct vs_pool *pool, const struct vs_want *want, bool capturing, uint32_t *number)
{
    if (vs_spans_flush(pool, false) > 0) {
        return MORE;
    }
    uint64_t limit = limit_for(pool, (uint64_t)want->units << UNIT_BITS);
    int rc = grow_or_view(pool, want, limit, number);
    int ordered = final(rc) ? 0 : vs_streams_order(pool, want);
    if (!final(rc) && ordered == 0 && !capturing) {
        ordered = vs_epochs_order(&pool->epochs, &pool->ops, pool->world);
    }
    return ordered != 0 ? ordered : rc;
}

/* Waits, and what is left after them. */
static int climb_last(struct vs_pool *pool, const struct vs_want *want, uint32_t *number)
{
    int rc = vs_epochs_wait_some(&pool->epochs, UINT64_MAX, &pool->ops, pool->world);
    rc = rc != 0 ? rc : vs_streams_wait(pool, false);
    if (rc != 0) {
        return rc < 0 ? rc : MORE;
    }
    return vs_slab_flush(pool) > 0 ? MORE : grow(pool, want, UINT64_MAX, number);
}

int vs_zone_alloc(struct vs_pool *pool, const struct vs_want *want, struct vs_pool_request *request,
                  uint32_t *number)
{
    uint64_t bytes = (uint64_t)want->units << UNIT_BITS;
    bool hasty = pool->stream_count > 0; /* not yet waited for streams without exact fences */
    unsigned naps = 0;

    for (bool first = true;; first = false) {
        int rc = ready(pool, want, first, number);
        if (rc != -EAGAIN) {
            return rc;
        }
        if (vs_zone_rotates(pool, bytes)) {
            rc = grow(pool, want, UINT64_MAX, number);
        }
        if (!final(rc)) {
            int moved = move_fences(pool, want);
            if (moved > 0) {
                continue;
            }
            rc = moved < 0 ? moved : rc;
        }
        if (first) {
            atomic_fetch_add_explicit(&pool->misses, 1, memory_order_relaxed);
        }
        rc = final(rc) ? rc : climb(pool, want, request->capturing, number);
        rc = final(rc) ? rc : climb_last(pool, want, number);
        if (rc == MORE) {
            continue;
        }
        if (final(rc)) {
            return rc;
        }
        if (hasty) {
            hasty = false;
            if (vs_streams_wait(pool, true) > 0) {
                continue;
            }
        }
        if (atomic_load(&pool->transits) > 0 || (rc == -EAGAIN && naps++ < NAPS)) {
            pool->ops.nap(pool->world); /* somebody holds memory that may yet come back */
            continue;
        }
        request->verdict = verdict_of(pool, bytes);
        return -ENOMEM;
    }
}
