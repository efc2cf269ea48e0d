/*
 * Is compute-sanitizer at work in this process?
 */
#ifndef VS_SHIM_SANITIZER_H
#define VS_SHIM_SANITIZER_H

#include <stdbool.h>

/* For the time after cuInit, which loads it. Reads the process's list of mappings, some hundred
 * microseconds; takes no lock. */
bool vs_sanitizer_present(void);

#endif
