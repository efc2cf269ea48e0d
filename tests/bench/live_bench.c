/*
 * What counting costs: vs_ledger_alloc + vs_ledger_free_begin + vs_ledger_free_done, in nanoseconds
 * a pair, on 1, 2 and 4 threads with 0, 1,000 and 1,000,000 other allocations live.
 *
 * Usage: live_bench [--quick] [--max NS]
 * Each figure is the best of several rounds (the machine's own noise only adds). --max fails the
 * run (exit 1) when the pair on one thread with nothing else live costs more. The last line says
 * what one live allocation takes of host memory.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "report/ledger.h"
#include "report/live.h"
#include "report/self.h"

#define BASE UINT64_C(0x7f0000000000)
#define RING 64

static long pairs_per_thread = 2000000;
static int rounds = 5;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void one(uint64_t address, uint64_t bytes)
{
    vs_ledger_alloc(&(struct vs_alloc){
        .address = address, .bytes = bytes, .context = 1, .kind = VS_KIND_PLAIN});
}

static void *loop(void *argument)
{
    uint64_t base = BASE + ((uint64_t)(uintptr_t)argument << 40);
    struct vs_alloc gone;
    for (long i = 0; i < pairs_per_thread; i++) {
        uint64_t address = base + (uint64_t)(i % RING) * 0x200000;
        one(address, 1 << 20);
        if (!vs_ledger_free_begin(address, &gone))
            abort();
        vs_ledger_free_done(&gone);
    }
    return NULL;
}

static double measure(int threads)
{
    double best = 1e18;
    for (int round = 0; round < rounds; round++) {
        pthread_t thread[8];
        uint64_t begin = now_ns();
        for (int t = 0; t < threads; t++)
            pthread_create(&thread[t], NULL, loop, (void *)(uintptr_t)(t + 1));
        for (int t = 0; t < threads; t++)
            pthread_join(thread[t], NULL);
        double each = (double)(now_ns() - begin) / ((double)pairs_per_thread * threads);
        best = each < best ? each : best;
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
    static const int threads[] = {1, 2, 4};
    double first = 0, max = 0;
    long have = 0, before = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            pairs_per_thread = 200000;
            rounds = 3;
        } else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc) {
            max = atof(argv[++i]);
        } else {
            fprintf(stderr, "usage: live_bench [--quick] [--max NS]\n");
            return 2;
        }
    }
    if (vs_ledger_open(now_ns()) != 0)
        return 1;
    before = resident_bytes();
    printf("ns per counted alloc+free pair (wall time x 1 / pairs of all threads)\n");
    printf("%12s %10s %10s %10s\n", "live", "1 thread", "2 threads", "4 threads");
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        for (; have < live[i]; have++)
            one(BASE + (uint64_t)have * 512, 512);
        printf("%12ld", live[i]);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            double ns = measure(threads[t]);
            first = first == 0 ? ns : first;
            printf(" %10.1f", ns);
            fflush(stdout);
        }
        printf("\n");
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
