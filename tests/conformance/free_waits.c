/* cuMemFree returns only when every stream of the context has done what was queued before it. */
#include "cu.h"

static void behind(const char *name, CUstream stream)
{
    CUdeviceptr p;
    struct gate *gate = gate_new();

    MUST(cuMemAlloc, &p, 1 << 20);
    gate_wait(gate, stream);
    MUST(cuMemsetD8Async, p, 1, 1 << 20, stream);
    gate_open_later(gate);
    MUST(cuMemFree, p);
    cu_say("the free waited for %s: %s", name, gate_passed(gate) ? "yes" : "no");
    MUST(cuStreamSynchronize, stream);
    gate_free(gate);
}

static void read_after_free(CUstream stream)
{
    CUdeviceptr p;
    void *host;
    struct gate *gate = gate_new();

    MUST(cuMemAllocHost, &host, 1 << 20);
    MUST(cuMemAlloc, &p, 1 << 20);
    MUST(cuMemsetD8, p, 77, 1 << 20);
    MUST(cuCtxSynchronize);
    gate_wait(gate, stream);
    MUST(cuMemcpyDtoHAsync, host, p, 1 << 20, stream);
    gate_open_later(gate);
    MUST(cuMemFree, p);
    /* No synchronisation: programs rely on what the free waited for. */
    bool all = true;
    for (size_t i = 0; i < 1 << 20; i++)
        all = all && ((volatile unsigned char *)host)[i] == 77;
    FACT(all);
    gate_free(gate);
    MUST(cuMemFreeHost, host);
}

int main(int argc, char **argv)
{
    CUstream blocking, non_blocking;

    cu_start(argc, argv);
    MUST(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    MUST(cuStreamCreate, &non_blocking, CU_STREAM_NON_BLOCKING);
    behind("a stream", blocking);
    behind("a non-blocking stream", non_blocking);
    behind("the null stream", NULL);
    behind("the thread's stream", CU_STREAM_PER_THREAD);
    read_after_free(non_blocking);
    MUST(cuStreamDestroy, blocking);
    MUST(cuStreamDestroy, non_blocking);
    return cu_end();
}
