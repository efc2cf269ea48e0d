/*
 * Fuzz entry of the trace reader: any bytes as a file, through a descriptor as the command reads
 * it.
 *
 * Holds for every input: reading ends; a row is one of the three kinds, its size below 2^63; an
 * error is one printable line that begins with the name and stays; every row comes from a line of
 * its own.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "report/cli/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void check_message(const char *text)
{
    MUST(strncmp(text, "fuzz:", 5) == 0);
    MUST(strlen(text) < VS_TRACE_MESSAGE);
    for (; *text; text++) {
        MUST(*text >= 0x20 && *text < 0x7f);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char message[VS_TRACE_MESSAGE];
    struct vs_trace_row row;
    struct vs_trace *trace;
    uint64_t rows = 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC), got;

    MUST(fd >= 0);
    MUST(write(fd, data, size) == (ssize_t)size);
    MUST(lseek(fd, 0, SEEK_SET) == 0);
    trace = vs_trace_open_fd(fd, "fuzz", message);
    MUST(trace);
    while ((got = vs_trace_next(trace, &row)) > 0) {
        MUST(row.kind == VS_TRACE_LIVE || row.kind == VS_TRACE_ALLOC || row.kind == VS_TRACE_FREE);
        MUST(row.bytes <= INT64_MAX);
        rows++;
    }
    MUST(rows + vs_trace_passed_over(trace) <= vs_trace_lines(trace));
    if (got < 0) {
        check_message(vs_trace_message(trace));
        MUST(vs_trace_next(trace, &row) == -1);
    } else {
        MUST(vs_trace_next(trace, &row) == 0);
    }
    vs_trace_close(trace);
    return 0;
}
