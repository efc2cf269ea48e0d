/*
 * Hooks: the host waits for streams and contexts, or asks, a stream waits for an event, a graph
 * gets a node that copies, or records an event. What is done with events alone is in hooks_event.c.
 *
 * Nothing here is work, but for cuStreamWaitEvent: what comes after it waits for another stream, or
 * another process, and a fence must not. The rest hears of sticky errors, of copies to host memory
 * that have been waited for (fence_copies.h) and of memory that was freed in the order of a stream
 * (streams.h); a timer that has not passed waits for what frees owe (fence_owed.h).
 */
#include "shim/capture.h"
#include "shim/fence.h"
#include "shim/fence_copies.h"
#include "shim/fence_owed.h"
#include "shim/stream_events.h"

#define STREAM_WAITS(name, twin)                                                                   \
    VS_HOOK name(CUstream stream, CUevent event, unsigned int flags)                               \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_capture_call call;                                                               \
        struct vs_event_wait wait;                                                                 \
        vs_fence_submit(&guard, stream, (twin) == VS_CAPTURE_PER_THREAD);                          \
        vs_events_wait(&wait, &guard, event);                                                      \
        vs_capture_joins(&call, &guard, stream, twin);                                             \
        CUresult result = guard.entries->name(stream, event, flags);                               \
        vs_capture_joined(&call);                                                                  \
        if (result == CUDA_SUCCESS) {                                                              \
            vs_events_waited(&wait, &guard, stream, (twin) == VS_CAPTURE_PER_THREAD);              \
        }                                                                                          \
        return vs_fence_answer(&guard, result);                                                    \
    }

STREAM_WAITS(cuStreamWaitEvent, VS_CAPTURE_LEGACY)
STREAM_WAITS(cuStreamWaitEvent_ptsz, VS_CAPTURE_PER_THREAD)

/* A stream that was waited for, or found idle. */
#define STREAM_PASSED(name, per_thread)                                                            \
    VS_HOOK name(CUstream stream)                                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        uint32_t since = vs_copies_waits();                                                        \
        struct vs_stream_mark mark;                                                                \
        vs_streams_mark_asked(&guard, stream, per_thread, &mark);                                  \
        CUresult result = guard.entries->name(stream);                                             \
        if (result == CUDA_SUCCESS) {                                                              \
            vs_copies_waited_stream(&guard, stream, per_thread, since);                            \
            vs_streams_seen(&mark);                                                                \
        }                                                                                          \
        return vs_fence_answer(&guard, result);                                                    \
    }

STREAM_PASSED(cuStreamQuery, false)
STREAM_PASSED(cuStreamQuery_ptsz, true)
STREAM_PASSED(cuStreamSynchronize, false)
STREAM_PASSED(cuStreamSynchronize_ptsz, true)

#define CONTEXT_PASSED(name, parameters, arguments, context)                                       \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        uint32_t since = vs_copies_waits();                                                        \
        struct vs_stream_marks marks;                                                              \
        vs_streams_marks(&guard, context, &marks);                                                 \
        CUresult result = guard.entries->name arguments;                                           \
        if (result == CUDA_SUCCESS) {                                                              \
            vs_copies_waited_context(&guard, context, since);                                      \
            vs_streams_all_seen(&marks);                                                           \
        }                                                                                          \
        return vs_fence_answer(&guard, result);                                                    \
    }

CONTEXT_PASSED(cuCtxSynchronize, (void), (), NULL)
CONTEXT_PASSED(cuCtxSynchronize_v2, (CUcontext context), (context), context)

/* Timers are read behind a free, which waited for what they time. */
#define ELAPSED(name)                                                                              \
    VS_HOOK name(float *ms, CUevent start, CUevent end)                                            \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        CUresult result = guard.entries->name(ms, start, end);                                     \
        if (result == CUDA_ERROR_NOT_READY && guard.counts) {                                      \
            vs_fence_close_all();                                                                  \
            if (vs_fence_owing(&guard)) {                                                          \
                vs_fence_pay(&guard);                                                              \
                result = guard.entries->name(ms, start, end);                                      \
            }                                                                                      \
        }                                                                                          \
        return vs_fence_answer(&guard, result);                                                    \
    }

ELAPSED(cuEventElapsedTime)
ELAPSED(cuEventElapsedTime_v2)

#if CUDA_VERSION >= 12020
#define IS_COPY(parameters) ((parameters)->type == CU_GRAPH_NODE_TYPE_MEMCPY)
#define IS_RECORD(parameters) ((parameters)->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
#else
#define IS_COPY(parameters) true
#define IS_RECORD(parameters) true
#endif

/* copies, records: what is only read after the driver said yes. */
#define GRAPH_NODE(name, parameters, arguments, copies, records)                                   \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        CUresult result = guard.entries->name arguments;                                           \
        if (result == CUDA_SUCCESS && vs_copies_wanted(&guard) && (copies)) {                      \
            vs_copies_graph_node(&guard);                                                          \
        }                                                                                          \
        if (result == CUDA_SUCCESS && (records)) {                                                 \
            vs_events_distrust(&guard);                                                            \
        }                                                                                          \
        return result;                                                                             \
    }

GRAPH_NODE(cuGraphAddMemcpyNode,
           (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
            const CUDA_MEMCPY3D *copy, CUcontext context),
           (node, graph, after, count, copy, context), vs_copies_3d_to_host(&guard, copy), false)
GRAPH_NODE(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *copy), (node, copy),
           vs_copies_3d_to_host(&guard, copy), false)
GRAPH_NODE(cuGraphExecMemcpyNodeSetParams,
           (CUgraphExec graph, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
           (graph, node, copy, context), vs_copies_3d_to_host(&guard, copy), false)
GRAPH_NODE(cuGraphAddNode,
           (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
            CUgraphNodeParams *what),
           (node, graph, after, count, what), IS_COPY(what), IS_RECORD(what))
GRAPH_NODE(cuGraphAddNode_v2,
           (CUgraphNode * node, CUgraph graph, const CUgraphNode *after,
            const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *what),
           (node, graph, after, edges, count, what), IS_COPY(what), IS_RECORD(what))
GRAPH_NODE(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *what), (node, what),
           IS_COPY(what), IS_RECORD(what))
GRAPH_NODE(cuGraphExecNodeSetParams, (CUgraphExec graph, CUgraphNode node, CUgraphNodeParams *what),
           (graph, node, what), IS_COPY(what), IS_RECORD(what))
