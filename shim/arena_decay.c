/*
 * The decay thread: gives memory that lay idle back to the driver.
 *
 * At most one in a process, made with its first arena, never where nothing should go back by time
 * (VRAMSHIM_POOL_DECAY_MS -1 or 0). It wakes every eighth of the decay time while a pool says that
 * something may go; otherwise it rests, and looks once in a second whether there was a free. All
 * signals are blocked in it: the program's handlers never run there. It counts as inside a hook.
 *
 * page->decay is what it sleeps on and how it is spoken to. A free that finds it at rest (RESTING)
 * or about to be (LAST) only says TICKING: no free makes a system call, for to make a thread or to
 * wake one takes a hundred microseconds in a virtual machine. LAST is there so that a free which
 * looked at the state before its own work was to be seen is not missed for long.
 *
 * It ends before the driver does: a handler registered with the C library when it starts (so after
 * the driver's own, and run before them) tells it to, and waits, for a while. A forked child has a
 * wiped page and no thread; its own first arena starts one. Where the main thread has left by
 * pthread_exit, and all others have returned, the process would have ended with the last of them:
 * the thread sees that within a second, and returns too, so that the process ends.
 */
#include "report/sys.h"
#include "shim/arena_inner.h"
#include "shim/arm.h"
#include "shim/decisions.h"
#include "shim/guard.h"
#include "shim/process.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { TICKS = 8, REST_MS = 1000, END_MS = 2000, STACK_BYTES = 256 << 10 };

/* Where these live depends on the age of the C library: in libpthread once, which a program without
 * threads need not have loaded; then there is no thread. */
#if defined(__x86_64__)
#define VS_FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define VS_FIRST_VERSION "GLIBC_2.17"
#endif
#ifdef __GLIBC__
__asm__(".symver pthread_create,pthread_create@" VS_FIRST_VERSION);
__asm__(".symver pthread_attr_setstacksize,pthread_attr_setstacksize@" VS_FIRST_VERSION);
#endif
#pragma weak pthread_create
#pragma weak pthread_attr_setstacksize

static _Atomic uint32_t *word_of(struct vs_process_page *page)
{
    return &page->decay;
}

/* Sleeps while the word has this value, and nobody wakes us. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    VS_SYS(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &time, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    VS_SYS(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
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

/* Is there no thread left but this one, and the remains of the first, which are never gone? */
static bool is_alone(void)
{
    enum { AFTER_STATE = 17 }; /* fields of /proc/self/stat up to the number of threads */
    char text[512], *at;
    int fd = vs_sys_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
    long length = fd < 0 ? 0 : vs_sys_read(fd, text, sizeof(text) - 1);

    if (fd >= 0) {
        vs_sys_close(fd);
    }
    text[length > 0 ? length : 0] = '\0';
    at = strrchr(text, ')'); /* the name before it may hold anything */
    if (at == NULL || at[1] != ' ' || at[2] != 'Z') {
        return false;
    }
    at += 2;
    for (unsigned i = 0; i < AFTER_STATE && at != NULL; i++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL && at[1] == '2' && at[2] == ' ';
}

/* Sleeps so long, unless it is to end, and looks once in a second. False: we are alone. */
static bool rest(_Atomic uint32_t *word, int64_t ms)
{
    uint32_t state = atomic_load(word);
    bool alone = false;

    for (; ms > 0 && !alone && state != VS_DECAY_ENDING; ms -= REST_MS) {
        sleep_on(word, state, ms < REST_MS ? ms : REST_MS);
        state = atomic_load(word);
        alone = is_alone();
    }
    return !alone;
}

/* The end of this thread is that of the process: its handlers run here, as they would have run in
 * the program's last thread. */
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

static void *run(void *arg)
{
    struct vs_process_page *page = arg;
    _Atomic uint32_t *word = word_of(page);
    int64_t period = vs_arm_resolved()->pool_decay_ms / TICKS;
    bool alone = false;

    period = period > 0 ? period : 1;
    VS_SYS(SYS_prctl, PR_SET_NAME, "vramshim-decay", 0, 0, 0);
    vs_guard_depth = 1;
    for (;;) {
        uint32_t state = atomic_load_explicit(word, memory_order_seq_cst);

        if (state == VS_DECAY_ENDING) {
            break;
        }
        alone = !rest(word, state == VS_DECAY_RESTING ? REST_MS : period);
        if (alone) {
            break;
        }
        if (state != VS_DECAY_RESTING && atomic_load(word) != VS_DECAY_ENDING) {
            uint32_t next = tick()                      ? VS_DECAY_TICKING
                            : state == VS_DECAY_TICKING ? VS_DECAY_LAST
                                                        : VS_DECAY_RESTING;

            /* A free that came meanwhile has made LAST TICKING, and it stays so. */
            atomic_compare_exchange_strong(word, &state, next);
        }
    }
    atomic_store_explicit(word, VS_DECAY_OFF, memory_order_seq_cst);
    wake(word);
    if (alone) {
        leave_to_the_program();
    }
    return NULL;
}

/* The end of the program: the driver will be taken down after this. */
static void end(int status, void *arg)
{
    struct vs_process_page *page = vs_process_page();
    _Atomic uint32_t *word = word_of(page);
    uint64_t until;
    uint32_t state = atomic_load(word);

    (void)status;
    if (arg != page || !vs_process_is_owner()) {
        return; /* a child that may share the memory, but not the thread */
    }
    while (state == VS_DECAY_TICKING || state == VS_DECAY_LAST || state == VS_DECAY_RESTING) {
        if (atomic_compare_exchange_weak(word, &state, VS_DECAY_ENDING)) {
            state = VS_DECAY_ENDING;
            wake(word);
        }
    }
    until = vs_sys_clock(CLOCK_MONOTONIC) + END_MS * UINT64_C(1000000);
    while (state == VS_DECAY_ENDING && vs_sys_clock(CLOCK_MONOTONIC) < until) {
        sleep_on(word, VS_DECAY_ENDING, 10);
        state = atomic_load(word);
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
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_attr_setstacksize != NULL) {
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
    }
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    error = pthread_create(&thread, &attributes, run, page);
    if (error != 0) { /* thread-local memory may not leave room on a small stack */
        pthread_attr_destroy(&attributes);
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        error = pthread_create(&thread, &attributes, run, page);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

void vs_decay_tell(void)
{
    struct vs_process_page *page = vs_process_page();
    uint32_t state = atomic_load_explicit(word_of(page), memory_order_relaxed);

    if (state == VS_DECAY_LAST || state == VS_DECAY_RESTING) {
        atomic_compare_exchange_strong(word_of(page), &state, VS_DECAY_TICKING);
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
    if (on_exit(end, page) != 0 || !start_thread(page)) {
        atomic_store(word, VS_DECAY_OFF);
        vs_ledger_note("no-decay",
                       "no thread could be started that gives idle memory back: it goes "
                       "back only when memory is short");
    }
}
