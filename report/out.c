/* The output buffer of emit.h: writing to descriptors, and plain numbers. */
#include "report/emit.h"

#include <errno.h>
#include <string.h>

#include "report/quiet.h"

void vs_out_to_fd(struct vs_out *out, int fd, char *buffer, size_t size)
{
    *out = (struct vs_out){
        .fd = fd, .buffer = buffer, .size = size, .patience_ms = VS_QUIET_PATIENCE_MS};
}

void vs_out_to_memory(struct vs_out *out, char *memory, size_t size)
{
    *out = (struct vs_out){.fd = -1, .buffer = memory, .size = size};
    memory[0] = '\0';
}

int vs_out_flush(struct vs_out *out)
{
    if (out->fd < 0) {
        return out->error;
    }
    if (out->error == 0 && out->used > 0) {
        out->error = vs_quiet_write(out->fd, out->buffer, out->used, &out->patience_ms);
    }
    out->used = 0;
    return out->error;
}

void vs_out_raw(struct vs_out *out, const char *from, size_t length)
{
    while (length > 0 && out->error == 0) {
        size_t room = out->size - out->used;
        size_t part = length < room ? length : room;
        memcpy(out->buffer + out->used, from, part);
        out->used += part;
        from += part;
        length -= part;
        if (out->fd < 0) {
            out->buffer[out->used] = '\0';
            if (length > 0) {
                out->error = -ENOSPC;
            }
        } else if (out->used == out->size) {
            vs_out_flush(out);
        }
    }
}

void vs_out_char(struct vs_out *out, char c)
{
    vs_out_raw(out, &c, 1);
}

void vs_out_str(struct vs_out *out, const char *text)
{
    vs_out_raw(out, text, strlen(text));
}

/* Decimal digits of value, right-aligned in to[20]; returns where they begin. */
static unsigned digits_of(uint64_t value, char to[20])
{
    unsigned at = 20;
    do {
        to[--at] = (char)('0' + value % 10);
    } while ((value /= 10) != 0);
    return at;
}

void vs_out_padded(struct vs_out *out, uint64_t value, unsigned digits)
{
    char text[20];
    unsigned at = digits_of(value, text);
    for (unsigned have = 20 - at; have < digits; have++) {
        vs_out_char(out, '0');
    }
    vs_out_raw(out, text + at, 20 - at);
}

void vs_out_u64(struct vs_out *out, uint64_t value)
{
    vs_out_padded(out, value, 1);
}

void vs_out_grouped(struct vs_out *out, uint64_t value)
{
    char text[20];
    for (unsigned at = digits_of(value, text); at < 20; at++) {
        vs_out_char(out, text[at]);
        if ((19 - at) % 3 == 0 && at != 19) {
            vs_out_char(out, ',');
        }
    }
}

void vs_out_ratio(struct vs_out *out, uint64_t numerator, uint64_t denominator, unsigned decimals)
{
    uint64_t scale = 1;
    for (unsigned i = 0; i < decimals; i++) {
        scale *= 10;
    }
    uint64_t whole = numerator / denominator;
    unsigned __int128 rest = numerator % denominator;
    uint64_t part =
        (uint64_t)((rest * scale * 2 + denominator) / ((unsigned __int128)denominator * 2));
    if (part == scale) {
        whole++;
        part = 0;
    }
    vs_out_u64(out, whole);
    if (decimals) {
        vs_out_char(out, '.');
        vs_out_padded(out, part, decimals);
    }
}
