/*
 * Leaks: what is still live at the end, grouped by device, kind, size, and whether its context took
 * it along. Largest totals first. Bounded: what finds no place is summed per device.
 */
#ifndef VS_REPORT_LEAKS_H
#define VS_REPORT_LEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/ledger.h"

#define VS_LEAKS_LISTED 256

struct vs_leak {
    uint64_t size_bytes;  /* of each; 0: various (the sum of what found no place) */
    uint64_t total_bytes; /* of all */
    uint64_t count;
    uint32_t device;
    uint32_t kind;     /* VS_KIND_COUNT: various */
    bool with_context; /* its context died first and took it along */
};

struct vs_leaks {
    uint32_t count; /* of entries in use: groups by total, then one sum per device that needs one */
    uint32_t spare;
    struct vs_leak leak[VS_LEAKS_LISTED + VS_LEDGER_MAX_DEVICES];
};

/* Collecting: open, add any number, close. */
struct vs_leaks_grouping {
    struct vs_leak *group; /* mapped; open addressing */
    size_t places;         /* a power of two; 0: no memory, everything is summed */
    size_t used;
    struct vs_leak rest[VS_LEDGER_MAX_DEVICES];
};

/* expected: how many distinct groups there can be at most; bounded inside. */
void vs_leaks_open(struct vs_leaks_grouping *grouping, size_t expected);

/* Adds count allocations of size_bytes each. */
void vs_leaks_add(struct vs_leaks_grouping *grouping, uint32_t device, uint32_t kind,
                  uint64_t size_bytes, uint64_t count, bool with_context);

/* Adds to the device's sum directly. */
void vs_leaks_add_rest(struct vs_leaks_grouping *grouping, uint32_t device, uint64_t total_bytes,
                       uint64_t count);

/* Sorts, fills *leaks and gives the memory back. */
void vs_leaks_close(struct vs_leaks_grouping *grouping, struct vs_leaks *leaks);

#endif
