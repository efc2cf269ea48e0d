/*
 * What VRAMSHIM_VERBOSE=2 says of the pool's decisions: what it took from the driver and gave back,
 * which free pages it mapped elsewhere, where the host waited, what was refused, and why.
 *
 * One line a second at most of each kind, in the whole process; the first is always said. Nothing
 * is kept but what a thread's own call did, and nothing is asked where no line would be said.
 */
#ifndef VS_SHIM_DECISIONS_H
#define VS_SHIM_DECISIONS_H

#include "shim/arena.h"

/* Which backing an arena got, and why. Always said. */
void vs_decisions_backing(const struct vs_arena *arena);

/* At the end of a call into the pool that asked the driver for anything: what came of it. asked:
 * the bytes of an allocation; 0: a free, or the decay. Forgets it. */
void vs_decisions_done(const struct vs_arena *arena, uint64_t asked);

/* An allocation is refused. The ledger knows how the pool stands. */
void vs_decisions_refused(struct vs_arena *arena, uint64_t asked, enum vs_verdict verdict);

/* A free waits as the driver's does; a copy waits for what frees owe. */
void vs_decisions_free_waits(bool whole_context);
void vs_decisions_copy_waits(void);

#endif
