/*
 * Which frees wait: with a copy to host memory on its way that nothing has waited for, and after
 * each way of waiting for one. A free behind work that is stopped either returns at once or when
 * another thread lifts the stop.
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

static void copy_behind(void)
{
    MUST(cuMemcpyDtoHAsync, host, source, SIZE, stopped);
}

static void copy_in_behind(void)
{
    MUST(cuMemcpyHtoDAsync, source, host, SIZE, stopped);
}

static void copy_behind_and_wait_for_another(void)
{
    copy_behind();
    copy();
    MUST(cuStreamSynchronize, copies);
}

/* Before the stop, and behind it. */
static void one(const char *name, void (*before)(void), void (*behind)(void))
{
    CUdeviceptr p;
    struct gate *gate = gate_new();

    MUST(cuMemAlloc, &p, SIZE);
    MUST(cuMemsetD8Async, p, 1, SIZE, stopped);
    MUST(cuCtxSynchronize);
    before();
    gate_wait(gate, stopped);
    MUST(cuMemsetD8Async, p, 2, SIZE, stopped);
    behind();
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
    one("no copy", none, none);
    one("a copy to the device", none, copy_in_behind);
    one("a copy to the host", none, copy_behind);
    one("another stream waited for", none, copy_behind_and_wait_for_another);
    one("a copy that is not stopped", copy, none);
    one("the stream waited for", by_stream, none);
    one("the context waited for", by_context, none);
    one("an event waited for", by_event, none);
    one("the stream asked", by_asking, none);
    one("a copy that waits", by_a_copy_that_waits, none);
    return cu_end();
}
