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
 *   VRAMSIM_MIG      off, on (2) or number of MIG instances that each device is cut into      off
 *   VRAMSIM_LATENCY  microseconds added to each op                                           0
 *   VRAMSIM_RACE     off: races, bad addresses and stale handles are not reported            on
 *   VRAMSIM_COST     entry:microseconds, comma list: what calls cost the caller (cost.c)      none
 *   VRAMSIM_PEER     off: the devices cannot reach each other's memory                       on
 *   VRAMSIM_POISON   off: fresh device memory is zero instead of 0xa5                        on
 *   VRAMSIM_REUSE    off: a freed address comes back as late as possible, a handle never      on
 *   VRAMSIM_GHOSTS   on: a destroyed context that is current answers questions                off
 */
#include "machine.h"
#include "sim.h"

#include <string.h>

struct sim_config sim_config;

static bool on_off(const char *name, bool fallback, bool *out)
{
    const char *value = sim_knob_get(name);
    *out = value == NULL ? fallback : strcmp(value, "on") == 0;
    return value == NULL || *out || strcmp(value, "off") == 0 ||
           sim_knob_bad(name, value, "on or off");
}

bool sim_config_load(void)
{
    long api, latency;
    struct sim_knobs knobs;
    if (!sim_knobs_load(&knobs) ||
        !sim_knob_number("VRAMSIM_API", 10000, 13990, 13000, "a driver version from 10000 to 13990",
                         &api) ||
        !sim_knob_number("VRAMSIM_LATENCY", 0, 10000000, 0, "microseconds, at most 10000000",
                         &latency) ||
        !sim_knob_size("VRAMSIM_CONTEXT", 0, true, &sim_config.context))
        return false;
    sim_config.devices = knobs.shape.gpus; /* a shared machine may say otherwise (machine.c) */
    sim_config.memory = knobs.shape.memory;
    sim_config.share = knobs.share;
    sim_config.latency_us = (unsigned)latency;
    if (!on_off("VRAMSIM_RACE", true, &sim_config.race) ||
        !on_off("VRAMSIM_PEER", true, &sim_config.peer) ||
        !on_off("VRAMSIM_POISON", true, &sim_config.poison) ||
        !on_off("VRAMSIM_REUSE", true, &sim_config.reuse) ||
        !on_off("VRAMSIM_GHOSTS", false, &sim_config.ghosts))
        return false;
    const char *cost = sim_knob_get("VRAMSIM_COST");
    if (cost != NULL && !sim_cost_load(cost))
        return false;
    const char *fault = sim_knob_get("VRAMSIM_FAULT");
    return fault == NULL || sim_fault_load(fault);
}
