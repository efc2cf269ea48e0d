/*
 * Self-tests of the race detector: planted races and bad accesses are found whatever the timing,
 * and what is ordered, by any means there is, is not reported.
 */
#include "kernels.h"
#include "selftest.h"

#include <unistd.h>

#define SIZE 65536

static CUstream a, b;
static CUdeviceptr p;

static void two_streams(void)
{
    start();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, SIZE));
}

static void case_race_streams(void)
{
    two_streams();
    OK(cuMemsetD8Async(p, 1, SIZE, a));
    usleep(20000); /* far apart in time, and still not ordered */
    OK(cuMemsetD8Async(p + 100, 2, 50, b));
    OK(cuCtxSynchronize());
}

static void case_race_read(void)
{
    two_streams();
    CUdeviceptr q;
    OK(cuMemAlloc(&q, SIZE));
    OK(cuMemcpyDtoDAsync(q, p, SIZE, a));
    OK(cuMemsetD8Async(p, 2, SIZE, b));
    OK(cuCtxSynchronize());
}

static void vmm_map(CUmemGenericAllocationHandle *handle, CUdeviceptr *at)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemCreate(handle, 2 << 20, &prop, 0));
    OK(cuMemAddressReserve(at, 2 << 20, 0, 0, 0));
    OK(cuMemMap(*at, 2 << 20, 0, *handle, 0));
    OK(cuMemSetAccess(*at, 2 << 20, &access, 1));
}

/* The work is over, but nothing told the host so. */
static void case_race_unmap(void)
{
    two_streams();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    vmm_map(&handle, &at);
    OK(cuMemsetD8Async(at, 1, SIZE, a));
    usleep(50000);
    OK(cuMemUnmap(at, 2 << 20));
}

static void case_bad_unmapped(void)
{
    two_streams();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    vmm_map(&handle, &at);
    OK(cuLaunchHostFunc(a, sleep_ms, (void *)50));
    OK(cuMemsetD8Async(at, 1, SIZE, a));
    OK(cuMemUnmap(at, 2 << 20));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void case_bad_freed(void)
{
    two_streams();
    CUmodule module;
    CUfunction fill;
    unsigned value = 1, count = 16;
    OK(cuModuleLoadData(&module, sim_kernels_ptx));
    OK(cuModuleGetFunction(&fill, module, "fill"));
    OK(cuMemFree(p));
    void *args[] = {&p, &value, &count};
    OK(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, a, args, NULL));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Freed in one stream, still used in another. */
static void case_race_free_async(void)
{
    two_streams();
    CUdeviceptr q;
    OK(cuMemAllocAsync(&q, SIZE, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemsetD8Async(q, 1, SIZE, b));
    usleep(20000);
    OK(cuMemFreeAsync(q, a));
    OK(cuCtxSynchronize());
}

/* Used in another stream than the one it was allocated in, without an order. */
static void case_race_alloc_async(void)
{
    two_streams();
    CUdeviceptr q;
    OK(cuMemAllocAsync(&q, SIZE, a));
    OK(cuMemsetD8Async(q, 1, SIZE, b));
    OK(cuCtxSynchronize());
}

static void test_race_found(void)
{
    expect_child("race_streams", NULL, 86, "RACE: cuMemsetD8Async");
    expect_child("race_read", NULL, 86, "cuMemcpyDtoDAsync");
    expect_child("race_unmap", NULL, 86, "cuMemUnmap by the host");
    expect_child("race_free_async", NULL, 86, "cuMemFreeAsync");
    expect_child("race_alloc_async", NULL, 86, "cuMemAllocAsync");
    expect_child("bad_unmapped", NULL, 86, "gone since cuMemUnmap");
    expect_child("bad_freed", NULL, 86, "gone since cuMemFree");
    expect_child("race_streams", "VRAMSIM_RACE=off", 0, NULL);
}

/* Everything here is ordered. */
static void case_ordered(void)
{
    CUcontext ctx = start();
    two_streams();
    CUevent e;
    CUdeviceptr q, flag;
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 20; i++) {
        OK(cuMemsetD8Async(p, 1, SIZE, a));
        OK(cuEventRecord(e, a));
        OK(cuStreamWaitEvent(b, e, 0));
        OK(cuMemsetD8Async(p, 2, SIZE, b));
        OK(cuCtxRecordEvent(ctx, e)); /* device order over everything */
        OK(cuCtxWaitEvent(ctx, e));
        OK(cuMemsetD8Async(p + 17, 3, 1000, a));
        OK(cuStreamSynchronize(a)); /* through the host */
        OK(cuMemsetD8Async(p, 4, SIZE, b));
        OK(cuStreamSynchronize(b));
        OK(cuMemsetD8Async(p, 5, SIZE, CU_STREAM_PER_THREAD)); /* through the legacy stream */
        OK(cuMemsetD8Async(p, 6, SIZE, NULL));
        OK(cuMemsetD8Async(p, 5, SIZE, CU_STREAM_PER_THREAD));
        OK(cuEventRecord(e, CU_STREAM_PER_THREAD));
        OK(cuEventSynchronize(e));
        /* Two readers at once. */
        OK(cuMemAlloc(&q, 2 * SIZE));
        OK(cuMemcpyDtoDAsync(q, p, SIZE, a));
        OK(cuMemcpyDtoDAsync(q + SIZE, p, SIZE, b));
        OK(cuMemFree(q)); /* waits, and tells the host */
        OK(cuMemsetD8Async(p, 7, SIZE, a));
        OK(cuStreamSynchronize(a));
    }
    /* By a flag in device memory. */
    OK(cuMemAlloc(&flag, 4));
    OK(cuMemsetD32Async(flag, 0, 1, b));
    OK(cuStreamSynchronize(b));
    OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD8Async(p, 8, SIZE, b));
    OK(cuMemsetD8Async(p, 7, SIZE, a));
    OK(cuStreamWriteValue32(a, flag, 1, 0));
    OK(cuCtxSynchronize());
    /* An unmapping after a wait. */
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    vmm_map(&handle, &at);
    OK(cuMemsetD8Async(at, 1, SIZE, a));
    OK(cuEventRecord(e, a));
    OK(cuEventSynchronize(e));
    OK(cuMemUnmap(at, 2 << 20));
    OK(cuMemRelease(handle));
    /* Streams that come and go. */
    for (int i = 0; i < 100; i++) {
        CUstream s;
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(cuMemsetD8Async(p, 1, SIZE, s));
        OK(cuEventRecord(e, s));
        OK(cuStreamDestroy(s));
        OK(cuStreamWaitEvent(a, e, 0));
        OK(cuMemsetD8Async(p, 2, SIZE, a));
        if (i % 2 == 0)
            OK(cuStreamSynchronize(a));
        else
            OK(cuCtxSynchronize());
        /* Gone before anything waits for it. */
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(cuMemsetD8Async(p, 3, SIZE, s));
        OK(cuStreamDestroy(s));
        OK(cuCtxSynchronize());
        OK(cuMemsetD8Async(p, 4, SIZE, b));
        OK(cuStreamSynchronize(b));
    }
}

static void test_race_none(void)
{
    expect_child("ordered", NULL, 0, NULL);
}

const struct test selftest_race[] = {
    {"race_found", test_race_found},
    {"race_none", test_race_none},
    {"race_streams", case_race_streams},
    {"race_read", case_race_read},
    {"race_unmap", case_race_unmap},
    {"race_free_async", case_race_free_async},
    {"race_alloc_async", case_race_alloc_async},
    {"bad_unmapped", case_bad_unmapped},
    {"bad_freed", case_bad_freed},
    {"ordered", case_ordered},
    {NULL, NULL},
};
