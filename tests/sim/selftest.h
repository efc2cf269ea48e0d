/* What the self-tests of the simulated driver share. */
#ifndef SIM_SELFTEST_H
#define SIM_SELFTEST_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct test {
    const char *name;
    void (*run)(void);
};
extern const struct test selftest_order[]; /* selftest_order.c: streams, events, VMM, kernels */
extern const struct test selftest_pool[];  /* selftest_pool.c: stream-ordered memory */
extern const struct test selftest_peer[];  /* selftest_peer.c: several devices, green contexts */
extern const struct test selftest_misc[];  /* selftest_misc.c: knobs, poison, modules, attributes */
extern const struct test selftest_ipc[]; /* selftest_ipc.c: memory and events of other processes */
extern const struct test selftest_share[];   /* selftest_share.c: what crosses processes */
extern const struct test selftest_race[];    /* selftest_race.c: the race detector */
extern const struct test selftest_reuse[];   /* selftest_reuse.c: memory that is used again */
extern const struct test selftest_graph[];   /* selftest_graph.c: graphs, their memory, races */
extern const struct test selftest_capture[]; /* selftest_capture.c: rules of stream capture */
extern const struct test selftest_array[];   /* selftest_array.c: arrays and their copies */

void check_failed(const char *file, int line, const char *what) __attribute__((noreturn));
void check_result(const char *file, int line, const char *what, CUresult got, CUresult wanted);
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_failed(__FILE__, __LINE__, #condition);                                          \
    } while (0)
#define IS(call, wanted) check_result(__FILE__, __LINE__, #call, call, wanted)
#define OK(call) IS(call, CUDA_SUCCESS)

double now_ms(void);
CUcontext start(void);           /* cuInit; primary context of device 0 current */
void CUDA_CB sleep_ms(void *ms); /* host function */
/* Runs `selftest name` with one more variable (or NULL): it must end with code, saying words. */
void expect_child(const char *name, const char *variable, int code, const char *words);

/* Other processes (selftest_share.c). */
#define PEER 9 /* a child's end of the socket */
#define MIB ((size_t)1 << 20)
pid_t spawn(const char *name, int *socket_end); /* `selftest name`; socket_end may be NULL */
void put(int fd, const void *data, size_t size);
void get(int fd, void *data, size_t size);
void ended_well(pid_t pid);

#endif
