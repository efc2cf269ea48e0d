/*
 * The program's memory pools (see mempool.h).
 *
 * A table that hangs on the process's page: open addressing by handle, read without a lock, never
 * moved. A place whose pool is gone keeps its figures while memory of it is out, and is then used
 * again.
 *
 * Lock: table->lock, a leaf, around changes of who is in the table.
 */
#include "shim/mempool.h"

#include "pool/words.h"
#include "report/sys.h"
#include "shim/arena_inner.h"
#include "shim/fence_driver.h"

enum { PLACES = 256 }; /* 1 … 255; none is 0 */

#define STEP UINT64_C(512) /* as the driver's pools count */
#define NO_MORE ((CUmemoryPool)1)

struct mempool {
    _Atomic(CUmemoryPool) handle; /* NULL: never used; NO_MORE: its pool is gone */
    CUmemoryPool was;             /* the handle, also when its pool is gone */
    CUdevice device;
    _Atomic bool honoured; /* it is stood in for: nobody else was given access */
    _Atomic uint64_t threshold;
    _Atomic uint64_t used, used_high;
    _Atomic uint64_t reserved_high;
};

struct device {
    _Atomic bool asked;       /* the driver has said which pools it has */
    _Atomic uint8_t current;  /* number; 0: one that the driver serves */
    _Atomic uint8_t standard; /* likewise */
    _Atomic bool serves;      /* its arena has served */
};

struct vs_mempools {
    struct vs_lock lock;
    struct device device[VS_LEDGER_MAX_DEVICES];
    struct mempool place[PLACES];
};

static struct vs_mempools *table_now(void)
{
    return atomic_load_explicit(&vs_process_page()->mempools, memory_order_acquire);
}

/* Made where there is none; NULL without memory, and before the process is armed. */
static struct vs_mempools *table_here(void)
{
    struct vs_mempools *table = table_now(), *expected = NULL;

    if (table == NULL && vs_process_counts()) {
        table = vs_sys_map(sizeof(*table));
        if (table != NULL &&
            !atomic_compare_exchange_strong(&vs_process_page()->mempools, &expected, table)) {
            vs_sys_unmap(table, sizeof(*table));
            table = expected;
        }
    }
    return table;
}

static struct mempool *at(unsigned number)
{
    struct vs_mempools *table = number != 0 ? table_now() : NULL;

    return table != NULL ? &table->place[number] : NULL;
}

static unsigned first_place(CUmemoryPool handle)
{
    return (unsigned)((uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 40) % (PLACES - 1) + 1;
}

static unsigned after(unsigned number)
{
    return number == PLACES - 1 ? 1 : number + 1;
}

/* 0: it is not there. */
static unsigned find(const struct vs_mempools *table, CUmemoryPool handle)
{
    unsigned number = handle != NULL ? first_place(handle) : 0;

    for (unsigned i = 1; table != NULL && number != 0 && i < PLACES; i++, number = after(number)) {
        CUmemoryPool there =
            atomic_load_explicit(&table->place[number].handle, memory_order_acquire);

        if (there == handle) {
            return number;
        }
        if (there == NULL) {
            break;
        }
    }
    return 0;
}

/* Enters a pool; one that is there stays as it is. 0: there is no room, and the driver serves. */
static unsigned enter(struct vs_mempools *table, CUmemoryPool handle, CUdevice device)
{
    unsigned number;

    vs_lock_take(&table->lock);
    number = find(table, handle);
    for (unsigned i = 1, to = first_place(handle); number == 0 && i < PLACES; i++, to = after(to)) {
        struct mempool *place = &table->place[to];
        CUmemoryPool there = atomic_load(&place->handle);

        if (there != NULL && (there != NO_MORE || atomic_load(&place->used) != 0)) {
            continue;
        }
        place->was = handle;
        place->device = device;
        atomic_store(&place->honoured, true);
        atomic_store(&place->threshold, 0);
        atomic_store(&place->used_high, 0);
        atomic_store(&place->reserved_high, 0);
        atomic_store_explicit(&place->handle, handle, memory_order_release);
        number = to;
    }
    vs_lock_drop(&table->lock);
    return number;
}

/* ---- who serves ------------------------------------------------------------------------------ */

static bool is_device(CUdevice device)
{
    return device >= 0 && device < VS_LEDGER_MAX_DEVICES;
}

/* What the driver says, the first time that it is wanted. */
static void ask(const struct vs_entries *real, struct vs_mempools *table, CUdevice device)
{
    struct device *of = &table->device[device];
    CUmemoryPool standard = NULL, current = NULL;
    unsigned number;

    if (real->cuDeviceGetDefaultMemPool == NULL || real->cuDeviceGetMemPool == NULL ||
        real->cuDeviceGetDefaultMemPool(&standard, device) != CUDA_SUCCESS ||
        real->cuDeviceGetMemPool(&current, device) != CUDA_SUCCESS) {
        atomic_store_explicit(&of->asked, true, memory_order_release);
        return;
    }
    number = enter(table, standard, device);
    atomic_store(&of->standard, (uint8_t)number);
    if (!atomic_load(&of->asked)) { /* else the program has set one meanwhile */
        atomic_store(&of->current, (uint8_t)find(table, current));
    }
    atomic_store_explicit(&of->asked, true, memory_order_release);
}

/* The program knows a default pool before any memory was taken from it. */
static unsigned find_asking(const struct vs_guard *guard, struct vs_mempools *table,
                            CUmemoryPool handle)
{
    const struct vs_entries *real = &guard->driver->real;
    unsigned number = find(table, handle);
    int count = 0;

    if (table == NULL || number != 0 || handle == NULL || real->cuDeviceGetCount == NULL ||
        real->cuDeviceGetCount(&count) != CUDA_SUCCESS) {
        return number;
    }
    for (int i = 0; i < count && is_device(i); i++) {
        if (!atomic_load_explicit(&table->device[i].asked, memory_order_acquire)) {
            ask(real, table, i);
        }
    }
    return find(table, handle);
}

unsigned vs_mempool_serving(const struct vs_guard *guard, const CUmemoryPool *handle,
                            CUdevice device)
{
    struct vs_mempools *table = table_here();
    const struct mempool *place;
    unsigned number;

    if (table == NULL || !is_device(device)) {
        return 0;
    }
    if (__builtin_expect(!atomic_load_explicit(&table->device[device].asked, memory_order_acquire),
                         0)) {
        ask(&guard->driver->real, table, device);
    }
    number = handle == NULL
                 ? atomic_load_explicit(&table->device[device].current, memory_order_relaxed)
                 : find(table, *handle);
    place = &table->place[number];
    return number != 0 && place->device == device &&
                   atomic_load_explicit(&place->honoured, memory_order_relaxed)
               ? number
               : 0;
}

/* Pinned memory of a device, and no wish beyond that. */
static bool honours(const CUmemPoolProps *props)
{
    const unsigned char *rest = (const unsigned char *)(&props->win32SecurityAttributes + 1);
    unsigned char wishes = 0;

    while (rest < (const unsigned char *)(props + 1)) {
        wishes |= *rest++;
    }
    return wishes == 0 && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
           props->handleTypes == 0 && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           is_device(props->location.id);
}

void vs_mempool_created(const struct vs_guard *guard, CUmemoryPool handle,
                        const CUmemPoolProps *props)
{
    struct vs_mempools *table = guard->counts ? table_here() : NULL;

    if (table != NULL && honours(props)) {
        enter(table, handle, props->location.id);
    }
}

void vs_mempool_current(const struct vs_guard *guard, CUdevice device, CUmemoryPool handle)
{
    struct vs_mempools *table = guard->counts ? table_here() : NULL;

    if (table == NULL || !is_device(device)) {
        return;
    }
    if (!atomic_load_explicit(&table->device[device].asked, memory_order_acquire)) {
        ask(&guard->driver->real, table, device);
    }
    atomic_store(&table->device[device].current, (uint8_t)find(table, handle));
}

unsigned vs_mempool_goes(const struct vs_guard *guard, CUmemoryPool handle)
{
    struct vs_mempools *table = guard->counts ? table_now() : NULL;
    unsigned number = find(table, handle);

    if (number != 0) { /* from the driver's call on another pool may get the handle */
        atomic_store(&table->place[number].handle, NO_MORE);
    }
    return number;
}

CUmemoryPool vs_mempool_handle(unsigned number)
{
    const struct mempool *place = at(number);

    return place != NULL ? place->was : NULL;
}

/* ---- figures --------------------------------------------------------------------------------- */

static uint64_t steps_of(uint64_t bytes)
{
    return (bytes + STEP - 1) & ~(STEP - 1);
}

void vs_mempool_took(unsigned number, uint64_t bytes)
{
    struct mempool *place = at(number);
    uint64_t used;

    if (place != NULL) {
        used = atomic_fetch_add_explicit(&place->used, steps_of(bytes), memory_order_relaxed) +
               steps_of(bytes);
        vs_word_raise(&place->used_high, used);
        vs_word_raise(&place->reserved_high, used);
    }
}

void vs_mempool_gave(unsigned number, uint64_t bytes)
{
    struct mempool *place = at(number);

    if (place != NULL) {
        atomic_fetch_sub_explicit(&place->used, steps_of(bytes), memory_order_relaxed);
    }
}

void vs_mempool_device_gone(CUdevice device)
{
    struct vs_mempools *table = table_now();

    for (unsigned i = 1; table != NULL && is_device(device) && i < PLACES; i++) {
        if (table->place[i].device == device) {
            atomic_store(&table->place[i].used, 0);
        }
    }
}

/* What the arenas hold of a pool's memory, as far as that can be told apart. */
static uint64_t reserved_of(const struct vs_mempools *table, unsigned number)
{
    const struct mempool *place = &table->place[number];
    uint64_t bytes = atomic_load(&place->used);
    struct vs_ledger_pool_stats stats;

    if (atomic_load(&table->device[place->device].serves) &&
        atomic_load(&table->device[place->device].current) == number) {
        vs_arena_stats(place->device, &stats);
        bytes += stats.free_bytes;
    }
    return bytes;
}

void vs_mempool_add(const struct vs_guard *guard, CUmemoryPool handle, CUmemPool_attribute name,
                    void *value)
{
    struct vs_mempools *table = guard->counts ? table_now() : NULL;
    unsigned number = find(table, handle);
    struct mempool *place = at(number);
    uint64_t ours = 0;

    if (place == NULL) {
        return;
    }
    vs_word_raise(&place->reserved_high, reserved_of(table, number));
    switch (name) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        ours = atomic_load(&place->used);
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        ours = atomic_load(&place->used_high);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        ours = reserved_of(table, number);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        ours = atomic_load(&place->reserved_high);
        break;
    default:
        return;
    }
    *(cuuint64_t *)value += ours;
}

/* ---- settings -------------------------------------------------------------------------------- */

struct keeping {
    CUdevice device;
    uint64_t bytes;
};

static bool is_home(const struct vs_arena *arena, CUdevice device)
{
    return arena->device == device && arena->context == vs_place_primary(device);
}

static void keep_in(struct vs_arena *arena, void *data)
{
    const struct keeping *keeping = data;

    if (is_home(arena, keeping->device)) {
        vs_pool_keep_idle(arena->pool, keeping->bytes);
    }
}

/* Tells the device's arena, where it has one that serves. */
static void keep(const struct vs_mempools *table, CUdevice device)
{
    struct keeping keeping = {.device = device};

    if (!atomic_load(&table->device[device].serves)) {
        return;
    }
    for (unsigned i = 1; i < PLACES; i++) {
        const struct mempool *place = &table->place[i];
        uint64_t bytes = atomic_load(&place->threshold);

        if (place->device == device && atomic_load(&place->honoured)) {
            keeping.bytes = bytes > UINT64_MAX - keeping.bytes ? UINT64_MAX : keeping.bytes + bytes;
        }
    }
    vs_arena_each(keep_in, &keeping);
}

void vs_mempool_keep(CUdevice device)
{
    struct vs_mempools *table = table_now();

    if (table != NULL && is_device(device)) {
        atomic_store(&table->device[device].serves, true);
        keep(table, device);
    }
}

void vs_mempool_set(const struct vs_guard *guard, CUmemoryPool handle, CUmemPool_attribute name,
                    const void *value)
{
    struct vs_mempools *table = guard->counts ? table_here() : NULL;
    unsigned number = find_asking(guard, table, handle);
    struct mempool *place = at(number);

    if (place == NULL) {
        return;
    }
    switch (name) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        atomic_store(&place->threshold, *(const cuuint64_t *)value);
        keep(table, place->device);
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        atomic_store(&place->used_high, atomic_load(&place->used));
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        atomic_store(&place->reserved_high, reserved_of(table, number));
        break;
    default:
        break;
    }
}

void vs_mempool_gone(unsigned number, bool gone)
{
    struct vs_mempools *table = table_now();
    struct mempool *place = at(number);
    struct device *of;
    uint8_t current = (uint8_t)number;

    if (place == NULL) {
        return;
    }
    if (!gone) {
        atomic_store(&place->handle, place->was);
        return;
    }
    atomic_store(&place->threshold, 0);
    of = &table->device[place->device];
    atomic_compare_exchange_strong(&of->current, &current, atomic_load(&of->standard));
    keep(table, place->device);
}

static void trim_in(struct vs_arena *arena, void *data)
{
    const struct keeping *keeping = data;

    if (is_home(arena, keeping->device)) {
        vs_arena_trim(arena, keeping->bytes);
    }
}

void vs_mempool_trimmed(const struct vs_guard *guard, CUmemoryPool handle, size_t keep)
{
    struct vs_mempools *table = guard->counts ? table_now() : NULL;
    struct mempool *place = at(find(table, handle));
    struct keeping keeping;
    uint64_t used;

    if (place != NULL) {
        used = atomic_load(&place->used);
        keeping = (struct keeping){place->device, keep > used ? keep - used : 0};
        vs_arena_each(trim_in, &keeping);
    }
}

/* ---- access of others ------------------------------------------------------------------------ */

struct sharing {
    CUdevice device; /* whose memory it is */
    CUcontext peer;
    CUresult result;
};

/* Plain allocations of the driver are reached by whoever has peer access to their context. Mapped
 * memory would have to be granted page by page. */
static void share_in(struct vs_arena *arena, void *data)
{
    const struct vs_entries *real = &arena->driver->real;
    struct sharing *sharing = data;
    CUresult result;
    bool entered;

    if (!is_home(arena, sharing->device)) {
        return;
    }
    if (sharing->peer == NULL || arena->backing != VS_POOL_NATIVE ||
        real->cuCtxEnablePeerAccess == NULL) {
        sharing->result = CUDA_ERROR_NOT_SUPPORTED;
        return;
    }
    entered = vs_fence_enter(real, sharing->peer);
    result = real->cuCtxEnablePeerAccess(arena->context, 0);
    vs_fence_leave(real, entered);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        sharing->result = result;
    }
}

static bool is_others(const struct mempool *place, const CUmemAccessDesc *access)
{
    return access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
           (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            access->location.id != place->device);
}

CUresult vs_mempool_shared(const struct vs_guard *guard, CUmemoryPool handle,
                           const CUmemAccessDesc *access, size_t count)
{
    struct vs_mempools *table = guard->counts ? table_here() : NULL;
    struct mempool *place = at(find_asking(guard, table, handle));
    struct sharing sharing = {.result = CUDA_SUCCESS};

    for (size_t i = 0; place != NULL && i < count; i++) {
        if (!is_others(place, &access[i])) {
            continue;
        }
        atomic_store(&place->honoured, false);
        if (atomic_load(&place->used) != 0) {
            sharing.device = place->device;
            sharing.peer = access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE
                               ? vs_place_primary(access[i].location.id)
                               : NULL;
            vs_arena_each(share_in, &sharing);
        }
    }
    if (sharing.result != CUDA_SUCCESS) {
        vs_ledger_note("pool-access",
                       "another device, or the host, was given access to a memory "
                       "pool of which memory was out that cannot be shared: refused");
    }
    return sharing.result;
}
