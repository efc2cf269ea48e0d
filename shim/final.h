/*
 * The last word: writing the report once, whichever way the process ends.
 */
#ifndef VS_SHIM_FINAL_H
#define VS_SHIM_FINAL_H

#include "report/report.h"

/*
 * Writes the report if this process is armed and owns what it knows; otherwise returns at once. The
 * first caller writes; a second thread waits until that is done (for a while), so that its _exit
 * does not cut the writing short. exit_code < 0: not known, or none.
 */
void vs_final_report(enum vs_end end, int exit_code);

/* The exec that was reported did not happen: counting goes on, and the next end is reported anew.
 */
void vs_final_resume(void);

#endif
