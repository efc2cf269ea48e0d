/* Memory nodes: fixed addresses, who may free them, launches that are refused, what stays taken. */
#include "cu.h"

#define SIZE ((size_t)4 << 20)

static CUstream s;
static CUcontext context;

static CUgraphNode alloc_node(CUgraph graph, CUdeviceptr *at)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = SIZE};
    CUgraphNode node = NULL;
    TELL(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &params);
    FACT(params.dptr != 0);
    *at = params.dptr;
    return node;
}

static CUgraphNode set_node(CUgraph graph, CUgraphNode before, CUdeviceptr at, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS params = {
        .dst = at, .value = value, .elementSize = 1, .width = SIZE, .height = 1};
    CUgraphNode node = NULL;
    TELL(cuGraphAddMemsetNode, &node, graph, &before, 1, &params, context);
    return node;
}

static cuuint64_t attribute(CUgraphMem_attribute name)
{
    cuuint64_t value = 0;
    cu_must("cuDeviceGetGraphMemAttribute", CU(cuDeviceGetGraphMemAttribute)(0, name, &value));
    return value;
}

int main(int argc, char **argv)
{
    CUgraph graph, freeing, clone = NULL, captured = NULL;
    CUgraphExec exec = NULL, second = NULL, frees = NULL;
    CUgraphNode alloc, set, node = NULL;
    CUdeviceptr at, got = 0, plain, first = 0;
    size_t nodes = 0;

    cu_start(argc, argv);
    NEED(cuGraphAddMemAllocNode);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &plain, SIZE);

    cu_say("made");
    MUST(cuGraphCreate, &graph, 0);
    alloc = alloc_node(graph, &at);
    set = set_node(graph, alloc, at, 6);
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = 0};
    TELL(cuGraphMemAllocNodeGetParams, alloc, &params);
    FACT(params.dptr == at && params.bytesize == SIZE);
    params.bytesize = 0;
    TELL(cuGraphAddMemAllocNode, &node, graph, NULL, 0, &params);
    TELL(cuGraphClone, &clone, graph);
    TELL(cuGraphDestroyNode, set);
    TELL(cuGraphRemoveDependencies, graph, &alloc, &set, NULL, 1);

    cu_say("not launched");
    TELL(cuMemFree, at);
    TELL(cuGraphInstantiate, &exec, graph, 0);
    TELL(cuGraphInstantiate, &second, graph, 0);
    TELL(cuMemFree, at);

    cu_say("launched");
    TELL(cuGraphLaunch, exec, s);
    TELL(cuStreamSynchronize, s);
    FACT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) >= SIZE);
    FACT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) >= SIZE);
    FACT(cu_all_bytes(at, SIZE, 6));
    TELL(cuMemsetD8Async, at, 5, SIZE, s);
    TELL(cuStreamSynchronize, s);
    FACT(cu_all_bytes(at, SIZE, 5));
    TELL(cuGraphLaunch, exec, s);

    cu_say("freed outside, then launched again");
    TELL(cuMemFreeAsync, at, s);
    TELL(cuGraphLaunch, exec, s);
    TELL(cuStreamSynchronize, s);
    FACT(cu_all_bytes(at, SIZE, 6));
    TELL(cuMemFree, at);
    TELL(cuMemFree, at);
    TELL(cuGraphLaunch, exec, s);
    TELL(cuStreamSynchronize, s);
    TELL(cuMemFreeAsync, at, s);
    TELL(cuStreamSynchronize, s);

    cu_say("trimmed");
    TELL(cuDeviceGraphMemTrim, 0);
    FACT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    FACT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) >= SIZE);
    cuuint64_t zero = 0, one = 1;
    TELL(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero);
    TELL(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &one);
    TELL(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &zero);
    FACT(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 0);

    cu_say("freed by another graph");
    MUST(cuGraphCreate, &freeing, 0);
    TELL(cuGraphAddMemFreeNode, &node, freeing, NULL, 0, at);
    TELL(cuGraphMemFreeNodeGetParams, node, &got);
    FACT(got == at);
    TELL(cuGraphAddMemFreeNode, &node, freeing, NULL, 0, at);
    TELL(cuGraphAddMemFreeNode, &node, freeing, NULL, 0, plain);
    TELL(cuGraphAddMemFreeNode, &node, freeing, NULL, 0, 12345);
    TELL(cuGraphInstantiate, &frees, freeing, 0);
    for (int i = 0; i < 3; i++) {
        TELL(cuGraphLaunch, exec, s);
        TELL(cuGraphLaunch, frees, s);
    }
    TELL(cuStreamSynchronize, s);
    TELL(cuGraphExecDestroy, frees);
    TELL(cuGraphDestroy, freeing);

    cu_say("freed by the next launch");
    TELL(cuGraphExecDestroy, exec);
    TELL(cuGraphInstantiate, &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    TELL(cuGraphLaunch, exec, s);
    TELL(cuGraphLaunch, exec, s);
    TELL(cuGraphLaunch, exec, s);
    TELL(cuStreamSynchronize, s);
    cu_say("outlives its graphs");
    TELL(cuGraphExecDestroy, exec);
    TELL(cuGraphDestroy, graph);
    FACT(cu_all_bytes(at, SIZE, 6));
    TELL(cuMemFree, at);

    cu_say("captured");
    MUST(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuMemAllocAsync, &first, SIZE, s);
    TELL(cuMemsetD8Async, first, 8, SIZE, s);
    TELL(cuMemcpyDtoDAsync, plain, first, SIZE, s);
    TELL(cuMemFreeAsync, first, s);
    TELL(cuStreamEndCapture, s, &captured);
    TELL(cuGraphGetNodes, captured, NULL, &nodes);
    cu_say("nodes %zu", nodes);
    TELL(cuGraphInstantiate, &exec, captured, 0);
    for (int i = 0; i < 5; i++)
        MUST(cuGraphLaunch, exec, s);
    TELL(cuStreamSynchronize, s);
    FACT(cu_all_bytes(plain, SIZE, 8));
    TELL(cuMemFree, first);
    TELL(cuGraphExecDestroy, exec);
    TELL(cuGraphDestroy, captured);

    cu_say("a plain address is no graph's");
    MUST(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuMemFreeAsync, plain, s);
    captured = NULL;
    if (TELL(cuStreamEndCapture, s, &captured) == CUDA_SUCCESS)
        MUST(cuGraphDestroy, captured);
    TELL(cuDeviceGraphMemTrim, 0);
    FACT(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    TELL(cuMemFree, plain);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
