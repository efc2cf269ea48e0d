/*
 * Events, of streams and of whole contexts.
 *
 * An event holds the op of its last record. cuCtxRecordEvent records after everything submitted in
 * the context, non-blocking and destroyed streams included; cuCtxWaitEvent moves the context's
 * barrier, which every later op of the context, on streams old and new, waits for. Both refuse (and
 * invalidate) while a stream of the context captures.
 */
#include "sim.h"

#include <stdlib.h>

static CUevent spare_events, all_events;

/* Of an event that a call names. */
static bool alive(CUevent event)
{
    if (event != NULL && event->magic == SIM_MAGIC_DEAD)
        sim_handle_stale("event", event, event->gone);
    return event != NULL && event->magic == SIM_MAGIC_EVENT;
}

static void list(CUevent event)
{
    CUcontext ctx = event->ctx;
    event->next = ctx->events;
    event->previous = &ctx->events;
    if (ctx->events != NULL)
        ctx->events->previous = &event->next;
    ctx->events = event;
}

CUevent sim_event_new(CUcontext ctx, unsigned flags)
{
    CUevent event = spare_events;
    if (event != NULL && sim_config.reuse) {
        spare_events = event->next;
    } else if ((event = calloc(1, sizeof *event)) != NULL) {
        event->older = all_events;
        all_events = event;
    } else {
        abort();
    }
    *event = (struct CUevent_st){
        .magic = SIM_MAGIC_EVENT, .flags = flags, .ctx = ctx, .older = event->older};
    list(event);
    return event;
}

CUresult CUDAAPI cuEventCreate(CUevent *out, unsigned int flags)
{
    SIM_ENTRY(cuEventCreate);
    const unsigned all = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (out == NULL || (flags & ~all) != 0 ||
        ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS) {
        CUevent event = sim_event_new(ctx, flags);
        if ((flags & CU_EVENT_INTERPROCESS) != 0) {
            event->ipc = sim_ipc_event_new();
            if (event->ipc == NULL)
                result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        *out = event;
    }
    sim_unlock();
    return result;
}

static void end(CUevent event, bool with_context)
{
    sim_op_unref(event->op);
    event->op = NULL;
    free(event->tips.node);
    event->tips = (struct sim_tips){0};
    event->magic = SIM_MAGIC_DEAD;
    event->gone = with_context;
    *event->previous = event->next;
    if (event->next != NULL)
        event->next->previous = event->previous;
    event->next = spare_events;
    spare_events = event;
}

void sim_events_context_gone(CUcontext ctx)
{
    while (ctx->events != NULL)
        end(ctx->events, true);
}

static CUresult destroy(CUevent event)
{
    sim_lock();
    CUresult result = alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        end(event, false);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
    SIM_ENTRY(cuEventDestroy);
    return destroy(event);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event)
{
    SIM_ENTRY(cuEventDestroy_v2);
    return destroy(event);
}

static CUresult record(CUevent event, CUstream handle, bool pt, unsigned flags)
{
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && event->ctx->owner != stream->ctx->owner)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && sim_capturing(stream)) {
        result = (flags & CU_EVENT_RECORD_EXTERNAL) != 0
                     ? sim_capture_event_node(stream, event, false)
                     : sim_capture_event_record(stream, event);
    } else if (result == CUDA_SUCCESS) {
        sim_ctx_wait_for_frees(stream->ctx);
        struct sim_work work = {.kind = SIM_W_NOP, .what = "cuEventRecord"};
        if (event->ipc != NULL)
            work = sim_ipc_event_record(event->ipc);
        struct sim_op *op;
        result = sim_submit(stream, &work, &op);
        if (result == CUDA_SUCCESS) {
            sim_op_unref(event->op);
            event->op = op;
            event->capture = NULL;
        }
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuEventRecord, cuEventRecord_ptsz, (CUevent event, CUstream stream),
          record(event, stream, pt, 0))
SIM_TWINS(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz,
          (CUevent event, CUstream stream, unsigned int flags), record(event, stream, pt, flags))

/* What another process recorded last may be newer than our own record. */
static CUresult wait_ipc(CUstream stream, CUevent event)
{
    CUresult result = event->op != NULL ? sim_submit_after(stream, event->op) : CUDA_SUCCESS;
    struct sim_work work = sim_ipc_event_wait(event->ipc);
    return result == CUDA_SUCCESS ? sim_submit(stream, &work, NULL) : result;
}

static CUresult wait_event(CUstream handle, bool pt, CUevent event, unsigned flags)
{
    if ((flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS) {
        if (sim_capturing(stream) && (flags & CU_EVENT_WAIT_EXTERNAL) != 0)
            result = sim_capture_event_node(stream, event, true);
        else if (sim_capturing(stream) || event->capture != NULL)
            result = sim_capture_event_wait(stream, event);
        else if (event->ipc != NULL)
            result = wait_ipc(stream, event);
        else if (event->op != NULL)
            result = sim_submit_after(stream, event->op);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamWaitEvent, cuStreamWaitEvent_ptsz,
          (CUstream stream, CUevent event, unsigned int flags),
          wait_event(stream, pt, event, flags))

CUresult CUDAAPI cuEventQuery(CUevent event)
{
    SIM_ENTRY(cuEventQuery);
    sim_lock();
    CUresult result = alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_event_ask(event);
    if (result == CUDA_SUCCESS)
        result = event->ctx->sticky;
    if (result == CUDA_SUCCESS && event->ipc != NULL && sim_ipc_event_pending(event->ipc))
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS && event->op != NULL) {
        if (!event->op->done)
            result = CUDA_ERROR_NOT_READY;
        else
            sim_host_learns(event->op->clock);
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
    SIM_ENTRY(cuEventSynchronize);
    sim_lock();
    CUresult result = alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_event_ask(event);
    if (result == CUDA_SUCCESS) {
        CUcontext ctx = event->ctx;
        struct sim_ipc_event *ipc = event->ipc;
        sim_op_wait(event->op);
        if (ipc != NULL)
            sim_ipc_event_synchronize(ipc);
        sim_pools_synchronised();
        result = ctx->sticky;
    }
    sim_unlock();
    return result;
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    if (ms == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = CUDA_SUCCESS;
    if (!alive(start) || !alive(end) || start->op == NULL || end->op == NULL ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!start->op->done || !end->op->done)
        result = CUDA_ERROR_NOT_READY;
    else
        *ms = (float)((double)(int64_t)(end->op->done_ns - start->op->done_ns) / 1e6);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    SIM_ENTRY(cuEventElapsedTime);
    return elapsed(ms, start, end);
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    SIM_ENTRY(cuEventElapsedTime_v2);
    return elapsed(ms, start, end);
}

/* ---- context events ----------------------------------------------------------------------------
 */
/* *green: set where the context is the form of a green one, whose own work is meant then. */
static CUresult context_of(CUcontext given, CUcontext *out, CUgreenCtx *green)
{
    if (given == NULL) {
        *green = sim_green_current();
        return sim_ctx_current(out);
    }
    if (!sim_ctx_named(given) || !sim_ctx_alive(given->owner))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = given->owner;
    *green = given->green;
    return (*out)->sticky;
}

static CUresult green_of(CUgreenCtx green, CUcontext *out)
{
    if (green == NULL || green->magic != SIM_MAGIC_GREEN)
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = green->ctx.owner;
    return (*out)->sticky;
}

static CUresult record_all(CUcontext ctx, CUgreenCtx green, CUevent event)
{
    if (!alive(event) || event->ctx->owner != ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_capture_context_op(ctx);
    if (result == CUDA_SUCCESS) {
        sim_op_unref(event->op);
        event->op = green != NULL ? sim_green_marker(green) : sim_ctx_marker(ctx);
        event->capture = NULL;
        if (event->ipc != NULL) { /* tells the other processes */
            struct sim_work work = sim_ipc_event_record(event->ipc);
            struct sim_op *op = sim_op_new(ctx, NULL, 0, &work);
            sim_op_after(op, event->op);
            sim_op_start(op);
        }
    }
    return result;
}

/* Moves the context's barrier, or the green context's. */
static CUresult wait_all(CUcontext ctx, CUgreenCtx green, CUevent event)
{
    if (!alive(event))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = sim_capture_context_op(ctx);
    if (result == CUDA_SUCCESS && (event->op != NULL || event->ipc != NULL)) {
        struct sim_work work = {.kind = SIM_W_NOP, .what = "cuCtxWaitEvent"};
        if (event->ipc != NULL)
            work = sim_ipc_event_wait(event->ipc);
        struct sim_op *op = sim_op_new(ctx, NULL, 0, &work);
        struct sim_op **barrier = green != NULL ? &green->ctx.barrier : &ctx->barrier;
        sim_op_after(op, event->op);
        sim_op_after(op, *barrier);
        sim_op_unref(*barrier);
        *barrier = sim_op_ref(op);
        sim_op_start(op);
    }
    return result;
}

CUresult CUDAAPI cuCtxRecordEvent(CUcontext given, CUevent event)
{
    SIM_ENTRY(cuCtxRecordEvent);
    sim_lock();
    CUcontext ctx;
    CUgreenCtx green;
    CUresult result = context_of(given, &ctx, &green);
    if (result == CUDA_SUCCESS)
        result = record_all(ctx, green, event);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxWaitEvent(CUcontext given, CUevent event)
{
    SIM_ENTRY(cuCtxWaitEvent);
    sim_lock();
    CUcontext ctx;
    CUgreenCtx green;
    CUresult result = context_of(given, &ctx, &green);
    if (result == CUDA_SUCCESS)
        result = wait_all(ctx, green, event);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    SIM_ENTRY(cuGreenCtxRecordEvent);
    sim_lock();
    CUcontext ctx;
    CUresult result = green_of(green, &ctx);
    if (result == CUDA_SUCCESS)
        result = record_all(ctx, green, event);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    SIM_ENTRY(cuGreenCtxWaitEvent);
    sim_lock();
    CUcontext ctx;
    CUresult result = green_of(green, &ctx);
    if (result == CUDA_SUCCESS)
        result = wait_all(ctx, green, event);
    sim_unlock();
    return result;
}
