/*
 * A world for the pool in which time is explicit, and which knows what must not happen.
 *
 * Submissions are numbered from 1. A fence recorded after submission n covers 1 … n. The device
 * finishes submissions in any order that streams and order() allow; the source of choices picks it.
 * Every 512 bytes of memory know who owns them and which submission used them last: of memory, not
 * of addresses, for a handle may be mapped at several. What went through an address is kept beside
 * that, for its unmapping.
 *
 * Checked, always, and the first breach kept as a phrase:
 *   - the driver's rules of mapping (report/cli/replay_device.h);
 *   - blocks are aligned, mapped, found again, and share no memory with a live one;
 *   - memory handed out was last used by a submission that is ordered before all later work, or
 * that the host has seen finish; inside a capture, the latter only;
 *   - a fence covers no submission that came after a free of its epoch (rule 1), and nobody waits
 * for what can only finish later (a deadlock);
 *   - addresses are unmapped when no live block lies there and all that went through them was seen
 *     finished, and memory is released when that holds for all of its addresses (rule 2);
 *   - no context event is recorded or waited for as if it had been while a capture runs (rule 4);
 *   - no out-of-memory while the pages of live blocks and of the request fit the cap (vmm), memory
 *     freed inside a running capture excepted;
 *   - statistics agree with the books, and vs_pool_validate is content.
 *
 * One thread.
 */
#ifndef VS_TESTS_UNIT_POOL_WORLD_H
#define VS_TESTS_UNIT_POOL_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/pool.h"
#include "report/cli/replay_device.h"

/* Where choices come from: a seed, or bytes, then zeros. */
struct choices {
    uint64_t state; /* not 0: the seed */
    const uint8_t *bytes;
    size_t left;
};

uint64_t choose(struct choices *choices, uint64_t count); /* 0 … count - 1 */

#define WORLD_STREAMS 8
#define WORLD_AHEAD 48 /* submissions that are not finished, at most */
#define WORLD_FOREIGN UINT64_C(0x7f00dead0000)

struct world_block {
    uint64_t start, asked, occupied;
};

struct world_page;
struct world_window;

struct world {
    struct vs_replay_device base; /* first: it is the world of its own ops as well */
    struct vs_pool *pool;
    struct vs_pool_config config;
    struct choices *choices;
    char breach[256]; /* empty: none */

    /* Time. */
    uint32_t submitted, finished; /* all up to finished are */
    uint32_t barrier, seen;       /* what later work waits for; what the host knows of */
    struct {
        uint32_t number, need, stream;
        bool done, held;
    } ahead[WORLD_AHEAD]; /* those behind finished, by number */
    uint32_t recorded[VS_POOL_FENCES];
    uint32_t streams;
    bool capturing, cannot_order, ended;
    uint32_t held; /* submissions that wait for the program */
    bool aside;    /* something was freed in a capture, and no fence was recorded since */
    bool late;     /* the running capture began with an epoch that could not be closed */
    bool open_free;
    uint32_t open_free_at; /* submitted when the first free was made that has no fence yet */
    uint32_t freed_use;    /* last use of anything that was freed */

    /* Memory. */
    struct world_page *pages;     /* of memory */
    struct world_window *windows; /* of addresses */
    uint64_t pages_live;          /* that hold a live block, or one freed in the running capture */
    struct world_block *live;
    size_t live_count, live_room;
    uint64_t occupied_bytes;

    /* Failures put in. */
    uint32_t fail_permille; /* calls of the device */
    uint32_t host_permille; /* host memory: what the pool cannot note down may stay unused */
    uint64_t failures;
    uint64_t stuck; /* bytes whose unmapping failed: the pool may have to leave them as they are */
    uint32_t
        lend_permille; /* mappings that get memory which is mapped elsewhere: no pool is right */
};

/* A world with a pool in it; false where there is none (a failure was put in). */
bool world_init(struct world *world, const struct vs_pool_config *config, uint64_t cap,
                struct choices *choices);
/* Gives everything back and looks for what is left; gone: the context takes its memory along. */
void world_fini(struct world *world, bool gone);

/* After a breach: lets go of what the test holds; the pool's own memory is lost. */
void world_abandon(struct world *world);

/* The program's calls, with the checks; results as of the pool's. */
int world_alloc(struct world *world, uint64_t bytes, size_t *index);
int world_free(struct world *world, size_t index); /* the last live block takes its index */
void world_free_garbage(struct world *world);
void world_close(struct world *world);
/* Submits work that uses the live blocks from index on, count of them; held: it waits for
 * world_let_go. */
void world_submit(struct world *world, uint32_t stream, size_t index, size_t count, bool held);
void world_let_go(struct world *world);
bool world_step(struct world *world); /* something finishes; false: nothing can */
void world_capture(struct world *world, bool on);
void world_settle(struct world *world);
void world_trim(struct world *world, uint64_t keep, bool wait);

/* After each step: the books. */
void world_check(struct world *world);

#endif
