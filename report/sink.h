/*
 * A file that a report will be written to: claimed early, written late, and whole when it appears.
 *
 * A claim is a hidden temporary file beside the target (DIR/.NAME.vramshim), held open with a POSIX
 * write lock, which is not inherited by fork and ends with the process however it ends. A path that
 * another live process has claimed gets ".PID" appended. A killed process leaves only the
 * temporary, which the next one takes over. At the end the temporary is renamed over the target. A
 * symbolic link to a file is followed; anything else that is no regular file is refused.
 *
 * The program may close or reuse any descriptor behind our back: every use first checks that it
 * still is our file. It may also remove the temporary; then a fresh one is made. Where the file
 * system has no locks, two processes with one path both write it whole, and the last one stays.
 *
 * Within one process, closing any descriptor of a file drops all its locks: hence at most one
 * target per file, and none is opened twice. One caller at a time.
 */
#ifndef VS_REPORT_SINK_H
#define VS_REPORT_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/pattern.h"

struct vs_sink_file {
    uint64_t device;
    uint64_t inode;
};

struct vs_sink {
    char path[VS_PATTERN_PATH]; /* absolute; of the target, with .PID if it got one */
    char temporary[VS_PATTERN_PATH];
    int fd; /* < 0: not held */
    struct vs_sink_file file;
    unsigned final_mode; /* not 0: the umask's own mode, under which we could not work */
};

/* Claims sink->path (absolute, filled in by the caller; changed if it is taken). others: the sinks
 * claimed so far. 0; 1: it is the same file as one of the others (nothing is held); -errno. */
int vs_sink_claim(struct vs_sink *sink, int pid, struct vs_sink *others, size_t other_count);

/* An empty file to write the report to: the descriptor, or -errno. */
int vs_sink_begin(struct vs_sink *sink, int pid);

/* Puts what was written in the target's place (0 or -errno; after an error the file is gone), or
 * takes it away. The claim is spent; begin may be called again. */
int vs_sink_commit(struct vs_sink *sink);
void vs_sink_abandon(struct vs_sink *sink);

/* Lets go of what an earlier claim holds. remove: also takes the temporary away (not in a forked
 * child: it is the parent's). */
void vs_sink_release(struct vs_sink *sink, bool remove);

/* A short text for what can go wrong with files. */
const char *vs_sink_error(int error);

#endif
