/*
 * Attacks by programs that do not link the driver. Built twice: as it is, and with -DSTUB, linked
 * against a library that stands in for the driver (attack_lib.c).
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **arguments;

/* The first look-up comes while a library is loaded that goes again; then CUDA is looked up. */
static void first_look_up_in_passing(void)
{
    void *library = dlopen(arguments[0], RTLD_NOW);

    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(9);
    }
    dlsym(library, "nothing_of_the_kind");
    dlclose(library);
    dlsym(RTLD_NEXT, "cuMemAlloc_v2");
}

/* A library that defines driver functions itself and opens the driver when it is called. */
static void stub_opened(void)
{
    void *library = dlopen(arguments[0], RTLD_NOW);
    int (*stub_use)(size_t) = NULL;

    if (library != NULL) {
        stub_use = (int (*)(size_t))dlsym(library, "stub_use");
    }
    printf("stub %d\n", stub_use != NULL ? stub_use(1000) : -1);
}

static void open_a_library(void)
{
    alarm(10);
    if (dlopen(arguments[0], RTLD_NOW) == NULL) {
        printf("%s\n", dlerror());
        exit(9);
    }
}

static void open_and_close_a_library(void)
{
    void *library = dlopen(arguments[0], RTLD_NOW);

    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(9);
    }
    dlclose(library);
}

#ifdef STUB
static void stub_linked(void)
{
    CUcontext context;
    CUdeviceptr p;
    int init = (int)cuInit(0), retain = (int)cuDevicePrimaryCtxRetain(&context, 0);

    cuCtxSetCurrent(context);
    printf("stub %d %d %d\n", init, retain, (int)cuMemAlloc_v2(&p, 1000));
}
#endif

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {
#define MODE(name) {#name, name}
        MODE(first_look_up_in_passing),
        MODE(stub_opened),
        MODE(open_a_library),
        MODE(open_and_close_a_library),
#ifdef STUB
        MODE(stub_linked),
#endif
    };

    arguments = argv + 2;
    for (size_t i = 0; argc > 2 && i < sizeof(modes) / sizeof(*modes); i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            printf("ok\n");
            return 0;
        }
    }
    return 9;
}
