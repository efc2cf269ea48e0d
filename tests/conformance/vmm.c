/* Virtual memory management: reserve, create, map, use, unmap, release, and what is refused. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdevice device;
    int has = 0;
    size_t unit = 0, size = 0;
    CUdeviceptr at = 0, base = 0;
    CUmemGenericAllocationHandle handle = 0, kept = 0, wrong = 0;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAllocationProp got = {0};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    cu_start(argc, argv);
    NEED(cuMemCreate);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuDeviceGetAttribute, &has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
         device);
    if (!has)
        cu_absent("virtual memory management");
    TELL(cuMemGetAllocationGranularity, &unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    FACT(unit == 2 << 20);

    TELL(cuMemAddressReserve, &at, 4 * unit, 0, 0, 0);
    FACT(at % unit == 0);
    TELL(cuMemCreate, &handle, unit, &prop, 0);
    TELL(cuMemMap, at, unit, 0, handle, 0);
    TELL(cuMemSetAccess, at, unit, &access, 1);
    TELL(cuMemsetD8, at, 21, unit);
    FACT(cu_all_bytes(at, unit, 21));
    TELL(cuMemGetAddressRange, &base, &size, at + 5);
    FACT(base == at);
    TELL(cuMemRetainAllocationHandle, &kept, (void *)(uintptr_t)at);
    FACT(kept == handle);
    TELL(cuMemGetAllocationPropertiesFromHandle, &got, handle);
    FACT(got.type == prop.type && got.location.type == prop.location.type);
    TELL(cuMemRelease, kept);

    cu_say("not for cuMemFree");
    TELL(cuMemFree, at);
    FACT(cu_all_bytes(at, unit, 21));

    cu_say("the same memory at a second address");
    TELL(cuMemMap, at + 2 * unit, unit, 0, handle, 0);
    TELL(cuMemSetAccess, at + 2 * unit, unit, &access, 1);
    FACT(cu_all_bytes(at + 2 * unit, unit, 21));
    TELL(cuMemUnmap, at + 2 * unit, unit);

    cu_say("refused");
    TELL(cuMemMap, at, unit, 0, handle, 0);
    TELL(cuMemUnmap, at, unit / 2);
    TELL(cuMemUnmap, at + unit, unit);
    TELL(cuMemCreate, &wrong, unit + 1, &prop, 0);
    TELL(cuMemCreate, &wrong, 0, &prop, 0);
    TELL(cuMemCreate, NULL, unit, &prop, 0);
    TELL(cuMemCreate, &wrong, (size_t)1 << 60, &prop, 0);
    TELL(cuMemAddressFree, at, 4 * unit);
    TELL(cuMemRelease, 0);

    cu_say("released while mapped, still there");
    TELL(cuMemRelease, handle);
    FACT(cu_all_bytes(at, unit, 21));
    TELL(cuMemUnmap, at, unit);
    TELL(cuMemUnmap, at, unit);
    TELL(cuMemAddressFree, at, 4 * unit);
    TELL(cuMemAddressFree, at, 4 * unit);
    return cu_end();
}
