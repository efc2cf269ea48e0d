/* cuStreamWaitValue32 and cuStreamWriteValue32: one stream held until another lets it go. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUstream s, t;
    CUdeviceptr flag, p;
    uint32_t value = 0;

    cu_start(argc, argv);
    NEED(cuStreamWaitValue32);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &t, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &flag, 4);
    MUST(cuMemAlloc, &p, 4096);
    MUST(cuMemsetD32, flag, 0, 1);
    MUST(cuCtxSynchronize); /* a memset of device memory does not wait for itself */
    TELL(cuStreamWaitValue32, s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ);
    TELL(cuMemsetD8Async, p, 6, 4096, s);
    TELL(cuStreamQuery, s);
    TELL(cuStreamWriteValue32, t, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    TELL(cuStreamSynchronize, t);
    TELL(cuStreamSynchronize, s);
    FACT(cu_all_bytes(p, 4096, 6));

    TELL(cuStreamWaitValue32, s, flag, 5, CU_STREAM_WAIT_VALUE_EQ);
    TELL(cuStreamWriteValue32, t, flag, 4, CU_STREAM_WRITE_VALUE_DEFAULT);
    TELL(cuStreamSynchronize, t);
    TELL(cuStreamQuery, s);
    TELL(cuStreamWriteValue32, t, flag, 5, CU_STREAM_WRITE_VALUE_DEFAULT);
    TELL(cuStreamSynchronize, s);
    MUST(cuMemcpyDtoH, &value, flag, 4);
    FACT(value == 5);
    TELL(cuStreamWaitValue32, s, flag + 1, 5, CU_STREAM_WAIT_VALUE_EQ);
    TELL(cuMemFree, flag);
    MUST(cuMemFree, p);
    MUST(cuStreamDestroy, s);
    MUST(cuStreamDestroy, t);
    return cu_end();
}
