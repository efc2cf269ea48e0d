/*
 * Memory between processes: cuIpcGetMemHandle, cuIpcOpenMemHandle, cuIpcCloseMemHandle, and what
 * all kinds of sharing stand on (ipc.h).
 *
 * As measured on an H200 with driver 580: a handle is the same for every address inside one
 * allocation and opens its base; it can be had of cuMemAlloc memory only; opening needs the lazy
 * peer flag, takes no memory, fails with INVALID_CONTEXT in the exporting process, and gives the
 * same pointer again while it is open; each open needs its close. What is open stays readable when
 * the exporter frees it or dies, and can be opened again meanwhile.
 *
 * The exporter's books alone are charged, and only while it holds the memory: what only an importer
 * still holds counts as free here.
 */
#include "ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE ((uint64_t)4096)
#define MAGIC 0x6d697376697063ULL

static uint64_t up(uint64_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

bool sim_ipc_seal(int fd, enum sim_ipc_kind kind, struct sim_ipc_note *note)
{
    note->magic = MAGIC + (uint64_t)kind;
    note->pid = getpid();
    off_t at = (off_t)up(note->size);
    return ftruncate(fd, at + (off_t)PAGE) == 0 &&
           pwrite(fd, note, sizeof *note, at) == (ssize_t)sizeof *note;
}

int sim_ipc_read(int fd, enum sim_ipc_kind kind, struct sim_ipc_note *note)
{
    struct stat is;
    if (fstat(fd, &is) != 0)
        return -EBADF;
    if (!S_ISREG(is.st_mode) || is.st_size < (off_t)PAGE ||
        pread(fd, note, sizeof *note, is.st_size - (off_t)PAGE) != (ssize_t)sizeof *note ||
        note->magic != MAGIC + (uint64_t)kind || note->size > (uint64_t)is.st_size ||
        up(note->size) + PAGE != (uint64_t)is.st_size)
        return -EINVAL;
    return 0;
}

static uint64_t check_sum(const struct sim_ipc_handle *handle)
{
    struct sim_ipc_handle copy = *handle;
    copy.check = 0;
    unsigned char bytes[sizeof copy];
    memcpy(bytes, &copy, sizeof copy);
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < sizeof bytes; i++)
        sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

bool sim_ipc_handle_make(int fd, enum sim_ipc_kind kind, const struct sim_ipc_note *note,
                         struct sim_ipc_handle *out)
{
    struct stat is;
    if (fstat(fd, &is) != 0)
        return false;
    memset(out, 0, sizeof *out);
    out->note = *note;
    out->note.magic = MAGIC + 100 + (uint64_t)kind;
    out->fd = fd;
    out->inode = is.st_ino;
    out->check = check_sum(out);
    return true;
}

bool sim_ipc_handle_good(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind)
{
    return handle->note.magic == MAGIC + 100 + (uint64_t)kind && handle->note.pid > 0 &&
           handle->check == check_sum(handle);
}

bool sim_ipc_process_lives(int pid)
{
    char path[64], target[16];
    snprintf(path, sizeof path, "/proc/%d/exe", pid); /* a zombie has none */
    return readlink(path, target, sizeof target) > 0;
}

int sim_ipc_handle_open(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->note.pid, handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return sim_ipc_process_lives(handle->note.pid) ? -ENOENT : -ESRCH;
    struct stat is;
    struct sim_ipc_note note;
    if (fstat(fd, &is) != 0 || is.st_ino != handle->inode || sim_ipc_read(fd, kind, &note) != 0 ||
        note.size != handle->note.size || note.unit != handle->note.unit) {
        close(fd);
        return -ENOENT;
    }
    return fd;
}

int sim_ipc_share_memory(struct sim_phys *phys, enum sim_ipc_kind kind, struct sim_ipc_note *note)
{
    struct sim_ipc_note old;
    if (phys->fd < 0 && phys->refs > 1) { /* an op is at it: its bytes cannot move now */
        sim_unlock();
        usleep(200);
        sim_lock();
        return -EAGAIN;
    }
    bool fresh = phys->fd < 0;
    if (fresh && sim_phys_share(phys) < 0)
        return -ENOMEM;
    note->size = phys->size;
    note->unit = phys->physical;
    if (!fresh && sim_ipc_read(phys->fd, kind, &old) == 0) {
        *note = old;
        return 0;
    }
    return sim_ipc_seal(phys->fd, kind, note) ? 0 : -ENOMEM;
}

struct sim_phys *sim_ipc_adopt(int fd, int unit, size_t size)
{
    struct sim_phys *phys;
    if (sim_phys_new(-1, size, &phys) != CUDA_SUCCESS) {
        close(fd);
        return NULL;
    }
    phys->physical = unit; /* the exporter pays */
    phys->fd = fd;
    return phys;
}

struct sim_device *sim_ipc_device(int unit)
{
    for (int i = 0; i < sim_device_count; i++) {
        if (sim_devices[i].physical == unit)
            return &sim_devices[i];
    }
    return NULL;
}

/* ---- what is open ------------------------------------------------------------------------------
 */
static struct sim_import *imports;

void sim_import_drop(struct sim_import *import)
{
    for (struct sim_import **at = &imports; *at != NULL; at = &(*at)->next) {
        if (*at == import) {
            *at = import->next;
            free(import);
            return;
        }
    }
}

static bool alive(const struct sim_import *import)
{
    const struct sim_range *range = sim_range_at(import->base);
    return range != NULL && range->id == import->id && !range->dying;
}

struct sim_import *sim_import_find(const struct sim_ipc_handle *handle)
{
    for (struct sim_import *import = imports; import != NULL; import = import->next) {
        if (import->pid != handle->note.pid || import->inode != handle->inode)
            continue;
        if (alive(import))
            return import;
        sim_import_drop(import); /* went with its context, or was freed */
        return NULL;
    }
    return NULL;
}

struct sim_import *sim_import_at(CUdeviceptr base)
{
    struct sim_import *import = imports;
    while (import != NULL && (import->base != base || !alive(import)))
        import = import->next;
    return import;
}

struct sim_import *sim_import_add(const struct sim_ipc_handle *handle, struct sim_range *range)
{
    struct sim_import *import = calloc(1, sizeof *import);
    if (import == NULL)
        abort();
    *import = (struct sim_import){.base = range->base,
                                  .id = range->id,
                                  .pid = handle->note.pid,
                                  .inode = handle->inode,
                                  .next = imports};
    imports = import;
    return import;
}

/* ---- the entry points --------------------------------------------------------------------------
 */
CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    SIM_ENTRY(cuIpcGetMemHandle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    int state = -EAGAIN;
    while (result == CUDA_SUCCESS && state == -EAGAIN) {
        struct sim_range *range = sim_range_at(address);
        if (range == NULL || range->kind != SIM_ALLOC) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        struct sim_ipc_note note = {0};
        struct sim_ipc_handle handle;
        state = sim_ipc_share_memory(range->phys, SIM_IPC_MEMORY, &note);
        if (state == 0 && sim_ipc_handle_make(range->phys->fd, SIM_IPC_MEMORY, &note, &handle))
            memcpy(out, &handle, sizeof handle);
        else if (state != -EAGAIN)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

static CUresult open_new(const struct sim_ipc_handle *handle, CUcontext ctx, CUdeviceptr *out)
{
    size_t size = handle->note.size, span = (size + 511) & ~(size_t)511;
    struct sim_device *device = sim_ipc_device(handle->note.unit);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = sim_ipc_handle_open(handle, SIM_IPC_MEMORY);
    if (fd < 0)
        return fd == -ESRCH ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    struct sim_phys *phys = sim_ipc_adopt(fd, handle->note.unit, size);
    CUdeviceptr base = phys != NULL ? sim_va_find(span, (size_t)2 << 20, 0) : 0;
    if (base == 0) {
        sim_phys_unref(phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_range *range = sim_range_new(SIM_IMPORTED, base, size, span, phys);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->ctx = ctx;
    range->device = device;
    sim_import_add(handle, range)->opens = 1;
    *out = base;
    return CUDA_SUCCESS;
}

static CUresult open_memory(CUdeviceptr *out, const CUipcMemHandle *given, unsigned flags)
{
    struct sim_ipc_handle handle;
    memcpy(&handle, given, sizeof handle);
    if (out == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        !sim_ipc_handle_good(&handle, SIM_IPC_MEMORY))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe(ctx);
    if (result == CUDA_SUCCESS && handle.note.pid == getpid())
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        struct sim_import *import = sim_import_find(&handle);
        if (import == NULL) {
            result = open_new(&handle, ctx, out);
        } else {
            import->opens++;
            *out = import->base;
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    SIM_ENTRY(cuIpcOpenMemHandle_v2);
    return open_memory(out, &handle, flags);
}

#undef cuIpcOpenMemHandle
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags);
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    SIM_ENTRY(cuIpcOpenMemHandle);
    return open_memory(out, &handle, flags);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address)
{
    SIM_ENTRY(cuIpcCloseMemHandle);
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe(ctx);
    struct sim_range *range = result == CUDA_SUCCESS ? sim_range_at(address) : NULL;
    struct sim_import *import = sim_import_at(address);
    if (result == CUDA_SUCCESS && (import == NULL || range == NULL || range->kind != SIM_IMPORTED))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && --import->opens == 0) {
        CUcontext owner = range->ctx;
        sim_import_drop(import); /* nobody else closes it meanwhile */
        unsigned long long id = range->id;
        sim_ctx_wait_all(owner);
        range = sim_range_at(address);
        if (range != NULL && range->id == id) {
            if (range->phys->shadow != NULL)
                sim_race_access(range->phys, range->offset, range->size, true, NULL,
                                "cuIpcCloseMemHandle");
            sim_race_remember_freed(address, range->size, "cuIpcCloseMemHandle");
            sim_range_free(range);
        }
    }
    sim_unlock();
    return result;
}
