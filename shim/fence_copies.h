/*
 * Copies to host memory on which the host may rely after a free (design, rule 5).
 *
 * `cudaMemcpyAsync(host, dev); cudaFree(dev); use(host)` works natively, for the driver's free
 * waits. So an event of ours follows every such copy, and a plain free waits for those that have
 * not passed: no longer than the driver's own free would have.
 *
 * Copies are noted from the first pool on; one that was submitted before makes the first free of
 * each context wait for all of it.
 */
#ifndef VS_SHIM_FENCE_COPIES_H
#define VS_SHIM_FENCE_COPIES_H

#include "shim/guard.h"

#include <stdatomic.h>

struct vs_fence_copies;

enum vs_copies_state {
    VS_COPIES_NONE,  /* no pool, no copy yet */
    VS_COPIES_EARLY, /* no pool, but copies */
    VS_COPIES_NOTED, /* there are pools: copies are noted */
    VS_COPIES_OFF    /* nobody relies on them: VRAMSHIM_STRICT_FREE is not auto */
};

extern _Atomic uint32_t vs_copies_state;
extern _Atomic uint32_t
    vs_copies_pending;                   /* in all contexts; 0: a synchronisation changes nothing */
extern _Atomic bool vs_copies_in_graphs; /* a graph may hold a copy to host memory */

/* The record of a context's copies; NULL where there is no room: then its frees always wait. */
struct vs_fence_copies *vs_copies_of(CUcontext context);
void vs_copies_forget(struct vs_fence_copies *copies, const struct vs_entries *real, bool alive);
/* The context is about to go: what is noted under its handle from now on may be another's. Or it
 * stays after all. */
void vs_copies_hide(struct vs_fence_copies *copies);
void vs_copies_show(struct vs_fence_copies *copies);

/* A word that is 0 while there is nothing to wait for. Stays where it is. */
const _Atomic uint32_t *vs_copies_pending_of(const struct vs_fence_copies *copies);
/* At a free: waits until the copies have passed; the driver's code. *whole_context: whether they
 * have is not known, and the whole context must be waited for (and then the copies are, too). */
CUresult vs_copies_wait(struct vs_fence_copies *copies, const struct vs_entries *real,
                        CUcontext context, bool *whole_context);

/* Hooks: a copy to host memory was submitted to this stream. Where the stream captures, graphs may
 * hold one from now on. */
void vs_copies_submitted(const struct vs_guard *guard, CUstream stream, bool per_thread);

static inline bool vs_copies_wanted(const struct vs_guard *guard)
{
    return guard->counts &&
           atomic_load_explicit(&vs_copies_state, memory_order_relaxed) != VS_COPIES_OFF;
}

/* Where may a copy go? The address may be the host's own, pinned, managed or of the device. */
bool vs_copies_to_host(const struct vs_guard *guard, CUdeviceptr to);
bool vs_copies_2d_to_host(const struct vs_guard *guard, const CUDA_MEMCPY2D *copy);
bool vs_copies_3d_to_host(const struct vs_guard *guard, const CUDA_MEMCPY3D *copy);
bool vs_copies_3d_peer_to_host(const struct vs_guard *guard, const CUDA_MEMCPY3D_PEER *copy);
bool vs_copies_batch_to_host(const struct vs_guard *guard, const CUdeviceptr *to, size_t count);
/* The same of either end. */
bool vs_copies_2d_touches_host(const struct vs_guard *guard, const CUDA_MEMCPY2D *copy);
bool vs_copies_3d_touches_host(const struct vs_guard *guard, const CUDA_MEMCPY3D *copy);
bool vs_copies_3d_peer_touches_host(const struct vs_guard *guard, const CUDA_MEMCPY3D_PEER *copy);

/* A graph got a node that copies. */
static inline void vs_copies_graph_node(const struct vs_guard *guard)
{
    if (guard->counts && !atomic_load_explicit(&vs_copies_in_graphs, memory_order_relaxed)) {
        atomic_store_explicit(&vs_copies_in_graphs, true, memory_order_relaxed);
    }
}

/* Hooks: the host waits for a stream, or for a context (NULL: the current one). vs_copies_waits
 * before the driver's call, and its answer as since to one of the others where that succeeded. */
uint32_t vs_copies_waits(void);
void vs_copies_waited_stream(const struct vs_guard *guard, CUstream stream, bool per_thread,
                             uint32_t since);
void vs_copies_waited_context(const struct vs_guard *guard, CUcontext context, uint32_t since);

/* A stream is about to go; its handle may come back. */
void vs_copies_stream_goes(CUstream stream);

#endif
