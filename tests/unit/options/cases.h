/*
 * Small helpers of the option tests: cmocka, and a listener that keeps what is said.
 */
#ifndef VS_TEST_OPTIONS_CASES_H
#define VS_TEST_OPTIONS_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shim/options.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct heard {
    unsigned count;
    int level[64];
    enum vs_option option[64];
    char line[64][1024];
};

static inline void hear(void *context, int level, enum vs_option option, const char *line)
{
    struct heard *heard = context;

    assert_true(heard->count < 64);
    heard->level[heard->count] = level;
    heard->option[heard->count] = option;
    snprintf(heard->line[heard->count++], sizeof(heard->line[0]), "%s", line);
}

/* Fails with all that was heard if no line holds the piece. */
static inline void assert_heard(const struct heard *heard, const char *piece)
{
    for (unsigned i = 0; i < heard->count; i++)
        if (strstr(heard->line[i], piece))
            return;
    print_error("nobody said \"%s\"; %u lines were:\n", piece, heard->count);
    for (unsigned i = 0; i < heard->count; i++)
        print_error("  %s\n", heard->line[i]);
    fail();
}

#endif
