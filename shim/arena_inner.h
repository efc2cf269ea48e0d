/*
 * Arenas from the inside: what the files arena*.c share.
 *
 * All of it hangs on the process's page (page->arenas), so that a forked child starts with nothing:
 * its parent's arenas stay where they are in its memory, untouched and unknown.
 *
 * States of a place in the table:
 *   FREE -> MAKING -> ALIVE <-> GOING -> FREE, or DEAD where a thread would not leave it.
 * Only ALIVE arenas take users. A user first counts itself in, then looks at the state; whoever
 * ends an arena first changes the state, then looks at the counts: one of the two sees the other.
 *
 * Counting must cost next to nothing: most threads have a lane of their own, in which they count
 * with plain stores. What would take a barrier in each of them, whoever ends an arena does for all:
 * membarrier, between the state and the counts. Where the kernel has none, or more threads allocate
 * than there are such lanes, threads share lanes and count with locked instructions.
 *
 * Locks: arenas->making, under which page->contexts (place.c) is taken; arenas->map.writing, a
 * leaf. Neither is held across a driver call.
 */
#ifndef VS_SHIM_ARENA_INNER_H
#define VS_SHIM_ARENA_INNER_H

#include "report/ledger.h"
#include "report/lock.h"
#include "shim/arena.h"

enum {
    VS_ARENAS = 255,          /* at once; one byte names them */
    VS_ARENA_OWN_LANES = 112, /* of one thread each */
    VS_ARENA_LANES = 128,
    VS_ARENA_ENDING = 64, /* contexts that end at the same time; more than that are not looked at */
    VS_ARENA_PATIENCE_MS = 5000
};

/* Addresses to arenas, by pages of VS_POOL_PAGE: 49 bits of address, two levels. An entry of the
 * root is 0 (nothing), odd (all of it belongs to entry >> 1), or a leaf of one byte per page. */
#define VS_MAP_LEAF_BITS 14
#define VS_MAP_ROOT_BITS 14

struct vs_arena_map {
    struct vs_lock writing;
    _Atomic uint32_t low, high; /* root entries in use lie in [low, high) */
    _Atomic uintptr_t root[1u << VS_MAP_ROOT_BITS];
};

static inline _Atomic uint8_t *vs_arena_map_leaf(uintptr_t entry)
{
    return (_Atomic uint8_t *)entry; /* NOLINT(performance-no-int-to-ptr) */
}

/* owner: 1 … VS_ARENAS, or 0 = nobody. Whole pages. -ENOMEM: nothing was changed that would matter
 * to others. */
int vs_arena_map_set(struct vs_arena_map *map, uint64_t address, uint64_t bytes, unsigned owner);

static inline unsigned vs_arena_map_at(const struct vs_arena_map *map, uint64_t address)
{
    uint64_t page = address / VS_POOL_PAGE, root = page >> VS_MAP_LEAF_BITS;
    uintptr_t entry;

    if (root >= 1u << VS_MAP_ROOT_BITS) {
        return 0;
    }
    entry = atomic_load_explicit(&map->root[root], memory_order_acquire);
    if ((entry & 1) != 0) {
        return (unsigned)(entry >> 1);
    }
    return entry == 0 ? 0
                      : atomic_load_explicit(vs_arena_map_leaf(entry) +
                                                 (page & ((1u << VS_MAP_LEAF_BITS) - 1)),
                                             memory_order_acquire);
}

void vs_arena_map_drop(struct vs_arena_map *map, unsigned owner);

/* What the arenas of one device share. */
struct vs_arena_device {
    _Atomic uint64_t held;               /* charged to the cap */
    uint64_t limit;                      /* UINT64_MAX = none */
    _Atomic uint32_t seen;               /* the first arena has been made: POOL_SIZE is taken */
    struct vs_ledger_pool_stats retired; /* what arenas did that are gone; under arenas->making */
    _Atomic uint64_t idle_asleep;        /* idle when the decay thread last went to sleep */
};

enum vs_arena_state {
    VS_ARENA_FREE,
    VS_ARENA_MAKING,
    VS_ARENA_ALIVE,
    VS_ARENA_GOING,
    VS_ARENA_DEAD
};

struct vs_arena_lane {
    _Atomic uint32_t users;
    _Atomic uint64_t owed;       /* the last fence that frees want to have passed (fence_owed.c) */
} __attribute__((aligned(128))); /* processors fetch lines in pairs */

struct vs_arena {
    /* Read by every allocation and free, written seldom. */
    _Atomic uint32_t state;
    unsigned number; /* 1 … VS_ARENAS, as in the map */
    struct vs_arenas *arenas;
    _Atomic uint64_t identity; /* of the owning context (place.h) */
    struct vs_pool *pool;
    uint64_t trim_above; /* as the pool's configuration has it */
    CUdevice device;
    enum vs_pool_backing backing;
    const struct vs_driver *driver;
    CUcontext context;
    _Atomic bool unfit;                   /* the driver's memory does not begin on pages */
    bool direct_rdma;                     /* vmm: memory that a NIC may reach */
    struct vs_fences fences;              /* what is read often comes first in it */
    _Atomic(struct vs_streams *) streams; /* of stream_inner.h; made for the first */
    _Atomic(CUstream) giving;             /* native: segments go back on it, made at the first */
    struct vs_arena_device *charge;
    _Atomic int64_t reserved; /* as the pool says */
    _Atomic uint64_t charged; /* what of it is charged to the cap */
    _Atomic uint64_t wait_ns; /* of the host, for fences */
    _Atomic bool stay;        /* a user would not leave: never to be used again */
    struct vs_arena_lane lanes[VS_ARENA_LANES];
};

struct vs_arenas {
    bool one_sided; /* the kernel makes the barrier: lanes can be a thread's own */
    _Atomic int32_t owner[VS_ARENA_OWN_LANES]; /* thread ids, of dead ones too; 0: nobody's yet */
    struct vs_lock making;
    CUcontext ending[VS_ARENA_ENDING]; /* handles, under making */
    _Atomic uint32_t count;            /* places of the table in use, once or now */
    _Atomic(struct vs_arena *) table[VS_ARENAS];
    struct vs_arena_device device[VS_LEDGER_MAX_DEVICES];
    /* How often memory began to move between the driver and a pool, and was done with it. */
    _Atomic uint64_t moves_begun, moves_done;
    _Atomic uint64_t looked_at; /* moves wait until then: arena_stats.c */
    struct vs_arena_map map;
};

/* What one call into a pool made of the driver, in bytes; for decisions.c. */
struct vs_arena_tally {
    uint64_t took, gave;
    uint64_t moved; /* mapped again, at another address */
    uint64_t waits, wait_ns;
    uint64_t unmapped; /* of what it took: to be mapped for the first time */
};

/* What the calling thread's last call into a pool met. */
struct vs_arena_thread {
    uint32_t number;                /* of the thread, from 1; 0: none yet */
    uint32_t lane;                  /* in which it counts itself in and out … */
    const struct vs_arenas *arenas; /* … of these; a child after fork has others */
    bool permitted; /* may call the driver: no thread of the driver's that runs host functions */
    int32_t error;  /* CUresult of the last driver call that failed */
    bool capped;    /* the cap said no, the last time that memory was asked for */
    bool slow;      /* the driver was asked for memory, or given some */
    struct vs_arena_tally tally;
};
extern __thread struct vs_arena_thread vs_arena_here
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

uint32_t vs_arena_lane_new(void);

/* The number of the calling thread. */
static inline uint32_t vs_arena_lane(void)
{
    uint32_t number = vs_arena_here.number;

    return __builtin_expect(number != 0, 1) ? number : vs_arena_lane_new();
}

/* Chooses this thread's lane of these arenas. */
void vs_arena_lane_choose(struct vs_arenas *arenas);

static inline bool vs_arena_lane_is_own(uint32_t lane)
{
    return __builtin_expect(lane < VS_ARENA_OWN_LANES, 1);
}

static inline void vs_arena_count_in(struct vs_arena *arena)
{
    struct vs_arena_thread *here = &vs_arena_here;
    _Atomic uint32_t *users;

    if (__builtin_expect(here->arenas != arena->arenas, 0)) {
        vs_arena_lane_choose(arena->arenas);
    }
    users = &arena->lanes[here->lane].users;
    if (vs_arena_lane_is_own(here->lane)) {
        atomic_store_explicit(users, atomic_load_explicit(users, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* the other half: see_users */
    } else {
        atomic_fetch_add_explicit(users, 1, memory_order_seq_cst);
    }
}

static inline void vs_arena_left(struct vs_arena *arena)
{
    _Atomic uint32_t *users = &arena->lanes[vs_arena_here.lane].users;

    if (vs_arena_lane_is_own(vs_arena_here.lane)) {
        atomic_store_explicit(users, atomic_load_explicit(users, memory_order_relaxed) - 1,
                              memory_order_release);
    } else {
        atomic_fetch_sub_explicit(users, 1, memory_order_release);
    }
}

static inline bool vs_arena_enter(struct vs_arena *arena)
{
    vs_arena_count_in(arena);
    if (__builtin_expect(
            atomic_load_explicit(&arena->state, memory_order_seq_cst) == VS_ARENA_ALIVE, 1)) {
        return true;
    }
    vs_arena_left(arena);
    return false;
}

/* The table of this process; NULL: none has been made yet. */
static inline struct vs_arenas *vs_arenas_now(void)
{
    return atomic_load_explicit(&vs_process_page()->arenas, memory_order_acquire);
}

/* How many places of a table (or of NULL) ever were an arena's, and one of them, which is not held.
 * A place is never freed. */
static inline uint32_t vs_arenas_count(const struct vs_arenas *arenas)
{
    return arenas == NULL ? 0 : atomic_load_explicit(&arenas->count, memory_order_acquire);
}

static inline struct vs_arena *vs_arenas_at(const struct vs_arenas *arenas, uint32_t i)
{
    return atomic_load_explicit(&arenas->table[i], memory_order_acquire);
}

/* vs_arenas_now, made where there is none; NULL: there is no memory for it. */
struct vs_arenas *vs_arenas_here(void);

/* In whatever state; NULL: there is none. */
struct vs_arena *vs_arena_of_identity(struct vs_arenas *arenas, uint64_t identity);

/* Nobody knows the arena any more. */
void vs_arena_place_back(struct vs_arena *arena);

/* After an arena's state was changed, by an exchange that is a barrier here. */
void vs_arenas_see_users(const struct vs_arenas *arenas);

/* How long others are waited for, in short naps; false: it is over. */
uint64_t vs_arena_deadline(void);
bool vs_arena_nap(uint64_t until);

/*
 * Memory moves between the driver and an arena, in the calling thread: around the driver's call and
 * what is charged for it. Whoever wants both sides' figures of one moment (arena_stats.c) looks
 * whether a move is under way, or was meanwhile.
 */
void vs_arena_move_waits(struct vs_arenas *arenas);

static inline void vs_arena_move_begins(struct vs_arenas *arenas)
{
    if (__builtin_expect(atomic_load_explicit(&arenas->looked_at, memory_order_relaxed) != 0, 0)) {
        vs_arena_move_waits(arenas);
    }
    atomic_fetch_add_explicit(&arenas->moves_begun, 1, memory_order_seq_cst);
}

static inline void vs_arena_move_done(struct vs_arenas *arenas)
{
    atomic_fetch_add_explicit(&arenas->moves_done, 1, memory_order_release);
}

/* The same only where it is still the one of this identity: its place in the table may have become
 * another's. */
static inline bool vs_arena_enter_as(struct vs_arena *arena, uint64_t identity)
{
    if (!vs_arena_enter(arena)) {
        return false;
    }
    if (__builtin_expect(atomic_load_explicit(&arena->identity, memory_order_relaxed) == identity,
                         1)) {
        return true;
    }
    vs_arena_left(arena);
    return false;
}

/* The driver's answer to any call where this thread may make none: it runs a host function. */
CUresult vs_arena_permitted(const struct vs_guard *guard);

/* A free by the pool, in the order of a stream (0: a plain one), without what else it does. */
CUresult vs_arena_free_block(struct vs_arena *arena, CUdeviceptr address, uint32_t stream);

/* The ops of every arena; the world is the arena. */
extern const struct vs_pool_ops vs_arena_ops;

/* Which backing serves this device, and what it needs to know. */
enum vs_pool_backing vs_arena_backing(const struct vs_entries *real, CUdevice device,
                                      bool *direct_rdma);

/* Adds what the arena did to its device's books; it is about to go. */
void vs_arena_retire(struct vs_arena *arena);

enum vs_decay_state {
    VS_DECAY_NONE,    /* no thread yet; must be 0 */
    VS_DECAY_TICKING, /* it looks again after a period */
    VS_DECAY_OFF,     /* none wanted, none to be had, or ended */
    VS_DECAY_LAST,    /* … and then sleeps for good, unless there is a free before that */
    VS_DECAY_ASLEEP,  /* until a free wakes it */
    VS_DECAY_ENDING,  /* it has been told to end */
    VS_DECAY_LATE     /* … and the main thread, about to leave, could not wait for it */
};

/* The process has an arena: starts the thread where there is none and one is wanted. */
void vs_decay_begin(void);

/* A free in this arena may have left memory idle, and the thread may not know (arena_decay.c). */
void vs_decay_tell(struct vs_arena *arena);

static inline void vs_decay_freed(struct vs_arena *arena)
{
    uint32_t state = atomic_load_explicit(&vs_process_page()->decay, memory_order_relaxed);

    if (__builtin_expect(state != VS_DECAY_TICKING && state != VS_DECAY_OFF, 0)) {
        vs_decay_tell(arena);
    }
}

#endif
