/*
 * The life of the process: when the shim is armed, who owns what it knows, and the last moment.
 *
 * All state that must not outlive a fork lies on one page that the kernel wipes in the child
 * (MADV_WIPEONFORK; an atfork handler does the same where the kernel can't). So a forked child
 * finds itself UNARMED without asking, and the hot path is one load. A vfork child shares our
 * memory and sees ARMED; whatever would write for it compares the owner's pid first.
 */
#ifndef VS_SHIM_PROCESS_H
#define VS_SHIM_PROCESS_H

#include "report/lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum vs_process_state {
    VS_PROCESS_UNARMED, /* CUDA not initialised here (or not yet by this child); must be 0 */
    VS_PROCESS_ARMED,   /* counting */
    VS_PROCESS_EXEC,    /* counting still: reported, for an exec that may fail */
    VS_PROCESS_REFUSED, /* a cap that cannot hold: no memory for this process */
    VS_PROCESS_WRITING, /* the report is being written */
    VS_PROCESS_DONE,    /* the report is written: calls pass through */
    VS_PROCESS_OFF      /* an internal fault: said once, calls pass through */
};

/* An active capture, or a stream of another context that joined one: see capture.c. */
struct vs_capture_row {
    const void *stream;  /* a default stream of a thread is told apart by the thread */
    const void *thread;  /* else NULL */
    const void *context; /* NULL = unknown: it may be any */
    uint32_t born;
    bool joined;
};

enum { VS_CAPTURE_ROWS = 64 };

struct vs_captures {
    struct vs_lock lock; /* a leaf */
    uint32_t born;       /* the last row's */
    uint32_t count;      /* of rows in use, from the first on */
    uint32_t begun;      /* of those, captures and not streams that joined one */
    uint32_t lost;       /* captures that found no row: any context may be theirs */
    bool lost_joined;    /* the same of streams that joined one */
    struct vs_capture_row row[VS_CAPTURE_ROWS];
};

struct vs_process_page {
    _Atomic uint32_t state;
    _Atomic int32_t active_captures;        /* stream captures begun and not ended, process-wide */
    pid_t owner;                            /* valid when state is not UNARMED */
    pthread_mutex_t arming;                 /* all zero is an unlocked mutex */
    struct vs_lock primaries;               /* of hooks_context.c */
    struct vs_lock contexts;                /* of place.c */
    _Atomic bool pool_on;                   /* plain allocations are served by arenas */
    _Atomic(struct vs_arenas *) arenas;     /* of arena.c: NULL until the first is made */
    _Atomic(struct vs_ipc *) ipc;           /* of ipc.c */
    _Atomic(struct vs_mempools *) mempools; /* of mempool.c */
    _Atomic bool streams_used;              /* of streams.h */
    _Atomic uint32_t decay;                 /* of arena_decay.c: enum vs_decay_state */
    _Atomic uint64_t asleep_at;             /* of arena_decay.c */
    pthread_t decay_thread;                 /* of arena_decay.c */
    bool options_loaded;
    int options_result;
    struct vs_captures captures;
    _Atomic bool captures_seen;     /* the process has begun one, or is about to */
    _Atomic uint32_t synchronising; /* threads that wait for a context in a way a capture forbids */
    /* Of fence.h: apart, for every submission reads them, and what closes epochs writes. */
    _Alignas(128) _Atomic uint32_t unclosed;
    /* How often epochs were closed, or a stream's frees came to want a fence: threads then look
     * anew whom they submit to. */
    _Atomic uint32_t closings;
    _Atomic uint32_t streams_announced;  /* of streams.h */
    _Atomic uint32_t defaults_announced; /* … of which default streams */
    struct vs_lock gate;                 /* of fence.c and capture.c */
};

/* Never NULL; read by vs_process_page(). */
extern struct vs_process_page *vs_process_current __attribute__((visibility("hidden")));

/* This process's page. */
static inline struct vs_process_page *vs_process_page(void)
{
    return __atomic_load_n(&vs_process_current, __ATOMIC_ACQUIRE);
}

static inline enum vs_process_state vs_process_state(void)
{
    return (enum vs_process_state)atomic_load_explicit(&vs_process_page()->state,
                                                       memory_order_acquire);
}

/* Is what the program does to be counted? */
static inline bool vs_process_counts(void)
{
    enum vs_process_state state = vs_process_state();

    return __builtin_expect(state == VS_PROCESS_ARMED, 1) || state == VS_PROCESS_EXEC;
}

static inline void vs_process_set(enum vs_process_state state)
{
    atomic_store_explicit(&vs_process_page()->state, (uint32_t)state, memory_order_release);
}

/* From one state to another; false if it was not in the first. */
static inline bool vs_process_move(enum vs_process_state from, enum vs_process_state to)
{
    uint32_t expected = (uint32_t)from;

    return atomic_compare_exchange_strong(&vs_process_page()->state, &expected, (uint32_t)to);
}

/* Gives the process a page of its own that does not survive fork. Call before arming; idempotent,
 * from any thread. Returns 0 or -errno. */
int vs_process_prepare(void);

/* True in the process that armed the shim; false in a vfork child that only borrows our memory. One
 * system call. */
bool vs_process_is_owner(void);

#endif
