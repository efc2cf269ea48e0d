/*
 * Copies in batches. On a GPU the copies of a batch have no order among themselves; here each is an
 * op of its own in the stream, one after the other, so that a program that counts on their order is
 * not found out.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* A source that has to be read before the call returns; pageable ones are anyway. */
static void stage(struct sim_work *work)
{
    sim_lock();
    const struct sim_range *range = sim_range_at(work->copy.from.address);
    if (range != NULL && (range->kind == SIM_HOST || range->kind == SIM_REGISTERED) &&
        work->copy.from.address - range->base + work->copy.width <= range->size) {
        work->copy.staging = malloc(work->copy.width);
        if (work->copy.staging == NULL)
            abort();
        memcpy(work->copy.staging, (const void *)(uintptr_t)work->copy.from.address,
               work->copy.width);
    }
    sim_unlock();
}

static CUresult copy(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                     const CUmemcpyAttributes *attributes, const size_t *starts,
                     size_t attribute_count, CUstream stream, bool pt, size_t *failed)
{
    if (failed != NULL)
        *failed = SIZE_MAX; /* of no particular copy */
    if (to == NULL || from == NULL || sizes == NULL || count == 0 || attributes == NULL ||
        starts == NULL || attribute_count == 0 || attribute_count > count || starts[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == NULL || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_HANDLE; /* documented: not on the legacy stream */
    for (size_t i = 0; i < attribute_count; i++) {
        if ((i > 0 && starts[i] <= starts[i - 1]) || starts[i] >= count ||
            attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
            return CUDA_ERROR_INVALID_VALUE;
    }
    size_t which = 0;
    for (size_t i = 0; i < count; i++) {
        struct sim_work work = {.kind = SIM_W_COPY, .what = "cuMemcpyBatchAsync"};
        work.copy.from =
            (struct sim_end){.address = from[i], .pitch = sizes[i], .height = 1, .host_ok = true};
        work.copy.to =
            (struct sim_end){.address = to[i], .pitch = sizes[i], .height = 1, .host_ok = true};
        work.copy.width = sizes[i];
        work.copy.height = work.copy.depth = 1;
        if (which + 1 < attribute_count && starts[which + 1] == i)
            which++;
        if (attributes[which].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL &&
            sizes[i] > 0)
            stage(&work);
        CUresult result =
            sizes[i] == 0 ? CUDA_ERROR_INVALID_VALUE : sim_copy_submit(stream, pt, &work, false);
        if (result != CUDA_SUCCESS) {
            if (failed != NULL)
                *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

SIM_TWINS(cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz,
          (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
           CUmemcpyAttributes *attributes, size_t *starts, size_t attribute_count, size_t *failed,
           CUstream stream),
          copy(to, from, sizes, count, attributes, starts, attribute_count, stream, pt, failed))
SIM_TWINS(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz,
          (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
           CUmemcpyAttributes *attributes, size_t *starts, size_t attribute_count, CUstream stream),
          copy(to, from, sizes, count, attributes, starts, attribute_count, stream, pt, NULL))
