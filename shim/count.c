/*
 * From hooks to ledger (see count.h).
 *
 * Invariant: nothing the driver wrote is read unless the driver said CUDA_SUCCESS.
 */
#include "shim/count.h"

#include "shim/arm.h"
#include "shim/process.h"

#include <stdatomic.h>

/* Where memory belongs, remembered per thread: contexts and streams change seldom. A handle that
 * dies may come back as another on another device, so a new generation starts before any dies. */
static _Atomic uint32_t generation = 1;

struct place {
    uint32_t generation; /* 0: nothing remembered */
    CUcontext context;
    CUdevice device;
};

static __thread struct {
    struct place context; /* of the last current context */
    struct place stream;  /* of the last named stream */
    CUstream named;
} last __attribute__((tls_model("initial-exec")));

static _Atomic(CUcontext) primary[VS_LEDGER_MAX_DEVICES];

bool vs_count_allowed(void)
{
    return __builtin_expect(vs_process_state() != VS_PROCESS_REFUSED, 1);
}

/* The device that an address is on, or -1. */
static int device_of_address(const struct vs_entries *real, CUdeviceptr address)
{
    int ordinal = -1;

    if (real->cuPointerGetAttribute == NULL ||
        real->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) !=
            CUDA_SUCCESS) {
        return -1;
    }
    return ordinal;
}

static bool is_named_stream(CUstream stream)
{
    return stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

/* The current context and its device; device -1 where there is none. */
static struct place place_of_thread(const struct vs_entries *real)
{
    uint32_t now = atomic_load_explicit(&generation, memory_order_relaxed);
    struct place place = {.generation = now, .device = -1};

    if (real->cuCtxGetCurrent == NULL || real->cuCtxGetCurrent(&place.context) != CUDA_SUCCESS) {
        place.context = NULL;
    }
    if (place.context == NULL) {
        return place;
    }
    if (last.context.generation == now && last.context.context == place.context) {
        return last.context;
    }
    if (real->cuCtxGetDevice == NULL || real->cuCtxGetDevice(&place.device) != CUDA_SUCCESS) {
        place.device = -1;
        return place;
    }
    last.context = place;
    return place;
}

/* The same for a stream, which need not be of the current context. address: memory that was
 * allocated on it, or 0. */
static struct place place_of_stream(const struct vs_entries *real, CUstream stream,
                                    CUdeviceptr address)
{
    uint32_t now = atomic_load_explicit(&generation, memory_order_relaxed);
    struct place place = {.generation = now, .device = -1};

    if (last.stream.generation == now && last.named == stream) {
        return last.stream;
    }
    if (real->cuStreamGetCtx == NULL ||
        real->cuStreamGetCtx(stream, &place.context) != CUDA_SUCCESS || address == 0) {
        return place_of_thread(real);
    }
    place.device = device_of_address(real, address);
    if (place.device >= 0) {
        last.stream = place;
        last.named = stream;
    }
    return place;
}

static void count_failure(const struct vs_entries *real, CUresult result, uint32_t device,
                          size_t bytes)
{
    size_t free_bytes = 0, total_bytes = 0;

    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        break;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        /* Asked without a context. The runtime does so once in each thread, makes the context
         * current, and asks again: the program never sees this failure. */
        return;
    default:
        vs_ledger_alloc_failed(device, bytes);
        return;
    }
    if (real->cuMemGetInfo_v2 == NULL ||
        real->cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
        vs_ledger_oom(device, bytes, UINT64_MAX, VS_VERDICT_DEVICE_FULL);
        return;
    }
    vs_ledger_oom(device, bytes, free_bytes, VS_VERDICT_DEVICE_FULL);
}

void vs_count_alloc(const struct vs_guard *guard, CUresult result, CUdeviceptr const *address,
                    const struct vs_count_request *request)
{
    const struct vs_entries *real = &guard->driver->real;
    struct place place;

    if (!guard->counts) {
        return;
    }
    if (vs_process_state() == VS_PROCESS_UNARMED && result == CUDA_SUCCESS) {
        vs_arm(guard->driver); /* cuInit went by unseen */
    }
    if (vs_process_state() != VS_PROCESS_ARMED) {
        return;
    }
    place = is_named_stream(request->stream)
                ? place_of_stream(real, request->stream, result == CUDA_SUCCESS ? *address : 0)
                : place_of_thread(real);
    if (result == CUDA_SUCCESS && request->device_free) {
        place.device = device_of_address(real, *address);
    }
    if (place.device < 0) {
        place.device = 0;
    }
    if (result != CUDA_SUCCESS) {
        count_failure(real, result, (uint32_t)place.device, request->bytes);
        return;
    }
    vs_ledger_alloc(&(struct vs_alloc){.address = *address,
                                       .bytes = request->bytes,
                                       .context = (uintptr_t)place.context,
                                       .device = (uint32_t)place.device,
                                       .kind = request->kind});
}

bool vs_count_free_begin(const struct vs_guard *guard, CUdeviceptr address, struct vs_alloc *alloc)
{
    return guard->counts && vs_process_state() == VS_PROCESS_ARMED &&
           vs_ledger_free_begin(address, alloc);
}

void vs_count_free_end(bool known, CUresult result, const struct vs_alloc *alloc)
{
    if (!known) {
        return;
    }
    if (result == CUDA_SUCCESS) {
        vs_ledger_free_done(alloc);
    } else {
        vs_ledger_free_undo(alloc);
    }
}

void vs_count_handle_goes(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

void vs_count_context_gone(CUcontext context)
{
    if (vs_process_state() == VS_PROCESS_ARMED && context != NULL) {
        vs_ledger_context_gone((uintptr_t)context);
    }
}

void vs_count_primary_seen(CUdevice device, CUcontext context)
{
    if (device >= 0 && device < VS_LEDGER_MAX_DEVICES) {
        atomic_store_explicit(&primary[device], context, memory_order_relaxed);
    }
}

void vs_count_primary_gone(CUdevice device)
{
    if (device >= 0 && device < VS_LEDGER_MAX_DEVICES) {
        vs_count_context_gone(
            atomic_exchange_explicit(&primary[device], NULL, memory_order_relaxed));
    }
}
