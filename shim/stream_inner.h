/*
 * Streams from the inside: what the files shim/stream*.c share.
 *
 * A slot is what an arena knows of the stream with that number. Who makes a call with what is in it
 * counts himself in first and then looks at the state; who changes it sets the state first and then
 * waits until nobody is counted in. Keys and chains are under the lock, a leaf; events are words of
 * their own.
 */
#ifndef VS_SHIM_STREAM_INNER_H
#define VS_SHIM_STREAM_INNER_H

#include "shim/arena_inner.h"
#include "shim/streams.h"

enum vs_stream_slot_state {
    VS_STREAM_FREE,  /* no stream's; must be 0 */
    VS_STREAM_LIVE,  /* of a stream, or of one that has been destroyed */
    VS_STREAM_GOING, /* its context is about to end */
    VS_STREAM_GONE   /* … and has: nothing is left to wait for */
};

struct vs_stream_slot {
    _Atomic uint32_t state;
    _Atomic uint32_t users;
    _Atomic uint32_t announced; /* freed on since its last submission: somebody has to look */
    _Atomic bool late; /* work was submitted that should have waited until a fence was recorded */
    uint8_t next;      /* in its chain; 0: the last */
    bool linked;       /* found by its key */
    bool blocking;     /* the legacy stream, or one that waits for that and is waited for by it */
    uint32_t thread;   /* of a thread's default stream: its number, … */
    int32_t task;      /* … and as the kernel knows it */
    CUstream stream;   /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or the program's */
    CUcontext current; /* default streams: what has to be current; else NULL */
    CUcontext owner;
    CUgreenCtx green;     /* whose stream it is; NULL: none's */
    _Atomic uint32_t set; /* fences that have been recorded: a bit each */
    /* Those that cover more than the stream: the host may ask for them, but nothing is to wait. */
    _Atomic uint32_t wide;
    _Atomic(CUevent) events[VS_POOL_STREAM_FENCES];
};

_Static_assert(VS_POOL_STREAM_FENCES <= 32, "a bit each");

enum { VS_STREAM_BUCKETS = 128 };

struct vs_streams {
    struct vs_lock lock;
    _Atomic uint32_t announced; /* slots that are */
    _Atomic bool kept;          /* release thresholds hold (mempool.h) */
    _Atomic uint64_t retry_at;  /* no number is asked for before */
    uint32_t last;              /* the highest number that was ever given */
    uint8_t bucket[VS_STREAM_BUCKETS];
    struct vs_stream_slot slot[VS_POOL_STREAMS + 1];
};

struct vs_stream_key {
    CUstream stream;
    CUcontext current; /* default streams; else NULL */
    uint32_t thread;   /* default streams of threads; else 0 */
};

/* Asks the driver for the current context, of default streams only. False: there is none. */
bool vs_stream_key_of(const struct vs_entries *real, CUstream stream, bool per_thread,
                      struct vs_stream_key *key);

/* Its number in an arena that is held; 0: none. home: only where its own context's is that arena.
 * Takes the lock. */
uint32_t vs_stream_find(struct vs_arena *arena, const struct vs_stream_key *key, bool home);

/* It is found no more. With the lock. */
void vs_stream_unlink(struct vs_streams *streams, uint32_t number);

/* Nobody need look for its frees; true: somebody was to. */
bool vs_stream_unannounce(struct vs_streams *streams, uint32_t number);

/* The state was changed: waits until nobody makes a call with what is in the slot (5 s at most). */
void vs_stream_see_users(struct vs_stream_slot *slot);

/* Destroys the fences' events. alive: the context that they were made in still is; else they went
 * with it, and are forgotten. */
void vs_stream_free_events(const struct vs_entries *real, struct vs_stream_slot *slot, bool alive);

/* Ends the default streams of threads that are no more; true: there were some. */
bool vs_stream_end_dead(struct vs_arena *arena);

/* This thread is about to submit to the streams that it records fences on, so it may as well do
 * that with what is recorded for them. */
extern __thread bool vs_streams_submitting
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline struct vs_streams *vs_streams_of(struct vs_arena *arena)
{
    return atomic_load_explicit(&arena->streams, memory_order_acquire);
}

static inline bool vs_stream_is_default(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The state, in which it stays until vs_stream_leave where it is LIVE. */
static inline enum vs_stream_slot_state vs_stream_enter(struct vs_stream_slot *slot)
{
    atomic_fetch_add_explicit(&slot->users, 1, memory_order_seq_cst);
    return (enum vs_stream_slot_state)atomic_load_explicit(&slot->state, memory_order_seq_cst);
}

static inline void vs_stream_leave(struct vs_stream_slot *slot)
{
    atomic_fetch_sub_explicit(&slot->users, 1, memory_order_release);
}

#endif
