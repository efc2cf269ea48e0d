/* cuMemAllocManaged: the host writes, the device reads, and the other way round. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdevice device;
    CUdeviceptr p = 0, base = 0;
    int has = 0, managed = -1;
    size_t size = 0;

    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuDeviceGetAttribute, &has, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device);
    if (!has)
        cu_absent("managed memory");

    TELL(cuMemAllocManaged, &p, 4 << 20, CU_MEM_ATTACH_GLOBAL);
    volatile unsigned char *bytes = (volatile unsigned char *)(uintptr_t)p;
    bytes[0] = 11;
    bytes[(4 << 20) - 1] = 12;
    unsigned char got[2] = {0};
    MUST(cuMemcpyDtoH, &got[0], p, 1);
    MUST(cuMemcpyDtoH, &got[1], p + (4 << 20) - 1, 1);
    FACT(got[0] == 11 && got[1] == 12);
    TELL(cuMemsetD8, p, 33, 4 << 20);
    TELL(cuCtxSynchronize);
    FACT(bytes[0] == 33 && bytes[1 << 20] == 33 && bytes[(4 << 20) - 1] == 33);
    TELL(cuMemGetAddressRange, &base, &size, p + 5);
    FACT(base == p && size == 4 << 20);
    TELL(cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    FACT(managed == 1);
    TELL(cuMemFree, p + 16);
    TELL(cuMemFree, p);
    TELL(cuMemFree, p);

    TELL(cuMemAllocManaged, &p, 100, CU_MEM_ATTACH_HOST);
    TELL(cuMemFree, p);
    TELL(cuMemAllocManaged, &p, 0, CU_MEM_ATTACH_GLOBAL);
    TELL(cuMemAllocManaged, &p, 100, 0);
    TELL(cuMemAllocManaged, &p, 100, CU_MEM_ATTACH_SINGLE);
    TELL(cuMemAllocManaged, &p, 100, 64);
    TELL(cuMemAllocManaged, NULL, 100, CU_MEM_ATTACH_GLOBAL);
    return cu_end();
}
