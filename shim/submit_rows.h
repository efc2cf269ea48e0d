/*
 * Every entry point of cuda.h that submits work to a context, one row each; included by entries.h.
 *
 * R(X, name, parameters, arguments, stream, default stream, host): what its hook needs beyond its
 * name. stream is read from the parameters (NULL: the entry point has none, and uses the default
 * one; vs_fence_last.stream: it is of no one stream). default stream: how it reads stream 0. host:
 * YES and its like, where it may copy to memory that the host reads without waiting for it
 * (fence_copies.h); NOW and its like, where it is a synchronous copy from or to host memory, before
 * which what frees owe is waited for (fence_owed.h); else NO. VS_SUBMIT_TWINS is a row and its
 * per-thread twin.
 *
 * Not here, for they have hooks of their own: stream-ordered memory, cuStreamWaitEvent and the
 * recording of events (hooks_stream.c, hooks_wait.c, hooks_event.c). Not submissions: what only
 * looks at streams, makes or ends them or their captures; module loads, cuMemAdvise and array
 * calls, whose own copies are over when they return. tests/preload/test_captures.py holds the list,
 * and fails when cuda.h grows beyond it.
 *
 * An entry point that is missed makes a fence cover too much, never too little.
 */
#ifndef VS_SHIM_SUBMIT_ROWS_H
#define VS_SHIM_SUBMIT_ROWS_H

#include "shim/submit_copies.h"

#define VS_SUBMIT_LEGACY false
#define VS_SUBMIT_PER_THREAD true

#define VS_SUBMIT_TWINS(R, X, name, suffix, parameters, arguments, stream, host)                   \
    R(X, name, parameters, arguments, stream, VS_SUBMIT_LEGACY, host)                              \
    R(X, name##suffix, parameters, arguments, stream, VS_SUBMIT_PER_THREAD, host)

/* clang-format off */
#define VS_SUBMIT_OTHERS(R, X) \
    R(X, cuCtxWaitEvent, (CUcontext hCtx, CUevent event), \
      (hCtx, event), vs_fence_last.stream, VS_SUBMIT_LEGACY, NO) \
    R(X, cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *launchParamsList, \
      unsigned int numDevices, unsigned int flags), \
      (launchParamsList, numDevices, flags), vs_fence_last.stream, VS_SUBMIT_LEGACY, NO) \
    R(X, cuLaunch, (CUfunction function), (function), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuLaunchGrid, (CUfunction function, int grid_width, int grid_height), \
      (function, grid_width, grid_height), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuLaunchGridAsync, (CUfunction function, int grid_width, int grid_height, \
      CUstream stream), \
      (function, grid_width, grid_height, stream), stream, VS_SUBMIT_LEGACY, NO) \
    R(X, cuGreenCtxWaitEvent, (CUgreenCtx hCtx, CUevent event), \
      (hCtx, event), vs_fence_last.stream, VS_SUBMIT_LEGACY, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamAddCallback, _ptsz, (CUstream stream, \
      CUstreamCallback callback, void *userData, unsigned int flags), \
      (stream, callback, userData, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamAttachMemAsync, _ptsz, (CUstream stream, CUdeviceptr address, \
      size_t length, unsigned int flags), (stream, address, length, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuLaunchKernel, _ptsz, (CUfunction function, unsigned int gridDimX, \
      unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, \
      unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, \
      CUstream stream, void **kernelParams, void **extra), \
      (function, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, \
      stream, kernelParams, extra), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuLaunchKernelEx, _ptsz, (const CUlaunchConfig *config, \
      CUfunction function, void **kernelParams, void **extra), \
      (config, function, kernelParams, extra), (config != NULL ? config->hStream : NULL), NO) \
    VS_SUBMIT_TWINS(R, X, cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn fn, \
      void *userData), (stream, fn, userData), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuGraphicsMapResources, _ptsz, (unsigned int count, \
      CUgraphicsResource *resources, CUstream stream), (count, resources, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuGraphicsUnmapResources, _ptsz, (unsigned int count, \
      CUgraphicsResource *resources, CUstream stream), (count, resources, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWriteValue32, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint32_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWaitValue32, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint32_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWriteValue64, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint64_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWaitValue64, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint64_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamBatchMemOp, _ptsz, (CUstream stream, unsigned int count, \
      CUstreamBatchMemOpParams *paramArray, unsigned int flags), \
      (stream, count, paramArray, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWriteValue32_v2, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint32_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWaitValue32_v2, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint32_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWriteValue64_v2, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint64_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamWaitValue64_v2, _ptsz, (CUstream stream, CUdeviceptr addr, \
      cuuint64_t value, unsigned int flags), (stream, addr, value, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuStreamBatchMemOp_v2, _ptsz, (CUstream stream, unsigned int count, \
      CUstreamBatchMemOpParams *paramArray, unsigned int flags), \
      (stream, count, paramArray, flags), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemPrefetchAsync, _ptsz, (CUdeviceptr address, size_t count, \
      CUdevice to, CUstream stream), (address, count, to, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemPrefetchAsync_v2, _ptsz, (CUdeviceptr address, size_t count, \
      CUmemLocation location, unsigned int flags, CUstream stream), \
      (address, count, location, flags, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemPrefetchBatchAsync, _ptsz, (CUdeviceptr *addresses, \
      size_t *sizes, size_t count, CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, \
      size_t numPrefetchLocs, unsigned long long flags, CUstream stream), \
      (addresses, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, stream), \
      stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemDiscardBatchAsync, _ptsz, (CUdeviceptr *addresses, \
      size_t *sizes, size_t count, unsigned long long flags, CUstream stream), \
      (addresses, sizes, count, flags, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemDiscardAndPrefetchBatchAsync, _ptsz, (CUdeviceptr *addresses, \
      size_t *sizes, size_t count, CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, \
      size_t numPrefetchLocs, unsigned long long flags, CUstream stream), \
      (addresses, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, stream), \
      stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuLaunchCooperativeKernel, _ptsz, (CUfunction function, \
      unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
      unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, \
      unsigned int sharedMemBytes, CUstream stream, void **kernelParams), \
      (function, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, \
      stream, kernelParams), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuSignalExternalSemaphoresAsync, _ptsz, \
      (const CUexternalSemaphore *extSemArray, \
      const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *paramsArray, unsigned int numExtSems, \
      CUstream stream), (extSemArray, paramsArray, numExtSems, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuWaitExternalSemaphoresAsync, _ptsz, \
      (const CUexternalSemaphore *extSemArray, \
      const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray, unsigned int numExtSems, \
      CUstream stream), (extSemArray, paramsArray, numExtSems, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuGraphUpload, _ptsz, (CUgraphExec graph, CUstream stream), \
      (graph, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuGraphLaunch, _ptsz, (CUgraphExec graph, CUstream stream), \
      (graph, stream), stream, OF_GRAPH) \
    VS_SUBMIT_TWINS(R, X, cuMemMapArrayAsync, _ptsz, (CUarrayMapInfo *mapInfoList, \
      unsigned int count, CUstream stream), (mapInfoList, count, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemBatchDecompressAsync, _ptsz, \
      (CUmemDecompressParams *paramsArray, size_t count, unsigned int flags, \
      size_t *errorIndex, CUstream stream), \
      (paramsArray, count, flags, errorIndex, stream), stream, NO)

#define VS_SUBMIT_ROWS(R, X) VS_SUBMIT_COPIES(R, X) VS_SUBMIT_FILLS(R, X) VS_SUBMIT_OTHERS(R, X)
/* clang-format on */

/* A row as a row of VS_ENTRY_HOOKS. */
#define VS_SUBMIT_NAME(X, name, parameters, arguments, stream, twin, host) X(name)

/* What cuda.h of CUDA 12 lacks. Pointers to structs that nobody looks into are enough. */
#if CUDA_VERSION < 12020
CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream);
CUresult CUDAAPI cuMemPrefetchAsync_v2_ptsz(CUdeviceptr, size_t, CUmemLocation, unsigned int,
                                            CUstream);
#endif
#if CUDA_VERSION < 12040
typedef struct CUgreenCtx_st *CUgreenCtx;
CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx, CUevent);
CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx, CUevent);
#endif
#if CUDA_VERSION < 12050
CUresult CUDAAPI cuCtxRecordEvent(CUcontext, CUevent);
CUresult CUDAAPI cuCtxWaitEvent(CUcontext, CUevent);
#endif
#if CUDA_VERSION < 12060
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
CUresult CUDAAPI cuMemBatchDecompressAsync(CUmemDecompressParams *, size_t, unsigned int, size_t *,
                                           CUstream);
CUresult CUDAAPI cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams *, size_t, unsigned int,
                                                size_t *, CUstream);
#endif
#if CUDA_VERSION < 12080
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st CUDA_MEMCPY3D_BATCH_OP;
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                    CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                         CUmemcpyAttributes *, size_t *, size_t, size_t *,
                                         CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *,
                                      unsigned long long, CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_ptsz(size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *,
                                           unsigned long long, CUstream);
#endif
#if CUDA_VERSION < 13000
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext);
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                       CUmemcpyAttributes *, size_t *, size_t, CUstream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t,
                                            CUmemcpyAttributes *, size_t *, size_t, CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long,
                                         CUstream);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long,
                                              CUstream);
CUresult CUDAAPI cuMemPrefetchBatchAsync(CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *,
                                         size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *, size_t *, size_t, CUmemLocation *,
                                              size_t *, size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardBatchAsync(CUdeviceptr *, size_t *, size_t, unsigned long long,
                                        CUstream);
CUresult CUDAAPI cuMemDiscardBatchAsync_ptsz(CUdeviceptr *, size_t *, size_t, unsigned long long,
                                             CUstream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *, size_t *, size_t, CUmemLocation *,
                                                   size_t *, size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *, size_t *, size_t,
                                                        CUmemLocation *, size_t *, size_t,
                                                        unsigned long long, CUstream);
#endif

#endif
