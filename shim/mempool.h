/*
 * The program's memory pools: which of them the arenas stand in for, and what they are told.
 *
 * Stood in for: each device's default pool, and those that the program made of pinned memory of a
 * device, with no handle types, size or other wishes. Not: pools of other processes, and those that
 * another device or the host was given access to; the driver serves these. One that is given access
 * later is the driver's from then on, and so is what it serves.
 *
 * The driver's pools stay what they were and keep their settings; the arenas' part is added to
 * their figures. What an arena holds free belongs to its device's current pool.
 *
 * Numbers are 1 … 255, one byte in the ledger's books, and last as long as memory is out.
 *
 * Any thread, with no lock held. Where the process is not armed, or there is no memory for the
 * table, no pool has a number and nothing is done.
 */
#ifndef VS_SHIM_MEMPOOL_H
#define VS_SHIM_MEMPOOL_H

#include "shim/guard.h"

/* The number of the pool from which memory of this device is asked: the one that the program named,
 * or (NULL) the device's current one. 0: the driver serves. */
unsigned vs_mempool_serving(const struct vs_guard *guard, const CUmemoryPool *handle,
                            CUdevice device);

/* Memory of this many bytes, as asked, was taken from a pool, and is free again. number 0: of none.
 */
void vs_mempool_took(unsigned number, uint64_t bytes);
void vs_mempool_gave(unsigned number, uint64_t bytes);
/* All that was out on a device is gone with its primary context. */
void vs_mempool_device_gone(CUdevice device);

/* Its handle, also after its end while memory of it is out; NULL: number is 0. */
CUmemoryPool vs_mempool_handle(unsigned number);

/* A device's arena serves memory in the order of streams now: release thresholds hold for it. */
void vs_mempool_keep(CUdevice device);

/* Hooks: what the driver said yes to. */
void vs_mempool_created(const struct vs_guard *guard, CUmemoryPool handle,
                        const CUmemPoolProps *props);
void vs_mempool_current(const struct vs_guard *guard, CUdevice device, CUmemoryPool handle);

/* Around the end of a pool: its number, and whether the driver agreed. */
unsigned vs_mempool_goes(const struct vs_guard *guard, CUmemoryPool handle);
void vs_mempool_gone(unsigned number, bool gone);

/* Access to a pool was set: if others than its device have it, the driver serves it from now on.
 * What it has out so far is made accessible, where that can be done: else the error. */
CUresult vs_mempool_shared(const struct vs_guard *guard, CUmemoryPool handle,
                           const CUmemAccessDesc *access, size_t count);

/* Adds the arenas' part to what the driver said of an attribute. */
void vs_mempool_add(const struct vs_guard *guard, CUmemoryPool handle, CUmemPool_attribute name,
                    void *value);
/* An attribute was set. */
void vs_mempool_set(const struct vs_guard *guard, CUmemoryPool handle, CUmemPool_attribute name,
                    const void *value);
/* A pool was trimmed to so many bytes. */
void vs_mempool_trimmed(const struct vs_guard *guard, CUmemoryPool handle, size_t keep);

#endif
