/*
 * Writing the report: from the ledger to text and JSON (schema vramshim.report/1), and where it
 * goes.
 *
 * Works at the very end of a process: no malloc, no stdio, no locale, no CUDA; plain system calls
 * on plain descriptors. Not thread-safe: one caller at a time.
 */
#ifndef VS_REPORT_REPORT_H
#define VS_REPORT_REPORT_H

#include <stddef.h>
#include <stdint.h>

enum vs_end {
    VS_END_RUNNING,
    VS_END_EXIT,
    VS_END__EXIT,
    VS_END_QUICK_EXIT,
    VS_END_EXEC,
    VS_END_KILLED
};

struct vs_report_option {
    const char *name;  /* "VRAMSHIM_REPORT" */
    const char *value; /* resolved, as shown to people and dumped in the report */
};

/*
 * Resolves and claims the targets named by a VRAMSHIM_REPORT value (design: comma list of stderr,
 * none, or paths ending in .json or .txt, with %p %h %e %q{VAR} %%), and remembers what descriptor
 * 2 is now. Call at cuInit, after vs_ledger_open. spec has been checked by vs_report_spec_check.
 * Problems (an unwritable folder) are said in one line each through say(), and stderr stands in.
 */
void vs_report_claim(const char *spec, void (*say)(const char *line));

/* Checks a VRAMSHIM_REPORT value without touching the file system: NULL if fine, else a static
 * sentence part that says what is wrong ("path must end in .json or .txt"). */
const char *vs_report_spec_check(const char *spec);

/* Writes the report to every claimed target. exit_code < 0 = null. Can be called again (an exec
 * that failed): files are replaced. options: name/value pairs for the report's option dump. */
void vs_report_write(enum vs_end end, int exit_code, const struct vs_report_option *options,
                     size_t option_count);

/* After a report for an end that did not come: takes the names again that the report was given, so
 * that no other process gets them. */
void vs_report_reclaim(void);

#endif
