/*
 * Blocks: cutting, joining, and the way from LIVE over PENDING to FREE (see internal.h). All with
 * the pool's lock held.
 */
#include "pool/streams.h"

static struct vs_tree *tree_of(struct vs_pool *pool, const struct vs_block *block)
{
    return block->state == BLOCK_HOLE ? &pool->zones[block->zone].holes
                                      : free_tree(pool, block->zone, block->stream);
}

uint32_t vs_block_new(struct vs_pool *pool, uint32_t after, uint64_t address, uint64_t bytes,
                      unsigned zone, enum vs_block_state state)
{
    uint32_t number = vs_table_take(&pool->blocks, &pool->ops, pool->world);
    if (!number) {
        return 0;
    }
    struct vs_block *block = block_at(pool, number);
    block->address = address;
    block->units = (uint32_t)(bytes >> UNIT_BITS);
    block->zone = (uint8_t)zone;
    block->state = (uint8_t)state;
    if (after) {
        struct vs_block *before = block_at(pool, after);
        block->prev = after;
        block->next = before->next;
        before->next = number;
        if (block->next) {
            block_at(pool, block->next)->prev = number;
        }
    }
    return number;
}

uint32_t vs_block_cut(struct vs_pool *pool, uint32_t number, uint64_t bytes)
{
    struct vs_block *block = block_at(pool, number);
    uint32_t rest = vs_block_new(pool, number, block->address + bytes, block_bytes(block) - bytes,
                                 block->zone, block->state);
    if (rest) {
        block_at(pool, rest)->big = block->big;
        block_at(pool, rest)->stream = block->stream;
        block_at(pool, rest)->epoch = block->epoch;
        block->units = (uint32_t)(bytes >> UNIT_BITS);
    }
    return rest;
}

void vs_block_join(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    uint32_t gone = block->next;
    struct vs_block *other = block_at(pool, gone);
    block->units += other->units;
    block->big |= other->big;
    if (other->stream) { /* the later stamp counts; what is anybody's has none */
        bool later = !block->stream || other->epoch > block->epoch;
        block->epoch = later ? other->epoch : block->epoch;
        block->stream = other->stream;
    }
    block->next = other->next;
    if (block->next) {
        block_at(pool, block->next)->prev = number;
    }
    other->state = BLOCK_UNUSED;
    vs_table_give(&pool->blocks, gone);
}

uint32_t vs_block_key(const struct vs_pool *pool, const struct vs_block *hole)
{
    uint64_t units = hole->units;
    if (hole->state != BLOCK_HOLE) {
        return hole->units;
    }
    if (hole->prev && block_at(pool, hole->prev)->state == BLOCK_FREE) {
        units += block_at(pool, hole->prev)->units;
    }
    if (hole->next && block_at(pool, hole->next)->state == BLOCK_FREE) {
        units += block_at(pool, hole->next)->units;
    }
    return units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
}

static void sort_anew(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *hole = block_at(pool, number);
    struct vs_tree *tree = &pool->zones[hole->zone].holes;
    vs_tree_remove(pool, tree, number);
    hole->key = vs_block_key(pool, hole);
    hole->stale = 0;
    vs_tree_insert(pool, tree, number);
}

/* A FREE block beside it has come or gone: it will be sorted anew when somebody looks for a HOLE,
 * which is rare. */
static void follow(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *hole = block_at(pool, number);
    if (hole->state != BLOCK_HOLE || hole->stale) {
        return;
    }
    struct vs_zone *zone = &pool->zones[hole->zone];
    if (zone->stale_count == STALE_HOLES) {
        sort_anew(pool, number);
        return;
    }
    hole->stale = 1;
    zone->stale[zone->stale_count++] = number;
}

static void follow_both(struct vs_pool *pool, const struct vs_block *block)
{
    if (block->prev) {
        follow(pool, block->prev);
    }
    if (block->next) {
        follow(pool, block->next);
    }
}

void vs_holes_sort(struct vs_pool *pool, struct vs_zone *zone)
{
    while (zone->stale_count > 0) {
        uint32_t number = zone->stale[--zone->stale_count];
        if (block_at(pool, number)->state == BLOCK_HOLE && block_at(pool, number)->stale) {
            sort_anew(pool, number);
        }
    }
}

/* Into its tree. Which pages are free is the caller's to say (views.c). */
static void insert(struct vs_pool *pool, uint32_t number, enum vs_block_state state)
{
    struct vs_block *block = block_at(pool, number);
    block->state = (uint8_t)state;
    block->key = vs_block_key(pool, block);
    block->stale = 0;
    vs_tree_insert(pool, tree_of(pool, block), number);
    if (state == BLOCK_FREE) {
        if (block->stream) {
            vs_stream_listed(pool, number);
        }
        follow_both(pool, block);
    }
}

static void take_out(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    bool was_free = block->state == BLOCK_FREE;
    vs_tree_remove(pool, tree_of(pool, block), number);
    block->state = BLOCK_BUSY;
    if (was_free) {
        if (block->stream) {
            vs_stream_unlisted(pool, number);
        }
        follow_both(pool, block);
    }
}

void vs_block_list(struct vs_pool *pool, uint32_t number, enum vs_block_state state)
{
    const struct vs_block *block = block_at(pool, number);
    insert(pool, number, state);
    if (state == BLOCK_FREE) {
        vs_views_mark(pool, block, block->address, block_end(block), true);
        vs_views_begin(pool, number);
    }
}

void vs_block_unlist(struct vs_pool *pool, uint32_t number)
{
    const struct vs_block *block = block_at(pool, number);
    if (block->state == BLOCK_FREE) {
        vs_views_mark(pool, block, block->address, block_end(block), false);
    }
    take_out(pool, number);
}

uint32_t vs_block_cut_out(struct vs_pool *pool, uint32_t number, uint64_t start, uint64_t end)
{
    struct vs_block *block = block_at(pool, number);
    bool before = block->address<start, behind = block_end(block)> end;
    uint32_t middle = number, rest = 0;

    vs_views_mark(pool, block, start, end, false);
    take_out(pool, number);
    if (behind && !(rest = vs_block_cut(pool, number, end - block->address))) {
        middle = 0;
    } else if (before && !(middle = vs_block_cut(pool, number, start - block->address)) && rest) {
        vs_block_join(pool, number);
    }
    if (!middle) {
        vs_block_list(pool, number, BLOCK_FREE);
        return 0;
    }
    if (before) {
        insert(pool, number, BLOCK_FREE);
    }
    if (behind) {
        insert(pool, rest, BLOCK_FREE);
        vs_views_begin(pool, rest);
    }
    return middle;
}

bool vs_block_joins(const struct vs_pool *pool, const struct vs_block *block)
{
    const struct vs_block *next = block->next ? block_at(pool, block->next) : NULL;
    return next && next->state == block->state &&
           (next->stream == block->stream || !next->stream || !block->stream) &&
           !(block->zone == ZONE_SMALL && block->state == BLOCK_FREE &&
             (next->address & (VS_POOL_PAGE - 1)) == 0);
}

uint32_t vs_block_release(struct vs_pool *pool, uint32_t number, enum vs_block_state state)
{
    struct vs_block *block = block_at(pool, number);
    uint64_t start = block->address, end = block_end(block);
    block->state = (uint8_t)state;
    if (state != BLOCK_FREE || vs_stream_passed(pool, block->stream, block->epoch)) {
        block->stream = 0;
    }
    if (vs_block_joins(pool, block)) {
        take_out(pool, block->next);
        vs_block_join(pool, number);
    }
    if (block->prev && vs_block_joins(pool, block_at(pool, block->prev))) {
        number = block->prev;
        take_out(pool, number);
        vs_block_join(pool, number);
    }
    insert(pool, number, state);
    if (state == BLOCK_FREE) {
        block = block_at(pool, number);
        if (!vs_views_of(block)) { /* what it took in may have been */
            start = block->address;
            end = block_end(block);
        }
        vs_views_mark(pool, block, start, end, true);
        vs_views_begin(pool, number);
    }
    return number;
}

static void served(struct vs_pool *pool, struct vs_block *block)
{
    if (block->state != BLOCK_RUN) { /* a run may be given back before anybody has used it */
        block->stream = 0;
    }
    block->turn = 0;
    vs_pool_live(pool, (int64_t)block_bytes(block));
    pool->allocs++;
}

int vs_block_serve(struct vs_pool *pool, uint32_t number, uint32_t units, enum vs_block_state state)
{
    struct vs_block *block = block_at(pool, number);
    if (block->units > units) {
        uint32_t rest = vs_block_cut(pool, number, (uint64_t)units << UNIT_BITS);
        if (rest) {
            vs_block_release(pool, rest, BLOCK_FREE);
        }
    }
    block->state = (uint8_t)state;
    int rc = vs_page_start_set(pool, number);
    if (rc) {
        vs_block_release(pool, number, BLOCK_FREE);
        return rc;
    }
    served(pool, block);
    return 0;
}

void vs_block_serve_whole(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    block->state = BLOCK_LIVE;
    served(pool, block);
}

void vs_block_defer(struct vs_pool *pool, uint32_t number, uint64_t epoch)
{
    struct vs_block *block = block_at(pool, number);
    struct vs_zone *zone = &pool->zones[block->zone];
    block->state = BLOCK_PENDING;
    block->epoch = epoch;
    pool->pending += block_bytes(block);
    uint32_t after = zone->queue_tail;
    if (after && block_at(pool, after)->epoch > epoch) {
        /* Out of order: a run that was kept empty for a while. Rare, so it looks for its place. */
        after = 0;
        for (uint32_t at = zone->queue_head; block_at(pool, at)->epoch <= epoch;
             at = block_at(pool, at)->left) {
            after = at;
        }
    }
    uint32_t *link = after ? &block_at(pool, after)->left : &zone->queue_head;
    block->left = after == zone->queue_tail ? 0 : *link;
    *link = number;
    if (after == zone->queue_tail) {
        zone->queue_tail = number;
    }
}

uint32_t vs_blocks_drain_for(struct vs_pool *pool, unsigned name, uint32_t units)
{
    vs_streams_look(pool);
    uint64_t available = vs_epochs_available(&pool->epochs);
    uint32_t last = 0;
    for (unsigned i = ZONE_SMALL; i < ZONES && pool->pending > 0; i++) {
        struct vs_zone *zone = &pool->zones[i];
        while (zone->queue_head) {
            uint32_t number = zone->queue_head;
            struct vs_block *block = block_at(pool, number);
            if (block->epoch > available) {
                break;
            }
            zone->queue_head = block->left;
            if (!zone->queue_head) {
                zone->queue_tail = 0;
            }
            pool->pending -= block_bytes(block);
            block->epoch = block->stream ? block->stamp : block->epoch;
            if (block->view) {
                vs_view_idle(pool, number);
            } else if (i == name && block->units == units && !block->stream) {
                if (last) {
                    vs_block_release(pool, last, BLOCK_FREE);
                }
                block->state = BLOCK_BUSY;
                last = number;
            } else {
                vs_block_release(pool, number, BLOCK_FREE);
            }
        }
    }
    return last;
}

void vs_blocks_drain(struct vs_pool *pool)
{
    vs_blocks_drain_for(pool, ZONE_NONE, 0);
}

void vs_pool_live(struct vs_pool *pool, int64_t bytes)
{
    pool->live += (uint64_t)bytes;
    if (pool->live > pool->live_peak) {
        pool->live_peak = pool->live;
    }
    if (pool->reserved - pool->live < pool->free_low) {
        pool->free_low = pool->reserved - pool->live;
    }
}

void vs_reserved_add(struct vs_pool *pool, int64_t bytes)
{
    pool->reserved += (uint64_t)bytes;
    if (pool->reserved > pool->reserved_peak) {
        pool->reserved_peak = pool->reserved;
    }
    pool->ops.reserved(pool->world, bytes);
    if (pool->stream_count > 0 &&
        pool->ops.room(pool->world) < pool->reserved / 8 + VS_STREAMS_ROOM) {
        vs_streams_press(pool);
    }
}
