/*
 * Reading the environment: what shapes the machine, and helpers for what else there is (config.c).
 * Each bad value is one line on stderr that names the variable, the value and what is accepted.
 */
#include "machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

bool sim_knob_bad(const char *name, const char *value, const char *accepted)
{
    sim_say("%s=%s: expected %s", name, value, accepted);
    return false;
}

const char *sim_knob_get(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

bool sim_knob_number(const char *name, long low, long high, long fallback, const char *accepted,
                     long *out)
{
    const char *value = sim_knob_get(name);
    *out = fallback;
    if (value == NULL)
        return true;
    char *end;
    errno = 0;
    long parsed = strtol(value, &end, 10);
    if (errno != 0 || *end != '\0' || parsed < low || parsed > high)
        return sim_knob_bad(name, value, accepted);
    *out = parsed;
    return true;
}

bool sim_knob_size(const char *name, size_t fallback, bool zero, size_t *out)
{
    const char *value = sim_knob_get(name);
    *out = fallback;
    if (value == NULL)
        return true;
    if (!sim_parse_size(value, out) || (*out == 0 && !zero))
        return sim_knob_bad(name, value, "a size such as 512MiB, 8G or bytes");
    return true;
}

bool sim_knobs_load(struct sim_knobs *knobs)
{
    long gpus;
    if (!sim_knob_number("VRAMSIM_DEVICES", 0, SIM_MAX_UNITS, 1, "a count from 0 to 16", &gpus) ||
        !sim_knob_size("VRAMSIM_MEMORY", (size_t)1 << 30, false, &knobs->shape.memory))
        return false;
    long instances = 0;
    const char *mig = sim_knob_get("VRAMSIM_MIG");
    if (mig != NULL && strcmp(mig, "on") == 0)
        instances = 2;
    else if (mig != NULL && strcmp(mig, "off") != 0 &&
             !sim_knob_number("VRAMSIM_MIG", 0, 7, 0, "off, on (2) or instances from 0 to 7",
                              &instances))
        return false;
    if (gpus * instances > SIM_MAX_UNITS)
        return sim_knob_bad("VRAMSIM_MIG", mig, "at most 16 instances on the whole machine");
    knobs->shape.gpus = (int)gpus;
    knobs->shape.instances = (int)instances;
    knobs->gpus_set = sim_knob_get("VRAMSIM_DEVICES") != NULL;
    knobs->memory_set = sim_knob_get("VRAMSIM_MEMORY") != NULL;
    knobs->instances_set = mig != NULL;
    knobs->share = sim_knob_get("VRAMSIM_SHARE");
    return true;
}
