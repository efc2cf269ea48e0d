/*
 * Programs that are hard on the pool (test_attack_pool.py): what they print is the same without it.
 */
#include "attack.h"

#include "kernels.h"

#define MIB ((size_t)1 << 20)

static CUfunction fill, verify, spin_us, spin_flag, set_flag;
static atomic_bool over;
static CUdeviceptr bad; /* what verify counts */

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void load(void)
{
    CUmodule module;

    CHECK(cuModuleLoadData(&module, sim_kernels_ptx));
    CHECK(cuModuleGetFunction(&fill, module, "fill"));
    CHECK(cuModuleGetFunction(&verify, module, "verify"));
    CHECK(cuModuleGetFunction(&spin_us, module, "spin_us"));
    CHECK(cuModuleGetFunction(&spin_flag, module, "spin_flag"));
    CHECK(cuModuleGetFunction(&set_flag, module, "set_flag"));
}

static void begin(void)
{
    start();
    load();
    bad = take(4);
    CHECK(cuMemsetD32_v2(bad, 0, 1));
}

static void launch(CUfunction what, CUstream stream, unsigned count, void **args)
{
    CHECK(cuLaunchKernel(what, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, args, NULL));
}

static void do_fill(CUstream stream, CUdeviceptr p, uint32_t value, size_t bytes)
{
    uint32_t count = (uint32_t)(bytes / 4);
    void *args[] = {&p, &value, &count};

    launch(fill, stream, count, args);
}

static void do_verify(CUstream stream, CUdeviceptr p, uint32_t value, size_t bytes)
{
    uint32_t count = (uint32_t)(bytes / 4);
    void *args[] = {&p, &value, &count, &bad};

    launch(verify, stream, count, args);
}

static void do_spin(CUstream stream, uint64_t us)
{
    void *args[] = {&us};

    CHECK(cuLaunchKernel(spin_us, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void do_spin_flag(CUstream stream, CUdeviceptr flag, uint32_t value)
{
    void *args[] = {&flag, &value};

    CHECK(cuLaunchKernel(spin_flag, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void do_set_flag(CUstream stream, CUdeviceptr flag, uint32_t value)
{
    void *args[] = {&flag, &value};

    CHECK(cuLaunchKernel(set_flag, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static CUstream stream_new(void)
{
    CUstream stream;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void tell_wrong(void)
{
    uint32_t count = 0;

    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&count, bad, 4));
    printf("wrong %u\n", count);
}

/* Memory of one context is freed in the order of a stream of another one, which still uses it. */
static void free_async_elsewhere(void)
{
    CUcontext second;
    CUstream stream;
    CUdeviceptr p, q;
    uint32_t word = 0;
    size_t bytes = 4 * MIB;
    CUcontext first;
    CUresult result;

    start();
    first = context;
    if (strcmp(arguments[0], "device") == 0) {
        CHECK(cuDevicePrimaryCtxRetain(&second, 1));
        CHECK(cuCtxSetCurrent(second));
        CHECK(cuCtxEnablePeerAccess(first, 0));
    } else if (strcmp(arguments[0], "context") == 0) {
        CHECK(cuCtxCreate_v2(&second, 0, 0));
    } else {
        second = first;
    }
    load();
    stream = stream_new();
    CHECK(cuCtxSetCurrent(first));
    p = take(bytes);
    CHECK(cuMemsetD32_v2(p, 7, bytes / 4));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(second));
    do_spin(stream, 200000);
    do_fill(stream, p, 1, bytes);
    result = cuMemFreeAsync(p, stream);
    printf("freed %d\n", result);
    CHECK(cuCtxSetCurrent(first));
    q = take(bytes);
    CHECK(cuMemsetD32_v2(q, 2, bytes / 4));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(second));
    CHECK(cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(first));
    CHECK(cuMemcpyDtoH_v2(&word, q, 4));
    printf("same %d word %u\n", p == q, word);
}

/* The allocation after a free must not wait for what was submitted in between. */
static void flag_between(void)
{
    CUstream one, two;
    CUdeviceptr p, flag;
    size_t first = strtoul(arguments[0], NULL, 0), second = strtoul(arguments[1], NULL, 0);

    begin();
    one = stream_new();
    two = stream_new();
    flag = take(4);
    CHECK(cuMemsetD32_v2(flag, 0, 1));
    do_spin(one, 1);
    do_set_flag(two, flag, 0);
    do_spin_flag(two, flag, 0);
    CHECK(cuCtxSynchronize());
    p = take(first * MIB);
    CHECK(cuMemFree_v2(p));
    do_spin_flag(one, flag, 1);
    p = take(second * MIB);
    do_set_flag(two, flag, 1);
    CHECK(cuCtxSynchronize());
}

/* Plain memory is no mapped memory, whatever the pool made it of. */
static void not_mapped(void)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr p, range;
    uint32_t word = 0;

    start();
    p = take(4 * MIB);
    CHECK(cuMemsetD32_v2(p, 7, MIB));
    printf("handle %d\n", cuMemRetainAllocationHandle(&handle, (void *)p));
    printf("access %d\n", cuMemSetAccess(p, 2 * MIB, &access, 1));
    printf("unmap %d\n", cuMemUnmap(p, 2 * MIB));
    printf("range %d\n", cuMemAddressFree(p, 2 * MIB));
    CHECK(cuMemcpyDtoH_v2(&word, p, 4));
    printf("word %u\n", word);
    CHECK(cuMemFree_v2(p));
    CHECK(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
    CHECK(cuMemAddressFree(range, 2 * MIB));
}

/* What a free's wait says of events. */
static void elapsed(void)
{
    CUstream one;
    CUevent a, b;
    CUdeviceptr p;
    float ms = -1;

    begin();
    one = stream_new();
    CHECK(cuEventCreate(&a, 0));
    CHECK(cuEventCreate(&b, 0));
    p = take(4 * MIB);
    CHECK(cuEventRecord(a, one));
    do_spin(one, 100000);
    CHECK(cuEventRecord(b, one));
    CHECK(cuMemFree_v2(p));
    printf("elapsed %d\n", cuEventElapsedTime(&ms, a, b));
    printf("long %d\n", ms > 10);
}

/* The decay thread gives memory back while work runs that waits for what this thread does next. */
static void decay_between(void)
{
    CUstream one, two;
    CUdeviceptr p, flag;

    begin();
    one = stream_new();
    two = stream_new();
    flag = take(4);
    CHECK(cuMemsetD32_v2(flag, 0, 1));
    p = take(40 * MIB);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemFree_v2(p));
    do_spin_flag(one, flag, 1);
    usleep(300000);
    p = take(50 * MIB);
    do_fill(two, p, 1, 4096);
    CHECK(cuMemFree_v2(take(60 * MIB)));
    do_set_flag(two, flag, 1);
    if (strcmp(arguments[0], "context") == 0) {
        CHECK(cuDevicePrimaryCtxRelease_v2(0));
    } else {
        CHECK(cuCtxSynchronize());
    }
}

static void *captures_one(void *arg)
{
    CUstream stream;
    CUdeviceptr p = *(CUdeviceptr *)arg;
    unsigned failed = 0;

    CHECK(cuCtxSetCurrent(context));
    stream = stream_new();
    for (int i = 0; i < 200; i++) {
        CUgraph graph = NULL;
        CUresult end;

        CHECK(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)(i % 3)));
        do_fill(stream, p, 1, 4096);
        usleep(500);
        do_fill(stream, p, 2, 4096);
        end = cuStreamEndCapture(stream, &graph);
        if (end != CUDA_SUCCESS) {
            failed++;
        } else {
            CUgraphExec exec;

            CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
            CHECK(cuGraphLaunch(exec, stream));
            CHECK(cuStreamSynchronize(stream));
            CHECK(cuGraphExecDestroy(exec));
            CHECK(cuGraphDestroy(graph));
        }
    }
    printf("broken %u\n", failed);
    return NULL;
}

static void *allocates_relaxed(void *arg)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    unsigned state = (unsigned)(uintptr_t)arg;
    CUstream stream;

    CHECK(cuCtxSetCurrent(context));
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    stream = stream_new();
    while (!over) {
        CUdeviceptr p = 0, q = 0;
        size_t bytes =
            next(&state) % 3 == 0 ? next(&state) % (6 * MIB) + 4 : next(&state) % 9999 + 4;

        if (cuMemAlloc_v2(&p, bytes) == CUDA_SUCCESS) {
            do_fill(stream, p, 7, 4);
            CHECK(cuMemAlloc_v2(&q, 4));
            CHECK(cuMemFree_v2(p));
            CHECK(cuMemFree_v2(q));
        }
        if (next(&state) % 16 == 0) {
            usleep(300);
        }
    }
    return NULL;
}

/* Nothing that we do breaks a capture. */
static void captures_meanwhile(void)
{
    pthread_t thread[3];
    CUdeviceptr p;

    begin();
    p = take(4096);
    for (uintptr_t i = 0; i < 3; i++) {
        pthread_create(&thread[i], NULL, allocates_relaxed, (void *)(i + 1));
    }
    captures_one(&p);
    over = true;
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
    }
}

/* What the pool keeps must not be missing elsewhere: a device (160 MiB) or a cap is nearly full of
 * freed memory, and others want some. */
static void others_want(void)
{
    const char *who = arguments[0];
    CUcontext second;
    CUdeviceptr p;
    CUresult result = CUDA_ERROR_UNKNOWN;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 8192, .Height = 8192, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;
    size_t bytes = strtoul(arguments[1], NULL, 0) * MIB;

    start();
    p = take(bytes);
    CHECK(cuMemFree_v2(p));
    if (strcmp(who, "context") == 0) {
        CHECK(cuCtxCreate_v2(&second, 0, 0));
        result = cuMemAlloc_v2(&p, bytes);
    } else if (strcmp(who, "async") == 0) {
        result = cuMemAllocAsync(&p, bytes, NULL);
    } else if (strcmp(who, "create") == 0) {
        result = cuMemCreate(&handle, bytes, &prop, 0);
    } else if (strcmp(who, "array") == 0) {
        shape.Height = bytes / 8192;
        result = cuArrayCreate_v2(&array, &shape);
    } else if (strcmp(who, "process") == 0) {
        pid_t pid;

        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            execl("/proc/self/exe", "again", "others_want", "alone", arguments[1], (char *)NULL);
        }
        waitpid(pid, NULL, 0);
        return;
    } else if (strcmp(who, "alone") == 0) {
        result = CUDA_SUCCESS;
    }
    printf("%s %d\n", who, result);
}

/* Room is wanted while the context that has it captures; frees in the capture are kept aside. */
static void room_from_a_capture(void)
{
    CUcontext first, second;
    CUstream stream;
    CUgraph graph;
    CUdeviceptr p, q, kept;
    size_t bytes = 100 * MIB;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    begin();
    first = context;
    CHECK(cuThreadExchangeStreamCaptureMode(&mode));
    stream = stream_new();
    kept = take(4096);
    p = take(bytes);
    q = take(3 * MIB);
    CHECK(cuMemFree_v2(p));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    do_fill(stream, kept, 1, 4096);
    CHECK(cuMemFree_v2(q));
    CHECK(cuCtxCreate_v2(&second, 0, 0));
    printf("alloc %d\n", cuMemAlloc_v2(&p, bytes));
    printf("all %d\n", cuMemAlloc_v2(&q, bytes));
    CHECK(cuCtxSetCurrent(first));
    do_fill(stream, kept, 2, 4096);
    printf("end %d\n", cuStreamEndCapture(stream, &graph));
}

static void *churn_one(void *arg)
{
    CUdeviceptr p[4];

    (void)arg;
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 4; i++) {
        p[i] = take(700u << (2 * i));
    }
    for (int i = 0; i < 4; i++) {
        CHECK(cuMemFree_v2(p[i]));
    }
    return NULL;
}

/* Threads come and go, a cap is met: what they leave behind is not lost. arguments: times sixteen
 * threads, bytes that must still be there */
static void churn(void)
{
    int rounds = atoi(arguments[0]);

    begin();
    for (int i = 0; i < rounds; i++) {
        together(16, churn_one, NULL);
    }
    take(strtoul(arguments[1], NULL, 0));
}

static void *allocate_for_ever(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg;
    CUstream one;

    cuCtxSetCurrent(context);
    cuStreamCreate(&one, CU_STREAM_NON_BLOCKING);
    for (;;) {
        CUdeviceptr p = 0;

        if (cuMemAlloc_v2(&p, next(&state) % (3 * MIB) + 1) == CUDA_SUCCESS) {
            cuMemsetD32Async(p, 1, 1, one);
            cuMemFree_v2(p);
        }
    }
    return NULL;
}

static CUdeviceptr late[64];

static void free_late(void)
{
    for (int i = 0; i < 64; i++) {
        cuMemFree_v2(late[i]);
    }
}

/* exit, fork or exec while other threads are in the pool; the handler frees. */
static void leave_meanwhile(void)
{
    pthread_t thread;

    begin();
    atexit(free_late);
    for (int i = 0; i < 64; i++) {
        late[i] = take((size_t)1 << (i % 22));
    }
    for (uintptr_t i = 0; i < 8; i++) {
        pthread_create(&thread, NULL, allocate_for_ever, (void *)(i + 1));
    }
    usleep((unsigned)atoi(arguments[1]));
    if (strcmp(arguments[0], "exit") == 0) {
        printf("ok\n");
        exit(0);
    }
    for (int i = 0; i < 20; i++) {
        pid_t pid = strcmp(arguments[0], "vfork") == 0 ? vfork() : fork();
        int status = 0;

        if (pid == 0) {
            if (strcmp(arguments[0], "vfork") == 0) {
                execl("/bin/true", "true", (char *)NULL);
            } else if (i % 2) {
                exit(0);
            }
            _exit(0);
        }
        waitpid(pid, &status, 0);
        if (status != 0) {
            printf("status %x\n", status);
        }
    }
    printf("ok\n");
    exit(0);
}

/* Large requests at a tight cap, with work behind each block; arguments: rounds, live, largest MiB
 */
static void giants(void)
{
    enum { STREAMS = 3, MOST = 16 };
    CUstream streams[STREAMS];
    CUdeviceptr live[MOST] = {0};
    size_t sizes[MOST] = {0}, held = 0, room = strtoul(arguments[1], NULL, 0) * MIB;
    uint32_t marks[MOST] = {0}, mark = 0;
    size_t largest = strtoul(arguments[2], NULL, 0);
    int rounds = atoi(arguments[0]), refused = 0;
    unsigned state = arguments[3] != NULL ? (unsigned)atoi(arguments[3]) : 1;

    begin();
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = stream_new();
    }
    for (int r = 0; r < rounds; r++) {
        unsigned at = next(&state) % MOST;
        CUstream stream = streams[next(&state) % STREAMS];
        size_t bytes = (next(&state) % largest + 1) * MIB;

        if (live[at] != 0) {
            do_spin(stream, next(&state) % 2000);
            do_verify(stream, live[at], marks[at], 64 * 1024);
            do_verify(stream, live[at] + sizes[at] - 64 * 1024, marks[at], 64 * 1024);
            do_spin(stream, next(&state) % 500);
            do_fill(stream, live[at], ~marks[at], 64 * 1024);
            CHECK(cuMemFree_v2(live[at]));
            held -= sizes[at];
            live[at] = 0;
        }
        while (held + bytes > room) {
            at = next(&state) % MOST;
            if (live[at] != 0) {
                CHECK(cuMemFree_v2(live[at]));
                held -= sizes[at];
                live[at] = 0;
            }
        }
        for (at = 0; at < MOST && live[at] != 0; at++) {
        }
        if (at == MOST) {
            continue;
        }
        if (cuMemAlloc_v2(&live[at], bytes) != CUDA_SUCCESS) {
            printf("refused %zu MiB of %zu, held %zu\n", bytes / MIB, room / MIB, held / MIB);
            live[at] = 0;
            refused++;
            continue;
        }
        held += bytes;
        sizes[at] = bytes;
        marks[at] = ++mark;
        do_fill(streams[1], live[at], mark, 64 * 1024);
        do_fill(streams[1], live[at] + bytes - 64 * 1024, mark, 64 * 1024);
        CHECK(cuStreamSynchronize(streams[1]));
    }
    printf("refused %d\n", refused);
    tell_wrong();
}

static const struct mode modes[] = {
    MODE(not_mapped),
    MODE(free_async_elsewhere),
    MODE(flag_between),
    MODE(elapsed),
    MODE(room_from_a_capture),
    MODE(others_want),
    MODE(captures_meanwhile),
    MODE(decay_between),
    MODE(churn),
    MODE(leave_meanwhile),
    MODE(giants),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    return run_mode(argc, argv, modes);
}
