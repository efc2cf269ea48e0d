/*
 * Memory of graphs' allocation nodes, and each device's graph pool.
 *
 * The address is fixed when the node is made and stays while a graph, an executable graph or an
 * allocation that is not freed needs it. Bytes of the device are taken at a launch and kept by the
 * graph pool: they count as used until the executable graph is gone (or a trim finds it idle), as
 * reserved until a trim. A launch that lacks bytes takes those of idle graphs first.
 *
 * Two views of "allocated": the host's, which launches and frees change when they are called
 * (sim_range.dying), and the device's, which the nodes change when they run (sim_range.absent; an
 * access while it holds is a bad address). Both ends are writes for the race detector.
 */
#include "graph.h"

#include <stdlib.h>

#define STEP ((size_t)2 << 20)

struct sim_graph_memory {
    unsigned refs;           /* nodes */
    struct sim_range *range; /* NULL: its context is gone */
    CUdeviceptr address;
    unsigned long long id;
    size_t size;
    struct sim_device *device;
    CUmemPoolProps props;
    size_t taken;        /* of the device */
    bool unused;         /* no executable graph any more */
    struct sim_op *last; /* newest launch or free that concerns it */
    struct sim_graph_memory *next;
};

static struct sim_graph_memory *all;
static struct graph_pool {
    size_t used, used_high, reserved, reserved_high;
} graph_pools[SIM_MAX_DEVICES];

static struct graph_pool *pool_of(const struct sim_device *device)
{
    return &graph_pools[device->index];
}

static bool idle(struct sim_graph_memory *memory)
{
    if (memory->range != NULL && !memory->range->dying)
        return false;
    if (memory->last != NULL && !memory->last->done)
        return false;
    sim_op_unref(memory->last);
    memory->last = NULL;
    return true;
}

static void untake(struct sim_graph_memory *memory)
{
    pool_of(memory->device)->used -= memory->taken;
    memory->taken = 0;
}

/* Lets go what nobody needs any more. */
static void sweep(void)
{
    for (struct sim_graph_memory **at = &all; *at != NULL;) {
        struct sim_graph_memory *memory = *at;
        bool over = idle(memory);
        if (over && (memory->unused || memory->refs == 0))
            untake(memory);
        if (over && memory->refs == 0) {
            *at = memory->next;
            if (memory->range != NULL)
                sim_range_free(memory->range);
            free(memory);
        } else {
            at = &memory->next;
        }
    }
}

CUresult sim_graph_memory_new(struct sim_device *device, size_t size, const CUmemPoolProps *props,
                              struct sim_graph_memory **out)
{
    sweep();
    if (size > device->total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t span = (size + 511) & ~(size_t)511;
    struct sim_phys *phys;
    CUresult result = sim_phys_new(-1, size, &phys);
    if (result != CUDA_SUCCESS)
        return result;
    phys->physical = device->physical; /* charged by the graph pool */
    CUdeviceptr base = sim_va_find(span, 512, 0);
    if (base == 0) {
        sim_phys_unref(phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_range *range = sim_range_new(SIM_GRAPH, base, size, span, phys);
    struct sim_graph_memory *memory = calloc(1, sizeof *memory);
    if (range == NULL || memory == NULL)
        abort();
    range->device = device;
    range->dying = range->absent = true;
    memory->refs = 1;
    memory->range = range;
    memory->address = base;
    memory->id = range->id;
    memory->size = size;
    memory->device = device;
    memory->props = *props;
    memory->next = all;
    all = memory;
    *out = memory;
    return CUDA_SUCCESS;
}

struct sim_graph_memory *sim_graph_memory_at(CUdeviceptr address)
{
    for (struct sim_graph_memory *memory = all; memory != NULL; memory = memory->next) {
        if (memory->address == address && memory->range != NULL)
            return memory;
    }
    return NULL;
}

struct sim_graph_memory *sim_graph_memory_ref(struct sim_graph_memory *memory)
{
    memory->refs++;
    return memory;
}

void sim_graph_memory_unref(struct sim_graph_memory *memory)
{
    if (memory != NULL && --memory->refs == 0)
        sweep();
}

bool sim_graph_memory_allocated(const struct sim_graph_memory *memory)
{
    return memory->range != NULL && !memory->range->dying;
}

bool sim_graph_memory_gone(const struct sim_graph_memory *memory)
{
    return memory->range == NULL;
}

void sim_graph_memory_work(const struct sim_graph_memory *memory, bool alloc, struct sim_work *work)
{
    *work = (struct sim_work){.kind = alloc ? SIM_W_ALLOC : SIM_W_FREE,
                              .what = alloc ? "allocation node" : "free node"};
    work->memory.address = memory->address;
    work->memory.id = memory->id;
}

void sim_graph_memory_params(const struct sim_graph_memory *memory,
                             CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = memory->props, .bytesize = memory->size, .dptr = memory->address};
}

/* ---- launches and frees -----------------------------------------------------------------------
 */
static bool grow(struct graph_pool *pool, const struct sim_device *device, size_t wanted)
{
    wanted = (wanted + STEP - 1) / STEP * STEP;
    if (wanted <= pool->reserved)
        return true;
    if (!sim_machine_charge(device->physical, wanted - pool->reserved))
        return false;
    pool->reserved = wanted;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return true;
}

static void untake_idle(const struct sim_device *device)
{
    sweep();
    for (struct sim_graph_memory *memory = all; memory != NULL; memory = memory->next) {
        if (memory->device == device && idle(memory))
            untake(memory);
    }
}

static void trim(const struct sim_device *device)
{
    untake_idle(device);
    struct graph_pool *pool = pool_of(device);
    size_t keep = (pool->used + STEP - 1) / STEP * STEP;
    if (pool->reserved > keep) {
        sim_machine_uncharge(device->physical, pool->reserved - keep);
        pool->reserved = keep;
    }
}

CUresult sim_graph_memory_take(struct sim_graph_memory *memory)
{
    memory->unused = false;
    if (memory->taken > 0)
        return CUDA_SUCCESS;
    struct graph_pool *pool = pool_of(memory->device);
    size_t span = (memory->size + 511) & ~(size_t)511;
    if (pool->used + span > pool->reserved)
        untake_idle(memory->device);
    if (!grow(pool, memory->device, pool->used + span))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->taken = span;
    pool->used += span;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    return CUDA_SUCCESS;
}

static void follow(struct sim_graph_memory *memory, struct sim_op *op)
{
    sim_op_unref(memory->last);
    memory->last = sim_op_ref(op);
}

void sim_graph_memory_launched(struct sim_graph_memory *memory, bool allocated, struct sim_op *op)
{
    if (memory->range != NULL) {
        memory->range->dying = !allocated;
        memory->range->ctx = op->ctx->owner; /* whose work a plain free waits for */
    }
    follow(memory, op);
}

void sim_graph_memory_unused(struct sim_graph_memory *memory)
{
    memory->unused = true;
}

void sim_graph_memory_freed(struct sim_range *range, struct sim_op *op)
{
    struct sim_graph_memory *memory = sim_graph_memory_at(range->base);
    range->dying = true;
    if (op == NULL)
        range->absent = true;
    if (memory != NULL)
        follow(memory, op);
    sweep();
}

void sim_graph_memory_op_run(struct sim_op *op, struct sim_range *range)
{
    if (op->work.kind == SIM_W_FREE && range->absent) {
        sim_race_bad_address(op, range->base, range->size, true, op->work.what);
        return;
    }
    sim_race_access(range->phys, 0, range->size, true, op, op->work.what);
    range->absent = op->work.kind == SIM_W_FREE;
    if (range->absent)
        sim_race_remember_freed(range->base, range->size, op->work.what);
}

void sim_graph_memory_context_gone(CUcontext ctx)
{
    if (!ctx->is_primary)
        return; /* the pool is the device's */
    for (struct sim_graph_memory *memory = all; memory != NULL; memory = memory->next) {
        if (memory->device == ctx->device && memory->range != NULL) {
            sim_race_remember_freed(memory->address, memory->size, "the end of its context");
            sim_range_free(memory->range);
            memory->range = NULL;
        }
    }
    trim(ctx->device);
}

/* ---- the graph pool ---------------------------------------------------------------------------
 */
CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice dev)
{
    SIM_ENTRY(cuDeviceGraphMemTrim);
    struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    trim(device);
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute name, void *value)
{
    SIM_ENTRY(cuDeviceGetGraphMemAttribute);
    const struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL || (unsigned)name > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    sweep();
    const struct graph_pool *pool = pool_of(device);
    const size_t numbers[] = {pool->used, pool->used_high, pool->reserved, pool->reserved_high};
    *(cuuint64_t *)value = numbers[name];
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute name, void *value)
{
    SIM_ENTRY(cuDeviceSetGraphMemAttribute);
    const struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL || *(const cuuint64_t *)value != 0 ||
        (name != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && name != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct graph_pool *pool = pool_of(device);
    if (name == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        pool->used_high = pool->used;
    else
        pool->reserved_high = pool->reserved;
    sim_unlock();
    return CUDA_SUCCESS;
}
