/*
 * A device that is nothing but bookkeeping (see replay_device.h).
 */
#include "report/cli/replay_device.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE VS_POOL_PAGE
#define FIRST_WHOLE (UINT64_C(1) << 40)
#define FIRST_ADDRESS (UINT64_C(1) << 44) /* of ranges: they never come back */

static struct vs_replay_device *enter(void *world)
{
    struct vs_replay_device *device = world;

    vs_pool_lock(&device->lock, &vs_replay_device_ops, device);
    return device;
}

static int leave(struct vs_replay_device *device, int result)
{
    vs_pool_unlock(&device->lock);
    return result;
}

/* Zeroed host memory; NULL where there is none. The lock is held, or nobody else is here. */
static void *host_take(struct vs_replay_device *device, size_t bytes)
{
    struct vs_replay_kept *kept = device->kept;
    void *at;

    for (unsigned i = 0; kept && i < kept->count; i++) {
        if (kept->maps[i].bytes == bytes) {
            at = kept->maps[i].at;
            kept->maps[i] = kept->maps[--kept->count];
            return at;
        }
    }
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void host_give(struct vs_replay_device *device, void *at, size_t bytes)
{
    struct vs_replay_kept *kept = device->kept;

    if (at && kept && kept->count < sizeof(kept->maps) / sizeof(kept->maps[0])) {
        memset(at, 0, bytes);
        kept->maps[kept->count].at = at;
        kept->maps[kept->count++].bytes = bytes;
    } else if (at) {
        munmap(at, bytes);
    }
}

/* Twice as much of it: false, and all as it was, where there is none. */
static bool host_grow(struct vs_replay_device *device, void **at, size_t each, uint32_t *room,
                      uint32_t first)
{
    uint32_t more = *room ? 2 * *room : first;
    void *grown = host_take(device, more * each);

    if (!grown) {
        return false;
    }
    if (*room) {
        memcpy(grown, *at, *room * each);
        host_give(device, *at, *room * each);
    }
    *at = grown;
    *room = more;
    return true;
}

void vs_replay_device_init(struct vs_replay_device *device, uint64_t cap)
{
    memset(device, 0, sizeof(*device));
    device->cap = cap;
    device->next_address = FIRST_ADDRESS;
}

static void forget_range(struct vs_replay_device *device, struct vs_replay_range *range)
{
    host_give(device, range->pages, range->bytes / PAGE * sizeof(*range->pages));
    host_give(device, range->access, range->bytes / PAGE);
    *range = (struct vs_replay_range){0};
}

void vs_replay_device_fini(struct vs_replay_device *device)
{
    for (uint32_t i = 0; i < device->range_count; i++) {
        forget_range(device, &device->ranges[i]);
    }
    host_give(device, device->ranges, device->range_room * sizeof(*device->ranges));
    host_give(device, device->handles, device->handle_room * sizeof(*device->handles));
    host_give(device, device->wholes, device->whole_room * sizeof(*device->wholes));
}

/* With the lock held: keeps what was broken, gives the lock back. */
static int broken(struct vs_replay_device *device, const char *rule)
{
    if (!device->breach) {
        device->breach = rule;
    }
    return leave(device, -EINVAL);
}

static bool whole_pages(uint64_t address, uint64_t bytes)
{
    return address % PAGE == 0 && bytes % PAGE == 0 && bytes > 0;
}

static bool charge(struct vs_replay_device *device, uint64_t bytes)
{
    if (bytes > device->cap || device->charged > device->cap - bytes) {
        return false;
    }
    device->charged += bytes;
    if (device->charged > device->peak) {
        device->peak = device->charged;
    }
    return true;
}

static struct vs_replay_range *range_of(struct vs_replay_device *device, uint64_t address,
                                        uint64_t bytes)
{
    for (uint32_t i = 0; i < device->range_count; i++) {
        struct vs_replay_range *range = &device->ranges[i];

        if (address >= range->address && address - range->address < range->bytes &&
            bytes <= range->bytes - (address - range->address)) {
            return range;
        }
    }
    return NULL;
}

/* A place for one more range: its index, or UINT32_MAX. */
static uint32_t range_place(struct vs_replay_device *device)
{
    for (uint32_t i = 0; i < device->range_count; i++) {
        if (!device->ranges[i].bytes) {
            return i;
        }
    }
    if (device->range_count == device->range_room &&
        !host_grow(device, (void **)&device->ranges, sizeof(*device->ranges), &device->range_room,
                   16)) {
        return UINT32_MAX;
    }
    return device->range_count++;
}

static int device_reserve(void *world, uint64_t bytes, uint64_t *address)
{
    struct vs_replay_device *device = enter(world);
    struct vs_replay_range range = {0};
    uint32_t place;

    if (bytes == 0 || bytes % PAGE != 0) {
        return broken(device, "a reserved range is not a multiple of pages");
    }
    place = range_place(device);
    range.bytes = bytes;
    range.pages = host_take(device, bytes / PAGE * sizeof(*range.pages));
    range.access = host_take(device, bytes / PAGE);
    if (place == UINT32_MAX || !range.pages || !range.access ||
        bytes > UINT64_MAX / 4 - device->next_address) {
        forget_range(device, &range);
        return leave(device, -ENOMEM);
    }
    range.address = device->next_address;
    device->next_address += bytes + PAGE; /* no two ranges touch */
    device->ranges[place] = range;
    device->reserves++;
    *address = range.address;
    return leave(device, 0);
}

static void device_unreserve(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_replay_device *device = enter(world);
    struct vs_replay_range *range = range_of(device, address, bytes);

    if (!range || range->address != address || range->bytes != bytes) {
        broken(device, "what is unreserved is not a reserved range");
        return;
    }
    for (uint64_t i = 0; i < bytes / PAGE; i++) {
        if (range->pages[i].handle) {
            broken(device, "a range is unreserved while memory is mapped there");
            return;
        }
    }
    forget_range(device, range);
    leave(device, 0);
}

static int device_create(void *world, uint64_t bytes, uint64_t *handle)
{
    struct vs_replay_device *device = enter(world);
    uint32_t number = device->handle_free;

    if (bytes == 0 || bytes % PAGE != 0) {
        return broken(device, "a handle is not a multiple of pages");
    }
    if (number == 0 && device->handle_count + 1 >= device->handle_room &&
        !host_grow(device, (void **)&device->handles, sizeof(*device->handles),
                   &device->handle_room, 1024)) {
        return leave(device, -ENOMEM);
    }
    if (!charge(device, bytes)) {
        return leave(device, -ENOMEM);
    }
    if (number) {
        device->handle_free = device->handles[number].next;
    } else {
        number = ++device->handle_count;
    }
    device->handles[number] = (struct vs_replay_handle){.bytes = bytes};
    device->creates++;
    *handle = number;
    return leave(device, 0);
}

static struct vs_replay_handle *handle_of(struct vs_replay_device *device, uint64_t handle,
                                          uint64_t bytes)
{
    if (handle == 0 || handle > device->handle_count || device->handles[handle].bytes != bytes ||
        bytes == 0) {
        return NULL;
    }
    return &device->handles[handle];
}

static void device_release(void *world, uint64_t handle, uint64_t bytes)
{
    struct vs_replay_device *device = enter(world);
    struct vs_replay_handle *known = handle_of(device, handle, bytes);

    if (!known) {
        broken(device, "what is released is not a handle of this size");
        return;
    }
    if (known->mappings) {
        broken(device, "a handle is released while it is mapped");
        return;
    }
    *known = (struct vs_replay_handle){.next = device->handle_free};
    device->handle_free = (uint32_t)handle;
    device->charged -= bytes;
    device->releases++;
    leave(device, 0);
}

static int device_map(void *world, uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct vs_replay_device *device = enter(world);
    struct vs_replay_handle *known = handle_of(device, handle, bytes);
    struct vs_replay_range *range = range_of(device, address, bytes);
    uint64_t first;

    if (!known) {
        return broken(device, "what is mapped is no handle of this size");
    }
    if (!range || !whole_pages(address, bytes)) {
        return broken(device, "a mapping lies outside of reserved ranges, or not on pages");
    }
    first = (address - range->address) / PAGE;
    for (uint64_t i = 0; i < bytes / PAGE; i++) {
        if (range->pages[first + i].handle) {
            return broken(device, "a mapping goes where something is mapped");
        }
    }
    for (uint64_t i = 0; i < bytes / PAGE; i++) {
        range->pages[first + i] = (struct vs_replay_page){(uint32_t)handle, (uint32_t)i};
    }
    known->mappings++;
    device->mapped_bytes += bytes;
    device->maps++;
    return leave(device, 0);
}

static int device_access(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_replay_device *device = enter(world);
    struct vs_replay_range *range = range_of(device, address, bytes);
    uint64_t first;

    if (!range || !whole_pages(address, bytes)) {
        return broken(device, "access is set outside of reserved ranges, or not on pages");
    }
    first = (address - range->address) / PAGE;
    for (uint64_t i = 0; i < bytes / PAGE; i++) {
        if (!range->pages[first + i].handle) {
            return broken(device, "access is set where nothing is mapped");
        }
    }
    memset(range->access + first, 1, bytes / PAGE);
    return leave(device, 0);
}

static int device_unmap(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_replay_device *device = enter(world);
    struct vs_replay_range *range = range_of(device, address, bytes);
    uint64_t first, last;

    if (!range || !whole_pages(address, bytes)) {
        return broken(device, "unmapping outside of reserved ranges, or not on pages");
    }
    first = (address - range->address) / PAGE;
    last = first + bytes / PAGE - 1;
    for (uint64_t i = first; i <= last; i++) {
        if (!range->pages[i].handle) {
            return broken(device, "unmapping where nothing is mapped");
        }
    }
    if (range->pages[first].index != 0 ||
        range->pages[last].index + 1 != device->handles[range->pages[last].handle].bytes / PAGE) {
        return broken(device, "unmapping a part of a mapping");
    }
    for (uint64_t i = first; i <= last; i++) {
        if (range->pages[i].index == 0) {
            device->handles[range->pages[i].handle].mappings--;
        }
        range->pages[i] = (struct vs_replay_page){0};
        range->access[i] = 0;
    }
    device->mapped_bytes -= bytes;
    device->unmaps++;
    return leave(device, 0);
}

/* The first whole allocation at or behind an address. */
static uint32_t whole_at(const struct vs_replay_device *device, uint64_t address)
{
    uint32_t low = 0, high = device->whole_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (device->wholes[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint64_t end_of(const struct vs_replay_whole *whole)
{
    return whole->address + whole->bytes;
}

static int device_take(void *world, uint64_t bytes, uint64_t *address)
{
    struct vs_replay_device *device = enter(world);
    uint64_t place = FIRST_WHOLE;
    uint32_t at;

    if (bytes == 0 || bytes % PAGE != 0) {
        return broken(device, "a whole allocation is not a multiple of pages");
    }
    if (device->whole_count == device->whole_room &&
        !host_grow(device, (void **)&device->wholes, sizeof(*device->wholes), &device->whole_room,
                   256)) {
        return leave(device, -ENOMEM);
    }
    if (!charge(device, bytes)) {
        return leave(device, -ENOMEM);
    }
    /* The lowest place that is large enough, as a driver might; neighbours touch. */
    at = device->whole_dense;
    place = at > 0 ? end_of(&device->wholes[at - 1]) : FIRST_WHOLE;
    for (; at < device->whole_count && device->wholes[at].address - place < bytes; at++) {
        place = end_of(&device->wholes[at]);
    }
    memmove(&device->wholes[at + 1], &device->wholes[at],
            (device->whole_count - at) * sizeof(device->wholes[0]));
    device->wholes[at] = (struct vs_replay_whole){place, bytes};
    device->whole_count++;
    device->whole_dense += at == device->whole_dense;
    *address = place;
    device->takes++;
    return leave(device, 0);
}

static int device_give(void *world, uint64_t address, uint64_t bytes)
{
    struct vs_replay_device *device = enter(world);
    uint32_t at = whole_at(device, address);

    if (at == device->whole_count || device->wholes[at].address != address ||
        device->wholes[at].bytes != bytes) {
        return broken(device, "what is given back is no whole allocation");
    }
    device->whole_count--;
    device->whole_dense = at < device->whole_dense ? at : device->whole_dense;
    memmove(&device->wholes[at], &device->wholes[at + 1],
            (device->whole_count - at) * sizeof(device->wholes[0]));
    device->charged -= bytes;
    device->gives++;
    return leave(device, 0);
}

static int device_record(void *world, uint32_t fence)
{
    struct vs_replay_device *device = world;

    if (fence >= VS_POOL_FENCES) {
        return broken(enter(device), "a fence with a number that is none");
    }
    __atomic_add_fetch(&device->records, 1, __ATOMIC_RELAXED);
    return 0;
}

static int device_passed(void *world, uint32_t fence)
{
    (void)world;
    return fence < VS_POOL_FENCES ? 0 : -EINVAL;
}

static bool device_one_stream(void *world)
{
    (void)world;
    return true;
}

static void *device_host_map(void *world, size_t bytes)
{
    struct vs_replay_device *device = enter(world);
    void *at = host_take(device, bytes);

    device->host_bytes += at ? bytes : 0;
    leave(device, 0);
    return at;
}

static void device_host_unmap(void *world, void *at, size_t bytes)
{
    struct vs_replay_device *device = enter(world);

    host_give(device, at, bytes);
    device->host_bytes -= bytes;
    leave(device, 0);
}

static void device_nap(void *world)
{
    (void)world;
    sched_yield();
}

/* May come with a lock of the pool held, so it takes none. */
static void device_reserved(void *world, int64_t delta)
{
    struct vs_replay_device *device = world;

    __atomic_add_fetch(&device->reserved, delta, __ATOMIC_RELAXED);
}

const struct vs_pool_ops vs_replay_device_ops = {
    .reserve = device_reserve,
    .unreserve = device_unreserve,
    .create = device_create,
    .release = device_release,
    .map = device_map,
    .access = device_access,
    .unmap = device_unmap,
    .take = device_take,
    .give = device_give,
    .record = device_record,
    .order = device_passed,
    .query = device_passed,
    .wait = device_passed,
    .one_stream = device_one_stream,
    .host_map = device_host_map,
    .host_unmap = device_host_unmap,
    .nap = device_nap,
    .reserved = device_reserved,
};

bool vs_replay_device_usable(struct vs_replay_device *device, uint64_t address, uint64_t bytes)
{
    struct vs_replay_range *range;
    bool usable = true;
    uint32_t at;

    enter(device);
    range = range_of(device, address, bytes);
    if (range) {
        for (uint64_t page = (address - range->address) / PAGE;
             page <= (address - range->address + bytes - 1) / PAGE; page++) {
            usable = usable && range->pages[page].handle && range->access[page];
        }
        leave(device, 0);
        return usable;
    }
    at = whole_at(device, address + 1);
    usable =
        at > 0 && address + bytes <= device->wholes[at - 1].address + device->wholes[at - 1].bytes;
    leave(device, 0);
    return usable;
}

bool vs_replay_device_behind(struct vs_replay_device *device, uint64_t address, uint64_t *handle,
                             uint64_t *offset)
{
    const struct vs_replay_range *range;
    struct vs_replay_page page;
    uint32_t at;
    bool there;

    enter(device);
    range = range_of(device, address, 1);
    if (range) {
        page = range->pages[(address - range->address) / PAGE];
        *handle = page.handle;
        *offset = page.index * PAGE + address % PAGE;
        leave(device, 0);
        return page.handle != 0;
    }
    at = whole_at(device, address + 1);
    *handle = 0;
    *offset = address;
    there = at > 0 && address < device->wholes[at - 1].address + device->wholes[at - 1].bytes;
    leave(device, 0);
    return there;
}

const char *vs_replay_device_leak(const struct vs_replay_device *device)
{
    for (uint32_t i = 0; i < device->range_count; i++) {
        if (device->ranges[i].bytes) {
            return "a reserved range was not given back";
        }
    }
    if (device->mapped_bytes) {
        return "memory is still mapped";
    }
    if (device->whole_count) {
        return "a whole allocation was not given back";
    }
    if (device->charged) {
        return "a handle was not released";
    }
    if (device->host_bytes) {
        return "host memory was not given back";
    }
    return device->reserved ? "the pool says that it still holds memory" : NULL;
}
