/*
 * Streams (see streams.h): numbers, epochs and fences. What blocks make of them is in blocks.c and
 * zone.c, what slots do in slab.c.
 */
#include "pool/streams.h"

#include <errno.h>
#include <string.h>

struct crossing {
    uint32_t spare; /* the table's link */
    uint32_t next;
    uint64_t address;
    uint64_t stamp;
};

static struct crossing *crossing_at(const struct vs_pool *pool, uint32_t number)
{
    return vs_table_at(&pool->crossings, number, sizeof(struct crossing));
}

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_seq_cst);
}

static bool raise(_Atomic uint64_t *word, uint64_t to)
{
    uint64_t now = load(word);
    while (now < to) {
        if (atomic_compare_exchange_weak(word, &now, to)) {
            return true;
        }
    }
    return false;
}

static bool alive(const struct vs_stream *stream)
{
    return atomic_load_explicit(&stream->state, memory_order_acquire) == STREAM_ALIVE;
}

/* ---- who may use what ------------------------------------------------------------------------ */

bool vs_stream_seen(const struct vs_pool *pool, uint32_t stream, uint64_t stamp)
{
    return stream == 0 || load(&stream_at(pool, stream)->seen) >= stamp ||
           (pool->config.faults & (VS_POOL_UNMAP_ORDERED | VS_POOL_NO_FENCES)) != 0;
}

bool vs_stream_may(const struct vs_pool *pool, uint32_t stream, uint32_t freed_on, uint64_t stamp)
{
    if (vs_stream_seen(pool, freed_on, stamp)) {
        return true;
    }
    const struct vs_stream *mine = stream ? stream_at(pool, stream) : NULL;
    for (unsigned i = 0; mine && i < STREAM_AFTER; i++) {
        if (mine->after[i].stream == freed_on && mine->after[i].epoch >= stamp) {
            return true;
        }
    }
    return false;
}

uint32_t vs_stream_fit(struct vs_pool *pool, unsigned zone, uint32_t stream, uint32_t units,
                       uint64_t address)
{
    uint32_t any = vs_tree_from(pool, &pool->zones[zone].free, units, address);
    uint32_t own = stream ? vs_tree_from(pool, free_tree(pool, zone, stream), units, address) : 0;
    if (!any || !own) {
        return any ? any : own;
    }
    const struct vs_block *a = block_at(pool, any), *b = block_at(pool, own);
    bool first = a->units != b->units ? a->units < b->units : a->address < b->address;
    return first ? any : own;
}

#define FITS 8

uint32_t vs_stream_fit_after(struct vs_pool *pool, unsigned zone, uint32_t stream, uint32_t units)
{
    const struct vs_stream *mine = stream_at(pool, stream);
    uint32_t best = 0;
    for (unsigned i = 0; i < STREAM_AFTER; i++) {
        uint32_t other = mine->after[i].stream;
        struct vs_tree *tree = other ? free_tree(pool, zone, other) : NULL;
        uint32_t number = tree ? vs_tree_from(pool, tree, units, 0) : 0;
        for (unsigned n = 0; number && n < FITS; n++) {
            const struct vs_block *block = block_at(pool, number);
            if (block->epoch <= mine->after[i].epoch) {
                best = !best || block->units < block_at(pool, best)->units ? number : best;
                break;
            }
            number = vs_tree_from(pool, tree, block->units, block->address + 1);
        }
    }
    return best;
}

/* ---- the list of a stream's FREE blocks -------------------------------------------------------
 */

void vs_stream_listed(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    struct vs_stream *stream = stream_at(pool, block->stream);
    bool early = stream->oldest != 0 && block->epoch <= block_at(pool, stream->oldest)->epoch;
    if (early) {
        block->older = 0;
        block->newer = stream->oldest;
        block_at(pool, stream->oldest)->older = number;
        stream->oldest = number;
    } else {
        block->newer = 0;
        block->older = stream->newest;
        *(stream->newest ? &block_at(pool, stream->newest)->newer : &stream->oldest) = number;
        stream->newest = number;
    }
    stream->free_bytes += block_bytes(block);
}

void vs_stream_unlisted(struct vs_pool *pool, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    struct vs_stream *stream = stream_at(pool, block->stream);
    *(block->older ? &block_at(pool, block->older)->newer : &stream->oldest) = block->newer;
    *(block->newer ? &block_at(pool, block->newer)->older : &stream->newest) = block->older;
    stream->free_bytes -= block_bytes(block);
}

static void mature(struct vs_pool *pool, struct vs_stream *stream)
{
    uint64_t seen = load(&stream->seen);
    while (stream->oldest && block_at(pool, stream->oldest)->epoch <= seen) {
        uint32_t number = stream->oldest;
        vs_block_unlist(pool, number);
        block_at(pool, number)->stream = 0;
        vs_block_release(pool, number, BLOCK_FREE);
    }
}

void vs_streams_mature(struct vs_pool *pool)
{
    uint64_t bits = atomic_exchange(&pool->streams_matured, 0);
    for (; bits; bits &= bits - 1) {
        mature(pool, stream_at(pool, (uint32_t)__builtin_ctzll(bits) + 1));
    }
}
_Static_assert(VS_POOL_STREAMS <= 64, "a bit each");

static void look_again(struct vs_pool *pool, uint32_t number)
{
    atomic_fetch_or(&pool->streams_matured, UINT64_C(1) << (number - 1));
}

static bool saw(struct vs_pool *pool, uint32_t number, uint64_t epoch)
{
    bool more = raise(&stream_at(pool, number)->seen, epoch);
    if (more) {
        look_again(pool, number);
    }
    return more;
}

uint64_t vs_streams_free_bytes(const struct vs_pool *pool)
{
    uint64_t bytes = 0;
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        bytes += stream_at(pool, i)->free_bytes;
    }
    return bytes;
}

/* ---- crossings --------------------------------------------------------------------------------
 */

int vs_stream_crosses(struct vs_pool *pool, uint32_t number, uint64_t address, uint64_t stamp)
{
    struct vs_stream *stream = stream_at(pool, number);
    pool_lock(pool);
    uint32_t crossing = vs_table_take(&pool->crossings, &pool->ops, pool->world);
    if (crossing) {
        *crossing_at(pool, crossing) = (struct crossing){.address = address, .stamp = stamp};
        *(stream->crossing_last ? &crossing_at(pool, stream->crossing_last)->next
                                : &stream->crossing) = crossing;
        stream->crossing_last = crossing;
    }
    pool_unlock(pool);
    return crossing ? 0 : -ENOMEM;
}

/* The next slot that the host has seen freed on a stream; 0 if there is none. */
static uint64_t next_crossed(struct vs_pool *pool, struct vs_stream *stream)
{
    uint64_t address = 0;
    pool_lock(pool);
    uint32_t number = stream->crossing;
    if (number && crossing_at(pool, number)->stamp <= load(&stream->seen)) {
        address = crossing_at(pool, number)->address;
        stream->crossing = crossing_at(pool, number)->next;
        stream->crossing_last = stream->crossing ? stream->crossing_last : 0;
        vs_table_give(&pool->crossings, number);
    }
    pool_unlock(pool);
    return address;
}

/* Those that have been seen are their runs' again. No lock is held. 1: there were some. */
static int take_crossed(struct vs_pool *pool)
{
    int any = 0;
    pool_lock(pool);
    uint32_t count = pool->stream_count;
    pool_unlock(pool);
    for (uint32_t i = 1; i <= count; i++) {
        for (uint64_t address; (address = next_crossed(pool, stream_at(pool, i))) != 0; any = 1) {
            vs_slab_crossed(pool, address);
        }
    }
    return any;
}

/* ---- fences -----------------------------------------------------------------------------------
 */

uint64_t vs_pool_stream_mark(struct vs_pool *pool, uint32_t number)
{
    struct vs_stream *stream = stream_at(pool, number);
    uint64_t freed = load(&stream->freed), open = freed;
    atomic_compare_exchange_strong(&stream->open, &open, freed + 1);
    return freed;
}

void vs_pool_stream_seen(struct vs_pool *pool, uint32_t number, uint64_t mark)
{
    saw(pool, number, mark);
}

void vs_pool_stream_after(struct vs_pool *pool, uint32_t waiter, uint32_t number, uint64_t mark)
{
    struct vs_stream *stream = stream_at(pool, waiter);
    if (waiter == number || load(&stream_at(pool, number)->seen) >= mark) {
        return;
    }
    pool_lock(pool);
    unsigned at = 0;
    while (at < STREAM_AFTER && stream->after[at].stream != number) {
        at++;
    }
    if (at == STREAM_AFTER) {
        at = stream->after_next++ % STREAM_AFTER;
        stream->after[at].stream = number;
        stream->after[at].epoch = 0;
    }
    if (stream->after[at].epoch < mark) {
        stream->after[at].epoch = mark;
    }
    pool_unlock(pool);
}

void vs_stream_freed(struct vs_pool *pool, uint32_t number, uint64_t stamp)
{
    struct vs_stream *stream = stream_at(pool, number);
    if (__builtin_expect(load(&stream->freed) < stamp, 0)) {
        raise(&stream->freed, stamp);
    }
}

/* Frees that no fence covers and that nobody has seen pass. */
static bool unclosed(const struct vs_stream *stream)
{
    uint64_t freed = load(&stream->freed);
    return freed > load(&stream->closed) && freed > load(&stream->seen);
}

bool vs_pool_stream_open(const struct vs_pool *pool, uint32_t number)
{
    return atomic_load_explicit(&pool->pressed, memory_order_relaxed) &&
           unclosed(stream_at(pool, number)) && !(pool->config.faults & VS_POOL_LATE_FENCES);
}

/* Fences that the host has seen pass are forgotten. The lock is held. */
static void forget_seen(struct vs_stream *stream)
{
    uint64_t seen = load(&stream->seen);
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
    uint64_t epoch = load(&stream->open);
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
    uint64_t before = load(&stream->closed);
    before = stream->inexact > before ? stream->inexact : before;
    stream->fences[at].exact_after = pressed && load(&stream->freed) > before ? before : epoch;
    atomic_store(&stream->closed, epoch);
    pool_unlock(pool);
    atomic_fetch_add_explicit(&pool->epochs.records, 1, memory_order_relaxed);
    return 0;
}

static int close_stream(struct vs_pool *pool, uint32_t number, bool ending)
{
    struct vs_stream *stream = stream_at(pool, number);
    uint64_t freed = load(&stream->freed);
    for (unsigned spins = 0; load(&stream->closed) < freed && load(&stream->seen) < freed;
         spins++) {
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
    return close_stream(pool, number, false);
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
    uint64_t start = load(&stream->seen), from = start + 1;
    uint32_t fence;
    pool_lock(pool); /* the number may be another stream's by now, and that is not covered */
    bool over = stream->covered && vs_epochs_seen(&pool->epochs) >= stream->covered;
    uint64_t covers = stream->covers;
    pool_unlock(pool);
    if (over) {
        saw(pool, number, covers);
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
        saw(pool, number, epoch);
    }
    return load(&stream->seen) > start;
}

static bool holds_unseen(struct vs_pool *pool, uint32_t number)
{
    const struct vs_stream *stream = stream_at(pool, number);
    return (stream->free_bytes > 0 || stream->crossing != 0) &&
           load(&stream->freed) > load(&stream->seen);
}

/* What it freed may all have been handed on, to streams that come after it; until it is seen its
 * number cannot be another's. */
static bool holds_number(struct vs_pool *pool, uint32_t number)
{
    const struct vs_stream *stream = stream_at(pool, number);
    return atomic_load(&stream->state) == STREAM_ENDED &&
           load(&stream->freed) > load(&stream->seen);
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
        int rc = close_stream(pool, number, false);
        rc = rc < 0 ? rc : poll_stream(pool, number);
        if (rc < 0) {
            return rc;
        }
        any |= rc;
    }
    if (pool->stream_count > 0) {
        any |= take_crossed(pool);
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
    int rc = close_stream(pool, want->stream, false);
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
        int rc = close_stream(pool, number, false);
        if (rc < 0) {
            return rc;
        }
        uint64_t epoch = find_fence(pool, stream, load(&stream->seen) + 1, hasty, &fence);
        if (!epoch) {
            continue;
        }
        atomic_fetch_add(&pool->epochs.waits, 1);
        rc = pool->ops.stream_wait(pool->world, number, fence, !hasty);
        if (rc < 0) {
            return rc;
        }
        if (rc == 0) {
            saw(pool, number, epoch);
            take_crossed(pool);
            return 1;
        }
    }
    return 0;
}

/* ---- begin and end ----------------------------------------------------------------------------
 */

/* The number of a stream that has ended, and of which nothing is left to be seen. The lock is held.
 */
static uint32_t used_number(struct vs_pool *pool)
{
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        struct vs_stream *stream = stream_at(pool, i);
        if (atomic_load(&stream->state) == STREAM_ENDED &&
            load(&stream->seen) >= load(&stream->freed) && !stream->crossing) {
            return i;
        }
    }
    return 0;
}

static uint32_t new_number(struct vs_pool *pool)
{
    uint32_t number = pool->stream_count + 1;
    struct vs_stream *stream =
        number <= VS_POOL_STREAMS ? pool->ops.host_map(pool->world, sizeof *stream) : NULL;
    if (!stream) {
        return 0;
    }
    atomic_store(&stream->open, 1);
    stream->heap.stream = (uint8_t)number;
    pool->streams[number] = stream;
    atomic_store_explicit(&pool->stream_count, number, memory_order_release);
    return number;
}

/* Whom others come after by this number was another stream, and all of it has been seen. The lock
 * is held. */
static void forget_number(struct vs_pool *pool, uint32_t number)
{
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        struct vs_stream *stream = stream_at(pool, i);
        for (unsigned n = 0; n < STREAM_AFTER; n++) {
            if (i == number || stream->after[n].stream == number) {
                stream->after[n].stream = 0;
            }
        }
    }
}

static uint32_t begin(struct vs_pool *pool, bool own)
{
    pool_lock(pool);
    uint32_t number = used_number(pool);
    number = number ? number : new_number(pool);
    if (number) {
        forget_number(pool, number);
        stream_at(pool, number)->covered = 0;
        stream_at(pool, number)->own = own;
        atomic_store(&stream_at(pool, number)->state, STREAM_ALIVE);
    }
    pool_unlock(pool);
    return number;
}

uint32_t vs_pool_stream_begin(struct vs_pool *pool, bool own)
{
    uint32_t number = begin(pool, own);
    if (!number && vs_streams_poll(pool, 0) > 0) {
        number = begin(pool, own);
    }
    return number;
}

void vs_pool_stream_end(struct vs_pool *pool, uint32_t number)
{
    struct vs_stream *stream = stream_at(pool, number);
    atomic_store(&stream->state, STREAM_ENDING);
    for (unsigned spins = 0; atomic_load(&stream->recording); spins++) {
        vs_pool_pause(spins, &pool->ops, pool->world);
    }
    vs_slab_stream_ends(pool, number);
    if (close_stream(pool, number, true) != 0 && stream->own) {
        /* No fence could be had: the context's own covers it, whatever becomes of the stream. */
        uint64_t epoch = vs_epochs_begin_free(&pool->epochs);
        pool_lock(pool);
        stream->covered = epoch;
        stream->covers = load(&stream->freed);
        pool_unlock(pool);
        vs_epochs_freed(&pool->epochs, epoch);
    }
    atomic_store(&stream->state, STREAM_ENDED);
}

int vs_streams_init(struct vs_pool *pool)
{
    return vs_table_init(&pool->crossings, sizeof(struct crossing), &pool->ops, pool->world);
}

void vs_streams_fini(struct vs_pool *pool)
{
    vs_table_fini(&pool->crossings, &pool->ops, pool->world);
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        pool->ops.host_unmap(pool->world, pool->streams[i], sizeof *pool->streams[i]);
    }
}
