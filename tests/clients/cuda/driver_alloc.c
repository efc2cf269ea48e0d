/*
 * A driver-API program of known appetite, built with gcc. The same binary finds the driver's
 * functions in one of three ways, named by the first argument:
 *
 *   direct   linked against libcuda (only when built with -DDRIVER_DIRECT)
 *   dlsym    dlopen("libcuda.so.1") and dlsym with the names that cuda.h uses
 *   getproc  cuGetProcAddress (v2) for everything
 *
 * Second argument: how it ends (return, exit, _exit, quick_exit, atexit), default return. Runs on
 * the simulated driver too. Prints facts and its tally; the memory it leaks is in the tally.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tally.h"

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

/* name for cuGetProcAddress, name as cuda.h maps it (versioned) */
#define FUNCTIONS(F)                                                                               \
    F(Init, cuInit)                                                                                \
    F(DeviceGet, cuDeviceGet)                                                                      \
    F(CtxRetain, cuDevicePrimaryCtxRetain)                                                         \
    F(CtxSetCurrent, cuCtxSetCurrent)                                                              \
    F(CtxSynchronize, cuCtxSynchronize)                                                            \
    F(MemAlloc, cuMemAlloc)                                                                        \
    F(MemFree, cuMemFree)                                                                          \
    F(MemAllocPitch, cuMemAllocPitch)                                                              \
    F(MemAllocManaged, cuMemAllocManaged)                                                          \
    F(MemAllocAsync, cuMemAllocAsync)                                                              \
    F(MemFreeAsync, cuMemFreeAsync)                                                                \
    F(MemsetD32, cuMemsetD32)                                                                      \
    F(MemcpyDtoH, cuMemcpyDtoH)                                                                    \
    F(StreamCreate, cuStreamCreate)                                                                \
    F(StreamSynchronize, cuStreamSynchronize)

#define DECLARE(field, name) __typeof__(name) *field;
static struct {
    FUNCTIONS(DECLARE)
} cu;

static void must(const char *what, int got)
{
    if (got == 0)
        return;
    printf("%s failed: %d\n", what, got);
    fflush(stdout);
    _exit(99);
}

static int find_functions(const char *way)
{
    if (strcmp(way, "direct") == 0) {
#ifdef DRIVER_DIRECT
#define TAKE(field, name) cu.field = name;
        FUNCTIONS(TAKE)
        return 0;
#else
        return -1;
#endif
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        printf("no driver: %s\n", dlerror());
        return -1;
    }
    if (strcmp(way, "dlsym") == 0) {
#define LOOK(field, name)                                                                          \
    *(void **)&cu.field = dlsym(library, STRING(name));                                            \
    if (cu.field == NULL)                                                                          \
        return printf("no %s\n", STRING(name)), -1;
        FUNCTIONS(LOOK)
        return 0;
    }
    CUresult (*look)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    *(void **)&look = dlsym(library, "cuGetProcAddress_v2");
    if (look == NULL || strcmp(way, "getproc") != 0)
        return -1;
#define PROC(field, name)                                                                          \
    if (look(#name, (void **)&cu.field, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL) != 0 ||          \
        cu.field == NULL)                                                                          \
        return printf("no %s\n", #name), -1;
    FUNCTIONS(PROC)
    return 0;
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr p = 0;
    must("cuMemAlloc", cu.MemAlloc(&p, bytes));
    tally_alloc(TALLY_PLAIN, bytes);
    return p;
}

static void give(CUdeviceptr p, size_t bytes)
{
    must("cuMemFree", cu.MemFree(p));
    tally_free(TALLY_PLAIN, bytes);
}

static void patterns(void)
{
    static uint32_t host[1024];
    CUdeviceptr held[16], p = 0;
    for (size_t i = 0; i < 16; i++) {
        held[i] = take(4096 << (i / 2));
        must("cuMemsetD32", cu.MemsetD32(held[i], 0x1234u + (unsigned)i, 1024));
    }
    for (size_t i = 0; i < 16; i++) {
        uint64_t sum = 0;
        must("cuMemcpyDtoH", cu.MemcpyDtoH(host, held[i], sizeof host));
        for (int j = 0; j < 1024; j++)
            sum = sum * 31 + host[j];
        printf("block %zu: %llu\n", i, (unsigned long long)sum);
        give(held[i], 4096 << (i / 2));
    }
    for (int i = 0; i < 100; i++)
        give(take(1 << 20), 1 << 20);

    printf("cuMemAlloc(0): %d\n", cu.MemAlloc(&p, 0));
    tally_failed();
    printf("cuMemAlloc(1 PiB): %d\n", cu.MemAlloc(&p, (size_t)1 << 50));
    tally_failed();
    printf("cuMemFree(0): %d\n", cu.MemFree(0));
    p = take(8192);
    printf("cuMemFree(interior): %d\n", cu.MemFree(p + 256));
    give(p, 8192);
    printf("cuMemFree(again): %d\n", cu.MemFree(p));

    size_t pitch = 0;
    must("cuMemAllocPitch", cu.MemAllocPitch(&p, &pitch, 1024, 64, 4));
    tally_alloc(TALLY_PLAIN, pitch * 64);
    printf("pitch: %zu\n", pitch);
    give(p, pitch * 64);

    must("cuMemAllocManaged", cu.MemAllocManaged(&p, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    tally_alloc(TALLY_MANAGED, 1 << 20);
    must("cuMemFree", cu.MemFree(p));
    tally_free(TALLY_MANAGED, 1 << 20);

    CUstream stream;
    must("cuStreamCreate", cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 10; i++) {
        must("cuMemAllocAsync", cu.MemAllocAsync(&p, 1 << 20, stream));
        tally_alloc(TALLY_ASYNC, 1 << 20);
        must("cuMemFreeAsync", cu.MemFreeAsync(p, stream));
        tally_free(TALLY_ASYNC, 1 << 20);
    }
    must("cuStreamSynchronize", cu.StreamSynchronize(stream));
    take(3 << 20); /* the planted leak */
    take(100000);
    take(100000);
}

static CUdeviceptr at_exit_block;

static void free_at_exit(void)
{
    int got = cu.MemFree(at_exit_block);
    printf("cuMemFree in an atexit handler: %d\n", got);
    if (got == 0)
        tally_free(TALLY_PLAIN, 1 << 20);
    tally_print();
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "dlsym";
    const char *end = argc > 2 ? argv[2] : "return";
    CUdevice device;
    CUcontext context;

    if (find_functions(way) != 0) {
        printf("cannot find the driver's functions by %s\n", way);
        return 2;
    }
    must("cuInit", cu.Init(0));
    must("cuDeviceGet", cu.DeviceGet(&device, 0));
    must("cuDevicePrimaryCtxRetain", cu.CtxRetain(&context, device));
    must("cuCtxSetCurrent", cu.CtxSetCurrent(context));
    patterns();
    must("cuCtxSynchronize", cu.CtxSynchronize());
    if (strcmp(end, "atexit") == 0) {
        at_exit_block = take(1 << 20);
        atexit(free_at_exit);
        return 7;
    }
    tally_print();
    if (strcmp(end, "exit") == 0)
        exit(7);
    if (strcmp(end, "_exit") == 0)
        _exit(7);
    if (strcmp(end, "quick_exit") == 0)
        quick_exit(7);
    return 7;
}
