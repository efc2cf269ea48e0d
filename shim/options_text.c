/*
 * Resolved options as text: what `vramshim options` shows, what is announced, what the report
 * dumps. Each text parses to the value again.
 */
#include "shim/options.h"

#include <string.h>

#include "shim/text.h"

static const char *choice_text(const char *choices, int at, char *out, size_t size)
{
    for (; at > 0; at--) {
        choices += strcspn(choices, ",") + 1;
    }
    vs_text_format(out, size, "%.*s", (int)strcspn(choices, ","), choices);
    return out;
}

static const char *size_text(uint64_t bytes, char *out)
{
    return bytes == VS_OPTIONS_NO_SIZE ? "none" : vs_size_text(out, bytes);
}

static const char *integer_text(int64_t value, char *out, size_t size)
{
    if (value == VS_OPTIONS_NO_INTEGER) {
        return "none";
    }
    vs_text_format(out, size, "%jd", (intmax_t)value);
    return out;
}

static const char *cap_text(const struct vs_cap *cap, char *out, size_t size)
{
    if (cap->count == 0) {
        return "none";
    }
    vs_cap_text(cap, out, size);
    return out;
}

const char *vs_options_text(const struct vs_options *options, enum vs_option option, char *out,
                            size_t size)
{
    const struct vs_option_info *info = &vs_options_table[option];
    const void *field = (const char *)options + info->offset;
    const struct vs_amount *amount = field;
    const char *string = field;

    if (size < VS_SIZE_TEXT) {
        return "";
    }
    switch (info->kind) {
    case VS_OPTION_IS_BOOL:
        return *(const bool *)field ? "on" : "off";
    case VS_OPTION_IS_CHOICE:
        return choice_text(info->choices, *(const int *)field, out, size);
    case VS_OPTION_IS_SIZE:
        return size_text(*(const uint64_t *)field, out);
    case VS_OPTION_IS_INTEGER:
        return integer_text(*(const int64_t *)field, out, size);
    case VS_OPTION_IS_CAP:
        return cap_text(field, out, size);
    case VS_OPTION_IS_AMOUNT:
        return amount->bytes || amount->ppb ? vs_size_amount_text(out, *amount) : "none";
    case VS_OPTION_IS_FRACTION:
        return *(const uint32_t *)field ? vs_size_fraction_text(out, *(const uint32_t *)field)
                                        : "none";
    case VS_OPTION_IS_NAME:
    case VS_OPTION_IS_PATH:
    case VS_OPTION_IS_REPORT:
    case VS_OPTION_IS_DIR:
        return string[0] ? string : "none";
    }
    return "";
}

size_t vs_options_dump(const struct vs_options *options, struct vs_options_dump *dump)
{
    size_t used = 0;

    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        char *space = dump->space + used;
        const char *text =
            vs_options_text(options, (enum vs_option)i, space, sizeof(dump->space) - used);

        dump->options[i] = (struct vs_report_option){vs_options_table[i].name, text};
        if (text == space) {
            used += strlen(text) + 1;
        }
    }
    return VS_OPTION_COUNT;
}
