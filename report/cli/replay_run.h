/*
 * One replay of a plan: the real pool over the bookkeeping device.
 *
 * Between an allocation and what comes after it the program is taken to submit work, so that an
 * open epoch is closed there as the shim would; the device has finished it when it is asked.
 */
#ifndef VS_REPORT_CLI_REPLAY_RUN_H
#define VS_REPORT_CLI_REPLAY_RUN_H

#include <stdbool.h>

#include "pool/pool.h"
#include "report/cli/replay_plan.h"

struct vs_replay_result {
    uint64_t reserved_peak; /* the most that the device had given */
    uint64_t failed;        /* allocations that were refused */
    uint64_t ns;            /* in the pool's calls */
    struct vs_pool_stats stats;
    const char *fault; /* NULL, or which rule the pool broke: then it is the pool that is wrong */
};

/* stop: end at the first allocation that is refused. 0, or a negative errno of this machine's. */
int vs_replay_run(const struct vs_replay_plan *plan, const struct vs_pool_config *config,
                  uint64_t cap, bool stop, struct vs_replay_result *result);

/* A device of the size that replays are run on: at least 64 GiB, and twice what is live at most. */
uint64_t vs_replay_device_bytes(const struct vs_replay_plan *plan);

#endif
