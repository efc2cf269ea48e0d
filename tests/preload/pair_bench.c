/*
 * Nanoseconds of what a program does all the time, by way of a driver:
 *
 *     pair_bench DRIVER [THREADS [WHAT [BYTES]]]
 *
 * WHAT: pair = cuMemAlloc and cuMemFree; launch = cuLaunchKernel; between = a launch between the
 * two; after = the two, then a launch; async = cuMemAllocAsync and cuMemFreeAsync on a stream; null
 * = the same on the null stream. BYTES: of an allocation; 0 = 512 bytes to 2 MiB, mixed, a few live
 * at a time. Prints one number, per round of a thread, the best of several: of one thread the
 * processor's time, so that a busy machine disturbs it little; of several the time that passed for
 * the slowest.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, PAIRS = 100000, LIVE = 16 };
enum what { PAIR = 1, LAUNCH, BETWEEN, AFTER, ASYNC, ON_NULL };

static CUcontext context;
static const CUstream named = (CUstream)(uintptr_t)0x5000; /* the driver looks at none */

static CUresult (*init)(unsigned);
static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);
static CUresult (*retain)(CUcontext *, CUdevice);
static CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream);
static CUresult (*release_async)(CUdeviceptr, CUstream);
static __typeof__(&cuLaunchKernel) launch;
static enum what what = PAIR;
static size_t bytes = 4096;
static _Atomic int failures;
static double took[64];
static pthread_barrier_t barrier;
static clockid_t clock_id = CLOCK_THREAD_CPUTIME_ID;

static double now(void)
{
    struct timespec t;

    clock_gettime(clock_id, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void submit(CUstream stream)
{
    launch(NULL, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static void take(CUdeviceptr *p, size_t size)
{
    if (alloc(p, size) != CUDA_SUCCESS) {
        failures++;
        *p = 0;
    }
}

static void pairs_on(CUstream stream)
{
    for (int i = 0; i < PAIRS; i++) {
        CUdeviceptr p = 0;

        if (alloc_async(&p, bytes, stream) != CUDA_SUCCESS ||
            release_async(p, stream) != CUDA_SUCCESS) {
            failures++;
        }
    }
}

static void mixed(uint64_t seed)
{
    CUdeviceptr live[LIVE] = {0};

    for (int i = 0; i < PAIRS; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        size_t size = (size_t)512 << (seed >> 60) % 13;

        release(live[i % LIVE]);
        take(&live[i % LIVE], size - (size_t)(seed >> 33) % (size / 2));
    }
    for (int i = 0; i < LIVE; i++) {
        release(live[i]);
    }
}

static void loop(CUstream stream)
{
    CUdeviceptr p;

    switch (what) {
    case PAIR:
        for (int i = 0; i < PAIRS; i++) {
            take(&p, bytes);
            release(p);
        }
        break;
    case LAUNCH:
        for (int i = 0; i < PAIRS; i++) {
            submit(stream);
        }
        break;
    case BETWEEN:
        for (int i = 0; i < PAIRS; i++) {
            take(&p, bytes);
            submit(stream);
            release(p);
        }
        break;
    case AFTER:
        for (int i = 0; i < PAIRS; i++) {
            take(&p, bytes);
            release(p);
            submit(stream);
        }
        break;
    case ASYNC:
        pairs_on(named);
        break;
    case ON_NULL:
        pairs_on(NULL);
        break;
    }
}

/* Timed where it is done: a round is short beside the waking of another thread. */
static void *work(void *arg)
{
    int self = (int)(intptr_t)arg;

    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        double start = now();
        if (bytes == 0) {
            mixed((uint64_t)self * 7919 + 1);
        } else {
            loop(NULL);
        }
        took[self] = now() - start;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static enum what what_of(const char *name)
{
    static const struct {
        const char *name;
        enum what what;
    } known[] = {{"pair", PAIR},   {"launch", LAUNCH}, {"between", BETWEEN},
                 {"after", AFTER}, {"async", ASYNC},   {"null", ON_NULL}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, name) == 0) {
            return known[i].what;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    void *driver = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    double best = 1e18;
    pthread_t thread[64];

    what = argc > 3 ? what_of(argv[3]) : PAIR;
    bytes = argc > 4 ? strtoull(argv[4], NULL, 0) : bytes;
    if (driver == NULL || threads < 1 || threads > 64 || what == 0) {
        fprintf(
            stderr,
            "usage: pair_bench DRIVER [THREADS [pair|launch|between|after|async|null [BYTES]]]\n");
        return 2;
    }
    init = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
    alloc = (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    release = (CUresult(*)(CUdeviceptr))dlsym(driver, "cuMemFree_v2");
    launch = (__typeof__(&cuLaunchKernel))dlsym(driver, "cuLaunchKernel");
    retain = (__typeof__(&cuDevicePrimaryCtxRetain))dlsym(driver, "cuDevicePrimaryCtxRetain");
    alloc_async = (__typeof__(&cuMemAllocAsync))dlsym(driver, "cuMemAllocAsync");
    release_async = (__typeof__(&cuMemFreeAsync))dlsym(driver, "cuMemFreeAsync");
    if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS) {
        return 1;
    }
    clock_id = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        double longest = 0;

        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < threads; i++) {
            longest = took[i] > longest ? took[i] : longest;
        }
        best = longest / PAIRS < best ? longest / PAIRS : best;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    if (failures != 0) {
        fprintf(stderr, "%d allocations failed\n", failures);
        return 1;
    }
    printf("%.1f\n", best);
    return 0;
}
