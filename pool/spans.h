/*
 * Spans: middle blocks (64 KiB to 2 MiB) without the pool's lock.
 *
 * While threads meet at that lock, each heap cuts its middle blocks out of spans: RUN blocks of the
 * middle zone, a few whole pages, in granules of 16 KiB with a few bitmaps. A free goes to the
 * span's heap, and waits there for its epoch. One thread alone never meets anybody, so its blocks
 * are placed by the zone, tightly; and when a heap finds itself alone again the spans dissolve:
 * what is live in them becomes blocks of the zone in place, and so does what is free. They dissolve
 * before free memory would be moved, and for the last resort all of them, so that they are never
 * the reason for an out-of-memory.
 *
 * A span belongs to a heap, whose lock guards it. Its block's `owner` says which (0: not a span's),
 * and is changed under the pool's lock, and by whoever holds the heap's too. No lock is held by
 * callers unless it is said.
 */
#ifndef VS_POOL_SPANS_H
#define VS_POOL_SPANS_H

#include "pool/bits.h"
#include "pool/internal.h"

#define GRANULE_BITS 14
#define SPAN_WORDS VS_BITS_WORDS
#define SPAN_AGES 3
#define SPAN_GRANULES VS_BITS
#define SPAN_BYTES ((uint64_t)SPAN_GRANULES << GRANULE_BITS)

struct vs_span {
    uint32_t spare; /* the table's link while unused */
    uint32_t block;
    uint32_t prev, next; /* of the heap, the oldest first */
    uint64_t address;
    uint64_t last[SPAN_BYTES >> PAGE_BITS]; /* by page: epoch of the last free on it */
    uint16_t count;         /* granules; fewer than at first if it could dissolve only in part */
    uint16_t used;          /* in live pieces */
    uint16_t waiting_count; /* freed, their epochs not known to be available */
    uint16_t largest;       /* no free stretch is longer */
    uint64_t waiting_epoch[SPAN_AGES];
    uint64_t free[SPAN_WORDS];
    uint64_t waiting[SPAN_AGES][SPAN_WORDS]; /* freed: the elder ones, then those since */
    uint64_t starts[SPAN_WORDS];             /* of live pieces */
};

static inline struct vs_span *span_at(const struct vs_pool *pool, uint32_t number)
{
    return vs_table_at(&pool->spans, number, sizeof(struct vs_span));
}

static inline bool vs_spans_on(const struct vs_pool *pool)
{
    return atomic_load_explicit(&pool->spans_on, memory_order_relaxed) ||
           (pool->config.faults & VS_POOL_SPANS);
}

/* Serves a middle request from the lane's heap. 1: *address; 0: not from here; or an error. */
int vs_span_alloc(struct vs_pool *pool, const struct vs_pool_request *request, uint64_t *address);

/* Frees a piece, if this block is a span's and the address lies in it. 0, -EINVAL, or 1: it isn't,
 * the zone is to look. */
int vs_span_free(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                 uint64_t epoch);

/* Makes a piece a block of the zone, with all of its span, if there is host memory. 1: done, or no
 * span's; -EINVAL: no piece starts there. */
int vs_span_leave(struct vs_pool *pool, const struct vs_page *page, uint64_t address);

/* The live piece around an address; as free. */
int vs_span_find(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                 uint64_t *start, uint64_t *bytes);

/* Dissolves the spans that are less than half used, or all: how many. */
unsigned vs_spans_flush(struct vs_pool *pool, bool all);

/* Bytes that were freed in spans and whose epoch is not available. */
uint64_t vs_spans_pending(struct vs_pool *pool);

/* Do threads meet at the pool's lock? Called with it held, by every middle free of the zone. */
static inline void vs_spans_watch(struct vs_pool *pool)
{
    if (__builtin_expect(++pool->watched % 256 == 0, 0)) {
        uint32_t waits = pool->lock.waits;
        if (waits - pool->watched_waits >= 16) {
            atomic_store_explicit(&pool->spans_on, true, memory_order_relaxed);
        }
        pool->watched_waits = waits;
    }
}

/* A heap's spans hold together; 0, or a number (validate.c). */
int vs_spans_check(const struct vs_pool *pool, const struct vs_heap *heap);

#endif
