/*
 * Threads that allocate, free (a part of it on others), submit and close epochs at once, on a
 * device whose work takes a while. What is wrong shows as two owners of the same memory, as memory
 * handed out while work that used it is neither ordered nor seen, as a breach of the driver's
 * rules, or to ThreadSanitizer.
 */
#include "pool/pool.h"
#include "report/cli/replay_device.h"
#include "tests/unit/report/testing.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (UINT64_C(1) << 20)
#define THREADS 4
#define HELD 24
#define SWAP 64 /* blocks that wait for another thread to free them */
#define LAG 20  /* submissions that are not finished */
#define CELL 512
#define HANDLES 2048 /* that are watched, and how large one may be */
#define HANDLE_BYTES (32 * MIB)
#define CELLS_BYTES (HANDLES * HANDLE_BYTES / CELL * sizeof(_Atomic uint32_t))

struct shared {
    struct vs_replay_device device; /* first: the ops' world */
    struct vs_pool *pool;
    _Atomic uint64_t submitted, barrier, seen;
    _Atomic uint64_t recorded[VS_POOL_FENCES];
    _Atomic uint64_t swap[SWAP]; /* addresses; 0: none */
    _Atomic unsigned captures;   /* record and order are refused meanwhile */
    const char *_Atomic breach;
    _Atomic uint32_t *last_use; /* per cell of memory: submission, and OWNED */
    bool trimmer, giants;
};

#define OWNED UINT32_C(0x80000000)

static struct shared shared;
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

static void raise_to(_Atomic uint64_t *what, uint64_t value)
{
    uint64_t now = atomic_load(what);

    while (now < value && !atomic_compare_exchange_weak(what, &now, value)) {
        continue;
    }
}

static int lag_record(void *world, uint32_t fence)
{
    (void)world;
    if (atomic_load(&shared.captures)) {
        return 1;
    }
    atomic_store(&shared.recorded[fence], atomic_load(&shared.submitted));
    return 0;
}

static int lag_order(void *world, uint32_t fence)
{
    (void)world;
    if (atomic_load(&shared.captures)) {
        return 1;
    }
    raise_to(&shared.barrier, atomic_load(&shared.recorded[fence]));
    return 0;
}

static int lag_query(void *world, uint32_t fence)
{
    uint64_t recorded = atomic_load(&shared.recorded[fence]);

    (void)world;
    if (recorded + LAG > atomic_load(&shared.submitted)) {
        return 1;
    }
    raise_to(&shared.seen, recorded);
    return 0;
}

static int lag_wait(void *world, uint32_t fence)
{
    (void)world;
    raise_to(&shared.seen, atomic_load(&shared.recorded[fence]));
    return 0;
}

static bool lag_one_stream(void *world)
{
    (void)world;
    return atomic_load(&shared.submitted) % 2;
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
    if (handle == 0) {
        offset -= FIRST_WHOLE;
    } else if (handle >= HANDLES || offset >= HANDLE_BYTES) {
        broke("a handle beyond those that are watched");
        return NULL;
    } else {
        offset += handle * HANDLE_BYTES;
    }
    if (offset >= HANDLES * HANDLE_BYTES) {
        broke("an address beyond those that are watched");
        return NULL;
    }
    return &shared.last_use[offset / CELL];
}

static void mark(uint64_t address, uint64_t bytes, bool owned)
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
        uint64_t free_up_to = atomic_load(&shared.barrier), seen = atomic_load(&shared.seen);

        if ((was & OWNED) != (owned ? 0 : OWNED)) {
            broke(owned ? "memory with two owners" : "memory that lost its owner");
        }
        if (owned && was > free_up_to && was > seen) {
            broke("memory handed out while it is in use");
        }
        /* Work is submitted that uses the block, right after it is handed out and until it goes. */
        atomic_store(cell, owned ? OWNED : (uint32_t)atomic_load(&shared.submitted));
    }
}

static void submit(void)
{
    if (vs_pool_open_epoch(shared.pool) && vs_pool_close_epoch(shared.pool) < 0) {
        broke("closing an epoch failed");
    }
    atomic_fetch_add(&shared.submitted, 1);
}

struct mine {
    uint64_t address, bytes;
};

static void give_up(struct mine *block)
{
    mark(block->address, block->bytes, false);
    if (vs_pool_free(shared.pool, block->address)) {
        broke("a free failed");
    }
    block->address = 0;
}

/* Leaves a block to whoever comes by, or takes one that was left. */
static void swap(struct mine *block, uint64_t where)
{
    uint64_t start, bytes;
    struct mine other = {.address = atomic_exchange(&shared.swap[where % SWAP], block->address)};

    block->address = 0;
    if (other.address) {
        if (vs_pool_find(shared.pool, other.address, &start, &bytes) || start != other.address) {
            broke("a live block is not found");
        }
        mark(other.address, CELL, false); /* only the smallest are left to others */
        if (vs_pool_free(shared.pool, other.address)) {
            broke("a free on another thread failed");
        }
    }
}

static uint64_t size_of(uint64_t *seed)
{
    uint64_t base = UINT64_C(512) << testing_random(seed) % 13; /* to 2 MiB */

    return base + testing_random(seed) % base;
}

static void *work(void *argument)
{
    uint32_t lane = (uint32_t)(uintptr_t)argument;
    uint64_t seed = lane * UINT64_C(7919) + 17;
    struct mine blocks[HELD] = {{0}};

    for (unsigned i = 0; i < steps && !atomic_load(&shared.breach); i++) {
        struct mine *block = &blocks[testing_random(&seed) % HELD];
        bool capturing = atomic_load(&shared.captures) > 0;

        if (block->address && block->bytes == CELL) {
            swap(block, testing_random(&seed));
        } else if (block->address) {
            give_up(block);
        } else {
            struct vs_pool_request request = {.lane = lane, .capturing = capturing};
            int result;

            block->bytes = testing_random(&seed) % 3 ? size_of(&seed) : CELL;
            if (shared.giants && testing_random(&seed) % 200 == 0) {
                block->bytes = 64 * MIB + testing_random(&seed) % (64 * MIB);
            }
            request.bytes = block->bytes;
            result = vs_pool_alloc(shared.pool, &request, &block->address);
            if (result) {
                block->address = 0;
                if (result != -ENOMEM) {
                    broke("an allocation failed otherwise than for memory");
                }
                continue;
            }
            mark(block->address, block->bytes, true);
        }
        if (testing_random(&seed) % 2) {
            submit();
        }
        if (shared.trimmer && testing_random(&seed) % 512 == 0) {
            vs_pool_trim(shared.pool, 4 * MIB, testing_random(&seed) % 2);
            vs_pool_decay(shared.pool);
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        if (blocks[i].address) {
            give_up(&blocks[i]);
        }
    }
    return NULL;
}

/* The first breach, or NULL. */
static const char *run_threads(enum vs_pool_backing backing, uint64_t cap, bool trimmer,
                               bool giants, uint32_t faults)
{
    struct vs_pool_ops ops = vs_replay_device_ops;
    struct vs_pool_config config;
    pthread_t thread[THREADS];
    uint64_t left;
    int error;

    memset(&shared, 0, sizeof(shared));
    shared.trimmer = trimmer;
    shared.giants = giants;
    /* Hardly any of it is touched, so no malloc, which may fill all of it. */
    shared.last_use = mmap(NULL, CELLS_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(shared.last_use, MAP_FAILED);
    vs_replay_device_init(&shared.device, cap);
    ops.record = lag_record;
    ops.order = lag_order;
    ops.query = lag_query;
    ops.wait = lag_wait;
    ops.one_stream = lag_one_stream;
    vs_pool_config_default(&config, backing, 512 * MIB);
    config.faults = faults;
    shared.pool = vs_pool_new(&config, &ops, &shared, &error);
    assert_non_null(shared.pool);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    for (unsigned i = 0; i < SWAP; i++) {
        left = atomic_load(&shared.swap[i]);
        if (left) {
            assert_int_equal(vs_pool_free(shared.pool, left), 0);
        }
    }
    const char *breach = atomic_load(&shared.breach);
    if (!breach && !shared.device.breach) {
        assert_int_equal(vs_pool_settle(shared.pool), 0);
        assert_int_equal(vs_pool_validate(shared.pool), 0);
    }
    vs_pool_free_all(shared.pool, false);
    breach = breach ? breach : shared.device.breach;
    breach = breach ? breach : vs_replay_device_leak(&shared.device);
    vs_replay_device_fini(&shared.device);
    munmap((void *)shared.last_use, CELLS_BYTES);
    return breach;
}

static void threads(enum vs_pool_backing backing, uint64_t cap, bool trimmer, bool giants)
{
    const char *breach = run_threads(backing, cap, trimmer, giants, 0);

    if (breach) {
        fail_msg("%s", breach);
    }
}

static void vmm_with_room(void **state)
{
    (void)state;
    threads(VS_POOL_VMM, 400 * MIB, false, false);
}

static void vmm_tight(void **state)
{
    (void)state;
    threads(VS_POOL_VMM, 64 * MIB, true, false);
}

/* Large ones get views of what lies free. */
static void vmm_giants(void **state)
{
    (void)state;
    threads(VS_POOL_VMM, 512 * MIB, false, true);
}

static void vmm_giants_trimmed(void **state)
{
    (void)state;
    threads(VS_POOL_VMM, 320 * MIB, true, true);
}

static void native_with_room(void **state)
{
    (void)state;
    threads(VS_POOL_NATIVE, 400 * MIB, false, false);
}

static void native_tight(void **state)
{
    (void)state;
    threads(VS_POOL_NATIVE, 64 * MIB, true, false);
}

/* What the others look for would be found. */
static void no_fences_are_noticed(void **state)
{
    static const enum vs_pool_backing backings[] = {VS_POOL_VMM, VS_POOL_NATIVE};

    (void)state;
    for (size_t i = 0; i < sizeof(backings) / sizeof(backings[0]); i++) {
        const char *breach = run_threads(backings[i], 64 * MIB, false, false, VS_POOL_NO_FENCES);

        assert_non_null(breach);
        assert_string_equal(breach, "memory handed out while it is in use");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vmm_with_room),
        cmocka_unit_test(vmm_tight),
        cmocka_unit_test(vmm_giants),
        cmocka_unit_test(vmm_giants_trimmed),
        cmocka_unit_test(native_with_room),
        cmocka_unit_test(native_tight),
        cmocka_unit_test(no_fences_are_noticed),
    };

    if (argc > 1) {
        steps = (unsigned)strtoul(argv[1], NULL, 0);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
