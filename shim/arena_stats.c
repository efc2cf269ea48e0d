/*
 * How the pools of a device stand: for the report, and for what cuMemGetInfo says.
 *
 * The driver's free memory and the pools' are two readings, and memory moves from one to the other
 * meanwhile: it would be told twice, or not at all. So moves are counted when they begin and when
 * they are done (arena_inner.h), and readings with a move in between are not used. Where that does
 * not come to an end by itself, those who are about to begin one are asked to wait for a moment:
 * until a time, not until the other says so, who may have been interrupted for good. No lock is
 * held. A move that lasts (the driver's free may wait for work) is not waited for: then the answer
 * is of no one moment.
 */
#include "report/sys.h"
#include "shim/arena_inner.h"
#include "shim/process.h"

enum { POLITE_LOOKS = 16, NAP_NS = 20000 };
#define HOLD_NS UINT64_C(10000000)     /* a move waits, at most */
#define PATIENCE_NS UINT64_C(30000000) /* so does who looks */

/* ---- of one moment --------------------------------------------------------------------------- */

void vs_arena_move_waits(struct vs_arenas *arenas)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t now = vs_sys_clock(CLOCK_MONOTONIC), until = now + HOLD_NS, wanted;

    while ((wanted = atomic_load_explicit(&arenas->looked_at, memory_order_relaxed)) > now &&
           now < until) {
        VS_SYS(SYS_nanosleep, &nap, NULL);
        now = vs_sys_clock(CLOCK_MONOTONIC);
    }
    if (wanted != 0 && wanted <= now) {
        atomic_compare_exchange_strong(&arenas->looked_at, &wanted, 0);
    }
}

/* A move was met. False: it has been long enough. */
static bool rest(struct vs_arena_look *look)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t now;

    if (++look->count < POLITE_LOOKS) {
        VS_SYS(SYS_sched_yield);
        return true;
    }
    now = vs_sys_clock(CLOCK_MONOTONIC);
    look->until = look->until == 0 ? now + PATIENCE_NS : look->until;
    if (now >= look->until) {
        return false;
    }
    atomic_store_explicit(&look->arenas->looked_at, now + HOLD_NS, memory_order_relaxed);
    VS_SYS(SYS_nanosleep, &nap, NULL);
    return true;
}

bool vs_arena_look(struct vs_arena_look *look, CUdevice device)
{
    *look = (struct vs_arena_look){.device = device, .arenas = vs_arenas_now()};
    return look->arenas != NULL && device >= 0;
}

void vs_arena_look_begins(struct vs_arena_look *look)
{
    uint64_t done;

    do {
        done = atomic_load_explicit(&look->arenas->moves_done, memory_order_acquire);
        look->begun = atomic_load_explicit(&look->arenas->moves_begun, memory_order_acquire);
    } while (done != look->begun && rest(look));
    look->still = done == look->begun;
}

/* What has been charged for an arena, as against what its pool says it holds, changes within the
 * move. What is out of use is neither live nor to be had. */
static void add_idle(struct vs_arena *arena, void *data)
{
    struct vs_arena_look *look = data;
    struct vs_pool_stats stats;
    uint64_t charged, used;

    if (arena->device != look->device) {
        return;
    }
    vs_pool_stats(arena->pool, &stats);
    used = stats.live_bytes + stats.dead_bytes;
    charged = atomic_load_explicit(&arena->charged, memory_order_acquire);
    look->idle += charged > used ? charged - used : 0;
}

bool vs_arena_look_again(struct vs_arena_look *look, bool answered)
{
    if (answered) {
        look->idle = 0;
        vs_arena_each(add_idle, look);
        /* Where a move was under way from the beginning, patience is at its end. */
        if (look->still &&
            atomic_load_explicit(&look->arenas->moves_begun, memory_order_acquire) != look->begun &&
            rest(look)) {
            return true;
        }
    }
    if (look->until != 0) {
        atomic_store_explicit(&look->arenas->looked_at, 0, memory_order_relaxed);
    }
    return false;
}

/* ---- for the report -------------------------------------------------------------------------- */

struct of_device {
    CUdevice device;
    struct vs_ledger_pool_stats sum;
};

/* What was done, as against how it stands. */
static void add_deeds(struct vs_ledger_pool_stats *to, const struct vs_ledger_pool_stats *from)
{
    to->hits += from->hits;
    to->misses += from->misses;
    to->waits += from->waits;
    to->wait_ns += from->wait_ns;
    to->orders += from->orders;
    to->trims += from->trims;
    to->released_bytes += from->released_bytes;
    to->remapped_bytes += from->remapped_bytes;
}

static void deeds_of(struct vs_arena *arena, const struct vs_pool_stats *stats,
                     struct vs_ledger_pool_stats *out)
{
    *out = (struct vs_ledger_pool_stats){
        .hits = stats->hits,
        .misses = stats->misses,
        .waits = stats->waits,
        .wait_ns = atomic_load_explicit(&arena->wait_ns, memory_order_relaxed),
        .orders = stats->orders,
        .trims = stats->trims,
        .released_bytes = stats->released_bytes,
        .remapped_bytes = stats->remapped_bytes,
    };
}

static void add(struct vs_arena *arena, void *data)
{
    struct of_device *of = data;
    struct vs_ledger_pool_stats deeds, *sum = &of->sum;
    struct vs_pool_stats stats;

    if (arena->device != of->device) {
        return;
    }
    vs_pool_stats(arena->pool, &stats);
    deeds_of(arena, &stats, &deeds);
    add_deeds(sum, &deeds);
    sum->backing = arena->backing == VS_POOL_VMM ? VS_LEDGER_VMM : VS_LEDGER_NATIVE;
    sum->live_bytes += stats.live_bytes;
    sum->block_bytes += stats.block_bytes;
    sum->free_bytes += stats.free_bytes;
    sum->pending_bytes += stats.pending_bytes;
    sum->pinned_bytes += stats.pinned_bytes;
    if (stats.largest_free_bytes > sum->largest_free_bytes) {
        sum->largest_free_bytes = stats.largest_free_bytes;
    }
}

void vs_arena_stats(CUdevice device, struct vs_ledger_pool_stats *out)
{
    struct vs_arenas *arenas = vs_arenas_now();
    struct of_device of = {.device = device};

    if (arenas != NULL && device >= 0 && device < VS_LEDGER_MAX_DEVICES) {
        vs_arena_each(add, &of);
        vs_lock_take(&arenas->making);
        add_deeds(&of.sum, &arenas->device[device].retired);
        if (of.sum.backing == VS_LEDGER_NO_POOL) {
            of.sum.backing = arenas->device[device].retired.backing;
        }
        vs_lock_drop(&arenas->making);
    }
    *out = of.sum;
}

void vs_arena_retire(struct vs_arena *arena)
{
    struct vs_ledger_pool_stats deeds, *retired = &arena->charge->retired;
    struct vs_pool_stats stats;

    vs_pool_stats(arena->pool, &stats);
    deeds_of(arena, &stats, &deeds);
    vs_lock_take(&arena->arenas->making);
    add_deeds(retired, &deeds);
    retired->backing = arena->backing == VS_POOL_VMM ? VS_LEDGER_VMM : VS_LEDGER_NATIVE;
    vs_lock_drop(&arena->arenas->making);
}

void vs_arena_publish(CUdevice device)
{
    struct vs_ledger_pool_stats stats;

    if (vs_process_counts()) {
        vs_arena_stats(device, &stats);
        vs_ledger_pool((uint32_t)device, &stats);
    }
}

void vs_arena_publish_all(void)
{
    struct vs_arenas *arenas = vs_arenas_now();
    struct vs_ledger_pool_stats stats;

    /* A signal handler that ends the process may have interrupted this very thread in a pool. */
    if (arenas == NULL || vs_guard_depth != 0) {
        return;
    }
    for (int i = 0; i < VS_LEDGER_MAX_DEVICES; i++) {
        if (atomic_load_explicit(&arenas->device[i].seen, memory_order_relaxed) != 0) {
            vs_arena_stats(i, &stats);
            vs_ledger_pool((uint32_t)i, &stats);
        }
    }
}
