/*
 * The last word (see final.h).
 *
 * The state on the process page is the latch: ARMED -> WRITING by the one who writes, then DONE.
 * For an exec it is ARMED -> EXEC, in which counting goes on, and back should the exec fail; a
 * thread that ends the process meanwhile waits for either. No CUDA call, no malloc, no lock that
 * another thread may hold for good.
 */
#include "shim/final.h"

#include "report/lock.h"
#include "report/sys.h"
#include "shim/arena.h"
#include "shim/arm.h"
#include "shim/escape.h"
#include "shim/process.h"

#include <signal.h>

enum { WAIT_MS = 5000 };

/* Set while this thread writes, for what its own fault handlers may call meanwhile. */
static __thread bool writing __attribute__((tls_model("initial-exec")));
/* Set from this thread's report of an end that may fail until it has failed. */
static __thread bool attempting __attribute__((tls_model("initial-exec")));

static uint64_t deadline(void)
{
    return vs_sys_clock(CLOCK_MONOTONIC) + WAIT_MS * UINT64_C(1000000);
}

/* Waits while another thread writes or is in an exec. False when the time is over. */
static bool wait_for_others(uint64_t until)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (;;) {
        enum vs_process_state state = vs_process_state();

        if (state != VS_PROCESS_WRITING && (state != VS_PROCESS_EXEC || attempting)) {
            return true;
        }
        if (vs_sys_clock(CLOCK_MONOTONIC) >= until) {
            return false;
        }
        VS_SYS(SYS_nanosleep, &pause, NULL);
    }
}

bool vs_final_due(void)
{
    enum vs_process_state state = vs_process_state();

    return (state == VS_PROCESS_ARMED || state == VS_PROCESS_EXEC || state == VS_PROCESS_WRITING) &&
           vs_process_is_owner();
}

/* A handler that ends the process in the middle of the writing would end the writing too: what can
 * wait, waits. From before the state says that somebody writes until after it says so no more, or
 * the handler would wait for its own thread. */
static sigset_t hold_signals(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all, before;

    sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&all, faults[i]);
    }
    sigprocmask(SIG_BLOCK, &all, &before);
    return before;
}

static void write_report(enum vs_end end, int exit_code)
{
    static struct vs_options_dump dump; /* one writes at a time */
    size_t count;

    writing = true;
    vs_lock_end_begins();
    vs_escape_note();
    vs_arena_publish_all();
    count = vs_options_dump(vs_arm_resolved(), &dump);
    vs_report_write(end, exit_code, dump.options, count);
    writing = false;
}

void vs_final_report(enum vs_end end, int exit_code)
{
    uint64_t until = 0;

    while (!writing && vs_final_due()) {
        until = until == 0 ? deadline() : until;
        if (!wait_for_others(until)) {
            return;
        }
        sigset_t before = hold_signals();
        if (vs_process_move(VS_PROCESS_ARMED, VS_PROCESS_WRITING) ||
            (attempting && vs_process_move(VS_PROCESS_EXEC, VS_PROCESS_WRITING))) {
            write_report(end, exit_code);
            vs_process_set(VS_PROCESS_DONE);
        }
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
}

void vs_final_attempt(enum vs_end end, int exit_code)
{
    uint64_t until = deadline();
    bool done = false;

    /* What another thread is writing, an exec would cut off: also one that began just now. */
    while (!done && !writing && vs_process_is_owner() && wait_for_others(until)) {
        sigset_t before = hold_signals();

        done = true;
        if (vs_process_move(VS_PROCESS_ARMED, VS_PROCESS_EXEC)) {
            attempting = true;
            write_report(end, exit_code);
        } else {
            done = vs_process_state() != VS_PROCESS_WRITING;
        }
        sigprocmask(SIG_SETMASK, &before, NULL);
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
