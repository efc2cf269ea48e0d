/*
 * An executable graph changed as a whole: by another graph of the same shape, node by node in
 * topological order; and nodes of it switched off and on.
 *
 * Nothing is changed unless everything fits. Memory nodes have to be those that it was made with.
 */
#include "graph.h"

static CUgraphExecUpdateResult fits(CUgraph now, CUgraph wanted, CUgraphNode *where)
{
    *where = NULL;
    if (now->count != wanted->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (unsigned i = 0; i < now->count; i++) {
        CUgraphNode old = now->node[i], new = wanted->node[i];
        *where = new;
        if (old->type != new->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (old->before_count != new->before_count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (unsigned k = 0; k < old->before_count; k++) {
            if (old->before[k]->index != new->before[k]->index)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        if (old->memory != new->memory)
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        if (old->child != NULL) {
            CUgraphExecUpdateResult inside = fits(old->child, new->child, where);
            if (inside != CU_GRAPH_EXEC_UPDATE_SUCCESS)
                return inside;
        }
    }
    *where = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static void adopt(CUgraph now, CUgraph wanted)
{
    for (unsigned i = 0; i < now->count; i++) {
        CUgraphNode old = now->node[i], new = wanted->node[i];
        sim_node_set_work(old, &new->work);
        old->event = new->event;
        old->box = new->box;
        old->boxed = new->boxed;
        if (old->child != NULL)
            adopt(old->child, new->child);
    }
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult *why,
                       CUgraphNode *where)
{
    sim_lock();
    *why = CU_GRAPH_EXEC_UPDATE_ERROR;
    *where = NULL;
    bool good = sim_exec_alive(exec) && sim_graph_alive(graph);
    CUgraph copy = good ? sim_graph_copy(graph, true, false) : NULL;
    if (copy != NULL) {
        CUgraphNode found;
        *why = fits(exec->graph, copy, &found);
        if (*why == CU_GRAPH_EXEC_UPDATE_SUCCESS)
            adopt(exec->graph, copy);
        for (unsigned i = 0; found != NULL && i < graph->count; i++) {
            if (graph->node[i]->id == found->origin)
                *where = graph->node[i];
        }
        sim_graph_free(copy);
    }
    sim_unlock();
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    return *why == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *where,
                                   CUgraphExecUpdateResult *why)
{
    SIM_ENTRY(cuGraphExecUpdate);
    CUgraphNode node;
    CUgraphExecUpdateResult reason;
    CUresult result = update(exec, graph, &reason, &node);
    if (where != NULL)
        *where = node;
    if (why != NULL)
        *why = reason;
    return result;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                      CUgraphExecUpdateResultInfo *info)
{
    SIM_ENTRY(cuGraphExecUpdate_v2);
    if (info == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    info->errorFromNode = NULL;
    return update(exec, graph, &info->result, &info->errorNode);
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    CUgraph graph)
{
    SIM_ENTRY(cuGraphExecChildGraphNodeSetParams);
    sim_lock();
    CUgraphNode at = sim_exec_node(exec, node), where;
    bool good = at != NULL && at->child != NULL && sim_graph_alive(graph);
    CUgraph copy = good ? sim_graph_copy(graph, true, false) : NULL;
    good = copy != NULL && fits(at->child, copy, &where) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (good)
        adopt(at->child, copy);
    if (copy != NULL)
        sim_graph_free(copy);
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool can_be_off(CUgraphNode node)
{
    return node != NULL &&
           (node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
            node->type == CU_GRAPH_NODE_TYPE_MEMSET);
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
    SIM_ENTRY(cuGraphNodeSetEnabled);
    sim_lock();
    CUgraphNode at = sim_exec_node(exec, node);
    bool good = can_be_off(at);
    if (good)
        at->disabled = enabled == 0;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
    SIM_ENTRY(cuGraphNodeGetEnabled);
    if (enabled == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUgraphNode at = sim_exec_node(exec, node);
    bool good = can_be_off(at);
    if (good)
        *enabled = !at->disabled;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
