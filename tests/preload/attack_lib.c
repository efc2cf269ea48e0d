/*
 * Libraries that are hard on a preloaded one; each is this file with one of
 *   -DSTUB         exports cuInit and friends itself, opens the real driver when first called
 *   -DCONSTRUCTOR  its constructor waits for a thread that uses CUDA
 *   -DEARLY        looks up names and uses CUDA in a constructor
 *   -DSLOW_FREE    a preload behind us, in which the first free of two dawdles
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef STUB
static void *driver(const char *name)
{
    static void *library;

    if (library == NULL) {
        library = dlopen("libcuda.so.1", RTLD_NOW);
    }
    return library != NULL ? dlsym(library, name) : NULL;
}

#define FORWARD(name, parameters, arguments)                                                       \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        CUresult(*real) parameters = (CUresult(*) parameters)driver(#name);                        \
                                                                                                   \
        return real != NULL ? real arguments : CUDA_ERROR_NOT_FOUND;                               \
    }

FORWARD(cuInit, (unsigned flags), (flags))
FORWARD(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device))
FORWARD(cuCtxSetCurrent, (CUcontext context), (context))
FORWARD(cuMemAlloc_v2, (CUdeviceptr * p, size_t bytes), (p, bytes))
FORWARD(cuMemFree_v2, (CUdeviceptr p), (p))

/* For callers that found us with dlopen. */
int stub_use(size_t bytes);
EXPORT int stub_use(size_t bytes)
{
    CUcontext context;
    CUdeviceptr p;
    CUresult result;

    if ((result = cuInit(0)) != CUDA_SUCCESS ||
        (result = cuDevicePrimaryCtxRetain(&context, 0)) != CUDA_SUCCESS ||
        (result = cuCtxSetCurrent(context)) != CUDA_SUCCESS) {
        return (int)result;
    }
    return (int)cuMemAlloc_v2(&p, bytes);
}
#endif

#ifdef CONSTRUCTOR
static void *start_cuda(void *arg)
{
    CUcontext context;
    CUdeviceptr p;

    if (cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
        cuCtxSetCurrent(context) == CUDA_SUCCESS && cuMemAlloc_v2(&p, 64) == CUDA_SUCCESS) {
        return arg;
    }
    return NULL;
}

__attribute__((constructor)) static void wait_for_cuda(void)
{
    pthread_t thread;
    void *result = NULL;
    int started = 1;

    pthread_create(&thread, NULL, start_cuda, &started);
    pthread_join(thread, &result);
    printf("started %d\n", result != NULL);
    fflush(stdout);
}
#endif

#ifdef EARLY
__attribute__((constructor)) static void early(void)
{
    void *library;
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*set)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUcontext context;
    CUdeviceptr p;

    unsetenv("LD_PRELOAD");
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        return;
    }
    init = (CUresult(*)(unsigned))dlsym(library, "cuInit");
    retain = (CUresult(*)(CUcontext *, CUdevice))dlsym(library, "cuDevicePrimaryCtxRetain");
    set = (CUresult(*)(CUcontext))dlsym(library, "cuCtxSetCurrent");
    alloc = (CUresult(*)(CUdeviceptr *, size_t))dlsym(library, "cuMemAlloc_v2");
    if (init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS &&
        set(context) == CUDA_SUCCESS && alloc(&p, 4242) == CUDA_SUCCESS) {
        printf("early allocation\n");
        fflush(stdout);
    }
}
#endif

#ifdef SLOW_FREE
EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
    static atomic_int calls;
    CUresult (*real)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))dlsym(RTLD_NEXT, "cuMemFree_v2");

    if (atomic_fetch_add(&calls, 1) == 0) {
        usleep(100000);
    }
    return real(p);
}
#endif
