/*
 * Events of the program's, by which it orders streams and learns that work has passed: what they
 * say of memory that was freed in the order of a stream.
 *
 * cuEventRecord(event, stream) notes what was freed on the stream so far. Who then waits for the
 * event, a stream or the host, comes after that. A note is only ever a gain: it is dropped where
 * another event needs its place, where the event is recorded by a call that says less, and for good
 * where events may be recorded out of sight (by graph nodes, or in other processes).
 */
#ifndef VS_SHIM_STREAM_EVENTS_H
#define VS_SHIM_STREAM_EVENTS_H

#include "shim/streams.h"

/* Around a call that records an event. Any thread, with no lock held, as all of this. */
struct vs_event_call {
    CUevent event;
    bool noted;                 /* it has a place in the table */
    struct vs_stream_mark mark; /* of the one stream that it is recorded in; else of none */
};

/* … in this one stream. */
void vs_events_record(struct vs_event_call *call, const struct vs_guard *guard, CUevent event,
                      CUstream stream, bool per_thread);
/* … by a call that records all streams of a context. */
void vs_events_record_wide(struct vs_event_call *call, const struct vs_guard *guard, CUevent event);
void vs_events_recorded(const struct vs_event_call *call, CUresult result);

/* Around a call that waits for an event, or asks it. */
struct vs_event_wait {
    CUevent event; /* NULL: nothing is noted */
    uint32_t serial;
    struct vs_stream_mark mark;
};

void vs_events_wait(struct vs_event_wait *wait, const struct vs_guard *guard, CUevent event);
/* The host has seen it pass. */
void vs_events_passed(const struct vs_event_wait *wait);
/* This stream waits for it. */
void vs_events_waited(const struct vs_event_wait *wait, const struct vs_guard *guard,
                      CUstream stream, bool per_thread);

/* It is about to be destroyed. */
void vs_events_forget(CUevent event);
/* A context has gone, with all of its events. */
void vs_events_forget_all(void);

/* From now on events may be recorded where nobody sees it. */
void vs_events_distrust(const struct vs_guard *guard);

#endif
