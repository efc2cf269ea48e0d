/* A captured graph, launched again and again, also behind frees of other memory. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUstream s;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr p, q, unrelated;
    size_t nodes = 0;

    cu_start(argc, argv);
    NEED(cuStreamBeginCapture);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &p, 1 << 20);
    MUST(cuMemAlloc, &q, 1 << 20);
    TELL(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(cuMemsetD8Async, p, 4, 1 << 20, s);
    TELL(cuMemcpyDtoDAsync, q, p, 1 << 20, s);
    TELL(cuStreamEndCapture, s, &graph);
    TELL(cuGraphGetNodes, graph, NULL, &nodes);
    FACT(nodes == 2);
    TELL(cuGraphInstantiate, &exec, graph, 0);
    MUST(cuMemsetD8, q, 0, 1 << 20);
    TELL(cuCtxSynchronize);
    FACT(cu_all_bytes(q, 1 << 20, 0));
    TELL(cuGraphLaunch, exec, s);
    TELL(cuStreamSynchronize, s);
    FACT(cu_all_bytes(q, 1 << 20, 4));

    bool all = true;
    for (int i = 0; i < 50; i++) {
        MUST(cuMemAlloc, &unrelated, 1 << 20);
        MUST(cuMemsetD8Async, unrelated, 9, 1 << 20, s);
        MUST(cuMemsetD8Async, q, 0, 1 << 20, s);
        MUST(cuGraphLaunch, exec, s);
        MUST(cuMemFree, unrelated);
        all = all && cu_all_bytes(q, 1 << 20, 4);
    }
    FACT(all);
    TELL(cuGraphExecDestroy, exec);
    TELL(cuGraphDestroy, graph);
    MUST(cuMemFree, p);
    MUST(cuMemFree, q);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
