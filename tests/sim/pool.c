/*
 * Stream-ordered allocation, and what memory pools hold.
 *
 * An allocation gets its address at the call and takes effect in its stream; a free takes effect in
 * the stream it was given. Both are writes for the race detector, so a use that is not ordered
 * after the allocation and before the free is found. A pool holds memory of the device in steps of
 * 2 MiB: what is used plus what it keeps, and gives back what exceeds its threshold when the host
 * synchronises.
 *
 * A free that has not taken effect leaves room for later allocations of its own stream. Where the
 * device has no more memory, one of another stream does too: the allocation then waits for it on
 * the device (REUSE_ALLOW_INTERNAL_DEPENDENCIES), for that free and for nothing that its stream was
 * given later. Only what other pools are about to get back is waited for by the host.
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
    pool->pending_end = &pool->pending;
    pool->next = pools;
    pools = pool;
    return pool;
}

struct sim_pool *sim_pool_default(struct sim_device *device)
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

struct sim_pool *sim_pool_any(CUmemoryPool handle)
{
    struct sim_pool *pool = (struct sim_pool *)handle;
    return pool != NULL && pool->magic == SIM_MAGIC_POOL ? pool : NULL;
}

struct sim_pool *sim_pool_of(CUmemoryPool handle)
{
    struct sim_pool *pool = sim_pool_any(handle);
    return pool != NULL && !pool->destroyed ? pool : NULL;
}

struct sim_pool *sim_pool_own(CUmemoryPool handle)
{
    struct sim_pool *pool = sim_pool_any(handle);
    return pool != NULL && !pool->imported ? pool : NULL;
}

void sim_pool_shrink(struct sim_pool *pool, size_t keep)
{
    size_t needed = round_up(pool->used, STEP);
    if (keep < needed)
        keep = needed;
    if (pool->reserved > keep) {
        sim_machine_uncharge(pool->device->physical, pool->reserved - keep);
        pool->reserved = keep;
    }
}

void sim_pool_drop(struct sim_pool *pool)
{
    if (!pool->destroyed || pool->live > 0)
        return;
    sim_pool_shrink(pool, 0);
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
        sim_pool_shrink(pool, pool->threshold);
}

static bool grow(struct sim_pool *pool, size_t size)
{
    size_t wanted = round_up(pool->used + size, STEP), most = pool->props.maxSize;
    if (most != 0 && wanted > round_up(most, STEP))
        return false;
    if (wanted > pool->reserved) {
        if (!sim_machine_charge(pool->device->physical, wanted - pool->reserved))
            return false;
        pool->reserved = wanted;
    }
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return true;
}

/* ---- frees under way --------------------------------------------------------------------------
 */
static void expect_free(struct sim_pool *pool, struct sim_op *op, size_t span)
{
    struct sim_pool_free *one = malloc(sizeof *one);
    if (one == NULL)
        abort();
    *one = (struct sim_pool_free){.op = sim_op_ref(op), .left = span};
    *pool->pending_end = one;
    pool->pending_end = &one->next;
}

/* Where the entry of a free is linked; *it is NULL if that has taken effect. */
static struct sim_pool_free **entry_of(struct sim_pool *pool, const struct sim_op *op)
{
    struct sim_pool_free **at = &pool->pending;
    while (*at != NULL && (*at)->op != op)
        at = &(*at)->next;
    return at;
}

/* The free takes effect, or never will (its context is lost): what nobody took over is free. */
static void settle(struct sim_pool *pool, const struct sim_op *op)
{
    struct sim_pool_free **at = entry_of(pool, op), *one = *at;
    if (one == NULL)
        return;
    pool->used -= one->left;
    *at = one->next;
    if (*at == NULL)
        pool->pending_end = at;
    sim_op_unref(one->op);
    free(one);
}

/* Takes over what frees that `stream` was given (NULL: any stream) leave of `missing` bytes. */
static void take_over(struct sim_pool *pool, CUstream stream, size_t missing,
                      struct sim_pool_parts *parts)
{
    for (struct sim_pool_free *one = pool->pending; one != NULL && missing > 0; one = one->next) {
        size_t bytes = one->left < missing ? one->left : missing;
        if (bytes == 0 || one->op->done || (stream != NULL && one->op->stream != stream))
            continue;
        parts->list = realloc(parts->list, (parts->count + 1) * sizeof *parts->list);
        if (parts->list == NULL)
            abort();
        parts->list[parts->count++] = (struct sim_pool_part){sim_op_ref(one->op), bytes};
        one->left -= bytes;
        pool->used -= bytes;
        missing -= bytes;
    }
}

/* What was taken over for an allocation that came to nothing. */
static void hand_back(struct sim_pool *pool, const struct sim_pool_parts *parts)
{
    for (unsigned i = 0; i < parts->count; i++) {
        struct sim_pool_free *one = *entry_of(pool, parts->list[i].op);
        if (one != NULL) {
            one->left += parts->list[i].bytes;
            pool->used += parts->list[i].bytes;
        }
    }
}

/* Bytes that do not fit into what the pool has. */
static size_t lacking(const struct sim_pool *pool, size_t size)
{
    return pool->used + size > pool->reserved ? pool->used + size - pool->reserved : 0;
}

/* Waits for the eldest free under way that has bytes left, in any pool of the device; false: there
 * is none. */
static bool wait_for_a_free(const struct sim_device *device)
{
    for (struct sim_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->device->physical != device->physical)
            continue;
        for (const struct sim_pool_free *one = pool->pending; one != NULL; one = one->next) {
            if (!one->op->done && one->left > 0) {
                sim_op_wait(one->op);
                return true;
            }
        }
    }
    return false;
}

/* Room for `size` bytes, or not. */
static bool find_room(struct sim_pool *pool, CUstream stream, size_t size,
                      struct sim_pool_parts *parts)
{
    for (;;) {
        take_over(pool, stream, lacking(pool, size), parts);
        if (grow(pool, size))
            return true;
        for (struct sim_pool *other = pools; other != NULL; other = other->next)
            sim_pool_shrink(other, 0);
        if (grow(pool, size))
            return true;
        if (pool->reuse[2] != 0)
            take_over(pool, NULL, lacking(pool, size), parts);
        if (grow(pool, size))
            return true;
        if (!wait_for_a_free(pool->device))
            return false;
    }
}

/* ---- allocation --------------------------------------------------------------------------------
 */
static CUresult new_range(struct sim_pool *pool, CUstream stream, size_t size, size_t span,
                          struct sim_range **out)
{
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
    *out = range;
    return CUDA_SUCCESS;
}

static CUresult pool_alloc(CUdeviceptr *out, size_t size, struct sim_pool *pool, CUstream stream)
{
    size_t span = round_up(size, 512);
    if (size > pool->device->total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const unsigned long long id = stream->id;
    struct sim_pool_parts parts = {0};
    struct sim_range *range = NULL;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pool->live++; /* so that the pool stays while we wait */
    if (find_room(pool, stream, span, &parts)) {
        bool gone = stream->magic != SIM_MAGIC_STREAM || stream->id != id || stream->destroyed;
        result = gone ? CUDA_ERROR_INVALID_HANDLE : new_range(pool, stream, size, span, &range);
    }
    for (unsigned i = 0; i < parts.count && result == CUDA_SUCCESS; i++)
        result = sim_submit_after(stream, parts.list[i].op);
    if (result == CUDA_SUCCESS) {
        struct sim_work work = {.kind = SIM_W_ALLOC, .what = "cuMemAllocAsync"};
        work.memory.address = range->base;
        work.memory.id = range->id;
        result = sim_submit(stream, &work, NULL);
    }
    if (result == CUDA_SUCCESS) {
        pool->used += span;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
        *out = range->base;
    } else {
        if (range != NULL)
            sim_range_free(range);
        hand_back(pool, &parts);
        pool->live--;
        sim_pool_drop(pool);
    }
    for (unsigned i = 0; i < parts.count; i++)
        sim_op_unref(parts.list[i].op);
    free(parts.list);
    return result;
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
        sim_pool_default(stream->ctx->device);
        pool = from_pool ? sim_pool_own(handle) : stream->ctx->device->pool;
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

/* Away with the range; the pool's bytes are accounted for already. */
static void forget(struct sim_range *range)
{
    struct sim_pool *pool = range->pool;
    sim_range_free(range);
    if (pool != NULL) {
        pool->live--;
        sim_pool_drop(pool);
    }
}

void sim_pool_free_now(struct sim_range *range)
{
    if (range->pool != NULL)
        range->pool->used -= range->span;
    forget(range);
}

static bool freeable(const struct sim_range *range, CUdeviceptr address)
{
    return range != NULL && range->base == address && !range->dying &&
           (range->kind == SIM_ASYNC || range->kind == SIM_ALLOC || range->kind == SIM_GRAPH);
}

static CUresult submit_free(CUstream stream, struct sim_range *range)
{
    struct sim_work work = {.kind = SIM_W_FREE, .what = "cuMemFreeAsync"};
    work.memory.address = range->base;
    work.memory.id = range->id;
    range->dying = true;
    struct sim_op *op;
    CUresult result = sim_submit(stream, &work, &op);
    if (result != CUDA_SUCCESS)
        range->dying = false;
    else if (range->kind == SIM_GRAPH)
        sim_graph_memory_freed(range, op);
    else if (range->pool != NULL)
        expect_free(range->pool, op, range->span);
    sim_op_unref(op);
    return result;
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
        if (result == CUDA_SUCCESS && address != 0)
            result =
                freeable(range, address) ? submit_free(stream, range) : CUDA_ERROR_INVALID_VALUE;
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
                settle(range->pool, op);
            forget(range);
        }
    }
    sim_unlock();
}

void sim_pools_context_gone(CUcontext ctx)
{
    for (struct sim_pool *pool = pools, *next; pool != NULL; pool = next) {
        next = pool->next; /* the pool may go with its last free */
        for (struct sim_pool_free *one = pool->pending, *later; one != NULL; one = later) {
            later = one->next;
            if (one->op->ctx != ctx)
                continue;
            struct sim_range *range = sim_range_at(one->op->work.memory.address);
            settle(pool, one->op);
            forget(range);
        }
    }
}
