/*
 * Writing text and JSON without malloc, stdio or locale.
 *
 * vs_out is a buffer in front of a descriptor (or of plain memory); vs_json writes one JSON value
 * through it, keeping track of commas and indentation. The first error sticks: later calls do
 * nothing, and vs_out_flush returns it. Not thread-safe; errno is left as it was found.
 *
 * JSON strings and text from outside are written as valid UTF-8: bytes that are not, become U+FFFD.
 */
#ifndef VS_REPORT_EMIT_H
#define VS_REPORT_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vs_out {
    int fd; /* < 0: into memory, what does not fit is cut off */
    int error;
    int patience_ms; /* left for a descriptor that is full */
    char *buffer;
    size_t size;
    size_t used;
};

/* Writes as quiet.h does: in all at most two seconds are spent waiting for the descriptor. */
void vs_out_to_fd(struct vs_out *out, int fd, char *buffer, size_t size);

/* Keeps memory[] closed by a NUL; memory has size + 1 bytes. */
void vs_out_to_memory(struct vs_out *out, char *memory, size_t size);

/* 0 or -errno. */
int vs_out_flush(struct vs_out *out);

void vs_out_raw(struct vs_out *out, const char *from, size_t length);
void vs_out_char(struct vs_out *out, char c);
void vs_out_str(struct vs_out *out, const char *text); /* trusted text, as it is */
/* Text from outside: invalid UTF-8 replaced, control characters shown as "?". */
void vs_out_foreign(struct vs_out *out, const char *text);
void vs_out_u64(struct vs_out *out, uint64_t value);
void vs_out_grouped(struct vs_out *out, uint64_t value);                 /* 1,234,567 */
void vs_out_padded(struct vs_out *out, uint64_t value, unsigned digits); /* 007 */

/* numerator / denominator (not 0), rounded half up to so many decimals (at most 9). */
void vs_out_ratio(struct vs_out *out, uint64_t numerator, uint64_t denominator, unsigned decimals);

/* Three significant digits and a binary unit: "1.25 GiB", "40.0 MiB", "512 B". */
void vs_out_bytes(struct vs_out *out, uint64_t bytes);
/* True if that form is exact: no digit was rounded away. */
bool vs_bytes_exact(uint64_t bytes);

/* "1.2 ms", "3.4 s", "5 min 06 s", "7 h 08 min". */
void vs_out_duration(struct vs_out *out, uint64_t ns);

/* "2026-01-31T12:34:56.789Z". */
void vs_out_utc(struct vs_out *out, uint64_t unix_ns);

#define VS_JSON_DEPTH 16

/* Containers opened in_line keep their contents on one line. key is NULL inside arrays. */
struct vs_json {
    struct vs_out *out;
    unsigned depth;
    unsigned inline_depth; /* 0: not inline; else the depth at which it began */
    bool first;
    char closer[VS_JSON_DEPTH];
};

void vs_json_init(struct vs_json *json, struct vs_out *out);
void vs_json_object(struct vs_json *json, const char *key, bool in_line);
void vs_json_array(struct vs_json *json, const char *key, bool in_line);
void vs_json_end(struct vs_json *json); /* closes the innermost */
void vs_json_str(struct vs_json *json, const char *key, const char *text); /* NULL: null */
void vs_json_u64(struct vs_json *json, const char *key, uint64_t value);
void vs_json_i64(struct vs_json *json, const char *key, int64_t value);
void vs_json_bool(struct vs_json *json, const char *key, bool value);
void vs_json_null(struct vs_json *json, const char *key);
/* Four decimals; null when the denominator is 0. */
void vs_json_ratio(struct vs_json *json, const char *key, uint64_t numerator, uint64_t denominator);

#endif
