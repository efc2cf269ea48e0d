/*
 * What fence.c and fence_copies.c ask of the driver, made legal: calls that need a context current
 * on a thread that may have another, and calls that a capture forbids unless the thread says that
 * it knows what it does (the relaxed mode).
 */
#ifndef VS_SHIM_FENCE_DRIVER_H
#define VS_SHIM_FENCE_DRIVER_H

#include "shim/driver.h"

/* Makes a context current; true where vs_fence_leave must take it off again. */
static inline bool vs_fence_enter(const struct vs_entries *real, CUcontext context)
{
    CUcontext current = NULL;

    if (real->cuCtxGetCurrent != NULL && real->cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
        current == context) {
        return false;
    }
    return real->cuCtxPushCurrent_v2 != NULL && real->cuCtxPopCurrent_v2 != NULL &&
           real->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

static inline void vs_fence_leave(const struct vs_entries *real, bool entered)
{
    CUcontext popped;

    if (entered) {
        real->cuCtxPopCurrent_v2(&popped);
    }
}

/*
 * The mode in which this thread may ask and wait whatever captures are active. Always taken (but in
 * vs_fence_event_query and _new): a capture of another thread may begin between a look at their
 * number and the call. Returns the mode to go back to.
 */
static inline CUstreamCaptureMode vs_fence_relax(const struct vs_entries *real)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (real->cuThreadExchangeStreamCaptureMode == NULL ||
        real->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS) {
        return CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return mode;
}

static inline void vs_fence_unrelax(const struct vs_entries *real, CUstreamCaptureMode mode)
{
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        real->cuThreadExchangeStreamCaptureMode(&mode);
    }
}

/* Events of whole contexts: drivers from 12.5 on. */
static inline bool vs_fence_knows_contexts(const struct vs_entries *real)
{
    return real->cuCtxRecordEvent != NULL && real->cuCtxWaitEvent != NULL;
}

/* A new event of a context, that keeps no time, in any state of any capture: without a call for the
 * mode where none is active. */
CUresult vs_fence_event_new(const struct vs_entries *real, CUcontext context, CUevent *event);

static inline void vs_fence_event_free(const struct vs_entries *real, CUevent event)
{
    if (event != NULL && real->cuEventDestroy_v2 != NULL) {
        real->cuEventDestroy_v2(event);
    }
}

/* call: cuEventQuery or cuEventSynchronize. A driver that wants the event's context current gets
 * it. */
static inline CUresult vs_fence_event_call(const struct vs_entries *real, CUcontext context,
                                           CUresult (*call)(CUevent), CUevent event)
{
    CUresult result = call(event);

    if (result == CUDA_ERROR_INVALID_CONTEXT) {
        bool entered = vs_fence_enter(real, context);

        result = call(event);
        vs_fence_leave(real, entered);
    }
    return result;
}

/* The same in any state of any capture. */
static inline CUresult vs_fence_event_ask(const struct vs_entries *real, CUcontext context,
                                          CUresult (*call)(CUevent), CUevent event)
{
    CUstreamCaptureMode mode = vs_fence_relax(real);
    CUresult result = vs_fence_event_call(real, context, call, event);

    vs_fence_unrelax(real, mode);
    return result;
}

/* cuEventQuery in any state of any capture: without a call for the mode where none is active. */
CUresult vs_fence_event_query(const struct vs_entries *real, CUcontext context, CUevent event);

/* Does the context (or the process) die of this? Some codes are younger than the oldest cuda.h that
 * is supported, hence the numbers. */
static inline bool vs_fence_is_sticky(CUresult result)
{
    switch ((int)result) {
    case 214: /* ECC_UNCORRECTABLE */
    case 220: /* NVLINK_UNCORRECTABLE */
    case 226: /* CONTAINED */
    case 700: /* ILLEGAL_ADDRESS */
    case 702: /* LAUNCH_TIMEOUT */
    case 710: /* ASSERT */
    case 714: /* HARDWARE_STACK_ERROR */
    case 715: /* ILLEGAL_INSTRUCTION */
    case 716: /* MISALIGNED_ADDRESS */
    case 717: /* INVALID_ADDRESS_SPACE */
    case 718: /* INVALID_PC */
    case 719: /* LAUNCH_FAILED */
    case 721: /* TENSOR_MEMORY_LEAK */
    case 911: /* EXTERNAL_DEVICE */
    case 999: /* UNKNOWN */
        return true;
    default:
        return false;
    }
}

#endif
