/*
 * A cap as VRAMSHIM_LIMIT states it: one amount for every device, or a list of amounts per device.
 *
 * Pure data: knows no environment and no driver. A device is named by its index in the process's
 * own numbering, or by a UUID or a prefix of one, as CUDA_VISIBLE_DEVICES takes them.
 */
#ifndef VS_SHIM_CAP_H
#define VS_SHIM_CAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/size.h"

#define VS_CAP_MAX_ENTRIES 64
#define VS_CAP_MAX_INDEX 999
#define VS_CAP_UUID_SIZE 64

enum { VS_CAP_EVERY = -1, VS_CAP_BY_UUID = -2 };

struct vs_cap_entry {
    int index;                   /* 0 … VS_CAP_MAX_INDEX, VS_CAP_EVERY or VS_CAP_BY_UUID */
    char uuid[VS_CAP_UUID_SIZE]; /* as written, when by UUID: "GPU-8932f937" */
    struct vs_amount amount;
};

/* count 0: no cap. VS_CAP_EVERY stands alone. No two entries are spelled alike. */
struct vs_cap {
    unsigned count;
    struct vs_cap_entry entries[VS_CAP_MAX_ENTRIES];
};

/*
 * Parses "8GiB", "50%" or "0=8GiB,GPU-8932f937=50%". NULL if fine; else a static phrase that says
 * what is wrong, *item and *item_length are the list entry at fault (the whole text when it is no
 * list) and *cap is empty.
 */
const char *vs_cap_parse(const char *text, size_t length, struct vs_cap *cap, const char **item,
                         size_t *item_length);

/* Whether the entry names this device. uuid may be NULL (unknown). Prefixes match in either case.
 */
bool vs_cap_matches(const struct vs_cap_entry *entry, unsigned index, const char *uuid);

/* The entry that holds for this device, NULL if none does. */
const struct vs_cap_entry *vs_cap_find(const struct vs_cap *cap, unsigned index, const char *uuid);

/* One entry, or the whole cap, as vs_cap_parse reads it. Returns the length (cut if it does not
 * fit; VS_CAP_TEXT is enough for any cap). */
#define VS_CAP_TEXT (VS_CAP_MAX_ENTRIES * (VS_CAP_UUID_SIZE + VS_SIZE_TEXT))
size_t vs_cap_entry_text(const struct vs_cap_entry *entry, char *out, size_t size);
size_t vs_cap_text(const struct vs_cap *cap, char *out, size_t size);

#endif
