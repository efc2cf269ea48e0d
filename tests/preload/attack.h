/*
 * What the attacking programs share. Each mode (the first argument) is a program of its own, used
 * by test_attack.py; "ok" is printed at the end of main, and a driver call that fails where it must
 * not ends the program with 9.
 */
#ifndef TESTS_PRELOAD_ATTACK_H
#define TESTS_PRELOAD_ATTACK_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult check_ = (call);                                                                  \
        if (check_ != CUDA_SUCCESS) {                                                              \
            printf("line %d: %s gave %d\n", __LINE__, #call, (int)check_);                         \
            fflush(stdout);                                                                        \
            _exit(9);                                                                              \
        }                                                                                          \
    } while (0)

static CUcontext context;
static char **arguments; /* behind the mode */

static void use(int device)
{
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
}

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr p;

    CHECK(cuMemAlloc_v2(&p, bytes));
    return p;
}

static void start(void)
{
    CHECK(cuInit(0));
    use(0);
}

static void together(int count, void *(*body)(void *), void *arg)
{
    pthread_t thread[64];

    for (int i = 0; i < count; i++) {
        pthread_create(&thread[i], NULL, body, arg);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(thread[i], NULL);
    }
}

struct mode {
    const char *name;
    void (*run)(void);
};

#define MODE(name)                                                                                 \
    {                                                                                              \
#name, name                                                                                \
    }

static int run_mode(int argc, char **argv, const struct mode *modes)
{
    arguments = argv + 2;
    for (; argc > 1 && modes->name != NULL; modes++) {
        if (strcmp(argv[1], modes->name) == 0) {
            modes->run();
            printf("ok\n");
            return 0;
        }
    }
    return 9;
}

#endif
