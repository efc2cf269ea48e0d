/*
 * The gauges of one device: what is live, in the pools, reserved and charged, now and at the most;
 * and the calls that changed what is live.
 *
 * Changes are made under one lock and are exact. Where several threads allocate at the same time,
 * that lock's cache line would be what they all wait for; the gauges then *collect*: each thread
 * keeps its changes in its lane, by kind of memory, and passes on what does not fit a band of
 * VS_GAUGE_BAND.
 *
 * What holds, with T = the live bytes as they truly were (every call counted when it was made):
 * - `now`, read by vs_gauges_read with nobody else at work, is T.
 * - A lane holds back 0 to VS_GAUGE_BAND bytes of a kind that are live, never fewer and never more.
 *   So while collecting no recorded peak is above the highest T, and none is below it by more than
 *   VS_GAUGE_BAND for each lane and kind in use (64 MiB for all lanes).
 * - Calls and their bytes are counted once each, in the gauges or in a lane: sums are exact.
 * - Otherwise peaks are exact. Collecting begins when, in one tick of the coarse clock, lanes take
 *   turns within fewer than 17 changes of each other some 1,000 times, or find the lock held 32
 *   times. It ends after four ticks with changes of one lane only: threads that work in turns never
 *   start it.
 * Only what is live is collected: what the pools hold, and pinned host memory, is exact at all
 * times.
 *
 * Lives in the ledger's mapping: no pointers. Lock order: a lane's lock, then the gauges' or the
 * timeline's, which are leaves. Readers need none: every word is whole.
 */
#ifndef VS_REPORT_GAUGES_H
#define VS_REPORT_GAUGES_H

#include "report/ledger.h"
#include "report/lock.h"
#include "report/timeline.h"

#define VS_GAUGE_LANES 16u
#define VS_GAUGE_BAND ((int64_t)4 << 20)

struct vs_gauge {
    _Atomic uint64_t now; /* without what the lanes hold; may be negative */
    _Atomic uint64_t peak;
};

struct vs_gauge_calls {
    _Atomic uint64_t allocs;
    _Atomic uint64_t alloc_bytes;
    _Atomic uint64_t frees;
};

struct vs_gauge_lane {
    struct vs_lock lock;
    uint32_t spare;
    uint64_t tick; /* of its last change */
    struct vs_gauge_calls calls;
    _Atomic uint64_t held[VS_KIND_COUNT]; /* live bytes that the gauges do not know of; 0 unless
                                             collecting */
} __attribute__((aligned(128)));

struct vs_gauges {
    _Atomic uint32_t collecting; /* changes seldom; alone on its line */
    struct vs_lock lock __attribute__((aligned(128)));
    uint16_t last_lane; /* exact: the last to make a change; collecting: the first of this tick */
    uint8_t several;    /* collecting: others were there in this tick */
    uint8_t quiet;      /* … and for so many ticks they were not */
    uint32_t score;     /* exact: 16 for each turn, less 1 for each change without one … */
    uint32_t waits;     /* … and how often the lock was found held; in this tick */
    uint64_t tick;
    struct vs_gauge live;
    struct vs_gauge pool_live; /* of live: in the pools */
    struct vs_gauge_calls calls __attribute__((aligned(64)));
    struct vs_gauge used;
    struct vs_gauge reserved;
    struct vs_gauge host_pinned;
    struct vs_gauge by_kind[VS_KIND_COUNT]; /* "pool": what the pools hold */
    _Atomic uint64_t live_peak_at_ns;
    _Atomic uint64_t used_peak_at_ns;
    _Atomic uint64_t reserved_peak_at_ns;
    struct vs_gauge_lane lane[VS_GAUGE_LANES];
};

enum vs_gauge_call {
    VS_GAUGE_ALLOC,
    VS_GAUGE_UNDO, /* of an alloc: as if it had not been, but for the peaks */
    VS_GAUGE_FREE,
    VS_GAUGE_GONE /* no longer live, but nobody's call */
};

struct vs_gauge_change {
    enum vs_gauge_call call;
    uint64_t bytes;
    uint64_t t_ns; /* of the coarse clock, since process start */
    uint32_t kind; /* enum vs_kind */
    uint32_t lane; /* the calling thread's */
};

/* The calling thread's lane, from 1; 0: none yet. */
extern __thread uint32_t vs_gauges_own_lane
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
uint32_t vs_gauges_lane_new(void);

/* The calling thread's lane. */
static inline uint32_t vs_gauges_lane(void)
{
    uint32_t lane = vs_gauges_own_lane;

    return __builtin_expect(lane != 0, 1) ? lane - 1 : vs_gauges_lane_new();
}

/* Makes the change, and tells the timeline of the device. */
void vs_gauges_live(struct vs_gauges *gauges, const struct vs_gauge_change *change,
                    struct vs_timeline *timeline, uint32_t device);

/* The same of pool memory, whose calls are the most by far: of the calling thread's lane. */
void vs_gauges_pool_alloc(struct vs_gauges *gauges, uint64_t bytes, uint64_t t_ns,
                          struct vs_timeline *timeline, uint32_t device);
void vs_gauges_pool_free(struct vs_gauges *gauges, uint64_t bytes, uint64_t t_ns,
                         struct vs_timeline *timeline, uint32_t device);

/* What the pools hold: moves reserved, used and the kind "pool". */
void vs_gauges_reserved(struct vs_gauges *gauges, int64_t bytes, uint64_t t_ns,
                        struct vs_timeline *timeline, uint32_t device);

void vs_gauges_host_pinned(struct vs_gauges *gauges, int64_t bytes);

/* Calls so far: those that ended, read before those that began. */
struct vs_gauge_totals {
    uint64_t allocs, alloc_bytes, frees;
};
void vs_gauges_calls(const struct vs_gauges *gauges, struct vs_gauge_totals *totals);

/* What the gauges say now, with what the lanes hold. */
struct vs_gauges_now {
    uint64_t live, pool_live, used;
    uint64_t by_kind[VS_KIND_COUNT];
};

/* At the end of a process it does without the lock where that can't be had. */
void vs_gauges_read(struct vs_gauges *gauges, bool at_end, struct vs_gauges_now *now);

#endif
