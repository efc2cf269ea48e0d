/*
 * What the files about sharing between processes have in common (ipc.c).
 *
 * Shared bytes lie in a memfd. Behind them, on a page of its own, lies a note that says what it is,
 * so that a descriptor that reaches another process, by whatever way, can be told from any other.
 * IPC handles, which are plain bytes, name the exporter and its descriptor: the other process opens
 * /proc/PID/fd/N and compares the inode. So a handle works as long as the exporter lives and has
 * not freed the memory (as the real one does), and nobody has to serve anything.
 */
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "sim.h"

enum sim_ipc_kind { SIM_IPC_MEMORY = 1, SIM_IPC_VMM, SIM_IPC_POOL, SIM_IPC_POINTER, SIM_IPC_EVENT };

struct sim_ipc_note {
    uint64_t magic; /* also of the kind */
    uint64_t size;  /* of the bytes before the note */
    int32_t unit;   /* whose memory it is */
    int32_t pid;    /* whose it is */
    uint64_t id;    /* of the pool in its process */
};
/* 64 bytes, as CUipcMemHandle, CUipcEventHandle and CUmemPoolPtrExportData have. */
struct sim_ipc_handle {
    struct sim_ipc_note note;
    uint64_t inode;
    uint64_t check;
    int32_t fd;
    uint32_t reserved[3];
};
_Static_assert(sizeof(struct sim_ipc_handle) == 64, "fits the driver's handles");

/* Appends the note to the file; false: cannot. */
bool sim_ipc_seal(int fd, enum sim_ipc_kind kind, struct sim_ipc_note *note);
/* The note of a descriptor. 0; -EBADF: no descriptor; -EINVAL: something else than this kind. */
int sim_ipc_read(int fd, enum sim_ipc_kind kind, struct sim_ipc_note *note);
bool sim_ipc_handle_make(int fd, enum sim_ipc_kind kind, const struct sim_ipc_note *note,
                         struct sim_ipc_handle *out);
bool sim_ipc_handle_good(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind);
/* Opens what it names in the other process. >= 0: a descriptor; -ESRCH: that process is gone;
 * -ENOENT: it has it no more. */
int sim_ipc_handle_open(const struct sim_ipc_handle *handle, enum sim_ipc_kind kind);
bool sim_ipc_process_lives(int pid);

/* With sim_lock. The memory as a sealed memfd (owned by phys), once no op runs on it: the lock is
 * dropped meanwhile, so the caller looks its range up again (by id). 0, -EAGAIN: lock was dropped,
 * look again; -ENOMEM. */
int sim_ipc_share_memory(struct sim_phys *phys, enum sim_ipc_kind kind, struct sim_ipc_note *note);
struct sim_phys *sim_ipc_adopt(int fd, int unit, size_t size); /* takes the descriptor over */
struct sim_device *sim_ipc_device(int unit);                   /* visible here, or NULL */

/* What this process has opened of others, so that the same is opened once. With sim_lock. */
struct sim_import {
    CUdeviceptr base;
    unsigned long long id; /* of the range */
    int pid;
    uint64_t inode;
    unsigned opens;
    struct sim_import *next;
};
struct sim_import *sim_import_find(const struct sim_ipc_handle *handle); /* alive, or NULL */
struct sim_import *sim_import_at(CUdeviceptr base);
struct sim_import *sim_import_add(const struct sim_ipc_handle *handle, struct sim_range *range);
void sim_import_drop(struct sim_import *import);

#endif
