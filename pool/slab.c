/*
 * The slab: requests up to 64 KiB, from runs of equal slots.
 *
 * Forty classes, eight to a power of two, so that a slot is at most an eighth larger than asked
 * (512 bytes at the least). A run is a RUN block of the small zone with up to 64 slots, whose state
 * is three words: free, and two generations of freed slots that wait for their epochs. Everything
 * is O(1).
 *
 * A run belongs to a heap, and a thread (its lane) allocates from one heap, so that threads do not
 * meet; a free goes to the run's heap, whoever frees. Runs with free slots stand in the class's
 * open list, the oldest first, so that the others drain; runs with none but with waiting ones in
 * its waiting list, in the order in which they got there.
 *
 * A stream has a heap of its own (streams.h): what is freed on it in its runs is free at once.
 */
#include <errno.h>

#include "pool/spans.h"
#include "pool/streams.h"

#define RUN_MAX ((uint32_t)512 << 10)
#define RUN_STEP ((uint32_t)32 << 10)

/* Runs without a live slot that a class keeps: one that is used up while the fences of the other
 * pass, for a loop that takes one block at a time. */
#define EMPTIES 2

enum { LIST_NONE, LIST_OPEN, LIST_WAITING };

static unsigned class_of(uint32_t units)
{
    if (units <= 8) {
        return units - 1;
    }
    unsigned top = 31u - (unsigned)__builtin_clz(units - 1); /* 3..6 */
    return (top - 3) * 8 + 8 + ((units - 1 - (1u << top)) >> (top - 3));
}

static uint32_t class_units(unsigned class_)
{
    if (class_ < 8) {
        return class_ + 1;
    }
    unsigned top = 3 + (class_ - 8) / 8, step = (class_ - 8) % 8;
    return (1u << top) + ((step + 1) << (top - 3));
}

static uint32_t slot_bytes_of(unsigned class_)
{
    return class_units(class_) << UNIT_BITS;
}

static uint32_t run_bytes_of(unsigned class_)
{
    uint32_t slot = slot_bytes_of(class_), slots = RUN_MAX / slot;
    slots = slots < 64 ? slots : 64;
    return (slots * slot + RUN_STEP - 1) / RUN_STEP * RUN_STEP;
}

static unsigned slots_of(unsigned class_)
{
    uint32_t slots = run_bytes_of(class_) / slot_bytes_of(class_);
    return slots < 64 ? slots : 64;
}

static uint64_t all_slots(const struct vs_run *run)
{
    return run->slots == 64 ? ~UINT64_C(0) : (UINT64_C(1) << run->slots) - 1;
}

/* Those that no program has. */
static uint64_t idle_slots(const struct vs_run *run)
{
    return run->free | run->waiting[0] | run->waiting[1] | run->crossed;
}

static bool empty(const struct vs_run *run)
{
    return (run->free | run->waiting[0] | run->waiting[1]) == all_slots(run);
}

/* Lists: the heap is locked. */
static void list_ends(struct vs_heap *heap, struct vs_run *run, uint32_t **head, uint32_t **tail)
{
    struct vs_class *class_ = &heap->classes[run->class_];
    *head = run->list == LIST_OPEN ? &class_->open_head : &class_->waiting_head;
    *tail = run->list == LIST_OPEN ? &class_->open_tail : &class_->waiting_tail;
}

static void leave_list(struct vs_pool *pool, struct vs_heap *heap, struct vs_run *run)
{
    uint32_t *head, *tail;
    if (run->list == LIST_NONE) {
        return;
    }
    list_ends(heap, run, &head, &tail);
    *(run->prev ? &run_at(pool, run->prev)->next : head) = run->next;
    *(run->next ? &run_at(pool, run->next)->prev : tail) = run->prev;
    run->prev = run->next = 0;
    run->list = LIST_NONE;
}

static void join_list(struct vs_pool *pool, struct vs_heap *heap, uint32_t number, uint8_t list)
{
    struct vs_run *run = run_at(pool, number);
    uint32_t *head, *tail;
    run->list = list;
    list_ends(heap, run, &head, &tail);
    run->prev = *tail;
    run->next = 0;
    *(*tail ? &run_at(pool, *tail)->next : head) = number;
    *tail = number;
}

/* Where it belongs, by its slots. */
static void place(struct vs_pool *pool, struct vs_heap *heap, uint32_t number)
{
    struct vs_run *run = run_at(pool, number);
    uint8_t list = run->free ? LIST_OPEN : run->waiting[0] ? LIST_WAITING : LIST_NONE;
    if (list != run->list) {
        leave_list(pool, heap, run);
        if (list != LIST_NONE) {
            join_list(pool, heap, number, list);
        }
    }
}

static void mature(struct vs_run *run, uint64_t available)
{
    while (run->waiting[0] && run->waiting_epoch[0] <= available) {
        run->free |= run->waiting[0];
        run->waiting[0] = run->waiting[1];
        run->waiting_epoch[0] = run->waiting_epoch[1];
        run->waiting[1] = 0;
    }
}

static void wait_for_epoch(struct vs_run *run, uint64_t slot, uint64_t epoch)
{
    unsigned to = run->waiting[0] && (run->waiting[1] || run->waiting_epoch[0] != epoch);
    if (!run->waiting[to] || run->waiting_epoch[to] < epoch) {
        run->waiting_epoch[to] = epoch;
    }
    run->waiting[to] |= slot;
    if (run->last < epoch) {
        run->last = epoch;
    }
}

/* A slot of the class, if there is one as it stands. */
static uint64_t take_slot(struct vs_pool *pool, struct vs_heap *heap, unsigned class_)
{
    struct vs_class *lists = &heap->classes[class_];
    uint32_t number = lists->open_head;
    if (!number) {
        uint64_t available = vs_epochs_available(&pool->epochs);
        number = lists->waiting_head;
        if (!number || run_at(pool, number)->waiting_epoch[0] > available) {
            return 0;
        }
        mature(run_at(pool, number), available);
        place(pool, heap, number);
    }
    struct vs_run *run = run_at(pool, number);
    unsigned slot = (unsigned)__builtin_ctzll(run->free);
    lists->empties -= empty(run);
    run->free &= run->free - 1;
    if (!run->free) {
        mature(run, vs_epochs_available(&pool->epochs));
        place(pool, heap, number);
    }
    heap->allocs++;
    heap->slot_bytes += run->slot_bytes;
    return run->address + (uint64_t)slot * run->slot_bytes;
}

/* The run's block goes back to the zone, to wait there for the last free in it, or as the stream's.
 * The heap is locked, the run empty. */
static void drop_run(struct vs_pool *pool, struct vs_heap *heap, uint32_t number)
{
    struct vs_run *run = run_at(pool, number);
    struct vs_block *block = block_at(pool, run->block);
    leave_list(pool, heap, run);
    heap->classes[run->class_].empties--;
    heap->runs--;
    heap->run_bytes -= block_bytes(block);
    run->slots = 0;
    pool_lock(pool);
    vs_pages_freed(pool, block->address, block_bytes(block), run->last);
    vs_pool_live(pool, -(int64_t)block_bytes(block));
    if (run->stamp) {
        block->stream = heap->stream;
    }
    /* Without a free on the stream perhaps nobody ever had a slot of it: it is what it was. */
    block->stamp = run->stamp ? run->stamp : block->epoch;
    vs_block_defer(pool, run->block, run->last);
    if (heap->stream) {
        vs_blocks_drain(pool);
    }
    vs_table_give(&pool->runs, number);
    pool_unlock(pool);
}

/* Makes a run of a block that came from the zone. */
static int add_run(struct vs_pool *pool, struct vs_heap *heap, unsigned class_, uint32_t block)
{
    pool_lock(pool);
    uint32_t number = vs_table_take(&pool->runs, &pool->ops, pool->world);
    uint64_t bytes = block_bytes(block_at(pool, block)), address = block_at(pool, block)->address;
    int rc = number ? vs_page_run_set(pool, address, bytes, number) : -ENOMEM;
    if (rc) {
        if (number) {
            vs_table_give(&pool->runs, number);
        }
        vs_pool_live(pool, -(int64_t)bytes);
        vs_block_release(pool, block, BLOCK_FREE);
        pool_unlock(pool);
        return rc;
    }
    pool_unlock(pool);
    struct vs_run *run = run_at(pool, number);
    heap_lock(pool, heap);
    run->block = block;
    run->class_ = (uint8_t)class_;
    __atomic_store_n(&run->heap, (uint8_t)heap_index(pool, heap), __ATOMIC_RELAXED);
    run->slots = (uint8_t)slots_of(class_);
    run->slot_bytes = slot_bytes_of(class_);
    run->address = address;
    run->free = all_slots(run);
    join_list(pool, heap, number, LIST_OPEN);
    heap->classes[class_].empties++;
    heap->runs++;
    heap->run_bytes += bytes;
    heap_unlock(heap);
    return 0;
}

/* The last resort: a slot of some other heap, or a larger one; of other streams' none. */
static uint64_t take_anywhere(struct vs_pool *pool, struct vs_heap *heap, unsigned class_)
{
    uint64_t address = 0;
    for (; class_ < CLASSES && !address; class_++) {
        heap_lock(pool, heap);
        address = take_slot(pool, heap, class_);
        heap_unlock(heap);
        for (unsigned i = 0; i < HEAPS && !address; i++) {
            heap_lock(pool, &pool->heaps[i]);
            address = take_slot(pool, &pool->heaps[i], class_);
            heap_unlock(&pool->heaps[i]);
        }
    }
    return address;
}

static struct vs_heap *heap_of(struct vs_pool *pool, const struct vs_pool_request *request)
{
    return request->stream ? &stream_at(pool, request->stream)->heap
                           : &pool->heaps[request->lane % HEAPS];
}

int vs_slab_alloc(struct vs_pool *pool, struct vs_pool_request *request, uint64_t *address)
{
    unsigned class_ = class_of((uint32_t)((request->bytes + UNIT - 1) >> UNIT_BITS));
    struct vs_heap *heap = heap_of(pool, request);
    uint32_t block;

    for (;;) {
        heap_lock(pool, heap);
        *address = take_slot(pool, heap, class_);
        bool waiting = heap->classes[class_].empties >= EMPTIES;
        heap_unlock(heap);
        if (*address) {
            return 0;
        }
        const struct vs_want want = {.zone = ZONE_SMALL,
                                     .units = run_bytes_of(class_) >> UNIT_BITS,
                                     .state = BLOCK_RUN,
                                     .stream = request->stream};
        int rc = waiting ? -EAGAIN : vs_zone_try(pool, &want, false, &block);
        if (rc == -EAGAIN && (waiting || !vs_zone_rotates(pool, VS_POOL_PAGE))) {
            rc = vs_zone_fences(pool);
            if (rc > 0) {
                continue;
            }
            rc = rc < 0 ? rc : -EAGAIN;
        }
        if (rc == -EAGAIN) {
            rc = vs_zone_alloc(pool, &want, request, &block);
        }
        if (rc == -ENOMEM) {
            *address = take_anywhere(pool, heap, class_);
            return *address ? 0 : rc;
        }
        if (rc == 0) {
            rc = add_run(pool, heap, class_, block);
        }
        if (rc) {
            return rc;
        }
    }
}

/* The run and slot of an address; NULL where no live slot is. The heap is locked on success. */
static struct vs_run *lock_slot(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                                bool inside, uint32_t *number, unsigned *slot)
{
    *number = vs_page_start(pool, page, address);
    struct vs_run *run = *number ? run_at(pool, *number) : NULL;
    if (!run) {
        return NULL;
    }
    struct vs_heap *heap = heap_at(pool, __atomic_load_n(&run->heap, __ATOMIC_RELAXED));
    heap_lock(pool, heap);
    if (heap != heap_at(pool, __atomic_load_n(&run->heap, __ATOMIC_RELAXED))) {
        heap_unlock(heap); /* another run by now, of another heap */
        return NULL;
    }
    uint64_t offset = address - run->address;
    if (offset < run->slots * run->slot_bytes) { /* so there are some, and 32 bits do */
        *slot = (uint32_t)offset / run->slot_bytes;
        if ((inside || *slot * run->slot_bytes == offset) && !(idle_slots(run) >> *slot & 1)) {
            return run;
        }
    }
    heap_unlock(heap);
    return NULL;
}

/* After a slot of it has been freed. The heap is locked. */
static void settle_run(struct vs_pool *pool, struct vs_heap *heap, uint32_t number)
{
    struct vs_run *run = run_at(pool, number);
    if (run->list == LIST_NONE || (run->list == LIST_WAITING && run->free)) {
        place(pool, heap, number);
    }
    if (empty(run) && ++heap->classes[run->class_].empties > EMPTIES) {
        drop_run(pool, heap, number);
    }
}

int vs_slab_free(struct vs_pool *pool, const struct vs_page *page, uint64_t address)
{
    uint64_t epoch = vs_epochs_begin_free(&pool->epochs);
    uint32_t number;
    unsigned slot;
    struct vs_run *run = lock_slot(pool, page, address, false, &number, &slot);
    if (!run) {
        return -EINVAL;
    }
    struct vs_heap *heap = heap_at(pool, run->heap);
    wait_for_epoch(run, UINT64_C(1) << slot, epoch);
    heap->slot_bytes -= run->slot_bytes;
    settle_run(pool, heap, number);
    heap_unlock(heap);
    vs_epochs_freed(&pool->epochs, epoch);
    return 0;
}

int vs_slab_free_on(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                    uint32_t stream)
{
    uint64_t epoch = vs_epochs_begin_free(&pool->epochs), stamp = vs_stream_stamp(pool, stream);
    uint32_t number;
    unsigned slot;
    struct vs_run *run = lock_slot(pool, page, address, false, &number, &slot);
    if (!run) {
        return -EINVAL;
    }
    struct vs_heap *heap = heap_at(pool, run->heap);
    if (heap->stream == stream) {
        run->free |= UINT64_C(1) << slot;
        run->stamp = run->stamp < stamp ? stamp : run->stamp;
    } else if (vs_stream_crosses(pool, stream, address, stamp) == 0) {
        run->crossed |= UINT64_C(1) << slot;
    } else if (stream_at(pool, stream)->own) {
        /* Without host memory for that, the context's fence has to do. */
        wait_for_epoch(run, UINT64_C(1) << slot, epoch);
        vs_epochs_freed(&pool->epochs, epoch);
    } else {
        run->crossed |= UINT64_C(1) << slot; /* for good */
    }
    heap->slot_bytes -= run->slot_bytes;
    settle_run(pool, heap, number);
    vs_stream_freed(pool, stream, stamp);
    heap_unlock(heap);
    return 0;
}

void vs_slab_crossed(struct vs_pool *pool, uint64_t address)
{
    const struct vs_page *page = vs_page_find(pool, address);
    uint32_t number = vs_page_start(pool, page, address);
    struct vs_run *run = run_at(pool, number); /* it stays where it is: it has a crossed slot */
    struct vs_heap *heap = heap_at(pool, __atomic_load_n(&run->heap, __ATOMIC_RELAXED));
    heap_lock(pool, heap);
    uint64_t slot = UINT64_C(1) << (address - run->address) / run->slot_bytes;
    run->crossed &= ~slot;
    run->free |= slot;
    settle_run(pool, heap, number);
    heap_unlock(heap);
}

int vs_slab_find(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                 uint64_t *start, uint64_t *bytes)
{
    uint32_t number;
    unsigned slot;
    struct vs_run *run = lock_slot(pool, page, address, true, &number, &slot);
    if (!run) {
        return -EINVAL;
    }
    *bytes = run->slot_bytes;
    *start = run->address + slot * *bytes;
    heap_unlock(heap_at(pool, run->heap));
    return 0;
}

static unsigned flush_heap(struct vs_pool *pool, struct vs_heap *heap)
{
    unsigned dropped = 0;
    heap_lock(pool, heap);
    for (unsigned c = 0; c < CLASSES && heap->runs > 0; c++) {
        uint32_t heads[2] = {heap->classes[c].open_head, heap->classes[c].waiting_head};
        for (unsigned l = 0; l < 2; l++) {
            for (uint32_t number = heads[l], next; number; number = next) {
                next = run_at(pool, number)->next;
                if (empty(run_at(pool, number))) {
                    dropped++;
                    drop_run(pool, heap, number);
                }
            }
        }
    }
    heap_unlock(heap);
    return dropped;
}

unsigned vs_slab_flush(struct vs_pool *pool)
{
    unsigned dropped = vs_spans_flush(pool, true), count = heap_count(pool);
    for (unsigned i = 0; i < count; i++) {
        dropped += flush_heap(pool, heap_at(pool, i));
    }
    return dropped;
}

void vs_slab_stream_ends(struct vs_pool *pool, uint32_t stream)
{
    flush_heap(pool, &stream_at(pool, stream)->heap);
}

void vs_slab_stats(struct vs_pool *pool, uint64_t *slot_bytes, uint64_t *run_bytes,
                   uint64_t *allocs)
{
    unsigned count = heap_count(pool);
    for (unsigned i = 0; i < count; i++) {
        struct vs_heap *heap = heap_at(pool, i);
        heap_lock(pool, heap);
        *slot_bytes += heap->slot_bytes;
        *run_bytes += heap->run_bytes;
        *allocs += heap->allocs;
        heap_unlock(heap);
    }
}
