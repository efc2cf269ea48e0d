/*
 * dlsym and dlvsym: the C half (the other half is dlsym_*.S).
 *
 * Everything here may run before our constructor, before a sanitizer is ready and inside a foreign
 * dlopen: no malloc, no lock, no thread-local storage, built without instrumentation.
 */
#ifndef VS_SHIM_LOOKUP_H
#define VS_SHIM_LOOKUP_H

/* The next dlsym and dlvsym behind us; NULL until vs_lookup_bootstrap. Read by the assembly. */
extern void *(*vs_lookup_real_dlsym)(void *handle, const char *name);
extern void *(*vs_lookup_real_dlvsym)(void *handle, const char *name, const char *version);

/* Finds the real ones. Idempotent; never leaves them NULL. */
void vs_lookup_bootstrap(void);

/* Is this look-up ours to answer? */
int vs_lookup_wants(void *handle, const char *name, const void *caller);

/* Answer one that is. */
void *vs_lookup_dlsym(void *handle, const char *name);
void *vs_lookup_dlvsym(void *handle, const char *name, const char *version);

#endif
