/*
 * Streams that end: destroyed, or with their thread, their context or their arena (see streams.h
 * and stream_inner.h). Their numbers come back when all that was freed on them has been seen.
 */
#include "report/sys.h"
#include "shim/fence_driver.h"
#include "shim/fence_streams.h"
#include "shim/stream_inner.h"

#include <errno.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(5000000000)

void vs_stream_see_users(struct vs_stream_slot *slot)
{
    uint64_t until = vs_sys_clock(CLOCK_MONOTONIC) + PATIENCE_NS;
    const struct timespec moment = {.tv_nsec = 20000};

    while (atomic_load_explicit(&slot->users, memory_order_seq_cst) != 0 &&
           vs_sys_clock(CLOCK_MONOTONIC) < until) {
        VS_SYS(SYS_nanosleep, &moment, NULL);
    }
}

void vs_stream_free_events(const struct vs_entries *real, struct vs_stream_slot *slot, bool alive)
{
    for (unsigned i = 0; i < VS_POOL_STREAM_FENCES; i++) {
        CUevent event = atomic_exchange(&slot->events[i], NULL);

        if (alive) {
            vs_fence_event_free(real, event);
        }
    }
}

/* The slot is no longer linked. Where the pool could have no fence, its next epoch's is the one. */
static void end_number(struct vs_arena *arena, uint32_t number)
{
    vs_stream_unannounce(vs_streams_of(arena), number);
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
            vs_stream_unlink(streams, i);
            ended |= UINT64_C(1) << (i - 1);
        }
    }
    vs_lock_drop(&streams->lock);
    for (uint64_t bits = ended; bits != 0; bits &= bits - 1) {
        end_number(arena, (uint32_t)__builtin_ctzll(bits) + 1);
    }
    return ended != 0;
}

bool vs_stream_end_dead(struct vs_arena *arena)
{
    return end_all(arena, of_dead_thread, NULL);
}

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
            vs_stream_see_users(slot);
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
            vs_stream_unlink(streams, i);
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

        vs_stream_unannounce(streams, i);
        vs_stream_free_events(&arena->driver->real, slot,
                              slot->owner != arena->context &&
                                  atomic_load(&slot->state) == VS_STREAM_LIVE);
        *slot = (struct vs_stream_slot){.state = VS_STREAM_FREE};
    }
    memset(streams->bucket, 0, sizeof(streams->bucket));
    streams->last = 0;
    atomic_store(&streams->retry_at, 0);
    atomic_store(&streams->kept, false);
}
