/*
 * What frees owe (see fence_owed.h).
 *
 * Each context's fences are numbered as they are recorded (vs_fences.begun, .recorded); `owed` is
 * the last that a free wants to have passed, `passed` the last that the host has seen pass here.
 * page->owed counts what was added to that anywhere, page->paid how much of it is known to have
 * passed: equal where nothing is outstanding. A fence that is owed but not recorded (a capture
 * keeps the free aside) stays owed.
 *
 * The pool must not run out of fences where epochs are closed, for other threads' submissions wait
 * there, and one of them may be what the fences wait for. So a free waits, as the driver's would
 * have, while more than half of them are outstanding.
 *
 * Locks: none. Arenas are held while their fences are asked.
 */
#include "shim/fence_owed.h"

#include "report/sys.h"
#include "shim/arena.h"
#include "shim/fence_copies.h"

#define PATIENCE_NS UINT64_C(1000000000)
#define NAP_NS 20000

enum { OUTSTANDING = VS_POOL_FENCES / 2, AT_ONCE = VS_POOL_FENCES / 16 };

__thread struct vs_fence_owed vs_fence_owed[VS_FENCE_OWED]
    __attribute__((tls_model("initial-exec")));

static void raise(_Atomic uint64_t *word, uint64_t to)
{
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);

    while (now < to && !atomic_compare_exchange_weak(word, &now, to)) {
    }
}

/* Has a fence passed? One whose number is used again has: the pool had seen it. */
static bool has_passed(struct vs_fences *fences, uint64_t fence, uint32_t number)
{
    if (atomic_load_explicit(&fences->begun, memory_order_seq_cst) < fence + VS_POOL_FENCES &&
        vs_fences_query(fences, number, NULL) > 0) {
        return false;
    }
    raise(&fences->passed, fence);
    return true;
}

static bool wait_a_while(struct vs_fences *fences, uint64_t fence, uint32_t number,
                         uint64_t patience)
{
    uint64_t until = vs_sys_clock(CLOCK_MONOTONIC) + patience;

    while (!has_passed(fences, fence, number)) {
        const struct timespec nap = {.tv_nsec = NAP_NS};

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
    uint32_t number = (uint32_t)((fence - 1) % VS_POOL_FENCES);

    if (fence > atomic_load_explicit(&fences->passed, memory_order_acquire)) {
        if (patience != UINT64_MAX) {
            if (!wait_a_while(fences, fence, number, patience)) {
                return false;
            }
        } else if (!has_passed(fences, fence, number)) {
            vs_fences_wait(fences, number, NULL);
            raise(&fences->passed, fence);
        }
    }
    return fence == until;
}

struct paying {
    uint64_t context; /* the thread's current one: its identity; 0: only what is our own */
    bool all;
};

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
    uint64_t owed = atomic_load_explicit(&fences->owed, memory_order_acquire), patience;

    if (mine != NULL && wait_for(fences, mine->until, UINT64_MAX)) {
        mine->fences = NULL;
    }
    if (paying->context != 0 && vs_arena_place(arena).context == paying->context) {
        patience =
            owed > atomic_load_explicit(&fences->given_up, memory_order_relaxed) ? PATIENCE_NS : 0;
        if (!wait_for(fences, owed, patience)) {
            raise(&fences->given_up, owed);
        }
    }
    paying->all =
        paying->all && owed <= atomic_load_explicit(&fences->passed, memory_order_relaxed);
}

void vs_fence_pay(const struct vs_guard *guard)
{
    struct vs_process_page *page = vs_process_page();
    uint32_t owed = atomic_load_explicit(&page->owed, memory_order_acquire);
    uint32_t paid = atomic_load_explicit(&page->paid, memory_order_relaxed);
    struct paying paying = {.all = true};

    if (!vs_copies_wanted(guard) || !vs_process_counts()) {
        return;
    }
    paying.context = vs_place_of_thread(&guard->driver->real).context;
    vs_arena_each(pay, &paying);
    while (paying.all && (int32_t)(owed - paid) > 0 &&
           !atomic_compare_exchange_weak(&page->paid, &paid, owed)) {
    }
}

void vs_fence_owe(struct vs_fences *fences, uint64_t until)
{
    struct vs_fence_owed *mine = own(fences);

    if (until > OUTSTANDING + atomic_load_explicit(&fences->passed, memory_order_relaxed)) {
        wait_for(fences, until - OUTSTANDING + AT_ONCE, UINT64_MAX);
    }
    if (mine == NULL) {
        mine = own(NULL);
    }
    if (mine == NULL) { /* too many contexts: this free waits for those of the others */
        struct paying paying = {.context = 0};

        vs_arena_each(pay, &paying);
        for (unsigned i = 0; i < VS_FENCE_OWED; i++) {
            vs_fence_owed[i].fences = NULL;
        }
        mine = &vs_fence_owed[0];
    }
    *mine = vs_fence_owed[0]; /* the last one is looked at first */
    vs_fence_owed[0] = (struct vs_fence_owed){fences, until};
    if (atomic_load_explicit(&vs_copies_state, memory_order_relaxed) != VS_COPIES_OFF) {
        raise(&fences->owed, until);
        atomic_fetch_add_explicit(&vs_process_page()->owed, 1, memory_order_release);
    }
}
