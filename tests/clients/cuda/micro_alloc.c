/*
 * What calls cost, in nanoseconds, one number a line ("name: ns"): the mean of the quickest block,
 * the one that nothing else disturbed. Driver API through dlsym, no other library; runs on the
 * simulated driver too.
 *
 *   micro_alloc [blocks]
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

static void *library;
static CUstream stream;
static __typeof__(cuMemAlloc) *mem_alloc;
static __typeof__(cuMemFree) *mem_free;
static __typeof__(cuMemAllocAsync) *mem_alloc_async;
static __typeof__(cuMemFreeAsync) *mem_free_async;
static CUresult (*get_proc)(const char *, void **, int, cuuint64_t,
                            CUdriverProcAddressQueryResult *);
static volatile int failures;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void pair_large(void)
{
    CUdeviceptr p;
    failures += mem_alloc(&p, 4 << 20) != 0 || mem_free(p) != 0;
}

static void pair_small(void)
{
    CUdeviceptr p;
    failures += mem_alloc(&p, 4096) != 0 || mem_free(p) != 0;
}

static void pair_async(void)
{
    CUdeviceptr p;
    failures += mem_alloc_async(&p, 1 << 20, stream) != 0 || mem_free_async(p, stream) != 0;
}

static void look_dlsym_cuda(void)
{
    failures += dlsym(library, "cuMemAlloc_v2") == NULL;
}

static void look_dlsym_other(void)
{
    failures += dlsym(RTLD_DEFAULT, "malloc") == NULL;
}

static void look_get_proc(void)
{
    void *p = NULL;
    failures += get_proc("cuMemAlloc", &p, 12000, 0, NULL) != 0;
}

static void measure(const char *name, void (*what)(void), int blocks, int calls)
{
    double quickest = 1e18;
    for (int i = 0; i < calls / 10 + 1; i++)
        what();
    for (int block = 0; block < blocks; block++) {
        double start = now_ns();
        for (int i = 0; i < calls; i++)
            what();
        double mean = (now_ns() - start) / calls;
        quickest = mean < quickest ? mean : quickest;
    }
    printf("%s: %.2f\n", name, quickest);
}

#define LOOK(pointer, name)                                                                        \
    do {                                                                                           \
        *(void **)&(pointer) = dlsym(library, name);                                               \
        if ((pointer) == NULL)                                                                     \
            return printf("no %s\n", name), 2;                                                     \
    } while (0)

int main(int argc, char **argv)
{
    int blocks = argc > 1 ? atoi(argv[1]) : 21;
    __typeof__(cuInit) *init;
    __typeof__(cuDevicePrimaryCtxRetain) *retain;
    __typeof__(cuCtxSetCurrent) *set_current;
    __typeof__(cuStreamCreate) *stream_create;
    CUcontext context;

    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return printf("no driver\n"), 2;
    LOOK(init, "cuInit");
    LOOK(retain, "cuDevicePrimaryCtxRetain");
    LOOK(set_current, "cuCtxSetCurrent");
    LOOK(stream_create, "cuStreamCreate");
    LOOK(mem_alloc, STRING(cuMemAlloc));
    LOOK(mem_free, STRING(cuMemFree));
    LOOK(mem_alloc_async, STRING(cuMemAllocAsync));
    LOOK(mem_free_async, STRING(cuMemFreeAsync));
    LOOK(get_proc, "cuGetProcAddress_v2");
    if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0 ||
        stream_create(&stream, CU_STREAM_NON_BLOCKING) != 0)
        return printf("no context\n"), 2;

    measure("pair 4 MiB", pair_large, blocks, 100);
    measure("pair 4 KiB", pair_small, blocks, 200);
    measure("async pair", pair_async, blocks, 5000);
    measure("dlsym of a cu name", look_dlsym_cuda, blocks, 5000);
    measure("dlsym of another name", look_dlsym_other, blocks, 5000);
    measure("cuGetProcAddress", look_get_proc, blocks, 2000);
    return failures != 0;
}
