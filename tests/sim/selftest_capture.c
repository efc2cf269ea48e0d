/* Self-tests of stream capture: what it forbids to whom, how it breaks, capture into a graph. */
#include "selftest.h"

#include <pthread.h>

static CUstream a, b;
static CUevent e;
static CUdeviceptr p;
static CUcontext ctx;

static void prepare(void)
{
    ctx = start();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, 4096));
}

static void begin(CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture(a, mode));
}

static void ends(CUresult wanted)
{
    CUgraph graph = NULL;
    IS(cuStreamEndCapture(a, &graph), wanted);
    CHECK((graph != NULL) == (wanted == CUDA_SUCCESS));
    if (graph != NULL)
        OK(cuGraphDestroy(graph));
}

struct call {
    CUresult (*what)(void);
    CUresult got;
};

static void *in_thread(void *data)
{
    struct call *call = data;
    OK(cuCtxSetCurrent(ctx));
    call->got = call->what();
    return NULL;
}

static CUresult elsewhere(CUresult (*what)(void))
{
    struct call call = {.what = what};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, &call) == 0);
    pthread_join(thread, NULL);
    return call.got;
}

static CUresult alloc(void)
{
    CUdeviceptr q;
    CUresult result = cuMemAlloc(&q, 512);
    return result == CUDA_SUCCESS ? cuMemFree(q) : result;
}

static CUresult alloc_thread_local(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    return alloc();
}

static CUresult query(void)
{
    return cuEventQuery(e);
}

static CUresult wait_event(void)
{
    return cuEventSynchronize(e);
}

static CUresult query_stream(void)
{
    return cuStreamQuery(b);
}

static CUresult wait_stream(void)
{
    return cuStreamSynchronize(b);
}

static CUresult finish(void)
{
    CUgraph graph;
    return cuStreamEndCapture(a, &graph);
}

/* Allowed exactly to whom the driver's documentation allows it. */
static void test_capture_modes(void)
{
    const CUresult no = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    static const struct {
        CUstreamCaptureMode mode;
        bool here, there;
    } rows[] = {{CU_STREAM_CAPTURE_MODE_GLOBAL, false, false},
                {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, true},
                {CU_STREAM_CAPTURE_MODE_RELAXED, true, true}};
    CUresult (*const calls[])(void) = {alloc, query, wait_event, query_stream, wait_stream};
    const int count = sizeof calls / sizeof calls[0];
    prepare();
    OK(cuEventRecord(e, b));
    for (int i = 0; i < 3 * count; i++) {
        bool here = rows[i / count].here, there = rows[i / count].there;
        begin(rows[i / count].mode);
        IS(calls[i % count](), here ? CUDA_SUCCESS : no);
        ends(here ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        begin(rows[i / count].mode);
        IS(elsewhere(calls[i % count]), there ? CUDA_SUCCESS : no);
        ends(there ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        begin(rows[i / count].mode);
        OK(elsewhere(alloc_thread_local));
        ends(CUDA_SUCCESS);
    }
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    IS(elsewhere(finish), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD); /* and over it is */
    CUgraph graph;
    IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(elsewhere(finish));
    CUstreamCaptureMode bad = (CUstreamCaptureMode)3;
    IS(cuThreadExchangeStreamCaptureMode(&bad), CUDA_ERROR_INVALID_VALUE);
}

static void test_capture_errors(void)
{
    prepare();
    CUgraph graph;
    CUstream blocking;
    CUevent f;
    CUstreamCaptureStatus status;
    OK(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    IS(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    /* Ended where it did not begin; begun twice. */
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    IS(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    IS(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    IS(cuMemsetD8Async(p, 1, 1, b), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ends(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD8Async(p, 1, 1, b));
    ends(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    OK(cuStreamIsCapturing(b, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    /* Two captures must not meet. */
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamBeginCapture(b, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(f, b));
    IS(cuStreamWaitEvent(a, f, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    ends(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    IS(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* The legacy stream and a blocking one; not with one that does not block. */
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(cuMemsetD8Async(p, 1, 1, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    IS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUresult (*const ask[])(CUstream) = {cuStreamQuery, cuStreamSynchronize};
    for (int i = 0; i < 6; i++) {
        OK(cuStreamBeginCapture(blocking, (CUstreamCaptureMode)(i / 2)));
        IS(ask[i % 2](NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        IS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemsetD8Async(p, 1, 1, NULL));
    ends(CUDA_SUCCESS);
    /* Waiting for it, in any way. */
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    IS(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ends(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, a));
    IS(cuCtxWaitEvent(NULL, f), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ends(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* Its events are no use while it lasts, asking breaks it, and then they are of nothing. */
    CUresult (*const ask_event[])(CUevent) = {cuEventQuery, cuEventSynchronize};
    for (int i = 0; i < 2; i++) {
        begin(CU_STREAM_CAPTURE_MODE_RELAXED);
        OK(cuEventRecord(e, a));
        IS(ask_event[i](e), CUDA_ERROR_CAPTURED_EVENT);
        ends(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        IS(ask_event[i](e), CUDA_ERROR_INVALID_VALUE);
        IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_INVALID_VALUE);
        OK(cuEventRecord(e, b));
        OK(cuEventSynchronize(e));
    }
    /* A stream that goes takes its capture along; one that had joined leaves what it recorded. */
    for (int i = 0; i < 2; i++) {
        begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        OK(cuEventRecord(e, a));
        OK(cuStreamWaitEvent(b, e, 0));
        if (i == 1)
            OK(cuMemsetD8Async(p, 1, 1, b));
        OK(cuStreamDestroy(b));
        ends(i == 0 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    }
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamDestroy(a));
    OK(alloc());
}

static void test_capture_into(void)
{
    prepare();
    CUgraph graph, got;
    CUgraphNode node, first;
    const CUgraphNode *tips;
    const CUgraphEdgeData *edges;
    CUgraphExec exec, child;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    size_t count;
    unsigned char host[16];
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0)); /* not the capture's: need not be joined */
    OK(cuStreamBeginCaptureToGraph(a, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamGetCaptureInfo(a, &status, &id, &got, &tips, &edges, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && got == graph && count == 1 &&
          tips[0] == first);
    OK(cuMemsetD8Async(p, 1, sizeof host, a));
    /* A node of the program's own, and the stream told of it. */
    CUDA_MEMSET_NODE_PARAMS params = {
        .dst = p + 8, .value = 2, .elementSize = 1, .width = 8, .height = 1};
    OK(cuStreamGetCaptureInfo(a, &status, NULL, NULL, &tips, NULL, &count));
    OK(cuGraphAddMemsetNode(&node, graph, tips, count, &params, NULL));
    OK(cuStreamUpdateCaptureDependencies(a, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuMemsetD8Async(p + 100, 3, 4, a)); /* left out on purpose: need not be joined either */
    OK(cuStreamUpdateCaptureDependencies(a, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuMemsetD8Async(p + 12, 3, 4, a));
    OK(cuStreamEndCapture(a, &got));
    CHECK(got == graph);
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 6);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemcpyDtoH(host, p, sizeof host));
    CHECK(host[7] == 1 && host[8] == 2 && host[12] == 3);

    /* A launch into a capture is a child graph; events marked external are nodes. */
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuGraphLaunch(exec, a));
    OK(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamEndCapture(a, &got));
    OK(cuGraphGetNodes(got, NULL, &count));
    CHECK(count == 2);
    OK(cuGraphInstantiate(&child, got, 0));
    OK(cuMemsetD8(p, 9, sizeof host));
    OK(cuCtxSynchronize());
    OK(cuGraphLaunch(child, a));
    OK(cuEventSynchronize(e));
    OK(cuMemcpyDtoH(host, p, sizeof host));
    CHECK(host[7] == 1 && host[8] == 2 && host[12] == 3);
    IS(cuStreamUpdateCaptureDependencies(a, &node, NULL, 1, 0), CUDA_ERROR_ILLEGAL_STATE);
}

const struct test selftest_capture[] = {
    {"capture_modes", test_capture_modes},
    {"capture_errors", test_capture_errors},
    {"capture_into", test_capture_into},
    {NULL, NULL},
};
