/* Stream capture: what allocation and free answer in each mode, and what they do to the capture. */
#include <pthread.h>

#include "cu.h"

static CUstream s;
static CUdeviceptr before;

static void status(void)
{
    CUstreamCaptureStatus now = 99;
    CUresult result = CU(cuStreamIsCapturing)(s, &now);
    cu_say("capturing: %s, %d", cu_result_name(result), (int)now);
}

static void finish(void)
{
    CUgraph graph = NULL;
    TELL(cuStreamEndCapture, s, &graph);
    if (graph != NULL)
        MUST(cuGraphDestroy, graph);
}

static void calls(void)
{
    CUdeviceptr p = 0;
    if (TELL(cuMemAlloc, &p, 4096) == CUDA_SUCCESS)
        TELL(cuMemFree, p);
    status();
}

static void *elsewhere(void *data)
{
    CUcontext context = data;
    MUST(cuCtxSetCurrent, context);
    cu_say("in another thread");
    calls();
    return NULL;
}

static void mode(const char *name, CUstreamCaptureMode chosen)
{
    CUcontext context;
    pthread_t thread;
    CUdeviceptr p = 0;
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

    cu_say("%s", name);
    MUST(cuCtxGetCurrent, &context);
    TELL(cuStreamBeginCapture, s, chosen);
    status();
    calls();
    finish();

    cu_say("the free alone");
    MUST(cuMemAlloc, &p, 4096);
    TELL(cuStreamBeginCapture, s, chosen);
    TELL(cuMemFree, p);
    status();
    finish();
    TELL(cuMemFree, p);

    cu_say("a refused free");
    TELL(cuStreamBeginCapture, s, chosen);
    TELL(cuMemFree, before + 1);
    status();
    TELL(cuMemFree, 0);
    status();
    finish();

    TELL(cuStreamBeginCapture, s, chosen);
    if (pthread_create(&thread, NULL, elsewhere, context) == 0)
        pthread_join(thread, NULL);
    finish();

    cu_say("made relaxed for a moment");
    TELL(cuStreamBeginCapture, s, chosen);
    TELL(cuThreadExchangeStreamCaptureMode, &relaxed);
    calls();
    TELL(cuThreadExchangeStreamCaptureMode, &relaxed);
    status();
    finish();
}

int main(int argc, char **argv)
{
    cu_start(argc, argv);
    NEED(cuStreamBeginCapture);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &before, 4096);
    mode("global", CU_STREAM_CAPTURE_MODE_GLOBAL);
    mode("thread local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    mode("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED);
    cu_say("afterwards");
    calls();
    TELL(cuMemFree, before);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
