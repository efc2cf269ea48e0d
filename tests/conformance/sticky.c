/* What every kind of call answers once a kernel has faulted; and what goes on working. */
#include <string.h>

#include "launch.h"

#define UNIT ((size_t)2 << 20)

int main(int argc, char **argv)
{
    CUdeviceptr p, q = 0, at = 0, again = 0;
    CUcontext context, now = NULL;
    CUdevice device;
    CUevent unrecorded, recorded, another;
    CUstream stream;
    CUmemGenericAllocationHandle handle = 0, later = 0;
    CUmemAllocationProp prop;
    size_t free_bytes, total;
    unsigned type = 0;

    cu_start(argc, argv);
    NEED(cuCtxRecordEvent);
    MUST(cuCtxGetCurrent, &context);
    MUST(cuCtxGetDevice, &device);
    kernels_load();
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &unrecorded, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &recorded, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &another, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventRecord, recorded, stream);
    MUST(cuMemAlloc, &p, 1 << 20);
    MUST(cuMemAlloc, &q, 1 << 20);
    MUST(cuMemFree, q);
    MUST(cuCtxSynchronize);
    cu_must("fault", kernel_fault(stream));
    TELL(cuStreamSynchronize, stream);

    cu_say("lost");
    TELL(cuMemAlloc, &q, 4096);
    TELL(cuMemAlloc, &q, 0);
    TELL(cuMemAlloc, &q, (size_t)1 << 40);
    TELL(cuMemFree, p);
    TELL(cuMemFree, p);
    TELL(cuMemFree, 0);
    TELL(cuMemFree, 12345);
    TELL(cuMemFree, p + 1);
    TELL(cuEventQuery, unrecorded);
    TELL(cuEventQuery, recorded);
    TELL(cuMemGetInfo, &free_bytes, &total);
    TELL(cuCtxRecordEvent, context, another);
    TELL(cuCtxSynchronize);
    TELL(cuMemAlloc, &q, 4096);

    cu_say("kept");
    TELL(cuCtxGetCurrent, &now);
    FACT(now == context);
    TELL(cuMemCreate, &handle, UNIT, &prop, 0);
    TELL(cuMemAddressReserve, &at, UNIT, 0, 0, 0);
    TELL(cuMemMap, at, UNIT, 0, handle, 0);
    TELL(cuMemUnmap, at, UNIT);
    TELL(cuMemCreate, &later, UNIT, &prop, 0);
    TELL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    FACT(type == CU_MEMORYTYPE_DEVICE);
    TELL(cuMemAlloc, &again, 4096);
    return cu_end();
}
