/*
 * Views: a large block without moving memory.
 *
 * A large request that fits nowhere in one piece, while free pages would do, gets a range of
 * addresses of its own whose pages are second mappings of free pages elsewhere. Nothing is unmapped
 * and nobody waits: the range is fresh, and whatever still runs on those pages is ordered before
 * the new work, as with any other reuse. While the view is LIVE its pages' own blocks are LENT.
 * Afterwards it stays mapped (VIEW), so that a loop finds it again when the same pages are free at
 * the same point, and settles without mapping anything.
 *
 * A view is a block of the large zone, made of a HOLE; its pages' handles have their addresses
 * elsewhere. Its stretches name them. Only handles of one page take part. Views that have not been
 * used for long are unmapped where pages have to move or go, or when there are too many: once the
 * host has seen their last use.
 */
#include <errno.h>

#include "pool/streams.h"
#include "pool/supply.h"

#define CANDIDATES 8
#define VIEWS_MAX 256
#define SLACK_SHIFT 5 /* a view may be larger than asked by a 32nd */

struct stretch {
    uint32_t spare; /* the table's link */
    uint32_t next;
    uint32_t pages;
    uint32_t lent; /* the block, while lent */
    uint64_t address;
};

static struct stretch *stretch_at(const struct vs_pool *pool, uint32_t number)
{
    return vs_table_at(&pool->stretches, number, sizeof(struct stretch));
}

int vs_views_init(struct vs_pool *pool)
{
    return vs_table_init(&pool->stretches, sizeof(struct stretch), &pool->ops, pool->world);
}

/* The stream whose free memory views are made of, besides what is anybody's: the first one, which
 * is the only one in most programs. Its FREE blocks and anybody's are never neighbours. */
#define VIEWED_STREAM 1u

bool vs_views_may(struct vs_pool *pool, uint32_t stream)
{
    return pool->stream_count == 0 || stream == VIEWED_STREAM ||
           free_tree(pool, ZONE_LARGE, VIEWED_STREAM)->bytes == 0;
}

bool vs_views_of(const struct vs_block *block)
{
    return block->stream <= VIEWED_STREAM;
}

/* Which pages of the large zone lie in FREE blocks (of those) entirely: a bit each. */
static bool all_free(const struct vs_pool *pool, uint64_t address, uint32_t pages)
{
    const struct vs_zone *zone = &pool->zones[ZONE_LARGE];
    uint64_t bit = (address - zone->base) >> PAGE_BITS, end = bit + pages;
    while (bit < end) {
        uint64_t mask = ~UINT64_C(0) << bit % 64;
        if (end / 64 == bit / 64) {
            mask &= (UINT64_C(1) << end % 64) - 1;
        }
        if (~zone->whole[bit / 64] & mask) {
            return false;
        }
        bit = (bit / 64 + 1) * 64;
    }
    return true;
}

/* The FREE block that a page lies in entirely, as its bit says. */
static uint32_t free_block_of(const struct vs_pool *pool, uint64_t address)
{
    const struct vs_zone *zone = &pool->zones[ZONE_LARGE];
    uint64_t bit = (address - zone->base) >> PAGE_BITS, word = bit / 64;
    uint64_t clear = ~zone->whole[word] & ((UINT64_C(2) << bit % 64) - 1);
    while (!clear && word > 0) {
        clear = ~zone->whole[--word];
    }
    uint64_t first = clear ? word * 64 + 64 - (uint64_t)__builtin_clzll(clear) : 0;
    return vs_page_find(pool, zone->base + (first << PAGE_BITS))->free_block;
}

uint32_t vs_free_block_at(const struct vs_pool *pool, uint64_t address)
{
    const struct vs_page *page = vs_page_find(pool, address);
    if (!page || !page->handle) {
        return 0;
    }
    uint32_t number = page->free_block;
    if (number && block_at(pool, number)->state == BLOCK_FREE &&
        address - block_at(pool, number)->address < block_bytes(block_at(pool, number))) {
        return number;
    }
    return all_free(pool, page_down(address), 1) ? free_block_of(pool, page_down(address)) : 0;
}

void vs_views_mark(struct vs_pool *pool, const struct vs_block *block, uint64_t start, uint64_t end,
                   bool is_free)
{
    struct vs_zone *zone = &pool->zones[ZONE_LARGE];
    if (block->zone != ZONE_LARGE || !zone->whole) {
        return;
    }
    start = page_down(start) > block->address ? page_down(start) : page_up(block->address);
    end = page_up(end) < block_end(block) ? page_up(end) : page_down(block_end(block));
    if (start >= end) {
        return;
    }
    is_free = is_free && vs_views_of(block);
    uint64_t bit = (start - zone->base) >> PAGE_BITS, last = (end - 1 - zone->base) >> PAGE_BITS;
    for (uint64_t word = bit / 64; word <= last / 64; word++) {
        uint64_t mask = word == bit / 64 ? ~UINT64_C(0) << bit % 64 : ~UINT64_C(0);
        mask &= word == last / 64 ? ~UINT64_C(0) >> (63 - last % 64) : ~UINT64_C(0);
        zone->whole[word] = is_free ? zone->whole[word] | mask : zone->whole[word] & ~mask;
    }
}

void vs_views_begin(struct vs_pool *pool, uint32_t number)
{
    const struct vs_block *block = block_at(pool, number);
    if (block->zone != ZONE_LARGE || !pool->zones[ZONE_LARGE].whole) {
        return;
    }
    struct vs_page *page = vs_page_find(pool, block->address);
    page->free_block = number;
    if (page_up(block->address) > block->address && page_up(block->address) < block_end(block)) {
        vs_page_find(pool, page_up(block->address))->free_block = number;
    }
}

/* The pages go back to where they are at home, freed like the view, if that was used. */
static void give_back(struct vs_pool *pool, uint32_t list, const struct vs_block *view)
{
    for (; list; list = stretch_at(pool, list)->next) {
        struct stretch *stretch = stretch_at(pool, list);
        if (stretch->lent) {
            struct vs_block *lent = block_at(pool, stretch->lent);
            lent->state = BLOCK_BUSY;
            lent->stream = view ? view->stream : lent->stream;
            lent->epoch = view ? view->epoch : lent->epoch;
            vs_block_release(pool, stretch->lent, BLOCK_FREE);
            stretch->lent = 0;
        }
    }
}

static bool lend(struct vs_pool *pool, uint32_t number)
{
    struct stretch *stretch = stretch_at(pool, number);
    uint64_t end = stretch->address + stretch->pages * VS_POOL_PAGE;
    uint32_t block =
        vs_block_cut_out(pool, free_block_of(pool, stretch->address), stretch->address, end);
    if (block) {
        block_at(pool, block)->state = BLOCK_LENT;
        stretch->lent = block;
    }
    return block != 0;
}

static bool lend_all(struct vs_pool *pool, uint32_t list)
{
    uint32_t at = list;
    for (; at && all_free(pool, stretch_at(pool, at)->address, stretch_at(pool, at)->pages);) {
        at = stretch_at(pool, at)->next;
    }
    if (at) {
        return false;
    }
    for (at = list; at; at = stretch_at(pool, at)->next) {
        if (!lend(pool, at)) {
            give_back(pool, list, NULL);
            return false;
        }
    }
    return true;
}

static void begin(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    for (uint64_t at = block->address; at < block_end(block); at += VS_POOL_PAGE) {
        struct vs_handle *handle = handle_at(pool, vs_page_find(pool, at)->handle);
        handle->turns[handle->turns_at++ % VIEW_TURNS] = (uint32_t)pool->loops.next;
    }
    block->state = BLOCK_LIVE;
    block->stream = 0;
    block->turn = 0;
    vs_page_start_set(pool, number);
    vs_pool_live(pool, (int64_t)block_bytes(block));
    pool->allocs++;
}

static uint32_t view_pages(uint32_t units)
{
    return (units + PAGE_UNITS - 1) / PAGE_UNITS;
}

bool vs_view_take(struct vs_pool *pool, uint32_t units, uint32_t *number)
{
    struct vs_tree *tree = &pool->zones[ZONE_LARGE].views;
    uint32_t least = view_pages(units) * PAGE_UNITS;
    uint32_t found = vs_tree_from(pool, tree, least, 0);
    for (unsigned i = 0; found && i < CANDIDATES; i++) {
        struct vs_block *block = block_at(pool, found);
        if (block->units - least > least >> SLACK_SHIFT) {
            break;
        }
        if (lend_all(pool, block->run)) {
            vs_tree_remove(pool, tree, found);
            begin(pool, found);
            *number = found;
            return true;
        }
        found = vs_tree_from(pool, tree, block->key, block->address + 1);
    }
    return false;
}

bool vs_view_take_at(struct vs_pool *pool, uint32_t units, uint64_t address, uint32_t *number)
{
    const struct vs_page *page = vs_page_find(pool, address);
    uint32_t found = page && page->handle ? page->starts : 0;
    struct vs_block *block = found ? block_at(pool, found) : NULL;
    if (!block || block->state != BLOCK_VIEW || block->address != address ||
        block->units != view_pages(units) * PAGE_UNITS || !lend_all(pool, block->run)) {
        return false;
    }
    vs_tree_remove(pool, &pool->zones[ZONE_LARGE].views, found);
    begin(pool, found);
    *number = found;
    return true;
}

void vs_view_freed(struct vs_pool *pool, uint32_t number, uint64_t epoch)
{
    for (uint32_t at = block_at(pool, number)->run; at; at = stretch_at(pool, at)->next) {
        struct stretch *stretch = stretch_at(pool, at);
        vs_pages_freed(pool, stretch->address, stretch->pages * VS_POOL_PAGE, epoch);
    }
}

void vs_view_idle(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    give_back(pool, block->run, block);
    block->state = BLOCK_VIEW;
    block->key = block->units;
    vs_tree_insert(pool, &pool->zones[ZONE_LARGE].views, number);
}

static void forget_stretches(struct vs_pool *pool, uint32_t list)
{
    while (list) {
        uint32_t next = stretch_at(pool, list)->next;
        vs_table_give(&pool->stretches, list);
        list = next;
    }
}

static bool lendable(struct vs_pool *pool, uint64_t address, bool polite)
{
    return handle_at(pool, vs_page_find(pool, address)->handle)->pages == 1 &&
           !(polite && vs_loops_wants(pool, address, VS_POOL_PAGE));
}

/* Adds a stretch of the FREE block's pages from `from` on, lent at once. Returns its pages; 0 where
 * there is none (handles of several pages), or no host memory. */
static uint32_t add_stretch(struct vs_pool *pool, uint64_t from, uint64_t to, uint32_t most,
                            bool polite, uint32_t *list)
{
    uint32_t pages = 0;
    while (from < to && !lendable(pool, from, polite)) {
        from += VS_POOL_PAGE;
    }
    while (pages < most && from + pages * VS_POOL_PAGE < to &&
           lendable(pool, from + pages * VS_POOL_PAGE, polite)) {
        pages++;
    }
    uint32_t number = pages ? vs_table_take(&pool->stretches, &pool->ops, pool->world) : 0;
    if (!number) {
        return 0;
    }
    struct stretch *stretch = stretch_at(pool, number);
    *stretch = (struct stretch){.next = *list, .pages = pages, .address = from};
    if (!lend(pool, number)) {
        vs_table_give(&pool->stretches, number);
        return 0;
    }
    *list = number;
    return pages;
}

/* Lends so many free pages, from the largest blocks on: few stretches, and the same ones in each
 * round of a loop. Returns how many were found. */
static uint32_t collect(struct vs_pool *pool, const struct vs_tree *tree, uint32_t pages,
                        bool polite, uint32_t *list)
{
    uint32_t got = 0, skip = 0;
    while (got < pages) {
        uint32_t number = vs_tree_large(pool, tree, skip);
        if (!number) {
            break;
        }
        const struct vs_block *block = block_at(pool, number);
        uint64_t from = page_up(block->address), to = page_down(block_end(block));
        uint32_t more = from < to ? add_stretch(pool, from, to, pages - got, polite, list) : 0;
        got += more;
        skip += more == 0; /* this bin's largest has nothing to lend: the next bin */
    }
    return got;
}

/* Takes mappings back; where that is refused too, the range is lost: nobody gets it any more, and
 * the pages stay where they are. */
static void take_back(struct vs_pool *pool, struct vs_block *block, uint64_t bytes)
{
    block->lost = bytes > 0 && pool->ops.unmap(pool->world, block->address, bytes) != 0;
}

static int map_stretches(struct vs_pool *pool, uint32_t list, struct vs_block *block)
{
    uint64_t at = block->address;
    int rc = 0;
    for (; list && rc == 0; list = stretch_at(pool, list)->next) {
        const struct stretch *stretch = stretch_at(pool, list);
        for (uint32_t i = 0; i < stretch->pages && rc == 0; i++) {
            uint32_t number = vs_page_find(pool, stretch->address + i * VS_POOL_PAGE)->handle;
            struct vs_page *page = vs_page_find(pool, at);
            rc = pool->ops.map(pool->world, at, VS_POOL_PAGE, handle_at(pool, number)->id);
            if (rc == 0) {
                page->handle = number;
                __atomic_store_n(&page->zone, ZONE_LARGE, __ATOMIC_RELEASE);
                at += VS_POOL_PAGE;
            }
        }
    }
    rc = rc ? rc : pool->ops.access(pool->world, block->address, at - block->address);
    if (rc) {
        take_back(pool, block, at - block->address);
    }
    return rc;
}

/* The range is a HOLE again. The lock is held. */
static void dissolve(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    for (uint64_t at = block->address; at < block_end(block); at += VS_POOL_PAGE) {
        struct vs_page *page = vs_page_find(pool, at);
        page->handle = 0;
    }
    forget_stretches(pool, block->run);
    block->run = 0;
    block->view = 0;
    vs_block_release(pool, number, BLOCK_HOLE);
}

static void count_aliases(struct vs_pool *pool, const struct vs_block *block, int by)
{
    for (uint64_t at = block->address; at < block_end(block); at += VS_POOL_PAGE) {
        uint32_t number = vs_page_find(pool, at)->handle;
        if (number) { /* all of them, unless it is lost */
            handle_at(pool, number)->aliases += (uint16_t)by;
        }
    }
    pool->views += (uint32_t)by;
}

unsigned vs_views_drop(struct vs_pool *pool, unsigned most)
{
    struct vs_tree *tree = &pool->zones[ZONE_LARGE].views;
    unsigned dropped = 0;
    while (dropped < most) {
        pool_lock(pool);
        uint64_t seen = vs_epochs_seen(&pool->epochs);
        uint32_t eldest = 0, number = vs_tree_from(pool, tree, 0, 0);
        while (number) {
            struct vs_block *block = block_at(pool, number);
            bool passed = block->stream ? vs_stream_seen(pool, block->stream, block->epoch)
                                        : block->epoch <= seen;
            if (passed && (!eldest || block->epoch < block_at(pool, eldest)->epoch)) {
                eldest = number;
            }
            number = vs_tree_from(pool, tree, block->key, block->address + 1);
        }
        if (eldest) {
            vs_tree_remove(pool, tree, eldest);
            block_at(pool, eldest)->state = BLOCK_BUSY;
        }
        pool_unlock(pool);
        if (!eldest) {
            break;
        }
        struct vs_block *block = block_at(pool, eldest);
        int rc = pool->ops.unmap(pool->world, block->address, block_bytes(block));
        pool_lock(pool);
        if (rc) {
            block->state = BLOCK_VIEW; /* refused: it stays */
            vs_tree_insert(pool, tree, eldest);
            pool_unlock(pool);
            break;
        }
        count_aliases(pool, block, -1);
        dissolve(pool, eldest);
        pool_unlock(pool);
        dropped++;
    }
    return dropped;
}

/* From what is the stream's own, and from what is anybody's. */
static uint32_t collect_for(struct vs_pool *pool, uint32_t stream, uint32_t pages, uint32_t *list)
{
    uint32_t got = 0;
    for (unsigned polite = 2; polite-- > 0;) {
        if (stream == VIEWED_STREAM) {
            got +=
                collect(pool, free_tree(pool, ZONE_LARGE, stream), pages - got, polite != 0, list);
        }
        got += collect(pool, free_tree(pool, ZONE_LARGE, 0), pages - got, polite != 0, list);
    }
    return got;
}

int vs_view_make(struct vs_pool *pool, const struct vs_want *want, uint32_t *number)
{
    uint32_t pages = view_pages(want->units), list = 0;
    pool_lock(pool);
    bool many = pool->views >= VIEWS_MAX;
    pool_unlock(pool);
    if (many) {
        vs_views_drop(pool, VIEWS_MAX / 8);
    }
    pool_lock(pool);
    uint32_t view = pool->views < VIEWS_MAX ? vs_vmm_range(pool, ZONE_LARGE, pages) : 0;
    uint32_t got = view && vs_views_may(pool, want->stream)
                       ? collect_for(pool, want->stream, pages, &list)
                       : 0;
    bool enough = view && got == pages;
    if (view) {
        block_at(pool, view)->run = list;
        block_at(pool, view)->view = 1;
    }
    if (view && !enough) {
        give_back(pool, list, NULL);
        dissolve(pool, view);
    }
    pool_unlock(pool);
    if (!enough) {
        return -EAGAIN;
    }
    atomic_fetch_add(&pool->transits, 1);
    int rc = map_stretches(pool, list, block_at(pool, view));
    pool_lock(pool);
    if (rc == 0) {
        count_aliases(pool, block_at(pool, view), 1);
        pool->views_made++;
        begin(pool, view);
        *number = view;
    } else if (block_at(pool, view)->lost) {
        give_back(pool, list, NULL);
        count_aliases(pool, block_at(pool, view), 1);
        block_at(pool, view)->state = BLOCK_VIEW;
    } else {
        give_back(pool, list, NULL);
        dissolve(pool, view);
    }
    pool_unlock(pool);
    atomic_fetch_sub(&pool->transits, 1);
    atomic_fetch_add_explicit(&pool->remapped, rc == 0 ? pages * VS_POOL_PAGE : 0,
                              memory_order_relaxed);
    return rc;
}
