/*
 * Life of the simulated driver in a process: cuInit, the check at every entry, fork, exit.
 *
 * A child of a process that had called cuInit gets CUDA_ERROR_NOT_INITIALIZED from everything, as
 * with the real driver; a child of one that had not starts afresh. Workers are detached and nothing
 * joins them, so a process can end with work behind a flag that is never set. Races fail the run:
 * exit() ends with code 86, set after the program's and the libraries' destructors; handlers that
 * were registered before us (a preloaded library's last word) still run.
 */
#include "sim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t sim_mutex = PTHREAD_MUTEX_INITIALIZER;
_Thread_local bool sim_in_callback;

enum { FRESH, READY };
static atomic_int state;
static atomic_bool forked;
static CUresult init_result; /* of a cuInit that found no usable machine; kept */

void sim_lock(void)
{
    pthread_mutex_lock(&sim_mutex);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&sim_mutex);
}

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void in_child(void)
{
    if (atomic_load(&state) == READY)
        atomic_store(&forked, true);
    else
        pthread_mutex_init(&sim_mutex, NULL);
}

__attribute__((constructor)) static void loaded(void)
{
    const char *api = getenv("VRAMSIM_API");
    /* A bad value is cuInit's to report; names have to be hidden before anyone looks them up. */
    sim_config.api = 13000;
    if (api != NULL && atoi(api) >= 10000)
        sim_config.api = atoi(api);
    sim_registry_hide(sim_config.api);
    sim_fault_preload();
    pthread_atfork(NULL, NULL, in_child);
}

static unsigned faults(void)
{
    return sim_race_count() + sim_handle_stale_count();
}

static void fail_run(void)
{
    if (!atomic_load(&forked) && faults() > 0) {
        sim_say("%u race(s), bad accesses or stale handles: exit code 86", faults());
        exit(86);
    }
}

/* exit() runs this among the destructors; a handler registered from here runs after all of them. */
__attribute__((destructor)) static void unloaded(void)
{
    if (faults() > 0)
        atexit(fail_run);
}

static bool works_uninitialised(enum sim_entry entry)
{
    return entry == SIM_E_cuInit || entry == SIM_E_cuDriverGetVersion ||
           entry == SIM_E_cuGetProcAddress || entry == SIM_E_cuGetProcAddress_v2 ||
           entry == SIM_E_cuGetErrorName || entry == SIM_E_cuGetErrorString;
}

CUresult sim_enter(enum sim_entry entry)
{
    sim_calling = entry;
    if (!works_uninitialised(entry)) {
        if (atomic_load_explicit(&forked, memory_order_relaxed) ||
            atomic_load_explicit(&state, memory_order_acquire) != READY)
            return CUDA_ERROR_NOT_INITIALIZED;
        if (sim_in_callback)
            return CUDA_ERROR_NOT_PERMITTED;
        if (sim_cost_any)
            sim_cost_spend(entry);
    }
    CUresult fault = sim_fault(entry);
    if (fault != CUDA_SUCCESS)
        return fault;
    if (sim_entry_since(entry) > sim_config.api)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult start(void)
{
    if (!sim_config_load())
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_machine_open() || !sim_va_open())
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = sim_devices_open();
    if (result == CUDA_SUCCESS && sim_device_count == 0)
        result = CUDA_ERROR_NO_DEVICE;
    return result;
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
    if (atomic_load(&forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = init_result;
    if (atomic_load(&state) == FRESH && result == CUDA_SUCCESS) {
        init_result = result = start();
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&state, READY, memory_order_release);
    }
    sim_unlock();
    return result == CUDA_SUCCESS ? sim_fault(SIM_E_cuInit) : result;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    SIM_ENTRY(cuDriverGetVersion);
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_config.api;
    return CUDA_SUCCESS;
}
