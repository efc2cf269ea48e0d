/*
 * The fences of one context (see fence.h): driver events, and what a free owes the program.
 *
 * Rule 1, never more than the driver: a fence is recorded where the pool closes an epoch; which is
 * before the next submission (fence_close.c). Rule 4, captures: a context event is recorded and
 * ordered only while no stream of the context captures and none can begin (page->gate).
 *
 * Drivers without context events (before 12.5): the wait happens in the free itself
 * (vs_fences_strict, whatever VRAMSHIM_STRICT_FREE says), so every fence has passed when it is
 * recorded, and nothing is ever ordered on the device. Where that wait would break a capture, the
 * driver's own free is made to wait: of a private allocation.
 *
 * A context is never current by luck here: events are made with it pushed, all else names it.
 */
#include "shim/fence.h"

#include "shim/arm.h"
#include "shim/capture.h"
#include "shim/decisions.h"
#include "shim/fence_copies.h"
#include "shim/fence_driver.h"
#include "shim/test_faults.h"

#include <errno.h>

enum { FIRST_EVENTS = 32 };

static bool has_context_events(const struct vs_entries *real)
{
    return real->cuCtxRecordEvent != NULL && real->cuCtxWaitEvent != NULL &&
           real->cuEventQuery != NULL && real->cuEventSynchronize != NULL;
}

/* What threads remember of an earlier context's fences is over. */
static void start_numbers(struct vs_fences *fences)
{
    uint64_t first = 1 + atomic_load_explicit(&fences->begun, memory_order_relaxed);

    atomic_init(&fences->begun, first);
    atomic_init(&fences->recorded, first);
    atomic_init(&fences->passed, first);
    atomic_init(&fences->given_up, first);
}

void vs_fences_fini(struct vs_fences *fences, bool alive)
{
    for (unsigned i = 0; i < VS_POOL_FENCES && alive; i++) {
        vs_fence_event_free(fences->real, atomic_exchange(&fences->events[i], NULL));
    }
    if (alive) {
        vs_fence_event_free(fences->real, atomic_exchange(&fences->probe, NULL));
    }
    vs_copies_forget(fences->copies, fences->real, alive);
    fences->copies = NULL;
    fences->copies_pending = vs_copies_pending_of(NULL);
}

/* Made when it is first wanted. */
static CUresult event_at(struct vs_fences *fences, _Atomic(CUevent) *slot, CUevent *event)
{
    CUevent expected = NULL;
    CUresult result;

    *event = atomic_load_explicit(slot, memory_order_acquire);
    if (__builtin_expect(*event != NULL, 1)) {
        return CUDA_SUCCESS;
    }
    result = vs_fence_event_new(fences->real, fences->context, event);
    if (result == CUDA_SUCCESS && !atomic_compare_exchange_strong(slot, &expected, *event)) {
        vs_fence_event_free(fences->real, *event);
        *event = expected;
    }
    return result;
}

static bool is_capture_error(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

static int fault(struct vs_fences *fences, CUresult result, CUresult *error)
{
    if (result == CUDA_SUCCESS) {
        return 0;
    }
    if (vs_fence_is_sticky(result)) {
        atomic_store_explicit(&fences->broken, (int32_t)result, memory_order_relaxed);
    }
    if (error != NULL) {
        *error = result;
    }
    return -EIO;
}

static CUresult wait_for_context(struct vs_fences *fences);

/* cuCtxRecordEvent or cuCtxWaitEvent, with no capture about. Positive: one is. */
static int with_gate(struct vs_fences *fences, CUresult (*call)(CUcontext, CUevent), CUevent event,
                     CUresult *error)
{
    struct vs_lock *gate = &vs_process_page()->gate;
    CUresult result;

    vs_lock_take(gate);
    if (vs_capture_in(fences->context) && !(vs_test_faults() & VS_POOL_RECORD_IN_CAPTURE)) {
        vs_lock_drop(gate);
        return 1;
    }
    result = call(fences->context, event);
    vs_lock_drop(gate);
    /* A capture that was begun behind our back: it is lost, as it would be by the driver's word. */
    return is_capture_error(result) ? 1 : fault(fences, result, error);
}

/* With the gate, and no capture active: no mode is needed until the gate is dropped. It is tried
 * and not waited for, since it may be held over a call of another thread's; then the mode is the
 * way. */
static struct vs_lock *hold_captures_off(void)
{
    struct vs_lock *gate = &vs_process_page()->gate;

    if (vs_capture_active() || !vs_lock_try(gate)) {
        return NULL;
    }
    if (vs_capture_active()) {
        vs_lock_drop(gate);
        return NULL;
    }
    return gate;
}

CUresult vs_fence_event_query(const struct vs_entries *real, CUcontext context, CUevent event)
{
    struct vs_lock *gate = hold_captures_off();
    CUresult result;

    if (gate == NULL) {
        return vs_fence_event_ask(real, context, real->cuEventQuery, event);
    }
    result = vs_fence_event_call(real, context, real->cuEventQuery, event);
    vs_lock_drop(gate);
    return result;
}

CUresult vs_fence_event_new(const struct vs_entries *real, CUcontext context, CUevent *event)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct vs_lock *gate;
    CUresult result;
    bool entered;

    if (real->cuEventCreate == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    entered = vs_fence_enter(real, context);
    gate = hold_captures_off();
    if (gate == NULL) {
        mode = vs_fence_relax(real);
    }
    result = real->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (gate == NULL) {
        vs_fence_unrelax(real, mode);
    } else {
        vs_lock_drop(gate);
    }
    vs_fence_leave(real, entered);
    return result;
}

/* The first few at once, while a context's first allocation is slow anyway. One that cannot be had
 * is asked for again when it is wanted. */
static void make_first_events(struct vs_fences *fences)
{
    CUevent event;

    for (unsigned i = 0; i < FIRST_EVENTS && has_context_events(fences->real); i++) {
        if (event_at(fences, &fences->events[i], &event) != CUDA_SUCCESS) {
            break;
        }
    }
}

void vs_fences_init(struct vs_fences *fences, const struct vs_entries *real, CUcontext context)
{
    for (unsigned i = 0; i < VS_POOL_FENCES; i++) {
        atomic_init(&fences->events[i], NULL);
    }
    atomic_init(&fences->probe, NULL);
    atomic_init(&fences->broken, 0);
    atomic_init(&fences->unwaited, false);
    start_numbers(fences);
    fences->real = real;
    fences->context = context;
    fences->copies = vs_copies_of(context);
    fences->copies_pending = vs_copies_pending_of(fences->copies);
    fences->always_wait =
        vs_arm_resolved()->strict_free == VS_STRICT_FREE_ON || !has_context_events(real);
    fences->never_wait = vs_arm_resolved()->strict_free == VS_STRICT_FREE_OFF;
    make_first_events(fences);
}

int vs_fences_record(struct vs_fences *fences, uint32_t fence, CUresult *error)
{
    CUevent event;
    CUresult result;
    uint64_t number; /* nobody else records here meanwhile */
    int outcome;

    if (!has_context_events(fences->real)) {
        if (!atomic_load_explicit(&fences->unwaited, memory_order_acquire)) {
            return 0;
        }
        if (vs_capture_in(fences->context)) {
            return 1;
        }
        atomic_store_explicit(&fences->unwaited, false, memory_order_release);
        result = wait_for_context(fences);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* wait_as_a_free had nothing to free */
            atomic_store_explicit(&fences->unwaited, true, memory_order_release);
            return 1;
        }
        return fault(fences, result, error);
    }
    result = event_at(fences, &fences->events[fence], &event);
    if (result != CUDA_SUCCESS) {
        return fault(fences, result, error);
    }
    number = 1 + atomic_load_explicit(&fences->begun, memory_order_relaxed);
    atomic_store_explicit(&fences->last[fence], number, memory_order_relaxed);
    atomic_store_explicit(&fences->numbers[number % VS_POOL_FENCES], (uint16_t)fence,
                          memory_order_relaxed);
    atomic_store_explicit(&fences->begun, number, memory_order_seq_cst);
    outcome = with_gate(fences, fences->real->cuCtxRecordEvent, event, error);
    if (outcome == 0) {
        atomic_store_explicit(&fences->recorded, number, memory_order_release);
    } else {
        atomic_store_explicit(&fences->begun, number - 1, memory_order_seq_cst);
    }
    return outcome;
}

bool vs_fences_number(struct vs_fences *fences, uint64_t fence, uint32_t *number)
{
    *number = atomic_load_explicit(&fences->numbers[fence % VS_POOL_FENCES], memory_order_acquire);
    return atomic_load_explicit(&fences->last[*number], memory_order_acquire) == fence;
}

int vs_fences_order(struct vs_fences *fences, uint32_t fence, CUresult *error)
{
    CUevent event = atomic_load_explicit(&fences->events[fence], memory_order_acquire);

    if (event == NULL) {
        return 1;
    }
    return with_gate(fences, fences->real->cuCtxWaitEvent, event, error);
}

int vs_fences_query(struct vs_fences *fences, uint32_t fence, CUresult *error)
{
    CUevent event = atomic_load_explicit(&fences->events[fence], memory_order_acquire);
    CUresult result;

    if (event == NULL) {
        return 0; /* an old driver: it was waited for in the free */
    }
    result = vs_fence_event_query(fences->real, fences->context, event);
    return result == CUDA_ERROR_NOT_READY ? 1 : fault(fences, result, error);
}

int vs_fences_wait(struct vs_fences *fences, uint32_t fence, CUresult *error)
{
    CUevent event = atomic_load_explicit(&fences->events[fence], memory_order_acquire);

    if (event == NULL) {
        return 0;
    }
    return fault(
        fences,
        vs_fence_event_ask(fences->real, fences->context, fences->real->cuEventSynchronize, event),
        error);
}

CUresult vs_fences_ask_legal(struct vs_fences *fences)
{
    int32_t broken = atomic_load_explicit(&fences->broken, memory_order_relaxed);
    const struct vs_entries *real = fences->real;
    CUevent event;
    CUresult result;

    if ((broken == 0 && !vs_capture_active()) || real->cuEventQuery == NULL) {
        return CUDA_SUCCESS;
    }
    result = event_at(fences, &fences->probe, &event);
    if (result != CUDA_SUCCESS) {
        return vs_fence_is_sticky(result) ? result : CUDA_SUCCESS;
    }
    /* In the thread's own mode: that is the question. */
    result = real->cuEventQuery(event);
    if (result == CUDA_ERROR_INVALID_CONTEXT) {
        bool entered = vs_fence_enter(real, fences->context);

        result = real->cuEventQuery(event);
        vs_fence_leave(real, entered);
    }
    if (result == CUDA_SUCCESS && broken != 0) { /* it was another context's */
        atomic_compare_exchange_strong(&fences->broken, &broken, 0);
    }
    return result;
}

/* Waits as the driver's free does, by a free: legal in every capture (in the relaxed mode). */
static CUresult wait_as_a_free(struct vs_fences *fences)
{
    const struct vs_entries *real = fences->real;
    bool entered = vs_fence_enter(real, fences->context);
    CUstreamCaptureMode mode = vs_fence_relax(real);
    CUdeviceptr address = 0;
    CUresult result = real->cuMemAlloc_v2(&address, 1);

    if (result == CUDA_SUCCESS) {
        result = real->cuMemFree_v2(address);
    }
    vs_fence_unrelax(real, mode);
    vs_fence_leave(real, entered);
    return result;
}

/* cuCtxSynchronize, unless the process captures, which that would break. Positive: it does. */
static int synchronize(struct vs_fences *fences, CUresult *result)
{
    struct vs_process_page *page = vs_process_page();
    const struct vs_entries *real = fences->real;
    CUstreamCaptureMode mode;
    bool entered, captures;

    if (real->cuCtxSynchronize == NULL) {
        return 1;
    }
    if (atomic_load_explicit(&page->captures_seen, memory_order_relaxed)) {
        return 1;
    }
    /* Either whoever begins a capture sees us, or we see it. */
    atomic_fetch_add_explicit(&page->synchronising, 1, memory_order_seq_cst);
    captures = atomic_load_explicit(&page->captures_seen, memory_order_seq_cst);
    if (!captures) {
        entered = vs_fence_enter(real, fences->context);
        mode = vs_fence_relax(real);
        *result = real->cuCtxSynchronize();
        vs_fence_unrelax(real, mode);
        vs_fence_leave(real, entered);
    }
    atomic_fetch_sub_explicit(&page->synchronising, 1, memory_order_seq_cst);
    return captures ? 1 : 0;
}

/* Waits for what was submitted to the context, no matter what captures. */
static CUresult wait_for_context(struct vs_fences *fences)
{
    const struct vs_entries *real = fences->real;
    CUresult result = CUDA_SUCCESS;
    CUevent event;

    if (has_context_events(real) &&
        vs_fence_event_new(real, fences->context, &event) == CUDA_SUCCESS) {
        int recorded = with_gate(fences, real->cuCtxRecordEvent, event, &result);

        if (recorded == 0) {
            result = vs_fence_event_ask(real, fences->context, real->cuEventSynchronize, event);
        }
        vs_fence_event_free(real, event);
        if (recorded <= 0) {
            return result;
        }
    }
    return synchronize(fences, &result) == 0 ? result : wait_as_a_free(fences);
}

/* Copies that were waited for with the whole context need not be again. */
static CUresult wait_for_all(struct vs_fences *fences)
{
    CUresult result = wait_for_context(fences);

    if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* wait_as_a_free had nothing to free */
        atomic_store_explicit(&fences->unwaited, true, memory_order_release);
        return CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        fault(fences, result, NULL);
    }
    return result;
}

CUresult vs_fences_wait_strict(struct vs_fences *fences)
{
    bool whole = false;
    CUresult result;

    if (fences->always_wait) {
        vs_decisions_free_waits(true);
        return wait_for_all(fences);
    }
    result = vs_copies_wait(fences->copies, fences->real, fences->context, &whole);
    vs_decisions_free_waits(whole);
    if (whole) {
        result = wait_for_all(fences);
    }
    if (result != CUDA_SUCCESS) {
        fault(fences, result, NULL);
    }
    return result;
}
