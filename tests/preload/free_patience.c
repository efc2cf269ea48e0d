/*
 * Which frees wait: after a copy to host memory that nothing has waited for, and after each way of
 * waiting for it. A free behind work that is stopped either returns at once or when another thread
 * lifts the stop.
 *
 * One line per case: "CASE: waited" or "CASE: went on".
 */
#include <stdlib.h>
#include <time.h>

#include "../conformance/launch.h"

#define SIZE ((size_t)1 << 20)

static CUstream copies, stopped;
static CUdeviceptr source;
static void *host;

static void none(void)
{
}

static void copy(void)
{
    MUST(cuMemcpyDtoHAsync, host, source, SIZE, copies);
}

static void copy_in(void)
{
    MUST(cuMemcpyHtoDAsync, source, host, SIZE, copies);
}

static void by_stream(void)
{
    copy();
    MUST(cuStreamSynchronize, copies);
}

static void by_context(void)
{
    copy();
    MUST(cuCtxSynchronize);
}

static void by_event(void)
{
    CUevent event;

    copy();
    MUST(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventRecord, event, copies);
    MUST(cuEventSynchronize, event);
    MUST(cuEventDestroy, event);
}

static void by_asking(void)
{
    copy();
    while (CU(cuStreamQuery)(copies) == CUDA_ERROR_NOT_READY)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void by_a_copy_that_waits(void)
{
    MUST(cuMemcpyDtoH, host, source, SIZE);
}

static void on_another_stream_than_waited_for(void)
{
    copy();
    MUST(cuStreamSynchronize, NULL);
}

static void one(const char *name, void (*before)(void))
{
    CUdeviceptr p;
    struct gate *gate = gate_new();

    MUST(cuMemAlloc, &p, SIZE);
    MUST(cuMemsetD8Async, p, 1, SIZE, stopped);
    MUST(cuCtxSynchronize);
    before();
    gate_wait(gate, stopped);
    MUST(cuMemsetD8Async, p, 2, SIZE, stopped);
    gate_open_later(gate);
    MUST(cuMemFree, p);
    cu_say("%s: %s", name, gate_passed(gate) ? "waited" : "went on");
    MUST(cuCtxSynchronize);
    gate_free(gate);
}

int main(int argc, char **argv)
{
    cu_start(argc, argv);
    MUST(cuStreamCreate, &copies, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &stopped, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAllocHost, &host, SIZE);
    MUST(cuMemAlloc, &source, SIZE);
    MUST(cuMemsetD8, source, 1, SIZE);
    one("no copy", none);
    one("a copy to the device", copy_in);
    one("a copy to the host", copy);
    one("the stream waited for", by_stream);
    one("the context waited for", by_context);
    one("an event waited for", by_event);
    one("the stream asked", by_asking);
    one("a copy that waits", by_a_copy_that_waits);
    one("another stream waited for", on_another_stream_than_waited_for);
    return cu_end();
}
