/*
 * The live table (see live.h), on uthash.
 *
 * What is bent of uthash, and why:
 * - its memory comes from the shard's own slabs or straight from mmap, and running out is an answer
 *   instead of the end of the host program (HASH_NONFATAL_OOM);
 * - each shard holds one entry of its own, the keeper, whose address no allocation has: uthash
 * tears its table down with the last entry, and a loop of one allocation would rebuild it each
 * time;
 * - the hash is computed once: its top bits choose the shard, the others the bucket.
 *
 * Lock order: a shard's lock is a leaf.
 */
#include "report/live.h"

#include <string.h>

#include "report/lock.h"
#include "report/sys.h"

struct shard;
static void *bucket_memory(struct shard *shard, size_t bytes);
static void bucket_release(struct shard *shard, void *at, size_t bytes);

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(entry) ((void)(entry))
#define uthash_malloc(bytes) bucket_memory(shard, bytes)
#define uthash_free(at, bytes) bucket_release(shard, at, bytes)
#define HASH_KEYCMP(a, b, bytes) (*(const uint64_t *)(a) != *(const uint64_t *)(b))
#define HASH_FUNCTION(key, bytes, out) ((out) = bucket_hash(mix(*(const uint64_t *)(key))))
#include <uthash.h>

#define SHARD_BITS 6
#define SHARDS (1u << SHARD_BITS)
_Static_assert(SHARDS == VS_LIVE_SHARDS, "as announced");
#define FIRST_SLAB ((size_t)64 << 10)
#define LARGEST_SLAB ((size_t)4 << 20)
#define OWN_MAPPING ((size_t)16 << 10) /* bucket arrays from here on are mapped one by one */
#define KEEPER UINT64_MAX

struct entry {
    struct vs_alloc alloc;
    UT_hash_handle hh;
};
_Static_assert(sizeof(struct entry) <= 96, "the promise of 128 bytes counts on 96 per entry");

struct shard {
    struct vs_lock lock;
    struct entry *table; /* uthash's head */
    struct entry *free;  /* linked through hh.next */
    char *slab;          /* untouched part of the newest slab */
    size_t slab_left;
    size_t mapped;
    uint32_t serial; /* of the last allocation */
    struct entry keeper;
} __attribute__((aligned(64)));

struct vs_live {
    struct shard shards[SHARDS];
    vs_live_tallies *tallies;
};

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x;
}

static inline unsigned bucket_hash(uint64_t mixed)
{
    return (unsigned)(mixed >> (64 - SHARD_BITS - 32));
}

static inline struct shard *shard_of(struct vs_live *live, uint64_t mixed)
{
    return &live->shards[mixed >> (64 - SHARD_BITS)];
}

/* Memory of a shard that is never given back. bytes is far below FIRST_SLAB. */
static void *carve(struct shard *shard, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
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

static void *bucket_memory(struct shard *shard, size_t bytes)
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
static void bucket_release(struct shard *shard, void *at, size_t bytes)
{
    if (bytes < OWN_MAPPING) {
        return;
    }
    vs_sys_unmap(at, bytes);
    shard->mapped -= bytes;
}

static struct entry *find(struct shard *shard, uint64_t address, unsigned hash)
{
    struct entry *entry = NULL;
    HASH_FIND_BYHASHVALUE(hh, shard->table, &address, sizeof address, hash, entry);
    return entry;
}

static bool add(struct shard *shard, struct entry *entry, unsigned hash)
{
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, shard->table, &entry->alloc.address,
                                sizeof entry->alloc.address, hash, entry);
    return entry->hh.tbl != NULL;
}

static void drop(struct shard *shard, struct entry *entry)
{
    HASH_DELETE(hh, shard->table, entry);
    entry->hh.next = shard->free;
    shard->free = entry;
}

static bool insert(struct shard *shard, const struct vs_alloc *alloc, unsigned hash)
{
    if (!shard->table) {
        shard->keeper.alloc.address = KEEPER;
        if (!add(shard, &shard->keeper, bucket_hash(mix(KEEPER)))) {
            return false;
        }
    }
    struct entry *entry = shard->free;
    if (entry) {
        shard->free = entry->hh.next;
    } else if (!(entry = carve(shard, sizeof *entry))) {
        return false;
    }
    entry->alloc = *alloc;
    if (add(shard, entry, hash)) {
        return true;
    }
    entry->hh.next = shard->free;
    shard->free = entry;
    return false;
}

struct vs_live *vs_live_open(vs_live_tallies *tallies)
{
    struct vs_live *live = vs_sys_map(sizeof *live);
    if (live) {
        live->tallies = tallies;
    }
    return live;
}

static struct vs_live_tally *tally_of(struct vs_live *live, const struct shard *shard,
                                      uint32_t device)
{
    return &(*live->tallies)[shard - live->shards][device];
}

/* The shard is locked: nobody else adds. */
static void add_to(_Atomic uint64_t *word, uint64_t by)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + by,
                          memory_order_release);
}

/* The entry of one allocation, if it is still there; locks its shard in either case. */
static struct entry *lock_entry(struct vs_live *live, uint64_t address, struct shard **shard)
{
    uint64_t mixed = mix(address);
    *shard = shard_of(live, mixed);
    vs_lock_take(&(*shard)->lock);
    return address == KEEPER ? NULL : find(*shard, address, bucket_hash(mixed));
}

int vs_live_put(struct vs_live *live, const struct vs_alloc *alloc, struct vs_alloc *replaced)
{
    struct vs_alloc fresh = *alloc;
    struct shard *shard;
    struct entry *old = lock_entry(live, alloc->address, &shard);
    int rc = 0;
    fresh.frees = 0;
    fresh.serial = ++shard->serial;
    if (old) {
        *replaced = old->alloc;
        old->alloc = fresh;
        rc = 1;
        if (replaced->frees > 0) {
            add_to(&tally_of(live, shard, replaced->device)->frees, 1);
        }
    } else if (alloc->address == KEEPER ||
               !insert(shard, &fresh, bucket_hash(mix(alloc->address)))) {
        rc = -ENOMEM;
    }
    if (rc >= 0) {
        struct vs_live_tally *tally = tally_of(live, shard, alloc->device);
        add_to(&tally->allocs, 1);
        add_to(&tally->alloc_bytes, alloc->bytes);
    }
    vs_lock_drop(&shard->lock);
    return rc;
}

bool vs_live_free_begin(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct shard *shard;
    struct entry *entry = lock_entry(live, address, &shard);
    if (entry) {
        if (entry->alloc.frees < UINT8_MAX) {
            entry->alloc.frees++;
        }
        *out = entry->alloc;
    }
    vs_lock_drop(&shard->lock);
    return entry != NULL;
}

bool vs_live_free_done(struct vs_live *live, const struct vs_alloc *alloc)
{
    struct shard *shard;
    struct entry *entry = lock_entry(live, alloc->address, &shard);
    bool there = entry && entry->alloc.serial == alloc->serial;
    if (there) {
        add_to(&tally_of(live, shard, entry->alloc.device)->frees, 1);
        drop(shard, entry);
    }
    vs_lock_drop(&shard->lock);
    return there;
}

void vs_live_free_undo(struct vs_live *live, const struct vs_alloc *alloc)
{
    struct shard *shard;
    struct entry *entry = lock_entry(live, alloc->address, &shard);
    if (entry && entry->alloc.serial == alloc->serial && entry->alloc.frees > 0) {
        entry->alloc.frees--;
    }
    vs_lock_drop(&shard->lock);
}

bool vs_live_get(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct shard *shard;
    struct entry *entry = lock_entry(live, address, &shard);
    if (entry) {
        *out = entry->alloc;
    }
    vs_lock_drop(&shard->lock);
    return entry != NULL;
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
        struct entry *entry, *next;
        HASH_ITER(hh, shard->table, entry, next)
        {
            if (entry != &shard->keeper && visit(&entry->alloc, context)) {
                drop(shard, entry);
            }
        }
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
