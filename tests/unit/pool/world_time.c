/*
 * The world's time (see world.h): clocks, submissions, and fences.
 */
#include "tests/unit/pool/world_internal.h"

#include <errno.h>

void world_join(struct world_clock *clock, const struct world_clock *other)
{
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        clock->of[i] = clock->of[i] < other->of[i] ? other->of[i] : clock->of[i];
    }
}

uint32_t world_beyond(const struct world_clock *clock, const struct world_clock *one,
                      const struct world_clock *other)
{
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        if (clock->of[i] > one->of[i] && (!other || clock->of[i] > other->of[i])) {
            return i;
        }
    }
    return WORLD_COLUMNS;
}

struct world_clock world_before(const struct world *world, uint32_t stream)
{
    struct world_clock clock = world->barrier;

    if (stream != WORLD_PLAIN) {
        clock = world->stream[stream].before;
        if (!world->stream[stream].foreign) {
            world_join(&clock, &world->barrier);
        }
        return clock;
    }
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        if (!world->stream[i].foreign) { /* those that were destroyed, too */
            world_join(&clock, &world->stream[i].before);
        }
    }
    return clock;
}

bool world_is_done(const struct world *world, const struct world_clock *clock)
{
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        if (clock->of[i] > world->stream[i].done) {
            return false;
        }
    }
    return true;
}

static bool can_finish(const struct world *world, uint32_t number)
{
    uint32_t slot = number % WORLD_AHEAD;

    if (world->ahead[slot].done || world->ahead[slot].held ||
        !world_is_done(world, &world->ahead[slot].need)) {
        return false;
    }
    for (uint32_t before = world->finished + 1; before < number; before++) {
        if (!world->ahead[before % WORLD_AHEAD].done &&
            world->ahead[before % WORLD_AHEAD].stream == world->ahead[slot].stream) {
            return false;
        }
    }
    return true;
}

bool world_step(struct world *world)
{
    uint32_t ahead = world->submitted - world->finished;
    uint32_t first = (uint32_t)choose(world->choices, ahead);

    for (uint32_t i = 0; i < ahead; i++) {
        uint32_t number = world->finished + 1 + (first + i) % ahead;

        if (can_finish(world, number)) {
            world->ahead[number % WORLD_AHEAD].done = true;
            world->stream[world->ahead[number % WORLD_AHEAD].stream].done = number;
            while (world->finished < world->submitted &&
                   world->ahead[(world->finished + 1) % WORLD_AHEAD].done) {
                world->finished++;
            }
            return true;
        }
    }
    return false;
}

bool world_finish(struct world *world, const struct world_clock *clock)
{
    while (!world_is_done(world, clock)) {
        if (!world_step(world)) {
            return false;
        }
    }
    return true;
}

void world_let_go(struct world *world)
{
    for (uint32_t i = 0; i < WORLD_AHEAD; i++) {
        world->ahead[i].held = false;
    }
    world->held = 0;
}

/* The first held submission that a clock covers; 0: none. */
static uint32_t held_in(const struct world *world, const struct world_clock *clock)
{
    for (uint32_t n = world->finished + 1; world->held && n <= world->submitted; n++) {
        if (world->ahead[n % WORLD_AHEAD].held &&
            n <= clock->of[world->ahead[n % WORLD_AHEAD].stream]) {
            return n;
        }
    }
    return 0;
}

bool world_is_held(const struct world *world, uint32_t stream)
{
    struct world_clock clock = world_before(world, stream);

    return held_in(world, &clock) != 0;
}

void world_moves(struct world *world, uint32_t stream)
{
    world->stream[stream].late |= world->stream[stream].open;
}

void world_work(struct world *world, uint32_t stream, struct world_block *const *blocks,
                size_t count, bool held)
{
    struct world_stream *on = &world->stream[stream];
    uint32_t slot;

    while (world->submitted - world->finished >= WORLD_AHEAD) {
        if (!world_step(world)) {
            world_let_go(world);
        }
    }
    world_moves(world, stream);
    on->before = world_before(world, stream);
    world_join(&on->before, &world->seen);
    slot = ++world->submitted % WORLD_AHEAD;
    world->ahead[slot].number = world->submitted;
    world->ahead[slot].need = on->before;
    world->ahead[slot].stream = stream;
    world->ahead[slot].done = false;
    world->ahead[slot].held = held;
    world->held += held;
    on->before.of[stream] = on->last = world->submitted;
    if (!on->foreign) {
        world->submitted_here = world->submitted;
    }
    for (size_t i = 0; i < count; i++) {
        blocks[i]->uses.of[stream] = world->submitted;
    }
}

int world_mishap(struct world *world, bool memory)
{
    if (world->fail_permille == 0 || choose(world->choices, 1000) >= world->fail_permille) {
        return 0;
    }
    world->failures++;
    return memory && choose(world->choices, 3) ? -ENOMEM : -EIO;
}

int world_record(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = world_mishap(world, false);

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    if (world->capturing && !(world->config.faults & VS_POOL_RECORD_IN_CAPTURE)) {
        return 1;
    }
    if (world->capturing) { /* what is below the pool is to refuse, and with this fault does not */
        world_broke(world, "an event of the context is recorded in a capture, and ends it");
    }
    if (world->open_free && world->submitted_here > world->open_free_at) {
        world_broke(world, "a fence covers submission %u, made after a free at %u",
                    world->submitted_here, world->open_free_at);
    }
    world->open_free = false;
    world->aside = false;
    world->recorded[fence].covers = world_before(world, WORLD_PLAIN);
    world->asked.records++;
    return 0;
}

int world_order(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = world_mishap(world, false);
    uint32_t held;

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    if (world->capturing || world->cannot_order) {
        return 1;
    }
    held = held_in(world, &world->recorded[fence].covers);
    if (held) {
        world_broke(world,
                    "a deadlock: later work is to wait for submission %u, which only later work "
                    "can end",
                    held);
    }
    world_join(&world->barrier, &world->recorded[fence].covers);
    world->asked.orders++;
    return 0;
}

static int query(struct world *world, const struct world_fence *fence)
{
    if (!world->frozen && choose(world->choices, 4) == 0) {
        world_step(world);
    }
    if (!world_is_done(world, &fence->covers)) {
        return 1;
    }
    world_join(&world->seen, &fence->covers);
    return 0;
}

/* Frees came after held work, and the fence is for them: as if another thread ended it. */
static void wait_for_held(struct world *world, const struct world_fence *fence)
{
    uint32_t held = held_in(world, &fence->justified);

    if (held && held_in(world, &fence->covers)) {
        world->waited = held;
        world->waited_on = world->ahead[held % WORLD_AHEAD].stream;
        world_let_go(world);
    }
}

static int wait(struct world *world, const struct world_fence *fence)
{
    wait_for_held(world, fence);
    if (!world_finish(world, &fence->covers)) {
        world_broke(world, "a deadlock: the host waits for submission %u, which cannot finish",
                    world->finished + 1);
        world_let_go(world);
        world_finish(world, &fence->covers);
    }
    world_join(&world->seen, &fence->covers);
    return 0;
}

int world_query(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = world_mishap(world, false);

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    world->asked.queries++;
    return query(world, &world->recorded[fence]);
}

int world_wait(void *data, uint32_t fence)
{
    struct world *world = data;
    int failed = world_mishap(world, false);

    if (failed || fence >= VS_POOL_FENCES) {
        return failed ? failed : -EINVAL;
    }
    world->asked.waits++;
    return wait(world, &world->recorded[fence]);
}

/* A fence of a stream that was recorded; NULL, and a breach: none. */
static struct world_fence *stream_fence(struct world *world, uint32_t stream, uint32_t fence)
{
    if (stream == 0 || stream > VS_POOL_STREAMS || fence >= VS_POOL_STREAM_FENCES) {
        world_broke(world, "fence %u of stream %u: there is none", fence, stream);
        return NULL;
    }
    return &world->stream_recorded[stream][fence];
}

/* The stream that has a number now. */
static uint32_t column_of(struct world *world, uint32_t number)
{
    uint32_t stream = number <= VS_POOL_STREAMS ? world->column[number] : WORLD_PLAIN;

    if (stream == WORLD_PLAIN) {
        world_broke(world, "number %u is no stream's", number);
    }
    return stream;
}

/* Later work, or the host, is to wait for a fence: is it for its frees alone? */
static void check_exact(struct world *world, uint32_t number, const struct world_fence *fence)
{
    struct world_clock known = world->seen;
    uint32_t column;

    world_join(&known, &world->barrier);
    column = world_beyond(&fence->covers, &known, &fence->justified);
    if (column < WORLD_COLUMNS) {
        world_broke(world,
                    "a late fence of stream %u is waited for: it covers submission %u of stream "
                    "%u, its frees came after %u",
                    number, fence->covers.of[column], column, fence->justified.of[column]);
    }
}

int world_stream_record(void *data, uint32_t number, uint32_t fence)
{
    struct world *world = data;
    struct world_fence *recorded = stream_fence(world, number, fence);
    uint32_t stream = recorded ? column_of(world, number) : WORLD_PLAIN;
    int failed = world_mishap(world, false);

    if (failed || stream == WORLD_PLAIN) {
        return failed ? failed : -EINVAL;
    }
    if (world->capturing && stream == world->captured) {
        return 1;
    }
    recorded->covers = world_before(world, stream);
    recorded->justified = world->stream[stream].freed;
    world->stream[stream].open = false;
    world->stream_asked.records++;
    return 0;
}

int world_stream_order(void *data, uint32_t waiter, uint32_t number, uint32_t fence)
{
    struct world *world = data;
    struct world_fence *recorded = stream_fence(world, number, fence);
    uint32_t stream = recorded ? column_of(world, waiter) : WORLD_PLAIN;
    int failed = world_mishap(world, false);

    if (failed || stream == WORLD_PLAIN) {
        return failed ? failed : -EINVAL;
    }
    if (world->cannot_order || (world->capturing && stream == world->captured)) {
        return 1;
    }
    check_exact(world, number, recorded);
    world_moves(world, stream);
    world_join(&world->stream[stream].before, &recorded->covers);
    world->stream_asked.orders++;
    return 0;
}

int world_stream_query(void *data, uint32_t number, uint32_t fence)
{
    struct world *world = data;
    const struct world_fence *recorded = stream_fence(world, number, fence);
    int failed = world_mishap(world, false);

    if (failed || !recorded) {
        return failed ? failed : -EINVAL;
    }
    world->stream_asked.queries++;
    return query(world, recorded);
}

int world_stream_wait(void *data, uint32_t number, uint32_t fence, bool patient)
{
    struct world *world = data;
    const struct world_fence *recorded = stream_fence(world, number, fence);
    int failed = world_mishap(world, false);

    if (failed || !recorded) {
        return failed ? failed : -EINVAL;
    }
    world->stream_asked.waits++;
    if (!patient && !world_finish(world, &recorded->covers)) {
        return 1;
    }
    if (patient) {
        check_exact(world, number, recorded);
    }
    return wait(world, recorded);
}
