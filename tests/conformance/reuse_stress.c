/*
 * Memory that is freed while it is still in use, and handed out again: nobody's bytes change.
 *
 * Threads, each with streams of all kinds, allocate blocks, write a pattern of their own late (a
 * kernel behind a delay) and free them early: at once, behind a reader in another stream, or
 * through another thread that has no context. cuMemFree waits for all of it, or does what amounts
 * to that; so whatever is read while a block is held must be its holder's pattern, to the last
 * word. Beside them threads capture graphs in all modes and launch them, on memory that they hold
 * for long, on memory that they take while the capture runs, and free it with launches still in
 * flight.
 *
 * REUSE_THREADS, REUSE_CAPTURERS, REUSE_ROUNDS, REUSE_MAX (bytes of the largest block),
 * REUSE_STREAMS (of a thread, 1 to 6) and REUSE_SEED change what it does, not what it should print:
 * "wrong words 0, failed calls 0, broken captures 0".
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

enum { STREAMS = 6, SHELF = 16, GRAPH_BYTES = 3 << 16, LAUNCHES = 3 };

static CUcontext context;
static CUdeviceptr bad; /* a word on the device: what verify has counted */
static atomic_uint failed, broken, wrong_on_host;
static unsigned rounds, largest, seed, streams;

/* Blocks with work in flight that wait to be freed by somebody else. */
static _Atomic CUdeviceptr shelf[SHELF];
static atomic_bool over;

static unsigned setting(const char *name, unsigned value)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 0) : value;
}

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Sizes from 512 bytes up, each power of two as likely as another; whole words. */
static size_t some_size(unsigned *state)
{
    size_t room = 512;
    unsigned doublings = 0;
    while (room << (doublings + 1) <= largest)
        doublings++;
    room <<= next(state) % (doublings + 1);
    size_t size = (room + next(state) % room) & ~(size_t)3;
    return size < largest ? size : largest;
}

static void expect(const char *what, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    if (atomic_fetch_add(&failed, 1) < 5)
        fprintf(stderr, "%s: %s\n", what, cu_result_name(result));
}
#define DO(name, ...) expect(#name, CU(name)(__VA_ARGS__))

/* What others capture must not forbid what this thread does. */
static void relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    DO(cuThreadExchangeStreamCaptureMode, &mode);
}

static void CUDA_CB nothing(void *unused)
{
    (void)unused;
}

struct worker {
    pthread_t thread;
    unsigned number, state, uses;
    CUstream streams[STREAMS];
    CUevent event;
    unsigned char *host; /* pinned */
};

static void open_streams(struct worker *own)
{
    DO(cuCtxSetCurrent, context);
    relax();
    for (int i = 0; i < 3; i++)
        DO(cuStreamCreate, &own->streams[i], CU_STREAM_NON_BLOCKING);
    DO(cuStreamCreate, &own->streams[3], CU_STREAM_DEFAULT);
    own->streams[4] = CU_STREAM_PER_THREAD;
    own->streams[5] = CU_STREAM_LEGACY;
    DO(cuEventCreate, &own->event, CU_EVENT_DISABLE_TIMING);
    DO(cuMemAllocHost, (void **)&own->host, largest);
}

static void close_streams(struct worker *own)
{
    for (int i = 0; i < STREAMS; i++)
        DO(cuStreamSynchronize, own->streams[i]);
    for (int i = 0; i < 4; i++)
        DO(cuStreamDestroy, own->streams[i]);
    DO(cuEventDestroy, own->event);
    DO(cuMemFreeHost, own->host);
}

/* Its holder's, and different each time. */
static uint32_t pattern(struct worker *own)
{
    return (own->number << 24) ^ (++own->uses * 2654435761u >> 8) ^ 0x5a000000u;
}

static void delay(struct worker *own, CUstream stream)
{
    if (next(&own->state) % 8 == 0)
        DO(cuLaunchHostFunc, stream, nothing, NULL);
    expect("spin_us", kernel_spin_us(stream, 50 + next(&own->state) % 1000));
}

/* Frees it, or leaves that to others and frees what they left. */
static void let_go(struct worker *own, CUdeviceptr p)
{
    if (next(&own->state) % 3 == 0)
        p = atomic_exchange(&shelf[next(&own->state) % SHELF], p);
    if (p != 0)
        DO(cuMemFree, p);
}

static void check_host(const struct worker *own, uint32_t value, size_t size)
{
    unsigned bad_here = 0;
    for (size_t at = 0; at < size; at += 4)
        bad_here += memcmp(own->host + at, &value, 4) != 0;
    atomic_fetch_add(&wrong_on_host, bad_here);
}

static void one_round(struct worker *own)
{
    size_t size = some_size(&own->state);
    uint32_t value = pattern(own), count = (uint32_t)(size / 4);
    CUstream writer = own->streams[next(&own->state) % streams];
    CUstream reader = own->streams[next(&own->state) % streams];
    CUdeviceptr p = 0;

    expect("cuMemAlloc", CU(cuMemAlloc)(&p, size));
    if (p == 0)
        return;
    switch (next(&own->state) % 4) {
    case 0: /* written late, freed at once */
        delay(own, writer);
        expect("fill", kernel_fill(writer, p, value, count));
        break;
    case 1: /* written, read late in another stream, freed before that */
        expect("fill", kernel_fill(writer, p, value, count));
        DO(cuEventRecord, own->event, writer);
        DO(cuStreamWaitEvent, reader, own->event, 0);
        delay(own, reader);
        expect("verify", kernel_verify(reader, p, value, count, bad));
        break;
    case 2: /* set by the copy engine's cousin, read late, written late again */
        DO(cuMemsetD32Async, p, value, count, writer);
        delay(own, writer);
        expect("verify", kernel_verify(writer, p, value, count, bad));
        DO(cuMemsetD32Async, p, ~value, count, writer);
        break;
    default: /* read by the host */
        expect("fill", kernel_fill(writer, p, value, count));
        delay(own, writer);
        DO(cuMemcpyDtoHAsync, own->host, p, size, writer);
        DO(cuStreamSynchronize, writer);
        check_host(own, value, size);
        expect("fill", kernel_fill(reader, p, ~value, count));
        break;
    }
    let_go(own, p);
}

static void *work(void *data)
{
    struct worker *own = data;

    open_streams(own);
    for (unsigned i = 0; i < rounds; i++)
        one_round(own);
    close_streams(own);
    return NULL;
}

/* Frees what lies on the shelf; has no context. */
static void *sweep(void *unused)
{
    unsigned at = 0;

    relax();
    while (!atomic_load(&over)) {
        CUdeviceptr p = atomic_exchange(&shelf[at++ % SHELF], 0);
        if (p != 0)
            DO(cuMemFree, p);
        else
            nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
    return unused;
}

/* Captures, on two streams, a fill and a look at each of two blocks, of which the second is taken
 * while the capture runs and the first may be. Launches it behind delays and lets all go. */
static void one_capture(struct worker *own, CUdeviceptr held)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    const uint32_t count = GRAPH_BYTES / 4, value = pattern(own);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr taken = 0, passing = 0, early = 0;

    DO(cuMemAlloc, &early, some_size(&own->state));
    delay(own, own->streams[2]);
    DO(cuMemsetD8Async, early, 1, 512, own->streams[2]);
    DO(cuStreamBeginCapture, own->streams[0], modes[next(&own->state) % 3]);
    DO(cuMemAlloc, &taken, GRAPH_BYTES);
    DO(cuMemFree, early); /* in use, and a capture runs */
    DO(cuMemAlloc, &passing, some_size(&own->state));
    expect("fill", kernel_fill(own->streams[0], taken, value, count));
    DO(cuEventRecord, own->event, own->streams[0]);
    DO(cuStreamWaitEvent, own->streams[1], own->event, 0);
    expect("fill", kernel_fill(own->streams[1], held, ~value, count));
    expect("verify", kernel_verify(own->streams[1], held, ~value, count, bad));
    DO(cuMemFree, passing);
    expect("verify", kernel_verify(own->streams[0], taken, value, count, bad));
    DO(cuEventRecord, own->event, own->streams[1]);
    DO(cuStreamWaitEvent, own->streams[0], own->event, 0);
    if (CU(cuStreamEndCapture)(own->streams[0], &graph) != CUDA_SUCCESS || graph == NULL) {
        atomic_fetch_add(&broken, 1);
    } else {
        DO(cuGraphInstantiate, &exec, graph, 0);
        for (int i = 0; i < LAUNCHES; i++) {
            delay(own, own->streams[0]);
            DO(cuGraphLaunch, exec, own->streams[0]);
        }
        DO(cuGraphExecDestroy, exec);
        DO(cuGraphDestroy, graph);
    }
    DO(cuMemFree, taken); /* the launches are in flight */
}

static void *capture(void *data)
{
    struct worker *own = data;
    CUdeviceptr held = 0;

    open_streams(own);
    DO(cuMemAlloc, &held, GRAPH_BYTES);
    for (unsigned i = 0; i < rounds / 4; i++)
        one_capture(own, held);
    DO(cuMemFree, held);
    close_streams(own);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned threads = setting("REUSE_THREADS", 4), capturers = setting("REUSE_CAPTURERS", 2);
    struct worker *workers = calloc(threads + capturers, sizeof *workers);
    pthread_t sweeper;
    uint32_t wrong = 0;

    rounds = setting("REUSE_ROUNDS", 100);
    largest = setting("REUSE_MAX", 6 << 20);
    seed = setting("REUSE_SEED", 1);
    streams = setting("REUSE_STREAMS", STREAMS);
    streams = streams >= 1 && streams <= STREAMS ? streams : STREAMS;
    cu_start(argc, argv);
    NEED(cuStreamBeginCapture);
    kernels_load();
    MUST(cuCtxGetCurrent, &context);
    MUST(cuMemAlloc, &bad, 4);
    MUST(cuMemsetD32, bad, 0, 1);
    MUST(cuCtxSynchronize);
    if (pthread_create(&sweeper, NULL, sweep, NULL) != 0)
        abort();
    for (unsigned i = 0; i < threads + capturers; i++) {
        workers[i].number = i;
        workers[i].state = seed * 7919 + i * 104729;
        if (pthread_create(&workers[i].thread, NULL, i < threads ? work : capture, &workers[i]) !=
            0)
            abort();
    }
    for (unsigned i = 0; i < threads + capturers; i++)
        pthread_join(workers[i].thread, NULL);
    atomic_store(&over, true);
    pthread_join(sweeper, NULL);
    for (int i = 0; i < SHELF; i++) {
        if (shelf[i] != 0)
            DO(cuMemFree, shelf[i]);
    }
    MUST(cuCtxSynchronize);
    MUST(cuMemcpyDtoH, &wrong, bad, 4);
    cu_say("wrong words %u, failed calls %u, broken captures %u",
           wrong + atomic_load(&wrong_on_host), atomic_load(&failed), atomic_load(&broken));
    MUST(cuMemFree, bad);
    free(workers);
    return cu_end();
}
