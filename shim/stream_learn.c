/* What the program itself learns of streams' work, and orders between them (see streams.h). */
#include "shim/stream_inner.h"

static void mark_of(const struct vs_stream_ref *ref, struct vs_stream_mark *mark)
{
    *mark = (struct vs_stream_mark){
        .arena = ref->arena,
        .identity = vs_arena_place(ref->arena).context,
        .number = ref->number,
        .mark = vs_pool_stream_mark(ref->arena->pool, ref->number),
    };
}

static bool find(const struct vs_guard *guard, CUstream stream, bool per_thread,
                 struct vs_stream_ref *ref)
{
    return vs_streams_used() && vs_streams_home(guard, stream, per_thread, false, ref);
}

void vs_streams_mark(const struct vs_guard *guard, CUstream stream, bool per_thread,
                     struct vs_stream_mark *mark)
{
    struct vs_stream_ref ref;

    mark->arena = NULL;
    if (find(guard, stream, per_thread, &ref)) {
        mark_of(&ref, mark);
        vs_arena_left(ref.arena);
    }
}

/*
 * The driver's free is work of its stream: in a blocking one it waits for the legacy stream's work,
 * in the legacy one for theirs. Ours is none, and the host would hear nothing of that work. So a
 * fence stands in the free's place. False: it cannot.
 */
static bool stand_in(const struct vs_stream_ref *ref)
{
    bool stands = true;

    if (vs_streams_of(ref->arena)->slot[ref->number].blocking) {
        vs_streams_submitting = true;
        stands = vs_pool_stream_close(ref->arena->pool, ref->number) == 0;
        vs_streams_submitting = false;
    }
    return stands;
}

void vs_streams_mark_asked(const struct vs_guard *guard, CUstream stream, bool per_thread,
                           struct vs_stream_mark *mark)
{
    struct vs_stream_ref ref;

    mark->arena = NULL;
    if (find(guard, stream, per_thread, &ref)) {
        if (stand_in(&ref)) {
            mark_of(&ref, mark);
        }
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
    struct vs_stream_key key;

    if (mark->arena == NULL || !vs_stream_key_of(&guard->driver->real, waiter, per_thread, &key) ||
        !vs_arena_enter_as(mark->arena, mark->identity)) {
        return;
    }
    number = vs_stream_find(mark->arena, &key, false);
    if (number != 0) {
        vs_pool_stream_after(mark->arena->pool, number, mark->number, mark->mark);
    }
    vs_arena_left(mark->arena);
}

struct marking {
    struct vs_stream_marks *marks;
    CUcontext context;
};

/* In the context's own arena. A green context has none: its streams are the primary's, of which a
 * wait for the green one says too little. */
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
