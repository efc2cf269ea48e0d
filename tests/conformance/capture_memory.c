/*
 * Plain memory and captures: memory taken and freed while a capture runs, by the thread that
 * captures, by others, in other contexts; what that does to the capture; and that what a graph uses
 * is whole when it is launched.
 */
#include <pthread.h>

#include "launch.h"

#define SIZE ((size_t)3 << 20)

static CUcontext context, second;
static CUstream s, t;
static CUdeviceptr bad;
static CUstreamCaptureMode outside; /* mode of the other thread */

static void begin(const char *what, CUstreamCaptureMode mode)
{
    cu_say("%s", what);
    TELL(cuStreamBeginCapture, s, mode);
}

static void ended(unsigned launches)
{
    CUstreamCaptureStatus status = 99;
    CUgraph graph = NULL;
    CUgraphExec exec;
    size_t nodes = 0;

    CUresult result = CU(cuStreamIsCapturing)(s, &status);
    cu_say("capturing: %s, %d", cu_result_name(result), (int)status);
    if (TELL(cuStreamEndCapture, s, &graph) != CUDA_SUCCESS || graph == NULL)
        return;
    MUST(cuGraphGetNodes, graph, NULL, &nodes);
    cu_say("nodes %zu", nodes);
    MUST(cuGraphInstantiate, &exec, graph, 0);
    for (unsigned i = 0; i < launches; i++)
        MUST(cuGraphLaunch, exec, s);
    MUST(cuGraphExecDestroy, exec);
    MUST(cuGraphDestroy, graph);
}

static void verdict(void)
{
    uint32_t wrong = 99;

    MUST(cuCtxSynchronize);
    MUST(cuMemcpyDtoH, &wrong, bad, 4);
    cu_say("wrong words: %u", wrong);
}

static void *call_elsewhere(void *current)
{
    CUdeviceptr p = 0, q = 0;
    size_t pitch;

    MUST(cuCtxSetCurrent, current);
    MUST(cuThreadExchangeStreamCaptureMode, &outside);
    if (TELL(cuMemAlloc, &p, 4096) == CUDA_SUCCESS)
        TELL(cuMemFree, p);
    if (TELL(cuMemAllocPitch, &q, &pitch, 100, 100, 4) == CUDA_SUCCESS)
        TELL(cuMemFree, q);
    TELL(cuMemFree, 0);
    TELL(cuMemFree, 12345);
    return NULL;
}

static void elsewhere(CUcontext current, CUstreamCaptureMode mode)
{
    pthread_t thread;

    outside = mode;
    if (pthread_create(&thread, NULL, call_elsewhere, current) == 0)
        pthread_join(thread, NULL);
}

static void modes(void)
{
    static const struct {
        const char *name;
        CUstreamCaptureMode capture, thread;
    } pairs[] = {
        {"global, others global", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL},
        {"global, others thread local", CU_STREAM_CAPTURE_MODE_GLOBAL,
         CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
        {"global, others relaxed", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED},
        {"thread local, others global", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
         CU_STREAM_CAPTURE_MODE_GLOBAL},
        {"relaxed, others global", CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        begin(pairs[i].name, pairs[i].capture);
        elsewhere(context, pairs[i].thread);
        ended(0);
        begin("in another context", pairs[i].capture);
        elsewhere(second, pairs[i].thread);
        ended(0);
        begin("with no context", pairs[i].capture);
        elsewhere(NULL, pairs[i].thread);
        ended(0);
    }
}

/* Memory freed in use just before and while the capture runs, and memory taken meanwhile. */
static void used_by_the_graph(CUstreamCaptureMode mode)
{
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr before, during, graphs, passing;

    MUST(cuMemsetD32, bad, 0, 1);
    MUST(cuMemAlloc, &before, SIZE);
    MUST(cuMemAlloc, &during, SIZE);
    MUST(cuCtxSynchronize);
    cu_must("spin_us", kernel_spin_us(t, 20000));
    cu_must("fill", kernel_fill(t, before, 1, SIZE / 4));
    cu_must("fill", kernel_fill(t, during, 2, SIZE / 4));
    MUST(cuMemFree, before);
    begin("used by the graph", mode);
    MUST(cuThreadExchangeStreamCaptureMode, &relaxed);
    TELL(cuMemFree, during);
    TELL(cuMemAlloc, &graphs, SIZE);
    TELL(cuMemAlloc, &passing, SIZE);
    cu_must("fill", kernel_fill(s, graphs, 3, SIZE / 4));
    cu_must("verify", kernel_verify(s, graphs, 3, SIZE / 4, bad));
    cu_must("fill", kernel_fill(t, passing, 4, SIZE / 4));
    TELL(cuMemFree, passing);
    TELL(cuMemAlloc, &passing, SIZE);
    cu_must("fill", kernel_fill(t, passing, 5, SIZE / 4));
    cu_must("verify", kernel_verify(t, passing, 5, SIZE / 4, bad));
    MUST(cuThreadExchangeStreamCaptureMode, &relaxed);
    ended(3);
    TELL(cuMemFree, graphs);
    TELL(cuMemFree, passing);
    MUST(cuMemAlloc, &passing, SIZE);
    cu_must("fill", kernel_fill(t, passing, 6, SIZE / 4));
    cu_must("verify", kernel_verify(t, passing, 6, SIZE / 4, bad));
    verdict();
    TELL(cuMemFree, passing);
}

/* Two captures at once; one of them breaks. */
static void two(void)
{
    CUgraph graph = NULL;
    CUdeviceptr p = 0;

    begin("two captures, one of them global", CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuStreamBeginCapture, t, CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuMemAlloc, &p, 4096);
    TELL(cuStreamEndCapture, t, &graph);
    if (TELL(cuMemAlloc, &p, 4096) == CUDA_SUCCESS)
        TELL(cuMemFree, p);
    ended(0);
    cu_say("no capture runs");
    if (TELL(cuMemAlloc, &p, 4096) == CUDA_SUCCESS)
        TELL(cuMemFree, p);
}

/* A capture that ends with its stream still lets others go on. */
static void stream_goes(void)
{
    CUstream gone;
    CUdeviceptr p = 0;

    cu_say("a stream that goes while it captures");
    MUST(cuStreamCreate, &gone, CU_STREAM_NON_BLOCKING);
    TELL(cuStreamBeginCapture, gone, CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuStreamDestroy, gone);
    if (TELL(cuMemAlloc, &p, SIZE) == CUDA_SUCCESS) {
        cu_must("fill", kernel_fill(t, p, 7, SIZE / 4));
        TELL(cuMemFree, p);
    }
    MUST(cuCtxSynchronize);
}

int main(int argc, char **argv)
{
    CUcontext now;
    CUdevice device;

    cu_start(argc, argv);
    NEED(cuStreamBeginCapture);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuCtxCreate, &second, NULL, 0, device);
    MUST(cuCtxPopCurrent, &now);
    kernels_load();
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &bad, 4);
    modes();
    used_by_the_graph(CU_STREAM_CAPTURE_MODE_GLOBAL);
    used_by_the_graph(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    used_by_the_graph(CU_STREAM_CAPTURE_MODE_RELAXED);
    two();
    stream_goes();
    return cu_end();
}
