/*
 * Stream-ordered allocation and free by the arenas (see stream_serve.h).
 *
 * A free in the order of a stream takes the block off the books at once: natively its bytes count
 * as used until the stream has come to the free.
 */
#include "shim/stream_serve.h"

#include "shim/count.h"
#include "shim/fence_driver.h"
#include "shim/fence_streams.h"
#include "shim/mempool.h"
#include "shim/stream_inner.h"

/* ---- allocation ------------------------------------------------------------------------------ */

static bool serves(const struct vs_arena *arena)
{
    return arena->context == vs_place_primary(arena->device) && !vs_arena_unfit(arena);
}

static void keep_as_told(struct vs_arena *arena)
{
    struct vs_streams *streams = vs_streams_of(arena);

    if (__builtin_expect(!atomic_load_explicit(&streams->kept, memory_order_relaxed), 0)) {
        atomic_store_explicit(&streams->kept, true, memory_order_relaxed);
        vs_mempool_keep(arena->device);
    }
}

bool vs_stream_alloc(const struct vs_guard *guard, const struct vs_stream_request *request,
                     CUdeviceptr *address, CUresult *result)
{
    struct vs_count_served served = {.bytes = request->bytes, .verdict = VS_VERDICT_DEVICE_FULL};
    struct vs_stream_ref at;
    CUdeviceptr block = 0;

    if (address == NULL || request->bytes == 0 || vs_arena_permitted(guard) != CUDA_SUCCESS ||
        !vs_streams_home(guard, request->stream, request->per_thread, true, &at)) {
        return false;
    }
    served.place = vs_arena_place(at.arena);
    served.pool = serves(at.arena) ? vs_mempool_serving(guard, request->pool, at.arena->device) : 0;
    if (served.pool == 0) {
        vs_arena_left(at.arena);
        return false;
    }
    keep_as_told(at.arena);
    *result = vs_arena_alloc(at.arena, request->bytes, at.number, &block, &served.verdict);
    if (vs_arena_makes_room(guard, *result, at.arena)) {
        *result = vs_arena_alloc(at.arena, request->bytes, at.number, &block, &served.verdict);
    }
    if (*result != CUDA_SUCCESS && vs_arena_unfit(at.arena)) {
        vs_arena_left(at.arena);
        return false;
    }
    if (*result == CUDA_SUCCESS) {
        *address = block;
    }
    vs_count_pool_alloc(guard, *result, block, &served);
    vs_arena_left(at.arena);
    *result = vs_fence_answer(guard, *result);
    return true;
}

void vs_stream_count(const struct vs_guard *guard, const struct vs_stream_request *request,
                     const CUdeviceptr *address, CUresult result)
{
    vs_count_alloc(guard, result, address,
                   &(struct vs_count_request){
                       .bytes = request->bytes,
                       .kind = VS_KIND_ASYNC,
                       .stream = request->stream,
                       .pool = request->pool != NULL ? *request->pool : NULL,
                   });
}

/* ---- free ------------------------------------------------------------------------------------ */

/* Is there such a stream? Its own error if not. */
static CUresult stream_good(const struct vs_guard *guard, CUstream stream)
{
    const struct vs_entries *real = &guard->driver->real;
    CUstreamCaptureMode mode;
    CUcontext context;
    CUresult result = CUDA_SUCCESS;

    if (real->cuStreamGetCtx != NULL) {
        mode = vs_fence_relax(real);
        result = real->cuStreamGetCtx(stream, &context);
        vs_fence_unrelax(real, mode);
    }
    return result;
}

/* Makes the arena's context wait, by a stream of its own that goes with its work: what is recorded
 * for the context from now on covers the event. */
static CUresult wait_on_the_device(struct vs_arena *arena, CUevent event)
{
    const struct vs_entries *real = &arena->driver->real;
    bool entered = vs_fence_enter(real, arena->context);
    CUstream stream;
    CUresult result = real->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

    if (result == CUDA_SUCCESS) {
        result = real->cuStreamWaitEvent(stream, event, 0);
        real->cuStreamDestroy_v2(stream);
    }
    vs_fence_leave(real, entered);
    return result;
}

/*
 * Where the stream can have no number, this is a plain free behind it. The fence of a free covers
 * the work of the arena's context, which is more than its stream's: but not if the stream is
 * another context's. Nor does a driver without context events give it one: it relies on frees that
 * wait, and this one is to wait for its stream.
 */
static CUresult order_behind(const struct vs_guard *guard, struct vs_arena *arena, CUstream stream,
                             bool per_thread, bool *ordered)
{
    const struct vs_entries *real = &guard->driver->real;
    CUcontext context = vs_fence_stream_context(real, stream, per_thread);
    CUstreamCaptureMode mode;
    CUevent event;
    CUresult result;

    *ordered = false;
    if (context == arena->context && vs_fence_knows_contexts(real)) {
        return CUDA_SUCCESS;
    }
    result = vs_fence_event_new(real, context != NULL ? context : arena->context, &event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    mode = vs_fence_relax(real);
    result =
        real->cuEventRecord(event, per_thread && stream == NULL ? CU_STREAM_PER_THREAD : stream);
    if (result == CUDA_SUCCESS) {
        *ordered = vs_fence_knows_contexts(real) && real->cuStreamCreate != NULL &&
                   wait_on_the_device(arena, event) == CUDA_SUCCESS;
        if (!*ordered) {
            result = vs_fence_event_call(real, context, real->cuEventSynchronize, event);
        }
    }
    vs_fence_unrelax(real, mode);
    vs_fence_event_free(real, event);
    return result;
}

static CUresult free_behind(const struct vs_guard *guard, struct vs_arena *arena,
                            CUdeviceptr address, CUstream stream, bool per_thread)
{
    bool ordered = false;
    CUresult result = stream_good(guard, stream);

    if (result == CUDA_SUCCESS) {
        result = order_behind(guard, arena, stream, per_thread, &ordered);
    }
    if (result == CUDA_SUCCESS) {
        vs_count_pool_free(guard, address);
        result = vs_arena_free_block(arena, address, 0);
    }
    if (ordered) {
        vs_fence_close_all(); /* the fences of later frees are not to wait for that stream */
    }
    return result;
}

CUresult vs_stream_free(const struct vs_guard *guard, CUdeviceptr address, CUstream stream,
                        bool per_thread)
{
    struct vs_arena *arena = vs_arena_of_address(address);
    CUresult result = vs_arena_permitted(guard);
    uint32_t number;

    if (arena == NULL) {
        result = result != CUDA_SUCCESS ? result : stream_good(guard, stream);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = vs_fences_legal(&arena->fences);
    }
    if (result == CUDA_SUCCESS) {
        number = vs_streams_number(guard, arena, stream, per_thread);
        if (number != 0) {
            vs_count_pool_free(guard, address);
            result = vs_arena_free_block(arena, address, number);
        } else {
            vs_fence_submit(guard, stream, per_thread);
            result = free_behind(guard, arena, address, stream, per_thread);
        }
    }
    vs_arena_left(arena);
    return vs_fence_answer(guard, result);
}
