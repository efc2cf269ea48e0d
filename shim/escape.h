/*
 * What goes past the shim: found at the end, said in the report.
 */
#ifndef VS_SHIM_ESCAPE_H
#define VS_SHIM_ESCAPE_H

/* Adds a note to the ledger for each way round the hooks that can be seen: objects opened with
 * RTLD_DEEPBIND (their imports are bound to the driver, or to the C library's dlsym), and copies of
 * the driver in other namespaces. Walks the loaded objects: only for the end of the process. */
void vs_escape_note(void);

#endif
