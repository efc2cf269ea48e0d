/*
 * Self-tests of what shows mistakes (poison, reused addresses), of what calls cost, and of the
 * smaller parts: variables of modules, batches of copies, attributes.
 */
#include "kernels.h"
#include "selftest.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 65536

static bool all(CUdeviceptr p, size_t size, unsigned char value)
{
    unsigned char *host = malloc(size);
    CHECK(host != NULL);
    OK(cuMemcpyDtoH(host, p, size));
    bool same = host[0] == value && memcmp(host, host + 1, size - 1) == 0;
    free(host);
    return same;
}

static void fresh_is(unsigned char value)
{
    CUdeviceptr p;
    start();
    const size_t sizes[] = {512, SIZE, 40u << 20}; /* kept in three ways */
    for (int i = 0; i < 3; i++) {
        OK(cuMemAlloc(&p, sizes[i]));
        CHECK(all(p, sizes[i], value));
        OK(cuMemsetD8(p, 1, sizes[i]));
        CHECK(all(p, sizes[i], 1));
        OK(cuMemFree(p));
        OK(cuMemAlloc(&p, sizes[i])); /* nothing of its last owner */
        CHECK(all(p, sizes[i], value));
        OK(cuMemFree(p));
    }
    void *host;
    OK(cuMemAllocHost(&host, SIZE));
    CHECK(((unsigned char *)host)[SIZE - 1] == 0);
}

static void case_poison_off(void)
{
    fresh_is(0);
}

static void test_poison(void)
{
    fresh_is(0xa5);
    expect_child("poison_off", "VRAMSIM_POISON=off", 0, NULL);
}

/* Frees and allocates the same size; true if the address came back. */
static bool comes_back(size_t size)
{
    CUdeviceptr p, q;
    OK(cuMemAlloc(&p, size));
    OK(cuMemFree(p));
    OK(cuMemAlloc(&q, size));
    OK(cuMemFree(q));
    return p == q;
}

static void case_reuse_off(void)
{
    start();
    CHECK(!comes_back(SIZE) && !comes_back(8 << 20));
}

static void test_reuse(void)
{
    start();
    CHECK(comes_back(SIZE) && comes_back(8 << 20));
    expect_child("reuse_off", "VRAMSIM_REUSE=off", 0, NULL);
}

static void case_stale_events(void)
{
    CUevent own, with_context;
    CUcontext made;
    start();
    OK(cuEventCreate(&own, 0));
    OK(cuEventDestroy(own));
    IS(cuEventDestroy(own), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxCreate(&made, NULL, 0, 0));
    OK(cuEventCreate(&with_context, 0));
    OK(cuCtxDestroy(made));
    IS(cuEventQuery(with_context), CUDA_ERROR_INVALID_HANDLE);
}

static void case_stale_streams(void)
{
    CUstream own, with_context;
    CUcontext made;
    start();
    OK(cuStreamCreate(&own, 0));
    OK(cuStreamDestroy(own));
    IS(cuStreamDestroy(own), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxCreate(&made, NULL, 0, 0));
    OK(cuStreamCreate(&with_context, 0));
    OK(cuCtxDestroy(made));
    IS(cuStreamSynchronize(with_context), CUDA_ERROR_INVALID_HANDLE);
}

static void case_stale_contexts(void)
{
    CUcontext made;
    start();
    OK(cuCtxCreate(&made, NULL, 0, 0));
    OK(cuCtxDestroy(made));
    IS(cuCtxDestroy(made), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    IS(cuCtxPushCurrent(made), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void *destroy_it(void *made)
{
    OK(cuCtxDestroy(made));
    return NULL;
}

/* What is current and no more is named by nobody. A ghost has no memory to give. */
static void destroyed_elsewhere(CUresult answer)
{
    CUcontext made, now;
    CUdevice device;
    CUdeviceptr at;
    size_t free_bytes, total;
    pthread_t thread;
    start();
    OK(cuCtxCreate(&made, NULL, 0, 0));
    CHECK(pthread_create(&thread, NULL, destroy_it, made) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(cuCtxGetCurrent(&now));
    CHECK(now == made);
    IS(cuCtxGetDevice(&device), answer);
    IS(cuMemGetInfo(&free_bytes, &total), answer);
    IS(cuMemAlloc(&at, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    IS(cuMemFree(0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    IS(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void case_no_ghosts(void)
{
    destroyed_elsewhere(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void case_ghosts(void)
{
    destroyed_elsewhere(CUDA_SUCCESS);
}

/* The handle of a destroyed context, stream or event is the next one's. */
static void test_handles(void)
{
    CUcontext made, next;
    CUevent event, second;
    start();
    OK(cuCtxCreate(&made, NULL, 0, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuCtxDestroy(made));
    OK(cuCtxCreate(&next, NULL, 0, 0));
    OK(cuEventCreate(&second, 0));
    CHECK(next == made && second == event);
    OK(cuCtxDestroy(next));
    expect_child("stale_events", "VRAMSIM_REUSE=off", 86, "cuEventDestroy of event");
    expect_child("stale_events", "VRAMSIM_REUSE=off", 86, "which went with its context");
    expect_child("stale_events", "VRAMSIM_RACE=off", 0, NULL);
    expect_child("stale_streams", "VRAMSIM_REUSE=off", 86, "cuStreamDestroy of stream");
    expect_child("stale_streams", "VRAMSIM_REUSE=off", 86, "which went with its context");
    expect_child("stale_contexts", "VRAMSIM_REUSE=off", 86, "cuCtxDestroy of context");
    expect_child("no_ghosts", NULL, 0, NULL);
    expect_child("ghosts", "VRAMSIM_GHOSTS=on", 0, NULL);
}

static void case_cost(void)
{
    CUdeviceptr p;
    start();
    double before = now_ms();
    for (int i = 0; i < 10; i++)
        OK(cuMemAlloc(&p, 512));
    CHECK(now_ms() - before >= 20);
}

static void test_costs(void)
{
    expect_child("cost", "VRAMSIM_COST=h200,cuMemAlloc:2000", 0, NULL);
    expect_child("init_refused", "VRAMSIM_COST=cuMemAlloc", 0, "VRAMSIM_COST=cuMemAlloc: expected");
    expect_child("init_refused", "VRAMSIM_COST=nobody:1", 0, "VRAMSIM_COST=nobody:1: expected");
}

static void test_modules(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .global .align 4 .u32 counter;\n"
                              ".global .align 8 .b8 table[40] = {1, 2};\n"
                              ".const .align 16 .v4 .f32 matrix[2][2];\n"
                              ".extern .global .u32 elsewhere;\n"
                              ".visible .entry spin_us(.param .u64 us)\n{\n"
                              " ld.global.u32 %r1, [counter];\n ret;\n}\n";
    CUmodule module, owner;
    CUfunction function;
    CUdeviceptr p, q;
    size_t size, free_before, free_after, total;
    unsigned count, word = 5;
    const char *name;
    CUcontext ctx = start();
    OK(cuMemGetInfo(&free_before, &total));
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetGlobal(&p, &size, module, "counter"));
    CHECK(size == 4 && all(p, 4, 0));
    OK(cuMemcpyHtoD(p, &word, 4));
    OK(cuModuleGetGlobal(&q, NULL, module, "counter"));
    CHECK(p == q);
    OK(cuModuleGetGlobal(&q, &size, module, "table"));
    CHECK(size == 40);
    OK(cuModuleGetGlobal(NULL, &size, module, "matrix"));
    CHECK(size == 64);
    IS(cuModuleGetGlobal(&q, &size, module, "elsewhere"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleGetFunctionCount(&count, module));
    CHECK(count == 1);
    OK(cuModuleEnumerateFunctions(&function, 1, module));
    OK(cuFuncGetName(&name, function));
    CHECK(strcmp(name, "spin_us") == 0);
    OK(cuFuncGetModule(&owner, function));
    CHECK(owner == module);
    size_t offset;
    OK(cuFuncGetParamInfo(function, 0, &offset, &size));
    CHECK(offset == 0 && size == 8);
    IS(cuFuncGetParamInfo(function, 1, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
    OK(cuMemGetInfo(&free_after, &total));
    CHECK(free_after == free_before);
    IS(cuMemcpyHtoD(p, &word, 4), CUDA_ERROR_INVALID_VALUE);

    /* A library's variable is one in each context. */
    CUlibrary library;
    CUcontext second;
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetGlobal(&p, NULL, library, "counter"));
    OK(cuCtxCreate(&second, NULL, 0, 0));
    OK(cuLibraryGetGlobal(&q, NULL, library, "counter"));
    CHECK(p != q);
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(ctx));
    OK(cuLibraryGetGlobal(&q, NULL, library, "counter"));
    CHECK(p == q);
    OK(cuLibraryUnload(library));
}

static void test_batches(void)
{
    CUstream stream;
    CUdeviceptr p, q;
    start();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, SIZE));
    OK(cuMemAlloc(&q, SIZE));
    OK(cuMemsetD8(p, 1, SIZE));
    OK(cuCtxSynchronize());
    unsigned char host[512] = {0};
    memset(host, 2, sizeof host);
    CUdeviceptr to[] = {q, q + SIZE / 2}, from[] = {p, (CUdeviceptr)(uintptr_t)host};
    size_t sizes[] = {SIZE / 2, sizeof host}, starts[] = {0};
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    IS(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, starts, 1, NULL),
       CUDA_ERROR_INVALID_HANDLE);
    IS(cuMemcpyBatchAsync(to, from, sizes, 0, &attributes, starts, 1, stream),
       CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, starts, 1, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(all(q, SIZE / 2, 1) && all(q + SIZE / 2, sizeof host, 2));

    /* A source that is read during the call may change right after it, pinned or not. */
    unsigned char *pinned;
    OK(cuMemAllocHost((void **)&pinned, SIZE));
    memset(pinned, 3, SIZE);
    from[0] = (CUdeviceptr)(uintptr_t)pinned;
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    OK(cuLaunchHostFunc(stream, sleep_ms, (void *)20));
    OK(cuMemcpyBatchAsync(to, from, sizes, 1, &attributes, starts, 1, stream));
    memset(pinned, 4, SIZE);
    OK(cuStreamSynchronize(stream));
    CHECK(all(q, SIZE / 2, 3));

    CUdeviceptr managed[2];
    CUmemLocation places[] = {{.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              {.type = CU_MEM_LOCATION_TYPE_HOST}};
    size_t lengths[] = {SIZE, SIZE}, begins[] = {0, 1};
    int last = 9;
    OK(cuMemAllocManaged(&managed[0], SIZE, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocManaged(&managed[1], SIZE, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemPrefetchBatchAsync(managed, lengths, 2, places, begins, 2, 0, stream));
    OK(cuMemRangeGetAttribute(&last, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, managed[1],
                              SIZE));
    CHECK(last == CU_DEVICE_CPU);
}

static void test_hints(void)
{
    CUstream a, b;
    CUstreamAttrValue value = {0};
    start();
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreateWithPriority(&b, CU_STREAM_NON_BLOCKING, -2));
    OK(cuStreamGetAttribute(a, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &value));
    CHECK(value.memSyncDomainMap.default_ == 0 && value.memSyncDomainMap.remote == 1);
    OK(cuStreamGetAttribute(a, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    CHECK((int)value.syncPolicy == -1);
    value.syncPolicy = CU_SYNC_POLICY_YIELD;
    OK(cuStreamSetAttribute(a, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    OK(cuStreamCopyAttributes(b, a));
    value.syncPolicy = CU_SYNC_POLICY_SPIN;
    OK(cuStreamGetAttribute(b, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    CHECK(value.syncPolicy == CU_SYNC_POLICY_YIELD);
    int priority;
    OK(cuStreamGetPriority(b, &priority));
    CHECK(priority == 0);
    IS(cuStreamSetAttribute(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
}

const struct test selftest_misc[] = {
    {"poison", test_poison},
    {"reuse", test_reuse},
    {"costs", test_costs},
    {"modules", test_modules},
    {"batches", test_batches},
    {"hints", test_hints},
    {"poison_off", case_poison_off},
    {"reuse_off", case_reuse_off},
    {"handles", test_handles},
    {"stale_events", case_stale_events},
    {"stale_streams", case_stale_streams},
    {"stale_contexts", case_stale_contexts},
    {"no_ghosts", case_no_ghosts},
    {"ghosts", case_ghosts},
    {"cost", case_cost},
    {NULL, NULL},
};
