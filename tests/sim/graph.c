/*
 * Graphs: nodes, edges, copies, and the questions a program may ask about them.
 *
 * Dependencies may be added in any order; whether there is a cycle shows when the graph is
 * instantiated. Graphs with memory nodes cannot be copied, shortened or instantiated twice. Structs
 * of nodes and graphs are used again, never freed, so a stale handle meets a dead magic number.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static CUgraph all_graphs, spare_graphs;
static CUgraphNode spare_nodes;
static unsigned long long next_id = 1;

CUgraph sim_graph_new(void)
{
    CUgraph graph = spare_graphs;
    if (graph != NULL) {
        spare_graphs = graph->next;
        *graph = (struct CUgraph_st){.older = graph->older};
    } else if ((graph = calloc(1, sizeof *graph)) != NULL) {
        graph->older = all_graphs;
        all_graphs = graph;
    } else {
        abort();
    }
    graph->magic = SIM_MAGIC_GRAPH;
    graph->id = next_id++;
    return graph;
}

static void node_free(CUgraphNode node)
{
    sim_work_fini(&node->work);
    if (node->slot != 0)
        sim_slot_free(node->slot);
    if (node->child != NULL)
        sim_graph_free(node->child);
    sim_graph_memory_unref(node->memory);
    free(node->before);
    *node = (struct CUgraphNode_st){.magic = SIM_MAGIC_DEAD, .next = spare_nodes};
    spare_nodes = node;
}

void sim_graph_free(CUgraph graph)
{
    sim_graph_objects_drop(graph->id);
    for (unsigned i = 0; i < graph->count; i++)
        node_free(graph->node[i]);
    free(graph->node);
    graph->node = NULL;
    graph->count = graph->room = 0;
    graph->magic = SIM_MAGIC_DEAD;
    graph->next = spare_graphs;
    spare_graphs = graph;
}

bool sim_graph_alive(CUgraph graph)
{
    return graph != NULL && graph->magic == SIM_MAGIC_GRAPH;
}

bool sim_node_alive(CUgraphNode node)
{
    return node != NULL && node->magic == SIM_MAGIC_NODE;
}

CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, const struct sim_work *work,
                          const CUgraphNode *before, unsigned before_count)
{
    CUgraphNode node = spare_nodes;
    if (node != NULL)
        spare_nodes = node->next;
    else
        node = malloc(sizeof *node);
    if (graph->count == graph->room) {
        graph->room = graph->room == 0 ? 8 : 2 * graph->room;
        graph->node = realloc(graph->node, graph->room * sizeof(CUgraphNode));
    }
    if (node == NULL || graph->node == NULL)
        abort();
    *node = (struct CUgraphNode_st){.magic = SIM_MAGIC_NODE,
                                    .id = next_id++,
                                    .graph = graph,
                                    .type = type,
                                    .work = sim_work_clone(work),
                                    .index = graph->count,
                                    .before_count = before_count};
    if (before_count > 0) {
        node->before = malloc(before_count * sizeof(CUgraphNode));
        if (node->before == NULL)
            abort();
        memcpy(node->before, before, before_count * sizeof(CUgraphNode));
    }
    graph->node[graph->count++] = node;
    return node;
}

void sim_node_set_work(CUgraphNode node, const struct sim_work *work)
{
    struct sim_work old = node->work;
    node->work = sim_work_clone(work);
    sim_work_fini(&old);
}

bool sim_graph_deps_ok(CUgraph graph, const CUgraphNode *before, size_t count)
{
    if (count > 0 && before == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!sim_node_alive(before[i]) || before[i]->graph != graph)
            return false;
        for (size_t k = 0; k < i; k++) {
            if (before[k] == before[i])
                return false;
        }
    }
    return true;
}

void sim_graph_ancestors(CUgraph graph, const struct sim_tips *tips, bool *seen)
{
    for (unsigned i = 0; i < tips->count; i++) {
        if (tips->node[i]->graph == graph)
            seen[tips->node[i]->index] = true;
    }
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = graph->count; i-- > 0;) {
            for (unsigned k = 0; seen[i] && k < graph->node[i]->before_count; k++) {
                unsigned index = graph->node[i]->before[k]->index;
                more = more || (!seen[index] && index > i);
                seen[index] = true;
            }
        }
    }
}

bool sim_graph_has_memory(CUgraph graph)
{
    for (unsigned i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->node[i];
        if (node->memory != NULL || (node->child != NULL && sim_graph_has_memory(node->child)))
            return true;
    }
    return false;
}

/* Indexes in an order in which dependencies come first; false: there is a cycle. */
static bool topological_order(CUgraph graph, unsigned *order)
{
    bool *placed = calloc(graph->count + 1, sizeof *placed);
    if (placed == NULL)
        abort();
    unsigned count = 0;
    for (bool more = true; more && count < graph->count;) {
        more = false;
        for (unsigned i = 0; i < graph->count; i++) {
            bool ready = !placed[i];
            for (unsigned k = 0; ready && k < graph->node[i]->before_count; k++)
                ready = placed[graph->node[i]->before[k]->index];
            if (ready) {
                placed[i] = more = true;
                order[count++] = i;
            }
        }
    }
    free(placed);
    return count == graph->count;
}

CUgraph sim_graph_copy(CUgraph from, bool topological, bool slots)
{
    unsigned *order = calloc(from->count + 1, sizeof *order);
    CUgraphNode *copy_of = calloc(from->count + 1, sizeof(CUgraphNode));
    if (order == NULL || copy_of == NULL)
        abort();
    for (unsigned i = 0; i < from->count; i++)
        order[i] = i;
    CUgraph graph = !topological || topological_order(from, order) ? sim_graph_new() : NULL;
    for (unsigned i = 0; graph != NULL && i < from->count; i++) {
        CUgraphNode old = from->node[order[i]];
        CUgraphNode node = sim_graph_add(graph, old->type, &old->work, NULL, 0);
        node->origin = old->id;
        node->event = old->event;
        node->memory = old->memory != NULL ? sim_graph_memory_ref(old->memory) : NULL;
        node->box = old->box;
        node->boxed = old->boxed;
        node->attribute_set = old->attribute_set;
        node->attribute_name = old->attribute_name;
        node->attribute = old->attribute;
        node->slot = slots ? sim_slot_new() : 0;
        copy_of[old->index] = node;
        if (old->child != NULL) {
            node->child = sim_graph_copy(old->child, topological, slots);
            if (node->child == NULL) {
                sim_graph_free(graph);
                graph = NULL;
            } else {
                node->child->parent = node;
            }
        }
    }
    for (unsigned i = 0; graph != NULL && i < from->count; i++) {
        CUgraphNode old = from->node[i], node = copy_of[i];
        node->before_count = old->before_count;
        node->before = calloc(old->before_count + 1, sizeof(CUgraphNode));
        if (node->before == NULL)
            abort();
        for (unsigned k = 0; k < old->before_count; k++)
            node->before[k] = copy_of[old->before[k]->index];
    }
    if (graph != NULL) {
        graph->origin = from->id;
        sim_graph_objects_copy(from->id, graph->id);
    }
    free(copy_of);
    free(order);
    return graph;
}

/* ---- graphs -----------------------------------------------------------------------------------
 */
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
    bool good = sim_graph_alive(graph) && graph->parent == NULL;
    if (good)
        sim_graph_free(graph);
    sim_unlock();
    sim_graph_objects_destroy();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphClone(CUgraph *out, CUgraph graph)
{
    SIM_ENTRY(cuGraphClone);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_alive(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && sim_graph_has_memory(graph))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        *out = sim_graph_copy(graph, false, false);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode node, CUgraph clone)
{
    SIM_ENTRY(cuGraphNodeFindInClone);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUgraphNode found = NULL;
    bool good = sim_node_alive(node) && sim_graph_alive(clone);
    for (unsigned i = 0; good && i < clone->count; i++) {
        if (clone->node[i]->origin == node->id)
            found = clone->node[i];
    }
    if (found != NULL)
        *out = found;
    sim_unlock();
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    SIM_ENTRY(cuGraphNodeGetType);
    if (type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = sim_node_alive(node);
    if (good)
        *type = node->type;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode node)
{
    SIM_ENTRY(cuGraphDestroyNode);
    sim_lock();
    CUresult result = sim_node_alive(node) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && sim_graph_has_memory(node->graph))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        CUgraph graph = node->graph;
        for (unsigned i = node->index + 1; i < graph->count; i++) {
            graph->node[i - 1] = graph->node[i];
            graph->node[i - 1]->index = i - 1;
        }
        graph->count--;
        for (unsigned i = 0; i < graph->count; i++) {
            CUgraphNode other = graph->node[i];
            unsigned kept = 0;
            for (unsigned k = 0; k < other->before_count; k++) {
                if (other->before[k] != node)
                    other->before[kept++] = other->before[k];
            }
            other->before_count = kept;
        }
        node_free(node);
    }
    sim_unlock();
    return result;
}

/* ---- lists ------------------------------------------------------------------------------------
 * Every list is asked for twice: NULL gives the number, an array is filled; what it has too much is
 * set to NULL. */
struct list {
    CUgraphNode *a, *b; /* b: the second column, or NULL */
    CUgraphEdgeData *data;
    size_t room, found;
};

static void put(struct list *list, CUgraphNode a, CUgraphNode b)
{
    if (list->found < list->room) {
        if (list->a != NULL)
            list->a[list->found] = a;
        if (list->b != NULL)
            list->b[list->found] = b;
        if (list->data != NULL)
            list->data[list->found] = (CUgraphEdgeData){0};
    }
    list->found++;
}

static void put_nodes(struct list *list, CUgraph graph, bool roots)
{
    for (unsigned i = 0; i < graph->count; i++) {
        if (!roots || graph->node[i]->before_count == 0)
            put(list, graph->node[i], NULL);
    }
}

static void put_edges(struct list *list, CUgraph graph, CUgraphNode from, CUgraphNode to)
{
    for (unsigned i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->node[i];
        for (unsigned k = 0; k < node->before_count; k++) {
            if ((from == NULL || node->before[k] == from) && (to == NULL || node == to)) {
                if (from == NULL)
                    put(list, node->before[k], node);
                else
                    put(list, node, node->before[k]);
            }
        }
    }
}

enum what { NODES, ROOTS, EDGES, BEFORE, AFTER };

static CUresult ask(enum what what, CUgraph graph, CUgraphNode node, CUgraphNode *a, CUgraphNode *b,
                    CUgraphEdgeData *data, size_t *count)
{
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = what == BEFORE || what == AFTER ? sim_node_alive(node) : sim_graph_alive(graph);
    if (good) {
        struct list list = {a, b, data, a != NULL || b != NULL ? *count : 0, 0};
        if (what == NODES || what == ROOTS)
            put_nodes(&list, graph, what == ROOTS);
        else if (what == EDGES)
            put_edges(&list, graph, NULL, NULL);
        else if (what == BEFORE)
            put_edges(&list, node->graph, NULL, node);
        else
            put_edges(&list, node->graph, node, NULL);
        size_t found = list.found;
        while (list.found < list.room)
            put(&list, NULL, NULL);
        if (list.room == 0 || found < list.room)
            *count = found;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTRY(cuGraphGetNodes);
    return ask(NODES, graph, NULL, nodes, NULL, NULL, count);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTRY(cuGraphGetRootNodes);
    return ask(ROOTS, graph, NULL, nodes, NULL, NULL, count);
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    SIM_ENTRY(cuGraphGetEdges);
    return ask(EDGES, graph, NULL, from, to, NULL, count);
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                    CUgraphEdgeData *data, size_t *count)
{
    SIM_ENTRY(cuGraphGetEdges_v2);
    return ask(EDGES, graph, NULL, from, to, data, count);
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTRY(cuGraphNodeGetDependencies);
    return ask(BEFORE, NULL, node, nodes, NULL, NULL, count);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes,
                                               CUgraphEdgeData *data, size_t *count)
{
    SIM_ENTRY(cuGraphNodeGetDependencies_v2);
    return ask(BEFORE, NULL, node, nodes, NULL, data, count);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    SIM_ENTRY(cuGraphNodeGetDependentNodes);
    return ask(AFTER, NULL, node, nodes, NULL, NULL, count);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                                 CUgraphEdgeData *data, size_t *count)
{
    SIM_ENTRY(cuGraphNodeGetDependentNodes_v2);
    return ask(AFTER, NULL, node, nodes, NULL, data, count);
}

/* ---- edges ------------------------------------------------------------------------------------
 */
static unsigned edge_at(CUgraphNode from, CUgraphNode to)
{
    unsigned i = 0;
    while (i < to->before_count && to->before[i] != from)
        i++;
    return i;
}

static CUresult change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                             size_t count, bool add)
{
    if (count > 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = sim_graph_alive(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !add && count > 0 && sim_graph_has_memory(graph))
        result = CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        if (!sim_node_alive(from[i]) || !sim_node_alive(to[i]) || from[i]->graph != graph ||
            to[i]->graph != graph || from[i] == to[i] ||
            (edge_at(from[i], to[i]) < to[i]->before_count) == add)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        CUgraphNode node = to[i];
        unsigned at = edge_at(from[i], node);
        if (add && at == node->before_count) {
            node->before = realloc(node->before, (at + 1) * sizeof(CUgraphNode));
            if (node->before == NULL)
                abort();
            node->before[node->before_count++] = from[i];
        } else if (!add && at < node->before_count) {
            memmove(&node->before[at], &node->before[at + 1],
                    (--node->before_count - at) * sizeof(CUgraphNode));
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                        const CUgraphNode *to, size_t count)
{
    SIM_ENTRY(cuGraphAddDependencies);
    return change_edges(graph, from, to, count, true);
}

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                           const CUgraphNode *to, const CUgraphEdgeData *data,
                                           size_t count)
{
    SIM_ENTRY(cuGraphAddDependencies_v2);
    (void)data;
    return change_edges(graph, from, to, count, true);
}

CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                           const CUgraphNode *to, size_t count)
{
    SIM_ENTRY(cuGraphRemoveDependencies);
    return change_edges(graph, from, to, count, false);
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from,
                                              const CUgraphNode *to, const CUgraphEdgeData *data,
                                              size_t count)
{
    SIM_ENTRY(cuGraphRemoveDependencies_v2);
    (void)data;
    return change_edges(graph, from, to, count, false);
}
