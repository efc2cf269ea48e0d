/*
 * Memory between processes, where it is a pool's.
 *
 * The driver's handle names one of its allocations, and opens that allocation's start. A block that
 * is a whole one has the driver's own handle. A smaller one lies inside: its handle carries where,
 * and is scrambled, so that a process without the shim cannot open it (and get somebody else's
 * memory) but hears INVALID_VALUE. Opening undoes that, and adds the distance.
 *
 * The driver gives the same address for each opening of one allocation and counts; so each address
 * that was opened inside is remembered with its count until it is closed as often.
 */
#ifndef VS_SHIM_IPC_H
#define VS_SHIM_IPC_H

#include "shim/arena.h"

/* Makes the driver's handle of an allocation one of a block in it, that lies distance behind its
 * start and has so many bytes. False where it cannot carry that. */
bool vs_ipc_scramble(CUipcMemHandle *handle, uint64_t distance, uint64_t bytes);

/* Undoes it; false for a handle of the driver's own, which stays as it is. */
bool vs_ipc_unscramble(CUipcMemHandle *handle, uint64_t *distance, uint64_t *bytes);

/* Something was opened at base, and the program got address (the same, with bytes 0, where the
 * handle was the driver's own). False: no memory to remember that. */
bool vs_ipc_opened(CUdeviceptr address, CUdeviceptr base, uint64_t bytes);

/* The base to close for this address; 0: not one of those. It is forgotten once closed as often as
 * opened; vs_ipc_opened undoes that. */
CUdeviceptr vs_ipc_closes(CUdeviceptr address, uint64_t *bytes);

/* Is something open inside what begins there? Then a close of the beginning, which was not opened
 * itself, would close that. */
bool vs_ipc_is_base(CUdeviceptr address);

/* What was opened around an address: its start and size. */
bool vs_ipc_find(CUdeviceptr address, CUdeviceptr *start, uint64_t *bytes);

/* A block was exported. Its memory goes back to the driver when it is freed, so that a later handle
 * of the same place is another one. */
void vs_ipc_exported(CUdeviceptr address);

void vs_ipc_trim(struct vs_arena *arena, CUdeviceptr address);
bool vs_ipc_any_exported(void);

/* A free of pool memory was answered. */
static inline void vs_ipc_freed(struct vs_arena *arena, CUdeviceptr address, CUresult result)
{
    if (__builtin_expect(vs_ipc_any_exported(), 0) && result == CUDA_SUCCESS) {
        vs_ipc_trim(arena, address);
    }
}

#endif
