/* What world.c and world_device.c share. */
#ifndef VS_TESTS_UNIT_POOL_WORLD_INTERNAL_H
#define VS_TESTS_UNIT_POOL_WORLD_INTERNAL_H

#include "tests/unit/pool/world.h"

#include <uthash.h>

#define WORLD_CELL 512u
#define WORLD_CELLS ((uint32_t)(VS_POOL_PAGE / WORLD_CELL))

enum world_owner { WORLD_OWNED = 1, WORLD_ASIDE = 2 /* freed in the capture that runs */ };

struct world_page {
    uint64_t number; /* address / VS_POOL_PAGE */
    uint32_t used;   /* cells with an owner */
    uint32_t last_use[WORLD_CELLS];
    uint8_t owner[WORLD_CELLS];
    UT_hash_handle hh;
};

struct world_page *world_page(struct world *world, uint64_t address, bool make);

__attribute__((format(printf, 2, 3))) void world_broke(struct world *world, const char *format,
                                                       ...);

extern const struct vs_pool_ops world_ops;

#endif
