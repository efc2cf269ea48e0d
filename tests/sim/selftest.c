/*
 * The simulated driver tested by itself: `selftest NAME` runs one test in a process of its own.
 *
 * The tests that want a run to fail (races, bad accesses) start `selftest CASE` as a child and look
 * at its exit code and its words; so do those that need another environment.
 */
#include "selftest.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *self;

void check_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    exit(1);
}

void check_result(const char *file, int line, const char *what, CUresult got, CUresult wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s:%d: %s gave %d, expected %d\n", file, line, what, (int)got, (int)wanted);
    exit(1);
}

double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

CUcontext start(void)
{
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

void CUDA_CB sleep_ms(void *ms)
{
    usleep((useconds_t)(uintptr_t)ms * 1000);
}

void expect_child(const char *name, const char *variable, int code, const char *words)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (variable != NULL)
            putenv((char *)(uintptr_t)variable);
        dup2(ends[1], 2);
        close(ends[0]);
        execl(self, self, name, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    char text[8192];
    size_t used = 0;
    for (ssize_t got;
         used < sizeof text - 1 && (got = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code ||
        (words != NULL && strstr(text, words) == NULL)) {
        fprintf(stderr,
                "child %s ended with status 0x%x, expected code %d and \"%s\"; it said:\n%s", name,
                (unsigned)status, code, words != NULL ? words : "", text);
        exit(1);
    }
}

/* ---- memory -------------------------------------------------------------------------------------
 */
static void test_errors(void)
{
    CUdeviceptr p = 1, q;
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_INVALID_CONTEXT);
    start();
    IS(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(0));
    OK(cuMemAlloc(&p, 1000));
    CHECK(p % 512 == 0);
    IS(cuMemFree(p + 8), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(p));
    IS(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemFree(12345), CUDA_ERROR_INVALID_VALUE);
    size_t before, after, total, base_size;
    OK(cuMemGetInfo(&before, &total));
    CHECK(total == (size_t)1 << 30);
    IS(cuMemAlloc(&p, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p, 5 << 20));
    OK(cuMemAlloc(&q, total - (64 << 20)));
    IS(cuMemAlloc(&p, 64 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree(q));
    OK(cuMemAlloc(&p, 5 << 20));
    CUdeviceptr base;
    OK(cuMemGetAddressRange(&base, &base_size, p + 12345));
    CHECK(base == p && base_size == 5 << 20);
    OK(cuDevicePrimaryCtxReset(0));
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    start();
    OK(cuMemGetInfo(&after, &total));
    CHECK(after == before);
}

static void free_behind(CUstream stream)
{
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    OK(cuLaunchHostFunc(stream, sleep_ms, (void *)60));
    double begin = now_ms();
    OK(cuMemFree(p));
    CHECK(now_ms() - begin > 40);
}

static void test_free_waits(void)
{
    start();
    CUstream blocking, other;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    free_behind(NULL);
    free_behind(blocking);
    free_behind(other);
    free_behind(CU_STREAM_PER_THREAD);
    /* A stream that is gone by then, and no wait for another context. */
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    OK(cuLaunchHostFunc(other, sleep_ms, (void *)60));
    OK(cuStreamDestroy(other));
    double begin = now_ms();
    OK(cuMemFree(p));
    CHECK(now_ms() - begin > 40);
    OK(cuMemAlloc(&p, 4096));
    CUcontext second;
    OK(cuCtxCreate(&second, NULL, 0, 0));
    CUstream theirs;
    OK(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(theirs, sleep_ms, (void *)200));
    begin = now_ms();
    OK(cuMemFree(p));
    CHECK(now_ms() - begin < 150);
    OK(cuCtxDestroy(second));
}

/* ---- older drivers, faults, fork, exit
 * -------------------------------------------------------------- */
static void case_api_11010(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library != NULL);
    int version;
    OK(cuDriverGetVersion(&version));
    CHECK(version == 11010);
    CHECK(dlsym(library, "cuCtxRecordEvent") == NULL);
    CHECK(dlsym(library, "cuMemAllocAsync") == NULL);
    CHECK(dlsym(library, "cuGetProcAddress") == NULL);
    CHECK(dlsym(library, "cuMemCreate") != NULL);
    start();
}

static void case_api_12040(void)
{
    void *record = &record, *library = dlopen("libcuda.so.1", RTLD_NOW), *alloc;
    CUdriverProcAddressQueryResult status;
    start();
    CHECK(dlsym(library, "cuCtxRecordEvent") == NULL);
    OK(cuGetProcAddress("cuCtxRecordEvent", &record, 12040, 0, &status));
    CHECK(record == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    IS(cuGetProcAddress("cuMemAlloc", &alloc, 12050, 0, &status), CUDA_ERROR_INVALID_VALUE);
    OK(cuGetProcAddress("cuMemAlloc", &alloc, 12040, 0, &status));
    CHECK(alloc == dlsym(library, "cuMemAlloc_v2"));
}

static void test_api(void)
{
    expect_child("api_11010", "VRAMSIM_API=11010", 0, NULL);
    expect_child("api_12040", "VRAMSIM_API=12040", 0, NULL);
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *got;
    CUdriverProcAddressQueryResult status;
    CHECK(dlsym(library, "cuCtxRecordEvent") != NULL);
    OK(cuGetProcAddress("cuMemAlloc", &got, 2000, 0, &status));
    CHECK(got == dlsym(library, "cuMemAlloc"));
    OK(cuGetProcAddress("cuMemAllocAsync", &got, 13000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    CHECK(got == dlsym(library, "cuMemAllocAsync_ptsz"));
    OK(cuGetProcAddress("cuMemcpyHtoD", &got, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                        &status));
    CHECK(got == dlsym(library, "cuMemcpyHtoD_v2_ptds"));
    OK(cuGetProcAddress("cuMemAllocAsync", &got, 11010, 0, &status));
    CHECK(got == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

static void case_faults(void)
{
    CUdeviceptr p;
    start();
    OK(cuMemAlloc(&p, 4));
    IS(cuMemAlloc(&p, 4), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p, 4));
    IS(cuMemFree(p), CUDA_ERROR_LAUNCH_FAILED);
    IS(cuMemFree(p), CUDA_ERROR_LAUNCH_FAILED);
}

/* Entry points that work before cuInit fail before it too. */
static void case_faults_early(void)
{
    CUdriverProcAddressQueryResult status;
    const char *name;
    void *got = NULL;
    int version = 0;
    IS(cuDriverGetVersion(&version), CUDA_ERROR_UNKNOWN);
    OK(cuDriverGetVersion(&version));
    IS(cuGetErrorName(CUDA_SUCCESS, &name), CUDA_ERROR_INVALID_VALUE);
    OK(cuGetProcAddress("cuInit", &got, 12000, 0, &status));
    start();
    IS(cuGetProcAddress("cuMemAlloc", &got, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
    OK(cuGetProcAddress("cuMemAlloc", &got, 12000, 0, &status));
    OK(cuDriverGetVersion(&version));
}

static void case_init_refused(void)
{
    IS(cuInit(0), CUDA_ERROR_INVALID_VALUE);
    IS(cuInit(0), CUDA_ERROR_INVALID_VALUE);
}

static void case_init_no_device(void)
{
    IS(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

static void test_environment(void)
{
    expect_child("faults", "VRAMSIM_FAULT=cuMemAlloc_v2:OUT_OF_MEMORY:2,cuMemFree:719:*", 0, NULL);
    expect_child("faults_early",
                 "VRAMSIM_FAULT=cuDriverGetVersion:UNKNOWN:1,cuGetProcAddress_v2:NOT_FOUND:2,"
                 "cuGetErrorName:1:1",
                 0, NULL);
    expect_child("init_refused", "VRAMSIM_FAULT=cuMemAlloc:NO_SUCH:1", 0, "VRAMSIM_FAULT=");
    expect_child("init_refused", "VRAMSIM_MEMORY=12GB", 0, "VRAMSIM_MEMORY=12GB: expected");
    expect_child("init_refused", "VRAMSIM_DEVICES=x", 0, "VRAMSIM_DEVICES=x: expected");
    expect_child("init_no_device", "VRAMSIM_DEVICES=0", 0, NULL);
    expect_child("init_no_device", "CUDA_VISIBLE_DEVICES=-1", 0, NULL);
}

static void test_fork(void)
{
    CUdeviceptr p;
    start();
    OK(cuMemAlloc(&p, 4096));
    pid_t pid = fork();
    if (pid == 0)
        _exit(cuMemFree(p) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    OK(cuMemFree(p));
}

/* Ends with work behind a flag that nobody sets. */
static void test_exit_pending(void)
{
    start();
    CUdeviceptr flag;
    OK(cuMemAlloc(&flag, 4));
    OK(cuMemsetD32(flag, 0, 1));
    OK(cuStreamWaitValue32(NULL, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(flag, 7, 1, NULL));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
}

static const struct test tests_here[] = {
    {"errors", test_errors},
    {"free_waits", test_free_waits},
    {"api", test_api},
    {"api_11010", case_api_11010},
    {"api_12040", case_api_12040},
    {"environment", test_environment},
    {"faults", case_faults},
    {"faults_early", case_faults_early},
    {"init_refused", case_init_refused},
    {"fork", test_fork},
    {"init_no_device", case_init_no_device},
    {"exit_pending", test_exit_pending},
    {NULL, NULL},
};

static bool run(const struct test *tests, const char *name)
{
    for (; tests->name != NULL; tests++) {
        if (strcmp(tests->name, name) == 0) {
            tests->run();
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    static const struct test *const lists[] = {
        tests_here,    selftest_order, selftest_race,    selftest_peer,
        selftest_misc, selftest_graph, selftest_capture, selftest_array,
        selftest_pool, selftest_share, selftest_ipc,     selftest_reuse,
    };
    self = argv[0];
    for (size_t i = 0; argc == 2 && i < sizeof lists / sizeof lists[0]; i++) {
        if (run(lists[i], argv[1]))
            return 0;
    }
    fprintf(stderr, "usage: selftest NAME\n");
    return 2;
}
