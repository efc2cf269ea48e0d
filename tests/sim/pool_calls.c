/*
 * The calls of memory pools: made and destroyed, trimmed, asked, set; who has access; which one is
 * current. What they hold and give out is pool.c's.
 */
#include "pool.h"

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    SIM_ENTRY(cuMemPoolCreate);
    if (out == NULL || props == NULL || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_device *device = sim_device(props->location.id);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    *out = (CUmemoryPool)sim_pool_new(device, props);
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle)
{
    SIM_ENTRY(cuMemPoolDestroy);
    sim_lock();
    struct sim_pool *pool = sim_pool_any(handle);
    bool good = pool != NULL && !pool->destroyed && pool != pool->device->default_pool;
    if (good) {
        if (pool->device->pool == pool)
            pool->device->pool = sim_pool_default(pool->device);
        pool->destroyed = true;
        sim_pool_drop(pool);
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    SIM_ENTRY(cuMemPoolTrimTo);
    sim_lock();
    struct sim_pool *pool = sim_pool_own(handle);
    if (pool != NULL)
        sim_pool_shrink(pool, keep);
    sim_unlock();
    return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static size_t *counter(struct sim_pool *pool, CUmemPool_attribute name, bool *settable)
{
    *settable = false;
    switch (name) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *settable = true;
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static int *reuse_flag(struct sim_pool *pool, CUmemPool_attribute name)
{
    return name >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                   name <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
               ? &pool->reuse[name - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES]
               : NULL;
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute name, void *value)
{
    SIM_ENTRY(cuMemPoolGetAttribute);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_pool *pool = sim_pool_own(handle);
    CUresult result = pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (pool != NULL) {
        bool settable;
        const int *flag = reuse_flag(pool, name);
        const size_t *number = counter(pool, name, &settable);
        if (flag != NULL)
            *(int *)value = *flag;
        else if (number != NULL)
            *(cuuint64_t *)value = *number;
        else
            result = CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute name, void *value)
{
    SIM_ENTRY(cuMemPoolSetAttribute);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_pool *pool = sim_pool_own(handle);
    CUresult result = pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (pool != NULL) {
        bool settable;
        int *flag = reuse_flag(pool, name);
        size_t *number = counter(pool, name, &settable);
        if (flag != NULL) {
            *flag = *(const int *)value;
        } else if (number != NULL && settable) {
            *number = *(const cuuint64_t *)value;
        } else if (*(const cuuint64_t *)value == 0 && name == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
            pool->used_high = pool->used;
        } else if (*(const cuuint64_t *)value == 0 && name == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
            pool->reserved_high = pool->reserved;
        } else {
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *desc, size_t count)
{
    SIM_ENTRY(cuMemPoolSetAccess);
    if (desc == NULL && count > 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_pool *pool = sim_pool_any(handle);
    CUresult result = pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const struct sim_device *device = sim_device(desc[i].location.id);
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device == NULL)
            result = CUDA_ERROR_INVALID_DEVICE;
        else if (device == pool->device && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (device != pool->device && !sim_peer_reach(device->index, pool->device->index))
            result = CUDA_ERROR_INVALID_DEVICE;
        else
            pool->access[device->index] = desc[i].flags;
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                    CUmemLocation *location)
{
    SIM_ENTRY(cuMemPoolGetAccess);
    sim_lock();
    struct sim_pool *pool = sim_pool_any(handle);
    bool good = pool != NULL && flags != NULL && location != NULL &&
                location->type == CU_MEM_LOCATION_TYPE_DEVICE && sim_device(location->id) != NULL;
    if (good)
        *flags = (CUmemAccess_flags)pool->access[location->id];
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult device_pool(CUmemoryPool *out, CUdevice dev, bool current)
{
    struct sim_device *device = sim_device(dev);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_pool *standard = sim_pool_default(device);
    *out = (CUmemoryPool)(current ? device->pool : standard);
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice dev)
{
    SIM_ENTRY(cuDeviceGetDefaultMemPool);
    return device_pool(out, dev, false);
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *out, CUdevice dev)
{
    SIM_ENTRY(cuDeviceGetMemPool);
    return device_pool(out, dev, true);
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
    SIM_ENTRY(cuDeviceSetMemPool);
    struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    sim_pool_default(device);
    struct sim_pool *pool = sim_pool_own(handle);
    bool good = pool != NULL && !pool->destroyed && pool->device == device;
    if (good)
        device->pool = pool;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- by location (13.0): pinned memory of devices only ------------------------------------------
 */
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type)
{
    if (location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_device(location->id) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location,
                                        CUmemAllocationType type)
{
    SIM_ENTRY(cuMemGetDefaultMemPool);
    CUresult result = check_location(location, type);
    return result == CUDA_SUCCESS ? device_pool(out, location->id, false) : result;
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location,
                                 CUmemAllocationType type)
{
    SIM_ENTRY(cuMemGetMemPool);
    CUresult result = check_location(location, type);
    return result == CUDA_SUCCESS ? device_pool(out, location->id, true) : result;
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                 CUmemoryPool handle)
{
    SIM_ENTRY(cuMemSetMemPool);
    CUresult result = check_location(location, type);
    return result == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, handle) : result;
}
