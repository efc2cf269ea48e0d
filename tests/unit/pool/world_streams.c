/*
 * Streams of the world's program (see world.h): what it calls, and what it must keep to.
 */
#include "tests/unit/pool/world_internal.h"

#include <string.h>

static bool usable(const struct world *world, uint32_t stream)
{
    return world->stream[stream].alive && !(world->capturing && stream == world->captured);
}

uint32_t world_some_stream(struct world *world, bool foreign)
{
    uint32_t first = (uint32_t)choose(world->choices, WORLD_COLUMNS);

    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        uint32_t stream = (first + i) % WORLD_COLUMNS;

        if (usable(world, stream) && (foreign || !world->stream[stream].foreign)) {
            return stream;
        }
    }
    return WORLD_PLAIN;
}

/* A column whose last owner's work the host has seen, so that nothing is left to mistake. */
static uint32_t find_column(const struct world *world)
{
    uint32_t alive = 0, found = WORLD_PLAIN;

    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        alive += world->stream[i].alive;
        if (!world->stream[i].alive && world->stream[i].last <= world->seen.of[i]) {
            found = i;
        }
    }
    return alive < WORLD_STREAMS ? found : WORLD_PLAIN;
}

uint32_t world_stream_begin(struct world *world, bool foreign, bool numbered)
{
    uint32_t stream = find_column(world);

    if (stream == WORLD_PLAIN) {
        return stream;
    }
    for (size_t i = 0; i < world->live_count; i++) {
        world->live[i].since[stream] = 0;
    }
    for (uint32_t i = 0; i < WORLD_EVENTS; i++) {
        world->event[i].recorded &= world->event[i].stream != stream;
    }
    world->stream[stream] = (struct world_stream){
        .alive = true,
        .foreign = foreign,
        .last = world->stream[stream].last,
        .done = world->stream[stream].done,
    };
    if (numbered) {
        world_stream_number(world, stream);
    }
    return stream;
}

bool world_stream_number(struct world *world, uint32_t stream)
{
    uint32_t number = world->stream[stream].number;

    if (number) {
        return true;
    }
    number = vs_pool_stream_begin(world->pool, !world->stream[stream].foreign);
    if (number > VS_POOL_STREAMS || (number && world->column[number] != WORLD_PLAIN)) {
        world_broke(world, "a stream gets the number %u", number);
        return false;
    }
    if (number) {
        world->stream[stream].number = number;
        world->column[number] = stream;
    }
    return number != 0;
}

void world_stream_end(struct world *world, uint32_t stream)
{
    struct world_stream *on = &world->stream[stream];

    if (on->number) {
        vs_pool_stream_end(world->pool, on->number);
        world->column[on->number] = WORLD_PLAIN;
    }
    world_moves(world, stream); /* what has no fence now gets none */
    world->lost |= on->foreign && on->open;
    on->number = 0;
    on->alive = false;
}

void world_stream_close(struct world *world, uint32_t stream)
{
    const struct world_stream *on = &world->stream[stream];
    uint64_t failures = world->failures;
    int result;

    if (!on->number || !vs_pool_stream_open(world->pool, on->number)) {
        return;
    }
    result = vs_pool_stream_close(world->pool, on->number);
    if (result && world->failures == failures) {
        world_broke(world, "closing a stream returned %d, and nothing had failed", result);
    }
    if (result == 0 && vs_pool_stream_open(world->pool, on->number)) {
        world_broke(world, "stream %u is open after it was closed", on->number);
    }
}

bool world_may_use(const struct world *world, const struct world_block *block, uint32_t stream)
{
    return block->since[stream] || (block->anybody && !world->stream[stream].foreign);
}

/* A stream that may be waited for because it may use the block. */
static uint32_t a_user(const struct world *world, const struct world_block *block)
{
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        if (usable(world, i) && block->since[i]) {
            return i;
        }
    }
    return WORLD_PLAIN;
}

/* The host waits until a stream's work up to a submission is finished. */
static bool finish_up_to(struct world *world, uint32_t stream, uint32_t submission)
{
    struct world_clock clock = {{0}};

    clock.of[stream] = submission;
    if (!world_finish(world, &clock)) {
        return false;
    }
    world_join(&world->seen, &clock);
    return true;
}

/* What another stream has done is over before the later work of one, or (WORLD_PLAIN) of the
 * context. */
static bool come_after(struct world *world, uint32_t stream, uint32_t other, uint32_t submission)
{
    uint32_t waiter = stream == WORLD_PLAIN ? world_some_stream(world, false) : stream;

    if (waiter == WORLD_PLAIN || !usable(world, waiter) || !usable(world, other)) {
        return finish_up_to(world, other, submission);
    }
    if (world_is_held(world, other)) {
        return false;
    }
    world_depend(world, waiter, other, choose(world->choices, 8) > 0);
    return true;
}

bool world_come_after(struct world *world, struct world_block *block, uint32_t stream)
{
    struct world_clock before;
    uint32_t user, column;

    if (stream != WORLD_PLAIN && !world_may_use(world, block, stream)) {
        user = a_user(world, block);
        if (user == WORLD_PLAIN || world_is_held(world, user)) {
            return false;
        }
        world_depend(world, stream, user, choose(world->choices, 8) > 0);
        if (!world_may_use(world, block, stream)) {
            return false;
        }
    }
    for (;;) {
        before = world_before(world, stream);
        column = world_beyond(&block->uses, &before, &world->seen);
        if (column == WORLD_COLUMNS) {
            return true;
        }
        if (!come_after(world, stream, column, block->uses.of[column])) {
            return false;
        }
    }
}

/* Work that comes to a stream: its frees get their fence first. */
static void comes_to(struct world *world, uint32_t stream)
{
    world_stream_close(world, stream);
    world_moves(world, stream);
}

void world_event_record(struct world *world, uint32_t event, uint32_t stream)
{
    const struct world_stream *on = &world->stream[stream];

    if (choose(world->choices, 2)) {
        world_stream_close(world, stream); /* as before any work; but it is none */
    }
    world->event[event] = (struct world_event){
        .recorded = true,
        .stream = stream,
        .number = on->number,
        .moment = ++world->moment,
        .mark = on->number ? vs_pool_stream_mark(world->pool, on->number) : 0,
        .covers = world_before(world, stream),
    };
}

/* Those who come after an event may use what its stream could. */
static void pass_on(struct world *world, const struct world_event *event, uint32_t waiter)
{
    world->moment++;
    for (size_t i = 0; i < world->live_count; i++) {
        struct world_block *block = &world->live[i];

        if (!block->since[waiter] && block->since[event->stream] &&
            block->since[event->stream] <= event->moment) {
            block->since[waiter] = world->moment;
        }
    }
}

void world_event_wait(struct world *world, uint32_t number, uint32_t waiter, bool told)
{
    const struct world_event *event = &world->event[number];

    if (!event->recorded || event->stream == waiter) {
        return;
    }
    comes_to(world, waiter);
    world_join(&world->stream[waiter].before, &event->covers);
    pass_on(world, event, waiter);
    if (told && event->number && world_stream_number(world, waiter)) {
        vs_pool_stream_after(world->pool, world->stream[waiter].number, event->number, event->mark);
    }
}

/* The host has seen an event pass. */
static void saw(struct world *world, const struct world_event *event, bool told)
{
    world_join(&world->seen, &event->covers);
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        if (world->stream[i].alive && i != event->stream) {
            pass_on(world, event, i);
        }
    }
    for (size_t i = 0; i < world->live_count; i++) {
        uint32_t since = world->live[i].since[event->stream];

        world->live[i].anybody |= since && since <= event->moment;
    }
    if (told && event->number) {
        vs_pool_stream_seen(world->pool, event->number, event->mark);
    }
}

void world_event_sync(struct world *world, uint32_t number, bool query, bool told)
{
    const struct world_event *event = &world->event[number];

    if (event->recorded &&
        (query ? world_is_done(world, &event->covers) : world_finish(world, &event->covers))) {
        saw(world, event, told);
    }
}

void world_depend(struct world *world, uint32_t waiter, uint32_t stream, bool told)
{
    uint32_t number = (uint32_t)choose(world->choices, WORLD_EVENTS);

    world_event_record(world, number, stream);
    world_event_wait(world, number, waiter, told);
}

static void sync_one(struct world *world, uint32_t stream, bool told)
{
    struct world_event event;

    world_event_record(world, 0, stream);
    event = world->event[0];
    world->event[0].recorded = false;
    if (world_finish(world, &event.covers)) {
        saw(world, &event, told);
    }
}

void world_sync(struct world *world, uint32_t stream, bool told)
{
    if (stream != WORLD_PLAIN) {
        sync_one(world, stream, told);
        return;
    }
    for (uint32_t i = 0; !world->capturing && i < WORLD_COLUMNS; i++) {
        if (world->stream[i].alive && !world->stream[i].foreign) {
            sync_one(world, i, told);
        }
    }
}
