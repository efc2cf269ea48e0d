/*
 * Lines on descriptor 2 (see say.h). A line is built on the stack and written once; a short or
 * failed write is not retried, since there is nobody left to tell.
 *
 * A write to a pipe without readers raises SIGPIPE, which would end a program that never wrote to
 * its stderr itself. So SIGPIPE is blocked in this thread for the moment of the write, and one that
 * the write raised is taken off again.
 */
#include "shim/say.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/text.h"

static atomic_int shown_level = VS_SAY_ERROR;

static struct {
    atomic_bool known;
    bool open;
    dev_t device;
    ino_t inode;
    dev_t special;
} remembered;

void vs_say_set_level(int level)
{
    atomic_store_explicit(&shown_level, level, memory_order_relaxed);
}

bool vs_say_shows(int level)
{
    return level <= atomic_load_explicit(&shown_level, memory_order_relaxed);
}

/* The system call itself: fstat as a symbol is too new for the C libraries that we run on. */
static bool stat_stderr(struct stat *status)
{
    return syscall(SYS_fstat, STDERR_FILENO, status) == 0;
}

void vs_say_remember_stderr(void)
{
    struct stat status;
    int saved = errno;

    atomic_store(&remembered.known, false);
    remembered.open = stat_stderr(&status);
    if (remembered.open) {
        remembered.device = status.st_dev;
        remembered.inode = status.st_ino;
        remembered.special = status.st_rdev;
    }
    atomic_store(&remembered.known, true);
    errno = saved;
}

static bool still_stderr(void)
{
    struct stat status;

    if (!atomic_load(&remembered.known))
        return true;
    return remembered.open && stat_stderr(&status) && status.st_dev == remembered.device &&
           status.st_ino == remembered.inode && status.st_rdev == remembered.special;
}

static void write_quietly(const char *line, size_t length)
{
    const struct timespec at_once = {0, 0};
    sigset_t pipe_only, before, pending;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, &pipe_only, &before);
    if (write(STDERR_FILENO, line, length) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &at_once) < 0 && errno == EINTR)
            ;
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void vs_say(int level, const char *format, ...)
{
    char line[VS_SAY_MAX];
    va_list arguments;
    size_t length, text_at;
    int saved = errno;

    if (!vs_say_shows(level) || !still_stderr()) {
        errno = saved;
        return;
    }
    text_at = vs_text_format(line, VS_SAY_MAX, "vramshim[%d]: ", (int)getpid());
    va_start(arguments, format);
    /* VS_SAY_MAX leaves a byte for the newline. */
    length = text_at + vs_text_vformat(line + text_at, VS_SAY_MAX - text_at, format, arguments);
    va_end(arguments);
    if (length == VS_SAY_MAX - 1)
        memcpy(line + length - 3, "...", 3);
    for (size_t i = text_at; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[length++] = '\n';
    write_quietly(line, length);
    errno = saved;
}
