/*
 * Hooks: work. Made from the table (submit_rows.h): open epochs get their fences, the driver does
 * the work, a copy to host memory is noted, a sticky error is heard.
 */
#include "shim/fence.h"
#include "shim/fence_copies.h"

/* What a row says about host memory. Asked after the driver said yes, so pointers are good. */
#define NO 0
#define YES 1
#define POINTER(to) vs_copies_to_host(&guard, to)
#define OF_2D(copy) vs_copies_2d_to_host(&guard, copy)
#define OF_3D(copy) vs_copies_3d_to_host(&guard, copy)
#define OF_3D_PEER(copy) vs_copies_3d_peer_to_host(&guard, copy)
#define OF_BATCH(to, count) vs_copies_batch_to_host(&guard, to, count)
#define OF_GRAPH atomic_load_explicit(&vs_copies_in_graphs, memory_order_relaxed)

#define HOOK(X, name, parameters, arguments, stream_of, per_thread, to_host)                       \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        vs_fence_submit(&guard, stream_of, per_thread);                                            \
        CUresult result = guard.entries->name arguments;                                           \
        if (result == CUDA_SUCCESS && vs_copies_wanted(&guard) && (to_host)) {                     \
            vs_copies_submitted(&guard, stream_of, per_thread);                                    \
        }                                                                                          \
        return vs_fence_answer(&guard, result);                                                    \
    }

VS_SUBMIT_ROWS(HOOK, )
