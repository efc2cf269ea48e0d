/* Stream capture: how a capture breaks, by whom, and what it answers then; forks and joins. */
#include <pthread.h>

#include "cu.h"

static CUstream a, b, blocking;
static CUevent e, f, outside;
static CUdeviceptr p;
static CUcontext context;

static void begin(const char *what, CUstreamCaptureMode mode)
{
    cu_say("%s", what);
    MUST(cuCtxSynchronize);
    MUST(cuStreamBeginCapture, a, mode);
}

static void is_capturing(const char *name, CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)99;
    CUresult result = CU(cuStreamIsCapturing)(stream, &status);
    cu_say("%s: %s, %d", name, cu_result_name(result), (int)status);
}

static void end(CUstream stream)
{
    CUgraph graph = NULL;
    size_t nodes = 0, edges = 0;
    is_capturing("capturing", stream);
    if (TELL(cuStreamEndCapture, stream, &graph) == CUDA_SUCCESS && graph != NULL) {
        MUST(cuGraphGetNodes, graph, NULL, &nodes);
        MUST(cuGraphGetEdges, graph, NULL, NULL, NULL, &edges);
        cu_say("nodes %zu, edges %zu", nodes, edges);
        MUST(cuGraphDestroy, graph);
    }
}

static void *end_elsewhere(void *unused)
{
    MUST(cuCtxSetCurrent, context);
    cu_say("in another thread");
    end(a);
    return unused;
}

static void *query_elsewhere(void *unused)
{
    MUST(cuCtxSetCurrent, context);
    cu_say("in another thread");
    TELL(cuEventQuery, outside);
    TELL(cuStreamQuery, b);
    return unused;
}

static void in_thread(void *(*what)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, what, NULL) == 0)
        pthread_join(thread, NULL);
}

static void fork_and_join(void)
{
    begin("forked and joined", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuMemsetD8Async, p, 1, 64, a);
    TELL(cuEventRecord, e, a);
    TELL(cuStreamWaitEvent, b, e, 0);
    is_capturing("b", b);
    TELL(cuMemsetD8Async, p + 64, 1, 64, b);
    TELL(cuMemsetD8Async, p + 128, 1, 64, a);
    TELL(cuEventRecord, f, b);
    TELL(cuStreamWaitEvent, a, f, 0);
    TELL(cuMemsetD8Async, p, 2, 192, a);
    end(a);
    is_capturing("b", b);
    begin("forked with work, not joined", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuEventRecord, e, a);
    TELL(cuStreamWaitEvent, b, e, 0);
    TELL(cuMemsetD8Async, p, 1, 64, b);
    end(a);
    is_capturing("b", b);
    begin("forked without work, not joined", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuMemsetD8Async, p, 1, 64, a);
    TELL(cuEventRecord, e, a);
    TELL(cuStreamWaitEvent, b, e, 0);
    end(a);
    begin("ended on the other stream", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuEventRecord, e, a);
    TELL(cuStreamWaitEvent, b, e, 0);
    end(b);
    end(a);
}

static void meetings(void)
{
    begin("two captures meet", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuStreamBeginCapture, b, CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuMemsetD8Async, p, 1, 64, b);
    TELL(cuEventRecord, f, b);
    TELL(cuStreamWaitEvent, a, f, 0);
    is_capturing("b", b);
    end(a);
    end(b);
    begin("an event from outside", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuStreamWaitEvent, a, outside, 0);
    end(a);
    begin("an event of a capture that is over", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuMemsetD8Async, p, 1, 64, a);
    TELL(cuEventRecord, e, a);
    TELL(cuEventQuery, e);
    end(a);
    TELL(cuEventQuery, e);
    TELL(cuEventSynchronize, e);
    TELL(cuStreamWaitEvent, b, e, 0);
    TELL(cuEventRecord, e, b);
    TELL(cuEventSynchronize, e);
}

static void waits(void)
{
    begin("the stream is waited for", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuStreamSynchronize, a);
    end(a);
    begin("the stream is asked", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuStreamQuery, a);
    end(a);
    begin("another stream is waited for", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuStreamSynchronize, b);
    end(a);
    begin("another stream is asked", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuStreamQuery, b);
    end(a);
    begin("another event is asked", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuEventQuery, outside);
    end(a);
    begin("another event is waited for", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuEventSynchronize, outside);
    end(a);
    begin("the context is waited for, relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuCtxSynchronize);
    end(a);
    begin("asked by another thread, global", CU_STREAM_CAPTURE_MODE_GLOBAL);
    in_thread(query_elsewhere);
    end(a);
    begin("asked by another thread, thread local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    in_thread(query_elsewhere);
    end(a);
    begin("a copy that waits", CU_STREAM_CAPTURE_MODE_GLOBAL);
    char host[64];
    TELL(cuMemcpyDtoH, host, p, 64);
    end(a);
    begin("a copy that waits, relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuMemcpyDtoH, host, p, 64);
    end(a);
    if (CU_HAVE(cuCtxRecordEvent)) {
        begin("the context's event", CU_STREAM_CAPTURE_MODE_RELAXED);
        TELL(cuCtxRecordEvent, context, f);
        end(a);
        begin("the context waits", CU_STREAM_CAPTURE_MODE_RELAXED);
        TELL(cuCtxWaitEvent, context, outside);
        end(a);
    }
}

static void legacy(void)
{
    begin("the legacy stream beside it", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuMemsetD8Async, p, 1, 64, CU_STREAM_LEGACY);
    end(a);
    cu_say("the legacy stream and a blocking one");
    TELL(cuStreamBeginCapture, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuMemsetD8Async, p, 1, 64, CU_STREAM_LEGACY);
    end(blocking);
    cu_say("the legacy stream, asked");
    MUST(cuCtxSynchronize);
    TELL(cuStreamBeginCapture, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuStreamQuery, CU_STREAM_LEGACY);
    end(blocking);
    cu_say("the legacy stream's event");
    TELL(cuStreamBeginCapture, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuEventRecord, f, CU_STREAM_LEGACY);
    end(blocking);
    cu_say("the legacy stream captured");
    TELL(cuStreamBeginCapture, CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED);
}

int main(int argc, char **argv)
{
    CUgraph graph = NULL;
    cu_start(argc, argv);
    NEED(cuStreamBeginCapture);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuStreamCreate, &a, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &b, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    MUST(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &f, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &outside, CU_EVENT_DISABLE_TIMING);
    MUST(cuMemAlloc, &p, 4096);
    MUST(cuEventRecord, outside, b);
    MUST(cuCtxSynchronize);
    TELL(cuStreamEndCapture, a, &graph);
    begin("begun twice", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuStreamBeginCapture, a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    end(a);
    TELL(cuStreamBeginCapture, a, (CUstreamCaptureMode)3);
    fork_and_join();
    meetings();
    waits();
    legacy();
    begin("ended by another thread, global", CU_STREAM_CAPTURE_MODE_GLOBAL);
    in_thread(end_elsewhere);
    is_capturing("a", a);
    if (graph == NULL)
        TELL(cuStreamEndCapture, a, &graph);
    begin("ended by another thread, relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
    in_thread(end_elsewhere);
    begin("a joined stream is destroyed", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuMemsetD8Async, p, 1, 64, a);
    TELL(cuEventRecord, e, a);
    TELL(cuStreamWaitEvent, b, e, 0);
    TELL(cuStreamDestroy, b);
    end(a);
    begin("the stream itself is destroyed", CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuStreamDestroy, a);
    CUdeviceptr q = 0;
    TELL(cuMemAlloc, &q, 4096);
    return cu_end();
}
