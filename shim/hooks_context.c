/*
 * Hooks: the ends of contexts. The driver frees what a context held; the books follow.
 *
 * The primary context of a device lives until its last release or a reset, and keeps its handle.
 * Whether a release was the last is known only afterwards, and by then another thread may have
 * retained it anew and allocated in it. So retaining and releasing exclude each other
 * (page->primaries), across the driver's call: the driver itself serialises the two, nothing that a
 * program waits for happens in between, and neither is on a hot path.
 */
#include "shim/count.h"
#include "shim/place.h"
#include "shim/process.h"

static pthread_mutex_t *lock_primaries(const struct vs_guard *guard)
{
    pthread_mutex_t *lock = &vs_process_page()->primaries;

    /* Before arming there is nothing to keep straight, and no page of our own. */
    if (!guard->counts || !vs_process_counts()) {
        return NULL;
    }
    pthread_mutex_lock(lock);
    return lock;
}

static void unlock_primaries(pthread_mutex_t *lock)
{
    if (lock != NULL) {
        pthread_mutex_unlock(lock);
    }
}

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
    pthread_mutex_t *lock = lock_primaries(&guard);
    CUresult result = guard.entries->cuDevicePrimaryCtxRetain(context, device);

    if (result == CUDA_SUCCESS) {
        vs_place_primary_seen(device, *context);
    }
    unlock_primaries(lock);
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
        pthread_mutex_t *lock = lock_primaries(&guard);                                            \
        CUresult result = guard.entries->name(device);                                             \
        if (result == CUDA_SUCCESS) {                                                              \
            after_release(&guard, device);                                                         \
        }                                                                                          \
        unlock_primaries(lock);                                                                    \
        return result;                                                                             \
    }

PRIMARY_RELEASE(cuDevicePrimaryCtxRelease)
PRIMARY_RELEASE(cuDevicePrimaryCtxRelease_v2)
