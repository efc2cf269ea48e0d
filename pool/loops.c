/*
 * Loops: a program that repeats itself finds its large blocks where they lay in the round before.
 *
 * Best fit alone makes a loop wander: each round meets another layout, and large requests find the
 * free memory in other pieces. So the last requests of the large zone are remembered, sizes and
 * places, in a ring, with a pointer into it: the request in the past that the next one is expected
 * to repeat. As long as sizes agree, the pointer moves on with each request, and the place there is
 * offered first. Where they do not, it is set anew by the sizes before: the last time that the same
 * sixteen came in a row. Once one round has been laid out with nothing in the way, the next one is
 * laid out alike, to the byte.
 *
 * It is advice: a place that is not free is not taken. The lock is held throughout.
 */
#include "pool/internal.h"

#include <errno.h>

#define CONTEXT 16 /* sizes that have to agree before the pointer is set */
#define MOVES 64   /* places tried in one free block */
#define FACTOR UINT64_C(0x9e3779b97f4a7c15)

#define GROUP 8        /* turns whose places are known together, roughly */
#define BUCKET_BITS 26 /* by stretches of 64 MiB, modulo 64 */
_Static_assert(VS_LOOP_PAST % GROUP == 0 && CONTEXT >= GROUP,
               "when a group begins anew, none of its turns is known any more");

struct vs_past {
    uint64_t address;
    uint32_t units;
    uint32_t life; /* turns until it was freed; 0 = not yet */
};

int vs_loops_init(struct vs_pool *pool)
{
    struct vs_loops *loops = &pool->loops;
    loops->past = pool->ops.host_map(pool->world, VS_LOOP_PAST * sizeof *loops->past);
    loops->by_context = pool->ops.host_map(pool->world, VS_LOOP_PAST * sizeof *loops->by_context);
    loops->places = pool->ops.host_map(pool->world, VS_LOOP_PAST / GROUP * sizeof *loops->places);
    loops->next = loops->expected = 1;
    loops->last_factor = 1;
    for (unsigned i = 0; i < CONTEXT; i++) {
        loops->last_factor *= FACTOR;
    }
    return loops->past && loops->by_context && loops->places ? 0 : -ENOMEM;
}

void vs_loops_fini(struct vs_pool *pool)
{
    struct vs_loops *loops = &pool->loops;
    if (loops->past) {
        pool->ops.host_unmap(pool->world, loops->past, VS_LOOP_PAST * sizeof *loops->past);
    }
    if (loops->by_context) {
        pool->ops.host_unmap(pool->world, loops->by_context,
                             VS_LOOP_PAST * sizeof *loops->by_context);
    }
    if (loops->places) {
        pool->ops.host_unmap(pool->world, loops->places,
                             VS_LOOP_PAST / GROUP * sizeof *loops->places);
    }
}

uint64_t vs_loops_host_bytes(const struct vs_pool *pool)
{
    const struct vs_loops *loops = &pool->loops;
    uint64_t turns = loops->next < VS_LOOP_PAST ? loops->next : VS_LOOP_PAST;
    return turns * (sizeof *loops->past + sizeof *loops->by_context) +
           turns / GROUP * sizeof *loops->places;
}

static struct vs_past *past(struct vs_loops *loops, uint64_t turn)
{
    return &loops->past[turn % VS_LOOP_PAST];
}

/* A turn of which half was kept: the last one that ends so. */
static uint64_t whole_turn(const struct vs_loops *loops, uint32_t low)
{
    return loops->next - ((uint32_t)loops->next - low);
}

static bool known(const struct vs_loops *loops, uint64_t turn)
{
    return turn > 0 && turn < loops->next && loops->next - turn < VS_LOOP_PAST - CONTEXT;
}

/* The hash of the sizes of this request and those before it. */
static uint64_t context(struct vs_loops *loops, uint32_t units)
{
    uint64_t gone = loops->next > CONTEXT ? past(loops, loops->next - CONTEXT)->units : 0;
    return loops->context * FACTOR + units - gone * loops->last_factor;
}

/* Where some memory is, roughly: two that share an address share a bit. */
static uint64_t roughly(uint64_t address, uint64_t bytes)
{
    uint64_t first = address >> BUCKET_BITS, more = ((address + bytes - 1) >> BUCKET_BITS) - first;
    uint64_t bits = more < 63 ? (UINT64_C(2) << more) - 1 : ~UINT64_C(0);
    unsigned by = first % 64;
    return bits << by | (by ? bits >> (64 - by) : 0);
}

static uint64_t *places(struct vs_loops *loops, uint64_t turn)
{
    return &loops->places[turn / GROUP % (VS_LOOP_PAST / GROUP)];
}

static bool agrees(struct vs_loops *loops, uint64_t turn, uint32_t units)
{
    if (!known(loops, turn) || turn <= CONTEXT || past(loops, turn)->units != units) {
        return false;
    }
    for (unsigned i = 1; i < CONTEXT; i++) {
        if (past(loops, turn - i)->units != past(loops, loops->next - i)->units) {
            return false;
        }
    }
    return true;
}

uint64_t vs_loops_expect(struct vs_pool *pool, uint32_t units)
{
    struct vs_loops *loops = &pool->loops;
    if (!known(loops, loops->expected) || past(loops, loops->expected)->units != units) {
        uint64_t turn = whole_turn(loops, loops->by_context[context(loops, units) % VS_LOOP_PAST]);
        loops->expected = agrees(loops, turn, units) ? turn : 0;
    }
    return loops->expected ? past(loops, loops->expected)->address : 0;
}

uint64_t vs_loops_placed(struct vs_pool *pool, uint32_t units, uint64_t address)
{
    struct vs_loops *loops = &pool->loops;
    loops->context = context(loops, units);
    loops->by_context[loops->context % VS_LOOP_PAST] = (uint32_t)loops->next;
    uint64_t others = loops->next % GROUP ? *places(loops, loops->next) : 0;
    *places(loops, loops->next) = others | roughly(address, (uint64_t)units << UNIT_BITS);
    *past(loops, loops->next++) = (struct vs_past){.address = address, .units = units};
    loops->expected += loops->expected != 0;
    return loops->next - 1;
}

void vs_loops_freed(struct vs_pool *pool, uint64_t turn)
{
    struct vs_loops *loops = &pool->loops;
    if (known(loops, turn)) {
        past(loops, turn)->life = (uint32_t)(loops->next - turn);
    }
}

/* The turns in which a request like the expected one lives: after it, up to the returned one. */
static uint64_t last_turn(const struct vs_loops *loops)
{
    uint32_t life = loops->past[loops->expected % VS_LOOP_PAST].life;
    uint64_t last = life ? loops->expected + life : loops->next;
    return last < loops->next ? last : loops->next;
}

/* Is the page part of a view in one of those turns? */
static bool viewed(const struct vs_pool *pool, uint64_t page, uint64_t last)
{
    const struct vs_handle *handle = handle_at(pool, vs_page_find(pool, page)->handle);
    for (unsigned i = 0; handle->aliases > 0 && i < VIEW_TURNS; i++) {
        uint64_t turn = whole_turn(&pool->loops, handle->turns[i]);
        if (turn > pool->loops.expected && turn < last) {
            return true;
        }
    }
    return false;
}

/* Where what is expected to be wanted of [start, start + bytes) ends; 0: nothing is. */
static uint64_t wanted_until(struct vs_pool *pool, uint64_t start, uint64_t bytes, bool by_views)
{
    struct vs_loops *loops = &pool->loops;
    uint64_t last = last_turn(loops);
    uint64_t here = roughly(start, bytes);
    for (uint64_t turn = loops->expected + 1; turn < last; turn++) {
        if (!(*places(loops, turn) & here)) {
            turn |= GROUP - 1;
            continue;
        }
        const struct vs_past *other = past(loops, turn);
        uint64_t end = other->address + ((uint64_t)other->units << UNIT_BITS);
        if (other->address < start + bytes && end > start) {
            return end;
        }
    }
    for (uint64_t page = page_down(start + bytes - 1);
         pool->views > 0 && page + VS_POOL_PAGE > start; page -= VS_POOL_PAGE) {
        if (viewed(pool, page, by_views ? loops->next : last)) {
            return page + VS_POOL_PAGE;
        }
    }
    return 0;
}

uint64_t vs_loops_avoid(struct vs_pool *pool, uint64_t start, uint64_t end, uint64_t bytes,
                        bool by_views)
{
    for (unsigned moves = 0; moves < MOVES && start + bytes <= end; moves++) {
        uint64_t to = wanted_until(pool, start, bytes, by_views);
        if (!to) {
            return start;
        }
        start = vs_zone_askew(to, bytes) ? page_up(to) : to;
    }
    return 0;
}

bool vs_loops_wants(struct vs_pool *pool, uint64_t address, uint64_t bytes)
{
    return pool->loops.expected && wanted_until(pool, address, bytes, false) != 0;
}

bool vs_loops_viewed(struct vs_pool *pool, uint64_t address, uint64_t bytes)
{
    for (uint64_t at = page_down(address); pool->loops.expected && at < address + bytes;
         at += VS_POOL_PAGE) {
        if (viewed(pool, at, pool->loops.next)) {
            return true;
        }
    }
    return false;
}

int vs_loops_check(struct vs_pool *pool)
{
    struct vs_loops *loops = &pool->loops;
    for (uint64_t turn = loops->next - 1; known(loops, turn); turn--) {
        const struct vs_past *one = past(loops, turn);
        uint64_t last = one->address + ((uint64_t)one->units << UNIT_BITS) - 1;
        for (uint64_t bucket = one->address >> BUCKET_BITS; bucket <= last >> BUCKET_BITS;
             bucket++) {
            if (!(*places(loops, turn) >> bucket % 64 & 1)) {
                return 70;
            }
        }
    }
    return 0;
}
