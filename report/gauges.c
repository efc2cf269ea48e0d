/*
 * Gauges (see gauges.h): exact under a lock, or collected in lanes.
 *
 * A change under the lock is always legal, whatever the lanes do. Only the other direction needs
 * care: a lane may hold something only while collecting. So a change looks at `collecting` under
 * its lane's lock, and who ends collecting empties every lane under its lock afterwards.
 */
#include "report/gauges.h"

#include <stddef.h>

#define TURN 16u
#define TURNS_TO_COLLECT (1024u * TURN)
#define WAITS_TO_COLLECT 32
#define QUIET_TICKS 4

_Static_assert(offsetof(struct vs_gauges, pool_live) + sizeof(struct vs_gauge) -
                       offsetof(struct vs_gauges, lock) <=
                   64,
               "what pool memory moves is one line");

static _Atomic uint32_t lanes_given;

/* Threads that never allocate take none, so that neighbours seldom share one. */
__thread uint32_t vs_gauges_own_lane __attribute__((tls_model("initial-exec")));

uint32_t vs_gauges_lane_new(void)
{
    vs_gauges_own_lane =
        atomic_fetch_add_explicit(&lanes_given, 1, memory_order_relaxed) % VS_GAUGE_LANES + 1;
    return vs_gauges_own_lane - 1;
}

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static bool is_collecting(const struct vs_gauges *gauges)
{
    return atomic_load_explicit(&gauges->collecting, memory_order_relaxed) != 0;
}

static void set_collecting(struct vs_gauges *gauges, uint32_t collecting)
{
    atomic_store_explicit(&gauges->collecting, collecting, memory_order_relaxed);
}

/* The lock is held, here and in what follows. peak_at may be NULL. */
static void move(struct vs_gauge *gauge, int64_t bytes, _Atomic uint64_t *peak_at, uint64_t t_ns)
{
    uint64_t now = load(&gauge->now) + (uint64_t)bytes;
    store(&gauge->now, now);
    if ((int64_t)now > (int64_t)load(&gauge->peak)) {
        store(&gauge->peak, now);
        if (peak_at) {
            store(peak_at, t_ns);
        }
    }
}

/* Whoever calls has the lock that guards them. */
static void add_to(_Atomic uint64_t *word, uint64_t by)
{
    atomic_store_explicit(word, load(word) + by, memory_order_release);
}

static void count(struct vs_gauge_calls *calls, const struct vs_gauge_change *change)
{
    switch (change->call) {
    case VS_GAUGE_ALLOC:
        add_to(&calls->allocs, 1);
        add_to(&calls->alloc_bytes, change->bytes);
        break;
    case VS_GAUGE_UNDO:
        add_to(&calls->allocs, -UINT64_C(1));
        add_to(&calls->alloc_bytes, -change->bytes);
        break;
    case VS_GAUGE_FREE:
        add_to(&calls->frees, 1);
        break;
    case VS_GAUGE_GONE:
        break;
    }
}

static int64_t change_of(const struct vs_gauge_change *change)
{
    return (int64_t)(change->call == VS_GAUGE_ALLOC ? change->bytes : -change->bytes);
}

static bool charged(uint32_t kind)
{
    return kind != VS_KIND_OVERFLOW && kind != VS_KIND_POOL;
}

static void move_live(struct vs_gauges *gauges, uint32_t kind, int64_t bytes, uint64_t t_ns)
{
    move(&gauges->live, bytes, &gauges->live_peak_at_ns, t_ns);
    if (kind == VS_KIND_POOL) { /* charged as the pool takes it */
        move(&gauges->pool_live, bytes, NULL, 0);
        return;
    }
    move(&gauges->by_kind[kind], bytes, NULL, 0);
    if (charged(kind)) {
        move(&gauges->used, bytes, &gauges->used_peak_at_ns, t_ns);
    }
}

/* Below zero: lanes hold the rest, or their part is not of the same moment. */
static uint64_t shown(uint64_t now)
{
    return (int64_t)now > 0 ? now : 0;
}

static void sample(const struct vs_gauges *gauges, uint64_t t_ns, struct vs_timeline_sample *to)
{
    to->t_ns = t_ns;
    to->live_bytes = shown(load(&gauges->live.now));
    to->used_bytes = shown(load(&gauges->used.now));
    to->reserved_bytes = load(&gauges->reserved.now);
}

/* What a sample was before these had moved. */
static struct vs_timeline_sample less(const struct vs_timeline_sample *after,
                                      const struct vs_gauges *gauges, int64_t live, int64_t used,
                                      int64_t reserved)
{
    return (struct vs_timeline_sample){
        .t_ns = after->t_ns,
        .live_bytes = shown(load(&gauges->live.now) - (uint64_t)live),
        .reserved_bytes = after->reserved_bytes - (uint64_t)reserved,
        .used_bytes = shown(load(&gauges->used.now) - (uint64_t)used),
    };
}

/* Who was here last, and how often that changed, or the lock was found held. Begins collecting
 * where that was too often. */
static void take_turn(struct vs_gauges *gauges, const struct vs_gauge_change *change, bool waited)
{
    if (gauges->last_lane == change->lane && !waited) {
        gauges->score -= gauges->score > 0;
        return;
    }
    if (gauges->tick != change->t_ns) {
        gauges->tick = change->t_ns;
        gauges->score = 0;
        gauges->waits = 0;
    }
    gauges->score += gauges->last_lane != change->lane ? TURN : 0;
    gauges->waits += waited;
    gauges->last_lane = (uint16_t)change->lane;
    if (gauges->score >= TURNS_TO_COLLECT || gauges->waits >= WAITS_TO_COLLECT) {
        gauges->score = 0;
        gauges->waits = 0;
        gauges->several = 1;
        gauges->quiet = 0;
        set_collecting(gauges, 1);
    }
}

/* The first change of a lane in a tick. True: collecting has ended. */
static bool begin_tick(struct vs_gauges *gauges, const struct vs_gauge_change *change)
{
    if (change->t_ns <= gauges->tick) { /* of this one, or read before it began */
        gauges->several |= gauges->last_lane != change->lane;
        return false;
    }
    gauges->tick = change->t_ns;
    gauges->last_lane = (uint16_t)change->lane;
    gauges->quiet = gauges->several ? 0 : gauges->quiet + 1;
    gauges->several = 0;
    if (gauges->quiet < QUIET_TICKS) {
        return false;
    }
    gauges->score = 0;
    set_collecting(gauges, 0);
    return true;
}

/* Empties the lanes, unless collecting begins anew meanwhile. */
static void drain(struct vs_gauges *gauges, uint64_t t_ns)
{
    for (uint32_t i = 0; i < VS_GAUGE_LANES; i++) {
        struct vs_gauge_lane *lane = &gauges->lane[i];
        vs_lock_take(&lane->lock);
        vs_lock_take(&gauges->lock);
        for (uint32_t kind = 0; kind < VS_KIND_COUNT && !is_collecting(gauges); kind++) {
            move_live(gauges, kind, (int64_t)load(&lane->held[kind]), t_ns);
            store(&lane->held[kind], 0);
        }
        vs_lock_drop(&gauges->lock);
        vs_lock_drop(&lane->lock);
    }
}

/* waited: the lock was found held once already. */
static void exact(struct vs_gauges *gauges, const struct vs_gauge_change *change, bool waited,
                  struct vs_timeline *timeline, uint32_t device)
{
    struct vs_timeline_sample before, after;
    int64_t bytes = change_of(change);
    if (!vs_lock_try(&gauges->lock)) {
        waited = true;
        vs_lock_wait(&gauges->lock);
    }
    move_live(gauges, change->kind, bytes, change->t_ns);
    count(&gauges->calls, change);
    if (!is_collecting(gauges)) {
        take_turn(gauges, change, waited);
    }
    bool quiet = vs_timeline_quiet(timeline, device, change->t_ns, shown(load(&gauges->live.now)));
    if (!quiet) {
        sample(gauges, change->t_ns, &after);
        before = less(&after, gauges, bytes, charged(change->kind) ? bytes : 0, 0);
    }
    vs_lock_drop(&gauges->lock);
    if (!quiet) {
        vs_timeline_record(timeline, device, &before, &after);
    }
}

/* Leaves half a band in the lane, so that as much room is left for what comes as for what goes.
 * True: collecting has ended. */
static bool pass_on(struct vs_gauges *gauges, struct vs_gauge_lane *lane,
                    const struct vs_gauge_change *change, int64_t held,
                    struct vs_timeline *timeline, uint32_t device)
{
    struct vs_timeline_sample before, after;
    int64_t rest = held < 0 || held > VS_GAUGE_BAND ? VS_GAUGE_BAND / 2 : held;
    bool ended = false;
    vs_lock_take(&gauges->lock);
    store(&lane->held[change->kind], (uint64_t)rest);
    move_live(gauges, change->kind, held - rest, change->t_ns);
    if (lane->tick != change->t_ns) {
        lane->tick = change->t_ns;
        ended = begin_tick(gauges, change);
    }
    sample(gauges, change->t_ns, &after);
    before = less(&after, gauges, held - rest, charged(change->kind) ? held - rest : 0, 0);
    vs_lock_drop(&gauges->lock);
    vs_timeline_event(timeline, device, &before, &after);
    return ended;
}

static void move_somewhere(struct vs_gauges *gauges, const struct vs_gauge_change *change,
                           bool waited, struct vs_timeline *timeline, uint32_t device)
{
    if (!is_collecting(gauges)) {
        exact(gauges, change, waited, timeline, device);
        return;
    }
    struct vs_gauge_lane *lane = &gauges->lane[change->lane];
    vs_lock_take(&lane->lock);
    if (!is_collecting(gauges)) {
        vs_lock_drop(&lane->lock);
        exact(gauges, change, waited, timeline, device);
        return;
    }
    int64_t held = (int64_t)load(&lane->held[change->kind]) + change_of(change);
    count(&lane->calls, change);
    bool ended = false;
    if (held >= 0 && held <= VS_GAUGE_BAND && lane->tick == change->t_ns) {
        store(&lane->held[change->kind], (uint64_t)held);
    } else {
        ended = pass_on(gauges, lane, change, held, timeline, device);
    }
    vs_lock_drop(&lane->lock);
    if (ended) {
        drain(gauges, change->t_ns);
    }
}

void vs_gauges_live(struct vs_gauges *gauges, const struct vs_gauge_change *change,
                    struct vs_timeline *timeline, uint32_t device)
{
    move_somewhere(gauges, change, false, timeline, device);
}

enum at_once { DONE, NOT_AT_ONCE, WAIT };

/*
 * exact() and take_turn() for the case that nearly every call is: the lock is free, the same lane
 * as before, and nothing that the timeline wants to know. Else nothing was done; WAIT: the lock is
 * held.
 */
__attribute__((always_inline)) static inline enum at_once
at_once(struct vs_gauges *gauges, bool is_alloc, uint64_t bytes, uint64_t t_ns, uint32_t lane,
        const struct vs_timeline *timeline, uint32_t device)
{
    if (__builtin_expect(is_collecting(gauges), 0)) {
        return NOT_AT_ONCE;
    }
    if (__builtin_expect(!vs_lock_try(&gauges->lock), 0)) {
        return WAIT;
    }
    uint64_t live = load(&gauges->live.now) + (is_alloc ? bytes : -bytes);
    uint64_t pool = load(&gauges->pool_live.now) + (is_alloc ? bytes : -bytes);
    if (__builtin_expect(is_collecting(gauges) || gauges->last_lane != lane ||
                             (is_alloc && (int64_t)live > (int64_t)load(&gauges->live.peak)) ||
                             (is_alloc && (int64_t)pool > (int64_t)load(&gauges->pool_live.peak)) ||
                             !vs_timeline_quiet(timeline, device, t_ns, shown(live)),
                         0)) {
        vs_lock_drop(&gauges->lock);
        return NOT_AT_ONCE;
    }
    store(&gauges->live.now, live);
    store(&gauges->pool_live.now, pool);
    gauges->score -= gauges->score > 0;
    if (is_alloc) {
        add_to(&gauges->calls.allocs, 1);
        add_to(&gauges->calls.alloc_bytes, bytes);
    } else {
        add_to(&gauges->calls.frees, 1);
    }
    vs_lock_drop(&gauges->lock);
    return DONE;
}

void vs_gauges_pool_alloc(struct vs_gauges *gauges, uint64_t bytes, uint64_t t_ns,
                          struct vs_timeline *timeline, uint32_t device)
{
    uint32_t lane = vs_gauges_lane();
    enum at_once how = at_once(gauges, true, bytes, t_ns, lane, timeline, device);
    if (how != DONE) {
        struct vs_gauge_change change = {VS_GAUGE_ALLOC, bytes, t_ns, VS_KIND_POOL, lane};
        move_somewhere(gauges, &change, how == WAIT, timeline, device);
    }
}

void vs_gauges_pool_free(struct vs_gauges *gauges, uint64_t bytes, uint64_t t_ns,
                         struct vs_timeline *timeline, uint32_t device)
{
    uint32_t lane = vs_gauges_lane();
    enum at_once how = at_once(gauges, false, bytes, t_ns, lane, timeline, device);
    if (how != DONE) {
        struct vs_gauge_change change = {VS_GAUGE_FREE, bytes, t_ns, VS_KIND_POOL, lane};
        move_somewhere(gauges, &change, how == WAIT, timeline, device);
    }
}

void vs_gauges_reserved(struct vs_gauges *gauges, int64_t bytes, uint64_t t_ns,
                        struct vs_timeline *timeline, uint32_t device)
{
    struct vs_timeline_sample before, after;
    vs_lock_take(&gauges->lock);
    move(&gauges->reserved, bytes, &gauges->reserved_peak_at_ns, t_ns);
    move(&gauges->by_kind[VS_KIND_POOL], bytes, NULL, 0);
    move(&gauges->used, bytes, &gauges->used_peak_at_ns, t_ns);
    sample(gauges, t_ns, &after);
    before = less(&after, gauges, 0, bytes, bytes);
    vs_lock_drop(&gauges->lock);
    vs_timeline_event(timeline, device, &before, &after);
}

void vs_gauges_host_pinned(struct vs_gauges *gauges, int64_t bytes)
{
    vs_lock_take(&gauges->lock);
    move(&gauges->host_pinned, bytes, NULL, 0);
    vs_lock_drop(&gauges->lock);
}

void vs_gauges_calls(const struct vs_gauges *gauges, struct vs_gauge_totals *totals)
{
    totals->frees = atomic_load_explicit(&gauges->calls.frees, memory_order_acquire);
    for (uint32_t i = 0; i < VS_GAUGE_LANES; i++) {
        totals->frees += atomic_load_explicit(&gauges->lane[i].calls.frees, memory_order_acquire);
    }
    totals->allocs = load(&gauges->calls.allocs);
    totals->alloc_bytes = load(&gauges->calls.alloc_bytes);
    for (uint32_t i = 0; i < VS_GAUGE_LANES; i++) {
        totals->allocs += load(&gauges->lane[i].calls.allocs);
        totals->alloc_bytes += load(&gauges->lane[i].calls.alloc_bytes);
    }
}

void vs_gauges_read(struct vs_gauges *gauges, bool at_end, struct vs_gauges_now *now)
{
    uint64_t live = 0, used = 0, pool = 0;
    bool locked = true;
    if (at_end) {
        locked = vs_lock_take_at_end(&gauges->lock);
    } else {
        vs_lock_take(&gauges->lock);
    }
    /* Nothing moves between lanes and gauges meanwhile. */
    for (uint32_t kind = 0; kind < VS_KIND_COUNT; kind++) {
        uint64_t of_kind = 0;
        for (uint32_t i = 0; i < VS_GAUGE_LANES; i++) {
            of_kind += load(&gauges->lane[i].held[kind]);
        }
        live += of_kind;
        used += charged(kind) ? of_kind : 0;
        pool = kind == VS_KIND_POOL ? of_kind : pool;
        now->by_kind[kind] =
            shown(load(&gauges->by_kind[kind].now) + (kind == VS_KIND_POOL ? 0 : of_kind));
    }
    now->live = shown(load(&gauges->live.now) + live);
    now->pool_live = shown(load(&gauges->pool_live.now) + pool);
    now->used = shown(load(&gauges->used.now) + used);
    if (locked) {
        vs_lock_drop(&gauges->lock);
    }
}
