/*
 * Stream capture: what is recorded, and what is not allowed meanwhile.
 *
 * A capture begins on one stream and spreads to others through events. Work on its streams becomes
 * nodes of a graph. The rules are the driver's: calls that might synchronise are refused, and
 * invalidate, if the calling thread's mode and the active captures say so (cuThreadExchange-
 * StreamCaptureMode); calls on a capturing context as a whole always. Capture structs stay for
 * good, because events refer to them.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct sim_capture {
    unsigned long long id;
    CUgraph graph;
    CUstream origin;
    CUstreamCaptureMode mode;
    const void *thread; /* that began it */
    bool invalid, ended;
    struct sim_capture *next;
};

static struct sim_capture *captures; /* ended ones too */
static unsigned active;              /* not ended: the fast way out */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static _Thread_local char thread_mark; /* its address names the thread */

static void invalidate(struct sim_capture *capture)
{
    capture->invalid = true;
    for (CUcontext ctx = sim_contexts; ctx != NULL; ctx = ctx->next) {
        for (CUstream stream = ctx->streams.first; stream != NULL; stream = stream->next) {
            if (stream->capture == capture)
                stream->capture_status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        }
    }
}

CUresult sim_capture_unsafe(CUcontext ctx)
{
    (void)ctx;
    if (active == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (struct sim_capture *capture = captures; capture != NULL; capture = capture->next) {
        bool mine = capture->thread == &thread_mark;
        if (capture->ended || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
            (!mine && (thread_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
                       capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)))
            continue;
        invalidate(capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

static CUresult refuse_all(CUcontext ctx, bool blocking_only, CUresult error)
{
    if (ctx->capturing == 0)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (CUstream stream = ctx->streams.first; stream != NULL; stream = stream->next) {
        if (stream->capture != NULL &&
            !(blocking_only && (stream->flags & CU_STREAM_NON_BLOCKING) != 0)) {
            invalidate(stream->capture);
            result = error;
        }
    }
    return result;
}

CUresult sim_capture_context_op(CUcontext ctx)
{
    return refuse_all(ctx, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult sim_capture_legacy(CUcontext ctx)
{
    return refuse_all(ctx, true, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

/* ---- what a stream's next node depends on
 * --------------------------------------------------------- */
static void set_tips(struct sim_tips *tips, CUgraphNode node)
{
    tips->count = 0;
    sim_tips_add(tips, node);
}

void sim_tips_add(struct sim_tips *tips, CUgraphNode node)
{
    for (unsigned i = 0; i < tips->count; i++) {
        if (tips->node[i] == node)
            return;
    }
    tips->node = realloc(tips->node, (tips->count + 1) * sizeof(CUgraphNode));
    if (tips->node == NULL)
        abort();
    tips->node[tips->count++] = node;
}

static void enter(CUstream stream, struct sim_capture *capture)
{
    stream->capture = capture;
    stream->capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    stream->tips.count = 0;
    stream->ctx->capturing++;
}

static void leave(CUstream stream)
{
    stream->capture = NULL;
    stream->capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
    stream->tips.count = 0;
    stream->ctx->capturing--;
}

static CUresult record(CUstream stream, CUgraphNodeType type, const struct sim_work *work)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUgraphNode node =
        sim_graph_add(stream->capture->graph, type, work, stream->tips.node, stream->tips.count);
    set_tips(&stream->tips, node);
    return CUDA_SUCCESS;
}

static CUgraphNodeType node_type(const struct sim_work *work)
{
    switch (work->kind) {
    case SIM_W_MEMSET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_W_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_W_HOST:
    case SIM_W_CALLBACK:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SIM_W_WAIT_VALUE:
    case SIM_W_WRITE_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case SIM_W_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SIM_W_ALLOC:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case SIM_W_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

CUresult sim_capture_work(CUstream stream, struct sim_work *work)
{
    CUresult result = record(stream, node_type(work), work);
    sim_work_fini(work); /* the node has its own */
    return result;
}

CUresult sim_capture_event_record(CUstream stream, CUevent event)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture;
    event->tips.count = 0;
    for (unsigned i = 0; i < stream->tips.count; i++)
        sim_tips_add(&event->tips, stream->tips.node[i]);
    return CUDA_SUCCESS;
}

CUresult sim_capture_event_wait(CUstream stream, CUevent event)
{
    struct sim_capture *theirs = event->capture;
    if (theirs != NULL && theirs->ended)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (sim_capturing(stream) && stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (theirs == NULL) { /* recorded outside */
        if (event->op == NULL)
            return CUDA_SUCCESS;
        invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (theirs->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->null_stream) {
        invalidate(theirs);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!sim_capturing(stream)) {
        enter(stream, theirs);
    } else if (stream->capture != theirs) {
        invalidate(stream->capture);
        invalidate(theirs);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    for (unsigned i = 0; i < event->tips.count; i++)
        sim_tips_add(&stream->tips, event->tips.node[i]);
    return CUDA_SUCCESS;
}

static void end(struct sim_capture *capture)
{
    for (CUcontext ctx = sim_contexts; ctx != NULL; ctx = ctx->next) {
        for (CUstream stream = ctx->streams.first; stream != NULL; stream = stream->next) {
            if (stream->capture == capture)
                leave(stream);
        }
    }
    capture->ended = true;
    active--;
}

void sim_capture_stream_gone(CUstream stream)
{
    struct sim_capture *capture = stream->capture;
    if (capture == NULL)
        return;
    invalidate(capture);
    if (capture->origin == stream) {
        end(capture);
        sim_graph_free(capture->graph);
    } else {
        leave(stream);
    }
}

CUresult sim_capture_mem_alloc(CUstream stream, struct sim_pool *pool, size_t size,
                               CUdeviceptr *out)
{
    (void)pool;
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct sim_range *range;
    CUresult result = sim_memory_alloc(stream->ctx, size, SIM_ALLOC, &range);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_work work = {.kind = SIM_W_ALLOC, .what = "memory node"};
    work.memory.address = *out = range->base;
    work.memory.id = range->id;
    return record(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &work);
}

CUresult sim_capture_mem_free(CUstream stream, CUdeviceptr address)
{
    const struct sim_range *range = sim_range_at(address);
    if (range == NULL || range->base != address)
        return CUDA_ERROR_INVALID_VALUE;
    /* Its memory stays with the graph: each launch uses it again. */
    struct sim_work work = {.kind = SIM_W_NOP, .what = "memory node"};
    return record(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, &work);
}

/* ---- entry points
 * --------------------------------------------------------------------------------- */
static CUresult begin(CUstream handle, bool pt, CUstreamCaptureMode mode)
{
    static unsigned long long next_id = 1;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && stream->null_stream)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (result == CUDA_SUCCESS && sim_capturing(stream))
        result = CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) {
        struct sim_capture *capture = calloc(1, sizeof *capture);
        if (capture == NULL)
            abort();
        capture->id = next_id++;
        capture->graph = sim_graph_new();
        capture->origin = stream;
        capture->mode = mode;
        capture->thread = &thread_mark;
        capture->next = captures;
        captures = capture;
        active++;
        enter(stream, capture);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream stream),
          begin(stream, pt, CU_STREAM_CAPTURE_MODE_GLOBAL))
SIM_TWINS(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz,
          (CUstream stream, CUstreamCaptureMode mode), begin(stream, pt, mode))

static CUresult end_capture(CUstream handle, bool pt, CUgraph *out)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    struct sim_capture *capture = result == CUDA_SUCCESS ? stream->capture : NULL;
    if (result == CUDA_SUCCESS && capture == NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (result == CUDA_SUCCESS && capture->origin != stream)
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    else if (result == CUDA_SUCCESS && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
             capture->thread != &thread_mark)
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (result == CUDA_SUCCESS) {
        *out = NULL;
        if (capture->invalid)
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else if (!sim_graph_all_before(capture->graph, &stream->tips))
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        end(capture);
        if (result == CUDA_SUCCESS)
            *out = capture->graph;
        else
            sim_graph_free(capture->graph);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph),
          end_capture(stream, pt, graph))

static CUresult status(CUstream handle, bool pt, CUstreamCaptureStatus *out, cuuint64_t *id,
                       CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && stream->null_stream)
        result = sim_capture_legacy(stream->ctx);
    if (result == CUDA_SUCCESS) {
        *out = stream->capture_status;
        if (stream->capture_status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            if (id != NULL)
                *id = stream->capture->id;
            if (graph != NULL)
                *graph = stream->capture->graph;
            if (nodes != NULL)
                *nodes = stream->tips.node;
            if (count != NULL)
                *count = stream->tips.count;
        }
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamIsCapturing, cuStreamIsCapturing_ptsz,
          (CUstream stream, CUstreamCaptureStatus *out),
          status(stream, pt, out, NULL, NULL, NULL, NULL))
SIM_TWINS(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz,
          (CUstream stream, CUstreamCaptureStatus *out, cuuint64_t *id),
          status(stream, pt, out, id, NULL, NULL, NULL))
SIM_TWINS(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
          (CUstream stream, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
           const CUgraphNode **nodes, size_t *count),
          status(stream, pt, out, id, graph, nodes, count))

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SIM_ENTRY(cuThreadExchangeStreamCaptureMode);
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
