/* A memory pool, for pool.c and for what of it crosses processes (ipc_shareable.c). */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "sim.h"

struct sim_pool {
    uint32_t magic;
    struct sim_device *device;
    CUmemPoolProps props;
    size_t used, used_high, reserved, reserved_high, threshold;
    int reuse[3];
    unsigned access[SIM_MAX_DEVICES];
    unsigned live;    /* allocations not yet freed */
    unsigned freeing; /* frees submitted and not done */
    bool destroyed;
    /* Another process's: gives out imported pointers only, and has no attributes. */
    bool imported;
    int exporter;                /* whose it is */
    unsigned long long share_id; /* its number there, 0: never exported */
    struct sim_pool *next;
};

/* With sim_lock. */
struct sim_pool *sim_pool_of(CUmemoryPool handle); /* NULL: no pool, or destroyed */
struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *props);

#endif
