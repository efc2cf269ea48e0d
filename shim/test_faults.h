/*
 * Faults that tests switch on (enum vs_pool_fault), in a build of their own: VS_TEST_FAULTS, a
 * number, or'd. A real build has none and asks nothing.
 */
#ifndef VS_SHIM_TEST_FAULTS_H
#define VS_SHIM_TEST_FAULTS_H

#include "pool/pool.h"

#ifdef VS_TEST_FAULTS
#include <stdlib.h>

static inline uint32_t vs_test_faults(void)
{
    const char *text = getenv("VS_TEST_FAULTS");
    uint32_t faults = 0;

    while (text != NULL && *text >= '0' && *text <= '9') {
        faults = faults * 10 + (uint32_t)(*text++ - '0');
    }
    return faults;
}
#else
static inline uint32_t vs_test_faults(void)
{
    return 0;
}
#endif

#endif
