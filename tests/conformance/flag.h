/*
 * A flag in pinned memory that work on the device waits for and that something sets, with a
 * watchdog for programs which would hang otherwise: FLAG_PATIENCE seconds (15) after flag_arm() it
 * sets the flag itself, and flag_disarm() tells.
 */
#ifndef VS_TESTS_CONFORMANCE_FLAG_H
#define VS_TESTS_CONFORMANCE_FLAG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "cu.h"

static uint32_t *flag_word; /* pinned */
static CUdeviceptr flag_address;
static atomic_int flag_patience_ms = -1; /* left; below 0: off */
static atomic_bool flag_bitten;

static inline void flag_raise(uint32_t value)
{
    __atomic_store_n(flag_word, value, __ATOMIC_SEQ_CST);
}

static void *flag_watch(void *unused)
{
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        if (atomic_load(&flag_patience_ms) >= 0 && atomic_fetch_sub(&flag_patience_ms, 5) <= 5) {
            atomic_store(&flag_bitten, true);
            flag_raise(1);
        }
    }
    return unused;
}

/* Once; a context is current. */
static inline void flag_start(void)
{
    pthread_t watchdog;

    MUST(cuMemHostAlloc, (void **)&flag_word, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
    MUST(cuMemHostGetDevicePointer, &flag_address, flag_word, 0);
    if (pthread_create(&watchdog, NULL, flag_watch, NULL) != 0)
        abort();
}

/* The flag is 0, and the watchdog counts. */
static inline void flag_arm(void)
{
    const char *seconds = getenv("FLAG_PATIENCE");

    flag_raise(0);
    atomic_store(&flag_bitten, false);
    atomic_store(&flag_patience_ms, (seconds != NULL ? atoi(seconds) : 15) * 1000);
}

/* Whether the watchdog was not needed. */
static inline bool flag_disarm(void)
{
    atomic_store(&flag_patience_ms, -1);
    return !atomic_load(&flag_bitten);
}

#endif
