/*
 * The one table of driver entry points.
 *
 * VS_ENTRY_HOOKS lists what we stand in for: each row is an exported function of that name (defined
 * in hooks_*.c with VS_HOOK), a typed pointer to the driver's own, and a row of the map from real
 * pointer to hook. VS_ENTRY_CALLS lists what we only call. A new hook is one row here and one
 * function there.
 *
 * Names are the driver's symbols, not the macros of cuda.h: this header turns those off, so it must
 * be included before anything else that includes <cuda.h>.
 *
 * An entry that the driver lacks has a NULL pointer; its hook is then never reached, except through
 * a weak reference (see vs_driver_missing).
 */
#ifndef VS_SHIM_ENTRIES_H
#define VS_SHIM_ENTRIES_H

#ifdef __cuda_cuda_h__
#error "include entries.h before cuda.h"
#endif
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#if CUDA_VERSION < 12000
#error "cuda.h of CUDA 12.0 or later is needed (13.x is what this is tested with)"
#endif

#if CUDA_VERSION < 12030
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
#endif

#if CUDA_VERSION < 12040
typedef struct CUgreenCtx_st *CUgreenCtx;
CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *, CUgreenCtx);
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx);
CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *,
                                             const CUgraphEdgeData *, size_t, CUstreamCaptureMode);
CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream, CUgraph, const CUgraphNode *,
                                                  const CUgraphEdgeData *, size_t,
                                                  CUstreamCaptureMode);
#endif

#if CUDA_VERSION < 12050
typedef struct CUctxCreateParams_st CUctxCreateParams;
CUresult CUDAAPI cuCtxCreate_v4(CUcontext *, CUctxCreateParams *, unsigned int, CUdevice);
CUresult CUDAAPI cuStreamGetCtx_v2(CUstream, CUcontext *, CUgreenCtx *);
#endif

#if CUDA_VERSION < 13000
CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *, CUmemAllocationType, CUmemoryPool);
#endif

#if CUDA_VERSION < 12080
CUresult CUDAAPI cuEventElapsedTime_v2(float *, CUevent, CUevent);
#endif

#include "shim/submit_rows.h"

#if CUDA_VERSION < 12020
typedef struct CUgraphNodeParams_st CUgraphNodeParams;
CUresult CUDAAPI cuGraphAddNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
                                CUgraphNodeParams *);
CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode, CUgraphNodeParams *);
CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, CUgraphNodeParams *);
#endif

#if CUDA_VERSION < 12030
CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *,
                                   const CUgraphEdgeData *, size_t, CUgraphNodeParams *);
#endif

/* clang-format off */
#define VS_ENTRY_HOOKS(X) \
    X(cuInit) \
    X(cuGetProcAddress) \
    X(cuGetProcAddress_v2) \
    /* memory: plain */ \
    X(cuMemAlloc) \
    X(cuMemAlloc_v2) \
    X(cuMemAllocPitch) \
    X(cuMemAllocPitch_v2) \
    X(cuMemAllocManaged) \
    X(cuMemFree) \
    X(cuMemFree_v2) \
    X(cuMemGetInfo) \
    X(cuMemGetInfo_v2) \
    /* what is said about memory, and its way into other processes */ \
    X(cuMemGetAddressRange_v2) \
    X(cuPointerGetAttribute) \
    X(cuPointerGetAttributes) \
    X(cuPointerSetAttribute) \
    X(cuIpcGetMemHandle) \
    X(cuIpcOpenMemHandle) \
    X(cuIpcOpenMemHandle_v2) \
    X(cuIpcCloseMemHandle) \
    /* memory: stream-ordered */ \
    X(cuMemAllocAsync) \
    X(cuMemAllocAsync_ptsz) \
    X(cuMemAllocFromPoolAsync) \
    X(cuMemAllocFromPoolAsync_ptsz) \
    X(cuMemFreeAsync) \
    X(cuMemFreeAsync_ptsz) \
    X(cuStreamDestroy) \
    X(cuStreamDestroy_v2) \
    /* the pools that it comes from */ \
    X(cuDeviceSetMemPool) \
    X(cuMemPoolCreate) \
    X(cuMemPoolDestroy) \
    X(cuMemPoolGetAttribute) \
    X(cuMemPoolSetAccess) \
    X(cuMemPoolSetAttribute) \
    X(cuMemPoolTrimTo) \
    X(cuMemSetMemPool) \
    /* contexts, which take memory along when they die, and whose handles come back */ \
    X(cuCtxCreate) \
    X(cuCtxCreate_v2) \
    X(cuCtxCreate_v3) \
    X(cuCtxCreate_v4) \
    X(cuCtxFromGreenCtx) \
    X(cuCtxDestroy) \
    X(cuCtxDestroy_v2) \
    X(cuCtxDetach) \
    X(cuGreenCtxDestroy) \
    X(cuDevicePrimaryCtxRetain) \
    X(cuDevicePrimaryCtxRelease) \
    X(cuDevicePrimaryCtxRelease_v2) \
    X(cuDevicePrimaryCtxReset) \
    X(cuDevicePrimaryCtxReset_v2) \
    /* mapped memory, which a pool's is not as far as programs are concerned */ \
    X(cuMemAddressFree) \
    X(cuMemRetainAllocationHandle) \
    X(cuMemSetAccess) \
    X(cuMemUnmap) \
    /* captures, in which stream-ordered calls become graph nodes */ \
    X(cuStreamBeginCapture) \
    X(cuStreamBeginCapture_ptsz) \
    X(cuStreamBeginCapture_v2) \
    X(cuStreamBeginCapture_v2_ptsz) \
    X(cuStreamBeginCaptureToGraph) \
    X(cuStreamBeginCaptureToGraph_ptsz) \
    X(cuStreamEndCapture) \
    X(cuStreamEndCapture_ptsz) \
    /* work, before which open epochs get their fences */ \
    VS_SUBMIT_ROWS(VS_SUBMIT_NAME, X) \
    X(cuStreamWaitEvent) \
    X(cuStreamWaitEvent_ptsz) \
    /* the host waits, or asks */ \
    X(cuCtxSynchronize) \
    X(cuCtxSynchronize_v2) \
    X(cuEventElapsedTime) \
    X(cuEventElapsedTime_v2) \
    X(cuStreamQuery) \
    X(cuStreamQuery_ptsz) \
    X(cuStreamSynchronize) \
    X(cuStreamSynchronize_ptsz) \
    /* events: where streams meet, and the host sees how far they are */ \
    X(cuCtxRecordEvent) \
    X(cuEventDestroy) \
    X(cuEventDestroy_v2) \
    X(cuEventQuery) \
    X(cuEventRecord) \
    X(cuEventRecord_ptsz) \
    X(cuEventRecordWithFlags) \
    X(cuEventRecordWithFlags_ptsz) \
    X(cuEventSynchronize) \
    X(cuGraphAddEventRecordNode) \
    X(cuGraphEventRecordNodeSetEvent) \
    X(cuGraphExecEventRecordNodeSetEvent) \
    X(cuGreenCtxRecordEvent) \
    X(cuIpcGetEventHandle) \
    X(cuIpcOpenEventHandle) \
    /* graphs that may copy to the host */ \
    X(cuGraphAddMemcpyNode) \
    X(cuGraphAddNode) \
    X(cuGraphAddNode_v2) \
    X(cuGraphExecMemcpyNodeSetParams) \
    X(cuGraphExecNodeSetParams) \
    X(cuGraphMemcpyNodeSetParams) \
    X(cuGraphNodeSetParams)

#define VS_ENTRY_CALLS(X) \
    X(cuCtxEnablePeerAccess) \
    X(cuCtxGetCurrent) \
    X(cuCtxGetDevice) \
    X(cuCtxPopCurrent_v2) \
    X(cuCtxPushCurrent_v2) \
    X(cuDeviceGet) \
    X(cuDeviceGetAttribute) \
    X(cuDeviceGetCount) \
    X(cuDeviceGetDefaultMemPool) \
    X(cuDeviceGetMemPool) \
    X(cuDeviceGetName) \
    X(cuDeviceGetUuid) \
    X(cuDeviceGetUuid_v2) \
    X(cuDevicePrimaryCtxGetState) \
    X(cuDeviceTotalMem_v2) \
    X(cuDriverGetVersion) \
    X(cuEventCreate) \
    X(cuMemAddressReserve) \
    X(cuMemCreate) \
    X(cuMemGetAllocationGranularity) \
    X(cuMemMap) \
    X(cuMemRelease) \
    X(cuStreamCreate) \
    X(cuStreamGetCtx) \
    X(cuStreamGetCtx_v2) \
    X(cuStreamGetFlags) \
    X(cuStreamIsCapturing) \
    X(cuStreamIsCapturing_ptsz) \
    X(cuThreadExchangeStreamCaptureMode)
/* clang-format on */

#define VS_ENTRY_POINTER(name) __typeof__(&name) name;

struct vs_entries {
    VS_ENTRY_HOOKS(VS_ENTRY_POINTER)
    VS_ENTRY_CALLS(VS_ENTRY_POINTER)
};

/* Defines a hook: exported under the driver's name, and only there. */
#define VS_HOOK __attribute__((visibility("default"))) CUresult CUDAAPI

#endif
