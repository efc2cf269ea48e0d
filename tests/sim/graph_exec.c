/*
 * Executable graphs: instantiated, launched.
 *
 * A launch is a marker in the stream, an op for each node behind the ops it depends on, and a
 * marker after all of them that is the stream's newest op. Child graphs are the same again inside.
 * Launches of one executable graph come one after the other, whatever their streams. Memory that an
 * earlier launch allocated and nobody freed forbids the next one, unless the graph was instantiated
 * to free it then.
 */
#include "graph.h"

#include <stdlib.h>

static CUgraphExec all_execs;

bool sim_exec_alive(CUgraphExec exec)
{
    return exec != NULL && exec->magic == SIM_MAGIC_EXEC;
}

bool sim_exec_of(CUgraph graph)
{
    for (CUgraphExec exec = all_execs; exec != NULL; exec = exec->older) {
        if (exec->magic == SIM_MAGIC_EXEC && exec->origin == graph->id)
            return true;
    }
    return false;
}

static CUgraphNode find(CUgraph graph, unsigned long long origin)
{
    for (unsigned i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->node[i];
        if (node->origin == origin)
            return node;
        CUgraphNode inside = node->child != NULL ? find(node->child, origin) : NULL;
        if (inside != NULL)
            return inside;
    }
    return NULL;
}

CUgraphNode sim_exec_node(CUgraphExec exec, CUgraphNode node)
{
    return sim_exec_alive(exec) && sim_node_alive(node) ? find(exec->graph, node->id) : NULL;
}

static void for_memory(CUgraph graph, void (*call)(CUgraphNode, void *), void *arg)
{
    for (unsigned i = 0; i < graph->count; i++) {
        if (graph->node[i]->memory != NULL)
            call(graph->node[i], arg);
        if (graph->node[i]->child != NULL)
            for_memory(graph->node[i]->child, call, arg);
    }
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags,
                            CUgraphInstantiateResult *why)
{
    const unsigned long long all =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    *why = CUDA_GRAPH_INSTANTIATE_ERROR;
    if (out == NULL || (flags & ~all) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result =
        sim_graph_alive(graph) && graph->parent == NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && sim_graph_has_memory(graph) && sim_exec_of(graph))
        result = CUDA_ERROR_NOT_SUPPORTED;
    CUgraph copy = result == CUDA_SUCCESS ? sim_graph_copy(graph, true, true) : NULL;
    if (result == CUDA_SUCCESS && copy == NULL) {
        *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        CUgraphExec exec = calloc(1, sizeof *exec);
        if (exec == NULL)
            abort();
        exec->magic = SIM_MAGIC_EXEC;
        exec->flags = flags;
        exec->graph = copy;
        exec->origin = graph->id;
        exec->older = all_execs;
        all_execs = exec;
        *out = exec;
        *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                             unsigned long long flags)
{
    SIM_ENTRY(cuGraphInstantiateWithFlags);
    CUgraphInstantiateResult why;
    return instantiate(out, graph, flags, &why);
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                                    char *log, size_t room)
{
    SIM_ENTRY(cuGraphInstantiate);
    CUgraphInstantiateResult why;
    (void)error_node, (void)log, (void)room;
    return instantiate(out, graph, 0, &why);
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                                       char *log, size_t room)
{
    SIM_ENTRY(cuGraphInstantiate_v2);
    CUgraphInstantiateResult why;
    (void)error_node, (void)log, (void)room;
    return instantiate(out, graph, 0, &why);
}

static CUresult with_params(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = NULL;
    return instantiate(out, graph, params->flags, &params->result_out);
}
SIM_TWINS(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz,
          (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
          with_params(out, graph, params))

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    SIM_ENTRY(cuGraphExecGetFlags);
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = sim_exec_alive(exec);
    if (good)
        *flags = exec->flags;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void unused(CUgraphNode node, void *arg)
{
    (void)arg;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        sim_graph_memory_unused(node->memory);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_ENTRY(cuGraphExecDestroy);
    sim_lock();
    bool good = sim_exec_alive(exec);
    if (good) {
        exec->magic = SIM_MAGIC_DEAD;
        for_memory(exec->graph, unused, NULL);
        sim_graph_free(exec->graph); /* launches under way have their own copies of the work */
        exec->graph = NULL;
        sim_op_unref(exec->last);
        exec->last = NULL;
    }
    sim_unlock();
    sim_graph_objects_destroy();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- launch -----------------------------------------------------------------------------------
 */
struct memory_check {
    CUgraphExec exec;
    CUresult result;
};

static bool allocates(CUgraph graph, const struct sim_graph_memory *memory)
{
    for (unsigned i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->node[i];
        if ((node->memory == memory && node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
            (node->child != NULL && allocates(node->child, memory)))
            return true;
    }
    return false;
}

static void check_memory(CUgraphNode node, void *arg)
{
    struct memory_check *check = arg;
    bool allocated = sim_graph_memory_allocated(node->memory);
    if (check->result != CUDA_SUCCESS)
        return;
    if (sim_graph_memory_gone(node->memory))
        check->result = CUDA_ERROR_INVALID_VALUE;
    else if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && allocated &&
             (check->exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0)
        check->result = CUDA_ERROR_INVALID_VALUE;
    else if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !allocated &&
             !allocates(check->exec->graph, node->memory))
        check->result = CUDA_ERROR_INVALID_VALUE;
    else if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        check->result = sim_graph_memory_take(node->memory);
}

static void after_alloc(CUgraphNode node, void *op)
{
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        sim_graph_memory_launched(node->memory, true, op);
}

static void after_free(CUgraphNode node, void *op)
{
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        sim_graph_memory_launched(node->memory, false, op);
}

/* Ops are made and linked, not started: ops already, in the order of `all`. */
struct op_list {
    struct sim_op **op;
    unsigned count, room;
};

static struct sim_op *op_new(struct op_list *all, CUstream stream, unsigned slot,
                             struct sim_work *work)
{
    if (all->count == all->room) {
        all->room = all->room == 0 ? 16 : 2 * all->room;
        all->op = realloc(all->op, all->room * sizeof(struct sim_op *));
        if (all->op == NULL)
            abort();
    }
    return all->op[all->count++] = sim_op_new(stream->ctx, NULL, slot, work);
}

/* The nodes between begin and end. */
static void launch_nodes(CUgraph graph, CUstream stream, struct sim_op *begin, struct sim_op *end,
                         struct op_list *all)
{
    const struct sim_work nop = {.kind = SIM_W_NOP, .what = "cuGraphLaunch"};
    struct sim_op **last = calloc(graph->count + 1, sizeof(struct sim_op *));
    if (last == NULL)
        abort();
    for (unsigned i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->node[i];
        struct sim_work work = node->disabled ? nop : sim_work_clone(&node->work);
        struct sim_op *op = op_new(all, stream, node->slot, &work);
        sim_op_after(op, begin);
        for (unsigned k = 0; k < node->before_count; k++)
            sim_op_after(op, last[node->before[k]->index]);
        last[i] = op;
        if (node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && sim_event_alive(node->event)) {
            sim_op_after(op, node->event->op);
        } else if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && sim_event_alive(node->event)) {
            sim_op_unref(node->event->op);
            node->event->op = sim_op_ref(op);
            node->event->capture = NULL;
        } else if (node->child != NULL && !node->disabled) {
            work = nop;
            last[i] = op_new(all, stream, node->slot, &work);
            sim_op_after(last[i], op);
            launch_nodes(node->child, stream, op, last[i], all);
        }
        sim_op_after(end, last[i]);
    }
    free(last);
}

static void launch_on(CUgraphExec exec, CUstream stream)
{
    struct sim_work nop = {.kind = SIM_W_NOP, .what = "cuGraphLaunch"};
    struct op_list all = {0};
    struct sim_op *begin = sim_op_new(stream->ctx, stream, stream->slot, &nop);
    struct sim_op *end = sim_op_new(stream->ctx, stream, stream->slot, &nop);
    sim_op_stream_order(begin, stream);
    sim_op_after(begin, exec->last);
    launch_nodes(exec->graph, stream, begin, end, &all);
    sim_op_after(end, begin);
    sim_stream_follow(stream, end);
    sim_op_unref(exec->last);
    exec->last = sim_op_ref(end);
    for_memory(exec->graph, after_alloc, end);
    for_memory(exec->graph, after_free, end);
    sim_op_start(end);
    for (unsigned i = 0; i < all.count; i++)
        sim_op_start(all.op[i]);
    sim_op_start(begin);
    free(all.op);
}

static CUresult launch(CUgraphExec exec, CUstream handle, bool pt)
{
    sim_lock();
    CUstream stream;
    CUresult result = sim_exec_alive(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && stream->null_stream)
        result = sim_capture_legacy(stream->ctx);
    if (result == CUDA_SUCCESS && sim_capturing(stream)) {
        result = sim_capture_graph(stream, exec->graph);
    } else if (result == CUDA_SUCCESS) {
        struct memory_check check = {exec, CUDA_SUCCESS};
        for_memory(exec->graph, check_memory, &check);
        result = check.result;
        if (result == CUDA_SUCCESS)
            launch_on(exec, stream);
    }
    sim_unlock();
    return result;
}
SIM_TWINS(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream),
          launch(exec, stream, pt))

static void take(CUgraphNode node, void *arg)
{
    struct memory_check *check = arg;
    if (check->result == CUDA_SUCCESS && node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        check->result = sim_graph_memory_take(node->memory);
}

static CUresult upload(CUgraphExec exec, CUstream handle, bool pt)
{
    sim_lock();
    CUstream stream;
    struct memory_check check = {exec,
                                 sim_exec_alive(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE};
    if (check.result == CUDA_SUCCESS)
        check.result = sim_stream_get(handle, pt, &stream);
    if (check.result == CUDA_SUCCESS && sim_capturing(stream))
        check.result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (check.result == CUDA_SUCCESS)
        for_memory(exec->graph, take, &check);
    sim_unlock();
    return check.result;
}
SIM_TWINS(cuGraphUpload, cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream),
          upload(exec, stream, pt))
