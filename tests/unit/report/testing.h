/* What the unit tests of report/ share: cmocka, and random numbers with a seed that is printed. */
#ifndef VS_TESTS_UNIT_REPORT_TESTING_H
#define VS_TESTS_UNIT_REPORT_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* VS_TEST_SEED repeats a run. */
static inline uint64_t testing_seed(void)
{
    const char *given = getenv("VS_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec * 2654435761u + 1;
    printf("VS_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

/* xorshift64*; *state is not 0. */
static inline uint64_t testing_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

#endif
