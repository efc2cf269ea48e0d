/*
 * Graphs, between capture.c and graph.c. A graph is a list of nodes, each a `sim_work` and the
 * nodes before it; an executable graph is a copy, with a clock slot for each node, since nodes that
 * do not depend on each other are parties of their own for the race detector. All with sim_lock.
 */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "sim.h"

#define SIM_MAGIC_GRAPH 0x53494d47u
#define SIM_MAGIC_NODE 0x53494d4eu
#define SIM_MAGIC_EXEC 0x53494d58u

struct CUgraphNode_st {
    uint32_t magic;
    CUgraph graph;
    CUgraphNodeType type;
    struct sim_work work;
    CUgraphNode *before; /* direct dependencies */
    unsigned before_count;
    unsigned index; /* in the graph; dependencies have smaller ones */
};
struct CUgraph_st {
    uint32_t magic;
    CUgraphNode *node;
    unsigned count, room;
    CUgraph older; /* all there ever were */
};

CUgraph sim_graph_new(void);
void sim_graph_free(CUgraph graph);
/* work is copied. */
CUgraphNode sim_graph_add(CUgraph graph, CUgraphNodeType type, const struct sim_work *work,
                          const CUgraphNode *before, unsigned before_count);
/* Whether every node is one of tips or comes before one of them. */
bool sim_graph_all_before(CUgraph graph, const struct sim_tips *tips);

#endif
