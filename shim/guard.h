/*
 * Who is calling a hook: the program, or the driver on our behalf.
 *
 * A call counts once, whichever way it came. The driver may call its own exported functions, and a
 * preload behind us may pass a call on through a pointer that our dlsym mapped to the hook; both
 * come back here with the thread already inside a hook, or with a return address in the driver, and
 * go straight to the driver's own function.
 */
#ifndef VS_SHIM_GUARD_H
#define VS_SHIM_GUARD_H

#include "shim/driver.h"

extern __thread int vs_guard_depth __attribute__((tls_model("initial-exec"), visibility("hidden")));

struct vs_guard {
    const struct vs_driver *driver;
    const struct vs_entries *entries; /* what to call */
    bool counts;                      /* a call of the program's own */
};

static inline struct vs_guard vs_guard_enter(const void *caller)
{
    struct vs_guard guard = {.driver = vs_driver_get()};

    if (guard.driver != NULL) {
        guard.counts = vs_guard_depth == 0 && !vs_driver_contains(guard.driver, caller);
        guard.entries = guard.counts ? &guard.driver->chain : &guard.driver->real;
        vs_guard_depth++;
    }
    return guard;
}

static inline void vs_guard_leave(const struct vs_guard *guard)
{
    if (guard->driver != NULL) {
        vs_guard_depth--;
    }
}

/*
 * Opens a hook's body: `guard` is set up, and left when the hook returns. Without a driver the call
 * goes to what is behind us, uncounted, or fails where there is nothing; so it does if the driver
 * lacks the entry.
 */
#define VS_HOOK_ENTER(name)                                                                        \
    __attribute__((cleanup(vs_guard_leave))) struct vs_guard guard =                               \
        vs_guard_enter(__builtin_return_address(0));                                               \
    struct vs_entries behind; /* of which only this entry is ever set */                           \
    if (__builtin_expect(guard.driver == NULL, 0)) {                                               \
        behind.name = (__typeof__(&name))vs_driver_behind(#name, __builtin_return_address(0));     \
        guard.entries = &behind;                                                                   \
    }                                                                                              \
    if (guard.entries->name == NULL) {                                                             \
        return vs_driver_missing;                                                                  \
    }

#endif
