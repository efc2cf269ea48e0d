/*
 * The last word (see final.h).
 *
 * The state on the process page is the latch: ARMED -> WRITING by the one who writes, then DONE.
 * For an exec it is ARMED -> EXEC, in which counting goes on, and back should the exec fail; a
 * thread that ends the process meanwhile waits for either. No CUDA call, no malloc, no lock that
 * another thread may hold for good.
 */
#include "shim/final.h"

#include "shim/arm.h"
#include "shim/escape.h"
#include "shim/process.h"

#include <time.h>

enum { WAIT_MS = 5000 };

/* Set while this thread writes: a signal handler that calls _exit meanwhile must not wait for us.
 */
static __thread bool writing __attribute__((tls_model("initial-exec")));
/* Set from this thread's report of an end that may fail until it has failed. */
static __thread bool attempting __attribute__((tls_model("initial-exec")));

/* Waits while another thread writes or is in an exec. */
static void wait_for_others(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < WAIT_MS; i++) {
        enum vs_process_state state = vs_process_state();

        if (state != VS_PROCESS_WRITING && (state != VS_PROCESS_EXEC || attempting)) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}

bool vs_final_due(void)
{
    return vs_process_state() == VS_PROCESS_ARMED && vs_process_is_owner();
}

static void write_report(enum vs_end end, int exit_code)
{
    static struct vs_options_dump dump; /* one writes at a time */
    size_t count;

    writing = true;
    vs_escape_note();
    count = vs_options_dump(vs_arm_resolved(), &dump);
    vs_report_write(end, exit_code, dump.options, count);
    writing = false;
}

void vs_final_report(enum vs_end end, int exit_code)
{
    while (!writing && (vs_process_counts() || vs_process_state() == VS_PROCESS_WRITING) &&
           vs_process_is_owner()) {
        wait_for_others();
        if (vs_process_move(VS_PROCESS_ARMED, VS_PROCESS_WRITING) ||
            vs_process_move(VS_PROCESS_EXEC, VS_PROCESS_WRITING)) {
            write_report(end, exit_code);
            vs_process_set(VS_PROCESS_DONE);
        } else if (vs_process_state() == VS_PROCESS_WRITING) {
            return; /* waited long enough */
        }
    }
}

void vs_final_attempt(enum vs_end end, int exit_code)
{
    if (!writing && vs_process_is_owner() && vs_process_move(VS_PROCESS_ARMED, VS_PROCESS_EXEC)) {
        attempting = true;
        write_report(end, exit_code);
    }
}

void vs_final_resume(void)
{
    if (attempting) {
        attempting = false;
        if (vs_process_is_owner() && vs_process_state() == VS_PROCESS_EXEC) {
            vs_report_reclaim();
            vs_process_move(VS_PROCESS_EXEC, VS_PROCESS_ARMED);
        }
    }
}
