/*
 * Graphs: created, instantiated, launched. A launch is a marker in the stream, an op for each node
 * behind the ops it depends on, and a marker after all of them that is the stream's newest op.
 * Launches of one executable graph come one after the other, whatever their streams.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
    uint32_t magic;
    CUgraph graph; /* private copy */
    unsigned *slot;
    unsigned long long flags;
    struct sim_op *last;
    CUgraphExec older;
};

static CUgraph all_graphs;
static CUgraphExec all_execs;

CUgraph sim_graph_new(void)
{
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        abort();
    graph->magic = SIM_MAGIC_GRAPH;
    graph->older = all_graphs;
    all_graphs = graph;
    return graph;
}

void sim_graph_free(CUgraph graph)
{
    for (unsigned i = 0; i < graph->count; i++) {
        sim_work_fini(&graph->node[i]->work);
        free(graph->node[i]->before);
        free(graph->node[i]);
    }
    free(graph->node);
    graph->node = NULL;
    graph->count = graph->room = 0;
    graph->magic = SIM_MAGIC_DEAD;
}

CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, const struct sim_work *work,
                          const CUgraphNode *before, unsigned before_count)
{
    CUgraphNode node = calloc(1, sizeof *node);
    if (graph->count == graph->room) {
        graph->room = graph->room == 0 ? 8 : 2 * graph->room;
        graph->node = realloc(graph->node, graph->room * sizeof(CUgraphNode));
    }
    if (node == NULL || graph->node == NULL)
        abort();
    node->magic = SIM_MAGIC_NODE;
    node->graph = graph;
    node->type = type;
    node->work = sim_work_clone(work);
    node->index = graph->count;
    node->before_count = before_count;
    if (before_count > 0) {
        node->before = malloc(before_count * sizeof(CUgraphNode));
        if (node->before == NULL)
            abort();
        memcpy(node->before, before, before_count * sizeof(CUgraphNode));
    }
    graph->node[graph->count++] = node;
    return node;
}

bool sim_graph_all_before(CUgraph graph, const struct sim_tips *tips)
{
    bool *seen = calloc(graph->count + 1, sizeof *seen);
    if (seen == NULL)
        abort();
    for (unsigned i = 0; i < tips->count; i++)
        seen[tips->node[i]->index] = true;
    bool all = true;
    for (unsigned i = graph->count; i-- > 0;) {
        all = all && seen[i];
        for (unsigned k = 0; seen[i] && k < graph->node[i]->before_count; k++)
            seen[graph->node[i]->before[k]->index] = true;
    }
    free(seen);
    return all;
}

static bool alive(CUgraph graph)
{
    return graph != NULL && graph->magic == SIM_MAGIC_GRAPH;
}

CUresult CUDAAPI cuGraphCreate(CUgraph *out, unsigned int flags)
{
    SIM_ENTRY(cuGraphCreate);
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    *out = sim_graph_new();
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
    SIM_ENTRY(cuGraphDestroy);
    sim_lock();
    bool good = alive(graph);
    if (good)
        sim_graph_free(graph);
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTRY(cuGraphGetNodes);
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = alive(graph);
    if (good && nodes != NULL) {
        for (size_t i = 0; i < *count; i++)
            nodes[i] = i < graph->count ? graph->node[i] : NULL;
        if (*count > graph->count)
            *count = graph->count;
    } else if (good) {
        *count = graph->count;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SIM_ENTRY(cuGraphNodeGetType);
    if (node == NULL || type == NULL || node->magic != SIM_MAGIC_NODE)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

/* ---- executable graphs
 * ---------------------------------------------------------------------------- */
static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = alive(graph);
    if (good) {
        CUgraphExec exec = calloc(1, sizeof *exec);
        if (exec == NULL)
            abort();
        exec->magic = SIM_MAGIC_EXEC;
        exec->flags = flags;
        exec->graph = sim_graph_new();
        exec->slot = calloc(graph->count + 1, sizeof *exec->slot);
        if (exec->slot == NULL)
            abort();
        for (unsigned i = 0; i < graph->count; i++) {
            CUgraphNode from = graph->node[i];
            CUgraphNode node = sim_graph_add(exec->graph, from->type, &from->work, from->before,
                                             from->before_count);
            for (unsigned k = 0; k < node->before_count; k++)
                node->before[k] = exec->graph->node[from->before[k]->index];
            exec->slot[i] = sim_slot_new();
        }
        exec->older = all_execs;
        all_execs = exec;
        *out = exec;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                             unsigned long long flags)
{
    SIM_ENTRY(cuGraphInstantiateWithFlags);
    return instantiate(out, graph, flags);
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                                    char *log, size_t room)
{
    SIM_ENTRY(cuGraphInstantiate);
    (void)error_node, (void)log, (void)room;
    return instantiate(out, graph, 0);
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error_node,
                                       char *log, size_t room)
{
    SIM_ENTRY(cuGraphInstantiate_v2);
    (void)error_node, (void)log, (void)room;
    return instantiate(out, graph, 0);
}

static bool exec_alive(CUgraphExec exec)
{
    return exec != NULL && exec->magic == SIM_MAGIC_EXEC;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
    SIM_ENTRY(cuGraphExecDestroy);
    sim_lock();
    bool good = exec_alive(exec);
    if (good) {
        for (unsigned i = 0; i < exec->graph->count; i++)
            sim_slot_free(exec->slot[i]);
        sim_graph_free(exec->graph); /* launches under way have their own copies of the work */
        free(exec->slot);
        exec->slot = NULL;
        sim_op_unref(exec->last);
        exec->last = NULL;
        exec->magic = SIM_MAGIC_DEAD;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void launch_nodes(CUgraphExec exec, CUstream stream)
{
    CUgraph graph = exec->graph;
    struct sim_work nop = {.kind = SIM_W_NOP, .what = "cuGraphLaunch"};
    struct sim_op *begin = sim_op_new(stream->ctx, stream, stream->slot, &nop);
    struct sim_op *end = sim_op_new(stream->ctx, stream, stream->slot, &nop);
    struct sim_op **ops = calloc(graph->count + 1, sizeof(struct sim_op *));
    if (ops == NULL)
        abort();
    sim_op_stream_order(begin, stream);
    sim_op_after(begin, exec->last);
    for (unsigned i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->node[i];
        struct sim_work work = sim_work_clone(&node->work);
        ops[i] = sim_op_new(stream->ctx, NULL, exec->slot[i], &work);
        sim_op_after(ops[i], begin);
        for (unsigned k = 0; k < node->before_count; k++)
            sim_op_after(ops[i], ops[node->before[k]->index]);
        sim_op_after(end, ops[i]);
    }
    sim_op_after(end, begin);
    sim_stream_follow(stream, end);
    sim_op_unref(exec->last);
    exec->last = sim_op_ref(end);
    sim_op_start(end);
    for (unsigned i = 0; i < graph->count; i++)
        sim_op_start(ops[i]);
    sim_op_start(begin);
    free(ops);
}

static CUresult launch(CUgraphExec exec, CUstream handle, bool pt)
{
    sim_lock();
    CUstream stream;
    CUresult result = exec_alive(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS && stream->null_stream)
        result = sim_capture_legacy(stream->ctx);
    if (result == CUDA_SUCCESS && sim_capturing(stream))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* child graphs are not there yet */
    if (result == CUDA_SUCCESS)
        launch_nodes(exec, stream);
    sim_unlock();
    return result;
}
SIM_TWINS(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream),
          launch(exec, stream, pt))

static CUresult upload(CUgraphExec exec)
{
    sim_lock();
    bool good = exec_alive(exec);
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_TWINS(cuGraphUpload, cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream),
          ((void)stream, upload(exec)))
