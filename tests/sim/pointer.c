/*
 * Pointer attributes: what an address belongs to.
 */
#include "sim.h"

#include <string.h>

/* cuPointerGetAttributes gives 0 for an attribute that the address does not have. */
static size_t width(CUpointer_attribute name)
{
    switch (name) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: /* truths are 4 bytes wide (measured) */
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return 4;
    default:
        return 8;
    }
}

static bool host_visible(const struct sim_range *range)
{
    return range->kind == SIM_HOST || range->kind == SIM_REGISTERED || range->kind == SIM_MANAGED;
}

static CUresult attribute(void *out, CUpointer_attribute name, CUdeviceptr address,
                          const struct sim_range *range)
{
    CUdeviceptr pointer = address;
    unsigned word = 0;
    size_t number = 0;
    unsigned truth = 0;
    const void *data = &number;
    switch (name) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        data = &range->ctx;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        word = range->kind == SIM_HOST || range->kind == SIM_REGISTERED ? CU_MEMORYTYPE_HOST
                                                                        : CU_MEMORYTYPE_DEVICE;
        data = &word;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        data = &pointer;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host_visible(range))
            return CUDA_ERROR_INVALID_VALUE;
        data = &pointer;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        truth = range->sync_memops;
        data = &truth;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        data = &range->id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        truth = range->kind == SIM_MANAGED;
        data = &truth;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        word = (unsigned)range->device->index;
        data = &word;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        truth = range->kind == SIM_ALLOC;
        data = &truth;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        pointer = range->base;
        data = &pointer;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        number = range->size;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        pointer = range->base;
        data = &pointer;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        truth = range->kind != SIM_RESERVED;
        data = &truth;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        word = range->kind == SIM_MAPPED ? range->access[range->device->index]
                                         : (unsigned)CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        data = &word;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: /* NULL where there is none (documented) */
        data = &range->pool;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        data = &truth;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(out, data, width(name));
    return CUDA_SUCCESS;
}

static const struct sim_range *lookup(CUdeviceptr address)
{
    const struct sim_range *range = sim_range_at(address);
    return range != NULL && range->kind != SIM_RESERVED ? range : NULL;
}

CUresult CUDAAPI cuPointerGetAttribute(void *out, CUpointer_attribute name, CUdeviceptr address)
{
    SIM_ENTRY(cuPointerGetAttribute);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_range *range = lookup(address);
    CUresult result =
        range != NULL ? attribute(out, name, address, range) : CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute *names, void **out,
                                        CUdeviceptr address)
{
    SIM_ENTRY(cuPointerGetAttributes);
    if (count == 0 || names == NULL || out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_range *range = lookup(address);
    for (unsigned i = 0; i < count; i++) {
        if (range != NULL && attribute(out[i], names[i], address, range) == CUDA_SUCCESS)
            continue;
        /* A range has no default: it is left as it was (measured). */
        if (names[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
            names[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            continue;
        memset(out[i], 0, width(names[i]));
        if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)out[i] = CU_DEVICE_INVALID;
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute name,
                                       CUdeviceptr address)
{
    SIM_ENTRY(cuPointerSetAttribute);
    if (value == NULL || name != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_range *range = sim_range_at(address);
    if (range != NULL)
        range->sync_memops = *(const unsigned *)value != 0;
    sim_unlock();
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
