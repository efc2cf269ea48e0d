/*
 * Contexts that end with memory that is live, freed a moment ago, or in use: what is in flight is
 * waited for, the memory goes, stale pointers are refused, and the next context's memory is its
 * own.
 */
#include <pthread.h>

#include "launch.h"

#define SIZE ((size_t)4 << 20)
enum { BLOCKS = 8, TIMES = 6 };

static CUdevice device;

struct left {
    CUdeviceptr live, freed[BLOCKS];
};

/* In the current context: work in flight on a live block and on freed ones. */
static void leave(struct left *left, struct gate *gate, CUfunction spin)
{
    CUstream stream;
    uint64_t us = 2000;
    void *arguments[] = {&us};

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &left->live, SIZE);
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemAlloc, &left->freed[i], SIZE >> (i % 4 * 4));
    if (gate != NULL)
        gate_wait(gate, stream);
    if (spin != NULL)
        MUST(cuLaunchKernel, spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
    MUST(cuMemsetD8Async, left->live, 1, SIZE, stream);
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemsetD8Async, left->freed[i], 2, SIZE >> (i % 4 * 4), stream);
    if (gate != NULL)
        gate_open_later(gate);
    for (int i = 0; i < BLOCKS; i += 2)
        MUST(cuMemFree, left->freed[i]);
}

static void stale(const struct left *left)
{
    unsigned accepted = 0;
    CUresult live = CU(cuMemFree)(left->live);

    for (int i = 0; i < BLOCKS; i++)
        accepted += CU(cuMemFree)(left->freed[i]) == CUDA_SUCCESS;
    cu_say("freed afterwards: %s, of the others %u accepted", cu_result_name(live), accepted);
}

/* Memory that is new is this context's, and stays as it is written. */
static void anew(void)
{
    CUdeviceptr p[BLOCKS];
    unsigned right = 0;

    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc, &p[i], SIZE >> (i % 4 * 4));
        MUST(cuMemsetD8, p[i], (unsigned char)(10 + i), SIZE >> (i % 4 * 4));
    }
    MUST(cuCtxSynchronize);
    for (int i = 0; i < BLOCKS; i++) {
        right += cu_all_bytes(p[i], SIZE >> (i % 4 * 4), (unsigned char)(10 + i));
        MUST(cuMemFree, p[i]);
    }
    cu_say("memory anew: %u of %u right", right, BLOCKS);
}

static void created(void)
{
    struct left left;
    CUcontext first, made;
    struct gate *gate = gate_new();

    cu_say("a created context, work in flight");
    MUST(cuCtxGetCurrent, &first);
    MUST(cuCtxCreate, &made, NULL, 0, device);
    leave(&left, gate, NULL);
    TELL(cuCtxDestroy, made);
    FACT(gate_passed(gate));
    stale(&left);
    anew();
    gate_free(gate);

    cu_say("one after another, each with memory in use");
    CUresult worst = CUDA_SUCCESS;
    for (int i = 0; i < TIMES && worst == CUDA_SUCCESS; i++) {
        CUmodule module;
        CUfunction spin;
        MUST(cuCtxCreate, &made, NULL, 0, device);
        MUST(cuModuleLoadData, &module, kernels_ptx);
        MUST(cuModuleGetFunction, &spin, module, "spin_us");
        leave(&left, NULL, spin);
        worst = CU(cuCtxDestroy)(made);
    }
    cu_told("destroyed", worst);
    stale(&left);
    anew();
}

static void *end_it(void *data)
{
    return CU(cuCtxDestroy)(data) == CUDA_SUCCESS ? data : NULL;
}

static void by_another_thread(void)
{
    struct left left;
    CUcontext made, now;
    CUdeviceptr p = 0;
    pthread_t thread;
    void *done = NULL;

    cu_say("destroyed by another thread, while current in this one");
    MUST(cuCtxCreate, &made, NULL, 0, device);
    leave(&left, NULL, NULL);
    MUST(cuCtxSynchronize);
    if (pthread_create(&thread, NULL, end_it, made) == 0)
        pthread_join(thread, &done);
    FACT(done == made);
    TELL(cuMemAlloc, &p, 4096);
    TELL(cuMemFree, left.live);
    TELL(cuMemFree, 0);
    MUST(cuCtxPopCurrent, &now);
    stale(&left);
    anew();
}

static void primary(void)
{
    struct left left;
    CUcontext context;
    struct gate *gate = gate_new();

    cu_say("the primary context, reset with work in flight");
    leave(&left, gate, NULL);
    TELL(cuDevicePrimaryCtxReset, device);
    FACT(gate_passed(gate));
    TELL(cuMemFree, left.live);
    MUST(cuCtxSetCurrent, NULL);
    stale(&left);
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    MUST(cuCtxSetCurrent, context);
    stale(&left);
    anew();
    gate_free(gate);
    cu_say("and again and again");
    for (int i = 0; i < TIMES; i++) {
        leave(&left, NULL, NULL);
        MUST(cuDevicePrimaryCtxReset, device);
        MUST(cuDevicePrimaryCtxRetain, &context, device);
        MUST(cuCtxSetCurrent, context);
    }
    stale(&left);
    anew();
}

/* The reference counts of the resets above stay, so the last release is one of many. */
static void last_release(void)
{
    struct left left;
    CUcontext context;
    unsigned flags, releases = 0;
    int active = 1;

    cu_say("the last release, with work in flight");
    leave(&left, NULL, NULL);
    MUST(cuCtxSetCurrent, NULL);
    while (active != 0 && releases < 100) {
        MUST(cuDevicePrimaryCtxRelease, device);
        MUST(cuDevicePrimaryCtxGetState, device, &flags, &active);
        releases++;
    }
    FACT(active == 0);
    stale(&left);
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    MUST(cuCtxSetCurrent, context);
    stale(&left);
    anew();
}

int main(int argc, char **argv)
{
    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    created();
    by_another_thread();
    primary();
    last_release();
    return cu_end();
}
