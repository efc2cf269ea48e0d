/*
 * Pages by address: two levels, the lower one mapped as it is needed (a leaf covers 16 GiB of
 * addresses, 24 bytes a page, touched only where memory is). Leaves are never given back, so
 * looking needs no lock; what a record says is stable for whoever owns a live block there.
 */
#include "pool/internal.h"

#include <errno.h>

#define TOP_BITS (48 - PAGE_BITS - LEAF_BITS)

struct starts {
    uint64_t link; /* of the table */
    _Atomic uint32_t at[64];
};

/* Small runs begin at multiples of 32 KiB, middle blocks are at least 64 KiB: one start per slot.
 */
static unsigned slot_of(unsigned zone, uint64_t address)
{
    return zone == ZONE_SMALL ? (address >> 15) & 63 : (address >> 16) & 31;
}

static struct starts *starts_at(const struct vs_pool *pool, uint32_t number)
{
    return vs_table_at(&pool->starts, number, sizeof(struct starts));
}

int vs_pages_init(struct vs_pool *pool)
{
    pool->leaves = pool->ops.host_map(pool->world, sizeof *pool->leaves << TOP_BITS);
    return pool->leaves
               ? vs_table_init(&pool->starts, sizeof(struct starts), &pool->ops, pool->world)
               : -ENOMEM;
}

void vs_pages_fini(struct vs_pool *pool)
{
    for (unsigned i = 0; pool->leaves && i < 1u << TOP_BITS; i++) {
        struct vs_leaf *leaf = atomic_load_explicit(&pool->leaves[i], memory_order_relaxed);
        if (leaf) {
            pool->ops.host_unmap(pool->world, leaf, sizeof *leaf);
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
        _Atomic(struct vs_leaf *) *slot = &pool->leaves[at >> (PAGE_BITS + LEAF_BITS)];
        if (atomic_load_explicit(slot, memory_order_relaxed)) {
            continue;
        }
        struct vs_leaf *leaf = pool->ops.host_map(pool->world, sizeof *leaf);
        if (!leaf) {
            return -ENOMEM;
        }
        pool->leaf_bytes += sizeof *leaf;
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
    struct starts *starts = starts_at(pool, number);
    atomic_store_explicit(&starts->at[slot_of(page->zone, address)], what, memory_order_release);
    return 0;
}

static void enter(struct vs_pool *pool, uint64_t page, uint32_t number)
{
    __atomic_store_n(&vs_page_find(pool, page << PAGE_BITS)->starts, number, __ATOMIC_RELEASE);
}

/* A large block is entered on its first page and, from there, wherever adding the lowest bit that
 * is set in a page's number leads to: a few pages, of which whoever starts at any page of the block
 * meets one by clearing lowest bits (vs_page_large). Where another starts on its last page, that
 * one stays. */
static void set_large(struct vs_pool *pool, uint32_t number, const struct vs_block *block)
{
    uint64_t page = block->address >> PAGE_BITS, end = block_end(block) >> PAGE_BITS;
    for (enter(pool, page, number), page += page & -page; page < end; page += page & -page) {
        enter(pool, page, number);
    }
    if (page > end || end << PAGE_BITS == block_end(block)) {
        return;
    }
    uint32_t other = vs_page_find(pool, page << PAGE_BITS)->starts;
    if (!other || block_at(pool, other)->state != BLOCK_LIVE ||
        block_at(pool, other)->address >> PAGE_BITS != page) {
        enter(pool, page, number);
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
    unsigned zone = vs_page_zone(page);
    uint32_t number = __atomic_load_n(&page->starts, __ATOMIC_ACQUIRE);
    if (!number || zone == ZONE_LARGE) {
        return number;
    }
    struct starts *starts = starts_at(pool, number);
    return atomic_load_explicit(&starts->at[slot_of(zone, address)], memory_order_acquire);
}

static void fill(uint64_t *words, uint64_t count, uint64_t with)
{
    for (; count >= 4; count -= 4, words += 4) {
        words[0] = words[1] = words[2] = words[3] = with;
    }
    while (count-- > 0) {
        *words++ = with;
    }
}

void vs_pages_freed(struct vs_pool *pool, uint64_t address, uint64_t bytes, uint64_t epoch)
{
    uint64_t pages = ((address + bytes - 1) >> PAGE_BITS) - (address >> PAGE_BITS) + 1;
    bool latest = epoch >= pool->last_freed;
    pool->last_freed = latest ? epoch : pool->last_freed;
    while (pages > 0) {
        unsigned index = leaf_index(address);
        uint64_t *last = vs_page_last(pool, address), part = (1u << LEAF_BITS) - index;
        part = part < pages ? part : pages;
        if (latest) {
            fill(last, part, epoch);
        }
        for (uint64_t i = 0; i < part && !latest; i++) {
            last[i] = last[i] < epoch ? epoch : last[i];
        }
        pages -= part;
        address += part << PAGE_BITS;
    }
}

bool vs_pages_seen(const struct vs_pool *pool, uint64_t address, uint64_t bytes)
{
    uint64_t seen = vs_epochs_seen(&pool->epochs);
    for (uint64_t at = page_down(address); at < address + bytes; at += VS_POOL_PAGE) {
        if (*vs_page_last(pool, at) > seen) {
            return false;
        }
    }
    return true;
}
