/*
 * Streams: memory that was freed in the order of one.
 *
 * A FREE block that was freed on a stream carries the stream's number and a stamp, the stream's
 * epoch of that free. It stands in the stream's own trees, and joins with its like and with what is
 * anybody's, which it takes in (its own stamp is the later one). The stream itself uses it like
 * anybody's. When the host has seen the stamp pass, the block becomes anybody's: it has matured.
 *
 * A stream's epochs are its own: `open` is the stamp of a free that begins now. A fence is recorded
 * for an epoch, and is exact if the stream had no work after the epoch's last free: so whoever
 * waits for it waits for nothing that the driver's own pool would not wait for. Fences are recorded
 * before the stream's next work, but only while memory is short (pool->pressed); when it becomes
 * so, what was freed before gets fences that are not exact, which are asked about and no more.
 *
 * Small ones: a stream has a heap of its own, whose runs it frees into directly. A slot that is
 * freed on another stream than its run's is a crossing: it stands aside until the host has seen it.
 *
 * The last free of a page's memory speaks for all earlier ones: whoever frees it on a stream has
 * ordered that stream behind its uses, and those behind its allocation.
 *
 * Locks: the pool's guards all but the atomic words, and the heap, which has its own.
 */
#ifndef VS_POOL_STREAMS_H
#define VS_POOL_STREAMS_H

#include "pool/internal.h"

#define STREAM_AFTER 8 /* others that a stream is known to come after; the last ones */
/* So near to the cap memory is short, whatever is free. */
#define VS_STREAMS_ROOM ((uint64_t)64 << 20)

enum vs_stream_state { STREAM_UNUSED, STREAM_ALIVE, STREAM_ENDING, STREAM_ENDED };

struct vs_stream {
    _Atomic uint64_t open;   /* the stamp of a free that begins now; from 1 */
    _Atomic uint64_t freed;  /* the last stamp with a free */
    _Atomic uint64_t closed; /* the last one with a fence */
    _Atomic uint64_t seen;   /* the host has seen frees up to this one pass */
    _Atomic uint32_t recording;
    _Atomic uint32_t state; /* enum vs_stream_state */
    bool own;               /* the fences of the pool's context cover its work */
    uint64_t inexact;       /* fences for stamps up to this one are not exact */
    uint64_t covered;       /* ended without a fence: the context's epoch that covers it; or 0 */
    uint64_t covers;        /* the last stamp of those that it covers */
    struct {
        uint64_t epoch;
        uint64_t exact_after; /* for stamps after this one it is exact */
        uint32_t number;
    } fences[VS_POOL_STREAM_FENCES]; /* outstanding, the oldest first */
    uint32_t fence_count;
    struct {
        uint32_t stream; /* 0: none */
        uint64_t epoch;
    } after[STREAM_AFTER]; /* whose frees its own work comes after */
    uint32_t after_next;
    uint32_t oldest, newest;          /* its FREE blocks, nearly in the order of their stamps */
    uint32_t crossing, crossing_last; /* slots of others' runs that were freed on it */
    uint64_t free_bytes;              /* in its FREE blocks */
    struct vs_tree trees[ZONES];
    struct vs_heap heap;
};

static inline struct vs_stream *stream_at(const struct vs_pool *pool, uint32_t number)
{
    return pool->streams[number];
}

/* The heap of a lane, or from HEAPS on, of a stream. */
static inline struct vs_heap *heap_at(struct vs_pool *pool, unsigned index)
{
    return index < HEAPS ? &pool->heaps[index] : &stream_at(pool, index - HEAPS + 1)->heap;
}

static inline unsigned heap_index(const struct vs_pool *pool, const struct vs_heap *heap)
{
    return heap->stream ? HEAPS - 1u + heap->stream : (unsigned)(heap - pool->heaps);
}

static inline struct vs_tree *free_tree(struct vs_pool *pool, unsigned zone, uint32_t stream)
{
    return stream ? &stream_at(pool, stream)->trees[zone] : &pool->zones[zone].free;
}

/* How many heaps there are: numbers below that have one. */
static inline unsigned heap_count(const struct vs_pool *pool)
{
    return HEAPS + atomic_load_explicit(&pool->stream_count, memory_order_acquire);
}

/* The stamp of a free that begins now. Any thread, locked or not. */
static inline uint64_t vs_stream_stamp(const struct vs_pool *pool, uint32_t stream)
{
    return atomic_load_explicit(&stream_at(pool, stream)->open, memory_order_seq_cst);
}

/* The block that was freed with this stamp is in the books. As above. */
void vs_stream_freed(struct vs_pool *pool, uint32_t stream, uint64_t stamp);

/* May work of this stream (0: anybody's) use what was freed on another with this stamp? The lock is
 * held. */
bool vs_stream_may(const struct vs_pool *pool, uint32_t stream, uint32_t freed_on, uint64_t stamp);

static inline bool vs_stream_usable(const struct vs_pool *pool, uint32_t stream,
                                    const struct vs_block *block)
{
    return block->stream == 0 || block->stream == stream ||
           vs_stream_may(pool, stream, block->stream, block->epoch);
}

/* The least FREE block of at least (units, address) that is anybody's or the stream's own; 0 if
 * there is none. The lock is held. */
uint32_t vs_stream_fit(struct vs_pool *pool, unsigned zone, uint32_t stream, uint32_t units,
                       uint64_t address);

/* The tightest of another stream's that the stream (not 0) may use; 0 if there is none. The lock is
 * held. */
uint32_t vs_stream_fit_after(struct vs_pool *pool, unsigned zone, uint32_t stream, uint32_t units);

/* A FREE block with a stream is listed, or no more. The lock is held. */
void vs_stream_listed(struct vs_pool *pool, uint32_t block_number);
void vs_stream_unlisted(struct vs_pool *pool, uint32_t block_number);

/* What has been seen becomes anybody's. The lock is held. */
void vs_streams_mature(struct vs_pool *pool);
static inline void vs_streams_look(struct vs_pool *pool)
{
    if (__builtin_expect(atomic_load_explicit(&pool->streams_matured, memory_order_relaxed) != 0,
                         0)) {
        vs_streams_mature(pool);
    }
}

/* Has the host seen the free pass? Any thread. */
static inline bool vs_stream_passed(const struct vs_pool *pool, uint32_t stream, uint64_t stamp)
{
    return stream == 0 ||
           atomic_load_explicit(&stream_at(pool, stream)->seen, memory_order_acquire) >= stamp;
}

/* The same for whoever uses the memory then: always, where a test switched fences off (faults). */
bool vs_stream_seen(const struct vs_pool *pool, uint32_t stream, uint64_t stamp);

/* A slot of another heap's run was freed on the stream: it stands aside until that has been seen.
 * The pool is not locked, a heap may be. 0, or -ENOMEM. */
int vs_stream_crosses(struct vs_pool *pool, uint32_t stream, uint64_t address, uint64_t stamp);

/* Asks which fences of streams have passed (of `but` nothing is wanted; 0: of all). Records those
 * that are missing. 1: something has matured; 0: no; or an error. No lock. */
int vs_streams_poll(struct vs_pool *pool, uint32_t but);

/* Makes a stream wait for an exact fence of another whose memory serves its request. 1: it waits;
 * 0: there is none such; or an error. No lock. */
int vs_streams_order(struct vs_pool *pool, const struct vs_want *want);

/* The host waits for exact fences of streams that hold free memory (hasty: for others too, but
 * not for long). 1: something has matured; 0: no; or an error. No lock. */
int vs_streams_wait(struct vs_pool *pool, bool hasty);

/* Memory is short from here on. The lock is held. */
void vs_streams_press(struct vs_pool *pool);

/* It may no longer be: looks whether that was a while ago. The lock is held. */
void vs_streams_relax(struct vs_pool *pool);

/* FREE bytes that were freed on streams. The lock is held. */
uint64_t vs_streams_free_bytes(const struct vs_pool *pool);

/* Of a pool that nobody else knows yet, or any more. 0, or -ENOMEM. */
int vs_streams_init(struct vs_pool *pool);
void vs_streams_fini(struct vs_pool *pool);

/* What streams.c and stream_fences.c have of each other. */

/* The host has seen pass what was freed up to this stamp; true: nobody knew. Any thread, locked or
 * not. */
bool vs_stream_saw(struct vs_pool *pool, uint32_t stream, uint64_t stamp);

/* Crossings that have been seen are their runs' again. 1: there were some. No lock. */
int vs_streams_take_crossed(struct vs_pool *pool);

/* Records a fence for what has none, or waits until another thread has. ending: also of a stream
 * that begins to end. As ops->stream_record. No lock. */
int vs_stream_close(struct vs_pool *pool, uint32_t stream, bool ending);

#endif
