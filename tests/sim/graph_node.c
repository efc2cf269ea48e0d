/*
 * Nodes made through the API, type by type, and their parameters.
 *
 * Parameters become a `sim_work` at once; what is asked for later is made up from it again. Kernel
 * arguments live in the node, so kernelParams of an answer is good as long as the node.
 */
#include "graph.h"

#include <string.h>

static const struct sim_work nop = {.kind = SIM_W_NOP, .what = "empty node"};

bool sim_event_alive(CUevent event)
{
    return event != NULL && event->magic == SIM_MAGIC_EVENT;
}

/* ---- parameters to work -----------------------------------------------------------------------
 */
CUresult sim_node_kernel_work(const CUDA_KERNEL_NODE_PARAMS *params, struct sim_work *work)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned grid[] = {params->gridDimX, params->gridDimY, params->gridDimZ};
    const unsigned block[] = {params->blockDimX, params->blockDimY, params->blockDimZ};
    CUfunction function = params->func != NULL ? params->func : (CUfunction)(void *)params->kern;
    CUresult result =
        sim_kernel_work(function, grid, block, params->kernelParams, params->extra, work);
    if (result == CUDA_SUCCESS)
        work->launch.shared = params->sharedMemBytes;
    return result;
}

/* Not with the lock: it looks at arrays. */
CUresult sim_node_copy_work(const CUDA_MEMCPY3D *box, struct sim_work *work)
{
    CUresult result = sim_copy_3d_work(box, work);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    if (work->copy.width == 0 || work->copy.height == 0 || work->copy.depth == 0 ||
        !sim_copy_reachable(work, true)) {
        sim_work_fini(work);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    return result;
}

CUresult sim_node_fill_work(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work *work)
{
    if (params == NULL || params->width == 0 || params->height == 0 ||
        (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4) ||
        params->dst % params->elementSize != 0 ||
        (params->height > 1 && params->pitch < params->width * params->elementSize))
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct sim_work){.kind = SIM_W_MEMSET, .what = "memset node"};
    work->set.address = params->dst;
    work->set.pitch = params->height > 1 ? params->pitch : params->width * params->elementSize;
    work->set.width = params->width;
    work->set.height = params->height;
    work->set.element = params->elementSize;
    work->set.value = params->value;
    return CUDA_SUCCESS;
}

/* A fill's target has to exist already, or to be some graph's. With the lock. */
static bool fill_reachable(const struct sim_work *work)
{
    const struct sim_range *range = sim_range_at(work->set.address);
    return range != NULL && range->kind != SIM_RESERVED;
}

/* ---- adding -----------------------------------------------------------------------------------
 */
struct place {
    CUgraphNode *out;
    CUgraph graph;
    const CUgraphNode *before;
    size_t count;
};

static bool place_ok(const struct place *place)
{
    return place->out != NULL && sim_graph_alive(place->graph) &&
           sim_graph_deps_ok(place->graph, place->before, place->count);
}

/* With the lock; the place has been checked. */
static CUgraphNode add_at(const struct place *place, CUgraphNodeType type,
                          const struct sim_work *work)
{
    return *place->out =
               sim_graph_add(place->graph, type, work, place->before, (unsigned)place->count);
}

static CUresult add_work(const struct place *place, CUgraphNodeType type,
                         const struct sim_work *work)
{
    sim_lock();
    bool good = place_ok(place) && (type != CU_GRAPH_NODE_TYPE_MEMSET || fill_reachable(work));
    if (good)
        add_at(place, type, work);
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_kernel(const struct place *place, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct sim_work work;
    sim_lock();
    CUresult result = sim_node_kernel_work(params, &work);
    sim_unlock();
    return result == CUDA_SUCCESS ? add_work(place, CU_GRAPH_NODE_TYPE_KERNEL, &work) : result;
}

static CUresult add_copy(const struct place *place, const CUDA_MEMCPY3D *box)
{
    struct sim_work work;
    CUresult result = sim_node_copy_work(box, &work);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    bool good = place_ok(place);
    if (good) {
        CUgraphNode node = add_at(place, CU_GRAPH_NODE_TYPE_MEMCPY, &work);
        node->box = *box;
        node->boxed = true;
    }
    sim_work_fini(&work);
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_fill(const struct place *place, const CUDA_MEMSET_NODE_PARAMS *params)
{
    struct sim_work work;
    CUresult result = sim_node_fill_work(params, &work);
    return result == CUDA_SUCCESS ? add_work(place, CU_GRAPH_NODE_TYPE_MEMSET, &work) : result;
}

static CUresult add_host(const struct place *place, CUhostFn fn, void *arg)
{
    struct sim_work work = {
        .kind = SIM_W_HOST, .what = "host node", .host = {.fn = fn, .arg = arg}};
    return fn != NULL ? add_work(place, CU_GRAPH_NODE_TYPE_HOST, &work) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_event(const struct place *place, CUgraphNodeType type, CUevent event)
{
    sim_lock();
    CUresult result = sim_event_alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && !place_ok(place))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        add_at(place, type, &nop)->event = event;
    sim_unlock();
    return result;
}

static CUresult add_child(const struct place *place, CUgraph child, bool move)
{
    sim_lock();
    CUresult result = place_ok(place) && sim_graph_alive(child) && child != place->graph &&
                              !(move && child->parent != NULL)
                          ? CUDA_SUCCESS
                          : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !move && sim_graph_has_memory(child))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        CUgraphNode node = add_at(place, CU_GRAPH_NODE_TYPE_GRAPH, &nop);
        node->child = move ? child : sim_graph_copy(child, false, false);
        node->child->parent = node;
    }
    sim_unlock();
    return result;
}

static CUresult add_alloc(const struct place *place, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (params == NULL || params->bytesize == 0 ||
        params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        (params->accessDescCount > 0 && params->accessDescs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_device *device = sim_device(params->poolProps.location.id);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_graph_memory *memory;
    CUresult result = place_ok(place) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_graph_memory_new(device, params->bytesize, &params->poolProps, &memory);
    if (result == CUDA_SUCCESS) {
        struct sim_work work;
        sim_graph_memory_work(memory, true, &work);
        add_at(place, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &work)->memory = memory;
        params->dptr = work.memory.address;
    }
    sim_unlock();
    return result;
}

/* A graph may free an allocation once. */
static bool frees(CUgraph graph, const struct sim_graph_memory *memory)
{
    for (unsigned i = 0; i < graph->count; i++) {
        if (graph->node[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE && graph->node[i]->memory == memory)
            return true;
    }
    return false;
}

static CUresult add_free(const struct place *place, CUdeviceptr address)
{
    sim_lock();
    struct sim_graph_memory *memory = sim_graph_memory_at(address);
    bool good = place_ok(place) && memory != NULL && !frees(place->graph, memory);
    if (good) {
        struct sim_work work;
        sim_graph_memory_work(memory, false, &work);
        add_at(place, CU_GRAPH_NODE_TYPE_MEM_FREE, &work)->memory = sim_graph_memory_ref(memory);
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define PLACE                                                                                      \
    &(struct place)                                                                                \
    {                                                                                              \
        out, graph, before, count                                                                  \
    }
#define ADD(name, extra, call)                                                                     \
    CUresult CUDAAPI name(CUgraphNode *out, CUgraph graph, const CUgraphNode *before,              \
                          size_t count UNPACK extra)                                               \
    {                                                                                              \
        SIM_ENTRY(name);                                                                           \
        return call;                                                                               \
    }
#define UNPACK(...) , ##__VA_ARGS__
ADD(cuGraphAddKernelNode_v2, (const CUDA_KERNEL_NODE_PARAMS *params), add_kernel(PLACE, params))
ADD(cuGraphAddMemcpyNode, (const CUDA_MEMCPY3D *box, CUcontext ctx),
    ((void)ctx, add_copy(PLACE, box)))
ADD(cuGraphAddMemsetNode, (const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx),
    ((void)ctx, add_fill(PLACE, params)))
ADD(cuGraphAddHostNode, (const CUDA_HOST_NODE_PARAMS *params),
    params != NULL ? add_host(PLACE, params->fn, params->userData) : CUDA_ERROR_INVALID_VALUE)
ADD(cuGraphAddEventRecordNode, (CUevent event),
    add_event(PLACE, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event))
ADD(cuGraphAddEventWaitNode, (CUevent event),
    add_event(PLACE, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event))
ADD(cuGraphAddChildGraphNode, (CUgraph child), add_child(PLACE, child, false))
ADD(cuGraphAddMemAllocNode, (CUDA_MEM_ALLOC_NODE_PARAMS * params), add_alloc(PLACE, params))
ADD(cuGraphAddMemFreeNode, (CUdeviceptr address), add_free(PLACE, address))

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *before,
                                     size_t count)
{
    SIM_ENTRY(cuGraphAddEmptyNode);
    return add_work(PLACE, CU_GRAPH_NODE_TYPE_EMPTY, &nop);
}

static CUDA_KERNEL_NODE_PARAMS kernel_v2(const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    memcpy(&params, old, sizeof *old); /* v2 has two more members */
    return params;
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *before,
                                      size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    SIM_ENTRY(cuGraphAddKernelNode);
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS full = kernel_v2(params);
    return add_kernel(PLACE, &full);
}

static CUDA_KERNEL_NODE_PARAMS kernel_of(const CUDA_KERNEL_NODE_PARAMS_v3 *any)
{
    CUDA_KERNEL_NODE_PARAMS params;
    _Static_assert(sizeof params == sizeof *any, "v2 and v3 are laid out alike");
    memcpy(&params, any, sizeof params);
    return params;
}

static CUDA_MEMSET_NODE_PARAMS memset_of(const CUDA_MEMSET_NODE_PARAMS_v2 *any)
{
    return (CUDA_MEMSET_NODE_PARAMS){any->dst,         any->pitch, any->value,
                                     any->elementSize, any->width, any->height};
}

static CUresult add_any(const struct place *place, CUgraphNodeParams *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUresult result;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        kernel = kernel_of(&params->kernel);
        return add_kernel(place, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return params->memcpy.flags != 0 ? CUDA_ERROR_INVALID_VALUE
                                         : add_copy(place, &params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        set = memset_of(&params->memset);
        return add_fill(place, &set);
    case CU_GRAPH_NODE_TYPE_HOST:
        return add_host(place, params->host.fn, params->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(place, params->graph.graph,
                         params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return add_work(place, CU_GRAPH_NODE_TYPE_EMPTY, &nop);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return add_event(place, params->type, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return add_event(place, params->type, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        memcpy(&alloc, &params->alloc, sizeof alloc);
        result = add_alloc(place, &alloc);
        if (result == CUDA_SUCCESS)
            params->alloc.dptr = alloc.dptr;
        return result;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return add_free(place, params->free.dptr);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
ADD(cuGraphAddNode, (CUgraphNodeParams * params), add_any(PLACE, params))

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *before,
                                   const CUgraphEdgeData *data, size_t count,
                                   CUgraphNodeParams *params)
{
    SIM_ENTRY(cuGraphAddNode_v2);
    (void)data;
    return add_any(PLACE, params);
}
