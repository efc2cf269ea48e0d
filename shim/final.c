/*
 * The last word (see final.h).
 *
 * The state on the process page is the latch: ARMED -> WRITING by the one who writes, then DONE. No
 * CUDA call, no malloc, no lock that another thread may hold for good.
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

static void wait_for_writer(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < WAIT_MS && vs_process_state() == VS_PROCESS_WRITING; i++) {
        nanosleep(&pause, NULL);
    }
}

void vs_final_report(enum vs_end end, int exit_code)
{
    static struct vs_options_dump dump; /* for the one who writes */
    size_t count;

    switch (vs_process_state()) {
    case VS_PROCESS_ARMED:
        break;
    case VS_PROCESS_WRITING:
        if (!writing && vs_process_is_owner()) {
            wait_for_writer();
        }
        return;
    default:
        return;
    }
    /* A vfork child sees our memory, ARMED as it is, and must not touch it. */
    if (!vs_process_is_owner() || !vs_process_move(VS_PROCESS_ARMED, VS_PROCESS_WRITING)) {
        return;
    }
    writing = true;
    vs_escape_note();
    count = vs_options_dump(vs_arm_resolved(), &dump);
    vs_report_write(end, exit_code, dump.options, count);
    writing = false;
    vs_process_set(VS_PROCESS_DONE);
}

void vs_final_resume(void)
{
    if (vs_process_state() == VS_PROCESS_DONE && vs_process_is_owner()) {
        vs_process_set(VS_PROCESS_ARMED);
    }
}
