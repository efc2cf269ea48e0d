/*
 * Threads with a stream each that allocate and free on it, plainly, and on each other's streams,
 * and end their streams and begin new ones, on a device whose work takes a while. What is wrong
 * shows as two owners of the same memory, as memory handed out to a stream that comes after
 * nothing of what used it, as a breach of the driver's rules, or to ThreadSanitizer.
 */
#include "pool/pool.h"
#include "report/cli/replay_device.h"
#include "tests/unit/report/testing.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define THREADS 4
#define HELD 24
#define SWAP 16
#define LAG 20      /* submissions to a stream that are not finished */
#define STREAMS 128 /* ever; 0 is none */
#define CELL 512
#define HANDLES 2048 /* that are watched, and how large one may be */
#define HANDLE_BYTES (32 * MIB)

/* A submission: its stream, and its number there. */
#define USE(stream, number) ((uint32_t)(stream) << 24 | (uint32_t)(number))
#define STREAM_OF(use) ((use) >> 24 & (STREAMS - 1))
#define NUMBER_OF(use) ((use)&0xffffff)
#define OWNED UINT32_C(0x80000000)

/* What an event on a stream covers: of each stream, what was submitted there up to this. */
struct event {
    _Atomic uint32_t stream, of[STREAMS];
};

/* A block that waits for another thread to free it, behind an event on its stream. */
struct left {
    uint64_t address, bytes, mark;
    uint32_t number; /* as the pool knew the stream */
    struct event event;
};

struct shared {
    struct vs_replay_device device; /* first: the ops' world */
    struct vs_pool *pool;
    _Atomic uint32_t streams; /* that there have been */
    _Atomic uint32_t submitted[STREAMS], seen[STREAMS], barrier[STREAMS];
    _Atomic uint32_t after[STREAMS][STREAMS]; /* [t][s]: what of s comes before later work of t */
    _Atomic uint32_t by_number[VS_POOL_STREAMS + 1];
    _Atomic uint32_t ended[STREAMS]; /* 1: is being ended; 2: is gone, and its work done */
    _Atomic uint32_t recorded[VS_POOL_FENCES][STREAMS];
    struct event stream_recorded[VS_POOL_STREAMS + 1][VS_POOL_STREAM_FENCES];
    _Atomic uint32_t asked; /* for fences of streams */
    pthread_mutex_t swapping;
    struct left swap[SWAP];
    const char *_Atomic breach;
    _Atomic uint32_t *cells; /* the last use, and OWNED */
    bool trimmer;
};

static struct shared shared;

#define EACH_STREAM(s) for (uint32_t s = 1, end_ = atomic_load(&shared.streams); s <= end_; s++)

#if defined(__SANITIZE_THREAD__)
static unsigned steps = 2500;
#else
static unsigned steps = 20000;
#endif

static void broke(const char *what)
{
    const char *none = NULL;

    atomic_compare_exchange_strong(&shared.breach, &none, what);
}

static void raise_to(_Atomic uint32_t *what, uint32_t value)
{
    uint32_t now = atomic_load(what);

    while (now < value && !atomic_compare_exchange_weak(what, &now, value)) {
        continue;
    }
}

static bool passed(uint32_t stream, uint32_t number)
{
    return number <= atomic_load(&shared.seen[stream]) || atomic_load(&shared.ended[stream]) == 2 ||
           number + LAG <= atomic_load(&shared.submitted[stream]);
}

/* The stream's work, and what that waits for. */
static void record_event(struct event *event, uint32_t stream)
{
    /* First: what that waits for is noted by then. */
    uint32_t last = atomic_load(&shared.submitted[stream]);

    atomic_store(&event->stream, stream);
    EACH_STREAM(s)
    {
        uint32_t before = atomic_load(&shared.after[stream][s]);
        uint32_t all = atomic_load(&shared.barrier[s]);

        atomic_store(&event->of[s], before > all ? before : all);
    }
    atomic_store(&event->of[stream], last);
}

/* Later work of a stream, or the host, comes after it. */
static void put_behind(_Atomic uint32_t *clock, const struct event *event)
{
    EACH_STREAM(s)
    {
        raise_to(&clock[s], atomic_load(&event->of[s]));
    }
}

static int lag_record(void *world, uint32_t fence)
{
    (void)world;
    EACH_STREAM(s)
    {
        atomic_store(&shared.recorded[fence][s], atomic_load(&shared.submitted[s]));
    }
    return 0;
}

static int lag_order(void *world, uint32_t fence)
{
    (void)world;
    EACH_STREAM(s)
    {
        raise_to(&shared.barrier[s], atomic_load(&shared.recorded[fence][s]));
    }
    return 0;
}

static int lag_wait(void *world, uint32_t fence)
{
    (void)world;
    EACH_STREAM(s)
    {
        raise_to(&shared.seen[s], atomic_load(&shared.recorded[fence][s]));
    }
    return 0;
}

static int lag_query(void *world, uint32_t fence)
{
    EACH_STREAM(s)
    {
        if (!passed(s, atomic_load(&shared.recorded[fence][s]))) {
            return 1;
        }
    }
    return lag_wait(world, fence);
}

static int lag_stream_record(void *world, uint32_t number, uint32_t fence)
{
    uint32_t stream = atomic_load(&shared.by_number[number]);

    (void)world;
    if (stream == 0 || atomic_load(&shared.ended[stream]) == 2) {
        broke("a fence is recorded on no stream");
        return -EINVAL;
    }
    if (atomic_fetch_add(&shared.asked, 1) % 8 == 7) {
        return 1; /* not now */
    }
    record_event(&shared.stream_recorded[number][fence], stream);
    return 0;
}

static int lag_stream_order(void *world, uint32_t waiter, uint32_t number, uint32_t fence)
{
    (void)world;
    put_behind(shared.after[atomic_load(&shared.by_number[waiter])],
               &shared.stream_recorded[number][fence]);
    return 0;
}

static int lag_stream_wait(void *world, uint32_t number, uint32_t fence, bool patient)
{
    (void)world;
    (void)patient;
    put_behind(shared.seen, &shared.stream_recorded[number][fence]);
    return 0;
}

static int lag_stream_query(void *world, uint32_t number, uint32_t fence)
{
    const struct event *event = &shared.stream_recorded[number][fence];
    uint32_t stream = atomic_load(&event->stream);

    return passed(stream, atomic_load(&event->of[stream]))
               ? lag_stream_wait(world, number, fence, true)
               : 1;
}

static bool lag_one_stream(void *world)
{
    (void)world;
    return atomic_load(&shared.submitted[1]) % 2;
}

static uint64_t lag_room(void *world)
{
    struct vs_replay_device *device = world;
    uint64_t room;

    vs_pool_lock(&device->lock, &vs_replay_device_ops, device);
    room = device->cap - device->charged;
    vs_pool_unlock(&device->lock);
    return room;
}

/* Where the bookkeeping device's whole allocations begin. */
#define FIRST_WHOLE (UINT64_C(1) << 40)

/* The cell of memory that lies behind an address, for memory may be mapped at several. */
static _Atomic uint32_t *cell_at(uint64_t address)
{
    uint64_t handle, offset;

    if (!vs_replay_device_behind(&shared.device, address, &handle, &offset)) {
        broke("a block where there is no memory");
        return NULL;
    }
    offset += handle ? handle * HANDLE_BYTES : -FIRST_WHOLE;
    if (offset >= HANDLES * HANDLE_BYTES) {
        broke("memory beyond what is watched");
        return NULL;
    }
    return &shared.cells[offset / CELL];
}

/* Is a use over for what comes later on a stream, or (0) on any? */
static bool over(uint32_t use, uint32_t stream)
{
    uint32_t of = STREAM_OF(use), number = NUMBER_OF(use);

    return of == stream || number <= atomic_load(&shared.seen[of]) ||
           number <= atomic_load(&shared.barrier[of]) ||
           (stream && number <= atomic_load(&shared.after[stream][of]));
}

/* Each cell of a block becomes this; a stream (0: anybody) takes it, or (-1) gives it away. */
static void mark(uint64_t address, uint64_t bytes, uint32_t becomes, int stream)
{
    _Atomic uint32_t *cell = NULL;

    for (uint64_t at = address; at < address + bytes; at += CELL, cell++) {
        if (at == address || at % VS_POOL_PAGE == 0) {
            cell = cell_at(at);
        }
        if (!cell) {
            return;
        }
        uint32_t was = atomic_load(cell);

        if ((was & OWNED) != (stream >= 0 ? 0 : OWNED)) {
            broke(stream >= 0 ? "memory with two owners" : "memory that lost its owner");
        }
        if (stream >= 0 && !over(was, (uint32_t)stream)) {
            broke("memory handed out while it is in use");
        }
        atomic_store(cell, becomes);
    }
}

struct mine {
    uint64_t address, bytes;
    uint32_t use; /* the last */
};

/* A thread, and its stream: as the pool knows it, and of all that there have been. */
struct thread {
    uint32_t lane, number, stream;
    uint64_t seed;
    struct mine blocks[HELD];
};

/* Work on a block, on the thread's stream. */
static void submit(struct thread *thread, struct mine *block)
{
    if (vs_pool_open_epoch(shared.pool) && vs_pool_close_epoch(shared.pool) < 0) {
        broke("closing an epoch failed");
    }
    if (thread->number && vs_pool_stream_open(shared.pool, thread->number) &&
        vs_pool_stream_close(shared.pool, thread->number) < 0) {
        broke("closing a stream failed");
    }
    block->use = USE(thread->stream, 1 + atomic_fetch_add(&shared.submitted[thread->stream], 1));
}

/* On the stream, or plainly. */
static void give_up(struct thread *thread, struct mine *block)
{
    int result;

    if (STREAM_OF(block->use) != thread->stream) { /* of its stream before, which it comes after */
        submit(thread, block);
    }
    mark(block->address, block->bytes, block->use, -1);
    if (thread->number && testing_random(&thread->seed) % 4) {
        result = vs_pool_free_on(shared.pool, block->address, thread->number);
    } else {
        result = vs_pool_free(shared.pool, block->address);
    }
    if (result) {
        broke("a free failed");
    }
    block->address = 0;
}

/* Leaves a block to whoever comes by, and frees one that was left, behind what used it. */
static void swap(struct thread *thread, struct mine *block)
{
    struct left left = {.address = block->address, .bytes = block->bytes};
    struct left *place = &shared.swap[testing_random(&thread->seed) % SWAP], other;
    struct mine taken;

    record_event(&left.event, thread->stream);
    if (thread->number) {
        left.number = thread->number;
        left.mark = vs_pool_stream_mark(shared.pool, thread->number);
    }
    pthread_mutex_lock(&shared.swapping);
    other = *place;
    *place = left;
    pthread_mutex_unlock(&shared.swapping);
    block->address = 0;
    if (!other.address) {
        return;
    }
    taken = (struct mine){.address = other.address, .bytes = other.bytes};
    if (other.event.stream != thread->stream) {
        put_behind(shared.after[thread->stream], &other.event);
        if (thread->number && other.number) {
            vs_pool_stream_after(shared.pool, thread->number, other.number, other.mark);
        }
    }
    submit(thread, &taken);
    give_up(thread, &taken);
}

/* Without a number where the pool has none: it works plainly then. */
static void begin(struct thread *thread)
{
    uint32_t other, before = thread->stream;
    struct event event;

    thread->stream = 1 + atomic_fetch_add(&shared.streams, 1);
    thread->number = vs_pool_stream_begin(shared.pool, true);
    if (thread->number > VS_POOL_STREAMS) {
        broke("a number that is none");
        thread->number = 0;
    }
    if (thread->number) {
        other = atomic_exchange(&shared.by_number[thread->number], thread->stream);
        if (other && !atomic_load(&shared.ended[other])) {
            broke("two streams have the same number");
        }
    }
    /* The program makes it come after the one before, and does not say so. */
    record_event(&event, before);
    put_behind(shared.after[thread->stream], &event);
}

static void end(struct thread *thread)
{
    atomic_store(&shared.ended[thread->stream], 1);
    if (thread->number) {
        vs_pool_stream_end(shared.pool, thread->number);
    }
    atomic_store(&shared.ended[thread->stream], 2);
}

/* The host waits for the thread's stream. */
static void sync_stream(struct thread *thread)
{
    struct event event;
    uint64_t known;

    if (thread->number == 0) {
        return;
    }
    known = vs_pool_stream_mark(shared.pool, thread->number);
    record_event(&event, thread->stream);
    put_behind(shared.seen, &event);
    vs_pool_stream_seen(shared.pool, thread->number, known);
}

static uint64_t size_of(uint64_t *seed)
{
    uint64_t base = UINT64_C(512) << testing_random(seed) % 13; /* to 2 MiB */

    return testing_random(seed) % 64 ? base + testing_random(seed) % base
                                     : MIB + testing_random(seed) % (8 * MIB);
}

/* For the thread's stream, or for anybody. */
static void take(struct thread *thread, struct mine *block)
{
    bool plain = thread->number == 0 || testing_random(&thread->seed) % 4 == 0;
    struct vs_pool_request request = {.bytes = size_of(&thread->seed),
                                      .lane = thread->lane,
                                      .stream = plain ? 0 : thread->number};
    uint64_t start;
    int result = vs_pool_alloc(shared.pool, &request, &block->address);

    if (result) {
        block->address = 0;
        if (result != -ENOMEM) {
            broke("an allocation failed otherwise than for memory");
        }
        return;
    }
    /* All that it occupies: who frees it speaks for what was there before. */
    if (vs_pool_find(shared.pool, block->address, &start, &block->bytes) ||
        start != block->address) {
        broke("a live block is not found");
        block->bytes = request.bytes;
    }
    mark(block->address, block->bytes, OWNED, plain ? 0 : (int)thread->stream);
    submit(thread, block);
}

static void *work(void *argument)
{
    struct thread *thread = argument;

    begin(thread);
    for (unsigned i = 0; i < steps && !atomic_load(&shared.breach); i++) {
        struct mine *block = &thread->blocks[testing_random(&thread->seed) % HELD];
        uint64_t dice = testing_random(&thread->seed) % 1024;

        if (!block->address) {
            take(thread, block);
        } else if (dice % 8 == 0) {
            swap(thread, block);
        } else {
            give_up(thread, block);
        }
        if (dice < 16) {
            sync_stream(thread);
        } else if (dice == 16 && atomic_load(&shared.streams) < STREAMS - 1 - THREADS) {
            end(thread); /* what was allocated on it stays */
            begin(thread);
        } else if (shared.trimmer && dice < 20) {
            vs_pool_trim(shared.pool, 4 * MIB, dice % 2);
            vs_pool_decay(shared.pool);
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        if (thread->blocks[i].address) {
            give_up(thread, &thread->blocks[i]);
        }
    }
    end(thread);
    return NULL;
}

static void begin_world(enum vs_pool_backing backing, uint64_t cap, bool trimmer, uint32_t faults)
{
    struct vs_pool_ops ops = vs_replay_device_ops;
    struct vs_pool_config config;
    int error;

    memset(&shared, 0, sizeof(shared));
    shared.trimmer = trimmer;
    shared.cells = calloc(HANDLES * HANDLE_BYTES / CELL, sizeof(*shared.cells));
    assert_non_null(shared.cells);
    pthread_mutex_init(&shared.swapping, NULL);
    vs_replay_device_init(&shared.device, cap);
    ops.record = lag_record;
    ops.order = lag_order;
    ops.query = lag_query;
    ops.wait = lag_wait;
    ops.stream_record = lag_stream_record;
    ops.stream_order = lag_stream_order;
    ops.stream_query = lag_stream_query;
    ops.stream_wait = lag_stream_wait;
    ops.one_stream = lag_one_stream;
    ops.room = lag_room;
    vs_pool_config_default(&config, backing, 512 * MIB);
    config.faults = faults;
    shared.pool = vs_pool_new(&config, &ops, &shared, &error);
    assert_non_null(shared.pool);
}

/* Gives all back; the first breach, or NULL. */
static const char *end_world(void)
{
    const char *breach;

    for (unsigned i = 0; i < SWAP; i++) {
        if (shared.swap[i].address) {
            assert_int_equal(vs_pool_free(shared.pool, shared.swap[i].address), 0);
        }
    }
    breach = atomic_load(&shared.breach);
    if (!breach && !shared.device.breach) {
        assert_int_equal(vs_pool_settle(shared.pool), 0);
        assert_int_equal(vs_pool_validate(shared.pool), 0);
    }
    vs_pool_free_all(shared.pool, false);
    breach = breach ? breach : shared.device.breach;
    breach = breach ? breach : vs_replay_device_leak(&shared.device);
    vs_replay_device_fini(&shared.device);
    pthread_mutex_destroy(&shared.swapping);
    free(shared.cells);
    return breach;
}

static const char *run_threads(enum vs_pool_backing backing, uint64_t cap, bool trimmer,
                               uint32_t faults)
{
    static struct thread threads[THREADS];
    pthread_t running[THREADS];
    uint64_t seed = testing_seed();

    begin_world(backing, cap, trimmer, faults);
    memset(threads, 0, sizeof(threads));
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i].lane = i;
        threads[i].seed = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        assert_int_equal(pthread_create(&running[i], NULL, work, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(running[i], NULL);
    }
    return end_world();
}

static void runs(enum vs_pool_backing backing, uint64_t cap, bool trimmer)
{
    const char *breach = run_threads(backing, cap, trimmer, 0);

    if (breach) {
        fail_msg("%s", breach);
    }
}

static void vmm_with_room(void **state)
{
    (void)state;
    runs(VS_POOL_VMM, 400 * MIB, false);
}

static void vmm_tight(void **state)
{
    (void)state;
    runs(VS_POOL_VMM, 64 * MIB, true);
}

static void native_with_room(void **state)
{
    (void)state;
    runs(VS_POOL_NATIVE, 400 * MIB, false);
}

static void native_tight(void **state)
{
    (void)state;
    runs(VS_POOL_NATIVE, 64 * MIB, true);
}

/* What the others look for would be found. */
static void no_fences_are_noticed(void **state)
{
    static const enum vs_pool_backing backings[] = {VS_POOL_VMM, VS_POOL_NATIVE};

    (void)state;
    for (size_t i = 0; i < sizeof(backings) / sizeof(backings[0]); i++) {
        const char *breach = run_threads(backings[i], 64 * MIB, false, VS_POOL_NO_FENCES);

        assert_non_null(breach);
        assert_string_equal(breach, "memory handed out while it is in use");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vmm_with_room),         cmocka_unit_test(vmm_tight),
        cmocka_unit_test(native_with_room),      cmocka_unit_test(native_tight),
        cmocka_unit_test(no_fences_are_noticed),
    };

    if (argc > 1) {
        steps = (unsigned)strtoul(argv[1], NULL, 0);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
