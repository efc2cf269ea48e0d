/*
 * Streams (see streams.h): their numbers, who may use what was freed on them, and how it becomes
 * anybody's. Their fences are in stream_fences.c; what blocks make of streams is in blocks.c and
 * zone.c, what slots do in slab.c.
 */
#include "pool/streams.h"

#include <errno.h>

#include "pool/words.h"

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

/* ---- who may use what ------------------------------------------------------------------------ */

bool vs_stream_seen(const struct vs_pool *pool, uint32_t stream, uint64_t stamp)
{
    return stream == 0 || vs_word_load(&stream_at(pool, stream)->seen) >= stamp ||
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

/* ---- a stream's FREE blocks ------------------------------------------------------------------ */

void vs_stream_listed(struct vs_pool *pool, uint32_t block_number)
{
    struct vs_block *block = block_at(pool, block_number);
    struct vs_stream *stream = stream_at(pool, block->stream);
    bool early = stream->oldest != 0 && block->epoch <= block_at(pool, stream->oldest)->epoch;
    if (early) {
        block->older = 0;
        block->newer = stream->oldest;
        block_at(pool, stream->oldest)->older = block_number;
        stream->oldest = block_number;
    } else {
        block->newer = 0;
        block->older = stream->newest;
        *(stream->newest ? &block_at(pool, stream->newest)->newer : &stream->oldest) = block_number;
        stream->newest = block_number;
    }
    stream->free_bytes += block_bytes(block);
}

void vs_stream_unlisted(struct vs_pool *pool, uint32_t block_number)
{
    struct vs_block *block = block_at(pool, block_number);
    struct vs_stream *stream = stream_at(pool, block->stream);
    *(block->older ? &block_at(pool, block->older)->newer : &stream->oldest) = block->newer;
    *(block->newer ? &block_at(pool, block->newer)->older : &stream->newest) = block->older;
    stream->free_bytes -= block_bytes(block);
}

static void mature(struct vs_pool *pool, struct vs_stream *stream)
{
    uint64_t seen = vs_word_load(&stream->seen);
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

bool vs_stream_saw(struct vs_pool *pool, uint32_t number, uint64_t epoch)
{
    bool more = vs_word_raise(&stream_at(pool, number)->seen, epoch);
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

/* ---- crossings ------------------------------------------------------------------------------- */

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
    if (number && crossing_at(pool, number)->stamp <= vs_word_load(&stream->seen)) {
        address = crossing_at(pool, number)->address;
        stream->crossing = crossing_at(pool, number)->next;
        stream->crossing_last = stream->crossing ? stream->crossing_last : 0;
        vs_table_give(&pool->crossings, number);
    }
    pool_unlock(pool);
    return address;
}

int vs_streams_take_crossed(struct vs_pool *pool)
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

/* ---- stamps, and what is known of them ------------------------------------------------------- */

uint64_t vs_pool_stream_mark(struct vs_pool *pool, uint32_t number)
{
    struct vs_stream *stream = stream_at(pool, number);
    uint64_t freed = vs_word_load(&stream->freed), open = freed;
    atomic_compare_exchange_strong(&stream->open, &open, freed + 1);
    return freed;
}

void vs_pool_stream_seen(struct vs_pool *pool, uint32_t number, uint64_t mark)
{
    vs_stream_saw(pool, number, mark);
}

void vs_pool_stream_after(struct vs_pool *pool, uint32_t waiter, uint32_t number, uint64_t mark)
{
    struct vs_stream *stream = stream_at(pool, waiter);
    if (waiter == number || vs_word_load(&stream_at(pool, number)->seen) >= mark) {
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
    if (__builtin_expect(vs_word_load(&stream->freed) < stamp, 0)) {
        vs_word_raise(&stream->freed, stamp);
    }
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* The number of a stream that has ended, and of which nothing is left to be seen. The lock is held.
 */
static uint32_t used_number(struct vs_pool *pool)
{
    for (uint32_t i = 1; i <= pool->stream_count; i++) {
        struct vs_stream *stream = stream_at(pool, i);
        if (atomic_load(&stream->state) == STREAM_ENDED &&
            vs_word_load(&stream->seen) >= vs_word_load(&stream->freed) && !stream->crossing) {
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
    if (vs_stream_close(pool, number, true) != 0 && stream->own) {
        /* No fence could be had: the context's own covers it, whatever becomes of the stream. */
        uint64_t epoch = vs_epochs_begin_free(&pool->epochs);
        pool_lock(pool);
        stream->covered = epoch;
        stream->covers = vs_word_load(&stream->freed);
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
