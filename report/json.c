/* The JSON half of emit.h. */
#include "report/emit.h"

#include <errno.h>
#include <string.h>

#include "report/utf8.h"

void vs_json_init(struct vs_json *json, struct vs_out *out)
{
    memset(json, 0, sizeof *json);
    json->out = out;
    json->first = true;
}

static void new_line(struct vs_json *json)
{
    vs_out_char(json->out, '\n');
    for (unsigned i = 0; i < json->depth; i++) {
        vs_out_str(json->out, "  ");
    }
}

static void escape(struct vs_out *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *known = memchr(from, c, sizeof from - 1);
    vs_out_char(out, '\\');
    if (known) {
        vs_out_char(out, to[known - from]);
        return;
    }
    vs_out_str(out, "u00");
    vs_out_char(out, hex[c >> 4]);
    vs_out_char(out, hex[c & 15]);
}

static void quoted(struct vs_out *out, const char *text)
{
    vs_out_char(out, '"');
    while (*text) {
        size_t length = vs_utf8_length(text);
        unsigned char c = (unsigned char)*text;
        if (length == 0) {
            vs_out_str(out, VS_UTF8_REPLACEMENT);
        } else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
            escape(out, c);
        } else {
            vs_out_raw(out, text, length);
        }
        text += length ? length : 1;
    }
    vs_out_char(out, '"');
}

/* Comma, line and key: what comes before any value. */
static void lead(struct vs_json *json, const char *key)
{
    if (!json->first) {
        vs_out_char(json->out, ',');
    }
    if (json->inline_depth == 0 && json->depth > 0) {
        new_line(json);
    } else if (!json->first) {
        vs_out_char(json->out, ' ');
    }
    json->first = false;
    if (key) {
        quoted(json->out, key);
        vs_out_str(json->out, ": ");
    }
}

static void begin(struct vs_json *json, const char *key, bool in_line, char opener, char closer)
{
    lead(json, key);
    vs_out_char(json->out, opener);
    if (json->depth == VS_JSON_DEPTH) {
        json->out->error = -EOVERFLOW; /* a mistake of the caller's, whatever the data */
        return;
    }
    json->closer[json->depth++] = closer;
    if (in_line && json->inline_depth == 0) {
        json->inline_depth = json->depth;
    }
    json->first = true;
}

void vs_json_object(struct vs_json *json, const char *key, bool in_line)
{
    begin(json, key, in_line, '{', '}');
}

void vs_json_array(struct vs_json *json, const char *key, bool in_line)
{
    begin(json, key, in_line, '[', ']');
}

void vs_json_end(struct vs_json *json)
{
    bool in_line = json->inline_depth != 0;
    if (json->depth == 0) {
        return;
    }
    if (json->inline_depth == json->depth) {
        json->inline_depth = 0;
    }
    json->depth--;
    if (!in_line && !json->first) {
        new_line(json);
    }
    vs_out_char(json->out, json->closer[json->depth]);
    json->first = false;
    if (json->depth == 0) {
        vs_out_char(json->out, '\n');
    }
}

void vs_json_str(struct vs_json *json, const char *key, const char *text)
{
    lead(json, key);
    if (text) {
        quoted(json->out, text);
    } else {
        vs_out_str(json->out, "null");
    }
}

void vs_json_u64(struct vs_json *json, const char *key, uint64_t value)
{
    lead(json, key);
    vs_out_u64(json->out, value);
}

void vs_json_i64(struct vs_json *json, const char *key, int64_t value)
{
    lead(json, key);
    if (value < 0) {
        vs_out_char(json->out, '-');
    }
    vs_out_u64(json->out, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void vs_json_bool(struct vs_json *json, const char *key, bool value)
{
    lead(json, key);
    vs_out_str(json->out, value ? "true" : "false");
}

void vs_json_null(struct vs_json *json, const char *key)
{
    vs_json_str(json, key, NULL);
}

void vs_json_ratio(struct vs_json *json, const char *key, uint64_t numerator, uint64_t denominator)
{
    if (denominator == 0) {
        vs_json_null(json, key);
        return;
    }
    lead(json, key);
    vs_out_ratio(json->out, numerator, denominator, 4);
}
