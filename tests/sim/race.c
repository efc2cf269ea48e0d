/*
 * The race detector: vector clocks and, per physical memory, who touched which bytes last.
 *
 * An access (slot, tick) happened before a party whose clock has clock[slot] >= tick. Two accesses
 * to the same bytes of which one writes, neither of which happened before the other, are a race,
 * however the timing fell in this run. Bytes are tracked as intervals: the last write and the reads
 * since.
 *
 * Memory may be mapped at several addresses: accesses race whichever of them they go through. An
 * unmapping races with what went through that mapping only, so each mapping keeps a record of its
 * own beside that of the memory.
 *
 * What it does not see: host code that touches managed or pinned memory; the order that host
 * threads make among themselves (all of them are one party, so nothing false is reported).
 *
 * A slot is used again only when the host has seen its last tick: whatever is submitted later is
 * ordered after it, so the reuse hides nothing. All functions need sim_lock.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORTS 20 /* then only counted */

/* ---- clocks ---------------------------------------------------------------------------------- */
static struct sim_clock *host_clock;
static uint32_t host_tick;

struct sim_clock *sim_clock_ref(struct sim_clock *clock)
{
    if (clock != NULL)
        clock->refs++;
    return clock;
}

void sim_clock_unref(struct sim_clock *clock)
{
    if (clock != NULL && --clock->refs == 0)
        free(clock);
}

static uint32_t at(const struct sim_clock *clock, unsigned slot)
{
    return clock != NULL && slot < clock->count ? clock->tick[slot] : 0;
}

static bool covers(const struct sim_clock *clock, const struct sim_clock *other)
{
    for (unsigned i = 0; other != NULL && i < other->count; i++) {
        if (other->tick[i] > at(clock, i))
            return false;
    }
    return true;
}

/* Makes *to ours alone and at least this long. */
static void own(struct sim_clock **to, unsigned count)
{
    struct sim_clock *old = *to;
    if (old != NULL && old->count > count)
        count = old->count;
    if (old != NULL && old->refs == 1 && old->count == count)
        return;
    struct sim_clock *copy = calloc(1, sizeof *copy + count * sizeof copy->tick[0]);
    if (copy == NULL)
        abort();
    copy->refs = 1;
    copy->count = count;
    if (old != NULL)
        memcpy(copy->tick, old->tick, old->count * sizeof old->tick[0]);
    sim_clock_unref(old);
    *to = copy;
}

void sim_clock_join(struct sim_clock **to, const struct sim_clock *from)
{
    if (from == NULL || *to == from || covers(*to, from))
        return;
    if (covers(from, *to)) {
        sim_clock_unref(*to);
        *to = sim_clock_ref((struct sim_clock *)from);
        return;
    }
    own(to, from->count);
    for (unsigned i = 0; i < from->count; i++) {
        if (from->tick[i] > (*to)->tick[i])
            (*to)->tick[i] = from->tick[i];
    }
}

void sim_clock_tick(struct sim_clock **to, unsigned slot, uint32_t value)
{
    own(to, slot + 1);
    (*to)->tick[slot] = value;
}

struct sim_clock *sim_host_clock(void)
{
    return host_clock;
}

void sim_host_learns(const struct sim_clock *clock)
{
    sim_clock_join(&host_clock, clock);
}

/* ---- slots ------------------------------------------------------------------------------------
 */
static struct slot {
    bool used;
    uint32_t last; /* newest tick ever given out in it */
} * slots;
static unsigned slot_count, slot_room;

unsigned sim_slot_new(void)
{
    for (unsigned i = 1; i < slot_count; i++) {
        if (!slots[i].used && slots[i].last <= at(host_clock, i)) {
            slots[i].used = true;
            return i;
        }
    }
    if (slot_count == slot_room) {
        slot_room = slot_room == 0 ? 16 : 2 * slot_room;
        slots = realloc(slots, slot_room * sizeof *slots);
        if (slots == NULL)
            abort();
    }
    if (slot_count == 0)
        slots[slot_count++] = (struct slot){true, 0}; /* the host */
    slots[slot_count] = (struct slot){true, 0};
    return slot_count++;
}

uint32_t sim_slot_tick(unsigned slot)
{
    return ++slots[slot].last;
}

void sim_slot_free(unsigned slot)
{
    slots[slot].used = false;
}

/* ---- shadow -----------------------------------------------------------------------------------
 */
struct access {
    unsigned slot;
    uint32_t tick;
    bool kernel; /* what is a kernel's name, else an entry point */
    bool legacy; /* on the default stream */
    int device;
    const char *what;
    uint64_t serial;     /* op number, 0 = the host */
    CUstream stream;     /* handle, for words only; NULL: a graph's branch */
    CUdeviceptr address; /* all that it touched at once */
    size_t size;
};
struct interval {
    size_t low, high;
    struct access write; /* tick 0: none */
    struct access *reads;
    unsigned read_count;
};
struct sim_shadow {
    struct interval *list;
    unsigned count, room;
};

static unsigned races;

unsigned sim_race_count(void)
{
    return races;
}

void sim_race_forget(struct sim_shadow **shadow)
{
    if (*shadow == NULL)
        return;
    for (unsigned i = 0; i < (*shadow)->count; i++)
        free((*shadow)->list[i].reads);
    free((*shadow)->list);
    free(*shadow);
    *shadow = NULL;
}

static void party(char *text, size_t room, const struct access *access, bool write)
{
    if (access->serial == 0) {
        snprintf(text, room, "%s by the host, of 0x%llx+%zu", access->what,
                 (unsigned long long)access->address, access->size);
        return;
    }
    char stream[64] = "a graph's branch";
    if (access->legacy)
        snprintf(stream, sizeof stream, "the default stream");
    else if (access->stream != NULL)
        snprintf(stream, sizeof stream, "stream %p", (void *)access->stream);
    snprintf(text, room, "%s%s (op %llu, %s, device %d, %s 0x%llx+%zu)", access->what,
             access->kernel ? " by cuLaunchKernel" : "", (unsigned long long)access->serial, stream,
             access->device, write ? "writes" : "reads", (unsigned long long)access->address,
             access->size);
}

/* What a record is of. */
struct piece {
    struct sim_shadow **shadow;
    CUdeviceptr home; /* address of its first byte */
    size_t size;
    bool silent; /* another record's reports say the same */
};

static void report(const struct interval *where, const struct access *old, bool old_writes,
                   const struct access *now, bool now_writes, const struct piece *piece)
{
    if (piece->silent || races++ >= REPORTS)
        return;
    char first[256], second[256];
    party(first, sizeof first, old, old_writes);
    party(second, sizeof second, now, now_writes);
    sim_say("RACE: %s and %s are not ordered; both touch 0x%llx+%zu, bytes %zu..%zu of a %zu-byte "
            "piece of memory",
            first, second, (unsigned long long)(piece->home + where->low), where->high - where->low,
            where->low, where->high - 1, piece->size);
}

static void insert(struct sim_shadow *shadow, unsigned index, struct interval interval)
{
    if (shadow->count == shadow->room) {
        shadow->room = shadow->room == 0 ? 4 : 2 * shadow->room;
        shadow->list = realloc(shadow->list, shadow->room * sizeof *shadow->list);
        if (shadow->list == NULL)
            abort();
    }
    memmove(&shadow->list[index + 1], &shadow->list[index],
            (shadow->count - index) * sizeof *shadow->list);
    shadow->list[index] = interval;
    shadow->count++;
}

/* Cuts the interval at `index` at `where`, which lies inside it. */
static void cut(struct sim_shadow *shadow, unsigned index, size_t where)
{
    struct interval upper = shadow->list[index];
    upper.low = where;
    if (upper.read_count > 0) {
        size_t bytes = upper.read_count * sizeof *upper.reads;
        upper.reads = memcpy(malloc(bytes), upper.reads, bytes);
    }
    shadow->list[index].high = where;
    insert(shadow, index + 1, upper);
}

static unsigned first_above(const struct sim_shadow *shadow, size_t low)
{
    unsigned from = 0, to = shadow->count;
    while (from < to) {
        unsigned middle = (from + to) / 2;
        if (shadow->list[middle].high > low)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

static void touch(struct interval *where, const struct access *now, bool write,
                  const struct sim_clock *clock, const struct piece *piece)
{
    if (where->write.tick > at(clock, where->write.slot))
        report(where, &where->write, true, now, write, piece);
    if (write) {
        for (unsigned i = 0; i < where->read_count; i++) {
            if (where->reads[i].tick > at(clock, where->reads[i].slot)) {
                report(where, &where->reads[i], false, now, true, piece);
                break;
            }
        }
        free(where->reads);
        where->reads = NULL;
        where->read_count = 0;
        where->write = *now;
        return;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < where->read_count; i++) {
        if (where->reads[i].tick > at(clock, where->reads[i].slot))
            where->reads[kept++] = where->reads[i];
    }
    where->reads = realloc(where->reads, (kept + 1) * sizeof *where->reads);
    if (where->reads == NULL)
        abort();
    where->reads[kept] = *now;
    where->read_count = kept + 1;
}

static bool same(const struct interval *a, const struct interval *b)
{
    if (a->high != b->low || a->write.slot != b->write.slot || a->write.tick != b->write.tick ||
        a->read_count != b->read_count)
        return false;
    for (unsigned i = 0; i < a->read_count; i++) {
        if (a->reads[i].slot != b->reads[i].slot || a->reads[i].tick != b->reads[i].tick)
            return false;
    }
    return true;
}

static void coalesce(struct sim_shadow *shadow, unsigned from, unsigned to)
{
    if (from > 0)
        from--;
    if (to >= shadow->count)
        to = shadow->count - 1;
    unsigned kept = from;
    for (unsigned i = from + 1; i <= to; i++) {
        if (same(&shadow->list[kept], &shadow->list[i])) {
            shadow->list[kept].high = shadow->list[i].high;
            free(shadow->list[i].reads);
        } else {
            shadow->list[++kept] = shadow->list[i];
        }
    }
    memmove(&shadow->list[kept + 1], &shadow->list[to + 1],
            (shadow->count - to - 1) * sizeof *shadow->list);
    shadow->count -= to - kept;
}

static void record(const struct piece *piece, size_t offset, size_t size, bool write,
                   const struct sim_op *op, const char *what)
{
    if (!sim_config.race || size == 0)
        return;
    if (*piece->shadow == NULL)
        *piece->shadow = calloc(1, sizeof **piece->shadow);
    struct sim_shadow *shadow = *piece->shadow;
    if (shadow == NULL)
        abort();
    struct access now = {.what = what, .address = piece->home + offset, .size = size};
    if (op != NULL) {
        now.kernel = op->work.kind == SIM_W_KERNEL;
        now.stream = op->stream;
        now.legacy = op->stream != NULL && op->stream->null_stream;
        now.device = op->ctx->device->index;
        now.slot = op->slot;
        now.tick = op->tick;
        now.serial = op->serial;
    } else {
        now.tick = ++host_tick;
        sim_clock_tick(&host_clock, 0, host_tick);
    }
    const struct sim_clock *clock = op != NULL ? op->clock : host_clock;
    size_t low = offset, high = offset + size;
    unsigned first = first_above(shadow, low), i = first;
    while (low < high) {
        struct interval *where = i < shadow->count ? &shadow->list[i] : NULL;
        if (where == NULL || where->low > low) { /* never touched */
            size_t end = where != NULL && where->low < high ? where->low : high;
            insert(shadow, i, (struct interval){.low = low, .high = end});
        } else if (where->low < low) {
            cut(shadow, i, low);
            i++;
            continue;
        }
        if (shadow->list[i].high > high)
            cut(shadow, i, high);
        touch(&shadow->list[i], &now, write, clock, piece);
        low = shadow->list[i].high;
        i++;
    }
    coalesce(shadow, first, i);
}

void sim_race_access(struct sim_phys *phys, size_t offset, size_t size, bool write,
                     const struct sim_op *op, const char *what)
{
    const struct piece piece = {&phys->shadow, phys->home, phys->size, false};
    record(&piece, offset, size, write, op, what);
}

void sim_race_through(struct sim_range *map, size_t inside, size_t size, bool write,
                      const struct sim_op *op, const char *what)
{
    const struct piece piece = {&map->shadow, map->base, map->size, true};
    record(&piece, inside, size, write, op, what);
}

void sim_race_unmap(struct sim_range *map)
{
    const struct piece piece = {&map->shadow, map->base, map->size, false};
    if (map->shadow != NULL)
        record(&piece, 0, map->size, true, NULL, "cuMemUnmap");
}

/* ---- bad addresses ------------------------------------------------------------------------------
 */
static struct {
    CUdeviceptr base;
    size_t size;
    const char *how;
} freed[256];
static unsigned freed_next;

void sim_race_remember_freed(CUdeviceptr base, size_t size, const char *how)
{
    freed[freed_next].base = base;
    freed[freed_next].size = size;
    freed[freed_next].how = how;
    freed_next = (freed_next + 1) % (sizeof freed / sizeof freed[0]);
}

void sim_race_bad_address(struct sim_op *op, CUdeviceptr address, size_t size, bool write,
                          const char *what)
{
    if (!sim_config.race || races++ >= REPORTS)
        return;
    const char *how = NULL;
    const unsigned count = sizeof freed / sizeof freed[0];
    for (unsigned i = 1; i <= count && how == NULL; i++) {
        unsigned k = (freed_next + count - i) % count;
        if (freed[k].how != NULL && address < freed[k].base + freed[k].size &&
            freed[k].base < address + size)
            how = freed[k].how;
    }
    const struct access now = {.kernel = op->work.kind == SIM_W_KERNEL,
                               .what = what,
                               .serial = op->serial,
                               .stream = op->stream,
                               .legacy = op->stream != NULL && op->stream->null_stream,
                               .device = op->ctx->device->index,
                               .address = address,
                               .size = size};
    char text[256];
    party(text, sizeof text, &now, write);
    const struct sim_range *range = sim_range_at(address);
    if (range != NULL && range->kind != SIM_RESERVED && range->device != NULL && !range->absent)
        sim_say("BAD ACCESS: %s, memory of device %d that device %d has no access to", text,
                range->device->index, now.device);
    else
        sim_say("BAD ACCESS: %s, %s%s", text,
                how != NULL ? "gone since " : "where nothing accessible is",
                how != NULL ? how : "");
}
