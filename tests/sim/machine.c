/*
 * How much of each unit's memory is taken. Everything that holds device memory charges it here
 * first. Without VRAMSIM_SHARE the machine is this process's own; with it, share.c keeps the books.
 * Own lock, taken last.
 */
#include "machine.h"
#include "sim.h"

static pthread_mutex_t machine_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sim_totals totals[SIM_MAX_UNITS];
static struct sim_shape shape;
static struct sim_share *share;

_Static_assert(SIM_MAX_UNITS == SIM_MAX_DEVICES, "units are numbered like devices");

bool sim_machine_open(void)
{
    struct sim_knobs knobs;
    if (!sim_knobs_load(&knobs))
        return false;
    shape = knobs.shape;
    if (knobs.share == NULL)
        return true;
    share = sim_share_open(&knobs, true, true, &shape);
    sim_config.devices = shape.gpus;
    sim_config.memory = shape.memory;
    return share != NULL;
}

const struct sim_shape *sim_machine_shape(void)
{
    return &shape;
}

bool sim_machine_charge(int physical, size_t bytes)
{
    if (share != NULL)
        return sim_share_charge(share, physical, bytes);
    pthread_mutex_lock(&machine_mutex);
    struct sim_totals *unit = &totals[physical];
    bool fits = bytes <= sim_shape_unit_memory(&shape) - unit->used;
    if (fits)
        unit->used += bytes;
    if (unit->used > unit->peak)
        unit->peak = unit->process_peak = unit->used;
    pthread_mutex_unlock(&machine_mutex);
    return fits;
}

void sim_machine_uncharge(int physical, size_t bytes)
{
    if (share != NULL) {
        sim_share_uncharge(share, physical, bytes);
        return;
    }
    pthread_mutex_lock(&machine_mutex);
    totals[physical].used -= bytes;
    pthread_mutex_unlock(&machine_mutex);
}

void sim_machine_info(int physical, size_t *free_bytes, size_t *total)
{
    struct sim_totals unit;
    *total = sim_shape_unit_memory(&shape);
    vramsim_totals(physical, &unit);
    *free_bytes = unit.used < *total ? *total - unit.used : 0;
}

/* Exported: what libnvidia-ml.so.1 asks a process's own machine. */
bool vramsim_totals(int physical, struct sim_totals *out)
{
    if (physical < 0 || physical >= sim_shape_units(&shape))
        return false;
    if (share != NULL) {
        if (!sim_share_totals(share, physical, out))
            out->used = sim_shape_unit_memory(&shape); /* nothing fits a machine that is lost */
        return true;
    }
    pthread_mutex_lock(&machine_mutex);
    *out = totals[physical];
    pthread_mutex_unlock(&machine_mutex);
    return true;
}
