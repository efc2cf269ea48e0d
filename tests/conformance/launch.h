/*
 * Launching the kernels of kernels.h, for programs whose subject is memory and not launches.
 *
 * kernels_load() once per process, in the context that the launches are for; it also launches each
 * kernel that the program names once, because a driver that loads kernels lazily may wait for the
 * whole context at a kernel's first launch. Launches answer what cuLaunchKernel answers.
 */
#ifndef VS_TESTS_CONFORMANCE_LAUNCH_H
#define VS_TESTS_CONFORMANCE_LAUNCH_H

#include "cu.h"
#include "kernels.h"

struct kernels {
    CUmodule module;
    CUfunction fill, verify, spin_us, spin_flag, set_flag, fault;
};
static struct kernels kernels;

static inline CUresult kernel_words(CUfunction function, CUstream stream, uint32_t count,
                                    void **arguments)
{
    return CU(cuLaunchKernel)(function, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments,
                              NULL);
}

/* p[i] = value for count words. */
static inline CUresult kernel_fill(CUstream stream, CUdeviceptr p, uint32_t value, uint32_t count)
{
    void *arguments[] = {&p, &value, &count};
    return kernel_words(kernels.fill, stream, count, arguments);
}

/* Adds the number of words that are not value to *bad, a word of device memory. */
static inline CUresult kernel_verify(CUstream stream, CUdeviceptr p, uint32_t value, uint32_t count,
                                     CUdeviceptr bad)
{
    void *arguments[] = {&p, &value, &count, &bad};
    return kernel_words(kernels.verify, stream, count, arguments);
}

static inline CUresult kernel_spin_us(CUstream stream, uint64_t us)
{
    void *arguments[] = {&us};
    return CU(cuLaunchKernel)(kernels.spin_us, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static inline CUresult kernel_spin_flag(CUstream stream, CUdeviceptr flag, uint32_t value)
{
    void *arguments[] = {&flag, &value};
    return CU(cuLaunchKernel)(kernels.spin_flag, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static inline CUresult kernel_set_flag(CUstream stream, CUdeviceptr flag, uint32_t value)
{
    void *arguments[] = {&flag, &value};
    return CU(cuLaunchKernel)(kernels.set_flag, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static inline CUresult kernel_fault(CUstream stream)
{
    return CU(cuLaunchKernel)(kernels.fault, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static inline void kernels_load(void)
{
    CUdeviceptr words;

    MUST(cuModuleLoadData, &kernels.module, kernels_ptx);
    MUST(cuModuleGetFunction, &kernels.fill, kernels.module, "fill");
    MUST(cuModuleGetFunction, &kernels.verify, kernels.module, "verify");
    MUST(cuModuleGetFunction, &kernels.spin_us, kernels.module, "spin_us");
    MUST(cuModuleGetFunction, &kernels.spin_flag, kernels.module, "spin_flag");
    MUST(cuModuleGetFunction, &kernels.set_flag, kernels.module, "set_flag");
    MUST(cuModuleGetFunction, &kernels.fault, kernels.module, "fault");
    MUST(cuMemAlloc, &words, 512);
    cu_must("fill", kernel_fill(NULL, words, 1, 2));
    cu_must("verify", kernel_verify(NULL, words, 1, 1, words + 4));
    cu_must("spin_us", kernel_spin_us(NULL, 1));
    cu_must("set_flag", kernel_set_flag(NULL, words + 8, 1));
    cu_must("spin_flag", kernel_spin_flag(NULL, words + 8, 1));
    MUST(cuCtxSynchronize);
    MUST(cuMemFree, words);
}

#endif
