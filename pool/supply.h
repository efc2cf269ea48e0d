/*
 * Handles for the vmm backing: where they come from and where they go.
 */
#ifndef VS_POOL_SUPPLY_H
#define VS_POOL_SUPPLY_H

#include "pool/internal.h"

/* Handles of one page in the hands of a thread, linked through next. */
struct vs_stock {
    uint32_t list;
    uint64_t pages;
};

/* Puts memory behind every page of a BUSY block of ours that has none, for a block of `units` at
 * its start. Takes new memory while reserved stays within limit, moves free pages for the rest, and
 * goes beyond the limit where there is nothing to move. 0, -ENOMEM, -EAGAIN (a wait would help) or
 * an error; then what is mapped so far stays mapped, and after -ENOMEM *surplus is set to the bytes
 * that were taken for nothing. No lock is held. */
int vs_supply_window(struct vs_pool *pool, uint32_t busy, unsigned zone, uint32_t units,
                     uint64_t limit, uint64_t *surplus);

/* The lock is held. A BUSY block falls apart into FREE and HOLE, as its pages are. */
void vs_vmm_unbusy(struct vs_pool *pool, uint32_t number);

/* New memory as one handle, counted in reserved. 0 and its number, or an error. No lock is held. */
int vs_supply_create(struct vs_pool *pool, uint32_t pages, uint32_t *number);
/* Gives one back that is mapped nowhere. No lock is held. */
void vs_supply_release(struct vs_pool *pool, uint32_t number);
/* Maps one at an address whose pages are ours, and enters it in their records; access is not yet
 * set. */
int vs_supply_map(struct vs_pool *pool, uint32_t number, uint64_t address, unsigned zone);
/* Makes a stretch accessible that was just mapped. Where that fails it is unmapped again, or it
 * would pass for usable memory: its handles go to the stock. What can't even be unmapped is dead.
 * No lock is held. */
int vs_supply_open(struct vs_pool *pool, uint64_t address, uint64_t bytes, struct vs_stock *stock);
/* Gives the spares back. */
void vs_supply_end(struct vs_pool *pool);
/* What is left goes to the pool's spares. No lock is held. */
void vs_supply_put_back(struct vs_pool *pool, struct vs_stock *stock);

#endif
