/* cuMemGetInfo and cuDeviceTotalMem: consistent, moved by allocations, NULLs, no context. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdevice device;
    CUdeviceptr p;
    size_t total = 0, whole = 0, before = 0, during = 0, after = 0;

    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    TELL(cuDeviceTotalMem, &whole, device);
    TELL(cuMemGetInfo, &before, &total);
    FACT(total == whole);
    FACT(before > 0 && before <= total);
    TELL(cuMemAlloc, &p, 64 << 20);
    TELL(cuMemGetInfo, &during, &total);
    FACT(before - during == 64 << 20);
    TELL(cuMemFree, p);
    TELL(cuMemGetInfo, &after, &total);
    FACT(after == before);

    TELL(cuMemGetInfo, NULL, &total);
    TELL(cuMemGetInfo, &before, NULL);
    TELL(cuMemGetInfo, NULL, NULL);
    TELL(cuDeviceTotalMem, NULL, device);
    TELL(cuDeviceTotalMem, &whole, 999);
    TELL(cuDeviceTotalMem, &whole, -1);
    MUST(cuCtxSetCurrent, NULL);
    TELL(cuMemGetInfo, &before, &total);
    TELL(cuDeviceTotalMem, &whole, device);
    return cu_end();
}
