/*
 * Counting active captures (see capture.h). The count lies on the process's page, since captures do
 * not outlive a fork.
 */
#include "shim/capture.h"

#include "shim/process.h"

#include <stdatomic.h>

bool vs_capture_records(const struct vs_guard *guard, CUstream stream,
                        enum vs_capture_default_stream twin)
{
    const struct vs_entries *real;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult (*query)(CUstream, CUstreamCaptureStatus *);

    if (__builtin_expect(
            atomic_load_explicit(&vs_process_page()->active_captures, memory_order_relaxed) == 0,
            1) ||
        guard->driver == NULL) {
        return false;
    }
    real = &guard->driver->real;
    query =
        twin == VS_CAPTURE_PER_THREAD ? real->cuStreamIsCapturing_ptsz : real->cuStreamIsCapturing;
    return query != NULL && query(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void vs_capture_begun(CUresult result)
{
    /* The first capture may come before we are armed, where cuInit went by unseen. */
    if (result == CUDA_SUCCESS && vs_process_prepare() == 0) {
        atomic_fetch_add_explicit(&vs_process_page()->active_captures, 1, memory_order_relaxed);
    }
}

void vs_capture_ended(CUresult result)
{
    int32_t active =
        atomic_load_explicit(&vs_process_page()->active_captures, memory_order_relaxed);

    switch (result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
        while (active > 0 && !atomic_compare_exchange_weak_explicit(
                                 &vs_process_page()->active_captures, &active, active - 1,
                                 memory_order_relaxed, memory_order_relaxed)) {
        }
        break;
    default: /* there was none, or not ours to end */
        break;
    }
}
