/* The primary context: retained, released, reset with live memory, and used again. */
#include "cu.h"

static void state(CUdevice device)
{
    unsigned flags = 99;
    int active = -1;
    MUST(cuDevicePrimaryCtxGetState, device, &flags, &active);
    cu_say("active: %d", active);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext a = NULL, b = NULL, now;
    CUdeviceptr p, q;

    cu_load(argc, argv);
    MUST(cuInit, 0);
    MUST(cuDeviceGet, &device, 0);
    state(device);
    TELL(cuMemAlloc, &p, 4096);
    TELL(cuDevicePrimaryCtxRetain, &a, device);
    TELL(cuDevicePrimaryCtxRetain, &b, device);
    FACT(a == b && a != NULL);
    state(device);
    TELL(cuCtxGetCurrent, &now);
    FACT(now == NULL);
    TELL(cuCtxSetCurrent, a);
    TELL(cuMemAlloc, &p, 1 << 20);
    TELL(cuDevicePrimaryCtxRelease, device);
    state(device);
    TELL(cuMemsetD8, p, 3, 1 << 20);
    FACT(cu_all_bytes(p, 1 << 20, 3));

    cu_say("reset");
    TELL(cuDevicePrimaryCtxReset, device);
    state(device);
    TELL(cuMemFree, p);
    TELL(cuMemAlloc, &q, 4096);
    TELL(cuDevicePrimaryCtxRetain, &b, device);
    state(device);
    TELL(cuCtxSetCurrent, b);
    TELL(cuMemAlloc, &q, 1 << 20);
    TELL(cuMemsetD8, q, 4, 1 << 20);
    FACT(cu_all_bytes(q, 1 << 20, 4));
    TELL(cuMemFree, q);

    cu_say("released with live memory");
    TELL(cuMemAlloc, &q, 1 << 20);
    TELL(cuDevicePrimaryCtxRelease, device);
    state(device);
    TELL(cuMemFree, q);
    TELL(cuDevicePrimaryCtxRetain, NULL, device);
    TELL(cuDevicePrimaryCtxRetain, &b, 999);
    return cu_end();
}
