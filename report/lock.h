/*
 * A lock of one word, for sections of a few dozen instructions that make no call out.
 *
 * One exchange to take it, one store to drop it; whoever finds it held spins briefly, then sleeps
 * in short steps (so that a holder that lost its processor, or has a lower priority, gets on). Not
 * recursive. A zeroed lock is free. Not fair.
 */
#ifndef VS_REPORT_LOCK_H
#define VS_REPORT_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vs_lock {
    _Atomic uint32_t held;
};

void vs_lock_wait(struct vs_lock *lock);

/* Gives up at a moment of CLOCK_MONOTONIC. */
bool vs_lock_take_until(struct vs_lock *lock, uint64_t deadline_ns);

/* For the end of a process, where the holder may be a thread whose signal handler is what called
 * exit: gives up after a second, counted over all such locks from vs_lock_end_begins on. */
void vs_lock_end_begins(void);
bool vs_lock_take_at_end(struct vs_lock *lock);

static inline bool vs_lock_try(struct vs_lock *lock)
{
    return atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0;
}

static inline void vs_lock_take(struct vs_lock *lock)
{
    if (!vs_lock_try(lock)) {
        vs_lock_wait(lock);
    }
}

static inline void vs_lock_drop(struct vs_lock *lock)
{
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
