/*
 * The pool's inside: what its files share.
 *
 * Three zones, so that sizes that live differently do not share pages: SMALL (runs of equal slots,
 * for requests up to 64 KiB; slab.c), MIDDLE (below 2 MiB) and LARGE. A zone's memory is a sequence
 * of blocks that cover it without gaps, linked by address:
 *
 *   HOLE     addresses with nothing behind them (vmm); whole pages
 *   FREE     mapped and available: in the tree
 *   PENDING  freed, its epoch not available yet: in the queue
 *   LIVE     a program's
 *   RUN      LIVE to the zone, cut into slots by the slab, or into pieces (spans.h)
 *   VIEW     addresses with second mappings of other blocks' pages, not in use (vmm; views.c). In
 * use it is LIVE like any other, and those pages' own blocks are LENT BUSY     belongs to a thread
 * that is mapping or unmapping in it, without a lock
 *
 * Two FREE blocks are never neighbours (but across a page's border in the small zone, or where two
 * streams freed them), nor are two HOLEs. With the native backing each allocation
 * of the driver is a sequence of its own.
 *
 * Every page (2 MiB) that has memory has a record: which handle lies there, the last epoch in which
 * something on it was freed, and which blocks start on it. Records are found by address without a
 * lock (pages.h).
 *
 * Locks, in this order: a heap of the slab, the pool's, the epochs'. None is held across ops (but
 * host_map and reserved).
 */
#ifndef VS_POOL_INTERNAL_H
#define VS_POOL_INTERNAL_H

#include "pool/epochs.h"
#include "pool/pool.h"
#include "pool/table.h"

#define UNIT_BITS 9
#define UNIT ((uint64_t)1 << UNIT_BITS)
#define PAGE_BITS 21
#define PAGE_UNITS (1u << (PAGE_BITS - UNIT_BITS))
_Static_assert(VS_POOL_PAGE == (uint64_t)1 << PAGE_BITS, "one page");

enum vs_zone_name { ZONE_NONE, ZONE_SMALL, ZONE_MIDDLE, ZONE_LARGE, ZONES };
#define SMALL_MAX ((uint64_t)64 << 10)
#define MIDDLE_MAX (VS_POOL_PAGE - UNIT)

enum vs_block_state {
    BLOCK_UNUSED,
    BLOCK_HOLE,
    BLOCK_FREE,
    BLOCK_PENDING,
    BLOCK_LIVE,
    BLOCK_RUN,
    BLOCK_VIEW,
    BLOCK_LENT,
    BLOCK_BUSY
};

struct vs_block {
    uint32_t spare; /* the table's link while unused */
    uint32_t units;
    uint64_t address;
    uint64_t epoch;       /* PENDING, VIEW: of its free. FREE, RUN and a stream's: its stamp */
    uint32_t prev, next;  /* by address; 0 = end of the zone, or of the driver's allocation */
    uint32_t left, right; /* FREE and HOLE: the tree; PENDING: left is the queue's link */
    uint32_t key;         /* in the tree. FREE: units. HOLE: with the FREE blocks beside it */
    uint32_t run;         /* RUN: its number */
    union {
        uint64_t turn;  /* LIVE, large: of loops.c */
        uint64_t stamp; /* PENDING, and a stream's: the stamp that it will have */
        struct {
            uint32_t older, newer; /* FREE and a stream's: its list (streams.c) */
        };
    };
    uint8_t state;
    uint8_t zone;
    uint8_t big;    /* may lie over a handle of several pages */
    uint8_t view;   /* VIEW, or one in use: run is its list of stretches */
    uint8_t owner;  /* RUN of the middle zone: its heap + 1 (spans.h) */
    uint8_t stale;  /* a HOLE whose key does not follow its neighbours for now */
    uint8_t lost;   /* a VIEW that could neither be made nor unmapped */
    uint8_t stream; /* PENDING, FREE, BUSY, VIEW: on which it was freed; 0: anybody's (streams.h).
                     * RUN: before it was one */
};
_Static_assert(sizeof(struct vs_block) == 64, "one line of the cache");

struct vs_page {
    uint32_t handle; /* 0: nothing mapped */
    uint32_t starts; /* LARGE: the block that starts here, or one that covers the page's first byte
                      * (pages.c). SMALL, MIDDLE: a record of 64 starts */
    uint32_t free_block; /* LARGE: the FREE block that starts here, or whose first whole page it is
                          */
    uint8_t zone;
    uint8_t dead; /* mapped, but neither access nor unmapping worked: out of use */
};

#define LEAF_BITS 13
struct vs_leaf {
    struct vs_page pages[1u << LEAF_BITS];
    uint64_t last[1u << LEAF_BITS]; /* epoch of the last free on each */
};

#define VIEW_TURNS 4
struct vs_handle {
    uint32_t pages;
    uint32_t next;    /* in the list of spares */
    uint16_t aliases; /* views that it is part of */
    uint16_t turns_at;
    uint32_t turns[VIEW_TURNS]; /* of the last requests that views served with it (loops.c), modulo
                                 * 2^32 */
    uint64_t id;
    uint64_t address; /* where it is mapped; meaningless while spare */
};

/* Exact sizes by (key, address): bins of nearly equal sizes, each a treap. */
#define TREE_BINS 512
struct vs_tree {
    uint64_t filled[TREE_BINS / 64];
    uint32_t roots[TREE_BINS];
    uint64_t bytes; /* in all */
    uint64_t whole; /* in pages that lie in one block entirely */
};

#define STALE_HOLES 32
struct vs_zone {
    struct vs_tree free;
    struct vs_tree holes;
    struct vs_tree views;
    uint32_t stale[STALE_HOLES]; /* HOLEs to be sorted anew, and others by now */
    uint32_t stale_count;
    uint64_t *whole;      /* LARGE, vmm: a bit per page that lies in a FREE block entirely */
    uint64_t base, bytes; /* vmm: its range of addresses */
    uint32_t first;       /* vmm: the first block */
    uint32_t queue_head, queue_tail; /* PENDING, in the order of their frees */
    uint64_t next_take;              /* native: how large the next allocation is to be */
};

#define HEAPS 16
#define CLASSES 40

struct vs_run {
    uint32_t spare; /* the table's link while unused */
    uint32_t block;
    uint32_t prev, next;
    uint8_t class_, heap, list;
    uint8_t slots; /* 0: not in use */
    uint32_t slot_bytes;
    uint64_t address;
    uint64_t free;       /* slots that may be handed out */
    uint64_t waiting[2]; /* freed: the elder ones, then those since */
    uint64_t waiting_epoch[2];
    uint64_t last;    /* epoch of the last free in it */
    uint64_t crossed; /* freed, on a stream that is not the run's own (streams.h) */
    uint64_t stamp;   /* of a stream's run: of the last free on the stream; 0: none so far */
};

struct vs_class {
    uint32_t open_head, open_tail;       /* runs with a free slot */
    uint32_t waiting_head, waiting_tail; /* runs with none, but waiting ones */
    uint32_t empties;                    /* runs without a live slot */
};

struct vs_heap {
    struct vs_pool_lock lock;
    uint8_t stream; /* whose runs these are; 0: anybody's */
    uint32_t runs;
    uint64_t allocs;
    uint64_t slot_bytes;        /* of live slots */
    uint64_t run_bytes;         /* of runs and spans */
    uint32_t spans, spans_tail; /* the oldest first */
    uint32_t empty_spans;
    uint32_t span_quiet; /* the next look at whether others work too */
    uint64_t others;     /* what they had done by the last one */
    _Atomic uint64_t span_ops;
    _Atomic uint64_t span_slack; /* granules in spans that are not in live pieces */
    struct vs_class classes[CLASSES];
} __attribute__((aligned(128)));

/* What the large zone remembers of its requests (loops.c). */
#define VS_LOOP_PAST 16384
#define VS_LOOP_LONG 64 /* a round that is worth a fence for its places */
struct vs_past;
struct vs_loops {
    struct vs_past *past; /* a ring */
    uint32_t *by_context; /* the last turn at which some sixteen sizes came in a row, modulo 2^32 */
    uint64_t *places;     /* by eight turns: where they lay, roughly */
    uint64_t next;        /* turn: how many so far, from 1 on */
    uint64_t expected;    /* the turn that the next request is expected to repeat; 0 = none */
    uint64_t context;     /* hash of the last sizes */
    uint64_t last_factor;
};

struct vs_pool {
    struct vs_pool_config config;
    struct vs_pool_ops ops;
    void *world;
    _Atomic(struct vs_leaf *) *leaves; /* pages.c */
    _Atomic bool spans_on;             /* threads meet at the lock (spans.h) */
    struct vs_epochs epochs;
    struct vs_heap heaps[HEAPS];
    struct vs_table runs, spans; /* taken and given under `lock` */

    struct vs_pool_lock lock __attribute__((aligned(128))); /* guards the rest */
    uint32_t parked;                                        /* a block; 0: none */
    struct vs_zone zones[ZONES];
    struct vs_table blocks, handles, starts, stretches;
    struct vs_stream *streams[VS_POOL_STREAMS + 1]; /* by number, made at the first use */
    _Atomic uint32_t stream_count;                  /* numbers ever used; grows under the lock */
    _Atomic uint64_t streams_matured; /* a bit per stream - 1: more of it has been seen */
    _Atomic bool pressed;             /* memory is short: streams' frees want fences */
    uint64_t pressed_at;              /* allocs when it last was */
    uint64_t idle_keep;               /* vs_pool_keep_idle */
    struct vs_table crossings;
    uint64_t views_made;
    uint32_t views; /* mapped, in use or not */
    struct vs_loops loops;
    uint32_t spares; /* handles that are mapped nowhere */
    uint64_t spare_pages;
    uint64_t reserved, reserved_peak; /* bytes */
    uint64_t live, live_peak;         /* bytes in LIVE and RUN blocks */
    uint64_t pending;                 /* bytes in PENDING blocks */
    uint64_t full_at;                 /* reserved when the device last had no more */
    uint64_t free_low;                /* least reserved - live since the last decay */
    uint64_t decay_low[8];
    uint32_t decay_at;
    uint64_t dead;           /* bytes in blocks that are out of use */
    uint32_t big_floor_bits; /* blocks from this power of two on get handles of several pages */
    uint64_t allocs;         /* by the zones */
    uint32_t watched, watched_waits; /* middle frees, and waits for the lock by then (spans.h) */
    uint64_t leaf_bytes;
    uint64_t last_freed;       /* the highest epoch that any page was freed in */
    _Atomic uint32_t transits; /* threads that hold memory which nobody else can see */
    _Atomic uint64_t misses, trims, released, remapped;
};

static inline struct vs_block *block_at(const struct vs_pool *pool, uint32_t number)
{
    return vs_table_at(&pool->blocks, number, sizeof(struct vs_block));
}

static inline struct vs_handle *handle_at(const struct vs_pool *pool, uint32_t number)
{
    return vs_table_at(&pool->handles, number, sizeof(struct vs_handle));
}

static inline struct vs_run *run_at(const struct vs_pool *pool, uint32_t number)
{
    return vs_table_at(&pool->runs, number, sizeof(struct vs_run));
}

static inline uint64_t block_bytes(const struct vs_block *block)
{
    return (uint64_t)block->units << UNIT_BITS;
}

static inline uint64_t block_end(const struct vs_block *block)
{
    return block->address + block_bytes(block);
}

static inline uint64_t page_down(uint64_t address)
{
    return address & ~(VS_POOL_PAGE - 1);
}

static inline uint64_t page_up(uint64_t address)
{
    return (address + VS_POOL_PAGE - 1) & ~(VS_POOL_PAGE - 1);
}

/*
 * The block that was last freed on a stream stays as it is, parked, until somebody looks at the
 * pool: mostly that is a request of its stream for as much, which takes it back. Everybody else
 * finds it FREE, for whoever takes the lock lets it go first.
 */
void vs_parked_go(struct vs_pool *pool);

/* With whatever is parked. */
static inline void pool_lock_parked(struct vs_pool *pool)
{
    vs_pool_lock(&pool->lock, &pool->ops, pool->world);
}

static inline void pool_lock(struct vs_pool *pool)
{
    pool_lock_parked(pool);
    if (__builtin_expect(pool->parked != 0, 0)) {
        vs_parked_go(pool);
    }
}

static inline void heap_lock(struct vs_pool *pool, struct vs_heap *heap)
{
    vs_pool_lock(&heap->lock, &pool->ops, pool->world);
}

static inline void heap_unlock(struct vs_heap *heap)
{
    vs_pool_unlock(&heap->lock);
}

static inline void pool_unlock(struct vs_pool *pool)
{
    vs_pool_unlock(&pool->lock);
}

/* tree.c: the lock is held. */
/* By block->key, which stays as it is while the block is in the tree. */
void vs_tree_insert(const struct vs_pool *pool, struct vs_tree *tree, uint32_t number);
void vs_tree_remove(const struct vs_pool *pool, struct vs_tree *tree, uint32_t number);
/* The least block of at least (key, address), in that order; 0 if there is none. */
uint32_t vs_tree_from(const struct vs_pool *pool, const struct vs_tree *tree, uint32_t key,
                      uint64_t address);
/* The largest of the bin-th highest bin that holds any; 0 if there are not so many. */
uint32_t vs_tree_large(const struct vs_pool *pool, const struct vs_tree *tree, unsigned bin);

/* pages.c */
static inline struct vs_leaf *leaf_of(const struct vs_pool *pool, uint64_t address)
{
    return address >> 48 ? NULL
                         : atomic_load_explicit(&pool->leaves[address >> (PAGE_BITS + LEAF_BITS)],
                                                memory_order_acquire);
}

static inline unsigned leaf_index(uint64_t address)
{
    return address >> PAGE_BITS & ((1u << LEAF_BITS) - 1);
}

/* No lock; NULL where there is none. */
static inline struct vs_page *vs_page_find(const struct vs_pool *pool, uint64_t address)
{
    struct vs_leaf *leaf = leaf_of(pool, address);
    return leaf ? &leaf->pages[leaf_index(address)] : NULL;
}

/* Zones are entered by whoever maps memory there, without the lock. */
static inline unsigned vs_page_zone(const struct vs_page *page)
{
    return __atomic_load_n(&page->zone, __ATOMIC_ACQUIRE);
}

/* The epoch of the last free on a page that has a record. The lock is held. */
static inline uint64_t *vs_page_last(const struct vs_pool *pool, uint64_t address)
{
    return &leaf_of(pool, address)->last[leaf_index(address)];
}

int vs_pages_init(struct vs_pool *pool);
void vs_pages_fini(struct vs_pool *pool);
/* Makes the records of a range; 0 or -ENOMEM. The lock is held. */
int vs_pages_make(struct vs_pool *pool, uint64_t address, uint64_t bytes);
/* Enters where a block lies: 0, or -ENOMEM. What it says of a block that is gone stays, so whoever
 * looks compares addresses. The lock is held. */
int vs_page_start_set(struct vs_pool *pool, uint32_t block);
/* The same for a run: its number in all slots that it covers. */
int vs_page_run_set(struct vs_pool *pool, uint64_t address, uint64_t bytes, uint32_t run);
/* The same for a span, a whole number of pages. */
int vs_page_span_set(struct vs_pool *pool, uint64_t address, uint64_t bytes, uint32_t block);
/* The block entered for the unit of an address (not necessarily starting right there); 0 = none. No
 * lock. */
uint32_t vs_page_start(const struct vs_pool *pool, const struct vs_page *page, uint64_t address);
/* Something on these pages was freed in this epoch. The lock is held. */
void vs_pages_freed(struct vs_pool *pool, uint64_t address, uint64_t bytes, uint64_t epoch);
bool vs_pages_seen(const struct vs_pool *pool, uint64_t address, uint64_t bytes);

/* What a zone is asked for. */
struct vs_want {
    unsigned zone;
    uint32_t units;
    enum vs_block_state state; /* LIVE or RUN */
    uint32_t stream;           /* for whom; 0: anybody */
};

/* blocks.c: the lock is held. */
/* A new block after `after` (0: alone); 0 where there is no host memory. */
uint32_t vs_block_new(struct vs_pool *pool, uint32_t after, uint64_t address, uint64_t bytes,
                      unsigned zone, enum vs_block_state state);
/* Cuts a block in two at `bytes`; returns the second part, in the same state (and in no tree). */
uint32_t vs_block_cut(struct vs_pool *pool, uint32_t number, uint64_t bytes);
/* Swallows the next block. */
void vs_block_join(struct vs_pool *pool, uint32_t number);
/* Is it to be one block with the next? FREE ones of the small zone end with their page: a run that
 * lay across two would keep one of them in place for slots in the other. */
bool vs_block_joins(const struct vs_pool *pool, const struct vs_block *block);
/* Makes a block that is in no tree FREE or HOLE, joined with its like. Returns the block. */
uint32_t vs_block_release(struct vs_pool *pool, uint32_t number, enum vs_block_state state);
/* A FREE block's size; what a HOLE offers with the FREE blocks beside it, where a window may lie.
 */
uint32_t vs_block_key(const struct vs_pool *pool, const struct vs_block *block);
/* The HOLEs' tree is in order afterwards: before it is searched. */
void vs_holes_sort(struct vs_pool *pool, struct vs_zone *zone);
/* Puts a FREE block or a HOLE into its tree, or takes it out; the HOLEs beside it follow. Not
 * joined with anything. */
void vs_block_list(struct vs_pool *pool, uint32_t number, enum vs_block_state state);
void vs_block_unlist(struct vs_pool *pool, uint32_t number);
/* Cuts [start, end) out of a FREE block that is in its tree, as a BUSY one; 0 where there is no
 * host memory, and nothing has changed. */
uint32_t vs_block_cut_out(struct vs_pool *pool, uint32_t number, uint64_t start, uint64_t end);
/* A BUSY block with memory throughout becomes LIVE or RUN, with so many units (what is more is FREE
 * then, unless there is no host memory for it), entered in the pages. 0; or -ENOMEM, and it is
 * FREE. */
int vs_block_serve(struct vs_pool *pool, uint32_t number, uint32_t units,
                   enum vs_block_state state);
/* … all of it, where it still is what it was when it was LIVE. */
void vs_block_serve_whole(struct vs_pool *pool, uint32_t number);
/* PENDING, into the queue, which is in the order of epochs. */
void vs_block_defer(struct vs_pool *pool, uint32_t number, uint64_t epoch);
/* All PENDING blocks whose epoch is available become FREE. */
void vs_blocks_drain(struct vs_pool *pool);
/* The same, but the last one of this zone and size stays apart, BUSY: returned; 0 = none. */
uint32_t vs_blocks_drain_for(struct vs_pool *pool, unsigned zone, uint32_t units);
void vs_pool_live(struct vs_pool *pool, int64_t bytes);

/* zone.c: no lock is held. */
/* A LIVE or RUN block of a zone, entered in the pages. 0 and *number, or as vs_pool_alloc. */
int vs_zone_alloc(struct vs_pool *pool, const struct vs_want *want, struct vs_pool_request *request,
                  uint32_t *number);
/* The same without ops: -EAGAIN where that does not do. early: the first attempt, with fences that
 * may yet be moved on; -EBUSY where that might make the expected place free. */
int vs_zone_try(struct vs_pool *pool, const struct vs_want *want, bool early, uint32_t *number);
/* Would a request get along with a FREE block that is large enough, and what would it take of it?
 * The lock is held. */
bool vs_zone_fits(const struct vs_pool *pool, const struct vs_want *want,
                  const struct vs_block *block, uint32_t *units);
/* The same, and where that does not do, growth if that is cheap (vs_zone_rotates). */
int vs_zone_try_grow(struct vs_pool *pool, const struct vs_want *want, uint32_t *number);
/* Moves the fences on, as the ladder would. 1: more is available; 0: no; or an error. */
int vs_zone_fences(struct vs_pool *pool);
/* Would a block of whole pages lie across their borders here? */
static inline bool vs_zone_askew(uint64_t address, uint64_t bytes)
{
    return (address & (VS_POOL_PAGE - 1)) != 0 && (bytes & (VS_POOL_PAGE - 1)) == 0;
}
/* May the zones grow by this much rather than touch a fence? */
bool vs_zone_rotates(struct vs_pool *pool, uint64_t bytes);
void vs_reserved_add(struct vs_pool *pool, int64_t bytes); /* the lock is held */

/* Backings: how a zone gets memory. No lock is held. `limit`: how far reserved may go by taking new
 * memory; free memory that is seen is moved, or given back, for the rest. 0 and *number: a BUSY
 * block made LIVE; -ENOMEM; -EAGAIN: nothing now, but waiting for a fence would help; or an error.
 */
int vs_vmm_grow(struct vs_pool *pool, const struct vs_want *want, uint64_t limit, uint32_t *number);
int vs_native_grow(struct vs_pool *pool, const struct vs_want *want, uint64_t limit,
                   uint32_t *number);
int vs_vmm_start(struct vs_pool *pool);
uint64_t vs_vmm_host_bytes(const struct vs_pool *pool);
/* Gives back up to `bytes` of free memory that is seen; returns how much. */
uint64_t vs_vmm_give(struct vs_pool *pool, uint64_t bytes);
uint64_t vs_native_give(struct vs_pool *pool, uint64_t bytes);
void vs_vmm_end(struct vs_pool *pool);
void vs_native_end(struct vs_pool *pool, bool device_gone);
/* A HOLE of so many pages as a BUSY block, with page records; 0: none, or no host memory. The lock
 * is held. */
uint32_t vs_vmm_range(struct vs_pool *pool, unsigned zone, uint32_t pages);
/* Takes new memory into the free blocks of a zone. */
int vs_vmm_add(struct vs_pool *pool, uint64_t bytes);
int vs_native_add(struct vs_pool *pool, uint64_t bytes);

/* pool.c */
/* The live block around an address of the middle or large zone; 0 if there is none. The lock is
 * held. */
uint32_t vs_block_around(const struct vs_pool *pool, const struct vs_page *page, uint64_t address);

/* loops.c: the lock is held. */
int vs_loops_init(struct vs_pool *pool);
void vs_loops_fini(struct vs_pool *pool);
uint64_t vs_loops_host_bytes(const struct vs_pool *pool);
/* Where a request of the large zone is expected to lie, as in the round before; 0 = no idea. Asked
 * again before it is placed, it says the same. */
uint64_t vs_loops_expect(struct vs_pool *pool, uint32_t units);
/* Where it came to lie, once for each request that was served: its turn. And that it was freed. */
uint64_t vs_loops_placed(struct vs_pool *pool, uint32_t units, uint64_t address);
void vs_loops_freed(struct vs_pool *pool, uint64_t turn);
/* A place within [start, end) for this request, that no other is expected to want while it lives; 0
 * = none found. by_views: nor does any view in the whole round. Only where vs_loops_expect knew
 * one. */
uint64_t vs_loops_avoid(struct vs_pool *pool, uint64_t start, uint64_t end, uint64_t bytes,
                        bool by_views);
/* Did some view of the last round need pages in here? */
bool vs_loops_viewed(struct vs_pool *pool, uint64_t address, uint64_t bytes);
/* Is some of this memory expected to be wanted while the request lives? False where nothing is
 * known. */
bool vs_loops_wants(struct vs_pool *pool, uint64_t address, uint64_t bytes);

/* What is known roughly is true; 0, or a number (validate.c). */
int vs_loops_check(struct vs_pool *pool);

/* views.c */
/* The FREE block of the large zone around an address; 0 = none. */
uint32_t vs_free_block_at(const struct vs_pool *pool, uint64_t address);
int vs_views_init(struct vs_pool *pool);
/* Of a FREE block (as it is now), [start, end) has come or goes: the pages there that lie in the
 * block entirely. And a FREE block begins where it does. The lock is held. */
void vs_views_mark(struct vs_pool *pool, const struct vs_block *block, uint64_t start, uint64_t end,
                   bool is_free);
void vs_views_begin(struct vs_pool *pool, uint32_t number);
/* A view that is there and whose pages are free, as a LIVE block. The lock is held. */
bool vs_view_take(struct vs_pool *pool, uint32_t units, uint32_t *number);
/* The same for the one at an address, if there is one there. */
bool vs_view_take_at(struct vs_pool *pool, uint32_t units, uint64_t address, uint32_t *number);
/* A view is freed in this epoch; later, its epoch being available, it is idle; or at once, with the
 * stream and the stamp of its free in the block. The lock is held. */
void vs_view_freed(struct vs_pool *pool, uint32_t number, uint64_t epoch);
void vs_view_idle(struct vs_pool *pool, uint32_t number);
/* May views serve requests of this stream? Their pages are anybody's or the first stream's. */
bool vs_views_may(struct vs_pool *pool, uint32_t stream);
/* Are this block's pages for views, when they are free? */
bool vs_views_of(const struct vs_block *block);
/* A new one, of pages that are free now. 0; -EAGAIN: not enough of them; or an error. No lock. */
int vs_view_make(struct vs_pool *pool, const struct vs_want *want, uint32_t *number);
/* Unmaps up to so many idle ones whose last use has been seen, the eldest first: how many. No lock.
 */
unsigned vs_views_drop(struct vs_pool *pool, unsigned most);

/* bigs.c: blocks over handles of several pages (vmm). The lock is held. */
/* How a request would sit at the start of a FREE block: the units it must take so that no handle of
 * several pages is shared (*units, perhaps a little more than asked), or the handle that has to be
 * cut into pages first (returned; 0 = none). */
uint32_t vs_big_fit(const struct vs_pool *pool, const struct vs_block *block, uint32_t *units);
/* Cuts it; the handle's pages lie in BUSY blocks of ours. No lock held. */
int vs_big_cut(struct vs_pool *pool, uint32_t handle);

/* slab.c: no lock is held. */
int vs_slab_free_on(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                    uint32_t stream);
/* A slot that was freed on another stream than its run's has been seen. */
void vs_slab_crossed(struct vs_pool *pool, uint64_t address);
/* A stream's runs that are empty go back to the zone. */
void vs_slab_stream_ends(struct vs_pool *pool, uint32_t stream);
int vs_slab_alloc(struct vs_pool *pool, struct vs_pool_request *request, uint64_t *address);
int vs_slab_free(struct vs_pool *pool, const struct vs_page *page, uint64_t address);
int vs_slab_find(struct vs_pool *pool, const struct vs_page *page, uint64_t address,
                 uint64_t *start, uint64_t *bytes);
/* Gives back the runs that are empty, which are kept for the next request otherwise, and all spans:
 * how many. */
unsigned vs_slab_flush(struct vs_pool *pool);
/* Bytes in live slots, and in runs; requests served. */
void vs_slab_stats(struct vs_pool *pool, uint64_t *slot_bytes, uint64_t *run_bytes,
                   uint64_t *allocs);

#endif
