/* Memory pools: which one is current, what their counters say, what is refused. */
#include "cu.h"

static uint64_t counter(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    MUST(cuMemPoolGetAttribute, pool, attribute, &value);
    return value;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUmemoryPool standard = NULL, current = NULL, own = NULL;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUdeviceptr p = 0, q = 0;
    CUstream s;
    cuuint64_t value;

    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    TELL(cuDeviceGetDefaultMemPool, &standard, device);
    TELL(cuDeviceGetMemPool, &current, device);
    FACT(standard != NULL && standard == current);

    TELL(cuMemPoolCreate, &own, &props);
    FACT(own != NULL && own != standard);
    FACT(counter(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    FACT(counter(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
    TELL(cuMemAllocFromPoolAsync, &p, 1 << 20, own, s);
    MUST(cuStreamSynchronize, s);
    FACT(counter(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 1 << 20);
    FACT(counter(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 1 << 20);
    TELL(cuMemAllocFromPoolAsync, &q, 2 << 20, own, s);
    TELL(cuMemFreeAsync, p, s);
    TELL(cuMemFreeAsync, q, s);
    MUST(cuStreamSynchronize, s);
    FACT(counter(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    FACT(counter(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 3 << 20);
    value = 0;
    TELL(cuMemPoolSetAttribute, own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);
    FACT(counter(own, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
    value = 1;
    TELL(cuMemPoolSetAttribute, own, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);
    value = 64 << 20;
    TELL(cuMemPoolSetAttribute, own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    FACT(counter(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 64 << 20);
    TELL(cuMemPoolTrimTo, own, 0);
    FACT(counter(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);

    cu_say("as the current pool");
    TELL(cuDeviceSetMemPool, device, own);
    TELL(cuDeviceGetMemPool, &current, device);
    FACT(current == own);
    MUST(cuMemAllocAsync, &p, 3 << 20, s);
    MUST(cuStreamSynchronize, s);
    FACT(counter(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3 << 20);
    MUST(cuMemFreeAsync, p, s);
    MUST(cuStreamSynchronize, s);
    TELL(cuMemPoolDestroy, own);
    TELL(cuDeviceGetMemPool, &current, device);
    FACT(current == standard);

    cu_say("refused");
    TELL(cuMemPoolCreate, NULL, &props);
    TELL(cuMemPoolDestroy, standard);
    TELL(cuMemAllocFromPoolAsync, &p, 0, standard, s);
    TELL(cuMemAllocFromPoolAsync, NULL, 4096, standard, s);
    TELL(cuDeviceGetDefaultMemPool, NULL, device);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
