/*
 * Stream-ordered memory that is freed in a stream which then waits for a flag; the flag is set only
 * after an allocation in another stream, which under a tight cap has to be the freed memory.
 *
 * The allocation may wait for the free, and so for what its stream did before it; for nothing that
 * the stream was given later. So all this ends at once; with anything that makes the allocation, or
 * the stream it is for, wait for the waiting one, it never would: a watchdog sets the flag then,
 * and the program says so (flag.h).
 *
 * Parts differ in who waits (a kernel, the stream itself, a host function), who sets (a kernel, the
 * stream itself, a new stream, a host function, the host), what is allocated (the same size, less,
 * what two frees left) and how (in a stream, in another thread's per-thread stream, plainly).
 *
 * DEADLOCK_LATER is the MiB that the last part takes until it has to have the freed memory, of
 * which it frees the first while there is plenty; without it there is no such part.
 */
#include "flag.h"
#include "launch.h"

enum waiter { KERNEL, VALUE, FUNCTION };
enum setter { SET_BY_KERNEL, SET_BY_VALUE, SET_BY_NEW_STREAM, SET_BY_FUNCTION, SET_BY_HOST };
enum shape { SAME, LESS, TWO_FREES };
enum way { STREAM, OTHER_THREAD, PLAIN, FREED_PLAINLY };
#define BLOCK ((size_t)4 << 20)

static CUstream waiting, second, setting;
static CUcontext context;

struct part {
    const char *name;
    enum waiter waiter;
    enum setter setter;
    enum shape shape;
    enum way way;
};

static void CUDA_CB raise_it(void *unused)
{
    (void)unused;
    flag_raise(1);
}

static void CUDA_CB wait_for_it(void *unused)
{
    (void)unused;
    while (__atomic_load_n(flag_word, __ATOMIC_SEQ_CST) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void wait_in(enum waiter waiter, CUstream stream)
{
    if (waiter == KERNEL)
        cu_must("spin_flag", kernel_spin_flag(stream, flag_address, 1));
    else if (waiter == VALUE)
        MUST(cuStreamWaitValue32, stream, flag_address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    else
        MUST(cuLaunchHostFunc, stream, wait_for_it, NULL);
}

static void set_in(enum setter setter, CUstream stream)
{
    if (setter == SET_BY_VALUE) {
        MUST(cuStreamWriteValue32, stream, flag_address, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    } else if (setter == SET_BY_FUNCTION) {
        MUST(cuLaunchHostFunc, stream, raise_it, NULL);
    } else if (setter == SET_BY_HOST) {
        MUST(cuStreamSynchronize, stream);
        flag_raise(1);
    } else {
        cu_must("set_flag", kernel_set_flag(stream, flag_address, 1));
    }
}

/* Takes memory, uses it in the stream for a while, and frees it there. */
static void use_and_free(const struct part *part, size_t size, CUstream stream)
{
    CUdeviceptr p = 0;

    if (part->way == FREED_PLAINLY)
        MUST(cuMemAlloc, &p, size);
    else
        MUST(cuMemAllocAsync, &p, size, stream);
    cu_must("spin_us", kernel_spin_us(stream, 10000));
    MUST(cuMemsetD8Async, p, 1, size, stream);
    if (part->way == FREED_PLAINLY)
        MUST(cuMemFree, p);
    else
        MUST(cuMemFreeAsync, p, stream);
}

static bool right;

/* Allocates, uses, and sets the flag. */
static void *rest(void *data)
{
    const struct part *part = data;
    const size_t size = part->shape == LESS ? BLOCK / 4 * 3 : BLOCK;
    CUstream stream = setting;
    CUdeviceptr p = 0;

    MUST(cuCtxSetCurrent, context);
    if (part->setter == SET_BY_NEW_STREAM)
        MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    else if (part->way == OTHER_THREAD)
        stream = CU_STREAM_PER_THREAD;
    if (part->way == PLAIN)
        MUST(cuMemAlloc, &p, size);
    else
        MUST(cuMemAllocAsync, &p, size, stream);
    cu_must("fill", kernel_fill(stream, p, 0x07070707, (uint32_t)(size / 4)));
    set_in(part->setter, stream);
    MUST(cuStreamSynchronize, stream);
    right = cu_all_bytes(p, size, 7);
    if (part->way == PLAIN)
        MUST(cuMemFree, p);
    else
        MUST(cuMemFreeAsync, p, stream);
    MUST(cuStreamSynchronize, stream);
    if (part->setter == SET_BY_NEW_STREAM)
        MUST(cuStreamDestroy, stream);
    return NULL;
}

static void run(const struct part *part)
{
    CUstream first = part->way == OTHER_THREAD ? CU_STREAM_PER_THREAD : waiting;
    pthread_t thread;

    flag_arm();
    if (part->shape == TWO_FREES) {
        use_and_free(part, BLOCK / 2, first);
        use_and_free(part, BLOCK / 2, second);
        wait_in(part->waiter, second);
    } else {
        use_and_free(part, BLOCK, first);
    }
    wait_in(part->waiter, first);
    if (part->way != OTHER_THREAD)
        rest((void *)(uintptr_t)part);
    else if (pthread_create(&thread, NULL, rest, (void *)(uintptr_t)part) == 0)
        pthread_join(thread, NULL);
    MUST(cuStreamSynchronize, first);
    MUST(cuStreamSynchronize, second);
    cu_say("%s: it ended by itself: %s, its bytes are right: %s", part->name,
           flag_disarm() ? "yes" : "no", right ? "yes" : "no");
}

/* The flag comes before the free; the host sets it once it has the memory, and there is work on it
 * already. */
static void behind(void)
{
    CUdeviceptr p = 0, q = 0;

    flag_arm();
    MUST(cuMemAllocAsync, &p, BLOCK, waiting);
    wait_in(KERNEL, waiting);
    MUST(cuMemsetD8Async, p, 1, BLOCK, waiting);
    MUST(cuMemFreeAsync, p, waiting);
    MUST(cuMemAllocAsync, &q, BLOCK, setting);
    cu_must("fill", kernel_fill(setting, q, 0x07070707, BLOCK / 4));
    flag_raise(1);
    MUST(cuStreamSynchronize, setting);
    cu_say("a kernel waits before the free, the host sets: it ended by itself: %s, its bytes are "
           "right: %s",
           flag_disarm() ? "yes" : "no", cu_all_bytes(q, BLOCK, 7) ? "yes" : "no");
    MUST(cuMemFreeAsync, q, setting);
    MUST(cuCtxSynchronize);
}

/* The memory becomes short when the stream waits already. */
static void later(size_t total)
{
    enum { MOST = 256 };
    static CUdeviceptr p[MOST];
    const size_t count = total / BLOCK < MOST ? total / BLOCK : MOST;
    unsigned failed = 0;

    flag_arm();
    MUST(cuMemAllocAsync, &p[0], BLOCK, waiting);
    MUST(cuMemsetD8Async, p[0], 1, BLOCK, waiting);
    MUST(cuMemFreeAsync, p[0], waiting);
    wait_in(KERNEL, waiting);
    for (size_t i = 0; i < count; i++) {
        p[i] = 0;
        failed += CU(cuMemAllocAsync)(&p[i], BLOCK, setting) != CUDA_SUCCESS;
    }
    set_in(SET_BY_KERNEL, setting);
    MUST(cuStreamSynchronize, waiting);
    cu_say("the memory becomes short later: it ended by itself: %s, failed allocations %u",
           flag_disarm() ? "yes" : "no", failed);
    for (size_t i = 0; i < count; i++)
        MUST(cuMemFreeAsync, p[i], setting);
    MUST(cuCtxSynchronize);
}

int main(int argc, char **argv)
{
    static const struct part parts[] = {
        {"a kernel waits, a kernel sets", KERNEL, SET_BY_KERNEL, SAME, STREAM},
        {"a kernel waits, the host sets, less", KERNEL, SET_BY_HOST, LESS, STREAM},
        {"a kernel waits, a stream writes, two frees", KERNEL, SET_BY_VALUE, TWO_FREES, STREAM},
        {"a kernel waits, a new stream sets", KERNEL, SET_BY_NEW_STREAM, SAME, STREAM},
        {"a stream waits, a stream writes", VALUE, SET_BY_VALUE, SAME, STREAM},
        {"a stream waits, a host function sets, two frees", VALUE, SET_BY_FUNCTION, TWO_FREES,
         STREAM},
        {"a stream waits, a kernel sets, less", VALUE, SET_BY_KERNEL, LESS, STREAM},
        {"a host function waits, a kernel sets", FUNCTION, SET_BY_KERNEL, SAME, STREAM},
        {"threads' own streams, a kernel waits, a kernel sets", KERNEL, SET_BY_KERNEL, SAME,
         OTHER_THREAD},
        {"threads' own streams, a stream waits, the host sets, less", VALUE, SET_BY_HOST, LESS,
         OTHER_THREAD},
        {"plain memory, a kernel waits, a kernel sets", KERNEL, SET_BY_KERNEL, SAME, PLAIN},
        {"plain memory, a stream waits, the host sets, two frees", VALUE, SET_BY_HOST, TWO_FREES,
         PLAIN},
        {"freed plainly, a kernel waits, a kernel sets", KERNEL, SET_BY_KERNEL, SAME,
         FREED_PLAINLY},
        {"freed plainly, a stream waits, a host function sets, less", VALUE, SET_BY_FUNCTION, LESS,
         FREED_PLAINLY},
    };

    cu_start(argc, argv);
    NEED(cuStreamWaitValue32);
    NEED(cuMemAllocAsync);
    kernels_load();
    flag_start();
    MUST(cuCtxGetCurrent, &context);
    MUST(cuStreamCreate, &waiting, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &setting, CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        run(&parts[i]);
    behind();
    if (getenv("DEADLOCK_LATER") != NULL)
        later((size_t)atoi(getenv("DEADLOCK_LATER")) << 20);
    return cu_end();
}
