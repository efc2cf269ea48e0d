/* Pinned host memory: allocated, registered, seen by the device, freed wrongly. */
#include <stdlib.h>

#include "cu.h"

int main(int argc, char **argv)
{
    void *a = NULL, *b = NULL, *plain = NULL;
    CUdeviceptr p = 0;
    unsigned flags = 99;

    cu_start(argc, argv);
    TELL(cuMemAllocHost, &a, 1 << 20);
    TELL(cuMemHostAlloc, &b, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    TELL(cuMemHostGetDevicePointer, &p, a, 0);
    FACT(p == (CUdeviceptr)(uintptr_t)a);
    TELL(cuMemHostGetFlags, &flags, b);
    cu_say("flags: %u", flags);
    TELL(cuMemsetD8, p, 65, 1 << 20);
    TELL(cuCtxSynchronize);
    FACT(((volatile unsigned char *)a)[12345] == 65);
    TELL(cuMemFree, p);
    TELL(cuMemFreeHost, a);
    TELL(cuMemFreeHost, a);
    TELL(cuMemFreeHost, b);
    TELL(cuMemFreeHost, NULL);
    TELL(cuMemAllocHost, &a, 0);
    TELL(cuMemAllocHost, NULL, 4096);
    TELL(cuMemHostAlloc, &a, 4096, 1u << 20);

    cu_say("registered");
    if (posix_memalign(&plain, 4096, 8192) != 0)
        return 1;
    TELL(cuMemHostRegister, plain, 8192, 0);
    TELL(cuMemHostRegister, plain, 8192, 0);
    TELL(cuMemHostGetDevicePointer, &p, plain, 0);
    TELL(cuMemHostUnregister, plain);
    TELL(cuMemHostUnregister, plain);
    TELL(cuMemFreeHost, plain);
    free(plain);
    return cu_end();
}
