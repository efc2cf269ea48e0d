/*
 * Copies and fills, all common forms. Each entry point becomes one `sim_work`.
 *
 * Checked when called, as the driver does: device addresses have to be accessible then
 * (INVALID_VALUE). Synchronous forms wait where the driver's do: when host memory is on one side.
 * Pageable host memory in asynchronous forms: the source is taken at the call, and a copy to it has
 * happened when the call returns.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* Whether all of it can be reached at all; pageable host memory is fine where host_ok, memory that
 * a graph is yet to allocate where the copy becomes a node. */
static bool reachable(CUdeviceptr address, size_t size, bool host_ok, bool node)
{
    if (address == 0 || size == 0 || address + size < address)
        return address != 0 && size == 0;
    for (CUdeviceptr at = address; at < address + size;) {
        const struct sim_range *range = sim_range_at(at);
        if (range == NULL)
            return host_ok && !sim_va_device(at);
        if (range->kind == SIM_RESERVED || (range->kind == SIM_GRAPH && range->dying && !node))
            return false;
        at = range->base + range->size;
    }
    return true;
}

static bool pageable(const struct sim_end *end)
{
    return end->phys == NULL && end->host_ok && sim_range_at(end->address) == NULL;
}

static bool on_host(const struct sim_end *end)
{
    if (end->phys != NULL)
        return false;
    const struct sim_range *range = sim_range_at(end->address);
    return range == NULL || range->kind == SIM_HOST || range->kind == SIM_REGISTERED;
}

static size_t extent(const struct sim_end *end, const struct sim_work *work)
{
    return (work->copy.depth - 1) * end->pitch * end->height +
           (work->copy.height - 1) * end->pitch + work->copy.width;
}

bool sim_copy_reachable(const struct sim_work *work, bool node)
{
    const struct sim_end *from = &work->copy.from, *to = &work->copy.to;
    return (from->phys != NULL ||
            reachable(from->address, extent(from, work), from->host_ok, node)) &&
           (to->phys != NULL || reachable(to->address, extent(to, work), to->host_ok, node));
}

/* Submits a copy (taken over). wait: the entry point is a synchronous one. */
static CUresult submit_copy(CUstream handle, bool pt, struct sim_work *work, bool wait)
{
    struct sim_end *from = &work->copy.from, *to = &work->copy.to;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    bool empty = work->copy.width == 0 || work->copy.height == 0 || work->copy.depth == 0;
    if (result == CUDA_SUCCESS && !empty && !sim_copy_reachable(work, sim_capturing(stream)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || empty) {
        sim_work_fini(work);
        sim_unlock();
        return result;
    }
    bool capturing = sim_capturing(stream);
    bool from_pageable = pageable(from), to_pageable = pageable(to);
    if (wait && capturing) {
        sim_work_fini(work);
        result = sim_capture_context_op(stream->ctx);
        sim_unlock();
        return result;
    }
    if (wait)
        wait = on_host(from) || on_host(to);
    else if (to_pageable)
        wait = !capturing;
    if (from_pageable && !wait && !capturing) {
        size_t size = extent(from, work);
        work->copy.staging = malloc(size);
        if (work->copy.staging == NULL)
            abort();
        memcpy(work->copy.staging, (const void *)(uintptr_t)from->address, size);
    }
    struct sim_op *op;
    result = sim_submit(stream, work, &op);
    if (result == CUDA_SUCCESS && wait && op != NULL) {
        CUcontext ctx = op->ctx;
        sim_op_wait(op);
        result = ctx->sticky;
    }
    sim_op_unref(op);
    sim_unlock();
    return result;
}

CUresult sim_copy_submit(CUstream handle, bool pt, struct sim_work *work, bool wait)
{
    return submit_copy(handle, pt, work, wait);
}

enum { DEVICE, HOST, ANY };

static CUresult linear(CUdeviceptr to, int to_kind, CUdeviceptr from, int from_kind, size_t size,
                       CUstream stream, bool pt, bool wait, const char *what)
{
    struct sim_work work = {.kind = SIM_W_COPY, .what = what};
    work.copy.from = (struct sim_end){from, NULL, size, 1, from_kind != DEVICE};
    work.copy.to = (struct sim_end){to, NULL, size, 1, to_kind != DEVICE};
    work.copy.width = size;
    work.copy.height = work.copy.depth = 1;
    return submit_copy(stream, pt, &work, wait);
}

#define PTR(host) ((CUdeviceptr)(uintptr_t)(host))

SIM_TWINS(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t size),
          linear(to, ANY, from, ANY, size, NULL, pt, true, "cuMemcpy"))
SIM_TWINS(cuMemcpyAsync, cuMemcpyAsync_ptsz,
          (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
          linear(to, ANY, from, ANY, size, stream, pt, false, "cuMemcpyAsync"))
SIM_TWINS(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void *from, size_t size),
          linear(to, DEVICE, PTR(from), HOST, size, NULL, pt, true, "cuMemcpyHtoD"))
SIM_TWINS(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void *to, CUdeviceptr from, size_t size),
          linear(PTR(to), HOST, from, DEVICE, size, NULL, pt, true, "cuMemcpyDtoH"))
SIM_TWINS(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t size),
          linear(to, DEVICE, from, DEVICE, size, NULL, pt, true, "cuMemcpyDtoD"))
SIM_TWINS(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
          (CUdeviceptr to, const void *from, size_t size, CUstream stream),
          linear(to, DEVICE, PTR(from), HOST, size, stream, pt, false, "cuMemcpyHtoDAsync"))
SIM_TWINS(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
          (void *to, CUdeviceptr from, size_t size, CUstream stream),
          linear(PTR(to), HOST, from, DEVICE, size, stream, pt, false, "cuMemcpyDtoHAsync"))
SIM_TWINS(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
          (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
          linear(to, DEVICE, from, DEVICE, size, stream, pt, false, "cuMemcpyDtoDAsync"))

/* ---- arrays, linear ---------------------------------------------------------------------------
 */
static CUresult array_copy(CUarray to, size_t to_at, CUdeviceptr to_address, CUarray from,
                           size_t from_at, CUdeviceptr from_address, bool host, size_t size,
                           CUstream stream, bool pt, bool wait, const char *what)
{
    struct sim_work work = {.kind = SIM_W_COPY, .what = what};
    work.copy.from = (struct sim_end){from_address, NULL, size, 1, host};
    work.copy.to = (struct sim_end){to_address, NULL, size, 1, host};
    work.copy.width = size;
    work.copy.height = work.copy.depth = 1;
    sim_lock();
    bool good = (from_address != 0 || sim_array_linear(from, from_at, size, &work.copy.from)) &&
                (to_address != 0 || sim_array_linear(to, to_at, size, &work.copy.to));
    if (!good)
        sim_work_fini(&work);
    sim_unlock();
    return good ? submit_copy(stream, pt, &work, wait) : CUDA_ERROR_INVALID_VALUE;
}

SIM_TWINS(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds,
          (CUarray to, size_t at, const void *from, size_t size),
          array_copy(to, at, 0, NULL, 0, PTR(from), true, size, NULL, pt, true, "cuMemcpyHtoA"))
SIM_TWINS(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, (void *to, CUarray from, size_t at, size_t size),
          array_copy(NULL, 0, PTR(to), from, at, 0, true, size, NULL, pt, true, "cuMemcpyAtoH"))
SIM_TWINS(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds,
          (CUarray to, size_t at, CUdeviceptr from, size_t size),
          array_copy(to, at, 0, NULL, 0, from, false, size, NULL, pt, true, "cuMemcpyDtoA"))
SIM_TWINS(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds,
          (CUdeviceptr to, CUarray from, size_t at, size_t size),
          array_copy(NULL, 0, to, from, at, 0, false, size, NULL, pt, true, "cuMemcpyAtoD"))
SIM_TWINS(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds,
          (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t size),
          array_copy(to, to_at, 0, from, from_at, 0, false, size, NULL, pt, true, "cuMemcpyAtoA"))
SIM_TWINS(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz,
          (CUarray to, size_t at, const void *from, size_t size, CUstream stream),
          array_copy(to, at, 0, NULL, 0, PTR(from), true, size, stream, pt, false,
                     "cuMemcpyHtoAAsync"))
SIM_TWINS(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz,
          (void *to, CUarray from, size_t at, size_t size, CUstream stream),
          array_copy(NULL, 0, PTR(to), from, at, 0, true, size, stream, pt, false,
                     "cuMemcpyAtoHAsync"))

/* ---- boxes ------------------------------------------------------------------------------------
 */
static bool box_end(struct sim_end *end, CUmemorytype type, const void *host, CUdeviceptr device,
                    CUarray array, size_t pitch, size_t height, size_t x, size_t y, size_t z,
                    const struct sim_work *work)
{
    bool good;
    *end = (struct sim_end){.pitch = pitch, .height = height};
    size_t offset = (z * height + y) * pitch + x;
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        end->address = PTR(host) + offset;
        end->host_ok = true;
        return host != NULL && work->copy.width <= pitch;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        end->address = device + offset;
        end->host_ok = type == CU_MEMORYTYPE_UNIFIED;
        return device != 0 && work->copy.width <= pitch;
    case CU_MEMORYTYPE_ARRAY:
        sim_lock();
        good = sim_array_end(array, x, y, z, work->copy.width, work->copy.height, work->copy.depth,
                             end);
        sim_unlock();
        return good;
    default:
        return false;
    }
}

static CUresult copy_2d(const CUDA_MEMCPY2D *box, CUstream stream, bool pt, bool wait)
{
    if (box == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_W_COPY, .what = wait ? "cuMemcpy2D" : "cuMemcpy2DAsync"};
    size_t from_pitch = box->srcPitch != 0 ? box->srcPitch : box->WidthInBytes;
    size_t to_pitch = box->dstPitch != 0 ? box->dstPitch : box->WidthInBytes;
    work.copy.width = box->WidthInBytes;
    work.copy.height = box->Height;
    work.copy.depth = 1;
    if (!box_end(&work.copy.from, box->srcMemoryType, box->srcHost, box->srcDevice, box->srcArray,
                 from_pitch, box->srcY + box->Height, box->srcXInBytes, box->srcY, 0, &work) ||
        !box_end(&work.copy.to, box->dstMemoryType, box->dstHost, box->dstDevice, box->dstArray,
                 to_pitch, box->dstY + box->Height, box->dstXInBytes, box->dstY, 0, &work)) {
        sim_lock();
        sim_work_fini(&work);
        sim_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    return submit_copy(stream, pt, &work, wait);
}

SIM_TWINS(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *box),
          copy_2d(box, NULL, pt, true))
SIM_TWINS(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *box),
          copy_2d(box, NULL, pt, true))
SIM_TWINS(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *box, CUstream stream),
          copy_2d(box, stream, pt, false))

CUresult sim_copy_3d_work(const CUDA_MEMCPY3D *box, struct sim_work *work)
{
    if (box == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct sim_work){.kind = SIM_W_COPY, .what = "cuMemcpy3D"};
    size_t from_pitch = box->srcPitch != 0 ? box->srcPitch : box->WidthInBytes;
    size_t to_pitch = box->dstPitch != 0 ? box->dstPitch : box->WidthInBytes;
    size_t from_height = box->srcHeight != 0 ? box->srcHeight : box->Height;
    size_t to_height = box->dstHeight != 0 ? box->dstHeight : box->Height;
    work->copy.width = box->WidthInBytes;
    work->copy.height = box->Height;
    work->copy.depth = box->Depth;
    if (!box_end(&work->copy.from, box->srcMemoryType, box->srcHost, box->srcDevice, box->srcArray,
                 from_pitch, from_height, box->srcXInBytes, box->srcY, box->srcZ, work) ||
        !box_end(&work->copy.to, box->dstMemoryType, box->dstHost, box->dstDevice, box->dstArray,
                 to_pitch, to_height, box->dstXInBytes, box->dstY, box->dstZ, work)) {
        sim_lock();
        sim_work_fini(work);
        sim_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *box, CUstream stream, bool pt, bool wait)
{
    struct sim_work work;
    CUresult result = sim_copy_3d_work(box, &work);
    return result == CUDA_SUCCESS ? submit_copy(stream, pt, &work, wait) : result;
}

SIM_TWINS(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *box),
          copy_3d(box, NULL, pt, true))
SIM_TWINS(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *box, CUstream stream),
          copy_3d(box, stream, pt, false))

/* ---- fills ------------------------------------------------------------------------------------
 */
static CUresult fill(CUdeviceptr address, size_t pitch, unsigned element, unsigned value,
                     size_t width, size_t height, CUstream handle, bool pt, const char *what)
{
    if (address % element != 0 || (height > 1 && pitch < width * element))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_W_MEMSET, .what = what};
    work.set.address = address;
    work.set.pitch = height > 1 ? pitch : width * element;
    work.set.width = width;
    work.set.height = height;
    work.set.element = element;
    work.set.value = value;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    bool empty = width == 0 || height == 0;
    if (result == CUDA_SUCCESS && !empty &&
        !reachable(address, (height - 1) * work.set.pitch + width * element, false,
                   sim_capturing(stream)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !empty)
        result = sim_submit(stream, &work, NULL);
    sim_unlock();
    return result;
}

#define FILLS(bits, type)                                                                          \
    SIM_TWINS(cuMemsetD##bits##_v2, cuMemsetD##bits##_v2_ptds,                                     \
              (CUdeviceptr to, type value, size_t count),                                          \
              fill(to, 0, bits / 8, value, count, 1, NULL, pt, "cuMemsetD" #bits))                 \
    SIM_TWINS(cuMemsetD##bits##Async, cuMemsetD##bits##Async_ptsz,                                 \
              (CUdeviceptr to, type value, size_t count, CUstream stream),                         \
              fill(to, 0, bits / 8, value, count, 1, stream, pt, "cuMemsetD" #bits "Async"))       \
    SIM_TWINS(cuMemsetD2D##bits##_v2, cuMemsetD2D##bits##_v2_ptds,                                 \
              (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height),             \
              fill(to, pitch, bits / 8, value, width, height, NULL, pt, "cuMemsetD2D" #bits))      \
    SIM_TWINS(                                                                                     \
        cuMemsetD2D##bits##Async, cuMemsetD2D##bits##Async_ptsz,                                   \
        (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream),  \
        fill(to, pitch, bits / 8, value, width, height, stream, pt, "cuMemsetD2D" #bits "Async"))
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)
