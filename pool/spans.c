/*
 * Spans (see spans.h). The state of one is a few bitmaps over its granules: free, and three
 * ages of freed ones that wait for their epochs; a granule in none of them is live, and a live
 * piece ends where the next start or anything that is not live begins.
 */
#include <errno.h>
#include <string.h>

#include "pool/spans.h"

/* A heap takes another span while it uses so many eighths of those that it has, and while all spans
 * together leave no more than this unused. (Measured with random sizes: 4 MiB to a heap serve 97%
 * of its requests.) */
#define FULL_EIGHTHS 5
#define SLACK_BYTES ((uint64_t)32 << 20)

#define FITS 2 /* spans in which a request fits, of which the tighter fit is taken */

#define LOOK_EVERY 8192
#define COMPANY 64 /* so many calls of others meanwhile, or the heap is alone */

#define PAGE_GRANULES (1u << (PAGE_BITS - GRANULE_BITS))
_Static_assert(SPAN_BYTES % VS_POOL_PAGE == 0, "a span is whole pages");
_Static_assert(MIDDLE_MAX < SPAN_BYTES, "any middle block fits");

static unsigned owner_of(const struct vs_block *block)
{
    return __atomic_load_n(&block->owner, __ATOMIC_ACQUIRE);
}

/* The bits of a word that wait, of whatever age. */
static uint64_t waiting_bits(const struct vs_span *span, unsigned word)
{
    uint64_t bits = 0;
    for (unsigned age = 0; age < SPAN_AGES; age++) {
        bits |= span->waiting[age][word];
    }
    return bits;
}

static bool idle(const struct vs_span *span, unsigned at)
{
    return (span->free[at / 64] | waiting_bits(span, at / 64)) >> at % 64 & 1;
}

/* Where the live piece that starts here ends. */
static unsigned piece_end(const struct vs_span *span, unsigned start)
{
    for (unsigned word = (start + 1) / 64, from = start + 1; word < SPAN_WORDS;
         word++, from = word * 64) {
        uint64_t bits = span->starts[word] | span->free[word] | waiting_bits(span, word);
        bits &= ~UINT64_C(0) << from % 64;
        if (bits) {
            unsigned end = word * 64 + (unsigned)__builtin_ctzll(bits);
            return end < span->count ? end : span->count;
        }
    }
    return span->count;
}

static uint64_t piece_bytes(unsigned granules)
{
    return (uint64_t)granules << GRANULE_BITS;
}

/* The heap is locked: a plain word would do for its owner, others read it too. */
static void bump(_Atomic uint64_t *word, int64_t by)
{
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, now + (uint64_t)by, memory_order_relaxed);
}

static void mature(struct vs_span *span, uint64_t available)
{
    if (span->waiting_count == 0 || span->waiting_epoch[0] > available) {
        return;
    }
    while (span->waiting_epoch[0] && span->waiting_epoch[0] <= available) {
        for (unsigned word = 0; word < SPAN_WORDS; word++) {
            span->free[word] |= span->waiting[0][word];
            span->waiting_count -= (uint16_t)__builtin_popcountll(span->waiting[0][word]);
        }
        memmove(span->waiting, span->waiting + 1, sizeof span->waiting - sizeof span->waiting[0]);
        memset(span->waiting[SPAN_AGES - 1], 0, sizeof span->waiting[0]);
        for (unsigned age = 0; age < SPAN_AGES; age++) {
            span->waiting_epoch[age] = age + 1 < SPAN_AGES ? span->waiting_epoch[age + 1] : 0;
        }
    }
    span->largest = SPAN_GRANULES;
}

/* Epochs up to `closed` have fences. What has none yet (a capture keeps it aside) is kept apart
 * from what has, which may be waited for. */
static void wait_for_epoch(struct vs_span *span, unsigned from, unsigned to, uint64_t epoch,
                           uint64_t closed)
{
    unsigned age = 0;
    while (age < SPAN_AGES && span->waiting_epoch[age]) {
        age++;
    }
    if (age > 0 &&
        (span->waiting_epoch[age - 1] >= epoch || span->waiting_epoch[age - 1] > closed)) {
        age--;
    } else if (age == SPAN_AGES) {
        age--;
        for (unsigned word = 0; word < SPAN_WORDS; word++) {
            span->waiting[age - 1][word] |= span->waiting[age][word];
            span->waiting[age][word] = 0;
        }
        span->waiting_epoch[age - 1] = span->waiting_epoch[age];
    }
    if (span->waiting_epoch[age] < epoch) {
        span->waiting_epoch[age] = epoch;
    }
    vs_bits_set(span->waiting[age], from, to);
    span->waiting_count += (uint16_t)(to - from);
    for (unsigned page = from / PAGE_GRANULES; page * PAGE_GRANULES < to; page++) {
        span->last[page] = span->last[page] < epoch ? epoch : span->last[page];
    }
}

/* The tightest free stretch of so many granules; SPAN_GRANULES if there is none, and `largest` is
 * then exact. */
static unsigned find_stretch(struct vs_span *span, unsigned granules, unsigned *length_)
{
    unsigned best = SPAN_GRANULES, best_length = SPAN_GRANULES + 1, largest = 0;
    for (unsigned at = vs_bits_next(span->free, 0, 0); at < SPAN_GRANULES;) {
        unsigned end = vs_bits_next(span->free, at + 1, ~UINT64_C(0)), length = end - at;
        if (length >= granules && length < best_length) {
            best = at;
            best_length = length;
            if (length == granules) {
                *length_ = length;
                return best;
            }
        }
        largest = length > largest ? length : largest;
        at = end < SPAN_GRANULES ? vs_bits_next(span->free, end + 1, 0) : end;
    }
    span->largest = (uint16_t)largest;
    *length_ = best_length;
    return best;
}

/* Bytes in all spans that are in no live piece. */
static uint64_t slack_of(const struct vs_pool *pool)
{
    uint64_t slack = 0;
    for (unsigned i = 0; i < HEAPS; i++) {
        slack += atomic_load_explicit(&pool->heaps[i].span_slack, memory_order_relaxed);
    }
    return slack << GRANULE_BITS;
}

/* The heap is locked. */
static bool take_piece(struct vs_pool *pool, struct vs_heap *heap, unsigned granules,
                       uint64_t *address, unsigned *waiting)
{
    uint64_t available = vs_epochs_available(&pool->epochs);
    unsigned best_at = 0, best_length = SPAN_GRANULES + 1, fits = 0;
    struct vs_span *best = NULL;
    *waiting = 0;
    for (uint32_t number = heap->spans; number && fits < FITS;
         number = span_at(pool, number)->next) {
        struct vs_span *span = span_at(pool, number);
        unsigned length, at = SPAN_GRANULES;
        mature(span, available);
        *waiting += span->waiting_count;
        if (span->largest >= granules) {
            at = find_stretch(span, granules, &length);
        }
        if (at < SPAN_GRANULES) {
            fits++;
            if (length < best_length) {
                best = span;
                best_at = at;
                best_length = length;
            }
            if (length == granules) {
                break;
            }
        }
    }
    if (!best) {
        return false;
    }
    heap->empty_spans -= best->used == 0;
    vs_bits_clear(best->free, best_at, best_at + granules);
    best->starts[best_at / 64] |= UINT64_C(1) << best_at % 64;
    best->used += (uint16_t)granules;
    heap->allocs++;
    heap->slot_bytes += piece_bytes(granules);
    bump(&heap->span_slack, -(int64_t)granules);
    *address = best->address + piece_bytes(best_at);
    return true;
}

static void unlink_span(struct vs_pool *pool, struct vs_heap *heap, uint32_t number)
{
    struct vs_span *span = span_at(pool, number);
    *(span->prev ? &span_at(pool, span->prev)->next : &heap->spans) = span->next;
    *(span->next ? &span_at(pool, span->next)->prev : &heap->spans_tail) = span->prev;
}

static unsigned age_of(const struct vs_span *span, unsigned at)
{
    unsigned age = 0;
    while (age + 1 < SPAN_AGES && !vs_bits_test(span->waiting[age], at)) {
        age++;
    }
    return age;
}

/* One part of a span becomes a block of the zone; it is the last of the span's block. Both locks
 * are held. False: there is no host memory, and nothing has changed. */
static bool part_off(struct vs_pool *pool, struct vs_heap *heap, struct vs_span *span,
                     unsigned start, unsigned end)
{
    uint64_t bytes = piece_bytes(end - start);
    uint32_t block = start > 0 ? vs_block_cut(pool, span->block, piece_bytes(start)) : span->block;
    if (!block) {
        return false;
    }
    struct vs_block *part = block_at(pool, block);
    bool live = !idle(span, start);
    if (start == 0) {
        __atomic_store_n(&part->owner, 0, __ATOMIC_RELEASE);
    }
    if (live) {
        part->state = BLOCK_LIVE;
        if (vs_page_start_set(pool, block)) {
            part->state = BLOCK_RUN; /* never: the record of this page's starts is there */
        }
        span->used -= (uint16_t)(end - start);
        heap->slot_bytes -= bytes;
    } else {
        vs_pool_live(pool, -(int64_t)bytes);
        if (vs_bits_test(span->free, start)) {
            vs_block_release(pool, block, BLOCK_FREE);
        } else {
            vs_block_defer(pool, block, span->waiting_epoch[age_of(span, start)]);
        }
        bump(&heap->span_slack, -(int64_t)(end - start));
    }
    heap->run_bytes -= bytes;
    vs_bits_clear(span->starts, start, end);
    vs_bits_clear(span->free, start, end);
    for (unsigned age = 0; age < SPAN_AGES; age++) {
        vs_bits_clear(span->waiting[age], start, end);
    }
    span->count = (uint16_t)start;
    return true;
}

/* What lies in a span up to its end, from where it does: one live piece, or a stretch that is free
 * or waits for one epoch. */
static unsigned last_part(const struct vs_span *span)
{
    unsigned at = span->count - 1u;
    if (!idle(span, at)) {
        while (!vs_bits_test(span->starts, at)) {
            at--;
        }
        return at;
    }
    const uint64_t *map =
        vs_bits_test(span->free, at) ? span->free : span->waiting[age_of(span, at)];
    while (at > 0 && vs_bits_test(map, at - 1)) {
        at--;
    }
    return at;
}

/* False: nothing of it could be. The heap is locked. */
static bool dissolve(struct vs_pool *pool, struct vs_heap *heap, uint32_t number)
{
    struct vs_span *span = span_at(pool, number);
    bool was_empty = span->used == 0, fine = true;
    uint16_t count = span->count;
    unsigned waiting = 0;

    pool_lock(pool);
    for (unsigned page = 0; page * PAGE_GRANULES < span->count; page++) {
        vs_pages_freed(pool, span->address + page * VS_POOL_PAGE, VS_POOL_PAGE, span->last[page]);
    }
    while (span->count > 0 && fine) {
        fine = part_off(pool, heap, span, last_part(span), span->count);
    }
    bool some = span->count < count;
    if (span->count == 0) {
        heap->empty_spans -= was_empty;
        unlink_span(pool, heap, number);
        vs_table_give(&pool->spans, number);
    } else {
        for (unsigned word = 0; word < SPAN_WORDS; word++) {
            waiting += (unsigned)__builtin_popcountll(waiting_bits(span, word));
        }
        span->waiting_count = (uint16_t)waiting;
        heap->empty_spans += !was_empty && span->used == 0;
    }
    pool_unlock(pool);
    return some;
}

unsigned vs_spans_flush(struct vs_pool *pool, bool all)
{
    unsigned dissolved = 0;
    if (all) {
        atomic_store_explicit(&pool->spans_on, false, memory_order_relaxed);
    }
    for (unsigned i = 0; i < HEAPS; i++) {
        struct vs_heap *heap = &pool->heaps[i];
        heap_lock(pool, heap);
        for (uint32_t number = heap->spans, after; number; number = after) {
            const struct vs_span *span = span_at(pool, number);
            after = span->next;
            if (all || span->used * 2 < span->count) {
                dissolved += dissolve(pool, heap, number);
            }
        }
        heap_unlock(heap);
    }
    return dissolved;
}

/* May this heap have another span? It is locked. */
static bool may_take(const struct vs_pool *pool, const struct vs_heap *heap)
{
    uint64_t mine = 0, used = 0;
    for (uint32_t number = heap->spans; number; number = span_at(pool, number)->next) {
        mine += span_at(pool, number)->count;
        used += span_at(pool, number)->used;
    }
    return used * 8 >= mine * FULL_EIGHTHS && slack_of(pool) <= SLACK_BYTES;
}

/* A span of a block that came from the zone. 0, or -ENOMEM, and the block is back. */
static int add_span(struct vs_pool *pool, struct vs_heap *heap, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    unsigned owner = (unsigned)(heap - pool->heaps) + 1;

    pool_lock(pool);
    uint32_t span_number = vs_table_take(&pool->spans, &pool->ops, pool->world);
    if (block->units != SPAN_BYTES >> UNIT_BITS || block->address % VS_POOL_PAGE != 0 ||
        !span_number || vs_page_span_set(pool, block->address, SPAN_BYTES, number)) {
        if (span_number) {
            vs_table_give(&pool->spans, span_number);
        }
        vs_pool_live(pool, -(int64_t)block_bytes(block));
        vs_block_release(pool, number, BLOCK_FREE);
        pool_unlock(pool);
        return -ENOMEM;
    }
    struct vs_span *span = span_at(pool, span_number);
    span->block = number;
    span->address = block->address;
    span->count = span->largest = SPAN_GRANULES;
    vs_bits_set(span->free, 0, SPAN_GRANULES);
    block->run = span_number;
    pool->allocs--;
    pool_unlock(pool);

    heap_lock(pool, heap);
    pool_lock(pool);
    __atomic_store_n(&block->owner, (uint8_t)owner, __ATOMIC_RELEASE);
    pool_unlock(pool);
    span->prev = heap->spans_tail;
    *(span->prev ? &span_at(pool, span->prev)->next : &heap->spans) = span_number;
    heap->spans_tail = span_number;
    heap->run_bytes += SPAN_BYTES;
    heap->empty_spans++;
    bump(&heap->span_slack, SPAN_GRANULES);
    heap_unlock(heap);
    return 0;
}

/* Every so often: do others work too? If not, spans only cost memory. The heap is locked. */
static bool alone(struct vs_pool *pool, struct vs_heap *heap)
{
    uint64_t others = 0;
    bump(&heap->span_ops, 1);
    if (++heap->span_quiet % LOOK_EVERY != 0 || (pool->config.faults & VS_POOL_SPANS)) {
        return false;
    }
    for (unsigned i = 0; i < HEAPS; i++) {
        others += atomic_load_explicit(&pool->heaps[i].span_ops, memory_order_relaxed);
    }
    others -= atomic_load_explicit(&heap->span_ops, memory_order_relaxed);
    bool quiet = others - heap->others < COMPANY;
    heap->others = others;
    return quiet;
}

int vs_span_alloc(struct vs_pool *pool, const struct vs_pool_request *request, uint64_t *address)
{
    unsigned granules = (unsigned)((request->bytes + ((1u << GRANULE_BITS) - 1)) >> GRANULE_BITS);
    struct vs_heap *heap = &pool->heaps[request->lane % HEAPS];
    bool moved = false, grown = false;

    for (;;) {
        unsigned waiting = 0;
        heap_lock(pool, heap);
        bool quiet = !moved && !grown && alone(pool, heap);
        bool taken = !quiet && take_piece(pool, heap, granules, address, &waiting);
        bool more = !taken && !quiet && !grown && may_take(pool, heap);
        heap_unlock(heap);
        if (quiet) {
            vs_spans_flush(pool, true);
            return 0;
        }
        if (taken) {
            return 1;
        }
        if (waiting >= granules && !moved) {
            int rc = vs_zone_fences(pool);
            if (rc < 0) {
                return rc;
            }
            moved = true;
            if (rc > 0) {
                continue;
            }
        }
        const struct vs_want want = {
            .zone = ZONE_MIDDLE, .units = SPAN_BYTES >> UNIT_BITS, .state = BLOCK_RUN};
        uint32_t number;
        if (!more || vs_zone_try_grow(pool, &want, &number)) {
            return 0;
        }
        grown = true;
        if (add_span(pool, heap, number)) {
            return 0;
        }
    }
}

/* The span that an address lies in, its heap locked; NULL: the zone is to look. */
static struct vs_span *lock_span(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                                 struct vs_heap **heap)
{
    for (;;) {
        uint32_t number = vs_page_start(pool, page, address);
        struct vs_block *block = number ? block_at(pool, number) : NULL;
        unsigned owner = block ? owner_of(block) : 0;
        if (!owner) {
            return NULL;
        }
        *heap = &pool->heaps[owner - 1];
        heap_lock(pool, *heap);
        if (owner_of(block) == owner && vs_page_start(pool, page, address) == number) {
            struct vs_span *span = span_at(pool, block->run);
            if (address - span->address < piece_bytes(span->count)) {
                return span;
            }
            heap_unlock(*heap); /* of a part that has left it */
            return NULL;
        }
        heap_unlock(*heap);
    }
}

int vs_span_free(struct vs_pool *pool, const struct vs_page *page, uint64_t address, uint64_t epoch)
{
    struct vs_heap *heap;
    struct vs_span *span = lock_span(pool, page, address, &heap);
    if (!span) {
        return 1;
    }
    unsigned start = (unsigned)((address - span->address) >> GRANULE_BITS);
    if (span->address + piece_bytes(start) != address || !vs_bits_test(span->starts, start)) {
        heap_unlock(heap);
        return -EINVAL;
    }
    unsigned end = piece_end(span, start);
    span->starts[start / 64] &= ~(UINT64_C(1) << start % 64);
    wait_for_epoch(span, start, end, epoch, atomic_load(&pool->epochs.closed));
    span->used -= (uint16_t)(end - start);
    heap->slot_bytes -= piece_bytes(end - start);
    bump(&heap->span_slack, end - start);
    if (span->used == 0 && (++heap->empty_spans > 1 || slack_of(pool) > SLACK_BYTES)) {
        dissolve(pool, heap, block_at(pool, span->block)->run);
    }
    heap_unlock(heap);
    return 0;
}

int vs_span_leave(struct vs_pool *pool, const struct vs_page *page, uint64_t address)
{
    struct vs_heap *heap;
    struct vs_span *span = lock_span(pool, page, address, &heap);
    if (!span) {
        return 1;
    }
    unsigned start = (unsigned)((address - span->address) >> GRANULE_BITS);
    bool is_start =
        span->address + piece_bytes(start) == address && vs_bits_test(span->starts, start);
    if (is_start) {
        dissolve(pool, heap, block_at(pool, span->block)->run);
    }
    heap_unlock(heap);
    return is_start ? 1 : -EINVAL;
}

int vs_span_find(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                 uint64_t *start, uint64_t *bytes)
{
    struct vs_heap *heap;
    struct vs_span *span = lock_span(pool, page, address, &heap);
    if (!span) {
        return 1;
    }
    unsigned at = (unsigned)((address - span->address) >> GRANULE_BITS);
    int rc = idle(span, at) ? -EINVAL : 0;
    while (rc == 0 && !vs_bits_test(span->starts, at)) {
        at--;
    }
    if (rc == 0) {
        *start = span->address + piece_bytes(at);
        *bytes = piece_bytes(piece_end(span, at) - at);
    }
    heap_unlock(heap);
    return rc;
}

uint64_t vs_spans_pending(struct vs_pool *pool)
{
    uint64_t granules = 0, available = vs_epochs_available(&pool->epochs);
    for (unsigned i = 0; i < HEAPS; i++) {
        struct vs_heap *heap = &pool->heaps[i];
        heap_lock(pool, heap);
        for (uint32_t number = heap->spans; number; number = span_at(pool, number)->next) {
            mature(span_at(pool, number), available);
            granules += span_at(pool, number)->waiting_count;
        }
        heap_unlock(heap);
    }
    return granules << GRANULE_BITS;
}

static int check_span(const struct vs_pool *pool, const struct vs_span *span, unsigned owner,
                      unsigned *used)
{
    const struct vs_block *block = block_at(pool, span->block);
    unsigned waiting = 0;
    *used = 0;
    if (block->state != BLOCK_RUN || owner_of(block) != owner || block->address != span->address ||
        block_bytes(block) != piece_bytes(span->count)) {
        return 60;
    }
    for (unsigned at = 0; at < SPAN_GRANULES; at++) {
        unsigned waits = 0;
        for (unsigned age = 0; age < SPAN_AGES; age++) {
            waits += vs_bits_test(span->waiting[age], at);
        }
        unsigned maps = waits + vs_bits_test(span->free, at);
        if (maps > 1 || ((maps || at >= span->count) && vs_bits_test(span->starts, at))) {
            return 61;
        }
        if (maps && at >= span->count) {
            return 62;
        }
        bool begins = at == 0 || idle(span, at - 1);
        if (!maps && at < span->count && begins && !vs_bits_test(span->starts, at)) {
            return 63; /* live, and nobody's */
        }
        *used += !maps && at < span->count;
        waiting += waits;
    }
    return *used == span->used && waiting == span->waiting_count ? 0 : 64;
}

int vs_spans_check(const struct vs_pool *pool, const struct vs_heap *heap)
{
    unsigned empty = 0;
    uint64_t slack = 0;
    uint32_t last = 0;
    int rc = 0;
    for (uint32_t number = heap->spans; number && rc == 0; number = span_at(pool, number)->next) {
        const struct vs_span *span = span_at(pool, number);
        unsigned used;
        rc = check_span(pool, span, (unsigned)(heap - pool->heaps) + 1, &used);
        if (rc == 0 && (span->prev != last || block_at(pool, span->block)->run != number)) {
            rc = 65;
        }
        slack += span->count - used;
        empty += used == 0;
        last = number;
    }
    if (rc == 0 && (last != heap->spans_tail || empty != heap->empty_spans ||
                    slack != atomic_load(&heap->span_slack))) {
        rc = 66;
    }
    return rc;
}
