/*
 * Allocation traces: CSV of `op,ptr,size,stream`, plain or gzip, one operation per line.
 *
 *   i  live before the recording began      a  allocation      f  free
 *
 * Pointers and streams are hex (0x may stand before them), sizes decimal bytes. A first line that
 * begins with "op," is a header; blank lines and lines that begin with # say nothing. Operations of
 * any other single letter (S, s, O of PyTorch's snapshots) are counted and passed over: they say
 * what somebody else did with the driver. Columns behind the fourth are passed over too; the stream
 * may be missing, and the size of a free.
 *
 * The reader streams: it holds one buffer and one line, whatever the file's size. After an error it
 * stays at that error.
 */
#ifndef VS_REPORT_CLI_TRACE_H
#define VS_REPORT_CLI_TRACE_H

#include <stdint.h>

#define VS_TRACE_LINE 1024   /* longest line, without its end */
#define VS_TRACE_MESSAGE 512 /* longest message, with its NUL */

enum vs_trace_kind { VS_TRACE_LIVE, VS_TRACE_ALLOC, VS_TRACE_FREE };

struct vs_trace_row {
    enum vs_trace_kind kind;
    uint64_t address;
    uint64_t bytes;  /* 0 … INT64_MAX; 0 for a free that does not say */
    uint64_t stream; /* 0 where there is none */
};

struct vs_trace;

/* Opens a trace; NULL with message filled (one line, without the newline). */
struct vs_trace *vs_trace_open(const char *path, char message[VS_TRACE_MESSAGE]);

/* The same for an open descriptor, which it takes over, also when it fails. name is for messages.
 */
struct vs_trace *vs_trace_open_fd(int fd, const char *name, char message[VS_TRACE_MESSAGE]);

/* The next row: 1; 0 at the end; -1 for bad input, and vs_trace_message says what and where. */
int vs_trace_next(struct vs_trace *trace, struct vs_trace_row *row);

const char *vs_trace_message(const struct vs_trace *trace);
uint64_t vs_trace_passed_over(const struct vs_trace *trace);
uint64_t vs_trace_lines(const struct vs_trace *trace);

void vs_trace_close(struct vs_trace *trace); /* NULL is fine */

#endif
