/*
 * Hooks: events of the program's. Recording one is work, before which open epochs get their fences;
 * what it says of memory that was freed in the order of its stream is noted, and told where the
 * host or another stream waits for it (stream_events.h).
 */
#include "shim/fence.h"
#include "shim/stream_events.h"

#define RECORD(name, parameters, arguments, per_thread)                                            \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_event_call call;                                                                 \
        vs_fence_submit(&guard, stream, per_thread);                                               \
        vs_events_record(&call, &guard, event, stream, per_thread);                                \
        CUresult result = guard.entries->name arguments;                                           \
        vs_events_recorded(&call, result);                                                         \
        return vs_fence_answer(&guard, result);                                                    \
    }

RECORD(cuEventRecord, (CUevent event, CUstream stream), (event, stream), false)
RECORD(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream), true)

/* In a capture this may be a node, which records the event whenever the graph is launched. */
#define RECORD_WITH_FLAGS(name, twin)                                                              \
    VS_HOOK name(CUevent event, CUstream stream, unsigned int flags)                               \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_event_call call;                                                                 \
        vs_fence_submit(&guard, stream, (twin) == VS_CAPTURE_PER_THREAD);                          \
        if (flags != CU_EVENT_RECORD_DEFAULT && vs_capture_records(&guard, stream, twin)) {        \
            vs_events_distrust(&guard);                                                            \
        }                                                                                          \
        vs_events_record(&call, &guard, event, stream, (twin) == VS_CAPTURE_PER_THREAD);           \
        CUresult result = guard.entries->name(event, stream, flags);                               \
        vs_events_recorded(&call, result);                                                         \
        return vs_fence_answer(&guard, result);                                                    \
    }

RECORD_WITH_FLAGS(cuEventRecordWithFlags, VS_CAPTURE_LEGACY)
RECORD_WITH_FLAGS(cuEventRecordWithFlags_ptsz, VS_CAPTURE_PER_THREAD)

/* Of all streams of a context. */
#define RECORD_WIDE(name, type)                                                                    \
    VS_HOOK name(type context, CUevent event)                                                      \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_event_call call;                                                                 \
        vs_fence_submit(&guard, vs_fence_last.stream, false);                                      \
        vs_events_record_wide(&call, &guard, event);                                               \
        CUresult result = guard.entries->name(context, event);                                     \
        vs_events_recorded(&call, result);                                                         \
        return vs_fence_answer(&guard, result);                                                    \
    }

RECORD_WIDE(cuCtxRecordEvent, CUcontext)
RECORD_WIDE(cuGreenCtxRecordEvent, CUgreenCtx)

#define PASSED(name)                                                                               \
    VS_HOOK name(CUevent event)                                                                    \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_event_wait wait;                                                                 \
        vs_events_wait(&wait, &guard, event);                                                      \
        CUresult result = guard.entries->name(event);                                              \
        if (result == CUDA_SUCCESS) {                                                              \
            vs_events_passed(&wait);                                                               \
        }                                                                                          \
        return vs_fence_answer(&guard, result);                                                    \
    }

PASSED(cuEventQuery)
PASSED(cuEventSynchronize)

#define DESTROY(name)                                                                              \
    VS_HOOK name(CUevent event)                                                                    \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        vs_events_forget(event);                                                                   \
        return guard.entries->name(event);                                                         \
    }

DESTROY(cuEventDestroy)
DESTROY(cuEventDestroy_v2)

/* From here on the event may be recorded by another process, or by a graph. */
#define OUT_OF_SIGHT(name, parameters, arguments)                                                  \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        vs_events_distrust(&guard);                                                                \
        return guard.entries->name arguments;                                                      \
    }

OUT_OF_SIGHT(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event), (handle, event))
OUT_OF_SIGHT(cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle), (event, handle))
OUT_OF_SIGHT(cuGraphAddEventRecordNode,
             (CUgraphNode * node, CUgraph graph, const CUgraphNode *after, size_t count,
              CUevent event),
             (node, graph, after, count, event))
OUT_OF_SIGHT(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent event), (node, event))
OUT_OF_SIGHT(cuGraphExecEventRecordNodeSetEvent,
             (CUgraphExec graph, CUgraphNode node, CUevent event), (graph, node, event))
