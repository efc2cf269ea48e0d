/* Events: created, recorded, asked, waited for across streams, and what is refused. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUevent a, b, untimed;
    CUstream s, t;
    CUdeviceptr p;
    float ms = -1;
    struct gate *gate = gate_new();

    cu_start(argc, argv);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &p, 4096);
    TELL(cuEventCreate, &a, CU_EVENT_DEFAULT);
    TELL(cuEventCreate, &b, CU_EVENT_DEFAULT);
    TELL(cuEventCreate, &untimed, CU_EVENT_DISABLE_TIMING);
    TELL(cuEventCreate, NULL, CU_EVENT_DEFAULT);
    cu_say("never recorded");
    TELL(cuEventQuery, a);
    TELL(cuEventSynchronize, a);
    TELL(cuEventElapsedTime, &ms, a, b);
    TELL(cuStreamWaitEvent, s, a, 0);

    cu_say("recorded");
    TELL(cuEventRecord, a, s);
    gate_wait(gate, s);
    TELL(cuMemsetD8Async, p, 1, 4096, s);
    TELL(cuEventRecord, b, s);
    TELL(cuStreamWaitEvent, t, b, 0);
    TELL(cuMemsetD8Async, p, 2, 4096, t);
    TELL(cuEventQuery, b);
    TELL(cuStreamQuery, t);
    TELL(cuEventElapsedTime, &ms, a, b);
    gate_open(gate);
    TELL(cuEventSynchronize, b);
    TELL(cuEventQuery, b);
    TELL(cuStreamSynchronize, t);
    FACT(cu_all_bytes(p, 4096, 2));
    TELL(cuEventElapsedTime, &ms, a, b);
    FACT(ms >= 0);

    cu_say("without timing");
    TELL(cuEventRecord, untimed, s);
    TELL(cuEventSynchronize, untimed);
    TELL(cuEventElapsedTime, &ms, a, untimed);
    TELL(cuEventDestroy, untimed);
    TELL(cuEventDestroy, a);
    TELL(cuEventDestroy, b);
    MUST(cuMemFree, p);
    MUST(cuStreamDestroy, s);
    MUST(cuStreamDestroy, t);
    gate_free(gate);
    return cu_end();
}
