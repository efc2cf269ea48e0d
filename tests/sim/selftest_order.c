/* Self-tests: what orders what, VMM rules, kernels. */
#include "kernels.h"
#include "selftest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static CUdeviceptr p;
static unsigned char host[4096];

static bool all_are(unsigned char value)
{
    OK(cuMemcpyDtoH(host, p, sizeof host));
    for (size_t i = 0; i < sizeof host; i++) {
        if (host[i] != value)
            return false;
    }
    return true;
}

static void test_legacy_order(void)
{
    start();
    CUstream blocking, other;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(blocking, sleep_ms, (void *)50));
    OK(cuLaunchHostFunc(NULL, sleep_ms, (void *)1));
    OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, sleep_ms, (void *)1));
    OK(cuLaunchHostFunc(other, sleep_ms, (void *)1));
    OK(cuStreamSynchronize(other));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuStreamQuery(blocking));
    OK(cuStreamQuery(NULL));
}

static void test_events(void)
{
    start();
    CUstream a, b;
    CUevent e;
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(e));
    OK(cuMemAlloc(&p, sizeof host));
    OK(cuLaunchHostFunc(a, sleep_ms, (void *)50));
    OK(cuMemsetD8Async(p, 1, sizeof host, a));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD8Async(p, 2, sizeof host, b));
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(b));
    OK(cuEventQuery(e));
    CHECK(all_are(2));
}

/* cuCtxRecordEvent covers every stream; cuCtxWaitEvent holds all later work, on later streams too.
 */
static void test_context_events(void)
{
    CUcontext ctx = start();
    CUstream a, b, gone;
    CUevent e, slow;
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&slow, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, sizeof host));
    OK(cuLaunchHostFunc(a, sleep_ms, (void *)30));
    OK(cuMemsetD8Async(p, 1, sizeof host, a));
    OK(cuLaunchHostFunc(gone, sleep_ms, (void *)60));
    OK(cuEventRecord(slow, gone));
    OK(cuStreamDestroy(gone));
    OK(cuCtxRecordEvent(ctx, e));
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    OK(cuCtxWaitEvent(ctx, e));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING)); /* made afterwards */
    OK(cuMemsetD8Async(p, 2, sizeof host, b));
    IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(b));
    OK(cuEventQuery(e));
    OK(cuEventQuery(slow));
    CHECK(all_are(2));
    IS(cuCtxRecordEvent(ctx, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void test_values(void)
{
    start();
    CUstream a, b;
    CUdeviceptr flag;
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, sizeof host));
    OK(cuMemAlloc(&flag, 4));
    OK(cuMemsetD32(flag, 0, 1));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamWaitValue32(a, flag, 3, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD8Async(p, 9, sizeof host, a));
    OK(cuMemsetD8Async(p, 8, sizeof host, b));
    OK(cuStreamWriteValue32(b, flag, 2, 0));
    OK(cuStreamSynchronize(b));
    usleep(20000);
    IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    OK(cuStreamWriteValue32(b, flag, 3, 0));
    OK(cuStreamSynchronize(a));
    CHECK(all_are(9));
}

static void test_vmm(void)
{
    start();
    const size_t unit = 2 << 20;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle one, two;
    CUdeviceptr at;
    size_t before, now, total;
    OK(cuMemGetInfo(&before, &total));
    IS(cuMemCreate(&one, 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&one, unit, &prop, 0));
    OK(cuMemCreate(&two, 2 * unit, &prop, 0));
    OK(cuMemAddressReserve(&at, 8 * unit, 0, 0, 0));
    OK(cuMemMap(at, unit, 0, one, 0));
    OK(cuMemMap(at + unit, 2 * unit, 0, two, 0));
    IS(cuMemsetD8(at + 5 * unit, 1, 4096), CUDA_ERROR_INVALID_VALUE); /* not mapped */
    OK(cuMemSetAccess(at, 3 * unit, &access, 1));
    IS(cuMemSetAccess(at, 4 * unit, &access, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8(at, 7, 3 * unit)); /* across mappings */
    OK(cuCtxSynchronize());
    IS(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemUnmap(at + unit, unit), CUDA_ERROR_INVALID_VALUE); /* half of two */
    IS(cuMemAddressFree(at, 8 * unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, unit));
    /* Somewhere else it shows its bytes. */
    OK(cuMemMap(at + 4 * unit, unit, 0, one, 0));
    OK(cuMemSetAccess(at + 4 * unit, unit, &access, 1));
    p = at + 4 * unit;
    CHECK(all_are(7));
    OK(cuMemRelease(one));
    OK(cuMemRelease(two));
    OK(cuMemGetInfo(&now, &total));
    CHECK(before - now == 3 * unit); /* the mappings hold it */
    OK(cuMemUnmap(at, 8 * unit));
    OK(cuMemAddressFree(at, 8 * unit));
    OK(cuMemGetInfo(&now, &total));
    CHECK(before == now);
}

static void test_kernels(void)
{
    start();
    CUmodule module;
    CUfunction fill, verify, saxpy, fault;
    CUstream s;
    CUdeviceptr bad;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module, sim_kernels_ptx));
    OK(cuModuleGetFunction(&fill, module, "fill"));
    OK(cuModuleGetFunction(&verify, module, "verify"));
    OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
    OK(cuModuleGetFunction(&fault, module, "fault"));
    IS(cuModuleGetFunction(&fault, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemAlloc(&bad, 4));
    OK(cuMemsetD32Async(bad, 0, 1, s));
    unsigned value = 0x3f800000, count = 1024; /* 1.0f */
    float two = 2;
    void *fill_args[] = {&p, &value, &count};
    OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, s, fill_args, NULL));
    void *verify_args[] = {&p, &value, &count, &bad};
    OK(cuLaunchKernel(verify, 4, 1, 1, 256, 1, 1, 0, s, verify_args, NULL));
    void *saxpy_args[] = {&count, &two, &p, &p}; /* y = 2y + y */
    OK(cuLaunchKernel(saxpy, 4, 1, 1, 256, 1, 1, 0, s, saxpy_args, NULL));
    OK(cuLaunchKernel(verify, 4, 1, 1, 256, 1, 1, 0, s, verify_args, NULL));
    OK(cuStreamSynchronize(s));
    unsigned wrong = 77;
    float first;
    OK(cuMemcpyDtoH(&wrong, bad, 4));
    OK(cuMemcpyDtoH(&first, p, 4));
    CHECK(wrong == 1024 && first == 3);
    OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS); /* sticky */
    OK(cuDevicePrimaryCtxReset(0));
    start();
    OK(cuMemAlloc(&p, 4));
}

/* Two branches of one capture, joined again; launched twice, ordered with the stream around it. */
static void test_graph(void)
{
    start();
    CUstream a, b;
    CUevent e;
    CUgraph graph;
    CUgraphExec exec;
    size_t count;
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, sizeof host));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD8Async(p, 1, sizeof host, a));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD8Async(p, 2, 2048, a));
    OK(cuMemsetD8Async(p + 2048, 2, 2048, b));
    OK(cuEventRecord(e, b));
    OK(cuStreamWaitEvent(a, e, 0));
    OK(cuMemsetD8Async(p + 1024, 2, 2048, a));
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 4);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuMemsetD8Async(p, 9, sizeof host, a));
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphExecDestroy(exec));
    OK(cuStreamSynchronize(a));
    CHECK(all_are(2));
    /* A branch that is not joined, and an event from outside. */
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD8Async(p, 1, 1, b));
    IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    OK(cuEventRecord(e, b));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* Context events refuse in every mode. */
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(cuCtxRecordEvent(NULL, e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* A capture ends with its context, and forbids nothing after that. */
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuDevicePrimaryCtxReset(0));
    start();
    OK(cuMemAlloc(&p, sizeof host));
}

static CUcontext primary;
static _Atomic bool freed;

static void *free_it(void *address)
{
    OK(cuCtxSetCurrent(primary));
    OK(cuMemFree((CUdeviceptr)(uintptr_t)address));
    freed = true;
    return NULL;
}

/* What a thread may do while another one's free waits for work of 200 ms, and what waits along. */
static void test_waiting_frees(void)
{
    CUdeviceptr other, more;
    CUstream busy, mine, fresh;
    CUevent event;
    void *pinned;
    pthread_t thread;

    primary = start();
    OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuMemAlloc(&other, sizeof host));
    for (int what = 0; what < 9; what++) {
        OK(cuMemAlloc(&p, sizeof host));
        OK(cuLaunchHostFunc(busy, sleep_ms, (void *)200));
        freed = false;
        CHECK(pthread_create(&thread, NULL, free_it, (void *)(uintptr_t)p) == 0);
        usleep(50000);
        switch (what) {
        case 0:
            OK(cuStreamQuery(mine));
            break;
        case 1:
            OK(cuStreamSynchronize(mine));
            break;
        case 2:
            OK(cuMemAllocAsync(&more, 512, mine));
            break;
        case 3:
            OK(cuStreamWriteValue32(mine, other, 1, 0));
            break;
        case 4:
            OK(cuMemsetD8Async(other, 1, sizeof host, mine));
            break;
        case 5:
            OK(cuMemAlloc(&more, 512));
            break;
        case 6:
            OK(cuEventRecord(event, mine));
            break;
        case 7:
            OK(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
            break;
        default:
            OK(cuMemHostAlloc(&pinned, 512, 0));
        }
        if (what >= 4)
            OK(cuStreamQuery(busy));
        else
            CHECK(!freed);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

const struct test selftest_order[] = {
    {"graph", test_graph},
    {"legacy_order", test_legacy_order},
    {"events", test_events},
    {"context_events", test_context_events},
    {"values", test_values},
    {"vmm", test_vmm},
    {"kernels", test_kernels},
    {"waiting_frees", test_waiting_frees},
    {NULL, NULL},
};
