/*
 * Hooks: the program's memory pools (mempool.h). The driver does what is asked, and what the arenas
 * have in the pools' stead is made to fit.
 */
#include "shim/mempool.h"
#include "shim/place.h"

VS_HOOK cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    VS_HOOK_ENTER(cuMemPoolCreate)
    CUresult result = guard.entries->cuMemPoolCreate(pool, props);

    if (result == CUDA_SUCCESS) {
        vs_mempool_created(&guard, *pool, props);
    }
    return result;
}

VS_HOOK cuMemPoolDestroy(CUmemoryPool pool)
{
    VS_HOOK_ENTER(cuMemPoolDestroy)
    unsigned number = vs_mempool_goes(&guard, pool);
    CUresult result;

    vs_place_handle_goes();
    result = guard.entries->cuMemPoolDestroy(pool);
    vs_mempool_gone(number, result == CUDA_SUCCESS);
    return result;
}

VS_HOOK cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    VS_HOOK_ENTER(cuDeviceSetMemPool)
    CUresult result = guard.entries->cuDeviceSetMemPool(device, pool);

    if (result == CUDA_SUCCESS) {
        vs_mempool_current(&guard, device, pool);
    }
    return result;
}

VS_HOOK cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    VS_HOOK_ENTER(cuMemSetMemPool)
    CUresult result = guard.entries->cuMemSetMemPool(location, type, pool);

    if (result == CUDA_SUCCESS && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
        type == CU_MEM_ALLOCATION_TYPE_PINNED) {
        vs_mempool_current(&guard, location->id, pool);
    }
    return result;
}

VS_HOOK cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute name, void *value)
{
    VS_HOOK_ENTER(cuMemPoolGetAttribute)
    CUresult result = guard.entries->cuMemPoolGetAttribute(pool, name, value);

    if (result == CUDA_SUCCESS) {
        vs_mempool_add(&guard, pool, name, value);
    }
    return result;
}

VS_HOOK cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute name, void *value)
{
    VS_HOOK_ENTER(cuMemPoolSetAttribute)
    CUresult result = guard.entries->cuMemPoolSetAttribute(pool, name, value);

    if (result == CUDA_SUCCESS) {
        vs_mempool_set(&guard, pool, name, value);
    }
    return result;
}

VS_HOOK cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    VS_HOOK_ENTER(cuMemPoolTrimTo)
    CUresult result = guard.entries->cuMemPoolTrimTo(pool, keep);

    if (result == CUDA_SUCCESS) {
        vs_mempool_trimmed(&guard, pool, keep);
    }
    return result;
}

VS_HOOK cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    VS_HOOK_ENTER(cuMemPoolSetAccess)
    CUresult result = guard.entries->cuMemPoolSetAccess(pool, access, count);

    return result == CUDA_SUCCESS ? vs_mempool_shared(&guard, pool, access, count) : result;
}
