/* Many threads allocate, fill, check and free, some of it in another thread; nothing is left. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cu.h"

enum { THREADS = 8, ROUNDS = 200, SHARED = 64 };

static CUcontext context;
static _Atomic CUdeviceptr shared[SHARED];
static atomic_uint failures, bad_bytes, frees, allocs;

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *work(void *data)
{
    unsigned number = (unsigned)(uintptr_t)data, state = number * 7919 + 1;

    MUST(cuCtxSetCurrent, context);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr p = 0;
        size_t size = 1 + next(&state) % 65536;
        if (CU(cuMemAlloc)(&p, size) != CUDA_SUCCESS) {
            atomic_fetch_add(&failures, 1);
            continue;
        }
        atomic_fetch_add(&allocs, 1);
        unsigned char value = (unsigned char)(number + (unsigned)i), got = 0;
        MUST(cuMemsetD8, p, value, size);
        MUST(cuMemcpyDtoH, &got, p + size - 1, 1);
        if (got != value)
            atomic_fetch_add(&bad_bytes, 1);
        /* Hand it over, and free what was there before. */
        p = atomic_exchange(&shared[next(&state) % SHARED], p);
        if (p == 0)
            continue;
        atomic_fetch_add(&frees, 1);
        if (CU(cuMemFree)(p) != CUDA_SUCCESS)
            atomic_fetch_add(&failures, 1);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    size_t before = 0, after = 0, total = 0;

    cu_start(argc, argv);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuMemGetInfo, &before, &total);
    for (unsigned i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) != 0)
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < SHARED; i++) {
        if (shared[i] == 0)
            continue;
        atomic_fetch_add(&frees, 1);
        if (CU(cuMemFree)(shared[i]) != CUDA_SUCCESS)
            atomic_fetch_add(&failures, 1);
    }
    MUST(cuMemGetInfo, &after, &total);
    cu_say("allocated %u, freed %u, failed %u, wrong bytes %u", atomic_load(&allocs),
           atomic_load(&frees), atomic_load(&failures), atomic_load(&bad_bytes));
    FACT(after == before);
    return cu_end();
}
