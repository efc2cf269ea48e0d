/*
 * Hooks: work. Made from the table (submit_rows.h): open epochs get their fences, a synchronous
 * copy waits for what frees owe, the driver does the work, an asynchronous copy to host memory is
 * noted, a sticky error is heard.
 */
#include "shim/fence.h"
#include "shim/fence_copies.h"
#include "shim/fence_owed.h"

#define NEVER(condition) (__builtin_constant_p(condition) && !(condition))

/* Before the driver's call: does a synchronous copy touch host memory? Asked only where something
 * is owed. */
#define BEFORE_NO false
#define BEFORE_YES false
#define BEFORE_POINTER(to) false
#define BEFORE_OF_2D(copy) false
#define BEFORE_OF_3D(copy) false
#define BEFORE_OF_3D_PEER(copy) false
#define BEFORE_OF_BATCH(to, count) false
#define BEFORE_OF_GRAPH false
#define BEFORE_NOW true
#define BEFORE_NOW_POINTERS(to, from)                                                              \
    (vs_copies_to_host(&guard, to) || vs_copies_to_host(&guard, from))
#define BEFORE_NOW_2D(copy) (copy == NULL || vs_copies_2d_touches_host(&guard, copy))
#define BEFORE_NOW_3D(copy) (copy == NULL || vs_copies_3d_touches_host(&guard, copy))
#define BEFORE_NOW_3D_PEER(copy) (copy == NULL || vs_copies_3d_peer_touches_host(&guard, copy))

/* After it, where it said yes, so pointers are good: may an asynchronous copy go to host memory? */
#define AFTER_NO false
#define AFTER_YES true
#define AFTER_POINTER(to) vs_copies_to_host(&guard, to)
#define AFTER_OF_2D(copy) vs_copies_2d_to_host(&guard, copy)
#define AFTER_OF_3D(copy) vs_copies_3d_to_host(&guard, copy)
#define AFTER_OF_3D_PEER(copy) vs_copies_3d_peer_to_host(&guard, copy)
#define AFTER_OF_BATCH(to, count) vs_copies_batch_to_host(&guard, to, count)
#define AFTER_OF_GRAPH atomic_load_explicit(&vs_copies_in_graphs, memory_order_relaxed)
#define AFTER_NOW false
#define AFTER_NOW_POINTERS(to, from) false
#define AFTER_NOW_2D(copy) false
#define AFTER_NOW_3D(copy) false
#define AFTER_NOW_3D_PEER(copy) false

#define HOOK(X, name, parameters, arguments, stream_of, per_thread, host)                          \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        vs_fence_submit(&guard, stream_of, per_thread);                                            \
        if (!NEVER(BEFORE_##host) && vs_fence_owing(&guard) && (BEFORE_##host)) {                  \
            vs_fence_pay(&guard);                                                                  \
        }                                                                                          \
        CUresult result = guard.entries->name arguments;                                           \
        if (result == CUDA_SUCCESS && vs_copies_wanted(&guard) && (AFTER_##host)) {                \
            vs_copies_submitted(&guard, stream_of, per_thread);                                    \
        }                                                                                          \
        return vs_fence_answer(&guard, result);                                                    \
    }

VS_SUBMIT_ROWS(HOOK, )
