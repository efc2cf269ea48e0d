/*
 * Where memory belongs: its device, and the context that takes it along when it dies.
 *
 * Asked from the driver once per thread and context, stream or pool, and remembered until any of
 * them is about to go. A context is known by an identity of its own, not by its handle: the driver
 * hands handles out again, and what belonged to the old one must not be taken for the new one's.
 *
 * The fast path is a few loads, and one driver call (cuCtxGetCurrent) where no stream is named.
 */
#ifndef VS_SHIM_PLACE_H
#define VS_SHIM_PLACE_H

#include "shim/driver.h"

#include <stdatomic.h>

struct vs_place {
    uint64_t context; /* identity; 0 = none */
    int device;       /* -1 = unknown */
};

/* Plain memory: the thread's current context, or the primary one where a green context is current.
 */
struct vs_place vs_place_of_thread(const struct vs_entries *real);

/* What a thread remembers of the context that was current when it last asked. */
struct vs_place_note {
    CUcontext current;
    uint32_t generation; /* 0: nothing remembered */
    struct vs_place place;
    CUcontext owner; /* the handle of the place's context */
    void *about;     /* the caller's own; NULL at first */
};

/* Read by vs_place_noted(). A new generation starts before any handle dies, and ends everything
 * that threads remember. */
extern _Atomic uint32_t vs_place_generation __attribute__((visibility("hidden")));
extern __thread struct vs_place_note vs_place_here
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Asks the driver, and remembers. NULL if the place is not known. */
struct vs_place_note *vs_place_ask(const struct vs_entries *real, CUcontext current, uint32_t now,
                                   struct vs_place *place);

/* The same as vs_place_of_thread, with the thread's note about it. NULL: there is none, and *place
 * is as much as is known. */
static inline struct vs_place_note *vs_place_noted(const struct vs_entries *real,
                                                   struct vs_place *place)
{
    struct vs_place_note *here = &vs_place_here;
    /* Before the driver is asked: it may end while it answers. */
    uint32_t now = atomic_load_explicit(&vs_place_generation, memory_order_relaxed);
    CUcontext current = NULL;

    if (real->cuCtxGetCurrent == NULL || real->cuCtxGetCurrent(&current) != CUDA_SUCCESS ||
        current == NULL) {
        *place = (struct vs_place){.device = -1};
        return NULL;
    }
    if (__builtin_expect(here->current == current && here->generation == now, 1)) {
        return here;
    }
    return vs_place_ask(real, current, now, place);
}

/* Memory that is ordered by a stream, which need not be of the current context. It belongs to the
 * device's pools, and they to its primary context: it outlives any other. */
struct vs_place vs_place_of_stream(const struct vs_entries *real, CUstream stream);

/* The same from a pool that the program names, which may be on another device than the stream.
 * address: memory from it, or 0. */
struct vs_place vs_place_of_pool(const struct vs_entries *real, CUmemoryPool pool, CUstream stream,
                                 CUdeviceptr address);

/* The program has retained this device's primary context. */
void vs_place_primary_seen(CUdevice device, CUcontext context);

/* The primary context of a device, as far as seen; NULL if it was not, or is gone. */
CUcontext vs_place_primary(CUdevice device);
/* Is a context that of any device? */
bool vs_place_is_primary(CUcontext context);

/* A stream, pool or context is about to go. Call before the driver does it: from then on another
 * thread may get the handle for another one. */
void vs_place_handle_goes(void);

/* A context is about to go. Returns its identity (0 if nothing was ever allocated in it); whoever
 * gets the handle from now on is another. If the driver then refuses, vs_place_context_stays. */
uint64_t vs_place_context_goes(CUcontext context);

/* The identity of a context, 0 if it has none yet. Changes nothing. */
uint64_t vs_place_known(CUcontext context);
void vs_place_context_stays(CUcontext context, uint64_t identity);

#endif
