/*
 * The wait that a plain free owes (design, rule 5).
 *
 * The driver's cuMemFree waits for all work of the context, and a program may rely on that though
 * what it freed has nothing to do with what it does next:
 *     launch(on a non-blocking stream); cuMemFree(anything); cuMemcpyDtoH(host, the result)
 * The pool's free does not wait. It leaves the wait to the next call by which the host itself reads
 * or replaces what work on the device has to do with: a synchronous copy from or to host memory.
 * Asynchronous copies to the host are waited for in the free itself (fence_copies.h).
 *
 * Never more than the driver (rule 1): the thread that freed waits, for the first fence recorded
 * after its free, however long. Another thread may have learned that the free is over, or may be
 * the one that has to submit what the work before the free waits for: which of the two cannot be
 * known. It waits where it uses the same context, and gives up after a second.
 */
#ifndef VS_SHIM_FENCE_OWED_H
#define VS_SHIM_FENCE_OWED_H

#include "shim/fence.h"

struct vs_arena;

/* What a thread's frees are owed, the last arena first: fences up to this one, if they are recorded
 * (numbers are vs_fences.begun's). */
struct vs_fence_owed {
    const struct vs_fences *fences; /* NULL: nothing */
    uint64_t until;
};

enum { VS_FENCE_OWED = 4 }; /* contexts in which one thread frees by turns */

extern __thread struct vs_fence_owed vs_fence_owed[VS_FENCE_OWED]
    __attribute__((tls_model("initial-exec")));

void vs_fence_owe(struct vs_arena *arena, uint64_t until);

/* A plain free was done in this arena, which has these fences, with no lock held. Waits where too
 * many of them are outstanding. */
static inline void vs_fence_owes(struct vs_arena *arena, const struct vs_fences *fences)
{
    /* A fence that is begun from here on covers whatever was submitted before the free. */
    uint64_t until = atomic_load_explicit(&fences->begun, memory_order_seq_cst) + 1;

    if (__builtin_expect(vs_fence_owed[0].fences != fences || vs_fence_owed[0].until != until, 0)) {
        vs_fence_owe(arena, until);
    }
}

bool vs_fence_outstanding(void);

/* May anything be owed to anybody? */
static inline bool vs_fence_owing(const struct vs_guard *guard)
{
    return guard->counts && vs_fence_outstanding();
}

/* Waits. Open epochs have been closed. */
void vs_fence_pay(const struct vs_guard *guard);

#endif
