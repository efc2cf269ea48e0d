/*
 * Work that waits for a flag which is set only after an allocation: it must not hold that up.
 *
 * A block is used and freed; then a stream waits for a flag (in a kernel, or by
 * cuStreamWaitValue32); then a block of the same size is allocated, which under a tight cap has to
 * be the freed one; then another stream, or the host, sets the flag, behind work on the new block.
 * A free waits for what came before it and for nothing that comes after, so this ends at once; with
 * anything that makes the allocation, or the other stream, wait for the waiting one, it never
 * would. After FLAG_PATIENCE seconds a watchdog sets the flag itself, and the program says so.
 */
#include "flag.h"
#include "launch.h"

enum waiter { KERNEL, VALUE };
enum setter { SET_BY_KERNEL, SET_BY_VALUE, SET_BY_NEW_STREAM, SET_BY_HOST };
#define BLOCK ((size_t)32 << 20)

static CUstream waiting, setting, busy;

static void set(enum setter setter, CUstream stream)
{
    switch (setter) {
    case SET_BY_VALUE:
        MUST(cuStreamWriteValue32, stream, flag_address, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
        break;
    case SET_BY_HOST:
        MUST(cuStreamSynchronize, stream);
        flag_raise(1);
        break;
    default:
        cu_must("set_flag", kernel_set_flag(stream, flag_address, 1));
    }
}

static void part(const char *name, enum waiter waiter, enum setter setter, bool in_use)
{
    CUdeviceptr a = 0, b = 0;
    CUstream stream = setting;

    flag_arm();
    MUST(cuMemAlloc, &a, BLOCK);
    if (in_use)
        cu_must("spin_us", kernel_spin_us(busy, 30000));
    MUST(cuMemsetD8Async, a, 1, BLOCK, busy);
    MUST(cuMemFree, a);
    if (waiter == KERNEL)
        cu_must("spin_flag", kernel_spin_flag(waiting, flag_address, 1));
    else
        MUST(cuStreamWaitValue32, waiting, flag_address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    MUST(cuMemAlloc, &b, BLOCK);
    if (setter == SET_BY_NEW_STREAM)
        MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    cu_must("fill", kernel_fill(stream, b, 0x07070707, BLOCK / 4));
    set(setter, stream);
    MUST(cuStreamSynchronize, waiting);
    MUST(cuStreamSynchronize, stream);
    cu_say("%s: it ended by itself: %s, its bytes are right: %s", name,
           flag_disarm() ? "yes" : "no", cu_all_bytes(b, BLOCK, 7) ? "yes" : "no");
    if (stream != setting)
        MUST(cuStreamDestroy, stream);
    MUST(cuMemFree, b);
}

int main(int argc, char **argv)
{
    cu_start(argc, argv);
    NEED(cuStreamWaitValue32);
    kernels_load();
    flag_start();
    MUST(cuStreamCreate, &waiting, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &setting, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &busy, CU_STREAM_NON_BLOCKING);
    part("a kernel waits, a kernel sets", KERNEL, SET_BY_KERNEL, false);
    part("a kernel waits, a stream writes", KERNEL, SET_BY_VALUE, true);
    part("a kernel waits, the host sets", KERNEL, SET_BY_HOST, false);
    part("a kernel waits, a new stream sets", KERNEL, SET_BY_NEW_STREAM, true);
    part("a stream waits, a kernel sets", VALUE, SET_BY_KERNEL, true);
    part("a stream waits, a stream writes", VALUE, SET_BY_VALUE, false);
    part("a stream waits, the host sets", VALUE, SET_BY_HOST, true);
    return cu_end();
}
