/*
 * dlsym and dlvsym: which look-ups are ours, and their answers (see lookup.h).
 *
 * Ours are the names in the table of hooks, unless the driver itself asks. The real look-up is made
 * with the caller's own arguments, and its result is substituted if it is an entry point of the
 * driver. RTLD_DEFAULT depends on who calls, but for our names it can only find our own exports (or
 * those of a preload before us), so it needs no jump. Where a look-up would find nothing without us
 * - no driver loaded, or only locally - it must find nothing with us: programs ask this way whether
 * there is CUDA. RTLD_NEXT is a jump but in that one case, and when a preload before us looks for
 * the next dlsym.
 */
#include "shim/lookup.h"

#include "shim/driver.h"
#include "shim/elf.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

void *(*vs_lookup_real_dlsym)(void *handle, const char *name);
void *(*vs_lookup_real_dlvsym)(void *handle, const char *name, const char *version);

/* Only if there is no dlsym in the process at all, which no libc that we run on does. */
static void *no_dlsym(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

static void *no_dlvsym(void *handle, const char *name, const char *version)
{
    (void)handle;
    (void)name;
    (void)version;
    return NULL;
}

void vs_lookup_bootstrap(void)
{
    void *sym = vs_elf_next("dlsym");
    void *vsym = vs_elf_next("dlvsym");

    vs_lookup_real_dlvsym =
        vsym != NULL ? (void *(*)(void *, const char *, const char *))vsym : no_dlvsym;
    vs_lookup_real_dlsym = sym != NULL ? (void *(*)(void *, const char *))sym : no_dlsym;
}

/* Is the name to be found behind us in the global scope? It is where the driver was linked or
 * opened globally, or a preload behind us has it. Finding nothing leaves the loader's message for
 * dlerror. The barrier keeps the compiler from making this a jump: the search must start behind us,
 * not behind our caller. */
static void *behind_us(const char *name)
{
    void *result = vs_lookup_real_dlsym(RTLD_NEXT, name);

    __asm__ volatile("" ::: "memory");
    return result;
}

/* Asked of every look-up, also those that a sanitizer's runtime makes to find the functions that it
 * is about to stand in for, strcmp among them: so no such function is used here. */
static bool is_look_up(const char *name)
{
    if (name == NULL || name[0] != 'd' || name[1] != 'l') {
        return false;
    }
    return vs_elf_same(name, "dlsym") || vs_elf_same(name, "dlvsym");
}

int vs_lookup_wants(void *handle, const char *name, const void *caller)
{
    const struct vs_driver *driver;
    bool for_look_up = handle == RTLD_NEXT && is_look_up(name);

    if (!for_look_up && !vs_driver_knows(name)) {
        return 0;
    }
    if (vs_lookup_real_dlsym == NULL || vs_lookup_real_dlvsym == NULL) {
        vs_lookup_bootstrap();
    }
    if (for_look_up) {
        /* A preload before us that asks for the C library's by version would go past us. */
        return vs_elf_is_before_us(caller);
    }
    driver = vs_driver_get();
    if (driver != NULL && vs_driver_contains(driver, caller)) {
        return 0;
    }
    if (handle != RTLD_NEXT) {
        return 1;
    }
    /* A search from behind the caller may end at our own export with nothing real behind it. */
    return vs_elf_is_before_us(caller) && vs_elf_next(name) == NULL &&
           !vs_elf_defined_before_us(name, caller) && behind_us(name) == NULL;
}

/* Ours, in place of the C library's. */
static void *own_look_up(const char *name)
{
    return vs_elf_same(name, "dlsym") ? (void *)dlsym : (void *)dlvsym;
}

/* Our own export came back: right if the look-up would find the driver's without us. */
static void *found(void *result, const char *name, const void *caller)
{
    const struct vs_driver *driver;

    if (result == NULL) {
        return NULL; /* with its message for dlerror */
    }
    if (!vs_elf_is_ours(result)) {
        result = vs_driver_substitute(result);
        vs_driver_pin();
        return result;
    }
    driver = vs_driver_get();
    if (driver == NULL || !vs_driver_has(driver, name)) {
        return behind_us(name);
    }
    /* Opened locally, it is out of sight for everything but the libraries that opened or need it;
     * which those are is not known, so any library that was itself opened later may see it. */
    if (!vs_elf_came_later(caller) && behind_us(name) == NULL) {
        return NULL;
    }
    return result;
}

void *vs_lookup_dlsym(void *handle, const char *name)
{
    const void *caller = __builtin_return_address(0);

    if (handle == RTLD_NEXT) {
        return is_look_up(name) ? own_look_up(name) : behind_us(name);
    }
    return found(vs_lookup_real_dlsym(handle, name), name, caller);
}

void *vs_lookup_dlvsym(void *handle, const char *name, const char *version)
{
    const void *caller = __builtin_return_address(0);

    if (handle == RTLD_NEXT) {
        if (!is_look_up(name)) {
            return behind_us(name);
        }
        return vs_lookup_real_dlvsym(handle, name, version) != NULL ? own_look_up(name) : NULL;
    }
    return found(vs_lookup_real_dlvsym(handle, name, version), name, caller);
}
