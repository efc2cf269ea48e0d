/*
 * What every conformance program is written with: the driver API by three ways of reaching it
 * (dlsym, cuGetProcAddress, a direct link), and one line of output per fact.
 *
 * A program has one subject and prints facts that hold on every machine: results, comparisons,
 * sizes that it chose itself; never an address, a time, or a property of the device. Its output
 * must be the same on the simulator and on a GPU, with and without the shim.
 *
 * CU(cuMemAlloc) is the entry point that cuda.h means by that name (cuMemAlloc_v2). Compiled with
 * CU_DIRECT it is a plain reference for the dynamic linker; otherwise a pointer that cu_start()
 * looked up, by dlsym, or by cuGetProcAddress when the program was started with the argument
 * "getproc".
 */
#ifndef VS_TESTS_CONFORMANCE_CU_H
#define VS_TESTS_CONFORMANCE_CU_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cu_entries.h"

#define CU_NAME_MAX 64 /* bytes of a symbol with its end */

#ifdef CU_DIRECT
#define CU(name) name
#define CU_HAVE(name) true
#else
/* One member per entry, named as cuda.h's macros expand the entry's name. */
#define CU_MEMBER(name) __typeof__(&name) name;
struct cu_api {
    CU_ENTRIES(CU_MEMBER)
};
extern struct cu_api cu_api;
#define CU(name) (*cu_api.name)
#define CU_HAVE(name) ((void *)cu_api.name != cu_no_entry)
#endif

/* Stands for an entry that the driver lacks: a function that answers STUB_LIBRARY ("absent"). */
extern void *const cu_no_entry;

/* The library itself, for programs whose subject is the look-up. NULL when it is not there. */
void *cu_library(void);

#ifndef CU_DIRECT
/* The index-th symbol that conformance programs use; NULL after the last. */
const char *cu_symbol(size_t index);
/* What cuGetProcAddress returns for the ABI that this symbol is; NULL when there is none. */
void *cu_by_version(const char *symbol);
#endif

/* Looks the entry points up; a program that uses only what comes before cuInit calls just this. */
void cu_load(int argc, char **argv);

/* cu_load, cuInit, and the primary context of device 0 retained and current. */
void cu_start(int argc, char **argv);

/* Ends the program: says how many facts there were, so that a truncated output is noticed. */
int cu_end(void);

/* CUDA_ERROR_INVALID_VALUE as "INVALID_VALUE"; never NULL. */
const char *cu_result_name(CUresult result);

/* One line: "text: INVALID_VALUE". Returns result. */
CUresult cu_told(const char *text, CUresult result);

/* One line, printf-like: a fact that is no result code. */
void cu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Leaves the program with a message unless result is CUDA_SUCCESS. */
void cu_must(const char *text, CUresult result);

/* For a program whose subject this device or driver does not have: says so and ends well. */
void cu_absent(const char *what) __attribute__((noreturn));

/* Calls an entry point and prints what it answered. */
#define TELL(name, ...) cu_told(#name "(" #__VA_ARGS__ ")", CU(name)(__VA_ARGS__))

/* Calls an entry point that has to succeed, silently. */
#define MUST(name, ...) cu_must(#name "(" #__VA_ARGS__ ")", CU(name)(__VA_ARGS__))

/* Prints the truth of a condition, in the condition's own words. */
#define FACT(condition) cu_say("%s: %s", #condition, (condition) ? "yes" : "no")

/* Leaves the program unless this entry point is there. */
#define NEED(name)                                                                                 \
    do {                                                                                           \
        if (!CU_HAVE(name))                                                                        \
            cu_absent(#name);                                                                      \
    } while (0)

/* A stop in a stream: work queued behind gate_wait() starts when the host calls gate_open(). */
struct gate;
struct gate *gate_new(void);
void gate_wait(struct gate *gate, CUstream stream);
void gate_open(struct gate *gate);
/* Opens it from another thread after a while, so that this one may block meanwhile. */
void gate_open_later(struct gate *gate);
/* Whether it has been opened and the stream's wait has ended. */
bool gate_passed(struct gate *gate);
void gate_free(struct gate *gate);

/* True when all n bytes at device address p are value (copied to the host to look). */
bool cu_all_bytes(CUdeviceptr p, size_t n, unsigned char value);

#endif
