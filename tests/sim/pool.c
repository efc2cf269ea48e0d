/*
 * Stream-ordered allocation and memory pools.
 *
 * An allocation gets its address at the call and takes effect in its stream; a free takes effect in
 * the stream it was given. Both are writes for the race detector, so a use that is not ordered
 * after the allocation and before the free is found. A pool holds memory of the device in steps of
 * 2 MiB: what is used plus what it keeps, and gives back what exceeds its threshold when the host
 * synchronises. Where an allocation does not fit, it waits for the frees that are under way.
 */
#include "pool.h"

#include <stdlib.h>

#define STEP ((size_t)2 << 20)

static struct sim_pool *pools, *dead_pools;

static size_t round_up(size_t size, size_t step)
{
    return (size + step - 1) / step * step;
}

struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *props)
{
    struct sim_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        abort();
    pool->magic = SIM_MAGIC_POOL;
    pool->device = device;
    pool->props = *props;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->access[device->index] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pool->next = pools;
    pools = pool;
    return pool;
}

static struct sim_pool *default_pool(struct sim_device *device)
{
    if (device->default_pool == NULL) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        props.location.id = device->index;
        device->default_pool = sim_pool_new(device, &props);
    }
    if (device->pool == NULL)
        device->pool = device->default_pool;
    return device->default_pool;
}

static struct sim_pool *pool_of(CUmemoryPool handle)
{
    struct sim_pool *pool = (struct sim_pool *)handle;
    return pool != NULL && pool->magic == SIM_MAGIC_POOL ? pool : NULL;
}

struct sim_pool *sim_pool_of(CUmemoryPool handle)
{
    struct sim_pool *pool = pool_of(handle);
    return pool != NULL && !pool->destroyed ? pool : NULL;
}

/* What an imported pool cannot do. */
static struct sim_pool *own_pool(CUmemoryPool handle)
{
    struct sim_pool *pool = pool_of(handle);
    return pool != NULL && !pool->imported ? pool : NULL;
}

static void shrink(struct sim_pool *pool, size_t keep)
{
    size_t needed = round_up(pool->used, STEP);
    if (keep < needed)
        keep = needed;
    if (pool->reserved > keep) {
        sim_machine_uncharge(pool->device->physical, pool->reserved - keep);
        pool->reserved = keep;
    }
}

static void drop(struct sim_pool *pool)
{
    if (!pool->destroyed || pool->live > 0)
        return;
    shrink(pool, 0);
    for (struct sim_pool **at = &pools; *at != NULL; at = &(*at)->next) {
        if (*at == pool) {
            *at = pool->next;
            break;
        }
    }
    pool->magic = SIM_MAGIC_DEAD; /* kept: a stale handle gets an error */
    pool->next = dead_pools;
    dead_pools = pool;
}

unsigned sim_pool_access(const struct sim_pool *pool, int device)
{
    return pool->access[device];
}

void sim_pools_synchronised(void)
{
    for (struct sim_pool *pool = pools; pool != NULL; pool = pool->next)
        shrink(pool, pool->threshold);
}

static bool grow(struct sim_pool *pool, size_t size)
{
    size_t wanted = round_up(pool->used + size, STEP);
    if (wanted > pool->reserved) {
        if (!sim_machine_charge(pool->device->physical, wanted - pool->reserved))
            return false;
        pool->reserved = wanted;
    }
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return true;
}

/* ---- allocation --------------------------------------------------------------------------------
 */
static CUresult pool_alloc(CUdeviceptr *out, size_t size, struct sim_pool *pool, CUstream stream)
{
    size_t span = round_up(size, 512);
    if (size > pool->device->total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    while (!grow(pool, span)) {
        if (pool->freeing == 0) {
            for (struct sim_pool *other = pools; other != NULL; other = other->next)
                shrink(other, 0);
            if (grow(pool, span))
                break;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        sim_ctx_wait_all(stream->ctx);
        if (pool->freeing > 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_phys *phys;
    CUresult result = sim_phys_new(-1, size, &phys);
    if (result != CUDA_SUCCESS)
        return result;
    phys->physical = pool->device->physical; /* charged by the pool */
    CUdeviceptr base = sim_va_find(span, 512, 0);
    struct sim_range *range = base != 0 ? sim_range_new(SIM_ASYNC, base, size, span, phys) : NULL;
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->ctx = stream->ctx;
    range->device = pool->device;
    range->pool = pool;
    pool->live++;
    pool->used += span;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    struct sim_work work = {.kind = SIM_W_ALLOC, .what = "cuMemAllocAsync"};
    work.memory.address = base;
    work.memory.id = range->id;
    *out = base;
    return sim_submit(stream, &work, NULL);
}

static CUresult alloc(CUdeviceptr *out, size_t size, CUmemoryPool handle, bool from_pool,
                      CUstream stream_handle, bool pt)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(stream_handle, pt, &stream);
    struct sim_pool *pool = NULL;
    if (result == CUDA_SUCCESS) {
        default_pool(stream->ctx->device);
        pool = from_pool ? own_pool(handle) : stream->ctx->device->pool;
        if (pool == NULL || pool->destroyed)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && size == 0) {
        *out = 0;
    } else if (result == CUDA_SUCCESS && sim_capturing(stream)) {
        result = sim_capture_mem_alloc(stream, &pool->props, size, out);
    } else if (result == CUDA_SUCCESS) {
        result = sim_capture_unsafe(stream->ctx);
        if (result == CUDA_SUCCESS)
            result = pool_alloc(out, size, pool, stream);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuMemAllocAsync, cuMemAllocAsync_ptsz, (CUdeviceptr * out, size_t size, CUstream stream),
          alloc(out, size, NULL, false, stream, pt))
SIM_TWINS(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz,
          (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream),
          alloc(out, size, pool, true, stream, pt))

void sim_pool_free_now(struct sim_range *range)
{
    struct sim_pool *pool = range->pool;
    if (pool != NULL) {
        pool->used -= range->span;
        pool->live--;
    }
    sim_range_free(range);
    if (pool != NULL)
        drop(pool);
}

static CUresult free_async(CUdeviceptr address, CUstream stream_handle, bool pt)
{
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(stream_handle, pt, &stream);
    if (result == CUDA_SUCCESS && sim_capturing(stream)) {
        result = sim_capture_mem_free(stream, address);
    } else if (result == CUDA_SUCCESS) {
        result = sim_capture_unsafe(stream->ctx);
        struct sim_range *range = sim_range_at(address);
        if (result == CUDA_SUCCESS && address != 0) {
            if (range == NULL || range->base != address || range->dying ||
                (range->kind != SIM_ASYNC && range->kind != SIM_ALLOC &&
                 range->kind != SIM_GRAPH)) {
                result = CUDA_ERROR_INVALID_VALUE;
            } else {
                struct sim_work work = {.kind = SIM_W_FREE, .what = "cuMemFreeAsync"};
                work.memory.address = address;
                work.memory.id = range->id;
                range->dying = true;
                if (range->pool != NULL)
                    range->pool->freeing++;
                struct sim_op *op;
                result = sim_submit(stream, &work, &op);
                if (result != CUDA_SUCCESS) {
                    range->dying = false;
                    if (range->pool != NULL)
                        range->pool->freeing--;
                } else if (range->kind == SIM_GRAPH) {
                    sim_graph_memory_freed(range, op);
                }
                sim_op_unref(op);
            }
        }
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuMemFreeAsync, cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream),
          free_async(address, stream, pt))

void sim_pool_op_run(struct sim_op *op)
{
    sim_lock();
    struct sim_range *range = sim_range_at(op->work.memory.address);
    if (range != NULL && range->id == op->work.memory.id && range->kind == SIM_GRAPH) {
        sim_graph_memory_op_run(op, range);
    } else if (range != NULL && range->id == op->work.memory.id) {
        sim_race_access(range->phys, 0, range->size, true, op, op->work.what);
        if (op->work.kind == SIM_W_FREE) {
            sim_race_remember_freed(range->base, range->size, op->work.what);
            if (range->pool != NULL)
                range->pool->freeing--;
            sim_pool_free_now(range);
        }
    }
    sim_unlock();
}

/* ---- pools -------------------------------------------------------------------------------------
 */
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
    struct sim_pool *pool = pool_of(handle);
    bool good = pool != NULL && !pool->destroyed && pool != pool->device->default_pool;
    if (good) {
        if (pool->device->pool == pool)
            pool->device->pool = default_pool(pool->device);
        pool->destroyed = true;
        drop(pool);
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    SIM_ENTRY(cuMemPoolTrimTo);
    sim_lock();
    struct sim_pool *pool = own_pool(handle);
    if (pool != NULL)
        shrink(pool, keep);
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
    struct sim_pool *pool = own_pool(handle);
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
    struct sim_pool *pool = own_pool(handle);
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
    struct sim_pool *pool = pool_of(handle);
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
    struct sim_pool *pool = pool_of(handle);
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
    struct sim_pool *standard = default_pool(device);
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
    default_pool(device);
    struct sim_pool *pool = own_pool(handle);
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
