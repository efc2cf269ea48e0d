/*
 * Stream capture: the hooks. No stream can be put into capture yet, so none of them finds one.
 */
#include "sim.h"

CUresult sim_capture_work(CUstream stream, struct sim_work *work)
{
    (void)stream;
    sim_work_fini(work);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_event_record(CUstream stream, CUevent event)
{
    (void)stream, (void)event;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_event_wait(CUstream stream, CUevent event)
{
    (void)stream, (void)event;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void sim_capture_stream_gone(CUstream stream)
{
    (void)stream;
}

CUresult sim_capture_unsafe(CUcontext ctx)
{
    (void)ctx;
    return CUDA_SUCCESS;
}

CUresult sim_capture_context_op(CUcontext ctx)
{
    return ctx->capturing > 0 ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult sim_capture_mem_alloc(CUstream stream, struct sim_pool *pool, size_t size,
                               CUdeviceptr *out)
{
    (void)stream, (void)pool, (void)size, (void)out;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_capture_mem_free(CUstream stream, CUdeviceptr address)
{
    (void)stream, (void)address;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
