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

#include <errno.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(5000000000)
#define RETRY_NS UINT64_C(100000000) /* where there was no number */

_Static_assert(VS_POOL_STREAMS <= 64, "a bit each, and marks[64]");

__thread bool vs_streams_submitting __attribute__((tls_model("initial-exec")));

/* ---- keys ------------------------------------------------------------------------------------ */

struct key {
    CUstream stream;
    CUcontext current; /* default streams; else NULL */
    uint32_t thread;   /* default streams of threads; else 0 */
};

/* False: it is a default stream, and no context is current. */
static bool key_of(const struct vs_entries *real, CUstream stream, bool per_thread, struct key *key)
{
    *key = (struct key){.stream = stream};
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

static uint32_t hash_of(const struct key *key)
{
    uint64_t mixed =
        (uintptr_t)key->stream ^ (uintptr_t)key->current << 7 ^ (uint64_t)key->thread << 3;

    return (uint32_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 57);
}
_Static_assert(VS_STREAM_BUCKETS == 128, "hash_of gives seven bits");

/* With the lock. */
static uint32_t find_linked(const struct vs_streams *streams, const struct key *key)
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

/* The number of a stream in an arena; home: only where it is the arena of its own context. */
static uint32_t find_in(struct vs_arena *arena, const struct key *key, bool home)
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

/* With the lock. */
static void unlink_slot(struct vs_streams *streams, uint32_t number)
{
    struct vs_stream_slot *slot = &streams->slot[number];
    const struct key key = {slot->stream, slot->current, slot->thread};
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

static bool unannounce(struct vs_streams *streams, uint32_t number)
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

    if (unannounce(streams, number) && vs_pool_stream_open(arena->pool, number) &&
        vs_pool_stream_close(arena->pool, number) > 0) {
        atomic_store_explicit(&streams->slot[number].late, true, memory_order_release);
    }
}

struct submission {
    const struct key *key; /* NULL: to all of them */
};

/* The legacy stream and those that wait for it are in each other's way: what is submitted to one
 * comes before what is recorded on the other. Its fence is where a free in its order would have
 * been, so whoever submits to another stream may record it. */
static bool concerns(const struct submission *submission, const struct vs_stream_slot *slot)
{
    const struct key *key = submission->key;

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
    struct key key;
    struct submission submission = {.key = &key};

    if (key_of(&guard->driver->real, stream, per_thread, &key)) {
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

/* The state was changed: waits until nobody makes a call with what is in the slot. */
static void see_users(struct vs_stream_slot *slot)
{
    uint64_t until = vs_sys_clock(CLOCK_MONOTONIC) + PATIENCE_NS;
    const struct timespec moment = {.tv_nsec = 20000};

    while (atomic_load_explicit(&slot->users, memory_order_seq_cst) != 0 &&
           vs_sys_clock(CLOCK_MONOTONIC) < until) {
        VS_SYS(SYS_nanosleep, &moment, NULL);
    }
}

/* alive: the context that they were made in still is. */
static void free_events(const struct vs_entries *real, struct vs_stream_slot *slot, bool alive)
{
    for (unsigned i = 0; i < VS_POOL_STREAM_FENCES; i++) {
        CUevent event = atomic_exchange(&slot->events[i], NULL);

        if (alive) {
            vs_fence_event_free(real, event);
        }
    }
}

/* The number is ours, and nobody knows it yet. Everything that was freed under it has been seen. */
static void prepare(struct vs_arena *arena, struct vs_stream_slot *slot, CUcontext owner)
{
    uint32_t before = atomic_exchange(&slot->state, VS_STREAM_FREE);
    bool alive = before == VS_STREAM_LIVE;

    see_users(slot);
    if (slot->owner != owner || !alive) {
        free_events(&arena->driver->real, slot, alive);
    }
    atomic_store(&slot->set, 0);
    atomic_store(&slot->wide, 0);
    atomic_store(&slot->late, false);
}

/* With the lock. */
static void link_slot(struct vs_streams *streams, uint32_t number, const struct key *key,
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

/* The slot is no longer linked. Where the pool could have no fence, its next epoch's is the one. */
static void end_number(struct vs_arena *arena, uint32_t number)
{
    unannounce(vs_streams_of(arena), number);
    vs_pool_stream_end(arena->pool, number);
    if (vs_pool_open_epoch(arena->pool)) {
        vs_fence_freed();
    }
}

/* A stream whose thread is no more takes no more work. */
static bool is_dead(const struct vs_stream_slot *slot)
{
    return slot->thread != 0 && VS_SYS(SYS_tgkill, vs_sys_getpid(), slot->task, 0) == -ESRCH;
}

static bool of_dead_thread(const struct vs_stream_slot *slot, const void *data)
{
    (void)data;
    return is_dead(slot);
}

static bool of_stream(const struct vs_stream_slot *slot, const void *stream)
{
    return slot->stream == stream;
}

static bool of_green(const struct vs_stream_slot *slot, const void *green)
{
    return slot->green == green;
}

/* Ends those that are meant. */
static bool end_all(struct vs_arena *arena,
                    bool (*is_meant)(const struct vs_stream_slot *slot, const void *data),
                    const void *data)
{
    struct vs_streams *streams = vs_streams_of(arena);
    uint64_t ended = 0;

    if (streams == NULL) {
        return false;
    }
    vs_lock_take(&streams->lock);
    for (uint32_t i = 1; i <= streams->last; i++) {
        if (streams->slot[i].linked && is_meant(&streams->slot[i], data)) {
            unlink_slot(streams, i);
            ended |= UINT64_C(1) << (i - 1);
        }
    }
    vs_lock_drop(&streams->lock);
    for (uint64_t bits = ended; bits != 0; bits &= bits - 1) {
        end_number(arena, (uint32_t)__builtin_ctzll(bits) + 1);
    }
    return ended != 0;
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
    if (number == 0 && end_all(arena, of_dead_thread, NULL)) {
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

static uint32_t give_number(struct vs_arena *arena, const struct key *key, CUcontext owner,
                            CUgreenCtx green)
{
    struct vs_streams *streams = table_of(arena);
    uint32_t number = streams != NULL ? begin(arena, streams, owner == arena->context) : 0, other;

    if (number == 0) {
        return 0;
    }
    prepare(arena, &streams->slot[number], owner);
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

static struct note *note_of(const struct key *key)
{
    return &notes[(uintptr_t)key->stream * UINT64_C(0x9e3779b97f4a7c15) >> 61];
}
_Static_assert(NOTES == 8, "note_of takes three bits");

static uint32_t generation(void)
{
    return atomic_load_explicit(&vs_place_generation, memory_order_relaxed);
}

static bool holds(const struct note *note, const struct key *key, uint32_t now)
{
    return note->generation == now && note->stream == key->stream &&
           note->current == key->current && note->arenas == vs_arenas_now();
}

static void remember(const struct key *key, uint32_t now, const struct vs_stream_ref *ref,
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
static bool find_home(const struct key *key, struct vs_stream_ref *ref)
{
    struct vs_arenas *arenas = vs_arenas_now();
    uint32_t count =
        arenas == NULL ? 0 : atomic_load_explicit(&arenas->count, memory_order_acquire);

    for (uint32_t i = 0; i < count; i++) {
        struct vs_arena *arena = atomic_load_explicit(&arenas->table[i], memory_order_acquire);

        if (vs_streams_of(arena) == NULL || !vs_arena_enter(arena)) {
            continue;
        }
        ref->number = find_in(arena, key, true);
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
                                                bool per_thread, const struct key *key,
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
    struct key key;

    if (!guard->counts || !vs_process_counts() ||
        !atomic_load_explicit(&vs_process_page()->pool_on, memory_order_relaxed) ||
        !key_of(&guard->driver->real, stream, per_thread, &key)) {
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
    struct key key;

    if (!can_fence(real) || !key_of(real, stream, per_thread, &key)) {
        return 0;
    }
    note = note_of(&key);
    if (__builtin_expect(note->number != 0 && note->arena == arena && holds(note, &key, now) &&
                             note->identity == vs_arena_place(arena).context,
                         1)) {
        return note->number;
    }
    number = find_in(arena, &key, false);
    if (number != 0) {
        return number;
    }
    owner = vs_fence_stream_owner(real, stream, per_thread, &green);
    return owner == NULL ? 0 : give_number(arena, &key, owner, green);
}

/* ---- what the program learns and orders ------------------------------------------------------ */

void vs_streams_mark(const struct vs_guard *guard, CUstream stream, bool per_thread,
                     struct vs_stream_mark *mark)
{
    struct vs_stream_ref ref;

    mark->arena = NULL;
    if (vs_streams_used() && vs_streams_home(guard, stream, per_thread, false, &ref)) {
        *mark = (struct vs_stream_mark){
            .arena = ref.arena,
            .identity = vs_arena_place(ref.arena).context,
            .number = ref.number,
            .mark = vs_pool_stream_mark(ref.arena->pool, ref.number),
        };
        vs_arena_left(ref.arena);
    }
}

void vs_streams_seen(const struct vs_stream_mark *mark)
{
    if (mark->arena != NULL && vs_arena_enter_as(mark->arena, mark->identity)) {
        vs_pool_stream_seen(mark->arena->pool, mark->number, mark->mark);
        vs_arena_left(mark->arena);
    }
}

void vs_streams_after(const struct vs_guard *guard, CUstream waiter, bool per_thread,
                      const struct vs_stream_mark *mark)
{
    uint32_t number;
    struct key key;

    if (mark->arena == NULL || !key_of(&guard->driver->real, waiter, per_thread, &key) ||
        !vs_arena_enter_as(mark->arena, mark->identity)) {
        return;
    }
    number = find_in(mark->arena, &key, false);
    if (number != 0) {
        vs_pool_stream_after(mark->arena->pool, number, mark->number, mark->mark);
    }
    vs_arena_left(mark->arena);
}

struct marking {
    struct vs_stream_marks *marks;
    CUcontext context;
};

/* Of the context's own arena: that of a green context has none. */
static void mark_all(struct vs_arena *arena, void *data)
{
    const struct marking *marking = data;
    struct vs_stream_marks *marks = marking->marks;
    struct vs_streams *streams = vs_streams_of(arena);

    if (streams == NULL || arena->context != marking->context) {
        return;
    }
    marks->arena = arena;
    marks->identity = vs_arena_place(arena).context;
    marks->known = 0;
    vs_lock_take(&streams->lock);
    for (uint32_t i = 1; i <= streams->last; i++) {
        if (streams->slot[i].linked && streams->slot[i].owner == arena->context) {
            marks->known |= UINT64_C(1) << (i - 1);
        }
    }
    vs_lock_drop(&streams->lock);
    for (uint64_t bits = marks->known; bits != 0; bits &= bits - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(bits) + 1;

        marks->mark[number - 1] = vs_pool_stream_mark(arena->pool, number);
    }
}

void vs_streams_marks(const struct vs_guard *guard, CUcontext context,
                      struct vs_stream_marks *marks)
{
    const struct vs_entries *real = &guard->driver->real;
    struct marking marking = {.marks = marks, .context = context};

    marks->arena = NULL;
    if (guard->counts && vs_streams_used() &&
        (context != NULL || (real->cuCtxGetCurrent != NULL &&
                             real->cuCtxGetCurrent(&marking.context) == CUDA_SUCCESS))) {
        vs_arena_each(mark_all, &marking);
    }
}

void vs_streams_all_seen(const struct vs_stream_marks *marks)
{
    if (marks->arena == NULL || !vs_arena_enter_as(marks->arena, marks->identity)) {
        return;
    }
    for (uint64_t bits = marks->known; bits != 0; bits &= bits - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(bits) + 1;

        vs_pool_stream_seen(marks->arena->pool, number, marks->mark[number - 1]);
    }
    vs_arena_left(marks->arena);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void stream_goes(struct vs_arena *arena, void *stream)
{
    end_all(arena, of_stream, stream);
}

void vs_streams_stream_goes(CUstream stream)
{
    if (vs_streams_used() && stream != NULL && !vs_stream_is_default(stream)) {
        vs_streams_submitting = true; /* nothing is between this and its last work */
        vs_arena_each(stream_goes, stream);
        vs_streams_submitting = false;
    }
}

static void green_goes(struct vs_arena *arena, void *green)
{
    end_all(arena, of_green, green);
}

void vs_streams_green_goes(CUgreenCtx green)
{
    if (vs_streams_used() && green != NULL) {
        vs_arena_each(green_goes, green);
    }
}

static void context_goes(struct vs_arena *arena, void *context)
{
    struct vs_streams *streams = vs_streams_of(arena);

    for (uint32_t i = 1; streams != NULL && i <= VS_POOL_STREAMS; i++) {
        struct vs_stream_slot *slot = &streams->slot[i];
        uint32_t live = VS_STREAM_LIVE;
        bool goes;

        vs_lock_take(&streams->lock);
        goes = slot->owner == context &&
               atomic_compare_exchange_strong(&slot->state, &live, VS_STREAM_GOING);
        vs_lock_drop(&streams->lock);
        if (goes) {
            see_users(slot);
        }
    }
}

void vs_streams_context_goes(CUcontext context)
{
    if (vs_streams_used() && context != NULL) {
        vs_arena_each(context_goes, context);
    }
}

struct gone {
    CUcontext context;
    bool gone;
};

/* A context took its work along: all of it is over. */
static void context_gone(struct vs_arena *arena, void *data)
{
    const struct gone *end = data;
    struct vs_streams *streams = vs_streams_of(arena);

    for (uint32_t i = 1; streams != NULL && i <= VS_POOL_STREAMS; i++) {
        struct vs_stream_slot *slot = &streams->slot[i];
        bool linked = false, meant;

        vs_lock_take(&streams->lock);
        meant = slot->owner == end->context && atomic_load(&slot->state) == VS_STREAM_GOING;
        if (meant) {
            atomic_store(&slot->state, end->gone ? VS_STREAM_GONE : VS_STREAM_LIVE);
            linked = end->gone && slot->linked;
        }
        if (linked) {
            unlink_slot(streams, i);
        }
        vs_lock_drop(&streams->lock);
        if (linked) {
            vs_pool_stream_seen(arena->pool, i, vs_pool_stream_mark(arena->pool, i));
            end_number(arena, i);
        }
    }
}

void vs_streams_context_gone(CUcontext context, bool gone)
{
    struct gone end = {context, gone};

    if (vs_streams_used() && context != NULL) {
        vs_arena_each(context_gone, &end);
    }
}

void vs_streams_arena_gone(struct vs_arena *arena)
{
    struct vs_streams *streams = vs_streams_of(arena);

    if (streams == NULL) {
        return;
    }
    for (uint32_t i = 1; i <= streams->last; i++) {
        struct vs_stream_slot *slot = &streams->slot[i];

        unannounce(streams, i);
        free_events(&arena->driver->real, slot,
                    slot->owner != arena->context && atomic_load(&slot->state) == VS_STREAM_LIVE);
        *slot = (struct vs_stream_slot){.state = VS_STREAM_FREE};
    }
    memset(streams->bucket, 0, sizeof(streams->bucket));
    streams->last = 0;
    atomic_store(&streams->retry_at, 0);
    atomic_store(&streams->kept, false);
}
