/* Compiled for per-thread default streams: the _ptds and _ptsz twins of every call. */
#include "cu.h"

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "this program and cu.c are compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM"
#endif

int main(int argc, char **argv)
{
    CUdeviceptr p = 0, q = 0;
    struct gate *gate = gate_new();

    cu_start(argc, argv);
    TELL(cuMemAllocAsync, &p, 1 << 20, NULL);
    TELL(cuMemsetD8Async, p, 5, 1 << 20, NULL);
    TELL(cuStreamSynchronize, NULL);
    FACT(cu_all_bytes(p, 1 << 20, 5));
    TELL(cuMemFreeAsync, p, NULL);
    TELL(cuStreamSynchronize, NULL);
    TELL(cuMemFreeAsync, p, NULL);

    /* The thread's own stream is held; the legacy one is not behind it any more. */
    MUST(cuMemAlloc, &p, 4096);
    MUST(cuMemAlloc, &q, 4096);
    gate_wait(gate, NULL);
    TELL(cuMemsetD8Async, p, 1, 4096, NULL);
    TELL(cuStreamQuery, NULL);
    gate_open(gate);
    TELL(cuStreamSynchronize, NULL);
    TELL(cuStreamQuery, NULL);
    FACT(cu_all_bytes(p, 4096, 1));
    TELL(cuMemFree, p);
    TELL(cuMemFree, q);
    gate_free(gate);
    return cu_end();
}
