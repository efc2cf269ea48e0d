/*
 * Where memory belongs (see place.h).
 *
 * Lock: page->contexts, a leaf, taken only when a thread meets a context, and when one goes. It
 * lies on the process's page, so that a forked child finds it free; the table behind it may then be
 * stale, which harms nothing, for the child cannot use the contexts in it.
 */
#include "shim/place.h"

#include "report/ledger.h"
#include "report/lock.h"
#include "shim/gone.h"
#include "shim/process.h"

#include <stdatomic.h>

enum {
    KNOWN_CONTEXTS = 1024,
    REMEMBERED = 16 /* streams and pools per thread */
};

_Atomic uint32_t vs_place_generation = 1;
__thread struct vs_place_note vs_place_here __attribute__((tls_model("initial-exec")));

static struct {
    CUcontext handle; /* NULL = free */
    uint64_t identity;
} contexts[KNOWN_CONTEXTS];
static uint64_t identities;
static bool was_full; /* from then on a context that is not in the table is known by its handle */

static _Atomic(CUcontext) primaries[VS_LEDGER_MAX_DEVICES];

struct remembered {
    const void *handle;
    uint32_t generation; /* 0: nothing remembered */
    struct vs_place place;
};

static __thread struct {
    struct remembered others[REMEMBERED];
} memory __attribute__((tls_model("initial-exec")));

static struct remembered *slot_of(const void *handle)
{
    return &memory.others[((uintptr_t)handle * 0x9e3779b97f4a7c15ULL) >> 60];
}
_Static_assert(REMEMBERED == 16, "slot_of takes four bits");

static bool holds(const struct remembered *slot, const void *handle, uint32_t now)
{
    return slot->generation == now && slot->handle == handle;
}

/* The device that an address is on, or -1. */
static int device_of_address(const struct vs_entries *real, CUdeviceptr address)
{
    int ordinal = -1;

    if (address == 0 || real->cuPointerGetAttribute == NULL ||
        real->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) !=
            CUDA_SUCCESS) {
        return -1;
    }
    return ordinal;
}

/* Once the table has been full, the handle itself serves for those that found no place: as good as
 * it gets. */
static uint64_t identity_of(CUcontext context)
{
    struct vs_lock *lock = &vs_process_page()->contexts;
    uint64_t identity = (uintptr_t)context;

    vs_lock_take(lock);
    for (unsigned i = 0; i < KNOWN_CONTEXTS; i++) {
        if (contexts[i].handle == context) {
            identity = contexts[i].identity;
            break;
        }
        if (contexts[i].handle == NULL) {
            if (!was_full) {
                was_full = i == KNOWN_CONTEXTS - 1;
                contexts[i].identity = identity = ++identities;
                contexts[i].handle = context;
            }
            break;
        }
    }
    vs_lock_drop(lock);
    return identity;
}

uint64_t vs_place_context_goes(CUcontext context)
{
    struct vs_lock *lock = &vs_process_page()->contexts;
    uint64_t identity = 0;
    unsigned end, found = KNOWN_CONTEXTS;

    vs_place_handle_goes();
    if (context == NULL || !vs_process_counts()) {
        return 0;
    }
    vs_lock_take(lock);
    for (end = 0; end < KNOWN_CONTEXTS && contexts[end].handle != NULL; end++) {
        found = contexts[end].handle == context ? end : found;
    }
    if (found < KNOWN_CONTEXTS) {
        identity = contexts[found].identity;
        contexts[found] = contexts[end - 1];
        contexts[end - 1].handle = NULL;
    } else if (was_full) {
        identity = (uintptr_t)context;
    }
    vs_lock_drop(lock);
    vs_place_handle_goes(); /* what was remembered just before that, too */
    return identity;
}

uint64_t vs_place_known(CUcontext context)
{
    struct vs_lock *lock = &vs_process_page()->contexts;
    uint64_t identity;

    if (context == NULL) {
        return 0;
    }
    vs_lock_take(lock);
    identity = was_full ? (uintptr_t)context : 0;
    for (unsigned i = 0; i < KNOWN_CONTEXTS && contexts[i].handle != NULL; i++) {
        if (contexts[i].handle == context) {
            identity = contexts[i].identity;
            break;
        }
    }
    vs_lock_drop(lock);
    return identity;
}

void vs_place_context_stays(CUcontext context, uint64_t identity)
{
    struct vs_lock *lock = &vs_process_page()->contexts;

    if (identity == 0 || identity == (uintptr_t)context) {
        return;
    }
    vs_place_handle_goes(); /* threads may remember what they were given meanwhile */
    vs_lock_take(lock);
    for (unsigned i = 0; i < KNOWN_CONTEXTS; i++) {
        if (contexts[i].handle == context || contexts[i].handle == NULL) {
            contexts[i].identity = identity;
            contexts[i].handle = context;
            break;
        }
    }
    vs_lock_drop(lock);
}

void vs_place_handle_goes(void)
{
    atomic_fetch_add_explicit(&vs_place_generation, 1, memory_order_relaxed);
}

/* Memory that is taken while a green context is current belongs to the primary one of its device,
 * and so does all that follows from that. Drivers that have green contexts say so of the default
 * stream (a capture cannot be on it; the question is harmless to any). */
static CUcontext owner_of(const struct vs_entries *real, CUcontext current)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext owner = NULL;
    CUgreenCtx green = NULL;
    CUdevice device;
    bool relaxed;

    if (real->cuStreamGetCtx_v2 == NULL || real->cuCtxGetDevice == NULL ||
        real->cuCtxGetDevice(&device) != CUDA_SUCCESS || vs_place_primary(device) == current) {
        return current;
    }
    relaxed = real->cuThreadExchangeStreamCaptureMode != NULL &&
              real->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    if (real->cuStreamGetCtx_v2(NULL, &owner, &green) != CUDA_SUCCESS || green == NULL) {
        owner = NULL;
    } else {
        vs_place_primary_seen(device, owner);
    }
    if (relaxed) {
        real->cuThreadExchangeStreamCaptureMode(&mode);
    }
    return owner != NULL ? owner : current;
}

struct vs_place_note *vs_place_ask(const struct vs_entries *real, CUcontext current, uint32_t now,
                                   struct vs_place *place)
{
    CUcontext owner;
    CUdevice device;

    *place = (struct vs_place){.device = -1};
    if (vs_gone(current) == VS_GONE) {
        return NULL;
    }
    owner = owner_of(real, current);
    place->context = identity_of(owner);
    if (real->cuCtxGetDevice == NULL || real->cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return NULL;
    }
    place->device = device;
    vs_place_here = (struct vs_place_note){
        .current = current, .generation = now, .place = *place, .owner = owner};
    return &vs_place_here;
}

struct vs_place vs_place_of_thread(const struct vs_entries *real)
{
    struct vs_place place;
    struct vs_place_note *note = vs_place_noted(real, &place);

    return note != NULL ? note->place : place;
}

/* The device of a context that need not be current; -1 if it cannot be had. */
static int device_of_context(const struct vs_entries *real, CUcontext context)
{
    CUcontext popped;
    CUdevice device = -1;

    if (real->cuCtxPushCurrent_v2 == NULL || real->cuCtxPopCurrent_v2 == NULL ||
        real->cuCtxGetDevice == NULL || real->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        return -1;
    }
    if (real->cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        device = -1;
    }
    real->cuCtxPopCurrent_v2(&popped);
    return device;
}

static struct vs_place place_in_pools_of(int device)
{
    CUcontext context = vs_place_primary(device);

    return (struct vs_place){context == NULL ? 0 : identity_of(context), device};
}

struct vs_place vs_place_of_stream(const struct vs_entries *real, CUstream stream)
{
    bool named = stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
    uint32_t now = atomic_load_explicit(&vs_place_generation, memory_order_relaxed);
    CUcontext context = NULL;
    const void *key = stream;
    struct remembered *slot;
    struct vs_place place;

    if (!named) {
        if (real->cuCtxGetCurrent == NULL || real->cuCtxGetCurrent(&context) != CUDA_SUCCESS) {
            context = NULL;
        }
        key = context;
    }
    slot = slot_of(key);
    if (key != NULL && holds(slot, key, now)) {
        return slot->place;
    }
    if (named &&
        (real->cuStreamGetCtx == NULL || real->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS)) {
        context = NULL;
    }
    if (context == NULL || vs_gone(context) == VS_GONE) {
        return (struct vs_place){.device = -1};
    }
    place = place_in_pools_of(device_of_context(real, context));
    if (place.device >= 0) {
        *slot = (struct remembered){key, now, place};
    }
    return place;
}

struct vs_place vs_place_of_pool(const struct vs_entries *real, CUmemoryPool pool, CUstream stream,
                                 CUdeviceptr address)
{
    uint32_t now = atomic_load_explicit(&vs_place_generation, memory_order_relaxed);
    struct remembered *slot = slot_of(pool);
    struct vs_place place;

    if (holds(slot, pool, now)) {
        return slot->place;
    }
    place = place_in_pools_of(device_of_address(real, address));
    if (place.device < 0) {
        return vs_place_of_stream(real, stream);
    }
    *slot = (struct remembered){pool, now, place};
    return place;
}

void vs_place_primary_seen(CUdevice device, CUcontext context)
{
    if (device >= 0 && device < VS_LEDGER_MAX_DEVICES &&
        atomic_exchange_explicit(&primaries[device], context, memory_order_relaxed) != context) {
        vs_place_handle_goes(); /* what was remembered knew of no primary context */
    }
}

CUcontext vs_place_primary(CUdevice device)
{
    return device >= 0 && device < VS_LEDGER_MAX_DEVICES
               ? atomic_load_explicit(&primaries[device], memory_order_relaxed)
               : NULL;
}

bool vs_place_is_primary(CUcontext context)
{
    bool is = false;

    for (int i = 0; i < VS_LEDGER_MAX_DEVICES && context != NULL && !is; i++) {
        is = vs_place_primary(i) == context;
    }
    return is;
}
