/*
 * Text into fixed buffers: a small subset of printf, and values made safe to show.
 *
 * No malloc, no stdio, no locale; safe in signal handlers and at the very end of a process. Nothing
 * here fails: what does not fit is cut, and the result always ends in a NUL (when size > 0).
 */
#ifndef VS_SHIM_TEXT_H
#define VS_SHIM_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Like snprintf for %s %.*s %c %d %i %u %x %p and %%, with the lengths l, ll, z and j; no flags, no
 * widths. Returns the number of bytes written, without the NUL (never what would have been
 * written). A conversion outside the subset is copied as it stands and the rest of the format with
 * it.
 */
size_t vs_text_format(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
size_t vs_text_vformat(char *out, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* Big enough for a value shown in a message. */
#define VS_TEXT_SHOWN 96

/*
 * Copies length bytes of a foreign value so that they can be shown on a terminal: printable ASCII
 * as it is, everything else (and the backslash and the double quote) escaped, a long value cut and
 * ended with "...". Returns out. size must be at least 8.
 */
const char *vs_text_escape(char *out, size_t size, const char *value, size_t length);

/* Whether the first length bytes are the same but for the case of ASCII letters. Both must have
 * that many, or end in a NUL earlier (strncasecmp would ask the locale). */
bool vs_text_alike(const char *a, const char *b, size_t length);

#endif
