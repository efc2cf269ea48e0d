/*
 * What hangs on graphs besides work: user objects (reference counts with a destructor, held by
 * graphs), attributes of kernel nodes (kept, without effect), the drawing for dot.
 *
 * A user object's destructor is a host function of the program: it runs when nobody has the lock.
 * Executable graphs hold their graph's objects too.
 */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>

#define MAGIC_OBJECT 0x53494d55u

struct CUuserObject_st {
    uint32_t magic;
    unsigned refs;
    CUhostFn destroy;
    void *arg;
    CUuserObject next; /* to be destroyed */
};

struct holding {
    unsigned long long graph;
    CUuserObject object;
    unsigned count;
    struct holding *next;
};

static struct holding *holdings;
static CUuserObject doomed;

static bool alive(CUuserObject object)
{
    return object != NULL && object->magic == MAGIC_OBJECT;
}

static void drop(CUuserObject object, unsigned count)
{
    object->refs -= count < object->refs ? count : object->refs;
    if (object->refs == 0) {
        object->magic = SIM_MAGIC_DEAD;
        object->next = doomed;
        doomed = object;
    }
}

/* Not with the lock. */
static void destroy_doomed(void)
{
    for (;;) {
        sim_lock();
        CUuserObject object = doomed;
        if (object != NULL)
            doomed = object->next;
        sim_unlock();
        if (object == NULL)
            return;
        object->destroy(object->arg);
        free(object);
    }
}

static void hold(unsigned long long graph, CUuserObject object, unsigned count)
{
    struct holding *holding = calloc(1, sizeof *holding);
    if (holding == NULL)
        abort();
    *holding = (struct holding){graph, object, count, holdings};
    holdings = holding;
}

void sim_graph_objects_copy(unsigned long long from, unsigned long long to)
{
    for (struct holding *holding = holdings; holding != NULL; holding = holding->next) {
        if (holding->graph == from) {
            holding->object->refs++;
            hold(to, holding->object, 1);
        }
    }
}

void sim_graph_objects_drop(unsigned long long graph)
{
    for (struct holding **at = &holdings; *at != NULL;) {
        struct holding *holding = *at;
        if (holding->graph == graph) {
            *at = holding->next;
            drop(holding->object, holding->count);
            free(holding);
        } else {
            at = &holding->next;
        }
    }
}

void sim_graph_objects_destroy(void)
{
    destroy_doomed();
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *out, void *arg, CUhostFn destroy,
                                    unsigned int count, unsigned int flags)
{
    SIM_ENTRY(cuUserObjectCreate);
    if (out == NULL || destroy == NULL || count == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject object = calloc(1, sizeof *object);
    if (object == NULL)
        abort();
    *object = (struct CUuserObject_st){MAGIC_OBJECT, count, destroy, arg, NULL};
    *out = object;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    SIM_ENTRY(cuUserObjectRetain);
    sim_lock();
    bool good = alive(object) && count > 0;
    if (good)
        object->refs += count;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    SIM_ENTRY(cuUserObjectRelease);
    sim_lock();
    bool good = alive(object) && count > 0 && count <= object->refs;
    if (good)
        drop(object, count);
    sim_unlock();
    destroy_doomed();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                         unsigned int flags)
{
    SIM_ENTRY(cuGraphRetainUserObject);
    sim_lock();
    bool good = sim_graph_alive(graph) && alive(object) && count > 0 &&
                (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) == 0;
    if (good) {
        if (flags == 0)
            object->refs += count;
        hold(graph->id, object, count);
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    SIM_ENTRY(cuGraphReleaseUserObject);
    sim_lock();
    bool good = false;
    for (struct holding **at = &holdings; sim_graph_alive(graph) && *at != NULL;
         at = &(*at)->next) {
        struct holding *holding = *at;
        if (holding->graph == graph->id && holding->object == object && count <= holding->count) {
            holding->count -= count;
            drop(object, count);
            if (holding->count == 0) {
                *at = holding->next;
                free(holding);
            }
            good = true;
            break;
        }
    }
    sim_unlock();
    destroy_doomed();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- attributes, dot --------------------------------------------------------------------------
 */
static bool is_kernel(CUgraphNode node)
{
    return sim_node_alive(node) && node->type == CU_GRAPH_NODE_TYPE_KERNEL;
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID name,
                                               CUkernelNodeAttrValue *out)
{
    SIM_ENTRY(cuGraphKernelNodeGetAttribute);
    sim_lock();
    bool good = is_kernel(node) && out != NULL;
    if (good)
        *out = node->attribute_set && node->attribute_name == name ? node->attribute
                                                                   : (CUkernelNodeAttrValue){0};
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID name,
                                               const CUkernelNodeAttrValue *value)
{
    SIM_ENTRY(cuGraphKernelNodeSetAttribute);
    sim_lock();
    bool good = is_kernel(node) && value != NULL;
    if (good) {
        node->attribute_set = true;
        node->attribute_name = name;
        node->attribute = *value;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    SIM_ENTRY(cuGraphKernelNodeCopyAttributes);
    sim_lock();
    bool good = is_kernel(to) && is_kernel(from);
    if (good) {
        to->attribute_set = from->attribute_set;
        to->attribute_name = from->attribute_name;
        to->attribute = from->attribute;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    SIM_ENTRY(cuGraphDebugDotPrint);
    (void)flags;
    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = sim_graph_alive(graph);
    FILE *file = good ? fopen(path, "we") : NULL;
    if (file != NULL) {
        fprintf(file, "digraph graph_%llu {\n", graph->id);
        for (unsigned i = 0; i < graph->count; i++) {
            CUgraphNode node = graph->node[i];
            fprintf(file, "n%llu [label=\"type %d\"];\n", node->id, (int)node->type);
            for (unsigned k = 0; k < node->before_count; k++)
                fprintf(file, "n%llu -> n%llu;\n", node->before[k]->id, node->id);
        }
        fprintf(file, "}\n");
        fclose(file);
    }
    sim_unlock();
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    return file != NULL ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
