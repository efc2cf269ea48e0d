/*
 * VRAMSIM_COST=entry:microseconds[,...]: calls of an entry point keep the caller busy that long, on
 * top of what the simulator itself takes, so that a bench plays a real driver's costs. entry is an
 * export or a base name as in VRAMSIM_FAULT; fractions count. `h200` in the list stands for what
 * was measured on an H200 with driver 580; what comes after it overrides it.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

bool sim_cost_any;
static uint32_t cost_ns[SIM_E_COUNT];

static const struct {
    const char *entry;
    uint32_t ns;
} h200[] = {
    {"cuMemAlloc", 30000},     {"cuMemFree", 30000},    {"cuMemAllocAsync", 300},
    {"cuMemFreeAsync", 280},   {"cuMemCreate", 6500},   {"cuMemMap", 600},
    {"cuMemSetAccess", 17000}, {"cuMemUnmap", 12000},   {"cuMemRelease", 8000},
    {"cuCtxRecordEvent", 240}, {"cuCtxWaitEvent", 240}, {"cuEventQuery", 160},
};

static bool set(const char *entry, uint32_t ns)
{
    bool found = false;
    for (unsigned i = 0; i < SIM_E_COUNT; i++) {
        if (sim_entry_named((enum sim_entry)i, entry)) {
            cost_ns[i] = ns;
            found = true;
        }
    }
    return found;
}

static bool one(char *item)
{
    if (strcmp(item, "h200") == 0) {
        for (size_t i = 0; i < sizeof h200 / sizeof h200[0]; i++)
            set(h200[i].entry, h200[i].ns);
        return true;
    }
    char *colon = strchr(item, ':');
    if (colon == NULL)
        return false;
    *colon = '\0';
    char *end;
    double us = strtod(colon + 1, &end);
    return end != colon + 1 && *end == '\0' && us >= 0 && us <= 1e6 &&
           set(item, (uint32_t)(us * 1000));
}

bool sim_cost_load(const char *spec)
{
    char copy[2048];
    bool good = strlen(spec) < sizeof copy;
    if (good) {
        strcpy(copy, spec);
        char *save = NULL;
        for (char *item = strtok_r(copy, ",", &save); item != NULL && good;
             item = strtok_r(NULL, ",", &save))
            good = one(item);
    }
    if (!good)
        sim_say("VRAMSIM_COST=%s: expected h200 or entry:microseconds, comma-separated, with an "
                "entry point of the simulator and at most 1000000",
                spec);
    sim_cost_any = good;
    return good;
}

void sim_cost_spend(enum sim_entry entry)
{
    if (cost_ns[entry] == 0)
        return;
    uint64_t until = sim_now_ns() + cost_ns[entry];
    while (sim_now_ns() < until)
        ;
}
