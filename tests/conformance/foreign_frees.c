/*
 * Frees from elsewhere: on threads that have no context, with another context or another device
 * current. Memory goes back to whom it belongs to, whole, and once. With FOREIGN_FREES=race also
 * two at once of one block, which a driver was seen to accept twice, or to crash on.
 *
 * With several devices, another device is another device; with one, another context of it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "launch.h"

enum { PLACES = 3, BLOCKS = 96, RACES = 200 };

static struct place {
    CUcontext context;
    CUstream stream;
    CUdeviceptr block[BLOCKS];
} places[PLACES];

static atomic_uint failed, freed, refused;
static _Atomic CUdeviceptr contested;
static pthread_barrier_t barrier;

static size_t size_of(int i)
{
    return (size_t)512 << i % 13;
}

static void fill(struct place *place, int number)
{
    MUST(cuCtxSetCurrent, place->context);
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc, &place->block[i], size_of(i));
        MUST(cuMemsetD8Async, place->block[i], (unsigned char)(100 + number), size_of(i),
             place->stream);
    }
}

static unsigned wrong_in(struct place *place, int number, int from)
{
    unsigned wrong = 0;

    MUST(cuCtxSetCurrent, place->context);
    MUST(cuCtxSynchronize);
    for (int i = from; i < BLOCKS; i += 2)
        wrong += !cu_all_bytes(place->block[i], size_of(i), (unsigned char)(100 + number));
    return wrong;
}

/* Frees every other block of all places, with what is current here. */
static void free_all(int from)
{
    for (int i = from; i < BLOCKS; i += 2) {
        for (int k = 0; k < PLACES; k++) {
            if (CU(cuMemFree)(places[k].block[i]) != CUDA_SUCCESS)
                atomic_fetch_add(&failed, 1);
        }
    }
}

static void *free_without(void *from)
{
    CUcontext now = NULL;

    MUST(cuCtxGetCurrent, &now);
    FACT(now == NULL);
    free_all((int)(uintptr_t)from);
    return NULL;
}

static void in_thread(void *(*what)(void *), void *data)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, what, data) == 0)
        pthread_join(thread, NULL);
}

static void *contest(void *context)
{
    MUST(cuCtxSetCurrent, context);
    for (int i = 0; i < RACES; i++) {
        pthread_barrier_wait(&barrier);
        CUresult result = CU(cuMemFree)(atomic_load(&contested));
        if (result == CUDA_SUCCESS)
            atomic_fetch_add(&freed, 1);
        else if (result == CUDA_ERROR_INVALID_VALUE)
            atomic_fetch_add(&refused, 1);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void two_at_once(void)
{
    pthread_t one, two;

    pthread_barrier_init(&barrier, NULL, 3);
    MUST(cuCtxSetCurrent, places[0].context);
    if (pthread_create(&one, NULL, contest, places[1].context) != 0 ||
        pthread_create(&two, NULL, contest, NULL) != 0)
        abort();
    for (int i = 0; i < RACES; i++) {
        CUdeviceptr p = 0;
        MUST(cuMemAlloc, &p, size_of(i));
        atomic_store(&contested, p);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    pthread_barrier_destroy(&barrier);
    FACT(atomic_load(&freed) == RACES && atomic_load(&refused) == RACES);
}

int main(int argc, char **argv)
{
    int devices;

    cu_start(argc, argv);
    MUST(cuDeviceGetCount, &devices);
    MUST(cuCtxGetCurrent, &places[0].context);
    for (int k = 0; k < PLACES; k++) {
        CUcontext now;
        if (k > 0 && k < devices)
            MUST(cuDevicePrimaryCtxRetain, &places[k].context, k);
        else if (k > 0) {
            MUST(cuCtxCreate, &places[k].context, NULL, 0, 0);
            MUST(cuCtxPopCurrent, &now);
        }
        MUST(cuCtxSetCurrent, places[k].context);
        MUST(cuStreamCreate, &places[k].stream, CU_STREAM_NON_BLOCKING);
    }
    for (int round = 0; round < 3; round++) {
        unsigned wrong = 0;
        for (int k = 0; k < PLACES; k++)
            fill(&places[k], k + round);
        if (round == 0) {
            MUST(cuCtxSetCurrent, places[0].context);
            free_all(0);
        } else {
            in_thread(free_without, 0);
        }
        for (int k = 0; k < PLACES; k++)
            wrong += wrong_in(&places[k], k + round, 1);
        /* The last place is current now. */
        free_all(1);
        cu_say("round %d: wrong blocks %u, failed frees %u", round, wrong, atomic_load(&failed));
    }
    cu_say("once more");
    unsigned accepted = 0;
    for (int k = 0; k < PLACES; k++) {
        for (int i = 0; i < BLOCKS; i++)
            accepted += CU(cuMemFree)(places[k].block[i]) == CUDA_SUCCESS;
    }
    cu_say("accepted %u", accepted);
    if (getenv("FOREIGN_FREES") != NULL)
        two_at_once();
    cu_say("the owner is gone");
    CUdeviceptr p;
    MUST(cuCtxCreate, &places[1].context, NULL, 0, 0);
    MUST(cuMemAlloc, &p, 1 << 20);
    MUST(cuCtxDestroy, places[1].context);
    MUST(cuCtxSetCurrent, places[0].context);
    TELL(cuMemFree, p);
    return cu_end();
}
