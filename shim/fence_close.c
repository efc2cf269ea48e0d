/*
 * Closing epochs before work is submitted, and hearing of broken contexts: what one thread's call
 * means for all arenas (see fence.h).
 *
 * The flag page->unclosed goes CLOSED → UNCLOSED by a free, UNCLOSED → a value of the thread that
 * closes, and from that → CLOSED by the same thread, unless a free came meanwhile and made it
 * UNCLOSED again, for the next submission. A thread that meets another's value closes as well, for
 * the epoch being closed may hold its own free: the pool makes it wait until that has its fence. It
 * is then the last to begin that says CLOSED, and it has seen to all that was freed before it
 * began.
 *
 * In a context that captures nothing can be closed. The flag is CLOSED all the same, so that
 * submissions stay cheap while the capture lasts, and its end closes anew (capture.c).
 */
#include "shim/arena_inner.h"
#include "shim/fence.h"
#include "shim/fence_driver.h"

static void close_epoch(struct vs_arena *arena, void *data)
{
    struct vs_pool *pool = vs_arena_pool(arena);

    (void)data;
    if (pool != NULL && vs_pool_open_epoch(pool)) {
        vs_pool_close_epoch(pool); /* what it says, the next call of the pool's user hears, too */
    }
}

void vs_fence_reopen(void)
{
    atomic_exchange_explicit(&vs_process_page()->unclosed, VS_UNCLOSED, memory_order_seq_cst);
}

void vs_fence_close_all(void)
{
    struct vs_process_page *page = vs_process_page();
    uint32_t mine = VS_CLOSING + (vs_arena_lane() & INT32_MAX);

    if (atomic_load_explicit(&page->unclosed, memory_order_acquire) != VS_CLOSED) {
        /* The other half of vs_fence_freed, and of vs_fence_reopen. */
        atomic_exchange_explicit(&page->unclosed, mine, memory_order_seq_cst);
        vs_arena_each(close_epoch, NULL);
        atomic_fetch_add_explicit(&page->closings, 1, memory_order_relaxed);
        atomic_compare_exchange_strong(&page->unclosed, &mine, VS_CLOSED);
    }
}

static void mark_broken(struct vs_arena *arena, void *data)
{
    struct vs_fences *fences = vs_arena_fences(arena);

    if (fences != NULL) {
        atomic_store_explicit(&fences->broken, *(const int32_t *)data, memory_order_relaxed);
    }
}

/* Which context it was is not asked: the mark only makes each ask the driver. */
void vs_fence_broken(CUresult result)
{
    int32_t code = (int32_t)result;

    if (vs_fence_is_sticky(result)) {
        vs_arena_each(mark_broken, &code);
    }
}
