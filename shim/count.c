/*
 * From hooks to ledger (see count.h).
 *
 * Invariant: nothing the driver wrote is read unless the driver said CUDA_SUCCESS.
 */
#include "shim/count.h"

#include "shim/arm.h"
#include "shim/process.h"

#include <stdatomic.h>

/* Which device a context is on, remembered per thread: contexts change seldom. A context that dies
 * may come back at the same address on another device, so every death starts a new generation. */
static _Atomic uint32_t generation = 1;

static __thread struct {
    CUcontext context;
    uint32_t generation;
    CUdevice device;
} place __attribute__((tls_model("initial-exec")));

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

/* The device of a context, or -1. address: memory known to be on that device, or 0. */
static int device_of(const struct vs_entries *real, CUcontext context, bool is_current,
                     CUdeviceptr address)
{
    uint32_t now = atomic_load_explicit(&generation, memory_order_relaxed);
    CUdevice device = -1;

    if (place.context == context && place.generation == now && context != NULL) {
        return place.device;
    }
    if (is_current) {
        if (real->cuCtxGetDevice == NULL || real->cuCtxGetDevice(&device) != CUDA_SUCCESS) {
            return -1;
        }
    } else {
        device = address == 0 ? -1 : device_of_address(real, address);
    }
    if (device >= 0) {
        place.context = context;
        place.generation = now;
        place.device = device;
    }
    return device;
}

static bool is_named_stream(CUstream stream)
{
    return stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

static void count_failure(const struct vs_entries *real, CUresult result, uint32_t device,
                          size_t bytes)
{
    size_t free_bytes = 0, total_bytes = 0;

    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
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
    CUcontext current = NULL, context = NULL;
    int device;

    if (!guard->counts) {
        return;
    }
    if (vs_process_state() == VS_PROCESS_UNARMED && result == CUDA_SUCCESS) {
        vs_arm(guard->driver); /* cuInit went by unseen */
    }
    if (vs_process_state() != VS_PROCESS_ARMED) {
        return;
    }
    if (real->cuCtxGetCurrent == NULL || real->cuCtxGetCurrent(&current) != CUDA_SUCCESS) {
        current = NULL;
    }
    context = current;
    if (is_named_stream(request->stream) &&
        (real->cuStreamGetCtx == NULL ||
         real->cuStreamGetCtx(request->stream, &context) != CUDA_SUCCESS)) {
        context = current;
    }
    if (result != CUDA_SUCCESS) {
        device = device_of(real, context, context == current, 0);
        count_failure(real, result, device < 0 ? 0 : (uint32_t)device, request->bytes);
        return;
    }
    device = request->device_free ? device_of_address(real, *address)
                                  : device_of(real, context, context == current, *address);
    vs_ledger_alloc(&(struct vs_alloc){.address = *address,
                                       .bytes = request->bytes,
                                       .context = (uintptr_t)context,
                                       .device = device < 0 ? 0 : (uint32_t)device,
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

void vs_count_context_gone(CUcontext context)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
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
