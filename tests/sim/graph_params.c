/*
 * Parameters of nodes: read, and changed, in graphs and in executable graphs.
 *
 * A change of an executable graph's node names the node of the graph that it was made from.
 * Launches that are under way keep what they have.
 */
#include "graph.h"

#include <string.h>

static const struct sim_work *peek(CUgraphNode node, CUgraphNodeType type)
{
    return sim_node_alive(node) && node->type == type ? &node->work : NULL;
}

static CUresult answer(bool good)
{
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- reading ----------------------------------------------------------------------------------
 */
static CUresult kernel_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_work *work = peek(node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (work != NULL) {
        for (unsigned i = 0; i < SIM_KERNEL_PARAMS; i++)
            node->arg_pointers[i] = &node->work.launch.arg[i];
        *out = (CUDA_KERNEL_NODE_PARAMS){.func = work->launch.function,
                                         .gridDimX = work->launch.grid[0],
                                         .gridDimY = work->launch.grid[1],
                                         .gridDimZ = work->launch.grid[2],
                                         .blockDimX = work->launch.block[0],
                                         .blockDimY = work->launch.block[1],
                                         .blockDimZ = work->launch.block[2],
                                         .sharedMemBytes = work->launch.shared,
                                         .kernelParams = node->arg_pointers};
    }
    sim_unlock();
    return answer(work != NULL);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *out)
{
    SIM_ENTRY(cuGraphKernelNodeGetParams_v2);
    return kernel_params(node, out);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *out)
{
    SIM_ENTRY(cuGraphKernelNodeGetParams);
    CUDA_KERNEL_NODE_PARAMS params;
    CUresult result = out != NULL ? kernel_params(node, &params) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memcpy(out, &params, sizeof *out);
    return result;
}

/* One side of a captured copy, as a program would have described it. False: an array. */
static bool side(const struct sim_end *end, CUmemorytype *type, const void **host,
                 CUdeviceptr *device)
{
    const struct sim_range *range = sim_range_at(end->address);
    if (end->phys != NULL)
        return false;
    bool on_host = range == NULL || range->kind == SIM_HOST || range->kind == SIM_REGISTERED;
    *type = on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (on_host)
        *host = (const void *)(uintptr_t)end->address;
    else
        *device = end->address;
    return true;
}

static CUresult captured_box(const struct sim_work *work, CUDA_MEMCPY3D *out)
{
    const void *to = NULL;
    *out = (CUDA_MEMCPY3D){.WidthInBytes = work->copy.width,
                           .Height = work->copy.height,
                           .Depth = work->copy.depth,
                           .srcPitch = work->copy.from.pitch,
                           .srcHeight = work->copy.from.height,
                           .dstPitch = work->copy.to.pitch,
                           .dstHeight = work->copy.to.height};
    bool good = side(&work->copy.from, &out->srcMemoryType, &out->srcHost, &out->srcDevice) &&
                side(&work->copy.to, &out->dstMemoryType, &to, &out->dstDevice);
    out->dstHost = (void *)(uintptr_t)to;
    return good ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *out)
{
    SIM_ENTRY(cuGraphMemcpyNodeGetParams);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_work *work = peek(node, CU_GRAPH_NODE_TYPE_MEMCPY);
    CUresult result = answer(work != NULL);
    if (work != NULL && node->boxed)
        *out = node->box;
    else if (work != NULL)
        result = captured_box(work, out);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *out)
{
    SIM_ENTRY(cuGraphMemsetNodeGetParams);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_work *work = peek(node, CU_GRAPH_NODE_TYPE_MEMSET);
    if (work != NULL)
        *out = (CUDA_MEMSET_NODE_PARAMS){work->set.address, work->set.pitch, work->set.value,
                                         work->set.element, work->set.width, work->set.height};
    sim_unlock();
    return answer(work != NULL);
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *out)
{
    SIM_ENTRY(cuGraphHostNodeGetParams);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_work *work = peek(node, CU_GRAPH_NODE_TYPE_HOST);
    bool good = work != NULL && work->kind == SIM_W_HOST;
    if (good)
        *out = (CUDA_HOST_NODE_PARAMS){work->host.fn, work->host.arg};
    sim_unlock();
    return answer(good);
}

static CUresult event_of(CUgraphNode node, CUgraphNodeType type, CUevent *out)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = peek(node, type) != NULL;
    if (good)
        *out = node->event;
    sim_unlock();
    return answer(good);
}

CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *out)
{
    SIM_ENTRY(cuGraphEventRecordNodeGetEvent);
    return event_of(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out);
}

CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *out)
{
    SIM_ENTRY(cuGraphEventWaitNodeGetEvent);
    return event_of(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out);
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out)
{
    SIM_ENTRY(cuGraphChildGraphNodeGetGraph);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = peek(node, CU_GRAPH_NODE_TYPE_GRAPH) != NULL;
    if (good)
        *out = node->child;
    sim_unlock();
    return answer(good);
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *out)
{
    SIM_ENTRY(cuGraphMemAllocNodeGetParams);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = peek(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC) != NULL;
    if (good)
        sim_graph_memory_params(node->memory, out);
    sim_unlock();
    return answer(good);
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *out)
{
    SIM_ENTRY(cuGraphMemFreeNodeGetParams);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_work *work = peek(node, CU_GRAPH_NODE_TYPE_MEM_FREE);
    if (work != NULL)
        *out = work->memory.address;
    sim_unlock();
    return answer(work != NULL);
}

/* ---- changing: exec NULL is the graph's own node ----------------------------------------------
 */
static CUgraphNode target(CUgraphExec exec, bool in_exec, CUgraphNode node, CUgraphNodeType type)
{
    CUgraphNode found = in_exec ? sim_exec_node(exec, node) : sim_node_alive(node) ? node : NULL;
    return found != NULL && found->type == type ? found : NULL;
}

static CUresult set_kernel(CUgraphExec exec, bool in_exec, CUgraphNode node,
                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    sim_lock();
    struct sim_work work;
    CUgraphNode at = target(exec, in_exec, node, CU_GRAPH_NODE_TYPE_KERNEL);
    CUresult result = at != NULL ? sim_node_kernel_work(params, &work) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        sim_node_set_work(at, &work);
    sim_unlock();
    return result;
}

static CUresult set_copy(CUgraphExec exec, bool in_exec, CUgraphNode node, const CUDA_MEMCPY3D *box)
{
    struct sim_work work;
    CUresult result = sim_node_copy_work(box, &work);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    CUgraphNode at = target(exec, in_exec, node, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (at != NULL) {
        sim_node_set_work(at, &work);
        at->box = *box;
        at->boxed = true;
    }
    sim_work_fini(&work);
    sim_unlock();
    return answer(at != NULL);
}

static CUresult set_work(CUgraphExec exec, bool in_exec, CUgraphNode node, CUgraphNodeType type,
                         const struct sim_work *work)
{
    sim_lock();
    CUgraphNode at = target(exec, in_exec, node, type);
    if (at != NULL)
        sim_node_set_work(at, work);
    sim_unlock();
    return answer(at != NULL);
}

static CUresult set_fill(CUgraphExec exec, bool in_exec, CUgraphNode node,
                         const CUDA_MEMSET_NODE_PARAMS *params)
{
    struct sim_work work;
    CUresult result = sim_node_fill_work(params, &work);
    return result == CUDA_SUCCESS ? set_work(exec, in_exec, node, CU_GRAPH_NODE_TYPE_MEMSET, &work)
                                  : result;
}

static CUresult set_host(CUgraphExec exec, bool in_exec, CUgraphNode node,
                         const CUDA_HOST_NODE_PARAMS *params)
{
    if (params == NULL || params->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_W_HOST,
                            .what = "host node",
                            .host = {.fn = params->fn, .arg = params->userData}};
    return set_work(exec, in_exec, node, CU_GRAPH_NODE_TYPE_HOST, &work);
}

static CUresult set_event(CUgraphExec exec, bool in_exec, CUgraphNode node, CUgraphNodeType type,
                          CUevent event)
{
    sim_lock();
    CUresult result = sim_event_alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    CUgraphNode at = target(exec, in_exec, node, type);
    if (result == CUDA_SUCCESS && at == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        at->event = event;
    sim_unlock();
    return result;
}

#define SETTER(name, params, call)                                                                 \
    CUresult CUDAAPI name params                                                                   \
    {                                                                                              \
        SIM_ENTRY(name);                                                                           \
        return call;                                                                               \
    }
SETTER(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
       set_kernel(NULL, false, node, params))
SETTER(cuGraphExecKernelNodeSetParams_v2,
       (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params),
       set_kernel(exec, true, node, params))
SETTER(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *box),
       set_copy(NULL, false, node, box))
SETTER(cuGraphExecMemcpyNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *box, CUcontext ctx),
       ((void)ctx, set_copy(exec, true, node, box)))
SETTER(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params),
       set_fill(NULL, false, node, params))
SETTER(cuGraphExecMemsetNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx),
       ((void)ctx, set_fill(exec, true, node, params)))
SETTER(cuGraphHostNodeSetParams, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params),
       set_host(NULL, false, node, params))
SETTER(cuGraphExecHostNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params),
       set_host(exec, true, node, params))
SETTER(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent event),
       set_event(NULL, false, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event))
SETTER(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
       set_event(exec, true, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event))
SETTER(cuGraphEventWaitNodeSetEvent, (CUgraphNode node, CUevent event),
       set_event(NULL, false, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event))
SETTER(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec exec, CUgraphNode node, CUevent event),
       set_event(exec, true, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event))

static CUDA_KERNEL_NODE_PARAMS *full(const CUDA_KERNEL_NODE_PARAMS_v1 *old,
                                     CUDA_KERNEL_NODE_PARAMS *params)
{
    *params = (CUDA_KERNEL_NODE_PARAMS){0};
    if (old == NULL)
        return NULL;
    memcpy(params, old, sizeof *old); /* v2 has two more members */
    return params;
}
SETTER(cuGraphKernelNodeSetParams, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
       set_kernel(NULL, false, node, full(params, &(CUDA_KERNEL_NODE_PARAMS){0})))
SETTER(cuGraphExecKernelNodeSetParams,
       (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params),
       set_kernel(exec, true, node, full(params, &(CUDA_KERNEL_NODE_PARAMS){0})))

static CUresult set_any(CUgraphExec exec, bool in_exec, CUgraphNode node,
                        const CUgraphNodeParams *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS kernel;
    const CUDA_MEMSET_NODE_PARAMS_v2 *set = &params->memset;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memcpy(&kernel, &params->kernel, sizeof kernel);
        return set_kernel(exec, in_exec, node, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return set_copy(exec, in_exec, node, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return set_fill(exec, in_exec, node,
                        &(CUDA_MEMSET_NODE_PARAMS){set->dst, set->pitch, set->value,
                                                   set->elementSize, set->width, set->height});
    case CU_GRAPH_NODE_TYPE_HOST:
        return set_host(exec, in_exec, node,
                        &(CUDA_HOST_NODE_PARAMS){params->host.fn, params->host.userData});
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return set_event(exec, in_exec, node, params->type, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return set_event(exec, in_exec, node, params->type, params->eventRecord.event);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
SETTER(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params),
       set_any(NULL, false, node, params))
SETTER(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params),
       set_any(exec, true, node, params))
