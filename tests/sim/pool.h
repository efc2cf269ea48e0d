/*
 * A memory pool, for pool.c (what it holds), pool_calls.c and what of it crosses processes
 * (ipc_shareable.c).
 */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "sim.h"

/* A free that was submitted and has not taken effect. */
struct sim_pool_free {
    struct sim_op *op; /* held */
    size_t left;       /* bytes that no allocation has taken over */
    struct sim_pool_free *next;
};

/* What an allocation took over of such frees. */
struct sim_pool_parts {
    struct sim_pool_part {
        struct sim_op *op; /* held; the allocation comes after it */
        size_t bytes;
    } * list;
    unsigned count;
};

struct sim_pool {
    uint32_t magic;
    struct sim_device *device;
    CUmemPoolProps props;
    size_t used, used_high, reserved, reserved_high, threshold;
    int reuse[3];
    unsigned access[SIM_MAX_DEVICES];
    unsigned live;                                /* allocations whose free has not taken effect */
    struct sim_pool_free *pending, **pending_end; /* eldest first */
    bool destroyed;
    /* Another process's: gives out imported pointers only, and has no attributes. */
    bool imported;
    int exporter;                /* whose it is */
    unsigned long long share_id; /* its number there, 0: never exported */
    struct sim_pool *next;
};

/* All with sim_lock. */
struct sim_pool *sim_pool_any(CUmemoryPool handle); /* NULL: no pool */
struct sim_pool *sim_pool_of(CUmemoryPool handle);  /* NULL: no pool, or destroyed */
struct sim_pool *sim_pool_own(CUmemoryPool handle); /* NULL: no pool, or imported */
struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *props);
struct sim_pool *sim_pool_default(struct sim_device *device); /* also makes it the current one */
void sim_pool_shrink(struct sim_pool *pool, size_t keep); /* gives back what is free beyond keep */
void sim_pool_drop(struct sim_pool *pool); /* away with it if it is destroyed and empty */

#endif
