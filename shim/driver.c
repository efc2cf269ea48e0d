/*
 * Finding the driver and mapping its entry points (see driver.h).
 *
 * A driver object is built in a private mapping, complete, and published with one compare-and-swap:
 * two threads that build at once build the same, and one result is dropped. A published object is
 * never changed or freed. The driver that it describes is kept loaded from the first look-up on.
 */
#include "shim/driver.h"

#include "shim/elf.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct vs_driver *vs_driver_current;
static bool second_seen;

static const struct {
    const char *name;
    size_t offset; /* of the pointer in struct vs_entries */
} hook_rows[] = {
#define ROW(name) {#name, offsetof(struct vs_entries, name)},
    VS_ENTRY_HOOKS(ROW)
#undef ROW
};

enum {
    HOOK_COUNT = sizeof(hook_rows) / sizeof(hook_rows[0]),
    NAME_SLOTS = 1024,
};
_Static_assert(HOOK_COUNT * 4 <= VS_DRIVER_MAP_SIZE, "the map is at most half full");
_Static_assert(HOOK_COUNT * 2 <= NAME_SLOTS && HOOK_COUNT < UINT16_MAX, "so is the index of names");

static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261U;

    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 16777619U;
    }
    return hash;
}

/* The row of a name, or -1. */
static int row_of(const char *name)
{
    /* Filled once; threads that meet here write the same bytes. */
    static uint16_t slots[NAME_SLOTS]; /* index + 1 */
    static bool filled;

    if (name == NULL || name[0] != 'c' || name[1] != 'u') {
        return -1;
    }
    if (!__atomic_load_n(&filled, __ATOMIC_ACQUIRE)) {
        uint16_t mine[NAME_SLOTS] = {0};

        for (unsigned i = 0; i < HOOK_COUNT; i++) {
            uint32_t slot = name_hash(hook_rows[i].name) % NAME_SLOTS;

            while (mine[slot] != 0) {
                slot = (slot + 1) % NAME_SLOTS;
            }
            mine[slot] = (uint16_t)(i + 1);
        }
        for (unsigned i = 0; i < NAME_SLOTS; i++) {
            __atomic_store_n(&slots[i], mine[i], __ATOMIC_RELAXED);
        }
        __atomic_store_n(&filled, true, __ATOMIC_RELEASE);
    }
    for (uint32_t slot = name_hash(name) % NAME_SLOTS;; slot = (slot + 1) % NAME_SLOTS) {
        uint16_t index = __atomic_load_n(&slots[slot], __ATOMIC_RELAXED);

        if (index == 0) {
            return -1;
        }
        if (strcmp(hook_rows[index - 1].name, name) == 0) {
            return index - 1;
        }
    }
}

bool vs_driver_knows(const char *name)
{
    return row_of(name) >= 0;
}

bool vs_driver_has(const struct vs_driver *driver, const char *name)
{
    int row = row_of(name);
    void *pointer = NULL;

    if (row >= 0) {
        memcpy(&pointer, (const char *)&driver->real + hook_rows[row].offset, sizeof(pointer));
    }
    return pointer != NULL;
}

static unsigned map_slot(uintptr_t real)
{
    return (unsigned)(((uint64_t)real * 0x9e3779b97f4a7c15ULL) >> 32) % VS_DRIVER_MAP_SIZE;
}

static void map_add(struct vs_driver *driver, void *real, void *hook)
{
    unsigned slot = map_slot((uintptr_t)real);

    if (real == NULL) {
        return;
    }
    while (driver->map[slot].real != 0 && driver->map[slot].real != (uintptr_t)real) {
        slot = (slot + 1) % VS_DRIVER_MAP_SIZE;
    }
    if (driver->map[slot].real == 0) {
        driver->map[slot].real = (uintptr_t)real;
        driver->map[slot].hook = hook;
    } else if (driver->map[slot].hook != hook) {
        driver->map[slot].hook = NULL;
    }
}

/* The function that a chain of preloads would reach from us, or the driver's own where there is no
 * chain. An entry that the driver lacks stays absent: a preload's cannot be called with nothing
 * behind it. */
static void *chained(const struct vs_elf_object *object, const char *name)
{
    void *real = vs_elf_symbol(object, name);
    void *next = real == NULL ? NULL : vs_elf_next(name);

    return next != NULL ? next : real;
}

static const struct vs_driver *build(const struct vs_elf_object *object)
{
    struct vs_driver *expected = NULL;
    /* System calls by number: a sanitizer that watches mmap would take the publication, which it
     * does not see in uninstrumented code, for a race. */
    struct vs_driver *driver =
        (void *)syscall(SYS_mmap, NULL, sizeof(*driver), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (driver == MAP_FAILED) {
        return NULL;
    }
    driver->start = object->start;
    driver->end = object->end;
#define FIND(name) driver->real.name = (__typeof__(&name))vs_elf_symbol(object, #name);
#define CHAIN(name) driver->chain.name = (__typeof__(&name))chained(object, #name);
#define MAP(name)                                                                                  \
    map_add(driver, (void *)driver->real.name, (void *)name);                                      \
    map_add(driver, (void *)driver->chain.name, (void *)name);
    VS_ENTRY_HOOKS(FIND)
    VS_ENTRY_CALLS(FIND)
    VS_ENTRY_HOOKS(CHAIN)
    VS_ENTRY_HOOKS(MAP)
#undef MAP
#undef CHAIN
#undef FIND
    syscall(SYS_mprotect, driver, sizeof(*driver), PROT_READ);
    if (!__atomic_compare_exchange_n(&vs_driver_current, &expected, driver, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        syscall(SYS_munmap, driver, sizeof(*driver));
        return expected;
    }
    return driver;
}

static bool is_driver(const struct vs_elf_object *object)
{
    return object->soname != NULL && strcmp(object->soname, "libcuda.so.1") == 0;
}

/* What a walk over the loaded objects is looking for, and what it found. The object is copied: it
 * must not be used while the walk holds the loader's lock, for building calls back into elf.c. */
struct wanted {
    const void *address; /* NULL: any driver */
    struct vs_elf_object found;
};

static int visit(const struct vs_elf_object *object, void *arg)
{
    struct wanted *wanted = arg;
    uintptr_t address = (uintptr_t)wanted->address;

    if (wanted->address != NULL && (address < object->start || address >= object->end)) {
        return 0;
    }
    if (!is_driver(object)) {
        return wanted->address != NULL ? -1 : 0;
    }
    wanted->found = *object;
    return 1;
}

const struct vs_driver *vs_driver_find(void)
{
    struct wanted wanted = {.address = NULL};

    return vs_elf_each(visit, &wanted) == 1 ? build(&wanted.found) : NULL;
}

void *vs_driver_substitute(void *pointer)
{
    const struct vs_driver *driver = __atomic_load_n(&vs_driver_current, __ATOMIC_ACQUIRE);

    if (pointer == NULL || vs_elf_is_ours(pointer)) {
        return pointer;
    }
    if (driver == NULL || !vs_driver_contains(driver, pointer)) {
        struct wanted wanted = {.address = pointer};
        int where = vs_elf_each(visit, &wanted);

        if (where == 1 && driver == NULL) {
            driver = build(&wanted.found);
        } else if (where == 1) {
            __atomic_store_n(&second_seen, true, __ATOMIC_RELAXED);
        }
    }
    if (driver == NULL) {
        return pointer;
    }
    for (unsigned slot = map_slot((uintptr_t)pointer); driver->map[slot].real != 0;
         slot = (slot + 1) % VS_DRIVER_MAP_SIZE) {
        if (driver->map[slot].real == (uintptr_t)pointer) {
            return driver->map[slot].hook != NULL ? driver->map[slot].hook : pointer;
        }
    }
    return pointer;
}

void vs_driver_pin(void)
{
    static bool pinned;
    const struct vs_driver *driver = __atomic_load_n(&vs_driver_current, __ATOMIC_ACQUIRE);
    void *(*open)(const char *, int);

    if (driver == NULL || __atomic_load_n(&pinned, __ATOMIC_RELAXED)) {
        return;
    }
    __atomic_store_n(&pinned, true, __ATOMIC_RELAXED);
    open = (void *(*)(const char *, int))vs_elf_next("dlopen");
    if (open != NULL && vs_elf_came_later((const void *)driver->real.cuInit)) {
        open("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

void *vs_driver_behind(const char *name, const void *caller)
{
    void *found = vs_elf_next(name);

    return found != NULL ? found : vs_elf_own_symbol(caller, name);
}

bool vs_driver_second_seen(void)
{
    return __atomic_load_n(&second_seen, __ATOMIC_RELAXED);
}
