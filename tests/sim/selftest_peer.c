/*
 * Self-tests of several devices and of green contexts: who reaches what, what waits for what.
 */
#include "kernels.h"
#include "selftest.h"

#include <stdlib.h>
#include <string.h>

#define SIZE 65536

static CUcontext ctx0, ctx1;
static CUfunction fill0, fill1;

static CUcontext primary(CUdevice device)
{
    CUcontext ctx;
    OK(cuDevicePrimaryCtxRetain(&ctx, device));
    return ctx;
}

static CUfunction load(CUcontext ctx, const char *name)
{
    CUmodule module;
    CUfunction function;
    OK(cuCtxSetCurrent(ctx));
    OK(cuModuleLoadData(&module, sim_kernels_ptx));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

/* Runs in a child with VRAMSIM_DEVICES=2. */
static void two_devices(void)
{
    OK(cuInit(0));
    ctx0 = primary(0);
    ctx1 = primary(1);
    fill0 = load(ctx0, "fill");
    fill1 = load(ctx1, "fill");
}

static CUdeviceptr alloc_in(CUcontext ctx)
{
    CUdeviceptr p;
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemAlloc(&p, SIZE));
    return p;
}

static void launch_fill(CUfunction fill, CUdeviceptr p, unsigned value, CUstream stream)
{
    unsigned count = SIZE / 4;
    void *args[] = {&p, &value, &count};
    OK(cuLaunchKernel(fill, SIZE / 1024, 1, 1, 256, 1, 1, 0, stream, args, NULL));
}

static bool all(CUdeviceptr p, unsigned char value)
{
    static unsigned char host[SIZE];
    OK(cuMemcpyDtoH(host, p, SIZE));
    for (size_t i = 0; i < SIZE; i++) {
        if (host[i] != value)
            return false;
    }
    return true;
}

static void case_peer_calls(void)
{
    int value = -1;
    two_devices();
    OK(cuDeviceCanAccessPeer(&value, 0, 1));
    CHECK(value == 1);
    OK(cuDeviceCanAccessPeer(&value, 1, 1));
    CHECK(value == 0);
    IS(cuDeviceCanAccessPeer(&value, 0, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    CHECK(value == 1);
    IS(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1),
       CUDA_ERROR_INVALID_DEVICE);
    OK(cuCtxSetCurrent(ctx0));
    IS(cuCtxEnablePeerAccess(ctx0, 0), CUDA_ERROR_INVALID_CONTEXT);
    IS(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
    IS(cuCtxEnablePeerAccess(ctx1, 1), CUDA_ERROR_INVALID_VALUE);
    IS(cuCtxDisablePeerAccess(ctx1), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OK(cuCtxEnablePeerAccess(ctx1, 0));
    IS(cuCtxEnablePeerAccess(ctx1, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CUdeviceptr p = alloc_in(ctx1);
    OK(cuCtxSetCurrent(ctx0));
    launch_fill(fill0, p, 0x07070707, NULL);
    OK(cuCtxSynchronize());
    CHECK(all(p, 7));
    OK(cuCtxDisablePeerAccess(ctx1));
    /* Memory is its device's, whatever context is current. */
    size_t before, after, total;
    OK(cuCtxSetCurrent(ctx1));
    OK(cuMemGetInfo(&before, &total));
    OK(cuCtxSetCurrent(ctx0));
    OK(cuMemFree(p));
    OK(cuCtxSetCurrent(ctx1));
    OK(cuMemGetInfo(&after, &total));
    CHECK(after == before + SIZE);
}

static void case_peer_fault(void)
{
    two_devices();
    CUdeviceptr p = alloc_in(ctx1);
    OK(cuCtxSetCurrent(ctx0));
    launch_fill(fill0, p, 1, NULL);
    IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS); /* sticky, of that context alone */
    OK(cuCtxSetCurrent(ctx1));
    OK(cuCtxSynchronize());
}

static void case_peer_copies(void)
{
    two_devices();
    CUdeviceptr p = alloc_in(ctx0), q = alloc_in(ctx1), r = alloc_in(ctx1);
    OK(cuCtxSetCurrent(ctx0));
    OK(cuMemsetD8(p, 3, SIZE));
    OK(cuMemcpyPeer(q, ctx1, p, ctx0, SIZE));
    CHECK(all(q, 3));
    OK(cuMemcpyDtoD(r, p, SIZE)); /* no access asked for: staged */
    CHECK(all(r, 3));
    OK(cuMemsetD8(p, 4, SIZE));
    CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = p,
                              .srcContext = ctx0,
                              .srcPitch = 256,
                              .srcHeight = 16,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = q,
                              .dstContext = ctx1,
                              .dstPitch = 256,
                              .dstHeight = 16,
                              .WidthInBytes = 256,
                              .Height = 16,
                              .Depth = SIZE / 4096};
    OK(cuMemcpy3DPeer(&box));
    CHECK(all(q, 4));
    IS(cuMemcpyPeer(q, NULL, p, ctx0, SIZE), CUDA_ERROR_INVALID_CONTEXT);

    /* A synchronous peer copy is ordered with the work of both contexts. */
    CUstream busy;
    OK(cuCtxSetCurrent(ctx1));
    OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(busy, sleep_ms, (void *)30));
    OK(cuMemsetD8Async(q, 5, SIZE, busy));
    OK(cuCtxSetCurrent(ctx0));
    OK(cuMemcpyPeer(p, ctx0, q, ctx1, SIZE));
    OK(cuCtxSetCurrent(ctx1));
    OK(cuMemsetD8Async(q, 6, SIZE, busy));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(ctx0));
    CHECK(all(p, 5));
}

static void case_peer_race(void)
{
    two_devices();
    CUdeviceptr p = alloc_in(ctx0), q = alloc_in(ctx1);
    CUstream s0, s1;
    OK(cuCtxSetCurrent(ctx0));
    OK(cuStreamCreate(&s0, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(ctx1));
    OK(cuStreamCreate(&s1, CU_STREAM_NON_BLOCKING));
    launch_fill(fill1, q, 1, s1);
    OK(cuCtxSetCurrent(ctx0));
    OK(cuMemcpyPeerAsync(p, ctx0, q, ctx1, SIZE, s0));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(ctx1));
    OK(cuCtxSynchronize());
}

static CUmemAccessDesc access_of(int device)
{
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    desc.location.id = device;
    return desc;
}

static CUdeviceptr map_on(int device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    prop.location.id = device;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CUmemAccessDesc own = access_of(device);
    OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
    OK(cuMemAddressReserve(&at, 2 << 20, 0, 0, 0));
    OK(cuMemMap(at, 2 << 20, 0, handle, 0));
    OK(cuMemSetAccess(at, 2 << 20, &own, 1));
    return at;
}

static void case_peer_lists(void)
{
    two_devices();
    CUmemAccessDesc zero = access_of(0);
    CUdeviceptr at = map_on(1), q = alloc_in(ctx0);
    unsigned long long flags;
    OK(cuMemGetAccess(&flags, &zero.location, at));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    /* Both sides are named: each is reached by its own device. */
    OK(cuMemcpyPeer(at, ctx1, q, ctx0, SIZE));
    OK(cuCtxSynchronize());
    OK(cuMemSetAccess(at, 2 << 20, &zero, 1));
    OK(cuMemGetAccess(&flags, &zero.location, at));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuCtxSetCurrent(ctx1));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(ctx0));
    launch_fill(fill0, at, 0x09090909, NULL);
    OK(cuCtxSynchronize());
    CHECK(all(at, 9));

    CUmemoryPool pool;
    CUdeviceptr a;
    OK(cuDeviceGetDefaultMemPool(&pool, 1));
    OK(cuMemPoolSetAccess(pool, &zero, 1));
    OK(cuCtxSetCurrent(ctx1));
    OK(cuMemAllocAsync(&a, SIZE, NULL));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(ctx0));
    launch_fill(fill0, a, 0x0a0a0a0a, NULL);
    OK(cuCtxSynchronize());
    CHECK(all(a, 10));
}

static void case_peer_no_vmm_access(void)
{
    two_devices();
    CUdeviceptr at = map_on(1);
    OK(cuCtxSetCurrent(ctx0));
    OK(cuCtxEnablePeerAccess(ctx1, 0)); /* does nothing for mappings */
    launch_fill(fill0, at, 1, NULL);
    IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void case_peer_no_pool_access(void)
{
    two_devices();
    CUdeviceptr a;
    OK(cuCtxSetCurrent(ctx1));
    OK(cuMemAllocAsync(&a, SIZE, NULL));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(ctx0));
    OK(cuCtxEnablePeerAccess(ctx1, 0));
    launch_fill(fill0, a, 1, NULL);
    IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void case_peer_off(void)
{
    int value;
    two_devices();
    OK(cuDeviceCanAccessPeer(&value, 0, 1));
    CHECK(value == 0);
    OK(cuCtxSetCurrent(ctx0));
    IS(cuCtxEnablePeerAccess(ctx1, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    CUdeviceptr at = map_on(1);
    CUmemAccessDesc zero = access_of(0);
    IS(cuMemSetAccess(at, 2 << 20, &zero, 1), CUDA_ERROR_INVALID_DEVICE);
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 1));
    IS(cuMemPoolSetAccess(pool, &zero, 1), CUDA_ERROR_INVALID_DEVICE);
}

static void test_peers(void)
{
    const char *two = "VRAMSIM_DEVICES=2";
    expect_child("peer_calls", two, 0, NULL);
    expect_child("peer_copies", two, 0, NULL);
    expect_child("peer_lists", two, 0, NULL);
    expect_child("peer_fault", two, 86, "fill by cuLaunchKernel");
    expect_child("peer_fault", two, 86, "memory of device 1 that device 0 has no access to");
    expect_child("peer_no_vmm_access", two, 86, "no access to");
    expect_child("peer_no_pool_access", two, 86, "no access to");
    expect_child("peer_race", two, 86, "cuMemcpyPeerAsync");
    setenv("VRAMSIM_PEER", "off", 1);
    expect_child("peer_off", two, 0, NULL);
}

/* ---- green contexts ---------------------------------------------------------------------------
 */
static CUgreenCtx make_green(unsigned sms)
{
    CUdevResource all_sms, part;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(0, &all_sms, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &groups, &all_sms, NULL, 0, sms));
    CHECK(groups == 1 && part.sm.smCount >= sms);
    OK(cuDevResourceGenerateDesc(&desc, &part, 1));
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static void split(void)
{
    CUdevResource whole, parts[4], rest, again;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    unsigned groups = 0;
    IS(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_INVALID),
       CUDA_ERROR_INVALID_RESOURCE_TYPE);
    OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(NULL, &groups, &whole, NULL, 0, 10));
    CHECK(groups == whole.sm.smCount / 16);
    groups = 4;
    OK(cuDevSmResourceSplitByCount(parts, &groups, &whole, &rest, 0, 10));
    CHECK(groups == 4 && parts[3].sm.smCount == 16 && rest.sm.smCount == whole.sm.smCount - 64);
    groups = 1;
    IS(cuDevSmResourceSplitByCount(&again, &groups, &parts[0], NULL, 0, 8),
       CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    IS(cuDevSmResourceSplitByCount(&again, &groups, &whole, NULL, 0, whole.sm.smCount + 1),
       CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    OK(cuDevResourceGenerateDesc(&desc, parts, 2));
    IS(cuGreenCtxCreate(&green, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuGreenCtxGetDevResource(green, &again, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(again.sm.smCount == 32);
    OK(cuGreenCtxDestroy(green));
    IS(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void test_green(void)
{
    CUcontext main_ctx = start(), form, got;
    split();
    CUgreenCtx green = make_green(8), got_green;
    CUstream stream, other, inside;
    CUevent event;
    CUdeviceptr p;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    IS(cuGreenCtxStreamCreate(&stream, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuCtxFromGreenCtx(&form, green));
    CHECK(form != main_ctx && (void *)form != (void *)green);
    OK(cuStreamGetCtx(stream, &got));
    CHECK(got == form);
    OK(cuStreamGetCtx_v2(stream, &got, &got_green));
    CHECK(got == main_ctx && got_green == green);
    OK(cuStreamGetGreenCtx(other, &got_green));
    CHECK(got_green == NULL);

    /* The primary's event covers a green stream, the green context's event it alone. */
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuLaunchHostFunc(stream, sleep_ms, (void *)60));
    OK(cuCtxRecordEvent(main_ctx, event));
    IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(event));
    OK(cuStreamQuery(stream));
    OK(cuLaunchHostFunc(other, sleep_ms, (void *)60));
    OK(cuGreenCtxRecordEvent(green, event));
    OK(cuEventQuery(event));
    IS(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    /* Its wait holds up its own later work, nobody else's. */
    OK(cuEventRecord(event, other));
    OK(cuGreenCtxWaitEvent(green, event));
    OK(cuLaunchHostFunc(stream, sleep_ms, (void *)0));
    IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(other));

    /* Current, it allocates for the primary, and a free waits for green streams too. */
    OK(cuCtxSetCurrent(form));
    OK(cuCtxGetCurrent(&got));
    CHECK(got == form);
    OK(cuStreamCreate(&inside, CU_STREAM_DEFAULT));
    OK(cuStreamGetGreenCtx(inside, &got_green));
    CHECK(got_green == green);
    OK(cuMemAlloc(&p, SIZE));
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    CHECK(got == main_ctx);
    OK(cuMemsetD8(p, 5, SIZE));
    OK(cuCtxSynchronize());
    CHECK(all(p, 5));
    OK(cuLaunchHostFunc(stream, sleep_ms, (void *)60));
    OK(cuCtxSetCurrent(main_ctx));
    OK(cuMemFree(p));
    OK(cuStreamQuery(stream));

    OK(cuStreamDestroy(inside));
    OK(cuGreenCtxDestroy(green));
    IS(cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    IS(cuCtxSetCurrent(form), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active);
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active);
}

/* Primary and green streams are not ordered by themselves. */
static void case_green_race(void)
{
    start();
    CUgreenCtx green = make_green(8);
    CUstream stream;
    CUdeviceptr p;
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuMemAlloc(&p, SIZE));
    OK(cuMemsetD8Async(p, 1, SIZE, stream));
    OK(cuMemsetD8Async(p, 2, SIZE, NULL));
    OK(cuCtxSynchronize());
}

static void test_green_race(void)
{
    expect_child("green_race", NULL, 86, "RACE: cuMemsetD8Async");
}

const struct test selftest_peer[] = {
    {"peers", test_peers},
    {"green", test_green},
    {"green_races", test_green_race},
    {"peer_calls", case_peer_calls},
    {"peer_copies", case_peer_copies},
    {"peer_lists", case_peer_lists},
    {"peer_fault", case_peer_fault},
    {"peer_race", case_peer_race},
    {"peer_no_vmm_access", case_peer_no_vmm_access},
    {"peer_no_pool_access", case_peer_no_pool_access},
    {"peer_off", case_peer_off},
    {"green_race", case_green_race},
    {NULL, NULL},
};
