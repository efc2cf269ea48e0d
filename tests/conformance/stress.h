/*
 * What the stress programs share: settings from the environment, numbers that repeat with the seed,
 * calls that have to succeed and are counted where they do not.
 */
#ifndef VS_TESTS_CONFORMANCE_STRESS_H
#define VS_TESTS_CONFORMANCE_STRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

static atomic_uint stress_failed, stress_wrong_on_host;

static inline unsigned stress_setting(const char *name, unsigned value)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 0) : value;
}

static inline unsigned stress_next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Sizes from 512 bytes up, each power of two as likely as another; whole words. */
static inline size_t stress_size(unsigned *state, size_t largest)
{
    size_t room = 512;
    unsigned doublings = 0;
    while (room << (doublings + 1) <= largest)
        doublings++;
    room <<= stress_next(state) % (doublings + 1);
    size_t size = (room + stress_next(state) % room) & ~(size_t)3;
    return size < largest ? size : largest;
}

/* The first few failures are told. */
static inline void stress_expect(const char *what, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    if (atomic_fetch_add(&stress_failed, 1) < 5)
        fprintf(stderr, "%s: %s\n", what, cu_result_name(result));
}
#define DO(name, ...) stress_expect(#name, CU(name)(__VA_ARGS__))

/* What others capture must not forbid what this thread does. */
static inline void stress_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    DO(cuThreadExchangeStreamCaptureMode, &mode);
}

/* Its holder's, and different each time. */
static inline uint32_t stress_pattern(unsigned holder, unsigned *uses)
{
    return (holder << 24) ^ (++*uses * 2654435761u >> 8) ^ 0x5a000000u;
}

static void CUDA_CB stress_nothing(void *unused)
{
    (void)unused;
}

/* What is submitted behind it comes late. */
static inline void stress_delay(unsigned *state, CUstream stream)
{
    if (stress_next(state) % 8 == 0)
        DO(cuLaunchHostFunc, stream, stress_nothing, NULL);
    stress_expect("spin_us", kernel_spin_us(stream, 50 + stress_next(state) % 1000));
}

static inline void stress_check_host(const unsigned char *host, uint32_t value, size_t size)
{
    unsigned wrong = 0;
    size &= ~(size_t)3;
    if (size == 0 || (memcmp(host, &value, 4) == 0 && memcmp(host, host + 4, size - 4) == 0))
        return;
    for (size_t at = 0; at < size; at += 4)
        wrong += memcmp(host + at, &value, 4) != 0;
    atomic_fetch_add(&stress_wrong_on_host, wrong);
}

/* A thread's streams: three non-blocking ones, a blocking one, its own, the legacy one. */
enum { STRESS_STREAMS = 6 };
static inline void stress_open(CUcontext context, CUstream *streams)
{
    DO(cuCtxSetCurrent, context);
    stress_relax();
    for (int i = 0; i < 4; i++)
        DO(cuStreamCreate, &streams[i], i < 3 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    streams[4] = CU_STREAM_PER_THREAD;
    streams[5] = CU_STREAM_LEGACY;
}

static inline void stress_close(const CUstream *streams)
{
    for (int i = 0; i < STRESS_STREAMS; i++)
        DO(cuStreamSynchronize, streams[i]);
    for (int i = 0; i < 4; i++)
        DO(cuStreamDestroy, streams[i]);
}

/* One of the three modes. */
static inline CUstreamCaptureMode stress_mode(unsigned *state)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    return modes[stress_next(state) % 3];
}

#endif
