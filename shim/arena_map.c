/*
 * From an address to the arena that has it (see arena_inner.h).
 *
 * Looking up takes two loads and no lock. Leaves are never given back: a reader may be in one. What
 * is written before an address is handed out is seen by whoever has got that address.
 */
#include "report/sys.h"
#include "shim/arena_inner.h"

#include <string.h>

enum { PAGE_BITS = 21, LEAF_PAGES = 1 << VS_MAP_LEAF_BITS, ROOTS = 1 << VS_MAP_ROOT_BITS };
_Static_assert(VS_POOL_PAGE == UINT64_C(1) << PAGE_BITS, "the map's pages are the pool's");

typedef _Atomic uint8_t leaf_byte;

/* The leaf of a root entry, made where there is none; it begins as the entry was. */
static leaf_byte *leaf_for(struct vs_arena_map *map, uint64_t root)
{
    uintptr_t entry = atomic_load_explicit(&map->root[root], memory_order_relaxed);
    leaf_byte *leaf = vs_arena_map_leaf(entry);

    if (entry != 0 && (entry & 1) == 0) {
        return leaf;
    }
    leaf = vs_sys_map(LEAF_PAGES);
    if (leaf == NULL) {
        return NULL;
    }
    memset((void *)leaf, (int)(entry >> 1), entry == 0 ? 0 : LEAF_PAGES);
    atomic_store_explicit(&map->root[root], (uintptr_t)leaf, memory_order_release);
    return leaf;
}

static void in_use(struct vs_arena_map *map, uint64_t root)
{
    uint32_t low = atomic_load_explicit(&map->low, memory_order_relaxed);
    uint32_t high = atomic_load_explicit(&map->high, memory_order_relaxed);

    if (high == 0 || root < low) {
        atomic_store_explicit(&map->low, (uint32_t)root, memory_order_relaxed);
    }
    if (root >= high) {
        atomic_store_explicit(&map->high, (uint32_t)root + 1, memory_order_relaxed);
    }
}

/* With the lock. */
static int set(struct vs_arena_map *map, uint64_t page, uint64_t end, unsigned owner)
{
    while (page < end) {
        uint64_t root = page >> VS_MAP_LEAF_BITS, stop = (root + 1) << VS_MAP_LEAF_BITS;
        uintptr_t entry = atomic_load_explicit(&map->root[root], memory_order_relaxed);
        bool has_leaf = entry != 0 && (entry & 1) == 0;
        leaf_byte *leaf;

        stop = stop < end ? stop : end;
        in_use(map, root);
        if (stop - page == LEAF_PAGES && !has_leaf) {
            atomic_store_explicit(&map->root[root], owner == 0 ? 0 : (uintptr_t)owner << 1 | 1,
                                  memory_order_release);
            page = stop;
            continue;
        }
        leaf = leaf_for(map, root);
        if (leaf == NULL) {
            return -ENOMEM;
        }
        for (; page < stop; page++) {
            atomic_store_explicit(&leaf[page & (LEAF_PAGES - 1)], (uint8_t)owner,
                                  memory_order_release);
        }
    }
    return 0;
}

int vs_arena_map_set(struct vs_arena_map *map, uint64_t address, uint64_t bytes, unsigned owner)
{
    uint64_t page = address >> PAGE_BITS;
    uint64_t end = (address + bytes + VS_POOL_PAGE - 1) >> PAGE_BITS;
    int error;

    if (end < page || end > (uint64_t)ROOTS << VS_MAP_LEAF_BITS) {
        return -ENOMEM; /* further up than the map goes */
    }
    vs_lock_take(&map->writing);
    error = set(map, page, end, owner);
    vs_lock_drop(&map->writing);
    return error;
}

void vs_arena_map_drop(struct vs_arena_map *map, unsigned owner)
{
    vs_lock_take(&map->writing);
    for (uint32_t root = map->low; root < map->high; root++) {
        uintptr_t entry = atomic_load_explicit(&map->root[root], memory_order_relaxed);

        if ((entry & 1) != 0) {
            if (entry >> 1 == owner) {
                atomic_store_explicit(&map->root[root], 0, memory_order_release);
            }
        } else if (entry != 0) {
            for (unsigned i = 0; i < LEAF_PAGES; i++) {
                if (atomic_load_explicit(&vs_arena_map_leaf(entry)[i], memory_order_relaxed) ==
                    owner) {
                    atomic_store_explicit(&vs_arena_map_leaf(entry)[i], 0, memory_order_release);
                }
            }
        }
    }
    vs_lock_drop(&map->writing);
}
