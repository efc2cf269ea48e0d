/*
 * Arenas (see arena.h and arena_inner.h): the table of them, and finding one. Their ends:
 * arena_end.c.
 *
 * Finding the thread's arena is a few loads: it is noted with the thread's place, and forgotten
 * with it (place.h). Finding the arena of an address is two loads in the map. Making one is slow,
 * and rare.
 */
#include "report/sys.h"
#include "shim/arena_inner.h"
#include "shim/arm.h"
#include "shim/decisions.h"
#include "shim/gone.h"
#include "shim/process.h"
#include "shim/say.h"
#include "shim/test_faults.h"

__thread struct vs_arena_thread vs_arena_here __attribute__((tls_model("initial-exec")));

uint32_t vs_arena_lane_new(void)
{
    static _Atomic uint32_t threads;
    uint32_t number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;

    vs_arena_here.number = number != 0 ? number : 1;
    return vs_arena_here.number;
}

uint64_t vs_arena_deadline(void)
{
    return vs_sys_clock(CLOCK_MONOTONIC) + VS_ARENA_PATIENCE_MS * UINT64_C(1000000);
}

/* False when the time is over. */
bool vs_arena_nap(uint64_t until)
{
    const struct timespec moment = {.tv_nsec = 50000};

    VS_SYS(SYS_nanosleep, &moment, NULL);
    return vs_sys_clock(CLOCK_MONOTONIC) < until;
}

/* ---- users ----------------------------------------------------------------------------------- */

static long membarrier(int command)
{
#ifdef SYS_membarrier
    return VS_SYS(SYS_membarrier, command, 0, 0);
#else
    (void)command;
    return -ENOSYS;
#endif
}

/* Of <linux/membarrier.h>, which may be older than the kernel. */
enum { BARRIER_EXPEDITED = 8, BARRIER_REGISTER = 16 };

/* After the state was changed, by an exchange that is a barrier here: from here on a user is seen
 * in its count, or sees the state. Users that have a lane of their own make no barrier; the kernel
 * makes it for them. */
void vs_arenas_see_users(const struct vs_arenas *arenas)
{
    if (arenas->one_sided) {
        membarrier(BARRIER_EXPEDITED);
    }
}

/* A thread that has ended leaves its id behind; who has got that since has got the lane. */
static bool take_lane(_Atomic int32_t *owner, int32_t self, int32_t process)
{
    int32_t before = atomic_load_explicit(owner, memory_order_relaxed);

    if (before == self) {
        return true;
    }
    if (before != 0 && VS_SYS(SYS_tgkill, process, before, 0) != -ESRCH) {
        return false;
    }
    return atomic_compare_exchange_strong(owner, &before, self);
}

void vs_arena_lane_choose(struct vs_arenas *arenas)
{
    int32_t self = (int32_t)VS_SYS(SYS_gettid), process = vs_sys_getpid();
    uint32_t lane = VS_ARENA_OWN_LANES;

    /* A vfork child shares the lane of the thread that waits for it, or has none of its own. */
    for (uint32_t i = 0; arenas->one_sided && vs_process_is_owner() && i < VS_ARENA_OWN_LANES;
         i++) {
        if (take_lane(&arenas->owner[i], self, process)) {
            lane = i;
            break;
        }
    }
    if (lane == VS_ARENA_OWN_LANES) {
        lane += vs_arena_lane() % (VS_ARENA_LANES - VS_ARENA_OWN_LANES);
    }
    vs_arena_here.lane = lane;
    vs_arena_here.arenas = arenas;
}

void vs_arena_leave(struct vs_arena *arena)
{
    vs_arena_left(arena);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* The table of this process, made where there is none. */
struct vs_arenas *vs_arenas_here(void)
{
    struct vs_arenas *arenas = vs_arenas_now(), *expected = NULL;

    if (arenas != NULL) {
        return arenas;
    }
    arenas = vs_sys_map(sizeof(*arenas));
    if (arenas == NULL) {
        return NULL;
    }
    for (unsigned i = 0; i < VS_LEDGER_MAX_DEVICES; i++) {
        uint64_t limit = vs_arm_device(i)->limit_bytes;

        arenas->device[i].limit = limit == 0 ? UINT64_MAX : limit;
    }
    arenas->one_sided = membarrier(BARRIER_REGISTER) == 0;
    if (!atomic_compare_exchange_strong(&vs_process_page()->arenas, &expected, arenas)) {
        vs_sys_unmap(arenas, sizeof(*arenas));
        arenas = expected;
    }
    return arenas;
}

struct vs_arena *vs_arena_of_identity(struct vs_arenas *arenas, uint64_t identity)
{
    uint32_t count = vs_arenas_count(arenas);

    for (uint32_t i = 0; i < count; i++) {
        struct vs_arena *arena = vs_arenas_at(arenas, i);

        if (arena != NULL &&
            atomic_load_explicit(&arena->identity, memory_order_acquire) == identity) {
            return arena;
        }
    }
    return NULL;
}

static bool is_ending(const struct vs_arenas *arenas, CUcontext handle)
{
    for (unsigned i = 0; i < VS_ARENA_ENDING; i++) {
        if (arenas->ending[i] == handle) {
            return true;
        }
    }
    return false;
}

enum found { FOUND, TO_BE_MADE, ENDING, GONE, STALE, NO_ROOM };

/* A place of the table for this identity. The questions under the lock are what keeps an arena from
 * being made for a context that is about to end, or has ended, under the old identity or another.
 */
static enum found place_for(struct vs_arenas *arenas, CUcontext handle, uint64_t identity,
                            struct vs_arena **out)
{
    struct vs_arena *arena, *free_one = NULL;
    enum found found = FOUND;
    uint32_t count;

    vs_lock_take(&arenas->making);
    count = arenas->count;
    arena = vs_arena_of_identity(arenas, identity);
    if (arena == NULL && is_ending(arenas, handle)) {
        vs_lock_drop(&arenas->making);
        return ENDING;
    }
    if (arena == NULL && vs_gone(handle) == VS_GONE) {
        vs_lock_drop(&arenas->making);
        return GONE;
    }
    if (arena == NULL && vs_place_known(handle) != identity) {
        vs_lock_drop(&arenas->making);
        return STALE;
    }
    for (uint32_t i = 0; arena == NULL && free_one == NULL && i < count; i++) {
        struct vs_arena *one = arenas->table[i];

        if (atomic_load_explicit(&one->state, memory_order_acquire) == VS_ARENA_FREE) {
            free_one = one;
        }
    }
    if (arena == NULL && free_one == NULL && count < VS_ARENAS) {
        free_one = vs_sys_map(sizeof(*free_one));
        if (free_one != NULL) {
            free_one->arenas = arenas;
            free_one->number = count + 1;
            atomic_store_explicit(&arenas->table[count], free_one, memory_order_release);
            atomic_store_explicit(&arenas->count, count + 1, memory_order_release);
        }
    }
    if (arena == NULL) {
        found = free_one != NULL ? TO_BE_MADE : NO_ROOM;
    }
    if (found == TO_BE_MADE) {
        arena = free_one;
        atomic_store_explicit(&arena->state, VS_ARENA_MAKING, memory_order_relaxed);
        atomic_store_explicit(&arena->identity, identity, memory_order_release);
    }
    vs_lock_drop(&arenas->making);
    *out = arena;
    return found;
}

void vs_arena_place_back(struct vs_arena *arena)
{
    atomic_store_explicit(&arena->identity, 0, memory_order_relaxed);
    atomic_store_explicit(&arena->state, VS_ARENA_FREE, memory_order_release);
}

static void configure(struct vs_pool_config *config, const struct vs_arena *arena, bool first)
{
    const struct vs_options *options = vs_arm_resolved();

    vs_pool_config_default(config, arena->backing,
                           vs_arm_device((unsigned)arena->device)->total_bytes);
    config->keep_bytes = first ? options->pool_size : 0;
    config->trim_above = options->trim_above;
    if (options->pool_decay_ms == 0) {
        config->trim_above = 0; /* at once */
    }
    config->faults = vs_test_faults();
}

/* POOL_SIZE, at the device's first use. */
static void reserve_first(struct vs_arena *arena)
{
    uint64_t size = vs_arm_resolved()->pool_size;

    if (size > 0 && vs_pool_reserve(arena->pool, size) != 0) {
        vs_ledger_note("pool-size", "VRAMSHIM_POOL_SIZE could not be reserved: the device, or the "
                                    "cap, has no room for all of it");
        vs_say(VS_SAY_RESOLVED, "device %d: VRAMSHIM_POOL_SIZE could not be reserved in full",
               arena->device);
    }
}

/* Fills a place of the table. Leaves it to the caller, as a user. */
static bool make(struct vs_arena *arena, const struct vs_guard *guard, CUcontext context,
                 CUdevice device)
{
    struct vs_pool_config config;
    uint32_t none = 0;
    bool first;
    int error = 0;

    arena->context = context;
    arena->device = device;
    arena->driver = guard->driver;
    arena->charge = &arena->arenas->device[device];
    arena->stay = false;
    arena->unfit = false;
    arena->reserved = 0;
    arena->charged = 0;
    arena->wait_ns = 0;
    arena->giving = NULL; /* an earlier context's has gone with it */
    arena->backing = vs_arena_backing(&guard->driver->real, device, &arena->direct_rdma);
    first = atomic_compare_exchange_strong(&arena->charge->seen, &none, 1);
    configure(&config, arena, first);
    arena->trim_above = config.trim_above;
    vs_fences_init(&arena->fences, &guard->driver->real, context);
    arena->pool = vs_pool_new(&config, &vs_arena_ops, arena, &error);
    if (arena->pool == NULL) {
        vs_fences_fini(&arena->fences, true);
        atomic_store(&arena->charge->seen, first ? 0 : 1);
        vs_arena_place_back(arena);
        return false;
    }
    vs_arena_count_in(arena);
    atomic_store_explicit(&arena->state, VS_ARENA_ALIVE, memory_order_seq_cst);
    vs_decisions_backing(arena);
    if (first) {
        reserve_first(arena);
    }
    vs_decay_begin();
    return true;
}

static void cannot(void)
{
    vs_ledger_note("no-pool", "a context got no pool (no memory for its books, or too many "
                              "contexts): the driver serves it");
}

/* Memory can still be had in this context? A reset leaves its handle current, but dead. */
static bool lives(const struct vs_entries *real, CUcontext context, CUdevice device)
{
    unsigned int flags;
    int active = 1;

    return context != vs_place_primary(device) || real->cuDevicePrimaryCtxGetState == NULL ||
           real->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

/* A context may have been destroyed while it is current here: the driver says so itself when asked
 * for memory, but mapping calls need no context and would go through. */
static bool answers(const struct vs_entries *real)
{
    size_t free_bytes, total_bytes;

    return real->cuMemGetInfo_v2 == NULL ||
           real->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
}

/* On the device, or on any where it is not known which. */
static bool capped(int device)
{
    bool any = false;

    for (int i = 0; i < VS_LEDGER_MAX_DEVICES; i++) {
        any = any || ((device < 0 || device == i) && vs_arm_device((unsigned)i)->limit_bytes != 0);
    }
    return any;
}

bool vs_arena_refuses(const struct vs_guard *guard)
{
    struct vs_place_note *note;
    struct vs_place place;

    if (!guard->counts || !vs_process_counts() ||
        !atomic_load_explicit(&vs_process_page()->pool_on, memory_order_relaxed)) {
        return false;
    }
    note = vs_place_noted(&guard->driver->real, &place);
    place = note != NULL ? note->place : place;
    if (place.context == 0 || !capped(place.device) ||
        (note != NULL && !lives(&guard->driver->real, note->owner, place.device))) {
        return false;
    }
    vs_ledger_note("no-pool-refused", "a context got no pool, which is what holds the cap: its "
                                      "plain allocations are refused");
    return true;
}

/* 1: the place is stale, ask again. 0: *out, which may be NULL. */
static int find_or_make(const struct vs_guard *guard, struct vs_place_note *note, uint64_t *until,
                        struct vs_arena **out)
{
    struct vs_place place = note->place;
    struct vs_arenas *arenas = vs_arenas_here();
    struct vs_arena *arena = NULL;

    *out = NULL;
    if (place.context == 0 || place.device < 0 || place.device >= VS_LEDGER_MAX_DEVICES ||
        !lives(&guard->driver->real, note->owner, place.device)) {
        return 0;
    }
    switch (arenas == NULL ? NO_ROOM : place_for(arenas, note->owner, place.context, &arena)) {
    case FOUND:
        if (vs_arena_enter_as(arena, place.context)) {
            break;
        }
        if (atomic_load_explicit(&arena->state, memory_order_acquire) == VS_ARENA_DEAD) {
            return 0;
        }
        arena = NULL; /* another thread makes it or ends it */
        break;
    case TO_BE_MADE:
        if (!answers(&guard->driver->real)) {
            vs_arena_place_back(arena);
            return 0;
        }
        if (!make(arena, guard, note->owner, place.device)) {
            cannot();
            return 0;
        }
        break;
    case NO_ROOM:
        cannot();
        return 0;
    case GONE:
        return 0;
    case STALE:
        return 1;
    case ENDING:
        break;
    }
    if (arena == NULL) {
        *until = *until == 0 ? vs_arena_deadline() : *until;
        return vs_arena_nap(*until) ? 1 : 0;
    }
    note->about = arena;
    *out = arena;
    return 0;
}

/* What was noted is not, or no longer, an arena that can be used. */
__attribute__((noinline)) static struct vs_arena *of_thread_slow(const struct vs_guard *guard)
{
    const struct vs_arenas *arenas;
    struct vs_place_note *note;
    struct vs_arena *arena;
    struct vs_place place;
    uint64_t until = 0;

    do {
        note = vs_place_noted(&guard->driver->real, &place);
        if (note == NULL) {
            return NULL;
        }
        arena = note->about;
        arenas = vs_arenas_now();
        if (arena != NULL && arenas != NULL && arena->arenas == arenas &&
            vs_arena_enter_as(arena, note->place.context)) {
            return arena;
        }
    } while (find_or_make(guard, note, &until, &arena) != 0);
    return arena;
}

struct vs_arena *vs_arena_of_thread(const struct vs_guard *guard)
{
    struct vs_place_note *note;
    struct vs_arena *arena;
    struct vs_place place;

    if (!guard->counts || !vs_process_counts() ||
        !atomic_load_explicit(&vs_process_page()->pool_on, memory_order_relaxed)) {
        return NULL;
    }
    note = vs_place_noted(&guard->driver->real, &place);
    if (note == NULL) {
        return NULL;
    }
    arena = note->about;
    /* What was noted before a fork is the parent's. */
    if (__builtin_expect(arena != NULL && arena->arenas == vs_arenas_now(), 1) &&
        vs_arena_enter_as(arena, note->place.context)) {
        return arena;
    }
    return of_thread_slow(guard);
}

/* ---- by address ------------------------------------------------------------------------------ */

static struct vs_arena *arena_at(struct vs_arenas *arenas, CUdeviceptr address)
{
    unsigned number = arenas == NULL ? 0 : vs_arena_map_at(&arenas->map, address);

    return number == 0 ? NULL : vs_arenas_at(arenas, number - 1);
}

bool vs_arena_claims(CUdeviceptr address)
{
    return arena_at(vs_arenas_now(), address) != NULL;
}

struct vs_arena *vs_arena_of_address(CUdeviceptr address)
{
    struct vs_arenas *arenas = vs_arenas_now();
    uint64_t until = 0;

    for (;;) {
        struct vs_arena *arena = arena_at(arenas, address);

        if (arena == NULL) {
            return NULL;
        }
        if (__builtin_expect(vs_arena_enter(arena), 1)) {
            return arena;
        }
        /* Its context is about to end, or to stay: then there is an answer soon. */
        until = until == 0 ? vs_arena_deadline() : until;
        if (atomic_load_explicit(&arena->state, memory_order_acquire) == VS_ARENA_DEAD ||
            !vs_arena_nap(until)) {
            return NULL;
        }
    }
}

void vs_arena_each(void (*visit)(struct vs_arena *arena, void *data), void *data)
{
    struct vs_arenas *arenas = vs_arenas_now();
    uint32_t count = vs_arenas_count(arenas);

    for (uint32_t i = 0; i < count; i++) {
        struct vs_arena *arena = vs_arenas_at(arenas, i);

        if (vs_arena_enter(arena)) {
            visit(arena, data);
            vs_arena_leave(arena);
        }
    }
}

struct vs_pool *vs_arena_pool(struct vs_arena *arena)
{
    return arena->pool;
}

struct vs_fences *vs_arena_fences(struct vs_arena *arena)
{
    return &arena->fences;
}

CUcontext vs_arena_context(const struct vs_arena *arena)
{
    return arena->context;
}

bool vs_arena_is_native(const struct vs_arena *arena)
{
    return arena->backing == VS_POOL_NATIVE;
}

bool vs_arena_unfit(const struct vs_arena *arena)
{
    return atomic_load_explicit(&arena->unfit, memory_order_relaxed);
}

struct vs_place vs_arena_place(const struct vs_arena *arena)
{
    return (struct vs_place){
        .context = atomic_load_explicit(&arena->identity, memory_order_relaxed),
        .device = arena->device,
    };
}
