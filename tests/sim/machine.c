/*
 * How much of each device's memory is taken. Everything that holds device memory charges it here
 * first, so that moving these totals to a shared file (VRAMSIM_SHARE) makes processes share one
 * machine. Own lock, taken last.
 */
#include "sim.h"

static pthread_mutex_t machine_mutex = PTHREAD_MUTEX_INITIALIZER;
static size_t taken[SIM_MAX_DEVICES];

bool sim_machine_open(void)
{
    if (sim_config.share == NULL)
        return true;
    sim_say("VRAMSIM_SHARE=%s: sharing a machine is not implemented", sim_config.share);
    return false;
}

bool sim_machine_charge(int physical, size_t bytes)
{
    pthread_mutex_lock(&machine_mutex);
    bool fits = bytes <= sim_config.memory - taken[physical];
    if (fits)
        taken[physical] += bytes;
    pthread_mutex_unlock(&machine_mutex);
    return fits;
}

void sim_machine_uncharge(int physical, size_t bytes)
{
    pthread_mutex_lock(&machine_mutex);
    taken[physical] -= bytes;
    pthread_mutex_unlock(&machine_mutex);
}

void sim_machine_info(int physical, size_t *free_bytes, size_t *total)
{
    pthread_mutex_lock(&machine_mutex);
    *total = sim_config.memory;
    *free_bytes = sim_config.memory - taken[physical];
    pthread_mutex_unlock(&machine_mutex);
}
