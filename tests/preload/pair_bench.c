/*
 * Nanoseconds per cuMemAlloc + cuMemFree pair: pair_bench DRIVER THREADS. With a third argument,
 * `launch`: per cuLaunchKernel. Prints one number, the best of several rounds, so that a busy
 * machine disturbs it little.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, PAIRS = 100000 };

static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);
static __typeof__(&cuLaunchKernel) launch; /* NULL: pairs */
static double launched;                    /* ns, by whoever came last */
static pthread_barrier_t barrier;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Timed where they are made: a round is short beside the waking of another thread. */
static double launches(CUstream stream)
{
    double start = now();

    for (int i = 0; i < PAIRS; i++) {
        launch(NULL, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    }
    return now() - start;
}

static void *work(void *arg)
{
    CUstream stream = arg;

    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        if (launch != NULL) {
            launched = launches(stream);
        }
        for (int i = 0; i < PAIRS && launch == NULL; i++) {
            CUdeviceptr p;

            alloc(&p, 4096);
            release(p);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    void *driver = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    double best = 1e18;
    pthread_t thread[64];

    if (driver == NULL || threads < 1 || threads > 64) {
        fprintf(stderr, "usage: pair_bench DRIVER [THREADS [launch]]\n");
        return 2;
    }
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
    alloc = (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    release = (CUresult(*)(CUdeviceptr))dlsym(driver, "cuMemFree_v2");
    if (argc > 3 && strcmp(argv[3], "launch") == 0) {
        launch = (__typeof__(&cuLaunchKernel))dlsym(driver, "cuLaunchKernel");
    }
    if (init(0) != CUDA_SUCCESS) {
        return 1;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_create(&thread[i], NULL, work, NULL); /* on its default stream */
    }
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        double start = now();
        pthread_barrier_wait(&barrier);
        double took = (launch != NULL ? launched : now() - start) / PAIRS;
        best = took < best ? took : best;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
    }
    printf("%.1f\n", best);
    return 0;
}
