/*
 * Self-tests of stream-ordered memory: what pools hold, what an allocation without room takes and
 * waits for, and what a plain free does not wait for.
 */
#include "kernels.h"
#include "selftest.h"

#include <unistd.h>

#define BIG ((size_t)700 << 20) /* more than half of the device */

static CUstream a, b;
static volatile uint32_t *flag; /* pinned */

static void two_streams(void)
{
    start();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
}

static void stop(CUstream stream)
{
    *flag = 0;
    OK(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void go_on(void)
{
    *flag = 1;
    OK(cuCtxSynchronize());
}

static CUdeviceptr taken(size_t size, CUstream stream)
{
    CUdeviceptr at;
    OK(cuMemAllocAsync(&at, size, stream));
    OK(cuMemsetD8Async(at, 1, size < MIB ? size : MIB, stream));
    return at;
}

static void test_pools(void)
{
    start();
    CUstream s;
    CUmemoryPool pool;
    CUdeviceptr p;
    cuuint64_t keep = 8 << 20, reserved;
    size_t before, now, total;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemGetInfo(&before, &total));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    for (int i = 0; i < 3; i++) {
        OK(cuMemAllocAsync(&p, 16 << 20, s));
        OK(cuMemsetD8Async(p, 3, 16 << 20, s));
        OK(cuMemFreeAsync(p, s));
        IS(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuStreamSynchronize(s));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    CHECK(reserved == keep);
    OK(cuMemGetInfo(&now, &total));
    CHECK(before - now == keep);
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemGetInfo(&now, &total));
    CHECK(before == now);
    /* More than fits at once, one after the other in one stream. */
    for (int i = 0; i < 4; i++) {
        OK(cuMemAllocAsync(&p, 700 << 20, s));
        OK(cuMemFreeAsync(p, s));
    }
    OK(cuStreamSynchronize(s));
}

/* One after the other in a stream that stands still: nothing is waited for. */
static void test_pool_same_stream(void)
{
    two_streams();
    CUdeviceptr p = taken(BIG, a);
    stop(a);
    for (int i = 0; i < 3; i++) {
        OK(cuMemFreeAsync(p, a));
        p = taken(i == 1 ? BIG / 2 : BIG, a);
    }
    IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    OK(cuMemFreeAsync(p, a));
    go_on();
}

/* A free of another stream: it alone is waited for, by the device. */
static void test_pool_other_stream(void)
{
    two_streams();
    CUdeviceptr p = taken(BIG, a), q;
    OK(cuMemFreeAsync(p, a));
    stop(a); /* behind the free */
    q = taken(BIG, b);
    OK(cuStreamSynchronize(b));
    IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    *flag = 1;
    OK(cuStreamSynchronize(a));
    stop(b); /* before it */
    OK(cuMemFreeAsync(q, b));
    p = taken(BIG, a);
    IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    *flag = 1;
    OK(cuStreamSynchronize(a));
    OK(cuMemFreeAsync(p, a));
    go_on();
    /* Of two frees, as much as is needed; the rest comes when they have taken effect. */
    CUdeviceptr small[2] = {taken(BIG / 2, a), taken(BIG / 2, b)};
    stop(a);
    OK(cuMemFreeAsync(small[0], a));
    OK(cuMemFreeAsync(small[1], b));
    p = taken(BIG, b);
    OK(cuMemAllocAsync(&q, BIG / 3, b));
    IS(cuMemAllocAsync(&q, BIG / 2, b), CUDA_ERROR_OUT_OF_MEMORY);
    IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    go_on();
}

/* Where dependencies are not allowed the host waits, for the free alone. */
static void test_pool_no_dependencies(void)
{
    two_streams();
    CUmemoryPool pool;
    int no = 0;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
    CUdeviceptr p = taken(BIG, a);
    OK(cuLaunchHostFunc(a, sleep_ms, (void *)30));
    OK(cuMemFreeAsync(p, a));
    stop(a);
    double before = now_ms();
    p = taken(BIG, b);
    CHECK(now_ms() - before > 20);
    OK(cuStreamSynchronize(b));
    IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    go_on();
}

static void test_pool_rules(void)
{
    two_streams();
    CUmemoryPool pool, got = NULL;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                            .maxSize = 8 * MIB};
    CUdeviceptr p, q;
    cuuint64_t used;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&p, 6 * MIB, pool, a));
    IS(cuMemAllocFromPoolAsync(&q, 6 * MIB, pool, a), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p + 5));
    CHECK(got == pool);
    OK(cuMemAlloc(&q, MIB));
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q));
    CHECK(got == NULL);
    /* What a lost context kept from being freed is freed when it goes. */
    CUmodule module;
    CUfunction fault;
    OK(cuModuleLoadData(&module, sim_kernels_ptx));
    OK(cuModuleGetFunction(&fault, module, "fault"));
    OK(cuMemFreeAsync(p, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemAllocFromPoolAsync(&p, 6 * MIB, pool, b));
    OK(cuStreamSynchronize(b));
    stop(b);
    OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, b, NULL, NULL));
    OK(cuMemFreeAsync(p, b));
    *flag = 1;
    IS(cuStreamSynchronize(b), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 6 * MIB);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 0);
}

/* A plain free waits for nothing: work that the host knows the end of is fine, other work is not.
 */
static void case_race_plain_free(void)
{
    two_streams();
    CUdeviceptr p = taken(MIB, a);
    OK(cuStreamSynchronize(a));
    OK(cuMemFree(p));
    IS(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    p = taken(MIB, a);
    usleep(30000); /* over, but nothing told the host so */
    OK(cuMemFree(p));
}

static void case_bad_plain_free(void)
{
    two_streams();
    CUdeviceptr p = taken(MIB, a);
    OK(cuStreamSynchronize(a));
    stop(a);
    OK(cuMemsetD8Async(p, 2, MIB, a));
    OK(cuMemFree(p)); /* at once */
    *flag = 1;
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_pool_plain_free(void)
{
    expect_child("race_plain_free", NULL, 86, "cuMemFree by the host");
    expect_child("bad_plain_free", NULL, 86, "gone since cuMemFree");
}

const struct test selftest_pool[] = {
    {"pools", test_pools},
    {"pool_same_stream", test_pool_same_stream},
    {"pool_other_stream", test_pool_other_stream},
    {"pool_no_dependencies", test_pool_no_dependencies},
    {"pool_rules", test_pool_rules},
    {"pool_plain_free", test_pool_plain_free},
    {"race_plain_free", case_race_plain_free},
    {"bad_plain_free", case_bad_plain_free},
    {NULL, NULL},
};
