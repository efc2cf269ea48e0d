/*
 * The simulator's environment (docs: VRAMSIM_*). Each bad value is one line on stderr that names
 * the variable, the value and what is accepted; cuInit then fails, so that a typo never tests
 * something else than was meant.
 *
 *   VRAMSIM_DEVICES  number of devices, 0 to 16                                              1
 *   VRAMSIM_MEMORY   of each device: 512MiB, 8G, bytes                                       1GiB
 *   VRAMSIM_CONTEXT  bytes that each context takes                                           0
 *   VRAMSIM_API      driver version it plays; newer entry points are not there               13000
 *   VRAMSIM_FAULT    entry:error:nth, comma list (fault.c)                                   none
 *   VRAMSIM_SHARE    file of a machine that processes share                                  none
 *   VRAMSIM_LATENCY  microseconds added to each op                                           0
 *   VRAMSIM_RACE     off: races and bad addresses are not reported                           on
 */
#include "sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_config sim_config;

void sim_say(const char *format, ...)
{
    char line[1024];
    int used = snprintf(line, sizeof line, "vramsim: ");
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    size_t length = (size_t)used + (more < 0 ? 0 : (size_t)more);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    ssize_t written = write(2, line, length);
    (void)written;
}

bool sim_parse_size(const char *text, size_t *bytes)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0},     {"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},
                 {"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40}};
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        if (number > (SIZE_MAX >> 1) >> units[i].shift)
            return false;
        *bytes = (size_t)number << units[i].shift;
        return true;
    }
    return false;
}

static bool bad(const char *name, const char *value, const char *accepted)
{
    sim_say("%s=%s: expected %s", name, value, accepted);
    return false;
}

static const char *get(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool number(const char *name, long low, long high, long fallback, const char *accepted,
                   long *out)
{
    const char *value = get(name);
    *out = fallback;
    if (value == NULL)
        return true;
    char *end;
    errno = 0;
    long parsed = strtol(value, &end, 10);
    if (errno != 0 || *end != '\0' || parsed < low || parsed > high)
        return bad(name, value, accepted);
    *out = parsed;
    return true;
}

static bool size(const char *name, size_t fallback, bool zero, size_t *out)
{
    const char *value = get(name);
    *out = fallback;
    if (value == NULL)
        return true;
    if (!sim_parse_size(value, out) || (*out == 0 && !zero))
        return bad(name, value, "a size such as 512MiB, 8G or bytes");
    return true;
}

bool sim_config_load(void)
{
    long devices, api, latency;
    if (!number("VRAMSIM_DEVICES", 0, SIM_MAX_DEVICES, 1, "a count from 0 to 16", &devices) ||
        !number("VRAMSIM_API", 10000, 13990, 13000, "a driver version from 10000 to 13990", &api) ||
        !number("VRAMSIM_LATENCY", 0, 10000000, 0, "microseconds, at most 10000000", &latency) ||
        !size("VRAMSIM_MEMORY", (size_t)1 << 30, false, &sim_config.memory) ||
        !size("VRAMSIM_CONTEXT", 0, true, &sim_config.context))
        return false;
    sim_config.devices = (int)devices;
    sim_config.api = (int)api;
    sim_config.latency_us = (unsigned)latency;
    sim_config.share = get("VRAMSIM_SHARE");
    sim_config.race = true;
    const char *race = get("VRAMSIM_RACE");
    if (race != NULL && strcmp(race, "off") == 0)
        sim_config.race = false;
    else if (race != NULL && strcmp(race, "on") != 0)
        return bad("VRAMSIM_RACE", race, "on or off");
    const char *fault = get("VRAMSIM_FAULT");
    return fault == NULL || sim_fault_load(fault);
}
