/* The timeline (see timeline.h): buckets that widen, and the rows made of them. */
#include "report/timeline.h"

#include <string.h>

#define FIRST_SHIFT 20 /* about a millisecond; the coarse clock ticks every 1 to 4 */
#define LAST_SHIFT 62
#define NONE UINT32_MAX
#define ROOM_AFTER_WIDENING (VS_TIMELINE_BUCKETS / 4)

_Static_assert(VS_LEDGER_MAX_DEVICES <= VS_TIMELINE_BUCKETS - ROOM_AFTER_WIDENING,
               "one bucket per device must always fit");

void vs_timeline_init(struct vs_timeline *timeline)
{
    timeline->shift = FIRST_SHIFT;
}

static uint64_t end_of(const struct vs_timeline *timeline, uint64_t index)
{
    return (index + 1) << timeline->shift;
}

/* Doubles the width and merges what falls into one bucket; once. Order is kept. */
static void widen(struct vs_timeline *timeline)
{
    uint32_t newest[VS_LEDGER_MAX_DEVICES]; /* place of the device's newest bucket so far */
    uint32_t kept = 0;

    memset(newest, 0xff, sizeof newest);
    timeline->shift++;
    for (uint32_t i = 0; i < timeline->count; i++) {
        struct vs_timeline_bucket bucket = timeline->bucket[i];
        uint32_t place = newest[bucket.device];
        bucket.index >>= 1;
        if (place != NONE && timeline->bucket[place].index == bucket.index) {
            struct vs_timeline_bucket *into = &timeline->bucket[place];
            if (bucket.top.live_bytes > into->top.live_bytes) {
                into->top = bucket.top;
            }
            into->last = bucket.last;
        } else {
            newest[bucket.device] = kept;
            timeline->bucket[kept++] = bucket;
        }
    }
    timeline->count = kept;
    for (uint32_t d = 0; d < VS_LEDGER_MAX_DEVICES; d++) {
        if (newest[d] == NONE) {
            continue;
        }
        const struct vs_timeline_bucket *open = &timeline->bucket[newest[d]];
        timeline->device[d].open = newest[d];
        atomic_store_explicit(&timeline->device[d].end_ns, end_of(timeline, open->index),
                              memory_order_relaxed);
        atomic_store_explicit(&timeline->device[d].top_live, open->top.live_bytes,
                              memory_order_relaxed);
    }
}

static void make_room(struct vs_timeline *timeline)
{
    if (timeline->count < VS_TIMELINE_BUCKETS) {
        return;
    }
    do {
        widen(timeline);
    } while (timeline->count > VS_TIMELINE_BUCKETS - ROOM_AFTER_WIDENING &&
             timeline->shift < LAST_SHIFT);
}

static void open_bucket(struct vs_timeline *timeline, uint32_t device,
                        const struct vs_timeline_sample *sample)
{
    if (timeline->count == VS_TIMELINE_BUCKETS) {
        return;
    }
    uint32_t place = timeline->count++;
    uint64_t index = sample->t_ns >> timeline->shift;
    timeline->bucket[place] = (struct vs_timeline_bucket){
        .index = index, .device = device, .top = *sample, .last = *sample};
    timeline->device[device].open = place;
    atomic_store_explicit(&timeline->device[device].top_live, sample->live_bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&timeline->device[device].end_ns, end_of(timeline, index),
                          memory_order_relaxed);
}

static void raise_top(struct vs_timeline *timeline, uint32_t device,
                      const struct vs_timeline_sample *sample)
{
    struct vs_timeline_bucket *bucket = &timeline->bucket[timeline->device[device].open];
    if (sample->live_bytes <= bucket->top.live_bytes) {
        return;
    }
    uint64_t start = bucket->index << timeline->shift;
    bucket->top = *sample;
    if (bucket->top.t_ns < start) {
        bucket->top.t_ns = start;
    }
    atomic_store_explicit(&timeline->device[device].top_live, sample->live_bytes,
                          memory_order_relaxed);
}

void vs_timeline_record(struct vs_timeline *timeline, uint32_t device,
                        const struct vs_timeline_sample *before,
                        const struct vs_timeline_sample *after)
{
    vs_lock_take(&timeline->lock);
    uint64_t end = atomic_load_explicit(&timeline->device[device].end_ns, memory_order_relaxed);
    if (end != 0 && after->t_ns >= end) {
        struct vs_timeline_bucket *bucket = &timeline->bucket[timeline->device[device].open];
        bucket->last = *before;
        bucket->last.t_ns = end - 1;
    }
    if (after->t_ns >= end) {
        make_room(timeline);
        end = atomic_load_explicit(&timeline->device[device].end_ns, memory_order_relaxed);
    }
    if (after->t_ns >= end) {
        open_bucket(timeline, device, after);
    } else {
        raise_top(timeline, device, after);
    }
    vs_lock_drop(&timeline->lock);
}

static bool before_row(const struct vs_timeline_row *a, const struct vs_timeline_row *b)
{
    if (a->sample.t_ns != b->sample.t_ns) {
        return a->sample.t_ns < b->sample.t_ns;
    }
    return a->device < b->device;
}

/* Rows come nearly sorted (exactly so with one device), so insertion is the right sort. */
static void sort_rows(struct vs_timeline_row *rows, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct vs_timeline_row row = rows[i];
        size_t at = i;
        for (; at > 0 && before_row(&row, &rows[at - 1]); at--) {
            rows[at] = rows[at - 1];
        }
        rows[at] = row;
    }
}

size_t vs_timeline_rows(struct vs_timeline *timeline, const struct vs_timeline_sample *now,
                        struct vs_timeline_row *rows)
{
    size_t count = 0;
    if (!vs_lock_take_at_end(&timeline->lock)) {
        return 0;
    }
    for (uint32_t i = 0; i < timeline->count; i++) {
        const struct vs_timeline_bucket *bucket = &timeline->bucket[i];
        uint32_t device = bucket->device;
        const struct vs_timeline_sample *last =
            timeline->device[device].open == i ? &now[device] : &bucket->last;
        rows[count++] = (struct vs_timeline_row){device, bucket->top};
        if (last->t_ns > bucket->top.t_ns) {
            rows[count++] = (struct vs_timeline_row){device, *last};
        }
    }
    vs_lock_drop(&timeline->lock);
    sort_rows(rows, count);
    return count;
}
