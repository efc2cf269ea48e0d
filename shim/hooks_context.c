/*
 * Hooks: the ends of contexts. The driver frees what a context held; the books follow.
 *
 * The primary context of a device lives until its last release or a reset, and keeps its handle.
 * Whether a release was the last is known only afterwards, and by then another thread may have
 * retained it anew and allocated in it. So retaining and releasing exclude each other
 * (page->primaries), across the driver's call. The last release may wait for work that another
 * thread has yet to allow, so nobody waits for the lock longer than a moment: then the books may be
 * wrong, but nothing hangs.
 *
 * The context's arena takes no users from before the driver's call until it is known whether the
 * context is gone.
 */
#include "report/sys.h"
#include "shim/arena.h"
#include "shim/capture.h"
#include "shim/count.h"
#include "shim/mempool.h"
#include "shim/place.h"
#include "shim/process.h"
#include "shim/stream_events.h"
#include "shim/streams.h"

enum { PATIENCE_MS = 1000 };

/* NULL where it is not held: before arming there is nothing to keep straight, and no page of our
 * own. */
static struct vs_lock *lock_primaries(const struct vs_guard *guard)
{
    struct vs_lock *lock = &vs_process_page()->primaries;
    uint64_t deadline;

    if (!guard->counts || !vs_process_counts()) {
        return NULL;
    }
    deadline = vs_sys_clock(CLOCK_MONOTONIC) + PATIENCE_MS * UINT64_C(1000000);
    return vs_lock_take_until(lock, deadline) ? lock : NULL;
}

static void unlock_primaries(struct vs_lock *lock)
{
    if (lock != NULL) {
        vs_lock_drop(lock);
    }
}

/* A context that may end in the driver's call. */
struct ending {
    CUcontext context;
    uint64_t identity;
    struct vs_arena *arena;
    CUdevice device; /* whose primary context it is; -1: none's */
};

/* The identity goes before the driver's call: once that has returned, another thread may have a new
 * context with the same handle. */
static struct ending before_end(CUcontext context, CUdevice device)
{
    struct ending ending = {.context = context, .device = device};

    vs_arena_context_ends(context);
    vs_capture_context_goes();
    ending.identity = vs_place_context_goes(context);
    ending.arena = vs_arena_context_goes(ending.identity);
    vs_streams_context_goes(context);
    return ending;
}

static void all_gone(const struct ending *ending, uint64_t identity)
{
    vs_capture_context_gone(ending->context);
    vs_events_forget_all();
    vs_streams_context_gone(ending->context, true);
    vs_arena_context_gone(ending->arena);
    vs_mempool_device_gone(ending->device);
    vs_count_context_gone(identity);
}

static CUresult after_end(const struct ending *ending, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        all_gone(ending, ending->identity);
    } else {
        vs_place_context_stays(ending->context, ending->identity);
        vs_arena_context_stays(ending->arena);
        vs_streams_context_gone(ending->context, false);
    }
    vs_arena_context_ended(ending->context);
    return result;
}

#define CONTEXT_DESTROY(name)                                                                      \
    VS_HOOK name(CUcontext context)                                                                \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct ending ending = before_end(context, -1);                                            \
        return after_end(&ending, guard.entries->name(context));                                   \
    }

CONTEXT_DESTROY(cuCtxDestroy)
CONTEXT_DESTROY(cuCtxDestroy_v2)

VS_HOOK cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    VS_HOOK_ENTER(cuDevicePrimaryCtxRetain)
    struct vs_lock *lock = lock_primaries(&guard);
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
        struct ending ending = before_end(vs_place_primary(device), device);                       \
        return after_end(&ending, guard.entries->name(device));                                    \
    }

PRIMARY_RESET(cuDevicePrimaryCtxReset)
PRIMARY_RESET(cuDevicePrimaryCtxReset_v2)

/* A release ends the context only if it was the last, which is known only afterwards. */
static struct ending before_release(CUdevice device)
{
    struct ending ending = {.context = vs_place_primary(device), .device = device};

    vs_arena_context_ends(ending.context);
    vs_capture_context_goes();
    ending.arena = vs_arena_context_goes(vs_place_known(ending.context));
    vs_streams_context_goes(ending.context);
    return ending;
}

static void after_release(const struct vs_guard *guard, CUdevice device,
                          const struct ending *ending, CUresult result)
{
    const struct vs_entries *real = guard->driver == NULL ? NULL : &guard->driver->real;
    unsigned int flags = 0;
    int active = 1;

    if (result == CUDA_SUCCESS && real != NULL && real->cuDevicePrimaryCtxGetState != NULL &&
        real->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active == 0) {
        all_gone(ending, vs_place_context_goes(ending->context));
    } else {
        vs_arena_context_stays(ending->arena);
        vs_streams_context_gone(ending->context, false);
    }
    vs_arena_context_ended(ending->context);
}

#define PRIMARY_RELEASE(name)                                                                      \
    VS_HOOK name(CUdevice device)                                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_lock *lock = lock_primaries(&guard);                                             \
        struct ending ending = before_release(device);                                             \
        CUresult result = guard.entries->name(device);                                             \
        after_release(&guard, device, &ending, result);                                            \
        unlock_primaries(lock);                                                                    \
        return result;                                                                             \
    }

PRIMARY_RELEASE(cuDevicePrimaryCtxRelease)
PRIMARY_RELEASE(cuDevicePrimaryCtxRelease_v2)
