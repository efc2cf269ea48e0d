/*
 * Self-tests of what an allocator of its own relies on: mapped memory that is cut into blocks, used
 * again in the order that context events make, and unmapped. What is ordered is not reported;
 * what is not, is, also within one mapping, and also when it is only the unmapping that comes too
 * early.
 */
#include "kernels.h"
#include "selftest.h"

#include <unistd.h>

#define UNIT ((size_t)2 << 20)
#define BLOCK ((size_t)64 << 10)

static CUcontext ctx;
static CUstream a, b;
static CUdeviceptr range; /* 128 units, of which the first ones are mapped */
static CUmemGenericAllocationHandle handle;
static CUevent fence;
static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void let(CUdeviceptr at, size_t size, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = prop.location, .flags = flags};
    OK(cuMemSetAccess(at, size, &access, 1));
}

static void map(size_t units)
{
    ctx = start();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fence, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAddressReserve(&range, 128 * UNIT, 0, 0, 0));
    OK(cuMemCreate(&handle, units * UNIT, &prop, 0));
    OK(cuMemMap(range, units * UNIT, 0, handle, 0));
}

static void map_for_use(size_t units)
{
    map(units);
    let(range, units * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* Two units, mapped for use at the range's start, and once more behind it, without access. */
static CUdeviceptr range_of_two(void)
{
    map_for_use(2);
    OK(cuMemMap(range + 4 * UNIT, 2 * UNIT, 0, handle, 0));
    return range + 4 * UNIT;
}

/* ---- the rules of mapping ---------------------------------------------------------------------
 */
static void test_vmm_rules(void)
{
    CUmemGenericAllocationHandle other;
    map(4);
    OK(cuMemCreate(&other, 2 * UNIT, &prop, 0));
    /* In part, over another, over its end, beside its unit, outside, twice. */
    IS(cuMemUnmap(range, UNIT), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemUnmap(range + UNIT, 3 * UNIT), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(range, 2 * UNIT, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(range + 3 * UNIT, 2 * UNIT, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(range + 127 * UNIT, 2 * UNIT, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(range + 4 * UNIT + 4096, 2 * UNIT, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(range + 4 * UNIT, 3 * UNIT, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(range + 4 * UNIT, 2 * UNIT, UNIT, other, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(range + 4 * UNIT, 2 * UNIT, 0, other, 0));
    /* Access for both at once, and not beyond them. */
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    IS(cuMemSetAccess(range, 7 * UNIT, &access, 1), CUDA_ERROR_INVALID_VALUE);
    let(range, 6 * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemsetD8(range, 1, 6 * UNIT));
    OK(cuCtxSynchronize());
    /* Both in one go; then it is nobody's, and may be mapped anew, without the old access. */
    OK(cuMemUnmap(range, 6 * UNIT));
    OK(cuMemMap(range, 2 * UNIT, 0, other, 0));
    unsigned long long flags = 77;
    OK(cuMemGetAccess(&flags, &prop.location, range));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    IS(cuMemAddressFree(range, 128 * UNIT), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(range, 2 * UNIT));
    OK(cuMemRelease(other));
    OK(cuMemRelease(handle));
    IS(cuMemRelease(other), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(range, 128 * UNIT));
}

static void case_no_access(void)
{
    map(1);
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void case_read_only(void)
{
    map(1);
    let(range, UNIT, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void case_access_goes_with_the_mapping(void)
{
    map_for_use(1);
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    OK(cuStreamSynchronize(a));
    OK(cuMemUnmap(range, UNIT));
    OK(cuMemMap(range, UNIT, 0, handle, 0));
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* The fill is in the middle of it. */
static void case_unmapped_while_used(void)
{
    map_for_use(120);
    OK(cuMemsetD8Async(range, 1, 120 * UNIT, a));
    usleep(2000);
    OK(cuMemUnmap(range, 120 * UNIT));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Ordered on the device is not seen by the host. */
static void case_unmapped_when_ordered(void)
{
    map_for_use(1);
    OK(cuLaunchHostFunc(a, sleep_ms, (void *)30));
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    OK(cuCtxRecordEvent(ctx, fence));
    OK(cuCtxWaitEvent(ctx, fence));
    OK(cuMemUnmap(range, UNIT));
    IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* The work is over, but the host has seen nothing of that. */
static void case_unmapped_unseen(void)
{
    map_for_use(1);
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    OK(cuCtxRecordEvent(ctx, fence));
    usleep(50000);
    OK(cuMemUnmap(range, UNIT));
    OK(cuCtxSynchronize());
}

static void test_vmm_faults(void)
{
    expect_child("no_access", NULL, 86, "has no access to");
    expect_child("read_only", NULL, 86, "BAD ACCESS");
    expect_child("access_goes_with_the_mapping", NULL, 86, "BAD ACCESS");
    expect_child("unmapped_while_used", NULL, 86, "gone since cuMemUnmap");
    expect_child("unmapped_when_ordered", NULL, 86, "gone since cuMemUnmap");
    expect_child("unmapped_unseen", NULL, 86, "cuMemUnmap by the host");
    expect_child("no_access", "VRAMSIM_RACE=off", 0, NULL);
    expect_child("unmapped_while_used", "VRAMSIM_RACE=off", 0, NULL);
}

/* ---- a handle at two addresses -----------------------------------------------------------------
 */
static void case_two_mappings(void)
{
    const CUdeviceptr second = range_of_two();
    unsigned char seen[2] = {0, 0};
    unsigned long long flags = 77;
    size_t before, between, after, total;
    /* The second mapping's access is its own. */
    OK(cuMemGetAccess(&flags, &prop.location, second));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    let(second, 2 * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    /* What is written through the one is read through the other. */
    OK(cuMemGetInfo(&before, &total));
    OK(cuMemsetD8Async(range + UNIT, 1, BLOCK, a));
    OK(cuMemcpyDtoHAsync(&seen[0], second + UNIT, 1, a));
    OK(cuMemsetD8Async(second + UNIT, 2, BLOCK, a));
    OK(cuMemcpyDtoHAsync(&seen[1], range + UNIT, 1, a));
    OK(cuStreamSynchronize(a));
    CHECK(seen[0] == 1 && seen[1] == 2);
    /* The one goes, the other lives, and so does the memory. */
    OK(cuMemUnmap(range, 2 * UNIT));
    OK(cuMemRelease(handle));
    OK(cuMemGetInfo(&between, &total));
    CHECK(between == before);
    OK(cuMemcpyDtoHAsync(&seen[0], second + UNIT, 1, a));
    OK(cuStreamSynchronize(a));
    CHECK(seen[0] == 2);
    OK(cuMemUnmap(second, 2 * UNIT));
    OK(cuMemGetInfo(&after, &total));
    CHECK(after == before + 2 * UNIT);
}

/* Work through the other mapping is in nobody's way. */
static void case_one_unmapped(void)
{
    const CUdeviceptr second = range_of_two();
    let(second, 2 * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemsetD8Async(second, 1, 2 * UNIT, a));
    usleep(20000); /* done, but nobody has seen it */
    OK(cuMemUnmap(range, 2 * UNIT));
    OK(cuStreamSynchronize(a));
}

/* The memory is one, whatever the address. */
static void case_two_mappings_race(void)
{
    const CUdeviceptr second = range_of_two();
    let(second, 2 * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    usleep(20000);
    OK(cuMemsetD8Async(second, 2, BLOCK, b));
    OK(cuCtxSynchronize());
}

/* What went through the mapping counts for its unmapping, also when the memory was used since
 * through the other one. */
static void case_unmapped_unseen_of_two(void)
{
    const CUdeviceptr second = range_of_two();
    let(second, 2 * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    OK(cuCtxRecordEvent(ctx, fence));
    OK(cuCtxWaitEvent(ctx, fence));
    OK(cuMemsetD8Async(second, 2, BLOCK, b));
    usleep(20000);
    OK(cuMemUnmap(range, 2 * UNIT));
    OK(cuCtxSynchronize());
}

static void case_unmapped_while_used_of_two(void)
{
    const CUdeviceptr second = range_of_two();
    let(second, 2 * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuLaunchHostFunc(a, sleep_ms, (void *)30));
    OK(cuMemsetD8Async(range, 1, BLOCK, a));
    OK(cuMemUnmap(range, 2 * UNIT));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_vmm_twice(void)
{
    expect_child("two_mappings", NULL, 0, NULL);
    expect_child("one_unmapped", NULL, 0, NULL);
    expect_child("two_mappings_race", NULL, 86, "RACE: cuMemsetD8Async");
    expect_child("unmapped_unseen_of_two", NULL, 86, "cuMemUnmap by the host");
    expect_child("unmapped_while_used_of_two", NULL, 86, "gone since cuMemUnmap");
}

/* ---- blocks of one mapping that are used again -------------------------------------------------
 */
static void fill(CUdeviceptr at, unsigned char value, CUstream stream)
{
    OK(cuMemsetD8Async(at, value, BLOCK, stream));
}

static void case_no_fence(void)
{
    map_for_use(1);
    fill(range + BLOCK, 1, a);
    usleep(20000);
    fill(range + BLOCK, 2, b);
    OK(cuCtxSynchronize());
}

/* A fence from before the work covers nothing of it. */
static void case_early_fence(void)
{
    map_for_use(1);
    OK(cuCtxRecordEvent(ctx, fence));
    fill(range + BLOCK, 1, a);
    OK(cuCtxWaitEvent(ctx, fence));
    OK(cuEventSynchronize(fence));
    fill(range + BLOCK, 2, b);
    OK(cuCtxSynchronize());
}

/* The wait came after the use. */
static void case_late_order(void)
{
    map_for_use(1);
    fill(range + BLOCK, 1, a);
    OK(cuCtxRecordEvent(ctx, fence));
    fill(range + BLOCK, 2, b);
    OK(cuCtxWaitEvent(ctx, fence));
    OK(cuCtxSynchronize());
}

/* Half of a block is another's. */
static void case_overlap(void)
{
    map_for_use(1);
    fill(range, 1, a);
    fill(range + BLOCK / 2, 2, b);
    OK(cuCtxSynchronize());
}

static void case_graph_without_fence(void)
{
    map_for_use(1);
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    fill(range + BLOCK, 1, a);
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, a));
    fill(range + BLOCK, 2, b);
    OK(cuCtxSynchronize());
}

static void test_reuse_found(void)
{
    expect_child("no_fence", NULL, 86, "RACE: cuMemsetD8Async");
    expect_child("early_fence", NULL, 86, "RACE");
    expect_child("late_order", NULL, 86, "RACE");
    expect_child("overlap", NULL, 86, "RACE");
    expect_child("graph_without_fence", NULL, 86, "RACE");
}

/* One block, used by everybody in turn. */
static void case_fenced(void)
{
    map_for_use(2);
    CUdeviceptr at = range + 3 * BLOCK;
    CUgraph graph;
    CUgraphExec exec;
    CUstream blocking, streams[7];
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    fill(at, 1, a);
    OK(cuEventRecord(fence, a));
    OK(cuStreamWaitEvent(b, fence, 0));
    fill(at + 2 * BLOCK, 1, b);
    fill(at + BLOCK, 1, a);
    OK(cuEventRecord(fence, b));
    OK(cuStreamWaitEvent(a, fence, 0));
    OK(cuStreamEndCapture(a, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuEventDestroy(fence));
    OK(cuEventCreate(&fence, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 60; i++) {
        CUstream late;
        const CUstream all[] = {a, b, blocking, NULL, CU_STREAM_PER_THREAD, CU_STREAM_LEGACY, a};
        for (int k = 0; k < 7; k++)
            streams[k] = all[(i + k) % 7];
        for (int k = 0; k < 7; k++) {
            if (k % 3 == 0)
                OK(cuLaunchHostFunc(streams[k], sleep_ms, NULL));
            fill(at, (unsigned char)k, streams[k]);
            OK(cuCtxRecordEvent(ctx, fence));
            if ((i + k) % 2 == 0) { /* ordered */
                OK(cuCtxWaitEvent(ctx, fence));
            } else { /* seen */
                CUresult result;
                while ((result = cuEventQuery(fence)) == CUDA_ERROR_NOT_READY)
                    usleep(50);
                OK(result);
            }
        }
        OK(cuGraphLaunch(exec, streams[0] == NULL ? a : streams[0]));
        OK(cuCtxRecordEvent(ctx, fence));
        OK(cuCtxWaitEvent(ctx, fence));
        OK(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING));
        fill(at + BLOCK, 9, late);
        fill(at + 2 * BLOCK, 9, late);
        OK(cuStreamDestroy(late));
        OK(cuCtxRecordEvent(ctx, fence));
        OK(cuCtxWaitEvent(ctx, fence));
        OK(cuGraphLaunch(exec, b));
        OK(cuCtxRecordEvent(ctx, fence));
        OK(cuCtxWaitEvent(ctx, fence));
    }
    OK(cuEventSynchronize(fence));
    OK(cuMemUnmap(range, 2 * UNIT));
    OK(cuMemRelease(handle));
}

/* The fence was recorded before other work, which goes on: neither the order nor the unmapping has
 * anything to do with that. */
static void case_fenced_beside_work(void)
{
    map_for_use(2);
    CUdeviceptr flag;
    OK(cuMemAlloc(&flag, 4));
    OK(cuMemsetD32(flag, 0, 1));
    OK(cuCtxSynchronize());
    fill(range, 1, b);
    OK(cuCtxRecordEvent(ctx, fence));
    OK(cuStreamWaitValue32(a, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuCtxWaitEvent(ctx, fence));
    fill(range, 2, b);
    OK(cuStreamSynchronize(b));
    OK(cuMemUnmap(range, 2 * UNIT));
    OK(cuStreamWriteValue32(b, flag, 1, 0));
    OK(cuCtxSynchronize());
}

static void test_reuse_ordered(void)
{
    expect_child("fenced", NULL, 0, NULL);
    expect_child("fenced_beside_work", NULL, 0, NULL);
}

/* ---- a lost context ---------------------------------------------------------------------------
 */
static void test_lost(void)
{
    CUmodule module;
    CUfunction fault;
    CUdeviceptr p;
    size_t now_free, total;
    map_for_use(1);
    OK(cuModuleLoadData(&module, sim_kernels_ptx));
    OK(cuModuleGetFunction(&fault, module, "fault"));
    OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, a, NULL, NULL));
    IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuMemAlloc(&p, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuMemFree(0), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuEventQuery(fence), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuMemGetInfo(&now_free, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuCtxRecordEvent(ctx, fence), CUDA_ERROR_ILLEGAL_ADDRESS);
    /* Mappings belong to the process. */
    OK(cuMemUnmap(range, UNIT));
    OK(cuMemRelease(handle));
    OK(cuMemCreate(&handle, UNIT, &prop, 0));
    OK(cuMemMap(range, UNIT, 0, handle, 0));
}

const struct test selftest_reuse[] = {
    {"vmm_rules", test_vmm_rules},
    {"vmm_faults", test_vmm_faults},
    {"vmm_twice", test_vmm_twice},
    {"two_mappings", case_two_mappings},
    {"one_unmapped", case_one_unmapped},
    {"two_mappings_race", case_two_mappings_race},
    {"unmapped_unseen_of_two", case_unmapped_unseen_of_two},
    {"unmapped_while_used_of_two", case_unmapped_while_used_of_two},
    {"reuse_found", test_reuse_found},
    {"reuse_ordered", test_reuse_ordered},
    {"lost", test_lost},
    {"no_access", case_no_access},
    {"read_only", case_read_only},
    {"access_goes_with_the_mapping", case_access_goes_with_the_mapping},
    {"unmapped_while_used", case_unmapped_while_used},
    {"unmapped_when_ordered", case_unmapped_when_ordered},
    {"unmapped_unseen", case_unmapped_unseen},
    {"no_fence", case_no_fence},
    {"early_fence", case_early_fence},
    {"late_order", case_late_order},
    {"overlap", case_overlap},
    {"graph_without_fence", case_graph_without_fence},
    {"fenced", case_fenced},
    {"fenced_beside_work", case_fenced_beside_work},
    {NULL, NULL},
};
