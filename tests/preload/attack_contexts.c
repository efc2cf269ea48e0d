/*
 * Contexts that come and go among threads (test_contexts.py). What only our own calls could do
 * wrong shows as a stale handle of the simulator: these programs name none themselves, but work in
 * what is current.
 */
#include "attack.h"

#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {4096, MIB, 4 * MIB, 32 * MIB};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static int rounds;
static char *pinned;        /* a page for each thread */
static CUdeviceptr outside; /* the same on the device */
static atomic_int threads;
static _Thread_local char *host;
static _Thread_local CUdeviceptr beside;
static _Thread_local unsigned seed;

static unsigned next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 16;
}

/* In the current context, which stays. */
static void begin(void)
{
    CHECK(cuMemAllocHost_v2((void **)&pinned, 64 * 4096));
    outside = take(64 * 4096);
}

static void begin_thread(void)
{
    int number = atomic_fetch_add(&threads, 1);

    host = pinned + (size_t)number * 4096;
    beside = outside + (size_t)number * 4096;
    seed = (unsigned)number;
}

/* Blocks freed in every way, some of them left, with work and copies behind them. */
static void work_in_it(void)
{
    CUstream stream;
    CUdeviceptr p[SIZES];

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < SIZES; i++) {
        p[i] = take(sizes[i]);
        CHECK(cuMemsetD8Async(p[i], 1, 4096, stream));
        CHECK(cuMemcpyDtoHAsync_v2(host, p[i], 4096, stream));
    }
    for (int i = 0; i < SIZES; i++) {
        if (next() % 4 != 0) {
            CHECK(next() % 3 == 0 ? cuMemFreeAsync(p[i], stream) : cuMemFree_v2(p[i]));
        }
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree_v2(take(sizes[next() % SIZES])));
}

static void *one_after_another(void *arg)
{
    CUcontext made;

    begin_thread();
    for (int i = 0; i < rounds; i++) {
        CHECK(cuCtxCreate_v2(&made, 0, 0));
        work_in_it();
        if (i % 3 != 0) {
            CHECK(cuCtxDestroy_v2(made));
        } else {
            CHECK(cuCtxAttach(&made, 0));
            CHECK(cuCtxDetach(made));
            CHECK(cuMemFree_v2(take(MIB))); /* it is still there */
            CHECK(cuCtxDetach(made));
        }
    }
    return arg;
}

/* arguments: threads, rounds */
static void come_and_go(void)
{
    start();
    begin();
    rounds = atoi(arguments[1]);
    together(atoi(arguments[0]), one_after_another, NULL);
}

/* The primary context goes with the last green one. */
static void green_goes(void)
{
    CUdevResource all;
    CUdevResourceDesc some;
    CUgreenCtx green;
    CUcontext as_context;

    CHECK(cuInit(0));
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevResourceGenerateDesc(&some, &all, 1));
    rounds = atoi(arguments[0]);
    for (int i = 0; i < rounds; i++) {
        CHECK(cuGreenCtxCreate(&green, some, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK(cuCtxFromGreenCtx(&as_context, green));
        CHECK(cuCtxPushCurrent_v2(as_context));
        CHECK(cuMemFree_v2(take(MIB)));
        take(4 * MIB);
        CHECK(cuMemFree_v2(take(32 * MIB)));
        CHECK(cuCtxPopCurrent_v2(&as_context));
        CHECK(cuGreenCtxDestroy(green));
        usleep(5000); /* memory goes back meanwhile */
    }
}

static void *destroy_it(void *made)
{
    CHECK(cuCtxDestroy_v2(made));
    return NULL;
}

static void in_another_thread(void *(*body)(void *), void *arg)
{
    pthread_t thread;

    pthread_create(&thread, NULL, body, arg);
    pthread_join(thread, NULL);
}

/* Everything is answered as the driver answers it. */
static void tell_destroyed(CUdeviceptr others, CUdeviceptr of_it)
{
    CUdeviceptr p = 0;
    size_t pitch;

    printf("alloc %d", cuMemAlloc_v2(&p, 4096));
    printf(" large %d", cuMemAlloc_v2(&p, 32 * MIB));
    printf(" pitch %d", cuMemAllocPitch_v2(&p, &pitch, 1000, 10, 4));
    printf(" free 0 %d", cuMemFree_v2(0));
    printf(" its %d", cuMemFree_v2(of_it));
    printf(" others %d", cuMemFree_v2(others));
    printf(" set %d", cuMemsetD8_v2(others, 1, 1));
    printf(" sync %d\n", cuCtxSynchronize());
}

static CUcontext make(const char *how)
{
    CUcontext made;

    if (strcmp(how, "v1") == 0) {
        CHECK(cuCtxCreate(&made, 0, 0));
    } else if (strcmp(how, "v3") == 0) {
        CHECK(cuCtxCreate_v3(&made, NULL, 0, 0, 0));
    } else if (strcmp(how, "v4") == 0) {
        CHECK(cuCtxCreate_v4(&made, NULL, 0, 0));
    } else {
        CHECK(cuCtxCreate_v2(&made, 0, 0));
    }
    return made;
}

/* A context is destroyed while it is current here; then its handle is another's. argument: how
 * contexts are made */
static void destroyed_elsewhere(void)
{
    CUcontext made, made_again, now;
    CUdeviceptr others, p;

    start();
    others = take(MIB);
    for (int i = 0; i < 3; i++) {
        made = make(arguments[0]);
        p = take(MIB);
        CHECK(cuMemFree_v2(take(4 * MIB)));
        in_another_thread(destroy_it, made);
        for (int k = 0; k < 2; k++) {
            tell_destroyed(others, p);
        }
        CHECK(cuCtxPopCurrent_v2(&now));
        made_again = make(arguments[0]);
        printf("popped %d, the same handle %d\n", now == made, made_again == made);
        for (int k = 0; k < 20; k++) {
            CHECK(cuMemFree_v2(take(MIB)));
        }
        CHECK(cuCtxDestroy_v2(made_again));
    }
    CHECK(cuMemFree_v2(others));
}

/* ---- a context goes in the middle of it ------------------------------------------------------ */

enum { WORKERS = 3 };

static struct {
    pthread_barrier_t barrier;
    CUcontext context;
    bool primary;
    atomic_bool over;
} hammer;

static bool may_be(CUresult result)
{
    return result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_VALUE;
}

static void expect_any(CUresult result, const char *what)
{
    if (!may_be(result)) {
        printf("%s gave %d\n", what, (int)result);
        fflush(stdout);
        _exit(9);
    }
}

static void work_while_it_lasts(void)
{
    CUdeviceptr p[SIZES] = {0};
    CUresult result = CUDA_SUCCESS;

    for (int turn = 0; turn < 200 && result == CUDA_SUCCESS; turn++) {
        int i = (int)(next() % SIZES);

        if (p[i] == 0) {
            result = cuMemAlloc_v2(&p[i], sizes[i]);
            expect_any(result, "cuMemAlloc");
            if (result != CUDA_SUCCESS) {
                p[i] = 0;
                break;
            }
            /* Not on it, for work that comes while a context goes may be left behind. */
            expect_any(cuMemsetD8Async(beside, 1, 4096, NULL), "cuMemsetD8Async");
            expect_any(cuMemcpyDtoHAsync_v2(host, beside, 4096, NULL), "cuMemcpyDtoHAsync");
        } else {
            result = next() % 3 == 0 ? cuMemFreeAsync(p[i], NULL) : cuMemFree_v2(p[i]);
            expect_any(result, "cuMemFree");
            p[i] = 0;
        }
    }
    expect_any(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void *worker(void *arg)
{
    CUcontext popped;

    begin_thread();
    for (int i = 0; i < rounds; i++) {
        pthread_barrier_wait(&hammer.barrier); /* there is a context */
        CHECK(cuCtxPushCurrent_v2(hammer.context));
        pthread_barrier_wait(&hammer.barrier); /* it is current everywhere */
        work_while_it_lasts();
        CHECK(cuCtxPopCurrent_v2(&popped));
        pthread_barrier_wait(&hammer.barrier); /* and nowhere */
    }
    return arg;
}

/* What is somebody else's stays his. */
static void *bystander(void *arg)
{
    CHECK(cuCtxCreate_v2(&(CUcontext){NULL}, 0, 0));
    begin_thread();
    while (!atomic_load(&hammer.over)) {
        size_t bytes = sizes[next() % SIZES];
        CUdeviceptr p = take(bytes);

        CHECK(cuMemsetD8_v2(p, 7, 4096));
        CHECK(cuMemcpyDtoH_v2(host, p, 4096));
        for (int i = 0; i < 4096; i += 512) {
            if (host[i] != 7) {
                printf("another's memory\n");
                _exit(9);
            }
        }
        CHECK(cuMemFree_v2(p));
    }
    return arg;
}

static void end_it(void)
{
    if (!hammer.primary) {
        CHECK(cuCtxDestroy_v2(hammer.context));
    } else if (next() % 2 == 0) {
        CHECK(cuDevicePrimaryCtxReset_v2(0));
    } else {
        unsigned flags;
        int active = 1;

        while (active != 0) {
            CHECK(cuDevicePrimaryCtxRelease_v2(0));
            CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
        }
    }
}

/* arguments: rounds, "created" or "primary" */
static void goes_among_work(void)
{
    pthread_t thread[WORKERS + 1];
    CUcontext own;

    CHECK(cuInit(0));
    CHECK(cuCtxCreate_v2(&own, 0, 0));
    begin();
    rounds = atoi(arguments[0]);
    hammer.primary = strcmp(arguments[1], "primary") == 0;
    pthread_barrier_init(&hammer.barrier, NULL, WORKERS + 1);
    for (int i = 0; i < WORKERS; i++) {
        pthread_create(&thread[i], NULL, worker, NULL);
    }
    pthread_create(&thread[WORKERS], NULL, bystander, NULL);
    for (int i = 0; i < rounds; i++) {
        CUcontext popped;

        if (hammer.primary) {
            CHECK(cuDevicePrimaryCtxRetain(&hammer.context, 0));
        } else {
            CHECK(cuCtxCreate_v2(&hammer.context, 0, 0));
            CHECK(cuCtxPopCurrent_v2(&popped));
        }
        pthread_barrier_wait(&hammer.barrier);
        pthread_barrier_wait(&hammer.barrier);
        usleep(next() % 3000);
        end_it();
        pthread_barrier_wait(&hammer.barrier);
    }
    atomic_store(&hammer.over, true);
    for (int i = 0; i <= WORKERS; i++) {
        pthread_join(thread[i], NULL);
    }
}

static const struct mode modes[] = {
    MODE(come_and_go), MODE(destroyed_elsewhere), MODE(green_goes), MODE(goes_among_work),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    return run_mode(argc, argv, modes);
}
