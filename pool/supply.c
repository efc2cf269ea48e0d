/*
 * Handles (see supply.h): creating, stealing, mapping, giving back.
 *
 * A handle is in one of three places: behind pages (their records name it), in the pool's list of
 * spares, or in the hands of one thread. What a thread can't use in the end goes to the spares.
 */
#include "pool/supply.h"

#include <errno.h>

#include "pool/streams.h"

#define CREATE_AT_ONCE 16

/* New memory, as up to *count handles of so many pages. Sets *count to those that came; where they
 * are fewer for another reason than host memory, the device's answer is returned. */
static int create(struct vs_pool *pool, uint32_t pages, uint32_t *numbers, unsigned *count)
{
    uint64_t bytes = pages * VS_POOL_PAGE, ids[CREATE_AT_ONCE];
    unsigned taken = 0, made = 0;
    int rc = 0;
    pool_lock(pool);
    while (taken < *count &&
           (numbers[taken] = vs_table_take(&pool->handles, &pool->ops, pool->world)) != 0) {
        taken++;
    }
    pool_unlock(pool);
    while (made < taken && rc == 0) {
        rc = pool->ops.create(pool->world, bytes, &ids[made]);
        made += rc == 0;
    }
    pool_lock(pool);
    for (unsigned i = 0; i < made; i++) {
        *handle_at(pool, numbers[i]) = (struct vs_handle){.pages = pages, .id = ids[i]};
    }
    while (taken > made) {
        vs_table_give(&pool->handles, numbers[--taken]);
    }
    if (made > 0) {
        vs_reserved_add(pool, (int64_t)(made * bytes));
    }
    if (rc == -ENOMEM && pages == 1) {
        pool->full_at = pool->reserved;
    }
    pool_unlock(pool);
    *count = made;
    return rc;
}

int vs_supply_create(struct vs_pool *pool, uint32_t pages, uint32_t *number)
{
    unsigned count = 1;
    int rc = create(pool, pages, number, &count);
    return rc == 0 && count == 0 ? -ENOMEM : rc;
}

void vs_supply_release(struct vs_pool *pool, uint32_t number)
{
    struct vs_handle handle = *handle_at(pool, number);
    uint64_t bytes = handle.pages * VS_POOL_PAGE;
    pool->ops.release(pool->world, handle.id, bytes);
    atomic_fetch_add_explicit(&pool->released, bytes, memory_order_relaxed);
    pool_lock(pool);
    vs_reserved_add(pool, -(int64_t)bytes);
    vs_table_give(&pool->handles, number);
    pool_unlock(pool);
}

int vs_supply_map(struct vs_pool *pool, uint32_t number, uint64_t address, unsigned zone)
{
    struct vs_handle *handle = handle_at(pool, number);
    uint64_t bytes = handle->pages * VS_POOL_PAGE;
    int rc = pool->ops.map(pool->world, address, bytes, handle->id);
    if (rc) {
        return rc;
    }
    handle->address = address;
    for (uint64_t at = address; at < address + bytes; at += VS_POOL_PAGE) {
        struct vs_page *page = vs_page_find(pool, at);
        page->handle = number;
        __atomic_store_n(&page->zone, (uint8_t)zone, __ATOMIC_RELEASE);
    }
    return 0;
}

static void keep(struct vs_stock *stock, struct vs_pool *pool, uint32_t number)
{
    handle_at(pool, number)->next = stock->list;
    stock->list = number;
    stock->pages++;
}

/* The lock is held. */
static void take_spares(struct vs_pool *pool, struct vs_stock *stock, uint64_t pages)
{
    while (pool->spares && stock->pages < pages) {
        uint32_t number = pool->spares;
        pool->spares = handle_at(pool, number)->next;
        pool->spare_pages--;
        keep(stock, pool, number);
    }
}

void vs_supply_put_back(struct vs_pool *pool, struct vs_stock *stock)
{
    pool_lock(pool);
    while (stock->list) {
        struct vs_handle *handle = handle_at(pool, stock->list);
        uint32_t next = handle->next;
        handle->next = pool->spares;
        pool->spares = stock->list;
        pool->spare_pages++;
        stock->list = next;
    }
    pool_unlock(pool);
    stock->pages = 0;
}

/* The pages at the end of [from, to) that may go, at most `most` of them: single ones that have
 * been seen free, or one handle of several (over: even of more than that). Sets *start and *end, or
 * *start = *end; counts those that have not been seen. The lock is held. */
static void pick(const struct vs_pool *pool, uint64_t from, uint64_t to, uint64_t most, bool over,
                 uint64_t *start, uint64_t *end, uint64_t *unseen)
{
    uint64_t seen = vs_epochs_seen(&pool->epochs);
    while (to > from) {
        const struct vs_page *page = vs_page_find(pool, to - VS_POOL_PAGE);
        const struct vs_handle *handle = handle_at(pool, page->handle);
        uint64_t first = handle->pages > 1 ? handle->address : to - VS_POOL_PAGE;
        bool fits = (over || handle->pages <= most) && handle->aliases == 0;
        if (fits && vs_pages_seen(pool, first, to - first)) {
            *start = first;
            *end = to;
            if (handle->pages > 1) {
                return;
            }
            break;
        }
        *unseen += fits ? (to - first) >> PAGE_BITS : 0;
        to = first;
    }
    if (to <= from) {
        *start = *end = from;
        return;
    }
    while (*start > from && (*end - *start) >> PAGE_BITS < most) {
        const struct vs_page *page = vs_page_find(pool, *start - VS_POOL_PAGE);
        const struct vs_handle *handle = handle_at(pool, page->handle);
        if (*vs_page_last(pool, *start - VS_POOL_PAGE) > seen || handle->pages > 1 ||
            handle->aliases > 0) {
            break;
        }
        *start -= VS_POOL_PAGE;
    }
}

/* Takes `want` pages of free memory out of the FREE blocks, smallest first: BUSY blocks linked
 * through left. over: a few more where a handle of several pages is the only way. The lock is
 * held. */
static uint32_t steal(struct vs_pool *pool, uint64_t want, bool over, uint64_t *unseen)
{
    uint32_t list = 0;
    uint64_t got = 0;
    *unseen = 0;
    for (unsigned z = ZONE_SMALL; z < ZONES && got < want; z++) {
        struct vs_tree *tree = &pool->zones[z].free;
        uint32_t number = vs_tree_from(pool, tree, PAGE_UNITS, 0), next = number;
        uint32_t units = 0;
        uint64_t address = 0;
        while (number && got < want) {
            struct vs_block *block = block_at(pool, number);
            if (number == next) { /* a new one: where it stood in the order */
                units = block->units;
                address = block->address;
                next = 0;
            }
            uint64_t start, end, from = page_up(address), to = page_down(block_end(block));
            if (from < to) {
                pick(pool, from, to, want - got, over, &start, &end, unseen);
                uint32_t busy = start < end ? vs_block_cut_out(pool, number, start, end) : 0;
                if (busy) {
                    block_at(pool, busy)->left = list;
                    list = busy;
                    got += (end - start) >> PAGE_BITS;
                    if (start > from && number != busy) {
                        continue; /* the part before it, which keeps its number */
                    }
                }
            }
            number = next = vs_tree_from(pool, tree, units, address + 1);
        }
    }
    return list;
}

/* Unmaps what was stolen. Single pages go to the stock, larger handles back to the device. Sets
 * *got to the pages that left the blocks. No lock is held. */
static int unmap_stolen(struct vs_pool *pool, uint32_t list, struct vs_stock *stock, uint64_t *got)
{
    int rc = 0;
    *got = 0;
    while (list) {
        struct vs_block *block = block_at(pool, list);
        uint32_t next = block->left, larger = 0;
        uint64_t address = block->address, end = block_end(block);
        int failed = pool->ops.unmap(pool->world, address, end - address);
        pool_lock(pool);
        for (uint64_t at = address; at < end && !failed; at += VS_POOL_PAGE) {
            struct vs_page *page = vs_page_find(pool, at);
            if (handle_at(pool, page->handle)->pages > 1) {
                larger = page->handle;
            } else {
                keep(stock, pool, page->handle);
            }
            page->handle = 0;
            ++*got;
        }
        block->big = failed ? block->big : 0;
        vs_block_release(pool, list, failed ? BLOCK_FREE : BLOCK_HOLE);
        pool_unlock(pool);
        if (larger) {
            vs_supply_release(pool, larger);
        }
        rc = failed ? failed : rc;
        list = next;
    }
    return rc;
}

/* How large the next handle for a stretch of missing pages may be (1, or a power of two for a block
 * that is large enough and covers the stretch). */
static uint32_t handle_pages(uint32_t units, uint64_t stretch)
{
    uint64_t most = (uint64_t)units << UNIT_BITS >> 3;
    uint32_t pages = 512;
    while (pages > 1 && (pages * VS_POOL_PAGE > most || pages * VS_POOL_PAGE > stretch)) {
        pages /= 2;
    }
    return pages;
}

struct filling {
    uint64_t start, end; /* of the window */
    uint64_t whole_end;  /* up to here a page belongs to the block alone */
    uint64_t limit;
    uint32_t busy, units;
    uint64_t at;      /* first page that may be missing */
    uint64_t missing; /* pages */
    uint64_t created; /* pages, for this request */
    bool full;        /* the device has no more */
};

static void count_missing(const struct vs_pool *pool, struct filling *fill)
{
    fill->missing = 0;
    for (uint64_t at = fill->end; at > fill->start; at -= VS_POOL_PAGE) {
        if (vs_page_find(pool, at - VS_POOL_PAGE)->handle == 0) {
            fill->missing++;
            fill->at = at - VS_POOL_PAGE;
        }
    }
}

/* Makes a stretch accessible that was just mapped. Where that fails it is unmapped again, or it
 * would pass for usable memory. */
int vs_supply_open(struct vs_pool *pool, uint64_t address, uint64_t bytes, struct vs_stock *stock)
{
    uint32_t larger = 0;
    int rc = pool->ops.access(pool->world, address, bytes);
    if (rc == 0) {
        return 0;
    }
    int stuck = pool->ops.unmap(pool->world, address, bytes);
    pool_lock(pool);
    for (uint64_t at = address; at < address + bytes; at += VS_POOL_PAGE) {
        struct vs_page *page = vs_page_find(pool, at);
        if (handle_at(pool, page->handle)->pages > 1) {
            larger = page->handle;
        } else if (!stuck) {
            keep(stock, pool, page->handle);
        }
        page->dead = stuck != 0;
        page->handle = stuck ? page->handle : 0;
    }
    pool_unlock(pool);
    if (larger && !stuck) {
        vs_supply_release(pool, larger);
    }
    return rc;
}

/* Puts larger handles under the parts of the window that the block has to itself. */
static int fill_large(struct vs_pool *pool, struct filling *fill, unsigned zone,
                      struct vs_stock *stock)
{
    uint64_t at = page_up(fill->start);
    pool_lock(pool);
    bool large = (uint64_t)fill->units << UNIT_BITS >= UINT64_C(1) << pool->big_floor_bits;
    pool_unlock(pool);
    while (large && at < fill->whole_end) {
        uint64_t stretch = 0;
        while (at + stretch < fill->whole_end && vs_page_find(pool, at + stretch)->handle == 0) {
            stretch += VS_POOL_PAGE;
        }
        uint32_t pages = handle_pages(fill->units, stretch), number;
        pool_lock(pool);
        bool room = pool->reserved + pages * VS_POOL_PAGE <= fill->limit;
        block_at(pool, fill->busy)->big |= pages > 1 && room;
        pool_unlock(pool);
        if (pages == 1 || !room) {
            at += stretch ? stretch : VS_POOL_PAGE;
            continue;
        }
        int rc = vs_supply_create(pool, pages, &number);
        if (rc == -ENOMEM) {
            return 0; /* smaller ones may do */
        }
        fill->created += rc == 0 ? pages : 0;
        if (rc == 0 && (rc = vs_supply_map(pool, number, at, zone)) != 0) {
            vs_supply_release(pool, number);
        }
        rc = rc ? rc : vs_supply_open(pool, at, pages * VS_POOL_PAGE, stock);
        if (rc) {
            return rc;
        }
        fill->missing -= pages;
        at += pages * VS_POOL_PAGE;
    }
    return 0;
}

/* New pages for the stock, as far as the device has some. */
static int create_for(struct vs_pool *pool, struct filling *fill, uint64_t pages,
                      struct vs_stock *stock)
{
    while (pages > 0 && !fill->full) {
        uint32_t numbers[CREATE_AT_ONCE];
        unsigned count = pages < CREATE_AT_ONCE ? (unsigned)pages : CREATE_AT_ONCE;
        int rc = create(pool, 1, numbers, &count);
        for (unsigned i = 0; i < count; i++) {
            keep(stock, pool, numbers[i]);
        }
        fill->created += count;
        pages -= count;
        if (rc != 0 && rc != -ENOMEM) {
            return rc;
        }
        fill->full = rc == -ENOMEM || count == 0;
    }
    return 0;
}

/* Gets handles for all that is missing into the stock. */
static int collect(struct vs_pool *pool, struct filling *fill, struct vs_stock *stock)
{
    uint64_t unseen = 0, got;

    while (stock->pages < fill->missing) {
        pool_lock(pool);
        take_spares(pool, stock, fill->missing);
        uint64_t lacking = fill->missing - stock->pages;
        uint64_t room =
            pool->reserved < fill->limit ? (fill->limit - pool->reserved) >> PAGE_BITS : 0;
        room = fill->full ? 0 : room;
        uint32_t stolen = lacking > room ? steal(pool, lacking - room, true, &unseen) : 0;
        uint64_t pending = (pool->pending + vs_streams_free_bytes(pool)) >> PAGE_BITS;
        pool_unlock(pool);
        if (lacking == 0) {
            break;
        }
        if (stolen) {
            int rc = unmap_stolen(pool, stolen, stock, &got);
            atomic_fetch_add_explicit(&pool->remapped, got * VS_POOL_PAGE, memory_order_relaxed);
            if (rc) {
                return rc;
            }
            continue;
        }
        if ((fill->full || room == 0) && vs_views_drop(pool, fill->full ? UINT32_MAX : 1) > 0) {
            continue; /* its pages may move now */
        }
        if (fill->full) {
            return unseen > 0 || pending > 0 ? -EAGAIN : -ENOMEM;
        }
        if (room == 0 && (unseen + pending) * 2 >= lacking) {
            return -EAGAIN;
        }
        /* Where nothing can be moved the limit gives way. */
        int rc = create_for(pool, fill, room > 0 && room < lacking ? room : lacking, stock);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

int vs_supply_window(struct vs_pool *pool, uint32_t busy, unsigned zone, uint32_t units,
                     uint64_t limit, uint64_t *surplus)
{
    const struct vs_block *block = block_at(pool, busy);
    struct vs_stock stock = {0, 0};
    uint64_t live_end = block->address + ((uint64_t)units << UNIT_BITS);
    struct filling fill = {.start = page_down(block->address),
                           .end = page_up(block_end(block)),
                           .whole_end = page_down(live_end),
                           .limit = limit,
                           .busy = busy,
                           .units = units};

    count_missing(pool, &fill);
    int rc = fill_large(pool, &fill, zone, &stock);
    rc = rc ? rc : collect(pool, &fill, &stock);
    for (uint64_t at = fill.at; rc == 0 && fill.missing > 0 && at < fill.end;) {
        uint64_t from = at;
        while (rc == 0 && at < fill.end && vs_page_find(pool, at)->handle == 0) {
            uint32_t number = stock.list;
            stock.list = handle_at(pool, number)->next;
            stock.pages--;
            rc = vs_supply_map(pool, number, at, zone);
            if (rc) {
                keep(&stock, pool, number);
            } else {
                at += VS_POOL_PAGE;
            }
        }
        if (at > from) {
            int set = vs_supply_open(pool, from, at - from, &stock);
            rc = rc ? rc : set;
        } else {
            at += VS_POOL_PAGE;
        }
    }
    if (rc == -ENOMEM) {
        *surplus = fill.created * VS_POOL_PAGE; /* taken for nothing */
    }
    vs_supply_put_back(pool, &stock);
    return rc;
}

uint64_t vs_vmm_give(struct vs_pool *pool, uint64_t bytes)
{
    struct vs_stock stock = {0, 0};
    uint64_t pages = bytes >> PAGE_BITS, given = 0, unseen, got;

    atomic_fetch_add(&pool->transits, 1);
    pool_lock(pool);
    take_spares(pool, &stock, pages);
    pool_unlock(pool);
    given = stock.pages;
    do {
        pool_lock(pool);
        uint32_t stolen = pages > given ? steal(pool, pages - given, false, &unseen) : 0;
        pool_unlock(pool);
        unmap_stolen(pool, stolen, &stock, &got);
        given += got;
    } while (given < pages && (got > 0 || vs_views_drop(pool, UINT32_MAX) > 0));
    while (stock.list) {
        uint32_t number = stock.list;
        stock.list = handle_at(pool, number)->next;
        vs_supply_release(pool, number);
    }
    atomic_fetch_sub(&pool->transits, 1);
    return given * VS_POOL_PAGE;
}

void vs_supply_end(struct vs_pool *pool)
{
    while (pool->spares) {
        uint32_t number = pool->spares;
        pool->spares = handle_at(pool, number)->next;
        vs_supply_release(pool, number);
    }
}
