/* Hooks: what the driver says about memory. */
#include "shim/guard.h"

VS_HOOK cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    VS_HOOK_ENTER(cuMemGetInfo_v2)
    return guard.entries->cuMemGetInfo_v2(free_bytes, total);
}

VS_HOOK cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuMemGetAddressRange_v2)
    return guard.entries->cuMemGetAddressRange_v2(base, size, address);
}

VS_HOOK cuPointerGetAttribute(void *data, CUpointer_attribute name, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuPointerGetAttribute)
    return guard.entries->cuPointerGetAttribute(data, name, address);
}

VS_HOOK cuPointerGetAttributes(unsigned int count, CUpointer_attribute *names, void **data,
                               CUdeviceptr address)
{
    VS_HOOK_ENTER(cuPointerGetAttributes)
    return guard.entries->cuPointerGetAttributes(count, names, data, address);
}

VS_HOOK cuPointerSetAttribute(const void *value, CUpointer_attribute name, CUdeviceptr address)
{
    VS_HOOK_ENTER(cuPointerSetAttribute)
    return guard.entries->cuPointerSetAttribute(value, name, address);
}
