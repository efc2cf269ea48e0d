/* Driver calls from inside a host function: not permitted, and harmless. */
#include "cu.h"

static CUdeviceptr taken, live;
static CUresult results[6];

static void CUDA_CB inside(void *data)
{
    size_t size = 0, total = 0;
    CUcontext now = NULL;

    (void)data;
    results[0] = CU(cuMemAlloc)(&taken, 4096);
    results[1] = CU(cuMemFree)(live);
    results[2] = CU(cuMemAllocAsync)(&taken, 4096, NULL);
    results[3] = CU(cuMemGetInfo)(&size, &total);
    results[4] = CU(cuMemGetAddressRange)(NULL, &size, live);
    results[5] = CU(cuCtxGetCurrent)(&now);
}

int main(int argc, char **argv)
{
    CUstream s;

    cu_start(argc, argv);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &live, 4096);
    TELL(cuLaunchHostFunc, s, inside, NULL);
    TELL(cuStreamSynchronize, s);
    cu_told("cuMemAlloc inside", results[0]);
    cu_told("cuMemFree inside", results[1]);
    cu_told("cuMemAllocAsync inside", results[2]);
    cu_told("cuMemGetInfo inside", results[3]);
    cu_told("cuMemGetAddressRange inside", results[4]);
    cu_told("cuCtxGetCurrent inside", results[5]);
    TELL(cuMemFree, live);
    TELL(cuMemFree, live);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
