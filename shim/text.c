/*
 * Text into fixed buffers (see text.h). One cursor that refuses to pass the end of its buffer does
 * all the bounds checking; everything else only appends to it.
 */
#include "shim/text.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct cursor {
    char *out;
    size_t size; /* room for text, the NUL not counted */
    size_t used;
};

static void put(struct cursor *to, const char *text, size_t length)
{
    size_t room = to->size - to->used;

    if (length > room) {
        length = room;
    }
    if (length > 0) {
        memcpy(to->out + to->used, text, length);
    }
    to->used += length;
}

static void put_number(struct cursor *to, uintmax_t value, unsigned base)
{
    char digits[sizeof(value) * CHAR_BIT];
    size_t at = sizeof(digits);

    do {
        digits[--at] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value > 0);
    put(to, digits + at, sizeof(digits) - at);
}

enum width { WIDTH_INT, WIDTH_LONG, WIDTH_LONG_LONG, WIDTH_SIZE, WIDTH_MAX };

static enum width read_width(const char **format)
{
    const char *at = *format;
    enum width width = WIDTH_INT;

    if (*at == 'l') {
        width = WIDTH_LONG;
        at++;
        if (*at == 'l') {
            width = WIDTH_LONG_LONG;
            at++;
        }
    } else if (*at == 'z') {
        width = WIDTH_SIZE;
        at++;
    } else if (*at == 'j') {
        width = WIDTH_MAX;
        at++;
    }
    *format = at;
    return width;
}

/* A va_list that is handed down by value may not be used by the caller afterwards: hence the
 * struct. */
struct arguments {
    va_list list;
};

static uintmax_t take_unsigned(struct arguments *from, enum width width)
{
    switch (width) {
    case WIDTH_LONG:
        return va_arg(from->list, unsigned long);
    case WIDTH_LONG_LONG:
        return va_arg(from->list, unsigned long long);
    case WIDTH_SIZE:
        return va_arg(from->list, size_t);
    case WIDTH_MAX:
        return va_arg(from->list, uintmax_t);
    default:
        return va_arg(from->list, unsigned);
    }
}

static intmax_t take_signed(struct arguments *from, enum width width)
{
    switch (width) {
    case WIDTH_LONG:
        return va_arg(from->list, long);
    case WIDTH_LONG_LONG:
        return va_arg(from->list, long long);
    case WIDTH_SIZE:
        return (intmax_t)va_arg(from->list, size_t);
    case WIDTH_MAX:
        return va_arg(from->list, intmax_t);
    default:
        return va_arg(from->list, int);
    }
}

static void put_string(struct cursor *to, const char *text, int precision)
{
    if (!text) {
        text = "(null)";
    }
    put(to, text, precision < 0 ? strlen(text) : strnlen(text, (size_t)precision));
}

static void put_signed(struct cursor *to, intmax_t value)
{
    if (value < 0) {
        put(to, "-", 1);
    }
    put_number(to, value < 0 ? -(uintmax_t)value : (uintmax_t)value, 10);
}

/* One conversion; *format points behind the '%'. False if it is outside the subset. */
static bool convert(struct cursor *to, const char **format, struct arguments *from)
{
    int precision = -1;
    enum width width;
    char letter;

    if (strncmp(*format, ".*s", 3) == 0) {
        precision = va_arg(from->list, int);
        *format += 2;
    }
    width = read_width(format);
    letter = **format;
    switch (letter) {
    case '%':
        put(to, "%", 1);
        break;
    case 's':
        put_string(to, va_arg(from->list, const char *), precision);
        break;
    case 'c':
        letter = (char)va_arg(from->list, int);
        put(to, &letter, 1);
        break;
    case 'd':
    case 'i':
        put_signed(to, take_signed(from, width));
        break;
    case 'u':
        put_number(to, take_unsigned(from, width), 10);
        break;
    case 'x':
        put_number(to, take_unsigned(from, width), 16);
        break;
    case 'p':
        put(to, "0x", 2);
        put_number(to, (uintptr_t)va_arg(from->list, void *), 16);
        break;
    default:
        return false;
    }
    (*format)++;
    return true;
}

size_t vs_text_vformat(char *out, size_t size, const char *format, va_list arguments)
{
    struct cursor to = {.out = out, .size = size > 0 ? size - 1 : 0};
    struct arguments from;

    va_copy(from.list, arguments);
    while (*format) {
        size_t plain = strcspn(format, "%");
        const char *conversion = format + plain;

        put(&to, format, plain);
        format = conversion;
        if (*format == '\0') {
            break;
        }
        format++;
        if (!convert(&to, &format, &from)) {
            put(&to, conversion, strlen(conversion));
            break;
        }
    }
    va_end(from.list);
    if (size > 0) {
        out[to.used] = '\0';
    }
    return to.used;
}

size_t vs_text_format(char *out, size_t size, const char *format, ...)
{
    va_list arguments;
    size_t used;

    va_start(arguments, format);
    used = vs_text_vformat(out, size, format, arguments);
    va_end(arguments);
    return used;
}

static size_t escape_byte(char piece[8], unsigned char byte)
{
    if (byte == '\n') {
        return vs_text_format(piece, 8, "\\n");
    }
    if (byte == '\t') {
        return vs_text_format(piece, 8, "\\t");
    }
    if (byte == '\\' || byte == '"') {
        return vs_text_format(piece, 8, "\\%c", byte);
    }
    if (byte >= 0x20 && byte < 0x7f) {
        return vs_text_format(piece, 8, "%c", byte);
    }
    return vs_text_format(piece, 8, "\\x%x%x", byte >> 4, byte & 15U);
}

const char *vs_text_escape(char *out, size_t size, const char *value, size_t length)
{
    static const char dots[] = "...";
    struct cursor to = {.out = out, .size = size - 1};
    size_t cut_at = 0; /* the end of the last piece behind which the dots still fit */

    for (size_t i = 0; i < length; i++) {
        char piece[8];
        size_t used = escape_byte(piece, (unsigned char)value[i]);

        if (to.used + strlen(dots) <= to.size) {
            cut_at = to.used;
        }
        if (used > to.size - to.used) {
            to.used = cut_at;
            put(&to, dots, strlen(dots));
            break;
        }
        put(&to, piece, used);
    }
    out[to.used] = '\0';
    return out;
}

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

bool vs_text_alike(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (lower(a[i]) != lower(b[i])) {
            return false;
        }
        if (a[i] == '\0') {
            break;
        }
    }
    return true;
}
