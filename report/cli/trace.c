/*
 * Allocation traces (see trace.h). zlib reads plain files as they are, so there is one way in.
 */
#include "report/cli/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "shim/text.h"

#define ACCEPTED "accepted: op,ptr,size,stream with op i, a or f, ptr and stream hex, size bytes"
#define BUFFER_BYTES (128u << 10)

struct vs_trace {
    gzFile file;
    char *name;
    uint64_t line;
    uint64_t passed_over;
    size_t at, end; /* of what is left in buffer */
    bool ended, failed;
    char message[VS_TRACE_MESSAGE];
    char buffer[BUFFER_BYTES];
};

/* Says what is wrong, and where: always -1. */
__attribute__((format(printf, 2, 3))) static int fail(struct vs_trace *trace, const char *format,
                                                      ...)
{
    char shown[VS_TEXT_SHOWN];
    va_list arguments;
    int used;

    vs_text_escape(shown, sizeof(shown), trace->name, strlen(trace->name));
    used =
        snprintf(trace->message, sizeof(trace->message), "%s:%ju: ", shown, (uintmax_t)trace->line);
    va_start(arguments, format);
    vsnprintf(trace->message + used, sizeof(trace->message) - (size_t)used, format, arguments);
    va_end(arguments);
    trace->failed = true;
    return -1;
}

/* A field that is not what it should be. */
static int fail_field(struct vs_trace *trace, const char *what, const char *text, size_t length)
{
    char shown[VS_TEXT_SHOWN];

    return fail(trace, "%s: \"%s\"; " ACCEPTED, what,
                vs_text_escape(shown, sizeof(shown), text, length));
}

struct vs_trace *vs_trace_open_fd(int fd, const char *name, char message[VS_TRACE_MESSAGE])
{
    struct vs_trace *trace = calloc(1, sizeof(*trace));
    char shown[VS_TEXT_SHOWN];
    struct stat about;
    const char *why = NULL;

    vs_text_escape(shown, sizeof(shown), name, strlen(name));
    if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        why = "a folder, not a trace";
    } else if (!trace || !(trace->name = strdup(name)) || !(trace->file = gzdopen(fd, "rb"))) {
        why = "not enough memory";
    }
    if (!why) {
        gzbuffer(trace->file, BUFFER_BYTES);
        return trace;
    }
    snprintf(message, VS_TRACE_MESSAGE, "%s: %s", shown, why);
    close(fd);
    if (trace) {
        free(trace->name);
        free(trace);
    }
    return NULL;
}

struct vs_trace *vs_trace_open(const char *path, char message[VS_TRACE_MESSAGE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char shown[VS_TEXT_SHOWN];

    if (fd < 0) {
        snprintf(message, VS_TRACE_MESSAGE, "%s: %s",
                 vs_text_escape(shown, sizeof(shown), path, strlen(path)), strerror(errno));
        return NULL;
    }
    return vs_trace_open_fd(fd, path, message);
}

void vs_trace_close(struct vs_trace *trace)
{
    if (trace) {
        gzclose_r(trace->file);
        free(trace->name);
        free(trace);
    }
}

const char *vs_trace_message(const struct vs_trace *trace)
{
    return trace->message;
}

uint64_t vs_trace_passed_over(const struct vs_trace *trace)
{
    return trace->passed_over;
}

uint64_t vs_trace_lines(const struct vs_trace *trace)
{
    return trace->line;
}

/* Refills the empty buffer: 1, 0 at the end, -1. */
static int refill(struct vs_trace *trace)
{
    int status = Z_OK;
    int got = gzread(trace->file, trace->buffer, BUFFER_BYTES);
    const char *problem;

    trace->at = 0;
    trace->end = got > 0 ? (size_t)got : 0;
    if (got > 0) {
        return 1;
    }
    problem = gzerror(trace->file, &status);
    if (status == Z_OK || status == Z_STREAM_END) {
        trace->ended = true;
        return 0;
    }
    trace->line++;
    if (status == Z_BUF_ERROR) {
        return fail(trace, "the gzip data ends too early: the file is cut off");
    }
    if (status == Z_ERRNO) {
        return fail(trace, "%s", strerror(errno));
    }
    /* zlib's own text begins with the name that it was given, a descriptor's number here. */
    if (strstr(problem, ": ")) {
        problem = strstr(problem, ": ") + 2;
    }
    return fail(trace, "the gzip data is broken: %s", problem);
}

/* The next line, without its end: 1, 0 at the end of the file, -1. */
static int read_line(struct vs_trace *trace, char line[VS_TRACE_LINE + 2], size_t *length)
{
    size_t used = 0;

    for (;;) {
        char *from, *newline;
        size_t part;

        if (trace->at == trace->end) {
            int got = trace->ended ? 0 : refill(trace);

            if (got < 0) {
                return got;
            }
            if (got == 0 && used == 0) {
                return 0;
            }
            if (got == 0) { /* a last line without a newline */
                break;
            }
        }
        from = trace->buffer + trace->at;
        newline = memchr(from, '\n', trace->end - trace->at);
        part = newline ? (size_t)(newline - from) : trace->end - trace->at;
        if (used + part > VS_TRACE_LINE + 1) { /* one for a carriage return */
            trace->line++;
            return fail(trace, "a line of more than %d bytes; " ACCEPTED, VS_TRACE_LINE);
        }
        memcpy(line + used, from, part);
        used += part;
        trace->at += part + (newline ? 1 : 0);
        if (newline) {
            break;
        }
    }
    trace->line++;
    if (used > 0 && line[used - 1] == '\r') {
        used--;
    }
    if (used > VS_TRACE_LINE) {
        return fail(trace, "a line of more than %d bytes; " ACCEPTED, VS_TRACE_LINE);
    }
    *length = used;
    return 1;
}

/* Cuts the next field off; false where the line is over. */
static bool next_field(const char **at, const char *end, const char **field, size_t *length)
{
    const char *comma;

    if (*at > end) {
        return false;
    }
    comma = memchr(*at, ',', (size_t)(end - *at));
    *field = *at;
    *length = (size_t)((comma ? comma : end) - *at);
    *at = comma ? comma + 1 : end + 1;
    return true;
}

static bool parse_hex(const char *text, size_t length, uint64_t *value)
{
    uint64_t result = 0;

    if (length > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        text += 2;
        length -= 2;
    }
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        unsigned digit;

        if (c >= '0' && c <= '9') {
            digit = (unsigned)(c - '0');
        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            digit = (unsigned)((c | 0x20) - 'a' + 10);
        } else {
            return false;
        }
        if (result >> 60) {
            return false;
        }
        result = result << 4 | digit;
    }
    *value = result;
    return length > 0;
}

static bool parse_bytes(const char *text, size_t length, uint64_t *value)
{
    uint64_t result = 0;

    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned)(text[i] - '0');

        if (digit > 9 || result > ((uint64_t)INT64_MAX - digit) / 10) {
            return false;
        }
        result = result * 10 + digit;
    }
    *value = result;
    return length > 0;
}

static bool is_letter(char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* One line that is no comment: 1 for a row, 0 for one to pass over, -1. */
static int parse(struct vs_trace *trace, const char *line, size_t size, struct vs_trace_row *row)
{
    const char *at = line, *end = line + size, *field;
    size_t length = 0;

    next_field(&at, end, &field, &length);
    if (length != 1 || !is_letter(field[0])) {
        return fail_field(trace, "no operation", field, length);
    }
    switch (field[0]) {
    case 'i':
        row->kind = VS_TRACE_LIVE;
        break;
    case 'a':
        row->kind = VS_TRACE_ALLOC;
        break;
    case 'f':
        row->kind = VS_TRACE_FREE;
        break;
    default:
        trace->passed_over++;
        return 0;
    }
    row->bytes = row->stream = 0;
    if (!next_field(&at, end, &field, &length)) {
        return fail_field(trace, "no pointer", line, size);
    }
    if (!parse_hex(field, length, &row->address)) {
        return fail_field(trace, "no pointer", field, length);
    }
    if (!next_field(&at, end, &field, &length)) {
        return row->kind == VS_TRACE_FREE ? 1 : fail_field(trace, "no size", line, size);
    }
    if (!parse_bytes(field, length, &row->bytes) && (length > 0 || row->kind != VS_TRACE_FREE)) {
        return fail_field(trace, "no size", field, length);
    }
    if (next_field(&at, end, &field, &length) && length > 0 &&
        !parse_hex(field, length, &row->stream)) {
        return fail_field(trace, "no stream", field, length);
    }
    return 1;
}

int vs_trace_next(struct vs_trace *trace, struct vs_trace_row *row)
{
    char line[VS_TRACE_LINE + 2];
    size_t length = 0;
    int got;

    if (trace->failed) {
        return -1;
    }
    while ((got = read_line(trace, line, &length)) > 0) {
        if (length == 0 || line[0] == '#' ||
            (trace->line == 1 && length > 3 && memcmp(line, "op,", 3) == 0)) {
            continue;
        }
        got = parse(trace, line, length, row);
        if (got != 0) {
            return got;
        }
    }
    return got;
}
