/*
 * Hooks: memory between processes (see ipc.h). What is not a pool's is the driver's business.
 *
 * Before an address leaves the context's streams, what was freed before is waited for: the other
 * process is not ordered behind anything.
 */
#include "shim/ipc.h"
#include "shim/say.h"

/* The handle of a live block of a native arena: the driver's, or ours for a block inside one of the
 * driver's allocations. */
static CUresult handle_of_block(const struct vs_guard *guard, struct vs_arena *arena,
                                CUipcMemHandle *handle, CUdeviceptr start, uint64_t bytes)
{
    const struct vs_entries *real = &guard->driver->real;
    CUdeviceptr base = start;
    size_t size = bytes;
    CUresult result = vs_arena_settle(arena);
    struct vs_alloc alloc;

    if (result == CUDA_SUCCESS) {
        result = guard->entries->cuIpcGetMemHandle(handle, start);
    }
    if (result == CUDA_SUCCESS && real->cuMemGetAddressRange_v2 != NULL) {
        result = real->cuMemGetAddressRange_v2(&base, &size, start);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (vs_ledger_find(start, &alloc)) {
        bytes = alloc.bytes;
    }
    if ((base != start || size >= 2 * bytes) && !vs_ipc_scramble(handle, start - base, bytes)) {
        VS_SAY_ONCE(VS_SAY_ERROR,
                    "a small allocation cannot be shared with another process on this driver; "
                    "VRAMSHIM_POOL=off shares it");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    vs_ipc_exported(start);
    return CUDA_SUCCESS;
}

/* Memory that was taken in the order of a stream. */
static bool of_memory_pool(struct vs_arena *arena, CUdeviceptr address)
{
    uint64_t start, bytes;
    struct vs_alloc alloc;

    return vs_pool_find(vs_arena_pool(arena), address, &start, &bytes) == 0 &&
           vs_ledger_find(start, &alloc) && alloc.tag != 0;
}

VS_HOOK cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuIpcGetMemHandle)
    struct vs_arena *arena = guard.counts && handle != NULL ? vs_arena_of_address(address) : NULL;
    CUresult result;
    uint64_t start, bytes;

    if (arena == NULL) {
        return guard.entries->cuIpcGetMemHandle(handle, address);
    }
    if (of_memory_pool(arena, address)) {
        result = CUDA_ERROR_INVALID_VALUE; /* as natively */
    } else if (!vs_arena_is_native(arena)) {
        result = guard.entries->cuIpcGetMemHandle(handle, address);
        if (result != CUDA_SUCCESS) {
            VS_SAY_ONCE(VS_SAY_ERROR,
                        "cuIpcGetMemHandle: the driver cannot share mapped memory with "
                        "another process; VRAMSHIM_BACKING=native can");
        }
    } else if (vs_pool_find(vs_arena_pool(arena), address, &start, &bytes) != 0) {
        result = CUDA_ERROR_INVALID_VALUE; /* freed */
    } else {
        result = handle_of_block(&guard, arena, handle, start, bytes);
    }
    vs_arena_leave(arena);
    return result;
}

typedef CUresult (*open_function)(CUdeviceptr *, CUipcMemHandle, unsigned int);

static CUresult open_at(const struct vs_guard *guard, open_function open, CUdeviceptr *address,
                        CUipcMemHandle handle, unsigned int flags)
{
    uint64_t distance, bytes;
    CUdeviceptr base = 0;
    CUresult result;

    if (!guard->counts || address == NULL) {
        return open(address, handle, flags);
    }
    if (!vs_ipc_unscramble(&handle, &distance, &bytes)) {
        result = open(address, handle, flags);
        if (result == CUDA_SUCCESS) {
            vs_ipc_opened(*address, *address, 0);
        }
        return result;
    }
    result = open(&base, handle, flags);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!vs_ipc_opened(base + distance, base, bytes)) {
        guard->entries->cuIpcCloseMemHandle(base);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = base + distance;
    return CUDA_SUCCESS;
}

#define OPEN(name)                                                                                 \
    VS_HOOK name(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        return open_at(&guard, guard.entries->name, address, handle, flags);                       \
    }

OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

VS_HOOK cuIpcCloseMemHandle(CUdeviceptr address)
{
    VS_HOOK_ENTER(cuIpcCloseMemHandle)
    uint64_t bytes = 0;
    CUdeviceptr base = guard.counts ? vs_ipc_closes(address, &bytes) : 0;
    CUresult result;

    if (base == 0) {
        return guard.counts && vs_ipc_is_base(address)
                   ? CUDA_ERROR_INVALID_VALUE
                   : guard.entries->cuIpcCloseMemHandle(address);
    }
    result = guard.entries->cuIpcCloseMemHandle(base);
    if (result != CUDA_SUCCESS) {
        vs_ipc_opened(address, base, bytes);
    }
    return result;
}
