/*
 * Settings that change nothing here but are remembered or checked: attributes of streams, shared
 * memory configuration, execution affinity, the profiler, flushes.
 */
#include "sim.h"

static CUresult set_hint(CUstream handle, bool pt, CUstreamAttrID name,
                         const CUstreamAttrValue *value)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS) {
        switch (name) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
            if (value->accessPolicyWindow.hitRatio < 0 || value->accessPolicyWindow.hitRatio > 1)
                result = CUDA_ERROR_INVALID_VALUE;
            else
                stream->hints.window = value->accessPolicyWindow;
            break;
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
                value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
                result = CUDA_ERROR_INVALID_VALUE;
            else
                stream->hints.policy = value->syncPolicy;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            stream->priority = value->priority > 0    ? 0
                               : value->priority < -5 ? -5
                                                      : value->priority;
            break;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            stream->hints.map = value->memSyncDomainMap;
            break;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            stream->hints.domain = value->memSyncDomain;
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamSetAttribute, cuStreamSetAttribute_ptsz,
          (CUstream stream, CUstreamAttrID name, const CUstreamAttrValue *value),
          set_hint(stream, pt, name, value))

static CUresult get_hint(CUstream handle, bool pt, CUstreamAttrID name, CUstreamAttrValue *value)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS) {
        switch (name) {
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
            value->accessPolicyWindow = stream->hints.window;
            break;
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            value->syncPolicy = stream->hints.policy;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            value->priority = stream->priority;
            break;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            value->memSyncDomainMap = stream->hints.map;
            break;
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            value->memSyncDomain = stream->hints.domain;
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamGetAttribute, cuStreamGetAttribute_ptsz,
          (CUstream stream, CUstreamAttrID name, CUstreamAttrValue *value),
          get_hint(stream, pt, name, value))

static CUresult copy_hints(CUstream to, CUstream from, bool pt)
{
    sim_lock();
    CUstream target, source;
    CUresult result = sim_stream_get(to, pt, &target);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(from, pt, &source);
    if (result == CUDA_SUCCESS && target->ctx != source->ctx)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        target->hints = source->hints;
    if (result == CUDA_SUCCESS) /* an attribute like the others (measured) */
        target->priority = source->priority;
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz, (CUstream to, CUstream from),
          copy_hints(to, from, pt))

/* ---- contexts ---------------------------------------------------------------------------------
 */
static CUresult current(void)
{
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    SIM_ENTRY(cuCtxGetSharedMemConfig);
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return current();
}

CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    SIM_ENTRY(cuCtxSetSharedMemConfig);
    return (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? current()
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    SIM_ENTRY(cuFuncSetSharedMemConfig);
    (void)config;
    return function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuCtxResetPersistingL2Cache(void)
{
    SIM_ENTRY(cuCtxResetPersistingL2Cache);
    return current();
}

CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam *out, CUexecAffinityType type)
{
    SIM_ENTRY(cuCtxGetExecAffinity);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_EXEC_AFFINITY_TYPE_SM_COUNT ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGetExecAffinitySupport(int *out, CUexecAffinityType type, CUdevice device)
{
    SIM_ENTRY(cuDeviceGetExecAffinitySupport);
    if (out == NULL || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = 0; /* needs MPS */
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                            CUflushGPUDirectRDMAWritesScope scope)
{
    SIM_ENTRY(cuFlushGPUDirectRDMAWrites);
    (void)target, (void)scope;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuProfilerStart(void)
{
    SIM_ENTRY(cuProfilerStart);
    return current();
}

CUresult cuProfilerStop(void)
{
    SIM_ENTRY(cuProfilerStop);
    return current();
}
