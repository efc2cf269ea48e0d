/*
 * A CUDA runtime program of known appetite. Built twice by scripts/gpu-check: with the static and
 * with the shared runtime. Prints facts (the same with and without the shim) and, last, its own
 * tally.
 *
 *   runtime_alloc patterns | threads | reset | return | exit | _exit | quick_exit
 *                 | static-dtor | atexit | entry-points
 *
 * Every mode leaves known memory behind or none; the ends (exit and so on) leave through that door
 * with exit code 7. Nothing here is random and no address is printed.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <unistd.h>

#include "tally.h"

static const size_t MiB = 1 << 20;

static void fact(const char *what, cudaError_t got)
{
    printf("%s: %d %s\n", what, (int)got, cudaGetErrorName(got));
    fflush(stdout);
}

static void must(const char *what, cudaError_t got)
{
    if (got == cudaSuccess)
        return;
    printf("%s failed: %d %s\n", what, (int)got, cudaGetErrorName(got));
    fflush(stdout);
    _exit(99);
}

__global__ void mix(uint32_t *data, uint32_t count, uint32_t seed)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        uint32_t x = i * 2654435761u + seed;
        x ^= x >> 13;
        data[i] = x * 2246822519u;
    }
}

static void *take(size_t bytes)
{
    void *p = NULL;
    must("cudaMalloc", cudaMalloc(&p, bytes));
    tally_alloc(TALLY_PLAIN, bytes);
    return p;
}

static void give(void *p, size_t bytes)
{
    must("cudaFree", cudaFree(p));
    tally_free(TALLY_PLAIN, bytes);
}

/* A kernel writes the first `bytes`, the host sums them up. */
static uint64_t checksum(void *p, size_t bytes, uint32_t seed)
{
    uint32_t count = (uint32_t)(bytes / 4);
    uint32_t *host = (uint32_t *)malloc((size_t)count * 4);
    mix<<<(count + 255) / 256, 256>>>((uint32_t *)p, count, seed);
    must("kernel", cudaGetLastError());
    must("copy", cudaMemcpy(host, p, (size_t)count * 4, cudaMemcpyDeviceToHost));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum = sum * 31 + host[i];
    free(host);
    return sum;
}

static void plain(void)
{
    static const size_t sizes[] = {1,       512,     513,         4096,     65536,
                                   1000000, 2 * MiB, 3 * MiB + 1, 64 * MiB, 300 * MiB};
    void *held[10];
    for (int i = 0; i < 10; i++) {
        held[i] = take(sizes[i]);
        printf("cudaMalloc(%zu) aligned to 256: %d\n", sizes[i], (uintptr_t)held[i] % 256 == 0);
        if (sizes[i] >= 4096)
            printf("checksum: %llu\n", (unsigned long long)checksum(held[i], 4096, (uint32_t)i));
    }
    for (int i = 9; i >= 0; i -= 2)
        give(held[i], sizes[i]);
    for (int i = 0; i < 10; i += 2)
        give(held[i], sizes[i]);
    for (int i = 0; i < 200; i++) {
        void *p = take(4096 + 512 * (size_t)i);
        if (i % 50 == 0)
            printf("loop %d checksum: %llu\n", i,
                   (unsigned long long)checksum(p, 4096, (uint32_t)i));
        give(p, 4096 + 512 * (size_t)i);
    }
}

static void edges(void)
{
    void *p = (void *)0x1;
    fact("cudaMalloc(0)", cudaMalloc(&p, 0));
    printf("its pointer is NULL: %d\n", p == NULL);
    fact("cudaFree(NULL)", cudaFree(NULL));

    p = NULL;
    fact("cudaMalloc(1 PiB)", cudaMalloc(&p, (size_t)1 << 50));
    tally_failed();
    fact("cudaPeekAtLastError", cudaPeekAtLastError());
    fact("cudaGetLastError", cudaGetLastError());
    fact("cudaGetLastError again", cudaGetLastError());

    char *block = (char *)take(1 * MiB);
    fact("cudaFree of an interior pointer", cudaFree(block + 512));
    fact("cudaGetLastError", cudaGetLastError());
    give(block, 1 * MiB);
    fact("cudaFree twice", cudaFree(block));
    fact("cudaGetLastError", cudaGetLastError());

    cudaPointerAttributes attributes;
    void *device = take(4096);
    fact("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, device));
    printf("type %d device %d\n", (int)attributes.type, attributes.device);
    give(device, 4096);
}

static void pitched_and_managed(void)
{
    /* 1024 is a multiple of every pitch alignment in use, so that the pitch is the width. */
    size_t pitch = 0;
    void *p = NULL;
    must("cudaMallocPitch", cudaMallocPitch(&p, &pitch, 1024, 100));
    tally_alloc(TALLY_PLAIN, pitch * 100);
    printf("cudaMallocPitch(1024, 100): pitch %zu\n", pitch);
    give(p, pitch * 100);

    must("cudaMallocManaged", cudaMallocManaged(&p, 2 * MiB));
    tally_alloc(TALLY_MANAGED, 2 * MiB);
    memset(p, 0x5a, 2 * MiB);
    printf("managed checksum: %llu\n", (unsigned long long)checksum(p, 65536, 77));
    must("cudaFree", cudaFree(p));
    tally_free(TALLY_MANAGED, 2 * MiB);
}

static void ordered(void)
{
    cudaStream_t stream;
    void *a = NULL, *b = NULL, *c = NULL;
    must("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must("cudaMallocAsync", cudaMallocAsync(&a, 5 * MiB, stream));
    tally_alloc(TALLY_ASYNC, 5 * MiB);
    must("cudaMallocAsync", cudaMallocAsync(&b, 100, cudaStreamPerThread));
    tally_alloc(TALLY_ASYNC, 100);
    must("memset", cudaMemsetAsync(a, 0x11, 5 * MiB, stream));
    must("cudaFreeAsync", cudaFreeAsync(a, stream));
    tally_free(TALLY_ASYNC, 5 * MiB);
    must("sync", cudaStreamSynchronize(cudaStreamPerThread));
    must("cudaFree of stream-ordered memory", cudaFree(b));
    tally_free(TALLY_ASYNC, 100);

    cudaMemPool_t pool;
    must("default pool", cudaDeviceGetDefaultMemPool(&pool, 0));
    must("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&c, 3 * MiB, pool, stream));
    tally_alloc(TALLY_ASYNC, 3 * MiB);
    must("cudaFreeAsync", cudaFreeAsync(c, stream));
    tally_free(TALLY_ASYNC, 3 * MiB);
    must("sync", cudaStreamSynchronize(stream));

    c = NULL;
    fact("cudaMallocAsync(1 PiB)", cudaMallocAsync(&c, (size_t)1 << 50, stream));
    tally_failed();
    fact("cudaGetLastError", cudaGetLastError());
    must("stream", cudaStreamDestroy(stream));
}

static void *hammer(void *argument)
{
    uint32_t state = (uint32_t)(uintptr_t)argument * 747796405u + 1;
    void *held[8] = {NULL};
    size_t bytes[8] = {0};
    for (int i = 0; i < 200; i++) {
        state = state * 1664525u + 1013904223u;
        int slot = (state >> 8) % 8;
        if (held[slot] != NULL)
            give(held[slot], bytes[slot]);
        bytes[slot] = 512 + (state >> 12) % (256 << 10);
        held[slot] = take(bytes[slot]);
    }
    for (int slot = 0; slot < 8; slot++)
        if (held[slot] != NULL)
            give(held[slot], bytes[slot]);
    return NULL;
}

static void threads(void)
{
    pthread_t thread[8];
    tally_no_peak();
    for (uintptr_t i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, hammer, (void *)(i + 1));
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    puts("threads done");
}

static void reset(void)
{
    void *p = take(10 * MiB);
    take(1000);
    printf("before reset: %llu\n", (unsigned long long)checksum(p, 4096, 1));
    must("cudaDeviceReset", cudaDeviceReset());
    tally_context_gone();
    fact("cudaFree of memory that went with the context", cudaFree(p));
    fact("cudaGetLastError", cudaGetLastError());
    p = take(20 * MiB);
    printf("after reset: %llu\n", (unsigned long long)checksum(p, 4096, 2));
    give(p, 20 * MiB);
}

/* The driver's own functions, got from the runtime by name. */
static void entry_points(void)
{
    static const unsigned int versions[] = {3020, 11020, 12000, 13000};
    must("context", cudaFree(NULL));
    for (int i = 0; i < 4; i++) {
        CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
        CUresult (*release)(CUdeviceptr) = NULL;
        cudaDriverEntryPointQueryResult status;
        CUdeviceptr p = 0;
        cudaError_t got = cudaGetDriverEntryPointByVersion("cuMemAlloc", (void **)&alloc,
                                                           versions[i], cudaEnableDefault, &status);
        printf("cuMemAlloc of %u: %d status %d\n", versions[i], (int)got, (int)status);
        must("cuMemFree",
             cudaGetDriverEntryPointByVersion("cuMemFree", (void **)&release, versions[i],
                                              cudaEnableDefault, &status));
        printf("alloc: %d\n", (int)alloc(&p, 1 * MiB));
        tally_alloc(TALLY_PLAIN, 1 * MiB);
        printf("free: %d\n", (int)release(p));
        tally_free(TALLY_PLAIN, 1 * MiB);
    }
    for (int per_thread = 0; per_thread < 2; per_thread++) {
        CUresult (*alloc)(CUdeviceptr *, size_t, CUstream) = NULL;
        CUresult (*release)(CUdeviceptr, CUstream) = NULL;
        cudaDriverEntryPointQueryResult status;
        CUdeviceptr p = 0;
        unsigned long long flags =
            per_thread ? cudaEnablePerThreadDefaultStream : cudaEnableLegacyStream;
        must("cuMemAllocAsync", cudaGetDriverEntryPointByVersion("cuMemAllocAsync", (void **)&alloc,
                                                                 12000, flags, &status));
        must("cuMemFreeAsync", cudaGetDriverEntryPointByVersion("cuMemFreeAsync", (void **)&release,
                                                                12000, flags, &status));
        printf("async alloc: %d\n", (int)alloc(&p, 1 * MiB, NULL));
        tally_alloc(TALLY_ASYNC, 1 * MiB);
        printf("async free: %d\n", (int)release(p, NULL));
        tally_free(TALLY_ASYNC, 1 * MiB);
    }
    void *lookup = NULL, *none = (void *)0x1;
    cudaDriverEntryPointQueryResult status;
    must("cuGetProcAddress", cudaGetDriverEntryPointByVersion("cuGetProcAddress", &lookup, 12000,
                                                              cudaEnableDefault, &status));
    CUdriverProcAddressQueryResult found;
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    printf("through cuGetProcAddress: %d\n",
           (int)((CUresult(*)(const char *, void **, int, cuuint64_t,
                              CUdriverProcAddressQueryResult *))lookup)(
               "cuMemAlloc", (void **)&alloc, 12000, 0, &found));
    CUdeviceptr p = 0;
    printf("alloc: %d\n", (int)alloc(&p, 2 * MiB));
    tally_alloc(TALLY_PLAIN, 2 * MiB);
    give((void *)p, 2 * MiB);
    fact("an unknown name", cudaGetDriverEntryPointByVersion("cuNoSuchThing", &none, 12000,
                                                             cudaEnableDefault, &status));
    printf("status %d pointer %d\n", (int)status, none == NULL);
}

/* Frees what it holds when the program's static objects are destroyed, and has the last word. */
struct Owner {
    void *p = NULL;
    ~Owner()
    {
        if (p == NULL)
            return;
        cudaError_t got = cudaFree(p);
        fact("cudaFree in a static destructor", got);
        if (got == cudaSuccess)
            tally_free(TALLY_PLAIN, 9 * MiB);
        tally_print();
    }
};

static void *at_exit_block;

static void free_at_exit(void)
{
    cudaError_t got = cudaFree(at_exit_block);
    fact("cudaFree in an atexit handler", got);
    if (got == cudaSuccess)
        tally_free(TALLY_PLAIN, 11 * MiB);
    tally_print();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "patterns";

    if (strcmp(mode, "patterns") == 0) {
        plain();
        edges();
        pitched_and_managed();
        ordered();
        take(3 * MiB); /* the planted leak */
        take(100000);
        take(100000);
    } else if (strcmp(mode, "threads") == 0) {
        threads();
    } else if (strcmp(mode, "reset") == 0) {
        reset();
    } else if (strcmp(mode, "entry-points") == 0) {
        entry_points();
    } else if (strcmp(mode, "static-dtor") == 0) {
        take(1 * MiB);
        static Owner owner;
        owner.p = take(9 * MiB);
        return 7;
    } else if (strcmp(mode, "atexit") == 0) {
        take(1 * MiB);
        at_exit_block = take(11 * MiB);
        atexit(free_at_exit);
        return 7;
    } else {
        take(5 * MiB);
        tally_print();
        if (strcmp(mode, "exit") == 0)
            exit(7);
        if (strcmp(mode, "_exit") == 0)
            _exit(7);
        if (strcmp(mode, "quick_exit") == 0)
            quick_exit(7);
        return strcmp(mode, "return") == 0 ? 7 : 2;
    }
    tally_print();
    return 0;
}
