/*
 * The driver behind the shim: where it is, its entry points, and the map from real pointer to hook.
 *
 * Found at the first look-up of one of its names, whichever way that came; immutable and kept
 * loaded from then on. The first look-up may happen inside a dlopen, whose thread holds the
 * loader's lock: that one is recursive and may be taken here, but there is no other, since waiting
 * for another thread could be waiting for ourselves.
 */
#ifndef VS_SHIM_DRIVER_H
#define VS_SHIM_DRIVER_H

#include "shim/entries.h"

#include <stdbool.h>
#include <stdint.h>

#define VS_DRIVER_MAP_SIZE 2048 /* at least four times the hooks: two pointers each, half full */

struct vs_driver {
    uintptr_t start, end;    /* extent of libcuda's mapping */
    struct vs_entries real;  /* the driver's own functions */
    struct vs_entries chain; /* hooks only: where a preload behind us defines a name, its own */
    struct {
        uintptr_t real; /* 0 = empty */
        void *hook;     /* NULL = two entries share the pointer but not the hook: left alone */
    } map[VS_DRIVER_MAP_SIZE];
};

/* Read by vs_driver_get(); NULL until a driver was seen. */
extern struct vs_driver *vs_driver_current __attribute__((visibility("hidden")));

/* Searches the loaded objects. */
const struct vs_driver *vs_driver_find(void);

/* The driver, or NULL as long as no libcuda.so.1 is loaded in our namespace. The fast path is one
 * load; without a driver each call searches the loaded objects. */
static inline const struct vs_driver *vs_driver_get(void)
{
    const struct vs_driver *driver = __atomic_load_n(&vs_driver_current, __ATOMIC_ACQUIRE);

    return __builtin_expect(driver != NULL, 1) ? driver : vs_driver_find();
}

/* The hook for a pointer that a real look-up returned, or the pointer itself. Discovers the driver
 * if the pointer lies in one. NULL gives NULL. */
void *vs_driver_substitute(void *pointer);

/* Is this one of the names in VS_ENTRY_HOOKS? */
bool vs_driver_knows(const char *name);

/* Does this driver have an entry point of that name? */
bool vs_driver_has(const struct vs_driver *driver, const char *name);

/* Keeps the driver loaded from now on: our pointers into it must stay valid, whoever closes it.
 * Takes the loader's lock, so only a look-up may call it (which takes that lock itself), never a
 * hook: the loader may be waiting for the thread that is in the hook. */
void vs_driver_pin(void);

/* What the program would have reached without us while no driver is loaded: a stub that stands in
 * for the driver and loads it at the first call. It is behind us in search order, or in the library
 * that calls. NULL if there is none. */
void *vs_driver_behind(const char *name, const void *caller);

/* Was a second copy of the driver seen, in another place (dlmopen, or a copy under another path)?
 * Its calls are not ours. */
bool vs_driver_second_seen(void);

/* True if the address lies in the driver's code. */
static inline bool vs_driver_contains(const struct vs_driver *driver, const void *address)
{
    return (uintptr_t)address - driver->start < driver->end - driver->start;
}

/* What a hook returns that was reached without any driver: only a weak reference in a program that
 * does not link libcuda gets here. */
#define vs_driver_missing CUDA_ERROR_STUB_LIBRARY

#endif
