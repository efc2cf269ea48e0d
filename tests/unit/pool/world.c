/*
 * A world for the pool in which time is explicit (see world.h): the books of blocks, and the
 * program's calls. What a stream does is in world_streams.c, time in world_time.c, the books of
 * memory in world_memory.c, the device in world_device.c, checks of the whole in world_checks.c.
 */
#include "tests/unit/pool/world_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t choose(struct choices *choices, uint64_t count)
{
    uint64_t value = 0;

    if (count < 2) {
        return 0;
    }
    if (choices->state) { /* xorshift64* */
        choices->state ^= choices->state >> 12;
        choices->state ^= choices->state << 25;
        choices->state ^= choices->state >> 27;
        return (choices->state * UINT64_C(0x2545f4914f6cdd1d) >> 16) % count;
    }
    for (uint64_t room = 1; room < count && choices->left > 0; room <<= 8) {
        value = value << 8 | *choices->bytes++;
        choices->left--;
    }
    return value % count;
}

void world_broke(struct world *world, const char *format, ...)
{
    va_list arguments;

    if (world->breach[0] == '\0') {
        va_start(arguments, format);
        vsnprintf(world->breach, sizeof(world->breach), format, arguments);
        va_end(arguments);
    }
}

static void check_block(struct world *world, struct world_block *block)
{
    uint64_t start = 0, bytes = 0;
    uint64_t inside = block->start + choose(world->choices, block->asked);

    if (block->start % WORLD_CELL) {
        world_broke(world, "a block at %jx is not aligned", (uintmax_t)block->start);
    }
    if (vs_pool_find(world->pool, inside, &start, &bytes) != 0 || start != block->start ||
        bytes < block->asked) {
        world_broke(world, "the block of %ju bytes at %jx is not found by %jx",
                    (uintmax_t)block->asked, (uintmax_t)block->start, (uintmax_t)inside);
        bytes = block->asked;
    }
    block->occupied = (bytes + WORLD_CELL - 1) / WORLD_CELL * WORLD_CELL;
    if (!vs_replay_device_usable(&world->base, block->start, block->occupied)) {
        world_broke(world, "the block of %ju bytes at %jx is not mapped", (uintmax_t)block->asked,
                    (uintmax_t)block->start);
    }
}

static bool is_faulty(const struct world *world)
{
    return (world->config.faults & ~(uint32_t)VS_POOL_SPANS) != 0;
}

/* Was something freed on a stream whose fence came too late to be waited for, with work behind it
 * that does not end? */
static bool lacks_fence(const struct world *world)
{
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        if (world->stream[i].late && world_is_held(world, i)) {
            return true;
        }
    }
    return false;
}

static void check_refused(struct world *world, const struct vs_pool_request *request, int result,
                          uint64_t failures)
{
    uint64_t pages = (request->bytes + VS_POOL_PAGE - 1) / VS_POOL_PAGE;
    bool fits = request->bytes < UINT64_MAX / 2 &&
                (world->pages_live + pages) * VS_POOL_PAGE <= world->base.cap;

    if (world->failures != failures) {
        return;
    }
    fits = fits && !world->host_permille && !world->late && !world->lost &&
           (world->pages_live + pages) * VS_POOL_PAGE + world->stuck <= world->base.cap;
    if (result != -ENOMEM) {
        world_broke(world, "an allocation of %ju bytes returned %d, and nothing had failed",
                    (uintmax_t)request->bytes, result);
    }
    if (request->verdict == VS_POOL_FITS) {
        world_broke(world, "out of memory without a verdict");
    }
    if (!fits || is_faulty(world)) {
        return;
    }
    if (lacks_fence(world)) {
        world->excused++;
        return;
    }
    if (world->config.backing == VS_POOL_VMM || world->pages_live == 0) {
        world_broke(world,
                    "out of memory for %ju pages while %ju hold live blocks, of %ju (verdict %d)",
                    (uintmax_t)pages, (uintmax_t)world->pages_live,
                    (uintmax_t)(world->base.cap / VS_POOL_PAGE), request->verdict);
    }
}

static struct world_block *new_block(struct world *world)
{
    if (world->live_count == world->live_room) {
        world->live_room = world->live_room ? 2 * world->live_room : 64;
        world->live = realloc(world->live, world->live_room * sizeof(world->live[0]));
        if (!world->live) {
            abort();
        }
    }
    return &world->live[world->live_count];
}

int world_alloc_on(struct world *world, uint32_t stream, uint64_t bytes, size_t *index)
{
    bool plain = stream == WORLD_PLAIN;
    struct vs_pool_request request = {.bytes = bytes,
                                      .lane = (uint32_t)choose(world->choices, 4),
                                      .capturing = world->capturing,
                                      .stream = plain ? 0 : world->stream[stream].number};
    struct world_block block = {.asked = bytes, .anybody = plain};
    struct world_clock allowed, justified = {{0}};
    uint64_t failures = world->failures;
    int result;

    world->waited = 0;
    result = vs_pool_alloc(world->pool, &request, &block.start);
    if (result) {
        check_refused(world, &request, result, failures);
        return result;
    }
    check_block(world, &block);
    allowed = plain && world->capturing ? world->seen
              : plain                   ? world->barrier
                                        : world_before(world, stream);
    world_join(&allowed, &world->seen);
    world_own(world, &block, &allowed, &justified);
    world->moment++;
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        block.since[i] = i == stream || (plain && !world->stream[i].foreign) ? world->moment : 0;
    }
    if (world->waited > justified.of[world->waited_on]) {
        world_broke(world,
                    "the host waited for submission %u, but gets memory that was freed "
                    "before it",
                    world->waited);
    }
    world->occupied_bytes += block.occupied;
    *new_block(world) = block;
    *index = world->live_count++;
    return 0;
}

int world_alloc(struct world *world, uint64_t bytes, size_t *index)
{
    return world_alloc_on(world, WORLD_PLAIN, bytes, index);
}

/* The block is about to be freed: nor may the memory count as live if the pool gives it back in
 * the call. */
static struct world_block take_out(struct world *world, size_t index, bool aside,
                                   const struct world_clock *justified)
{
    struct world_block block = world->live[index];

    world->live[index] = world->live[--world->live_count];
    world->occupied_bytes -= block.occupied;
    world_disown(world, &block, aside, justified);
    return block;
}

static void check_freed(struct world *world, uint64_t address, int result, uint64_t failures)
{
    uint64_t start, bytes;

    if (result &&
        (world->failures == failures || vs_pool_find(world->pool, address, &start, &bytes) == 0)) {
        world_broke(world, "a free returned %d, or failed and left the block", result);
    }
}

int world_free(struct world *world, size_t index)
{
    struct world_block *live = &world->live[index], block;
    struct world_clock justified;
    uint64_t failures;
    int result;

    if (!world_come_after(world, live, WORLD_PLAIN)) {
        return 1;
    }
    /* Before the call: the pool may record at once, and that fence is for this free. */
    if (!world->capturing && !world->open_free) {
        world->open_free = true;
        world->open_free_at = world->submitted_here;
    }
    world->aside |= world->capturing;
    justified = world_before(world, WORLD_PLAIN);
    for (uint32_t i = 0; i < WORLD_COLUMNS; i++) {
        if (!world->stream[i].foreign) {
            live->uses.of[i] = world->stream[i].last;
        }
    }
    world_join(&world->freed_uses, &live->uses);
    block = take_out(world, index, world->capturing, &justified);
    failures = world->failures;
    result = vs_pool_free(world->pool, block.start);
    check_freed(world, block.start, result, failures);
    return result;
}

int world_free_on(struct world *world, size_t index, uint32_t stream)
{
    struct world_stream *on = &world->stream[stream];
    struct world_block *live = &world->live[index], block;
    uint64_t failures;
    int result;

    if ((world_is_held(world, stream) && !world->held_frees) ||
        !world_come_after(world, live, stream) || !world_stream_number(world, stream)) {
        return 1;
    }
    on->freed = world_before(world, stream);
    world_join(&on->freed, &world->seen);
    on->open = true;
    live->uses.of[stream] = on->last;
    block = take_out(world, index, false, &on->freed);
    failures = world->failures;
    result = vs_pool_free_on(world->pool, block.start, on->number);
    check_freed(world, block.start, result, failures);
    return result;
}

static bool is_start(const struct world *world, uint64_t address)
{
    for (size_t i = 0; i < world->live_count; i++) {
        if (world->live[i].start == address) {
            return true;
        }
    }
    return false;
}

void world_free_garbage(struct world *world)
{
    uint64_t address = WORLD_FOREIGN + choose(world->choices, 1 << 30);
    int expected = -ENOENT, result;

    if (world->live_count > 0 && choose(world->choices, 3)) {
        const struct world_block *block = &world->live[choose(world->choices, world->live_count)];

        address = block->start + 1 + choose(world->choices, block->occupied + 4096);
        if (is_start(world, address)) {
            return;
        }
        expected = address < block->start + block->occupied ? -EINVAL : 0; /* 0: either */
    }
    result = vs_pool_free(world->pool, address);
    if (result == 0 || (expected && result != expected)) {
        world_broke(world, "a free of %jx, where no block starts, returned %d instead of %d",
                    (uintmax_t)address, result, expected);
    }
}

void world_close(struct world *world)
{
    uint64_t failures = world->failures;
    int result;

    if (!vs_pool_open_epoch(world->pool)) {
        return;
    }
    result = vs_pool_close_epoch(world->pool);
    if (result == 0 && world->capturing && !is_faulty(world)) {
        world_broke(world, "an epoch was closed inside a capture");
    }
    if (result > 0 && !world->capturing) {
        world_broke(world, "closing an epoch was refused outside of captures");
    }
    if (result < 0 && world->failures == failures) {
        world_broke(world, "closing an epoch returned %d, and nothing had failed", result);
    }
    if (result == 0 && !is_faulty(world) && vs_pool_open_epoch(world->pool)) {
        world_broke(world, "an epoch is open after it was closed");
    }
    if (result) {
        world->open_free = false; /* late from here on, and rightly */
    }
}

#define MOST 32 /* blocks that one submission uses */

void world_submit(struct world *world, uint32_t stream, size_t index, size_t count, bool held)
{
    struct world_block *blocks[MOST];
    size_t used = 0;

    world_close(world);
    if (!world->stream[stream].alive || (world->capturing && stream == world->captured)) {
        return; /* it is a node of a graph */
    }
    for (size_t i = 0; i < count && i < world->live_count && i < MOST; i++) {
        struct world_block *block = &world->live[(index + i) % world->live_count];

        if (world_may_use(world, block, stream) ||
            (choose(world->choices, 2) && world_come_after(world, block, stream))) {
            blocks[used++] = block;
        }
    }
    world_stream_close(world, stream);
    world_work(world, stream, blocks, used, held);
}

void world_capture(struct world *world, bool on)
{
    if (world->capturing == on) {
        return;
    }
    if (on) {
        uint32_t stream = world_some_stream(world, false);

        if (stream == WORLD_PLAIN) {
            return;
        }
        world_close(world);
        /* Wanted or not: while it captures none can be had. */
        if (world->stream[stream].number) {
            vs_pool_stream_close(world->pool, world->stream[stream].number);
        }
        world->late = vs_pool_open_epoch(world->pool);
        world->capturing = true;
        world->captured = stream;
        return;
    }
    world->capturing = world->late = false;
    world_capture_ended(world);
}

bool world_init(struct world *world, const struct vs_pool_config *config, uint64_t cap,
                struct choices *choices)
{
    int error = 0;

    memset(world, 0, sizeof(*world));
    vs_replay_device_init(&world->base, cap);
    world->config = *config;
    world->choices = choices;
    world->streams = 1 + (uint32_t)choose(choices, WORLD_STREAMS);
    memset(world->column, 0xff, sizeof(world->column));
    for (uint32_t i = 0; i < world->streams; i++) {
        world->stream[i].alive = true;
    }
    world->pool = vs_pool_new(config, &world_ops, world, &error);
    if (!world->pool && error >= 0) {
        world_broke(world, "no pool, and no error");
    }
    if (world->base.charged) {
        world_broke(world, "a new pool holds memory");
    }
    return world->pool != NULL;
}

static bool known_streams(const struct world *world)
{
    for (uint32_t i = 1; i <= VS_POOL_STREAMS; i++) {
        if (world->column[i] != WORLD_PLAIN) {
            return true;
        }
    }
    return false;
}

/* The program's end: all that is live is freed, everything finishes. */
static void wind_up(struct world *world)
{
    world_let_go(world);
    world_capture(world, false);
    while (world->live_count > 0) {
        uint32_t stream = world_some_stream(world, true);

        if (!known_streams(world) || stream == WORLD_PLAIN || choose(world->choices, 2) ||
            world_free_on(world, world->live_count - 1, stream) > 0) {
            world_free(world, world->live_count - 1);
        }
    }
    world_close(world);
    if (known_streams(world)) { /* else settling is to see to it */
        while (world_step(world)) {
            continue;
        }
    }
    world_settle(world);
    vs_pool_keep_idle(world->pool, 0);
    world_trim(world, 0, true);
    world_check(world);
}

void world_fini(struct world *world, bool gone)
{
    const char *left;

    world->fail_permille = 0; /* but what could not be noted down stays so */
    if (world->pool && !gone) {
        wind_up(world);
    }
    while (world_step(world)) {
        continue;
    }
    if (world->finished != world->submitted && world->held == 0) {
        world_broke(world, "a deadlock: submission %u never finishes", world->finished + 1);
    }
    world->ended = true; /* nothing uses anything any more */
    vs_pool_free_all(world->pool, gone);
    left = vs_replay_device_leak(&world->base);
    if (left && !(gone && world->config.backing == VS_POOL_NATIVE)) {
        world_broke(world, "at the end %s", left);
    }
    if (world->base.breach) {
        world_broke(world, "%s", world->base.breach);
    }
    world_abandon(world);
}

void world_abandon(struct world *world)
{
    world_memory_fini(world);
    free(world->live);
    vs_replay_device_fini(&world->base);
}
