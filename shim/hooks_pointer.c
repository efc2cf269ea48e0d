/*
 * Hooks: what the driver says about memory, made true for memory of a pool: each block is an
 * allocation of its own, and what lies between blocks is nothing.
 *
 * The driver is asked first, for everything that is the same for the whole of its allocation (type,
 * device, access, …) and for errors that have nothing to do with the address. Then start, size and
 * identity are put right. Addresses in an arena that are no live block answer as freed memory does.
 */
#include "shim/arena.h"
#include "shim/count.h"
#include "shim/ipc.h"
#include "shim/mempool.h"

#include <string.h>

#define NOBODYS 12345 /* an address that no allocation has */

struct block {
    CUdeviceptr start;
    uint64_t bytes; /* as asked */
    unsigned long long id;
    CUcontext context;
    unsigned pool; /* the program's memory pool (mempool.h); 0: plain memory */
};

enum where { NOT_OURS, FREED, LIVE };

/* An identity that no other allocation of the process has had lately: of the driver's own none has
 * the highest bit, and of those at the same address the ledger tells 2^24 apart. */
static unsigned long long identity(CUdeviceptr start, uint32_t serial)
{
    return 1ULL << 63 | (start >> 9 & ((1ULL << 39) - 1)) << 24 | (serial & 0xffffff);
}

static enum where find(const struct vs_guard *guard, CUdeviceptr address, struct block *out)
{
    struct vs_arena *arena = guard->counts ? vs_arena_of_address(address) : NULL;
    struct vs_alloc alloc;
    uint64_t start = 0, bytes = 0;
    int error;

    if (arena == NULL) {
        return guard->counts && vs_arena_claims(address) ? FREED : NOT_OURS;
    }
    error = vs_pool_find(vs_arena_pool(arena), address, &start, &bytes);
    *out = (struct block){.start = start, .bytes = bytes, .context = vs_arena_context(arena)};
    vs_arena_leave(arena);
    if (error != 0) {
        return FREED;
    }
    if (vs_ledger_find(start, &alloc)) {
        out->bytes = alloc.bytes;
        out->id = identity(start, alloc.serial);
        out->pool = alloc.tag;
    } else {
        out->id = identity(start, 0);
    }
    return address - start < out->bytes ? LIVE : FREED;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* An answer that has to do with the address; any other goes before ours. */
static bool of_address(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND ||
           result == CUDA_ERROR_INVALID_VALUE;
}

VS_HOOK cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuMemGetAddressRange_v2)
    struct block block;
    enum where where = find(&guard, address, &block);
    CUdeviceptr start = 0;
    uint64_t bytes = 0;
    CUresult result;

    if (where == NOT_OURS) {
        result = guard.entries->cuMemGetAddressRange_v2(base, size, address);
        if (result != CUDA_SUCCESS || !guard.counts || !vs_ipc_find(address, &start, &bytes)) {
            return result;
        }
    } else {
        CUdeviceptr whole;
        size_t all;

        result = guard.entries->cuMemGetAddressRange_v2(&whole, &all, address);
        if (!of_address(result)) {
            return result;
        }
        if (where == FREED) {
            return CUDA_ERROR_NOT_FOUND;
        }
        start = block.start;
        bytes = block.bytes;
    }
    if (base != NULL) {
        *base = start;
    }
    if (size != NULL) {
        *size = bytes;
    }
    return CUDA_SUCCESS;
}

/* What the pool holds free of the device can be had, as far as the program is concerned.
 * Where that is told in 32 bits, more is told as the most. */
#define MEM_GET_INFO(name, type, most)                                                             \
    VS_HOOK name(type *free_bytes, type *total)                                                    \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_arena_look look;                                                                 \
        CUresult result;                                                                           \
                                                                                                   \
        if (free_bytes == NULL || !looks(&guard, &look)) {                                         \
            return guard.entries->name(free_bytes, total);                                         \
        }                                                                                          \
        do {                                                                                       \
            vs_arena_look_begins(&look);                                                           \
            result = guard.entries->name(free_bytes, total);                                       \
        } while (vs_arena_look_again(&look, result == CUDA_SUCCESS));                              \
        if (result == CUDA_SUCCESS) {                                                              \
            *free_bytes = look.idle < (most) - *free_bytes ? *free_bytes + (type)look.idle : most; \
        }                                                                                          \
        return result;                                                                             \
    }

static bool looks(const struct vs_guard *guard, struct vs_arena_look *look)
{
    return guard->counts && vs_process_counts() &&
           vs_arena_look(look, vs_place_of_thread(&guard->driver->real).device);
}

MEM_GET_INFO(cuMemGetInfo, unsigned int, UINT32_MAX)
MEM_GET_INFO(cuMemGetInfo_v2, size_t, SIZE_MAX)

/* ---- attributes ------------------------------------------------------------------------------ */

/* Puts one attribute of a live block right, after the driver has written its own. */
static void put_right(void *data, CUpointer_attribute name, const struct block *block)
{
    switch (name) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        memcpy(data, &block->context, sizeof(block->context));
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        memcpy(data, &block->start, sizeof(block->start));
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
        size_t bytes = block->bytes;

        memcpy(data, &bytes, sizeof(bytes));
        break;
    }
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        memcpy(data, &block->id, sizeof(block->id));
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        if (block->pool != 0) {
            CUmemoryPool pool = vs_mempool_handle(block->pool);

            memcpy(data, &pool, sizeof(pool));
        }
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        if (block->pool != 0) {
            memset(data, 0, sizeof(unsigned)); /* as wide as the driver's own (measured) */
        }
        break;
    default:
        break;
    }
}

/* Tokens and synchronous copies are for those whom no stream orders. */
static CUresult settle_for(CUpointer_attribute name, CUdeviceptr address)
{
    struct vs_arena *arena;
    CUresult result;

    if (name != CU_POINTER_ATTRIBUTE_P2P_TOKENS && name != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        return CUDA_SUCCESS;
    }
    arena = vs_arena_of_address(address);
    if (arena == NULL) {
        return CUDA_SUCCESS;
    }
    result = vs_arena_settle(arena);
    vs_arena_leave(arena);
    return result;
}

VS_HOOK cuPointerGetAttribute(void *data, CUpointer_attribute name, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuPointerGetAttribute)
    struct block block;
    enum where where = data != NULL ? find(&guard, address, &block) : NOT_OURS;
    CUresult result;

    if (where == FREED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = where == LIVE && name == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? settle_for(name, address)
                                                                      : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        result = guard.entries->cuPointerGetAttribute(data, name, address);
        if (where == LIVE && block.pool != 0 && name == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE &&
            result == CUDA_ERROR_INVALID_VALUE) {
            result = CUDA_SUCCESS; /* the driver knows of no pool */
        }
    }
    if (where == LIVE && result == CUDA_SUCCESS) {
        put_right(data, name, &block);
    }
    return result;
}

VS_HOOK cuPointerGetAttributes(unsigned int count, CUpointer_attribute *names, void **data,
                               CUdeviceptr address)
{
    VS_HOOK_ENTER(cuPointerGetAttributes)
    struct block block;
    enum where where =
        count != 0 && names != NULL && data != NULL ? find(&guard, address, &block) : NOT_OURS;
    CUresult result = CUDA_SUCCESS;

    if (where == FREED) {
        address = NOBODYS;
    }
    for (unsigned int i = 0; where == LIVE && result == CUDA_SUCCESS && i < count; i++) {
        if (names[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
            result = settle_for(names[i], address);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = guard.entries->cuPointerGetAttributes(count, names, data, address);
    }
    for (unsigned int i = 0; where == LIVE && result == CUDA_SUCCESS && i < count; i++) {
        if (data[i] != NULL) {
            put_right(data[i], names[i], &block);
        }
    }
    return result;
}

VS_HOOK cuPointerSetAttribute(const void *value, CUpointer_attribute name, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuPointerSetAttribute)
    struct block block;
    enum where where = value != NULL ? find(&guard, address, &block) : NOT_OURS;
    CUresult result = CUDA_SUCCESS;

    if (where == FREED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (where == LIVE) {
        result = settle_for(name, address);
    }
    return result != CUDA_SUCCESS ? result
                                  : guard.entries->cuPointerSetAttribute(value, name, address);
}

/* ---- mapped memory --------------------------------------------------------------------------- */

/* Plain memory of a pool may be mapped memory to the driver: to the program it is not. Libraries
 * ask for a handle to learn that. */
#define OF_MAPPED(name, parameters, arguments, address)                                            \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        if (guard.counts && vs_arena_claims(address)) {                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        }                                                                                          \
        return guard.entries->name arguments;                                                      \
    }

OF_MAPPED(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address),
          (handle, address), (CUdeviceptr)address)
OF_MAPPED(cuMemUnmap, (CUdeviceptr address, size_t bytes), (address, bytes), address)
OF_MAPPED(cuMemAddressFree, (CUdeviceptr address, size_t bytes), (address, bytes), address)
OF_MAPPED(cuMemSetAccess,
          (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count),
          (address, bytes, access, count), address)
