/* Requests that no device can serve fail, and leave everything as it was. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdeviceptr p, unset = 0x5a5a5a5a;
    size_t total, free_before, free_after;
    CUdevice device;

    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuDeviceTotalMem, &total, device);
    MUST(cuMemGetInfo, &free_before, &total);
    TELL(cuMemAlloc, &unset, total + 1);
    TELL(cuMemAlloc, &unset, 2 * total);
    TELL(cuMemAlloc, &unset, (size_t)1 << 62);
    TELL(cuMemAlloc, &unset, ~(size_t)0);
    TELL(cuMemAlloc, &unset, ~(size_t)0 - 4096);
    FACT(unset == 0);
    MUST(cuMemGetInfo, &free_after, &total);
    FACT(free_after == free_before);

    TELL(cuMemAlloc, &p, 1 << 20);
    TELL(cuMemsetD8, p, 1, 1 << 20);
    FACT(cu_all_bytes(p, 1 << 20, 1));
    TELL(cuMemFree, p);
    return cu_end();
}
