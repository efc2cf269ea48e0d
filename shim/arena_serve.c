/*
 * What an arena does for the hooks: allocation and free as the driver would answer them.
 */
#include "shim/arena_inner.h"
#include "shim/count.h"
#include "shim/decisions.h"
#include "shim/fence_owed.h"
#include "shim/gone.h"
#include "shim/process.h"
#include "shim/streams.h"

#include <errno.h>

/* No device has more; the pool rounds sizes up, and must not wrap around. */
#define HUGE_REQUEST (UINT64_C(1) << 48)

static CUresult answer(int error)
{
    if (error == 0) {
        return CUDA_SUCCESS;
    }
    if (error == -EIO && vs_arena_here.error != CUDA_SUCCESS) {
        return (CUresult)vs_arena_here.error;
    }
    return error == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

/* The driver was asked on the way: the moment to say how the pool stands, in case the process gets
 * no other. */
static void after_slow_path(struct vs_arena *arena, size_t asked)
{
    if (__builtin_expect(vs_arena_here.slow, 0)) {
        vs_arena_here.slow = false;
        vs_arena_publish(arena->device);
        vs_decisions_done(arena, asked);
    }
}

/* What is larger than the cap the pool need not have asked for. */
static enum vs_verdict verdict_of(const struct vs_arena *arena,
                                  const struct vs_pool_request *request)
{
    switch (request->verdict) {
    case VS_POOL_FRAGMENTED:
        return VS_VERDICT_FRAGMENTED;
    case VS_POOL_PENDING:
        return VS_VERDICT_PENDING;
    default:
        return vs_arena_here.capped || request->bytes > arena->charge->limit
                   ? VS_VERDICT_OVER_LIMIT
                   : VS_VERDICT_DEVICE_FULL;
    }
}

static int huge(const struct vs_arena *arena, struct vs_pool_request *request)
{
    request->verdict = VS_POOL_FULL;
    vs_arena_here.capped = arena->charge->limit != UINT64_MAX;
    return -ENOMEM;
}

CUresult vs_arena_alloc(struct vs_arena *arena, size_t bytes, uint32_t stream, CUdeviceptr *address,
                        enum vs_verdict *verdict)
{
    CUresult result = vs_fences_legal(&arena->fences);
    struct vs_pool_request request = {.bytes = bytes, .lane = vs_arena_lane(), .stream = stream};
    uint64_t at = 0;
    int error;

    if (result != CUDA_SUCCESS) {
        return result;
    }
    request.capturing = vs_fences_capturing(&arena->fences);
    vs_arena_here.error = CUDA_SUCCESS;
    vs_arena_here.capped = false;
    error =
        bytes > HUGE_REQUEST ? huge(arena, &request) : vs_pool_alloc(arena->pool, &request, &at);
    if (error == 0) {
        *address = at;
    } else if (error == -ENOMEM) {
        vs_arena_publish(arena->device);
        *verdict = verdict_of(arena, &request);
        vs_decisions_refused(arena, bytes, *verdict);
    }
    after_slow_path(arena, bytes);
    return answer(error);
}

struct room {
    CUdevice device;
    const struct vs_arena *asked;
    uint64_t bytes; /* given back */
};

static void give_room(struct vs_arena *arena, void *data)
{
    struct room *room = data;
    int64_t before = atomic_load_explicit(&arena->reserved, memory_order_relaxed);

    if (arena == room->asked || arena->device != room->device || before <= 0) {
        return;
    }
    vs_pool_trim(arena->pool, 0, true);
    before -= atomic_load_explicit(&arena->reserved, memory_order_relaxed);
    room->bytes += before > 0 ? (uint64_t)before : 0;
}

bool vs_arena_gives_room(const struct vs_guard *guard, const struct vs_arena *asked)
{
    struct room room = {.asked = asked};

    room.device = asked != NULL ? asked->device : vs_place_of_thread(&guard->driver->real).device;
    vs_arena_each(give_room, &room);
    return room.bytes > 0;
}

/* In a host function the driver permits no call. It runs them on threads of its own, so a thread
 * that was once told otherwise is asked no more. */
CUresult vs_arena_permitted(const struct vs_guard *guard)
{
    CUcontext context;
    CUresult result = CUDA_SUCCESS;

    if (__builtin_expect(!vs_arena_here.permitted, 0)) {
        result = guard->driver->real.cuCtxGetCurrent(&context);
        vs_arena_here.permitted = result == CUDA_SUCCESS;
    }
    return result;
}

/* With a destroyed context current the driver frees nothing, and what the address was may be
 * somebody else's by now. A context that is noted (place.h) was alive when one last began to go. */
static CUresult current_lives(const struct vs_guard *guard)
{
    const struct vs_entries *real = &guard->driver->real;
    CUcontext context = NULL;
    struct vs_place place;

    if (__builtin_expect(atomic_load_explicit(&vs_gone_count, memory_order_acquire) == 0, 1) ||
        (vs_place_noted(real, &place) != NULL &&
         atomic_load_explicit(&vs_gone_ending, memory_order_acquire) == 0) ||
        real->cuCtxGetCurrent(&context) != CUDA_SUCCESS || vs_gone(context) == VS_GONE_NOT) {
        return CUDA_SUCCESS;
    }
    return guard->driver->chain.cuMemFree_v2(0);
}

CUresult vs_arena_may_free(const struct vs_guard *guard, struct vs_arena *arena)
{
    CUresult result = vs_arena_permitted(guard);

    if (result == CUDA_SUCCESS) {
        result = current_lives(guard);
    }
    if (result == CUDA_SUCCESS) {
        result = vs_fences_legal(&arena->fences);
    }
    return result != CUDA_SUCCESS ? result : vs_fences_strict(&arena->fences);
}

/* What the pool is not to keep goes back: memory whose fence has passed. With a decay time of 0 a
 * plain free waits for the rest, as the driver's own does; else a later free or the decay thread
 * sees to it. */
static void give_back(struct vs_arena *arena, bool waits)
{
    if (vs_pool_wants_trim(arena->pool)) {
        vs_pool_trim(arena->pool, arena->trim_above, false);
        if (waits && arena->trim_above == 0 && vs_pool_wants_trim(arena->pool)) {
            vs_pool_trim(arena->pool, 0, true);
        }
    }
}

CUresult vs_arena_settle(struct vs_arena *arena)
{
    int result;

    vs_arena_here.error = CUDA_SUCCESS;
    result = vs_pool_settle(arena->pool);
    return result >= 0 ? CUDA_SUCCESS : answer(result);
}

CUresult vs_arena_free_block(struct vs_arena *arena, CUdeviceptr address, uint32_t stream)
{
    int error;

    vs_arena_here.error = CUDA_SUCCESS;
    error = stream != 0 ? vs_pool_free_on(arena->pool, address, stream)
                        : vs_pool_free(arena->pool, address);
    if (error == 0) {
        if (stream != 0) {
            vs_streams_freed(arena, stream);
        } else {
            vs_fence_freed();
        }
        if (__builtin_expect(arena->trim_above != UINT64_MAX, 0)) {
            give_back(arena, stream == 0);
        }
        vs_decay_freed(arena);
    }
    after_slow_path(arena, 0);
    return answer(error);
}

void vs_arena_trim(struct vs_arena *arena, uint64_t keep)
{
    vs_pool_trim(arena->pool, keep, false);
    after_slow_path(arena, 0);
}

CUresult vs_arena_free(struct vs_arena *arena, CUdeviceptr address)
{
    CUresult result = vs_arena_free_block(arena, address, 0);

    if (result == CUDA_SUCCESS) {
        vs_fence_owes(arena, &arena->fences);
    }
    return result;
}
