/* cuCtxRecordEvent covers all work of a context; cuCtxWaitEvent makes all later work wait. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUcontext context;
    CUevent event, second;
    CUstream s, t;
    CUdeviceptr p;
    struct gate *gate = gate_new();

    cu_start(argc, argv);
    NEED(cuCtxRecordEvent);
    NEED(cuCtxWaitEvent);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &p, 4096);
    MUST(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &second, CU_EVENT_DISABLE_TIMING);

    TELL(cuCtxRecordEvent, context, event);
    TELL(cuEventSynchronize, event);
    gate_wait(gate, s);
    MUST(cuMemsetD8Async, p, 1, 4096, s);
    TELL(cuCtxRecordEvent, context, event);
    TELL(cuEventQuery, event);
    TELL(cuCtxWaitEvent, context, event);
    cu_say("later work, on a stream of its own");
    MUST(cuMemsetD8Async, p, 2, 4096, t);
    TELL(cuStreamQuery, t);
    gate_open(gate);
    TELL(cuStreamSynchronize, t);
    TELL(cuEventQuery, event);
    FACT(cu_all_bytes(p, 4096, 2));

    cu_say("work of a stream that is gone");
    struct gate *other = gate_new();
    gate_wait(other, s);
    TELL(cuStreamDestroy, s);
    TELL(cuCtxRecordEvent, context, second);
    TELL(cuEventQuery, second);
    gate_open(other);
    TELL(cuEventSynchronize, second);
    FACT(gate_passed(other));

    cu_say("refused");
    TELL(cuCtxRecordEvent, context, NULL);
    TELL(cuCtxWaitEvent, context, NULL);
    MUST(cuEventDestroy, event);
    MUST(cuEventDestroy, second);
    MUST(cuStreamDestroy, t);
    MUST(cuMemFree, p);
    gate_free(gate);
    gate_free(other);
    return cu_end();
}
