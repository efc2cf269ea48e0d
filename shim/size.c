/*
 * Numbers that people write (see size.h). All of it is digit loops over a slice: strtoull takes
 * signs and blanks, strtod asks the locale what a decimal point is.
 */
#include "shim/size.h"

#include <stdbool.h>
#include <string.h>

#include "shim/text.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && vs_text_alike(text, word, length);
}

/* Reads digits into *value; returns how many. Stops counting up at limit, so *value > limit then
 * means "too large". limit must be below UINT64_MAX / 10 - 1 or exactly INT64_MAX. */
static size_t read_digits(const char *text, size_t length, uint64_t limit, uint64_t *value)
{
    size_t at = 0;

    *value = 0;
    for (; at < length && is_digit(text[at]); at++) {
        unsigned digit = (unsigned)(text[at] - '0');

        if (*value > limit) {
            continue;
        }
        if (*value > (limit - digit) / 10) {
            *value = limit + 1;
        } else {
            *value = *value * 10 + digit;
        }
    }
    return at;
}

static const char *const decimal_unit_problem[] = {
    "KB may mean 1000 or 1024 bytes, write KiB",
    "MB may mean 1000 or 1024 KB, write MiB",
    "GB may mean 1000 or 1024 MB, write GiB",
    "TB may mean 1000 or 1024 GB, write TiB",
};

static const char *read_unit(const char *text, size_t length, unsigned *shift)
{
    static const char letters[] = "kmgt";
    const char *letter;

    *shift = 0;
    if (length == 0) {
        return NULL;
    }
    if (text[0] == '.' || text[0] == ',') {
        return "a size is a whole number, write 1536MiB for 1.5 GiB";
    }
    if (text[0] == ' ') {
        return "there must be no blank before the unit";
    }
    letter = text[0] ? strchr(letters, lower(text[0])) : NULL;
    if (!letter) {
        return "the unit is unknown";
    }
    *shift = 10 * (unsigned)(letter - letters + 1);
    if (length == 1 || is(text + 1, length - 1, "ib")) {
        return NULL;
    }
    if (is(text + 1, length - 1, "b")) {
        return decimal_unit_problem[letter - letters];
    }
    return "the unit is unknown";
}

const char *vs_size_parse(const char *text, size_t length, uint64_t *bytes)
{
    uint64_t value;
    unsigned shift;
    const char *why;
    size_t digits;

    if (length == 0) {
        return "there is no number";
    }
    if (text[0] == '-') {
        return "a size cannot be negative";
    }
    digits = read_digits(text, length, INT64_MAX, &value);
    if (digits == 0) {
        return "it does not begin with a digit";
    }
    why = read_unit(text + digits, length - digits, &shift);
    if (why) {
        return why;
    }
    if (value > (uint64_t)INT64_MAX >> shift) {
        return "the size is too large";
    }
    *bytes = value << shift;
    return NULL;
}

const char *vs_size_parse_integer(const char *text, size_t length, int64_t low, int64_t high,
                                  int64_t *value)
{
    bool negative = length > 0 && text[0] == '-';
    uint64_t magnitude;
    int64_t number;

    if (negative) {
        text++;
        length--;
    }
    if (length == 0 || read_digits(text, length, INT64_MAX, &magnitude) != length) {
        return "it is not a whole number";
    }
    if (magnitude > INT64_MAX) {
        return "it is out of range";
    }
    number = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    if (number < low || number > high) {
        return "it is out of range";
    }
    *value = number;
    return NULL;
}

/*
 * A decimal number in (0, VS_SIZE_WHOLE / 10^places], as parts per billion of the upper end: places
 * is 9 for fractions and 7 for percentages, the digits that still count behind the point.
 */
static const char *parse_share(const char *text, size_t length, unsigned places, uint32_t *ppb)
{
    const char *const not_a_number = "it is not a decimal number";
    const char *const too_large = places == 9 ? "it is more than 1" : "it is more than 100%";
    uint64_t value, scale = 1;
    bool rest = false;
    size_t at, whole_digits;

    if (length > 0 && text[0] == '-') {
        return "it is negative";
    }
    for (unsigned i = 0; i < places; i++) {
        scale *= 10;
    }
    at = whole_digits = read_digits(text, length, VS_SIZE_WHOLE, &value);
    if (value > VS_SIZE_WHOLE) {
        return too_large;
    }
    value *= scale;
    if (at < length && text[at] == ',') {
        return "the decimal mark is a point";
    }
    if (at < length && text[at] == '.') {
        at++;
        for (; at < length && is_digit(text[at]); at++) {
            scale /= 10;
            value += scale * (uint64_t)(text[at] - '0');
            rest = rest || (scale == 0 && text[at] != '0');
        }
        if (whole_digits == 0 && at == 1) {
            return not_a_number;
        }
    } else if (whole_digits == 0) {
        return not_a_number;
    }
    if (at != length) {
        return not_a_number;
    }
    if (value > VS_SIZE_WHOLE || (value == VS_SIZE_WHOLE && rest)) {
        return too_large;
    }
    if (value == 0) {
        return rest ? "it is too small" : "0 would allow nothing";
    }
    *ppb = (uint32_t)value;
    return NULL;
}

const char *vs_size_parse_fraction(const char *text, size_t length, uint32_t *ppb)
{
    if (length > 0 && text[length - 1] == '%') {
        return "a percentage belongs into VRAMSHIM_LIMIT";
    }
    return parse_share(text, length, 9, ppb);
}

const char *vs_size_parse_amount(const char *text, size_t length, struct vs_amount *amount)
{
    struct vs_amount result = {0, 0};
    const char *why;

    if (length > 0 && text[length - 1] == '%') {
        why = parse_share(text, length - 1, 7, &result.ppb);
    } else {
        why = vs_size_parse(text, length, &result.bytes);
        if (!why && result.bytes == 0) {
            why = "0 would allow nothing";
        }
    }
    if (!why) {
        *amount = result;
    }
    return why;
}

uint64_t vs_size_of_amount(struct vs_amount amount, uint64_t total)
{
    uint64_t bytes = amount.bytes;

    if (bytes == 0) { /* exact, and without a 128-bit product: the remainder is below 10^9 */
        bytes =
            total / VS_SIZE_WHOLE * amount.ppb + total % VS_SIZE_WHOLE * amount.ppb / VS_SIZE_WHOLE;
    }
    if (bytes > total) {
        bytes = total;
    }
    return bytes > 0 ? bytes : 1;
}

const char *vs_size_text(char out[VS_SIZE_TEXT], uint64_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;

    while (bytes > 0 && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    vs_text_format(out, VS_SIZE_TEXT, "%ju%s", (uintmax_t)bytes, units[unit]);
    return out;
}

static void share_text(char *out, uint32_t ppb, unsigned places, const char *unit)
{
    char digits[10];
    uint32_t scale = 1;
    uint32_t part;
    unsigned used = places;

    for (unsigned i = 0; i < places; i++) {
        scale *= 10;
    }
    part = ppb % scale;
    for (unsigned i = places; i > 0; i--) {
        digits[i - 1] = (char)('0' + part % 10);
        part /= 10;
    }
    while (used > 0 && digits[used - 1] == '0') {
        used--;
    }
    vs_text_format(out, VS_SIZE_TEXT, "%u%s%.*s%s", ppb / scale, used > 0 ? "." : "", (int)used,
                   digits, unit);
}

const char *vs_size_fraction_text(char out[VS_SIZE_TEXT], uint32_t ppb)
{
    share_text(out, ppb, 9, "");
    return out;
}

const char *vs_size_amount_text(char out[VS_SIZE_TEXT], struct vs_amount amount)
{
    if (amount.bytes > 0) {
        vs_size_text(out, amount.bytes);
    } else {
        share_text(out, amount.ppb, 7, "%");
    }
    return out;
}
