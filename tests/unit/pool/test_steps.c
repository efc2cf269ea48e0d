/*
 * usage: test_steps TRACE OPERATIONS [STEPS]
 *
 * A trace of a program that repeats itself, with the shipped policy: its last STEPS times
 * OPERATIONS (default 2) ask nothing of the device, neither new memory nor mappings, and what is
 * held stays within 1.07 of what is live at most.
 */
#include "pool/pool.h"
#include "report/cli/replay_device.h"
#include "report/cli/replay_run.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 1.07
#define MIB (UINT64_C(1) << 20)

static uint64_t mapped_bytes; /* ever */

static int counted_map(void *world, uint64_t address, uint64_t bytes, uint64_t handle)
{
    mapped_bytes += bytes;
    return vs_replay_device_ops.map(world, address, bytes, handle);
}

static uint64_t calls(const struct vs_replay_device *device)
{
    return device->creates + device->releases + device->maps + device->unmaps;
}

/* One operation; false where the pool refuses. */
static bool one(struct vs_pool *pool, uint64_t *addresses, const struct vs_replay_op *op)
{
    struct vs_pool_request request = {.bytes = op->bytes};
    uint64_t address = addresses[op->slot];

    if (op->bytes == 0) {
        addresses[op->slot] = 0;
        return address == 0 || vs_pool_free(pool, address, 0) == 0;
    }
    return vs_pool_alloc(pool, &request, &addresses[op->slot]) == 0 &&
           (!vs_pool_open_epoch(pool) || vs_pool_close_epoch(pool) == 0);
}

static int run(const struct vs_replay_plan *plan, uint64_t operations, uint64_t steps)
{
    struct vs_pool_ops ops = vs_replay_device_ops;
    struct vs_replay_device device;
    struct vs_pool_config config;
    struct vs_replay_op op;
    uint64_t *addresses = calloc(plan->slots, sizeof(*addresses));
    uint64_t before = 0, asked = 0, moved = 0;
    struct vs_pool *pool;
    double share;
    int error;

    ops.map = counted_map;
    vs_replay_device_init(&device, vs_replay_device_bytes(plan));
    vs_pool_config_default(&config, VS_POOL_VMM, vs_replay_device_bytes(plan));
    pool = vs_pool_new(&config, &ops, &device, &error);
    if (!addresses || !pool || plan->operations < steps * operations) {
        printf("no pool, or a trace of %ju operations only\n", (uintmax_t)plan->operations);
        return 1;
    }
    rewind(plan->file);
    for (uint64_t i = 0; i < plan->operations; i++) {
        if (fread(&op, sizeof(op), 1, plan->file) != 1 || !one(pool, addresses, &op)) {
            printf("operation %ju does not work\n", (uintmax_t)i);
            return 1;
        }
        if ((plan->operations - 1 - i) % operations == 0) {
            asked = calls(&device) - before;
            before = calls(&device);
            printf("to operation %ju: %ju device calls, %ju MiB mapped\n", (uintmax_t)i + 1,
                   (uintmax_t)asked, (uintmax_t)((mapped_bytes - moved) / MIB));
            moved = mapped_bytes;
            if (plan->operations - 1 - i < steps * operations && asked) {
                printf("which should have settled\n");
                return 1;
            }
        }
    }
    share = (double)device.peak / (double)plan->live_peak;
    printf("%ju MiB live at most, %.4f of that held\n", (uintmax_t)(plan->live_peak / MIB), share);
    vs_pool_free_all(pool, false);
    vs_replay_device_fini(&device);
    free(addresses);
    if (device.breach) {
        printf("%s\n", device.breach);
    }
    return device.breach || share > MOST;
}

int main(int argc, char **argv)
{
    char message[VS_TRACE_MESSAGE];
    struct vs_replay_plan plan;
    uint64_t operations = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    int failed;

    if (operations == 0) {
        printf("usage: %s TRACE OPERATIONS [STEPS]\n", argv[0]);
        return 2;
    }
    if (vs_replay_plan_read(&plan, argv[1], message)) {
        printf("%s\n", message);
        return 1;
    }
    failed = run(&plan, operations, argc > 3 ? strtoull(argv[3], NULL, 10) : 2);
    vs_replay_plan_fini(&plan);
    return failed;
}
