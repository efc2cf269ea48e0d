/* The output buffer of emit.h: writing to descriptors, and plain numbers. */
#include "report/emit.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "report/sys.h"

#define PATIENCE_MS 2000
#define STEP_MS 100

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
        if (sigismember(&hush->pending, signals[i]) == 1)
            continue; /* the program's own: it keeps it */
        sigset_t one;
        struct timespec at_once = {0, 0};
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        while (sigtimedwait(&one, NULL, &at_once) < 0 && errno == EINTR)
            ;
    }
    sigprocmask(SIG_SETMASK, &hush->before, NULL);
}

static long wait_writable(int fd, int *patience)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    struct timespec step = {0, STEP_MS * 1000000L};
    if (*patience <= 0)
        return -EAGAIN;
    long rc = VS_SYS(SYS_ppoll, &poll_fd, 1L, &step, NULL, 0L);
    if (rc == 0 || rc == -EINTR)
        *patience -= STEP_MS;
    else if (rc > 0)
        *patience -= 1; /* poll may promise what write then refuses; don't turn for ever */
    return rc == -EINTR || rc >= 0 ? 0 : rc;
}

static int write_all(int fd, const char *from, size_t length)
{
    struct hush hush;
    int patience = PATIENCE_MS;
    int saved = errno;
    long rc = 0;
    hush_begin(&hush);
    while (length > 0) {
        rc = vs_sys_write(fd, from, length);
        if (rc == -EINTR)
            continue;
        if (rc == -EAGAIN)
            rc = wait_writable(fd, &patience);
        if (rc < 0)
            break;
        from += rc;
        length -= (size_t)rc;
    }
    hush_end(&hush);
    errno = saved;
    return rc < 0 ? (int)rc : 0;
}

void vs_out_to_fd(struct vs_out *out, int fd, char *buffer, size_t size)
{
    *out = (struct vs_out){.fd = fd, .buffer = buffer, .size = size};
}

void vs_out_to_memory(struct vs_out *out, char *memory, size_t size)
{
    *out = (struct vs_out){.fd = -1, .buffer = memory, .size = size};
    memory[0] = '\0';
}

int vs_out_flush(struct vs_out *out)
{
    if (out->fd < 0)
        return out->error;
    if (out->error == 0 && out->used > 0)
        out->error = write_all(out->fd, out->buffer, out->used);
    out->used = 0;
    return out->error;
}

void vs_out_raw(struct vs_out *out, const char *from, size_t length)
{
    while (length > 0 && out->error == 0) {
        size_t room = out->size - out->used;
        size_t part = length < room ? length : room;
        memcpy(out->buffer + out->used, from, part);
        out->used += part;
        from += part;
        length -= part;
        if (out->fd < 0) {
            out->buffer[out->used] = '\0';
            if (length > 0)
                out->error = -ENOSPC;
        } else if (out->used == out->size) {
            vs_out_flush(out);
        }
    }
}

void vs_out_char(struct vs_out *out, char c)
{
    vs_out_raw(out, &c, 1);
}

void vs_out_str(struct vs_out *out, const char *text)
{
    vs_out_raw(out, text, strlen(text));
}

/* Decimal digits of value, right-aligned in to[20]; returns where they begin. */
static unsigned digits_of(uint64_t value, char to[20])
{
    unsigned at = 20;
    do
        to[--at] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    return at;
}

void vs_out_padded(struct vs_out *out, uint64_t value, unsigned digits)
{
    char text[20];
    unsigned at = digits_of(value, text);
    for (unsigned have = 20 - at; have < digits; have++)
        vs_out_char(out, '0');
    vs_out_raw(out, text + at, 20 - at);
}

void vs_out_u64(struct vs_out *out, uint64_t value)
{
    vs_out_padded(out, value, 1);
}

void vs_out_grouped(struct vs_out *out, uint64_t value)
{
    char text[20];
    for (unsigned at = digits_of(value, text); at < 20; at++) {
        vs_out_char(out, text[at]);
        if ((19 - at) % 3 == 0 && at != 19)
            vs_out_char(out, ',');
    }
}

void vs_out_ratio(struct vs_out *out, uint64_t numerator, uint64_t denominator, unsigned decimals)
{
    uint64_t scale = 1;
    for (unsigned i = 0; i < decimals; i++)
        scale *= 10;
    uint64_t whole = numerator / denominator;
    unsigned __int128 rest = numerator % denominator;
    uint64_t part =
        (uint64_t)((rest * scale * 2 + denominator) / ((unsigned __int128)denominator * 2));
    if (part == scale) {
        whole++;
        part = 0;
    }
    vs_out_u64(out, whole);
    if (decimals) {
        vs_out_char(out, '.');
        vs_out_padded(out, part, decimals);
    }
}
