/*
 * What a pool asks of the world, done by the driver: memory, mapped or whole, and fences.
 *
 * Memory is charged to the device's cap before the driver is asked, and the charge taken back where
 * that fails. Whatever is captured meanwhile, these calls are legal: they are made in relaxed mode.
 * -ENOMEM is the cap's or the driver's; every other error is -EIO, with the driver's code kept for
 * the hook (vs_arena_here.error).
 */
#include "report/sys.h"
#include "shim/arena_inner.h"
#include "shim/arm.h"
#include "shim/fence_driver.h"
#include "shim/process.h"
#include "shim/say.h"
#include "shim/streams.h"

/* ---- how calls are made ---------------------------------------------------------------------- */

struct relaxed {
    const struct vs_entries *real;
    CUstreamCaptureMode mode;
};

static inline void unrelax(struct relaxed *before)
{
    vs_fence_unrelax(before->real, before->mode);
}

/* Until the end of the function. */
#define RELAXED(arena)                                                                             \
    __attribute__((cleanup(unrelax), unused)) struct relaxed relaxed = {                           \
        .real = &(arena)->driver->real, .mode = vs_fence_relax(&(arena)->driver->real)}

static inline void move_done(struct vs_arenas **arenas)
{
    vs_arena_move_done(*arenas);
}

static inline struct vs_arenas *move_begins(struct vs_arenas *arenas)
{
    vs_arena_move_begins(arenas);
    return arenas;
}

/* Until the end of the function, too. */
#define MOVES(arena)                                                                               \
    __attribute__((cleanup(move_done), unused)) struct vs_arenas *moves =                          \
        move_begins((arena)->arenas)

static int outcome(CUresult result)
{
    vs_arena_here.slow = true;
    if (__builtin_expect(result == CUDA_SUCCESS, 1)) {
        return 0;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return -ENOMEM;
    }
    vs_arena_here.error = (int32_t)result;
    return -EIO;
}

/* ---- the cap --------------------------------------------------------------------------------- */

static bool charge(struct vs_arena *arena, uint64_t bytes)
{
    struct vs_arena_device *device = arena->charge;
    uint64_t held = atomic_load_explicit(&device->held, memory_order_relaxed);

    do {
        if (bytes > device->limit || held > device->limit - bytes) {
            vs_arena_here.capped = true;
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&device->held, &held, held + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    atomic_fetch_add_explicit(&arena->charged, bytes, memory_order_release);
    vs_arena_here.capped = false;
    return true;
}

static void uncharge(struct vs_arena *arena, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&arena->charged, bytes, memory_order_release);
    atomic_fetch_sub_explicit(&arena->charge->held, bytes, memory_order_relaxed);
}

/* ---- mapped memory --------------------------------------------------------------------------- */

static int op_reserve(void *world, uint64_t bytes, uint64_t *address)
{
    struct vs_arena *arena = world;
    const struct vs_entries *real = &arena->driver->real;
    CUdeviceptr at = 0;
    int error;
    RELAXED(arena);

    error = outcome(real->cuMemAddressReserve(&at, bytes, VS_POOL_PAGE, 0, 0));
    if (error != 0) {
        return error;
    }
    if (vs_arena_map_set(&arena->arenas->map, at, bytes, arena->number) != 0) {
        vs_arena_map_set(&arena->arenas->map, at, bytes, 0);
        real->cuMemAddressFree(at, bytes);
        return -ENOMEM;
    }
    *address = at;
    return 0;
}

static void op_unreserve(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_arena *arena = world;
    RELAXED(arena);

    vs_arena_map_set(&arena->arenas->map, address, bytes, 0);
    arena->driver->real.cuMemAddressFree(address, bytes);
}

static int op_create(void *world, uint64_t bytes, uint64_t *handle)
{
    struct vs_arena *arena = world;
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType)0,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = arena->device},
        .allocFlags = {.gpuDirectRDMACapable = arena->direct_rdma},
    };
    CUmemGenericAllocationHandle made = 0;
    int error;
    MOVES(arena);
    RELAXED(arena);

    if (!charge(arena, bytes)) {
        return -ENOMEM;
    }
    error = outcome(arena->driver->real.cuMemCreate(&made, bytes, &prop, 0));
    if (error != 0) {
        uncharge(arena, bytes);
        return error;
    }
    vs_arena_here.tally.took += bytes;
    vs_arena_here.tally.unmapped += bytes;
    *handle = made;
    return 0;
}

static void op_release(void *world, uint64_t handle, uint64_t bytes)
{
    struct vs_arena *arena = world;
    MOVES(arena);
    RELAXED(arena);

    outcome(arena->driver->real.cuMemRelease(handle));
    vs_arena_here.tally.gave += bytes;
    uncharge(arena, bytes);
}

static int op_map(void *world, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct vs_arena *arena = world;
    RELAXED(arena);

    if (vs_arena_here.tally.unmapped >= bytes) {
        vs_arena_here.tally.unmapped -= bytes;
    } else {
        vs_arena_here.tally.moved += bytes;
    }
    return outcome(arena->driver->real.cuMemMap(address, bytes, 0, handle, 0));
}

static int op_access(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_arena *arena = world;
    const CUmemAccessDesc own = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = arena->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    RELAXED(arena);

    return outcome(arena->driver->real.cuMemSetAccess(address, bytes, &own, 1));
}

static int op_unmap(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_arena *arena = world;
    RELAXED(arena);

    return outcome(arena->driver->real.cuMemUnmap(address, bytes));
}

/* ---- whole allocations ----------------------------------------------------------------------- */

/* cuMemAlloc takes memory from the current context: it has to be the arena's. What stands behind us
 * in search order is called, as it would be without a pool. */
static CUresult take_in_context(struct vs_arena *arena, CUdeviceptr *at, uint64_t bytes)
{
    const struct vs_entries *real = &arena->driver->real;
    bool entered = vs_fence_enter(real, arena->context);
    CUresult result = arena->driver->chain.cuMemAlloc_v2(at, bytes);

    vs_fence_leave(real, entered);
    return result;
}

static int op_take(void *world, uint64_t bytes, uint64_t *address)
{
    struct vs_arena *arena = world;
    CUdeviceptr at = 0;
    int error;
    MOVES(arena);
    RELAXED(arena);

    if (!charge(arena, bytes)) {
        return -ENOMEM;
    }
    error = outcome(take_in_context(arena, &at, bytes));
    if (error == 0 && at % VS_POOL_PAGE != 0) {
        vs_ledger_note("no-pool",
                       "the driver's memory does not begin on a page of 2 MiB, which the "
                       "pool relies on: the driver serves");
        atomic_store_explicit(&arena->unfit, true, memory_order_relaxed);
        error = -EIO;
    }
    if (error == 0 && vs_arena_map_set(&arena->arenas->map, at, bytes, arena->number) != 0) {
        vs_arena_map_set(&arena->arenas->map, at, bytes, 0);
        error = -ENOMEM;
    }
    if (error != 0) {
        if (at != 0) {
            arena->driver->chain.cuMemFree_v2(at);
        }
        uncharge(arena, bytes);
        return error;
    }
    vs_arena_here.tally.took += bytes;
    *address = at;
    return 0;
}

/* The stream on which segments go back: nothing else is ever on it. NULL: there is none. */
static CUstream giving_stream(struct vs_arena *arena)
{
    const struct vs_entries *real = &arena->driver->real;
    CUstream stream = atomic_load(&arena->giving), mine = NULL;
    bool entered;

    if (stream != NULL || real->cuStreamCreate == NULL || real->cuStreamSynchronize == NULL ||
        arena->driver->chain.cuMemFreeAsync == NULL) {
        return stream;
    }
    entered = vs_fence_enter(real, arena->context);
    if (real->cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        mine = NULL;
    } else if (!atomic_compare_exchange_strong(&arena->giving, &stream, mine)) {
        arena->driver->chain.cuStreamDestroy_v2(mine);
        mine = stream;
    }
    vs_fence_leave(real, entered);
    return mine;
}

/* cuMemFree waits for all work of the context, also for what the program submitted after its own
 * free, and that may be waiting for what this very allocation lets it do (rule 1). Freed in the
 * order of a stream with nothing on it, memory that the host has seen idle goes at once (measured
 * on an H200: while a kernel runs on another stream). Once the driver has taken it, it is gone,
 * whatever comes of the wait: it may be anybody's. */
static CUresult free_segment(struct vs_arena *arena, CUdeviceptr address)
{
    CUstream stream = giving_stream(arena);
    CUresult result;

    if (stream == NULL) {
        return arena->driver->chain.cuMemFree_v2(address);
    }
    result = arena->driver->chain.cuMemFreeAsync(address, stream);
    if (result == CUDA_SUCCESS) {
        arena->driver->real.cuStreamSynchronize(stream);
    }
    return result;
}

/* Off the map first: once the driver has it, it may be anybody's. */
static int op_give(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_arena *arena = world;
    int error;
    MOVES(arena);
    RELAXED(arena);

    vs_arena_map_set(&arena->arenas->map, address, bytes, 0);
    error = outcome(free_segment(arena, address));
    if (error != 0) {
        vs_arena_map_set(&arena->arenas->map, address, bytes, arena->number);
        return error;
    }
    uncharge(arena, bytes);
    vs_arena_here.tally.gave += bytes;
    return 0;
}

/* ---- fences ---------------------------------------------------------------------------------- */

/* error: what it was set to meanwhile. */
static int fence_outcome(int result, const CUresult *error)
{
    if (__builtin_expect(result < 0, 0)) {
        vs_arena_here.error = (int32_t)*error;
    }
    return result;
}

static int op_record(void *world, uint32_t fence)
{
    CUresult error = CUDA_SUCCESS;

    return fence_outcome(vs_fences_record(&((struct vs_arena *)world)->fences, fence, &error),
                         &error);
}

static int op_order(void *world, uint32_t fence)
{
    CUresult error = CUDA_SUCCESS;

    return fence_outcome(vs_fences_order(&((struct vs_arena *)world)->fences, fence, &error),
                         &error);
}

static int op_query(void *world, uint32_t fence)
{
    CUresult error = CUDA_SUCCESS;

    return fence_outcome(vs_fences_query(&((struct vs_arena *)world)->fences, fence, &error),
                         &error);
}

static void waited(struct vs_arena *arena, uint64_t begun)
{
    uint64_t took = vs_sys_clock(CLOCK_MONOTONIC) - begun;

    atomic_fetch_add_explicit(&arena->wait_ns, took, memory_order_relaxed);
    vs_arena_here.tally.waits++;
    vs_arena_here.tally.wait_ns += took;
    vs_arena_here.slow = true;
}

static int op_wait(void *world, uint32_t fence)
{
    struct vs_arena *arena = world;
    CUresult error = CUDA_SUCCESS;
    uint64_t begun = vs_sys_clock(CLOCK_MONOTONIC);
    int result = fence_outcome(vs_fences_wait(&arena->fences, fence, &error), &error);

    waited(arena, begun);
    return result;
}

static int op_stream_record(void *world, uint32_t stream, uint32_t fence)
{
    CUresult error = CUDA_SUCCESS;

    return fence_outcome(vs_stream_fence_record(world, stream, fence, &error), &error);
}

static int op_stream_order(void *world, uint32_t waiter, uint32_t stream, uint32_t fence)
{
    CUresult error = CUDA_SUCCESS;

    return fence_outcome(vs_stream_fence_order(world, waiter, stream, fence, &error), &error);
}

static int op_stream_query(void *world, uint32_t stream, uint32_t fence)
{
    CUresult error = CUDA_SUCCESS;

    return fence_outcome(vs_stream_fence_query(world, stream, fence, &error), &error);
}

static int op_stream_wait(void *world, uint32_t stream, uint32_t fence, bool patient)
{
    CUresult error = CUDA_SUCCESS;
    uint64_t begun = vs_sys_clock(CLOCK_MONOTONIC);
    int result = fence_outcome(vs_stream_fence_wait(world, stream, fence, patient, &error), &error);

    waited(world, begun);
    return result;
}

static uint64_t op_room(void *world)
{
    const struct vs_arena_device *device = ((struct vs_arena *)world)->charge;
    uint64_t held = atomic_load_explicit(&device->held, memory_order_relaxed);

    if (device->limit == UINT64_MAX) {
        return UINT64_MAX;
    }
    return held < device->limit ? device->limit - held : 0;
}

static bool op_one_stream(void *world)
{
    return vs_fences_one_stream(&((struct vs_arena *)world)->fences);
}

/* ---- the host -------------------------------------------------------------------------------- */

static void *op_host_map(void *world, size_t bytes)
{
    (void)world;
    return vs_sys_map(bytes);
}

static void op_host_unmap(void *world, void *at, size_t bytes)
{
    (void)world;
    vs_sys_unmap(at, bytes);
}

static void op_nap(void *world)
{
    (void)world;
    VS_SYS(SYS_sched_yield);
}

static void op_reserved(void *world, int64_t delta)
{
    struct vs_arena *arena = world;

    atomic_fetch_add_explicit(&arena->reserved, delta, memory_order_relaxed);
    if (vs_process_counts()) {
        vs_ledger_reserved((uint32_t)arena->device, delta);
    }
}

const struct vs_pool_ops vs_arena_ops = {
    .reserve = op_reserve,
    .unreserve = op_unreserve,
    .create = op_create,
    .release = op_release,
    .map = op_map,
    .access = op_access,
    .unmap = op_unmap,
    .take = op_take,
    .give = op_give,
    .record = op_record,
    .order = op_order,
    .query = op_query,
    .wait = op_wait,
    .stream_record = op_stream_record,
    .stream_order = op_stream_order,
    .stream_query = op_stream_query,
    .stream_wait = op_stream_wait,
    .room = op_room,
    .one_stream = op_one_stream,
    .host_map = op_host_map,
    .host_unmap = op_host_unmap,
    .nap = op_nap,
    .reserved = op_reserved,
};

/* ---- which backing --------------------------------------------------------------------------- */

static int attribute(const struct vs_entries *real, CUdevice device, CUdevice_attribute which)
{
    int value = 0;

    return real->cuDeviceGetAttribute != NULL &&
                   real->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS
               ? value
               : 0;
}

static bool can_map(const struct vs_entries *real, CUdevice device)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    size_t page = 0;

    return real->cuMemAddressReserve != NULL && real->cuMemAddressFree != NULL &&
           real->cuMemCreate != NULL && real->cuMemRelease != NULL && real->cuMemMap != NULL &&
           real->cuMemUnmap != NULL && real->cuMemSetAccess != NULL &&
           real->cuMemGetAllocationGranularity != NULL &&
           attribute(real, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
           real->cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
               CUDA_SUCCESS &&
           page > 0 && VS_POOL_PAGE % page == 0;
}

/*
 * vmm where it was asked for and the device can: pages of at most 2 MiB. Else native.
 *
 * `auto` is native, for now everywhere: mapped memory has no cuIpcGetMemHandle, and peers do not
 * see it by cuCtxEnablePeerAccess, so programs that share memory between processes or devices would
 * break with vmm. docs/design.md has the measurements.
 */
enum vs_pool_backing vs_arena_backing(const struct vs_entries *real, CUdevice device,
                                      bool *direct_rdma)
{
    *direct_rdma = false;
    if (vs_arm_resolved()->backing != VS_BACKING_VMM) {
        return VS_POOL_NATIVE;
    }
    if (!can_map(real, device)) {
        vs_ledger_note("no-vmm", "VRAMSHIM_BACKING=vmm: a device cannot map memory in pages of "
                                 "2 MiB; its pool is native");
        return VS_POOL_NATIVE;
    }
    *direct_rdma =
        attribute(real, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
    return VS_POOL_VMM;
}
