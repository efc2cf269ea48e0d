/*
 * Doing the work of an op: reaching memory, copies, fills, values, host functions. Runs on workers,
 * without the lock; takes it to resolve addresses, which is also where every access is checked.
 *
 * Flags. Values written by cuStreamWriteValue, by a kernel that sets a flag, or by any write of at
 * most 8 bytes carry the writer's clock (release); whoever waits for a value at that address
 * acquires it, and what the host knows, since the host may have set it. Flag accesses themselves
 * are atomic and no races.
 */
#include "sim.h"

#include <stdlib.h>
#include <time.h>

/* ---- access -----------------------------------------------------------------------------------
 */
static struct sim_piece *add_piece(struct sim_pieces *pieces)
{
    if (pieces->count == pieces->room) {
        pieces->room = pieces->room == 0 ? 4 : 2 * pieces->room;
        pieces->list = realloc(pieces->list, pieces->room * sizeof *pieces->list);
        if (pieces->list == NULL)
            abort();
    }
    return &pieces->list[pieces->count++];
}

static struct sim_pieces *held; /* all that ops hold now */

static void release_locked(struct sim_pieces *pieces)
{
    for (struct sim_pieces **at = &held; *at != NULL; at = &(*at)->next) {
        if (*at == pieces) {
            *at = pieces->next;
            break;
        }
    }
    for (unsigned i = 0; i < pieces->count; i++)
        sim_phys_unref(pieces->list[i].phys);
    free(pieces->list);
    *pieces = (struct sim_pieces){0};
}

void sim_pieces_release(struct sim_pieces *pieces)
{
    sim_lock();
    release_locked(pieces);
    sim_unlock();
}

void sim_pieces_gone(CUdeviceptr address, size_t size)
{
    for (const struct sim_pieces *pieces = held; pieces != NULL; pieces = pieces->next) {
        if (pieces->address >= address + size || address >= pieces->address + pieces->size)
            continue;
        sim_race_bad_address(pieces->op, pieces->address, pieces->size, pieces->write,
                             pieces->what);
        sim_exec_fault(pieces->op, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

static bool allowed(const struct sim_range *range, const struct sim_op *op, int by, bool write)
{
    return !(range->kind == SIM_GRAPH && range->absent) && sim_peer_allowed(range, op, by, write);
}

static bool resolve(struct sim_op *op, int by, CUdeviceptr address, size_t size, bool write,
                    bool host_ok, const char *what, struct sim_pieces *pieces)
{
    CUdeviceptr at = address, end = address + size;
    while (at < end) {
        struct sim_range *range = sim_range_at(at);
        if (range == NULL && host_ok && !sim_va_device(at)) {
            const struct sim_range *next = sim_tree_next(&sim_va, at);
            size_t length = next != NULL && next->base < end ? next->base - at : end - at;
            *add_piece(pieces) = (struct sim_piece){NULL, (unsigned char *)(uintptr_t)at, length};
            at += length;
            continue;
        }
        if (range == NULL || !allowed(range, op, by, write))
            return false;
        size_t inside = at - range->base;
        size_t length = range->size - inside < end - at ? range->size - inside : end - at;
        unsigned char *bytes = sim_phys_bytes(range->phys);
        if (bytes == NULL)
            return false;
        range->phys->home = range->base - range->offset;
        if (what != NULL)
            sim_race_access(range->phys, range->offset + inside, length, write, op, what);
        if (what != NULL && range->kind == SIM_MAPPED)
            sim_race_through(range, inside, length, write, op, what);
        *add_piece(pieces) =
            (struct sim_piece){sim_phys_ref(range->phys), bytes + range->offset + inside, length};
        at += length;
    }
    return true;
}

static bool access_by(struct sim_op *op, int by, CUdeviceptr address, size_t size, bool write,
                      bool host_ok, const char *what, struct sim_pieces *pieces)
{
    *pieces = (struct sim_pieces){0};
    sim_lock();
    bool good = resolve(op, by, address, size, write, host_ok, what, pieces);
    if (!good) {
        release_locked(pieces);
        sim_race_bad_address(op, address, size, write, what != NULL ? what : op->work.what);
        sim_exec_fault(op, CUDA_ERROR_ILLEGAL_ADDRESS);
    } else {
        pieces->op = op;
        pieces->address = address;
        pieces->size = size;
        pieces->write = write;
        pieces->what = what != NULL ? what : op->work.what;
        pieces->next = held;
        held = pieces;
    }
    sim_unlock();
    return good;
}

bool sim_access(struct sim_op *op, CUdeviceptr address, size_t size, bool write, bool host_ok,
                const char *what, struct sim_pieces *pieces)
{
    return access_by(op, -1, address, size, write, host_ok, what, pieces);
}

/* ---- flags ------------------------------------------------------------------------------------
 */
static struct flag {
    CUdeviceptr address;
    struct sim_clock *clock;
} flags[1024];

static struct flag *flag_at(CUdeviceptr address)
{
    return &flags[(address >> 2) % (sizeof flags / sizeof flags[0])];
}

void sim_flag_release(struct sim_op *op, CUdeviceptr address)
{
    sim_lock();
    struct flag *flag = flag_at(address);
    if (flag->address != address) {
        sim_clock_unref(flag->clock);
        *flag = (struct flag){.address = address};
    }
    sim_clock_join(&flag->clock, op->clock);
    /* A flag in host memory tells the host. */
    if (!sim_va_device(address))
        sim_host_learns(op->clock);
    sim_unlock();
}

static bool reached(uint64_t now, uint64_t wanted, unsigned bytes, unsigned how)
{
    if (bytes == 4)
        now = (uint32_t)now, wanted = (uint32_t)wanted;
    switch (how & 3) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return bytes == 4 ? (uint32_t) ~(now | wanted) != 0 : ~(now | wanted) != 0;
    default: /* cyclic */
        return bytes == 4 ? (int32_t)((uint32_t)now - (uint32_t)wanted) >= 0
                          : (int64_t)(now - wanted) >= 0;
    }
}

void sim_flag_wait(struct sim_op *op, CUdeviceptr address, uint64_t wanted, unsigned bytes,
                   unsigned how)
{
    struct timespec nap = {0, 20000};
    for (;;) {
        struct sim_pieces pieces;
        if (!sim_access(op, address, bytes, false, true, NULL, &pieces))
            return;
        uint64_t now =
            bytes == 4
                ? __atomic_load_n((uint32_t *)(void *)pieces.list[0].bytes, __ATOMIC_ACQUIRE)
                : __atomic_load_n((uint64_t *)(void *)pieces.list[0].bytes, __ATOMIC_ACQUIRE);
        sim_pieces_release(&pieces);
        if (reached(now, wanted, bytes, how) || op->ctx->sticky != CUDA_SUCCESS)
            break;
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 200000)
            nap.tv_nsec += 10000;
    }
    sim_lock();
    const struct flag *flag = flag_at(address);
    if (flag->address == address)
        sim_clock_join(&op->clock, flag->clock);
    sim_clock_join(&op->clock, sim_host_clock());
    sim_unlock();
}

void sim_flag_set(struct sim_op *op, CUdeviceptr address, uint64_t value, unsigned bytes)
{
    struct sim_pieces pieces;
    if (!sim_access(op, address, bytes, true, true, NULL, &pieces))
        return;
    sim_flag_release(op, address);
    if (bytes == 4)
        __atomic_store_n((uint32_t *)(void *)pieces.list[0].bytes, (uint32_t)value,
                         __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)(void *)pieces.list[0].bytes, value, __ATOMIC_RELEASE);
    sim_pieces_release(&pieces);
}

/* ---- fills and copies
 * ---------------------------------------------------------------------------- */
static void run_memset(struct sim_op *op)
{
    size_t row = op->work.set.width * op->work.set.element, rows = op->work.set.height;
    if (op->work.set.pitch == row) {
        row *= rows;
        rows = 1;
    }
    for (size_t y = 0; y < rows; y++) {
        CUdeviceptr at = op->work.set.address + y * op->work.set.pitch;
        struct sim_pieces pieces;
        if (!sim_access(op, at, row, true, false, op->work.what, &pieces))
            return;
        for (unsigned i = 0; i < pieces.count; i++)
            sim_bytes_fill(pieces.list[i].bytes, pieces.list[i].size, op->work.set.element,
                           op->work.set.value);
        sim_pieces_release(&pieces);
        if (row <= 8)
            sim_flag_release(op, at);
    }
}

static bool end_access(struct sim_op *op, const struct sim_end *end, size_t offset, size_t size,
                       bool write, struct sim_pieces *pieces)
{
    if (end->phys == NULL)
        return access_by(op, write ? op->work.copy.to_peer : op->work.copy.from_peer,
                         end->address + offset, size, write, end->host_ok, op->work.what, pieces);
    *pieces = (struct sim_pieces){0};
    sim_lock();
    unsigned char *bytes = sim_phys_bytes(end->phys);
    if (bytes != NULL) {
        sim_race_access(end->phys, end->address + offset, size, write, op, op->work.what);
        *add_piece(pieces) =
            (struct sim_piece){sim_phys_ref(end->phys), bytes + end->address + offset, size};
    }
    sim_unlock();
    return bytes != NULL;
}

void sim_pieces_copy(struct sim_pieces *to, const struct sim_pieces *from)
{
    unsigned i = 0, k = 0;
    size_t in_to = 0, in_from = 0;
    while (i < to->count && k < from->count) {
        size_t length = to->list[i].size - in_to;
        if (from->list[k].size - in_from < length)
            length = from->list[k].size - in_from;
        sim_bytes_move(to->list[i].bytes + in_to, from->list[k].bytes + in_from, length);
        in_to += length;
        in_from += length;
        if (in_to == to->list[i].size)
            i++, in_to = 0;
        if (in_from == from->list[k].size)
            k++, in_from = 0;
    }
}

static void run_copy(struct sim_op *op)
{
    const struct sim_end *from = &op->work.copy.from, *to = &op->work.copy.to;
    size_t row = op->work.copy.width, rows = op->work.copy.height;
    size_t slices = op->work.copy.depth;
    size_t from_slice = from->pitch * from->height, to_slice = to->pitch * to->height;
    if (rows > 1 && from->pitch == row && to->pitch == row) {
        row *= rows;
        rows = 1;
    }
    for (size_t z = 0; z < slices; z++) {
        for (size_t y = 0; y < rows; y++) {
            size_t from_at = z * from_slice + y * from->pitch;
            size_t to_at = z * to_slice + y * to->pitch;
            struct sim_pieces source, target;
            struct sim_piece staged = {NULL, op->work.copy.staging + from_at, row};
            if (op->work.copy.staging != NULL)
                source = (struct sim_pieces){.list = &staged, .count = 1, .room = 1};
            else if (!end_access(op, from, from_at, row, false, &source))
                return;
            bool good = end_access(op, to, to_at, row, true, &target);
            if (good) {
                sim_pieces_copy(&target, &source);
                sim_pieces_release(&target);
            }
            if (op->work.copy.staging == NULL)
                sim_pieces_release(&source);
            if (!good)
                return;
            if (row <= 8 && to->phys == NULL)
                sim_flag_release(op, to->address + to_at);
        }
    }
}

/* ---- all kinds --------------------------------------------------------------------------------
 */
static void run_host(struct sim_op *op)
{
    sim_lock();
    sim_host_learns(op->clock); /* the function may act on what came before it */
    CUresult sticky = op->ctx->sticky;
    sim_unlock();
    sim_in_callback = true;
    if (op->work.kind == SIM_W_HOST)
        op->work.host.fn(op->work.host.arg);
    else
        op->work.callback.fn(op->work.callback.stream, sticky, op->work.callback.arg);
    sim_in_callback = false;
    sim_lock();
    sim_clock_join(&op->clock, sim_host_clock());
    sim_unlock();
}

void sim_work_run(struct sim_op *op)
{
    switch (op->work.kind) {
    case SIM_W_NOP:
        break;
    case SIM_W_MEMSET:
        run_memset(op);
        break;
    case SIM_W_COPY:
        run_copy(op);
        break;
    case SIM_W_HOST:
    case SIM_W_CALLBACK:
        run_host(op);
        break;
    case SIM_W_WAIT_VALUE:
        sim_flag_wait(op, op->work.value.address, op->work.value.value, op->work.value.bytes,
                      op->work.value.flags);
        break;
    case SIM_W_WRITE_VALUE:
        sim_flag_set(op, op->work.value.address, op->work.value.value, op->work.value.bytes);
        break;
    case SIM_W_KERNEL:
        sim_kernel_run(op);
        break;
    case SIM_W_ALLOC:
    case SIM_W_FREE:
        sim_pool_op_run(op);
        break;
    }
}

void sim_work_fini(struct sim_work *work)
{
    if (work->kind == SIM_W_COPY) {
        free(work->copy.staging);
        sim_phys_unref(work->copy.from.phys);
        sim_phys_unref(work->copy.to.phys);
    }
}

struct sim_work sim_work_clone(const struct sim_work *work)
{
    struct sim_work clone = *work;
    if (work->kind == SIM_W_COPY) {
        /* A recorded copy has no staging: it reads its source when it runs. */
        clone.copy.staging = NULL;
        if (clone.copy.from.phys != NULL)
            sim_phys_ref(clone.copy.from.phys);
        if (clone.copy.to.phys != NULL)
            sim_phys_ref(clone.copy.to.phys);
    }
    return clone;
}
