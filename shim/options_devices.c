/*
 * Caps against the devices that are there (see options.h): which entry holds for which device, what
 * it comes to in bytes, and what has to be refused once the devices are known.
 */
#include "shim/options.h"

#include <errno.h>
#include <string.h>

#include "shim/say.h"
#include "shim/text.h"

int vs_options_limit_for(const struct vs_options *options, unsigned index, const char *uuid,
                         uint64_t total_bytes, uint64_t *limit)
{
    const struct vs_cap_entry *entry = vs_cap_find(&options->limit, index, uuid);
    uint64_t least = 0;

    *limit = 0;
    if (total_bytes == 0) {
        return entry || options->fraction_ppb ? -EINVAL : 0;
    }
    if (entry) {
        least = vs_size_of_amount(entry->amount, total_bytes);
    }
    if (options->fraction_ppb) {
        uint64_t part =
            vs_size_of_amount((struct vs_amount){.ppb = options->fraction_ppb}, total_bytes);

        if (least == 0 || part < least) {
            least = part;
        }
    }
    *limit = least;
    return 0;
}

int vs_options_group_limit_for(const struct vs_options *options, uint64_t total_bytes,
                               uint64_t *limit)
{
    *limit = 0;
    if (options->group_limit.bytes == 0 && options->group_limit.ppb == 0) {
        return 0;
    }
    if (total_bytes == 0) {
        return -EINVAL;
    }
    *limit = vs_size_of_amount(options->group_limit, total_bytes);
    return 0;
}

/* One refusal or warning that closes with what is accepted. */
static void say(const struct vs_options_listener *listener, enum vs_option option,
                const char *verdict, const char *why, const char *detail)
{
    char line[VS_SAY_MAX];

    if (!listener || !listener->say) {
        return;
    }
    vs_text_format(line, sizeof(line), "%s %s: %s%s; accepted: %s", vs_options_table[option].name,
                   verdict, why, detail, vs_options_table[option].accepted);
    listener->say(listener->context, VS_SAY_ERROR, option, line);
}

struct found {
    unsigned matches; /* devices that the entry names */
    unsigned device;  /* the last of them */
    unsigned other;   /* an earlier entry that names the same device */
    bool overlaps;
};

static struct found match(const struct vs_cap *cap, unsigned at,
                          const struct vs_options_device *devices, unsigned count)
{
    struct found found = {0};

    for (unsigned device = 0; device < count; device++) {
        if (!vs_cap_matches(&cap->entries[at], device, devices[device].uuid)) {
            continue;
        }
        found.matches++;
        found.device = device;
        for (unsigned other = 0; other < at; other++) {
            if (vs_cap_matches(&cap->entries[other], device, devices[device].uuid)) {
                found.overlaps = true;
                found.other = other;
            }
        }
    }
    return found;
}

static int check_list(const struct vs_cap *cap, const struct vs_options_device *devices,
                      unsigned count, const struct vs_options_listener *listener)
{
    char unmatched[512], one[VS_CAP_UUID_SIZE + VS_SIZE_TEXT], two[sizeof(one)];
    char detail[2 * sizeof(one) + 64];
    unsigned matched = 0;
    size_t used = 0;
    int result = 0;

    unmatched[0] = '\0';
    for (unsigned i = 0; i < cap->count; i++) {
        struct found found = match(cap, i, devices, count);

        vs_cap_entry_text(&cap->entries[i], one, sizeof(one));
        if (found.matches > 1) {
            vs_text_format(detail, sizeof(detail), "\"%s\" (%u devices)", one, found.matches);
            say(listener, VS_OPTION_LIMIT, "refused",
                "an entry names more than one device: ", detail);
            result = VS_OPTIONS_BAD_CAP;
        } else if (found.overlaps) {
            vs_cap_entry_text(&cap->entries[found.other], two, sizeof(two));
            vs_text_format(detail, sizeof(detail), "\"%s\" and \"%s\" (device %u)", two, one,
                           found.device);
            say(listener, VS_OPTION_LIMIT, "refused", "two entries name the same device: ", detail);
            result = VS_OPTIONS_BAD_CAP;
        }
        if (found.matches > 0) {
            matched++;
        } else {
            used += vs_text_format(unmatched + used, sizeof(unmatched) - used, "%s\"%s\"",
                                   used ? ", " : "", one);
        }
    }
    if (matched == 0) {
        say(listener, VS_OPTION_LIMIT, "refused", "the list names no visible device: ", unmatched);
        return VS_OPTIONS_BAD_CAP;
    }
    if (used) {
        say(listener, VS_OPTION_LIMIT, "warning", "no visible device for ", unmatched);
    }
    return result;
}

static int check_pool_size(const struct vs_options *options,
                           const struct vs_options_device *devices, unsigned count,
                           const struct vs_options_listener *listener)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t limit = 0, group = 0;
        char size[VS_SIZE_TEXT], cap[VS_SIZE_TEXT];
        char detail[128];

        if (vs_options_limit_for(options, i, devices[i].uuid, devices[i].total_bytes, &limit) ||
            vs_options_group_limit_for(options, devices[i].total_bytes, &group)) {
            continue;
        }
        if (limit == 0 || (group && group < limit)) {
            limit = group;
        }
        if (limit == 0 || options->pool_size <= limit) {
            continue;
        }
        vs_text_format(detail, sizeof(detail), "%s of %s on device %u",
                       vs_size_text(size, options->pool_size), vs_size_text(cap, limit), i);
        say(listener, VS_OPTION_POOL_SIZE, "refused", "more than the cap: ", detail);
        return VS_OPTIONS_BAD_CAP;
    }
    return 0;
}

int vs_options_check_devices(const struct vs_options *options,
                             const struct vs_options_device *devices, unsigned count,
                             const struct vs_options_listener *listener)
{
    const struct vs_cap *cap = &options->limit;
    int result = 0, size;

    if (count == 0) {
        return 0;
    }
    if (cap->count > 0 && cap->entries[0].index != VS_CAP_EVERY) {
        result = check_list(cap, devices, count, listener);
    }
    size = check_pool_size(options, devices, count, listener);
    return result ? result : size;
}
