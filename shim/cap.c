/*
 * A cap for one or all devices (see cap.h). Only spelling is judged here; whether the devices exist
 * is known when the driver has been asked (options_devices.c).
 */
#include "shim/cap.h"

#include <string.h>

#include "shim/text.h"

static void trim(const char **text, size_t *length)
{
    while (*length > 0 && ((*text)[0] == ' ' || (*text)[0] == '\t')) {
        (*text)++;
        (*length)--;
    }
    while (*length > 0 && ((*text)[*length - 1] == ' ' || (*text)[*length - 1] == '\t')) {
        (*length)--;
    }
}

static bool is_uuid_character(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '/';
}

static const char *parse_device(const char *text, size_t length, struct vs_cap_entry *entry)
{
    int64_t index;

    if (length > 0 && text[0] >= '0' && text[0] <= '9') {
        if (vs_size_parse_integer(text, length, 0, VS_CAP_MAX_INDEX, &index)) {
            return "the device is neither an index nor a UUID";
        }
        entry->index = (int)index;
        return NULL;
    }
    if (length < 5 || (!vs_text_alike(text, "GPU-", 4) && !vs_text_alike(text, "MIG-", 4))) {
        return "a device is named by its index, or by a UUID that begins with GPU- or MIG-";
    }
    if (length >= sizeof(entry->uuid)) {
        return "the UUID is too long";
    }
    for (size_t i = 0; i < length; i++) {
        if (!is_uuid_character(text[i])) {
            return "the UUID has a character that no UUID has";
        }
    }
    entry->index = VS_CAP_BY_UUID;
    memcpy(entry->uuid, text, length);
    entry->uuid[length] = '\0';
    return NULL;
}

static bool same_device(const struct vs_cap_entry *a, const struct vs_cap_entry *b)
{
    return a->index == b->index && vs_text_alike(a->uuid, b->uuid, sizeof(a->uuid));
}

static const char *parse_entry(const char *text, size_t length, struct vs_cap *cap)
{
    const char *equals = length > 0 ? memchr(text, '=', length) : NULL;
    struct vs_cap_entry *entry = &cap->entries[cap->count];
    size_t device_length;
    const char *device = text, *amount, *why;
    size_t amount_length;

    if (length == 0) {
        return "an entry of the list is empty";
    }
    if (!equals) {
        return "an entry of the list names no device";
    }
    if (cap->count == VS_CAP_MAX_ENTRIES) {
        return "the list is too long";
    }
    device_length = (size_t)(equals - text);
    amount = equals + 1;
    amount_length = length - device_length - 1;
    trim(&device, &device_length);
    trim(&amount, &amount_length);
    why = parse_device(device, device_length, entry);
    if (!why) {
        why = vs_size_parse_amount(amount, amount_length, &entry->amount);
    }
    if (why) {
        return why;
    }
    for (unsigned i = 0; i < cap->count; i++) {
        if (same_device(&cap->entries[i], entry)) {
            return "the device is named twice";
        }
    }
    cap->count++;
    return NULL;
}

const char *vs_cap_parse(const char *text, size_t length, struct vs_cap *cap, const char **item,
                         size_t *item_length)
{
    const char *why = NULL;

    memset(cap, 0, sizeof(*cap));
    trim(&text, &length);
    *item = text;
    *item_length = length;
    if (length == 0 || (!memchr(text, '=', length) && !memchr(text, ',', length))) {
        why = vs_size_parse_amount(text, length, &cap->entries[0].amount);
        if (!why) {
            cap->entries[0].index = VS_CAP_EVERY;
            cap->count = 1;
        }
        return why;
    }
    for (;;) {
        const char *comma = length > 0 ? memchr(text, ',', length) : NULL;

        *item = text;
        *item_length = comma ? (size_t)(comma - text) : length;
        trim(item, item_length);
        why = parse_entry(*item, *item_length, cap);
        if (why) {
            memset(cap, 0, sizeof(*cap));
        }
        if (why || !comma) {
            return why;
        }
        length -= (size_t)(comma - text) + 1;
        text = comma + 1;
    }
}

bool vs_cap_matches(const struct vs_cap_entry *entry, unsigned index, const char *uuid)
{
    if (entry->index == VS_CAP_EVERY) {
        return true;
    }
    if (entry->index == VS_CAP_BY_UUID) {
        return uuid && vs_text_alike(uuid, entry->uuid, strlen(entry->uuid));
    }
    return (unsigned)entry->index == index;
}

const struct vs_cap_entry *vs_cap_find(const struct vs_cap *cap, unsigned index, const char *uuid)
{
    for (unsigned i = 0; i < cap->count; i++) {
        if (vs_cap_matches(&cap->entries[i], index, uuid)) {
            return &cap->entries[i];
        }
    }
    return NULL;
}

size_t vs_cap_entry_text(const struct vs_cap_entry *entry, char *out, size_t size)
{
    char amount[VS_SIZE_TEXT];

    vs_size_amount_text(amount, entry->amount);
    if (entry->index == VS_CAP_EVERY) {
        return vs_text_format(out, size, "%s", amount);
    }
    if (entry->index == VS_CAP_BY_UUID) {
        return vs_text_format(out, size, "%s=%s", entry->uuid, amount);
    }
    return vs_text_format(out, size, "%d=%s", entry->index, amount);
}

size_t vs_cap_text(const struct vs_cap *cap, char *out, size_t size)
{
    size_t used = 0;

    for (unsigned i = 0; i < cap->count; i++) {
        if (i > 0) {
            used += vs_text_format(out + used, size - used, ",");
        }
        used += vs_cap_entry_text(&cap->entries[i], out + used, size - used);
    }
    return used;
}
