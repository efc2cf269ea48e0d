/*
 * Arenas: which pool serves whom.
 *
 * One arena per device and owning context (a green context belongs to its device's primary one),
 * made at the first plain allocation there, found again by context identity (place.h), and by
 * address for frees. It is the `world` of its pool's ops (arena_ops.c): charges the cap, makes the
 * driver calls, keeps the driver's last error.
 *
 * An arena is never freed while a thread may be in it: users hold it (vs_arena_of…/vs_arena_leave),
 * the end of its context waits for them, a second at most; after that it is left in place, dead.
 */
#ifndef VS_SHIM_ARENA_H
#define VS_SHIM_ARENA_H

#include "pool/pool.h"
#include "shim/fence.h"
#include "shim/guard.h"
#include "shim/place.h"

struct vs_arena;

/* The arena that serves the thread's current context, made where there is none yet. NULL: none (no
 * context, VRAMSHIM_POOL=off, the pool is off by itself): the driver serves. */
struct vs_arena *vs_arena_of_thread(const struct vs_guard *guard);

/* The arena that an address belongs to, whatever is current; NULL: none. */
struct vs_arena *vs_arena_of_address(CUdeviceptr address);

void vs_arena_leave(struct vs_arena *arena);

/* Allocation and free as the driver would answer them, capture legality and sticky errors included.
 * Count nothing. */
CUresult vs_arena_alloc(const struct vs_guard *guard, struct vs_arena *arena, size_t bytes,
                        CUdeviceptr *address);
CUresult vs_arena_free(const struct vs_guard *guard, struct vs_arena *arena, CUdeviceptr address);

/* Calls visit for each living arena, which it holds meanwhile. */
void vs_arena_each(void (*visit)(struct vs_arena *arena, void *data), void *data);

struct vs_pool *vs_arena_pool(struct vs_arena *arena);
struct vs_fences *vs_arena_fences(struct vs_arena *arena);

/* A context is about to end, has ended, or did not after all (identity as of place.h). */
void vs_arena_context_goes(uint64_t identity);
void vs_arena_context_gone(uint64_t identity);
void vs_arena_context_stays(uint64_t identity);

#endif
