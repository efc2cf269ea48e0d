/*
 * A world for the pool in which time is explicit (see world.h): the books of blocks, and the
 * program's calls. The device's side is world_device.c.
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

struct world_page *world_page(struct world *world, uint64_t address)
{
    struct world_page *page;
    uint64_t handle, offset, number;

    if (!vs_replay_device_behind(&world->base, address, &handle, &offset)) {
        return NULL;
    }
    number = WORLD_PAGE_OF(handle, offset / VS_POOL_PAGE);
    HASH_FIND(hh, world->pages, &number, sizeof(number), page);
    if (!page) {
        page = calloc(1, sizeof(*page));
        if (!page) {
            abort();
        }
        page->number = number;
        HASH_ADD(hh, world->pages, number, sizeof(number), page);
    }
    return page;
}

void world_page_gone(struct world *world, uint64_t number)
{
    struct world_page *page;

    HASH_FIND(hh, world->pages, &number, sizeof(number), page);
    for (uint32_t i = 0; page && i < WORLD_CELLS; i++) {
        if (page->owner[i]) {
            world_broke(world, "memory that holds %s block is released",
                        page->owner[i] == WORLD_OWNED ? "a live" : "a just freed");
        }
        if (page->last_use[i] > world->seen) {
            world_broke(world, "memory is released: submission %u used it, up to %u are seen",
                        page->last_use[i], world->seen);
        }
    }
    if (page) {
        world->pages_live -= page->used > 0;
        HASH_DEL(world->pages, page);
        free(page);
    }
}

static struct world_window *window_find(struct world *world, uint64_t address, bool make)
{
    uint64_t number = address / VS_POOL_PAGE;
    struct world_window *window;

    HASH_FIND(hh, world->windows, &number, sizeof(number), window);
    if (!window && make) {
        window = calloc(1, sizeof(*window));
        if (!window) {
            abort();
        }
        window->number = number;
        HASH_ADD(hh, world->windows, number, sizeof(number), window);
    }
    return window;
}

struct world_window *world_window(struct world *world, uint64_t address)
{
    return window_find(world, address, false);
}

/* The part of a range that lies in one page: cells from first on; count of them. */
struct part {
    struct world_page *page;
    struct world_window *window;
    uint32_t first, count;
};

static bool next_part(struct world *world, uint64_t *at, uint64_t end, struct part *part)
{
    uint64_t offset = *at % VS_POOL_PAGE;
    uint64_t rest = VS_POOL_PAGE - offset;

    if (*at >= end) {
        return false;
    }
    if (rest > end - *at) {
        rest = end - *at;
    }
    part->first = (uint32_t)(offset / WORLD_CELL);
    part->count = (uint32_t)((rest + WORLD_CELL - 1) / WORLD_CELL);
    part->page = world_page(world, *at);
    part->window = window_find(world, *at, true);
    if (!part->page) {
        world_broke(world, "a block lies at %jx, where nothing is mapped", (uintmax_t)*at);
    }
    *at += (uint64_t)part->count * WORLD_CELL;
    return part->page != NULL;
}

static void own_part(struct world *world, const struct world_block *block, const struct part *part,
                     uint32_t owner)
{
    struct world_page *page = part->page;

    for (uint32_t i = part->first; i < part->first + part->count; i++) {
        if (owner && page->owner[i]) {
            world_broke(world, "a block of %ju bytes at %jx shares memory with another",
                        (uintmax_t)block->asked, (uintmax_t)block->start);
        }
        if (owner && page->last_use[i] > world->seen &&
            (world->capturing || page->last_use[i] > world->barrier)) {
            world_broke(world,
                        "memory at %jx handed out%s: submission %u used it, up to %u are "
                        "ordered, up to %u seen",
                        (uintmax_t)block->start, world->capturing ? " in a capture" : "",
                        page->last_use[i], world->barrier, world->seen);
        }
        if (!owner && page->last_use[i] > world->freed_use) {
            world->freed_use = page->last_use[i];
        }
        if (owner && !page->owner[i] && page->used++ == 0) {
            world->pages_live++;
        } else if (!owner && !world->capturing && page->owner[i] && --page->used == 0) {
            world->pages_live--;
        }
        page->owner[i] = !owner && world->capturing ? WORLD_ASIDE : owner;
    }
    if (owner) {
        part->window->used += part->count;
    } else if (world->capturing) {
        part->window->aside += part->count;
    } else {
        part->window->used -= part->count;
    }
}

void world_own(struct world *world, const struct world_block *block, uint32_t owner)
{
    uint64_t at = block->start, end = block->start + block->occupied;
    struct part part;

    while (next_part(world, &at, end, &part)) {
        own_part(world, block, &part, owner);
    }
}

void world_use(struct world *world, const struct world_block *block)
{
    uint64_t at = block->start, end = block->start + block->asked;
    struct part part;

    while (next_part(world, &at, end, &part)) {
        part.window->last_use = world->submitted;
        for (uint32_t i = part.first; i < part.first + part.count; i++) {
            part.page->last_use[i] = world->submitted;
        }
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

static void check_refused(struct world *world, const struct vs_pool_request *request, int result,
                          uint64_t failures)
{
    uint64_t pages = (request->bytes + VS_POOL_PAGE - 1) / VS_POOL_PAGE;
    bool fits = request->bytes < UINT64_MAX / 2 &&
                (world->pages_live + pages) * VS_POOL_PAGE <= world->base.cap;

    if (world->failures != failures) {
        return;
    }
    fits = fits && !world->host_permille && !world->late &&
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
    if (world->config.backing == VS_POOL_VMM || world->pages_live == 0) {
        world_broke(world,
                    "out of memory for %ju pages while %ju hold live blocks, of %ju (verdict %d)",
                    (uintmax_t)pages, (uintmax_t)world->pages_live,
                    (uintmax_t)(world->base.cap / VS_POOL_PAGE), request->verdict);
    }
}

int world_alloc(struct world *world, uint64_t bytes, size_t *index)
{
    struct vs_pool_request request = {
        .bytes = bytes, .lane = (uint32_t)choose(world->choices, 4), .capturing = world->capturing};
    struct world_block block = {.asked = bytes};
    uint64_t failures = world->failures;
    int result;

    if (world->live_count == world->live_room) {
        world->live_room = world->live_room ? 2 * world->live_room : 64;
        world->live = realloc(world->live, world->live_room * sizeof(world->live[0]));
        if (!world->live) {
            abort();
        }
    }
    result = vs_pool_alloc(world->pool, &request, &block.start);
    if (result) {
        check_refused(world, &request, result, failures);
        return result;
    }
    check_block(world, &block);
    world_own(world, &block, WORLD_OWNED);
    world->occupied_bytes += block.occupied;
    *index = world->live_count;
    world->live[world->live_count++] = block;
    return 0;
}

int world_free(struct world *world, size_t index)
{
    struct world_block block = world->live[index];
    uint64_t failures = world->failures;
    uint64_t start, bytes;
    int result;

    /* Before the call: the pool may record at once, and that fence is for this free. */
    if (!world->capturing && !world->open_free) {
        world->open_free = true;
        world->open_free_at = world->submitted;
    }
    world->aside |= world->capturing;
    /* Nor may the memory count as live if the pool gives it back in the call. */
    world_own(world, &block, 0);
    result = vs_pool_free(world->pool, block.start, (uint32_t)choose(world->choices, 4));
    if (result && (world->failures == failures ||
                   vs_pool_find(world->pool, block.start, &start, &bytes) == 0)) {
        world_broke(world, "a free returned %d, or failed and left the block", result);
    }
    world->occupied_bytes -= block.occupied;
    world->live[index] = world->live[--world->live_count];
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
    result = vs_pool_free(world->pool, address, 0);
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

void world_submit(struct world *world, uint32_t stream, size_t index, size_t count, bool held)
{
    uint32_t slot;

    world_close(world);
    while (world->submitted - world->finished >= WORLD_AHEAD) {
        if (!world_step(world)) {
            world_let_go(world);
        }
    }
    slot = ++world->submitted % WORLD_AHEAD;
    world->ahead[slot].number = world->submitted;
    world->ahead[slot].need = world->barrier;
    world->ahead[slot].stream = stream;
    world->ahead[slot].done = false;
    world->ahead[slot].held = held;
    world->held += held;
    for (size_t i = 0; i < count && i < world->live_count; i++) {
        world_use(world, &world->live[(index + i) % world->live_count]);
    }
}

void world_capture(struct world *world, bool on)
{
    struct world_page *page, *next;
    struct world_window *window, *next_window;

    if (world->capturing == on) {
        return;
    }
    if (on) {
        world_close(world);
        world->late = vs_pool_open_epoch(world->pool);
        world->capturing = true;
        return;
    }
    world->capturing = world->late = false;
    HASH_ITER(hh, world->pages, page, next)
    {
        for (uint32_t i = 0; i < WORLD_CELLS; i++) {
            if (page->owner[i] == WORLD_ASIDE) {
                page->owner[i] = 0;
                world->pages_live -= --page->used == 0;
            }
        }
    }
    HASH_ITER(hh, world->windows, window, next_window)
    {
        window->used -= window->aside;
        window->aside = 0;
    }
}

void world_settle(struct world *world)
{
    uint64_t failures = world->failures;
    int result = vs_pool_settle(world->pool);

    if (result == 0 && world->seen < world->freed_use) {
        world_broke(world, "settled%s, but submission %u used freed memory and %u is seen",
                    world->capturing ? " in a capture" : "", world->freed_use, world->seen);
    }
    if (result && !world->capturing && world->failures == failures) {
        world_broke(world, "settling returned %d, and nothing had failed", result);
    }
}

/* What the smallest piece is that could go. */
static uint64_t least_piece(const struct world *world)
{
    uint64_t least = UINT64_MAX;

    if (world->config.backing == VS_POOL_VMM) {
        return VS_POOL_PAGE;
    }
    for (uint32_t i = 0; i < world->base.whole_count; i++) {
        if (world->base.wholes[i].bytes < least) {
            least = world->base.wholes[i].bytes;
        }
    }
    return least;
}

void world_trim(struct world *world, uint64_t keep, bool wait)
{
    uint64_t failures = world->failures;
    uint64_t before = world->base.charged;
    uint64_t given = vs_pool_trim(world->pool, keep, wait);

    if (before - world->base.charged != given) {
        world_broke(world, "trimming says %ju bytes, and gave %ju", (uintmax_t)given,
                    (uintmax_t)(before - world->base.charged));
    }
    if (given > 0 && world->base.charged < world->config.keep_bytes) {
        world_broke(world, "trimmed to %ju bytes, below what is to be kept",
                    (uintmax_t)world->base.charged);
    }
    if (wait && keep == 0 && !world->capturing && world->failures == failures &&
        world->live_count == 0 && !world->host_permille && world->base.charged > 0 &&
        world->base.charged >= world->config.keep_bytes + world->stuck + least_piece(world)) {
        world_broke(world, "trimmed to nothing, but %ju bytes are held",
                    (uintmax_t)world->base.charged);
    }
}

void world_check(struct world *world)
{
    struct vs_pool_stats stats;
    int number = vs_pool_validate(world->pool);

    if (number) {
        world_broke(world, "vs_pool_validate: %d", number);
    }
    if (world->base.breach) {
        world_broke(world, "%s", world->base.breach);
    }
    vs_pool_stats(world->pool, &stats);
    if (stats.reserved_bytes != world->base.charged ||
        (uint64_t)world->base.reserved != world->base.charged) {
        world_broke(world, "reserved: %ju by the statistics, %jd as said, %ju by the device",
                    (uintmax_t)stats.reserved_bytes, (intmax_t)world->base.reserved,
                    (uintmax_t)world->base.charged);
    }
    if (stats.live_bytes < world->occupied_bytes ||
        (stats.live_bytes > world->occupied_bytes && !world->host_permille)) {
        world_broke(world, "live: %ju by the statistics, %ju in truth", (uintmax_t)stats.live_bytes,
                    (uintmax_t)world->occupied_bytes);
    }
    if (stats.block_bytes != stats.live_bytes ||
        stats.free_bytes != stats.reserved_bytes - stats.block_bytes) {
        world_broke(world, "blocks occupy %ju, %ju are live, %ju free, of %ju",
                    (uintmax_t)stats.block_bytes, (uintmax_t)stats.live_bytes,
                    (uintmax_t)stats.free_bytes, (uintmax_t)stats.reserved_bytes);
    }
    if (stats.reserved_peak < stats.reserved_bytes || stats.live_peak < stats.live_bytes ||
        stats.reserved_peak > world->base.cap || stats.pending_bytes > stats.free_bytes ||
        stats.largest_free_bytes > stats.free_bytes || stats.pinned_bytes > stats.free_bytes) {
        world_broke(world, "statistics contradict each other");
    }
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
    world->pool = vs_pool_new(config, &world_ops, world, &error);
    if (!world->pool && error >= 0) {
        world_broke(world, "no pool, and no error");
    }
    if (world->base.charged) {
        world_broke(world, "a new pool holds memory");
    }
    return world->pool != NULL;
}

/* The program's end: all that is live is freed, everything finishes. */
static void wind_up(struct world *world)
{
    world_let_go(world);
    world_capture(world, false);
    while (world->live_count > 0) {
        world_free(world, world->live_count - 1);
    }
    world_close(world);
    world_settle(world);
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
    struct world_page *page, *next;
    struct world_window *window, *next_window;

    HASH_ITER(hh, world->pages, page, next)
    {
        HASH_DEL(world->pages, page);
        free(page);
    }
    HASH_ITER(hh, world->windows, window, next_window)
    {
        HASH_DEL(world->windows, window);
        free(window);
    }
    free(world->live);
    vs_replay_device_fini(&world->base);
}
