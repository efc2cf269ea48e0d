/*
 * Hooks: plain and managed device memory. The driver allocates; we count what it did.
 *
 * A free takes the allocation off the books before the driver's call, for the driver may hand the
 * address to another thread before that call returns.
 */
#include "shim/count.h"

/* The first ABI, with 32-bit addresses. */
VS_HOOK cuMemAlloc(CUdeviceptr_v1 *address, unsigned int bytes)
{
    VS_HOOK_ENTER(cuMemAlloc)
    VS_COUNT_ALLOW()
    CUresult result = guard.entries->cuMemAlloc(address, bytes);
    CUdeviceptr wide = result == CUDA_SUCCESS ? *address : 0;

    vs_count_alloc(&guard, result, &wide,
                   &(struct vs_count_request){.bytes = bytes, .kind = VS_KIND_PLAIN});
    return result;
}

VS_HOOK cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    VS_HOOK_ENTER(cuMemAlloc_v2)
    VS_COUNT_ALLOW()
    CUresult result = guard.entries->cuMemAlloc_v2(address, bytes);

    vs_count_alloc(&guard, result, address,
                   &(struct vs_count_request){.bytes = bytes, .kind = VS_KIND_PLAIN});
    return result;
}

VS_HOOK cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned int *pitch, unsigned int width,
                        unsigned int height, unsigned int element)
{
    VS_HOOK_ENTER(cuMemAllocPitch)
    VS_COUNT_ALLOW()
    CUresult result = guard.entries->cuMemAllocPitch(address, pitch, width, height, element);
    CUdeviceptr wide = result == CUDA_SUCCESS ? *address : 0;
    size_t bytes = (size_t)(result == CUDA_SUCCESS ? *pitch : width) * height;

    vs_count_alloc(&guard, result, &wide,
                   &(struct vs_count_request){.bytes = bytes, .kind = VS_KIND_PLAIN});
    return result;
}

VS_HOOK cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                           unsigned int element)
{
    VS_HOOK_ENTER(cuMemAllocPitch_v2)
    VS_COUNT_ALLOW()
    CUresult result = guard.entries->cuMemAllocPitch_v2(address, pitch, width, height, element);
    size_t bytes = (result == CUDA_SUCCESS ? *pitch : width) * height;

    vs_count_alloc(&guard, result, address,
                   &(struct vs_count_request){.bytes = bytes, .kind = VS_KIND_PLAIN});
    return result;
}

VS_HOOK cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    VS_HOOK_ENTER(cuMemAllocManaged)
    VS_COUNT_ALLOW()
    CUresult result = guard.entries->cuMemAllocManaged(address, bytes, flags);

    vs_count_alloc(&guard, result, address,
                   &(struct vs_count_request){.bytes = bytes, .kind = VS_KIND_MANAGED});
    return result;
}

VS_HOOK cuMemFree(CUdeviceptr_v1 address)
{
    VS_HOOK_ENTER(cuMemFree)
    struct vs_alloc alloc;
    bool known = vs_count_free_begin(&guard, address, &alloc);
    CUresult result = guard.entries->cuMemFree(address);

    vs_count_free_end(known, result, &alloc);
    return result;
}

VS_HOOK cuMemFree_v2(CUdeviceptr address)
{
    VS_HOOK_ENTER(cuMemFree_v2)
    struct vs_alloc alloc;
    bool known = vs_count_free_begin(&guard, address, &alloc);
    CUresult result = guard.entries->cuMemFree_v2(address);

    vs_count_free_end(known, result, &alloc);
    return result;
}
