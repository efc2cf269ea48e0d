/*
 * Random programs for the world of world.h: what they do is drawn from a source of choices, so that
 * a seed, or a fuzzer's bytes, is a program.
 */
#ifndef VS_TESTS_UNIT_POOL_DRIVE_H
#define VS_TESTS_UNIT_POOL_DRIVE_H

#include "tests/unit/pool/world.h"

enum drive_sizes { DRIVE_MIXED, DRIVE_SMALL, DRIVE_LARGE, DRIVE_POWER, DRIVE_FEW, DRIVE_GIANT };

struct scenario {
    const char *name;
    enum vs_pool_backing backing;
    uint64_t cap;
    bool tight;                      /* no slack: remapping before growing */
    uint64_t keep_bytes, trim_above; /* trim_above 0: none */
    enum drive_sizes sizes;
    bool captures, holds, cannot_order, calm; /* calm: no trimming, decay, settling in between */
    uint32_t fail_permille, host_permille;    /* failures: of the device, of host memory */
    uint32_t lend_permille;                   /* as of struct world */
    bool gone;                                /* the context ends with blocks live */
    bool streams;                             /* stream-ordered calls as well */
    bool ordered;                             /* and no plain ones beside them */
    bool foreign;                             /* and streams of another context that free here */
    bool uncapped;                            /* the pool knows of no cap */
};

extern const struct scenario drive_scenarios[];
extern const unsigned drive_scenario_count;

/* Runs a program of so many steps; faults as of enum vs_pool_fault. The breach, or an empty text;
 * it stays until the next call. */
const char *drive(const struct scenario *scenario, struct choices *choices, unsigned steps,
                  uint32_t faults);

#endif
