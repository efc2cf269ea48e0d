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
#include "shim/gone.h"
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
    uint64_t gone; /* of gone.h */
    struct vs_arena *arena;
    CUdevice device; /* whose primary context it is; -1: none's */
};

/* The identity goes before the driver's call: once that has returned, another thread may have a new
 * context with the same handle. */
static struct ending before_end(CUcontext context, CUdevice device)
{
    struct ending ending = {.context = context, .device = device};

    ending.gone = vs_gone_begins(context, device >= 0);
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

static void after_end(const struct ending *ending, bool ended)
{
    if (ended) {
        all_gone(ending, ending->identity);
    } else {
        vs_place_context_stays(ending->context, ending->identity);
        vs_arena_context_stays(ending->arena);
        vs_streams_context_gone(ending->context, false);
    }
    vs_gone_ends(ending->gone, ended);
    vs_arena_context_ended(ending->context);
}

#define CONTEXT_DESTROY(name)                                                                      \
    VS_HOOK name(CUcontext context)                                                                \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct ending ending = before_end(context, -1);                                            \
        CUresult result = guard.entries->name(context);                                            \
        after_end(&ending, result == CUDA_SUCCESS);                                                \
        return result;                                                                             \
    }

CONTEXT_DESTROY(cuCtxDestroy)
CONTEXT_DESTROY(cuCtxDestroy_v2)

/* Ends the context, which has to be current, where it has been attached to no more often. */
VS_HOOK cuCtxDetach(CUcontext context)
{
    VS_HOOK_ENTER(cuCtxDetach)
    struct ending ending = before_end(context, -1);
    CUresult result = guard.entries->cuCtxDetach(context);
    CUcontext now = NULL;

    after_end(&ending, result == CUDA_SUCCESS && guard.driver != NULL &&
                           guard.driver->real.cuCtxGetCurrent(&now) == CUDA_SUCCESS &&
                           now != context);
    return result;
}

/* A context that is handed out. */
#define CONTEXT_MADE(name, parameters, arguments)                                                  \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        CUresult result = guard.entries->name arguments;                                           \
        if (result == CUDA_SUCCESS) {                                                              \
            vs_gone_made(*context);                                                                \
        }                                                                                          \
        return result;                                                                             \
    }

CONTEXT_MADE(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
             (context, flags, device))
CONTEXT_MADE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
             (context, flags, device))
CONTEXT_MADE(cuCtxCreate_v3,
             (CUcontext * context, CUexecAffinityParam *affinity, int count, unsigned int flags,
              CUdevice device),
             (context, affinity, count, flags, device))
CONTEXT_MADE(cuCtxCreate_v4,
             (CUcontext * context, CUctxCreateParams *how, unsigned int flags, CUdevice device),
             (context, how, flags, device))
CONTEXT_MADE(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx green), (context, green))

VS_HOOK cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    VS_HOOK_ENTER(cuDevicePrimaryCtxRetain)
    struct vs_lock *lock = lock_primaries(&guard);
    CUresult result = guard.entries->cuDevicePrimaryCtxRetain(context, device);

    if (result == CUDA_SUCCESS) {
        vs_gone_made(*context);
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
        CUresult result = guard.entries->name(device);                                             \
        after_end(&ending, result == CUDA_SUCCESS);                                                \
        return result;                                                                             \
    }

PRIMARY_RESET(cuDevicePrimaryCtxReset)
PRIMARY_RESET(cuDevicePrimaryCtxReset_v2)

/* A release ends the context only if it was the last, which is known only afterwards. */
static struct ending before_release(CUdevice device)
{
    struct ending ending = {.context = vs_place_primary(device), .device = device};

    ending.gone = vs_gone_begins(ending.context, true);
    vs_arena_context_ends(ending.context);
    vs_capture_context_goes();
    ending.arena = vs_arena_context_goes(vs_place_known(ending.context));
    vs_streams_context_goes(ending.context);
    return ending;
}

static bool is_over(const struct vs_guard *guard, CUdevice device)
{
    const struct vs_entries *real = guard->driver == NULL ? NULL : &guard->driver->real;
    unsigned int flags = 0;
    int active = 1;

    return real != NULL && real->cuDevicePrimaryCtxGetState != NULL &&
           real->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active == 0;
}

static void after_release(const struct ending *ending, bool over)
{
    if (over) {
        all_gone(ending, vs_place_context_goes(ending->context));
    } else {
        vs_arena_context_stays(ending->arena);
        vs_streams_context_gone(ending->context, false);
    }
    vs_gone_ends(ending->gone, over);
    vs_arena_context_ended(ending->context);
}

#define PRIMARY_RELEASE(name)                                                                      \
    VS_HOOK name(CUdevice device)                                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_lock *lock = lock_primaries(&guard);                                             \
        struct ending ending = before_release(device);                                             \
        CUresult result = guard.entries->name(device);                                             \
        after_release(&ending, result == CUDA_SUCCESS && is_over(&guard, device));                 \
        unlock_primaries(lock);                                                                    \
        return result;                                                                             \
    }

PRIMARY_RELEASE(cuDevicePrimaryCtxRelease)
PRIMARY_RELEASE(cuDevicePrimaryCtxRelease_v2)

/* A green context holds its device's primary one, which may end with it. Which device's it was is
 * not asked of a handle that may be stale: those that are over are found afterwards. */
VS_HOOK cuGreenCtxDestroy(CUgreenCtx green)
{
    VS_HOOK_ENTER(cuGreenCtxDestroy)
    vs_place_handle_goes();
    if (guard.counts) {
        vs_streams_green_goes(green); /* it takes its streams along */
    }
    struct vs_lock *lock = lock_primaries(&guard);
    CUresult result = guard.entries->cuGreenCtxDestroy(green);

    for (int i = 0; i < VS_LEDGER_MAX_DEVICES && result == CUDA_SUCCESS; i++) {
        if (vs_place_known(vs_place_primary(i)) != 0 && is_over(&guard, i)) {
            struct ending ending = before_release(i);

            after_release(&ending, true);
        }
    }
    unlock_primaries(lock);
    return result;
}
