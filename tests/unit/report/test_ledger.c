/* The ledger: what each call does to the figures, seen through a snapshot. */
#include "testing.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report/self.h"
#include "report/snapshot.h"

static struct vs_snapshot snapshot;

static uint64_t monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int open_fresh(void **unused)
{
    (void)unused;
    return vs_ledger_open(monotonic());
}

static void take(uint64_t address, uint64_t bytes, uint32_t device, uint32_t kind, uint64_t context)
{
    vs_ledger_alloc(&(struct vs_alloc){.address = address,
                                       .bytes = bytes,
                                       .context = context,
                                       .device = (uint16_t)device,
                                       .kind = (uint8_t)kind});
}

static void give(uint64_t address)
{
    struct vs_alloc gone;
    assert_true(vs_ledger_free_begin(address, &gone));
    vs_ledger_free_done(&gone);
}

static const struct vs_snapshot_device *look(uint32_t index)
{
    assert_true(vs_snapshot_take(&snapshot));
    for (uint32_t i = 0; i < snapshot.device_count; i++)
        if (snapshot.devices[i].index == index)
            return &snapshot.devices[i];
    fail_msg("device %u is not there", index);
    return NULL;
}

static void kinds_have_names(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < VS_KIND_COUNT; kind++)
        assert_true(strlen(vs_kind_name(kind)) >= 3);
    assert_string_equal(vs_kind_name(VS_KIND_PLAIN), "plain");
    assert_string_equal(vs_kind_name(VS_KIND_CONTEXT), "context");
    assert_string_equal(vs_kind_name(VS_KIND_COUNT), "unknown");
}

static void counts(void **unused)
{
    (void)unused;
    take(0x1000, 100, 2, VS_KIND_PLAIN, 1);
    take(0x2000, 50, 2, VS_KIND_MANAGED, 1);
    give(0x1000);
    take(0x3000, 10, 2, VS_KIND_OVERFLOW, 1);
    const struct vs_snapshot_device *device = look(2);
    assert_int_equal(snapshot.device_count, 1);
    assert_int_equal(device->live.now, 60);
    assert_int_equal(device->live.peak, 150);
    assert_int_equal(device->live_count, 2);
    assert_int_equal(device->used.now, 50); /* overflow is not charged */
    assert_int_equal(device->used.peak, 150);
    assert_int_equal(device->by_kind[VS_KIND_PLAIN].now, 0);
    assert_int_equal(device->by_kind[VS_KIND_PLAIN].peak, 100);
    assert_int_equal(device->by_kind[VS_KIND_MANAGED].now, 50);
    assert_int_equal(device->by_kind[VS_KIND_OVERFLOW].peak, 10);
    assert_int_equal(device->alloc_count, 3);
    assert_int_equal(device->alloc_bytes, 160);
    assert_int_equal(device->free_count, 1);
    assert_int_equal(device->failed_count, 0);
    assert_int_equal(snapshot.leaks.count, 2);
    assert_int_equal(snapshot.leaks.leak[0].total_bytes, 50);
    assert_true(snapshot.row_count >= 1);
}

static void free_in_two_steps(void **unused)
{
    (void)unused;
    struct vs_alloc gone, other;
    take(0x1000, 100, 0, VS_KIND_PLAIN, 1);
    assert_false(vs_ledger_free_begin(0x1001, &gone));
    assert_true(vs_ledger_free_begin(0x1000, &gone));
    assert_int_equal(gone.bytes, 100);
    assert_true(gone.at_ns > 0);
    assert_true(vs_ledger_free_begin(0x1000, &other)); /* a second one of the same */
    vs_ledger_free_undo(&other);
    assert_int_equal(look(0)->live.now, 100); /* until the driver has freed it */
    vs_ledger_free_undo(&gone);
    assert_true(vs_ledger_find(0x1000, &other));
    assert_int_equal(look(0)->live.now, 100);
    assert_int_equal(look(0)->free_count, 0);
    assert_true(vs_ledger_free_begin(0x1000, &gone));
    take(0x1000, 30, 0, VS_KIND_PLAIN, 1); /* handed out again before the free returned */
    assert_int_equal(look(0)->free_count, 1);
    vs_ledger_free_done(&gone);
    assert_int_equal(look(0)->free_count, 1);
    assert_int_equal(look(0)->live.now, 30);
    assert_int_equal(look(0)->live_count, 1);
    assert_int_equal(snapshot.leaks.leak[0].size_bytes, 30);
}

static void same_address_twice(void **unused)
{
    (void)unused;
    take(0x1000, 100, 0, VS_KIND_PLAIN, 1);
    take(0x1000, 40, 1, VS_KIND_ASYNC, 1);
    assert_int_equal(look(0)->live.now, 0);
    assert_int_equal(look(0)->free_count, 0); /* nobody freed it: it is gone, and stays a leak */
    assert_int_equal(look(0)->live_count, 0);
    assert_true(snapshot.leaks.leak[0].with_context);
    assert_int_equal(snapshot.leaks.leak[0].total_bytes, 100);
    assert_int_equal(look(1)->live.now, 40);
    assert_int_equal(look(1)->live_count, 1);
}

static void context_takes_its_memory_along(void **unused)
{
    (void)unused;
    for (uint64_t i = 1; i <= 10; i++)
        take(i * 0x1000, 1000, 0, VS_KIND_PLAIN, i % 2 ? 0xa : 0xb);
    take(0x100000, 5, 0, VS_KIND_PLAIN, 0);
    give(0x1000);
    assert_int_equal(vs_ledger_context_gone(0), 0); /* nobody's death */
    assert_int_equal(vs_ledger_context_gone(0xa), 4);
    assert_int_equal(vs_ledger_context_gone(0xa), 0);
    const struct vs_snapshot_device *device = look(0);
    assert_int_equal(device->live.now, 5005);
    assert_int_equal(device->live_count, 6);
    assert_int_equal(device->free_count, 1); /* dying is not freeing */
    assert_int_equal(snapshot.leaks.count, 3);
    assert_int_equal(snapshot.leaks.leak[0].count, 5);
    assert_false(snapshot.leaks.leak[0].with_context);
    assert_int_equal(snapshot.leaks.leak[1].count, 4);
    assert_true(snapshot.leaks.leak[1].with_context);
    assert_int_equal(snapshot.leaks.leak[1].total_bytes, 4000);
}

/* More sizes than there are places: the sum still holds. */
static void many_sizes_die(void **unused)
{
    (void)unused;
    uint64_t bytes = 0, count = 0;
    for (uint64_t i = 1; i <= 2000; i++)
        take(i * 0x1000, i, 0, VS_KIND_PLAIN, 0xa);
    assert_int_equal(vs_ledger_context_gone(0xa), 2000);
    assert_int_equal(look(0)->live.now, 0);
    for (uint32_t i = 0; i < snapshot.leaks.count; i++) {
        bytes += snapshot.leaks.leak[i].total_bytes;
        count += snapshot.leaks.leak[i].count;
    }
    assert_int_equal(count, 2000);
    assert_int_equal(bytes, 2001000);
}

static void failures(void **unused)
{
    (void)unused;
    take(0x1000, 100, 0, VS_KIND_PLAIN, 1);
    vs_ledger_alloc_failed(0, 5);
    for (uint64_t i = 0; i < 100; i++)
        vs_ledger_oom(0, 1000 + i, i ? i : UINT64_MAX, VS_VERDICT_DEVICE_FULL);
    vs_ledger_oom(VS_LEDGER_MAX_DEVICES, 1, 1, VS_VERDICT_PENDING);
    assert_int_equal(look(0)->failed_count, 101);
    assert_int_equal(snapshot.ooms_seen, 100);
    assert_int_equal(snapshot.oom_count, VS_LEDGER_OOMS);
    assert_int_equal(snapshot.ooms[63].requested_bytes, 1063);
    assert_int_equal(snapshot.ooms[0].live_bytes, 100);
    assert_true(snapshot.ooms[0].driver_free_bytes == UINT64_MAX);
}

static void out_of_range_is_untracked(void **unused)
{
    (void)unused;
    take(0x1000, 100, VS_LEDGER_MAX_DEVICES, VS_KIND_PLAIN, 1);
    take(0x2000, 100, 0, VS_KIND_COUNT, 1);
    assert_true(vs_snapshot_take(&snapshot));
    assert_int_equal(snapshot.device_count, 0);
    assert_int_equal(snapshot.leaks.count, 0);
    assert_int_equal(snapshot.note_count, 1);
    assert_string_equal(snapshot.notes[0].code, "untracked");
    assert_string_equal(snapshot.notes[0].text,
                        "2 allocations (200 B) could not be remembered and are missing from every "
                        "figure here");
}

static void devices(void **unused)
{
    (void)unused;
    struct vs_ledger_device info = {.uuid = "GPU-1", .name = "A", .total_bytes = 7};
    assert_int_equal(vs_ledger_add_device(VS_LEDGER_MAX_DEVICES, &info), -EINVAL);
    assert_int_equal(vs_ledger_add_device(63, &info), 0);
    memset(info.name, 'x', sizeof info.name); /* not closed */
    assert_int_equal(vs_ledger_add_device(1, &info), 0);
    assert_int_equal(look(63)->info.total_bytes, 7);
    assert_int_equal(strlen(look(1)->info.name), sizeof info.name - 1);
}

static void gauges(void **unused)
{
    (void)unused;
    take(0x1000, 100, 0, VS_KIND_PLAIN, 1);
    vs_ledger_reserved(0, 1000);
    vs_ledger_reserved(0, -600);
    vs_ledger_host_pinned(0, 50);
    vs_ledger_host_pinned(0, -50);
    assert_int_equal(look(0)->reserved.now, 400);
    assert_int_equal(look(0)->reserved.peak, 1000);
    assert_int_equal(look(0)->host_pinned.now, 0);
    assert_int_equal(look(0)->host_pinned.peak, 50);
}

/* Pool memory is live as the program takes it, and charged as the pool does. */
static void pool_memory(void **unused)
{
    (void)unused;
    struct vs_alloc gone;
    vs_ledger_reserved(0, 1000);
    take(0x1000, 300, 0, VS_KIND_POOL, 1);
    take(0x2000, 200, 0, VS_KIND_POOL, 1);
    take(0x3000, 50, 0, VS_KIND_PLAIN, 1);
    const struct vs_snapshot_device *device = look(0);
    assert_int_equal(device->live.now, 550);
    assert_int_equal(device->pool_live.now, 500);
    assert_int_equal(device->used.now, 1050);
    assert_int_equal(device->by_kind[VS_KIND_POOL].now, 1000);
    assert_int_equal(device->by_kind[VS_KIND_PLAIN].now, 50);
    assert_int_equal(snapshot.rows[snapshot.row_count - 1].sample.reserved_bytes, 1000);
    assert_int_equal(snapshot.rows[snapshot.row_count - 1].sample.used_bytes, 1050);
    assert_true(vs_ledger_free_at_once(0x1000, &gone));
    assert_int_equal(gone.bytes, 300);
    assert_false(vs_ledger_free_at_once(0x1000, &gone));
    assert_false(vs_ledger_free_begin(0x1000, &gone));
    give(0x2000); /* in two steps is as good */
    vs_ledger_reserved(0, -1000);
    device = look(0);
    assert_int_equal(device->live.now, 50);
    assert_int_equal(device->free_count, 2);
    assert_int_equal(device->pool_live.now, 0);
    assert_int_equal(device->pool_live.peak, 500);
    assert_int_equal(device->used.now, 50);
    assert_int_equal(device->used.peak, 1050);
    assert_int_equal(device->by_kind[VS_KIND_POOL].now, 0);
    assert_int_equal(device->by_kind[VS_KIND_POOL].peak, 1000);
    take(0x4000, 70, 0, VS_KIND_POOL, 9);
    assert_int_equal(vs_ledger_context_gone(9), 1);
    assert_int_equal(look(0)->pool_live.now, 0);
}

static void pool_figures(void **unused)
{
    (void)unused;
    struct vs_ledger_pool_stats stats = {
        .backing = VS_LEDGER_NATIVE, .hits = 3, .largest_free_bytes = 4096};
    vs_ledger_reserved(2, 1 << 20);
    assert_int_equal(vs_ledger_add_device(2, &(struct vs_ledger_device){.name = "A"}), 0);
    vs_ledger_oom(2, 1, 1, VS_VERDICT_DEVICE_FULL);
    vs_ledger_pool(2, &stats);
    stats.hits = 4;
    stats.live_bytes = 512; /* as the pool has it, rounded up */
    vs_ledger_alloc(&(struct vs_alloc){
        .address = 0x700000, .bytes = 300, .context = 1, .device = 2, .kind = VS_KIND_POOL});
    vs_ledger_pool(2, &stats);
    vs_ledger_pool(VS_LEDGER_MAX_DEVICES, &stats);
    vs_ledger_oom(2, 8192, 1, VS_VERDICT_FRAGMENTED);
    assert_int_equal(look(2)->pool.backing, VS_LEDGER_NATIVE);
    assert_int_equal(look(2)->pool.hits, 4);
    assert_int_equal(look(2)->pool.live_bytes, 300);
    assert_true(snapshot.ooms[0].largest_free_bytes == UINT64_MAX);
    assert_int_equal(snapshot.ooms[1].largest_free_bytes, 4096);
    assert_int_equal(snapshot.ooms[1].reserved_bytes, 1 << 20);
}

static void notes(void **unused)
{
    (void)unused;
    char text[1000];
    vs_ledger_note("a", "one");
    vs_ledger_note("a", "one");
    vs_ledger_note("a", "two");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    vs_ledger_note(text, text);
    assert_true(vs_snapshot_take(&snapshot));
    assert_int_equal(snapshot.note_count, 3);
    assert_int_equal(strlen(snapshot.notes[2].code), 31);
    assert_int_equal(strlen(snapshot.notes[2].text), 479);
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "note %d", i);
        vs_ledger_note("many", text);
    }
    assert_true(vs_snapshot_take(&snapshot));
    assert_int_equal(snapshot.note_count, VS_LEDGER_NOTES + 1);
    assert_string_equal(snapshot.notes[VS_LEDGER_NOTES].text, "71 further notes were dropped");
}

static void header_and_process(void **unused)
{
    (void)unused;
    const struct vs_ledger *ledger = vs_ledger_self();
    assert_memory_equal(&ledger->header.magic, "VSHIMLG1", 8);
    assert_int_equal(ledger->header.version, VS_LEDGER_VERSION);
    assert_int_equal(ledger->header.total_bytes, sizeof *ledger);
    assert_true(vs_snapshot_take(&snapshot));
    assert_int_equal(snapshot.process.pid, getpid());
    assert_int_equal(snapshot.process.ppid, getppid());
    assert_non_null(strstr(snapshot.process.executable, "ledger"));
    assert_true(snapshot.process.argv_bytes > 0);
    assert_true(snapshot.process.host[0] != '\0');
    uint64_t now = (uint64_t)time(NULL);
    assert_in_range(snapshot.start_unix_ns / 1000000000u, now - 60, now + 1);
}

static void peak_has_its_time(void **unused)
{
    (void)unused;
    struct timespec nap = {0, 50000000};
    assert_int_equal(vs_ledger_open(monotonic() - 1000000000u), 0);
    take(0x1000, 10, 0, VS_KIND_PLAIN, 1);
    nanosleep(&nap, NULL);
    take(0x2000, 10, 0, VS_KIND_PLAIN, 1);
    give(0x2000);
    take(0x2000, 10, 0, VS_KIND_PLAIN, 1); /* as high, not higher */
    assert_in_range(look(0)->live.peak_at_ns, 1040000000u, 3000000000u);
    assert_in_range(snapshot.duration_ns, snapshot.devices[0].live.peak_at_ns, 4000000000u);
    assert_int_equal(snapshot.rows[snapshot.row_count - 1].sample.live_bytes, 20);
}

/* A child starts from nothing and its parent's figures stay. */
static void fork_and_open_again(void **unused)
{
    (void)unused;
    int status;
    take(0x1000, 10, 0, VS_KIND_PLAIN, 1);
    pid_t child = fork();
    if (child == 0) {
        struct vs_alloc out;
        if (vs_ledger_open(monotonic()) != 0 || vs_ledger_find(0x1000, &out))
            _exit(1);
        take(0x2000, 7, 0, VS_KIND_PLAIN, 1);
        if (!vs_snapshot_take(&snapshot) || snapshot.devices[0].live.now != 7)
            _exit(2);
        _exit(snapshot.process.pid == getpid() ? 0 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(look(0)->live.now, 10);
}

#define THREADS 4
static void *work(void *argument)
{
    uint64_t base = (uint64_t)(uintptr_t)argument << 32;
    uint64_t random = base | 1;
    struct vs_alloc gone;
    for (int round = 0; round < 200; round++) {
        for (uint64_t i = 0; i < 50; i++)
            take(base + i * 512, i + 1, 0, i % 3 ? VS_KIND_POOL : VS_KIND_ASYNC, base);
        for (uint64_t i = 0; i < 50; i++)
            if ((testing_random(&random) % 8 || round < 199) && i % 6 == 1)
                assert_true(vs_ledger_free_at_once(base + i * 512, &gone));
            else if (testing_random(&random) % 8 || round < 199)
                give(base + i * 512);
            else
                vs_ledger_note("kept", "one was kept");
        vs_ledger_alloc_failed(0, 1);
    }
    return NULL;
}

static bool sum(const struct vs_alloc *alloc, void *total)
{
    *(uint64_t *)total += alloc->bytes;
    return false;
}

static void threads(void **unused)
{
    (void)unused;
    pthread_t thread[THREADS];
    uint64_t left = 0, kinds;
    for (uintptr_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, work, (void *)(t + 1)), 0);
    for (int t = 0; t < 100; t++)
        vs_snapshot_take(&snapshot); /* while they work */
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    const struct vs_snapshot_device *device = look(0);
    vs_live_each(vs_ledger_live(), true, sum, &left);
    assert_int_equal(device->live.now, left);
    assert_int_equal(device->used.now, device->by_kind[VS_KIND_ASYNC].now);
    kinds = device->pool_live.now + device->by_kind[VS_KIND_ASYNC].now;
    assert_int_equal(kinds, left);
    assert_int_equal(device->alloc_count, THREADS * 200 * 50);
    assert_int_equal(device->alloc_bytes, THREADS * 200 * 1275);
    assert_int_equal(device->failed_count, THREADS * 200);
    assert_in_range(device->live.peak, 1275, THREADS * 1275);
    for (uint64_t t = 1; t <= THREADS; t++)
        vs_ledger_context_gone(t << 32);
    assert_int_equal(look(0)->live.now, 0);
    assert_int_equal(look(0)->live_count, 0);
}

#define TEST(name) cmocka_unit_test_setup(name, open_fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kinds_have_names),
        TEST(counts),
        TEST(free_in_two_steps),
        TEST(same_address_twice),
        TEST(context_takes_its_memory_along),
        TEST(many_sizes_die),
        TEST(failures),
        TEST(out_of_range_is_untracked),
        TEST(devices),
        TEST(gauges),
        TEST(pool_memory),
        TEST(pool_figures),
        TEST(notes),
        TEST(header_and_process),
        TEST(peak_has_its_time),
        TEST(fork_and_open_again),
        TEST(threads),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
