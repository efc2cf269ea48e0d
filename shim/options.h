/*
 * The options: everything that the environment can ask for, parsed and validated.
 *
 * Knows no CUDA, calls no malloc and no stdio, so that the shim, the command and the tests share
 * it. A cap that cannot be parsed is refused (VS_OPTIONS_BAD_CAP), any other bad value is said and
 * the default stands. An empty variable is an unset one; of a variable that is there twice the
 * first counts, as for getenv. Not thread-safe: load once, then read only.
 */
#ifndef VS_SHIM_OPTIONS_H
#define VS_SHIM_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/report.h"
#include "shim/cap.h"
#include "shim/size.h"

enum vs_option {
#define VS_OPTION(id, ...) VS_OPTION_##id,
#include "shim/options.def"
    VS_OPTION_COUNT /* also: no option in particular */
};

enum vs_option_kind {
    VS_OPTION_IS_BOOL,
    VS_OPTION_IS_CHOICE,
    VS_OPTION_IS_SIZE,
    VS_OPTION_IS_INTEGER,
    VS_OPTION_IS_CAP,
    VS_OPTION_IS_AMOUNT,
    VS_OPTION_IS_FRACTION,
    VS_OPTION_IS_NAME,
    VS_OPTION_IS_PATH,
    VS_OPTION_IS_REPORT,
    VS_OPTION_IS_DIR,
};

/* One row of the table. */
struct vs_option_info {
    const char *name; /* "VRAMSHIM_LIMIT" */
    const char *choices;
    const char *fallback; /* the default, for people */
    const char *accepted;
    const char *meaning;
    int64_t low, high;
    size_t offset; /* of the field in struct vs_options */
    enum vs_option_kind kind;
    bool cap;
    bool acts;
    bool partly; /* it acts, but not on everything that its meaning says */
};

extern const struct vs_option_info vs_options_table[VS_OPTION_COUNT];

enum vs_backing { VS_BACKING_AUTO, VS_BACKING_VMM, VS_BACKING_NATIVE };
enum vs_strict_free { VS_STRICT_FREE_AUTO, VS_STRICT_FREE_ON, VS_STRICT_FREE_OFF };
enum vs_overflow { VS_OVERFLOW_NONE, VS_OVERFLOW_MANAGED };
enum vs_stacks { VS_STACKS_AUTO, VS_STACKS_PYTHON, VS_STACKS_NATIVE, VS_STACKS_OFF };

#define VS_OPTIONS_NO_SIZE UINT64_MAX   /* trim_above: none */
#define VS_OPTIONS_NO_INTEGER INT64_MIN /* leak_exit_code: none */
#define VS_OPTIONS_GROUP_MAX 64
#define VS_OPTIONS_PATH_SIZE 4096

/* Resolved values. Some 25 KiB: keep it static. */
struct vs_options {
    struct vs_cap limit;                  /* count 0 = none */
    uint32_t fraction_ppb;                /* 0 = none */
    struct vs_amount group_limit;         /* both 0 = none */
    char group[VS_OPTIONS_GROUP_MAX + 1]; /* "" = none */
    bool count_context;
    bool pool;
    bool leak_scan;
    int backing;     /* enum vs_backing */
    int strict_free; /* enum vs_strict_free */
    int overflow;    /* enum vs_overflow */
    int stacks;      /* enum vs_stacks */
    uint64_t pool_size;
    uint64_t trim_above; /* VS_OPTIONS_NO_SIZE = none */
    uint64_t stack_min;
    int64_t pool_decay_ms;  /* -1 = never */
    int64_t leak_exit_code; /* VS_OPTIONS_NO_INTEGER = none */
    int64_t verbose;
    char report[VS_OPTIONS_PATH_SIZE];
    char suppressions[VS_OPTIONS_PATH_SIZE]; /* "" = none */
    char trace[VS_OPTIONS_PATH_SIZE];        /* "" = none */
    char dir[VS_OPTIONS_PATH_SIZE];
    bool given[VS_OPTION_COUNT]; /* set in the environment and accepted */
};

/* Positive outcome: a cap was refused, the reason has been said. CUDA must not start. */
#define VS_OPTIONS_BAD_CAP 1

/*
 * Takes one line for people, without a newline. level as VRAMSHIM_VERBOSE; option is what it is
 * about, VS_OPTION_COUNT if none in particular (an unknown name). The line dies with the call.
 */
struct vs_options_listener {
    void (*say)(void *context, int level, enum vs_option option, const char *line);
    void *context;
};

/* The usual listener: vs_say. */
extern const struct vs_options_listener vs_options_to_stderr;

/*
 * Reads the options from an environment (NULL-terminated "NAME=value", as environ; NULL = empty).
 * Returns 0 or VS_OPTIONS_BAD_CAP; *out is complete either way (a refused cap is absent from it).
 * Only problems are said, one line each. Nothing of environment is kept.
 */
int vs_options_load(struct vs_options *out, char *const *environment,
                    const struct vs_options_listener *listener);

/*
 * What should be said about options that are fine: at level 0 what a cap does not hold for yet, at
 * level 1 each value that was given, with a word where it does nothing yet. Set the verbosity
 * first.
 */
void vs_options_announce(const struct vs_options *options,
                         const struct vs_options_listener *listener);

struct vs_options_device {
    const char *uuid; /* "GPU-…" or "MIG-…"; NULL if unknown */
    uint64_t total_bytes;
};

/*
 * Checks caps against the devices that the process sees, in its own numbering. VS_OPTIONS_BAD_CAP
 * if a list names none of them, an entry or two entries name a device ambiguously, or POOL_SIZE is
 * more than a cap; a list of which only some entries match is said, and fine. No devices: 0.
 */
int vs_options_check_devices(const struct vs_options *options,
                             const struct vs_options_device *devices, unsigned count,
                             const struct vs_options_listener *listener);

/*
 * This process's cap on one device, from LIMIT and FRACTION (the lower): *limit in bytes, 0 = none.
 * A cap above the device is the device's size. Returns 0, or -EINVAL if there is a cap and
 * total_bytes is 0. Allocates nothing, takes no lock.
 */
int vs_options_limit_for(const struct vs_options *options, unsigned index, const char *uuid,
                         uint64_t total_bytes, uint64_t *limit);

/* The same for the group's cap (GROUP_LIMIT). */
int vs_options_group_limit_for(const struct vs_options *options, uint64_t total_bytes,
                               uint64_t *limit);

/*
 * One resolved value as text that would parse to it again ("none" if unset). Returns a pointer into
 * *options or out; VS_OPTIONS_TEXT is enough for any.
 */
#define VS_OPTIONS_TEXT VS_CAP_TEXT
const char *vs_options_text(const struct vs_options *options, enum vs_option option, char *out,
                            size_t size);

/* All resolved values for the report. Keep it, and *options, while the array is in use. */
struct vs_options_dump {
    struct vs_report_option options[VS_OPTION_COUNT];
    char space[VS_OPTIONS_TEXT + VS_OPTION_COUNT * VS_SIZE_TEXT];
};

/* Returns the number of entries (VS_OPTION_COUNT). */
size_t vs_options_dump(const struct vs_options *options, struct vs_options_dump *dump);

/* The option with this name, VS_OPTION_COUNT if there is none; and the one with the nearest name.
 */
enum vs_option vs_options_find(const char *name, size_t length);
enum vs_option vs_options_nearest(const char *name, size_t length);

#endif
