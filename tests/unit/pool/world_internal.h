/* What the files of the world share. */
#ifndef VS_TESTS_UNIT_POOL_WORLD_INTERNAL_H
#define VS_TESTS_UNIT_POOL_WORLD_INTERNAL_H

#include "tests/unit/pool/world.h"

#include <uthash.h>

#define WORLD_CELL 512u
#define WORLD_CELLS ((uint32_t)(VS_POOL_PAGE / WORLD_CELL))

enum world_owner { WORLD_OWNED = 1, WORLD_ASIDE = 2 /* freed in the capture that runs */ };

/* What a cell's owners before left behind; one record for all cells that have the same. */
struct world_past {
    struct {
        struct world_clock uses;
        struct world_clock justified; /* what the last free may be made to wait for */
    } key;
    uint32_t number;
    UT_hash_handle hh;
};

/* A page of memory. */
struct world_page {
    uint64_t number;            /* of the handle and its page; native: address / VS_POOL_PAGE */
    uint32_t used;              /* cells with an owner */
    uint32_t past[WORLD_CELLS]; /* numbers; 0: nothing that matters */
    uint8_t owner[WORLD_CELLS];
    UT_hash_handle hh;
};

/* A page of addresses. */
struct world_window {
    uint64_t number; /* address / VS_POOL_PAGE */
    uint32_t used;   /* cells in blocks that lie here, those freed in the running capture too */
    uint32_t aside;  /* the latter */
    struct world_clock uses;
    UT_hash_handle hh;
};

/* world_memory.c */
/* NULL: nothing was ever here. */
struct world_window *world_window(struct world *world, uint64_t address);
/* Memory that goes: nobody has it, and its last use was seen. */
void world_page_gone(struct world *world, uint64_t number);
#define WORLD_PAGE_OF(handle, index) ((uint64_t)(handle) << 32 | (uint64_t)(index))
/* A block's memory gets an owner, to whom allowed is known to be over (*justified: what its last
 * frees may have waited for, all together); or is freed, which may wait for what is justified. */
void world_own(struct world *world, const struct world_block *block,
               const struct world_clock *allowed, struct world_clock *justified);
void world_disown(struct world *world, const struct world_block *block, bool aside,
                  const struct world_clock *justified);
void world_capture_ended(struct world *world);
void world_memory_fini(struct world *world);

/* world_time.c */
void world_join(struct world_clock *clock, const struct world_clock *other);
/* The first stream in which a clock says more than two others; WORLD_COLUMNS: none. Either may be
 * NULL. */
uint32_t world_beyond(const struct world_clock *clock, const struct world_clock *one,
                      const struct world_clock *other);
/* What an event recorded now covers; on a stream, or (WORLD_PLAIN) of the context. */
struct world_clock world_before(const struct world *world, uint32_t stream);
bool world_is_done(const struct world *world, const struct world_clock *clock);
/* Steps until it is; false: it can't be. */
bool world_finish(struct world *world, const struct world_clock *clock);
/* Something comes to a stream: what it freed and has no fence for can't get an exact one. */
void world_moves(struct world *world, uint32_t stream);
/* A submission that uses these blocks. */
void world_work(struct world *world, uint32_t stream, struct world_block *const *blocks,
                size_t count, bool held);
/* May this call fail now? 0, -ENOMEM where the device may say so, or -EIO. */
int world_mishap(struct world *world, bool memory);

int world_record(void *data, uint32_t fence);
int world_order(void *data, uint32_t fence);
int world_query(void *data, uint32_t fence);
int world_wait(void *data, uint32_t fence);
int world_stream_record(void *data, uint32_t stream, uint32_t fence);
int world_stream_order(void *data, uint32_t waiter, uint32_t stream, uint32_t fence);
int world_stream_query(void *data, uint32_t stream, uint32_t fence);
int world_stream_wait(void *data, uint32_t stream, uint32_t fence, bool patient);

/* world_streams.c */
/* May work of a stream use a block? */
bool world_may_use(const struct world *world, const struct world_block *block, uint32_t stream);
/* The program lets a stream (WORLD_PLAIN: the context) come after all uses of a block and after
 * its allocation. False: it can't now. */
bool world_come_after(struct world *world, struct world_block *block, uint32_t stream);
/* The frees on a stream get their fence, as before its next submission. */
void world_stream_close(struct world *world, uint32_t stream);

__attribute__((format(printf, 2, 3))) void world_broke(struct world *world, const char *format,
                                                       ...);

extern const struct vs_pool_ops world_ops;

#endif
