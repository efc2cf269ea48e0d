/*
 * A trace made ready to be replayed, any number of times: pointers resolved to slots (small
 * numbers, used again after a free), what cannot be replayed left out and counted.
 *
 * The operations lie in a temporary file without a name (TMPDIR or /tmp), 16 bytes each, so that
 * traces of any length are replayed in bounded memory; what is in memory grows with the blocks that
 * are live at once.
 */
#ifndef VS_REPORT_CLI_REPLAY_PLAN_H
#define VS_REPORT_CLI_REPLAY_PLAN_H

#include <stdint.h>
#include <stdio.h>

#include "report/cli/trace.h"

struct vs_replay_op {
    uint64_t bytes; /* 0: a free */
    uint32_t slot;
    uint32_t reserved;
};

struct vs_replay_plan {
    FILE *file;
    uint64_t operations; /* in the file */
    uint64_t allocations;
    uint64_t skipped;     /* frees of unknown pointers, and allocations of nothing */
    uint64_t implied;     /* frees that the trace lacks: an address was handed out while live */
    uint64_t passed_over; /* lines of other operations */
    uint64_t live_peak;   /* requested bytes */
    uint64_t count_peak;  /* blocks */
    uint32_t slots;
};

/* Reads a trace: 0, or -1 with message filled. */
int vs_replay_plan_read(struct vs_replay_plan *plan, const char *path,
                        char message[VS_TRACE_MESSAGE]);
void vs_replay_plan_fini(struct vs_replay_plan *plan);

#endif
