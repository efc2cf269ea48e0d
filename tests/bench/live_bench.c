/*
 * What counting costs, in nanoseconds a pair of allocation and free, and how it scales.
 *
 *   plain   what the driver allocates: vs_ledger_alloc, _free_begin, _free_done; one size
 *   pool    pool memory: vs_ledger_alloc, _free_at_once; one size
 *   mixed   pool memory of 512 B to 2 MiB (evenly over the powers of two), 64 live blocks a thread,
 *           every eighth freed by another thread; blocks up to 1 MiB lie in pages of their thread's
 *
 * each on 1, 2, 4, … threads, as many as there are processors, with 0, 1,000 and 1,000,000 other
 * allocations live. In brackets the throughput of all threads against that of one.
 *
 * Usage: live_bench [--quick] [--max NS]
 * Each figure is the best of several rounds (the machine's own noise only adds). --max fails the
 * run (exit 1) when the plain pair on one thread with nothing else live costs more. The last line
 * says what one live allocation takes of host memory.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report/ledger.h"
#include "report/live.h"
#include "report/self.h"

#define BASE UINT64_C(0x7f0000000000)
#define PAGE UINT64_C(0x200000)
#define RING 64
#define MOST_THREADS 64

static long pairs_per_thread = 2000000;
static int rounds = 5;
static int team;

struct thread {
    pthread_t id;
    unsigned number;
    uint64_t random;
    uint64_t small, large; /* where the next block goes */
    uint64_t live[RING];
    /* What other threads leave here to be freed; 0: room. */
    _Atomic uint64_t handed[8] __attribute__((aligned(64)));
} __attribute__((aligned(128)));

static struct thread threads[MOST_THREADS];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void one(uint64_t address, uint64_t bytes, uint8_t kind)
{
    vs_ledger_alloc(
        &(struct vs_alloc){.address = address, .bytes = bytes, .context = 1, .kind = kind});
}

static void give_at_once(uint64_t address)
{
    struct vs_alloc gone;
    if (!vs_ledger_free_at_once(address, &gone))
        abort();
}

static void *plain(void *argument)
{
    struct thread *self = argument;
    struct vs_alloc gone;
    for (long i = 0; i < pairs_per_thread; i++) {
        uint64_t address = self->large + (uint64_t)(i % RING) * PAGE;
        one(address, 1 << 20, VS_KIND_PLAIN);
        if (!vs_ledger_free_begin(address, &gone))
            abort();
        vs_ledger_free_done(&gone);
    }
    return NULL;
}

static void *pool(void *argument)
{
    struct thread *self = argument;
    for (long i = 0; i < pairs_per_thread; i++) {
        uint64_t address = self->large + (uint64_t)(i % RING) * PAGE;
        one(address, 1 << 20, VS_KIND_POOL);
        give_at_once(address);
    }
    return NULL;
}

static uint64_t next_random(struct thread *self)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return self->random;
}

static uint64_t place(struct thread *self, uint64_t bytes)
{
    uint64_t *at = bytes > PAGE / 2 ? &self->large : &self->small;
    uint64_t address = *at;
    *at += bytes > PAGE / 2 ? PAGE : bytes;
    return address;
}

static void give(struct thread *self, uint64_t address, uint64_t random)
{
    struct thread *other = &threads[(self->number + 1) % (unsigned)team];
    _Atomic uint64_t *slot = &other->handed[random / 8 % 8];
    if (team > 1 && random % 8 == 0 && atomic_load_explicit(slot, memory_order_relaxed) == 0)
        atomic_store_explicit(slot, address, memory_order_release);
    else
        give_at_once(address);
}

static void take_handed(struct thread *self)
{
    for (size_t i = 0; i < 8; i++) {
        uint64_t address = atomic_load_explicit(&self->handed[i], memory_order_acquire);
        if (address) {
            give_at_once(address);
            atomic_store_explicit(&self->handed[i], 0, memory_order_release);
        }
    }
}

static void *mixed(void *argument)
{
    struct thread *self = argument;
    for (long i = 0; i < pairs_per_thread; i++) {
        uint64_t random = next_random(self);
        uint64_t bytes = UINT64_C(512) << random % 12;
        uint64_t *slot = &self->live[(random >> 8) % RING];
        if (*slot)
            give(self, *slot, random >> 16);
        bytes += random >> 32 & (bytes - 1) & ~UINT64_C(511);
        bytes = bytes > PAGE ? PAGE : bytes;
        *slot = place(self, bytes);
        one(*slot, bytes, VS_KIND_POOL);
        if (i % 16 == 0)
            take_handed(self);
    }
    return NULL;
}

static void prepare(void)
{
    static uint64_t fresh = BASE + (UINT64_C(1) << 40);
    memset(threads, 0, sizeof threads);
    for (unsigned t = 0; t < MOST_THREADS; t++) {
        threads[t].number = t;
        threads[t].random = 88172645463325252u + t * UINT64_C(0x9e3779b97f4a7c15);
        threads[t].small = fresh;
        threads[t].large = fresh + (UINT64_C(1) << 46);
        fresh += UINT64_C(1) << 40;
    }
    fresh = BASE + (UINT64_C(1) << 40);
}

static double measure(int count, void *(*loop)(void *))
{
    double best = 1e18;
    team = count;
    for (int round = 0; round < rounds; round++) {
        prepare();
        uint64_t begin = now_ns();
        for (int t = 0; t < count; t++)
            pthread_create(&threads[t].id, NULL, loop, &threads[t]);
        for (int t = 0; t < count; t++)
            pthread_join(threads[t].id, NULL);
        double each = (double)(now_ns() - begin) / ((double)pairs_per_thread * count);
        best = each < best ? each : best;
        for (int t = 0; t < count; t++) {
            take_handed(&threads[t]);
            for (int i = 0; i < RING; i++)
                if (threads[t].live[i])
                    give_at_once(threads[t].live[i]);
        }
    }
    return best;
}

static long resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
    static const long live[] = {0, 1000, 1000000};
    static const struct {
        const char *name;
        void *(*loop)(void *);
    } loops[] = {{"plain", plain}, {"pool", pool}, {"mixed", mixed}};
    long most = sysconf(_SC_NPROCESSORS_ONLN);
    double first = 0, max = 0;
    long have = 0, before = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            pairs_per_thread = 100000;
            rounds = 2;
        } else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc) {
            max = atof(argv[++i]);
        } else {
            fprintf(stderr, "usage: live_bench [--quick] [--max NS]\n");
            return 2;
        }
    }
    most = most < 2 ? 2 : most > 16 ? 16 : most;
    if (vs_ledger_open(now_ns()) != 0)
        return 1;
    before = resident_bytes();
    printf("ns per counted pair: wall time / pairs of all threads (throughput against one)\n");
    printf("%10s %6s", "live", "");
    for (int t = 1; t <= most; t *= 2)
        printf("   %2d thread%s   ", t, t == 1 ? " " : "s");
    printf("\n");
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        for (; have < live[i]; have++)
            one(BASE + (uint64_t)have * 512, 512, VS_KIND_POOL);
        for (size_t l = 0; l < sizeof loops / sizeof *loops; l++) {
            double alone = 0;
            printf("%10ld %6s", live[i], loops[l].name);
            for (int t = 1; t <= most; t *= 2) {
                double ns = measure(t, loops[l].loop);
                first = first == 0 ? ns : first;
                alone = alone == 0 ? ns : alone;
                printf(" %7.1f (%4.2f)", ns, alone / ns);
                fflush(stdout);
            }
            printf("\n");
        }
    }
    printf("host memory per live allocation: %.1f bytes resident, %.1f mapped\n",
           (double)(resident_bytes() - before) / (double)have,
           (double)vs_live_mapped_bytes(vs_ledger_live()) / (double)have);
    if (max > 0 && first > max) {
        printf("FAIL: %.1f ns is more than %.1f ns\n", first, max);
        return 1;
    }
    return 0;
}
