/*
 * Arenas: which pool serves whom.
 *
 * One arena per device and owning context (a green context belongs to its device's primary one),
 * made at the first plain allocation there, found again by context identity (place.h), and by
 * address for frees. It is the `world` of its pool's ops (arena_ops.c): charges the cap, makes the
 * driver calls, keeps the driver's last error.
 *
 * An arena is never freed while a thread may be in it: users hold it (vs_arena_of…/vs_arena_leave),
 * the end of its context waits for them, five seconds at most; after that it is left in place,
 * dead.
 */
#ifndef VS_SHIM_ARENA_H
#define VS_SHIM_ARENA_H

#include "pool/pool.h"
#include "report/ledger.h"
#include "shim/fence.h"
#include "shim/guard.h"
#include "shim/place.h"

struct vs_arena;

/* The arena that serves the thread's current context, made where there is none yet. NULL: none (no
 * context, VRAMSHIM_POOL=off, the pool is off by itself): the driver serves. */
struct vs_arena *vs_arena_of_thread(const struct vs_guard *guard);

/* Where there is no arena, or none that works (unfit): must the driver not serve either? A pool is
 * what holds a cap; where one is set, memory that no pool could serve is refused, and the report
 * says so. False where the driver refuses by itself. */
bool vs_arena_refuses(const struct vs_guard *guard);

/* The arena that an address belongs to, whatever is current; NULL: none that can be used. */
struct vs_arena *vs_arena_of_address(CUdeviceptr address);

/* Does the address lie in memory of an arena, even one that cannot be used now? Then it must not
 * reach the driver, which would free the whole of what lies there. */
bool vs_arena_claims(CUdeviceptr address);

void vs_arena_leave(struct vs_arena *arena);

/* Allocation as the driver would answer it, capture legality and sticky errors included. stream: in
 * whose order (streams.h); 0: in none's. *verdict is set when the answer is
 * CUDA_ERROR_OUT_OF_MEMORY. Counts nothing. */
CUresult vs_arena_alloc(struct vs_arena *arena, size_t bytes, uint32_t stream, CUdeviceptr *address,
                        enum vs_verdict *verdict);

/* Free, in two steps: may_free answers as the driver would before it frees anything (legality, a
 * broken context), and waits where a plain free has to; then the books; then the free itself. */
CUresult vs_arena_may_free(const struct vs_guard *guard, struct vs_arena *arena);
CUresult vs_arena_free(struct vs_arena *arena, CUdeviceptr address);

/* The host has seen what was freed before pass: before an address leaves the context's streams.
 * What a running capture keeps aside stays aside. */
CUresult vs_arena_settle(struct vs_arena *arena);

/* Gives back what is free in the pool beyond so much, as far as that need not be waited for. */
void vs_arena_trim(struct vs_arena *arena, uint64_t keep);

/* Memory was asked for, of the driver or of this arena (or NULL), and this was the answer. True:
 * there was no room, and other arenas of the thread's device have given back what lay idle in them:
 * ask again. Waits for what was freed in them, as those frees would have. */
bool vs_arena_gives_room(const struct vs_guard *guard, const struct vs_arena *asked);

static inline bool vs_arena_makes_room(const struct vs_guard *guard, CUresult result,
                                       const struct vs_arena *asked)
{
    return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && guard->counts &&
           vs_arena_gives_room(guard, asked);
}

/* Calls visit for each living arena, which it holds meanwhile. */
void vs_arena_each(void (*visit)(struct vs_arena *arena, void *data), void *data);

struct vs_pool *vs_arena_pool(struct vs_arena *arena);
struct vs_fences *vs_arena_fences(struct vs_arena *arena);
CUcontext vs_arena_context(const struct vs_arena *arena);
bool vs_arena_is_native(const struct vs_arena *arena);
/* Its pool cannot work with this driver's memory: the driver serves instead. */
bool vs_arena_unfit(const struct vs_arena *arena);
struct vs_place vs_arena_place(const struct vs_arena *arena);

/*
 * What the pools of a device hold free, beside what the driver says of it, both of one moment:
 *     if (vs_arena_look(&look, device)) {
 *         do {
 *             vs_arena_look_begins(&look);
 *             …the driver's call…
 *         } while (vs_arena_look_again(&look, …whether it answered…));
 *     }
 * and then look.idle is what is free in the pools. False: there are none.
 */
struct vs_arena_look {
    CUdevice device;
    struct vs_arenas *arenas;
    uint64_t begun, idle;
    uint64_t until; /* patience lasts until then; 0: it has not been needed */
    unsigned count; /* of looks in vain */
    bool still;     /* no memory was moving when it began */
};

bool vs_arena_look(struct vs_arena_look *look, CUdevice device);
void vs_arena_look_begins(struct vs_arena_look *look);
bool vs_arena_look_again(struct vs_arena_look *look, bool answered);

/* How the pools of a device stand, summed. */
void vs_arena_stats(CUdevice device, struct vs_ledger_pool_stats *out);

/* Tells the ledger so; of every device that has had a pool, at the end of the process. The second
 * makes no call that could wait for what the calling thread holds itself. */
void vs_arena_publish(CUdevice device);
void vs_arena_publish_all(void);

/* The calling thread leaves, and the process may go on without it (arena_decay.c). */
void vs_decay_thread_leaves(void);

/*
 * The end of a context, around the driver's call:
 *     vs_arena_context_ends(handle);               no arena is made for that handle meanwhile
 *     identity = …its identity (place.h)…;
 *     arena = vs_arena_context_goes(identity);     nobody comes in; waits for those inside
 *     …the driver's call…
 *     vs_arena_context_gone(arena), or …_stays
 *     vs_arena_context_ended(handle);
 * The arena is NULL where there is none, which is fine for what follows. Of two threads that end
 * the same context the second waits, five seconds at most, for what the first comes to.
 */
void vs_arena_context_ends(CUcontext handle);
struct vs_arena *vs_arena_context_goes(uint64_t identity);
void vs_arena_context_gone(struct vs_arena *arena);
void vs_arena_context_stays(struct vs_arena *arena);
void vs_arena_context_ended(CUcontext handle);

#endif
