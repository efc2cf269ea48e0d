/* Checking UTF-8, one character at a time. */
#ifndef VS_REPORT_UTF8_H
#define VS_REPORT_UTF8_H

#include <stddef.h>

#define VS_UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Bytes of the character at text (closed by a NUL): 1 to 4; 0 if none is valid there (a stray or
 * missing continuation, an overlong form, a surrogate, beyond U+10FFFF). text[0] is not NUL. */
static inline size_t vs_utf8_length(const char *text)
{
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        return 1;
    }
    if (b[0] < 0xc2 || b[0] > 0xf4) {
        return 0;
    }
    if ((b[1] & 0xc0) != 0x80) {
        return 0;
    }
    if (b[0] < 0xe0) {
        return 2;
    }
    if ((b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xed && b[1] > 0x9f) ||
        (b[0] == 0xf0 && b[1] < 0x90) || (b[0] == 0xf4 && b[1] > 0x8f)) {
        return 0;
    }
    if ((b[2] & 0xc0) != 0x80) {
        return 0;
    }
    if (b[0] < 0xf0) {
        return 3;
    }
    return (b[3] & 0xc0) == 0x80 ? 4 : 0;
}

#endif
