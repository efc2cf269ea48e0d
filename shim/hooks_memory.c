/*
 * Hooks: plain and managed device memory. Plain memory comes from the arena of the current context,
 * where there is one (arena.h); everything else the driver allocates, and we count what it did.
 *
 * A free takes the allocation off the books before it is done, for the address may be handed to
 * another thread before the call returns. Frees of an arena's memory are recognised whatever state
 * the process is in, and never reach the driver. What is refused for its arguments is refused by
 * the driver itself.
 */
#include "shim/arena_inner.h"
#include "shim/count.h"
#include "shim/ipc.h"

/* The first ABI, with 32-bit addresses: the driver's. */
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

/* No pool serves. True: the driver must not, either. */
static bool refused(const struct vs_guard *guard, CUdeviceptr *address, size_t bytes,
                    CUresult *result)
{
    struct vs_place place;

    if (__builtin_expect(!vs_arena_refuses(guard), 1)) {
        return false;
    }
    place = vs_place_of_thread(&guard->driver->real);
    place.device = place.device < 0 ? 0 : place.device;
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    *address = 0;
    vs_count_pool_alloc(guard, *result, 0,
                        &(struct vs_count_served){
                            .place = place, .bytes = bytes, .verdict = VS_VERDICT_OVER_LIMIT});
    return true;
}

/* From the thread's arena. False: there is none, and the driver is to be asked. Out of memory
 * writes 0, as the driver does. */
static bool alloc_here(const struct vs_guard *guard, CUdeviceptr *address, size_t bytes,
                       CUresult *result)
{
    struct vs_count_served served = {.bytes = bytes, .verdict = VS_VERDICT_DEVICE_FULL};
    struct vs_arena *arena = vs_arena_of_thread(guard);
    CUdeviceptr at = 0;

    if (arena == NULL) {
        return refused(guard, address, bytes, result);
    }
    *result = vs_arena_alloc(arena, bytes, 0, &at, &served.verdict);
    if (vs_arena_makes_room(guard, *result, arena)) {
        *result = vs_arena_alloc(arena, bytes, 0, &at, &served.verdict);
    }
    if (*result != CUDA_SUCCESS && vs_arena_unfit(arena)) {
        vs_arena_left(arena);
        return refused(guard, address, bytes, result);
    }
    if (*result == CUDA_SUCCESS || *result == CUDA_ERROR_OUT_OF_MEMORY) {
        *address = at;
    }
    served.place = vs_arena_place(arena);
    vs_count_pool_alloc(guard, *result, at, &served);
    vs_arena_left(arena);
    *result = vs_fence_answer(guard, *result);
    return true;
}

VS_HOOK cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    VS_HOOK_ENTER(cuMemAlloc_v2)
    VS_COUNT_ALLOW()
    CUresult result;

    if (address != NULL && bytes != 0 && alloc_here(&guard, address, bytes, &result)) {
        return result;
    }
    result = guard.entries->cuMemAlloc_v2(address, bytes);
    if (vs_arena_makes_room(&guard, result, NULL)) {
        result = guard.entries->cuMemAlloc_v2(address, bytes);
    }
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

#define PITCH_STEP ((size_t)512) /* as the driver's */

/* The bytes of a pitched allocation, and its pitch; 0: the driver is to answer, with an error. */
static size_t pitched(size_t width, size_t height, unsigned int element, size_t *pitch)
{
    if (width == 0 || height == 0 || (element != 4 && element != 8 && element != 16) ||
        width > SIZE_MAX - PITCH_STEP) {
        return 0;
    }
    *pitch = (width + PITCH_STEP - 1) & ~(PITCH_STEP - 1);
    return height <= SIZE_MAX / *pitch ? *pitch * height : 0;
}

VS_HOOK cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                           unsigned int element)
{
    VS_HOOK_ENTER(cuMemAllocPitch_v2)
    VS_COUNT_ALLOW()
    size_t ours = 0, bytes = pitched(width, height, element, &ours);
    CUresult result;

    if (address != NULL && pitch != NULL && bytes != 0 &&
        alloc_here(&guard, address, bytes, &result)) {
        if (result == CUDA_SUCCESS) {
            *pitch = ours;
        }
        return result;
    }
    result = guard.entries->cuMemAllocPitch_v2(address, pitch, width, height, element);
    bytes = (result == CUDA_SUCCESS ? *pitch : width) * height;
    vs_count_alloc(&guard, result, address,
                   &(struct vs_count_request){.bytes = bytes, .kind = VS_KIND_PLAIN});
    return result;
}

VS_HOOK cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    VS_HOOK_ENTER(cuMemAllocManaged)
    VS_COUNT_ALLOW()
    CUresult result = guard.entries->cuMemAllocManaged(address, bytes, flags);

    if (vs_arena_makes_room(&guard, result, NULL)) {
        result = guard.entries->cuMemAllocManaged(address, bytes, flags);
    }
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

/* In an arena, which is left. */
static CUresult free_in(struct vs_arena *arena, const struct vs_guard *guard, CUdeviceptr address)
{
    CUresult result = vs_arena_may_free(guard, arena);

    if (result == CUDA_SUCCESS) {
        vs_count_pool_free(guard, address);
        result = vs_arena_free(arena, address);
        vs_ipc_freed(arena, address, result);
    }
    vs_arena_left(arena);
    return vs_fence_answer(guard, result);
}

VS_HOOK cuMemFree_v2(CUdeviceptr address)
{
    VS_HOOK_ENTER(cuMemFree_v2)
    struct vs_arena *arena = guard.counts ? vs_arena_of_address(address) : NULL;
    struct vs_alloc alloc;
    CUresult result;
    bool known;

    if (arena != NULL) {
        return free_in(arena, &guard, address);
    }
    if (guard.counts && vs_arena_claims(address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    known = vs_count_free_begin(&guard, address, &alloc);
    result = guard.entries->cuMemFree_v2(address);
    vs_count_free_end(known, result, &alloc);
    return result;
}
