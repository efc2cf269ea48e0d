/* The live table's memory (see live_store.h). */
#include "report/live_store.h"

#include <string.h>

#include "report/sys.h"

#define FIRST_SLAB ((size_t)64 << 10)
#define LARGEST_SLAB ((size_t)4 << 20)
#define CHUNK ((size_t)4096) /* what a lane gets of a slab */
#define CHUNK_ENTRIES (CHUNK / sizeof(struct vs_live_entry))

/* A piece of the newest slab; what is left of one that has too little is lost. The store is locked.
 */
static void *cut(struct vs_live_store *store, size_t bytes)
{
    if (store->slab_left < bytes) {
        size_t slab = store->mapped / 2;
        slab = slab < FIRST_SLAB ? FIRST_SLAB : slab > LARGEST_SLAB ? LARGEST_SLAB : slab;
        slab &= ~(CHUNK - 1);
        char *at = vs_sys_map(slab);
        if (!at) {
            return NULL;
        }
        store->slab = at;
        store->slab_left = slab;
        store->mapped += slab;
    }
    void *piece = store->slab;
    store->slab += bytes;
    store->slab_left -= bytes;
    return piece;
}

/* The lane is locked, and has none. */
static bool refill(struct vs_live_store *store, struct vs_live_lane *lane)
{
    vs_lock_take(&store->lock);
    struct vs_live_entry *batch = store->batches;
    if (batch) {
        store->batches = batch->batch;
        lane->free = batch;
        lane->count = VS_LIVE_BATCH;
    } else {
        lane->fresh = cut(store, CHUNK);
        lane->end = lane->fresh ? lane->fresh + CHUNK_ENTRIES : NULL;
    }
    vs_lock_drop(&store->lock);
    return batch || lane->fresh;
}

struct vs_live_entry *vs_live_entry_new(struct vs_live_store *store)
{
    struct vs_live_lane *lane = &store->lane[vs_gauges_lane()];
    struct vs_live_entry *entry = NULL;
    vs_lock_take(&lane->lock);
    if (lane->free || lane->fresh != lane->end || refill(store, lane)) {
        entry = lane->free;
        if (entry) {
            lane->free = entry->next;
            lane->count--;
        } else {
            entry = lane->fresh++;
        }
    }
    vs_lock_drop(&lane->lock);
    return entry;
}

/* The lane is locked, and has more than a batch. */
static void give_batch(struct vs_live_store *store, struct vs_live_lane *lane)
{
    struct vs_live_entry *batch = lane->free, *last = batch;
    for (unsigned i = 1; i < VS_LIVE_BATCH; i++) {
        last = last->next;
    }
    lane->free = last->next;
    lane->count -= VS_LIVE_BATCH;
    last->next = NULL;
    vs_lock_take(&store->lock);
    batch->batch = store->batches;
    store->batches = batch;
    vs_lock_drop(&store->lock);
}

void vs_live_entry_free(struct vs_live_store *store, struct vs_live_entry *entry)
{
    struct vs_live_lane *lane = &store->lane[vs_gauges_lane()];
    vs_lock_take(&lane->lock);
    entry->next = lane->free;
    lane->free = entry;
    if (++lane->count == 2 * VS_LIVE_BATCH) {
        give_batch(store, lane);
    }
    vs_lock_drop(&lane->lock);
}

struct vs_live_entry **vs_live_chains_new(struct vs_live_store *store, uint32_t bits)
{
    size_t bytes = sizeof(struct vs_live_entry *) << bits;
    void *chains;
    vs_lock_take(&store->lock);
    if (bits >= VS_LIVE_MAPPED_BITS) {
        chains = vs_sys_map(bytes);
        store->mapped += chains ? bytes : 0;
    } else if (store->arrays[bits]) {
        chains = store->arrays[bits];
        memcpy(&store->arrays[bits], chains, sizeof(void *));
        memset(chains, 0, bytes);
    } else {
        chains = cut(store, bytes);
    }
    vs_lock_drop(&store->lock);
    return chains;
}

void vs_live_chains_free(struct vs_live_store *store, struct vs_live_entry **chains, uint32_t bits)
{
    vs_lock_take(&store->lock);
    if (bits >= VS_LIVE_MAPPED_BITS) {
        vs_sys_unmap(chains, sizeof *chains << bits);
        store->mapped -= sizeof *chains << bits;
    } else {
        memcpy(chains, &store->arrays[bits], sizeof(void *));
        store->arrays[bits] = chains;
    }
    vs_lock_drop(&store->lock);
}

size_t vs_live_store_mapped(struct vs_live_store *store)
{
    vs_lock_take(&store->lock);
    size_t mapped = store->mapped;
    vs_lock_drop(&store->lock);
    return mapped;
}
