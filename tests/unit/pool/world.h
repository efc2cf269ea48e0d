/*
 * A world for the pool in which time is explicit, and which knows what must not happen.
 *
 * Submissions are numbered from 1, over all streams. What comes before what is kept in clocks: for
 * each stream, up to which of its submissions. An event on a stream covers what was submitted to
 * it, and what that waits for; a fence of the context covers all its streams; order() and the
 * program's own waits put that before later work. The device finishes submissions in any order that
 * these allow; the source of choices picks it. Every 512 bytes of memory know who owns them and
 * what used them last: of memory, not of addresses, for a handle may be mapped at several. What
 * went through an address is kept beside that, for its unmapping. A free is a use: of all that was
 * submitted before it, on its stream, or (plain) on all of the context.
 *
 * The program keeps the rules: work on another stream than a block was allocated on comes after
 * that, a stream-ordered free comes after all uses. It makes the dependencies that this needs.
 *
 * Checked, always, and the first breach kept as a phrase:
 *   - the driver's rules of mapping (report/cli/replay_device.h);
 *   - blocks are aligned, mapped, found again, and share no memory with a live one;
 *   - memory handed out to a stream was last used by what is ordered before that stream's later
 *     work, or that the host has seen finish; to anybody (plain): before all later work of the
 *     context; inside a capture: only the latter;
 *   - a fence covers no submission that came after a free of its epoch, and no stream or host is
 *     made to wait for a stream's fence that covers more than its last free did (rule 1); nobody
 *     waits for what can only finish later (a deadlock);
 *   - addresses are unmapped when no live block lies there and all that went through them was seen
 *     finished, and memory is released when that holds for all of its addresses (rule 2);
 *   - no context event is recorded or waited for as if it had been while a capture runs, nor one on
 *     the stream that captures (rule 4);
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

#define WORLD_STREAMS 8  /* of the program, at once */
#define WORLD_COLUMNS 12 /* with those that were destroyed and whose work the host has not seen */
#define WORLD_AHEAD 48   /* submissions that are not finished, at most */
#define WORLD_EVENTS 6   /* of the program */
#define WORLD_FOREIGN UINT64_C(0x7f00dead0000)
#define WORLD_PLAIN UINT32_MAX /* instead of a stream */

/* For each stream the last of its submissions that is meant; 0: none. */
struct world_clock {
    uint32_t of[WORLD_COLUMNS];
};

struct world_block {
    uint64_t start, asked, occupied;
    struct world_clock uses;
    /* The moments since which work of a stream may use it; 0: it may not. Anybody: all of the
     * context's may. */
    uint32_t since[WORLD_COLUMNS];
    bool anybody;
};

struct world_fence {
    struct world_clock covers;
    struct world_clock justified; /* what the last free before it may be made to wait for */
};

struct world_stream {
    bool alive;
    bool foreign;              /* of another context: it frees here, and does not allocate */
    uint32_t number;           /* as the pool knows it; 0: it doesn't */
    uint32_t last, done;       /* its submissions: the last, and up to which they are finished */
    struct world_clock before; /* what an event recorded now covers */
    struct world_clock freed;  /* what its last free may be made to wait for */
    bool open;                 /* it has frees that no fence was recorded for */
    bool late;                 /* and some that none can be exact for any more: */
    struct world_clock late_until; /* until the host has seen this */
};

struct world_event {
    bool recorded;
    uint32_t stream, number, moment; /* number: as the pool knew the stream then */
    uint64_t mark;
    struct world_clock covers;
};

struct world_page;
struct world_window;
struct world_past;

struct world {
    struct vs_replay_device base; /* first: it is the world of its own ops as well */
    struct vs_pool *pool;
    struct vs_pool_config config;
    struct choices *choices;
    char breach[256]; /* empty: none */

    /* Time. */
    uint32_t submitted, finished;     /* all up to finished are */
    uint32_t moment;                  /* grows with allocations and events */
    struct world_clock barrier, seen; /* what later work waits for; what the host knows of */
    struct {
        uint32_t number, stream;
        struct world_clock need;
        bool done, held;
    } ahead[WORLD_AHEAD]; /* those behind finished, by number */
    struct world_fence recorded[VS_POOL_FENCES];
    uint32_t streams; /* at the beginning: columns 0 … streams - 1 */
    struct world_stream stream[WORLD_COLUMNS];
    uint32_t column[VS_POOL_STREAMS + 1]; /* of each number of the pool's; WORLD_PLAIN: none */
    struct world_fence stream_recorded[VS_POOL_STREAMS + 1][VS_POOL_STREAM_FENCES];
    struct world_event event[WORLD_EVENTS];
    struct {
        uint32_t records, orders, queries, waits;
    } asked, stream_asked; /* of the device, that worked */
    bool frozen;           /* nothing finishes but where the host waits, or the test says so */
    bool capturing, cannot_order, ended;
    uint32_t captured;          /* the stream that captures */
    uint32_t held;              /* submissions that wait for the program */
    bool held_frees;            /* and after which it frees: there those may be waited for */
    uint32_t waited, waited_on; /* one that the host waited for in this call, or 0; its stream */
    bool aside; /* something was freed in a capture, and no fence was recorded since */
    bool late;  /* the running capture began with an epoch that could not be closed */
    bool open_free;
    uint32_t open_free_at, submitted_here; /* the context's last submission: when the first free was
                                            * made that has no fence yet, and now */
    struct world_clock freed_uses;         /* last uses of anything that was freed plainly */

    /* Memory. */
    struct world_page *pages;     /* of memory */
    struct world_window *windows; /* of addresses */
    struct world_past **past, *pasts;
    uint32_t past_count, past_room;
    uint64_t pages_live; /* that hold a live block, or one freed in the running capture */
    struct world_block *live;
    size_t live_count, live_room;
    uint64_t occupied_bytes;
    bool uncapped;    /* the pool is told of no cap: the device is what is full */
    uint64_t excused; /* refusals for want of memory whose fence can't be exact */

    /* Failures put in. */
    uint32_t fail_permille; /* calls of the device */
    uint32_t host_permille; /* host memory: what the pool cannot note down may stay unused */
    uint64_t failures;
    bool lost;      /* a stream of another context ended without a fence: what it freed stays so */
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
/* Submits work that uses the live blocks from index on, count of them, where it may; held: it waits
 * for world_let_go. */
void world_submit(struct world *world, uint32_t stream, size_t index, size_t count, bool held);
void world_let_go(struct world *world);
bool world_step(struct world *world); /* something finishes; false: nothing can */
void world_capture(struct world *world, bool on);
void world_settle(struct world *world);
void world_trim(struct world *world, uint64_t keep, bool wait);

/* Streams, by column (world_streams.c). */
/* A stream that is alive and does not capture; WORLD_PLAIN: none. */
uint32_t world_some_stream(struct world *world, bool foreign);
/* A new one, known to the pool or not; WORLD_PLAIN: there are too many. */
uint32_t world_stream_begin(struct world *world, bool foreign, bool numbered);
/* Makes one known, as its first stream-ordered call does; false: there are too many. */
bool world_stream_number(struct world *world, uint32_t stream);
void world_stream_end(struct world *world, uint32_t stream); /* its work goes on */
int world_alloc_on(struct world *world, uint32_t stream, uint64_t bytes, size_t *index);
/* Positive: the program cannot free it there now. */
int world_free_on(struct world *world, size_t index, uint32_t stream);
/* An event is recorded; a stream waits for it; the host does, or asks (query). told: the pool gets
 * to know. */
void world_event_record(struct world *world, uint32_t event, uint32_t stream);
void world_event_wait(struct world *world, uint32_t event, uint32_t waiter, bool told);
void world_event_sync(struct world *world, uint32_t event, bool query, bool told);
/* All three at once: later work of one stream comes after what is on the other. */
void world_depend(struct world *world, uint32_t waiter, uint32_t stream, bool told);
/* The host waits for a stream, or for all of the context's (WORLD_PLAIN). */
void world_sync(struct world *world, uint32_t stream, bool told);
/* Does what is on a stream wait for work that is held? */
bool world_is_held(const struct world *world, uint32_t stream);

/* After each step: the books. */
void world_check(struct world *world);

#endif
