/* A module from PTX text: found functions, launches that write, what is refused. */
#include "kernels.h"
#include "cu.h"

int main(int argc, char **argv)
{
    CUmodule module = NULL, bad = NULL;
    CUfunction fill = NULL, none = NULL;
    CUdeviceptr p;
    CUstream s;
    unsigned value = 0x01020304, count = 1024;
    void *arguments[] = {&p, &value, &count};

    cu_start(argc, argv);
    NEED(cuModuleLoadData);
    TELL(cuModuleLoadData, &module, kernels_ptx);
    TELL(cuModuleGetFunction, &fill, module, "fill");
    TELL(cuModuleGetFunction, &none, module, "no_such_kernel");
    TELL(cuModuleLoadData, &bad, "this is no PTX");
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &p, 8192);
    /* A memset of device memory does not wait for itself. */
    MUST(cuMemsetD8, p, 0, 8192);
    MUST(cuCtxSynchronize);
    TELL(cuLaunchKernel, fill, 4, 1, 1, 256, 1, 1, 0, s, arguments, NULL);
    TELL(cuStreamSynchronize, s);
    uint32_t got[2048];
    MUST(cuMemcpyDtoH, got, p, 8192);
    FACT(got[0] == value && got[1023] == value && got[1024] == 0);
    value = 7, count = 2;
    TELL(cuLaunchKernel, fill, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
    TELL(cuCtxSynchronize);
    MUST(cuMemcpyDtoH, got, p, 8192);
    FACT(got[0] == 7 && got[1] == 7 && got[2] == 0x01020304);
    cu_say("refused");
    TELL(cuLaunchKernel, fill, 0, 1, 1, 32, 1, 1, 0, s, arguments, NULL);
    TELL(cuLaunchKernel, fill, 1, 1, 1, 0, 1, 1, 0, s, arguments, NULL);
    TELL(cuLaunchKernel, fill, 1, 1, 1, 4096, 1, 1, 0, s, arguments, NULL);
    TELL(cuModuleUnload, module);
    MUST(cuMemFree, p);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
