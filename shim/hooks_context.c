/*
 * Hooks: the ends of contexts. The driver frees what a context held; the books follow.
 *
 * The primary context of a device lives until its last release or a reset, and keeps its handle.
 */
#include "shim/count.h"

#define CONTEXT_DESTROY(name)                                                                      \
    VS_HOOK name(CUcontext context)                                                                \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        vs_count_handle_goes();                                                                    \
        CUresult result = guard.entries->name(context);                                            \
        if (guard.counts && result == CUDA_SUCCESS) {                                              \
            vs_count_context_gone(context);                                                        \
        }                                                                                          \
        return result;                                                                             \
    }

CONTEXT_DESTROY(cuCtxDestroy)
CONTEXT_DESTROY(cuCtxDestroy_v2)

VS_HOOK cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    VS_HOOK_ENTER(cuDevicePrimaryCtxRetain)
    CUresult result = guard.entries->cuDevicePrimaryCtxRetain(context, device);

    if (result == CUDA_SUCCESS) {
        vs_count_primary_seen(device, *context);
    }
    return result;
}

/* A release ends the context only if it was the last. */
static void after_release(const struct vs_guard *guard, CUdevice device)
{
    unsigned int flags = 0;
    int active = 1;

    if (guard->driver->real.cuDevicePrimaryCtxGetState != NULL &&
        guard->driver->real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
        active == 0) {
        vs_count_primary_gone(device);
    }
}

#define PRIMARY_END(name, then)                                                                    \
    VS_HOOK name(CUdevice device)                                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        vs_count_handle_goes();                                                                    \
        CUresult result = guard.entries->name(device);                                             \
        if (guard.counts && result == CUDA_SUCCESS) {                                              \
            then;                                                                                  \
        }                                                                                          \
        return result;                                                                             \
    }

PRIMARY_END(cuDevicePrimaryCtxRelease, after_release(&guard, device))
PRIMARY_END(cuDevicePrimaryCtxRelease_v2, after_release(&guard, device))
PRIMARY_END(cuDevicePrimaryCtxReset, vs_count_primary_gone(device))
PRIMARY_END(cuDevicePrimaryCtxReset_v2, vs_count_primary_gone(device))
