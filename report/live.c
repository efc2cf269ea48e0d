/*
 * The live table (see live.h).
 *
 * A shard is an array of chains. The page that an address lies in chooses the shard, so that a
 * thread whose small blocks lie in pages of its own keeps to locks that no other thread takes; the
 * whole address chooses the chain, so that many blocks of few pages only fill fewer shards. The
 * array doubles when there are more entries than chains; where there is no memory for that, chains
 * grow longer instead.
 *
 * Lock order: a shard's lock is a leaf.
 */
#include "report/live.h"

#include <string.h>

#include "report/lock.h"
#include "report/sys.h"

#define SHARD_BITS 6
#define SHARDS (1u << SHARD_BITS)
_Static_assert(SHARDS == VS_LIVE_SHARDS, "as announced");
#define PAGE_SHIFT 21
#define FIRST_CHAINS_BITS 5
#define FIRST_SLAB ((size_t)64 << 10)
#define LARGEST_SLAB ((size_t)4 << 20)
#define OWN_MAPPING ((size_t)16 << 10) /* arrays from here on are mapped one by one */

struct entry {
    struct vs_alloc alloc;
    struct entry *next; /* in its chain, or of the shard's free ones */
};
_Static_assert(sizeof(struct entry) == 48, "live.h says so");

struct shard {
    struct vs_lock lock;
    uint32_t serial; /* of the last allocation */
    struct entry **chain;
    uint32_t chain_bits; /* meaningful once there is an array */
    uint32_t spare;
    size_t count;
    struct entry *free;
    char *slab; /* untouched part of the newest slab */
    size_t slab_left;
    size_t mapped;
} __attribute__((aligned(128))); /* processors fetch lines in pairs */

struct vs_live {
    struct shard shards[SHARDS];
};

static struct shard *shard_of(struct vs_live *live, uint64_t address)
{
    uint64_t page = address >> PAGE_SHIFT;
    return &live->shards[page * UINT64_C(0xbf58476d1ce4e5b9) >> (64 - SHARD_BITS)];
}

static size_t chain_of(uint64_t address, uint32_t bits)
{
    uint64_t mixed = (address ^ address >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> (64 - bits));
}

/* Memory of a shard that is never given back. bytes is far below FIRST_SLAB. */
static void *carve(struct shard *shard, size_t bytes)
{
    if (shard->slab_left < bytes) {
        size_t slab = shard->mapped / 2;
        slab = slab < FIRST_SLAB ? FIRST_SLAB : slab > LARGEST_SLAB ? LARGEST_SLAB : slab;
        slab &= ~(size_t)4095;
        char *at = vs_sys_map(slab);
        if (!at) {
            return NULL;
        }
        shard->slab = at;
        shard->slab_left = slab;
        shard->mapped += slab;
    }
    void *at = shard->slab;
    shard->slab += bytes;
    shard->slab_left -= bytes;
    return at;
}

/* Zeroed: slabs are used once for an array. */
static struct entry **chains_take(struct shard *shard, size_t bytes)
{
    if (bytes < OWN_MAPPING) {
        return carve(shard, bytes);
    }
    void *at = vs_sys_map(bytes);
    if (at) {
        shard->mapped += bytes;
    }
    return at;
}

/* Small arrays are left behind: those outgrown add up to less than the one in use. */
static void chains_give(struct shard *shard, struct entry **chain, size_t bytes)
{
    if (bytes >= OWN_MAPPING) {
        vs_sys_unmap(chain, bytes);
        shard->mapped -= bytes;
    }
}

/* False only where there are no chains at all. */
static bool grow(struct shard *shard)
{
    uint32_t bits = shard->chain ? shard->chain_bits + 1 : FIRST_CHAINS_BITS;
    size_t old = shard->chain ? (size_t)1 << shard->chain_bits : 0;
    struct entry **chain = chains_take(shard, sizeof(struct entry *) << bits);
    if (!chain) {
        return shard->chain != NULL;
    }
    for (size_t i = 0; i < old; i++) {
        for (struct entry *entry = shard->chain[i], *next; entry; entry = next) {
            struct entry **first = &chain[chain_of(entry->alloc.address, bits)];
            next = entry->next;
            entry->next = *first;
            *first = entry;
        }
    }
    if (old) {
        chains_give(shard, shard->chain, old * sizeof(struct entry *));
    }
    shard->chain = chain;
    shard->chain_bits = bits;
    return true;
}

/* Field by field: what the caller has just written field by field is not there yet for the wider
 * loads of a copy, which would wait for it. */
static inline void fill(struct vs_alloc *to, const struct vs_alloc *from, uint32_t serial)
{
    to->address = from->address;
    to->bytes = from->bytes;
    to->context = from->context;
    to->device = from->device;
    to->tag = from->tag;
    to->kind = from->kind;
    to->frees = 0;
    to->serial = serial;
    to->at_ns = from->at_ns;
}

static bool insert(struct shard *shard, const struct vs_alloc *alloc, uint32_t serial)
{
    if ((!shard->chain || shard->count >> shard->chain_bits) && !grow(shard)) {
        return false;
    }
    struct entry *entry = shard->free;
    if (entry) {
        shard->free = entry->next;
    } else if (!(entry = carve(shard, sizeof *entry))) {
        return false;
    }
    struct entry **first = &shard->chain[chain_of(alloc->address, shard->chain_bits)];
    fill(&entry->alloc, alloc, serial);
    entry->next = *first;
    *first = entry;
    shard->count++;
    return true;
}

/* Takes out what *link points to. */
static void drop(struct shard *shard, struct entry **link)
{
    struct entry *entry = *link;
    *link = entry->next;
    entry->next = shard->free;
    shard->free = entry;
    shard->count--;
}

struct vs_live *vs_live_open(void)
{
    return vs_sys_map(sizeof(struct vs_live));
}

/* What points to the entry of one allocation, NULL if it is not there; locks its shard in either
 * case. */
__attribute__((always_inline)) static inline struct entry **
lock_entry(struct vs_live *live, uint64_t address, struct shard **shard)
{
    *shard = shard_of(live, address);
    vs_lock_take(&(*shard)->lock);
    if (!(*shard)->chain) {
        return NULL;
    }
    struct entry **link = &(*shard)->chain[chain_of(address, (*shard)->chain_bits)];
    while (*link && (*link)->alloc.address != address) {
        link = &(*link)->next;
    }
    return *link ? link : NULL;
}

int vs_live_put(struct vs_live *live, const struct vs_alloc *alloc, struct vs_alloc *replaced)
{
    struct shard *shard;
    struct entry **old = lock_entry(live, alloc->address, &shard);
    int rc = 0;
    uint32_t serial = ++shard->serial;
    if (old) {
        *replaced = (*old)->alloc;
        fill(&(*old)->alloc, alloc, serial);
        rc = 1;
    } else if (!insert(shard, alloc, serial)) {
        rc = -ENOMEM;
    }
    vs_lock_drop(&shard->lock);
    return rc;
}

bool vs_live_free_begin(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct shard *shard;
    struct entry **link = lock_entry(live, address, &shard);
    if (link) {
        struct vs_alloc *alloc = &(*link)->alloc;
        if (alloc->frees < UINT8_MAX) {
            alloc->frees++;
        }
        *out = *alloc;
    }
    vs_lock_drop(&shard->lock);
    return link != NULL;
}

bool vs_live_free_done(struct vs_live *live, const struct vs_alloc *alloc)
{
    struct shard *shard;
    struct entry **link = lock_entry(live, alloc->address, &shard);
    bool there = link && (*link)->alloc.serial == alloc->serial;
    if (there) {
        drop(shard, link);
    }
    vs_lock_drop(&shard->lock);
    return there;
}

bool vs_live_free_at_once(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct shard *shard;
    struct entry **link = lock_entry(live, address, &shard);
    if (link) {
        *out = (*link)->alloc;
        drop(shard, link);
    }
    vs_lock_drop(&shard->lock);
    return link != NULL;
}

void vs_live_free_undo(struct vs_live *live, const struct vs_alloc *alloc)
{
    struct shard *shard;
    struct entry **link = lock_entry(live, alloc->address, &shard);
    if (link && (*link)->alloc.serial == alloc->serial && (*link)->alloc.frees > 0) {
        (*link)->alloc.frees--;
    }
    vs_lock_drop(&shard->lock);
}

bool vs_live_get(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct shard *shard;
    struct entry **link = lock_entry(live, address, &shard);
    if (link) {
        *out = (*link)->alloc;
    }
    vs_lock_drop(&shard->lock);
    return link != NULL;
}

static void visit_shard(struct shard *shard, vs_live_visit *visit, void *context)
{
    size_t chains = shard->chain ? (size_t)1 << shard->chain_bits : 0;
    for (size_t i = 0; i < chains; i++) {
        for (struct entry **link = &shard->chain[i]; *link;) {
            if (visit(&(*link)->alloc, context)) {
                drop(shard, link);
            } else {
                link = &(*link)->next;
            }
        }
    }
}

unsigned vs_live_each(struct vs_live *live, bool at_end, vs_live_visit *visit, void *context)
{
    unsigned left_out = 0;
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *shard = &live->shards[i];
        if (!at_end) {
            vs_lock_take(&shard->lock);
        } else if (!vs_lock_take_at_end(&shard->lock)) {
            left_out++;
            continue;
        }
        visit_shard(shard, visit, context);
        vs_lock_drop(&shard->lock);
    }
    return left_out;
}

size_t vs_live_mapped_bytes(struct vs_live *live)
{
    size_t bytes = sizeof *live;
    for (unsigned i = 0; i < SHARDS; i++) {
        vs_lock_take(&live->shards[i].lock);
        bytes += live->shards[i].mapped;
        vs_lock_drop(&live->shards[i].lock);
    }
    return bytes;
}
