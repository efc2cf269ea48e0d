/*
 * dlsym and dlvsym: which look-ups are ours, and their answers (see lookup.h).
 *
 * Ours are the names in the table of hooks, unless the driver itself asks. The real look-up is made
 * with the caller's own arguments, and its result is substituted if it is an entry point of the
 * driver. RTLD_DEFAULT depends on who calls, but for our names it can only find our own exports (or
 * those of a preload before us), so it needs no jump; when no driver is loaded it must find
 * nothing, as it would without us.
 */
#include "shim/lookup.h"

#include "shim/driver.h"
#include "shim/elf.h"

#include <dlfcn.h>
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

int vs_lookup_wants(void *handle, const char *name, const void *caller)
{
    const struct vs_driver *driver;

    (void)handle;
    if (!vs_driver_knows(name)) {
        return 0;
    }
    driver = vs_driver_get();
    if (driver != NULL && vs_driver_contains(driver, caller)) {
        return 0;
    }
    if (vs_lookup_real_dlsym == NULL || vs_lookup_real_dlvsym == NULL) {
        vs_lookup_bootstrap();
    }
    return 1;
}

/* Our own export came back: right if the driver has this entry, else nothing was really found. */
static void *found(void *result, const char *name)
{
    const struct vs_driver *driver;

    if (!vs_elf_is_ours(result)) {
        return vs_driver_substitute(result);
    }
    driver = vs_driver_get();
    if (driver != NULL && vs_driver_has(driver, name)) {
        return result;
    }
    /* Finds nothing, and leaves the loader's own message for dlerror. The barrier keeps the
     * compiler from making this a jump: the search must start behind us, not behind our caller. */
    result = vs_lookup_real_dlsym(RTLD_NEXT, name);
    __asm__ volatile("" ::: "memory");
    return result;
}

void *vs_lookup_dlsym(void *handle, const char *name)
{
    return found(vs_lookup_real_dlsym(handle, name), name);
}

void *vs_lookup_dlvsym(void *handle, const char *name, const char *version)
{
    return found(vs_lookup_real_dlvsym(handle, name, version), name);
}
