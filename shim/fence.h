/*
 * Fences of one context: the driver's events behind the pool's fence numbers, and the rules that
 * design §4 calls the rules of fences, as far as they meet the driver.
 *
 * The process has one flag (page->unclosed): somebody has freed since the last fence. Every hook
 * that submits work tests it first, and closes the open epochs of all arenas where it is set: a
 * fence must not cover work that was submitted after the free. An entry point that is not hooked
 * may make a fence cover too much, never too little.
 *
 * Locks: page->gate keeps captures from beginning while a context event is recorded or waited for,
 * for either would invalidate the capture. It is held across driver calls, none of which waits for
 * the device; asking for an event only tries it. Order: the pool's own, gate, page->captures.lock.
 *
 * Whoever closes an epoch would wait for the device where all fences of a context are outstanding,
 * and others' submissions with it; frees wait before it comes to that (fence_owed.c).
 */
#ifndef VS_SHIM_FENCE_H
#define VS_SHIM_FENCE_H

#include "pool/ops.h"
#include "shim/capture.h"
#include "shim/guard.h"
#include "shim/process.h"

enum vs_unclosed { VS_CLOSED, VS_UNCLOSED, VS_CLOSING /* and more: see fence_close.c */ };

/* One per arena. Events are made as they are needed. */
struct vs_fences {
    const struct vs_entries *real;
    CUcontext context;
    _Atomic int32_t broken; /* a sticky CUresult was seen, here or elsewhere; 0: none */
    bool always_wait;       /* a free waits for everything: an old driver, or STRICT_FREE=on */
    bool never_wait;        /* STRICT_FREE=off */
    _Atomic bool unwaited;  /* old drivers: a free could not wait, for a capture was active */
    const _Atomic uint32_t *copies_pending; /* of copies, below */
    _Atomic(CUevent) probe; /* never recorded: its query is as legal as a cuMemAlloc */
    /* Fences are numbered as they are recorded, from 1 or from where an earlier context left off.
     * The pool has numbers of its own, which it uses again: see vs_fences_number. */
    _Atomic uint64_t begun, recorded;
    _Atomic uint64_t passed, given_up; /* of fence_owed.c */
    /* Copies to host memory that nothing is known to have waited for yet: see fence_copies.h. */
    struct vs_fence_copies *copies;
    /* By the pool's number: the event, and the last fence that was recorded in it. */
    _Atomic(CUevent) events[VS_POOL_FENCES];
    _Atomic uint64_t last[VS_POOL_FENCES];
    /* The pool's number of a fence, at the fence modulo VS_POOL_FENCES. */
    _Atomic uint16_t numbers[VS_POOL_FENCES];
};

void vs_fences_init(struct vs_fences *fences, const struct vs_entries *real, CUcontext context);
/* alive: the context still is, so its events can be destroyed. */
void vs_fences_fini(struct vs_fences *fences, bool alive);

/* The ops of pool/ops.h: 0, positive, or -EIO with *error (may be NULL) set to the driver's code.
 */
int vs_fences_record(struct vs_fences *fences, uint32_t fence, CUresult *error);
int vs_fences_order(struct vs_fences *fences, uint32_t fence, CUresult *error);
int vs_fences_query(struct vs_fences *fences, uint32_t fence, CUresult *error);
int vs_fences_wait(struct vs_fences *fences, uint32_t fence, CUresult *error);
bool vs_fences_one_stream(struct vs_fences *fences);

/* The pool's number of a recorded fence. False where it has been used again since: the pool had
 * seen that the fence has passed. */
bool vs_fences_number(struct vs_fences *fences, uint64_t fence, uint32_t *number);

/* The slow halves of what follows. */
CUresult vs_fences_ask_legal(struct vs_fences *fences);
CUresult vs_fences_wait_strict(struct vs_fences *fences);

/* What the driver would answer to a plain allocation or free now: capture legality (only asked
 * while a capture is active in the process) and sticky errors (only once the context is known to be
 * broken). CUDA_SUCCESS: go on. Invalidates a capture exactly where the driver's own call would. */
static inline CUresult vs_fences_legal(struct vs_fences *fences)
{
    if (__builtin_expect(!vs_capture_active() &&
                             atomic_load_explicit(&fences->broken, memory_order_relaxed) == 0,
                         1)) {
        return CUDA_SUCCESS;
    }
    return vs_fences_ask_legal(fences);
}

/* Is a stream of this context capturing? (allocation then takes only memory seen free) */
static inline bool vs_fences_capturing(const struct vs_fences *fences)
{
    return vs_capture_active() && vs_capture_in(fences->context);
}

/* Rule 5, at a plain free, before it: waits where VRAMSHIM_STRICT_FREE says so. */
static inline CUresult vs_fences_strict(struct vs_fences *fences)
{
    if (__builtin_expect(!fences->always_wait && (atomic_load_explicit(fences->copies_pending,
                                                                       memory_order_acquire) == 0 ||
                                                  fences->never_wait),
                         1)) {
        return CUDA_SUCCESS;
    }
    return vs_fences_wait_strict(fences);
}

/*
 * A plain free was done, and is in the pool's open epoch: call it after that.
 *
 * Either the thread that is closing sees the free, or we see that it is closing. It stores the flag
 * and then asks the pool for frees; a free that is the first of its epoch writes that
 * (pool/epochs.c) and then reads the flag: all four in one order (seq_cst), which costs nothing on
 * the way of a free that is not the first. Such a one read its epoch before the flag, so whoever
 * closes later covers it, and whoever recorded a fence for that epoch did so after it.
 */
static inline void vs_fence_freed(void)
{
    struct vs_process_page *page = vs_process_page();

    if (atomic_load_explicit(&page->unclosed, memory_order_seq_cst) != VS_UNCLOSED) {
        atomic_store_explicit(&page->unclosed, VS_UNCLOSED, memory_order_release);
    }
}

/* What could not be closed (in a capture) can be now: the next submission closes it. Call it after
 * what changed that. */
void vs_fence_reopen(void);

void vs_fence_close_all(void);
void vs_fence_stream_seen(const struct vs_guard *guard, CUstream stream, bool per_thread);

/* What this thread submitted to last, and the count of closings by then. */
struct vs_fence_last {
    CUstream stream;
    uint32_t closings;
};
extern __thread struct vs_fence_last vs_fence_last
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Every hook that submits work, before the driver's call. per_thread: how the entry point reads
 * stream 0. */
__attribute__((always_inline)) static inline void vs_fence_submit(const struct vs_guard *guard,
                                                                  CUstream stream, bool per_thread)
{
    struct vs_process_page *page = vs_process_page();

    if (!guard->counts) {
        return;
    }
    if (__builtin_expect(atomic_load_explicit(&page->unclosed, memory_order_acquire) != VS_CLOSED,
                         0)) {
        vs_fence_close_all();
    }
    if (__builtin_expect(stream != vs_fence_last.stream ||
                             atomic_load_explicit(&page->closings, memory_order_relaxed) !=
                                 vs_fence_last.closings,
                         0)) {
        vs_fence_stream_seen(guard, stream, per_thread);
    }
}

/* Every hook whose answer can be a sticky error, after the driver's call. Where it is one, every
 * context is asked (vs_fences_legal) before it serves again. */
void vs_fence_broken(CUresult result);

static inline CUresult vs_fence_answer(const struct vs_guard *guard, CUresult result)
{
    if (__builtin_expect(result != CUDA_SUCCESS, 0) && guard->counts) {
        vs_fence_broken(result);
    }
    return result;
}

#endif
