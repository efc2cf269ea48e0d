/*
 * Memory between processes, where it is a pool's (see ipc.h).
 *
 * Both tables hang on the process's page, and are walked from end to end: programs share few
 * allocations, and where none is shared nobody walks. Lock: ipc->lock, a leaf.
 */
#include "shim/ipc.h"

#include "report/lock.h"
#include "report/sys.h"
#include "shim/process.h"

#include <string.h>

enum { PLACES = 4096, TAIL = 8, HEAD = CU_IPC_HANDLE_SIZE - TAIL };

struct opened {
    CUdeviceptr address; /* 0 = free */
    CUdeviceptr base;
    uint64_t bytes;
    uint32_t times;
};

struct vs_ipc {
    struct vs_lock lock;
    _Atomic uint32_t exported_count; /* not freed since, as far as known */
    uint32_t opened_count;
    struct opened opened[PLACES];
    CUdeviceptr exported[PLACES]; /* 0 = free */
};

/* NULL: there is none yet, or (make) no memory for one. */
static struct vs_ipc *ipc_of_process(bool make)
{
    struct vs_process_page *page = vs_process_page();
    struct vs_ipc *ipc = atomic_load_explicit(&page->ipc, memory_order_acquire), *none = NULL;

    if (ipc != NULL || !make || vs_process_state() == VS_PROCESS_UNARMED) {
        return ipc;
    }
    ipc = vs_sys_map(sizeof(*ipc));
    if (ipc != NULL && !atomic_compare_exchange_strong(&page->ipc, &none, ipc)) {
        vs_sys_unmap(ipc, sizeof(*ipc));
        ipc = none;
    }
    return ipc;
}

/* ---- handles --------------------------------------------------------------------------------- */

/* The tail of a driver's handle is zero. Ours: 16 bits of mark, 24 of distance in units of 512
 * bytes, 24 of size. */
#define MARK UINT64_C(0x5653)
#define FIELD UINT64_C(0xffffff)
#define UNIT UINT64_C(512)

static void flip(CUipcMemHandle *handle)
{
    for (unsigned i = 0; i < HEAD; i++) {
        handle->reserved[i] = (char)(handle->reserved[i] ^ (char)(0xa5 ^ i));
    }
}

bool vs_ipc_scramble(CUipcMemHandle *handle, uint64_t distance, uint64_t bytes)
{
    uint64_t tail;

    memcpy(&tail, handle->reserved + HEAD, TAIL);
    if (tail != 0 || distance % UNIT != 0 || distance / UNIT > FIELD || bytes > FIELD) {
        return false;
    }
    tail = MARK << 48 | distance / UNIT << 24 | bytes;
    memcpy(handle->reserved + HEAD, &tail, TAIL);
    flip(handle);
    return true;
}

bool vs_ipc_unscramble(CUipcMemHandle *handle, uint64_t *distance, uint64_t *bytes)
{
    uint64_t tail;

    memcpy(&tail, handle->reserved + HEAD, TAIL);
    if (tail >> 48 != MARK) {
        return false;
    }
    *distance = (tail >> 24 & FIELD) * UNIT;
    *bytes = tail & FIELD;
    memset(handle->reserved + HEAD, 0, TAIL);
    flip(handle);
    return true;
}

/* ---- what was opened ------------------------------------------------------------------------- */

bool vs_ipc_opened(CUdeviceptr address, CUdeviceptr base, uint64_t bytes)
{
    struct vs_ipc *ipc = ipc_of_process(true);
    struct opened *room = NULL;

    if (ipc == NULL) {
        return false;
    }
    vs_lock_take(&ipc->lock);
    for (unsigned i = 0; i < PLACES; i++) {
        struct opened *one = &ipc->opened[i];

        if (one->address == address) {
            one->times++;
            vs_lock_drop(&ipc->lock);
            return true;
        }
        if (room == NULL && one->address == 0) {
            room = one;
        }
    }
    if (room != NULL) {
        *room = (struct opened){address, base, bytes, 1};
        ipc->opened_count++;
    }
    vs_lock_drop(&ipc->lock);
    return room != NULL;
}

CUdeviceptr vs_ipc_closes(CUdeviceptr address, uint64_t *bytes)
{
    struct vs_ipc *ipc = ipc_of_process(false);
    CUdeviceptr base = 0;

    if (ipc == NULL || address == 0) {
        return 0;
    }
    vs_lock_take(&ipc->lock);
    for (unsigned i = 0; ipc->opened_count > 0 && i < PLACES; i++) {
        struct opened *one = &ipc->opened[i];

        if (one->address == address) {
            base = one->base;
            *bytes = one->bytes;
            if (--one->times == 0) {
                one->address = 0;
                ipc->opened_count--;
            }
            break;
        }
    }
    vs_lock_drop(&ipc->lock);
    return base;
}

bool vs_ipc_is_base(CUdeviceptr address)
{
    struct vs_ipc *ipc = ipc_of_process(false);
    bool found = false;

    if (ipc == NULL) {
        return false;
    }
    vs_lock_take(&ipc->lock);
    for (unsigned i = 0; ipc->opened_count > 0 && !found && i < PLACES; i++) {
        found = ipc->opened[i].address != 0 && ipc->opened[i].base == address;
    }
    vs_lock_drop(&ipc->lock);
    return found;
}

bool vs_ipc_find(CUdeviceptr address, CUdeviceptr *start, uint64_t *bytes)
{
    struct vs_ipc *ipc = ipc_of_process(false);
    bool found = false;

    if (ipc == NULL) {
        return false;
    }
    vs_lock_take(&ipc->lock);
    for (unsigned i = 0; ipc->opened_count > 0 && !found && i < PLACES; i++) {
        const struct opened *one = &ipc->opened[i];

        found = one->address != 0 && address - one->address < one->bytes;
        if (found) {
            *start = one->address;
            *bytes = one->bytes;
        }
    }
    vs_lock_drop(&ipc->lock);
    return found;
}

/* ---- what was exported ----------------------------------------------------------------------- */

void vs_ipc_exported(CUdeviceptr address)
{
    struct vs_ipc *ipc = ipc_of_process(true);
    CUdeviceptr *room = NULL;

    if (ipc == NULL) {
        return;
    }
    vs_lock_take(&ipc->lock);
    for (unsigned i = 0; i < PLACES; i++) {
        if (ipc->exported[i] == address) {
            room = NULL;
            break;
        }
        if (room == NULL && ipc->exported[i] == 0) {
            room = &ipc->exported[i];
        }
    }
    if (room != NULL) {
        *room = address;
        atomic_fetch_add_explicit(&ipc->exported_count, 1, memory_order_relaxed);
    }
    vs_lock_drop(&ipc->lock);
}

bool vs_ipc_any_exported(void)
{
    struct vs_ipc *ipc = atomic_load_explicit(&vs_process_page()->ipc, memory_order_acquire);

    return ipc != NULL && atomic_load_explicit(&ipc->exported_count, memory_order_relaxed) != 0;
}

void vs_ipc_trim(struct vs_arena *arena, CUdeviceptr address)
{
    struct vs_ipc *ipc = ipc_of_process(false);
    bool was = false;

    if (ipc == NULL) {
        return;
    }
    vs_lock_take(&ipc->lock);
    for (unsigned i = 0; !was && i < PLACES; i++) {
        if (ipc->exported[i] == address) {
            ipc->exported[i] = 0;
            atomic_fetch_sub_explicit(&ipc->exported_count, 1, memory_order_relaxed);
            was = true;
        }
    }
    vs_lock_drop(&ipc->lock);
    if (was) {
        vs_fence_close_all(); /* what was freed just now can only go once it has its fence */
        vs_pool_trim(vs_arena_pool(arena), 0, true);
    }
}
