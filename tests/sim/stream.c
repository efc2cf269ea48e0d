/*
 * Streams: creation, order, synchronisation, host functions, memory operations on values.
 *
 * Order. A stream's op follows the one before it. The legacy NULL stream waits for every blocking
 * stream of its context and blocking streams wait for it; per-thread default streams are blocking
 * ones. A destroyed stream stays listed until its last op is done, so that whole-context waits
 * cover it.
 */
#include "sim.h"

#include <stdatomic.h>
#include <stdlib.h>

static unsigned long long next_id = 1;
static CUstream spare_streams; /* dead ones; a stale handle meets a dead magic */

static uint64_t this_thread(void)
{
    static atomic_ullong next = 1;
    static _Thread_local uint64_t id;
    if (id == 0)
        id = atomic_fetch_add(&next, 1);
    return id;
}

CUstream sim_stream_new(CUcontext ctx, unsigned flags, int priority)
{
    CUstream stream = sim_config.reuse ? spare_streams : NULL;
    if (stream != NULL)
        spare_streams = stream->next;
    else
        stream = malloc(sizeof *stream);
    if (stream == NULL)
        abort();
    *stream = (struct CUstream_st){.magic = SIM_MAGIC_STREAM,
                                   .id = next_id++,
                                   .ctx = ctx,
                                   .flags = flags,
                                   .priority = priority,
                                   .hints = {.policy = SIM_POLICY_UNSET, .map = {0, 1}},
                                   .slot = sim_slot_new()};
    return stream;
}

void sim_stream_list(CUstream stream)
{
    stream->next = stream->ctx->streams.first;
    stream->ctx->streams.first = stream;
}

static void retire(CUstream stream)
{
    CUcontext ctx = stream->ctx;
    for (CUstream *at = &ctx->streams.first; *at != NULL; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    }
    if (stream->last != NULL)
        sim_clock_join(&ctx->retired, stream->last->clock);
    sim_op_unref(stream->last);
    stream->last = NULL;
    sim_slot_free(stream->slot);
    free(stream->tips.node);
    stream->tips = (struct sim_tips){0};
    stream->magic = SIM_MAGIC_DEAD;
    stream->next = spare_streams;
    spare_streams = stream;
}

void sim_stream_op_done(CUstream stream, struct sim_op *op)
{
    if (stream->destroyed && stream->last == op)
        retire(stream);
}

void sim_streams_context_gone(CUcontext ctx)
{
    while (ctx->streams.first != NULL) {
        sim_capture_stream_gone(ctx->streams.first);
        ctx->streams.first->gone = !ctx->streams.first->destroyed;
        retire(ctx->streams.first);
    }
    retire(ctx->null_stream);
    ctx->null_stream = NULL;
    sim_op_unref(ctx->barrier);
    ctx->barrier = NULL;
    sim_clock_unref(ctx->retired);
    ctx->retired = NULL;
}

static CUstream per_thread(CUcontext ctx)
{
    uint64_t thread = this_thread();
    for (CUstream stream = ctx->streams.first; stream != NULL; stream = stream->next) {
        if (stream->thread == thread)
            return stream;
    }
    CUstream stream = sim_stream_new(ctx, 0, 0);
    sim_stream_list(stream);
    stream->thread = thread;
    return stream;
}

/* Of a stream that a call names. */
static bool alive(CUstream stream)
{
    bool is = stream->magic == SIM_MAGIC_STREAM && !stream->destroyed;
    if (!is && (stream->magic == SIM_MAGIC_STREAM || stream->magic == SIM_MAGIC_DEAD))
        sim_handle_stale("stream", stream, stream->gone);
    return is;
}

CUresult sim_stream_get(CUstream handle, bool pt, CUstream *out)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUcontext ctx;
        CUresult result = sim_ctx_current(&ctx);
        if (result != CUDA_SUCCESS)
            return result;
        pt = handle == NULL ? pt : handle == CU_STREAM_PER_THREAD;
        CUgreenCtx green = sim_green_current();
        if (pt && green != NULL)
            return CUDA_ERROR_INVALID_HANDLE; /* documented for cuStreamGetCtx */
        *out = pt ? per_thread(ctx) : sim_null_stream(ctx, green);
        return CUDA_SUCCESS;
    }
    if (!alive(handle))
        return CUDA_ERROR_INVALID_HANDLE;
    if (handle->green != NULL && handle->green->magic != SIM_MAGIC_GREEN)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = handle;
    return handle->ctx->ending ? CUDA_ERROR_CONTEXT_IS_DESTROYED : handle->ctx->sticky;
}

static bool blocking(const struct CUstream_st *stream)
{
    return (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

void sim_op_stream_order(struct sim_op *op, CUstream stream)
{
    CUcontext ctx = stream->ctx;
    sim_op_after(op, stream->last);
    sim_op_after(op, ctx->barrier);
    if (stream->green != NULL)
        sim_op_after(op, stream->green->ctx.barrier);
    if (stream->null_stream) {
        for (CUstream other = ctx->streams.first; other != NULL; other = other->next) {
            if (blocking(other) && other->green == stream->green)
                sim_op_after(op, other->last);
        }
    } else if (blocking(stream)) {
        sim_op_after(op, sim_null_stream(ctx, stream->green)->last);
    }
}

void sim_stream_follow(CUstream stream, struct sim_op *op)
{
    sim_op_unref(stream->last);
    stream->last = sim_op_ref(op);
}

static CUresult submit_after(CUstream stream, struct sim_work *work, struct sim_op *also,
                             struct sim_op **out)
{
    struct sim_op *op = sim_op_new(stream->ctx, stream, stream->slot, work);
    sim_op_stream_order(op, stream);
    sim_op_after(op, also);
    sim_stream_follow(stream, op);
    if (out != NULL)
        *out = sim_op_ref(op);
    sim_op_start(op);
    return CUDA_SUCCESS;
}

CUresult sim_submit(CUstream stream, struct sim_work *work, struct sim_op **out)
{
    if (out != NULL)
        *out = NULL;
    CUresult result = CUDA_SUCCESS;
    if (work->kind == SIM_W_MEMSET || work->kind == SIM_W_COPY || work->kind == SIM_W_KERNEL)
        sim_ctx_wait_for_frees(stream->ctx);
    if (sim_capturing(stream))
        return sim_capture_work(stream, work);
    if (stream->null_stream && stream->ctx->capturing > 0)
        result = sim_capture_legacy(stream->ctx);
    if (result != CUDA_SUCCESS) {
        sim_work_fini(work);
        return result;
    }
    return submit_after(stream, work, NULL, out);
}

CUresult sim_submit_after(CUstream stream, struct sim_op *dependency)
{
    struct sim_work work = {.kind = SIM_W_NOP, .what = "cuStreamWaitEvent"};
    CUresult result = stream->null_stream ? sim_capture_legacy(stream->ctx) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    return submit_after(stream, &work, dependency, NULL);
}

/* Whether a stream may be asked and waited for, as far as captures go. */
static CUresult may_ask(CUstream stream)
{
    if (sim_capturing(stream))
        return sim_capture_context_op(stream->ctx);
    CUresult result = stream->null_stream ? sim_capture_legacy(stream->ctx) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? sim_capture_unsafe(stream->ctx) : result;
}

CUresult sim_stream_wait(CUstream stream)
{
    CUcontext ctx = stream->ctx;
    CUresult result = may_ask(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (stream->null_stream) {
        struct sim_work work = {.kind = SIM_W_NOP, .what = "cuStreamSynchronize"};
        struct sim_op *op;
        result = sim_submit(stream, &work, &op);
        if (result != CUDA_SUCCESS)
            return result;
        sim_op_wait(op);
        sim_op_unref(op);
    } else {
        sim_op_wait(stream->last);
    }
    sim_pools_synchronised();
    return ctx->sticky;
}

/* ---- entry points -----------------------------------------------------------------------------
 */
static CUresult create(CUstream *out, unsigned flags, int priority)
{
    if (out == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS) {
        sim_ctx_wait_for_frees(ctx);
        result = sim_ctx_current(&ctx);
    }
    if (result == CUDA_SUCCESS) {
        *out = sim_stream_new(ctx, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
        (*out)->green = sim_green_current();
        sim_stream_list(*out);
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned int flags)
{
    SIM_ENTRY(cuStreamCreate);
    return create(out, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    SIM_ENTRY(cuStreamCreateWithPriority);
    return create(out, flags, priority);
}

static CUresult destroy(CUstream stream)
{
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    if (!alive(stream)) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else if (stream->green != NULL && stream->green->magic != SIM_MAGIC_GREEN) {
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } else {
        sim_capture_stream_gone(stream);
        stream->destroyed = true;
        if (stream->last == NULL || stream->last->done)
            retire(stream);
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    SIM_ENTRY(cuStreamDestroy);
    return destroy(stream);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
    SIM_ENTRY(cuStreamDestroy_v2);
    return destroy(stream);
}

static CUresult query(CUstream handle, bool pt)
{
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS)
        result = may_ask(stream);
    if (result == CUDA_SUCCESS) {
        if (stream->last != NULL && !stream->last->done)
            result = CUDA_ERROR_NOT_READY;
        else if (stream->last != NULL)
            sim_host_learns(stream->last->clock);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamQuery, cuStreamQuery_ptsz, (CUstream stream), query(stream, pt))

static CUresult synchronise(CUstream handle, bool pt)
{
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_stream_wait(stream);
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamSynchronize, cuStreamSynchronize_ptsz, (CUstream stream), synchronise(stream, pt))

/* Copies one property of a stream out. */
#define STREAM_PROPERTY(function, type, expression)                                                \
    static CUresult function(CUstream handle, bool pt, type *out)                                  \
    {                                                                                              \
        if (out == NULL)                                                                           \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        sim_lock();                                                                                \
        CUstream stream;                                                                           \
        CUresult result = sim_stream_get(handle, pt, &stream);                                     \
        if (result == CUDA_SUCCESS)                                                                \
            *out = expression;                                                                     \
        sim_unlock();                                                                              \
        return result;                                                                             \
    }
STREAM_PROPERTY(get_priority, int, stream->priority)
STREAM_PROPERTY(get_flags, unsigned, stream->flags)
STREAM_PROPERTY(get_id, unsigned long long, stream->id)
STREAM_PROPERTY(get_ctx, CUcontext, stream->green != NULL ? &stream->green->ctx : stream->ctx)
STREAM_PROPERTY(get_green, CUgreenCtx, stream->green)
STREAM_PROPERTY(get_device, CUdevice, stream->ctx->device->index)

SIM_TWINS(cuStreamGetPriority, cuStreamGetPriority_ptsz, (CUstream stream, int *out),
          get_priority(stream, pt, out))
SIM_TWINS(cuStreamGetFlags, cuStreamGetFlags_ptsz, (CUstream stream, unsigned int *out),
          get_flags(stream, pt, out))
SIM_TWINS(cuStreamGetId, cuStreamGetId_ptsz, (CUstream stream, unsigned long long *out),
          get_id(stream, pt, out))
SIM_TWINS(cuStreamGetCtx, cuStreamGetCtx_ptsz, (CUstream stream, CUcontext *out),
          get_ctx(stream, pt, out))
static CUresult get_both(CUstream handle, bool pt, CUcontext *ctx, CUgreenCtx *green)
{
    if (ctx == NULL || green == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = get_green(handle, pt, green);
    if (result == CUDA_SUCCESS)
        result = get_ctx(handle, pt, ctx);
    if (result == CUDA_SUCCESS && *green != NULL)
        *ctx = (*green)->ctx.owner;
    return result;
}
SIM_TWINS(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz,
          (CUstream stream, CUcontext *ctx, CUgreenCtx *green), get_both(stream, pt, ctx, green))

CUresult CUDAAPI cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *out)
{
    SIM_ENTRY(cuStreamGetGreenCtx);
    return get_green(stream, false, out);
}
SIM_TWINS(cuStreamGetDevice, cuStreamGetDevice_ptsz, (CUstream stream, CUdevice *out),
          get_device(stream, pt, out))

static CUresult enqueue(CUstream handle, bool pt, struct sim_work *work)
{
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, work, NULL);
    sim_unlock();
    return result;
}

static CUresult host_function(CUstream handle, bool pt, CUhostFn fn, void *arg)
{
    if (fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {
        .kind = SIM_W_HOST, .what = "cuLaunchHostFunc", .host = {.fn = fn, .arg = arg}};
    return enqueue(handle, pt, &work);
}
SIM_TWINS(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, (CUstream stream, CUhostFn fn, void *arg),
          host_function(stream, pt, fn, arg))

static CUresult callback(CUstream handle, bool pt, CUstreamCallback fn, void *arg, unsigned flags)
{
    if (fn == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_W_CALLBACK,
                            .what = "cuStreamAddCallback",
                            .callback = {.fn = fn, .arg = arg, .stream = handle}};
    return enqueue(handle, pt, &work);
}
SIM_TWINS(cuStreamAddCallback, cuStreamAddCallback_ptsz,
          (CUstream stream, CUstreamCallback fn, void *arg, unsigned int flags),
          callback(stream, pt, fn, arg, flags))

static CUresult value(CUstream handle, bool pt, bool write, CUdeviceptr address, uint64_t number,
                      unsigned bytes, unsigned flags)
{
    if (address == 0 || address % bytes != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = write ? SIM_W_WRITE_VALUE : SIM_W_WAIT_VALUE,
                            .what = write ? "cuStreamWriteValue" : "cuStreamWaitValue",
                            .value = {address, number, flags, bytes}};
    return enqueue(handle, pt, &work);
}

#define VALUE_OPS(bits)                                                                            \
    SIM_TWINS(cuStreamWriteValue##bits, cuStreamWriteValue##bits##_ptsz,                           \
              (CUstream stream, CUdeviceptr address, cuuint##bits##_t number, unsigned int flags), \
              value(stream, pt, true, address, number, bits / 8, flags))                           \
    SIM_TWINS(cuStreamWriteValue##bits##_v2, cuStreamWriteValue##bits##_v2_ptsz,                   \
              (CUstream stream, CUdeviceptr address, cuuint##bits##_t number, unsigned int flags), \
              value(stream, pt, true, address, number, bits / 8, flags))                           \
    SIM_TWINS(cuStreamWaitValue##bits, cuStreamWaitValue##bits##_ptsz,                             \
              (CUstream stream, CUdeviceptr address, cuuint##bits##_t number, unsigned int flags), \
              value(stream, pt, false, address, number, bits / 8, flags))                          \
    SIM_TWINS(cuStreamWaitValue##bits##_v2, cuStreamWaitValue##bits##_v2_ptsz,                     \
              (CUstream stream, CUdeviceptr address, cuuint##bits##_t number, unsigned int flags), \
              value(stream, pt, false, address, number, bits / 8, flags))
VALUE_OPS(32)
VALUE_OPS(64)

/* Each operation is an op of its own, in order. */
static CUresult batch(CUstream handle, bool pt, unsigned count,
                      const CUstreamBatchMemOpParams *list, unsigned flags)
{
    if (count == 0 || count > 256 || list == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUstreamBatchMemOpParams *one = &list[i];
        switch (one->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            result = value(handle, pt, false, one->waitValue.address, one->waitValue.value, 4,
                           one->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            result = value(handle, pt, false, one->waitValue.address, one->waitValue.value64, 8,
                           one->waitValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            result = value(handle, pt, true, one->writeValue.address, one->writeValue.value, 4,
                           one->writeValue.flags);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            result = value(handle, pt, true, one->writeValue.address, one->writeValue.value64, 8,
                           one->writeValue.flags);
            break;
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        case CU_STREAM_MEM_OP_BARRIER:
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    return result;
}
SIM_TWINS(cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags),
          batch(stream, pt, count, list, flags))
SIM_TWINS(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz,
          (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags),
          batch(stream, pt, count, list, flags))
