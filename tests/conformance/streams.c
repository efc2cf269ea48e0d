/* Streams: flags, order within one, queries, destruction with work pending, callbacks. */
#include "cu.h"

static int order[3], calls;

static void CUDA_CB note(void *data)
{
    if (calls < 3)
        order[calls] = (int)(intptr_t)data;
    calls++;
}

int main(int argc, char **argv)
{
    CUcontext context, owner = NULL;
    CUstream s, t;
    CUdeviceptr p;
    unsigned flags = 99;
    int priority = 99;
    struct gate *gate = gate_new();

    cu_start(argc, argv);
    MUST(cuCtxGetCurrent, &context);
    TELL(cuStreamCreate, &s, CU_STREAM_DEFAULT);
    TELL(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    TELL(cuStreamCreate, NULL, CU_STREAM_DEFAULT);
    TELL(cuStreamCreate, &t, 16);
    TELL(cuStreamGetFlags, s, &flags);
    FACT(flags == CU_STREAM_DEFAULT);
    TELL(cuStreamGetFlags, t, &flags);
    FACT(flags == CU_STREAM_NON_BLOCKING);
    TELL(cuStreamGetPriority, s, &priority);
    FACT(priority == 0);
    TELL(cuStreamGetCtx, s, &owner);
    FACT(owner == context);
    MUST(cuMemAlloc, &p, 4096);

    cu_say("order");
    gate_wait(gate, s);
    MUST(cuLaunchHostFunc, s, note, (void *)1);
    MUST(cuMemsetD8Async, p, 1, 4096, s);
    MUST(cuLaunchHostFunc, s, note, (void *)2);
    MUST(cuMemsetD8Async, p, 2, 4096, s);
    MUST(cuLaunchHostFunc, s, note, (void *)3);
    TELL(cuStreamQuery, s);
    TELL(cuStreamQuery, t);
    FACT(calls == 0);
    gate_open(gate);
    TELL(cuStreamSynchronize, s);
    TELL(cuStreamQuery, s);
    FACT(order[0] == 1 && order[1] == 2 && order[2] == 3);
    FACT(cu_all_bytes(p, 4096, 2));

    cu_say("destroyed with work pending");
    struct gate *other = gate_new();
    gate_wait(other, t);
    MUST(cuMemsetD8Async, p, 3, 4096, t);
    TELL(cuStreamDestroy, t);
    gate_open(other);
    TELL(cuCtxSynchronize);
    FACT(gate_passed(other));
    FACT(cu_all_bytes(p, 4096, 3));

    cu_say("the null stream");
    TELL(cuStreamQuery, NULL);
    TELL(cuStreamSynchronize, NULL);
    TELL(cuStreamDestroy, NULL);
    TELL(cuStreamDestroy, s);
    MUST(cuMemFree, p);
    gate_free(gate);
    gate_free(other);
    return cu_end();
}
