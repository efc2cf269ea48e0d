/*
 * Green contexts: parts of a device's SMs with streams of their own.
 *
 * A green context belongs to its device's primary context and holds a reference to it. What is
 * allocated while it is current belongs to the primary, and so do errors; whole-context events and
 * waits of the primary cover its streams, its own (cuGreenCtxRecordEvent, or with its CUcontext
 * form) cover its streams alone. SMs are numbers here: nothing runs faster or slower for them.
 *
 * Splits follow the documented rules for compute capability 9.0: groups of equal size, a multiple
 * of 8 SMs (2 where co-scheduling is ignored); how a chip's clusters bound the number of groups is
 * not imitated.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define SMS 132
#define PARTITION 8
#define PARTITION_FREE 2 /* CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING */

/* Where a resource comes from; kept in its padding. */
struct origin {
    uint32_t magic;
    int device;     /* as the program counts */
    unsigned split; /* 0: whole; else which call of cuDevSmResourceSplitByCount */
};
struct desc {
    uint32_t magic;
    int device;
    unsigned sms;
    struct desc *next;
};

static CUgreenCtx all_greens;
static struct desc *all_descs; /* there is no call that ends one */
static unsigned long long next_id = 1;

static void fill(CUdevResource *out, int device, unsigned sms, unsigned split, unsigned unit)
{
    struct origin origin = {SIM_MAGIC_GREEN, device, split};
    memset(out, 0, sizeof *out);
    out->type = CU_DEV_RESOURCE_TYPE_SM;
    memcpy(out->_internal_padding, &origin, sizeof origin);
    out->sm.smCount = sms;
    out->sm.minSmPartitionSize = unit;
    out->sm.smCoscheduledAlignment = unit;
}

static bool origin_of(const CUdevResource *resource, struct origin *origin)
{
    memcpy(origin, resource->_internal_padding, sizeof *origin);
    return resource->type == CU_DEV_RESOURCE_TYPE_SM && origin->magic == SIM_MAGIC_GREEN;
}

static CUresult check_request(const CUdevResource *out, CUdevResourceType type)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice dev, CUdevResource *out, CUdevResourceType type)
{
    SIM_ENTRY(cuDeviceGetDevResource);
    CUresult result = check_request(out, type);
    if (result == CUDA_SUCCESS && sim_device(dev) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        fill(out, dev, SMS, 0, PARTITION);
    return result;
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext ctx, CUdevResource *out, CUdevResourceType type)
{
    SIM_ENTRY(cuCtxGetDevResource);
    CUresult result = check_request(out, type);
    sim_lock();
    if (result == CUDA_SUCCESS && !sim_ctx_alive(ctx))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        fill(out, ctx->device->index, ctx->green != NULL ? ctx->green->sms : SMS, 0, PARTITION);
    sim_unlock();
    return result;
}

static bool alive(CUgreenCtx green)
{
    return green != NULL && green->magic == SIM_MAGIC_GREEN;
}

CUresult CUDAAPI cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *out,
                                          CUdevResourceType type)
{
    SIM_ENTRY(cuGreenCtxGetDevResource);
    CUresult result = check_request(out, type);
    sim_lock();
    if (result == CUDA_SUCCESS && !alive(green))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        fill(out, green->ctx.device->index, green->sms, 0, PARTITION);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource *out, unsigned int *groups,
                                             const CUdevResource *input, CUdevResource *rest,
                                             unsigned int flags, unsigned int least)
{
    SIM_ENTRY(cuDevSmResourceSplitByCount);
    static unsigned splits;
    struct origin origin;
    const unsigned all = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                         CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    if (groups == NULL || input == NULL || (flags & ~all) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!origin_of(input, &origin))
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (origin.split != 0) /* what came out of a split is split again by way of a green context */
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned sms = input->sm.smCount;
    if (out != NULL && *groups == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (least > sms)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned unit =
        (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0 ? PARTITION_FREE : PARTITION;
    unsigned size = least == 0 ? unit : (least + unit - 1) / unit * unit;
    unsigned fit = sms / size;
    unsigned made = out != NULL && *groups < fit ? *groups : fit;
    if (fit == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    *groups = made;
    if (out == NULL)
        return CUDA_SUCCESS;
    sim_lock();
    unsigned split = ++splits;
    sim_unlock();
    for (unsigned i = 0; i < made; i++)
        fill(&out[i], origin.device, size, split, unit);
    if (rest != NULL) {
        fill(rest, origin.device, sms - made * size, split, unit);
        if (sms == made * size)
            rest->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources,
                                           unsigned int count)
{
    SIM_ENTRY(cuDevResourceGenerateDesc);
    if (out == NULL || resources == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct origin first, origin;
    unsigned sms = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!origin_of(&resources[i], &origin))
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        if (i == 0)
            first = origin;
        if (origin.device != first.device || origin.split != first.split ||
            (count > 1 && origin.split == 0))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        sms += resources[i].sm.smCount;
    }
    struct desc *desc = calloc(1, sizeof *desc);
    if (desc == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    desc->magic = SIM_MAGIC_GREEN;
    desc->device = first.device;
    desc->sms = sms;
    sim_lock();
    desc->next = all_descs;
    all_descs = desc;
    sim_unlock();
    *out = (CUdevResourceDesc)(void *)desc;
    return CUDA_SUCCESS;
}

/* ---- green contexts ---------------------------------------------------------------------------
 */
CUstream sim_null_stream(CUcontext ctx, CUgreenCtx green)
{
    return green != NULL ? green->ctx.null_stream : ctx->null_stream;
}

static void make(CUgreenCtx green, CUcontext primary, unsigned sms)
{
    green->magic = SIM_MAGIC_GREEN;
    green->sms = sms;
    green->ctx = (struct CUctx_st){.magic = SIM_MAGIC_CTX,
                                   .id = (1ull << 32) + next_id++,
                                   .device = primary->device,
                                   .owner = primary,
                                   .is_green = true,
                                   .green = green};
    CUstream stream = sim_stream_new(primary, 0, 0);
    stream->null_stream = true;
    stream->green = green;
    sim_stream_list(stream);
    green->ctx.null_stream = stream;
    green->next = all_greens;
    all_greens = green;
}

CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc resources, CUdevice dev,
                                  unsigned int flags)
{
    SIM_ENTRY(cuGreenCtxCreate);
    const struct desc *desc = (const struct desc *)(void *)resources;
    struct sim_device *device = sim_device(dev);
    if (out == NULL || desc == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (desc->magic != SIM_MAGIC_GREEN || desc->device != dev)
        return CUDA_ERROR_INVALID_VALUE;
    CUgreenCtx green = calloc(1, sizeof *green);
    if (green == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    CUcontext primary = device->primary;
    if (!sim_ctx_alive(primary))
        result = sim_ctx_create(device, device->primary_flags, true, &primary);
    else
        result = primary->sticky;
    if (result == CUDA_SUCCESS) {
        device->primary_refs++;
        make(green, primary, desc->sms);
        *out = green;
    }
    sim_unlock();
    if (result != CUDA_SUCCESS)
        free(green);
    return result;
}

/* The struct stays, so that a stale handle gives an error. */
static void end(CUgreenCtx green)
{
    green->magic = green->ctx.magic = SIM_MAGIC_DEAD;
    sim_op_unref(green->ctx.barrier);
    green->ctx.barrier = NULL;
}

void sim_green_primary_gone(CUcontext ctx)
{
    for (CUgreenCtx green = all_greens; green != NULL; green = green->next) {
        if (alive(green) && green->ctx.owner == ctx)
            end(green); /* its streams go with the primary's */
    }
}

CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx green)
{
    SIM_ENTRY(cuGreenCtxDestroy);
    if (green == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_lock();
    CUresult result = alive(green)                     ? CUDA_SUCCESS
                      : green->magic == SIM_MAGIC_DEAD ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                       : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        struct sim_op *marker = sim_green_marker(green);
        sim_op_wait(marker);
        sim_op_unref(marker);
        if (alive(green)) {
            end(green);
            sim_ctx_unretain(green->ctx.device);
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx green)
{
    SIM_ENTRY(cuCtxFromGreenCtx);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = alive(green);
    if (good)
        *out = &green->ctx;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned int flags,
                                        int priority)
{
    SIM_ENTRY(cuGreenCtxStreamCreate);
    if (out == NULL || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = alive(green) ? green->ctx.owner->sticky : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        *out = sim_stream_new(green->ctx.owner, flags,
                              priority > 0    ? 0
                              : priority < -5 ? -5
                                              : priority);
        (*out)->green = green;
        sim_stream_list(*out);
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id)
{
    SIM_ENTRY(cuGreenCtxGetId);
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (green == NULL)
        green = sim_green_current();
    CUresult result = alive(green)                     ? CUDA_SUCCESS
                      : green == NULL                  ? CUDA_ERROR_INVALID_CONTEXT
                      : green->magic == SIM_MAGIC_DEAD ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                       : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *id = green->ctx.id;
    sim_unlock();
    return result;
}

struct sim_op *sim_green_marker(CUgreenCtx green)
{
    CUcontext ctx = green->ctx.owner;
    struct sim_work nop = {.kind = SIM_W_NOP, .what = "marker"};
    struct sim_op *op = sim_op_new(ctx, NULL, 0, &nop);
    sim_op_ref(op);
    /* Streams of it that are gone are done; which clocks were theirs is not kept apart. */
    sim_clock_join(&op->clock, ctx->retired);
    sim_op_after(op, green->ctx.barrier);
    for (CUstream stream = ctx->streams.first; stream != NULL; stream = stream->next) {
        if (stream->green == green)
            sim_op_after(op, stream->last);
    }
    sim_op_start(op);
    return op;
}
