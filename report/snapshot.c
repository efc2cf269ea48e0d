/* Taking a snapshot (see snapshot.h): reads the ledger while others may still change it. */
#include "report/snapshot.h"

#include <stdarg.h>
#include <string.h>

#include "report/emit.h"
#include "report/self.h"
#include "report/sys.h"

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* What ends is read before what begins, so that the difference is hardly ever negative. */
static void take_calls(struct vs_snapshot_device *to, const struct vs_ledger_counters *from)
{
    struct vs_gauge_totals totals;
    uint64_t gone = load(&from->gone_count);
    uint64_t gone_frees = load(&from->gone_frees);
    vs_gauges_calls(&from->gauges, &totals);
    to->free_count = totals.frees + gone_frees;
    to->alloc_count = totals.allocs;
    to->alloc_bytes = totals.alloc_bytes;
    uint64_t ended = to->free_count + gone;
    to->live_count = to->alloc_count > ended ? to->alloc_count - ended : 0;
}

/* What lanes held back may have been the peak: then it is the present state. */
static struct vs_snapshot_gauge gauge_at(const struct vs_gauge *from, uint64_t now)
{
    uint64_t peak = load(&from->peak);
    return (struct vs_snapshot_gauge){.now = now, .peak = now > peak ? now : peak};
}

static void take_gauges(struct vs_snapshot_device *to, struct vs_gauges *from)
{
    struct vs_gauges_now now;
    vs_gauges_read(from, true, &now);
    to->live = gauge_at(&from->live, now.live);
    to->live.peak_at_ns = load(&from->live_peak_at_ns);
    to->pool_live = gauge_at(&from->pool_live, now.pool_live);
    to->used = gauge_at(&from->used, now.used);
    to->used.peak_at_ns = load(&from->used_peak_at_ns);
    to->reserved = gauge_at(&from->reserved, load(&from->reserved.now));
    to->reserved.peak_at_ns = load(&from->reserved_peak_at_ns);
    to->host_pinned = gauge_at(&from->host_pinned, load(&from->host_pinned.now));
    for (unsigned kind = 0; kind < VS_KIND_COUNT; kind++) {
        to->by_kind[kind] = gauge_at(&from->by_kind[kind], now.by_kind[kind]);
    }
}

static bool take_device(struct vs_snapshot_device *to, struct vs_ledger *ledger, uint32_t device)
{
    struct vs_ledger_counters *from = &ledger->device[device];
    bool known = atomic_load_explicit(&from->known, memory_order_acquire) != 0;
    to->failed_count = load(&from->failed_count);
    take_calls(to, from);
    if (!known && to->alloc_count == 0 && to->failed_count == 0) {
        return false;
    }
    if (known) {
        to->info = from->info;
    }
    take_gauges(to, &from->gauges);
    return true;
}

static void take_devices(struct vs_snapshot *snapshot, struct vs_ledger *ledger)
{
    for (uint32_t d = 0; d < VS_LEDGER_MAX_DEVICES; d++) {
        struct vs_snapshot_device *to = &snapshot->devices[snapshot->device_count];
        to->index = d;
        if (take_device(to, ledger, d)) {
            snapshot->device_count++;
        }
    }
}

static void take_rows(struct vs_snapshot *snapshot, struct vs_ledger *ledger)
{
    struct vs_timeline_sample now[VS_LEDGER_MAX_DEVICES];
    memset(now, 0, sizeof now);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        const struct vs_snapshot_device *device = &snapshot->devices[i];
        now[device->index] = (struct vs_timeline_sample){snapshot->duration_ns, device->live.now,
                                                         device->reserved.now, device->used.now};
    }
    snapshot->row_count = (uint32_t)vs_timeline_rows(&ledger->timeline, now, snapshot->rows);
}

static bool collect_leak(const struct vs_alloc *alloc, void *grouping)
{
    vs_leaks_add(grouping, alloc->device, alloc->kind, alloc->bytes, 1, false);
    return false;
}

static void add_note(struct vs_snapshot *snapshot, const char *code, uint64_t number,
                     const char *text, uint64_t second, const char *rest)
{
    struct vs_ledger_note *note = &snapshot->notes[snapshot->note_count++];
    struct vs_out out;
    memset(note, 0, sizeof *note);
    memcpy(note->code, code, strnlen(code, sizeof note->code - 1));
    vs_out_to_memory(&out, note->text, sizeof note->text - 1);
    vs_out_grouped(&out, number);
    vs_out_str(&out, text);
    if (rest) {
        vs_out_bytes(&out, second);
        vs_out_str(&out, rest);
    }
}

/* Returns how many parts of the live table had to be left out. */
static unsigned take_leaks(struct vs_snapshot *snapshot, struct vs_ledger *ledger)
{
    static struct vs_leaks_grouping grouping;
    uint64_t expected = VS_LEDGER_GONE;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        expected += snapshot->devices[i].live_count;
    }
    vs_leaks_open(&grouping, (size_t)expected);
    unsigned left_out = vs_live_each(vs_ledger_live(), true, collect_leak, &grouping);
    if (vs_lock_take_at_end(&ledger->rare)) {
        for (uint32_t i = 0; i < VS_LEDGER_GONE; i++) {
            const struct vs_ledger_gone *gone = &ledger->gone[i];
            if (gone->count) {
                vs_leaks_add(&grouping, gone->device, gone->kind, gone->bytes, gone->count, true);
            }
        }
        for (uint32_t d = 0; d < VS_LEDGER_MAX_DEVICES; d++) {
            if (ledger->gone_rest[d].count) {
                vs_leaks_add_rest(&grouping, d, ledger->gone_rest[d].bytes,
                                  ledger->gone_rest[d].count);
            }
        }
        vs_lock_drop(&ledger->rare);
    }
    vs_leaks_close(&grouping, &snapshot->leaks);
    return left_out;
}

static void take_rare(struct vs_snapshot *snapshot, struct vs_ledger *ledger)
{
    if (!vs_lock_take_at_end(&ledger->rare)) {
        return;
    }
    snapshot->ooms_seen = ledger->ooms_seen;
    snapshot->oom_count = ledger->oom_count;
    memcpy(snapshot->ooms, ledger->ooms, sizeof ledger->ooms);
    snapshot->note_count = ledger->note_count;
    memcpy(snapshot->notes, ledger->notes, sizeof ledger->notes);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        struct vs_snapshot_device *device = &snapshot->devices[i];
        device->pool = ledger->pool[device->index];
    }
    uint32_t dropped = ledger->notes_dropped;
    vs_lock_drop(&ledger->rare);
    if (dropped) {
        add_note(snapshot, "notes-dropped", dropped, " further notes were dropped", 0, NULL);
    }
}

bool vs_snapshot_take(struct vs_snapshot *snapshot)
{
    struct vs_ledger *ledger = vs_ledger_self();
    if (!ledger) {
        return false;
    }
    memset(snapshot, 0, sizeof *snapshot);
    snapshot->process = ledger->process;
    snapshot->start_unix_ns = ledger->header.start_unix_ns;
    uint64_t now = vs_sys_clock(CLOCK_MONOTONIC);
    snapshot->duration_ns = now > ledger->header.start_ns ? now - ledger->header.start_ns : 0;
    take_devices(snapshot, ledger);
    take_rows(snapshot, ledger);
    take_rare(snapshot, ledger);
    unsigned left_out = take_leaks(snapshot, ledger);
    if (left_out) {
        add_note(snapshot, "leaks-incomplete", left_out,
                 " of 8,192 parts of the live table were in use at the end; their leaks are "
                 "missing",
                 0, NULL);
    }
    uint64_t untracked = load(&ledger->untracked_count);
    if (untracked) {
        add_note(snapshot, "untracked", untracked, " allocations (", load(&ledger->untracked_bytes),
                 ") could not be remembered and are missing from every figure here");
    }
    return true;
}
