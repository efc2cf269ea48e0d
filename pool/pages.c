/*
 * Pages by address: two levels, the lower one mapped as it is needed (a leaf covers 16 GiB of
 * addresses, 24 bytes a page, touched only where memory is). Leaves are never given back, so
 * looking needs no lock; what a record says is stable for whoever owns a live block there.
 */
#include "pool/internal.h"

#include <errno.h>

#define LEAF_BITS 13
#define TOP_BITS (48 - PAGE_BITS - LEAF_BITS)

struct starts {
    uint32_t link; /* of the table */
    _Atomic uint32_t at[64];
};

/* Small runs begin at multiples of 32 KiB, middle blocks are at least 64 KiB: one start per slot.
 */
static unsigned slot_of(unsigned zone, uint64_t address)
{
    return zone == ZONE_SMALL ? (address >> 15) & 63 : (address >> 16) & 31;
}

struct vs_page *vs_page_find(const struct vs_pool *pool, uint64_t address)
{
    if (address >> 48) {
        return NULL;
    }
    struct vs_page *leaf = atomic_load_explicit(&pool->leaves[address >> (PAGE_BITS + LEAF_BITS)],
                                                memory_order_acquire);
    return leaf ? &leaf[address >> PAGE_BITS & ((1u << LEAF_BITS) - 1)] : NULL;
}

/* The record after one, of the page at this address. */
static struct vs_page *next_page(const struct vs_pool *pool, struct vs_page *page, uint64_t address)
{
    return (address >> PAGE_BITS & ((1u << LEAF_BITS) - 1)) != 0 ? page + 1
                                                                 : vs_page_find(pool, address);
}

int vs_pages_init(struct vs_pool *pool)
{
    pool->leaves = pool->ops.host_map(pool->world, sizeof *pool->leaves << TOP_BITS);
    return pool->leaves ? 0 : -ENOMEM;
}

void vs_pages_fini(struct vs_pool *pool)
{
    for (unsigned i = 0; pool->leaves && i < 1u << TOP_BITS; i++) {
        struct vs_page *leaf = atomic_load_explicit(&pool->leaves[i], memory_order_relaxed);
        if (leaf) {
            pool->ops.host_unmap(pool->world, leaf, sizeof *leaf << LEAF_BITS);
        }
    }
    if (pool->leaves) {
        pool->ops.host_unmap(pool->world, pool->leaves, sizeof *pool->leaves << TOP_BITS);
    }
}

int vs_pages_make(struct vs_pool *pool, uint64_t address, uint64_t bytes)
{
    uint64_t span = VS_POOL_PAGE << LEAF_BITS;
    if ((address + bytes - 1) >> 48) {
        return -ENOMEM;
    }
    for (uint64_t at = address & ~(span - 1); at < address + bytes; at += span) {
        _Atomic(struct vs_page *) *slot = &pool->leaves[at >> (PAGE_BITS + LEAF_BITS)];
        if (atomic_load_explicit(slot, memory_order_relaxed)) {
            continue;
        }
        struct vs_page *leaf = pool->ops.host_map(pool->world, sizeof *leaf << LEAF_BITS);
        if (!leaf) {
            return -ENOMEM;
        }
        pool->leaf_bytes += sizeof *leaf << LEAF_BITS;
        atomic_store_explicit(slot, leaf, memory_order_release);
    }
    return 0;
}

static int set_slot(struct vs_pool *pool, uint64_t address, uint32_t what)
{
    struct vs_page *page = vs_page_find(pool, address);
    uint32_t number = page->starts;
    if (!number) {
        number = vs_table_take(&pool->starts, &pool->ops, pool->world);
        if (!number) {
            return -ENOMEM;
        }
        __atomic_store_n(&page->starts, number, __ATOMIC_RELEASE);
    }
    struct starts *starts = vs_table_at(&pool->starts, number);
    atomic_store_explicit(&starts->at[slot_of(page->zone, address)], what, memory_order_release);
    return 0;
}

/* A large block is entered on every page whose first byte it holds, so that an address in the
 * middle of it is found at once; but where another starts on its last page, that one stays. */
static void set_large(struct vs_pool *pool, uint32_t number, const struct vs_block *block)
{
    uint64_t at = page_down(block->address), end = block_end(block);
    struct vs_page *page = vs_page_find(pool, at);
    for (; at + VS_POOL_PAGE <= end; at += VS_POOL_PAGE) {
        __atomic_store_n(&page->starts, number, __ATOMIC_RELEASE);
        if (at + VS_POOL_PAGE < end) {
            page = next_page(pool, page, at + VS_POOL_PAGE);
        }
    }
    if (at == end) {
        return;
    }
    const struct vs_block *other = page->starts ? block_at(pool, page->starts) : NULL;
    if (at <= block->address || !other || other->state != BLOCK_LIVE ||
        page_down(other->address) != at) {
        __atomic_store_n(&page->starts, number, __ATOMIC_RELEASE);
    }
}

int vs_page_start_set(struct vs_pool *pool, uint32_t number)
{
    const struct vs_block *block = block_at(pool, number);
    if (block->zone == ZONE_SMALL) {
        return 0; /* a run, whose slab enters it */
    }
    if (block->zone == ZONE_MIDDLE) {
        return set_slot(pool, block->address, number);
    }
    set_large(pool, number, block);
    return 0;
}

int vs_page_run_set(struct vs_pool *pool, uint64_t address, uint64_t bytes, uint32_t run)
{
    int rc = 0;
    for (uint64_t at = address; at < address + bytes && rc == 0; at += (uint64_t)1 << 15) {
        rc = set_slot(pool, at, run);
    }
    return rc;
}

int vs_page_span_set(struct vs_pool *pool, uint64_t address, uint64_t bytes, uint32_t block)
{
    int rc = 0;
    for (uint64_t at = address; at < address + bytes && rc == 0; at += (uint64_t)1 << 16) {
        rc = set_slot(pool, at, block);
    }
    return rc;
}

uint32_t vs_page_start(const struct vs_pool *pool, const struct vs_page *page, uint64_t address)
{
    unsigned zone = __atomic_load_n(&page->zone, __ATOMIC_ACQUIRE);
    uint32_t number = __atomic_load_n(&page->starts, __ATOMIC_ACQUIRE);
    if (!number || zone == ZONE_LARGE) {
        return number;
    }
    struct starts *starts = vs_table_at(&pool->starts, number);
    return atomic_load_explicit(&starts->at[slot_of(zone, address)], memory_order_acquire);
}

void vs_pages_freed(struct vs_pool *pool, uint64_t address, uint64_t bytes, uint64_t epoch)
{
    uint64_t at = page_down(address), end = address + bytes;
    for (struct vs_page *page = vs_page_find(pool, at); at < end;) {
        page->last = page->last < epoch ? epoch : page->last;
        at += VS_POOL_PAGE;
        page = at < end ? next_page(pool, page, at) : page;
    }
}

bool vs_pages_seen(const struct vs_pool *pool, uint64_t address, uint64_t bytes)
{
    uint64_t seen = vs_epochs_seen(&pool->epochs);
    for (uint64_t at = page_down(address); at < address + bytes; at += VS_POOL_PAGE) {
        if (vs_page_find(pool, at)->last > seen) {
            return false;
        }
    }
    return true;
}
