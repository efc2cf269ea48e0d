/*
 * The timeline: how much was live, when, in at most 2,048 rows however long the run is and however
 * many devices it has.
 *
 * Time is cut into buckets; a bucket that saw events of a device keeps two samples of it, the one
 * with the most live bytes and the last one, so that both peaks and drops survive. When all places
 * are taken, buckets become twice as wide and neighbours are merged. A bucket without events takes
 * no place. The highest sample of the whole run is always among the rows.
 *
 * No clock inside: times are handed in, in nanoseconds since process start. The structure has no
 * pointers and may live in a file. Any thread may call; the lock is a leaf.
 */
#ifndef VS_REPORT_TIMELINE_H
#define VS_REPORT_TIMELINE_H

#include "report/ledger.h"
#include "report/lock.h"

#define VS_TIMELINE_ROWS 2048
#define VS_TIMELINE_BUCKETS (VS_TIMELINE_ROWS / 2)

struct vs_timeline_sample {
    uint64_t t_ns;
    uint64_t live_bytes;
    uint64_t reserved_bytes;
    uint64_t used_bytes;
};

struct vs_timeline_bucket {
    uint64_t index; /* t_ns >> shift */
    uint32_t device;
    uint32_t spare;
    struct vs_timeline_sample top;
    struct vs_timeline_sample last; /* meaningful once the bucket is closed */
};

struct vs_timeline {
    struct vs_lock lock;
    uint32_t shift; /* a bucket is 2^shift nanoseconds wide */
    uint32_t count; /* of buckets in use, ordered by when they were opened */
    uint32_t spare;
    struct {
        _Atomic uint64_t end_ns;   /* where the open bucket ends; 0: none is open */
        _Atomic uint64_t top_live; /* its highest sample */
        uint32_t open;             /* its place */
        uint32_t spare;
    } device[VS_LEDGER_MAX_DEVICES];
    struct vs_timeline_bucket bucket[VS_TIMELINE_BUCKETS];
};

struct vs_timeline_row {
    uint32_t device;
    struct vs_timeline_sample sample;
};

/* For a zeroed structure. */
void vs_timeline_init(struct vs_timeline *timeline);

/* The slow half of vs_timeline_event. */
void vs_timeline_record(struct vs_timeline *timeline, uint32_t device,
                        const struct vs_timeline_sample *before,
                        const struct vs_timeline_sample *after);

/* Would an event say nothing new? Then it need not be told. */
static inline bool vs_timeline_quiet(const struct vs_timeline *timeline, uint32_t device,
                                     uint64_t t_ns, uint64_t live_bytes)
{
    return t_ns < atomic_load_explicit(&timeline->device[device].end_ns, memory_order_relaxed) &&
           live_bytes <=
               atomic_load_explicit(&timeline->device[device].top_live, memory_order_relaxed);
}

/* One change at after->t_ns: the state before it (its t_ns is not read) and after it. A time that
 * lies before the open bucket (clocks of threads race) counts as the bucket's first moment. */
static inline void vs_timeline_event(struct vs_timeline *timeline, uint32_t device,
                                     const struct vs_timeline_sample *before,
                                     const struct vs_timeline_sample *after)
{
    if (!vs_timeline_quiet(timeline, device, after->t_ns, after->live_bytes)) {
        vs_timeline_record(timeline, device, before, after);
    }
}

/* Copies the rows, ordered by time then device, into rows[VS_TIMELINE_ROWS]; returns how many.
 * now[] holds the present state of each device, with its t_ns: it ends the open buckets. Returns 0
 * rows if the lock can't be had within a second. */
size_t vs_timeline_rows(struct vs_timeline *timeline, const struct vs_timeline_sample *now,
                        struct vs_timeline_row *rows);

#endif
