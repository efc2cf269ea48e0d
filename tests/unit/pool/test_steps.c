/*
 * usage: test_steps TRACE OPERATIONS [ROUNDS]
 *
 * A trace of a program that repeats itself, OPERATIONS in a round, with the shipped policy, and
 * then ROUNDS (default 24) more like its last: the last eight ask nothing of the device, neither
 * new memory nor mappings, and what is held stays within 1.07 of what is live at most.
 */
#include "pool/pool.h"
#include "report/cli/replay_device.h"
#include "report/cli/replay_run.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 1.07
#define QUIET 8
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

/* A trace whose last `operations` are one round of a loop, and more rounds made from it: a free in
 * a round is of what was taken at the same place of that round or the one before. */
struct loop {
    struct vs_replay_op *ops;
    uint64_t count, round;
    uint64_t *taken;     /* per operation: where what it frees was taken */
    uint64_t *addresses; /* per allocation, by where it was taken */
};

static bool load(struct loop *loop, const struct vs_replay_plan *plan, uint64_t round,
                 uint64_t rounds)
{
    uint64_t *at = calloc(plan->slots, sizeof(*at));
    loop->count = plan->operations;
    loop->round = round;
    loop->ops = calloc(loop->count, sizeof(*loop->ops));
    loop->taken = calloc(loop->count, sizeof(*loop->taken));
    loop->addresses = calloc(loop->count + rounds * round, sizeof(*loop->addresses));
    rewind(plan->file);
    if (!at || !loop->ops || !loop->taken || !loop->addresses ||
        fread(loop->ops, sizeof(*loop->ops), loop->count, plan->file) != loop->count) {
        free(at);
        return false;
    }
    for (uint64_t i = 0; i < loop->count; i++) {
        if (loop->ops[i].bytes) {
            at[loop->ops[i].slot] = i;
        } else {
            loop->taken[i] = at[loop->ops[i].slot];
        }
    }
    free(at);
    return true;
}

/* Operation i, of which those past the trace's end repeat its last round. */
static bool one(struct vs_pool *pool, struct loop *loop, uint64_t i)
{
    uint64_t from =
        i < loop->count ? i : loop->count - loop->round + (i - loop->count) % loop->round;
    const struct vs_replay_op *op = &loop->ops[from];
    struct vs_pool_request request = {.bytes = op->bytes};
    uint64_t *address = &loop->addresses[op->bytes ? i : i - from + loop->taken[from]];

    if (op->bytes == 0) {
        return *address == 0 || vs_pool_free(pool, *address) == 0;
    }
    return vs_pool_alloc(pool, &request, address) == 0 &&
           (!vs_pool_open_epoch(pool) || vs_pool_close_epoch(pool) == 0);
}

static int run(struct loop *loop, const struct vs_replay_plan *plan, uint64_t rounds)
{
    struct vs_pool_ops ops = vs_replay_device_ops;
    struct vs_replay_device device;
    struct vs_pool_config config;
    uint64_t before = 0, moved = 0, all = loop->count + rounds * loop->round;
    struct vs_pool *pool;
    int error;

    ops.map = counted_map;
    vs_replay_device_init(&device, vs_replay_device_bytes(plan));
    vs_pool_config_default(&config, VS_POOL_VMM, vs_replay_device_bytes(plan));
    pool = vs_pool_new(&config, &ops, &device, &error);
    for (uint64_t i = 0; pool && i < all; i++) {
        if (!one(pool, loop, i)) {
            printf("operation %ju does not work\n", (uintmax_t)i);
            return 1;
        }
        if ((all - 1 - i) % loop->round != 0) {
            continue;
        }
        int invalid = vs_pool_validate(pool);
        if (invalid) {
            printf("to operation %ju: invariant %d does not hold\n", (uintmax_t)i + 1, invalid);
            return 1;
        }
        uint64_t asked = calls(&device) - before;
        printf("to operation %ju: %ju device calls, %ju MiB mapped\n", (uintmax_t)i + 1,
               (uintmax_t)asked, (uintmax_t)((mapped_bytes - moved) / MIB));
        before = calls(&device);
        moved = mapped_bytes;
        if (all - 1 - i < QUIET * loop->round && asked) {
            printf("which should have settled\n");
            return 1;
        }
    }
    double share = (double)device.peak / (double)plan->live_peak;
    printf("%ju MiB live at most, %.4f of that held\n", (uintmax_t)(plan->live_peak / MIB), share);
    vs_pool_free_all(pool, false);
    vs_replay_device_fini(&device);
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
        printf("usage: %s TRACE OPERATIONS [ROUNDS]\n", argv[0]);
        return 2;
    }
    if (vs_replay_plan_read(&plan, argv[1], message)) {
        printf("%s\n", message);
        return 1;
    }
    uint64_t rounds = argc > 3 ? strtoull(argv[3], NULL, 10) : 24;
    struct loop loop;
    failed = !load(&loop, &plan, operations, rounds) || run(&loop, &plan, rounds);
    free(loop.ops);
    free(loop.taken);
    free(loop.addresses);
    vs_replay_plan_fini(&plan);
    return failed;
}
