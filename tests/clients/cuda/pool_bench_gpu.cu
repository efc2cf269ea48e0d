/*
 * What allocation costs through the runtime (cudaMalloc, cudaMallocAsync), measured on request.
 *
 * Without arguments it is a long-lived process that another one drives through pipes, so that
 * several (one of them natively, others preloaded) can take turns on one idle GPU: it reads
 * commands on stdin, one a line, and answers each with one JSON line; the first line, unasked, says
 * that it is ready. With arguments these are one command.
 *
 *   pair WAY KERNEL BYTES COUNT BLOCKS
 *       COUNT times an allocation and its free. WAY: plain (cudaMalloc, cudaFree), async
 *       (cudaMallocAsync, cudaFreeAsync, a pool that keeps what it has) or nothing (the kernels
 *       alone, so that one can tell what the calls add to them). KERNEL, a tiny one: none,
 *       between (after the free, before the next allocation) or around (it writes what was
 *       allocated, before it is freed). The quickest of BLOCKS blocks: {"ns": from an idle GPU to
 *       an idle GPU, "host_ns": until the last call returned}, each per pair
 *   threads THREADS COUNT
 *       each thread replaces blocks of 512 B to 2 MiB (log-uniform) COUNT times, and hands a
 * quarter of what it frees to the next thread: {"ns": wall time per pair of all threads, "handed":
 *       number of blocks freed by another thread than took them}
 *   replace LIVE COUNT   COUNT random ones of LIVE blocks of 0.5 to 60 KiB: {"ns": per pair}
 *   behind MS            a free while a kernel of MS ms runs on another stream, then an allocation:
 *                        {"free_us": , "alloc_us": }
 *   host COUNT           takes COUNT blocks of 512 B to 4 KiB and keeps them: {"growth": of the
 *                        process's resident memory, in bytes, "second_half": by the second half}
 *   quit
 *
 * A call that fails ends the program with a word about it. Every measurement is preceded by a short
 * unmeasured one of the same kind.
 */
#include <atomic>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64
#define SLOTS 16   /* blocks that a thread holds */
#define INBOX 1024 /* blocks on their way to a thread; a power of two */

static cudaStream_t stream, other;
static unsigned *scratch;

static void must(const char *what, cudaError_t got)
{
    if (got == cudaSuccess)
        return;
    printf("{\"error\": \"%s: %s\"}\n", what, cudaGetErrorName(got));
    fflush(stdout);
    _exit(3);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

__global__ void touch(unsigned *at)
{
    *at = 1;
}

__global__ void spin(unsigned long long ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ns);
}

enum way { PLAIN, ASYNC, NOTHING };
enum kernel_at { NONE, BETWEEN, AROUND };

static double pair_block(enum way way, enum kernel_at at, size_t bytes, int count, double *host_ns)
{
    double start = now_ns();

    for (int i = 0; i < count; i++) {
        void *p = scratch;
        if (way == ASYNC)
            must("allocation", cudaMallocAsync(&p, bytes, stream));
        else if (way == PLAIN)
            must("allocation", cudaMalloc(&p, bytes));
        if (at == AROUND)
            touch<<<1, 1, 0, stream>>>((unsigned *)p);
        if (way == ASYNC)
            must("free", cudaFreeAsync(p, stream));
        else if (way == PLAIN)
            must("free", cudaFree(p));
        if (at == BETWEEN)
            touch<<<1, 1, 0, stream>>>(scratch);
    }
    *host_ns = (now_ns() - start) / count;
    must("kernels", cudaStreamSynchronize(stream));
    return (now_ns() - start) / count;
}

static void pair(enum way way, enum kernel_at at, size_t bytes, int count, int blocks)
{
    double best = 1e18, best_host = 1e18, host = 0;

    pair_block(way, at, bytes, count / 10 + 1, &host);
    for (int block = 0; block < blocks; block++) {
        double ns = pair_block(way, at, bytes, count, &host);
        if (ns < best) {
            best = ns;
            best_host = host;
        }
    }
    must("launches", cudaGetLastError());
    printf("{\"ns\": %.2f, \"host_ns\": %.2f}\n", best, best_host);
}

/* A thread's inbox: one thread puts in, one takes out. */
struct inbox {
    alignas(64) std::atomic<unsigned> in;
    alignas(64) std::atomic<unsigned> out;
    void *blocks[INBOX];
};

struct worker {
    pthread_t thread;
    struct inbox *own, *next;
    uint64_t random;
    int count;
    long handed;
};

static pthread_barrier_t together;

static bool put(struct inbox *box, void *p)
{
    unsigned in = box->in.load(std::memory_order_relaxed);
    if (in - box->out.load(std::memory_order_acquire) == INBOX)
        return false;
    box->blocks[in % INBOX] = p;
    box->in.store(in + 1, std::memory_order_release);
    return true;
}

static void empty(struct inbox *box)
{
    unsigned out = box->out.load(std::memory_order_relaxed);
    while (out != box->in.load(std::memory_order_acquire)) {
        must("free of another thread's block", cudaFree(box->blocks[out++ % INBOX]));
        box->out.store(out, std::memory_order_release);
    }
}

/* 512 B to 2 MiB, each factor of two as likely as another. */
static size_t mixed_size(uint64_t r)
{
    size_t low = (size_t)512 << (r % 12);
    return low + (r >> 8) % low;
}

static void *replaces(void *argument)
{
    struct worker *self = (struct worker *)argument;
    void *held[SLOTS];

    must("context", cudaFree(NULL));
    for (int i = 0; i < SLOTS; i++)
        must("allocation", cudaMalloc(&held[i], mixed_size(next_random(&self->random))));
    pthread_barrier_wait(&together);
    for (int i = 0; i < self->count; i++) {
        uint64_t r = next_random(&self->random);
        unsigned slot = (unsigned)(r >> 40) % SLOTS;
        if (((r >> 60) & 3) == 0 && put(self->next, held[slot]))
            self->handed++;
        else
            must("free", cudaFree(held[slot]));
        must("allocation", cudaMalloc(&held[slot], mixed_size(r)));
        empty(self->own);
    }
    pthread_barrier_wait(&together);
    for (int i = 0; i < SLOTS; i++)
        must("free", cudaFree(held[i]));
    empty(self->own);
    return NULL;
}

static double threads_run(int threads, int count, long *handed)
{
    static struct worker workers[THREADS_MAX];
    static struct inbox boxes[THREADS_MAX];

    pthread_barrier_init(&together, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        workers[i].own = &boxes[i];
        workers[i].next = &boxes[(i + 1) % threads];
        workers[i].random = 88172645463325252ull + (uint64_t)i * 1000003;
        workers[i].count = count;
        workers[i].handed = 0;
        if (pthread_create(&workers[i].thread, NULL, replaces, &workers[i]) != 0)
            must("thread", cudaErrorUnknown);
    }
    pthread_barrier_wait(&together);
    double start = now_ns();
    pthread_barrier_wait(&together);
    double ns = now_ns() - start;
    *handed = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        *handed += workers[i].handed;
    }
    pthread_barrier_destroy(&together);
    return ns / ((double)threads * count);
}

static void threads(int number, int count)
{
    long handed = 0;

    threads_run(number, count / 10 + 1, &handed);
    double ns = threads_run(number, count, &handed);
    printf("{\"ns\": %.2f, \"handed\": %ld}\n", ns, handed);
}

static size_t small_size(uint64_t r)
{
    return 512 + (size_t)(r >> 16) % (60 * 1024 - 512 + 1);
}

static void replace(int live, int count)
{
    void **held = (void **)calloc((size_t)live, sizeof *held);
    uint64_t random = 88172645463325252ull;
    double start = 0;

    for (int i = 0; i < live; i++)
        must("allocation", cudaMalloc(&held[i], small_size(next_random(&random))));
    for (int i = -count / 10; i < count; i++) {
        uint64_t r = next_random(&random);
        size_t slot = (size_t)(r >> 44) % (size_t)live;
        if (i == 0)
            start = now_ns();
        must("free", cudaFree(held[slot]));
        must("allocation", cudaMalloc(&held[slot], small_size(r)));
    }
    double ns = (now_ns() - start) / count;
    for (int i = 0; i < live; i++)
        must("free", cudaFree(held[i]));
    free(held);
    printf("{\"ns\": %.2f}\n", ns);
}

static void behind(int ms)
{
    void *p = NULL, *again = NULL;

    must("allocation", cudaMalloc(&p, 1 << 20));
    must("kernel", (touch<<<1, 1, 0, stream>>>((unsigned *)p), cudaDeviceSynchronize()));
    spin<<<1, 1, 0, other>>>((unsigned long long)ms * 1000000ull);
    must("launch", cudaGetLastError());
    double start = now_ns();
    must("free", cudaFree(p));
    double freed = now_ns();
    must("allocation", cudaMalloc(&again, 1 << 20));
    double had = now_ns();
    must("kernel", cudaDeviceSynchronize());
    must("free", cudaFree(again));
    printf("{\"free_us\": %.2f, \"alloc_us\": %.2f}\n", (freed - start) / 1e3, (had - freed) / 1e3);
}

static long resident(void)
{
    long kib = -1;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

static void host(int count)
{
    void **held = (void **)malloc((size_t)count * sizeof *held);
    uint64_t random = 88172645463325252ull;
    long before, half = 0;

    memset(held, 1, (size_t)count * sizeof *held);
    must("allocation", cudaMalloc(&held[0], 512)); /* what the first one sets up is not per block */
    before = resident();
    for (int i = 1; i < count; i++) {
        must("allocation", cudaMalloc(&held[i], 512 << (next_random(&random) >> 30) % 4));
        if (i == count / 2)
            half = resident();
    }
    long after = resident();
    printf("{\"growth\": %ld, \"second_half\": %ld}\n", after - before, after - half);
    fflush(stdout);
    _exit(0); /* what is held goes with the process */
}

static int number(char **words, int which, long most)
{
    char *end = NULL;
    long value = words[which] == NULL ? 0 : strtol(words[which], &end, 10);

    if (value < 1 || value > most || *end != '\0') {
        printf("{\"error\": \"argument %d of %s is %s; a number from 1 to %ld is needed\"}\n",
               which, words[0], words[which] == NULL ? "missing" : words[which], most);
        return -1;
    }
    return (int)value;
}

static int chosen(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count && word != NULL; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

/* words: a command and its arguments, NULL after the last. Prints one line. */
static void command(char **words)
{
    static const char *const ways[] = {"plain", "async", "nothing"};
    static const char *const places[] = {"none", "between", "around"};
    static const char *const names[] = {"pair", "threads", "replace", "behind", "host"};
    int a, b, c;

    switch (chosen(words[0], names, 5)) {
    case 0: {
        int way = chosen(words[1], ways, 3);
        int at = way < 0 ? -1 : chosen(words[2], places, 3);
        if (at < 0)
            printf("{\"error\": \"pair plain|async|nothing none|between|around BYTES COUNT "
                   "BLOCKS\"}\n");
        else if ((a = number(words, 3, 1 << 30)) > 0 && (b = number(words, 4, 1 << 24)) > 0 &&
                 (c = number(words, 5, 1000)) > 0)
            pair((enum way)way, (enum kernel_at)at, (size_t)a, b, c);
        break;
    }
    case 1:
        if ((a = number(words, 1, THREADS_MAX)) > 0 && (b = number(words, 2, 1 << 24)) > 0)
            threads(a, b);
        break;
    case 2:
        if ((a = number(words, 1, 1 << 20)) > 0 && (b = number(words, 2, 1 << 24)) > 0)
            replace(a, b);
        break;
    case 3:
        if ((a = number(words, 1, 10000)) > 0)
            behind(a);
        break;
    case 4:
        if ((a = number(words, 1, 1 << 24)) > 0)
            host(a);
        break;
    default:
        printf("{\"error\": \"no command is called %s\"}\n", words[0]);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[256];
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;

    must("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must("stream", cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    must("scratch", cudaMalloc((void **)&scratch, 4096));
    must("pool", cudaDeviceGetDefaultMemPool(&pool, 0));
    must("pool", cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    touch<<<1, 1, 0, stream>>>(scratch);
    spin<<<1, 1, 0, other>>>(1000);
    must("kernels", cudaDeviceSynchronize());
    if (argc > 1) {
        command(argv + 1);
        return 0;
    }
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[8] = {NULL}, *rest = NULL;
        for (int i = 0; i < 7; i++)
            words[i] = strtok_r(i == 0 ? line : NULL, " \n", &rest);
        if (words[0] == NULL || strcmp(words[0], "quit") == 0)
            break;
        command(words);
    }
    return 0;
}
