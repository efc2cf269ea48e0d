/*
 * What frees owe (see fence_owed.h).
 *
 * Each context's fences are numbered as they are recorded (vs_fences.begun, .recorded); `passed` is
 * the last that the host has seen pass here. What a thread's frees want to have passed, it knows
 * itself, and says in its lane of the arena (arena_inner.h), by a plain store on a line that it has
 * written anyway; whoever has to know what all are owed looks at all lanes. That is asked before a
 * synchronous copy, and only where a fence was recorded that is not known to have passed: every
 * free has got one by then, or a capture keeps it aside, and nothing can be waited for yet. It then
 * stays owed.
 *
 * The pool must not run out of fences where epochs are closed, for other threads' submissions wait
 * there, and one of them may be what the fences wait for. So a free waits, as the driver's would
 * have, while more than half of them are outstanding.
 *
 * Locks: none. Arenas are held while their fences are asked.
 */
#include "shim/fence_owed.h"

#include "pool/words.h"
#include "report/sys.h"
#include "shim/arena_inner.h"
#include "shim/decisions.h"
#include "shim/fence_copies.h"

#define PATIENCE_NS UINT64_C(1000000000)
#define NAP_NS 20000

enum { OUTSTANDING = VS_POOL_FENCES / 2, AT_ONCE = VS_POOL_FENCES / 16 };

__thread struct vs_fence_owed vs_fence_owed[VS_FENCE_OWED]
    __attribute__((tls_model("initial-exec")));

/* Has a fence passed? One whose number is used again has: the pool had seen it. */
static bool has_passed(struct vs_fences *fences, uint64_t fence, uint32_t *number)
{
    if (vs_fences_number(fences, fence, number) && vs_fences_query(fences, *number, NULL) > 0) {
        return false;
    }
    vs_word_raise(&fences->passed, fence);
    return true;
}

static bool wait_a_while(struct vs_fences *fences, uint64_t fence, uint64_t patience)
{
    uint64_t until = vs_sys_clock(CLOCK_MONOTONIC) + patience;
    uint32_t number;

    while (!has_passed(fences, fence, &number)) {
        const struct timespec nap = {.tv_nsec = NAP_NS};

        vs_decisions_copy_waits();
        if (patience == 0 || vs_sys_clock(CLOCK_MONOTONIC) >= until) {
            return false;
        }
        VS_SYS(SYS_nanosleep, &nap, NULL);
    }
    return true;
}

/* Waits for the fences up to this one, as far as they are recorded. True: all of them are, and have
 * passed. An error is the driver's to tell, at what the program does next. */
static bool wait_for(struct vs_fences *fences, uint64_t until, uint64_t patience)
{
    uint64_t recorded = atomic_load_explicit(&fences->recorded, memory_order_acquire);
    uint64_t fence = until < recorded ? until : recorded;
    uint32_t number;

    if (fence > atomic_load_explicit(&fences->passed, memory_order_acquire)) {
        if (patience != UINT64_MAX) {
            if (!wait_a_while(fences, fence, patience)) {
                return false;
            }
        } else if (!has_passed(fences, fence, &number)) {
            vs_decisions_copy_waits();
            vs_fences_wait(fences, number, NULL);
            vs_word_raise(&fences->passed, fence);
        }
    }
    return fence == until;
}

struct paying {
    uint64_t context; /* the thread's current one: its identity; 0: only what is our own */
};

/* What the frees of all threads in this arena want. */
static uint64_t owed_in(struct vs_arena *arena)
{
    uint64_t owed = 0;

    for (unsigned i = 0; i < VS_ARENA_LANES; i++) {
        uint64_t lane = atomic_load_explicit(&arena->lanes[i].owed, memory_order_acquire);

        owed = lane > owed ? lane : owed;
    }
    return owed;
}

static struct vs_fence_owed *own(const struct vs_fences *fences)
{
    for (unsigned i = 0; i < VS_FENCE_OWED; i++) {
        if (vs_fence_owed[i].fences == fences) {
            return &vs_fence_owed[i];
        }
    }
    return NULL;
}

static void pay(struct vs_arena *arena, void *data)
{
    struct paying *paying = data;
    struct vs_fences *fences = vs_arena_fences(arena);
    struct vs_fence_owed *mine = own(fences);
    uint64_t owed, patience;

    if (mine != NULL && wait_for(fences, mine->until, UINT64_MAX)) {
        mine->fences = NULL;
    }
    if (paying->context != 0 && vs_arena_place(arena).context == paying->context) {
        owed = owed_in(arena);
        patience =
            owed > atomic_load_explicit(&fences->given_up, memory_order_relaxed) ? PATIENCE_NS : 0;
        if (!wait_for(fences, owed, patience)) {
            vs_word_raise(&fences->given_up, owed);
        }
    }
}

void vs_fence_pay(const struct vs_guard *guard)
{
    struct paying paying;

    if (!vs_copies_wanted(guard) || !vs_process_counts()) {
        return;
    }
    paying.context = vs_place_of_thread(&guard->driver->real).context;
    vs_arena_each(pay, &paying);
}

bool vs_fence_outstanding(void)
{
    const struct vs_arenas *arenas = vs_arenas_now();
    uint32_t count = vs_arenas_count(arenas);

    for (uint32_t i = 0; i < count; i++) {
        const struct vs_arena *arena = vs_arenas_at(arenas, i);
        const struct vs_fences *fences = &arena->fences;

        if (atomic_load_explicit(&arena->state, memory_order_acquire) == VS_ARENA_ALIVE &&
            atomic_load_explicit(&fences->passed, memory_order_acquire) <
                atomic_load_explicit(&fences->begun, memory_order_acquire)) {
            return true;
        }
    }
    return false;
}

/* Only this thread writes to its own lane. One that it got from another says less: numbers grow. */
static void say_in_lane(struct vs_arena *arena, uint64_t until)
{
    _Atomic uint64_t *owed = &arena->lanes[vs_arena_here.lane].owed;

    if (vs_arena_lane_is_own(vs_arena_here.lane)) {
        atomic_store_explicit(owed, until, memory_order_release);
    } else {
        vs_word_raise(owed, until);
    }
}

static struct vs_fence_owed *make_room(void)
{
    struct vs_fence_owed *mine = own(NULL);
    struct paying paying = {.context = 0};

    if (mine == NULL) { /* too many contexts: this free waits for those of the others */
        vs_arena_each(pay, &paying);
        for (unsigned i = 0; i < VS_FENCE_OWED; i++) {
            vs_fence_owed[i].fences = NULL;
        }
        mine = &vs_fence_owed[0];
    }
    return mine;
}

void vs_fence_owe(struct vs_arena *arena, uint64_t until)
{
    struct vs_fences *fences = vs_arena_fences(arena);
    struct vs_fence_owed *mine = own(fences);

    if (until > OUTSTANDING + atomic_load_explicit(&fences->passed, memory_order_relaxed)) {
        wait_for(fences, until - OUTSTANDING + AT_ONCE, UINT64_MAX);
    }
    if (mine == NULL) {
        mine = make_room();
    }
    *mine = vs_fence_owed[0]; /* the last one is looked at first */
    vs_fence_owed[0] = (struct vs_fence_owed){fences, until};
    say_in_lane(arena, until);
}
