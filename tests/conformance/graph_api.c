/* Graphs made by hand: nodes and edges of every plain kind, changed, copied, launched, refused. */
#include "cu.h"
#include "kernels.h"

#define SIZE ((size_t)65536)

static CUstream s;
static CUdeviceptr p, q;
static int calls;

static void CUDA_CB called(void *unused)
{
    (void)unused;
    calls++;
}

static void counts(CUgraph graph)
{
    size_t nodes = 0, roots = 0, edges = 0;
    TELL(cuGraphGetNodes, graph, NULL, &nodes);
    TELL(cuGraphGetRootNodes, graph, NULL, &roots);
    TELL(cuGraphGetEdges, graph, NULL, NULL, NULL, &edges);
    cu_say("nodes %zu, roots %zu, edges %zu", nodes, roots, edges);
}

static void type(CUgraphNode node)
{
    CUgraphNodeType is = (CUgraphNodeType)99;
    CUresult result = CU(cuGraphNodeGetType)(node, &is);
    cu_say("type: %s, %d", cu_result_name(result), (int)is);
}

static void run(CUgraphExec exec)
{
    MUST(cuMemsetD8, p, 0, SIZE);
    MUST(cuMemsetD8, q, 0, SIZE);
    MUST(cuCtxSynchronize);
    calls = 0;
    TELL(cuGraphLaunch, exec, s);
    TELL(cuStreamSynchronize, s);
    cu_say("called: %d", calls);
}

int main(int argc, char **argv)
{
    CUgraph graph = NULL, clone = NULL, parent = NULL, inside = NULL, none = NULL;
    CUgraphExec exec = NULL, bad = NULL;
    CUgraphNode set, copy, host, kernel, empty, record, wait, child, found = NULL;
    CUgraphNode all[8] = {0};
    CUmodule module;
    CUfunction fill;
    CUevent event, got_event = NULL;
    CUcontext context;
    unsigned value = 0x05050505, words = SIZE / 4;
    void *arguments[] = {&q, &value, &words};
    size_t count;

    cu_start(argc, argv);
    NEED(cuGraphAddMemsetNode);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    MUST(cuMemAlloc, &p, SIZE);
    MUST(cuMemAlloc, &q, SIZE);
    MUST(cuModuleLoadData, &module, kernels_ptx);
    MUST(cuModuleGetFunction, &fill, module, "fill");
    CUDA_MEMSET_NODE_PARAMS memset_params = {
        .dst = p, .value = 3, .elementSize = 1, .width = SIZE, .height = 1};
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = q,
                         .WidthInBytes = SIZE,
                         .Height = 1,
                         .Depth = 1};
    CUDA_HOST_NODE_PARAMS host_params = {.fn = called};
    CUDA_KERNEL_NODE_PARAMS kernel_params = {.func = fill,
                                             .gridDimX = SIZE / 1024,
                                             .gridDimY = 1,
                                             .gridDimZ = 1,
                                             .blockDimX = 256,
                                             .blockDimY = 1,
                                             .blockDimZ = 1,
                                             .kernelParams = arguments};

    cu_say("made");
    TELL(cuGraphCreate, &graph, 0);
    TELL(cuGraphCreate, &none, 1);
    counts(graph);
    TELL(cuGraphAddMemsetNode, &set, graph, NULL, 0, &memset_params, context);
    TELL(cuGraphAddMemcpyNode, &copy, graph, &set, 1, &box, context);
    TELL(cuGraphAddHostNode, &host, graph, &copy, 1, &host_params);
    TELL(cuGraphAddKernelNode, &kernel, graph, &copy, 1, &kernel_params);
    TELL(cuGraphAddEmptyNode, &empty, graph, &host, 1);
    TELL(cuGraphAddDependencies, graph, &kernel, &empty, NULL, 1);
    counts(graph);
    type(set);
    type(copy);
    type(host);
    type(kernel);
    type(empty);

    cu_say("lists");
    count = 8;
    TELL(cuGraphNodeGetDependencies, empty, all, NULL, &count);
    FACT(count == 2 && all[2] == NULL);
    FACT((all[0] == host && all[1] == kernel) || (all[0] == kernel && all[1] == host));
    count = 1;
    TELL(cuGraphNodeGetDependentNodes, copy, all, NULL, &count);
    cu_say("count %zu", count);
    TELL(cuGraphNodeGetDependentNodes, empty, NULL, NULL, &count);
    cu_say("count %zu", count);

    cu_say("refused");
    TELL(cuGraphAddEmptyNode, &found, graph, (CUgraphNode[]){copy, copy}, 2);
    TELL(cuGraphAddEmptyNode, &found, graph, NULL, 1);
    TELL(cuGraphAddDependencies, graph, &kernel, &empty, NULL, 1);
    TELL(cuGraphAddDependencies, graph, &kernel, &kernel, NULL, 1);
    TELL(cuGraphRemoveDependencies, graph, &empty, &set, NULL, 1);
    memset_params.elementSize = 3;
    TELL(cuGraphAddMemsetNode, &found, graph, NULL, 0, &memset_params, context);
    memset_params.elementSize = 1;
    kernel_params.gridDimX = 0;
    TELL(cuGraphAddKernelNode, &found, graph, NULL, 0, &kernel_params);
    kernel_params.gridDimX = SIZE / 1024;
    TELL(cuGraphInstantiate, &bad, NULL, 0);
    TELL(cuGraphInstantiate, &bad, graph, 1 << 20);
    TELL(cuGraphDestroy, NULL);
    counts(graph);

    cu_say("a cycle");
    TELL(cuGraphAddDependencies, graph, &empty, &set, NULL, 1);
    TELL(cuGraphInstantiate, &bad, graph, 0);
    TELL(cuGraphRemoveDependencies, graph, &empty, &set, NULL, 1);

    cu_say("launched");
    TELL(cuGraphInstantiate, &exec, graph, 0);
    TELL(cuGraphUpload, exec, s);
    run(exec);
    FACT(cu_all_bytes(p, SIZE, 3));
    FACT(cu_all_bytes(q, SIZE, 5));

    cu_say("parameters");
    CUDA_KERNEL_NODE_PARAMS kernel_got = {0};
    CUDA_MEMSET_NODE_PARAMS memset_got = {0};
    CUDA_MEMCPY3D box_got = {0};
    CUDA_HOST_NODE_PARAMS host_got = {0};
    TELL(cuGraphKernelNodeGetParams, kernel, &kernel_got);
    FACT(kernel_got.func == fill && kernel_got.gridDimX == SIZE / 1024);
    FACT(*(unsigned *)kernel_got.kernelParams[1] == 0x05050505);
    TELL(cuGraphMemsetNodeGetParams, set, &memset_got);
    FACT(memset_got.dst == p && memset_got.value == 3 && memset_got.width == SIZE);
    TELL(cuGraphMemcpyNodeGetParams, copy, &box_got);
    FACT(box_got.srcDevice == p && box_got.dstDevice == q && box_got.WidthInBytes == SIZE);
    TELL(cuGraphHostNodeGetParams, host, &host_got);
    FACT(host_got.fn == called);
    TELL(cuGraphKernelNodeGetParams, host, &kernel_got);
    TELL(cuGraphMemsetNodeGetParams, kernel, &memset_got);

    cu_say("changed in the executable graph");
    value = 0x07070707;
    TELL(cuGraphExecKernelNodeSetParams, exec, kernel, &kernel_params);
    memset_params.value = 4;
    TELL(cuGraphExecMemsetNodeSetParams, exec, set, &memset_params, context);
    TELL(cuGraphExecKernelNodeSetParams, exec, set, &kernel_params);
    run(exec);
    FACT(cu_all_bytes(p, SIZE, 4));
    FACT(cu_all_bytes(q, SIZE, 7));
    TELL(cuGraphNodeSetEnabled, exec, kernel, 0);
    TELL(cuGraphNodeSetEnabled, exec, host, 0);
    run(exec);
    FACT(cu_all_bytes(q, SIZE, 4));

    cu_say("a clone, and an update from it");
    CUgraphExecUpdateResultInfo info = {0};
    TELL(cuGraphClone, &clone, graph);
    counts(clone);
    TELL(cuGraphNodeFindInClone, &found, set, clone);
    FACT(found != NULL && found != set);
    memset_params.value = 9;
    TELL(cuGraphMemsetNodeSetParams, found, &memset_params);
    TELL(cuGraphExecUpdate, exec, clone, &info);
    cu_say("result %d", (int)info.result);
    run(exec);
    FACT(cu_all_bytes(p, SIZE, 9));
    TELL(cuGraphNodeFindInClone, &found, empty, clone);
    TELL(cuGraphDestroyNode, found);
    counts(clone);
    TELL(cuGraphExecUpdate, exec, clone, &info);
    cu_say("result %d", (int)info.result);
    TELL(cuGraphExecDestroy, exec);

    cu_say("a child, events");
    TELL(cuGraphCreate, &parent, 0);
    TELL(cuGraphAddChildGraphNode, &child, parent, NULL, 0, graph);
    TELL(cuGraphAddEventRecordNode, &record, parent, &child, 1, event);
    TELL(cuGraphAddEventWaitNode, &wait, parent, &record, 1, event);
    memset_params.value = 1;
    TELL(cuGraphAddMemsetNode, &found, parent, &wait, 1, &memset_params, context);
    type(child);
    type(record);
    type(wait);
    TELL(cuGraphEventRecordNodeGetEvent, record, &got_event);
    FACT(got_event == event);
    TELL(cuGraphChildGraphNodeGetGraph, child, &inside);
    counts(inside);
    TELL(cuGraphDestroy, graph);
    TELL(cuGraphInstantiate, &exec, parent, 0);
    run(exec);
    TELL(cuEventQuery, event);
    FACT(cu_all_bytes(p, SIZE, 1));
    FACT(cu_all_bytes(q, SIZE, 5));
    TELL(cuGraphExecDestroy, exec);
    TELL(cuGraphDestroy, parent);
    TELL(cuGraphDestroy, clone);
    MUST(cuEventDestroy, event);
    MUST(cuModuleUnload, module);
    MUST(cuMemFree, p);
    MUST(cuMemFree, q);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
