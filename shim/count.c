/*
 * From hooks to ledger (see count.h).
 *
 * Invariant: nothing the driver wrote is read unless the driver said CUDA_SUCCESS.
 */
#include "shim/count.h"

#include "shim/arm.h"
#include "shim/mempool.h"
#include "shim/place.h"
#include "shim/process.h"

bool vs_count_arms(const struct vs_guard *guard)
{
    if (!guard->counts) {
        return true;
    }
    if (vs_process_state() == VS_PROCESS_UNARMED) {
        vs_arm(guard->driver); /* cuInit went by unseen, or was never called */
    }
    return vs_process_state() != VS_PROCESS_REFUSED;
}

/* What the driver has free on a device, if that is the one it would speak of now. */
static uint64_t driver_free(const struct vs_entries *real, uint32_t device)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUdevice current = -1;

    if (real->cuMemGetInfo_v2 == NULL || real->cuCtxGetDevice == NULL ||
        real->cuCtxGetDevice(&current) != CUDA_SUCCESS || (uint32_t)current != device ||
        real->cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
        return UINT64_MAX;
    }
    return free_bytes;
}

static void count_failure(const struct vs_entries *real, CUresult result, uint32_t device,
                          size_t bytes, enum vs_verdict verdict)
{
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        vs_ledger_oom(device, bytes, driver_free(real, device), verdict);
        break;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        /* Asked without a context. The runtime does so once in each thread, makes the context
         * current, and asks again: the program never sees this failure. */
        break;
    default:
        vs_ledger_alloc_failed(device, bytes);
        break;
    }
}

void vs_count_alloc(const struct vs_guard *guard, CUresult result, CUdeviceptr const *address,
                    const struct vs_count_request *request)
{
    const struct vs_entries *real;
    CUdeviceptr at;
    struct vs_place place;

    if (!guard->counts || !vs_process_counts()) {
        return; /* there may be no driver */
    }
    real = &guard->driver->real;
    at = result == CUDA_SUCCESS ? *address : 0;
    if (request->pool != NULL) {
        place = vs_place_of_pool(real, request->pool, request->stream, at);
    } else if (request->kind == VS_KIND_ASYNC) {
        place = vs_place_of_stream(real, request->stream);
    } else {
        place = vs_place_of_thread(real);
    }
    if (place.device < 0) {
        if (result == CUDA_SUCCESS) {
            vs_ledger_note("device-unknown", "the driver did not say on which device some memory "
                                             "is: it stands under device 0");
        }
        place.device = 0;
    }
    if (result != CUDA_SUCCESS) {
        count_failure(real, result, (uint32_t)place.device, request->bytes, VS_VERDICT_DEVICE_FULL);
        return;
    }
    vs_ledger_alloc(&(struct vs_alloc){.address = at,
                                       .bytes = request->bytes,
                                       .context = place.context,
                                       .device = (uint8_t)place.device,
                                       .kind = request->kind});
}

void vs_count_pool_alloc(const struct vs_guard *guard, CUresult result, CUdeviceptr address,
                         const struct vs_count_served *served)
{
    if (!vs_process_counts()) {
        return;
    }
    if (result != CUDA_SUCCESS) {
        count_failure(&guard->driver->real, result, (uint32_t)served->place.device, served->bytes,
                      served->verdict);
        return;
    }
    vs_ledger_alloc(&(struct vs_alloc){.address = address,
                                       .bytes = served->bytes,
                                       .context = served->place.context,
                                       .device = (uint8_t)served->place.device,
                                       .tag = (uint8_t)served->pool,
                                       .kind = VS_KIND_POOL});
    vs_mempool_took(served->pool, served->bytes);
}

void vs_count_pool_free(const struct vs_guard *guard, CUdeviceptr address)
{
    struct vs_alloc alloc;

    if (guard->counts && vs_process_counts() && vs_ledger_free_at_once(address, &alloc)) {
        vs_mempool_gave(alloc.tag, alloc.bytes);
    }
}

bool vs_count_free_begin(const struct vs_guard *guard, CUdeviceptr address, struct vs_alloc *alloc)
{
    return guard->counts && vs_process_counts() && vs_ledger_free_begin(address, alloc);
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

void vs_count_context_gone(uint64_t identity)
{
    if (identity != 0 && vs_process_counts()) {
        vs_ledger_context_gone(identity);
    }
}
