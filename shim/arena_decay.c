/*
 * The decay thread: gives memory that lay idle back to the driver.
 *
 * At most one in a process, made with its first arena, never where nothing should go back by time
 * (VRAMSHIM_POOL_DECAY_MS -1 or 0). It wakes every eighth of the decay time while a pool says that
 * something may go, and sleeps for good otherwise, until a free wakes it. All signals are blocked
 * in it: the program's handlers never run there. It counts as inside a hook.
 *
 * page->decay is what it sleeps on and how it is spoken to. Before it sleeps for good (ASLEEP) it
 * sleeps once more with an end (LAST), so that a free which looked at the state before its own work
 * was to be seen is not missed. A free that finds LAST only changes that. Waking a thread that is
 * ASLEEP takes a system call, a hundred microseconds in a virtual machine, so a free does it where
 * a page has become idle since then, or where that was a whole decay time ago.
 *
 * It ends before the driver does: a handler registered with the C library when it starts (so after
 * the driver's own, and run before them) tells it to, and waits, for a while. A forked child has a
 * wiped page and no thread; its own first arena starts one.
 *
 * A process whose main thread leaves by pthread_exit ends with the last of its other threads, which
 * must not be this one. So it ends before the main thread leaves, and none is started after that:
 * from then on memory goes back only when it is short.
 */
#include "report/sys.h"
#include "shim/arena_inner.h"
#include "shim/arm.h"
#include "shim/decisions.h"
#include "shim/guard.h"
#include "shim/process.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { TICKS = 8, END_MS = 2000, STACK_BYTES = 256 << 10 };

/* Where these live depends on the age of the C library: in libpthread once, which a program without
 * threads need not have loaded; then there is no thread. */
#if defined(__x86_64__)
#define VS_FIRST_VERSION "GLIBC_2.2.5"
#define VS_JOIN_VERSION "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define VS_FIRST_VERSION "GLIBC_2.17"
#define VS_JOIN_VERSION "GLIBC_2.17"
#endif
#ifdef __GLIBC__
__asm__(".symver pthread_create,pthread_create@" VS_FIRST_VERSION);
__asm__(".symver pthread_attr_setstacksize,pthread_attr_setstacksize@" VS_FIRST_VERSION);
__asm__(".symver pthread_timedjoin_np,pthread_timedjoin_np@" VS_JOIN_VERSION);
#endif
#pragma weak pthread_create
#pragma weak pthread_attr_setstacksize
#pragma weak pthread_timedjoin_np

/* The process whose main thread has left. A forked child is another one, with another main thread.
 */
static _Atomic int32_t left_by;

static _Atomic uint32_t *word_of(struct vs_process_page *page)
{
    return &page->decay;
}

/* Sleeps while the word has this value; ms < 0: for good. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    VS_SYS(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ms < 0 ? NULL : &time, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    VS_SYS(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static uint64_t idle_of(const struct vs_arena *arena)
{
    return vs_process_counts() ? vs_ledger_pool_idle((uint32_t)arena->device) : 0;
}

static uint64_t now_coarse(void)
{
    return vs_sys_clock(CLOCK_MONOTONIC_COARSE);
}

static void note_idle(struct vs_arena *arena, void *data)
{
    (void)data;
    atomic_store_explicit(&arena->charge->idle_asleep, idle_of(arena), memory_order_relaxed);
}

static void decay_one(struct vs_arena *arena, void *data)
{
    if (vs_pool_wants_trim(arena->pool)) {
        vs_pool_trim(arena->pool, arena->trim_above, false);
    }
    if (vs_pool_decay(arena->pool)) {
        *(bool *)data = true;
    }
    if (vs_arena_here.slow) {
        vs_arena_here.slow = false;
        vs_arena_publish(arena->device);
        vs_decisions_done(arena, 0);
    }
}

/* The end of this thread may be that of the process: its handlers run here then, as they would have
 * run in the program's last thread. */
static void leave_to_the_program(void)
{
    sigset_t none;

    vs_guard_depth = 0;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Is there something that could go? */
static bool tick(void)
{
    bool more = false;

    vs_arena_each(decay_one, &more);
    return more;
}

static bool is_to_end(uint32_t state)
{
    return state == VS_DECAY_ENDING || state == VS_DECAY_LATE;
}

static void *run(void *arg)
{
    struct vs_process_page *page = arg;
    _Atomic uint32_t *word = word_of(page);
    int64_t period = vs_arm_resolved()->pool_decay_ms / TICKS;

    period = period > 0 ? period : 1;
    __atomic_store_n(&page->decay_thread, pthread_self(), __ATOMIC_RELEASE); /* for who sees OFF */
    VS_SYS(SYS_prctl, PR_SET_NAME, "vramshim-decay", 0, 0, 0);
    vs_guard_depth = 1;
    for (;;) {
        uint32_t state = atomic_load_explicit(word, memory_order_seq_cst);

        if (is_to_end(state)) {
            break;
        }
        if (state == VS_DECAY_ASLEEP) {
            sleep_on(word, VS_DECAY_ASLEEP, -1);
            continue;
        }
        sleep_on(word, state, period);
        if (!is_to_end(atomic_load(word))) {
            uint32_t next = tick()                      ? VS_DECAY_TICKING
                            : state == VS_DECAY_TICKING ? VS_DECAY_LAST
                                                        : VS_DECAY_ASLEEP;

            if (next == VS_DECAY_ASLEEP) {
                vs_arena_each(note_idle, NULL);
                atomic_store_explicit(&page->asleep_at, now_coarse(), memory_order_relaxed);
            }
            /* A free that came meanwhile has made LAST TICKING, and it stays so. */
            atomic_compare_exchange_strong(word, &state, next);
        }
    }
    if (atomic_exchange(word, VS_DECAY_OFF) == VS_DECAY_LATE) {
        leave_to_the_program();
    }
    wake(word);
    return NULL;
}

/* It has done its last; a moment later it is gone. Joined by the first who sees that: the one who
 * told it to end may have been interrupted by a handler that ends the process. */
static void join(struct vs_process_page *page, uint64_t ms)
{
    pthread_t thread = __atomic_exchange_n(&page->decay_thread, (pthread_t)0, __ATOMIC_ACQ_REL);
    uint64_t until = vs_sys_clock(CLOCK_REALTIME) + ms * 1000000;
    const struct timespec time = {.tv_sec = (time_t)(until / 1000000000),
                                  .tv_nsec = (long)(until % 1000000000)};

    if (thread != 0 && pthread_timedjoin_np != NULL) {
        pthread_timedjoin_np(thread, NULL, &time);
    }
}

/* Ends the thread where there is one, and waits, for a while. False: it is busy still. */
static bool end_thread(struct vs_process_page *page)
{
    _Atomic uint32_t *word = word_of(page);
    uint32_t state = atomic_load(word);
    uint64_t until;

    while (state == VS_DECAY_TICKING || state == VS_DECAY_LAST || state == VS_DECAY_ASLEEP) {
        if (atomic_compare_exchange_weak(word, &state, VS_DECAY_ENDING)) {
            state = VS_DECAY_ENDING;
            wake(word);
        }
    }
    until = vs_sys_clock(CLOCK_MONOTONIC) + END_MS * UINT64_C(1000000);
    while (is_to_end(state) && vs_sys_clock(CLOCK_MONOTONIC) < until) {
        sleep_on(word, state, 10);
        state = atomic_load(word);
    }
    if (state == VS_DECAY_OFF) {
        join(page, END_MS);
    }
    return !is_to_end(state);
}

/* The end of the program: the driver will be taken down after this. A handler that ends the process
 * in the middle of it would leave the thread behind: signals wait for this moment. */
static void end(int status, void *arg)
{
    struct vs_process_page *page = vs_process_page();
    sigset_t all, before;

    (void)status;
    if (arg == page && vs_process_is_owner()) { /* not a child that may share the memory */
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &before);
        end_thread(page);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
}

void vs_decay_thread_leaves(void)
{
    struct vs_process_page *page = vs_process_page();
    uint32_t ending = VS_DECAY_ENDING;
    pid_t pid = vs_sys_getpid();

    if (VS_SYS(SYS_gettid) != pid) {
        return;
    }
    atomic_store(&left_by, pid);
    if (vs_process_is_owner() && !end_thread(page)) {
        atomic_compare_exchange_strong(word_of(page), &ending, VS_DECAY_LATE);
    }
}

static bool start_thread(struct vs_process_page *page)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int error;

    if (pthread_create == NULL || pthread_attr_init(&attributes) != 0) {
        return false;
    }
    if (pthread_attr_setstacksize != NULL) {
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
    }
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    error = pthread_create(&thread, &attributes, run, page);
    if (error != 0) { /* thread-local memory may not leave room on a small stack */
        error = pthread_create(&thread, NULL, run, page);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

/* Is there more to give back than when it went to sleep, or may there be? */
static bool worth_waking(const struct vs_process_page *page, const struct vs_arena *arena)
{
    uint64_t idle = atomic_load_explicit(&arena->charge->idle_asleep, memory_order_relaxed);
    uint64_t since = atomic_load_explicit(&page->asleep_at, memory_order_relaxed);

    return idle_of(arena) >= idle + VS_POOL_PAGE ||
           now_coarse() >= since + (uint64_t)vs_arm_resolved()->pool_decay_ms * 1000000;
}

void vs_decay_tell(struct vs_arena *arena)
{
    struct vs_process_page *page = vs_process_page();
    _Atomic uint32_t *word = word_of(page);
    uint32_t state = atomic_load_explicit(word, memory_order_acquire);

    if (state == VS_DECAY_LAST && atomic_compare_exchange_strong(word, &state, VS_DECAY_TICKING)) {
        return;
    }
    if (state == VS_DECAY_ASLEEP && worth_waking(page, arena) &&
        atomic_compare_exchange_strong(word, &state, VS_DECAY_TICKING)) {
        wake(word);
    }
}

void vs_decay_begin(void)
{
    struct vs_process_page *page = vs_process_page();
    _Atomic uint32_t *word = word_of(page);
    uint32_t state = VS_DECAY_NONE;

    if (atomic_load_explicit(word, memory_order_relaxed) != VS_DECAY_NONE ||
        vs_process_state() != VS_PROCESS_ARMED || !vs_process_is_owner()) {
        return;
    }
    if (vs_arm_resolved()->pool_decay_ms <= 0) {
        atomic_compare_exchange_strong(word, &state, VS_DECAY_OFF);
        return;
    }
    if (!atomic_compare_exchange_strong(word, &state, VS_DECAY_TICKING)) {
        return; /* another thread starts it */
    }
    /* After the state says that there may be one: the main thread does both in the other order. */
    if (atomic_load(&left_by) == vs_sys_getpid()) {
        atomic_store(word, VS_DECAY_OFF);
        wake(word);
        return;
    }
    if (on_exit(end, page) != 0 || !start_thread(page)) {
        atomic_store(word, VS_DECAY_OFF);
        vs_ledger_note("no-decay",
                       "no thread could be started that gives idle memory back: it goes "
                       "back only when memory is short");
    }
}
