/*
 * What is noted of the program's events (see stream_events.h).
 *
 * A table with one place for each hash; an event takes the place of another. Recording has a
 * beginning and an end here: the old note is dropped before the driver is called, the new one
 * entered after it, and if two threads record one event at the same time neither is. Who asks the
 * driver about an event looks before and afterwards whether the note has stayed the same.
 *
 * Static memory: a forked child's events are not its parent's, and neither are the arenas that
 * notes speak of.
 *
 * Locks: one per place, leaves.
 */
#include "shim/stream_events.h"

#include "report/lock.h"
#include "shim/capture.h"

enum { PLACES = 1024 };

struct place {
    struct vs_lock lock;
    uint32_t recording; /* calls under way */
    bool spoiled;       /* … more than one, since the last time there was none */
    bool noted;
    CUevent event; /* whose the place is; NULL: nobody's */
    uint32_t serial;
    struct vs_stream_mark mark;
};

static struct place places[PLACES];
static _Atomic bool distrusted;

static struct place *place_of(CUevent event)
{
    return &places[(uintptr_t)event * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}
_Static_assert(PLACES == 1024, "place_of gives ten bits");

static bool wanted(const struct vs_guard *guard)
{
    return guard->counts && vs_streams_used() &&
           !atomic_load_explicit(&distrusted, memory_order_relaxed);
}

/* With the lock. */
static void drop(struct place *place)
{
    place->noted = false;
    place->serial++;
}

/* False: another event's recording has the place. */
static bool begin(CUevent event)
{
    struct place *place = place_of(event);
    bool mine;

    vs_lock_take(&place->lock);
    mine = place->event == event || place->recording == 0;
    if (mine) {
        place->event = event;
        place->spoiled = place->recording > 0;
        place->recording++;
        drop(place);
    }
    vs_lock_drop(&place->lock);
    return mine;
}

void vs_events_record_wide(struct vs_event_call *call, const struct vs_guard *guard, CUevent event)
{
    *call = (struct vs_event_call){.event = event};
    call->noted = wanted(guard) && event != NULL && begin(event);
}

void vs_events_record(struct vs_event_call *call, const struct vs_guard *guard, CUevent event,
                      CUstream stream, bool per_thread)
{
    vs_events_record_wide(call, guard, event);
    if (call->noted && !vs_capture_records(
                           guard, stream, per_thread ? VS_CAPTURE_PER_THREAD : VS_CAPTURE_LEGACY)) {
        vs_streams_mark(guard, stream, per_thread, &call->mark);
    }
}

void vs_events_recorded(const struct vs_event_call *call, CUresult result)
{
    struct place *place;

    if (!call->noted) {
        return;
    }
    place = place_of(call->event);
    vs_lock_take(&place->lock);
    place->recording--;
    drop(place);
    if (result == CUDA_SUCCESS && !place->spoiled && call->mark.arena != NULL) {
        place->mark = call->mark;
        place->noted = true;
    }
    vs_lock_drop(&place->lock);
}

void vs_events_wait(struct vs_event_wait *wait, const struct vs_guard *guard, CUevent event)
{
    struct place *place;

    wait->event = NULL;
    if (!wanted(guard) || event == NULL) {
        return;
    }
    place = place_of(event);
    vs_lock_take(&place->lock);
    if (place->event == event && place->noted) {
        *wait = (struct vs_event_wait){event, place->serial, place->mark};
    }
    vs_lock_drop(&place->lock);
}

/* Is it still what was asked about? */
static bool holds(const struct vs_event_wait *wait)
{
    struct place *place;
    bool same;

    if (wait->event == NULL) {
        return false;
    }
    place = place_of(wait->event);
    vs_lock_take(&place->lock);
    same = place->event == wait->event && place->noted && place->serial == wait->serial;
    vs_lock_drop(&place->lock);
    return same;
}

void vs_events_passed(const struct vs_event_wait *wait)
{
    if (holds(wait)) {
        vs_streams_seen(&wait->mark);
    }
}

void vs_events_waited(const struct vs_event_wait *wait, const struct vs_guard *guard,
                      CUstream stream, bool per_thread)
{
    if (holds(wait) && !vs_capture_records(
                           guard, stream, per_thread ? VS_CAPTURE_PER_THREAD : VS_CAPTURE_LEGACY)) {
        vs_streams_after(guard, stream, per_thread, &wait->mark);
    }
}

void vs_events_forget(CUevent event)
{
    struct place *place = place_of(event);

    if (!vs_streams_used() || event == NULL) {
        return;
    }
    vs_lock_take(&place->lock);
    if (place->event == event) {
        drop(place);
    }
    vs_lock_drop(&place->lock);
}

void vs_events_forget_all(void)
{
    for (unsigned i = 0; vs_streams_used() && i < PLACES; i++) {
        vs_lock_take(&places[i].lock);
        drop(&places[i]);
        vs_lock_drop(&places[i].lock);
    }
}

void vs_events_distrust(const struct vs_guard *guard)
{
    if (guard->counts) {
        atomic_store_explicit(&distrusted, true, memory_order_relaxed);
    }
}
