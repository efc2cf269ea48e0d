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
#define FACTOR UINT64_C(0x9e3779b97f4a7c15)

struct vs_past {
    uint64_t address;
    uint32_t units;
};

int vs_loops_init(struct vs_pool *pool)
{
    struct vs_loops *loops = &pool->loops;
    loops->past = pool->ops.host_map(pool->world, VS_LOOP_PAST * sizeof *loops->past);
    loops->by_context = pool->ops.host_map(pool->world, VS_LOOP_PAST * sizeof *loops->by_context);
    loops->next = loops->expected = 1;
    loops->last_factor = 1;
    for (unsigned i = 0; i < CONTEXT; i++) {
        loops->last_factor *= FACTOR;
    }
    return loops->past && loops->by_context ? 0 : -ENOMEM;
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
}

static struct vs_past *past(struct vs_loops *loops, uint64_t turn)
{
    return &loops->past[turn % VS_LOOP_PAST];
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
        uint64_t turn = loops->by_context[context(loops, units) % VS_LOOP_PAST];
        loops->expected = agrees(loops, turn, units) ? turn : 0;
    }
    return loops->expected ? past(loops, loops->expected)->address : 0;
}

void vs_loops_placed(struct vs_pool *pool, uint32_t units, uint64_t address)
{
    struct vs_loops *loops = &pool->loops;
    loops->context = context(loops, units);
    loops->by_context[loops->context % VS_LOOP_PAST] = loops->next;
    *past(loops, loops->next++) = (struct vs_past){address, units};
    loops->expected += loops->expected != 0;
}
