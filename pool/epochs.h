/*
 * Epochs: what a plain free waits for, without waiting.
 *
 * Time is cut into epochs, numbered from 1. A free belongs to the epoch that was open when it
 * began. Closing an epoch opens the next one first and records a fence then, so that the fence
 * covers all work that was submitted before any free of the epoch, and (if the owner closes before
 * it submits) none that was submitted later. A fence covers those before it.
 *
 *     seen <= available,   available = the later of seen and ordered,   closed < open
 *
 * Memory of an epoch up to `available` may be handed out again (all later work waits for its fence,
 * or it has passed); only memory up to `seen` may be unmapped, moved or given back.
 *
 * Where a fence could not be recorded (a capture is running) the epoch stays without one, and the
 * next fence covers it.
 *
 * Threads: everything from any thread; no lock is held across ops. But two do not record at once:
 * who closes an epoch meanwhile waits until the other has recorded its fence (and, where all of
 * them are outstanding, has seen the oldest pass).
 */
#ifndef VS_POOL_EPOCHS_H
#define VS_POOL_EPOCHS_H

#include "pool/lock.h"

struct vs_epochs {
    /* Read by every allocation and free. */
    _Atomic uint64_t open __attribute__((aligned(64)));
    _Atomic uint64_t available;
    _Atomic uint64_t freed;  /* the last epoch with a free in it */
    _Atomic uint64_t closed; /* the last epoch with a fence */
    _Atomic uint64_t seen;
    /* Touched by those who close and move fences on. */
    struct vs_pool_lock lock __attribute__((aligned(128)));
    _Atomic uint64_t recording; /* somebody is */
    /* Fences, a ring: the n-th ever recorded lies under number n modulo VS_POOL_FENCES. */
    uint64_t recorded; /* how many, ever */
    uint64_t oldest;   /* the first that has not been seen */
    uint64_t fence_epoch[VS_POOL_FENCES];
    _Atomic uint64_t records, orders, waits, polls;
    uint32_t faults;
};

void vs_epochs_init(struct vs_epochs *epochs, uint32_t faults);

/* The epoch of a free that begins now. */
static inline uint64_t vs_epochs_begin_free(const struct vs_epochs *epochs)
{
    return atomic_load_explicit(&epochs->open, memory_order_seq_cst);
}

/* The free is in the books. */
void vs_epochs_freed(struct vs_epochs *epochs, uint64_t epoch);

static inline uint64_t vs_epochs_available(const struct vs_epochs *epochs)
{
    return atomic_load_explicit(&epochs->available, memory_order_acquire);
}

uint64_t vs_epochs_seen(const struct vs_epochs *epochs);

/* Frees without a fence of their own? */
static inline bool vs_epochs_unclosed(const struct vs_epochs *epochs)
{
    return atomic_load_explicit(&epochs->freed, memory_order_seq_cst) >
           atomic_load_explicit(&epochs->closed, memory_order_seq_cst);
}

/* Closes the open epoch if there are frees without a fence; what another thread frees meanwhile is
 * its own affair. 0; positive: refused; or an error. */
int vs_epochs_close(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world);

/* Makes all later work wait for the last fence. 1: more memory is available now; 0: no; or an
 * error. */
int vs_epochs_order(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world);

/* Asks which fences have passed. 1: more have; 0: no; or an error. */
int vs_epochs_poll(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world);

/* The host waits, for about half of the fences that are outstanding up to an epoch, at least one.
 * 1: more has been seen; 0: there was nothing to wait for; or an error. */
int vs_epochs_wait_some(struct vs_epochs *epochs, uint64_t until, const struct vs_pool_ops *ops,
                        void *world);

#endif
