/*
 * The ledger (see ledger.h): counters in one mapping (layout.h), allocations in the live table.
 *
 * Invariants: an allocation is counted before it is in the live table (so that no counter is ever
 * below zero), and whoever takes it out counts it out: once. What the table can't remember is not
 * counted at all, but as untracked. Bytes stop counting when the driver has freed them (free_done),
 * not before: they occupy the device until then.
 *
 * Lock order: a part of the live table, then (only when a context dies) those of the gauges, or
 * `rare` or the timeline's, which are leaves.
 */
#include "report/ledger.h"

#include <string.h>

#include "report/layout.h"
#include "report/live.h"
#include "report/self.h"
#include "report/sys.h"

static struct vs_ledger *ledger;
static struct vs_live *live;

static const char *const kind_names[VS_KIND_COUNT] = {
    [VS_KIND_POOL] = "pool",   [VS_KIND_PLAIN] = "plain",       [VS_KIND_ASYNC] = "async",
    [VS_KIND_VMM] = "vmm",     [VS_KIND_MANAGED] = "managed",   [VS_KIND_ARRAY] = "array",
    [VS_KIND_GRAPH] = "graph", [VS_KIND_OVERFLOW] = "overflow", [VS_KIND_CONTEXT] = "context",
};

const char *vs_kind_name(enum vs_kind kind)
{
    return (unsigned)kind < VS_KIND_COUNT ? kind_names[kind] : "unknown";
}

struct vs_ledger *vs_ledger_self(void)
{
    return ledger;
}

struct vs_live *vs_ledger_live(void)
{
    return live;
}

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void count(_Atomic uint64_t *word, uint64_t by)
{
    atomic_fetch_add_explicit(word, by, memory_order_relaxed);
}

/* CLOCK_MONOTONIC to time since process start. The coarse clock may lag behind the start. */
static uint64_t since_start(uint64_t clock_ns)
{
    uint64_t start = ledger->header.start_ns;
    return clock_ns > start ? clock_ns - start : 0;
}

static uint64_t coarse_now(void)
{
    return since_start(vs_sys_clock(CLOCK_MONOTONIC_COARSE));
}

static uint64_t precise_now(void)
{
    return since_start(vs_sys_clock(CLOCK_MONOTONIC));
}

static void untracked(uint64_t bytes)
{
    count(&ledger->untracked_count, 1);
    count(&ledger->untracked_bytes, bytes);
}

__attribute__((always_inline)) static inline void count_call(const struct vs_alloc *alloc,
                                                             enum vs_gauge_call call, uint64_t t_ns)
{
    struct vs_gauges *gauges = &ledger->device[alloc->device].gauges;
    if (__builtin_expect(alloc->kind == VS_KIND_POOL, 1) && call == VS_GAUGE_ALLOC) {
        vs_gauges_pool_alloc(gauges, alloc->bytes, t_ns, &ledger->timeline, alloc->device);
        return;
    }
    if (__builtin_expect(alloc->kind == VS_KIND_POOL, 1) && call == VS_GAUGE_FREE) {
        vs_gauges_pool_free(gauges, alloc->bytes, t_ns, &ledger->timeline, alloc->device);
        return;
    }
    struct vs_gauge_change change = {call, alloc->bytes, t_ns, alloc->kind, vs_gauges_lane()};
    vs_gauges_live(gauges, &change, &ledger->timeline, alloc->device);
}

/* rare is held. */
static void keep_gone(const struct vs_alloc *alloc)
{
    uint64_t hash = (alloc->bytes * 64 + alloc->device) * VS_KIND_COUNT + alloc->kind;
    hash = hash * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    for (unsigned i = 0; i < 32; i++) {
        struct vs_ledger_gone *gone = &ledger->gone[(hash + i) % VS_LEDGER_GONE];
        if (gone->count && (gone->bytes != alloc->bytes || gone->device != alloc->device ||
                            gone->kind != alloc->kind)) {
            continue;
        }
        gone->bytes = alloc->bytes;
        gone->device = alloc->device;
        gone->kind = alloc->kind;
        gone->count++;
        return;
    }
    ledger->gone_rest[alloc->device].bytes += alloc->bytes;
    ledger->gone_rest[alloc->device].count++;
}

/* No longer live, but never freed. */
static void lose(const struct vs_alloc *alloc, uint64_t t_ns)
{
    vs_lock_take(&ledger->rare);
    keep_gone(alloc);
    vs_lock_drop(&ledger->rare);
    count(&ledger->device[alloc->device].gone_count, 1);
    count_call(alloc, VS_GAUGE_GONE, t_ns);
}

int vs_ledger_open(uint64_t start_ns)
{
    struct vs_ledger *fresh = vs_sys_map(sizeof *fresh);
    struct vs_live *table = fresh ? vs_live_open() : NULL;
    if (!table) {
        if (fresh) {
            vs_sys_unmap(fresh, sizeof *fresh);
        }
        return -ENOMEM;
    }
    uint64_t now = vs_sys_clock(CLOCK_MONOTONIC);
    uint64_t age = now > start_ns ? now - start_ns : 0;
    fresh->header = (struct vs_ledger_header){
        .magic = VS_LEDGER_MAGIC,
        .version = VS_LEDGER_VERSION,
        .header_bytes = sizeof fresh->header,
        .total_bytes = sizeof *fresh,
        .device_bytes = sizeof fresh->device[0],
        .device_count = VS_LEDGER_MAX_DEVICES,
        .start_ns = start_ns,
        .start_unix_ns = vs_sys_clock(CLOCK_REALTIME) - age,
    };
    vs_process_collect(&fresh->process);
    vs_timeline_init(&fresh->timeline);
    /* A parent's ledger: the mapping goes, its live table stays where it is (walking its slabs
     * could meet a change that another thread of the parent had under way). */
    if (ledger) {
        vs_sys_unmap(ledger, sizeof *ledger);
    }
    ledger = fresh;
    live = table;
    return 0;
}

int vs_ledger_add_device(uint32_t index, const struct vs_ledger_device *info)
{
    if (index >= VS_LEDGER_MAX_DEVICES) {
        return -EINVAL;
    }
    struct vs_ledger_counters *device = &ledger->device[index];
    device->info = *info;
    device->info.uuid[sizeof info->uuid - 1] = '\0';
    device->info.name[sizeof info->name - 1] = '\0';
    atomic_store_explicit(&device->known, 1, memory_order_release);
    return 0;
}

void vs_ledger_alloc(const struct vs_alloc *given)
{
    struct vs_alloc alloc, replaced;
    if (given->device >= VS_LEDGER_MAX_DEVICES || given->kind >= VS_KIND_COUNT) {
        untracked(given->bytes);
        return;
    }
    alloc.address = given->address;
    alloc.bytes = given->bytes;
    alloc.context = given->context;
    alloc.device = given->device;
    alloc.tag = given->tag;
    alloc.kind = given->kind;
    alloc.at_ns = vs_sys_clock(CLOCK_MONOTONIC_COARSE);
    uint64_t now = since_start(alloc.at_ns);
    count_call(&alloc, VS_GAUGE_ALLOC, now);
    int rc = vs_live_put(live, &alloc, &replaced);
    if (rc < 0) {
        count_call(&alloc, VS_GAUGE_UNDO, now);
        untracked(alloc.bytes);
        return;
    }
    if (rc == 1 && replaced.frees > 0) {
        count_call(&replaced, VS_GAUGE_FREE, now);
    } else if (rc == 1) {
        lose(&replaced, now);
    }
}

bool vs_ledger_free_begin(uint64_t address, struct vs_alloc *out)
{
    return vs_live_free_begin(live, address, out);
}

void vs_ledger_free_done(const struct vs_alloc *alloc)
{
    if (vs_live_free_done(live, alloc)) {
        count_call(alloc, VS_GAUGE_FREE, coarse_now());
    }
}

void vs_ledger_free_undo(const struct vs_alloc *alloc)
{
    vs_live_free_undo(live, alloc);
}

bool vs_ledger_free_at_once(uint64_t address, struct vs_alloc *out)
{
    if (!vs_live_free_at_once(live, address, out)) {
        return false;
    }
    count_call(out, VS_GAUGE_FREE, coarse_now());
    return true;
}

bool vs_ledger_find(uint64_t address, struct vs_alloc *out)
{
    return vs_live_get(live, address, out);
}

void vs_ledger_reserved(uint32_t device, int64_t delta)
{
    if (device < VS_LEDGER_MAX_DEVICES) {
        /* The clock of the allocation path, so that its times and these are in order. */
        vs_gauges_reserved(&ledger->device[device].gauges, delta, coarse_now(), &ledger->timeline,
                           device);
    }
}

void vs_ledger_host_pinned(uint32_t device, int64_t delta)
{
    if (device < VS_LEDGER_MAX_DEVICES) {
        vs_gauges_host_pinned(&ledger->device[device].gauges, delta);
    }
}

void vs_ledger_pool(uint32_t device, const struct vs_ledger_pool_stats *stats)
{
    struct vs_ledger_pool_stats now = *stats;
    struct vs_gauges_now gauges;
    if (device < VS_LEDGER_MAX_DEVICES) {
        vs_gauges_read(&ledger->device[device].gauges, true, &gauges);
        now.live_bytes = gauges.pool_live;
        vs_lock_take(&ledger->rare);
        ledger->pool[device] = now;
        vs_lock_drop(&ledger->rare);
    }
}

uint64_t vs_ledger_pool_idle(uint32_t device)
{
    if (device >= VS_LEDGER_MAX_DEVICES) {
        return 0;
    }
    const struct vs_gauges *gauges = &ledger->device[device].gauges;
    int64_t idle = (int64_t)(load(&gauges->reserved.now) - load(&gauges->pool_live.now));
    return idle > 0 ? (uint64_t)idle : 0;
}

void vs_ledger_alloc_failed(uint32_t device, uint64_t bytes)
{
    (void)bytes;
    if (device < VS_LEDGER_MAX_DEVICES) {
        count(&ledger->device[device].failed_count, 1);
    }
}

void vs_ledger_oom(uint32_t device, uint64_t bytes, uint64_t driver_free_bytes,
                   enum vs_verdict verdict)
{
    if (device >= VS_LEDGER_MAX_DEVICES) {
        return;
    }
    struct vs_gauges *gauges = &ledger->device[device].gauges;
    uint64_t now = precise_now();
    struct vs_gauges_now gauges_now;
    vs_gauges_read(gauges, false, &gauges_now);
    vs_ledger_alloc_failed(device, bytes);
    vs_lock_take(&ledger->rare);
    ledger->ooms_seen++;
    if (ledger->oom_count < VS_LEDGER_OOMS) {
        ledger->ooms[ledger->oom_count++] = (struct vs_ledger_oom){
            .t_ns = now,
            .requested_bytes = bytes,
            .live_bytes = gauges_now.live,
            .reserved_bytes = load(&gauges->reserved.now),
            .driver_free_bytes = driver_free_bytes,
            .largest_free_bytes = ledger->pool[device].backing == VS_LEDGER_NO_POOL
                                      ? UINT64_MAX
                                      : ledger->pool[device].largest_free_bytes,
            .device = device,
            .verdict = (uint32_t)verdict,
        };
    }
    vs_lock_drop(&ledger->rare);
}

struct context_death {
    uint64_t context;
    uint64_t t_ns;
    size_t dropped;
};

static bool dies(const struct vs_alloc *alloc, void *argument)
{
    struct context_death *death = argument;
    if (alloc->context != death->context) {
        return false;
    }
    if (alloc->frees > 0) { /* a free was under way: it is no leak */
        count(&ledger->device[alloc->device].gone_frees, 1);
        count_call(alloc, VS_GAUGE_GONE, death->t_ns);
    } else {
        lose(alloc, death->t_ns);
    }
    death->dropped++;
    return true;
}

size_t vs_ledger_context_gone(uint64_t context)
{
    struct context_death death = {context, precise_now(), 0};
    if (context != 0) {
        vs_live_each(live, false, dies, &death);
    }
    return death.dropped;
}

static void copy_text(char *to, size_t size, const char *from)
{
    size_t length = strnlen(from, size - 1);
    memcpy(to, from, length);
    memset(to + length, 0, size - length);
}

void vs_ledger_note(const char *code, const char *text)
{
    struct vs_ledger_note note;
    bool there = false;
    copy_text(note.code, sizeof note.code, code);
    copy_text(note.text, sizeof note.text, text);
    if (!vs_lock_take_at_end(&ledger->rare)) {
        return;
    }
    for (uint32_t i = 0; i < ledger->note_count && !there; i++) {
        there = memcmp(&ledger->notes[i], &note, sizeof note) == 0;
    }
    if (!there && ledger->note_count < VS_LEDGER_NOTES) {
        ledger->notes[ledger->note_count++] = note;
    } else if (!there) {
        ledger->notes_dropped++;
    }
    vs_lock_drop(&ledger->rare);
}
