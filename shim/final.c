/*
 * The last word (see final.h).
 *
 * The state on the process page is the latch: ARMED -> WRITING by the one who writes, then DONE.
 * For an exec it is ARMED -> EXEC, in which counting goes on, and back should the exec fail; a
 * thread that ends the process meanwhile waits for either. No CUDA call, no malloc, no lock that
 * another thread may hold for good.
 *
 * A handler that ends the process may run on a signal stack with a few hundred bytes to spare. So
 * the report is written on a stack of our own, and little is put on the caller's before that.
 */
#include "shim/final.h"

#include "report/lock.h"
#include "report/sys.h"
#include "shim/arena.h"
#include "shim/arm.h"
#include "shim/escape.h"
#include "shim/own_stack.h"
#include "shim/process.h"

#include <signal.h>

enum { WAIT_MS = 5000, STACK_BYTES = 128 << 10 };

/* Sanitizers know each thread's stack, and no other. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VS_ON_OWN_STACK 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define VS_ON_OWN_STACK 0
#endif
#endif
#ifndef VS_ON_OWN_STACK
#define VS_ON_OWN_STACK 1
#endif

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
static uint64_t hold_signals(void)
{
    static const int kept[] = {
        SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT,
        SIGTRAP, SIGSYS, 32,     33}; /* the C library's own; the kernel's set has 64 bits */
    uint64_t all = ~UINT64_C(0), before = 0;

    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        all &= ~(UINT64_C(1) << (kept[i] - 1));
    }
    VS_SYS(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof(all));
    return before;
}

static void let_signals_come(uint64_t before)
{
    VS_SYS(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
}

struct last_word {
    enum vs_end end;
    int exit_code;
};

static void write_here(void *arg)
{
    static struct vs_options_dump dump; /* one writes at a time */
    const struct last_word *word = arg;
    size_t count;

    writing = true;
    vs_lock_end_begins();
    vs_escape_note();
    vs_arena_publish_all();
    count = vs_options_dump(vs_arm_resolved(), &dump);
    vs_report_write(word->end, word->exit_code, dump.options, count);
    writing = false;
}

static void write_report(enum vs_end end, int exit_code)
{
    static char stack[STACK_BYTES] __attribute__((aligned(16)));
    struct last_word word = {end, exit_code};

    if (VS_ON_OWN_STACK) {
        vs_own_stack_run(write_here, &word, stack + sizeof(stack));
    } else {
        write_here(&word);
    }
}

void vs_final_report(enum vs_end end, int exit_code)
{
    uint64_t until = 0;

    while (!writing && vs_final_due()) {
        until = until == 0 ? deadline() : until;
        if (!wait_for_others(until)) {
            return;
        }
        uint64_t before = hold_signals();
        if (vs_process_move(VS_PROCESS_ARMED, VS_PROCESS_WRITING) ||
            (attempting && vs_process_move(VS_PROCESS_EXEC, VS_PROCESS_WRITING))) {
            write_report(end, exit_code);
            vs_process_set(VS_PROCESS_DONE);
        }
        let_signals_come(before);
    }
}

void vs_final_attempt(enum vs_end end, int exit_code)
{
    uint64_t until = deadline();
    bool done = false;

    /* What another thread is writing, an exec would cut off: also one that began just now. */
    while (!done && !writing && vs_process_is_owner() && wait_for_others(until)) {
        uint64_t before = hold_signals();

        done = true;
        if (vs_process_move(VS_PROCESS_ARMED, VS_PROCESS_EXEC)) {
            attempting = true;
            write_report(end, exit_code);
        } else {
            done = vs_process_state() != VS_PROCESS_WRITING;
        }
        let_signals_come(before);
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
