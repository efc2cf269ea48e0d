/*
 * RTLD_DEFAULT and RTLD_NEXT with names of the driver's own, before libcuda is loaded and when it
 * is loaded globally. (Programs probe so for whether a CUDA driver is in the process.) In between,
 * while it is loaded locally, a preloaded library's exports are in sight and the driver's are not;
 * and RTLD_NEXT finds them always, which is how a chain of preloads works.
 */
#include <dlfcn.h>

#include "cu.h"

static const char *const names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuInit", "cuNoSuchThing"};

static void probe(const char *when, bool next_too)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *standard = dlsym(RTLD_DEFAULT, names[i]);
        cu_say("%s, %s: default %s", when, names[i], standard ? "found" : "NULL");
        if (next_too) {
            void *next = dlsym(RTLD_NEXT, names[i]);
            cu_say("%s, %s: next %s", when, names[i], next ? "found" : "NULL");
        }
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    probe("before", false);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    FACT(library != NULL);
    FACT(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == library);
    probe("loaded globally", true);
    if (library != NULL) {
        FACT(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == dlsym(library, "cuMemAlloc_v2"));
        FACT(dlsym(RTLD_DEFAULT, "cuCtxGetCurrent") == dlsym(library, "cuCtxGetCurrent"));
    }
    return cu_end();
}
