/*
 * The pool's front: what pool.h says, on top of slab, zones, epochs and backings.
 */
#include <errno.h>
#include <string.h>

#include "pool/spans.h"
#include "pool/streams.h"

#define DECAY_STEPS 8

void vs_pool_config_default(struct vs_pool_config *config, enum vs_pool_backing backing,
                            uint64_t device_bytes)
{
    /* What was measured (docs/design.md): with this much to spare a training loop settles without
     * moving pages, and stays below the bounds that the design gives. */
    *config = (struct vs_pool_config){.backing = backing,
                                      .device_bytes = device_bytes,
                                      .slack_permille = 40,
                                      .slack_bytes = (uint64_t)32 << 20,
                                      .trim_above = UINT64_MAX,
                                      .view_min = (uint64_t)64 << 20};
}

struct vs_pool *vs_pool_new(const struct vs_pool_config *config, const struct vs_pool_ops *ops,
                            void *world, int *error)
{
    struct vs_pool *pool = ops->host_map(world, sizeof *pool);
    if (!pool) {
        *error = -ENOMEM;
        return NULL;
    }
    pool->config = *config;
    pool->ops = *ops;
    pool->world = world;
    pool->full_at = UINT64_MAX;
    pool->big_floor_bits = 27;
    vs_epochs_init(&pool->epochs, config->faults);
    int rc = vs_table_init(&pool->blocks, sizeof(struct vs_block), ops, world);
    rc = rc ? rc : vs_table_init(&pool->handles, sizeof(struct vs_handle), ops, world);
    rc = rc ? rc : vs_table_init(&pool->runs, sizeof(struct vs_run), ops, world);
    rc = rc ? rc : vs_table_init(&pool->spans, sizeof(struct vs_span), ops, world);
    rc = rc ? rc : vs_streams_init(pool);
    rc = rc ? rc : vs_pages_init(pool);
    rc = rc ? rc : vs_views_init(pool);
    rc = rc ? rc : vs_loops_init(pool);
    if (rc == 0 && config->backing == VS_POOL_VMM) {
        rc = vs_vmm_start(pool);
    }
    if (rc) {
        *error = rc;
        vs_pool_free_all(pool, true);
        return NULL;
    }
    return pool;
}

void vs_pool_free_all(struct vs_pool *pool, bool device_gone)
{
    if (!pool) {
        return;
    }
    struct vs_pool_ops ops = pool->ops;
    void *world = pool->world;
    if (pool->blocks.chunks && pool->config.backing == VS_POOL_VMM) {
        vs_vmm_end(pool);
    } else if (pool->blocks.chunks) {
        vs_native_end(pool, device_gone);
    }
    vs_table_fini(&pool->blocks, &ops, world);
    vs_table_fini(&pool->handles, &ops, world);
    vs_table_fini(&pool->runs, &ops, world);
    vs_table_fini(&pool->spans, &ops, world);
    vs_table_fini(&pool->starts, &ops, world);
    vs_table_fini(&pool->stretches, &ops, world);
    vs_streams_fini(pool);
    vs_pages_fini(pool);
    vs_loops_fini(pool);
    ops.host_unmap(world, pool, sizeof *pool);
}

/* The host sees some more fences pass, if need be by waiting. 1: it did; 0: none is left; or an
 * error. */
static int see_more(struct vs_pool *pool)
{
    int rc = vs_epochs_poll(&pool->epochs, &pool->ops, pool->world);
    return rc != 0 ? rc : vs_epochs_wait_some(&pool->epochs, UINT64_MAX, &pool->ops, pool->world);
}

/* While a capture runs only memory that the host has seen free may be handed out: work that is
 * being captured runs later, and not only where the order was made to hold. */
static int wait_until_seen(struct vs_pool *pool)
{
    int rc = 1;
    while (rc > 0 && vs_epochs_seen(&pool->epochs) < vs_epochs_available(&pool->epochs)) {
        rc = see_more(pool);
    }
    return rc < 0 ? rc : 0;
}

/* Small sizes have their own memory, but not to the point of refusing one where another has room.
 */
static int borrow(struct vs_pool *pool, unsigned zone, uint32_t stream, uint64_t *address)
{
    static const uint32_t least[ZONES] = {
        [ZONE_MIDDLE] = (uint32_t)(SMALL_MAX / UNIT) + 1, [ZONE_LARGE] = PAGE_UNITS};
    uint32_t number;
    for (zone++; zone < ZONES; zone++) {
        const struct vs_want want = {
            .zone = zone, .units = least[zone], .state = BLOCK_LIVE, .stream = stream};
        if (vs_zone_try(pool, &want, false, &number) == 0) {
            *address = block_at(pool, number)->address;
            return 0;
        }
    }
    return -ENOMEM;
}

static int serve(struct vs_pool *pool, struct vs_pool_request *request, unsigned zone,
                 uint64_t *address)
{
    if (zone == ZONE_SMALL) {
        return vs_slab_alloc(pool, request, address);
    }
    if (zone == ZONE_MIDDLE && !request->stream && vs_spans_on(pool)) {
        int served = vs_span_alloc(pool, request, address);
        if (served != 0) {
            return served < 0 ? served : 0;
        }
    }
    uint64_t bytes = request->bytes;
    if (pool->config.backing == VS_POOL_NATIVE && zone == ZONE_LARGE) {
        bytes = page_up(bytes);
    }
    const struct vs_want want = {.zone = zone,
                                 .units = (uint32_t)((bytes + UNIT - 1) >> UNIT_BITS),
                                 .state = BLOCK_LIVE,
                                 .stream = request->stream};
    uint32_t number;
    int rc = vs_zone_alloc(pool, &want, request, &number);
    if (rc == 0) {
        *address = block_at(pool, number)->address;
    }
    return rc;
}

int vs_pool_alloc(struct vs_pool *pool, struct vs_pool_request *request, uint64_t *address)
{
    request->verdict = VS_POOL_FITS;
    if (request->bytes == 0) {
        return -EINVAL;
    }
    if (request->bytes > pool->config.device_bytes) {
        request->verdict = VS_POOL_FULL;
        return -ENOMEM;
    }
    if (request->capturing) {
        int rc = wait_until_seen(pool);
        if (rc) {
            return rc;
        }
    }
    unsigned zone = request->bytes <= SMALL_MAX    ? ZONE_SMALL
                    : request->bytes <= MIDDLE_MAX ? ZONE_MIDDLE
                                                   : ZONE_LARGE;
    int rc = serve(pool, request, zone, address);
    return rc == -ENOMEM ? borrow(pool, zone, request->stream, address) : rc;
}

static bool holds(const struct vs_pool *pool, uint32_t number, uint64_t address)
{
    if (!number) {
        return false;
    }
    const struct vs_block *block = block_at(pool, number);
    return block->state == BLOCK_LIVE && address >= block->address && address < block_end(block);
}

/* From a page over those where a block that covers its first byte may be entered (set_large). */
static uint32_t large_around(const struct vs_pool *pool, uint64_t page, uint64_t address)
{
    for (; page && address - (page << PAGE_BITS) <= pool->config.device_bytes; page &= page - 1) {
        const struct vs_page *record = vs_page_find(pool, page << PAGE_BITS);
        if (record && vs_page_zone(record) == ZONE_LARGE && holds(pool, record->starts, address)) {
            return record->starts;
        }
    }
    return 0;
}

uint32_t vs_block_around(const struct vs_pool *pool, const struct vs_page *page, uint64_t address)
{
    if (vs_page_zone(page) == ZONE_LARGE) {
        uint32_t number = large_around(pool, address >> PAGE_BITS, address);
        /* Perhaps its tail, on a page where another starts. */
        return number ? number : large_around(pool, (address >> PAGE_BITS) - 1, address);
    }
    /* Where it starts, or the tail of one that starts in an earlier slot: at most 32 back. */
    for (unsigned i = 0; i <= 32 && page && vs_page_zone(page) == ZONE_MIDDLE; i++) {
        uint64_t at = address - i * ((uint64_t)64 << 10);
        uint32_t number = vs_page_start(pool, page, at);
        if (holds(pool, number, address)) {
            return number;
        }
        page = vs_page_find(pool, at - ((uint64_t)64 << 10));
    }
    return 0;
}

static const struct vs_page *page_of(const struct vs_pool *pool, uint64_t address)
{
    const struct vs_page *page = vs_page_find(pool, address);
    return page && vs_page_zone(page) != ZONE_NONE ? page : NULL;
}

/* Inside our ranges of addresses, mapped now or not. */
static bool in_ranges(const struct vs_pool *pool, uint64_t address)
{
    for (unsigned i = ZONE_SMALL; i < ZONES; i++) {
        const struct vs_zone *zone = &pool->zones[i];
        if (address - zone->base < zone->bytes) {
            return true;
        }
    }
    return false;
}

/* The live block that starts at an address; 0 if there is none. The lock is held. */
static uint32_t starting_at(const struct vs_pool *pool, const struct vs_page *page,
                            uint64_t address)
{
    uint32_t number = vs_page_start(pool, page, address);
    return holds(pool, number, address) && block_at(pool, number)->address == address ? number : 0;
}

/* A piece of a span is freed. As vs_pool_free; 1: it is no piece. */
static int free_piece(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                      uint64_t epoch)
{
    int rc = vs_page_zone(page) == ZONE_MIDDLE ? vs_span_free(pool, page, address, epoch) : 1;
    if (rc == 0) {
        vs_epochs_freed(&pool->epochs, epoch);
    }
    return rc;
}

int vs_pool_free(struct vs_pool *pool, uint64_t address)
{
    const struct vs_page *page = page_of(pool, address);
    uint64_t epoch = vs_epochs_begin_free(&pool->epochs);

    if (!page) {
        return in_ranges(pool, address) ? -EINVAL : -ENOENT;
    }
    if (vs_page_zone(page) == ZONE_SMALL) {
        return vs_slab_free(pool, page, address);
    }
    int rc = free_piece(pool, page, address, epoch);
    if (rc != 1) {
        return rc;
    }
    rc = -EINVAL;
    pool_lock(pool);
    vs_spans_watch(pool);
    uint32_t number = starting_at(pool, page, address);
    if (number) {
        uint64_t bytes = block_bytes(block_at(pool, number));
        vs_pages_freed(pool, address, bytes, epoch);
        vs_loops_freed(pool, block_at(pool, number)->turn);
        if (block_at(pool, number)->view) {
            vs_view_freed(pool, number, epoch);
        }
        vs_pool_live(pool, -(int64_t)bytes);
        vs_block_defer(pool, number, epoch);
        rc = 0;
    }
    pool_unlock(pool);
    if (rc == 0) {
        vs_epochs_freed(&pool->epochs, epoch);
    }
    return rc;
}

void vs_parked_go(struct vs_pool *pool)
{
    uint32_t number = pool->parked;
    pool->parked = 0;
    vs_block_release(pool, number, BLOCK_FREE);
}

/* A block of the middle or large zone, freed on a stream: the stream's at once. The lock is held,
 * and nothing is parked. */
static void free_block_on(struct vs_pool *pool, uint32_t number, uint32_t stream, uint64_t stamp)
{
    struct vs_block *block = block_at(pool, number);
    vs_loops_freed(pool, block->turn);
    vs_pool_live(pool, -(int64_t)block_bytes(block));
    block->stream = (uint8_t)stream;
    block->epoch = stamp;
    if (block->view) {
        vs_view_idle(pool, number);
    } else {
        block->state = BLOCK_BUSY;
        pool->parked = number;
    }
}

int vs_pool_free_on(struct vs_pool *pool, uint64_t address, uint32_t stream)
{
    const struct vs_page *page = page_of(pool, address);
    uint64_t epoch = vs_epochs_begin_free(&pool->epochs), stamp = vs_stream_stamp(pool, stream);

    if (pool->config.faults & VS_POOL_NO_FENCES) {
        return vs_pool_free(pool, address);
    }
    if (!page) {
        return in_ranges(pool, address) ? -EINVAL : -ENOENT;
    }
    if (vs_page_zone(page) == ZONE_SMALL) {
        return vs_slab_free_on(pool, page, address, stream);
    }
    /* A piece of a span leaves it first: its epochs are the context's. */
    int rc = vs_page_zone(page) == ZONE_MIDDLE ? vs_span_leave(pool, page, address) : 1;
    rc = rc != 1 ? rc : free_piece(pool, page, address, epoch);
    if (rc != 1) {
        return rc;
    }
    rc = -EINVAL;
    pool_lock(pool);
    uint32_t number = starting_at(pool, page, address);
    if (number) {
        free_block_on(pool, number, stream, stamp);
        vs_stream_freed(pool, stream, stamp);
        rc = 0;
    }
    pool_unlock(pool);
    return rc;
}

int vs_pool_find(struct vs_pool *pool, uint64_t address, uint64_t *start, uint64_t *bytes)
{
    const struct vs_page *page = page_of(pool, address);
    if (!page) {
        return in_ranges(pool, address) ? -EINVAL : -ENOENT;
    }
    if (vs_page_zone(page) == ZONE_SMALL) {
        return vs_slab_find(pool, page, address, start, bytes);
    }
    int rc =
        vs_page_zone(page) == ZONE_MIDDLE ? vs_span_find(pool, page, address, start, bytes) : 1;
    if (rc <= 0) {
        return rc;
    }
    pool_lock(pool);
    uint32_t number = vs_block_around(pool, page, address);
    if (number) {
        *start = block_at(pool, number)->address;
        *bytes = block_bytes(block_at(pool, number));
    }
    pool_unlock(pool);
    return number ? 0 : -EINVAL;
}

bool vs_pool_open_epoch(const struct vs_pool *pool)
{
    return vs_epochs_unclosed(&pool->epochs);
}

int vs_pool_close_epoch(struct vs_pool *pool)
{
    if (pool->config.faults & VS_POOL_LATE_FENCES) {
        return 0;
    }
    return vs_epochs_close(&pool->epochs, &pool->ops, pool->world);
}

int vs_pool_settle(struct vs_pool *pool)
{
    int rc = vs_epochs_close(&pool->epochs, &pool->ops, pool->world);
    int aside = rc > 0 ? rc : 0; /* a capture keeps what was freed during it */
    for (rc = rc < 0 ? rc : 1; rc > 0;) {
        rc = see_more(pool);
    }
    pool_lock(pool);
    vs_blocks_drain(pool);
    pool_unlock(pool);
    return rc < 0 ? rc : aside;
}

int vs_pool_reserve(struct vs_pool *pool, uint64_t bytes)
{
    pool_lock(pool);
    uint64_t missing = page_up(bytes) > pool->reserved ? page_up(bytes) - pool->reserved : 0;
    pool_unlock(pool);
    return pool->config.backing == VS_POOL_VMM ? vs_vmm_add(pool, missing)
                                               : vs_native_add(pool, missing);
}

/* Bytes that may go so that `keep` stay free, and keep_bytes reserved. The lock is held. */
static uint64_t surplus(const struct vs_pool *pool, uint64_t keep)
{
    uint64_t idle = pool->reserved - pool->live;
    uint64_t more = idle > keep ? idle - keep : 0;
    uint64_t over =
        pool->reserved > pool->config.keep_bytes ? pool->reserved - pool->config.keep_bytes : 0;
    return more < over ? more : over;
}

static uint64_t give(struct vs_pool *pool, uint64_t bytes)
{
    uint64_t given = pool->config.backing == VS_POOL_VMM ? vs_vmm_give(pool, bytes)
                                                         : vs_native_give(pool, bytes);
    if (given > 0) {
        atomic_fetch_add_explicit(&pool->trims, 1, memory_order_relaxed);
        pool_lock(pool);
        pool->full_at = UINT64_MAX;
        pool_unlock(pool);
    }
    return given;
}

uint64_t vs_pool_trim(struct vs_pool *pool, uint64_t keep, bool wait)
{
    uint64_t given = 0;
    if (wait) {
        vs_pool_settle(pool);
        do { /* what has been seen empties runs, and what was in those may have to be seen */
            vs_streams_poll(pool, 0);
        } while (vs_streams_wait(pool, true) > 0 || vs_slab_flush(pool) > 0);
    } else {
        vs_epochs_close(&pool->epochs, &pool->ops, pool->world);
        vs_epochs_poll(&pool->epochs, &pool->ops, pool->world);
        vs_streams_poll(pool, 0);
    }
    vs_slab_flush(pool); /* with the slots that have been seen by now */
    pool_lock(pool);
    vs_blocks_drain(pool);
    uint64_t bytes = surplus(pool, keep);
    pool_unlock(pool);
    if (bytes >= VS_POOL_PAGE) {
        given = give(pool, bytes);
    }
    return given;
}

bool vs_pool_wants_trim(struct vs_pool *pool)
{
    if (pool->config.trim_above == UINT64_MAX) {
        return false;
    }
    pool_lock(pool);
    bool wants = surplus(pool, pool->config.trim_above) >= VS_POOL_PAGE;
    pool_unlock(pool);
    return wants;
}

/* What decay may take. The lock is held. */
static uint64_t above_idle_keep(const struct vs_pool *pool)
{
    return pool->reserved > pool->idle_keep ? pool->reserved - pool->idle_keep : 0;
}

static bool may_decay(struct vs_pool *pool)
{
    pool_lock(pool);
    bool may = above_idle_keep(pool) >= VS_POOL_PAGE;
    pool_unlock(pool);
    return may;
}

bool vs_pool_decay(struct vs_pool *pool)
{
    uint64_t low = UINT64_MAX;

    vs_spans_flush(pool, false);
    vs_epochs_close(&pool->epochs, &pool->ops, pool->world);
    vs_epochs_poll(&pool->epochs, &pool->ops, pool->world);
    if (may_decay(pool)) {
        vs_streams_poll(pool, 0);
    }
    pool_lock(pool);
    vs_blocks_drain(pool);
    pool->decay_low[pool->decay_at++ % DECAY_STEPS] = pool->free_low;
    pool->free_low = pool->reserved - pool->live;
    for (unsigned i = 0; i < DECAY_STEPS; i++) {
        low = pool->decay_low[i] < low ? pool->decay_low[i] : low;
    }
    pool->full_at = UINT64_MAX;
    uint64_t keep = pool->reserved - pool->live - low;
    uint64_t bytes = surplus(pool, keep), most = above_idle_keep(pool);
    bytes = bytes < most ? bytes : most;
    pool_unlock(pool);
    if (bytes > 0) {
        vs_slab_flush(pool);
        bytes = give(pool, page_up(bytes));
    }
    pool_lock(pool);
    for (unsigned i = 0; i < DECAY_STEPS; i++) {
        pool->decay_low[i] -= bytes < pool->decay_low[i] ? bytes : pool->decay_low[i];
    }
    bool more = surplus(pool, 0) >= VS_POOL_PAGE && above_idle_keep(pool) >= VS_POOL_PAGE &&
                (bytes > 0 || low < pool->reserved - pool->live || pool->pending > 0);
    pool_unlock(pool);
    return more;
}

void vs_pool_keep_idle(struct vs_pool *pool, uint64_t bytes)
{
    pool_lock(pool);
    pool->idle_keep = bytes;
    pool_unlock(pool);
}

static uint64_t largest(struct vs_pool *pool)
{
    uint64_t most = 0;
    for (unsigned i = ZONE_SMALL; i < ZONES; i++) {
        for (uint32_t stream = 0; stream <= pool->stream_count; stream++) {
            uint32_t number = vs_tree_large(pool, free_tree(pool, i, stream), 0);
            uint64_t bytes = number ? block_bytes(block_at(pool, number)) : 0;
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static uint64_t table_bytes(const struct vs_table *table)
{
    return table->host_bytes + (table->used / VS_TABLE_CHUNK + 1) * sizeof *table->chunks;
}

static uint64_t host_bytes(const struct vs_pool *pool)
{
    return sizeof *pool + pool->leaf_bytes + vs_loops_host_bytes(pool) + vs_vmm_host_bytes(pool) +
           table_bytes(&pool->blocks) + table_bytes(&pool->handles) + table_bytes(&pool->runs) +
           table_bytes(&pool->spans) + table_bytes(&pool->starts) + table_bytes(&pool->stretches) +
           table_bytes(&pool->crossings) + pool->stream_count * sizeof(struct vs_stream);
}

void vs_pool_stats(struct vs_pool *pool, struct vs_pool_stats *out)
{
    uint64_t slots = 0, runs = 0, served = 0;
    uint64_t waiting = vs_spans_pending(pool);
    vs_slab_stats(pool, &slots, &runs, &served);
    pool_lock(pool);
    vs_blocks_drain(pool);
    uint64_t free_bytes = 0, whole = 0, live = pool->live - pool->dead;
    for (unsigned i = ZONE_SMALL; i < ZONES; i++) {
        for (uint32_t stream = 0; stream <= pool->stream_count; stream++) {
            free_bytes += free_tree(pool, i, stream)->bytes;
            whole += free_tree(pool, i, stream)->whole;
        }
    }
    uint64_t used = live > runs ? live - runs + slots : slots; /* two locks: not quite one moment */
    *out = (struct vs_pool_stats){
        .reserved_bytes = pool->reserved,
        .reserved_peak = pool->reserved_peak,
        .live_bytes = used,
        .live_peak = pool->live_peak,
        .block_bytes = used,
        .free_bytes = pool->reserved > used ? pool->reserved - used : 0,
        .pending_bytes = pool->pending + waiting,
        .largest_free_bytes = largest(pool),
        .pinned_bytes = free_bytes - whole + (runs > slots ? runs - slots : 0),
        .misses = atomic_load(&pool->misses),
        .waits = atomic_load(&pool->epochs.waits),
        .orders = atomic_load(&pool->epochs.orders),
        .records = atomic_load(&pool->epochs.records),
        .trims = atomic_load(&pool->trims),
        .released_bytes = atomic_load(&pool->released),
        .remapped_bytes = atomic_load(&pool->remapped),
        .dead_bytes = pool->dead,
        .host_bytes = host_bytes(pool),
    };
    uint64_t allocs = pool->allocs + served;
    pool_unlock(pool);
    out->hits = allocs > out->misses ? allocs - out->misses : 0;
}
