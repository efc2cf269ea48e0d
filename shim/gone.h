/*
 * Contexts that were destroyed, or are about to be.
 *
 * One that was destroyed by another thread stays current where it was, and the driver may answer
 * questions about it as if it were alive: it would be given an arena, and events recorded in it,
 * which ends in a crash. So handles that our hooks have seen destroyed are remembered until the
 * driver hands them out again. For a thread with such a one nothing is done here: its calls go to
 * the driver. Of a primary context, whose handle stays good, the driver says truly whether it is
 * active (arena.c): its end is a doubt only, to be asked about.
 *
 * The newest 256 are kept. A context that is made past our hooks, with the handle of one of these,
 * has no pool.
 */
#ifndef VS_SHIM_GONE_H
#define VS_SHIM_GONE_H

#include "shim/driver.h"

#include <stdatomic.h>

enum vs_gone { VS_GONE_NOT, VS_GONE_DOUBTFUL, VS_GONE };

/* How many are remembered, and how many threads are in a call that may destroy one. */
extern _Atomic uint32_t vs_gone_count __attribute__((visibility("hidden")));
extern _Atomic uint32_t vs_gone_ending __attribute__((visibility("hidden")));

/* Around the driver's call that may destroy it: begins returns what ends wants. In between a handle
 * that is made anew is alive, whoever says what first. */
uint64_t vs_gone_begins(CUcontext context, bool primary);
void vs_gone_ends(uint64_t token, bool destroyed);

/* The driver has handed this context out, or says that it is alive. */
void vs_gone_made(CUcontext context);

enum vs_gone vs_gone_find(CUcontext context);

static inline enum vs_gone vs_gone(CUcontext context)
{
    return __builtin_expect(atomic_load_explicit(&vs_gone_count, memory_order_acquire) == 0, 1)
               ? VS_GONE_NOT
               : vs_gone_find(context);
}

#endif
