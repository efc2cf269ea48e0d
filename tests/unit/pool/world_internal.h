/* What world.c and world_device.c share. */
#ifndef VS_TESTS_UNIT_POOL_WORLD_INTERNAL_H
#define VS_TESTS_UNIT_POOL_WORLD_INTERNAL_H

#include "tests/unit/pool/world.h"

#include <uthash.h>

#define WORLD_CELL 512u
#define WORLD_CELLS ((uint32_t)(VS_POOL_PAGE / WORLD_CELL))

enum world_owner { WORLD_OWNED = 1, WORLD_ASIDE = 2 /* freed in the capture that runs */ };

/* A page of memory. */
struct world_page {
    uint64_t number; /* of the handle and its page; native: address / VS_POOL_PAGE */
    uint32_t used;   /* cells with an owner */
    uint32_t last_use[WORLD_CELLS];
    uint8_t owner[WORLD_CELLS];
    UT_hash_handle hh;
};

/* A page of addresses. */
struct world_window {
    uint64_t number; /* address / VS_POOL_PAGE */
    uint32_t used;   /* cells in blocks that lie here, those freed in the running capture too */
    uint32_t aside;  /* the latter */
    uint32_t last_use;
    UT_hash_handle hh;
};

/* The memory behind an address; NULL: none. */
struct world_page *world_page(struct world *world, uint64_t address);
/* NULL: nothing was ever here. */
struct world_window *world_window(struct world *world, uint64_t address);
/* Memory that goes: nobody has it, and its last use was seen. */
void world_page_gone(struct world *world, uint64_t number);
#define WORLD_PAGE_OF(handle, index) ((uint64_t)(handle) << 32 | (uint64_t)(index))

/* A block's memory gets an owner, or 0; a submission uses it. */
void world_own(struct world *world, const struct world_block *block, uint32_t owner);
void world_use(struct world *world, const struct world_block *block);

__attribute__((format(printf, 2, 3))) void world_broke(struct world *world, const char *format,
                                                       ...);

extern const struct vs_pool_ops world_ops;

#endif
