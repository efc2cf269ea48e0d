/*
 * What the shim says to people: one line at a time on descriptor 2, each in one write.
 *
 * Every line begins with "vramshim[PID]: ". Nothing here allocates, uses stdio or a locale, changes
 * errno, or raises SIGPIPE. Any thread, any time, without a lock; lines of two threads never mix.
 */
#ifndef VS_SHIM_SAY_H
#define VS_SHIM_SAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The levels of VRAMSHIM_VERBOSE. */
enum vs_say_level {
    VS_SAY_ERROR = 0,    /* always shown: refusals, warnings, faults */
    VS_SAY_RESOLVED = 1, /* what the options came to */
    VS_SAY_DECISION = 2, /* what was decided on the way, and why */
};

/* The longest line with its prefix and newline; longer ones are cut and end in "...". Below
 * PIPE_BUF, so that a write to a pipe is one piece. */
#define VS_SAY_MAX 1024

/* Until this is called, only level 0 is shown. */
void vs_say_set_level(int level);
bool vs_say_shows(int level);

/* Says one line, without a newline at its end; nothing, once descriptor 2 is no longer what
 * report/quiet.h remembers. Conversions: those of vs_text_format. Control characters are shown as
 * '?', so that a line stays one line. */
void vs_say(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Has a second passed since the last time that this said yes for the same word (0 at first)? */
bool vs_say_seldom(_Atomic uint64_t *last);

/* The same at most once in this process (a fork's child counts as the same one) per place in the
 * code. */
#define VS_SAY_ONCE(level, ...)                                                                    \
    do {                                                                                           \
        static atomic_flag vs_said_ = ATOMIC_FLAG_INIT;                                            \
        if (vs_say_shows(level) && !atomic_flag_test_and_set(&vs_said_))                           \
            vs_say(level, __VA_ARGS__);                                                            \
    } while (0)

#endif
