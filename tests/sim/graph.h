/*
 * Graphs: what capture.c and the graph*.c files share. A graph is a list of nodes, each a
 * `sim_work` and the nodes before it; an executable graph is a copy in topological order, with a
 * clock slot for each node, since nodes that do not depend on each other are parties of their own
 * for the race detector. All with sim_lock.
 *
 *   graph.c         graphs, nodes, edges, and questions about them
 *   graph_node.c    nodes of each type made through the API
 *   graph_params.c  parameters of nodes, read and changed
 *   graph_exec.c    executable graphs: instantiation, launch
 *   graph_update.c  an executable graph changed as a whole
 *   graph_misc.c    user objects, attributes, dot
 *   graph_memory.c  memory of allocation nodes, the graph pool of each device
 */
#ifndef SIM_GRAPH_API_H
#define SIM_GRAPH_API_H

#include "sim.h"

#define SIM_MAGIC_GRAPH 0x53494d47u
#define SIM_MAGIC_NODE 0x53494d4eu
#define SIM_MAGIC_EXEC 0x53494d58u

struct sim_graph_memory;
struct CUgraphNode_st {
    uint32_t magic;
    unsigned long long id, origin; /* unique; of the node that this is a copy of, 0: none */
    CUgraph graph;
    CUgraphNodeType type;
    struct sim_work work;
    CUgraph child;                   /* child graph nodes: owned */
    CUevent event;                   /* event nodes */
    struct sim_graph_memory *memory; /* allocation and free nodes: a reference */
    CUDA_MEMCPY3D box;               /* copies made through the API, `boxed` */
    bool boxed;
    void *arg_pointers[SIM_KERNEL_PARAMS]; /* into work, for kernelParams */
    CUgraphNode *before;                   /* direct dependencies */
    unsigned before_count;
    unsigned index; /* in the graph */
    unsigned slot;  /* executable graphs */
    bool disabled;
    bool attribute_set; /* kernel nodes: the attribute that was set last */
    CUkernelNodeAttrID attribute_name;
    CUkernelNodeAttrValue attribute;
    CUgraphNode next; /* free list */
};
struct CUgraph_st {
    uint32_t magic;
    unsigned long long id, origin;
    CUgraphNode *node;
    unsigned count, room;
    CUgraphNode parent; /* of a child graph */
    CUgraph next;       /* free list */
    CUgraph older;      /* all there ever were */
};
struct CUgraphExec_st {
    uint32_t magic;
    CUgraph graph; /* private copy, nodes in topological order */
    unsigned long long origin;
    unsigned long long flags;
    struct sim_op *last;
    CUgraphExec older;
};

CUgraph sim_graph_new(void);
void sim_graph_free(CUgraph graph);
bool sim_graph_alive(CUgraph graph);
bool sim_node_alive(CUgraphNode node);
/* work is copied. */
CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, const struct sim_work *work,
                          const CUgraphNode *before, unsigned before_count);
/* Whether these can be what a node of the graph depends on: its own nodes, none twice. */
bool sim_graph_deps_ok(CUgraph graph, const CUgraphNode *before, size_t count);
/* Marks (seen[index]) the nodes of tips and all that come before them; seen has graph->count. */
void sim_graph_ancestors(CUgraph graph, const struct sim_tips *tips, bool *seen);
/* A copy whose nodes are in the same, or in topological order (NULL: there is a cycle). Shares
 * memory nodes' memory. slots: nodes get clock slots. */
CUgraph sim_graph_copy(CUgraph graph, bool topological, bool slots);
bool sim_graph_has_memory(CUgraph graph);                              /* or a child has */
void sim_node_set_work(CUgraphNode node, const struct sim_work *work); /* copied */

/* graph_misc.c: user objects, by id of the graph that holds them. */
void sim_graph_objects_copy(unsigned long long from, unsigned long long to);
void sim_graph_objects_drop(unsigned long long graph);
void sim_graph_objects_destroy(void); /* runs destructors: not with the lock */

/* graph_exec.c */
bool sim_exec_alive(CUgraphExec exec);
bool sim_exec_of(CUgraph graph); /* whether the graph has an executable graph now */
CUgraphNode sim_exec_node(CUgraphExec exec, CUgraphNode node); /* of that node; NULL: none */

/* graph_node.c */
CUresult sim_node_kernel_work(const CUDA_KERNEL_NODE_PARAMS *params, struct sim_work *work);
CUresult sim_node_copy_work(const CUDA_MEMCPY3D *box, struct sim_work *work);
CUresult sim_node_fill_work(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work *work);
bool sim_event_alive(CUevent event);

/* graph_memory.c: an address fixed for good, bytes of the device while a launch needs them. */
/* A new one with one reference; OUT_OF_MEMORY where there is no address left. */
CUresult sim_graph_memory_new(struct sim_device *device, size_t size, const CUmemPoolProps *props,
                              struct sim_graph_memory **out);
struct sim_graph_memory *sim_graph_memory_at(CUdeviceptr address); /* borrowed; NULL: none */
struct sim_graph_memory *sim_graph_memory_ref(struct sim_graph_memory *memory);
void sim_graph_memory_unref(struct sim_graph_memory *memory);
bool sim_graph_memory_allocated(const struct sim_graph_memory *memory);
bool sim_graph_memory_gone(const struct sim_graph_memory *memory); /* with its context */
void sim_graph_memory_work(const struct sim_graph_memory *memory, bool alloc,
                           struct sim_work *work);
void sim_graph_memory_params(const struct sim_graph_memory *memory,
                             CUDA_MEM_ALLOC_NODE_PARAMS *params);
/* A launch allocates it: takes bytes of the device unless it has them. OUT_OF_MEMORY. */
CUresult sim_graph_memory_take(struct sim_graph_memory *memory);
/* What the launch leaves it as; op: the launch's last. */
void sim_graph_memory_launched(struct sim_graph_memory *memory, bool allocated, struct sim_op *op);
void sim_graph_memory_unused(struct sim_graph_memory *memory); /* its executable graph is gone */

#endif
