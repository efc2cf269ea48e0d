/* dlsym on libcuda: the same answer every time, and the one that cuGetProcAddress gives. */
#include <dlfcn.h>

#include "cu.h"

static const struct {
    const char *symbol, *base;
    int version;
} pairs[] = {
    {"cuMemAlloc_v2", "cuMemAlloc", 12000},
    {"cuMemFree_v2", "cuMemFree", 12000},
    {"cuMemAllocPitch_v2", "cuMemAllocPitch", 12000},
    {"cuMemAllocManaged", "cuMemAllocManaged", 12000},
    {"cuMemAllocAsync", "cuMemAllocAsync", 12000},
    {"cuMemFreeAsync", "cuMemFreeAsync", 12000},
    {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 12000},
    {"cuMemGetInfo_v2", "cuMemGetInfo", 12000},
    {"cuInit", "cuInit", 12000},
    {"cuCtxCreate_v2", "cuCtxCreate", 3020},
    {"cuCtxGetCurrent", "cuCtxGetCurrent", 12000},
    {"cuGetProcAddress_v2", "cuGetProcAddress", 12000},
};

int main(int argc, char **argv)
{
    void *library, *again;

    cu_load(argc, argv);
    library = cu_library();
    again = dlopen("libcuda.so.1", RTLD_LAZY);
    FACT(library != NULL && library == again);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        CUdriverProcAddressQueryResult status;
        void *one = dlsym(library, pairs[i].symbol), *two = NULL;
        bool steady = one != NULL;
        for (int n = 0; n < 1000; n++)
            steady = steady && dlsym(again, pairs[i].symbol) == one;
        CU(cuGetProcAddress)(pairs[i].base, &two, pairs[i].version, 0, &status);
        cu_say("%s: %s, %s", pairs[i].symbol, steady ? "steady" : "not steady",
               one == two ? "as cuGetProcAddress says" : "not as cuGetProcAddress says");
    }
    FACT(dlsym(library, "cuMemAlloc") != dlsym(library, "cuMemAlloc_v2"));
    FACT(dlsym(library, "cuMemFree") != dlsym(library, "cuMemFree_v2"));

    /* Closing one of two handles leaves everything as it was. */
    FACT(dlclose(again) == 0);
    FACT(dlsym(library, "cuMemAlloc_v2") != NULL);
    return cu_end();
}
