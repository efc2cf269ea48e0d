/*
 * Counting what the hooks saw: the only way from the hooks to the ledger.
 *
 * Where an allocation belongs (context, device) is asked from the driver once per thread and
 * context and remembered until any context dies.
 */
#ifndef VS_SHIM_COUNT_H
#define VS_SHIM_COUNT_H

#include "report/ledger.h"
#include "shim/guard.h"

/* False where no memory may be taken: a cap was refused. */
bool vs_count_allowed(void);

/* Opens the body of a hook that allocates, after VS_HOOK_ENTER: refused memory returns at once. */
#define VS_COUNT_ALLOW()                                                                           \
    if (!vs_count_allowed()) {                                                                     \
        return CUDA_ERROR_INVALID_VALUE;                                                           \
    }

/* What a program asked for. */
struct vs_count_request {
    size_t bytes;
    enum vs_kind kind;
    CUstream stream;  /* of a stream-ordered call, else NULL */
    bool device_free; /* the memory need not be on the device of the stream (a pool was named) */
};

/* Result of an allocating call: counts success, failure and out-of-memory. address is read only on
 * success. */
void vs_count_alloc(const struct vs_guard *guard, CUresult result, CUdeviceptr const *address,
                    const struct vs_count_request *request);

/* Frees what starts at address with the call that follows, and counts it:
 *     struct vs_alloc alloc;
 *     bool known = vs_count_free_begin(&guard, address, &alloc);
 *     result = …the driver's free…;
 *     vs_count_free_end(known, result, &alloc); */
bool vs_count_free_begin(const struct vs_guard *guard, CUdeviceptr address, struct vs_alloc *alloc);
void vs_count_free_end(bool known, CUresult result, const struct vs_alloc *alloc);

/* The primary context of a device, once the program has seen it; vs_count_primary_gone drops it. */
void vs_count_primary_seen(CUdevice device, CUcontext context);
void vs_count_primary_gone(CUdevice device);

/* A stream or a context is about to go. Call before the driver does it: from then on another thread
 * may get the handle for another one. */
void vs_count_handle_goes(void);

/* A context is gone with all that was in it. */
void vs_count_context_gone(CUcontext context);

#endif
