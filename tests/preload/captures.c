/*
 * Captures among plain allocations, on a device that one loop of them fills many times: memory that
 * is freed has to come back, so the shim must know when captures begin and end. `captures SUBJECT`;
 * prints one line for each thing tried. What it prints without the shim is what it must print with
 * it.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static CUcontext context;
static CUdevice device;

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        printf("%s gave %d\n", what, (int)result);
        fflush(stdout);
        _exit(9);
    }
}
#define MUST(call) must(call, #call)

static CUstreamCaptureMode relax(CUstreamCaptureMode mode)
{
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

/* Ten times what the device has, in pieces, each used and freed at once. */
static void churn(const char *when)
{
    CUstream stream;
    CUstreamCaptureMode before = relax(CU_STREAM_CAPTURE_MODE_RELAXED);

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 160; i++) {
        CUdeviceptr p;
        CUresult result = cuMemAlloc_v2(&p, 4 * MIB);

        if (result != CUDA_SUCCESS) {
            printf("%s: allocation %d gave %d\n", when, i, (int)result);
            fflush(stdout);
            _exit(8);
        }
        MUST(cuMemsetD8Async(p, (unsigned char)i, 4 * MIB, stream));
        MUST(cuMemFree_v2(p));
    }
    MUST(cuStreamDestroy_v2(stream));
    relax(before);
    printf("%s: memory comes back\n", when);
}

/* A few frees, by this thread and by another with no context, that must not break the capture. */
static void *free_it(void *block)
{
    relax(CU_STREAM_CAPTURE_MODE_RELAXED);
    MUST(cuMemFree_v2((CUdeviceptr)(uintptr_t)block));
    return NULL;
}

static void free_meanwhile(void)
{
    CUstreamCaptureMode before = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUdeviceptr p[4];
    CUstream stream;
    pthread_t thread;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        MUST(cuMemAlloc_v2(&p[i], MIB));
        MUST(cuMemsetD8Async(p[i], 1, MIB, stream));
    }
    MUST(cuMemFree_v2(p[0]));
    MUST(cuMemsetD8Async(p[1], 1, MIB, stream)); /* a submission, with a free behind it */
    pthread_create(&thread, NULL, free_it, (void *)(uintptr_t)p[1]);
    pthread_join(thread, NULL);
    MUST(cuMemsetD8Async(p[2], 1, MIB, stream));
    MUST(cuMemFree_v2(p[2]));
    MUST(cuMemAlloc_v2(&p[0], MIB));
    MUST(cuMemsetD8Async(p[0], 1, MIB, stream));
    MUST(cuMemFree_v2(p[0]));
    MUST(cuMemFree_v2(p[3]));
    MUST(cuStreamDestroy_v2(stream));
    relax(before);
}

enum begins { LEGACY, LEGACY_TWIN, V2, V2_TWIN, TO_GRAPH, TO_GRAPH_TWIN, BEGINS };
static const char *const begin_names[] = {
    "cuStreamBeginCapture",        "cuStreamBeginCapture_ptsz",
    "cuStreamBeginCapture_v2",     "cuStreamBeginCapture_v2_ptsz",
    "cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph_ptsz"};

static CUresult begin(int how, CUstream stream, CUgraph graph)
{
    switch (how) {
    case LEGACY:
        return cuStreamBeginCapture(stream);
    case LEGACY_TWIN:
        return cuStreamBeginCapture_ptsz(stream);
    case V2:
        return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    case V2_TWIN:
        return cuStreamBeginCapture_v2_ptsz(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    case TO_GRAPH:
        return cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0,
                                           CU_STREAM_CAPTURE_MODE_GLOBAL);
    default:
        return cuStreamBeginCaptureToGraph_ptsz(stream, graph, NULL, NULL, 0,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }
}

static CUstream new_stream(void)
{
    CUstream stream;

    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void every_begin(void)
{
    for (int how = 0; how < BEGINS; how++) {
        CUstream stream = new_stream(), open = how == V2_TWIN ? CU_STREAM_PER_THREAD : stream;
        CUgraph graph = NULL, mine = NULL;
        CUresult result;

        MUST(cuGraphCreate(&mine, 0));
        free_meanwhile();
        MUST(begin(how, open, mine));
        free_meanwhile();
        result = cuStreamEndCapture(open, &graph);
        printf("%s: end %d, graph %s\n", begin_names[how], (int)result,
               graph != NULL ? "yes" : "no");
        churn(begin_names[how]);
        MUST(cuStreamDestroy_v2(stream));
    }
}

static CUstream shared;
static CUresult thread_result;

static void *end_it(void *graph)
{
    MUST(cuCtxSetCurrent(context));
    thread_result = cuStreamEndCapture(shared, graph);
    return NULL;
}

static void every_end(void)
{
    CUgraph graph = NULL;
    CUstream stream = new_stream(), other = new_stream();
    CUevent event;
    pthread_t thread;

    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));

    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    printf("NULL end %d\n", (int)cuStreamEndCapture(stream, NULL));
    printf("end of nothing %d\n", (int)cuStreamEndCapture(other, &graph));
    free_meanwhile(); /* still capturing: nothing may break it */
    printf("end after NULL end %d\n", (int)cuStreamEndCapture(stream, &graph));
    churn("after a NULL end");

    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    shared = stream;
    pthread_create(&thread, NULL, end_it, &graph);
    pthread_join(thread, NULL);
    printf("end by the wrong thread %d\n", (int)thread_result);
    churn("after an end by the wrong thread");

    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamWaitEvent(other, event, 0));
    free_meanwhile();
    printf("end of what only joined %d\n", (int)cuStreamEndCapture(other, &graph));
    free_meanwhile();
    printf("end after that %d\n", (int)cuStreamEndCapture(stream, &graph));
    churn("after an end of what only joined");

    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    {
        CUdeviceptr p;
        printf("an allocation that breaks it %d\n", (int)cuMemAlloc_v2(&p, MIB));
    }
    free_meanwhile();
    printf("end of what is broken %d\n", (int)cuStreamEndCapture(stream, &graph));
    churn("after an end of what is broken");

    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    free_meanwhile();
    printf("end of the stream %d\n", (int)cuStreamDestroy_v2(stream));
    churn("after the end of the stream");

    stream = new_stream();
    printf("begin twice %d", (int)cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    printf(" %d\n", (int)cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    free_meanwhile();
    printf("end %d\n", (int)cuStreamEndCapture(stream, &graph));
    printf("end again %d\n", (int)cuStreamEndCapture(stream, &graph));
    churn("after two begins and two ends");

    printf("begin on the legacy stream %d\n",
           (int)cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    churn("after a begin that failed");
}

static void context_ends(void)
{
    CUcontext second;
    CUstream stream;

    MUST(cuCtxCreate_v4(&second, NULL, 0, device));
    stream = new_stream();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuCtxSetCurrent(context));
    churn("another context captures");
    MUST(cuCtxDestroy_v2(second));
    churn("that context is gone");
    for (int i = 0; i < 100; i++) { /* more than are known at once */
        MUST(cuCtxCreate_v4(&second, NULL, 0, device));
        MUST(cuStreamBeginCapture_v2(new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(cuCtxDestroy_v2(second));
    }
    MUST(cuCtxCreate_v4(&second, NULL, 0, device));
    churn("others came and went");
    MUST(cuCtxDestroy_v2(second));
}

/* A stream of the second device joins a capture of the first one's. */
static void joined_elsewhere(void)
{
    CUcontext second;
    CUdevice other;
    CUstream here = new_stream(), there;
    CUgraph graph = NULL;
    CUevent out, back;

    MUST(cuDeviceGet(&other, 1));
    MUST(cuDevicePrimaryCtxRetain(&second, other));
    MUST(cuEventCreate(&out, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxSetCurrent(second));
    there = new_stream();
    MUST(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    free_meanwhile();
    MUST(cuStreamBeginCapture_v2(here, CU_STREAM_CAPTURE_MODE_GLOBAL));
    free_meanwhile();
    MUST(cuEventRecord(out, here));
    MUST(cuStreamWaitEvent(there, out, 0));
    free_meanwhile(); /* in the second device's context */
    MUST(cuEventRecord(back, there));
    MUST(cuStreamWaitEvent(here, back, 0));
    free_meanwhile();
    printf("end %d\n", (int)cuStreamEndCapture(here, &graph));
    churn("on the second device");
    MUST(cuCtxSetCurrent(context));
    churn("on the first");
}

static _Atomic bool stop;
static _Atomic int captured, broken;

static void *capture_forever(void *arg)
{
    int how = (int)(intptr_t)arg;
    CUstream stream;

    MUST(cuCtxSetCurrent(context));
    stream = new_stream();
    while (!stop) {
        CUgraph graph = NULL;

        usleep(1000); /* memory freed in a capture comes back after it */
        if (cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)how) != CUDA_SUCCESS) {
            broken++;
            continue;
        }
        usleep(200);
        if (cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) {
            broken++;
        } else {
            captured++;
            cuGraphDestroy(graph);
        }
    }
    return NULL;
}

/* Captures come and go while others free: none may break. */
static void among_threads(void)
{
    pthread_t thread[3];

    for (int i = 0; i < 3; i++) {
        pthread_create(&thread[i], NULL, capture_forever, (void *)(intptr_t)(i == 0 ? 1 : i));
    }
    for (int round = 0; round < 8; round++) {
        CUstream stream = new_stream();

        relax(CU_STREAM_CAPTURE_MODE_RELAXED);
        for (int i = 0; i < 100; i++) {
            CUdeviceptr p;

            MUST(cuMemAlloc_v2(&p, MIB));
            MUST(cuMemsetD8Async(p, 1, MIB, stream));
            MUST(cuMemFree_v2(p));
        }
        MUST(cuStreamDestroy_v2(stream));
    }
    stop = true;
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
    }
    printf("captured %s, broken %d\n", captured > 0 ? "some" : "none", broken);
}

/* Which modes allow a plain allocation and a plain free, in the thread that captures and another.
 */
static CUstreamCaptureMode asked;
static CUdeviceptr block;

static void *ask(void *which)
{
    CUdeviceptr p = 0;

    cuCtxSetCurrent(context);
    relax(asked);
    thread_result = which == NULL ? cuMemAlloc_v2(&p, MIB) : cuMemFree_v2(block);
    if (which == NULL && thread_result == CUDA_SUCCESS) {
        relax(CU_STREAM_CAPTURE_MODE_RELAXED);
        MUST(cuMemFree_v2(p));
    }
    return NULL;
}

static void legality(void)
{
    for (int capture = 0; capture < 3; capture++) {
        for (int mode = 0; mode < 3; mode++) {
            for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
                for (int frees = 0; frees < 2; frees++) {
                    CUstream stream = new_stream();
                    CUgraph graph = NULL;
                    pthread_t thread;

                    MUST(cuMemAlloc_v2(&block, MIB));
                    MUST(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)capture));
                    asked = (CUstreamCaptureMode)mode;
                    if (elsewhere) {
                        pthread_create(&thread, NULL, ask, frees ? &block : NULL);
                        pthread_join(thread, NULL);
                    } else {
                        ask(frees ? &block : NULL);
                        relax(CU_STREAM_CAPTURE_MODE_GLOBAL);
                    }
                    printf("capture %d thread %d %s %s: %d", capture, mode,
                           elsewhere ? "other" : "same", frees ? "free" : "alloc",
                           (int)thread_result);
                    printf(", end %d\n", (int)cuStreamEndCapture(stream, &graph));
                    if (!frees || thread_result != CUDA_SUCCESS) {
                        MUST(cuMemFree_v2(block));
                    }
                    MUST(cuStreamDestroy_v2(stream));
                }
            }
        }
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } subjects[] = {{"every_begin", every_begin},     {"every_end", every_end},
                    {"context_ends", context_ends},   {"joined_elsewhere", joined_elsewhere},
                    {"among_threads", among_threads}, {"legality", legality}};

    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
        if (argc == 2 && strcmp(argv[1], subjects[i].name) == 0) {
            subjects[i].run();
            return 0;
        }
    }
    printf("usage: captures SUBJECT\n");
    return 2;
}
