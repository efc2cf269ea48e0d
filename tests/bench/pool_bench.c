/*
 * What the pool costs on the CPU, over a device that is nothing but bookkeeping and whose fences
 * pass at once: nanoseconds for an allocation and its free, and host memory for a live block.
 *
 * Usage: pool_bench [--quick] [TRACE...]
 *        pool_bench --threads N    the mixed part alone, with so many threads
 * Each figure is the best of several rounds (the machine's own noise only adds). TRACE: as of
 * vramshim replay.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report/cli/replay_device.h"
#include "report/cli/replay_run.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MOST_THREADS 16
#define RING 64

static unsigned rounds = 5;
static unsigned long pairs = 1000000;

static const char *const names[] = {"vmm", "native"};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d) >> 11;
}

struct bench {
    struct vs_replay_device device;
    struct vs_pool *pool;
};

static struct bench bench;

static void begin(enum vs_pool_backing backing)
{
    struct vs_pool_config config;
    int error;

    vs_pool_config_default(&config, backing, 64 * GIB);
    vs_replay_device_init(&bench.device, 64 * GIB);
    bench.pool = vs_pool_new(&config, &vs_replay_device_ops, &bench.device, &error);
    if (!bench.pool) {
        abort();
    }
}

static void end(void)
{
    vs_pool_settle(bench.pool);
    vs_pool_free_all(bench.pool, true);
    vs_replay_device_fini(&bench.device);
}

static uint64_t take(uint64_t bytes, uint32_t lane)
{
    struct vs_pool_request request = {.bytes = bytes, .lane = lane};
    uint64_t address;

    if (vs_pool_alloc(bench.pool, &request, &address)) {
        abort();
    }
    return address;
}

static void drop(uint64_t address)
{
    if (vs_pool_free(bench.pool, address)) {
        abort();
    }
}

/* The program submits work. */
static void submit(void)
{
    if (vs_pool_open_epoch(bench.pool)) {
        vs_pool_close_epoch(bench.pool);
    }
}

static double least(double best, uint64_t ns, double count)
{
    double each = (double)ns / count;

    return best == 0 || each < best ? each : best;
}

/* One size, taken and freed, with work between them or without. */
static double pair(enum vs_pool_backing backing, uint64_t bytes, bool work)
{
    double best = 0;

    begin(backing);
    for (unsigned round = 0; round <= rounds; round++) {
        uint64_t start = now_ns();

        for (unsigned long i = 0; i < pairs; i++) {
            drop(take(bytes, 0));
            if (work) {
                submit();
            }
        }
        if (round > 0) { /* the first one warms up */
            best = least(best, now_ns() - start, (double)pairs);
        }
    }
    end();
    return best;
}

/* One of 20,000 live blocks of 0.5 to 60 KiB is replaced by another. */
static double replace(enum vs_pool_backing backing)
{
    static uint64_t blocks[20000];
    const uint64_t count = sizeof(blocks) / sizeof(blocks[0]);
    uint64_t seed = 88172645463325252u;
    double best = 0;

    begin(backing);
    for (uint64_t i = 0; i < count; i++) {
        blocks[i] = take(512 + draw(&seed) % (60 * KIB - 512), 0);
    }
    for (unsigned round = 0; round <= rounds; round++) {
        uint64_t start = now_ns();

        for (unsigned long i = 0; i < pairs; i++) {
            uint64_t at = draw(&seed) % count;

            drop(blocks[at]);
            blocks[at] = take(512 + draw(&seed) % (60 * KIB - 512), 0);
            if (i % 4 == 0) {
                submit();
            }
        }
        if (round > 0) {
            best = least(best, now_ns() - start, (double)pairs);
        }
    }
    end();
    return best;
}

/* Threads with blocks of 512 B to 2 MiB; every eighth is freed by the next thread. */
struct worker {
    uint32_t lane;
    _Atomic uint64_t *inbox, *outbox; /* RING addresses each */
};

static void *mixed_work(void *argument)
{
    const struct worker *worker = argument;
    uint64_t blocks[RING] = {0}, seed = worker->lane * 7919u + 17;

    for (unsigned long i = 0; i < pairs / 4; i++) {
        uint64_t at = draw(&seed) % RING, base = UINT64_C(512) << draw(&seed) % 12;

        if (blocks[at] && draw(&seed) % 8 == 0) {
            uint64_t other;

            blocks[at] =
                __atomic_exchange_n((uint64_t *)&worker->outbox[at], blocks[at], __ATOMIC_ACQ_REL);
            other = __atomic_exchange_n((uint64_t *)&worker->inbox[at], 0, __ATOMIC_ACQ_REL);
            if (other) {
                drop(other);
            }
        }
        if (blocks[at]) {
            drop(blocks[at]);
        }
        blocks[at] = take(base + draw(&seed) % base, worker->lane);
        if (i % 8 == 0) {
            submit();
        }
    }
    for (unsigned i = 0; i < RING; i++) {
        if (blocks[i]) {
            drop(blocks[i]);
        }
    }
    return NULL;
}

/* Pairs of all threads in a microsecond. */
static void mixed(enum vs_pool_backing backing, unsigned threads)
{
    static _Atomic uint64_t boxes[MOST_THREADS][RING];
    struct vs_pool_stats stats;
    double best = 0;

    begin(backing);
    for (unsigned round = 0; round <= rounds; round++) {
        pthread_t thread[MOST_THREADS];
        struct worker workers[MOST_THREADS];
        uint64_t start = now_ns();

        for (unsigned i = 0; i < threads; i++) {
            workers[i] = (struct worker){i, boxes[i], boxes[(i + 1) % threads]};
            pthread_create(&thread[i], NULL, mixed_work, &workers[i]);
        }
        for (unsigned i = 0; i < threads; i++) {
            pthread_join(thread[i], NULL);
        }
        if (round > 0) {
            best = least(best, now_ns() - start, (double)(pairs / 4) * threads);
        }
    }
    for (unsigned i = 0; i < MOST_THREADS * RING; i++) {
        uint64_t *box = (uint64_t *)&boxes[i / RING][i % RING];

        if (*box) {
            drop(*box);
            *box = 0;
        }
    }
    vs_pool_stats(bench.pool, &stats);
    printf("%-8s %2u threads %8.2f    reserved %ju MiB at %ju MiB live\n", names[backing], threads,
           1e3 / best, (uintmax_t)(stats.reserved_peak / MIB), (uintmax_t)(stats.live_peak / MIB));
    end();
}

static void host_memory(enum vs_pool_backing backing, uint64_t count, uint64_t bytes)
{
    uint64_t *blocks = malloc(count * sizeof(*blocks)), before;
    struct vs_pool_stats stats;

    if (!blocks) {
        abort();
    }
    begin(backing);
    vs_pool_stats(bench.pool, &stats);
    before = stats.host_bytes;
    for (uint64_t i = 0; i < count; i++) {
        blocks[i] = take(bytes, 0);
    }
    vs_pool_stats(bench.pool, &stats);
    printf("%-8s %9ju live blocks of %7ju B: %6.1f B each, %.2f MiB in all (%.2f MiB at first)\n",
           names[backing], (uintmax_t)count, (uintmax_t)bytes,
           (double)stats.host_bytes / (double)count, (double)stats.host_bytes / (double)MIB,
           (double)before / (double)MIB);
    for (uint64_t i = 0; i < count; i++) {
        drop(blocks[i]);
    }
    free(blocks);
    end();
}

static int trace(const char *path)
{
    char message[VS_TRACE_MESSAGE];
    struct vs_replay_plan plan;
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

    if (vs_replay_plan_read(&plan, path, message)) {
        fprintf(stderr, "pool_bench: %s\n", message);
        return 1;
    }
    for (int backing = VS_POOL_VMM; backing <= VS_POOL_NATIVE; backing++) {
        struct vs_pool_config config;
        struct vs_replay_result result;
        double best = 0;

        vs_pool_config_default(&config, (enum vs_pool_backing)backing,
                               vs_replay_device_bytes(&plan));
        for (unsigned round = 0; round < 4 * rounds; round++) {
            if (vs_replay_run(&plan, &config, vs_replay_device_bytes(&plan), false, &result) ||
                result.fault) {
                fprintf(stderr, "pool_bench: %s: %s\n", name,
                        result.fault ? result.fault : "failed");
                return 1;
            }
            best = least(best, result.ns, (double)plan.operations);
        }
        printf("%-8s %-50.50s %8.1f\n", names[backing], name, best);
    }
    vs_replay_plan_fini(&plan);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint64_t sizes[] = {512, 20 * KIB, 200 * KIB, 3 * MIB, 64 * MIB};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int failed = 0, first = 1;

    if (argc > 2 && strcmp(argv[1], "--threads") == 0) {
        unsigned long threads = strtoul(argv[2], NULL, 10);
        for (int backing = VS_POOL_VMM; backing <= VS_POOL_NATIVE; backing++) {
            if (threads < 1 || threads > MOST_THREADS) {
                fprintf(stderr, "pool_bench: --threads %s: 1 to %d are accepted\n", argv[2],
                        MOST_THREADS);
                return 2;
            }
            mixed((enum vs_pool_backing)backing, (unsigned)threads);
        }
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--quick") == 0) {
        pairs = 40000;
        rounds = 1;
        first = 2;
    }
    printf("ns a pair of one size, without work between and with\n%-8s", "");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        printf(" %9ju KiB ", (uintmax_t)(sizes[i] / KIB));
    }
    printf("\n");
    for (int backing = VS_POOL_VMM; backing <= VS_POOL_NATIVE; backing++) {
        printf("%-8s", names[backing]);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            printf(" %6.1f %6.1f", pair((enum vs_pool_backing)backing, sizes[i], false),
                   pair((enum vs_pool_backing)backing, sizes[i], true));
        }
        printf("\n");
    }
    printf("\nns a pair, random replace among 20,000 live blocks of 0.5 to 60 KiB\n");
    for (int backing = VS_POOL_VMM; backing <= VS_POOL_NATIVE; backing++) {
        printf("%-8s %8.1f\n", names[backing], replace((enum vs_pool_backing)backing));
    }
    printf("\npairs a microsecond, mixed 512 B to 2 MiB, an eighth freed on another thread\n");
    for (int backing = VS_POOL_VMM; backing <= VS_POOL_NATIVE; backing++) {
        for (unsigned threads = 1; threads <= MOST_THREADS && (threads == 1 || threads <= cores);
             threads *= 2) {
            mixed((enum vs_pool_backing)backing, threads);
        }
    }
    printf("\nhost memory\n");
    for (int backing = VS_POOL_VMM; backing <= VS_POOL_NATIVE; backing++) {
        host_memory((enum vs_pool_backing)backing, pairs, 512);
        host_memory((enum vs_pool_backing)backing, 20000, MIB);
    }
    if (first < argc) {
        printf("\nns an operation\n");
    }
    for (int i = first; i < argc; i++) {
        failed |= trace(argv[i]);
    }
    return failed;
}
