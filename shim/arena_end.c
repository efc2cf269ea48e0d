/*
 * Arenas whose context ends (see arena_inner.h): users leave, the pool gives its books back, and
 * what the context took along is off the other books.
 */
#include "shim/arena_inner.h"
#include "shim/fence_copies.h"
#include "shim/process.h"
#include "shim/streams.h"

static uint32_t users_of(struct vs_arena *arena)
{
    uint32_t users = 0;

    for (unsigned i = 0; i < VS_ARENA_LANES; i++) {
        users += atomic_load_explicit(&arena->lanes[i].users, memory_order_seq_cst);
    }
    return users;
}

/* A handle in the list of those whose context ends: *from becomes *to. */
static void change_ending(CUcontext from, CUcontext to)
{
    struct vs_process_page *page = vs_process_page();
    struct vs_arenas *arenas =
        atomic_load_explicit(&page->pool_on, memory_order_relaxed) ? vs_arenas_here() : NULL;

    if (arenas == NULL) {
        return;
    }
    vs_lock_take(&arenas->making);
    for (unsigned i = 0; i < VS_ARENA_ENDING; i++) {
        if (arenas->ending[i] == from) {
            arenas->ending[i] = to;
            break;
        }
    }
    vs_lock_drop(&arenas->making);
}

void vs_arena_context_ends(CUcontext handle)
{
    if (handle != NULL) {
        change_ending(NULL, handle);
    }
}

void vs_arena_context_ended(CUcontext handle)
{
    if (handle != NULL) {
        change_ending(handle, NULL);
    }
}

struct vs_arena *vs_arena_context_goes(uint64_t identity)
{
    struct vs_arenas *arenas = vs_arenas_now();
    uint64_t until = vs_arena_deadline();
    struct vs_arena *arena;
    uint32_t state = VS_ARENA_ALIVE;

    do {
        arena = arenas == NULL || identity == 0 ? NULL : vs_arena_of_identity(arenas, identity);
        if (arena == NULL) {
            return NULL;
        }
        state = VS_ARENA_ALIVE;
        vs_arena_move_begins(arenas); /* what it holds moves with its context */
        if (atomic_compare_exchange_strong(&arena->state, &state, VS_ARENA_GOING)) {
            break;
        }
        vs_arena_move_done(arenas);
        /* Another thread makes it, or ends it as well. */
    } while (state != VS_ARENA_DEAD && vs_arena_nap(until));
    if (state != VS_ARENA_ALIVE) {
        return NULL;
    }
    vs_arenas_see_users(arenas);
    until = vs_arena_deadline();
    while (users_of(arena) != 0) {
        if (!vs_arena_nap(until)) {
            atomic_store(&arena->stay, true);
            break;
        }
    }
    vs_copies_hide(arena->fences.copies);
    return arena;
}

/* What the context took along is no longer held; whatever the pool did not say itself. */
static void settle(struct vs_arena *arena)
{
    int64_t reserved = atomic_exchange(&arena->reserved, 0);
    uint64_t charged = atomic_exchange(&arena->charged, 0);

    atomic_fetch_sub_explicit(&arena->charge->held, charged, memory_order_relaxed);
    if (reserved != 0 && vs_process_counts()) {
        vs_ledger_reserved((uint32_t)arena->device, -reserved);
    }
}

static void end(struct vs_arena *arena)
{
    if (atomic_load(&arena->stay) && users_of(arena) != 0) {
        /* Somebody waits in there for a context that is gone. Mapped memory stays where it is. */
        if (arena->backing == VS_POOL_NATIVE) {
            vs_arena_map_drop(&arena->arenas->map, arena->number);
            settle(arena);
        }
        atomic_store_explicit(&arena->state, VS_ARENA_DEAD, memory_order_release);
        return;
    }
    vs_arena_retire(arena);
    vs_pool_free_all(arena->pool, true);
    arena->pool = NULL;
    vs_streams_arena_gone(arena);
    vs_fences_fini(&arena->fences, false);
    vs_arena_map_drop(&arena->arenas->map, arena->number);
    settle(arena);
    vs_arena_publish(arena->device);
    vs_arena_place_back(arena);
}

void vs_arena_context_gone(struct vs_arena *arena)
{
    if (arena != NULL) {
        end(arena);
        vs_arena_move_done(arena->arenas);
    }
}

void vs_arena_context_stays(struct vs_arena *arena)
{
    if (arena != NULL) {
        vs_copies_show(arena->fences.copies);
        atomic_store_explicit(&arena->state, VS_ARENA_ALIVE, memory_order_seq_cst);
        vs_arena_move_done(arena->arenas);
    }
}
