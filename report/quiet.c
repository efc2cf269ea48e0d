/* Writing without side effects (see quiet.h). */
#include "report/quiet.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>

#include "report/sys.h"

/* Signals that a failing write sends to its own thread: held back, and taken away if they came. */
struct hush {
    sigset_t ours, before, pending;
};

static void hush_begin(struct hush *hush)
{
    sigemptyset(&hush->ours);
    sigaddset(&hush->ours, SIGPIPE);
    sigaddset(&hush->ours, SIGXFSZ);
    sigemptyset(&hush->pending);
    sigpending(&hush->pending);
    sigprocmask(SIG_BLOCK, &hush->ours, &hush->before);
}

static void hush_end(struct hush *hush)
{
    static const int signals[] = {SIGPIPE, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (sigismember(&hush->pending, signals[i]) == 1) {
            continue; /* the program's own: it keeps it */
        }
        sigset_t one;
        struct timespec at_once = {0, 0};
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        while (sigtimedwait(&one, NULL, &at_once) < 0 && errno == EINTR) {
        }
    }
    sigprocmask(SIG_SETMASK, &hush->before, NULL);
}

/* 0 when it may be written to, -EAGAIN when patience is over. What was really waited is taken off
 * it. */
static long wait_writable(int fd, int *patience_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    long rc = -EINTR;
    while ((rc == 0 || rc == -EINTR) && *patience_ms > 0) {
        /* Anew each time: the kernel writes into it what was left. */
        struct timespec left = {*patience_ms / 1000, *patience_ms % 1000 * 1000000L};
        uint64_t start = vs_sys_clock(CLOCK_MONOTONIC);
        rc = VS_SYS(SYS_ppoll, &poll_fd, 1L, &left, NULL, 0L);
        uint64_t waited_ms = (vs_sys_clock(CLOCK_MONOTONIC) - start) / 1000000;
        *patience_ms -= waited_ms < (uint64_t)*patience_ms ? (int)waited_ms : *patience_ms;
    }
    if (rc == 0 || rc == -EINTR) {
        return -EAGAIN;
    }
    return rc < 0 ? rc : 0;
}

static bool never_blocks(int fd)
{
    struct stat st;
    return vs_sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

int vs_quiet_write(int fd, const char *from, size_t length, int *patience_ms)
{
    struct hush hush;
    bool plain = never_blocks(fd);
    int saved = errno;
    long rc = 0;
    hush_begin(&hush);
    while (length > 0 && rc >= 0) {
        /* A pipe that polls writable takes this much without blocking. */
        size_t part = plain || length < PIPE_BUF ? length : PIPE_BUF;
        if (!plain) {
            rc = wait_writable(fd, patience_ms);
            if (rc < 0) {
                break;
            }
        }
        rc = vs_sys_write(fd, from, part);
        if (rc == -EAGAIN) {
            *patience_ms -= 1; /* poll may promise what write then refuses; don't turn for ever */
            rc = 0;
        } else if (rc == -EINTR) {
            rc = 0;
        } else if (rc == 0) {
            rc = -EIO;
        } else if (rc > 0) {
            from += rc;
            length -= (size_t)rc;
        }
    }
    hush_end(&hush);
    errno = saved;
    return rc < 0 ? (int)rc : 0;
}

static struct {
    atomic_bool known;
    bool open;
    struct stat status;
} stderr_then;

void vs_quiet_remember_stderr(void)
{
    atomic_store(&stderr_then.known, false);
    stderr_then.open = vs_sys_fstat(2, &stderr_then.status) == 0;
    atomic_store(&stderr_then.known, true);
}

bool vs_quiet_is_stderr(void)
{
    struct stat now;
    if (!atomic_load(&stderr_then.known)) {
        return true;
    }
    return stderr_then.open && vs_sys_fstat(2, &now) == 0 &&
           now.st_dev == stderr_then.status.st_dev && now.st_ino == stderr_then.status.st_ino &&
           now.st_rdev == stderr_then.status.st_rdev;
}
