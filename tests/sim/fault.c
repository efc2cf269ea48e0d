/*
 * VRAMSIM_FAULT=entry:error:nth[,...]: the nth call of an entry point (counted from 1, failed or
 * not) returns the error and does nothing else. entry is an export (cuMemAlloc_v2) or a base name
 * (cuMemAlloc: every ABI and twin, counted together); error is a number or a name, with or without
 * CUDA_ERROR_; nth is a number or * for every call. It is read when the library is loaded, because
 * some entry points work before cuInit; what is wrong with it is cuInit's to say.
 */
#include "sim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FAULTS 32

struct fault {
    char entry[64];
    CUresult error;
    unsigned long nth; /* 0: every call */
    atomic_ulong calls;
};

static struct fault faults[MAX_FAULTS];
static unsigned fault_count;
static bool any;
static char loaded[2048]; /* the spec that `faults` holds */

static bool parse_error(const char *text, CUresult *error)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*text != '\0' && *end == '\0') {
        *error = (CUresult)number;
        return number > 0 && number <= 999;
    }
    for (int code = 1; code <= 999; code++) {
        const char *name;
        if (cuGetErrorName((CUresult)code, &name) != CUDA_SUCCESS)
            continue;
        if (strcmp(name, text) == 0 ||
            (strncmp(name, "CUDA_ERROR_", 11) == 0 && strcmp(name + 11, text) == 0)) {
            *error = (CUresult)code;
            return true;
        }
    }
    return false;
}

static bool known_entry(const char *name)
{
    for (unsigned i = 0; i < SIM_E_COUNT; i++) {
        if (sim_entry_named((enum sim_entry)i, name))
            return true;
    }
    return false;
}

static bool parse_one(char *item)
{
    struct fault *fault = &faults[fault_count];
    char *error = strchr(item, ':');
    char *nth = error != NULL ? strchr(error + 1, ':') : NULL;
    if (nth == NULL || fault_count == MAX_FAULTS || (size_t)(error - item) >= sizeof fault->entry)
        return false;
    *error++ = '\0';
    *nth++ = '\0';
    strcpy(fault->entry, item);
    if (!known_entry(item) || !parse_error(error, &fault->error))
        return false;
    if (strcmp(nth, "*") != 0) {
        char *end;
        fault->nth = strtoul(nth, &end, 10);
        if (*end != '\0' || fault->nth == 0)
            return false;
    }
    fault_count++;
    return true;
}

static bool parse(const char *spec)
{
    char copy[sizeof loaded];
    any = false;
    fault_count = 0;
    memset(faults, 0, sizeof faults);
    if (strlen(spec) >= sizeof copy)
        return false;
    strcpy(loaded, spec);
    strcpy(copy, spec);
    bool good = true;
    char *save = NULL;
    for (char *item = strtok_r(copy, ",", &save); item != NULL && good;
         item = strtok_r(NULL, ",", &save))
        good = parse_one(item);
    any = good && fault_count > 0;
    return good;
}

void sim_fault_preload(void)
{
    const char *spec = getenv("VRAMSIM_FAULT");
    if (spec != NULL)
        parse(spec);
}

bool sim_fault_load(const char *spec)
{
    /* Calls that came before count too. */
    if ((any && strcmp(spec, loaded) == 0) || parse(spec))
        return true;
    sim_say(
        "VRAMSIM_FAULT=%s: expected entry:error:nth, comma-separated, with an entry point of the "
        "simulator, an error name or number, and a call number from 1 or *",
        spec);
    return false;
}

CUresult sim_fault(enum sim_entry entry)
{
    if (!any)
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < fault_count; i++) {
        if (!sim_entry_named(entry, faults[i].entry))
            continue;
        unsigned long call = atomic_fetch_add(&faults[i].calls, 1) + 1;
        if (faults[i].nth == 0 || faults[i].nth == call)
            return faults[i].error;
    }
    return CUDA_SUCCESS;
}
