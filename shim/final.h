/*
 * The last word: writing the report once, whichever way the process ends.
 */
#ifndef VS_SHIM_FINAL_H
#define VS_SHIM_FINAL_H

#include "report/report.h"

#include <stdbool.h>

/* Is there something to report, or being reported by another thread, and is it ours (a vfork child
 * sees our memory, and must not touch it)? */
bool vs_final_due(void);

/*
 * Writes the report if it is due; otherwise returns at once. The first caller writes; a second
 * thread waits until that is done (for a while), so that its _exit does not cut the writing short.
 * exit_code < 0: not known, or none.
 */
void vs_final_report(enum vs_end end, int exit_code);

/* Writes the report before an end that may fail, an exec. Then this thread calls vs_final_resume:
 * counting never stopped, and the next end is reported anew. */
void vs_final_attempt(enum vs_end end, int exit_code);
void vs_final_resume(void);

#endif
