/*
 * Managed memory's hints: prefetch, advice, attachment. Managed memory here is host memory that
 * every device reaches, so hints change nothing but what cuMemRangeGetAttribute answers about the
 * last prefetch; arguments are checked, and a prefetch takes its place in the stream.
 */
#include "sim.h"

#include <string.h>

/* The managed range that holds all of [address, address+size), or NULL. */
static struct sim_range *managed(CUdeviceptr address, size_t size)
{
    struct sim_range *range = sim_range_at(address);
    return range != NULL && range->kind == SIM_MANAGED && size > 0 && size <= range->size &&
                   address - range->base <= range->size - size
               ? range
               : NULL;
}

static bool good_place(int device)
{
    return device == CU_DEVICE_CPU || sim_device(device) != NULL;
}

static CUresult prefetch(CUdeviceptr address, size_t size, int device, CUstream handle, bool pt)
{
    if (!good_place(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    struct sim_range *range = managed(address, size);
    if (result == CUDA_SUCCESS && range == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct sim_work work = {.kind = SIM_W_NOP, .what = "cuMemPrefetchAsync"};
        range->prefetched = device + 2; /* CU_DEVICE_CPU is -1, never is 0 */
        result = sim_submit(stream, &work, NULL);
    }
    sim_unlock();
    return result;
}

static int place(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id
           : location.type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU
                                                        : CU_DEVICE_INVALID;
}

SIM_TWINS(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz,
          (CUdeviceptr address, size_t size, CUdevice device, CUstream stream),
          prefetch(address, size, device, stream, pt))
SIM_TWINS(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz,
          (CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
           CUstream stream),
          flags != 0 ? CUDA_ERROR_INVALID_VALUE
                     : prefetch(address, size, place(location), stream, pt))

/* One after the other; a GPU gives a batch no order. */
static CUresult prefetch_batch(CUdeviceptr *list, size_t *sizes, size_t count,
                               CUmemLocation *places, size_t *starts, size_t place_count,
                               unsigned long long flags, CUstream stream, bool pt)
{
    if (list == NULL || sizes == NULL || count == 0 || places == NULL || starts == NULL ||
        place_count == 0 || place_count > count || starts[0] != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == NULL || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_HANDLE;
    size_t which = 0;
    for (size_t i = 0; i < count; i++) {
        if (which + 1 < place_count && starts[which + 1] == i)
            which++;
        CUresult result = prefetch(list[i], sizes[i], place(places[which]), stream, pt);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}
SIM_TWINS(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz,
          (CUdeviceptr * list, size_t *sizes, size_t count, CUmemLocation *places, size_t *starts,
           size_t place_count, unsigned long long flags, CUstream stream),
          prefetch_batch(list, sizes, count, places, starts, place_count, flags, stream, pt))

static CUresult advise(CUdeviceptr address, size_t size, CUmem_advise advice, int device)
{
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    if (advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION && !good_place(device))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    bool good = managed(address, size) != NULL;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device)
{
    SIM_ENTRY(cuMemAdvise);
    return advise(address, size, advice, device);
}

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice,
                                CUmemLocation location)
{
    SIM_ENTRY(cuMemAdvise_v2);
    return advise(address, size, advice, place(location));
}

CUresult CUDAAPI cuMemRangeGetAttribute(void *data, size_t room, CUmem_range_attribute name,
                                        CUdeviceptr address, size_t size)
{
    SIM_ENTRY(cuMemRangeGetAttribute);
    if (data == NULL || room < 4)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_range *range = managed(address, size);
    CUresult result = range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (range != NULL) {
        int value = 0;
        if (name == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)
            value = CU_DEVICE_INVALID;
        else if (name == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
            value = range->prefetched != 0 ? range->prefetched - 2 : CU_DEVICE_INVALID;
        else if (name != CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)
            result = CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS)
            memcpy(data, &value, sizeof value);
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemRangeGetAttributes(void **data, size_t *rooms, CUmem_range_attribute *names,
                                         size_t count, CUdeviceptr address, size_t size)
{
    SIM_ENTRY(cuMemRangeGetAttributes);
    if (data == NULL || rooms == NULL || names == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = cuMemRangeGetAttribute(data[i], rooms[i], names[i], address, size);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static CUresult attach(CUstream handle, bool pt, CUdeviceptr address, unsigned flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
        flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && managed(address, 1) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct sim_work work = {.kind = SIM_W_NOP, .what = "cuStreamAttachMemAsync"};
        result = sim_submit(stream, &work, NULL);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz,
          (CUstream stream, CUdeviceptr address, size_t length, unsigned int flags),
          ((void)length, attach(stream, pt, address, flags)))
