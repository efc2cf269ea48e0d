/*
 * Hooks: the ends of contexts. The driver frees what a context held; the books follow.
 *
 * The primary context of a device lives until its last release or a reset, and keeps its handle.
 */
#include "shim/count.h"
#include "shim/place.h"

/* The identity goes before the driver's call: once that has returned, another thread may have a new
 * context with the same handle. */
static CUresult after_end(CUcontext context, uint64_t identity, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        vs_count_context_gone(identity);
    } else {
        vs_place_context_stays(context, identity);
    }
    return result;
}

#define CONTEXT_DESTROY(name)                                                                      \
    VS_HOOK name(CUcontext context)                                                                \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        uint64_t identity = vs_place_context_goes(context);                                        \
        return after_end(context, identity, guard.entries->name(context));                         \
    }

CONTEXT_DESTROY(cuCtxDestroy)
CONTEXT_DESTROY(cuCtxDestroy_v2)

VS_HOOK cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    VS_HOOK_ENTER(cuDevicePrimaryCtxRetain)
    CUresult result = guard.entries->cuDevicePrimaryCtxRetain(context, device);

    if (result == CUDA_SUCCESS) {
        vs_place_primary_seen(device, *context);
    }
    return result;
}

#define PRIMARY_RESET(name)                                                                        \
    VS_HOOK name(CUdevice device)                                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        CUcontext context = vs_place_primary(device);                                              \
        uint64_t identity = vs_place_context_goes(context);                                        \
        return after_end(context, identity, guard.entries->name(device));                          \
    }

PRIMARY_RESET(cuDevicePrimaryCtxReset)
PRIMARY_RESET(cuDevicePrimaryCtxReset_v2)

/* A release ends the context only if it was the last, which is known only afterwards. */
static void after_release(const struct vs_guard *guard, CUdevice device)
{
    unsigned int flags = 0;
    int active = 1;

    if (guard->driver != NULL && guard->driver->real.cuDevicePrimaryCtxGetState != NULL &&
        guard->driver->real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
        active == 0) {
        vs_count_context_gone(vs_place_context_goes(vs_place_primary(device)));
    }
}

#define PRIMARY_RELEASE(name)                                                                      \
    VS_HOOK name(CUdevice device)                                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        CUresult result = guard.entries->name(device);                                             \
        if (result == CUDA_SUCCESS) {                                                              \
            after_release(&guard, device);                                                         \
        }                                                                                          \
        return result;                                                                             \
    }

PRIMARY_RELEASE(cuDevicePrimaryCtxRelease)
PRIMARY_RELEASE(cuDevicePrimaryCtxRelease_v2)
