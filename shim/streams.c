/*
 * Streams and their numbers (see streams.h and stream_inner.h).
 *
 * Finding a stream's number is a look at what the thread remembers, valid until any handle dies
 * (place.h); else a look into the arenas' tables; and only where it is in none is the driver asked
 * whose the stream is.
 *
 * Locks: each arena's streams->lock, a leaf, held over no call out.
 */
#include "report/sys.h"
#include "shim/fence_driver.h"
#include "shim/fence_streams.h"
#include "shim/stream_inner.h"

#define RETRY_NS UINT64_C(100000000) /* where there was no number */

_Static_assert(VS_POOL_STREAMS <= 64, "a bit each, and marks[64]");

__thread bool vs_streams_submitting __attribute__((tls_model("initial-exec")));

/* ---- keys ------------------------------------------------------------------------------------ */

bool vs_stream_key_of(const struct vs_entries *real, CUstream stream, bool per_thread,
                      struct vs_stream_key *key)
{
    *key = (struct vs_stream_key){.stream = stream};
    if (stream == CU_STREAM_PER_THREAD || (stream == NULL && per_thread)) {
        key->stream = CU_STREAM_PER_THREAD;
        key->thread = vs_arena_lane();
    } else if (stream == NULL || stream == CU_STREAM_LEGACY) {
        key->stream = CU_STREAM_LEGACY;
    } else {
        return true;
    }
    return real->cuCtxGetCurrent != NULL && real->cuCtxGetCurrent(&key->current) == CUDA_SUCCESS &&
           key->current != NULL;
}

static uint32_t hash_of(const struct vs_stream_key *key)
{
    uint64_t mixed =
        (uintptr_t)key->stream ^ (uintptr_t)key->current << 7 ^ (uint64_t)key->thread << 3;

    return (uint32_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 57);
}
_Static_assert(VS_STREAM_BUCKETS == 128, "hash_of gives seven bits");

/* With the lock. */
static uint32_t find_linked(const struct vs_streams *streams, const struct vs_stream_key *key)
{
    uint32_t number = streams->bucket[hash_of(key)];

    while (number != 0) {
        const struct vs_stream_slot *slot = &streams->slot[number];

        if (slot->stream == key->stream && slot->current == key->current &&
            slot->thread == key->thread) {
            break;
        }
        number = slot->next;
    }
    return number;
}

uint32_t vs_stream_find(struct vs_arena *arena, const struct vs_stream_key *key, bool home)
{
    struct vs_streams *streams = vs_streams_of(arena);
    uint32_t number = 0;

    if (streams != NULL) {
        vs_lock_take(&streams->lock);
        number = find_linked(streams, key);
        if (home && number != 0 && streams->slot[number].owner != arena->context) {
            number = 0;
        }
        vs_lock_drop(&streams->lock);
    }
    return number;
}

void vs_stream_unlink(struct vs_streams *streams, uint32_t number)
{
    struct vs_stream_slot *slot = &streams->slot[number];
    const struct vs_stream_key key = {slot->stream, slot->current, slot->thread};
    uint8_t *at = &streams->bucket[hash_of(&key)];

    while (*at != number) {
        at = &streams->slot[*at].next;
    }
    *at = slot->next;
    slot->linked = false;
}

/* ---- frees that want a fence ----------------------------------------------------------------- */

void vs_streams_freed(struct vs_arena *arena, uint32_t number)
{
    struct vs_process_page *page = vs_process_page();
    struct vs_streams *streams = vs_streams_of(arena);
    struct vs_stream_slot *slot = &streams->slot[number];

    if (__builtin_expect(!vs_pool_stream_open(arena->pool, number), 1)) {
        return;
    }
    /* The other half: close_slot. Either it sees the free, or this changes the word. */
    if (atomic_exchange_explicit(&slot->announced, 1, memory_order_seq_cst) == 0) {
        atomic_fetch_add_explicit(&streams->announced, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&page->streams_announced, 1, memory_order_relaxed);
        if (vs_stream_is_default(slot->stream)) {
            atomic_fetch_add_explicit(&page->defaults_announced, 1, memory_order_relaxed);
        }
        atomic_fetch_add_explicit(&page->closings, 1, memory_order_release);
    }
}

bool vs_stream_unannounce(struct vs_streams *streams, uint32_t number)
{
    struct vs_process_page *page = vs_process_page();
    struct vs_stream_slot *slot = &streams->slot[number];

    if (atomic_exchange_explicit(&slot->announced, 0, memory_order_seq_cst) == 0) {
        return false;
    }
    atomic_fetch_sub_explicit(&streams->announced, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&page->streams_announced, 1, memory_order_relaxed);
    if (vs_stream_is_default(slot->stream)) {
        atomic_fetch_sub_explicit(&page->defaults_announced, 1, memory_order_relaxed);
    }
    return true;
}

/* Work that is submitted from here on is not covered by what cannot be recorded now. */
static void close_slot(struct vs_arena *arena, uint32_t number)
{
    struct vs_streams *streams = vs_streams_of(arena);

    if (vs_stream_unannounce(streams, number) && vs_pool_stream_open(arena->pool, number) &&
        vs_pool_stream_close(arena->pool, number) > 0) {
        atomic_store_explicit(&streams->slot[number].late, true, memory_order_release);
    }
}

struct submission {
    const struct vs_stream_key *key; /* NULL: to all of them */
};

/* The legacy stream and those that wait for it are in each other's way: what is submitted to one
 * comes before what is recorded on the other. Its fence is where a free in its order would have
 * been, so whoever submits to another stream may record it. */
static bool concerns(const struct submission *submission, const struct vs_stream_slot *slot)
{
    const struct vs_stream_key *key = submission->key;

    return key == NULL || key->stream == CU_STREAM_LEGACY || slot->stream == CU_STREAM_LEGACY ||
           (slot->stream == key->stream && slot->current == key->current &&
            slot->thread == key->thread);
}

static void close_in(struct vs_arena *arena, void *data)
{
    struct vs_streams *streams = vs_streams_of(arena);

    if (streams == NULL || atomic_load_explicit(&streams->announced, memory_order_relaxed) == 0) {
        return;
    }
    for (uint32_t i = 1; i <= VS_POOL_STREAMS; i++) {
        struct vs_stream_slot *slot = &streams->slot[i];
        bool concerned = false;

        if (atomic_load_explicit(&slot->announced, memory_order_relaxed) == 0) {
            continue;
        }
        vs_lock_take(&streams->lock);
        concerned = slot->linked && concerns(data, slot);
        vs_lock_drop(&streams->lock);
        if (concerned) {
            close_slot(arena, i);
        }
    }
}

void vs_streams_close(const struct vs_guard *guard, CUstream stream, bool per_thread)
{
    struct vs_stream_key key;
    struct submission submission = {.key = &key};

    if (vs_stream_key_of(&guard->driver->real, stream, per_thread, &key)) {
        vs_streams_submitting = true;
        vs_arena_each(close_in, &submission);
        vs_streams_submitting = false;
    }
}

void vs_streams_close_all(void)
{
    struct submission submission = {.key = NULL};

    if (vs_streams_announced()) {
        vs_streams_submitting = true;
        vs_arena_each(close_in, &submission);
        vs_streams_submitting = false;
    }
}

/* ---- giving numbers, and taking them back ---------------------------------------------------- */

/* The number is ours, and nobody knows it yet. Everything that was freed under it has been seen. */
static void prepare(struct vs_arena *arena, struct vs_stream_slot *slot, CUcontext owner)
{
    uint32_t before = atomic_exchange(&slot->state, VS_STREAM_FREE);
    bool alive = before == VS_STREAM_LIVE;

    vs_stream_see_users(slot);
    if (slot->owner != owner || !alive) {
        vs_stream_free_events(&arena->driver->real, slot, alive);
    }
    atomic_store(&slot->set, 0);
    atomic_store(&slot->wide, 0);
    atomic_store(&slot->late, false);
}

static bool is_blocking(const struct vs_entries *real, CUstream stream)
{
    CUstreamCaptureMode mode;
    unsigned int flags = 0;
    bool told;

    if (vs_stream_is_default(stream) || real->cuStreamGetFlags == NULL) {
        return true;
    }
    mode = vs_fence_relax(real);
    told = real->cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS;
    vs_fence_unrelax(real, mode);
    return !told || (flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* With the lock. */
static void link_slot(struct vs_streams *streams, uint32_t number, const struct vs_stream_key *key,
                      CUcontext owner, CUgreenCtx green)
{
    struct vs_stream_slot *slot = &streams->slot[number];
    uint8_t *bucket = &streams->bucket[hash_of(key)];

    slot->stream = key->stream;
    slot->current = key->current;
    slot->thread = key->thread;
    slot->task = key->thread != 0 ? (int32_t)VS_SYS(SYS_gettid) : 0;
    slot->owner = owner;
    slot->green = green;
    slot->next = *bucket;
    slot->linked = true;
    *bucket = (uint8_t)number;
    streams->last = number > streams->last ? number : streams->last;
    atomic_store_explicit(&slot->state, VS_STREAM_LIVE, memory_order_seq_cst);
}

static struct vs_streams *table_of(struct vs_arena *arena)
{
    struct vs_streams *streams = vs_streams_of(arena), *expected = NULL;

    if (streams == NULL) {
        streams = vs_sys_map(sizeof(*streams));
        if (streams != NULL &&
            !atomic_compare_exchange_strong(&arena->streams, &expected, streams)) {
            vs_sys_unmap(streams, sizeof(*streams));
            streams = expected;
        }
    }
    return streams;
}

static uint32_t begin(struct vs_arena *arena, struct vs_streams *streams, bool own)
{
    uint64_t now = vs_sys_clock(CLOCK_MONOTONIC_COARSE);
    uint32_t number;

    if (now < atomic_load_explicit(&streams->retry_at, memory_order_relaxed)) {
        return 0;
    }
    number = vs_pool_stream_begin(arena->pool, own);
    if (number == 0 && vs_stream_end_dead(arena)) {
        number = vs_pool_stream_begin(arena->pool, own);
    }
    if (number == 0) {
        atomic_store_explicit(&streams->retry_at, now + RETRY_NS, memory_order_relaxed);
        vs_ledger_note("many-streams",
                       "more streams took memory in their order than the pool tells "
                       "apart: the driver serves the rest");
    }
    return number;
}

static uint32_t give_number(struct vs_arena *arena, const struct vs_stream_key *key,
                            CUcontext owner, CUgreenCtx green)
{
    struct vs_streams *streams = table_of(arena);
    uint32_t number = streams != NULL ? begin(arena, streams, owner == arena->context) : 0, other;

    if (number == 0) {
        return 0;
    }
    prepare(arena, &streams->slot[number], owner);
    streams->slot[number].blocking = is_blocking(&arena->driver->real, key->stream);
    vs_lock_take(&streams->lock);
    other = find_linked(streams, key); /* another thread may have been quicker */
    if (other == 0) {
        link_slot(streams, number, key, owner, green);
    }
    vs_lock_drop(&streams->lock);
    if (other != 0) {
        vs_pool_stream_end(arena->pool, number);
        return other;
    }
    atomic_store_explicit(&vs_process_page()->streams_used, true, memory_order_relaxed);
    vs_place_handle_goes(); /* threads may remember that it had none */
    return number;
}

/* ---- finding --------------------------------------------------------------------------------- */

enum { NOTES = 8 };

/* What the thread remembers of a stream. */
struct note {
    CUstream stream;
    CUcontext current;
    uint32_t generation; /* of place.h; 0: of none */
    uint32_t number;     /* 0: it has none … */
    bool foreign;        /* … and gets none at home: the driver serves it */
    const struct vs_arenas *arenas;
    struct vs_arena *arena;
    uint64_t identity;
};

static __thread struct note notes[NOTES] __attribute__((tls_model("initial-exec")));

static struct note *note_of(const struct vs_stream_key *key)
{
    return &notes[(uintptr_t)key->stream * UINT64_C(0x9e3779b97f4a7c15) >> 61];
}
_Static_assert(NOTES == 8, "note_of takes three bits");

static uint32_t generation(void)
{
    return atomic_load_explicit(&vs_place_generation, memory_order_relaxed);
}

static bool holds(const struct note *note, const struct vs_stream_key *key, uint32_t now)
{
    return note->generation == now && note->stream == key->stream &&
           note->current == key->current && note->arenas == vs_arenas_now();
}

static void remember(const struct vs_stream_key *key, uint32_t now, const struct vs_stream_ref *ref,
                     bool foreign)
{
    *note_of(key) = (struct note){
        .stream = key->stream,
        .current = key->current,
        .generation = now,
        .number = ref->number,
        .foreign = foreign,
        .arenas = vs_arenas_now(),
        .arena = ref->arena,
        .identity = ref->number != 0 ? vs_arena_place(ref->arena).context : 0,
    };
}

/* Among the streams that have a number; the arena is held then. */
static bool find_home(const struct vs_stream_key *key, struct vs_stream_ref *ref)
{
    struct vs_arenas *arenas = vs_arenas_now();
    uint32_t count = vs_arenas_count(arenas);

    for (uint32_t i = 0; i < count; i++) {
        struct vs_arena *arena = vs_arenas_at(arenas, i);

        if (vs_streams_of(arena) == NULL || !vs_arena_enter(arena)) {
            continue;
        }
        ref->number = vs_stream_find(arena, key, true);
        if (ref->number != 0) {
            ref->arena = arena;
            return true;
        }
        vs_arena_left(arena);
    }
    return false;
}

/* What stream_fences.c needs of the driver. */
static bool can_fence(const struct vs_entries *real)
{
    return vs_fence_knows_contexts(real) && real->cuEventRecord != NULL &&
           real->cuStreamWaitEvent != NULL && real->cuEventQuery != NULL &&
           real->cuEventSynchronize != NULL;
}

/* The arena of a primary context, made where there is none yet. Memory in the order of another
 * context's streams would have to outlive that, for natively it is the device's: the driver serves
 * it. */
static struct vs_arena *home_of(const struct vs_guard *guard, CUcontext owner)
{
    const struct vs_entries *real = &guard->driver->real;
    bool entered = vs_fence_enter(real, owner);
    struct vs_arena *arena = vs_arena_of_thread(guard);

    vs_fence_leave(real, entered);
    if (arena != NULL && arena->context != owner) {
        vs_arena_left(arena);
        arena = NULL;
    }
    return arena;
}

__attribute__((noinline)) static bool find_slow(const struct vs_guard *guard, CUstream stream,
                                                bool per_thread, const struct vs_stream_key *key,
                                                uint32_t now, bool give, struct vs_stream_ref *ref)
{
    const struct vs_entries *real = &guard->driver->real;
    CUgreenCtx green = NULL;
    CUcontext owner;

    *ref = (struct vs_stream_ref){.arena = NULL};
    if (find_home(key, ref)) {
        remember(key, now, ref, false);
        return true;
    }
    if (!give) {
        remember(key, now, ref, false);
        return false;
    }
    owner = can_fence(real) ? vs_fence_stream_owner(real, stream, per_thread, &green) : NULL;
    if (owner == NULL || !vs_place_is_primary(owner)) {
        remember(key, now, ref, true);
        return false;
    }
    ref->arena = home_of(guard, owner);
    if (ref->arena == NULL) {
        return false;
    }
    ref->number = give_number(ref->arena, key, owner, green);
    if (ref->number == 0) {
        vs_arena_left(ref->arena);
        return false;
    }
    remember(key, generation(), ref, false);
    return true;
}

bool vs_streams_home(const struct vs_guard *guard, CUstream stream, bool per_thread, bool give,
                     struct vs_stream_ref *ref)
{
    uint32_t now = generation(); /* before the driver is asked for the context */
    const struct note *note;
    struct vs_stream_key key;

    if (!guard->counts || !vs_process_counts() ||
        !atomic_load_explicit(&vs_process_page()->pool_on, memory_order_relaxed) ||
        !vs_stream_key_of(&guard->driver->real, stream, per_thread, &key)) {
        return false;
    }
    note = note_of(&key);
    if (__builtin_expect(holds(note, &key, now), 1)) {
        if (note->number == 0 && (note->foreign || !give)) {
            return false;
        }
        if (note->number != 0 && vs_arena_enter_as(note->arena, note->identity)) {
            *ref = (struct vs_stream_ref){note->arena, note->number};
            return true;
        }
    }
    return find_slow(guard, stream, per_thread, &key, now, give, ref);
}

uint32_t vs_streams_number(const struct vs_guard *guard, struct vs_arena *arena, CUstream stream,
                           bool per_thread)
{
    const struct vs_entries *real = &guard->driver->real;
    uint32_t now = generation(), number;
    const struct note *note;
    CUgreenCtx green = NULL;
    CUcontext owner;
    struct vs_stream_key key;

    if (!can_fence(real) || !vs_stream_key_of(real, stream, per_thread, &key)) {
        return 0;
    }
    note = note_of(&key);
    if (__builtin_expect(note->number != 0 && note->arena == arena && holds(note, &key, now) &&
                             note->identity == vs_arena_place(arena).context,
                         1)) {
        return note->number;
    }
    number = vs_stream_find(arena, &key, false);
    if (number != 0) {
        return number;
    }
    owner = vs_fence_stream_owner(real, stream, per_thread, &green);
    return owner == NULL ? 0 : give_number(arena, &key, owner, green);
}
