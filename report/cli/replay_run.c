/*
 * One replay of a plan (see replay_run.h). Operations are read in batches, so that the clock is
 * asked twice per batch and sees nothing but the pool.
 */
#include "report/cli/replay_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/cli/replay_device.h"

#define BATCH 1024

struct run {
    struct vs_pool *pool;
    uint64_t *addresses; /* by slot; 0: not live */
    uint64_t failed;
    int error; /* of the pool, other than -ENOMEM */
    bool stop;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int one(struct run *run, const struct vs_replay_op *op)
{
    struct vs_pool_request request = {.bytes = op->bytes};
    uint64_t *address = &run->addresses[op->slot];
    int result;

    if (op->bytes == 0) {
        result = *address ? vs_pool_free(run->pool, *address) : 0;
        *address = 0;
        return result;
    }
    result = vs_pool_alloc(run->pool, &request, address);
    if (result) {
        *address = 0;
        run->failed++;
        return result == -ENOMEM ? 0 : result;
    }
    return vs_pool_open_epoch(run->pool) ? vs_pool_close_epoch(run->pool) : 0;
}

static void batch(struct run *run, const struct vs_replay_op *ops, size_t count)
{
    for (size_t i = 0; i < count && run->error == 0 && !(run->stop && run->failed); i++) {
        run->error = one(run, &ops[i]);
    }
}

static int replay(struct run *run, const struct vs_replay_plan *plan,
                  struct vs_replay_result *result)
{
    static struct vs_replay_op ops[BATCH];
    size_t count;

    rewind(plan->file);
    while ((count = fread(ops, sizeof(ops[0]), BATCH, plan->file)) > 0) {
        uint64_t begin = now_ns();

        batch(run, ops, count);
        result->ns += now_ns() - begin;
        if (run->error || (run->stop && run->failed)) {
            return 0;
        }
    }
    return ferror(plan->file) ? -EIO : 0;
}

/* Everything goes back, and nothing may be left. */
static const char *end(struct run *run, const struct vs_replay_plan *plan,
                       struct vs_replay_device *device)
{
    for (uint32_t i = 0; i < plan->slots; i++) {
        if (run->addresses[i] && vs_pool_free(run->pool, run->addresses[i])) {
            run->error = -EINVAL;
        }
    }
    if (vs_pool_settle(run->pool)) {
        run->error = -EINVAL;
    }
    vs_pool_free_all(run->pool, false);
    if (device->breach) {
        return device->breach;
    }
    if (run->error) {
        return "a call failed that cannot";
    }
    return vs_replay_device_leak(device);
}

int vs_replay_run(const struct vs_replay_plan *plan, const struct vs_pool_config *config,
                  uint64_t cap, bool stop, struct vs_replay_result *result)
{
    static struct vs_replay_kept kept; /* of the runs before */
    struct vs_replay_device device;
    struct run run = {.stop = stop};
    int error = -ENOMEM;

    memset(result, 0, sizeof(*result));
    vs_replay_device_init(&device, cap);
    device.kept = &kept;
    run.addresses = calloc(plan->slots, sizeof(*run.addresses));
    run.pool = run.addresses ? vs_pool_new(config, &vs_replay_device_ops, &device, &error) : NULL;
    if (run.pool) {
        error = replay(&run, plan, result);
        vs_pool_stats(run.pool, &result->stats);
        result->reserved_peak = device.peak;
        result->failed = run.failed;
        result->fault = end(&run, plan, &device);
    }
    free(run.addresses);
    vs_replay_device_fini(&device);
    return error;
}

uint64_t vs_replay_device_bytes(const struct vs_replay_plan *plan)
{
    uint64_t bytes = UINT64_C(64) << 30;

    while (bytes < 2 * plan->live_peak && bytes < UINT64_C(1) << 42) {
        bytes *= 2;
    }
    return bytes;
}
