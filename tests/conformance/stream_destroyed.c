/*
 * Stream-ordered memory whose stream, or whose stream's context, is gone: what was freed there is
 * used again and nobody's bytes change; what is live stays what it was until somebody frees it.
 *
 * Streams are destroyed with work in flight, more of them than anybody keeps books of at once.
 * Memory pools belong to the device: a context that is destroyed leaves their memory alone
 * (cuCtxDestroy's list of what it frees does not have it). Of the memory that was live when the
 * primary context was reset nothing is said, but that there is memory again afterwards.
 */
#include "launch.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { ROUNDS = 18, MANY = 80, KEPT = 12 };

static CUstream stream;
static CUmemoryPool standard;

/* What the pool says is in use, but for what plain frees left there: a driver (580.159) was seen
 * not to count them. */
static uint64_t left;

static uint64_t used(void)
{
    cuuint64_t bytes = 1;

    MUST(cuMemPoolGetAttribute, standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
    return bytes - left;
}

static CUstream new_stream(unsigned flags)
{
    CUstream fresh = NULL;

    MUST(cuStreamCreate, &fresh, flags);
    return fresh;
}

/* A block with this in every byte, written behind a delay. */
static CUdeviceptr written_late(CUstream on, size_t size, unsigned char value, unsigned us)
{
    CUdeviceptr p = 0;

    MUST(cuMemAllocAsync, &p, size, on);
    cu_must("spin_us", kernel_spin_us(on, us));
    MUST(cuMemsetD8Async, p, value, size, on);
    return p;
}

static size_t size_of(int i)
{
    static const size_t sizes[] = {512, 3 * KIB, 60 * KIB, 300 * KIB, 700 * KIB, 2 * MIB};
    return sizes[i % 6] + (size_t)(i % 7) * 512;
}

/* Frees on a stream that is then destroyed; allocations on another one behind it. */
static void freed_and_destroyed(void)
{
    unsigned wrong = 0;

    for (int i = 0; i < ROUNDS; i++) {
        CUstream passing = new_stream(i % 3 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        const size_t size = size_of(i), other = size_of(i + 1);
        CUdeviceptr p[2], q[2];
        p[0] = written_late(passing, size, 1, 200 + (unsigned)i % 5 * 300);
        p[1] = written_late(passing, other, 2, 100);
        MUST(cuMemFreeAsync, p[0], passing);
        MUST(cuMemFreeAsync, p[1], passing);
        MUST(cuStreamDestroy, passing);
        q[0] = written_late(stream, size, 3, 1);
        q[1] = written_late(stream, size + other, 4, 1);
        MUST(cuStreamSynchronize, stream);
        wrong += !cu_all_bytes(q[0], size, 3) + !cu_all_bytes(q[1], size + other, 4);
        MUST(cuMemFreeAsync, q[0], stream);
        MUST(cuMemFreeAsync, q[1], stream);
    }
    MUST(cuCtxSynchronize);
    cu_say("freed on streams that were destroyed: wrong blocks %u", wrong);
    FACT(used() == 0);
}

/* Live memory outlives its stream, and is freed by others in every way. */
static void kept(void)
{
    CUdeviceptr p[KEPT];
    CUstream fresh;
    unsigned wrong = 0;

    for (int i = 0; i < KEPT; i++) {
        CUstream passing = new_stream(CU_STREAM_NON_BLOCKING);
        p[i] = written_late(passing, size_of(i), (unsigned char)(20 + i), 200);
        MUST(cuMemFreeAsync, written_late(passing, size_of(i), 1, 200), passing);
        MUST(cuStreamDestroy, passing);
    }
    fresh = new_stream(CU_STREAM_NON_BLOCKING); /* perhaps by a handle that others had */
    for (int i = 0; i < KEPT; i++)
        MUST(cuMemFreeAsync, written_late(fresh, size_of(i), 99, 1), fresh);
    MUST(cuCtxSynchronize);
    for (int i = 0; i < KEPT; i++)
        wrong += !cu_all_bytes(p[i], size_of(i), (unsigned char)(20 + i));
    cu_say("live on streams that were destroyed: wrong blocks %u", wrong);
    for (int i = 0; i < KEPT; i++) {
        if (i % 3 == 0)
            MUST(cuMemFree, p[i]);
        else
            MUST(cuMemFreeAsync, p[i], i % 3 == 1 ? fresh : NULL);
    }
    MUST(cuStreamDestroy, fresh);
    MUST(cuCtxSynchronize);
    left = used();
}

/* More streams at once than books are kept of; each frees and takes again. */
static void many(void)
{
    static CUstream streams[MANY];
    static CUdeviceptr p[MANY];
    unsigned wrong = 0;

    for (int i = 0; i < MANY; i++) {
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
        p[i] = written_late(streams[i], 64 * KIB, 5, 100);
    }
    for (int i = 0; i < MANY; i++)
        MUST(cuMemFreeAsync, p[i], streams[i]);
    for (int i = 0; i < MANY; i++)
        p[i] = written_late(streams[i], 64 * KIB, (unsigned char)(100 + i), 50);
    for (int i = 0; i < MANY; i += 2) {
        MUST(cuMemFreeAsync, p[i], streams[i]);
        MUST(cuStreamDestroy, streams[i]);
        streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
        p[i] = written_late(streams[i], 64 * KIB, (unsigned char)(100 + i), 50);
    }
    MUST(cuCtxSynchronize);
    for (int i = 0; i < MANY; i++) {
        wrong += !cu_all_bytes(p[i], 64 * KIB, (unsigned char)(100 + i));
        MUST(cuMemFreeAsync, p[i], streams[(i + 1) % MANY]);
    }
    for (int i = 0; i < MANY; i++)
        MUST(cuStreamDestroy, streams[i]);
    MUST(cuCtxSynchronize);
    cu_say("many streams at once: wrong blocks %u", wrong);
    FACT(used() == 0);
}

/* A context that goes with frees in flight and with live memory. */
static void context_destroyed(CUcontext primary)
{
    CUcontext passing = NULL;
    CUdeviceptr live, q;

    cu_say("a context is destroyed");
    MUST(cuCtxCreate, &passing, NULL, 0, 0);
    struct kernels before = kernels;
    kernels_load();
    CUstream inside = new_stream(CU_STREAM_NON_BLOCKING);
    live = written_late(inside, 3 * MIB, 6, 500);
    MUST(cuMemFreeAsync, written_late(inside, 3 * MIB, 7, 2000), inside);
    TELL(cuCtxDestroy, passing);
    kernels = before;
    MUST(cuCtxSetCurrent, primary);
    q = written_late(stream, 3 * MIB, 8, 1);
    MUST(cuStreamSynchronize, stream);
    FACT(cu_all_bytes(live, 3 * MIB, 6) && cu_all_bytes(q, 3 * MIB, 8));
    FACT(used() >= 6 * MIB && used() < 9 * MIB);
    TELL(cuMemFreeAsync, live, stream);
    TELL(cuMemFreeAsync, live, stream);
    TELL(cuMemFree, live);
    TELL(cuMemFreeAsync, q, stream);
    MUST(cuStreamSynchronize, stream);
    FACT(used() == 0);
}

/* There is memory as before, and nobody's bytes change. */
static void again(void)
{
    CUdeviceptr p[KEPT];
    unsigned wrong = 0;

    kernels_load();
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KEPT; i++)
            p[i] = written_late(stream, size_of(i), (unsigned char)(30 + i), 10);
        MUST(cuStreamSynchronize, stream);
        for (int i = 0; i < KEPT; i++)
            wrong += !cu_all_bytes(p[i], size_of(i), (unsigned char)(30 + i));
        for (int i = 0; i < KEPT; i++)
            MUST(cuMemFreeAsync, p[i], stream);
    }
    MUST(cuStreamSynchronize, stream);
    cu_say("afterwards: wrong blocks %u", wrong);
}

static bool active(void)
{
    unsigned flags;
    int is = 0;

    MUST(cuDevicePrimaryCtxGetState, 0, &flags, &is);
    return is != 0;
}

/* The primary context goes: by a reset, which leaves it retained, or by its last release. */
static void primary_gone(bool reset)
{
    CUcontext primary = NULL;

    cu_say("the primary context is %s", reset ? "reset" : "released");
    (void)written_late(stream, 3 * MIB, 6, 500);
    MUST(cuMemFreeAsync, written_late(stream, 3 * MIB, 7, 1000), stream);
    MUST(cuCtxSetCurrent, NULL);
    if (reset)
        TELL(cuDevicePrimaryCtxReset, 0);
    while (!reset && active()) /* it is still retained for what was reset */
        MUST(cuDevicePrimaryCtxRelease, 0);
    FACT(!active());
    MUST(cuDevicePrimaryCtxRetain, &primary, 0);
    MUST(cuCtxSetCurrent, primary);
    again();
}

int main(int argc, char **argv)
{
    CUcontext primary = NULL;

    cu_start(argc, argv);
    NEED(cuMemAllocAsync);
    kernels_load();
    MUST(cuCtxGetCurrent, &primary);
    MUST(cuDeviceGetDefaultMemPool, &standard, 0);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    freed_and_destroyed();
    kept();
    many();
    context_destroyed(primary);
    primary_gone(true);
    primary_gone(false);
    return cu_end();
}
