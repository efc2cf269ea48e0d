/* Self-tests of graphs: made by hand, changed, copied; memory nodes; races inside a graph. */
#include "kernels.h"
#include "selftest.h"

#include <string.h>

#define SIZE 65536

static CUstream s, t;
static CUdeviceptr p, q;
static unsigned char host[SIZE];
static const CUmemPoolProps pool = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void prepare(void)
{
    start();
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, SIZE));
    OK(cuMemAlloc(&q, SIZE));
}

static bool all_are(CUdeviceptr at, unsigned char value)
{
    OK(cuMemcpyDtoH(host, at, SIZE));
    return host[0] == value && memcmp(host, host + 1, SIZE - 1) == 0;
}

static CUgraphNode fill(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr to,
                        unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS params = {
        .dst = to, .value = value, .elementSize = 1, .width = SIZE, .height = 1};
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, graph, before, count, &params, NULL));
    return node;
}

static CUDA_MEMCPY3D box(CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = SIZE,
                           .Height = 1,
                           .Depth = 1};
}

static void CUDA_CB count_up(void *counter)
{
    ++*(int *)counter;
}

static void run(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
}

/* fill p -> copy p to q -> { host function, kernel over q } -> empty */
static void test_graph_api(void)
{
    prepare();
    CUgraph graph, clone;
    CUgraphNode node[5], found, from[8], to[8];
    CUgraphExec exec;
    int calls = 0;
    size_t count;
    CUmodule module;
    CUfunction function;
    unsigned value = 0x03030303, words = SIZE / 4;
    void *args[] = {&q, &value, &words};
    OK(cuModuleLoadData(&module, sim_kernels_ptx));
    OK(cuModuleGetFunction(&function, module, "fill"));
    CUDA_MEMCPY3D copy = box(q, p);
    CUDA_HOST_NODE_PARAMS call = {.fn = count_up, .userData = &calls};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = function,
                                      .gridDimX = words / 256,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 256,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = args};
    OK(cuGraphCreate(&graph, 0));
    IS(cuGraphCreate(&clone, 1), CUDA_ERROR_INVALID_VALUE);
    node[0] = fill(graph, NULL, 0, p, 1);
    OK(cuGraphAddMemcpyNode(&node[1], graph, node, 1, &copy, NULL));
    OK(cuGraphAddHostNode(&node[2], graph, &node[1], 1, &call));
    OK(cuGraphAddKernelNode(&node[3], graph, &node[1], 1, &kernel));
    OK(cuGraphAddEmptyNode(&node[4], graph, &node[2], 1));
    IS(cuGraphAddEmptyNode(&found, graph, (CUgraphNode[]){node[1], node[1]}, 2),
       CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphAddDependencies(graph, &node[3], &node[4], NULL, 1));
    IS(cuGraphAddDependencies(graph, &node[3], &node[4], NULL, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    CHECK(count == 5);
    count = 8;
    OK(cuGraphGetEdges(graph, from, to, NULL, &count));
    CHECK(count == 5 && from[4] == node[3] && to[4] == node[4]);
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    CHECK(count == 1);
    OK(cuGraphNodeGetDependentNodes(node[1], NULL, NULL, &count));
    CHECK(count == 2);
    OK(cuGraphNodeGetDependencies(node[4], from, NULL, (count = 8, &count)));
    CHECK(count == 2 && from[2] == NULL);
    OK(cuGraphInstantiate(&exec, graph, 0));
    run(exec);
    CHECK(all_are(p, 1) && all_are(q, 3) && calls == 1);

    /* A cycle is noticed at last. */
    OK(cuGraphAddDependencies(graph, &node[4], &node[0], NULL, 1));
    CUgraphExec none;
    IS(cuGraphInstantiate(&none, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphRemoveDependencies(graph, &node[4], &node[0], NULL, 1));

    /* Parameters come back, and can be changed in the executable graph alone. */
    CUDA_KERNEL_NODE_PARAMS got;
    OK(cuGraphKernelNodeGetParams(node[3], &got));
    CHECK(got.func == function && *(unsigned *)got.kernelParams[1] == value);
    IS(cuGraphKernelNodeGetParams(node[2], &got), CUDA_ERROR_INVALID_VALUE);
    value = 0x05050505;
    OK(cuGraphExecKernelNodeSetParams(exec, node[3], &kernel));
    run(exec);
    CHECK(all_are(q, 5) && calls == 2);
    OK(cuGraphNodeSetEnabled(exec, node[3], 0));
    run(exec);
    CHECK(all_are(q, 1) && calls == 3);

    /* A clone has nodes of its own; the update of an executable graph takes its parameters. */
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, node[0], clone));
    CHECK(found != node[0]);
    CUDA_MEMSET_NODE_PARAMS set;
    OK(cuGraphMemsetNodeGetParams(found, &set));
    set.value = 9;
    OK(cuGraphMemsetNodeSetParams(found, &set));
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, clone, &info));
    run(exec);
    CHECK(all_are(p, 9));
    OK(cuGraphNodeFindInClone(&found, node[4], clone));
    OK(cuGraphDestroyNode(found));
    IS(cuGraphExecUpdate(exec, clone, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

    /* As a child of another graph, behind an event node. */
    CUgraph parent;
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&from[0], parent, NULL, 0, graph));
    OK(cuGraphAddEventRecordNode(&from[1], parent, from, 1, event));
    from[2] = fill(parent, &from[1], 1, q, 7);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    IS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphInstantiate(&exec, parent, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamWaitEvent(t, event, 0));
    OK(cuMemsetD8Async(p, 4, SIZE, t)); /* ordered after the child by the event alone */
    OK(cuStreamSynchronize(t));
    OK(cuStreamSynchronize(s));
    CHECK(all_are(p, 4) && all_are(q, 7) && calls == 5);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(parent));
    /* A user object lives as long as somebody holds it. */
    CUuserObject object;
    OK(cuUserObjectCreate(&object, &calls, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(clone, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphInstantiate(&exec, clone, 0));
    OK(cuGraphDestroy(clone));
    CHECK(calls == 5);
    OK(cuGraphExecDestroy(exec));
    CHECK(calls == 6);
    IS(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
}

static cuuint64_t attribute(CUgraphMem_attribute name)
{
    cuuint64_t value = 0;
    OK(cuDeviceGetGraphMemAttribute(0, name, &value));
    return value;
}

static size_t free_now(void)
{
    size_t now, total;
    OK(cuMemGetInfo(&now, &total));
    return now;
}

static CUgraphNode alloc_node(CUgraph graph, size_t size, CUdeviceptr *at)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = pool, .bytesize = size};
    CUgraphNode node;
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    *at = params.dptr;
    return node;
}

static void test_graph_memory(void)
{
    prepare();
    CUgraph graph, other;
    CUgraphExec exec, second;
    CUgraphNode node[4];
    CUdeviceptr at, got;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    size_t before = free_now();
    OK(cuGraphCreate(&graph, 0));
    node[0] = alloc_node(graph, 8 << 20, &at);
    OK(cuGraphMemAllocNodeGetParams(node[0], &params));
    CHECK(params.dptr == at && params.bytesize == 8 << 20);
    node[1] = fill(graph, node, 1, at, 6);
    IS(cuMemcpyDtoH(host, at, SIZE), CUDA_ERROR_INVALID_VALUE); /* no launch yet */
    IS(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    IS(cuGraphClone(&other, graph), CUDA_ERROR_NOT_SUPPORTED);
    IS(cuGraphDestroyNode(node[1]), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphInstantiate(&exec, graph, 0));
    IS(cuGraphInstantiate(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK(free_now() == before);
    OK(cuGraphLaunch(exec, s));
    CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 8 << 20);
    CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 8 << 20);
    CHECK(free_now() == before - (8 << 20));
    IS(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE); /* not freed */
    OK(cuStreamSynchronize(s));
    CHECK(all_are(at, 6));

    /* Freed outside, in a stream or at once; the graph keeps the bytes until a trim. */
    OK(cuMemFreeAsync(at, s));
    IS(cuMemFreeAsync(at, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, s));
    OK(cuMemFree(at));
    IS(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    CHECK(free_now() == before - (8 << 20));
    OK(cuDeviceGraphMemTrim(0));
    CHECK(free_now() == before);
    CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 8 << 20);
    cuuint64_t zero = 0;
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
    CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 0);
    IS(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero),
       CUDA_ERROR_INVALID_VALUE);

    /* Freed by another graph; a second free of the same memory is refused. */
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddMemFreeNode(&node[2], other, NULL, 0, at));
    IS(cuGraphAddMemFreeNode(&node[3], other, NULL, 0, at), CUDA_ERROR_INVALID_VALUE);
    IS(cuGraphAddMemFreeNode(&node[3], other, NULL, 0, p), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphMemFreeNodeGetParams(node[2], &got));
    CHECK(got == at);
    OK(cuGraphInstantiate(&second, other, 0));
    IS(cuGraphLaunch(second, s), CUDA_ERROR_INVALID_VALUE); /* nothing allocated */
    for (int i = 0; i < 10; i++) {
        OK(cuGraphLaunch(exec, s));
        OK(cuGraphLaunch(second, s));
    }
    OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(second));
    OK(cuGraphDestroy(other));

    /* An allocation outlives its graphs. */
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    OK(cuGraphLaunch(exec, s)); /* frees the earlier one */
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamSynchronize(s));
    CHECK(all_are(at, 6));
    OK(cuMemFree(at));
    IS(cuMemFree(at), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceGraphMemTrim(0));
    CHECK(free_now() == before);
    CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);

    /* Captured; alloc and free inside, so it can be launched again and again. */
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&at, SIZE, s));
    OK(cuMemsetD8Async(at, 8, SIZE, s));
    OK(cuMemcpyDtoDAsync(p, at, SIZE, s));
    OK(cuMemFreeAsync(at, s));
    IS(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 20; i++)
        OK(cuGraphLaunch(exec, i % 2 != 0 ? s : t));
    OK(cuStreamSynchronize(s));
    OK(cuStreamSynchronize(t));
    CHECK(all_are(p, 8));
    IS(cuMemcpyDtoH(host, at, SIZE), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));

    /* More than there is; what idle graphs hold is used for it. */
    OK(cuGraphCreate(&graph, 0));
    alloc_node(graph, 600 << 20, &at);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphCreate(&other, 0));
    alloc_node(other, 600 << 20, &got);
    OK(cuGraphInstantiate(&second, other, 0));
    OK(cuGraphLaunch(exec, s));
    IS(cuGraphLaunch(second, s), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree(at));
    OK(cuGraphLaunch(second, s));
    OK(cuCtxSynchronize());
    /* All of it ends with the context. */
    OK(cuDevicePrimaryCtxReset(0));
    start();
    CHECK(free_now() > before);
}

/* Two nodes that nothing orders write the same bytes. */
static void case_race_in_graph(void)
{
    prepare();
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode root = fill(graph, NULL, 0, q, 1);
    fill(graph, &root, 1, p, 1);
    fill(graph, &root, 1, p, 2);
    OK(cuGraphInstantiate(&exec, graph, 0));
    run(exec);
}

/* A launch against another stream. */
static void case_race_with_graph(void)
{
    prepare();
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    fill(graph, NULL, 0, p, 1);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuMemsetD8Async(p, 1, SIZE, t));
    run(exec);
    OK(cuCtxSynchronize());
}

/* The memory of a node, used without being ordered after the launch. */
static void case_race_graph_memory(void)
{
    prepare();
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr at;
    OK(cuGraphCreate(&graph, 0));
    alloc_node(graph, SIZE, &at);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuLaunchHostFunc(t, sleep_ms, (void *)50)); /* later, and still not ordered */
    OK(cuMemsetD8Async(at, 1, SIZE, t));
    OK(cuStreamSynchronize(t));
}

/* The memory of a node, used after the graph has freed it. */
static void case_bad_graph_memory(void)
{
    prepare();
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node[2];
    CUdeviceptr at;
    OK(cuGraphCreate(&graph, 0));
    node[0] = alloc_node(graph, SIZE, &at);
    OK(cuGraphAddMemFreeNode(&node[1], graph, node, 1, at));
    fill(graph, &node[1], 1, at, 1);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_graph_races(void)
{
    expect_child("race_in_graph", NULL, 86, "RACE: memset node");
    expect_child("race_with_graph", NULL, 86, "RACE:");
    expect_child("race_graph_memory", NULL, 86, "RACE:");
    expect_child("bad_graph_memory", NULL, 86, "gone since free node");
}

const struct test selftest_graph[] = {
    {"graph_api", test_graph_api},
    {"graph_memory", test_graph_memory},
    {"graph_races", test_graph_races},
    {"race_in_graph", case_race_in_graph},
    {"race_with_graph", case_race_with_graph},
    {"race_graph_memory", case_race_graph_memory},
    {"bad_graph_memory", case_bad_graph_memory},
    {NULL, NULL},
};
