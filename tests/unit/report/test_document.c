/*
 * The two documents, from snapshots made by hand: golden text and JSON, and the shape that design
 * §7 promises, read back by jansson.
 *
 * Golden files lie in VS_GOLDEN; with VS_GOLDEN_WRITE=1 they are written instead of compared.
 */
#include "testing.h"

#include <jansson.h>
#include <string.h>

#include "report/document.h"

static struct vs_snapshot snapshot;
static char made[1 << 20];

static const struct vs_report_option options[] = {
    {"VRAMSHIM_LIMIT", "8GiB"},
    {"VRAMSHIM_REPORT", "stderr,\"a b\".json"},
    {"VRAMSHIM_GROUP", NULL},
};

static void set_argv(const char *const *argv)
{
    for (; *argv; argv++) {
        size_t length = strlen(*argv) + 1;
        memcpy(snapshot.process.argv + snapshot.process.argv_bytes, *argv, length);
        snapshot.process.argv_bytes += (uint32_t)length;
    }
}

static void base(void)
{
    memset(&snapshot, 0, sizeof snapshot);
    snapshot.process.pid = 4242;
    snapshot.process.ppid = 4241;
    strcpy(snapshot.process.host, "node7");
    strcpy(snapshot.process.executable, "/usr/bin/python3.11");
    set_argv((const char *const[]){"python", "train.py", "--epochs", "3", NULL});
    snapshot.start_unix_ns = UINT64_C(1767268800123000000);
    snapshot.duration_ns = UINT64_C(83456789012);
    snapshot.end = VS_END_EXIT;
    snapshot.options = options;
    snapshot.option_count = sizeof options / sizeof *options;
    snapshot.device_count = 1;
    struct vs_snapshot_device *device = &snapshot.devices[0];
    strcpy(device->info.uuid, "GPU-00000000-1111-2222-3333-444444444444");
    strcpy(device->info.name, "NVIDIA H200");
    device->info.total_bytes = UINT64_C(150109880320);
    device->info.driver_version = 13000;
    device->live = (struct vs_snapshot_gauge){0, 1342177280, 61000000000};
    device->used = (struct vs_snapshot_gauge){0, 1342177280, 0};
    device->by_kind[VS_KIND_PLAIN] = (struct vs_snapshot_gauge){0, 1342177280, 0};
    device->alloc_count = device->free_count = 1234;
    device->alloc_bytes = UINT64_C(13207024435);
    snapshot.rows[0] = (struct vs_timeline_row){0, {5, 100, 0, 100}};
    snapshot.rows[1] = (struct vs_timeline_row){0, {61000000000, 1342177280, 0, 1342177280}};
    snapshot.rows[2] = (struct vs_timeline_row){0, {83456789012, 0, 0, 0}};
    snapshot.row_count = 3;
}

/* A run that the pool served. */
static void pooled(void)
{
    base();
    struct vs_snapshot_device *device = &snapshot.devices[0];
    device->live = device->pool_live = (struct vs_snapshot_gauge){0, 1342177280, 61000000000};
    device->reserved = (struct vs_snapshot_gauge){41943040, 1409286144, 60000000000};
    device->used = device->reserved;
    device->by_kind[VS_KIND_PLAIN] = (struct vs_snapshot_gauge){0};
    device->by_kind[VS_KIND_POOL] = device->reserved;
    device->pool = (struct vs_ledger_pool_stats){
        .backing = VS_LEDGER_VMM,
        .hits = 1200,
        .misses = 34,
        .waits = 2,
        .wait_ns = 12300000,
        .orders = 5,
        .trims = 1,
        .released_bytes = 1367343104,
        .remapped_bytes = 4194304,
        .live_bytes = 900,
        .block_bytes = 1000,
        .free_bytes = 40000000,
        .pending_bytes = 512,
        .largest_free_bytes = 30000000,
        .pinned_bytes = 2096640,
    };
}

/* Everything that can go wrong, at once. */
static void busy(void)
{
    base();
    struct vs_snapshot_device *device = &snapshot.devices[0];
    strcpy(snapshot.process.rank, "3");
    set_argv((const char *const[]){"bad\xff\033[31m", "", NULL});
    snapshot.process.argv_cut = 1;
    snapshot.exit_code = -1;
    snapshot.signal = 9;
    snapshot.end = VS_END_KILLED;
    device->info.limit_bytes = UINT64_C(8) << 30;
    device->used.peak = (UINT64_C(8) << 30) - 1;
    device->used.now = 41943041 + 300;
    device->live.now = 41943041;
    device->live_count = 41;
    device->free_count = 1190;
    device->failed_count = 70;
    device->reserved = (struct vs_snapshot_gauge){1, UINT64_C(1500000000), 7};
    device->pool_live.peak = 1342177280;
    device->host_pinned = (struct vs_snapshot_gauge){1, 2, 0};
    device->by_kind[VS_KIND_ASYNC] = (struct vs_snapshot_gauge){5, 6, 0};
    snapshot.device_count = 4;
    for (uint32_t d = 1; d < 4; d++) {
        snapshot.devices[d].index = d;
        strcpy(snapshot.devices[d].info.name, "NVIDIA H200");
    }
    snapshot.devices[2].failed_count = 1;
    snapshot.leaks.leak[0] = (struct vs_leak){1048576, 41943040, 40, 0, VS_KIND_PLAIN, false};
    snapshot.leaks.leak[1] = (struct vs_leak){1048577, 1048577, 1, 0, VS_KIND_ASYNC, true};
    for (uint32_t i = 2; i < 12; i++)
        snapshot.leaks.leak[i] = (struct vs_leak){1000 - i, 1000 - i, 1, 1, VS_KIND_PLAIN, false};
    snapshot.leaks.leak[12] = (struct vs_leak){0, 12345, 678, 1, VS_KIND_COUNT, false};
    snapshot.leaks.count = 13;
    for (uint32_t i = 0; i < 6; i++)
        snapshot.ooms[i] = (struct vs_ledger_oom){
            1000000000u * i,          UINT64_C(3) << 30,           41943041, 1,
            i ? i << 20 : UINT64_MAX, i == 2 ? 12345 : UINT64_MAX, 0,        i % 4};
    snapshot.oom_count = 6;
    snapshot.ooms_seen = 70;
    strcpy(snapshot.notes[0].code, "deepbind");
    strcpy(snapshot.notes[0].text, "a library opened with RTLD_DEEPBIND \"escapes\"\n");
    snapshot.note_count = 1;
}

/* Through a descriptor, as in life. */
static const char *make(void (*document)(struct vs_out *, const struct vs_snapshot *))
{
    char buffer[256];
    struct vs_out out;
    FILE *f = tmpfile();
    assert_non_null(f);
    vs_out_to_fd(&out, fileno(f), buffer, sizeof buffer);
    document(&out, &snapshot);
    assert_int_equal(vs_out_flush(&out), 0);
    rewind(f);
    made[fread(made, 1, sizeof made - 1, f)] = '\0';
    fclose(f);
    return made;
}

/* The version stands as @VERSION@ in golden files. */
static void hide_version(char *text)
{
    static char rest[sizeof made];
    static const char mark[] = "@VERSION@";
    for (char *at = text; (at = strstr(at, VS_VERSION)); at += sizeof mark - 1) {
        strcpy(rest, at + strlen(VS_VERSION));
        strcpy(at, mark);
        strcpy(at + sizeof mark - 1, rest);
    }
}

static void compare(const char *name, const char *text)
{
    hide_version(made);
    static char path[4096], want[1 << 20];
    snprintf(path, sizeof path, "%s/%s", VS_GOLDEN, name);
    if (getenv("VS_GOLDEN_WRITE")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(text, f);
        fclose(f);
        return;
    }
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be read", path);
    want[fread(want, 1, sizeof want - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, want);
}

static size_t lines(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void clean_text(void **unused)
{
    (void)unused;
    base();
    compare("clean.txt", make(vs_document_text));
    assert_true(lines(made) <= 24); /* one screen */
}

static void clean_json(void **unused)
{
    (void)unused;
    base();
    compare("clean.json", make(vs_document_json));
}

static void busy_text(void **unused)
{
    (void)unused;
    busy();
    compare("busy.txt", make(vs_document_text));
    assert_null(strchr(made, '\033'));
    assert_null(strstr(made, "100.0%")); /* a byte below the limit */
}

static void busy_json(void **unused)
{
    (void)unused;
    busy();
    compare("busy.json", make(vs_document_json));
}

static void keys(const json_t *object, const char *names)
{
    char list[1024];
    size_t count = 0;
    assert_true(json_is_object(object));
    snprintf(list, sizeof list, "%s", names);
    for (char *name = strtok(list, " "); name; name = strtok(NULL, " "), count++)
        if (!json_object_get(object, name))
            fail_msg("no key %s", name);
    assert_int_equal(json_object_size(object), count);
}

static const json_t *first(const json_t *root, const char *key)
{
    const json_t *array = json_object_get(root, key);
    assert_true(json_array_size(array) > 0);
    return json_array_get(array, 0);
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void pool_text(void **unused)
{
    (void)unused;
    pooled();
    compare("pool.txt", make(vs_document_text));
    assert_true(lines(made) <= 24);
}

static void pool_json(void **unused)
{
    (void)unused;
    pooled();
    compare("pool.json", make(vs_document_json));
}

static const json_t *at(const json_t *object, const char *key, const char *inner)
{
    return json_object_get(json_object_get(object, key), inner);
}

/* What the ratios say, and when they say nothing. */
static void pool_ratios(void **unused)
{
    (void)unused;
    for (int round = 0; round < 3; round++) {
        pooled();
        struct vs_ledger_pool_stats *pool = &snapshot.devices[0].pool;
        if (round == 1) { /* all given back, all that was free in one piece */
            pool->live_bytes = pool->block_bytes = 0;
            pool->largest_free_bytes = pool->free_bytes;
        } else if (round == 2) { /* all in use, nothing ever reserved; live grew meanwhile */
            pool->free_bytes = pool->largest_free_bytes = 0;
            pool->live_bytes = pool->block_bytes + 1;
            snapshot.devices[0].reserved.peak = 0;
            pool->backing = VS_LEDGER_NATIVE;
        }
        json_t *root = json_loads(make(vs_document_json), 0, NULL);
        assert_non_null(root);
        const json_t *device = first(root, "devices");
        const json_t *internal = at(device, "fragmentation", "internal_ratio");
        const json_t *external = at(device, "fragmentation", "external_ratio");
        const json_t *efficiency = at(device, "fragmentation", "efficiency");
        if (round == 0) {
            assert_true(json_real_value(internal) == 0.1);
            assert_true(json_real_value(external) == 0.25);
            assert_true(json_real_value(efficiency) == 0.9524);
        } else if (round == 1) {
            assert_true(json_is_null(internal));
            assert_true(json_number_value(external) == 0);
        } else {
            assert_true(json_number_value(internal) == 0);
            assert_true(json_is_null(external));
            assert_true(json_is_null(efficiency));
        }
        assert_string_equal(json_string_value(at(device, "pool", "backing")),
                            round == 2 ? "native" : "vmm");
        json_decref(root);
    }
}

static void no_device(void **unused)
{
    (void)unused;
    base();
    snapshot.device_count = 0;
    snapshot.row_count = 0;
    compare("nodevice.txt", make(vs_document_text));
}

/* Exactly the keys of the schema, and those that were added to it. */
static void shape(void **unused)
{
    (void)unused;
    json_error_t error;
    busy();
    json_t *root = json_loads(make(vs_document_json), JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s", error.line, error.text);
    keys(root, "schema exporter process options devices sites leaks timeline marks ooms ooms_total "
               "notes");
    assert_string_equal(json_string_value(json_object_get(root, "schema")), "vramshim.report/1");
    keys(json_object_get(root, "exporter"), "name version");
    const json_t *process = json_object_get(root, "process");
    keys(process, "pid ppid executable argv host rank started_at duration_ns end exit_code signal");
    assert_int_equal(json_array_size(json_object_get(process, "argv")), 7);
    assert_true(json_is_null(json_object_get(process, "exit_code")));
    assert_int_equal(number(process, "signal"), 9);
    assert_string_equal(json_string_value(json_object_get(process, "started_at")),
                        "2026-01-01T12:00:00.123Z");
    assert_true(json_is_null(json_object_get(json_object_get(root, "options"), "VRAMSHIM_GROUP")));
    const json_t *device = first(root, "devices");
    keys(device,
         "index uuid name total_bytes limit_bytes driver_version live reserved used by_kind "
         "host_pinned requests pool fragmentation");
    keys(json_object_get(device, "live"), "now_bytes peak_bytes peak_at_ns now_count");
    keys(json_object_get(device, "reserved"), "now_bytes peak_bytes peak_at_ns");
    keys(json_object_get(device, "used"), "now_bytes peak_bytes");
    keys(first(device, "by_kind"), "kind now_bytes peak_bytes");
    keys(json_object_get(device, "host_pinned"), "now_bytes peak_bytes");
    keys(json_object_get(device, "requests"), "alloc_count free_count alloc_bytes failed_count");
    keys(json_object_get(device, "pool"),
         "backing hits misses waits wait_ns orders trims released_bytes remapped_bytes "
         "live_peak_bytes live_bytes block_bytes free_bytes pending_bytes largest_free_bytes");
    keys(json_object_get(device, "fragmentation"),
         "internal_ratio external_ratio pinned_bytes efficiency");
    keys(first(root, "leaks"), "site device bytes count growing size_bytes kind with_context");
    keys(json_object_get(root, "timeline"), "columns rows");
    keys(first(root, "ooms"), "t_ns device requested_bytes limit_bytes live_bytes reserved_bytes "
                              "largest_free_bytes driver_free_bytes verdict sites");
    keys(first(root, "notes"), "code text");
    assert_int_equal(number(device, "limit_bytes"), INT64_C(8) << 30);
    assert_int_equal(number(json_object_get(device, "used"), "peak_bytes"), (INT64_C(8) << 30) - 1);
    assert_int_equal(number(root, "ooms_total"), 70);
    json_decref(root);
}

/* As large as a report can be: it stays valid, and of bounded size. */
static void largest(void **unused)
{
    (void)unused;
    json_error_t error;
    busy();
    snapshot.device_count = VS_LEDGER_MAX_DEVICES;
    for (uint32_t i = 0; i < VS_TIMELINE_ROWS; i++)
        snapshot.rows[i] = (struct vs_timeline_row){63, {UINT64_MAX / 2, 1, 2, 3}};
    snapshot.row_count = VS_TIMELINE_ROWS;
    snapshot.leaks.count = VS_LEAKS_LISTED + VS_LEDGER_MAX_DEVICES;
    json_t *root = json_loads(make(vs_document_json), JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s", error.line, error.text);
    assert_true(strlen(made) < 500000);
    json_decref(root);
}

static void ends(void **unused)
{
    (void)unused;
    static const char *const names[] = {"running", "exit", "_exit", "quick_exit", "exec", "killed"};
    for (int end = VS_END_RUNNING; end <= VS_END_KILLED; end++)
        assert_string_equal(vs_end_name((enum vs_end)end), names[end]);
    assert_string_equal(vs_verdict_name(VS_VERDICT_PENDING), "pending");
    assert_string_equal(vs_verdict_name(VS_VERDICT_OVER_LIMIT), "over-limit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_text), cmocka_unit_test(clean_json),  cmocka_unit_test(busy_text),
        cmocka_unit_test(busy_json),  cmocka_unit_test(no_device),   cmocka_unit_test(pool_text),
        cmocka_unit_test(pool_json),  cmocka_unit_test(pool_ratios), cmocka_unit_test(shape),
        cmocka_unit_test(largest),    cmocka_unit_test(ends),
    };
    return cmocka_run_group_tests_name("document", tests, NULL, NULL);
}
