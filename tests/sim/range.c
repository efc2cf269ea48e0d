/*
 * Addresses: which are taken, by what. Two treaps keyed by base: sim_va (everything, never
 * overlapping) and sim_maps (VMM mappings inside reservations). All under sim_lock.
 *
 * Device addresses come from one reserved region without access. As with the real driver a freed
 * address is the first to be given out again for the same size (VRAMSIM_REUSE=on); without that the
 * search goes on from where the last one ended, so that an address comes back only after the region
 * was gone through and a stale pointer meets nothing rather than somebody else's memory.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct sim_tree sim_va, sim_maps;

static CUdeviceptr region_low, region_high, cursor;
static unsigned long long next_id = 1;

bool sim_va_open(void)
{
    /* Small enough for the address space that the thread sanitizer leaves; less under ulimit -v. */
    for (size_t size = (size_t)512 << 30; size >= (size_t)1 << 30; size >>= 1) {
        void *low = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (low == MAP_FAILED)
            continue;
        const CUdeviceptr huge = (CUdeviceptr)32 << 20;
        region_low = ((CUdeviceptr)(uintptr_t)low + huge - 1) & ~(huge - 1);
        region_high = (CUdeviceptr)(uintptr_t)low + size;
        cursor = region_low;
        return true;
    }
    sim_say("cannot reserve address space for device memory");
    return false;
}

bool sim_va_device(CUdeviceptr address)
{
    return address >= region_low && address < region_high;
}

static uint32_t random_rank(void)
{
    static uint32_t seed = 2463534242u;
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed;
}

/* Splits into bases below `at` and the rest. */
static void split(struct sim_range *node, CUdeviceptr at, struct sim_range **below,
                  struct sim_range **rest)
{
    if (node == NULL) {
        *below = *rest = NULL;
    } else if (node->base < at) {
        *below = node;
        split(node->right, at, &node->right, rest);
    } else {
        *rest = node;
        split(node->left, at, below, &node->left);
    }
}

static struct sim_range *merge(struct sim_range *low, struct sim_range *high)
{
    if (low == NULL || high == NULL)
        return low != NULL ? low : high;
    if (low->rank > high->rank) {
        low->right = merge(low->right, high);
        return low;
    }
    high->left = merge(low, high->left);
    return high;
}

void sim_tree_insert(struct sim_tree *tree, struct sim_range *range)
{
    struct sim_range **at = &tree->root;
    while (*at != NULL && (*at)->rank >= range->rank)
        at = range->base < (*at)->base ? &(*at)->left : &(*at)->right;
    split(*at, range->base, &range->left, &range->right);
    *at = range;
}

void sim_tree_remove(struct sim_tree *tree, struct sim_range *range)
{
    struct sim_range **at = &tree->root;
    while (*at != NULL && *at != range)
        at = range->base < (*at)->base ? &(*at)->left : &(*at)->right;
    if (*at == range)
        *at = merge(range->left, range->right);
    range->left = range->right = NULL;
}

struct sim_range *sim_tree_floor(const struct sim_tree *tree, CUdeviceptr at)
{
    struct sim_range *best = NULL;
    for (struct sim_range *node = tree->root; node != NULL;) {
        if (node->base <= at) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

struct sim_range *sim_tree_next(const struct sim_tree *tree, CUdeviceptr at)
{
    struct sim_range *best = NULL;
    for (struct sim_range *node = tree->root; node != NULL;) {
        if (node->base > at) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

/* The first free address >= from whose span ends at or below high; 0 if none. */
static CUdeviceptr find_from(CUdeviceptr from, CUdeviceptr high, size_t span, size_t align)
{
    CUdeviceptr at = (from + align - 1) & ~((CUdeviceptr)align - 1);
    while (at >= from && at <= high && span <= high - at) {
        const struct sim_range *taken = sim_tree_floor(&sim_va, at + span - 1);
        if (taken == NULL || taken->base + taken->span <= at)
            return at;
        at = (taken->base + taken->span + align - 1) & ~((CUdeviceptr)align - 1);
    }
    return 0;
}

/* What was freed last, newest at the end; entries whose place has been taken are stale. */
static struct {
    CUdeviceptr base;
    size_t span;
} recent[64];
static unsigned recent_count;

static void remember(CUdeviceptr base, size_t span)
{
    const unsigned room = sizeof recent / sizeof recent[0];
    if (recent_count == room) {
        recent_count = room / 2;
        memmove(recent, recent + room / 2, recent_count * sizeof recent[0]);
    }
    recent[recent_count].base = base;
    recent[recent_count++].span = span;
}

static CUdeviceptr take_recent(size_t span, size_t align)
{
    for (unsigned i = recent_count; i-- > 0;) {
        CUdeviceptr base = recent[i].base;
        if (recent[i].span != span || base % align != 0)
            continue;
        recent_count--;
        memmove(&recent[i], &recent[i + 1], (recent_count - i) * sizeof recent[0]);
        if (find_from(base, base + span, span, align) == base)
            return base;
    }
    return 0;
}

CUdeviceptr sim_va_find(size_t span, size_t align, CUdeviceptr hint)
{
    if (span == 0 || span > region_high - region_low)
        return 0;
    if (align < 512)
        align = 512;
    if (hint >= region_low && hint < region_high && hint % align == 0 &&
        span <= region_high - hint && find_from(hint, hint + span, span, align) == hint)
        return hint;
    CUdeviceptr at = sim_config.reuse ? take_recent(span, align) : 0;
    if (at != 0)
        return at;
    at = find_from(cursor, region_high, span, align);
    if (at == 0)
        at = find_from(region_low, region_high, span, align);
    if (at != 0)
        cursor = at + span;
    return at;
}

struct sim_range *sim_range_new(enum sim_kind kind, CUdeviceptr base, size_t size, size_t span,
                                struct sim_phys *phys)
{
    struct sim_range *range = calloc(1, sizeof *range);
    if (range == NULL) {
        sim_phys_unref(phys);
        return NULL;
    }
    range->base = base;
    range->size = size;
    range->span = span;
    range->kind = kind;
    range->phys = phys;
    if (phys != NULL)
        phys->home = base;
    range->id = next_id++;
    range->rank = random_rank();
    sim_tree_insert(kind == SIM_MAPPED ? &sim_maps : &sim_va, range);
    return range;
}

void sim_range_free(struct sim_range *range)
{
    sim_tree_remove(range->kind == SIM_MAPPED ? &sim_maps : &sim_va, range);
    if (range->kind != SIM_MAPPED && sim_va_device(range->base))
        remember(range->base, range->span);
    sim_phys_unref(range->phys);
    sim_race_forget(&range->shadow);
    free(range);
}

struct sim_range *sim_range_at(CUdeviceptr address)
{
    struct sim_range *range = sim_tree_floor(&sim_va, address);
    if (range == NULL || address - range->base >= range->size)
        return NULL;
    if (range->kind != SIM_RESERVED)
        return range;
    struct sim_range *map = sim_tree_floor(&sim_maps, address);
    return map != NULL && address - map->base < map->size ? map : range;
}
