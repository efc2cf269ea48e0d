/* Devices: numbering, names, and what is refused; before cuInit and after. */
#include <string.h>

#include "cu.h"

int main(int argc, char **argv)
{
    CUdevice device = -1;
    CUuuid id = {{0}}, none = {{0}};
    int count = -1, version = 0, major = -1, unified = -1;
    char name[256] = "";
    size_t total = 0;
    CUcontext context = NULL;
    CUdeviceptr p = 0;

    cu_load(argc, argv);
    cu_say("before cuInit");
    TELL(cuDeviceGetCount, &count);
    TELL(cuDeviceGet, &device, 0);
    TELL(cuDeviceTotalMem, &total, 0);
    TELL(cuCtxGetCurrent, &context);
    TELL(cuMemAlloc, &p, 4096);
    TELL(cuMemAlloc, NULL, 0);
    TELL(cuMemFree, 0);
    TELL(cuMemFree, 12345);
    TELL(cuMemGetInfo, &total, &total);
    TELL(cuMemAllocAsync, &p, 4096, NULL);
    TELL(cuDevicePrimaryCtxRetain, &context, 0);
    TELL(cuDriverGetVersion, &version);
    FACT(version >= 11000);
    TELL(cuInit, 1);
    TELL(cuDeviceGetCount, &count);
    TELL(cuInit, 0);
    TELL(cuInit, 0);

    cu_say("after it");
    TELL(cuDeviceGetCount, &count);
    FACT(count >= 1);
    TELL(cuDeviceGet, &device, 0);
    TELL(cuDeviceGet, &device, count);
    TELL(cuDeviceGet, &device, -1);
    TELL(cuDeviceGet, NULL, 0);
    TELL(cuDeviceGetCount, NULL);
    MUST(cuDeviceGet, &device, 0);
    TELL(cuDeviceGetName, name, sizeof name, device);
    FACT(strlen(name) > 0);
    TELL(cuDeviceGetUuid, &id, device);
    FACT(memcmp(&id, &none, sizeof id) != 0);
    TELL(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    FACT(major >= 5);
    TELL(cuDeviceGetAttribute, &unified, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device);
    FACT(unified == 1);
    TELL(cuDeviceGetAttribute, &major, 100000, device);
    TELL(cuDeviceGetName, name, sizeof name, 999);
    return cu_end();
}
