/*
 * Contexts: primary and created, and the per-thread stack.
 *
 * A destroyed context keeps its struct (marked dead), so that a stale handle gives an error and not
 * a crash; the primary context of a device keeps its handle over release and retain, as on real
 * drivers.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK 64

CUcontext sim_contexts;
static CUcontext spare_contexts; /* destroyed ones that were created: their handles come back */
static unsigned long long next_id = 1;
static _Thread_local struct {
    CUcontext ctx[STACK];
    unsigned depth;
} stack;

bool sim_ctx_alive(CUcontext ctx)
{
    return ctx != NULL && ctx->magic == SIM_MAGIC_CTX;
}

bool sim_ctx_named(CUcontext ctx)
{
    if (ctx->magic == SIM_MAGIC_DEAD && !ctx->is_primary && !ctx->is_green)
        sim_handle_stale("context", ctx, false);
    return sim_ctx_alive(ctx);
}

CUcontext sim_ctx_peek(void)
{
    return stack.depth > 0 ? stack.ctx[stack.depth - 1] : NULL;
}

CUresult sim_ctx_current(CUcontext *out)
{
    CUcontext ctx = sim_ctx_peek();
    if (ctx == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!sim_ctx_alive(ctx))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!sim_ctx_alive(ctx->owner) || ctx->owner->ending)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = ctx->owner;
    return ctx->owner->sticky;
}

CUresult sim_ctx_asked(CUcontext *out)
{
    CUcontext ctx = sim_ctx_peek();
    if (sim_config.ghosts && ctx != NULL && !sim_ctx_alive(ctx) && !ctx->is_primary &&
        !ctx->is_green) {
        *out = ctx;
        return CUDA_SUCCESS;
    }
    return sim_ctx_current(out);
}

CUgreenCtx sim_green_current(void)
{
    CUcontext ctx = sim_ctx_peek();
    return ctx != NULL ? ctx->green : NULL;
}

void sim_ctx_push(CUcontext ctx)
{
    if (stack.depth < STACK)
        stack.ctx[stack.depth++] = ctx;
}

static void set_current(CUcontext ctx)
{
    if (stack.depth > 0)
        stack.depth--;
    if (ctx != NULL)
        sim_ctx_push(ctx);
}

CUresult sim_ctx_create(struct sim_device *device, unsigned flags, bool primary, CUcontext *out)
{
    if (!sim_machine_charge(device->physical, sim_config.context))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext ctx = primary ? device->primary : sim_config.reuse ? spare_contexts : NULL;
    bool known = ctx != NULL;
    if (known && !primary)
        spare_contexts = ctx->spare;
    if (ctx == NULL)
        ctx = malloc(sizeof *ctx);
    if (ctx == NULL) {
        sim_machine_uncharge(device->physical, sim_config.context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUcontext next = known ? ctx->next : sim_contexts;
    *ctx = (struct CUctx_st){.magic = SIM_MAGIC_CTX,
                             .id = next_id++,
                             .device = device,
                             .owner = ctx,
                             .is_primary = primary,
                             .flags = flags,
                             .api_version = 3020,
                             .attach_count = 1,
                             .charged = sim_config.context,
                             .next = next};
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    if (!known)
        sim_contexts = ctx;
    if (primary)
        device->primary = ctx;
    ctx->null_stream = sim_stream_new(ctx, 0, 0);
    ctx->null_stream->null_stream = true;
    *out = ctx;
    return CUDA_SUCCESS;
}

static void wait_for_end(CUcontext ctx)
{
    while (sim_ctx_alive(ctx) && ctx->ending) {
        sim_unlock();
        usleep(50);
        sim_lock();
    }
}

/* From here on it takes no work, and what it has is waited for. */
void sim_ctx_destroy(CUcontext ctx)
{
    if (ctx->ending) { /* by somebody else */
        wait_for_end(ctx);
        return;
    }
    ctx->ending = true;
    do {
        sim_ctx_wait_all(ctx);
    } while (ctx->pending > 0);
    ctx->magic = SIM_MAGIC_DEAD;
    sim_green_primary_gone(ctx);
    sim_memory_context_gone(ctx);
    sim_streams_context_gone(ctx);
    sim_events_context_gone(ctx);
    sim_machine_uncharge(ctx->device->physical, ctx->charged);
    ctx->charged = 0;
    if (!ctx->is_primary) {
        ctx->spare = spare_contexts;
        spare_contexts = ctx;
    }
}

/* ---- primary ------------------------------------------------------------------------------- */
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    SIM_ENTRY(cuDevicePrimaryCtxRetain);
    struct sim_device *device = sim_device(dev);
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    CUcontext ctx = device->primary;
    if (sim_ctx_alive(ctx))
        wait_for_end(ctx);
    if (!sim_ctx_alive(ctx))
        result = sim_ctx_create(device, device->primary_flags, true, &ctx);
    if (result == CUDA_SUCCESS) {
        device->primary_refs++;
        *pctx = ctx;
        result = ctx->sticky;
    }
    sim_unlock();
    return result;
}

void sim_ctx_unretain(struct sim_device *device)
{
    if (device->primary_refs > 0 && --device->primary_refs == 0 && sim_ctx_alive(device->primary))
        sim_ctx_destroy(device->primary);
}

static CUresult primary_release(CUdevice dev)
{
    struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    if (device->primary_refs == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        sim_ctx_unretain(device);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SIM_ENTRY(cuDevicePrimaryCtxRelease);
    return primary_release(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    SIM_ENTRY(cuDevicePrimaryCtxRelease_v2);
    return primary_release(dev);
}

static CUresult primary_reset(CUdevice dev)
{
    struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    /* Who has retained it still has (measured): the count stays. */
    if (sim_ctx_alive(device->primary))
        sim_ctx_destroy(device->primary);
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev)
{
    SIM_ENTRY(cuDevicePrimaryCtxReset);
    return primary_reset(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    SIM_ENTRY(cuDevicePrimaryCtxReset_v2);
    return primary_reset(dev);
}

static CUresult primary_set_flags(CUdevice dev, unsigned flags)
{
    struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    device->primary_flags = flags;
    if (sim_ctx_alive(device->primary))
        device->primary->flags = flags;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    SIM_ENTRY(cuDevicePrimaryCtxSetFlags);
    return primary_set_flags(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    SIM_ENTRY(cuDevicePrimaryCtxSetFlags_v2);
    return primary_set_flags(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    SIM_ENTRY(cuDevicePrimaryCtxGetState);
    const struct sim_device *device = sim_device(dev);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags == NULL || active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    *flags = device->primary_flags;
    *active = sim_ctx_alive(device->primary);
    sim_unlock();
    return CUDA_SUCCESS;
}

/* ---- created ------------------------------------------------------------------------------- */
static CUresult create(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    struct sim_device *device = sim_device(dev);
    if (pctx == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    CUresult result = sim_ctx_create(device, flags, false, pctx);
    if (result == CUDA_SUCCESS)
        sim_ctx_push(*pctx);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    SIM_ENTRY(cuCtxCreate);
    return create(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    SIM_ENTRY(cuCtxCreate_v2);
    return create(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *params, int count,
                                unsigned int flags, CUdevice dev)
{
    SIM_ENTRY(cuCtxCreate_v3);
    if ((params == NULL) != (count == 0))
        return CUDA_ERROR_INVALID_VALUE;
    return create(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *params, unsigned int flags,
                                CUdevice dev)
{
    SIM_ENTRY(cuCtxCreate_v4);
    /* Exactly one of the two where there are parameters at all. */
    if (params != NULL && (params->execAffinityParams == NULL) == (params->cigParams == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (params != NULL && params->cigParams != NULL)
        return CUDA_ERROR_NOT_SUPPORTED; /* sharing with graphics */
    return create(pctx, flags, dev);
}

static CUresult destroy(CUcontext ctx)
{
    if (ctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    if (!sim_ctx_named(ctx) || ctx->ending) {
        result = ctx->magic != SIM_MAGIC_DEAD && !ctx->ending ? CUDA_ERROR_INVALID_CONTEXT
                                                              : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } else if (ctx->is_primary || ctx->is_green) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        if (sim_ctx_peek() == ctx)
            set_current(NULL);
        sim_ctx_destroy(ctx);
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx)
{
    SIM_ENTRY(cuCtxDestroy);
    return destroy(ctx);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx)
{
    SIM_ENTRY(cuCtxDestroy_v2);
    return destroy(ctx);
}

CUresult CUDAAPI cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    SIM_ENTRY(cuCtxAttach);
    CUcontext ctx = sim_ctx_peek();
    if (pctx == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_ctx_alive(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_lock();
    ctx->attach_count++;
    *pctx = ctx;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDetach(CUcontext ctx)
{
    SIM_ENTRY(cuCtxDetach);
    if (!sim_ctx_alive(ctx) || ctx != sim_ctx_peek())
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_lock();
    bool last = --ctx->attach_count == 0;
    sim_unlock();
    return last ? destroy(ctx) : CUDA_SUCCESS;
}

/* ---- the thread's stack --------------------------------------------------------------------- */
static CUresult push(CUcontext ctx)
{
    if (ctx == NULL || stack.depth == STACK)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_ctx_named(ctx)             ? CUDA_SUCCESS
                      : ctx->magic == SIM_MAGIC_DEAD ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                     : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        sim_ctx_push(ctx);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx)
{
    SIM_ENTRY(cuCtxPushCurrent);
    return push(ctx);
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx)
{
    SIM_ENTRY(cuCtxPushCurrent_v2);
    return push(ctx);
}

static CUresult pop(CUcontext *pctx)
{
    if (stack.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext ctx = stack.ctx[--stack.depth];
    if (pctx != NULL)
        *pctx = ctx;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *pctx)
{
    SIM_ENTRY(cuCtxPopCurrent);
    return pop(pctx);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *pctx)
{
    SIM_ENTRY(cuCtxPopCurrent_v2);
    return pop(pctx);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx)
{
    SIM_ENTRY(cuCtxSetCurrent);
    sim_lock();
    CUresult result = ctx == NULL || sim_ctx_named(ctx) ? CUDA_SUCCESS
                      : ctx->magic == SIM_MAGIC_DEAD    ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                        : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        set_current(ctx);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *pctx)
{
    SIM_ENTRY(cuCtxGetCurrent);
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = sim_ctx_peek();
    return CUDA_SUCCESS;
}
