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
#include "stress.h"

enum { SHELF = 16, GRAPH_BYTES = 3 << 16, LAUNCHES = 3 };

static CUcontext context;
static CUdeviceptr bad; /* a word on the device: what verify has counted */
static atomic_uint broken;
static unsigned rounds, largest, seed, streams;

/* Blocks with work in flight that wait to be freed by somebody else. */
static _Atomic CUdeviceptr shelf[SHELF];
static atomic_bool over;

struct worker {
    pthread_t thread;
    unsigned number, state, uses;
    CUstream streams[STRESS_STREAMS];
    CUevent event;
    unsigned char *host; /* pinned */
};

static void open_streams(struct worker *own)
{
    stress_open(context, own->streams);
    DO(cuEventCreate, &own->event, CU_EVENT_DISABLE_TIMING);
    DO(cuMemAllocHost, (void **)&own->host, largest);
}

static void close_streams(struct worker *own)
{
    stress_close(own->streams);
    DO(cuEventDestroy, own->event);
    DO(cuMemFreeHost, own->host);
}

/* Frees it, or leaves that to others and frees what they left. */
static void let_go(struct worker *own, CUdeviceptr p)
{
    if (stress_next(&own->state) % 3 == 0)
        p = atomic_exchange(&shelf[stress_next(&own->state) % SHELF], p);
    if (p != 0)
        DO(cuMemFree, p);
}

static void one_round(struct worker *own)
{
    size_t size = stress_size(&own->state, largest);
    uint32_t value = stress_pattern(own->number, &own->uses), count = (uint32_t)(size / 4);
    CUstream writer = own->streams[stress_next(&own->state) % streams];
    CUstream reader = own->streams[stress_next(&own->state) % streams];
    CUdeviceptr p = 0;

    stress_expect("cuMemAlloc", CU(cuMemAlloc)(&p, size));
    if (p == 0)
        return;
    switch (stress_next(&own->state) % 4) {
    case 0: /* written late, freed at once */
        stress_delay(&own->state, writer);
        stress_expect("fill", kernel_fill(writer, p, value, count));
        break;
    case 1: /* written, read late in another stream, freed before that */
        stress_expect("fill", kernel_fill(writer, p, value, count));
        DO(cuEventRecord, own->event, writer);
        DO(cuStreamWaitEvent, reader, own->event, 0);
        stress_delay(&own->state, reader);
        stress_expect("verify", kernel_verify(reader, p, value, count, bad));
        break;
    case 2: /* set by the copy engine's cousin, read late, written late again */
        DO(cuMemsetD32Async, p, value, count, writer);
        stress_delay(&own->state, writer);
        stress_expect("verify", kernel_verify(writer, p, value, count, bad));
        DO(cuMemsetD32Async, p, ~value, count, writer);
        break;
    default: /* read by the host */
        stress_expect("fill", kernel_fill(writer, p, value, count));
        stress_delay(&own->state, writer);
        DO(cuMemcpyDtoHAsync, own->host, p, size, writer);
        DO(cuStreamSynchronize, writer);
        stress_check_host(own->host, value, size);
        stress_expect("fill", kernel_fill(reader, p, ~value, count));
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

    stress_relax();
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
    const uint32_t count = GRAPH_BYTES / 4, value = stress_pattern(own->number, &own->uses);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr taken = 0, passing = 0, early = 0;

    DO(cuMemAlloc, &early, stress_size(&own->state, largest));
    stress_delay(&own->state, own->streams[2]);
    DO(cuMemsetD8Async, early, 1, 512, own->streams[2]);
    DO(cuStreamBeginCapture, own->streams[0], stress_mode(&own->state));
    DO(cuMemAlloc, &taken, GRAPH_BYTES);
    DO(cuMemFree, early); /* in use, and a capture runs */
    DO(cuMemAlloc, &passing, stress_size(&own->state, largest));
    stress_expect("fill", kernel_fill(own->streams[0], taken, value, count));
    DO(cuEventRecord, own->event, own->streams[0]);
    DO(cuStreamWaitEvent, own->streams[1], own->event, 0);
    stress_expect("fill", kernel_fill(own->streams[1], held, ~value, count));
    stress_expect("verify", kernel_verify(own->streams[1], held, ~value, count, bad));
    DO(cuMemFree, passing);
    stress_expect("verify", kernel_verify(own->streams[0], taken, value, count, bad));
    DO(cuEventRecord, own->event, own->streams[1]);
    DO(cuStreamWaitEvent, own->streams[0], own->event, 0);
    if (CU(cuStreamEndCapture)(own->streams[0], &graph) != CUDA_SUCCESS || graph == NULL) {
        atomic_fetch_add(&broken, 1);
    } else {
        DO(cuGraphInstantiate, &exec, graph, 0);
        for (int i = 0; i < LAUNCHES; i++) {
            stress_delay(&own->state, own->streams[0]);
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
    unsigned threads = stress_setting("REUSE_THREADS", 4),
             capturers = stress_setting("REUSE_CAPTURERS", 2);
    struct worker *workers = calloc(threads + capturers, sizeof *workers);
    pthread_t sweeper;
    uint32_t wrong = 0;

    rounds = stress_setting("REUSE_ROUNDS", 100);
    largest = stress_setting("REUSE_MAX", 6 << 20);
    seed = stress_setting("REUSE_SEED", 1);
    streams = stress_setting("REUSE_STREAMS", STRESS_STREAMS);
    streams = streams >= 1 && streams <= STRESS_STREAMS ? streams : STRESS_STREAMS;
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
           wrong + atomic_load(&stress_wrong_on_host), atomic_load(&stress_failed),
           atomic_load(&broken));
    MUST(cuMemFree, bad);
    free(workers);
    return cu_end();
}
