/* The stack of current contexts, and memory calls that meet another context than they expect. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext primary, made, now = NULL;
    CUdeviceptr p, q;

    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuCtxGetCurrent, &primary);
    MUST(cuMemAlloc, &p, 4096);
    MUST(cuCtxCreate, &made, NULL, 0, device);
    MUST(cuMemAlloc, &q, 4096);
    TELL(cuCtxPushCurrent, primary);
    TELL(cuMemsetD8, p, 1, 4096);
    FACT(cu_all_bytes(p, 4096, 1));
    TELL(cuCtxPopCurrent, &now);
    FACT(now == primary);
    TELL(cuCtxGetCurrent, &now);
    FACT(now == made);
    TELL(cuCtxSetCurrent, NULL);
    TELL(cuCtxGetCurrent, &now);
    cu_say("after setting none: %s", now == NULL      ? "none"
                                     : now == primary ? "the primary"
                                                      : "the made one");
    TELL(cuCtxPushCurrent, made);
    TELL(cuCtxSetCurrent, primary);
    TELL(cuCtxPopCurrent, &now);
    FACT(now == primary);
    while (CU(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now != NULL)
        TELL(cuCtxPopCurrent, &now);
    TELL(cuCtxPopCurrent, &now);
    TELL(cuMemAlloc, &p, 4096);
    TELL(cuCtxSynchronize);
    TELL(cuMemFree, q);
    TELL(cuCtxPushCurrent, NULL);
    TELL(cuCtxSetCurrent, primary);
    TELL(cuMemFree, p);
    TELL(cuCtxDestroy, made);
    return cu_end();
}
