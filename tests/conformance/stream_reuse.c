/*
 * Stream-ordered memory that is freed while it is still in use, and handed out again: nobody's
 * bytes change.
 *
 * Threads, each with streams of all kinds, allocate blocks in one stream, write a pattern of their
 * own late (behind a delay), and free them before that has run: in the same stream, in another one
 * that waits for an event, through another thread, plainly once it is over, in a stream that is
 * destroyed at once. Others allocate meanwhile, with the order that events make and without any,
 * from the default pool and from pools of the program's, and plain memory too, some of it freed in
 * a stream. Whatever is read while a block is held must be its holder's pattern, to the last word.
 * Beside them threads capture graphs in all modes, with allocations inside, and launch them on
 * stream-ordered memory that they free with the launches in flight.
 *
 * REUSE_THREADS, REUSE_CAPTURERS, REUSE_ROUNDS, REUSE_MAX (bytes of the largest usual block),
 * REUSE_HUGE (of a rare one; 0: none), REUSE_STREAMS (of a thread, 1 to 6) and REUSE_SEED change
 * what it does, not what it should print: "wrong words 0, failed calls 0, broken captures 0".
 */
#include "stress.h"

enum { POOLS = 2, SHELF = 16, SMALL = 40, GRAPH_BYTES = 3 << 16, LAUNCHES = 3 };

static CUcontext context;
static CUmemoryPool pools[POOLS];
static CUdeviceptr bad; /* a word on the device: what verify has counted */
static atomic_uint broken;
static unsigned rounds, largest, huge, seed, streams;

/* A block of somebody else's, used until the event. */
struct left {
    CUdeviceptr p;
    CUevent last;
};
static struct left shelf[SHELF];
static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;

struct worker {
    pthread_t thread;
    unsigned number, state, uses;
    CUstream streams[STRESS_STREAMS];
    CUevent event;
    unsigned char *host; /* pinned */
};

static unsigned next(struct worker *own)
{
    return stress_next(&own->state);
}

static CUstream some_stream(struct worker *own)
{
    return own->streams[next(own) % streams];
}

/* Mostly whole words; now and then some bytes more or few bytes only, or many. */
static size_t some_size(struct worker *own)
{
    unsigned what = next(own) % 64;

    if (what == 0 && huge != 0)
        return huge;
    if (what < 8)
        return 1 + next(own) % 600;
    return stress_size(&own->state, largest);
}

/* One in eight is plain memory. */
static CUdeviceptr take(struct worker *own, size_t size, CUstream stream)
{
    CUdeviceptr p = 0;
    unsigned way = next(own) % 8;

    if (way == 0)
        DO(cuMemAlloc, &p, size);
    else if (way <= POOLS)
        DO(cuMemAllocFromPoolAsync, &p, size, pools[way - 1], stream);
    else
        DO(cuMemAllocAsync, &p, size, stream);
    return p;
}

static void fill(CUstream stream, CUdeviceptr p, uint32_t value, size_t size)
{
    if (size < 4)
        DO(cuMemsetD8Async, p, (unsigned char)value, size, stream);
    else
        stress_expect("fill", kernel_fill(stream, p, value, (uint32_t)(size / 4)));
}

static void verify(CUstream stream, CUdeviceptr p, uint32_t value, size_t size)
{
    if (size >= 4)
        stress_expect("verify", kernel_verify(stream, p, value, (uint32_t)(size / 4), bad));
}

/* What `second` gets from now on comes after what `first` has. */
static void order(struct worker *own, CUstream second, CUstream first)
{
    DO(cuEventRecord, own->event, first);
    DO(cuStreamWaitEvent, second, own->event, 0);
}

/* Leaves a block, last used in the stream, for somebody else to free, and frees what lay there. */
static void pass_on(struct worker *own, CUdeviceptr p, CUstream stream)
{
    struct left mine = {.p = p}, found;
    CUstream ours = some_stream(own);
    unsigned at = next(own) % SHELF;

    DO(cuEventCreate, &mine.last, CU_EVENT_DISABLE_TIMING);
    DO(cuEventRecord, mine.last, stream);
    pthread_mutex_lock(&shelf_lock);
    found = shelf[at];
    shelf[at] = mine;
    pthread_mutex_unlock(&shelf_lock);
    if (found.p == 0)
        return;
    DO(cuStreamWaitEvent, ours, found.last, 0);
    DO(cuMemFreeAsync, found.p, ours);
    DO(cuEventDestroy, found.last);
}

/* In a stream that is destroyed with all this still before it. */
static void in_passing(struct worker *own, size_t size, uint32_t value)
{
    CUstream passing = NULL;
    CUdeviceptr p;

    DO(cuStreamCreate, &passing, CU_STREAM_NON_BLOCKING);
    p = take(own, size, passing);
    stress_delay(&own->state, passing);
    fill(passing, p, value, size);
    DO(cuMemFreeAsync, p, passing);
    DO(cuStreamDestroy, passing);
}

/* Many small ones at once, freed in three streams. */
static void many_small(struct worker *own, CUstream stream, uint32_t value)
{
    CUdeviceptr p[SMALL];
    CUstream others[2] = {some_stream(own), some_stream(own)};
    const size_t size = 4 + next(own) % 4096;

    for (int i = 0; i < SMALL; i++) {
        DO(cuMemAllocAsync, &p[i], size, stream);
        fill(stream, p[i], value + (uint32_t)i, size);
    }
    stress_delay(&own->state, stream);
    for (int i = 0; i < SMALL; i++)
        verify(stream, p[i], value + (uint32_t)i, size);
    order(own, others[0], stream);
    order(own, others[1], stream);
    for (int i = 0; i < SMALL; i++)
        DO(cuMemFreeAsync, p[i], i % 3 == 0 ? stream : others[i % 3 - 1]);
}

static void one_round(struct worker *own)
{
    CUstream first = some_stream(own), second = some_stream(own);
    const size_t size = some_size(own);
    const uint32_t value = stress_pattern(own->number, &own->uses);
    const unsigned what = next(own) % 9;
    CUdeviceptr p = 0;

    if (what < 7)
        p = take(own, size, first);
    switch (what) {
    case 0: /* written late, read later, freed at once */
        stress_delay(&own->state, first);
        fill(first, p, value, size);
        stress_delay(&own->state, first);
        verify(first, p, value, size);
        DO(cuMemFreeAsync, p, first);
        break;
    case 1: /* read late in another stream, and freed there */
        fill(first, p, value, size);
        order(own, second, first);
        stress_delay(&own->state, second);
        verify(second, p, value, size);
        DO(cuMemFreeAsync, p, second);
        break;
    case 2: /* the same, freed where it came from */
        fill(first, p, value, size);
        order(own, second, first);
        stress_delay(&own->state, second);
        verify(second, p, value, size);
        order(own, first, second);
        DO(cuMemFreeAsync, p, first);
        break;
    case 3: /* freed late; another stream comes after it and takes as much */
        stress_delay(&own->state, first);
        fill(first, p, ~value, size);
        DO(cuMemFreeAsync, p, first);
        order(own, second, first);
        p = take(own, size, second);
        fill(second, p, value, size);
        verify(second, p, value, size);
        DO(cuMemFreeAsync, p, second);
        break;
    case 4: /* read by the host; freed plainly when that is over */
        fill(first, p, value, size);
        stress_delay(&own->state, first);
        DO(cuMemcpyDtoHAsync, own->host, p, size < largest ? size : largest, first);
        DO(cuStreamSynchronize, first);
        stress_check_host(own->host, value, size >= 4 ? (size < largest ? size : largest) : 0);
        fill(second, p, ~value, size);
        verify(second, p, ~value, size);
        DO(cuStreamSynchronize, second);
        DO(cuMemFree, p);
        break;
    case 5: /* freed by somebody else */
        stress_delay(&own->state, first);
        fill(first, p, value, size);
        verify(first, p, value, size);
        pass_on(own, p, first);
        break;
    case 6: /* the host has seen it; then it is used on */
        fill(first, p, value, size);
        DO(cuEventRecord, own->event, first);
        DO(cuEventSynchronize, own->event);
        stress_delay(&own->state, second);
        verify(second, p, value, size);
        DO(cuMemFreeAsync, p, second);
        break;
    case 7:
        in_passing(own, size, value);
        break;
    default:
        many_small(own, first, value);
    }
}

static void open_worker(struct worker *own)
{
    stress_open(context, own->streams);
    DO(cuEventCreate, &own->event, CU_EVENT_DISABLE_TIMING);
    DO(cuMemAllocHost, (void **)&own->host, largest);
}

static void close_worker(struct worker *own)
{
    stress_close(own->streams);
    DO(cuEventDestroy, own->event);
    DO(cuMemFreeHost, own->host);
}

static void *work(void *data)
{
    struct worker *own = data;

    open_worker(own);
    for (unsigned i = 0; i < rounds; i++)
        one_round(own);
    close_worker(own);
    return NULL;
}

/* Captures a fill and a look at each of two blocks: one held by the thread, one that the graph
 * takes and frees itself. Meanwhile another stream takes and frees. Launches the graph behind
 * delays and frees what it works on at once. */
static void one_capture(struct worker *own)
{
    CUstream capturing = own->streams[0], beside = own->streams[1];
    const uint32_t count = GRAPH_BYTES / 4, value = stress_pattern(own->number, &own->uses);
    const size_t size = stress_size(&own->state, largest);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr held = 0, inside = 0, p = 0;

    DO(cuMemAllocAsync, &held, GRAPH_BYTES, capturing);
    DO(cuMemAllocAsync, &p, size, beside);
    stress_delay(&own->state, beside);
    fill(beside, p, ~value, size);
    DO(cuStreamBeginCapture, capturing, stress_mode(&own->state));
    DO(cuMemFreeAsync, p, beside); /* in use, and a capture runs */
    DO(cuMemAllocAsync, &p, size, beside);
    fill(beside, p, value, size);
    stress_expect("fill", kernel_fill(capturing, held, value, count));
    DO(cuMemAllocAsync, &inside, GRAPH_BYTES, capturing);
    stress_expect("fill", kernel_fill(capturing, inside, ~value, count));
    stress_expect("verify", kernel_verify(capturing, held, value, count, bad));
    stress_expect("verify", kernel_verify(capturing, inside, ~value, count, bad));
    DO(cuMemFreeAsync, inside, capturing);
    if (CU(cuStreamEndCapture)(capturing, &graph) != CUDA_SUCCESS || graph == NULL) {
        atomic_fetch_add(&broken, 1);
    } else {
        DO(cuGraphInstantiate, &exec, graph, 0);
        for (int i = 0; i < LAUNCHES; i++) {
            stress_delay(&own->state, capturing);
            DO(cuGraphLaunch, exec, capturing);
        }
        DO(cuGraphExecDestroy, exec);
        DO(cuGraphDestroy, graph);
    }
    verify(beside, p, value, size);
    DO(cuMemFreeAsync, p, beside);
    DO(cuMemFreeAsync, held, capturing); /* the launches are in flight */
}

static void *capture(void *data)
{
    struct worker *own = data;

    open_worker(own);
    for (unsigned i = 0; i < rounds / 4; i++)
        one_capture(own);
    close_worker(own);
    return NULL;
}

int main(int argc, char **argv)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    unsigned threads = stress_setting("REUSE_THREADS", 4),
             capturers = stress_setting("REUSE_CAPTURERS", 2);
    struct worker *workers = calloc(threads + capturers, sizeof *workers);
    uint32_t wrong = 0;

    rounds = stress_setting("REUSE_ROUNDS", 40);
    largest = stress_setting("REUSE_MAX", 2 << 20);
    huge = stress_setting("REUSE_HUGE", 64 << 20);
    seed = stress_setting("REUSE_SEED", 1);
    streams = stress_setting("REUSE_STREAMS", STRESS_STREAMS);
    streams = streams >= 1 && streams <= STRESS_STREAMS ? streams : STRESS_STREAMS;
    cu_start(argc, argv);
    NEED(cuStreamBeginCapture);
    NEED(cuMemAllocFromPoolAsync);
    kernels_load();
    MUST(cuCtxGetCurrent, &context);
    for (int i = 0; i < POOLS; i++)
        MUST(cuMemPoolCreate, &pools[i], &props);
    MUST(cuMemAlloc, &bad, 4);
    MUST(cuMemsetD32, bad, 0, 1);
    MUST(cuCtxSynchronize);
    for (unsigned i = 0; i < threads + capturers; i++) {
        workers[i].number = i;
        workers[i].state = seed * 7919 + i * 104729;
        if (pthread_create(&workers[i].thread, NULL, i < threads ? work : capture, &workers[i]) !=
            0)
            abort();
    }
    for (unsigned i = 0; i < threads + capturers; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < SHELF; i++) {
        if (shelf[i].p == 0)
            continue;
        DO(cuEventSynchronize, shelf[i].last);
        DO(cuMemFree, shelf[i].p);
        DO(cuEventDestroy, shelf[i].last);
    }
    for (int i = 0; i < POOLS; i++)
        DO(cuMemPoolDestroy, pools[i]);
    MUST(cuCtxSynchronize);
    MUST(cuMemcpyDtoH, &wrong, bad, 4);
    cu_say("wrong words %u, failed calls %u, broken captures %u",
           wrong + atomic_load(&stress_wrong_on_host), atomic_load(&stress_failed),
           atomic_load(&broken));
    MUST(cuMemFree, bad);
    free(workers);
    return cu_end();
}
