/*
 * Streams that submit (see fence_streams.h).
 *
 * A thread notes its stream when it changes, and once per closing of epochs; so the last notes name
 * the streams that were busy during the last few epochs, however seldom one of them frees. All of
 * it is a heuristic that decides between two right ways: words are read and written whole, but
 * without order, and a hash that collides or a handle that came back does no harm.
 *
 * Exact: what an explicit stream belongs to (asked once per stream). Conservative: a default stream
 * counts as busy in every context, for the driver is not asked which one is current.
 */
#include "shim/fence_streams.h"

#include "shim/fence.h"
#include "shim/fence_driver.h"
#include "shim/streams.h"

#include <stdatomic.h>

enum { NOTES = 16, REMEMBERED = 256 };

/* Context's hash (0: any) above, stream's below; 0: none yet. */
static _Atomic uint64_t notes[NOTES];
static _Atomic uint32_t noted;
/* How often a note came to say something else, and the last answer for that: the number above, the
 * context's hash below, but for the lowest bit (always set in a hash), which is the answer. */
static _Atomic uint32_t changes;
static _Atomic uint64_t answered;
/* Stream's hash above, context's below: what the driver said. */
static _Atomic uint64_t remembered[REMEMBERED];

__thread struct vs_fence_last vs_fence_last
    __attribute__((tls_model("initial-exec"))) = {.closings = UINT32_MAX};

static uint32_t hash_of(const void *pointer)
{
    uint32_t hash = (uint32_t)(((uintptr_t)pointer * UINT64_C(0x9e3779b97f4a7c15)) >> 32);

    return pointer == NULL ? 0 : hash | 1;
}

static bool is_named(CUstream stream)
{
    return stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

CUcontext vs_fence_stream_owner(const struct vs_entries *real, CUstream stream, bool per_thread,
                                CUgreenCtx *green)
{
    CUstreamCaptureMode mode = vs_fence_relax(real);
    CUcontext context = NULL;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (per_thread && stream == NULL) {
        stream = CU_STREAM_PER_THREAD;
    }
    if (real->cuStreamGetCtx_v2 != NULL) {
        result = real->cuStreamGetCtx_v2(stream, &context, green);
    } else if (is_named(stream) && real->cuStreamGetCtx != NULL) {
        result = real->cuStreamGetCtx(stream, &context);
    } else if (!is_named(stream) && real->cuCtxGetCurrent != NULL) {
        result = real->cuCtxGetCurrent(&context);
    }
    vs_fence_unrelax(real, mode);
    return result == CUDA_SUCCESS ? context : NULL;
}

CUcontext vs_fence_stream_context(const struct vs_entries *real, CUstream stream, bool per_thread)
{
    CUgreenCtx green = NULL;

    return vs_fence_stream_owner(real, stream, per_thread, &green);
}

static uint32_t context_hash(CUstream stream, uint32_t stream_hash)
{
    _Atomic uint64_t *slot = &remembered[stream_hash / 2 % REMEMBERED];
    uint64_t word = atomic_load_explicit(slot, memory_order_relaxed);
    const struct vs_driver *driver;
    uint32_t hash;

    if ((uint32_t)(word >> 32) == stream_hash) {
        return (uint32_t)word;
    }
    driver = vs_driver_get();
    hash = driver == NULL ? 0 : hash_of(vs_fence_stream_context(&driver->real, stream, false));
    if (hash != 0) {
        atomic_store_explicit(slot, (uint64_t)stream_hash << 32 | hash, memory_order_relaxed);
    }
    return hash;
}

void vs_fence_stream_seen(const struct vs_guard *guard, CUstream stream, bool per_thread)
{
    uint32_t at = atomic_load_explicit(&noted, memory_order_relaxed);
    uint32_t context = 0, hash;

    vs_fence_last = (struct vs_fence_last){
        stream, atomic_load_explicit(&vs_process_page()->closings, memory_order_acquire)};
    vs_streams_submit(guard, stream, per_thread);
    if (is_named(stream)) {
        hash = hash_of(stream);
        context = context_hash(stream, hash);
    } else if (stream == CU_STREAM_PER_THREAD || (stream == NULL && per_thread)) {
        hash = hash_of(&vs_fence_last);
    } else {
        hash = hash_of(CU_STREAM_LEGACY);
    }
    if (atomic_load_explicit(&notes[at % NOTES], memory_order_relaxed) !=
        ((uint64_t)context << 32 | hash)) {
        atomic_store_explicit(&notes[at % NOTES], (uint64_t)context << 32 | hash,
                              memory_order_relaxed);
        atomic_fetch_add_explicit(&changes, 1, memory_order_release);
    }
    atomic_store_explicit(&noted, at + 1, memory_order_relaxed);
    /* Another context's stream has the same name, and may be what was announced. */
    if (!is_named(stream) &&
        atomic_load_explicit(&vs_process_page()->defaults_announced, memory_order_relaxed) != 0) {
        vs_fence_last.closings--;
    }
}

static bool one_stream_in(uint32_t context)
{
    uint32_t first = 0;

    for (unsigned i = 0; i < NOTES; i++) {
        uint64_t note = atomic_load_explicit(&notes[i], memory_order_relaxed);
        uint32_t stream = (uint32_t)note;

        if (note == 0 || ((note >> 32) != 0 && (uint32_t)(note >> 32) != context)) {
            continue;
        }
        if (first != 0 && first != stream) {
            return false;
        }
        first = stream;
    }
    return true;
}

bool vs_fences_one_stream(struct vs_fences *fences)
{
    uint32_t context = hash_of(fences->context);
    uint64_t question =
        (uint64_t)atomic_load_explicit(&changes, memory_order_acquire) << 32 | context;
    uint64_t answer = atomic_load_explicit(&answered, memory_order_relaxed);

    if (__builtin_expect((answer | 1) != question, 0)) {
        answer = question - (one_stream_in(context) ? 0 : 1);
        atomic_store_explicit(&answered, answer, memory_order_relaxed);
    }
    return (answer & 1) != 0;
}

void vs_fence_stream_goes(CUstream stream)
{
    uint32_t hash = hash_of(stream);
    _Atomic uint64_t *slot = &remembered[hash / 2 % REMEMBERED];

    if ((uint32_t)(atomic_load_explicit(slot, memory_order_relaxed) >> 32) == hash) {
        atomic_store_explicit(slot, 0, memory_order_relaxed);
    }
}
