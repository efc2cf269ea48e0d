/*
 * The live table (see live.h).
 *
 * The 64 KiB that an address lies in choose its line, and those near each other have lines of their
 * own. So a thread keeps to lines that no other writes, unless its blocks lie between another's. A
 * line has a lock, room for one allocation, and a chain of the others that came to it. Where they
 * are many, because blocks are small or many, it has an array of chains instead, which doubles when
 * there are more entries than chains and goes when there are few; where there is no memory for one,
 * chains grow longer.
 *
 * Lock order: a line's, then those of the store.
 */
#include "report/live.h"

#include <string.h>

#include "report/live_store.h"
#include "report/sys.h"

#define LINE_BITS 13
#define LINES (1u << LINE_BITS)
_Static_assert(LINES == VS_LIVE_PARTS, "as announced");
#define GRANULE_BITS 16
#define ONE_CHAIN 6u /* entries for which one is enough */
#define FEW_BITS 4u  /* an array has an entry for 2^FEW_BITS chains, or is too large */

struct line {
    struct vs_lock lock;
    uint32_t serial; /* of the last allocation */
    union {
        struct vs_live_entry *chain; /* bits 0 */
        struct vs_live_entry **chains;
    };
    struct vs_alloc own;
    uint32_t count; /* of entries in chains */
    uint8_t bits;   /* of the number of chains */
    bool has_own;
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct line) == 64, "as the processor's");

struct vs_live {
    struct vs_live_store store;
    struct line line[LINES] __attribute__((aligned(128)));
};

/* Multiples of the golden ratio: some 3,600 granules in a row have lines of their own, and
 * neighbours are far apart, since some processors fetch lines in pairs. */
static inline struct line *line_of(struct vs_live *live, uint64_t address)
{
    uint64_t mixed = (address >> GRANULE_BITS) * UINT64_C(0x9e3779b97f4a7c15);
    return &live->line[mixed >> (64 - LINE_BITS)];
}

static inline struct vs_live_entry **chain_in(struct vs_live_entry **chains, uint32_t bits,
                                              uint64_t address)
{
    uint64_t mixed = (address ^ address >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return &chains[mixed >> (64 - bits)];
}

static inline struct vs_live_entry **chain_of(struct line *line, uint64_t address)
{
    return __builtin_expect(line->bits == 0, 1) ? &line->chain
                                                : chain_in(line->chains, line->bits, address);
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

static void move_chain(struct vs_live_entry *entry, struct vs_live_entry **chains, uint32_t bits)
{
    for (struct vs_live_entry *next; entry; entry = next) {
        struct vs_live_entry **to = bits ? chain_in(chains, bits, entry->alloc.address) : chains;
        next = entry->next;
        entry->next = *to;
        *to = entry;
    }
}

/* Other chains, if there is memory for them. bits 0: one. */
static void rebuild(struct vs_live *live, struct line *line, uint32_t bits)
{
    struct vs_live_entry *one = NULL, **old = line->chains;
    struct vs_live_entry **chains = bits ? vs_live_chains_new(&live->store, bits) : &one;
    uint32_t old_bits = line->bits;
    if (!chains) {
        return;
    }
    if (old_bits == 0) {
        move_chain(line->chain, chains, bits);
    }
    for (size_t i = 0; old_bits && i < (size_t)1 << old_bits; i++) {
        move_chain(old[i], chains, bits);
    }
    if (old_bits) {
        vs_live_chains_free(&live->store, old, old_bits);
    }
    line->bits = (uint8_t)bits;
    if (bits) {
        line->chains = chains;
    } else {
        line->chain = one;
    }
}

/* After an entry more. */
static inline void grow(struct vs_live *live, struct line *line)
{
    if (__builtin_expect(line->count > ONE_CHAIN, 0) && line->count >> line->bits) {
        rebuild(live, line, line->bits ? line->bits + 1u : VS_LIVE_LEAST_BITS);
    }
}

/* After one less. */
static inline void shrink(struct vs_live *live, struct line *line)
{
    uint32_t bits = line->bits;
    if (__builtin_expect(bits > 0, 0) && line->count >> (bits - FEW_BITS) == 0) {
        rebuild(live, line, bits < VS_LIVE_LEAST_BITS + 2 ? 0 : bits - 2);
    }
}

struct vs_live *vs_live_open(void)
{
    return vs_sys_map(sizeof(struct vs_live));
}

/* Where one allocation is noted: alloc NULL, nowhere; link NULL, in the line itself. */
struct found {
    struct line *line; /* locked */
    struct vs_alloc *alloc;
    struct vs_live_entry **link;
};

__attribute__((always_inline)) static inline struct found lock_entry(struct vs_live *live,
                                                                     uint64_t address)
{
    struct line *line = line_of(live, address);
    struct found found = {.line = line};
    vs_lock_take(&line->lock);
    if (line->own.address == address && line->has_own) {
        found.alloc = &line->own;
        return found;
    }
    struct vs_live_entry **link = chain_of(line, address);
    while (*link && (*link)->alloc.address != address) {
        link = &(*link)->next;
    }
    if (*link) {
        found.alloc = &(*link)->alloc;
        found.link = link;
    }
    return found;
}

/* Not there yet. */
static bool insert(struct vs_live *live, struct line *line, const struct vs_alloc *alloc)
{
    if (!line->has_own) {
        fill(&line->own, alloc, line->serial);
        line->has_own = true;
        return true;
    }
    struct vs_live_entry *entry = vs_live_entry_new(&live->store);
    if (entry) {
        struct vs_live_entry **chain = chain_of(line, alloc->address);
        fill(&entry->alloc, alloc, line->serial);
        entry->next = *chain;
        *chain = entry;
        line->count++;
        grow(live, line);
    }
    return entry != NULL;
}

static void unlink_entry(struct vs_live *live, struct line *line, struct vs_live_entry **link)
{
    struct vs_live_entry *entry = *link;
    *link = entry->next;
    line->count--;
    vs_live_entry_free(&live->store, entry);
}

static inline void drop(struct vs_live *live, const struct found *found)
{
    if (found->link) {
        unlink_entry(live, found->line, found->link);
        shrink(live, found->line);
    } else {
        found->line->has_own = false;
    }
}

int vs_live_put(struct vs_live *live, const struct vs_alloc *alloc, struct vs_alloc *replaced)
{
    struct found found = lock_entry(live, alloc->address);
    int rc = 0;
    found.line->serial++;
    if (__builtin_expect(found.alloc != NULL, 0)) {
        *replaced = *found.alloc;
        fill(found.alloc, alloc, found.line->serial);
        rc = 1;
    } else if (!insert(live, found.line, alloc)) {
        rc = -ENOMEM;
    }
    vs_lock_drop(&found.line->lock);
    return rc;
}

bool vs_live_free_begin(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct found found = lock_entry(live, address);
    if (found.alloc) {
        if (found.alloc->frees < UINT8_MAX) {
            found.alloc->frees++;
        }
        *out = *found.alloc;
    }
    vs_lock_drop(&found.line->lock);
    return found.alloc != NULL;
}

bool vs_live_free_done(struct vs_live *live, const struct vs_alloc *alloc)
{
    struct found found = lock_entry(live, alloc->address);
    bool there = found.alloc && found.alloc->serial == alloc->serial;
    if (there) {
        drop(live, &found);
    }
    vs_lock_drop(&found.line->lock);
    return there;
}

bool vs_live_free_at_once(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct found found = lock_entry(live, address);
    if (found.alloc) {
        *out = *found.alloc;
        drop(live, &found);
    }
    vs_lock_drop(&found.line->lock);
    return found.alloc != NULL;
}

void vs_live_free_undo(struct vs_live *live, const struct vs_alloc *alloc)
{
    struct found found = lock_entry(live, alloc->address);
    if (found.alloc && found.alloc->serial == alloc->serial && found.alloc->frees > 0) {
        found.alloc->frees--;
    }
    vs_lock_drop(&found.line->lock);
}

bool vs_live_get(struct vs_live *live, uint64_t address, struct vs_alloc *out)
{
    struct found found = lock_entry(live, address);
    if (found.alloc) {
        *out = *found.alloc;
    }
    vs_lock_drop(&found.line->lock);
    return found.alloc != NULL;
}

static void visit_line(struct vs_live *live, struct line *line, vs_live_visit *visit, void *context)
{
    if (line->has_own && visit(&line->own, context)) {
        line->has_own = false;
    }
    for (size_t i = 0; i < (size_t)1 << line->bits; i++) {
        struct vs_live_entry **link = line->bits ? &line->chains[i] : &line->chain;
        while (*link) {
            if (visit(&(*link)->alloc, context)) {
                unlink_entry(live, line, link);
            } else {
                link = &(*link)->next;
            }
        }
    }
}

unsigned vs_live_each(struct vs_live *live, bool at_end, vs_live_visit *visit, void *context)
{
    unsigned left_out = 0;
    for (unsigned i = 0; i < LINES; i++) {
        struct line *line = &live->line[i];
        if (!at_end) {
            vs_lock_take(&line->lock);
        } else if (!vs_lock_take_at_end(&line->lock)) {
            left_out++;
            continue;
        }
        visit_line(live, line, visit, context);
        vs_lock_drop(&line->lock);
    }
    return left_out;
}

size_t vs_live_mapped_bytes(struct vs_live *live)
{
    return sizeof *live + vs_live_store_mapped(&live->store);
}
