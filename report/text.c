/*
 * The report as text, for a tired person: one screen for a clean run. The order is that of the
 * questions: how close to the limit, what leaked, what ran out, then the rest. Rounded figures
 * stand beside exact ones where somebody may want to add up.
 */
#include "report/document.h"

#include <string.h>

#define LEAKS_SHOWN 10
#define OOMS_SHOWN 5
#define COMMAND_SHOWN 100
#define VISIBLE_WAIT_NS 1000000u
#define TIMES " \xc3\x97 " /* × */

static void plural(struct vs_out *out, uint64_t count, const char *noun)
{
    vs_out_grouped(out, count);
    vs_out_char(out, ' ');
    vs_out_str(out, noun);
    if (count != 1) {
        vs_out_char(out, 's');
    }
}

/* "1.25 GiB (1,342,177,280 bytes)"; the exact part only where it says more. */
static void exact(struct vs_out *out, uint64_t bytes)
{
    vs_out_bytes(out, bytes);
    if (vs_bytes_exact(bytes)) {
        return;
    }
    vs_out_str(out, " (");
    vs_out_grouped(out, bytes);
    vs_out_str(out, " bytes)");
}

/* Rounded down: 100.0% is said only of a limit that was reached. */
static void percent(struct vs_out *out, uint64_t part, uint64_t whole)
{
    uint64_t permille = (uint64_t)((unsigned __int128)part * 1000 / whole);
    vs_out_ratio(out, permille, 10, 1);
    vs_out_char(out, '%');
}

static void write_command(struct vs_out *out, const struct vs_process *process)
{
    char line[COMMAND_SHOWN + 1];
    struct vs_out cut;
    vs_out_to_memory(&cut, line, sizeof line - 1);
    for (uint32_t at = 0; at < process->argv_bytes; at += strlen(process->argv + at) + 1) {
        if (at > 0) {
            vs_out_char(&cut, ' ');
        }
        vs_out_str(&cut, process->argv + at);
    }
    vs_out_foreign(out, process->argv_bytes ? line : process->executable);
    if (cut.error || process->argv_cut) {
        vs_out_str(out, " \xe2\x80\xa6"); /* … */
    }
}

static void write_end(struct vs_out *out, const struct vs_snapshot *snapshot)
{
    switch (snapshot->end) {
    case VS_END_RUNNING:
        vs_out_str(out, "still running");
        return;
    case VS_END_EXEC:
        vs_out_str(out, "replaced itself by exec");
        return;
    case VS_END_KILLED:
        vs_out_str(out, "killed");
        if (snapshot->signal) {
            vs_out_str(out, " by signal ");
            vs_out_u64(out, (uint64_t)snapshot->signal);
        }
        return;
    default:
        vs_out_str(out, vs_end_name(snapshot->end));
        if (snapshot->exit_code >= 0) {
            vs_out_char(out, ' ');
            vs_out_u64(out, (uint64_t)snapshot->exit_code);
        }
    }
}

static void write_head(struct vs_out *out, const struct vs_snapshot *snapshot)
{
    vs_out_str(out, "== vramshim " VS_VERSION ": ");
    write_command(out, &snapshot->process);
    vs_out_str(out, "\n   pid ");
    vs_out_u64(out, (uint64_t)snapshot->process.pid);
    if (*snapshot->process.rank) {
        vs_out_str(out, ", rank ");
        vs_out_foreign(out, snapshot->process.rank);
    }
    vs_out_str(out, " on ");
    vs_out_foreign(out, *snapshot->process.host ? snapshot->process.host : "an unknown host");
    vs_out_str(out, ", ran ");
    vs_out_duration(out, snapshot->duration_ns);
    vs_out_str(out, ", ");
    write_end(out, snapshot);
    vs_out_char(out, '\n');
}

static bool idle(const struct vs_snapshot_device *device)
{
    return device->alloc_count == 0 && device->failed_count == 0 && device->used.peak == 0 &&
           device->reserved.peak == 0;
}

static void write_peak(struct vs_out *out, const struct vs_snapshot_device *device)
{
    uint64_t limit = device->info.limit_bytes;
    vs_out_str(out, "   peak ");
    exact(out, device->used.peak);
    if (limit) {
        vs_out_str(out, " of the ");
        vs_out_bytes(out, limit);
        vs_out_str(out, " limit, ");
        percent(out, device->used.peak, limit);
    } else if (device->info.total_bytes) {
        vs_out_str(out, ", no limit, device ");
        vs_out_bytes(out, device->info.total_bytes);
    }
    vs_out_str(out, ", after ");
    vs_out_duration(out,
                    device->used.peak_at_ns ? device->used.peak_at_ns : device->live.peak_at_ns);
    vs_out_char(out, '\n');
    if (device->live.peak != device->used.peak) {
        vs_out_str(out, "   the program's own part of it peaked at ");
        exact(out, device->live.peak);
        vs_out_char(out, '\n');
    }
}

/* What the pool took, what of it was of use, and what it made the program wait for. */
static void write_pool(struct vs_out *out, const struct vs_snapshot_device *device)
{
    const char *backing = vs_backing_name(device->pool.backing);
    if (device->reserved.peak == 0) {
        return;
    }
    vs_out_str(out, "   pool");
    if (backing) {
        vs_out_str(out, " (");
        vs_out_str(out, backing);
        vs_out_char(out, ')');
    }
    vs_out_str(out, ": held at most ");
    exact(out, device->reserved.peak);
    vs_out_str(out, ", of which the program filled ");
    percent(out, device->pool_live.peak, device->reserved.peak);
    vs_out_str(out, " at its peak");
    if (device->pool.wait_ns >= VISIBLE_WAIT_NS) {
        vs_out_str(out, "; waited ");
        vs_out_duration(out, device->pool.wait_ns);
        vs_out_str(out, " for the device");
    }
    vs_out_char(out, '\n');
}

static void write_device(struct vs_out *out, const struct vs_snapshot_device *device)
{
    vs_out_str(out, "GPU ");
    vs_out_u64(out, device->index);
    vs_out_str(out, "  ");
    vs_out_foreign(out, device->info.name);
    vs_out_char(out, '\n');
    write_peak(out, device);
    write_pool(out, device);
}

/* Devices on which nothing happened share one line. */
static void write_devices(struct vs_out *out, const struct vs_snapshot *snapshot)
{
    uint32_t quiet = 0;
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        if (idle(&snapshot->devices[i])) {
            quiet++;
        } else {
            write_device(out, &snapshot->devices[i]);
        }
    }
    if (quiet == 0) {
        return;
    }
    vs_out_str(out, quiet == 1 ? "GPU" : "GPUs");
    for (uint32_t i = 0, said = 0; i < snapshot->device_count; i++) {
        if (!idle(&snapshot->devices[i])) {
            continue;
        }
        vs_out_str(out, said++ ? ", " : " ");
        vs_out_u64(out, snapshot->devices[i].index);
    }
    vs_out_str(out, "  nothing was allocated\n");
}

static void write_leak(struct vs_out *out, const struct vs_leak *leak)
{
    vs_out_str(out, "   ");
    vs_out_grouped(out, leak->count);
    vs_out_str(out, TIMES);
    if (leak->kind >= VS_KIND_COUNT) {
        vs_out_str(out, "various sizes");
    } else if (vs_bytes_exact(leak->size_bytes)) {
        vs_out_bytes(out, leak->size_bytes);
    } else {
        vs_out_grouped(out, leak->size_bytes);
        vs_out_str(out, " bytes");
    }
    if (leak->count > 1) {
        vs_out_str(out, " = ");
        exact(out, leak->total_bytes);
    } else if (!vs_bytes_exact(leak->total_bytes)) {
        vs_out_str(out, " (");
        vs_out_bytes(out, leak->total_bytes);
        vs_out_char(out, ')');
    }
    vs_out_str(out, leak->with_context ? " never freed before its context died, on GPU "
                                       : " never freed on GPU ");
    vs_out_u64(out, leak->device);
    /* Who calls cudaMalloc need not know who serves it. */
    if (leak->kind < VS_KIND_COUNT && leak->kind != VS_KIND_PLAIN && leak->kind != VS_KIND_POOL) {
        vs_out_str(out, " (");
        vs_out_str(out, vs_kind_name(leak->kind));
        vs_out_char(out, ')');
    }
    vs_out_char(out, '\n');
}

static void write_leaks(struct vs_out *out, const struct vs_leaks *leaks)
{
    uint64_t bytes = 0, count = 0, hidden_bytes = 0, hidden_count = 0;
    for (uint32_t i = 0; i < leaks->count; i++) {
        bytes += leaks->leak[i].total_bytes;
        count += leaks->leak[i].count;
        if (i >= LEAKS_SHOWN) {
            hidden_bytes += leaks->leak[i].total_bytes;
            hidden_count += leaks->leak[i].count;
        }
    }
    if (count == 0) {
        vs_out_str(out, "no leaks\n");
        return;
    }
    vs_out_str(out, "LEAKS  ");
    exact(out, bytes);
    vs_out_str(out, " in ");
    plural(out, count, "allocation");
    vs_out_char(out, '\n');
    for (uint32_t i = 0; i < leaks->count && i < LEAKS_SHOWN; i++) {
        write_leak(out, &leaks->leak[i]);
    }
    if (hidden_count) {
        vs_out_str(out, "   and ");
        vs_out_bytes(out, hidden_bytes);
        vs_out_str(out, " more in ");
        plural(out, hidden_count, "smaller leak");
        vs_out_str(out, "; VRAMSHIM_REPORT=FILE.json lists more\n");
    }
}

static const char *verdict_text(const struct vs_snapshot *snapshot, const struct vs_ledger_oom *oom)
{
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        const struct vs_snapshot_device *device = &snapshot->devices[i];
        if (device->index == oom->device && device->info.total_bytes != 0 &&
            oom->requested_bytes > device->info.total_bytes) {
            return "more than the whole device";
        }
    }
    switch (oom->verdict) {
    case VS_VERDICT_OVER_LIMIT:
        return "the limit was reached";
    case VS_VERDICT_FRAGMENTED:
        return "free memory was in pieces";
    case VS_VERDICT_PENDING:
        return "memory freed in a running capture could not be used yet";
    default:
        return "the device was full";
    }
}

static void write_ooms(struct vs_out *out, const struct vs_snapshot *snapshot)
{
    if (snapshot->ooms_seen == 0) {
        return;
    }
    vs_out_str(out, "OUT OF MEMORY  ");
    plural(out, snapshot->ooms_seen, "request");
    vs_out_str(out, " failed\n");
    for (uint32_t i = 0; i < snapshot->oom_count && i < OOMS_SHOWN; i++) {
        const struct vs_ledger_oom *oom = &snapshot->ooms[i];
        vs_out_str(out, "   after ");
        vs_out_duration(out, oom->t_ns);
        vs_out_str(out, " on GPU ");
        vs_out_u64(out, oom->device);
        vs_out_str(out, ": asked for ");
        vs_out_bytes(out, oom->requested_bytes);
        vs_out_str(out, " with ");
        vs_out_bytes(out, oom->live_bytes);
        vs_out_str(out, " live");
        if (oom->driver_free_bytes != UINT64_MAX) {
            vs_out_str(out, " and ");
            vs_out_bytes(out, oom->driver_free_bytes);
            vs_out_str(out, " free at the driver");
        }
        vs_out_str(out, ": ");
        vs_out_str(out, verdict_text(snapshot, oom));
        vs_out_char(out, '\n');
    }
    if (snapshot->ooms_seen > OOMS_SHOWN) {
        vs_out_str(out, "   and ");
        vs_out_grouped(out, snapshot->ooms_seen - OOMS_SHOWN);
        vs_out_str(out, " more\n");
    }
}

static void write_requests(struct vs_out *out, const struct vs_snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        const struct vs_snapshot_device *device = &snapshot->devices[i];
        if (idle(device)) {
            continue;
        }
        vs_out_str(out, "GPU ");
        vs_out_u64(out, device->index);
        vs_out_str(out, "  ");
        plural(out, device->alloc_count, "allocation");
        vs_out_str(out, ", ");
        vs_out_bytes(out, device->alloc_bytes);
        vs_out_str(out, " in all; ");
        vs_out_grouped(out, device->free_count);
        vs_out_str(out, " freed, ");
        vs_out_grouped(out, device->failed_count);
        vs_out_str(out, " failed; at the end ");
        vs_out_bytes(out, device->live.now);
        vs_out_str(out, " live in ");
        vs_out_grouped(out, device->live_count);
        vs_out_char(out, '\n');
    }
}

void vs_document_text(struct vs_out *out, const struct vs_snapshot *snapshot)
{
    write_head(out, snapshot);
    write_devices(out, snapshot);
    if (snapshot->device_count == 0) {
        vs_out_str(out, "no device was used\n");
    }
    write_leaks(out, &snapshot->leaks);
    write_ooms(out, snapshot);
    write_requests(out, snapshot);
    for (uint32_t i = 0; i < snapshot->note_count; i++) {
        vs_out_str(out, "note: ");
        vs_out_foreign(out, snapshot->notes[i].text);
        vs_out_char(out, '\n');
    }
}
