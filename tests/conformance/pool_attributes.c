/*
 * What memory pools say of themselves while their memory comes and goes: the counters, their
 * resets, the release threshold, trims, which pool is current, whose a pointer is, what is refused.
 *
 * Of counters only what holds for every way of holding memory is said: a pool may round sizes up,
 * keep more than is used, and take its time to give it back.
 *
 * With POOL_MORE set it goes on with what not every machine has or survives: a pool of another
 * device (with POOL_LATE_ACCESS also: opened to this one late), and the handle of a pool that is
 * gone.
 */
#include <stdlib.h>

#include "cu.h"

#define MIB ((size_t)1 << 20)
enum { SIZES = 8 };
static const size_t sizes[SIZES] = {1, 511, 4096, 70000, MIB + 1, 2 * MIB, 5 * MIB + 512, 16 * MIB};

static CUdevice device;
static CUstream stream;
static CUmemoryPool standard;
static const CUmemPoolProps plain_props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static uint64_t number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    MUST(cuMemPoolGetAttribute, pool, attribute, &value);
    return value;
}

static int flag(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    int value = -1;
    MUST(cuMemPoolGetAttribute, pool, attribute, &value);
    return value;
}

static CUresult set(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t value)
{
    return CU(cuMemPoolSetAttribute)(pool, attribute, &value);
}

/* Prints what it answers. */
#define SET(pool, name, value)                                                                     \
    cu_told("set " #name " of " #pool " to " #value, set(pool, CU_MEMPOOL_ATTR_##name, value))

static uint64_t used(CUmemoryPool pool)
{
    return number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

static uint64_t reserved(CUmemoryPool pool)
{
    return number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static uint64_t used_high(CUmemoryPool pool)
{
    return number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
}

static uint64_t reserved_high(CUmemoryPool pool)
{
    return number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
}

/* The relations of the four counters, once the stream's work is over. */
static void relations(CUmemoryPool pool, size_t live)
{
    MUST(cuStreamSynchronize, stream);
    FACT(used(pool) >= live && (live > 0 || used(pool) == 0));
    FACT(reserved(pool) >= used(pool));
    FACT(used_high(pool) >= used(pool) && reserved_high(pool) >= reserved(pool));
    FACT(reserved_high(pool) >= used_high(pool));
}

static size_t take(CUmemoryPool pool, CUdeviceptr *p)
{
    size_t sum = 0;

    for (int i = 0; i < SIZES; i++) {
        MUST(cuMemAllocFromPoolAsync, &p[i], sizes[i], pool, stream);
        MUST(cuMemsetD8Async, p[i], (unsigned char)(i + 1), sizes[i], stream);
        sum += sizes[i];
    }
    return sum;
}

/* Frees every step-th from the first on; says how many bytes those were. */
static size_t let_go(CUdeviceptr *p, int first, int step)
{
    size_t sum = 0;

    for (int i = first; i < SIZES; i += step) {
        MUST(cuMemFreeAsync, p[i], stream);
        sum += sizes[i];
    }
    return sum;
}

static void counters(void)
{
    CUmemoryPool own = NULL;
    CUdeviceptr p[SIZES];
    uint64_t others, peak;

    cu_say("counters of a new pool");
    TELL(cuMemPoolCreate, &own, &plain_props);
    FACT(used(own) == 0 && used_high(own) == 0 && reserved(own) == 0 && reserved_high(own) == 0);
    FACT(number(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
    FACT(flag(own, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES) == 1);
    FACT(flag(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) == 1);
    FACT(flag(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) == 1);
    SET(own, REUSE_ALLOW_OPPORTUNISTIC, 0);
    FACT(flag(own, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) == 0);
    SET(own, REUSE_ALLOW_OPPORTUNISTIC, 1);

    cu_say("with memory");
    others = used(standard);
    size_t live = take(own, p);
    relations(own, live);
    FACT(used(standard) == others);
    peak = used_high(own);
    cu_say("half of it");
    live -= let_go(p, 0, 2);
    relations(own, live);
    FACT(used_high(own) == peak);
    cu_say("the highest are reset");
    SET(own, USED_MEM_HIGH, 0);
    SET(own, RESERVED_MEM_HIGH, 0);
    FACT(used_high(own) == used(own) && reserved_high(own) == reserved(own));
    relations(own, live);
    cu_say("none");
    live -= let_go(p, 1, 2);
    relations(own, live);
    TELL(cuMemPoolTrimTo, own, 0);
    FACT(reserved(own) == 0);
    FACT(used_high(own) > 0 && reserved_high(own) > 0);
    SET(own, USED_MEM_HIGH, 0);
    SET(own, RESERVED_MEM_HIGH, 0);
    FACT(used_high(own) == 0 && reserved_high(own) == 0);
    TELL(cuMemPoolDestroy, own);
}

/* A current pool keeps what its threshold says; a trim takes that, but nothing that is in use. */
static void threshold(void)
{
    CUmemoryPool own = NULL, now = NULL;
    CUdeviceptr p = 0, q = 0;

    cu_say("a current pool with a threshold");
    MUST(cuMemPoolCreate, &own, &plain_props);
    SET(own, RELEASE_THRESHOLD, 192 * MIB);
    FACT(number(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 192 * MIB);
    FACT(number(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0);
    TELL(cuDeviceSetMemPool, device, own);
    TELL(cuDeviceGetMemPool, &now, device);
    FACT(now == own);
    MUST(cuMemAllocAsync, &p, 64 * MIB, stream);
    MUST(cuMemAllocAsync, &q, 64 * MIB, stream);
    relations(own, 128 * MIB);
    MUST(cuMemFreeAsync, q, stream);
    relations(own, 64 * MIB);
    FACT(reserved(own) >= 128 * MIB);
    TELL(cuMemPoolTrimTo, own, 96 * MIB);
    FACT(reserved(own) >= 96 * MIB);
    TELL(cuMemPoolTrimTo, own, 0);
    relations(own, 64 * MIB);
    FACT(reserved(own) < 128 * MIB);
    MUST(cuMemsetD8Async, p + 63 * MIB, 7, MIB, stream);
    MUST(cuStreamSynchronize, stream);
    FACT(cu_all_bytes(p + 63 * MIB, MIB, 7));

    cu_say("destroyed with memory in use");
    TELL(cuMemPoolDestroy, own);
    TELL(cuDeviceGetMemPool, &now, device);
    FACT(now == standard);
    MUST(cuMemAllocAsync, &q, 64 * MIB, stream);
    MUST(cuMemsetD8Async, q + 63 * MIB, 8, MIB, stream);
    MUST(cuStreamSynchronize, stream);
    FACT(cu_all_bytes(p + 63 * MIB, MIB, 7));
    TELL(cuMemFreeAsync, p, stream);
    TELL(cuMemFreeAsync, q, stream);
    relations(standard, 0);
    TELL(cuMemPoolTrimTo, standard, 0);
    FACT(reserved(standard) == 0);
}

static void describe(const char *what, CUdeviceptr p, size_t size, CUmemoryPool pool)
{
    CUmemoryPool found = standard;
    CUdeviceptr start = 0;
    size_t range = 0;
    unsigned type = 0;
    int managed = -1, ipc = -1, ordinal = -1;

    cu_say("a pointer to %s", what);
    TELL(cuPointerGetAttribute, &found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p + size / 2);
    FACT(found == pool);
    TELL(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + size / 2);
    TELL(cuPointerGetAttribute, &range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + size / 2);
    FACT(start <= p && start + range >= p + size);
    TELL(cuMemGetAddressRange, &start, &range, p + size / 2);
    FACT(start <= p && start + range >= p + size);
    TELL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    TELL(cuPointerGetAttribute, &managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    TELL(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    TELL(cuPointerGetAttribute, &ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
    cu_say("type %u, managed %d, device %d", type, managed, ordinal);
    if (pool != NULL)
        FACT(ipc == 0);
}

static void pointers(void)
{
    CUmemoryPool own = NULL;
    CUdeviceptr p = 0, q = 0, plain = 0;
    CUmemPoolPtrExportData data;
    CUipcMemHandle handle;
    int descriptor = -1;

    MUST(cuMemPoolCreate, &own, &plain_props);
    MUST(cuMemAllocAsync, &p, 3 * MIB, stream);
    MUST(cuMemAllocFromPoolAsync, &q, 4096, own, stream);
    MUST(cuMemAlloc, &plain, MIB);
    MUST(cuStreamSynchronize, stream);
    describe("the default pool", p, 3 * MIB, standard);
    describe("another pool", q, 4096, own);
    describe("no pool", plain, MIB, NULL);
    cu_say("not to be exported");
    TELL(cuMemPoolExportToShareableHandle, &descriptor, own,
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    TELL(cuMemPoolExportPointer, &data, q);
    TELL(cuMemPoolExportPointer, &data, plain);
    TELL(cuMemPoolExportPointer, NULL, q);
    TELL(cuIpcGetMemHandle, &handle, p);
    TELL(cuIpcGetMemHandle, &handle, q);
    TELL(cuIpcGetMemHandle, &handle, q + 512);
    MUST(cuMemFreeAsync, p, stream);
    MUST(cuMemFreeAsync, q, stream);
    MUST(cuMemFree, plain);
    MUST(cuStreamSynchronize, stream);
    MUST(cuMemPoolDestroy, own);
}

static void access_rights(void)
{
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUmemAccessDesc own = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    cu_say("access");
    TELL(cuMemPoolGetAccess, &flags, standard, &here);
    FACT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    TELL(cuMemPoolSetAccess, standard, &own, 1);
    TELL(cuMemPoolGetAccess, &flags, standard, &here);
    FACT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static void refused(void)
{
    CUmemoryPool pool = NULL, limited = NULL;
    CUmemPoolProps props = plain_props;
    CUdeviceptr p = 0;
    cuuint64_t value = 0;

    cu_say("refused");
    TELL(cuMemPoolCreate, &pool, NULL);
    props.location.id = 99;
    FACT(CU(cuMemPoolCreate)(&pool, &props) != CUDA_SUCCESS);
    props.location.id = 0;
    props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    TELL(cuMemPoolCreate, &pool, &props);
    TELL(cuMemPoolDestroy, NULL);
    TELL(cuMemPoolTrimTo, NULL, 0);
    TELL(cuMemPoolGetAttribute, standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL);
    TELL(cuMemPoolGetAttribute, NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
    TELL(cuMemPoolGetAttribute, standard, (CUmemPool_attribute)0, &value);
    TELL(cuMemPoolSetAttribute, NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    SET(standard, USED_MEM_HIGH, 4096);
    SET(standard, RESERVED_MEM_HIGH, 4096);
    SET(standard, USED_MEM_CURRENT, 0);
    SET(standard, RESERVED_MEM_CURRENT, 0);
    TELL(cuDeviceSetMemPool, device, NULL);
    TELL(cuDeviceGetMemPool, NULL, device);
    TELL(cuMemAllocFromPoolAsync, &p, 4096, NULL, stream);
    TELL(cuMemAllocFromPoolAsync, NULL, 4096, standard, stream);
    TELL(cuMemAllocFromPoolAsync, &p, (size_t)1 << 60, standard, stream);
    TELL(cuMemAllocAsync, &p, SIZE_MAX, stream);
    props = plain_props;
    props.maxSize = 32 * MIB;
    TELL(cuMemPoolCreate, &limited, &props);
    TELL(cuMemAllocFromPoolAsync, &p, 256 * MIB, limited, stream);
    MUST(cuMemAllocFromPoolAsync, &p, 4096, limited, stream);
    MUST(cuMemFreeAsync, p, stream);
    MUST(cuStreamSynchronize, stream);
    MUST(cuMemPoolDestroy, limited);
}

static void of_another_device(void)
{
    CUmemoryPool far = NULL, now = NULL;
    CUmemPoolProps props = plain_props;
    CUmemAccessDesc near = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr p = 0, q = 0;
    int ordinal = -1;

    cu_say("a pool of another device");
    props.location.id = 1;
    TELL(cuMemPoolCreate, &far, &props);
    TELL(cuDeviceSetMemPool, device, far);
    TELL(cuMemPoolGetAccess, &flags, far, &near.location);
    FACT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    TELL(cuMemPoolSetAccess, far, &near, 1);
    TELL(cuMemPoolGetAccess, &flags, far, &near.location);
    FACT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    TELL(cuMemAllocFromPoolAsync, &p, MIB, far, stream);
    TELL(cuMemsetD8Async, p, 5, MIB, stream);
    MUST(cuStreamSynchronize, stream);
    FACT(cu_all_bytes(p, MIB, 5));
    TELL(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    FACT(ordinal == 1 && used(far) >= MIB);
    TELL(cuDeviceSetMemPool, 1, far);
    TELL(cuDeviceGetMemPool, &now, 1);
    FACT(now == far);
    TELL(cuMemAllocAsync, &q, MIB, stream); /* of the stream's device */
    MUST(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, q);
    FACT(ordinal == 0);
    TELL(cuMemFreeAsync, p, stream);
    TELL(cuMemFreeAsync, q, stream);
    MUST(cuStreamSynchronize, stream);
    FACT(used(far) == 0);
    TELL(cuMemPoolDestroy, far);
}

/* A pool that has given memory out is opened to another device. */
static void late_access(void)
{
    CUmemoryPool far = NULL;
    CUmemPoolProps props = plain_props;
    CUmemAccessDesc near = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr p = 0, q = 0;

    cu_say("access that comes while memory is in use");
    props.location.id = 1;
    MUST(cuMemPoolCreate, &far, &props);
    CUcontext here = NULL, there = NULL;
    CUstream remote = NULL;
    MUST(cuCtxGetCurrent, &here);
    MUST(cuDevicePrimaryCtxRetain, &there, 1);
    MUST(cuCtxSetCurrent, there);
    MUST(cuStreamCreate, &remote, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAllocFromPoolAsync, &p, MIB, far, remote);
    MUST(cuMemsetD8Async, p, 6, MIB, remote);
    MUST(cuStreamSynchronize, remote);
    TELL(cuMemPoolSetAccess, far, &near, 1);
    MUST(cuMemAllocFromPoolAsync, &q, MIB, far, remote);
    MUST(cuStreamSynchronize, remote);
    MUST(cuCtxSetCurrent, here);
    TELL(cuMemcpyDtoDAsync, q, p, MIB, stream);
    TELL(cuStreamSynchronize, stream);
    FACT(cu_all_bytes(q, MIB, 6));
    TELL(cuMemFreeAsync, p, stream);
    TELL(cuMemFreeAsync, q, remote);
    MUST(cuStreamSynchronize, stream);
    MUST(cuStreamSynchronize, remote);
    FACT(used(far) == 0);
    MUST(cuMemPoolDestroy, far);
    MUST(cuStreamDestroy, remote);
    MUST(cuDevicePrimaryCtxRelease, 1);
}

static void stale(void)
{
    CUmemoryPool gone = NULL;
    CUdeviceptr p = 0;
    cuuint64_t value = 0;

    cu_say("a pool that is gone");
    MUST(cuMemPoolCreate, &gone, &plain_props);
    MUST(cuMemPoolDestroy, gone);
    TELL(cuMemPoolDestroy, gone);
    TELL(cuMemPoolTrimTo, gone, 0);
    TELL(cuMemPoolGetAttribute, gone, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
    SET(gone, RELEASE_THRESHOLD, MIB);
    SET(gone, USED_MEM_HIGH, 0);
    TELL(cuDeviceSetMemPool, device, gone);
    TELL(cuMemAllocFromPoolAsync, &p, 4096, gone, stream);
}

int main(int argc, char **argv)
{
    cu_start(argc, argv);
    NEED(cuMemPoolCreate);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuDeviceGetDefaultMemPool, &standard, device);
    counters();
    threshold();
    pointers();
    access_rights();
    refused();
    if (getenv("POOL_MORE") != NULL) {
        int devices = 0;
        MUST(cuDeviceGetCount, &devices);
        if (devices > 1)
            of_another_device();
        if (devices > 1 && getenv("POOL_LATE_ACCESS") != NULL)
            late_access();
        stale();
    }
    MUST(cuStreamDestroy, stream);
    return cu_end();
}
