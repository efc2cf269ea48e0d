/*
 * The pool's lock: one word, for short sections that call out for host memory at most. Spins
 * briefly, then naps through ops. Not recursive, not fair; a zeroed lock is free.
 */
#ifndef VS_POOL_LOCK_H
#define VS_POOL_LOCK_H

#include <stdatomic.h>

#include "pool/ops.h"

struct vs_pool_lock {
    _Atomic uint32_t held;
    uint32_t waits; /* times it was found held; written with it held */
};

/* While another thread is about to finish something: how often we have looked already. */
static inline void vs_pool_pause(unsigned spins, const struct vs_pool_ops *ops, void *world)
{
    if (spins >= 200) {
        ops->nap(world);
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void vs_pool_lock_wait(struct vs_pool_lock *lock, const struct vs_pool_ops *ops, void *world);

static inline void vs_pool_lock(struct vs_pool_lock *lock, const struct vs_pool_ops *ops,
                                void *world)
{
    if (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0) {
        vs_pool_lock_wait(lock, ops, world);
    }
}

static inline void vs_pool_unlock(struct vs_pool_lock *lock)
{
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
