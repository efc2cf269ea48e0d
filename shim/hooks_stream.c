/*
 * Hooks: stream-ordered memory, which comes from the arenas where that can be (stream_serve.h), the
 * captures that turn such calls into graph nodes, and the ends of streams.
 *
 * Each entry point has a _ptsz twin, in which stream 0 means the thread's own default stream.
 */
#include "shim/arena.h"
#include "shim/capture.h"
#include "shim/count.h"
#include "shim/fence.h"
#include "shim/fence_copies.h"
#include "shim/fence_streams.h"
#include "shim/place.h"
#include "shim/stream_serve.h"
#include "shim/streams.h"

/* The two twins of each call differ in nothing but the entry they call. named: the memory pool that
 * the program named. What the driver allocates is work of the stream. */
#define ALLOC(name, parameters, arguments, named, twin)                                            \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        VS_COUNT_ALLOW()                                                                           \
        const struct vs_stream_request request = {bytes, named, stream,                            \
                                                  (twin) == VS_CAPTURE_PER_THREAD};                \
        bool recorded = vs_capture_records(&guard, stream, twin);                                  \
        CUresult result;                                                                           \
        if (!recorded && vs_stream_alloc(&guard, &request, address, &result)) {                    \
            return result;                                                                         \
        }                                                                                          \
        vs_fence_submit(&guard, stream, request.per_thread);                                       \
        result = guard.entries->name arguments;                                                    \
        if (vs_arena_makes_room(&guard, result, NULL)) {                                           \
            result = guard.entries->name arguments;                                                \
        }                                                                                          \
        if (!recorded) {                                                                           \
            vs_stream_count(&guard, &request, address, result);                                    \
        }                                                                                          \
        return result;                                                                             \
    }

#define ALLOC_ASYNC(name, twin)                                                                    \
    ALLOC(name, (CUdeviceptr * address, size_t bytes, CUstream stream), (address, bytes, stream),  \
          NULL, twin)

ALLOC_ASYNC(cuMemAllocAsync, VS_CAPTURE_LEGACY)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, VS_CAPTURE_PER_THREAD)

#define ALLOC_FROM_POOL(name, twin)                                                                \
    ALLOC(name, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),         \
          (address, bytes, pool, stream), &pool, twin)

ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, VS_CAPTURE_LEGACY)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, VS_CAPTURE_PER_THREAD)

#define FREE_ASYNC(name, twin)                                                                     \
    VS_HOOK name(CUdeviceptr address, CUstream stream)                                             \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_alloc alloc;                                                                     \
        bool recorded = vs_capture_records(&guard, stream, twin);                                  \
        if (!recorded && guard.counts && vs_arena_claims(address)) {                               \
            return vs_stream_free(&guard, address, stream, (twin) == VS_CAPTURE_PER_THREAD);       \
        }                                                                                          \
        vs_fence_submit(&guard, stream, (twin) == VS_CAPTURE_PER_THREAD);                          \
        bool known = !recorded && vs_count_free_begin(&guard, address, &alloc);                    \
        CUresult result = guard.entries->name(address, stream);                                    \
        vs_count_free_end(known, result, &alloc);                                                  \
        return result;                                                                             \
    }

FREE_ASYNC(cuMemFreeAsync, VS_CAPTURE_LEGACY)
FREE_ASYNC(cuMemFreeAsync_ptsz, VS_CAPTURE_PER_THREAD)

#define STREAM_DESTROY(name)                                                                       \
    VS_HOOK name(CUstream stream)                                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_capture_call call;                                                               \
        vs_place_handle_goes();                                                                    \
        if (guard.counts) {                                                                        \
            vs_fence_stream_goes(stream);                                                          \
            vs_copies_stream_goes(stream);                                                         \
            vs_streams_stream_goes(stream);                                                        \
        }                                                                                          \
        vs_capture_stream_goes(&call, &guard, stream);                                             \
        CUresult result = guard.entries->name(stream);                                             \
        vs_capture_stream_gone(&call, result);                                                     \
        return result;                                                                             \
    }

STREAM_DESTROY(cuStreamDestroy)
STREAM_DESTROY(cuStreamDestroy_v2)

#define BEGIN(name, twin, parameters, arguments)                                                   \
    VS_HOOK name parameters                                                                        \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_capture_call call;                                                               \
        if (guard.counts) {                                                                        \
            vs_streams_close_all();                                                                \
        }                                                                                          \
        vs_capture_begins(&call, &guard, stream, twin);                                            \
        CUresult result = guard.entries->name arguments;                                           \
        vs_capture_begun(&call, result);                                                           \
        return result;                                                                             \
    }

#define END(name, twin)                                                                            \
    VS_HOOK name(CUstream stream, CUgraph *graph)                                                  \
    {                                                                                              \
        VS_HOOK_ENTER(name)                                                                        \
        struct vs_capture_call call;                                                               \
        vs_capture_ends(&call, &guard, stream, twin);                                              \
        CUresult result = guard.entries->name(stream, graph);                                      \
        vs_capture_ended(&call);                                                                   \
        return result;                                                                             \
    }

#define MODE_PARAMETERS (CUstream stream, CUstreamCaptureMode mode)

BEGIN(cuStreamBeginCapture, VS_CAPTURE_LEGACY, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_ptsz, VS_CAPTURE_PER_THREAD, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_v2, VS_CAPTURE_LEGACY, MODE_PARAMETERS, (stream, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, VS_CAPTURE_PER_THREAD, MODE_PARAMETERS, (stream, mode))

#define TO_GRAPH_PARAMETERS                                                                        \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,                              \
     const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
#define TO_GRAPH_ARGUMENTS (stream, graph, dependencies, edges, count, mode)

BEGIN(cuStreamBeginCaptureToGraph, VS_CAPTURE_LEGACY, TO_GRAPH_PARAMETERS, TO_GRAPH_ARGUMENTS)
BEGIN(cuStreamBeginCaptureToGraph_ptsz, VS_CAPTURE_PER_THREAD, TO_GRAPH_PARAMETERS,
      TO_GRAPH_ARGUMENTS)

END(cuStreamEndCapture, VS_CAPTURE_LEGACY)
END(cuStreamEndCapture_ptsz, VS_CAPTURE_PER_THREAD)
