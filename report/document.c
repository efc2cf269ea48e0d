/*
 * The report as JSON, schema vramshim.report/1: every key of the schema, in its order. What nothing
 * can be known of yet is an empty array, a zero or null, as the schema says.
 */
#include "report/document.h"

#include <string.h>

const char *vs_end_name(enum vs_end end)
{
    static const char *const names[] = {
        [VS_END_RUNNING] = "running",       [VS_END_EXIT] = "exit", [VS_END__EXIT] = "_exit",
        [VS_END_QUICK_EXIT] = "quick_exit", [VS_END_EXEC] = "exec", [VS_END_KILLED] = "killed",
    };
    return (unsigned)end < sizeof names / sizeof *names ? names[end] : "running";
}

const char *vs_verdict_name(uint32_t verdict)
{
    static const char *const names[] = {
        [VS_VERDICT_OVER_LIMIT] = "over-limit",
        [VS_VERDICT_DEVICE_FULL] = "device-full",
        [VS_VERDICT_FRAGMENTED] = "fragmented",
        [VS_VERDICT_PENDING] = "pending",
    };
    return verdict < sizeof names / sizeof *names ? names[verdict] : "device-full";
}

static void text_or_null(struct vs_json *json, const char *key, const char *text)
{
    vs_json_str(json, key, *text ? text : NULL);
}

static void number_or_null(struct vs_json *json, const char *key, uint64_t value, uint64_t none)
{
    if (value == none) {
        vs_json_null(json, key);
    } else {
        vs_json_u64(json, key, value);
    }
}

static void write_process(struct vs_json *json, const struct vs_snapshot *snapshot)
{
    const struct vs_process *process = &snapshot->process;
    char started[40];
    struct vs_out out;

    vs_out_to_memory(&out, started, sizeof started - 1);
    vs_out_utc(&out, snapshot->start_unix_ns);
    vs_json_object(json, "process", false);
    vs_json_i64(json, "pid", process->pid);
    vs_json_i64(json, "ppid", process->ppid);
    vs_json_str(json, "executable", process->executable);
    vs_json_array(json, "argv", true);
    for (uint32_t at = 0; at < process->argv_bytes; at += strlen(process->argv + at) + 1) {
        vs_json_str(json, NULL, process->argv + at);
    }
    if (process->argv_cut) {
        vs_json_str(json, NULL, "\xe2\x80\xa6"); /* … */
    }
    vs_json_end(json);
    vs_json_str(json, "host", process->host);
    text_or_null(json, "rank", process->rank);
    vs_json_str(json, "started_at", started);
    vs_json_u64(json, "duration_ns", snapshot->duration_ns);
    vs_json_str(json, "end", vs_end_name(snapshot->end));
    if (snapshot->exit_code < 0) {
        vs_json_null(json, "exit_code");
    } else {
        vs_json_i64(json, "exit_code", snapshot->exit_code);
    }
    number_or_null(json, "signal", (uint64_t)snapshot->signal, 0);
    vs_json_end(json);
}

static void write_gauge(struct vs_json *json, const char *key,
                        const struct vs_snapshot_gauge *gauge, bool with_time)
{
    vs_json_object(json, key, true);
    vs_json_u64(json, "now_bytes", gauge->now);
    vs_json_u64(json, "peak_bytes", gauge->peak);
    if (with_time) {
        vs_json_u64(json, "peak_at_ns", gauge->peak_at_ns);
    }
    vs_json_end(json);
}

static void write_held(struct vs_json *json, const struct vs_snapshot_device *device)
{
    vs_json_object(json, "live", true);
    vs_json_u64(json, "now_bytes", device->live.now);
    vs_json_u64(json, "peak_bytes", device->live.peak);
    vs_json_u64(json, "peak_at_ns", device->live.peak_at_ns);
    vs_json_u64(json, "now_count", device->live_count);
    vs_json_end(json);
    write_gauge(json, "reserved", &device->reserved, true);
    write_gauge(json, "used", &device->used, false);
    vs_json_array(json, "by_kind", false);
    for (unsigned kind = 0; kind < VS_KIND_COUNT; kind++) {
        if (device->by_kind[kind].peak == 0) {
            continue;
        }
        vs_json_object(json, NULL, true);
        vs_json_str(json, "kind", vs_kind_name(kind));
        vs_json_u64(json, "now_bytes", device->by_kind[kind].now);
        vs_json_u64(json, "peak_bytes", device->by_kind[kind].peak);
        vs_json_end(json);
    }
    vs_json_end(json);
    write_gauge(json, "host_pinned", &device->host_pinned, false);
}

static void write_requests(struct vs_json *json, const struct vs_snapshot_device *device)
{
    vs_json_object(json, "requests", true);
    vs_json_u64(json, "alloc_count", device->alloc_count);
    vs_json_u64(json, "free_count", device->free_count);
    vs_json_u64(json, "alloc_bytes", device->alloc_bytes);
    vs_json_u64(json, "failed_count", device->failed_count);
    vs_json_end(json);
}

const char *vs_backing_name(uint32_t backing)
{
    switch (backing) {
    case VS_LEDGER_VMM:
        return "vmm";
    case VS_LEDGER_NATIVE:
        return "native";
    default:
        return NULL;
    }
}

/* 1 - part / whole, where there is a whole; a part that grew meanwhile is not more than it. */
static void write_rest(struct vs_json *json, const char *key, uint64_t part, uint64_t whole)
{
    vs_json_ratio(json, key, part < whole ? whole - part : 0, whole);
}

static void write_pool(struct vs_json *json, const struct vs_snapshot_device *device)
{
    const struct vs_ledger_pool_stats *pool = &device->pool;
    vs_json_object(json, "pool", false);
    vs_json_str(json, "backing", vs_backing_name(pool->backing));
    vs_json_u64(json, "hits", pool->hits);
    vs_json_u64(json, "misses", pool->misses);
    vs_json_u64(json, "waits", pool->waits);
    vs_json_u64(json, "wait_ns", pool->wait_ns);
    vs_json_u64(json, "orders", pool->orders);
    vs_json_u64(json, "trims", pool->trims);
    vs_json_u64(json, "released_bytes", pool->released_bytes);
    vs_json_u64(json, "remapped_bytes", pool->remapped_bytes);
    vs_json_u64(json, "live_peak_bytes", device->pool_live.peak);
    vs_json_u64(json, "live_bytes", pool->live_bytes);
    vs_json_u64(json, "block_bytes", pool->block_bytes);
    vs_json_u64(json, "free_bytes", pool->free_bytes);
    vs_json_u64(json, "pending_bytes", pool->pending_bytes);
    vs_json_u64(json, "largest_free_bytes", pool->largest_free_bytes);
    vs_json_end(json);
    vs_json_object(json, "fragmentation", true);
    write_rest(json, "internal_ratio", pool->live_bytes, pool->block_bytes);
    write_rest(json, "external_ratio", pool->largest_free_bytes, pool->free_bytes);
    vs_json_u64(json, "pinned_bytes", pool->pinned_bytes);
    vs_json_ratio(json, "efficiency", device->pool_live.peak, device->reserved.peak);
    vs_json_end(json);
}

static void write_devices(struct vs_json *json, const struct vs_snapshot *snapshot)
{
    vs_json_array(json, "devices", false);
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        const struct vs_snapshot_device *device = &snapshot->devices[i];
        vs_json_object(json, NULL, false);
        vs_json_u64(json, "index", device->index);
        vs_json_str(json, "uuid", device->info.uuid);
        vs_json_str(json, "name", device->info.name);
        vs_json_u64(json, "total_bytes", device->info.total_bytes);
        number_or_null(json, "limit_bytes", device->info.limit_bytes, 0);
        vs_json_i64(json, "driver_version", device->info.driver_version);
        write_held(json, device);
        write_requests(json, device);
        write_pool(json, device);
        vs_json_end(json);
    }
    vs_json_end(json);
}

static void write_leaks(struct vs_json *json, const struct vs_leaks *leaks)
{
    vs_json_array(json, "leaks", false);
    for (uint32_t i = 0; i < leaks->count; i++) {
        const struct vs_leak *leak = &leaks->leak[i];
        bool various = leak->kind >= VS_KIND_COUNT;
        vs_json_object(json, NULL, true);
        vs_json_null(json, "site");
        vs_json_u64(json, "device", leak->device);
        vs_json_u64(json, "bytes", leak->total_bytes);
        vs_json_u64(json, "count", leak->count);
        vs_json_bool(json, "growing", false);
        if (various) {
            vs_json_null(json, "size_bytes");
        } else {
            vs_json_u64(json, "size_bytes", leak->size_bytes);
        }
        vs_json_str(json, "kind", various ? NULL : vs_kind_name(leak->kind));
        vs_json_bool(json, "with_context", leak->with_context);
        vs_json_end(json);
    }
    vs_json_end(json);
}

static void write_timeline(struct vs_json *json, const struct vs_snapshot *snapshot)
{
    static const char *const columns[] = {"t_ns", "device", "live_bytes", "reserved_bytes",
                                          "used_bytes"};
    vs_json_object(json, "timeline", false);
    vs_json_array(json, "columns", true);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        vs_json_str(json, NULL, columns[i]);
    }
    vs_json_end(json);
    vs_json_array(json, "rows", false);
    for (uint32_t i = 0; i < snapshot->row_count; i++) {
        const struct vs_timeline_row *row = &snapshot->rows[i];
        vs_json_array(json, NULL, true);
        vs_json_u64(json, NULL, row->sample.t_ns);
        vs_json_u64(json, NULL, row->device);
        vs_json_u64(json, NULL, row->sample.live_bytes);
        vs_json_u64(json, NULL, row->sample.reserved_bytes);
        vs_json_u64(json, NULL, row->sample.used_bytes);
        vs_json_end(json);
    }
    vs_json_end(json);
    vs_json_end(json);
}

static uint64_t limit_of(const struct vs_snapshot *snapshot, uint32_t index)
{
    for (uint32_t i = 0; i < snapshot->device_count; i++) {
        if (snapshot->devices[i].index == index) {
            return snapshot->devices[i].info.limit_bytes;
        }
    }
    return 0;
}

static void write_ooms(struct vs_json *json, const struct vs_snapshot *snapshot)
{
    vs_json_array(json, "ooms", false);
    for (uint32_t i = 0; i < snapshot->oom_count; i++) {
        const struct vs_ledger_oom *oom = &snapshot->ooms[i];
        vs_json_object(json, NULL, true);
        vs_json_u64(json, "t_ns", oom->t_ns);
        vs_json_u64(json, "device", oom->device);
        vs_json_u64(json, "requested_bytes", oom->requested_bytes);
        number_or_null(json, "limit_bytes", limit_of(snapshot, oom->device), 0);
        vs_json_u64(json, "live_bytes", oom->live_bytes);
        vs_json_u64(json, "reserved_bytes", oom->reserved_bytes);
        number_or_null(json, "largest_free_bytes", oom->largest_free_bytes, UINT64_MAX);
        number_or_null(json, "driver_free_bytes", oom->driver_free_bytes, UINT64_MAX);
        vs_json_str(json, "verdict", vs_verdict_name(oom->verdict));
        vs_json_array(json, "sites", true);
        vs_json_end(json);
        vs_json_end(json);
    }
    vs_json_end(json);
    vs_json_u64(json, "ooms_total", snapshot->ooms_seen);
}

static void write_empty(struct vs_json *json, const char *key)
{
    vs_json_array(json, key, false);
    vs_json_end(json);
}

void vs_document_json(struct vs_out *out, const struct vs_snapshot *snapshot)
{
    struct vs_json writer, *json = &writer;
    vs_json_init(json, out);
    vs_json_object(json, NULL, false);
    vs_json_str(json, "schema", "vramshim.report/1");
    vs_json_object(json, "exporter", true);
    vs_json_str(json, "name", "vramshim");
    vs_json_str(json, "version", VS_VERSION);
    vs_json_end(json);
    write_process(json, snapshot);
    vs_json_object(json, "options", false);
    for (size_t i = 0; i < snapshot->option_count; i++) {
        vs_json_str(json, snapshot->options[i].name, snapshot->options[i].value);
    }
    vs_json_end(json);
    write_devices(json, snapshot);
    write_empty(json, "sites");
    write_leaks(json, &snapshot->leaks);
    write_timeline(json, snapshot);
    write_empty(json, "marks");
    write_ooms(json, snapshot);
    vs_json_array(json, "notes", false);
    for (uint32_t i = 0; i < snapshot->note_count; i++) {
        vs_json_object(json, NULL, true);
        vs_json_str(json, "code", snapshot->notes[i].code);
        vs_json_str(json, "text", snapshot->notes[i].text);
        vs_json_end(json);
    }
    vs_json_end(json);
    vs_json_end(json);
}
