/*
 * A small libnvidia-ml.so.1 for the simulated machine, so that what nvidia-smi would show of a
 * process can be tested without a GPU. It knows GPUs, their names, memory and processes; MIG
 * instances are no devices of it, a GPU's memory is the sum of its instances'. CUDA_VISIBLE_DEVICES
 * means nothing to it, and neither does its order.
 *
 * The machine is the shared one (VRAMSIM_SHARE), joined as an observer; where there is none, it is
 * that of this very process, asked of the libcuda.so.1 that is loaded here, or an idle one.
 * usedGpuMemory is all that a process is charged with, its contexts (VRAMSIM_CONTEXT) included.
 *
 * nvml.h is not needed to build it: the few types it takes are declared here with NVML's layout.
 */
#include "machine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NVML __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef struct device *nvmlDevice_t;
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;
typedef struct { /* also what _v3 fills */
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;
#define MEMORY_V2 ((unsigned)sizeof(nvmlMemory_v2_t) | 2u << 24)
#define MAX_HOLDERS 1024u

struct device {
    int gpu;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct sim_shape shape;
static struct sim_share *machine;
static struct device devices[SIM_MAX_UNITS];
static int api = 13000;

/* ---- declared here since there is no header ---------------------------------------------------
 */
NVML nvmlReturn_t nvmlInit(void);
NVML nvmlReturn_t nvmlInit_v2(void);
NVML nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
NVML nvmlReturn_t nvmlShutdown(void);
NVML const char *nvmlErrorString(nvmlReturn_t result);
NVML nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int room);
NVML nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);
NVML nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
NVML nvmlReturn_t nvmlDeviceGetCount(unsigned int *count);
NVML nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
NVML nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *out);
NVML nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out);
NVML nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out);
NVML nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci, nvmlDevice_t *out);
NVML nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *out);
NVML nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
NVML nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int room);
NVML nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int room);
NVML nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
NVML nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
NVML nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                       nvmlProcessInfo_v1_t *list);
NVML nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                          nvmlProcessInfo_v2_t *list);
NVML nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                          nvmlProcessInfo_v2_t *list);

/* ---- the machine -------------------------------------------------------------------------------
 */
static nvmlReturn_t start(void)
{
    struct sim_knobs knobs;
    long number;
    if (!sim_knobs_load(&knobs) ||
        !sim_knob_number("VRAMSIM_API", 10000, 13990, 13000, "a driver version", &number))
        return NVML_ERROR_UNKNOWN;
    api = (int)number;
    shape = knobs.shape;
    machine = NULL;
    if (knobs.share != NULL && (machine = sim_share_open(&knobs, false, true, &shape)) == NULL)
        return NVML_ERROR_UNKNOWN;
    if (shape.gpus == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    for (int gpu = 0; gpu < shape.gpus; gpu++)
        devices[gpu].gpu = gpu;
    return NVML_SUCCESS;
}

/* The loaded libcuda.so.1's own books, NULL: none loaded. */
static bool own_totals(int unit, struct sim_totals *totals)
{
    bool (*ask)(int, struct sim_totals *) = NULL;
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (cuda != NULL) {
        *(void **)&ask = dlsym(cuda, "vramsim_totals");
        dlclose(cuda);
    }
    return ask != NULL && ask(unit, totals);
}

static uint64_t used_of(int unit)
{
    struct sim_totals totals = {0};
    if (machine != NULL)
        sim_share_totals(machine, unit, &totals);
    else if (!own_totals(unit, &totals))
        totals.used = 0;
    return totals.used;
}

/* Adds the processes of a unit to the list, each once. */
static unsigned holders_of(int unit, struct sim_holder *list, unsigned count)
{
    static struct sim_holder found[MAX_HOLDERS];
    unsigned more = 0;
    if (machine != NULL) {
        more = sim_share_holders(machine, unit, found, MAX_HOLDERS);
    } else {
        found[0] = (struct sim_holder){getpid(), used_of(unit)};
        more = 1;
    }
    for (unsigned i = 0; i < more && i < MAX_HOLDERS; i++) {
        unsigned at = 0;
        while (at < count && list[at].pid != found[i].pid)
            at++;
        if (found[i].bytes == 0)
            continue; /* has nothing on this device: no context */
        if (at == count && count < MAX_HOLDERS)
            list[count++] = (struct sim_holder){found[i].pid, 0};
        if (at < MAX_HOLDERS)
            list[at].bytes += found[i].bytes;
    }
    return count;
}

static int first_unit(nvmlDevice_t device)
{
    return device->gpu * (shape.instances > 0 ? shape.instances : 1);
}

static int unit_end(nvmlDevice_t device)
{
    return first_unit(device) + (shape.instances > 0 ? shape.instances : 1);
}

/* With the mutex: whether calls are allowed and this is a device. */
static nvmlReturn_t check(const struct device *device, const void *out)
{
    if (users == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (device < devices || device >= devices + shape.gpus || out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}

/* ---- life --------------------------------------------------------------------------------------
 */
nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : start();
    if (result == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (users > 0 && --users == 0 && machine != NULL) {
        sim_share_close(machine);
        machine = NULL;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

/* ---- the system --------------------------------------------------------------------------------
 */
static nvmlReturn_t put(char *out, unsigned room, const char *text)
{
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int room)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = users > 0 ? put(text, room, "580.00.00") : NVML_ERROR_UNINITIALIZED;
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    long number; /* needs no nvmlInit */
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!sim_knob_number("VRAMSIM_API", 10000, 13990, 13000, "a driver version", &number))
        return NVML_ERROR_UNKNOWN;
    *version = (int)number;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* ---- devices -----------------------------------------------------------------------------------
 */
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(devices, count);
    if (result == NVML_SUCCESS)
        *count = (unsigned)shape.gpus;
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(devices, out);
    if (result == NVML_SUCCESS && index >= (unsigned)shape.gpus)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *out = &devices[index];
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByIndex_v2(index, out);
}

static void uuid_text(int gpu, char text[48])
{
    unsigned char uuid[16];
    sim_name_gpu_uuid(gpu, uuid);
    sim_name_uuid_text("GPU", uuid, text);
}

/* "0000:10:00.0", "00000000:10:00.0" and "10:00.0" are one place. */
static bool same_pci(const char *a, const char *b)
{
    const char *colon = strchr(a, ':');
    if (colon != NULL && strchr(colon + 1, ':') != NULL) {
        if (strtoul(a, NULL, 16) != 0)
            return false;
        a = colon + 1;
    }
    return strcasecmp(a, strchr(b, ':') + 1) == 0;
}

static nvmlReturn_t by_name(const char *name, bool pci, nvmlDevice_t *out)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(devices, out);
    if (result == NVML_SUCCESS && name == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        result = NVML_ERROR_NOT_FOUND;
        for (int gpu = 0; gpu < shape.gpus; gpu++) {
            char uuid[48], place[16];
            uuid_text(gpu, uuid);
            sim_name_pci(gpu, place);
            if (pci ? !same_pci(name, place) : strcmp(name, uuid) != 0)
                continue;
            *out = &devices[gpu];
            result = NVML_SUCCESS;
        }
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    return by_name(uuid, false, out);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *out)
{
    return by_name(pci, true, out);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci, nvmlDevice_t *out)
{
    return by_name(pci, true, out);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(device, index);
    if (result == NVML_SUCCESS)
        *index = (unsigned)device->gpu;
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int room)
{
    char text[64];
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(device, name);
    if (result == NVML_SUCCESS) {
        sim_name_gpu(&shape, false, text);
        result = put(name, room, text);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int room)
{
    char text[48];
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(device, uuid);
    if (result == NVML_SUCCESS) {
        uuid_text(device->gpu, text);
        result = put(uuid, room, text);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- memory ------------------------------------------------------------------------------------
 */
static uint64_t used_on(nvmlDevice_t device, uint64_t *total)
{
    uint64_t used = 0;
    *total = 0;
    for (int unit = first_unit(device); unit < unit_end(device); unit++) {
        used += used_of(unit);
        *total += sim_shape_unit_memory(&shape);
    }
    return used < *total ? used : *total;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(device, memory);
    if (result == NVML_SUCCESS) {
        uint64_t total, used = used_on(device, &total);
        *memory = (nvmlMemory_t){.total = total, .free = total - used, .used = used};
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(device, memory);
    if (result == NVML_SUCCESS && memory->version != MEMORY_V2)
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS) {
        uint64_t total, used = used_on(device, &total);
        *memory = (nvmlMemory_v2_t){
            .version = MEMORY_V2, .total = total, .free = total - used, .used = used};
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

static nvmlReturn_t processes(nvmlDevice_t device, unsigned *count, void *list, bool v1)
{
    static struct sim_holder holders[MAX_HOLDERS];
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = check(device, count);
    if (result == NVML_SUCCESS && *count > 0 && list == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        unsigned found = 0, room = *count;
        for (int unit = first_unit(device); unit < unit_end(device); unit++)
            found = holders_of(unit, holders, found);
        *count = found;
        if (found > room)
            result = NVML_ERROR_INSUFFICIENT_SIZE;
        for (unsigned i = 0; i < found && result == NVML_SUCCESS; i++) {
            unsigned pid = (unsigned)holders[i].pid;
            if (v1)
                ((nvmlProcessInfo_v1_t *)list)[i] = (nvmlProcessInfo_v1_t){pid, holders[i].bytes};
            else
                ((nvmlProcessInfo_v2_t *)list)[i] =
                    (nvmlProcessInfo_v2_t){pid, holders[i].bytes, 0xffffffffu, 0xffffffffu};
        }
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *list)
{
    return processes(device, count, list, true);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *list)
{
    return processes(device, count, list, false);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *list)
{
    return processes(device, count, list, false);
}
