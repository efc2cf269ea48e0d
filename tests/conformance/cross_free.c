/*
 * Every way of freeing, for every way of allocating: plain memory freed in a stream, stream-ordered
 * memory freed plainly, in other streams, from other contexts and devices and from threads that
 * have no context; twice, and in the middle. Who asks wrongly frees nothing. Twice is only asked
 * when the first free has taken effect: a driver was seen to accept plain memory twice before that,
 * and never to come back from the next wait.
 *
 * With several devices, elsewhere is another device; with one, another context of it. Work is
 * ordered before each free as NVIDIA asks for: by the stream, by events, or by a synchronisation.
 */
#include <pthread.h>

#include "launch.h"

enum way { PLAIN, STREAM, SIBLING, NULL_STREAM, LEGACY, PER_THREAD, ELSEWHERE, WAYS };
enum kind { ALLOCATED, ORDERED, POOLED, KINDS };
#define SMALL ((size_t)200 << 10)
#define LARGE ((size_t)5 << 19)

static const char *const way_names[WAYS] = {
    "plainly",           "in its stream",       "in another stream",    "in the null stream",
    "in the legacy one", "in the thread's own", "in a stream elsewhere"};
static const char *const kind_names[KINDS] = {"plain memory", "memory of the default pool",
                                              "memory of a pool of its own"};

static CUcontext here, there;
static CUstream stream, sibling, remote;
static CUmemoryPool own;
static CUevent written;

static CUdeviceptr take(enum kind kind, size_t size)
{
    CUdeviceptr p = 0;

    if (kind == ALLOCATED)
        MUST(cuMemAlloc, &p, size);
    else if (kind == ORDERED)
        MUST(cuMemAllocAsync, &p, size, stream);
    else
        MUST(cuMemAllocFromPoolAsync, &p, size, own, stream);
    return p;
}

static CUstream stream_of(enum way way)
{
    switch (way) {
    case SIBLING:
        return sibling;
    case NULL_STREAM:
        return NULL;
    case LEGACY:
        return CU_STREAM_LEGACY;
    case PER_THREAD:
        return CU_STREAM_PER_THREAD;
    case ELSEWHERE:
        return remote;
    default:
        return stream;
    }
}

static CUresult let_go(enum way way, CUdeviceptr p)
{
    return way == PLAIN ? CU(cuMemFree)(p) : CU(cuMemFreeAsync)(p, stream_of(way));
}

/* Makes what the stream has so far come before the free; on another stream of this context there is
 * more work on the block before that. */
static void order(enum kind kind, enum way way, CUdeviceptr p, size_t size)
{
    if (way == PLAIN && kind != ALLOCATED) {
        MUST(cuStreamSynchronize, stream);
    } else if (way != PLAIN && way != STREAM) {
        MUST(cuEventRecord, written, stream);
        MUST(cuStreamWaitEvent, stream_of(way), written, 0);
    }
    if (way != PLAIN && way != STREAM && way != ELSEWHERE) {
        cu_must("spin_us", kernel_spin_us(stream_of(way), 3000));
        MUST(cuMemsetD8Async, p, 255, size, stream_of(way));
    }
}

/* Written late, freed while that runs, then three more of its size, each with bytes of its own. */
static void reused(enum kind kind, enum way way, unsigned char value)
{
    const size_t size = way == STREAM || way == SIBLING ? LARGE : SMALL;
    CUdeviceptr p = take(kind, size), more[3];
    unsigned wrong = 0;

    cu_must("spin_us", kernel_spin_us(stream, 3000));
    MUST(cuMemsetD8Async, p, value, size, stream);
    order(kind, way, p, size);
    CUresult result = let_go(way, p);
    for (int i = 0; i < 3; i++) {
        more[i] = take(kind, size);
        MUST(cuMemsetD8Async, more[i], (unsigned char)(value + 1 + i), size, stream);
    }
    MUST(cuStreamSynchronize, stream);
    for (int i = 0; i < 3; i++) {
        wrong += !cu_all_bytes(more[i], size, (unsigned char)(value + 1 + i));
        MUST(cuMemFreeAsync, more[i], stream);
    }
    MUST(cuStreamSynchronize, stream);
    cu_say("%s, freed %s: %s, wrong ones behind it: %u", kind_names[kind], way_names[way],
           cu_result_name(result), wrong);
}

static void twice(enum kind kind, enum way way)
{
    CUdeviceptr p = take(kind, SMALL);
    CUresult result, again;

    MUST(cuStreamSynchronize, stream);
    result = let_go(way, p);
    MUST(cuCtxSynchronize);
    MUST(cuStreamSynchronize, remote);
    again = let_go(way, p);
    cu_say("%s, freed %s twice: %s, %s, plainly again: %s", kind_names[kind], way_names[way],
           cu_result_name(result), cu_result_name(again), cu_result_name(CU(cuMemFree)(p)));
}

/* In the middle, and where nothing is: refused, and the block stays what it was. */
static void inside(enum kind kind)
{
    const size_t size = 70000;
    CUdeviceptr p = take(kind, size);

    cu_say("%s, in the middle", kind_names[kind]);
    MUST(cuMemsetD8Async, p, 9, size, stream);
    MUST(cuStreamSynchronize, stream);
    TELL(cuMemFree, p + 1);
    TELL(cuMemFree, p + 512);
    TELL(cuMemFreeAsync, p + 1, stream);
    TELL(cuMemFreeAsync, p + 512, sibling);
    TELL(cuMemFreeAsync, p + size - 1, remote);
    FACT(cu_all_bytes(p, size, 9));
    TELL(cuMemFreeAsync, p, stream);
    MUST(cuStreamSynchronize, stream);
    TELL(cuMemFreeAsync, p + 512, stream);
}

static CUdeviceptr left[KINDS];

/* Has no context: only a default stream needs one. */
static void *without_context(void *unused)
{
    CUcontext now = NULL;

    MUST(cuCtxGetCurrent, &now);
    FACT(now == NULL);
    for (int kind = 0; kind < KINDS; kind++) {
        cu_say("%s", kind_names[kind]);
        TELL(cuMemFreeAsync, left[kind], NULL);
        TELL(cuMemFreeAsync, left[kind], CU_STREAM_PER_THREAD);
        if (kind == ORDERED)
            TELL(cuMemFree, left[kind]);
        else
            TELL(cuMemFreeAsync, left[kind], stream);
        MUST(cuStreamSynchronize, stream);
        TELL(cuMemFreeAsync, left[kind], sibling);
    }
    return unused;
}

static void in_thread(void)
{
    pthread_t thread;

    cu_say("on a thread without a context");
    for (int kind = 0; kind < KINDS; kind++) {
        left[kind] = take((enum kind)kind, SMALL);
        MUST(cuMemsetD8Async, left[kind], 3, SMALL, stream);
    }
    MUST(cuStreamSynchronize, stream);
    if (pthread_create(&thread, NULL, without_context, NULL) == 0)
        pthread_join(thread, NULL);
}

/* With the other context current; its default streams are other ones. */
static void from_elsewhere(enum kind kind)
{
    CUdeviceptr p[4];
    CUresult result[4];

    for (int i = 0; i < 4; i++) {
        p[i] = take(kind, SMALL + (size_t)i * 4096);
        MUST(cuMemsetD8Async, p[i], 4, SMALL, stream);
    }
    MUST(cuStreamSynchronize, stream);
    MUST(cuCtxSetCurrent, there);
    result[0] = CU(cuMemFree)(p[0]);
    result[1] = CU(cuMemFreeAsync)(p[1], stream);
    result[2] = CU(cuMemFreeAsync)(p[2], NULL);
    result[3] = CU(cuMemFreeAsync)(p[3], CU_STREAM_PER_THREAD);
    MUST(cuCtxSynchronize);
    MUST(cuCtxSetCurrent, here);
    MUST(cuStreamSynchronize, stream);
    cu_say("%s, from elsewhere: plainly %s, in its stream %s, in the null stream %s, in the "
           "thread's own %s",
           kind_names[kind], cu_result_name(result[0]), cu_result_name(result[1]),
           cu_result_name(result[2]), cu_result_name(result[3]));
}

int main(int argc, char **argv)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUcontext popped;
    int devices;

    cu_start(argc, argv);
    NEED(cuMemPoolCreate);
    kernels_load();
    MUST(cuDeviceGetCount, &devices);
    MUST(cuCtxGetCurrent, &here);
    if (devices > 1) {
        MUST(cuDevicePrimaryCtxRetain, &there, 1);
    } else {
        MUST(cuCtxCreate, &there, NULL, 0, 0);
        MUST(cuCtxPopCurrent, &popped);
    }
    MUST(cuCtxSetCurrent, there);
    MUST(cuStreamCreate, &remote, CU_STREAM_NON_BLOCKING);
    MUST(cuCtxSetCurrent, here);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &sibling, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &written, CU_EVENT_DISABLE_TIMING);
    MUST(cuMemPoolCreate, &own, &props);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int way = 0; way < WAYS; way++)
            reused((enum kind)kind, (enum way)way, (unsigned char)(10 + 40 * kind + 5 * way));
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int way = 0; way < WAYS; way++)
            twice((enum kind)kind, (enum way)way);
    }
    for (int kind = 0; kind < KINDS; kind++)
        inside((enum kind)kind);
    for (int kind = 0; kind < KINDS; kind++)
        from_elsewhere((enum kind)kind);
    in_thread();
    MUST(cuCtxSynchronize);
    MUST(cuMemPoolDestroy, own);
    MUST(cuEventDestroy, written);
    MUST(cuStreamDestroy, stream);
    MUST(cuStreamDestroy, sibling);
    return cu_end();
}
