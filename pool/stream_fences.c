/*
 * Fences of streams (see streams.h): when one is recorded, for whom it will do, and asking and
 * waiting for it.
 *
 * Only whoever is `recording` on a stream adds to its fences. No lock is held over a call of ops,
 * so what was read under it before is looked at anew behind it.
 */
#include "pool/streams.h"

#include <string.h>

#include "pool/words.h"

static bool alive(const struct vs_stream *stream)
{
    return atomic_load_explicit(&stream->state, memory_order_acquire) == STREAM_ALIVE;
}

/* Frees that no fence covers and that nobody has seen pass. */
static bool unclosed(const struct vs_stream *stream)
{
    uint64_t freed = vs_word_load(&stream->freed);
    return freed > vs_word_load(&stream->closed) && freed > vs_word_load(&stream->seen);
}

bool vs_pool_stream_open(const struct vs_pool *pool, uint32_t number)
{
    return atomic_load_explicit(&pool->pressed, memory_order_relaxed) &&
           unclosed(stream_at(pool, number)) && !(pool->config.faults & VS_POOL_LATE_FENCES);
}

/* Fences that the host has seen pass are forgotten. The lock is held. */
static void forget_seen(struct vs_stream *stream)
{
    uint64_t seen = vs_word_load(&stream->seen);
    unsigned gone = 0;
    while (gone < stream->fence_count && stream->fences[gone].epoch <= seen) {
        gone++;
    }
    stream->fence_count -= gone;
    memmove(stream->fences, stream->fences + gone, stream->fence_count * sizeof *stream->fences);
}

/* A fence's number that is not outstanding. Where all are, one in the middle gives way: what it
 * covered waits for the next one, which is of a later free. The lock is held. */
static uint32_t fence_number(struct vs_stream *stream)
{
    uint32_t taken = 0, number = 0;
    forget_seen(stream);
    if (stream->fence_count == VS_POOL_STREAM_FENCES) {
        unsigned middle = VS_POOL_STREAM_FENCES / 2;
        number = stream->fences[middle].number;
        stream->fence_count--;
        memmove(stream->fences + middle, stream->fences + middle + 1,
                (stream->fence_count - middle) * sizeof *stream->fences);
        return number;
    }
    for (unsigned i = 0; i < stream->fence_count; i++) {
        taken |= 1u << stream->fences[i].number;
    }
    while (taken >> number & 1) {
        number++;
    }
    return number;
}
_Static_assert(VS_POOL_STREAM_FENCES <= 32, "a bit each");

/* Records a fence for what has none. The caller is the only one who records on this stream. */
static int record(struct vs_pool *pool, uint32_t number)
{
    struct vs_stream *stream = stream_at(pool, number);
    pool_lock(pool);
    uint32_t fence = fence_number(stream);
    pool_unlock(pool);
    uint64_t epoch = vs_word_load(&stream->open);
    atomic_store(&stream->open, epoch + 1);
    int rc = pool->ops.stream_record(pool->world, number, fence);
    pool_lock(pool);
    if (rc != 0) { /* the next one may come after later work */
        stream->inexact = epoch;
        pool_unlock(pool);
        return rc;
    }
    unsigned at = stream->fence_count++;
    stream->fences[at].epoch = epoch;
    stream->fences[at].number = fence;
    bool pressed = atomic_load_explicit(&pool->pressed, memory_order_relaxed);
    uint64_t before = vs_word_load(&stream->closed);
    before = stream->inexact > before ? stream->inexact : before;
    stream->fences[at].exact_after =
        pressed && vs_word_load(&stream->freed) > before ? before : epoch;
    atomic_store(&stream->closed, epoch);
    pool_unlock(pool);
    atomic_fetch_add_explicit(&pool->epochs.records, 1, memory_order_relaxed);
    return 0;
}

int vs_stream_close(struct vs_pool *pool, uint32_t number, bool ending)
{
    struct vs_stream *stream = stream_at(pool, number);
    uint64_t freed = vs_word_load(&stream->freed);
    for (unsigned spins = 0;
         vs_word_load(&stream->closed) < freed && vs_word_load(&stream->seen) < freed; spins++) {
        uint32_t none = 0;
        if (atomic_compare_exchange_strong(&stream->recording, &none, 1)) {
            /* Once it is ending nobody else touches the stream. */
            int rc = unclosed(stream) && (ending || alive(stream)) ? record(pool, number) : 0;
            atomic_store(&stream->recording, 0);
            return rc;
        }
        vs_pool_pause(spins, &pool->ops, pool->world);
    }
    return 0;
}

int vs_pool_stream_close(struct vs_pool *pool, uint32_t number)
{
    return vs_stream_close(pool, number, false);
}

void vs_streams_press(struct vs_pool *pool)
{
    pool->pressed_at = pool->allocs;
    if (atomic_load_explicit(&pool->pressed, memory_order_relaxed)) {
        return;
    }
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        /* There may be work behind these already. */
        stream_at(pool, i)->inexact = vs_pool_stream_mark(pool, i);
    }
    atomic_store_explicit(&pool->pressed, true, memory_order_relaxed);
}

#define QUIET 4096 /* allocations */

void vs_streams_relax(struct vs_pool *pool)
{
    if (pool->allocs - pool->pressed_at > QUIET &&
        pool->ops.room(pool->world) > pool->reserved / 4 + VS_STREAMS_ROOM) {
        atomic_store_explicit(&pool->pressed, false, memory_order_relaxed);
    }
}

/* The first fence of an epoch from `from` on: its epoch; 0 if there is none outstanding. */
static uint64_t find_fence(struct vs_pool *pool, struct vs_stream *stream, uint64_t from,
                           bool inexact_too, uint32_t *number)
{
    uint64_t epoch = 0;
    pool_lock(pool);
    forget_seen(stream);
    for (unsigned i = 0; i < stream->fence_count && !epoch; i++) {
        bool exact = stream->fences[i].exact_after < stream->fences[i].epoch;
        if (stream->fences[i].epoch >= from && (exact || inexact_too)) {
            epoch = stream->fences[i].epoch;
            *number = stream->fences[i].number;
        }
    }
    pool_unlock(pool);
    return epoch;
}

static int poll_stream(struct vs_pool *pool, uint32_t number)
{
    struct vs_stream *stream = stream_at(pool, number);
    uint64_t start = vs_word_load(&stream->seen), from = start + 1;
    uint32_t fence;
    pool_lock(pool); /* the number may be another stream's by now, and that is not covered */
    bool over = stream->covered && vs_epochs_seen(&pool->epochs) >= stream->covered;
    uint64_t covers = stream->covers;
    pool_unlock(pool);
    if (over) {
        vs_stream_saw(pool, number, covers);
    }
    for (uint64_t epoch; (epoch = find_fence(pool, stream, from, true, &fence)) != 0;
         from = epoch + 1) {
        atomic_fetch_add_explicit(&pool->epochs.polls, 1, memory_order_relaxed);
        int rc = pool->ops.stream_query(pool->world, number, fence);
        if (rc < 0) {
            return rc;
        }
        if (rc > 0) {
            break;
        }
        vs_stream_saw(pool, number, epoch);
    }
    return vs_word_load(&stream->seen) > start;
}

static bool holds_unseen(struct vs_pool *pool, uint32_t number)
{
    const struct vs_stream *stream = stream_at(pool, number);
    return (stream->free_bytes > 0 || stream->crossing != 0) &&
           vs_word_load(&stream->freed) > vs_word_load(&stream->seen);
}

/* What it freed may all have been handed on, to streams that come after it; until it is seen its
 * number cannot be another's. */
static bool holds_number(struct vs_pool *pool, uint32_t number)
{
    const struct vs_stream *stream = stream_at(pool, number);
    return atomic_load(&stream->state) == STREAM_ENDED &&
           vs_word_load(&stream->freed) > vs_word_load(&stream->seen);
}

/* The numbers of the streams that hold memory which nobody has seen free: a bit each. ended: and of
 * those that hold nothing but their number. */
static uint64_t unseen_streams(struct vs_pool *pool, bool ended)
{
    uint64_t bits = 0;
    if (pool->stream_count == 0) {
        return 0;
    }
    pool_lock(pool);
    vs_streams_look(pool);
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        bool meant = holds_unseen(pool, i) || (ended && holds_number(pool, i));
        bits |= meant ? UINT64_C(1) << (i - 1) : 0;
    }
    pool_unlock(pool);
    return bits;
}

int vs_streams_poll(struct vs_pool *pool, uint32_t but)
{
    int any = 0;
    for (uint64_t bits = unseen_streams(pool, true); bits; bits &= bits - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(bits) + 1;
        if (number == but) {
            continue;
        }
        int rc = vs_stream_close(pool, number, false);
        rc = rc < 0 ? rc : poll_stream(pool, number);
        if (rc < 0) {
            return rc;
        }
        any |= rc;
    }
    if (pool->stream_count > 0) {
        any |= vs_streams_take_crossed(pool);
    }
    return any;
}

int vs_streams_order(struct vs_pool *pool, const struct vs_want *want)
{
    uint64_t epoch = 0;
    uint32_t best = 0, fence = 0, least = UINT32_MAX;
    if (!want->stream) {
        return 0;
    }
    pool_lock(pool);
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        const struct vs_stream *stream = stream_at(pool, i);
        uint32_t number =
            i == want->stream ? 0 : vs_tree_from(pool, &stream->trees[want->zone], want->units, 0);
        const struct vs_block *block = number ? block_at(pool, number) : NULL;
        uint32_t units = want->units;
        if (block && (vs_stream_usable(pool, want->stream, block) ||
                      !vs_zone_fits(pool, want, block, &units))) {
            continue; /* it would not do */
        }
        for (unsigned f = 0; block && block->units < least && f < stream->fence_count; f++) {
            if (stream->fences[f].exact_after < block->epoch &&
                stream->fences[f].epoch >= block->epoch) {
                best = i;
                epoch = stream->fences[f].epoch;
                fence = stream->fences[f].number;
                least = block->units;
            }
        }
    }
    pool_unlock(pool);
    if (!best) {
        return 0;
    }
    /* A later fence of its own frees would cover what it waits for now. */
    int rc = vs_stream_close(pool, want->stream, false);
    rc = rc ? rc : pool->ops.stream_order(pool->world, want->stream, best, fence);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    atomic_fetch_add_explicit(&pool->epochs.orders, 1, memory_order_relaxed);
    vs_pool_stream_after(pool, want->stream, best, epoch);
    return 1;
}

int vs_streams_wait(struct vs_pool *pool, bool hasty)
{
    for (uint64_t bits = unseen_streams(pool, false); bits; bits &= bits - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(bits) + 1, fence;
        struct vs_stream *stream = stream_at(pool, number);
        int rc = vs_stream_close(pool, number, false);
        if (rc < 0) {
            return rc;
        }
        uint64_t epoch = find_fence(pool, stream, vs_word_load(&stream->seen) + 1, hasty, &fence);
        if (!epoch) {
            continue;
        }
        atomic_fetch_add(&pool->epochs.waits, 1);
        rc = pool->ops.stream_wait(pool->world, number, fence, !hasty);
        if (rc < 0) {
            return rc;
        }
        if (rc == 0) {
            vs_stream_saw(pool, number, epoch);
            vs_streams_take_crossed(pool);
            return 1;
        }
    }
    return 0;
}
