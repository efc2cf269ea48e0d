/*
 * Virtual memory management: reservations, physical handles, mappings.
 *
 * A handle and each of its mappings hold the memory; it is given back when the last of them goes. A
 * handle may be mapped at several addresses at once: the same bytes, with an access of each. A
 * mapping needs access for the device that uses it, cannot be unmapped in part, and its unmapping
 * takes effect at once, without waiting for anything: whatever still uses it, or is in the middle
 * of using it, is a bad access. Work that goes through another mapping of the handle goes on.
 */
#include "sim.h"

#include <stdlib.h>

#define GRANULARITY ((size_t)2 << 20)

struct sim_handle {
    struct sim_phys *phys;
    CUmemAllocationProp prop;
    unsigned refs;     /* cuMemCreate, cuMemRetainAllocationHandle */
    unsigned mappings; /* keep the struct alive for cuMemRetainAllocationHandle */
    struct sim_handle *next;
};

static struct sim_handle *handles;

static struct sim_handle *find(CUmemGenericAllocationHandle value)
{
    struct sim_handle *handle = handles;
    while (handle != NULL && (uintptr_t)handle != value)
        handle = handle->next;
    return handle != NULL && handle->refs > 0 ? handle : NULL;
}

static void drop(struct sim_handle *handle)
{
    if (handle->refs > 0 || handle->mappings > 0)
        return;
    for (struct sim_handle **at = &handles; *at != NULL; at = &(*at)->next) {
        if (*at == handle) {
            *at = handle->next;
            break;
        }
    }
    sim_phys_unref(handle->phys);
    free(handle);
}

static bool good_prop(const CUmemAllocationProp *prop)
{
    return prop != NULL && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           ((unsigned)prop->requestedHandleTypes &
            (CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT)) == 0;
}

struct sim_phys *sim_handle_phys(CUmemGenericAllocationHandle value, CUmemAllocationProp *prop)
{
    const struct sim_handle *handle = find(value);
    if (handle == NULL)
        return NULL;
    *prop = handle->prop;
    return handle->phys;
}

CUmemGenericAllocationHandle sim_handle_new(struct sim_phys *phys, const CUmemAllocationProp *prop)
{
    struct sim_handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL)
        abort();
    *handle = (struct sim_handle){.phys = phys, .prop = *prop, .refs = 1, .next = handles};
    handles = handle;
    return (uintptr_t)handle;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    SIM_ENTRY(cuMemGetAllocationGranularity);
    if (out == NULL || !good_prop(prop) || (unsigned)option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(prop->location.id) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    SIM_ENTRY(cuMemCreate);
    if (out == NULL || size == 0 || size % GRANULARITY != 0 || !good_prop(prop) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_device *device = sim_device(prop->location.id);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_phys *phys;
    CUresult result = sim_capture_unsafe(NULL);
    if (result == CUDA_SUCCESS)
        result = sim_phys_new(device->physical, size, &phys);
    /* Its bytes have to lie where another process can reach them before anything runs on them. */
    if (result == CUDA_SUCCESS && prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        sim_phys_share(phys) < 0) {
        sim_phys_unref(phys);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *out = sim_handle_new(phys, prop);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle value)
{
    SIM_ENTRY(cuMemRelease);
    sim_lock();
    struct sim_handle *handle = find(value);
    if (handle != NULL) {
        handle->refs--;
        drop(handle);
    }
    sim_unlock();
    return handle != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                        CUmemGenericAllocationHandle value)
{
    SIM_ENTRY(cuMemGetAllocationPropertiesFromHandle);
    if (prop == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_handle *handle = find(value);
    if (handle != NULL)
        *prop = handle->prop;
    sim_unlock();
    return handle != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    SIM_ENTRY(cuMemRetainAllocationHandle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_range *range = sim_range_at((CUdeviceptr)(uintptr_t)address);
    bool mapped = range != NULL && range->kind == SIM_MAPPED;
    if (mapped) {
        range->handle->refs++;
        *out = (uintptr_t)range->handle;
    }
    sim_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- addresses --------------------------------------------------------------------------------
 */
CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment,
                                     CUdeviceptr hint, unsigned long long flags)
{
    SIM_ENTRY(cuMemAddressReserve);
    if (out == NULL || size == 0 || size % GRANULARITY != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUdeviceptr at = sim_va_find(size, alignment > GRANULARITY ? alignment : GRANULARITY, hint);
    struct sim_range *range = at != 0 ? sim_range_new(SIM_RESERVED, at, size, size, NULL) : NULL;
    if (range != NULL)
        *out = at;
    sim_unlock();
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The first mapping that overlaps [at, at+size), or NULL. */
static struct sim_range *overlapping(CUdeviceptr at, size_t size)
{
    struct sim_range *map = sim_tree_floor(&sim_maps, at);
    if (map != NULL && map->base + map->size > at)
        return map;
    map = sim_tree_next(&sim_maps, at);
    return map != NULL && map->base < at + size ? map : NULL;
}

static bool inside_reservation(CUdeviceptr at, size_t size)
{
    const struct sim_range *range = sim_tree_floor(&sim_va, at);
    return range != NULL && range->kind == SIM_RESERVED && size <= range->size &&
           at - range->base <= range->size - size;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr at, size_t size)
{
    SIM_ENTRY(cuMemAddressFree);
    sim_lock();
    struct sim_range *range = sim_tree_floor(&sim_va, at);
    bool good = range != NULL && range->kind == SIM_RESERVED && range->base == at &&
                range->size == size && overlapping(at, size) == NULL;
    if (good)
        sim_range_free(range);
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr at, size_t size, size_t offset,
                          CUmemGenericAllocationHandle value, unsigned long long flags)
{
    SIM_ENTRY(cuMemMap);
    if (size == 0 || size % GRANULARITY != 0 || at % GRANULARITY != 0 || offset != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_handle *handle = find(value);
    bool good = handle != NULL && size <= handle->phys->size && inside_reservation(at, size) &&
                overlapping(at, size) == NULL;
    if (good) {
        struct sim_range *map =
            sim_range_new(SIM_MAPPED, at, size, size, sim_phys_ref(handle->phys));
        if (map == NULL)
            abort();
        map->handle = handle;
        map->device = sim_device(handle->prop.location.id);
        handle->mappings++;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Calls fn for every mapping from at on; false unless they tile [at, at+size) exactly. */
static bool whole_mappings(CUdeviceptr at, size_t size)
{
    struct sim_range *map = overlapping(at, size);
    if (map == NULL || map->base < at)
        return map == NULL;
    for (; map != NULL && map->base < at + size; map = sim_tree_next(&sim_maps, map->base)) {
        if (map->base + map->size > at + size)
            return false;
    }
    return true;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr at, size_t size)
{
    SIM_ENTRY(cuMemUnmap);
    if (size == 0 || size % GRANULARITY != 0 || at % GRANULARITY != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = inside_reservation(at, size) && whole_mappings(at, size);
    for (struct sim_range *map; good && (map = overlapping(at, size)) != NULL;) {
        struct sim_handle *handle = map->handle;
        sim_race_unmap(map);
        sim_race_remember_freed(map->base, map->size, "cuMemUnmap");
        const CUdeviceptr base = map->base;
        const size_t length = map->size;
        sim_range_free(map);
        sim_pieces_gone(base, length);
        handle->mappings--;
        drop(handle);
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc,
                                size_t count)
{
    SIM_ENTRY(cuMemSetAccess);
    if (desc == NULL || count == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
             desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
             desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
            return CUDA_ERROR_INVALID_VALUE;
        if (sim_device(desc[i].location.id) == NULL)
            return CUDA_ERROR_INVALID_DEVICE;
    }
    sim_lock();
    /* All of it has to be mapped, by whole mappings. */
    bool good = overlapping(at, size) != NULL && whole_mappings(at, size);
    CUdeviceptr end = at;
    struct sim_range *map = good ? overlapping(at, size) : NULL;
    for (; map != NULL && map->base == end && end < at + size;
         map = sim_tree_next(&sim_maps, map->base))
        end = map->base + map->size;
    good = good && end == at + size;
    for (map = good ? overlapping(at, size) : NULL; map != NULL && map->base < at + size;
         map = sim_tree_next(&sim_maps, map->base)) {
        for (size_t i = 0; i < count && map->device != NULL; i++) {
            if (desc[i].location.id != map->device->index &&
                !sim_peer_reach(desc[i].location.id, map->device->index)) {
                sim_unlock();
                return CUDA_ERROR_INVALID_DEVICE;
            }
        }
    }
    for (map = good ? overlapping(at, size) : NULL; map != NULL && map->base < at + size;
         map = sim_tree_next(&sim_maps, map->base)) {
        for (size_t i = 0; i < count; i++)
            map->access[desc[i].location.id] = desc[i].flags;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                CUdeviceptr at)
{
    SIM_ENTRY(cuMemGetAccess);
    if (flags == NULL || location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        sim_device(location->id) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    const struct sim_range *range = sim_range_at(at);
    bool mapped = range != NULL && range->kind == SIM_MAPPED;
    if (mapped)
        *flags = range->access[location->id];
    sim_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
