/*
 * The world's books of memory (see world.h): who owns each cell, and what used it before.
 */
#include "tests/unit/pool/world_internal.h"

#include <stdlib.h>
#include <string.h>

static void *made(void *memory)
{
    if (!memory) {
        abort();
    }
    return memory;
}

/* The memory behind an address; NULL: none. */
static struct world_page *page_at(struct world *world, uint64_t address)
{
    struct world_page *page;
    uint64_t handle, offset, number;

    if (!vs_replay_device_behind(&world->base, address, &handle, &offset)) {
        return NULL;
    }
    number = WORLD_PAGE_OF(handle, offset / VS_POOL_PAGE);
    HASH_FIND(hh, world->pages, &number, sizeof(number), page);
    if (!page) {
        page = made(calloc(1, sizeof(*page)));
        page->number = number;
        HASH_ADD(hh, world->pages, number, sizeof(number), page);
    }
    return page;
}

static const struct world_past *past_of(const struct world *world, uint32_t number)
{
    static const struct world_past none;

    return number ? world->past[number] : &none;
}

/* The number of a past. */
static uint32_t remember(struct world *world, const struct world_clock *uses,
                         const struct world_clock *justified)
{
    struct world_past *past, fresh = {.key = {*uses, *justified}};

    if (world_beyond(uses, &world->seen, NULL) == WORLD_COLUMNS &&
        world_beyond(justified, &world->seen, NULL) == WORLD_COLUMNS) {
        return 0;
    }
    HASH_FIND(hh, world->pasts, &fresh.key, sizeof(fresh.key), past);
    if (past) {
        return past->number;
    }
    if (world->past_count + 1 >= world->past_room) {
        world->past_room = world->past_room ? 2 * world->past_room : 256;
        world->past = made(realloc(world->past, world->past_room * sizeof(world->past[0])));
    }
    past = made(malloc(sizeof(*past)));
    *past = fresh;
    past->number = ++world->past_count;
    world->past[past->number] = past;
    HASH_ADD(hh, world->pasts, key, sizeof(past->key), past);
    return past->number;
}

void world_page_gone(struct world *world, uint64_t number)
{
    struct world_page *page;
    uint32_t known = 0, column;

    HASH_FIND(hh, world->pages, &number, sizeof(number), page);
    for (uint32_t i = 0; page && i < WORLD_CELLS; i++) {
        const struct world_clock *uses = &past_of(world, page->past[i])->key.uses;

        if (page->owner[i]) {
            world_broke(world, "memory that holds %s block is released",
                        page->owner[i] == WORLD_OWNED ? "a live" : "a just freed");
        }
        if (page->past[i] == known) {
            continue;
        }
        known = page->past[i];
        column = world_beyond(uses, &world->seen, NULL);
        if (column < WORLD_COLUMNS) {
            world_broke(world,
                        "memory is released: submission %u used it, up to %u are seen (stream %u)",
                        uses->of[column], world->seen.of[column], column);
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
        window = made(calloc(1, sizeof(*window)));
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

static bool next_part(struct world *world, uint64_t *at, const struct world_block *block,
                      struct part *part)
{
    uint64_t offset = *at % VS_POOL_PAGE, end = block->start + block->occupied;
    uint64_t rest = VS_POOL_PAGE - offset;

    if (*at >= end) {
        return false;
    }
    if (rest > end - *at) {
        rest = end - *at;
    }
    part->first = (uint32_t)(offset / WORLD_CELL);
    part->count = (uint32_t)((rest + WORLD_CELL - 1) / WORLD_CELL);
    part->page = page_at(world, *at);
    part->window = window_find(world, *at, true);
    if (!part->page) {
        world_broke(world, "a block lies at %jx, where nothing is mapped", (uintmax_t)*at);
    }
    *at += (uint64_t)part->count * WORLD_CELL;
    return part->page != NULL;
}

static void own_part(struct world *world, const struct world_block *block, const struct part *part,
                     const struct world_clock *allowed, struct world_clock *justified)
{
    struct world_page *page = part->page;
    uint32_t known = 0, column;

    for (uint32_t i = part->first; i < part->first + part->count; i++) {
        const struct world_past *past = past_of(world, page->past[i]);

        if (page->owner[i]) {
            world_broke(world, "a block of %ju bytes at %jx shares memory with another",
                        (uintmax_t)block->asked, (uintmax_t)block->start);
        } else if (page->used++ == 0) {
            world->pages_live++;
        }
        page->owner[i] = WORLD_OWNED;
        if (page->past[i] == known) {
            continue;
        }
        known = page->past[i];
        world_join(justified, &past->key.justified);
        column = world_beyond(&past->key.uses, allowed, NULL);
        if (column < WORLD_COLUMNS) {
            world_broke(world,
                        "memory at %jx handed out%s: submission %u used it, up to %u are ordered, "
                        "up to %u seen (stream %u)",
                        (uintmax_t)block->start, world->capturing ? " in a capture" : "",
                        past->key.uses.of[column], allowed->of[column], world->seen.of[column],
                        column);
        }
    }
    part->window->used += part->count;
}

void world_own(struct world *world, const struct world_block *block,
               const struct world_clock *allowed, struct world_clock *justified)
{
    uint64_t at = block->start;
    struct part part;

    while (next_part(world, &at, block, &part)) {
        own_part(world, block, &part, allowed, justified);
    }
}

static void disown_part(struct world *world, const struct part *part,
                        const struct world_clock *uses, bool aside,
                        const struct world_clock *justified)
{
    struct world_page *page = part->page;
    uint32_t known = UINT32_MAX, number = 0;

    for (uint32_t i = part->first; i < part->first + part->count; i++) {
        if (page->past[i] != known) {
            struct world_clock all = *uses;

            known = page->past[i];
            world_join(&all, &past_of(world, known)->key.uses);
            number = remember(world, &all, justified);
        }
        page->past[i] = number;
        if (!aside && page->owner[i] && --page->used == 0) {
            world->pages_live--;
        }
        page->owner[i] = aside ? WORLD_ASIDE : 0;
    }
    if (aside) {
        part->window->aside += part->count;
    } else {
        part->window->used -= part->count;
    }
    world_join(&part->window->uses, uses);
}

void world_disown(struct world *world, const struct world_block *block, bool aside,
                  const struct world_clock *justified)
{
    uint64_t at = block->start;
    struct part part;

    while (next_part(world, &at, block, &part)) {
        disown_part(world, &part, &block->uses, aside, justified);
    }
}

/* What was freed in it is anybody's, as the fences have it. */
void world_capture_ended(struct world *world)
{
    struct world_page *page, *next;
    struct world_window *window, *next_window;

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

void world_memory_fini(struct world *world)
{
    struct world_page *page, *next;
    struct world_window *window, *next_window;
    struct world_past *past, *next_past;

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
    HASH_ITER(hh, world->pasts, past, next_past)
    {
        HASH_DEL(world->pasts, past);
        free(past);
    }
    free(world->past);
}
