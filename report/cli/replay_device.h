/*
 * A device that is nothing but bookkeeping, for the pool's ops: handles, what is mapped where,
 * whole allocations, and a cap. Used by `vramshim replay`, the benchmarks, and (with time and
 * faults around it) the pool's tests.
 *
 * It knows the driver's rules and keeps the first breach of one as a phrase: a mapping goes only
 * where nothing is and inside a reserved range, unmapping takes whole mappings and leaves no hole
 * unsaid, only mapped memory gets access, what is released is mapped nowhere, nothing is given back
 * twice. A handle may be mapped at any number of addresses. A breach does nothing and returns
 * -EINVAL where it can.
 *
 * Its fences pass at once: no work is ever submitted here.
 *
 * Any number of threads; one lock, held by each function throughout.
 */
#ifndef VS_REPORT_CLI_REPLAY_DEVICE_H
#define VS_REPORT_CLI_REPLAY_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/lock.h"
#include "pool/ops.h"

struct vs_replay_handle {
    uint64_t bytes;    /* 0: no such handle */
    uint32_t mappings; /* at how many addresses it is */
    uint32_t next;     /* among those that are no more */
};

struct vs_replay_page {
    uint32_t handle; /* its number, 0: nothing is mapped */
    uint32_t index;  /* which of its pages */
};

struct vs_replay_range {
    uint64_t address, bytes; /* bytes 0: given back */
    struct vs_replay_page *pages;
    uint8_t *access; /* per page */
};

/* Host memory that one device leaves to the next, touched and zeroed, so that a run which is timed
 * does not pay for the kernel's first touch of what lives as long as a process does. */
struct vs_replay_kept {
    struct {
        void *at;
        size_t bytes;
    } maps[256];
    unsigned count;
};

struct vs_replay_device {
    uint64_t cap;          /* created and taken bytes never go over it */
    uint64_t charged;      /* now */
    uint64_t peak;         /* the most that was charged */
    int64_t reserved;      /* what the pool says that it holds */
    uint64_t mapped_bytes; /* of addresses */
    uint64_t host_bytes;
    uint64_t reserves, creates, releases, maps, unmaps, takes, gives,
        records;        /* calls that worked */
    const char *breach; /* the first rule that was broken; NULL: none */
    struct vs_pool_lock lock;
    struct vs_replay_kept *kept; /* NULL, or where host memory comes from and goes to */
    uint64_t next_address;
    struct vs_replay_handle *handles; /* by number; [0] is none */
    uint32_t handle_count, handle_room, handle_free;
    struct vs_replay_range *ranges;
    uint32_t range_count, range_room;
    struct vs_replay_whole {
        uint64_t address, bytes;
    } * wholes; /* taken, in order of address */
    uint32_t whole_count, whole_room;
    uint32_t whole_dense; /* so many from the first address on have no room between them */
};

void vs_replay_device_init(struct vs_replay_device *device, uint64_t cap);
void vs_replay_device_fini(struct vs_replay_device *device);

/* The ops, with the device as their world. */
extern const struct vs_pool_ops vs_replay_device_ops;

/* Is every byte of this memory mapped and accessible, or in one whole allocation? */
bool vs_replay_device_usable(struct vs_replay_device *device, uint64_t address, uint64_t bytes);

/* Which memory lies behind an address: the number of a handle and the offset in it, or 0 and the
 * address itself in a whole allocation. False: none. */
bool vs_replay_device_behind(struct vs_replay_device *device, uint64_t address, uint64_t *handle,
                             uint64_t *offset);

/* NULL, or what is still held though everything should have been given back. */
const char *vs_replay_device_leak(const struct vs_replay_device *device);

#endif
