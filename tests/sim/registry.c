/*
 * The table of entry points (entries.h), used for everything that depends on names and versions:
 * cuGetProcAddress, what older drivers lack, injected faults.
 *
 * An entry that is newer than the played driver (VRAMSIM_API) is found neither by cuGetProcAddress
 * nor by dlsym: the constructor zeroes its value in our dynamic symbol table, which makes the
 * dynamic linker skip it. A program that was linked against it and bound before our constructor ran
 * gets CUDA_ERROR_NOT_SUPPORTED from it.
 */
#include "sim.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum twin { LEGACY, PT };

struct row {
    const char *name, *base;
    int since;
    enum twin twin;
    void *address;
};

static const struct row rows[SIM_E_COUNT] = {
#define E(name, base, since, twin) {#name, base, since, twin, (void *)name},
    SIM_ENTRIES(E)
#undef E
};

const char *sim_entry_base(enum sim_entry entry)
{
    return rows[entry].base;
}

int sim_entry_since(enum sim_entry entry)
{
    return rows[entry].since;
}

bool sim_entry_named(enum sim_entry entry, const char *name)
{
    return strcmp(rows[entry].name, name) == 0 || strcmp(rows[entry].base, name) == 0;
}

static const struct row *row_named(const char *name)
{
    for (unsigned i = 0; i < SIM_E_COUNT; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    return NULL;
}

/* The symbol table has no length of its own: with GNU hash it ends after the last chain. */
static size_t symbol_count(const uint32_t *gnu)
{
    uint32_t buckets = gnu[0], first = gnu[1], bloom = gnu[2];
    const uint32_t *bucket = gnu + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t last = 0;
    for (uint32_t i = 0; i < buckets; i++) {
        if (bucket[i] > last)
            last = bucket[i];
    }
    if (last < first)
        return first;
    while ((chain[last - first] & 1) == 0)
        last++;
    return last + 1;
}

void sim_registry_hide(int api)
{
    ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *gnu = NULL;
    for (const ElfW(Dyn) *dyn = _DYNAMIC; dyn->d_tag != DT_NULL; dyn++) {
        if (dyn->d_tag == DT_SYMTAB)
            symbols = (ElfW(Sym) *)dyn->d_un.d_ptr; /* glibc has added the load address */
        else if (dyn->d_tag == DT_STRTAB)
            strings = (const char *)dyn->d_un.d_ptr;
        else if (dyn->d_tag == DT_GNU_HASH)
            gnu = (const uint32_t *)dyn->d_un.d_ptr;
    }
    if (symbols == NULL || strings == NULL || gnu == NULL)
        return;
    size_t count = symbol_count(gnu);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t low = (uintptr_t)symbols & ~(page - 1);
    uintptr_t high = ((uintptr_t)(symbols + count) + page - 1) & ~(page - 1);
    if (mprotect((void *)low, high - low, PROT_READ | PROT_WRITE) != 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const struct row *row = row_named(strings + symbols[i].st_name);
        if (row != NULL && row->since > api)
            symbols[i].st_value = 0;
    }
    mprotect((void *)low, high - low, PROT_READ);
}

static CUresult lookup(const char *symbol, void **pfn, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status, bool status_known)
{
    const cuuint64_t both =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == NULL || pfn == NULL || (flags & ~both) != 0 || version > sim_config.api)
        return CUDA_ERROR_INVALID_VALUE;
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const struct row *best = NULL;
    bool known = false;
    for (unsigned i = 0; i < SIM_E_COUNT; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->base, symbol) != 0 || row->since > sim_config.api)
            continue;
        known = true;
        if ((row->since > version && version >= 0) || (row->twin == PT && !per_thread))
            continue;
        if (best == NULL || row->twin > best->twin ||
            (row->twin == best->twin && row->since > best->since))
            best = row;
    }
    *pfn = best != NULL ? best->address : NULL;
    if (status != NULL)
        *status = best != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    /* The first version of the call had no status to say it with (measured). */
    return best != NULL || status_known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    SIM_ENTRY(cuGetProcAddress);
    return lookup(symbol, pfn, version, flags, NULL, false);
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status)
{
    SIM_ENTRY(cuGetProcAddress_v2);
    return lookup(symbol, pfn, version, flags, status, true);
}
