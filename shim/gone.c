/*
 * Contexts that were destroyed (see gone.h).
 *
 * An entry is made before the driver destroys, since another thread may be given the same handle
 * before that call returns; it is then forgotten at once, and whoever began it finds it gone by its
 * token. Lock: page->contexts, a leaf. The table may be stale in a forked child, which has no
 * contexts of its parent's.
 */
#include "shim/gone.h"

#include "shim/place.h"
#include "shim/process.h"

enum { GONE_CONTEXTS = 256 };

_Atomic uint32_t vs_gone_count, vs_gone_ending;

static struct {
    CUcontext context; /* NULL = free */
    uint64_t token;    /* grows with age */
    uint32_t ending;   /* threads in the driver's call */
    bool gone, primary;
} entries[GONE_CONTEXTS];
static uint64_t tokens;

/* All with the lock. -1: not there. */
static int find(CUcontext context)
{
    for (int i = 0; i < GONE_CONTEXTS; i++) {
        if (entries[i].context == context) {
            return i;
        }
    }
    return -1;
}

static void forget(int i)
{
    atomic_fetch_sub_explicit(&vs_gone_ending, entries[i].ending, memory_order_release);
    entries[i].context = NULL;
    entries[i].gone = false;
    entries[i].ending = 0;
    entries[i].token = 0;
    atomic_fetch_sub_explicit(&vs_gone_count, 1, memory_order_release);
}

/* A free place, or the oldest that nobody is about to decide on. */
static int place(void)
{
    int oldest = -1;

    for (int i = 0; i < GONE_CONTEXTS; i++) {
        if (entries[i].context == NULL) {
            return i;
        }
        if (entries[i].ending == 0 && (oldest < 0 || entries[i].token < entries[oldest].token)) {
            oldest = i;
        }
    }
    if (oldest >= 0) {
        forget(oldest);
    }
    return oldest;
}

uint64_t vs_gone_begins(CUcontext context, bool primary)
{
    struct vs_lock *lock = &vs_process_page()->contexts;
    uint64_t token = 0;
    int i;

    if (context == NULL || !vs_process_counts()) {
        return 0;
    }
    vs_lock_take(lock);
    i = find(context);
    if (i < 0) {
        i = place();
        if (i >= 0) {
            entries[i].context = context;
            entries[i].token = ++tokens;
            entries[i].primary = primary;
            atomic_fetch_add_explicit(&vs_gone_count, 1, memory_order_release);
        }
    }
    if (i >= 0) {
        entries[i].ending++;
        atomic_fetch_add_explicit(&vs_gone_ending, 1, memory_order_release);
        token = entries[i].token;
    }
    vs_lock_drop(lock);
    return token;
}

void vs_gone_ends(uint64_t token, bool destroyed)
{
    struct vs_lock *lock = &vs_process_page()->contexts;

    if (token == 0) {
        return;
    }
    vs_lock_take(lock);
    for (int i = 0; i < GONE_CONTEXTS; i++) {
        if (entries[i].token != token) {
            continue;
        }
        entries[i].gone = entries[i].gone || destroyed;
        vs_place_handle_goes(); /* what was remembered of it since it began to go */
        entries[i].ending--;
        atomic_fetch_sub_explicit(&vs_gone_ending, 1, memory_order_release);
        if (!entries[i].gone && entries[i].ending == 0) {
            forget(i);
        }
        break;
    }
    vs_lock_drop(lock);
}

void vs_gone_made(CUcontext context)
{
    struct vs_lock *lock = &vs_process_page()->contexts;
    int i;

    if (context == NULL || !vs_process_counts()) {
        return;
    }
    vs_lock_take(lock);
    i = find(context);
    if (i >= 0) {
        forget(i);
    }
    vs_lock_drop(lock);
}

enum vs_gone vs_gone_find(CUcontext context)
{
    struct vs_lock *lock = &vs_process_page()->contexts;
    enum vs_gone answer = VS_GONE_NOT;
    int i;

    if (context == NULL) {
        return VS_GONE_NOT;
    }
    vs_lock_take(lock);
    i = find(context);
    if (i >= 0) {
        answer = entries[i].gone && !entries[i].primary ? VS_GONE : VS_GONE_DOUBTFUL;
    }
    vs_lock_drop(lock);
    return answer;
}
