/*
 * The value of VRAMSHIM_REPORT: a comma list of stderr, none, or paths ending in .json or .txt,
 * with %p (pid), %h (host), %e (executable), %q{VAR} (variable) and %%. Parsing and expansion only;
 * no file is touched.
 */
#ifndef VS_REPORT_PATTERN_H
#define VS_REPORT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#define VS_PATTERN_PATH 4096
#define VS_PATTERN_ITEMS 8

enum vs_pattern_type { VS_PATTERN_NONE, VS_PATTERN_STDERR, VS_PATTERN_JSON, VS_PATTERN_TEXT };

struct vs_pattern_item {
    enum vs_pattern_type type;
    const char *from; /* into the spec, blanks around it left out; not closed */
    size_t length;
};

struct vs_pattern_facts {
    int pid;
    const char *host;
    const char *executable; /* a path; %e is its last part */
};

/* Splits and checks a spec. Returns NULL and sets *count, or says what is wrong (a static text). */
const char *vs_pattern_parse(const char *spec, struct vs_pattern_item item[VS_PATTERN_ITEMS],
                             size_t *count);

/* Expands a path of a spec that was parsed. A variable that is not set is empty; a slash from %h or
 * %e becomes "_" (one from %q stays). 0 or -ENAMETOOLONG. */
int vs_pattern_expand(const struct vs_pattern_item *item, const struct vs_pattern_facts *facts,
                      char path[VS_PATTERN_PATH]);

#endif
