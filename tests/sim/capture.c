/*
 * Stream capture: what is recorded, and what is not allowed meanwhile.
 *
 * A capture begins on one stream and spreads to others through events. Work on its streams becomes
 * nodes of a graph. The rules are the driver's: calls that might synchronise, waiting for and
 * asking streams and events among them, are refused, and invalidate, if the calling thread's mode
 * and the active captures say so (cuThreadExchangeStreamCaptureMode); calls on a capturing context
 * as a whole, on the legacy stream beside a blocking capture and on the captured streams and events
 * themselves always. An end on the wrong stream invalidates, one by the wrong thread ends. A stream
 * that only joined may go: what it recorded stays, and has to be joined. Capture structs stay for
 * good, because events refer to them.
 */
#include "graph.h"

#include <stdlib.h>

struct sim_capture {
    unsigned long long id;
    CUgraph graph;
    CUstream origin;
    CUstreamCaptureMode mode;
    const void *thread; /* that began it */
    bool invalid, ended;
    bool borrowed;             /* into a graph of the program's */
    struct sim_tips forgotten; /* nodes that a change of dependencies left out on purpose */
    unsigned first;            /* nodes from here on are the capture's */
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

/* *out: the node; may be NULL. */
static CUresult record(CUstream stream, CUgraphNodeType type, const struct sim_work *work,
                       CUgraphNode *out)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUgraphNode node =
        sim_graph_add(stream->capture->graph, type, work, stream->tips.node, stream->tips.count);
    set_tips(&stream->tips, node);
    if (out != NULL)
        *out = node;
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
    CUresult result = record(stream, node_type(work), work, NULL);
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

CUresult sim_capture_event_node(CUstream stream, CUevent event, bool wait)
{
    const struct sim_work nop = {.kind = SIM_W_NOP, .what = "event node"};
    CUgraphNode node;
    CUresult result =
        record(stream, wait ? CU_GRAPH_NODE_TYPE_WAIT_EVENT : CU_GRAPH_NODE_TYPE_EVENT_RECORD, &nop,
               &node);
    if (result == CUDA_SUCCESS)
        node->event = event;
    return result;
}

CUresult sim_capture_graph(CUstream stream, CUgraph graph)
{
    const struct sim_work nop = {.kind = SIM_W_NOP, .what = "child graph"};
    CUgraphNode node;
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (sim_graph_has_memory(graph)) {
        invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult result = record(stream, CU_GRAPH_NODE_TYPE_GRAPH, &nop, &node);
    if (result == CUDA_SUCCESS) {
        node->child = sim_graph_copy(graph, false, false);
        node->child->parent = node;
    }
    return result;
}

/* What an event of a capture that is over answers to everything but being recorded again. */
static CUresult over(const struct sim_capture *capture)
{
    return capture->invalid ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult sim_capture_event_ask(CUevent event)
{
    struct sim_capture *capture = event->capture;
    if (capture == NULL)
        return sim_capture_unsafe(event->ctx);
    if (capture->ended)
        return over(capture);
    invalidate(capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult sim_capture_event_wait(CUstream stream, CUevent event)
{
    struct sim_capture *theirs = event->capture;
    if (theirs != NULL && theirs->ended)
        return over(theirs);
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
    free(capture->forgotten.node);
    capture->forgotten = (struct sim_tips){0};
    capture->ended = true;
    active--;
}

static void discard(struct sim_capture *capture)
{
    if (!capture->borrowed && sim_graph_alive(capture->graph))
        sim_graph_free(capture->graph);
}

/* A stream that began a capture takes it along; one that joined just leaves it. */
void sim_capture_stream_gone(CUstream stream)
{
    struct sim_capture *capture = stream->capture;
    if (capture == NULL)
        return;
    if (capture->origin == stream) {
        end(capture);
        discard(capture);
    } else {
        leave(stream);
    }
}

CUresult sim_capture_mem_alloc(CUstream stream, const CUmemPoolProps *props, size_t size,
                               CUdeviceptr *out)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct sim_graph_memory *memory;
    CUresult result = sim_graph_memory_new(stream->ctx->device, size, props, &memory);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_work work;
    CUgraphNode node = NULL;
    sim_graph_memory_work(memory, true, &work);
    result = record(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &work, &node);
    if (result == CUDA_SUCCESS)
        node->memory = memory;
    *out = work.memory.address;
    return result;
}

CUresult sim_capture_mem_free(CUstream stream, CUdeviceptr address)
{
    struct sim_graph_memory *memory = sim_graph_memory_at(address);
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work;
    CUgraphNode node = NULL;
    sim_graph_memory_work(memory, false, &work);
    CUresult result = record(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, &work, &node);
    if (result == CUDA_SUCCESS)
        node->memory = sim_graph_memory_ref(memory);
    return result;
}

/* ---- entry points
 * --------------------------------------------------------------------------------- */
/* into: the program's graph, NULL for a new one. */
static CUresult begin(CUstream handle, bool pt, CUstreamCaptureMode mode, CUgraph into,
                      const CUgraphNode *before, size_t count)
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
    else if (result == CUDA_SUCCESS && into != NULL && !sim_graph_deps_ok(into, before, count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct sim_capture *capture = calloc(1, sizeof *capture);
        if (capture == NULL)
            abort();
        capture->id = next_id++;
        capture->graph = into != NULL ? into : sim_graph_new();
        capture->borrowed = into != NULL;
        capture->first = capture->graph->count;
        capture->origin = stream;
        capture->mode = mode;
        capture->thread = &thread_mark;
        capture->next = captures;
        captures = capture;
        active++;
        enter(stream, capture);
        for (size_t i = 0; i < count; i++)
            sim_tips_add(&stream->tips, before[i]);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream stream),
          begin(stream, pt, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0))
SIM_TWINS(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz,
          (CUstream stream, CUstreamCaptureMode mode), begin(stream, pt, mode, NULL, NULL, 0))

static CUresult begin_into(CUstream handle, bool pt, CUgraph graph, const CUgraphNode *before,
                           size_t count, CUstreamCaptureMode mode)
{
    sim_lock();
    bool good = sim_graph_alive(graph);
    sim_unlock();
    return good ? begin(handle, pt, mode, graph, before, count) : CUDA_ERROR_INVALID_VALUE;
}
SIM_TWINS(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz,
          (CUstream stream, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *data,
           size_t count, CUstreamCaptureMode mode),
          ((void)data, begin_into(stream, pt, graph, before, count, mode)))

/* Whether all that was captured comes before the origin's end, or was left out on purpose. */
static bool joined(struct sim_capture *capture)
{
    CUgraph graph = capture->graph;
    bool *seen = calloc(graph->count + 1, sizeof *seen);
    if (seen == NULL)
        abort();
    sim_graph_ancestors(graph, &capture->origin->tips, seen);
    sim_graph_ancestors(graph, &capture->forgotten, seen);
    bool all = true;
    for (unsigned i = capture->first; i < graph->count; i++)
        all = all && seen[i];
    free(seen);
    return all;
}

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
    if (result == CUDA_SUCCESS && capture->origin != stream) {
        invalidate(capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (result == CUDA_SUCCESS) {
        *out = NULL;
        if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_mark) {
            result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        } else if (capture->invalid || !sim_graph_alive(capture->graph))
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else if (!joined(capture))
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        end(capture);
        if (result == CUDA_SUCCESS) {
            *out = capture->graph;
        } else {
            capture->invalid = true; /* its events are of nothing now */
            discard(capture);
        }
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph),
          end_capture(stream, pt, graph))

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

/* ---- what a program may ask and change ----------------------------------------------------------
 */
struct info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **nodes;
    const CUgraphEdgeData **data;
    size_t *count;
};

static CUresult ask(CUstream handle, bool pt, struct info info)
{
    if (info.status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && stream->null_stream)
        result = sim_capture_legacy(stream->ctx);
    if (result == CUDA_SUCCESS) {
        *info.status = stream->capture_status;
        if (stream->capture_status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            if (info.id != NULL)
                *info.id = stream->capture->id;
            if (info.graph != NULL)
                *info.graph = stream->capture->graph;
            if (info.nodes != NULL)
                *info.nodes = stream->tips.node;
            if (info.data != NULL)
                *info.data = NULL; /* all edges are plain ones */
            if (info.count != NULL)
                *info.count = stream->tips.count;
        }
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamIsCapturing, cuStreamIsCapturing_ptsz,
          (CUstream stream, CUstreamCaptureStatus *status),
          ask(stream, pt, (struct info){.status = status}))
SIM_TWINS(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz,
          (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id),
          ask(stream, pt, (struct info){.status = status, .id = id}))
SIM_TWINS(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
          (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
           const CUgraphNode **nodes, size_t *count),
          ask(stream, pt, (struct info){status, id, graph, nodes, NULL, count}))
SIM_TWINS(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz,
          (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
           const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *count),
          ask(stream, pt, (struct info){status, id, graph, nodes, data, count}))

static CUresult change(CUstream handle, bool pt, CUgraphNode *nodes, size_t count, unsigned flags)
{
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && !sim_capturing(stream))
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (result == CUDA_SUCCESS && stream->capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (result == CUDA_SUCCESS && !sim_graph_deps_ok(stream->capture->graph, nodes, count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        for (unsigned i = 0; i < stream->tips.count; i++)
            sim_tips_add(&stream->capture->forgotten, stream->tips.node[i]);
        stream->tips.count = 0;
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        sim_tips_add(&stream->tips, nodes[i]);
    sim_unlock();
    return result;
}
SIM_TWINS(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz,
          (CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags),
          change(stream, pt, nodes, count, flags))
SIM_TWINS(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz,
          (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
           unsigned int flags),
          ((void)data, change(stream, pt, nodes, count, flags)))
