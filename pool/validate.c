/*
 * Every invariant of internal.h, walked. Each has a number, which is what a failing test prints.
 */
#include "pool/spans.h"
#include "pool/streams.h"

struct sums {
    uint64_t live, pending, mapped;
    uint64_t trees; /* blocks that ought to be in one */
};

static int check_pages(const struct vs_pool *pool, const struct vs_block *block)
{
    bool hole = block->state == BLOCK_HOLE;
    for (uint64_t at = page_down(block->address); at < block_end(block); at += VS_POOL_PAGE) {
        const struct vs_page *page = vs_page_find(pool, at);
        if (pool->config.backing == VS_POOL_NATIVE) {
            if (!page || page->zone != block->zone) {
                return 1;
            }
            continue;
        }
        if (hole && page && page->handle) {
            return 2;
        }
        if (hole) {
            continue;
        }
        if (block->lost) {
            continue;
        }
        if (!page || !page->handle || page->zone != block->zone) {
            return 3;
        }
        const struct vs_handle *handle = handle_at(pool, page->handle);
        if (block->view) {
            if (handle->pages > 1 || handle->address == at || !handle->aliases) {
                return 7;
            }
            continue;
        }
        uint64_t end = handle->address + handle->pages * VS_POOL_PAGE;
        if (at < handle->address || at >= end) {
            return 4;
        }
        if (handle->pages > 1 && (handle->address < block->address || end > block_end(block))) {
            return 5; /* a handle of several pages is shared */
        }
        if (handle->pages > 1 && !block->big) {
            return 6;
        }
    }
    return 0;
}

/* Is a live block known on every page that it touches? */
static bool known_throughout(const struct vs_pool *pool, uint32_t number)
{
    const struct vs_block *block = block_at(pool, number);
    for (uint64_t at = block->address; at < block_end(block); at = page_down(at) + VS_POOL_PAGE) {
        if (vs_block_around(pool, vs_page_find(pool, at), at) != number) {
            return false;
        }
    }
    uint64_t last = block_end(block) - 1;
    return vs_block_around(pool, vs_page_find(pool, last), last) == number;
}

static int check_block(const struct vs_pool *pool, uint32_t number, struct sums *sums)
{
    const struct vs_block *block = block_at(pool, number);
    const struct vs_block *next = block->next ? block_at(pool, block->next) : NULL;
    if (!block->units) {
        return 10;
    }
    if (next && (next->prev != number || next->address != block_end(block))) {
        return 11;
    }
    if ((block->state == BLOCK_FREE || block->state == BLOCK_HOLE) && vs_block_joins(pool, block)) {
        return 12;
    }
    if (block->zone == ZONE_SMALL && block->state != BLOCK_HOLE &&
        page_down(block->address) != page_down(block_end(block) - 1)) {
        return 16;
    }
    switch (block->state) {
    case BLOCK_HOLE:
        sums->trees++;
        if ((block->address | block_bytes(block)) % VS_POOL_PAGE) {
            return 13;
        }
        break;
    case BLOCK_FREE:
        sums->trees++;
        break;
    case BLOCK_PENDING:
        sums->pending += block_bytes(block);
        break;
    case BLOCK_LIVE:
        if (vs_page_find(pool, block->address)->dead) {
            sums->live += block_bytes(block);
            break;
        }
        if (!known_throughout(pool, number)) {
            return 14;
        }
        sums->live += block_bytes(block);
        break;
    case BLOCK_VIEW:
        sums->trees += !block->lost;
        break;
    case BLOCK_LENT:
        break;
    case BLOCK_RUN:
        sums->live += block_bytes(block);
        break;
    case BLOCK_BUSY: /* by nobody: nobody is in the pool */
        if (number != pool->parked || !block->stream || block->view) {
            return 15;
        }
        break;
    default:
        return 15; /* UNUSED, but linked */
    }
    if (block->state != BLOCK_HOLE && !block->view) {
        sums->mapped += block_bytes(block);
    }
    return check_pages(pool, block);
}

static int check_tree(const struct vs_pool *pool, const struct vs_tree *tree,
                      enum vs_block_state state, uint64_t *count)
{
    uint32_t key = 0;
    uint64_t address = 0, bytes = 0;
    for (;;) {
        uint32_t number = vs_tree_from(pool, tree, key, address);
        if (!number) {
            break;
        }
        const struct vs_block *block = block_at(pool, number);
        if (block->state != state) {
            return 20;
        }
        if (block->key < key || (block->key == key && block->address < address)) {
            return 21;
        }
        key = block->key;
        address = block->address + 1;
        bytes += block_bytes(block);
        ++*count;
    }
    return bytes == tree->bytes ? 0 : 22;
}

/* A stream's list holds its FREE blocks, all of them. */
static int check_stream(const struct vs_pool *pool, uint32_t number, uint64_t listed)
{
    const struct vs_stream *stream = stream_at(pool, number);
    uint64_t bytes = 0, count = 0;
    uint32_t last = 0;
    for (uint32_t at = stream->oldest; at; last = at, at = block_at(pool, at)->newer, count++) {
        const struct vs_block *block = block_at(pool, at);
        if (block->state != BLOCK_FREE || block->stream != number || block->older != last ||
            block->epoch > atomic_load(&stream->open)) {
            return 60;
        }
        bytes += block_bytes(block);
    }
    return count == listed && last == stream->newest && bytes == stream->free_bytes ? 0 : 61;
}

static int check_queue(const struct vs_pool *pool, const struct vs_zone *zone, uint64_t *pending)
{
    uint32_t last = 0;
    for (uint32_t number = zone->queue_head; number; number = block_at(pool, number)->left) {
        if (block_at(pool, number)->state != BLOCK_PENDING) {
            return 30;
        }
        *pending += block_bytes(block_at(pool, number));
        if (last && block_at(pool, last)->epoch > block_at(pool, number)->epoch) {
            return 32;
        }
        last = number;
    }
    return last == zone->queue_tail ? 0 : 31;
}

static int check_heap(const struct vs_pool *pool, const struct vs_heap *heap, uint64_t *run_bytes)
{
    uint32_t listed = 0;
    for (unsigned c = 0; c < CLASSES; c++) {
        for (uint32_t n = heap->classes[c].open_head; n; n = run_at(pool, n)->next) {
            const struct vs_run *run = run_at(pool, n);
            if (!run->free || run->class_ != c || (run->free & run->crossed) ||
                (run->free & run->waiting[0]) || (run->free & run->waiting[1]) ||
                (run->waiting[0] & run->waiting[1])) {
                return 40;
            }
            listed++;
        }
        for (uint32_t n = heap->classes[c].waiting_head; n; n = run_at(pool, n)->next) {
            const struct vs_run *run = run_at(pool, n);
            if (run->free || !run->waiting[0] || run->class_ != c) {
                return 41;
            }
            listed++;
        }
    }
    *run_bytes += heap->run_bytes;
    return listed <= heap->runs ? 0 : 42;
}

int vs_pool_validate(struct vs_pool *pool)
{
    struct sums sums = {0};
    uint64_t listed = 0, queued = 0, run_bytes = 0, runs = 0;
    int rc = 0;

    for (uint32_t number = 1; number <= pool->blocks.used && rc == 0; number++) {
        const struct vs_block *block = block_at(pool, number);
        if (block->state != BLOCK_UNUSED) {
            rc = check_block(pool, number, &sums);
            runs += block->state == BLOCK_RUN ? block_bytes(block) : 0;
        }
    }
    for (unsigned i = ZONE_SMALL; i < ZONES && rc == 0; i++) {
        rc = check_tree(pool, &pool->zones[i].free, BLOCK_FREE, &listed);
        rc = rc ? rc : check_tree(pool, &pool->zones[i].holes, BLOCK_HOLE, &listed);
        rc = rc ? rc : check_tree(pool, &pool->zones[i].views, BLOCK_VIEW, &listed);
        rc = rc ? rc : check_queue(pool, &pool->zones[i], &queued);
    }
    for (uint32_t number = 1; number <= pool->stream_count && rc == 0; number++) {
        uint64_t own = 0;
        for (unsigned i = ZONE_SMALL; i < ZONES && rc == 0; i++) {
            rc = check_tree(pool, free_tree(pool, i, number), BLOCK_FREE, &own);
        }
        rc = rc ? rc : check_stream(pool, number, own);
        listed += own;
    }
    for (unsigned i = 0; i < HEAPS && rc == 0; i++) {
        rc = vs_spans_check(pool, &pool->heaps[i]);
    }
    for (unsigned i = 0; i < heap_count(pool) && rc == 0; i++) {
        rc = check_heap(pool, heap_at(pool, i), &run_bytes);
    }
    rc = rc ? rc : vs_loops_check(pool);
    if (rc) {
        return rc;
    }
    if (listed != sums.trees) {
        return 50;
    }
    if (queued != sums.pending || pool->pending != sums.pending) {
        return 51;
    }
    if (sums.live != pool->live) {
        return 52;
    }
    if (run_bytes != runs) {
        return 53;
    }
    if (sums.mapped + pool->spare_pages * VS_POOL_PAGE != pool->reserved) {
        return 54;
    }
    return pool->live <= pool->reserved ? 0 : 55;
}
