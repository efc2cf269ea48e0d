/*
 * A thread frees thousands of times behind work that does not end yet. Sooner or later a free
 * waits, natively the first one does; another thread submits work meanwhile. Natively that waits
 * for the free, so the work ends by itself after a while; with MANY_FREES=apart it only ends when
 * the other thread has come through, as it does with the shim.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cu.h"

enum { FREES = 5000 };
#define SIZE ((size_t)4096)

static CUcontext context;
static CUstream work, other;
static _Atomic int done;

static void *free_often(void *unused)
{
    CUdeviceptr p;

    (void)unused;
    MUST(cuCtxSetCurrent, context);
    while (done < FREES) {
        MUST(cuMemAlloc, &p, SIZE);
        MUST(cuMemsetD8Async, p, 1, SIZE, work);
        MUST(cuMemFree, p);
        done++;
    }
    return NULL;
}

static void *open_later(void *gate)
{
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    gate_open(gate);
    return NULL;
}

/* Waits until nothing has happened for a while. */
static void until_stuck(void)
{
    for (int before = -1; before != done && done < FREES;) {
        before = done;
        nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
    }
}

int main(int argc, char **argv)
{
    const char *how = getenv("MANY_FREES");
    const bool apart = how != NULL && strcmp(how, "apart") == 0;
    struct gate *gate;
    CUstream stopped;
    CUdeviceptr mine;
    pthread_t thread, opener;

    cu_start(argc, argv);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuStreamCreate, &stopped, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &work, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &mine, SIZE);
    gate = gate_new();
    gate_wait(gate, stopped);
    if (pthread_create(&thread, NULL, free_often, NULL) != 0)
        return 1;
    until_stuck();
    FACT(done < FREES);
    if (!apart && pthread_create(&opener, NULL, open_later, gate) != 0)
        return 1;
    TELL(cuMemsetD8Async, mine, 3, SIZE, other);
    if (apart) {
        FACT(!gate_passed(gate));
        gate_open(gate);
    }
    TELL(cuStreamSynchronize, other);
    pthread_join(thread, NULL);
    if (!apart)
        pthread_join(opener, NULL);
    FACT(done == FREES);
    FACT(cu_all_bytes(mine, SIZE, 3));
    MUST(cuMemFree, mine);
    gate_free(gate);
    return cu_end();
}
