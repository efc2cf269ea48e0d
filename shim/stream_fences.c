/*
 * Fences of single streams: what a pool asks for (see streams.h), done by the driver.
 *
 * A fence is an event, made when it is first wanted, in the context that owns the stream, and
 * recorded in the stream itself. That is not always possible, or right: the default stream of
 * another thread has no name here, and an event in the legacy stream holds up other streams, which
 * nobody wanted unless work is about to be submitted. Then it is an event of the whole context,
 * which covers too much: the host may ask whether it has passed, but nothing is made to wait for it
 * (design, rule 1). The same holds for a fence that could not be recorded before the stream's next
 * work, because of a capture.
 *
 * An event that is recorded in a stream which captures would become part of the graph. Who is about
 * to submit to the stream knows that none begins meanwhile; others hold the gate (fence.h).
 */
#include "report/sys.h"
#include "shim/fence_driver.h"
#include "shim/stream_inner.h"

#include <errno.h>

#define HASTE_NS UINT64_C(1000000000)
#define NAP_NS 20000

/* An error that the context does not die of is no answer: not now. */
static int outcome_of(CUresult result, CUresult *error)
{
    if (__builtin_expect(result == CUDA_SUCCESS, 1)) {
        return 0;
    }
    if (!vs_fence_is_sticky(result)) {
        return 1;
    }
    vs_fence_broken(result);
    *error = result;
    return -EIO;
}

static CUresult event_at(const struct vs_entries *real, struct vs_stream_slot *slot, uint32_t fence,
                         CUevent *event)
{
    CUevent expected = NULL;
    CUresult result;

    *event = atomic_load_explicit(&slot->events[fence], memory_order_acquire);
    if (__builtin_expect(*event != NULL, 1)) {
        return CUDA_SUCCESS;
    }
    result = vs_fence_event_new(real, slot->owner, event);
    if (result == CUDA_SUCCESS &&
        !atomic_compare_exchange_strong(&slot->events[fence], &expected, *event)) {
        vs_fence_event_free(real, *event);
        *event = expected;
    }
    return result;
}

/* Makes a default stream mean the slot's; true where vs_fence_leave must follow. */
static bool enter_stream(const struct vs_entries *real, const struct vs_stream_slot *slot)
{
    return slot->current != NULL && vs_fence_enter(real, slot->current);
}

/* May it be capturing, or in the way of a capture? The context is the slot's. */
static bool captures(const struct vs_entries *real, const struct vs_stream_slot *slot)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!vs_capture_active()) {
        return false;
    }
    if (slot->stream == CU_STREAM_LEGACY || real->cuStreamIsCapturing == NULL) {
        return vs_capture_in(slot->owner);
    }
    return real->cuStreamIsCapturing(slot->stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Does the slot's handle mean its stream in this thread, which may submit to it? */
static bool is_named_here(const struct vs_stream_slot *slot)
{
    if (!vs_stream_is_default(slot->stream)) {
        return true;
    }
    return vs_streams_submitting && (slot->thread == 0 || slot->thread == vs_arena_lane());
}

/* In the stream. Positive: it captures. */
static int record_in_stream(const struct vs_entries *real, const struct vs_stream_slot *slot,
                            CUevent event, CUresult *result)
{
    struct vs_lock *gate = vs_streams_submitting ? NULL : &vs_process_page()->gate;
    bool entered = enter_stream(real, slot), busy;

    if (gate != NULL) {
        vs_lock_take(gate);
    }
    busy = captures(real, slot);
    if (!busy) {
        *result = real->cuEventRecord(event, slot->stream);
    }
    if (gate != NULL) {
        vs_lock_drop(gate);
    }
    vs_fence_leave(real, entered);
    return busy ? 1 : 0;
}

/* In the whole context. */
static int record_in_context(const struct vs_entries *real, const struct vs_stream_slot *slot,
                             CUevent event, CUresult *result)
{
    struct vs_lock *gate = &vs_process_page()->gate;
    bool busy;

    vs_lock_take(gate);
    busy = vs_capture_in(slot->owner);
    if (!busy) {
        *result = real->cuCtxRecordEvent(slot->owner, event);
    }
    vs_lock_drop(gate);
    return busy ? 1 : 0;
}

static int record(const struct vs_entries *real, struct vs_stream_slot *slot, uint32_t fence,
                  CUresult *error)
{
    bool wide = atomic_load_explicit(&slot->late, memory_order_acquire);
    bool named = is_named_here(slot);
    uint32_t bit = UINT32_C(1) << fence;
    CUevent event;
    CUresult result = event_at(real, slot, fence, &event);
    int outcome = 0;

    if (result != CUDA_SUCCESS) {
        return outcome_of(result, error);
    }
    if (named) {
        outcome = record_in_stream(real, slot, event, &result);
    }
    if (!named || (outcome == 0 && result != CUDA_SUCCESS && !vs_fence_is_sticky(result))) {
        wide = true;
        outcome = record_in_context(real, slot, event, &result);
    }
    if (outcome != 0 || result != CUDA_SUCCESS) {
        return outcome != 0 ? outcome : outcome_of(result, error);
    }
    if (wide) {
        atomic_fetch_or(&slot->wide, bit);
        atomic_store_explicit(&slot->late, false, memory_order_relaxed);
    } else {
        atomic_fetch_and(&slot->wide, ~bit);
    }
    atomic_fetch_or(&slot->set, bit);
    return 0;
}

int vs_stream_fence_record(struct vs_arena *arena, uint32_t number, uint32_t fence, CUresult *error)
{
    struct vs_stream_slot *slot = &vs_streams_of(arena)->slot[number];
    int outcome = 0;

    switch (vs_stream_enter(slot)) {
    case VS_STREAM_LIVE:
        outcome = record(&arena->driver->real, slot, fence, error);
        break;
    case VS_STREAM_GOING:
        outcome = 1;
        break;
    case VS_STREAM_FREE:
    case VS_STREAM_GONE:
        atomic_fetch_and(&slot->set, ~(UINT32_C(1) << fence));
        break;
    }
    vs_stream_leave(slot);
    return outcome;
}

/* The waiter's later work waits, on the device. */
static int order(const struct vs_entries *real, const struct vs_stream_slot *waiter, CUevent event,
                 CUresult *error)
{
    CUresult result;
    bool entered;

    if (waiter->thread != 0 && waiter->thread != vs_arena_lane()) {
        return 1;
    }
    entered = enter_stream(real, waiter);
    if (captures(real, waiter)) {
        vs_fence_leave(real, entered);
        return 1;
    }
    result = real->cuStreamWaitEvent(waiter->stream, event, 0);
    vs_fence_leave(real, entered);
    return outcome_of(result, error);
}

/* What a fence is like now. */
enum fence_state { PASSED, UNKNOWN, SET };

static enum fence_state look(struct vs_stream_slot *slot, uint32_t fence, CUevent *event)
{
    *event = atomic_load_explicit(&slot->events[fence], memory_order_acquire);
    switch ((enum vs_stream_slot_state)atomic_load_explicit(&slot->state, memory_order_acquire)) {
    case VS_STREAM_GOING:
        return UNKNOWN;
    case VS_STREAM_LIVE:
        return (atomic_load(&slot->set) >> fence & 1) != 0 && *event != NULL ? SET : PASSED;
    default:
        return PASSED;
    }
}

int vs_stream_fence_order(struct vs_arena *arena, uint32_t waiter, uint32_t number, uint32_t fence,
                          CUresult *error)
{
    struct vs_stream_slot *of = &vs_streams_of(arena)->slot[number];
    struct vs_stream_slot *by = &vs_streams_of(arena)->slot[waiter];
    enum vs_stream_slot_state state = vs_stream_enter(by);
    CUevent event;
    int outcome = 1;

    vs_stream_enter(of);
    switch (look(of, fence, &event)) {
    case PASSED:
        outcome = 0;
        break;
    case SET:
        if (state == VS_STREAM_LIVE && (atomic_load(&of->wide) >> fence & 1) == 0) {
            outcome = order(&arena->driver->real, by, event, error);
        }
        break;
    case UNKNOWN:
        break;
    }
    vs_stream_leave(of);
    vs_stream_leave(by);
    return outcome;
}

typedef CUresult (*question)(const struct vs_entries *real, CUcontext context, CUevent event);

static int ask(struct vs_arena *arena, uint32_t number, uint32_t fence, question put,
               CUresult *error)
{
    struct vs_stream_slot *slot = &vs_streams_of(arena)->slot[number];
    CUevent event;
    int outcome = 1;

    vs_stream_enter(slot);
    switch (look(slot, fence, &event)) {
    case PASSED:
        outcome = 0;
        break;
    case SET:
        outcome = outcome_of(put(&arena->driver->real, slot->owner, event), error);
        break;
    case UNKNOWN:
        break;
    }
    vs_stream_leave(slot);
    return outcome;
}

int vs_stream_fence_query(struct vs_arena *arena, uint32_t number, uint32_t fence, CUresult *error)
{
    return ask(arena, number, fence, vs_fence_event_query, error);
}

static CUresult synchronize(const struct vs_entries *real, CUcontext context, CUevent event)
{
    return vs_fence_event_ask(real, context, real->cuEventSynchronize, event);
}

int vs_stream_fence_wait(struct vs_arena *arena, uint32_t number, uint32_t fence, bool patient,
                         CUresult *error)
{
    const struct vs_stream_slot *slot = &vs_streams_of(arena)->slot[number];
    bool wide = (atomic_load(&slot->wide) >> fence & 1) != 0;
    uint64_t until = vs_sys_clock(CLOCK_MONOTONIC) + (patient ? 0 : HASTE_NS);
    const struct timespec nap = {.tv_nsec = NAP_NS};
    int outcome;

    if (patient && !wide) {
        return ask(arena, number, fence, synchronize, error);
    }
    while ((outcome = vs_stream_fence_query(arena, number, fence, error)) > 0 &&
           vs_sys_clock(CLOCK_MONOTONIC) < until) {
        VS_SYS(SYS_nanosleep, &nap, NULL);
    }
    return outcome;
}
