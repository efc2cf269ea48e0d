/*
 * Submitting entry points that copy and fill (see submit_rows.h for what a row says).
 */
#ifndef VS_SHIM_SUBMIT_COPIES_H
#define VS_SHIM_SUBMIT_COPIES_H

/* clang-format off */
#define VS_SUBMIT_COPIES(R, X) \
    R(X, cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned int bytes), \
      (to, from, bytes), NULL, VS_SUBMIT_LEGACY, NOW) \
    R(X, cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned int bytes), \
      (to, from, bytes), NULL, VS_SUBMIT_LEGACY, NOW) \
    R(X, cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes), \
      (to, from, bytes), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemcpyDtoA, (CUarray to, unsigned int to_at, CUdeviceptr_v1 from, \
      unsigned int bytes), (to, to_at, from, bytes), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned int from_at, \
      unsigned int bytes), (to, from, from_at, bytes), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemcpyHtoA, (CUarray to, unsigned int to_at, const void *from, unsigned int bytes), \
      (to, to_at, from, bytes), NULL, VS_SUBMIT_LEGACY, NOW) \
    R(X, cuMemcpyAtoH, (void *to, CUarray from, unsigned int from_at, unsigned int bytes), \
      (to, from, from_at, bytes), NULL, VS_SUBMIT_LEGACY, NOW) \
    R(X, cuMemcpyAtoA, (CUarray to, unsigned int to_at, CUarray from, unsigned int from_at, \
      unsigned int bytes), (to, to_at, from, from_at, bytes), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemcpyHtoAAsync, (CUarray to, unsigned int to_at, const void *from, \
      unsigned int bytes, CUstream stream), \
      (to, to_at, from, bytes, stream), stream, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemcpyAtoHAsync, (void *to, CUarray from, unsigned int from_at, unsigned int bytes, \
      CUstream stream), (to, from, from_at, bytes, stream), stream, VS_SUBMIT_LEGACY, YES) \
    R(X, cuMemcpy2D, (const CUDA_MEMCPY2D_v1 *copy), (copy), NULL, VS_SUBMIT_LEGACY, NOW) \
    R(X, cuMemcpy2DUnaligned, (const CUDA_MEMCPY2D_v1 *copy), \
      (copy), NULL, VS_SUBMIT_LEGACY, NOW) \
    R(X, cuMemcpy3D, (const CUDA_MEMCPY3D_v1 *copy), (copy), NULL, VS_SUBMIT_LEGACY, NOW) \
    R(X, cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned int bytes, \
      CUstream stream), (to, from, bytes, stream), stream, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, unsigned int bytes, \
      CUstream stream), (to, from, bytes, stream), stream, VS_SUBMIT_LEGACY, YES) \
    R(X, cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes, \
      CUstream stream), (to, from, bytes, stream), stream, VS_SUBMIT_LEGACY, POINTER(to)) \
    R(X, cuMemcpy2DAsync, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), \
      (copy, stream), stream, VS_SUBMIT_LEGACY, YES) \
    R(X, cuMemcpy3DAsync, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), \
      (copy, stream), stream, VS_SUBMIT_LEGACY, YES) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void *from, \
      size_t bytes), (to, from, bytes), NULL, NOW) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyDtoH_v2, _ptds, (void *to, CUdeviceptr from, size_t bytes), \
      (to, from, bytes), NULL, NOW) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, \
      size_t bytes), (to, from, bytes), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyDtoA_v2, _ptds, (CUarray to, size_t to_at, CUdeviceptr from, \
      size_t bytes), (to, to_at, from, bytes), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyAtoD_v2, _ptds, (CUdeviceptr to, CUarray from, \
      size_t from_at, size_t bytes), (to, from, from_at, bytes), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyHtoA_v2, _ptds, (CUarray to, size_t to_at, const void *from, \
      size_t bytes), (to, to_at, from, bytes), NULL, NOW) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyAtoH_v2, _ptds, (void *to, CUarray from, size_t from_at, \
      size_t bytes), (to, from, from_at, bytes), NULL, NOW) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyAtoA_v2, _ptds, (CUarray to, size_t to_at, CUarray from, \
      size_t from_at, size_t bytes), (to, to_at, from, from_at, bytes), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyHtoAAsync_v2, _ptsz, (CUarray to, size_t to_at, \
      const void *from, size_t bytes, CUstream stream), \
      (to, to_at, from, bytes, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyAtoHAsync_v2, _ptsz, (void *to, CUarray from, size_t from_at, \
      size_t bytes, CUstream stream), (to, from, from_at, bytes, stream), stream, YES) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *copy), \
      (copy), NULL, NOW_2D(copy)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *copy), \
      (copy), NULL, NOW_2D(copy)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *copy), \
      (copy), NULL, NOW_3D(copy)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void *from, \
      size_t bytes, CUstream stream), (to, from, bytes, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyDtoHAsync_v2, _ptsz, (void *to, CUdeviceptr from, \
      size_t bytes, CUstream stream), (to, from, bytes, stream), stream, YES) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, \
      size_t bytes, CUstream stream), (to, from, bytes, stream), stream, POINTER(to)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *copy, \
      CUstream stream), (copy, stream), stream, OF_2D(copy)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *copy, \
      CUstream stream), (copy, stream), stream, OF_3D(copy)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), \
      (to, from, bytes), NULL, NOW_POINTERS(to, from)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, \
      size_t bytes, CUstream stream), (to, from, bytes, stream), stream, POINTER(to)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyPeer, _ptds, (CUdeviceptr to, CUcontext to_context, \
      CUdeviceptr from, CUcontext from_context, size_t bytes), \
      (to, to_context, from, from_context, bytes), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyPeerAsync, _ptsz, (CUdeviceptr to, CUcontext to_context, \
      CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream), \
      (to, to_context, from, from_context, bytes, stream), stream, POINTER(to)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *copy), \
      (copy), NULL, NOW_3D_PEER(copy)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *copy, \
      CUstream stream), (copy, stream), stream, OF_3D_PEER(copy)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyBatchAsync, _ptsz, (CUdeviceptr *to, CUdeviceptr *from, \
      size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, \
      size_t numAttrs, size_t *failIdx, CUstream stream), \
      (to, from, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, stream), \
      stream, OF_BATCH(to, count)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy3DBatchAsync, _ptsz, (size_t numOps, \
      CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags, \
      CUstream stream), (numOps, opList, failIdx, flags, stream), stream, YES) \
    VS_SUBMIT_TWINS(R, X, cuMemcpyBatchAsync_v2, _ptsz, (CUdeviceptr *to, CUdeviceptr *from, \
      size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, \
      size_t numAttrs, CUstream stream), \
      (to, from, sizes, count, attrs, attrsIdxs, numAttrs, stream), \
      stream, OF_BATCH(to, count)) \
    VS_SUBMIT_TWINS(R, X, cuMemcpy3DBatchAsync_v2, _ptsz, (size_t numOps, \
      CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream stream), \
      (numOps, opList, flags, stream), stream, YES)

#define VS_SUBMIT_FILLS(R, X) \
    R(X, cuMemsetD8, (CUdeviceptr_v1 to, unsigned char value, unsigned int n), \
      (to, value, n), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemsetD16, (CUdeviceptr_v1 to, unsigned short value, unsigned int n), \
      (to, value, n), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemsetD32, (CUdeviceptr_v1 to, unsigned int value, unsigned int n), \
      (to, value, n), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemsetD2D8, (CUdeviceptr_v1 to, unsigned int pitch, unsigned char value, \
      unsigned int width, unsigned int height), \
      (to, pitch, value, width, height), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemsetD2D16, (CUdeviceptr_v1 to, unsigned int pitch, unsigned short value, \
      unsigned int width, unsigned int height), \
      (to, pitch, value, width, height), NULL, VS_SUBMIT_LEGACY, NO) \
    R(X, cuMemsetD2D32, (CUdeviceptr_v1 to, unsigned int pitch, unsigned int value, \
      unsigned int width, unsigned int height), \
      (to, pitch, value, width, height), NULL, VS_SUBMIT_LEGACY, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char value, \
      size_t n), (to, value, n), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short value, \
      size_t n), (to, value, n), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned int value, \
      size_t n), (to, value, n), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD2D8_v2, _ptds, (CUdeviceptr to, size_t pitch, \
      unsigned char value, size_t width, size_t height), \
      (to, pitch, value, width, height), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD2D16_v2, _ptds, (CUdeviceptr to, size_t pitch, \
      unsigned short value, size_t width, size_t height), \
      (to, pitch, value, width, height), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD2D32_v2, _ptds, (CUdeviceptr to, size_t pitch, \
      unsigned int value, size_t width, size_t height), \
      (to, pitch, value, width, height), NULL, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD8Async, _ptsz, (CUdeviceptr to, unsigned char value, \
      size_t n, CUstream stream), (to, value, n, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD16Async, _ptsz, (CUdeviceptr to, unsigned short value, \
      size_t n, CUstream stream), (to, value, n, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD32Async, _ptsz, (CUdeviceptr to, unsigned int value, \
      size_t n, CUstream stream), (to, value, n, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD2D8Async, _ptsz, (CUdeviceptr to, size_t pitch, \
      unsigned char value, size_t width, size_t height, CUstream stream), \
      (to, pitch, value, width, height, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD2D16Async, _ptsz, (CUdeviceptr to, size_t pitch, \
      unsigned short value, size_t width, size_t height, CUstream stream), \
      (to, pitch, value, width, height, stream), stream, NO) \
    VS_SUBMIT_TWINS(R, X, cuMemsetD2D32Async, _ptsz, (CUdeviceptr to, size_t pitch, \
      unsigned int value, size_t width, size_t height, CUstream stream), \
      (to, pitch, value, width, height, stream), stream, NO)
/* clang-format on */

#endif
