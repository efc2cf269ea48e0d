/*
 * RTLD_DEFAULT and RTLD_NEXT with names of the driver's own, while libcuda is loaded locally and
 * then globally. (Programs probe so for whether a CUDA driver is in the process.)
 */
#include <dlfcn.h>

#include "cu.h"

static const char *const names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuInit", "cuNoSuchThing"};

static void probe(const char *when)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *standard = dlsym(RTLD_DEFAULT, names[i]);
        void *next = dlsym(RTLD_NEXT, names[i]);
        cu_say("%s, %s: default %s, next %s", when, names[i], standard ? "found" : "NULL",
               next ? "found" : "NULL");
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    probe("before");
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    FACT(library != NULL);
    probe("loaded locally");
    FACT(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == library);
    probe("loaded globally");
    if (library != NULL) {
        FACT(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == dlsym(library, "cuMemAlloc_v2"));
        FACT(dlsym(RTLD_DEFAULT, "cuCtxGetCurrent") == dlsym(library, "cuCtxGetCurrent"));
    }
    return cu_end();
}
