/*
 * The live table's memory: entries, arrays of chains, and the mappings that both come from.
 *
 * Threads keep free entries in lanes (those of gauges.h), so that one which a thread has just given
 * back is what it takes next. What a lane has too many of goes to the others, in batches. All comes
 * from mapped slabs that are never unmapped, but for large arrays, which are mappings of their own.
 * No malloc; a system call only for a new mapping.
 *
 * Any thread may call. Lock order: a lane's, then the store's.
 */
#ifndef VS_REPORT_LIVE_STORE_H
#define VS_REPORT_LIVE_STORE_H

#include "report/gauges.h"

#define VS_LIVE_BATCH 32u       /* entries */
#define VS_LIVE_LEAST_BITS 4u   /* of an array: chains, as a power of two */
#define VS_LIVE_MAPPED_BITS 11u /* arrays from here on are mapped one by one */

struct vs_live_entry {
    union {
        struct vs_alloc alloc;
        struct vs_live_entry *batch; /* in the store: the next one */
    };
    struct vs_live_entry *next; /* in its chain, or of the free ones */
};
_Static_assert(sizeof(struct vs_live_entry) == 48, "live.h says so");

struct vs_live_lane {
    struct vs_lock lock;
    uint32_t count;
    struct vs_live_entry *free;
    struct vs_live_entry *fresh; /* never used: … */
    struct vs_live_entry *end;   /* … up to here */
} __attribute__((aligned(128)));

struct vs_live_store {
    struct vs_lock lock;
    char *slab; /* untouched part of the newest one */
    size_t slab_left;
    size_t mapped;
    struct vs_live_entry *batches;
    void *arrays[VS_LIVE_MAPPED_BITS]; /* given back, by bits; the first word links them */
    struct vs_live_lane lane[VS_GAUGE_LANES];
};

/* An entry from the calling thread's lane, with anything in it; NULL: there is no memory. */
struct vs_live_entry *vs_live_entry_new(struct vs_live_store *store);
void vs_live_entry_free(struct vs_live_store *store, struct vs_live_entry *entry);

/* 2^bits empty chains; NULL: there is no memory. */
struct vs_live_entry **vs_live_chains_new(struct vs_live_store *store, uint32_t bits);
void vs_live_chains_free(struct vs_live_store *store, struct vs_live_entry **chains, uint32_t bits);

size_t vs_live_store_mapped(struct vs_live_store *store);

#endif
