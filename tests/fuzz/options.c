/*
 * Fuzz entry of the option parsers: any bytes as an environment, entries separated by NUL. A piece
 * without "VRAMSHIM_" in front is taken as the value of the option that its first byte picks.
 *
 * Holds for every input: loading ends, with a documented result; whatever is said is one printable
 * line; what was accepted is shown as text that loads again to the same; devices can be checked.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define MAX_ENTRIES 32

static void check_line(void *context, int level, enum vs_option option, const char *line)
{
    (void)context;
    MUST(level >= 0 && level <= 2);
    MUST(option <= VS_OPTION_COUNT);
    MUST(line[0] != '\0');
    for (; *line; line++)
        MUST(*line >= 0x20 && *line < 0x7f);
}

static const struct vs_options_listener listener = {check_line, NULL};

static char *entry_of(const char *piece, size_t length)
{
    char *entry = malloc(length + 64);

    MUST(entry);
    if (length >= 9 && memcmp(piece, "VRAMSHIM_", 9) == 0)
        snprintf(entry, length + 64, "%s", piece);
    else
        snprintf(entry, length + 64, "%s=%s",
                 vs_options_table[(unsigned char)piece[0] % VS_OPTION_COUNT].name, piece + 1);
    return entry;
}

static void check_reload(const struct vs_options *first, int result)
{
    static struct vs_options second;
    static struct vs_options_dump dump, again_dump;
    static char space[VS_OPTION_COUNT][VS_OPTIONS_TEXT + 64];
    char *environment[VS_OPTION_COUNT + 1];
    int count = 0, again;

    MUST(vs_options_dump(first, &dump) == VS_OPTION_COUNT);
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        MUST(dump.options[i].value && dump.options[i].value[0]);
        if (!first->given[i])
            continue;
        snprintf(space[count], sizeof(space[count]), "%s=%s", dump.options[i].name,
                 dump.options[i].value);
        environment[count] = space[count];
        count++;
    }
    environment[count] = NULL;
    again = vs_options_load(&second, environment, &listener);
    if (result == 0)
        MUST(again == 0);
    vs_options_dump(&second, &again_dump);
    for (int i = 0; i < VS_OPTION_COUNT; i++) {
        MUST(first->given[i] == second.given[i]);
        MUST(strcmp(dump.options[i].value, again_dump.options[i].value) == 0);
    }
}

static void check_devices(const struct vs_options *options)
{
    static const struct vs_options_device devices[] = {
        {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", UINT64_C(80) << 30},
        {NULL, 0},
        {"MIG-5c89852c-d268-5c7f-8a37-b06fbf5ad0b9", 1000},
    };

    vs_options_check_devices(options, devices, 3, &listener);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t limit = 0, group = 0;

        if (vs_options_limit_for(options, i, devices[i].uuid, devices[i].total_bytes, &limit))
            MUST(devices[i].total_bytes == 0);
        else
            MUST(limit <= devices[i].total_bytes);
        if (!vs_options_group_limit_for(options, devices[i].total_bytes, &group))
            MUST(group <= devices[i].total_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vs_options options;
    char *environment[MAX_ENTRIES + 1];
    char *copy = malloc(size + 1);
    int count = 0, result;

    MUST(copy);
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    for (size_t at = 0; at < size && count < MAX_ENTRIES;) {
        size_t length = strlen(copy + at);

        if (length > 0)
            environment[count++] = entry_of(copy + at, length);
        at += length + 1;
    }
    environment[count] = NULL;
    result = vs_options_load(&options, environment, &listener);
    MUST(result == 0 || result == VS_OPTIONS_BAD_CAP);
    check_reload(&options, result);
    vs_options_announce(&options, &listener);
    check_devices(&options);
    while (count > 0)
        free(environment[--count]);
    free(copy);
    return 0;
}
