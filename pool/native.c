/*
 * The native backing: whole allocations of the driver, segments.
 *
 * A large block is a segment of its own, never split, used again whole for a request within an
 * eighth of its size. The small and middle zones cut segments up, which grow with the zone (2 to 32
 * MiB). A segment is a sequence of blocks without neighbours outside; when one FREE block fills it,
 * and the host has seen the fence of its last free, it can go back.
 */
#include "pool/streams.h"

#include <errno.h>

#define SEGMENT_MAX ((uint64_t)32 << 20)

static bool whole(const struct vs_block *block)
{
    return block->state == BLOCK_FREE && !block->prev && !block->next;
}

/* Enters a segment's pages for a zone, or (ZONE_NONE) forgets them: before it goes back, for the
 * driver may hand the same addresses to another thread at once. The lock is held. */
static void set_pages(struct vs_pool *pool, const struct vs_block *block, unsigned zone)
{
    for (uint64_t at = block->address; at < block_end(block); at += VS_POOL_PAGE) {
        struct vs_page *page = vs_page_find(pool, at);
        if (page->starts && block->zone != ZONE_LARGE) {
            vs_table_give(&pool->starts, page->starts);
        }
        __atomic_store_n(&page->starts, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&page->zone, (uint8_t)zone, __ATOMIC_RELEASE);
        *vs_page_last(pool, at) = 0;
    }
}

/* Takes FREE segments that the host has seen out of the zones, smallest first, until they make up
 * `bytes`, or a little over: BUSY blocks linked through left. *unseen: bytes in those that have not
 * been. The lock is held. */
static uint32_t pick(struct vs_pool *pool, uint64_t bytes, bool over, uint64_t *unseen)
{
    uint32_t list = 0;
    uint64_t got = 0;
    *unseen = 0;
    for (unsigned z = ZONE_SMALL; z < ZONES; z++) {
        struct vs_tree *tree = &pool->zones[z].free;
        uint32_t number = vs_tree_from(pool, tree, PAGE_UNITS, 0);
        while (number && got < bytes) {
            struct vs_block *block = block_at(pool, number);
            uint32_t next = vs_tree_from(pool, tree, block->units, block->address + 1);
            if (whole(block) && !vs_pages_seen(pool, block->address, block_bytes(block))) {
                *unseen += block_bytes(block);
            } else if (whole(block) && (over || got + block_bytes(block) <= bytes)) {
                vs_block_unlist(pool, number);
                set_pages(pool, block, ZONE_NONE);
                block->left = list;
                list = number;
                got += block_bytes(block);
            }
            number = next;
        }
    }
    return list;
}

static uint64_t give_list(struct vs_pool *pool, uint32_t list)
{
    uint64_t given = 0;
    atomic_fetch_add(&pool->transits, 1);
    while (list) {
        struct vs_block *block = block_at(pool, list);
        uint32_t next = block->left;
        uint64_t bytes = block_bytes(block);
        int rc = pool->ops.give(pool->world, block->address, bytes);
        pool_lock(pool);
        if (rc) {
            set_pages(pool, block, block->zone);
            vs_block_release(pool, list, BLOCK_FREE);
        } else {
            vs_reserved_add(pool, -(int64_t)bytes);
            block->state = BLOCK_UNUSED;
            vs_table_give(&pool->blocks, list);
            given += bytes;
        }
        pool_unlock(pool);
        list = next;
    }
    atomic_fetch_sub(&pool->transits, 1);
    atomic_fetch_add_explicit(&pool->released, given, memory_order_relaxed);
    return given;
}

uint64_t vs_native_give(struct vs_pool *pool, uint64_t bytes)
{
    uint64_t unseen;
    pool_lock(pool);
    uint32_t list = pick(pool, bytes, false, &unseen);
    pool_unlock(pool);
    return give_list(pool, list);
}

/* Enters a segment as one BUSY block. 0 where there is no host memory. The lock is held. */
static uint32_t enter(struct vs_pool *pool, unsigned zone, uint64_t address, uint64_t bytes)
{
    if (vs_pages_make(pool, address, bytes)) {
        return 0;
    }
    uint32_t number = vs_block_new(pool, 0, address, bytes, zone, BLOCK_BUSY);
    if (number) {
        set_pages(pool, block_at(pool, number), zone);
    }
    return number;
}

static int take(struct vs_pool *pool, unsigned zone, uint64_t bytes, uint32_t *number)
{
    uint64_t address;
    int rc = pool->ops.take(pool->world, bytes, &address);
    pool_lock(pool);
    if (rc == 0) {
        *number = enter(pool, zone, address, bytes);
        if (*number) {
            vs_reserved_add(pool, (int64_t)bytes);
        }
    } else if (rc == -ENOMEM) {
        pool->full_at = pool->reserved;
    }
    pool_unlock(pool);
    if (rc == 0 && !*number) {
        pool->ops.give(pool->world, address, bytes);
        return -ENOMEM;
    }
    return rc;
}

static uint64_t segment_bytes(struct vs_pool *pool, unsigned zone, uint32_t units, uint64_t limit)
{
    uint64_t bytes = page_up((uint64_t)units << UNIT_BITS);
    pool_lock(pool);
    if (zone == ZONE_MIDDLE) {
        uint64_t *next = &pool->zones[zone].next_take;
        *next = *next ? *next : VS_POOL_PAGE;
        if (*next > bytes && pool->reserved + *next <= limit) {
            bytes = *next;
        }
        *next = *next < SEGMENT_MAX ? *next * 2 : SEGMENT_MAX;
    }
    pool_unlock(pool);
    return bytes;
}

/* Makes room under the limit by giving back what is free. 0: go on; -EAGAIN: wait first. */
static int make_room(struct vs_pool *pool, uint64_t bytes, uint64_t limit)
{
    uint64_t unseen = 0, over = 0;
    pool_lock(pool);
    if (pool->reserved + bytes > limit) {
        over = pool->reserved + bytes - limit;
    }
    /* POOL_SIZE stays: what goes may be replaced, not more. */
    uint64_t keep = pool->config.keep_bytes;
    if (keep > 0) {
        uint64_t spare = pool->reserved + bytes > keep ? pool->reserved + bytes - keep : 0;
        over = over < spare ? over : spare;
    }
    uint32_t list = over ? pick(pool, over, keep == 0, &unseen) : 0;
    uint64_t waiting = unseen + pool->pending + vs_streams_free_bytes(pool);
    pool_unlock(pool);
    uint64_t given = give_list(pool, list);
    return over > given && waiting * 2 >= over - given ? -EAGAIN : 0;
}

static uint64_t above_keep(struct vs_pool *pool)
{
    pool_lock(pool);
    uint64_t keep = pool->config.keep_bytes;
    uint64_t above = keep == 0 ? UINT64_MAX : pool->reserved > keep ? pool->reserved - keep : 0;
    pool_unlock(pool);
    return above;
}

int vs_native_grow(struct vs_pool *pool, const struct vs_want *want, uint64_t limit,
                   uint32_t *number)
{
    unsigned zone = want->zone;
    uint32_t units = want->units;
    uint64_t bytes = segment_bytes(pool, zone, units, limit);
    int rc = limit == UINT64_MAX ? 0 : make_room(pool, bytes, limit);
    if (rc) {
        return rc;
    }
    rc = take(pool, zone, bytes, number);
    if (rc == -ENOMEM) {
        bytes = page_up((uint64_t)units << UNIT_BITS);
        vs_native_give(pool, above_keep(pool));
        rc = take(pool, zone, bytes, number);
    }
    if (rc == -ENOMEM && pool->config.keep_bytes > 0) {
        /* Better this request than what POOL_SIZE keeps; if even that does not help, it comes back.
         */
        vs_native_give(pool, UINT64_MAX);
        rc = take(pool, zone, bytes, number);
        if (rc == -ENOMEM) {
            vs_pool_reserve(pool, pool->config.keep_bytes);
        }
    }
    if (rc == -ENOMEM) {
        pool_lock(pool);
        rc = pool->pending > 0 || vs_streams_free_bytes(pool) > 0 ||
                     vs_epochs_seen(&pool->epochs) < atomic_load(&pool->epochs.closed)
                 ? -EAGAIN
                 : -ENOMEM;
        pool_unlock(pool);
    }
    if (rc) {
        return rc;
    }
    pool_lock(pool);
    /* Large ones are not cut. */
    rc = vs_block_serve(pool, *number, zone == ZONE_LARGE ? UINT32_MAX : units, want->state);
    pool_unlock(pool);
    return rc;
}

int vs_native_add(struct vs_pool *pool, uint64_t bytes)
{
    /* One segment for large blocks would serve one large block: pieces that the other zones cut up.
     */
    uint64_t piece = SEGMENT_MAX;
    while (bytes > 0) {
        uint32_t number;
        piece = piece < bytes ? piece : page_up(bytes);
        int rc = take(pool, ZONE_MIDDLE, piece, &number);
        if (rc) {
            return rc;
        }
        pool_lock(pool);
        vs_block_release(pool, number, BLOCK_FREE);
        pool_unlock(pool);
        bytes -= piece < bytes ? piece : bytes;
    }
    return 0;
}

void vs_native_end(struct vs_pool *pool, bool device_gone)
{
    /* A segment is known by its first block. */
    for (uint32_t number = 1; number <= pool->blocks.used; number++) {
        struct vs_block *block = block_at(pool, number);
        if (block->state == BLOCK_UNUSED || block->prev) {
            continue;
        }
        uint64_t bytes = 0;
        for (uint32_t at = number; at; at = block_at(pool, at)->next) {
            bytes += block_bytes(block_at(pool, at));
        }
        if (!device_gone) {
            pool->ops.give(pool->world, block->address, bytes);
        }
    }
    vs_reserved_add(pool, -(int64_t)pool->reserved);
}
