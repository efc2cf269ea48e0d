/*
 * The vmm backing: growing a zone by mapping physical handles where a block is to lie.
 *
 * A request that fits nowhere gets a window: a stretch of FREE blocks and HOLEs, the one in which
 * the fewest pages are missing. The window becomes BUSY, and its owner, without any lock, finds
 * handles for the missing pages (spare ones, new ones, those of free pages elsewhere), maps them
 * and makes the stretch accessible. A handle moves only as a whole, so most are one page; only
 * blocks from 2^big_floor_bits bytes on get larger ones (bigs.c).
 *
 * Free pages are stolen from the smallest blocks that hold whole ones, so that large ranges stay
 * whole, and only if the host has seen the fence of their last free.
 */
#include "pool/internal.h"

#include <errno.h>

#include "pool/streams.h"
#include "pool/supply.h"

#define STEPS 32     /* blocks that a window may span on one side */
#define CANDIDATES 8 /* large free blocks that are looked at */
#define LARGE_RANGE ((UINT64_C(1) << 41) - VS_POOL_PAGE)

struct window {
    uint32_t stream; /* for whom; 0: anybody */
    uint32_t first;  /* the block that it starts in */
    uint64_t start, end;
    uint64_t missing; /* bytes with nothing behind them */
    bool askew;       /* whole pages, but not at a page's start */
};

static size_t whole_bytes(uint64_t zone_bytes)
{
    return (zone_bytes >> PAGE_BITS) / 8 + 16;
}

uint64_t vs_vmm_host_bytes(const struct vs_pool *pool)
{
    const struct vs_zone *zone = &pool->zones[ZONE_LARGE];
    return zone->whole ? whole_bytes(zone->bytes) : 0;
}

int vs_vmm_start(struct vs_pool *pool)
{
    uint64_t device = page_up(pool->config.device_bytes);
    for (unsigned i = ZONE_SMALL; i < ZONES; i++) {
        struct vs_zone *zone = &pool->zones[i];
        uint64_t bytes = i == ZONE_LARGE ? 8 * device : device;
        bytes = bytes < LARGE_RANGE ? bytes : LARGE_RANGE;
        int rc = pool->ops.reserve(pool->world, bytes, &zone->base);
        if (rc) {
            return rc;
        }
        zone->bytes = bytes;
        if (i == ZONE_LARGE) {
            zone->whole = pool->ops.host_map(pool->world, whole_bytes(bytes));
        }
        zone->first = vs_block_new(pool, 0, zone->base, bytes, i, BLOCK_HOLE);
        if (!zone->first || (i == ZONE_LARGE && !zone->whole)) {
            return -ENOMEM;
        }
        vs_block_list(pool, zone->first, BLOCK_HOLE);
    }
    return 0;
}

static bool usable(const struct vs_pool *pool, uint32_t stream, const struct vs_block *block)
{
    return (block->state == BLOCK_FREE && vs_stream_usable(pool, stream, block)) ||
           block->state == BLOCK_HOLE;
}

/* Where a window that should end at `end`, inside `block`, can end: whole pages in a HOLE, whole
 * handles of several pages in a FREE block. 0: nowhere. */
static uint64_t window_end(const struct vs_pool *pool, const struct vs_block *block, uint64_t end)
{
    if (block->state == BLOCK_HOLE) {
        return page_up(end);
    }
    if (block->big) {
        struct vs_block part = *block;
        uint32_t units = (uint32_t)((end - block->address) >> UNIT_BITS);
        if (end > block->address && vs_big_fit(pool, &part, &units) != 0) {
            return 0;
        }
        end = block->address + ((uint64_t)units << UNIT_BITS);
    }
    return end;
}

/* Fewest missing pages, then no block of whole pages across their borders (for then each of its
 * neighbours keeps a page of it in place), then the lowest address. */
static bool before(const struct window *a, const struct window *b)
{
    if (a->missing != b->missing) {
        return a->missing < b->missing;
    }
    return a->askew != b->askew ? b->askew : a->start < b->start;
}

/* The window from `start`, in block `first`, to the right; kept if it beats *best. */
static void consider(const struct vs_pool *pool, uint32_t first, uint64_t start, uint64_t bytes,
                     struct window *best)
{
    struct window window = {.stream = best->stream,
                            .first = first,
                            .start = start,
                            .askew = vs_zone_askew(start, bytes)};
    uint32_t number = first, stream = 0;

    for (unsigned i = 0; number && i < STEPS; i++) {
        const struct vs_block *block = block_at(pool, number);
        if (!usable(pool, best->stream, block)) {
            return;
        }
        if (block->state == BLOCK_FREE && block->stream) { /* it becomes one block, of one stream */
            if (stream && stream != block->stream) {
                return;
            }
            stream = block->stream;
        }
        uint64_t from = block->address > start ? block->address : start, to = block_end(block);
        if (to >= start + bytes) {
            to = window.end = window_end(pool, block, start + bytes);
            if (!window.end) {
                return;
            }
        }
        if (block->state == BLOCK_HOLE) {
            window.missing += to - from;
        }
        if (window.end) {
            break;
        }
        number = block->next;
    }
    if (window.end && (!best->end || before(&window, best))) {
        *best = window;
    }
}

/* Windows around a block: from its start, and backwards from its end into a HOLE before it. */
static void consider_around(const struct vs_pool *pool, uint32_t number, uint64_t bytes,
                            struct window *best)
{
    const struct vs_block *block = block_at(pool, number);
    const struct vs_block *before = block->prev ? block_at(pool, block->prev) : NULL;

    consider(pool, number, block->address, bytes, best);
    if (!before || before->state != (block->state == BLOCK_FREE ? BLOCK_HOLE : BLOCK_FREE)) {
        return;
    }
    if (block->state == BLOCK_HOLE) {
        consider(pool, block->prev, before->address, bytes, best);
    } else if (block_bytes(block) < bytes && block_bytes(before) + block_bytes(block) >= bytes) {
        consider(pool, block->prev, page_down(block_end(block) - bytes), bytes, best);
    }
}

/* Windows around the largest blocks of a tree. */
static void consider_large(const struct vs_pool *pool, const struct vs_tree *tree, uint64_t bytes,
                           struct window *best)
{
    uint32_t number;
    for (unsigned i = 0; i < CANDIDATES && (number = vs_tree_large(pool, tree, i)); i++) {
        consider_around(pool, number, bytes, best);
    }
}

static struct window find_window(struct vs_pool *pool, const struct vs_want *want)
{
    struct vs_zone *zone = &pool->zones[want->zone];
    uint64_t bytes = (uint64_t)want->units << UNIT_BITS;
    struct window best = {.stream = want->stream};
    uint32_t number;

    vs_holes_sort(pool, zone);
    if (zone == &pool->zones[ZONE_SMALL]) {
        /* A page at a time; the first HOLE is the tightest. */
        number = vs_tree_from(pool, &zone->holes, PAGE_UNITS, 0);
        if (number) {
            best.first = number;
            best.start = block_at(pool, number)->address;
            best.end = best.start + VS_POOL_PAGE;
        }
        return best;
    }
    consider_large(pool, &zone->free, bytes, &best);
    if (want->stream) {
        consider_large(pool, free_tree(pool, want->zone, want->stream), bytes, &best);
    }
    number = vs_tree_from(pool, &zone->holes, want->units, 0);
    for (unsigned i = 0; number && i < CANDIDATES; i++) {
        const struct vs_block *hole = block_at(pool, number);
        consider_around(pool, number, bytes, &best);
        number = vs_tree_from(pool, &zone->holes, hole->key, hole->address + 1);
    }
    number = vs_tree_large(pool, &zone->holes, 0);
    if (number) {
        consider_around(pool, number, bytes, &best);
    }
    return best;
}

/* Makes a window one BUSY block. 0 where there is no host memory (nothing has changed but where
 * FREE blocks are cut). */
static uint32_t take_window(struct vs_pool *pool, const struct window *window)
{
    uint32_t number = window->first;
    struct vs_block *block = block_at(pool, number);

    /* Cuts first: they need host memory. */
    uint32_t last = number;
    while (block_end(block_at(pool, last)) < window->end) {
        last = block_at(pool, last)->next;
    }
    if (block_end(block_at(pool, last)) > window->end) {
        enum vs_block_state state = block_at(pool, last)->state;
        vs_block_unlist(pool, last);
        uint32_t rest = vs_block_cut(pool, last, window->end - block_at(pool, last)->address);
        if (rest) {
            vs_block_list(pool, rest, state);
        }
        vs_block_list(pool, last, state);
        if (!rest) {
            return 0;
        }
    }
    if (block->address < window->start) {
        enum vs_block_state state = block->state;
        vs_block_unlist(pool, number);
        uint32_t rest = vs_block_cut(pool, number, window->start - block->address);
        vs_block_list(pool, number, state);
        if (!rest) {
            return 0; /* a cut HOLE or FREE block stays cut: neighbours alike, which only costs */
        }
        vs_block_list(pool, rest, state);
        number = rest;
        block = block_at(pool, number);
    }
    vs_block_unlist(pool, number);
    while (block_end(block) < window->end) {
        vs_block_unlist(pool, block->next);
        vs_block_join(pool, number);
    }
    block->state = BLOCK_BUSY;
    return number;
}

static enum vs_block_state state_of(const struct vs_pool *pool, uint64_t address)
{
    const struct vs_page *page = vs_page_find(pool, address);
    return page->dead ? BLOCK_LIVE : page->handle ? BLOCK_FREE : BLOCK_HOLE;
}

/* The lock is held. A BUSY block falls apart into what is mapped, what is not, and what is out of
 * use (a LIVE block that nobody knows). */
void vs_vmm_unbusy(struct vs_pool *pool, uint32_t number)
{
    while (number) {
        struct vs_block *block = block_at(pool, number);
        uint64_t end = block_end(block), at = page_up(block->address + 1);
        enum vs_block_state state = state_of(pool, block->address);
        while (at < end && state_of(pool, at) == state) {
            at += VS_POOL_PAGE;
        }
        uint32_t rest = at < end ? vs_block_cut(pool, number, at - block->address) : 0;
        if (at < end && !rest) {
            state = BLOCK_LIVE; /* no host memory to tell them apart */
        }
        if (state == BLOCK_LIVE) {
            block->state = BLOCK_LIVE;
            vs_pool_live(pool, (int64_t)block_bytes(block));
            pool->dead += block_bytes(block);
        } else {
            vs_block_release(pool, number, state);
        }
        number = rest;
    }
}

/* The lock is held. A BUSY block that is mapped throughout becomes a block of so many units, and a
 * free rest. */
static int hand_out(struct vs_pool *pool, uint32_t number, const struct vs_want *want)
{
    uint32_t units = want->units;
    vs_big_fit(pool, block_at(pool, number), &units);
    return vs_block_serve(pool, number, units, want->state);
}

/* A free block would do but for a handle of several pages at its end: cut that into pages. */
static int grow_by_cutting(struct vs_pool *pool, const struct vs_want *want, uint32_t *number)
{
    pool_lock(pool);
    uint32_t found = vs_stream_fit(pool, want->zone, want->stream, want->units, 0);
    uint32_t fitted = want->units;
    uint32_t cut = found ? vs_big_fit(pool, block_at(pool, found), &fitted) : 0;
    if (!cut) {
        pool_unlock(pool);
        return found ? -EAGAIN : -ENOENT; /* found: another thread has freed it just now */
    }
    struct vs_handle *handle = handle_at(pool, cut);
    uint64_t end = handle->address + handle->pages * VS_POOL_PAGE;
    const struct vs_block *block = block_at(pool, found);
    if (!vs_pages_seen(pool, handle->address, end - handle->address) ||
        !vs_stream_seen(pool, block->stream, block->epoch)) {
        pool_unlock(pool);
        return -EBUSY;
    }
    struct window window = {.first = found, .start = block->address, .end = end};
    uint32_t busy = take_window(pool, &window);
    pool_unlock(pool);
    if (!busy) {
        return -ENOMEM;
    }
    atomic_fetch_add(&pool->transits, 1);
    int rc = vs_big_cut(pool, cut);
    pool_lock(pool);
    if (rc == 0) {
        if (pool->big_floor_bits < 40) {
            pool->big_floor_bits++; /* blocks of this size come and go here */
        }
        rc = hand_out(pool, busy, want);
        *number = busy;
    } else {
        vs_vmm_unbusy(pool, busy);
    }
    pool_unlock(pool);
    atomic_fetch_sub(&pool->transits, 1);
    return rc;
}

int vs_vmm_grow(struct vs_pool *pool, const struct vs_want *want, uint64_t limit, uint32_t *number)
{
    int cutting = grow_by_cutting(pool, want, number);
    if (cutting != -ENOENT && cutting != -EBUSY) {
        return cutting;
    }
    pool_lock(pool);
    struct window window = find_window(pool, want);
    int rc = -ENOMEM;
    uint32_t busy = 0;
    uint64_t surplus = 0;
    if (window.end &&
        vs_pages_make(pool, page_down(window.start), window.end - page_down(window.start)) == 0) {
        busy = take_window(pool, &window);
    }
    pool_unlock(pool);
    if (!busy) {
        return rc;
    }
    atomic_fetch_add(&pool->transits, 1);
    rc = vs_supply_window(pool, busy, want->zone, want->units, limit, &surplus);
    pool_lock(pool);
    if (rc == 0) {
        rc = hand_out(pool, busy, want);
        *number = busy;
    } else {
        vs_vmm_unbusy(pool, busy);
    }
    pool_unlock(pool);
    if (surplus > 0) {
        vs_vmm_give(pool, surplus);
    }
    atomic_fetch_sub(&pool->transits, 1);
    return rc == -ENOMEM && cutting == -EBUSY ? -EAGAIN : rc;
}

uint32_t vs_vmm_range(struct vs_pool *pool, unsigned zone, uint32_t pages)
{
    struct vs_tree *tree = &pool->zones[zone].holes;
    uint32_t units = pages * PAGE_UNITS;
    vs_holes_sort(pool, &pool->zones[zone]);
    uint32_t number = vs_tree_from(pool, tree, units, 0);
    while (number && block_at(pool, number)->units < units) {
        number = vs_tree_from(pool, tree, block_at(pool, number)->key,
                              block_at(pool, number)->address + 1);
    }
    if (!number || vs_pages_make(pool, block_at(pool, number)->address, pages * VS_POOL_PAGE)) {
        return 0;
    }
    vs_block_unlist(pool, number);
    if (block_at(pool, number)->units > units) {
        uint32_t rest = vs_block_cut(pool, number, pages * VS_POOL_PAGE);
        if (!rest) {
            vs_block_list(pool, number, BLOCK_HOLE);
            return 0;
        }
        vs_block_list(pool, rest, BLOCK_HOLE);
    }
    return number;
}

int vs_vmm_add(struct vs_pool *pool, uint64_t bytes)
{
    int rc = 0;
    while (bytes > 0 && rc == 0) {
        uint64_t piece = bytes < ((uint64_t)1 << 40) ? page_up(bytes) : (uint64_t)1 << 40;
        uint64_t surplus = 0;
        pool_lock(pool);
        uint32_t busy = vs_vmm_range(pool, ZONE_LARGE, (uint32_t)(piece >> PAGE_BITS));
        pool_unlock(pool);
        if (!busy) {
            return -ENOMEM;
        }
        atomic_fetch_add(&pool->transits, 1);
        rc = vs_supply_window(pool, busy, ZONE_LARGE, (uint32_t)(piece >> UNIT_BITS), UINT64_MAX,
                              &surplus);
        pool_lock(pool);
        vs_vmm_unbusy(pool, busy);
        pool_unlock(pool);
        if (surplus > 0) {
            vs_vmm_give(pool, surplus);
        }
        atomic_fetch_sub(&pool->transits, 1);
        bytes -= piece < bytes ? piece : bytes;
    }
    return rc == -EAGAIN ? -ENOMEM : rc;
}

static void unmap_views(struct vs_pool *pool, uint32_t first)
{
    for (uint32_t number = first; number; number = block_at(pool, number)->next) {
        struct vs_block *block = block_at(pool, number);
        if (block->view) {
            if (!block->lost) {
                pool->ops.unmap(pool->world, block->address, block_bytes(block));
            }
            for (uint64_t at = block->address; at < block_end(block); at += VS_POOL_PAGE) {
                struct vs_page *page = vs_page_find(pool, at);
                if (block->lost && page->handle) {
                    pool->ops.unmap(pool->world, at, VS_POOL_PAGE);
                }
                page->handle = 0;
            }
        }
    }
}

/* Unmaps and releases what lies behind a block. A page that two blocks share is met twice. */
static void end_block(struct vs_pool *pool, const struct vs_block *block)
{
    for (uint64_t at = page_down(block->address); at < block_end(block); at += VS_POOL_PAGE) {
        uint32_t number = vs_page_find(pool, at)->handle;
        if (!number) {
            continue;
        }
        uint64_t from = handle_at(pool, number)->address;
        uint64_t bytes = handle_at(pool, number)->pages * VS_POOL_PAGE;
        pool->ops.unmap(pool->world, from, bytes);
        for (uint64_t each = from; each < from + bytes; each += VS_POOL_PAGE) {
            vs_page_find(pool, each)->handle = 0;
        }
        vs_supply_release(pool, number);
    }
}

void vs_vmm_end(struct vs_pool *pool)
{
    for (unsigned i = ZONE_SMALL; i < ZONES; i++) {
        struct vs_zone *zone = &pool->zones[i];
        if (!zone->bytes) {
            continue;
        }
        unmap_views(pool, zone->first);
        for (uint32_t number = zone->first; number; number = block_at(pool, number)->next) {
            if (block_at(pool, number)->state != BLOCK_HOLE && !block_at(pool, number)->view) {
                end_block(pool, block_at(pool, number));
            }
        }
        pool->ops.unreserve(pool->world, zone->base, zone->bytes);
        if (zone->whole) {
            pool->ops.host_unmap(pool->world, zone->whole, whole_bytes(zone->bytes));
        }
    }
    vs_supply_end(pool);
}
