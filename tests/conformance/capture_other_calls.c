/* Managed, pitched and stream-ordered allocation, and queries, while a stream is capturing. */
#include "cu.h"

static CUstream s, other;

static void begin(const char *what)
{
    cu_say("%s", what);
    MUST(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void end(void)
{
    CUgraph graph = NULL;
    size_t nodes = 0;
    if (TELL(cuStreamEndCapture, s, &graph) == CUDA_SUCCESS && graph != NULL) {
        MUST(cuGraphGetNodes, graph, NULL, &nodes);
        cu_say("nodes: %zu", nodes);
    }
    if (graph != NULL)
        MUST(cuGraphDestroy, graph);
}

int main(int argc, char **argv)
{
    CUdeviceptr p = 0, base = 0;
    size_t pitch = 0, size = 0;
    void *host = NULL;

    cu_start(argc, argv);
    NEED(cuStreamBeginCapture);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    begin("nothing at all");
    end();
    begin("pitched");
    TELL(cuMemAllocPitch, &p, &pitch, 100, 10, 4);
    end();
    begin("managed");
    TELL(cuMemAllocManaged, &p, 4096, CU_MEM_ATTACH_GLOBAL);
    end();
    begin("pinned");
    TELL(cuMemAllocHost, &host, 4096);
    end();
    begin("queries");
    TELL(cuMemGetInfo, &size, &pitch);
    TELL(cuMemGetAddressRange, &base, &size, 12345);
    end();
    begin("stream-ordered, on the capturing stream: nodes");
    TELL(cuMemAllocAsync, &p, 4096, s);
    TELL(cuMemsetD8Async, p, 1, 4096, s);
    TELL(cuMemFreeAsync, p, s);
    end();
    begin("stream-ordered, on another stream");
    TELL(cuMemAllocAsync, &p, 4096, other);
    TELL(cuMemFreeAsync, p, other);
    end();
    begin("synchronising");
    TELL(cuCtxSynchronize);
    end();
    MUST(cuStreamSynchronize, other);
    MUST(cuStreamDestroy, s);
    MUST(cuStreamDestroy, other);
    return cu_end();
}
