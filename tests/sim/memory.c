/*
 * Plain allocation: cuMemAlloc and its relatives, pinned and managed memory, memory information.
 *
 * cuMemFree waits for all work of the owning context that was submitted before it, on every stream,
 * like the real driver, and keeps other threads from submitting any; a program's use of freed
 * memory is therefore always a bad address, never somebody else's bytes. It waits for nothing where
 * the memory is stream-ordered (documented): what the host has not seen the end of races with it.
 */
#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

CUresult sim_memory_alloc(CUcontext ctx, size_t size, enum sim_kind kind, struct sim_range **out)
{
    if (size > ctx->device->total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_phys *phys;
    CUresult result = sim_phys_new(ctx->device->physical, size, &phys);
    if (result != CUDA_SUCCESS)
        return result;
    size_t span = (size + 511) & ~(size_t)511;
    CUdeviceptr base = sim_va_find(span, size >= (2u << 20) ? 2u << 20 : 512, 0);
    if (base == 0) {
        sim_phys_unref(phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_range *range = sim_range_new(kind, base, size, span, phys);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->ctx = ctx;
    range->device = ctx->device;
    *out = range;
    return CUDA_SUCCESS;
}

/* Memory whose address is valid on the host too. */
static CUresult host_alloc(CUcontext ctx, size_t size, enum sim_kind kind, unsigned flags,
                           struct sim_range **out)
{
    if (size > (size_t)1 << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t span = (size + page() - 1) & ~(page() - 1);
    struct sim_phys *phys;
    CUresult result = sim_phys_new(-1, span, &phys);
    if (result != CUDA_SUCCESS)
        return result;
    if (kind == SIM_MANAGED && ctx->device->total < size) {
        sim_phys_unref(phys); /* oversubscription is not simulated */
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    unsigned char *bytes = sim_phys_bytes(phys);
    if (bytes == NULL) {
        sim_phys_unref(phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_range *range = sim_range_new(kind, (CUdeviceptr)(uintptr_t)bytes, size, span, phys);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->ctx = ctx;
    range->device = ctx->device;
    range->flags = flags;
    *out = range;
    return CUDA_SUCCESS;
}

/* The current context, from which memory may be taken. */
static CUresult current_for_memory(CUcontext *ctx)
{
    CUresult result = sim_ctx_current(ctx);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe(*ctx);
    if (result == CUDA_SUCCESS) {
        sim_ctx_wait_for_frees(*ctx);
        result = sim_ctx_current(ctx);
    }
    return result;
}

static CUresult alloc(CUdeviceptr *out, size_t size)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0; /* on failure too (measured) */
    sim_lock();
    CUcontext ctx = sim_ctx_peek();
    CUresult result = CUDA_SUCCESS;
    if (size == 0) /* but a lost context comes first (measured) */
        result = sim_ctx_alive(ctx) && ctx->owner->sticky != CUDA_SUCCESS
                     ? ctx->owner->sticky
                     : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = current_for_memory(&ctx);
    struct sim_range *range;
    if (result == CUDA_SUCCESS)
        result = sim_memory_alloc(ctx, size, SIM_ALLOC, &range);
    if (result == CUDA_SUCCESS)
        *out = range->base;
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    SIM_ENTRY(cuMemAlloc_v2);
    return alloc(out, size);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                    unsigned int element)
{
    SIM_ENTRY(cuMemAllocPitch_v2);
    if (out == NULL || pitch == NULL || width == 0 || height == 0 ||
        (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = (width + 511) & ~(size_t)511;
    size_t size;
    if (row < width || __builtin_mul_overflow(row, height, &size))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = alloc(out, size);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
    SIM_ENTRY(cuMemAllocManaged);
    if (out == NULL || size == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = current_for_memory(&ctx);
    struct sim_range *range;
    if (result == CUDA_SUCCESS)
        result = host_alloc(ctx, size, SIM_MANAGED, flags, &range);
    if (result == CUDA_SUCCESS)
        *out = range->base;
    sim_unlock();
    return result;
}

static struct sim_range *freeable(CUdeviceptr address)
{
    struct sim_range *range = sim_range_at(address);
    if (range == NULL || range->base != address || range->dying)
        return NULL;
    return range->kind == SIM_ALLOC || range->kind == SIM_MANAGED || range->kind == SIM_ASYNC ||
                   range->kind == SIM_GRAPH
               ? range
               : NULL;
}

static CUresult mem_free(CUdeviceptr address)
{
    sim_lock();
    /* Needs no current context, but a destroyed one is an error (measured). */
    CUcontext ctx = sim_ctx_peek();
    CUresult result = ctx != NULL ? sim_ctx_current(&ctx) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe(ctx);
    struct sim_range *range = result == CUDA_SUCCESS ? freeable(address) : NULL;
    if (result == CUDA_SUCCESS && address == 0) {
        sim_unlock();
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && range == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        unsigned long long id = range->id;
        if (range->kind != SIM_ASYNC)
            sim_ctx_wait_to_free(range->ctx);
        /* Two frees of one pointer at once: the second finds it gone. */
        range = freeable(address);
        if (range == NULL || range->id != id) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            /* Ends with the range, so an access is only worth checking against earlier ones. */
            if (range->phys->shadow != NULL)
                sim_race_access(range->phys, range->offset, range->size, true, NULL, "cuMemFree");
            sim_race_remember_freed(address, range->size, "cuMemFree");
            if (range->kind == SIM_ASYNC)
                sim_pool_free_now(range);
            else if (range->kind == SIM_GRAPH)
                sim_graph_memory_freed(range, NULL);
            else
                sim_range_free(range);
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address)
{
    SIM_ENTRY(cuMemFree_v2);
    return mem_free(address);
}

/* The 32-bit ABI of CUDA 3.1: exported, as by the real driver, and of no use with 64-bit pointers.
 */
CUresult CUDAAPI cuMemAlloc(CUdeviceptr_v1 *out, unsigned int size)
{
    SIM_ENTRY(cuMemAlloc);
    (void)out, (void)size;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr_v1 address)
{
    SIM_ENTRY(cuMemFree);
    return address == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult memory_info(size_t *free_bytes, size_t *total)
{
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_asked(&ctx);
    if (result == CUDA_SUCCESS)
        sim_machine_info(ctx->device->physical, free_bytes, total);
    sim_unlock();
    return result;
}

/* Its numbers are of use; how the real driver tells more than they hold is not known. */
CUresult CUDAAPI cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
    SIM_ENTRY(cuMemGetInfo);
    size_t now_free, all;
    CUresult result = memory_info(&now_free, &all);
    if (result == CUDA_SUCCESS && free_bytes != NULL)
        *free_bytes = now_free < UINT32_MAX ? (unsigned)now_free : UINT32_MAX;
    if (result == CUDA_SUCCESS && total != NULL)
        *total = all < UINT32_MAX ? (unsigned)all : UINT32_MAX;
    return result;
}

CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width,
                                 unsigned int height, unsigned int element)
{
    SIM_ENTRY(cuMemAllocPitch);
    (void)out, (void)pitch, (void)width, (void)height, (void)element;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size,
                                      CUdeviceptr_v1 address)
{
    SIM_ENTRY(cuMemGetAddressRange);
    (void)base, (void)size, (void)address;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    SIM_ENTRY(cuMemGetInfo_v2);
    size_t now_free, all;
    CUresult result = memory_info(&now_free, &all);
    if (result == CUDA_SUCCESS && free_bytes != NULL)
        *free_bytes = now_free;
    if (result == CUDA_SUCCESS && total != NULL)
        *total = all;
    return result;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    SIM_ENTRY(cuMemGetAddressRange_v2);
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS) {
        const struct sim_range *range = sim_range_at(address);
        if (range == NULL || range->kind == SIM_RESERVED) {
            result = CUDA_ERROR_NOT_FOUND;
        } else {
            if (base != NULL)
                *base = range->base;
            if (size != NULL)
                *size = range->size;
        }
    }
    sim_unlock();
    return result;
}

/* ---- pinned host memory --------------------------------------------------------------------- */
static CUresult pinned(void **out, size_t size, unsigned flags)
{
    const unsigned all =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (out == NULL || (flags & ~all) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size == 0) {
        *out = NULL;
        return CUDA_SUCCESS;
    }
    sim_lock();
    CUcontext ctx;
    CUresult result = current_for_memory(&ctx);
    struct sim_range *range;
    if (result == CUDA_SUCCESS)
        result = host_alloc(ctx, size, SIM_HOST, flags, &range);
    if (result == CUDA_SUCCESS)
        *out = (void *)(uintptr_t)range->base;
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
    SIM_ENTRY(cuMemHostAlloc);
    return pinned(out, size, flags);
}

CUresult CUDAAPI cuMemAllocHost_v2(void **out, size_t size)
{
    SIM_ENTRY(cuMemAllocHost_v2);
    return pinned(out, size, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult CUDAAPI cuMemAllocHost(void **out, unsigned int size)
{
    SIM_ENTRY(cuMemAllocHost);
    return pinned(out, size, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult CUDAAPI cuMemFreeHost(void *host)
{
    SIM_ENTRY(cuMemFreeHost);
    if (host == NULL)
        return CUDA_SUCCESS;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe(ctx);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)host;
    struct sim_range *range = result == CUDA_SUCCESS ? sim_range_at(address) : NULL;
    if (result == CUDA_SUCCESS &&
        (range == NULL || range->kind != SIM_HOST || range->base != address))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        sim_ctx_wait_all(range->ctx);
        range = sim_range_at(address);
        if (range != NULL && range->kind == SIM_HOST && range->base == address) {
            sim_race_remember_freed(address, range->size, "cuMemFreeHost");
            sim_range_free(range);
        }
    }
    sim_unlock();
    return result;
}

static CUresult host_register(void *host, size_t size, unsigned flags)
{
    if (host == NULL || size == 0 || (flags & ~0xfu) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)host;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    const struct sim_range *below = sim_tree_floor(&sim_va, address + size - 1);
    if (result == CUDA_SUCCESS && below != NULL && below->base + below->size > address)
        result = below->kind == SIM_REGISTERED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                               : CUDA_ERROR_INVALID_VALUE;
    struct sim_phys *phys;
    if (result == CUDA_SUCCESS)
        result = sim_phys_new(-1, size, &phys);
    if (result == CUDA_SUCCESS) {
        phys->bytes = host;
        phys->borrowed = true;
        struct sim_range *range = sim_range_new(SIM_REGISTERED, address, size, size, phys);
        if (range == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            range->ctx = ctx;
            range->device = ctx->device;
            range->flags = flags;
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *host, size_t size, unsigned int flags)
{
    SIM_ENTRY(cuMemHostRegister_v2);
    return host_register(host, size, flags);
}

CUresult CUDAAPI cuMemHostRegister(void *host, size_t size, unsigned int flags)
{
    SIM_ENTRY(cuMemHostRegister);
    return host_register(host, size, flags);
}

CUresult CUDAAPI cuMemHostUnregister(void *host)
{
    SIM_ENTRY(cuMemHostUnregister);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)host;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    struct sim_range *range = result == CUDA_SUCCESS ? sim_range_at(address) : NULL;
    if (result == CUDA_SUCCESS &&
        (range == NULL || range->kind != SIM_REGISTERED || range->base != address))
        result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (result == CUDA_SUCCESS) {
        sim_ctx_wait_all(range->ctx);
        range = sim_range_at(address);
        if (range != NULL && range->kind == SIM_REGISTERED)
            sim_range_free(range);
    }
    sim_unlock();
    return result;
}

static struct sim_range *host_range(const void *host)
{
    struct sim_range *range = sim_range_at((CUdeviceptr)(uintptr_t)host);
    return range != NULL && (range->kind == SIM_HOST || range->kind == SIM_REGISTERED) ? range
                                                                                       : NULL;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *host, unsigned int flags)
{
    SIM_ENTRY(cuMemHostGetDevicePointer_v2);
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool known = host_range(host) != NULL;
    sim_unlock();
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)host;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *flags, void *host)
{
    SIM_ENTRY(cuMemHostGetFlags);
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_range *range = host_range(host);
    if (range != NULL)
        *flags = range->flags & ~(unsigned)CU_MEMHOSTALLOC_PORTABLE; /* measured */
    sim_unlock();
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the end of a context ---------------------------------------------------------------------
 */
static struct sim_range *owned_by(struct sim_range *node, CUcontext ctx)
{
    if (node == NULL)
        return NULL;
    /* Reservations and mappings belong to the process. */
    if (node->ctx == ctx && node->kind != SIM_RESERVED && node->kind != SIM_MAPPED &&
        node->kind != SIM_GRAPH)
        return node;
    struct sim_range *found = owned_by(node->left, ctx);
    return found != NULL ? found : owned_by(node->right, ctx);
}

void sim_memory_context_gone(CUcontext ctx)
{
    sim_arrays_context_gone(ctx);
    sim_graph_memory_context_gone(ctx);
    sim_pools_context_gone(ctx);
    for (struct sim_range *range; (range = owned_by(sim_va.root, ctx)) != NULL;) {
        if (range->kind == SIM_ASYNC) { /* belongs to its pool, which outlives contexts */
            range->ctx = NULL;
            continue;
        }
        sim_race_remember_freed(range->base, range->size, "the end of its context");
        sim_range_free(range);
    }
}
