/* The live table: against a naive model, under threads, without memory, and its size. */
#include "testing.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/live.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

static struct vs_alloc make(uint64_t address, uint64_t bytes)
{
    return (struct vs_alloc){.address = address, .bytes = bytes, .context = 7, .at_ns = 9};
}

/* A whole free. */
static bool take(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    return vs_live_free_begin(live, address, out) && vs_live_free_done(live, out);
}

static void expect_like(const struct vs_alloc *a, const struct vs_alloc *b)
{
    assert_int_equal(a->address, b->address);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->at_ns, b->at_ns);
}

static void put_take_get(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    struct vs_alloc a = make(0x1000, 10), b = make(0x1000, 20), out = {0};
    assert_false(vs_live_get(live, 0x1000, &out));
    assert_false(take(live, 0x1000, &out));
    assert_int_equal(vs_live_put(live, &a, &out), 0);
    assert_true(vs_live_get(live, 0x1000, &out));
    expect_like(&out, &a);
    assert_false(vs_live_get(live, 0x1001, &out));
    memset(&out, 0, sizeof out);
    assert_int_equal(vs_live_put(live, &b, &out), 1);
    expect_like(&out, &a);
    assert_int_equal(out.frees, 0);
    assert_true(take(live, 0x1000, &out));
    expect_like(&out, &b);
    assert_false(take(live, 0x1000, &out));
}

static void frees_under_way(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    struct vs_alloc a = make(0x1000, 10), b = make(0x1000, 20), first, second, out;
    assert_int_equal(vs_live_put(live, &a, &out), 0);
    /* Two at once: one is refused, the other is done, in either order. */
    assert_true(vs_live_free_begin(live, 0x1000, &first));
    assert_true(vs_live_free_begin(live, 0x1000, &second));
    vs_live_free_undo(live, &first);
    assert_true(vs_live_free_done(live, &second));
    assert_false(vs_live_get(live, 0x1000, &out));
    assert_int_equal(vs_live_put(live, &a, &out), 0);
    assert_true(vs_live_free_begin(live, 0x1000, &first));
    assert_true(vs_live_free_begin(live, 0x1000, &second));
    assert_true(vs_live_free_done(live, &first));
    vs_live_free_undo(live, &second);
    assert_false(vs_live_free_done(live, &second));
    assert_false(vs_live_get(live, 0x1000, &out));
    /* Refused: it stays, and nothing is under way. */
    assert_int_equal(vs_live_put(live, &a, &out), 0);
    assert_true(vs_live_free_begin(live, 0x1000, &first));
    vs_live_free_undo(live, &first);
    assert_true(vs_live_get(live, 0x1000, &out));
    assert_int_equal(out.frees, 0);
    /* The address comes back before the free has returned. */
    assert_true(vs_live_free_begin(live, 0x1000, &first));
    assert_int_equal(vs_live_put(live, &b, &out), 1);
    assert_int_equal(out.frees, 1);
    assert_false(vs_live_free_done(live, &first));
    vs_live_free_undo(live, &first);
    assert_true(vs_live_get(live, 0x1000, &out));
    expect_like(&out, &b);
    assert_int_equal(out.frees, 0);
}

/* Nothing inside stands for "none". */
static void odd_addresses(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    struct vs_alloc zero = make(0, 1), last = make(UINT64_MAX, 1), out;
    assert_int_equal(vs_live_put(live, &zero, &out), 0);
    assert_int_equal(vs_live_put(live, &last, &out), 0);
    assert_true(vs_live_get(live, UINT64_MAX, &out));
    assert_true(take(live, 0, &out));
    assert_true(take(live, UINT64_MAX, &out));
    assert_false(take(live, 0, &out));
}

/* The model: an array indexed by slot. Addresses repeat often, so that replacing happens. */
#define SLOTS 3000
static struct vs_alloc model[SLOTS];
static bool present[SLOTS];

static uint64_t address_of(unsigned slot)
{
    uint64_t stride = slot % 3 ? 512 : 0x200000; /* like small blocks, and like pages */
    return (UINT64_C(0x7f0000000000) << (slot % 3 == 0)) + slot * stride;
}

static bool check_visit(const struct vs_alloc *alloc, void *seen)
{
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (present[slot] && model[slot].address == alloc->address) {
            expect_like(&model[slot], alloc);
            ++*(unsigned *)seen;
            return false;
        }
    fail_msg("%llx is not in the model", (unsigned long long)alloc->address);
    return false;
}

static void compare_all(struct vs_live *live)
{
    unsigned seen = 0, want = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        want += present[slot];
    assert_int_equal(vs_live_each(live, true, check_visit, &seen), 0);
    assert_int_equal(seen, want);
}

static bool drop_odd(const struct vs_alloc *alloc, void *unused)
{
    (void)unused;
    return alloc->bytes & 1;
}

static void against_model(void **unused)
{
    (void)unused;
    uint64_t random = testing_seed();
    struct vs_live *live = vs_live_open();
    for (unsigned step = 0; step < 200000; step++) {
        unsigned slot = testing_random(&random) % SLOTS;
        struct vs_alloc alloc = make(address_of(slot), testing_random(&random)), out;
        switch (testing_random(&random) % 4) {
        case 0:
        case 1:
            assert_int_equal(vs_live_put(live, &alloc, &out), present[slot] ? 1 : 0);
            if (present[slot])
                expect_like(&out, &model[slot]);
            model[slot] = alloc;
            present[slot] = true;
            break;
        case 2:
            assert_int_equal(take(live, alloc.address, &out), present[slot]);
            if (present[slot])
                expect_like(&out, &model[slot]);
            present[slot] = false;
            break;
        default:
            assert_int_equal(vs_live_get(live, alloc.address, &out), present[slot]);
            if (present[slot])
                expect_like(&out, &model[slot]);
        }
        if (step % 50000 == 49999) {
            compare_all(live);
            vs_live_each(live, true, drop_odd, NULL);
            for (slot = 0; slot < SLOTS; slot++)
                present[slot] = present[slot] && !(model[slot].bytes & 1);
            compare_all(live);
        }
    }
}

static bool count_visit(const struct vs_alloc *alloc, void *count)
{
    (void)alloc;
    ++*(unsigned *)count;
    return false;
}

static unsigned skipped;

static bool look_again(const struct vs_alloc *alloc, void *live)
{
    unsigned seen = 0;
    (void)alloc;
    skipped = vs_live_each(live, true, count_visit, &seen); /* this part is locked, by ourselves */
    assert_int_equal(seen, 0);
    return false;
}

/* The end of a process whose signal handler exits in the middle of an allocation: no hang. */
static void locked_for_ever(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    struct vs_alloc alloc = make(0x1000, 1), out;
    assert_int_equal(vs_live_put(live, &alloc, &out), 0);
    assert_int_equal(vs_live_each(live, true, look_again, live), 0);
    assert_int_equal(skipped, 1);
}

#define NEIGHBOURS 2000
#define APART UINT64_C(0x10000)

static bool see_the_others(const struct vs_alloc *alloc, void *live)
{
    unsigned seen = 0;
    if (alloc->address == APART) {
        assert_int_equal(vs_live_each(live, true, count_visit, &seen), 1);
        assert_int_equal(seen, NEIGHBOURS - 1);
    }
    return false;
}

/* Blocks 64 KiB apart don't share a part, so that threads whose blocks are neighbours don't meet.
 */
static void neighbours(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    for (uint64_t i = 1; i <= NEIGHBOURS; i++) {
        struct vs_alloc alloc = make(i * APART, i), out;
        assert_int_equal(vs_live_put(live, &alloc, &out), 0);
    }
    vs_live_each(live, false, see_the_others, live);
}

/* All in one part, more and fewer of them. */
static void crowded(void **unused)
{
    (void)unused;
    enum { MOST = 30000 };
    struct vs_live *live = vs_live_open();
    struct vs_alloc out;
    size_t first = 0;
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < MOST; i++) {
            struct vs_alloc alloc = make((UINT64_C(1) << 40) + 2 * i, i);
            assert_int_equal(vs_live_put(live, &alloc, &out), 0);
        }
        if (round == 0)
            first = vs_live_mapped_bytes(live);
        assert_int_equal(vs_live_mapped_bytes(live), first);
        for (uint64_t i = 0; i < MOST; i++) {
            assert_true(vs_live_get(live, (UINT64_C(1) << 40) + 2 * i, &out));
            assert_int_equal(out.bytes, i);
            assert_false(vs_live_get(live, (UINT64_C(1) << 40) + 2 * i + 1, &out));
        }
        for (uint64_t i = MOST; i-- > 0;) {
            assert_true(take(live, (UINT64_C(1) << 40) + 2 * i, &out));
            assert_int_equal(out.bytes, i);
            assert_true(i == 0 || vs_live_get(live, UINT64_C(1) << 40, &out));
        }
        assert_int_equal(vs_live_each(live, false, look_again, live), 0); /* nothing is there */
    }
}

/* Few are live, but in ever other places: what they needed in one serves in the next. */
static void wandering(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    struct vs_alloc out;
    size_t before = vs_live_mapped_bytes(live);
    for (uint64_t place = 1; place < 1000; place++) {
        for (uint64_t i = 0; i < 1000; i++) {
            struct vs_alloc alloc = make((place << 21) + i * 512, i);
            assert_int_equal(vs_live_put(live, &alloc, &out), 0);
        }
        for (uint64_t i = 0; i < 1000; i++)
            assert_true(take(live, (place << 21) + i * 512, &out));
    }
    assert_true(vs_live_mapped_bytes(live) - before <= 256 << 10);
}

static void *takes_them(void *live)
{
    struct vs_alloc out;
    for (uint64_t i = 0; i < 1000; i++)
        if (!take(live, i * 512, &out))
            return "missing";
    return NULL;
}

/* Always one thread's to take and another's to give back: entries find their way. */
static void passed_on(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    struct vs_alloc out;
    size_t before = vs_live_mapped_bytes(live);
    for (int round = 0; round < 100; round++) {
        pthread_t thread;
        void *wrong;
        for (uint64_t i = 0; i < 1000; i++) {
            struct vs_alloc alloc = make(i * 512, i);
            assert_int_equal(vs_live_put(live, &alloc, &out), 0);
        }
        assert_int_equal(pthread_create(&thread, NULL, takes_them, live), 0);
        pthread_join(thread, &wrong);
        assert_null(wrong);
    }
    assert_true(vs_live_mapped_bytes(live) - before <= 256 << 10);
}

#define THREADS 4
#define PER_THREAD 20000

struct work {
    struct vs_live *live;
    unsigned number;
};

/* Each thread puts its own addresses; each takes those that its neighbour put, until all are gone.
 */
static void *churn(void *argument)
{
    const struct work *work = argument;
    uint64_t own = (uint64_t)(work->number + 1) << 32;
    uint64_t theirs = (uint64_t)((work->number + 1) % THREADS + 1) << 32;
    struct vs_alloc out;
    for (uint64_t i = 0; i < PER_THREAD; i++) {
        struct vs_alloc alloc = make(own + i * 256, i);
        if (vs_live_put(work->live, &alloc, &out) != 0)
            return "put failed";
    }
    for (uint64_t i = 0; i < PER_THREAD; i++) {
        while (!take(work->live, theirs + i * 256, &out))
            sched_yield();
        if (out.bytes != i || out.address != theirs + i * 256)
            return "took something else";
    }
    return NULL;
}

static void threads(void **unused)
{
    (void)unused;
    struct vs_live *live = vs_live_open();
    struct work work[THREADS];
    pthread_t thread[THREADS];
    unsigned left = 0;
    for (unsigned t = 0; t < THREADS; t++) {
        work[t] = (struct work){live, t};
        assert_int_equal(pthread_create(&thread[t], NULL, churn, &work[t]), 0);
    }
    for (unsigned t = 0; t < THREADS; t++) {
        void *wrong;
        pthread_join(thread[t], &wrong);
        if (wrong)
            fail_msg("%s", (const char *)wrong);
    }
    vs_live_each(live, true, count_visit, &left);
    assert_int_equal(left, 0);
}

static long address_space, resident_memory;

static long resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &address_space, &resident_memory), 2);
    fclose(f);
    address_space *= sysconf(_SC_PAGESIZE);
    return resident_memory * sysconf(_SC_PAGESIZE);
}

static void host_memory(void **unused)
{
    (void)unused;
#ifdef SANITIZED
    skip(); /* shadow memory counts too */
#endif
    enum { COUNT = 500000 };
    long before = resident();
    struct vs_live *live = vs_live_open();
    struct vs_alloc out;
    for (uint64_t i = 0; i < COUNT; i++) {
        struct vs_alloc alloc = make(UINT64_C(0x7f0000000000) + i * 512, 512);
        assert_int_equal(vs_live_put(live, &alloc, &out), 0);
    }
    double each = (double)(resident() - before) / COUNT;
    printf("%.1f bytes of host memory per live allocation\n", each);
    assert_true(each <= 128);
    assert_true(each >= sizeof(struct vs_alloc)); /* or this measures nothing */
    size_t mapped = vs_live_mapped_bytes(live);
    for (uint64_t i = 0; i < COUNT; i++)
        assert_true(take(live, UINT64_C(0x7f0000000000) + i * 512, &out));
    for (uint64_t i = 0; i < COUNT; i++) { /* memory is used again */
        struct vs_alloc alloc = make(UINT64_C(0x7e0000000000) + i * 512, 512);
        assert_int_equal(vs_live_put(live, &alloc, &out), 0);
    }
    assert_true(vs_live_mapped_bytes(live) <= mapped + mapped / 8);
}

/* Without memory: an answer, no exit, and what is there stays right. */
static void out_of_memory(void **unused)
{
    (void)unused;
#ifdef SANITIZED
    skip(); /* needs RLIMIT_AS */
#endif
    pid_t child = fork();
    if (child == 0) {
        struct vs_live *live = vs_live_open();
        struct vs_alloc out;
        uint64_t i = 0, failed = 0;
        resident();
        rlim_t room = (rlim_t)address_space + (48 << 20);
        struct rlimit limit = {room, room};
        setrlimit(RLIMIT_AS, &limit);
        for (; i < 2000000 && failed < 1000; i++) {
            struct vs_alloc alloc = make((i + 1) * 512, i);
            int rc = vs_live_put(live, &alloc, &out);
            if (rc != 0 && rc != -ENOMEM)
                _exit(1);
            failed += rc == -ENOMEM;
        }
        if (failed == 0 || i < 100000)
            _exit(2);
        uint64_t missing = 0;
        for (uint64_t k = 0; k < i; k++)
            missing += !vs_live_get(live, (k + 1) * 512, &out) || out.bytes != k;
        if (missing != failed)
            _exit(3);
        for (uint64_t k = 0; k < i; k++)
            take(live, (k + 1) * 512, &out);
        struct vs_alloc again = make(512, 1); /* freed entries serve again */
        _exit(vs_live_put(live, &again, &out) == 0 ? 0 : 4);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_take_get),  cmocka_unit_test(frees_under_way),
        cmocka_unit_test(odd_addresses), cmocka_unit_test(host_memory),
        cmocka_unit_test(against_model), cmocka_unit_test(threads),
        cmocka_unit_test(out_of_memory), cmocka_unit_test(locked_for_ever),
        cmocka_unit_test(neighbours),    cmocka_unit_test(crowded),
        cmocka_unit_test(wandering),     cmocka_unit_test(passed_on),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
