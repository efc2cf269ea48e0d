/*
 * Lines on descriptor 2 (see say.h). A line is built on the stack and written once; what a full
 * pipe does not take within a moment is dropped, since there is nobody left to tell.
 */
#include "shim/say.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "report/quiet.h"
#include "report/sys.h"
#include "shim/text.h"

#define PATIENCE_MS 500

static atomic_int shown_level = VS_SAY_ERROR;

void vs_say_set_level(int level)
{
    atomic_store_explicit(&shown_level, level, memory_order_relaxed);
}

bool vs_say_shows(int level)
{
    return level <= atomic_load_explicit(&shown_level, memory_order_relaxed);
}

bool vs_say_seldom(_Atomic uint64_t *last)
{
    uint64_t now = vs_sys_clock(CLOCK_MONOTONIC_COARSE);
    uint64_t before = atomic_load_explicit(last, memory_order_relaxed);

    return (before == 0 || now - before >= UINT64_C(1000000000)) &&
           atomic_compare_exchange_strong(last, &before, now);
}

void vs_say(int level, const char *format, ...)
{
    char line[VS_SAY_MAX];
    va_list arguments;
    size_t length, text_at;
    int saved = errno, patience_ms = PATIENCE_MS;

    if (!vs_say_shows(level) || !vs_quiet_is_stderr()) {
        errno = saved;
        return;
    }
    text_at = vs_text_format(line, VS_SAY_MAX, "vramshim[%d]: ", (int)getpid());
    va_start(arguments, format);
    /* VS_SAY_MAX leaves a byte for the newline. */
    length = text_at + vs_text_vformat(line + text_at, VS_SAY_MAX - text_at, format, arguments);
    va_end(arguments);
    if (length == VS_SAY_MAX - 1) {
        memcpy(line + length - 3, "...", 3);
    }
    for (size_t i = text_at; i < length; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[length++] = '\n';
    vs_quiet_write(STDERR_FILENO, line, length, &patience_ms);
    errno = saved;
}
