/*
 * Shareable handles: descriptors that carry physical memory (cuMemExportToShareableHandle) or a
 * pool (cuMemPoolExportToShareableHandle) to another process, and pointers of shared pools.
 *
 * As measured on an H200 with driver 580: only POSIX descriptors; only what was created with that
 * handle type can be exported, and what was imported cannot; importing in the exporting process
 * gives another handle. An imported pool hands out imported pointers and is good for nothing else;
 * the same pointer imported twice is the same address, and one free ends it, here only. Errors of
 * the import: INVALID_VALUE for a descriptor that is something else (a pool's import says
 * NOT_SUPPORTED to memory), UNKNOWN for one that is not open.
 */
#include "ipc.h"
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool posix(CUmemAllocationHandleType type)
{
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

static CUresult bad_type(CUmemAllocationHandleType type)
{
    return type == CU_MEM_HANDLE_TYPE_NONE ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- physical memory ---------------------------------------------------------------------------
 */
CUresult CUDAAPI cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle value,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags)
{
    SIM_ENTRY(cuMemExportToShareableHandle);
    if (out == NULL || flags != 0 || !posix(type))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    for (int state = -EAGAIN; result == CUDA_SUCCESS && state == -EAGAIN;) {
        CUmemAllocationProp prop;
        struct sim_phys *phys = sim_handle_phys(value, &prop);
        if (phys == NULL || !((unsigned)prop.requestedHandleTypes & (unsigned)type)) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        /* A handle's mappings hold the memory too: bytes move under them only while nothing runs.
         */
        struct sim_ipc_note note = {0};
        state = phys->fd >= 0 ? sim_ipc_share_memory(phys, SIM_IPC_VMM, &note) : -ENOMEM;
        int fd = state == 0 ? fcntl(phys->fd, F_DUPFD_CLOEXEC, 3) : -1;
        if (fd >= 0)
            *(int *)out = fd;
        else if (state != -EAGAIN)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle,
                                                CUmemAllocationHandleType type)
{
    SIM_ENTRY(cuMemImportFromShareableHandle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!posix(type))
        return bad_type(type);
    int given = (int)(intptr_t)handle;
    struct sim_ipc_note note;
    int state = sim_ipc_read(given, SIM_IPC_VMM, &note);
    if (state != 0)
        return state == -EBADF ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE;
    const struct sim_device *device = sim_ipc_device(note.unit);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    int fd = fcntl(given, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    prop.location.id = device->index;
    sim_lock();
    struct sim_phys *phys = sim_ipc_adopt(fd, note.unit, note.size);
    if (phys != NULL)
        *out = sim_handle_new(phys, &prop);
    sim_unlock();
    return phys != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- pools -------------------------------------------------------------------------------------
 */
CUresult CUDAAPI cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle,
                                                  CUmemAllocationHandleType type,
                                                  unsigned long long flags)
{
    SIM_ENTRY(cuMemPoolExportToShareableHandle);
    if (out == NULL || flags != 0 || !posix(type))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    static unsigned long long last_id;
    struct sim_pool *pool = sim_pool_of(handle);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (pool != NULL && !pool->imported && posix(pool->props.handleTypes)) {
        if (pool->share_id == 0)
            pool->share_id = ++last_id;
        struct sim_ipc_note note = {.unit = pool->device->physical, .id = pool->share_id};
        int fd = memfd_create("vramsim-pool", MFD_CLOEXEC);
        if (fd >= 0 && sim_ipc_seal(fd, SIM_IPC_POOL, &note)) {
            *(int *)out = fd;
            result = CUDA_SUCCESS;
        } else {
            if (fd >= 0)
                close(fd);
            result = CUDA_ERROR_OPERATING_SYSTEM;
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle,
                                                    CUmemAllocationHandleType type,
                                                    unsigned long long flags)
{
    SIM_ENTRY(cuMemPoolImportFromShareableHandle);
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!posix(type))
        return bad_type(type);
    struct sim_ipc_note note;
    int state = sim_ipc_read((int)(intptr_t)handle, SIM_IPC_POOL, &note);
    if (state == -EBADF)
        return CUDA_ERROR_UNKNOWN;
    if (state != 0)
        return sim_ipc_read((int)(intptr_t)handle, SIM_IPC_VMM, &note) == 0
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : CUDA_ERROR_INVALID_VALUE;
    struct sim_device *device = sim_ipc_device(note.unit);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    props.location.id = device->index;
    sim_lock();
    struct sim_pool *pool = sim_pool_new(device, &props);
    pool->imported = true;
    pool->exporter = note.pid;
    pool->share_id = note.id;
    *out = (CUmemoryPool)pool;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
    SIM_ENTRY(cuMemPoolExportPointer);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    for (int state = -EAGAIN; result == CUDA_SUCCESS && state == -EAGAIN;) {
        const struct sim_range *range = sim_range_at(address);
        if (range == NULL || range->kind != SIM_ASYNC || range->base != address || range->dying ||
            range->pool == NULL || range->pool->imported ||
            !posix(range->pool->props.handleTypes)) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        struct sim_ipc_note note = {.id = range->pool->share_id};
        struct sim_ipc_handle handle;
        state = sim_ipc_share_memory(range->phys, SIM_IPC_POINTER, &note);
        if (state == 0 && sim_ipc_handle_make(range->phys->fd, SIM_IPC_POINTER, &note, &handle))
            memcpy(out, &handle, sizeof handle);
        else if (state != -EAGAIN)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

static CUresult import_new(const struct sim_ipc_handle *handle, struct sim_pool *pool,
                           CUdeviceptr *out)
{
    size_t size = handle->note.size, span = (size + 511) & ~(size_t)511;
    int fd = sim_ipc_handle_open(handle, SIM_IPC_POINTER);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_phys *phys = sim_ipc_adopt(fd, handle->note.unit, size);
    CUdeviceptr base = phys != NULL ? sim_va_find(span, 512, 0) : 0;
    if (base == 0) {
        sim_phys_unref(phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_range *range = sim_range_new(SIM_ASYNC, base, size, span, phys);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->device = pool->device;
    range->pool = pool;
    pool->live++;
    pool->used += span;
    sim_import_add(handle, range);
    *out = base;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool given,
                                        CUmemPoolPtrExportData *data)
{
    SIM_ENTRY(cuMemPoolImportPointer);
    struct sim_ipc_handle handle;
    if (out == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&handle, data, sizeof handle);
    if (!sim_ipc_handle_good(&handle, SIM_IPC_POINTER))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_pool *pool = sim_pool_of(given);
    CUresult result = CUDA_SUCCESS;
    if (pool == NULL || !pool->imported || pool->exporter != handle.note.pid ||
        pool->device->physical != handle.note.unit ||
        (handle.note.id != 0 && pool->share_id != handle.note.id)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        const struct sim_import *import = sim_import_find(&handle);
        if (import != NULL)
            *out = import->base;
        else
            result = import_new(&handle, pool, out);
    }
    sim_unlock();
    return result;
}
