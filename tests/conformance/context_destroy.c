/* Created contexts: live memory goes with them, and what a stale pointer answers then. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext first, made, second, now;
    CUdeviceptr p, q, r;

    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuCtxGetCurrent, &first);
    MUST(cuMemAlloc, &r, 4096);
    TELL(cuCtxCreate, &made, NULL, 0, device);
    TELL(cuCtxGetCurrent, &now);
    FACT(now == made && made != first);
    MUST(cuMemAlloc, &p, 1 << 20);
    MUST(cuMemAlloc, &q, 1 << 20);
    cu_say("another context's memory, freed from here");
    TELL(cuMemFree, r);
    TELL(cuMemFree, r);
    TELL(cuCtxPopCurrent, &now);
    FACT(now == made);
    TELL(cuCtxGetCurrent, &now);
    FACT(now == first);
    cu_say("this one's memory, freed from there");
    TELL(cuMemFree, q);
    TELL(cuCtxDestroy, made);
    TELL(cuMemFree, p);
    TELL(cuMemAlloc, &r, 4096);
    TELL(cuMemFree, r);

    cu_say("destroyed while current");
    MUST(cuCtxCreate, &second, NULL, 0, device);
    MUST(cuMemAlloc, &p, 4096);
    TELL(cuCtxDestroy, second);
    TELL(cuCtxGetCurrent, &now);
    FACT(now == first);
    TELL(cuMemFree, p);
    TELL(cuCtxDestroy, NULL);

    cu_say("many, each with memory left");
    CUresult worst = CUDA_SUCCESS;
    for (int i = 0; i < 20 && worst == CUDA_SUCCESS; i++) {
        CUcontext each;
        worst = CU(cuCtxCreate)(&each, NULL, 0, device);
        if (worst == CUDA_SUCCESS)
            worst = CU(cuMemAlloc)(&p, 1 << 20);
        if (worst == CUDA_SUCCESS)
            worst = CU(cuCtxDestroy)(each);
    }
    cu_told("20 of them", worst);
    return cu_end();
}
