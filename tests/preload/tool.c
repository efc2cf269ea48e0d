/*
 * Another preload of the kind that profilers and limiters are: it stands in for cuMemAlloc_v2 and
 * cuMemFree_v2, counts, and calls the next one. Built three ways:
 *   plain        by name, next found with dlsym(RTLD_NEXT), or in the driver where that finds none
 *   -DOWN_DLSYM  also overrides dlsym itself, as HAMi-core and nvshare do
 * At exit it prints what it saw, so that a test can tell that a call came by exactly once.
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int allocs, frees;

__attribute__((destructor)) static void tell(void)
{
    char line[64];
    int length = snprintf(line, sizeof(line), "tool %s: %d allocs %d frees\n", TOOL, allocs, frees);

    if (allocs + frees > 0 && write(1, line, (size_t)length) < 0) {
        abort();
    }
}

#ifdef OWN_DLSYM
static void *look_up(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);

    if (real == NULL) {
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
    }
    return real(handle, name);
}
#else
#define look_up dlsym
#endif

static void *next(const char *name)
{
    void *found = look_up(RTLD_NEXT, name);

    if (found == NULL) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

        found = driver != NULL ? look_up(driver, name) : NULL;
    }
    return found;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    CUresult (*real)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))next("cuMemAlloc_v2");

    allocs++;
    return real(p, bytes);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
    CUresult (*real)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))next("cuMemFree_v2");

    frees++;
    return real(p);
}

#ifdef OWN_DLSYM
EXPORT void *dlsym(void *handle, const char *name)
{
    if (handle != RTLD_NEXT && strcmp(name, "cuMemAlloc_v2") == 0) {
        return (void *)cuMemAlloc_v2;
    }
    if (handle != RTLD_NEXT && strcmp(name, "cuMemFree_v2") == 0) {
        return (void *)cuMemFree_v2;
    }
    return look_up(handle, name);
}
#endif
