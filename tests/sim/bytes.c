/*
 * Fills, copies and comparisons of simulated memory, in bulk.
 *
 * What it holds is the program's, and so are races on it: race.c finds those. ThreadSanitizer looks
 * away meanwhile; it would find the program's, and take many times as long.
 */
#include "sim.h"

#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WATCHED 1
#endif
#endif

#ifdef WATCHED
/* Of the sanitizer's runtime: this thread's reads and writes are not looked at in between. */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define UNWATCHED(action)                                                                          \
    (AnnotateIgnoreReadsBegin(__FILE__, __LINE__), (action),                                       \
     AnnotateIgnoreReadsEnd(__FILE__, __LINE__))
#else
#define UNWATCHED(action) (action)
#endif

/* Longer and longer copies of what is there already. */
static void repeat(unsigned char *to, size_t bytes, unsigned element, unsigned value)
{
    size_t done = element, most = 65536;
    memcpy(to, &value, element); /* little-endian */
    while (done < bytes) {
        size_t more = done < most ? done : most;
        more = more < bytes - done ? more : bytes - done;
        memcpy(to + done, to, more);
        done += more;
    }
}

void sim_bytes_fill(unsigned char *to, size_t bytes, unsigned element, unsigned value)
{
    bytes -= bytes % element;
    if (element == 1)
        UNWATCHED(memset(to, (int)value, bytes));
    else if (bytes > 0)
        UNWATCHED(repeat(to, bytes, element, value));
}

void sim_bytes_move(unsigned char *to, const unsigned char *from, size_t bytes)
{
    UNWATCHED(memmove(to, from, bytes));
}

static uint32_t count_others(const unsigned char *at, size_t words, uint32_t value)
{
    uint32_t others = 0;
    if (words == 0 || (memcmp(at, &value, 4) == 0 && memcmp(at, at + 4, (words - 1) * 4) == 0))
        return 0;
    for (size_t i = 0; i < words; i++)
        others += memcmp(at + i * 4, &value, 4) != 0;
    return others;
}

uint32_t sim_bytes_others(const unsigned char *at, size_t bytes, uint32_t value)
{
    uint32_t others = 0;
    UNWATCHED(others = count_others(at, bytes / 4, value));
    return others;
}
