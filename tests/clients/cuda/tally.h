/*
 * What a client program itself took and gave back: the number that the shim's report must agree
 * with.
 *
 * The program calls tally_* beside each successful (or failed) memory call, and tally_print() where
 * it has made its last one; the line "expect: {…}" on stdout holds JSON whose keys
 * scripts/gpu-check maps to fields of the report. A key that a program cannot know (a peak under
 * threads) is set to -1, and is then printed as null, which means: not compared.
 *
 * Threads: tally_alloc and tally_free may be called from any thread; the rest only while one runs.
 */
#ifndef VS_CLIENT_TALLY_H
#define VS_CLIENT_TALLY_H

#include <pthread.h>
#include <stdio.h>

enum tally_kind { TALLY_PLAIN, TALLY_ASYNC, TALLY_MANAGED, TALLY_KINDS };

static struct {
    long long allocs, frees, bytes, failed;
    long long live_bytes, live_count, peak_bytes;
    long long leak_bytes, leak_count; /* of contexts that died and took memory along */
    long long kind_now[TALLY_KINDS], kind_peak[TALLY_KINDS];
    pthread_mutex_t lock;
} tally = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void tally_alloc(enum tally_kind kind, size_t bytes)
{
    pthread_mutex_lock(&tally.lock);
    tally.allocs++;
    tally.bytes += (long long)bytes;
    tally.live_count++;
    tally.live_bytes += (long long)bytes;
    tally.kind_now[kind] += (long long)bytes;
    if (tally.peak_bytes >= 0 && tally.live_bytes > tally.peak_bytes)
        tally.peak_bytes = tally.live_bytes;
    if (tally.kind_peak[kind] >= 0 && tally.kind_now[kind] > tally.kind_peak[kind])
        tally.kind_peak[kind] = tally.kind_now[kind];
    pthread_mutex_unlock(&tally.lock);
}

static void tally_free(enum tally_kind kind, size_t bytes)
{
    pthread_mutex_lock(&tally.lock);
    if (tally.frees >= 0)
        tally.frees++;
    tally.live_count--;
    tally.live_bytes -= (long long)bytes;
    tally.kind_now[kind] -= (long long)bytes;
    pthread_mutex_unlock(&tally.lock);
}

static inline void tally_failed(void)
{
    tally.failed++;
}

/* The context is gone: nothing is live any more, but what was not freed stays a leak. The number of
 * frees is not compared from here on: nobody called free. */
static inline void tally_context_gone(void)
{
    tally.leak_bytes += tally.live_bytes;
    tally.leak_count += tally.live_count;
    tally.live_bytes = tally.live_count = 0;
    tally.frees = -1;
    for (int kind = 0; kind < TALLY_KINDS; kind++)
        tally.kind_now[kind] = 0;
}

/* Threads are about to run: the order of their calls is unknown, so no peak is. */
static inline void tally_no_peak(void)
{
    tally.peak_bytes = -1;
    for (int kind = 0; kind < TALLY_KINDS; kind++)
        tally.kind_peak[kind] = -1;
}

static void tally_number(const char *name, long long value, const char *end)
{
    if (value < 0)
        printf("\"%s\": null%s", name, end);
    else
        printf("\"%s\": %lld%s", name, value, end);
}

static void tally_print(void)
{
    printf("expect: {");
    tally_number("alloc_count", tally.allocs, ", ");
    tally_number("free_count", tally.frees, ", ");
    tally_number("alloc_bytes", tally.bytes, ", ");
    tally_number("failed_count", tally.failed, ", ");
    tally_number("live_bytes", tally.live_bytes, ", ");
    tally_number("live_count", tally.live_count, ", ");
    tally_number("peak_bytes", tally.peak_bytes, ", ");
    tally_number("leak_bytes", tally.live_bytes + tally.leak_bytes, ", ");
    tally_number("leak_count", tally.live_count + tally.leak_count, ", ");
    tally_number("plain_peak", tally.kind_peak[TALLY_PLAIN], ", ");
    tally_number("async_peak", tally.kind_peak[TALLY_ASYNC], ", ");
    tally_number("managed_peak", tally.kind_peak[TALLY_MANAGED], "}\n");
    fflush(stdout);
}

#endif
