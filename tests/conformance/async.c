/* Stream-ordered allocation: on every kind of stream, freed both ways, and what is refused. */
#include "cu.h"

static void on(const char *name, CUstream stream)
{
    CUdeviceptr p = 0;

    cu_say("on %s", name);
    TELL(cuMemAllocAsync, &p, 1 << 20, stream);
    TELL(cuMemsetD8Async, p, 5, 1 << 20, stream);
    TELL(cuStreamSynchronize, stream);
    FACT(cu_all_bytes(p, 1 << 20, 5));
    TELL(cuMemFreeAsync, p, stream);
    TELL(cuStreamSynchronize, stream);
}

int main(int argc, char **argv)
{
    CUdeviceptr p = 0, q = 0;
    CUstream s, other;

    cu_start(argc, argv);
    MUST(cuStreamCreate, &s, CU_STREAM_DEFAULT);
    MUST(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    on("a stream", s);
    on("a non-blocking stream", other);
    on("the null stream", NULL);
    on("the legacy stream", CU_STREAM_LEGACY);
    on("the thread's stream", CU_STREAM_PER_THREAD);

    cu_say("allocated on one, freed on another");
    MUST(cuMemAllocAsync, &p, 4096, s);
    MUST(cuStreamSynchronize, s);
    TELL(cuMemFreeAsync, p, other);
    MUST(cuStreamSynchronize, other);

    cu_say("crossed");
    MUST(cuMemAllocAsync, &p, 4096, s);
    MUST(cuStreamSynchronize, s);
    TELL(cuMemFree, p);
    TELL(cuMemFree, p);
    MUST(cuMemAlloc, &q, 4096);
    TELL(cuMemFreeAsync, q, s);
    MUST(cuStreamSynchronize, s);
    TELL(cuMemFree, q);

    cu_say("refused");
    TELL(cuMemAllocAsync, &p, 0, s);
    TELL(cuMemAllocAsync, NULL, 4096, s);
    TELL(cuMemAllocAsync, &p, (size_t)1 << 60, s);
    TELL(cuMemFreeAsync, 0, s);
    TELL(cuMemFreeAsync, 12345, s);
    MUST(cuMemAllocAsync, &p, 4096, s);
    TELL(cuMemFreeAsync, p + 8, s);
    TELL(cuMemFreeAsync, p, s);
    TELL(cuMemFreeAsync, p, s);
    MUST(cuStreamSynchronize, s);
    MUST(cuStreamDestroy, s);
    MUST(cuStreamDestroy, other);
    return cu_end();
}
