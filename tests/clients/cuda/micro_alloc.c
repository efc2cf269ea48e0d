/*
 * What calls cost, in nanoseconds, one number a line ("name: ns"): the mean of the quickest block,
 * the one that nothing else disturbed. Driver API through dlsym, no other library; runs on the
 * simulated driver too.
 *
 * Each allocation pair is measured twice in turns, in the same process: by the pointers that dlsym
 * gives, and ("…, the driver alone") by the addresses in the driver's own symbol table, which no
 * preload changes. The difference is what stands between.
 *
 *   micro_alloc [blocks]
 */
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

struct calls {
    __typeof__(cuMemAlloc) *alloc;
    __typeof__(cuMemFree) *release;
    __typeof__(cuMemAllocAsync) *alloc_async;
    __typeof__(cuMemFreeAsync) *release_async;
};

static void *library;
static CUstream stream;
static struct calls seen, alone;
static CUresult (*get_proc)(const char *, void **, int, cuuint64_t,
                            CUdriverProcAddressQueryResult *);
static volatile int failures;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void pair_large(const struct calls *by)
{
    CUdeviceptr p;
    failures += by->alloc(&p, 4 << 20) != 0 || by->release(p) != 0;
}

static void pair_small(const struct calls *by)
{
    CUdeviceptr p;
    failures += by->alloc(&p, 4096) != 0 || by->release(p) != 0;
}

static void pair_async(const struct calls *by)
{
    CUdeviceptr p;
    failures += by->alloc_async(&p, 1 << 20, stream) != 0 || by->release_async(p, stream) != 0;
}

static void look_dlsym_cuda(const struct calls *by)
{
    (void)by;
    failures += dlsym(library, "cuMemAlloc_v2") == NULL;
}

static void look_dlsym_other(const struct calls *by)
{
    (void)by;
    failures += dlsym(RTLD_DEFAULT, "malloc") == NULL;
}

static void look_get_proc(const struct calls *by)
{
    void *p = NULL;
    (void)by;
    failures += get_proc("cuMemAlloc", &p, 12000, 0, NULL) != 0;
}

static double block_of(void (*what)(const struct calls *), const struct calls *by, int calls)
{
    double start = now_ns();
    for (int i = 0; i < calls; i++)
        what(by);
    return (now_ns() - start) / calls;
}

static void measure(const char *name, void (*what)(const struct calls *), int blocks, int calls,
                    int both)
{
    double quickest[2] = {1e18, 1e18};
    block_of(what, &seen, calls / 10 + 1);
    for (int block = 0; block < blocks; block++) {
        for (int turn = 0; turn <= both; turn++) {
            int which = both ? (block + turn) % 2 : 0;
            double mean = block_of(what, which ? &alone : &seen, calls);
            quickest[which] = mean < quickest[which] ? mean : quickest[which];
        }
    }
    printf("%s: %.2f\n", name, quickest[0]);
    if (both)
        printf("%s, the driver alone: %.2f\n", name, quickest[1]);
}

/* The driver's symbol table, read in memory. */
struct table {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash; /* DT_GNU_HASH */
};

static int find_driver(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct table *table = arg;
    (void)size;
    if (strstr(info->dlpi_name, "libcuda.so") == NULL)
        return 0;
    table->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *d = (const void *)(table->base + info->dlpi_phdr[i].p_vaddr);
        for (; d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_SYMTAB)
                table->symbols = (const void *)d->d_un.d_ptr;
            else if (d->d_tag == DT_STRTAB)
                table->strings = (const void *)d->d_un.d_ptr;
            else if (d->d_tag == DT_GNU_HASH)
                table->hash = (const void *)d->d_un.d_ptr;
        }
    }
    return 1;
}

/* NULL if it is not there. Walks the buckets one by one: this is not a hot path. */
static void *symbol(const struct table *table, const char *name)
{
    const uint32_t *hash = table->hash;
    const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chains = buckets + hash[0];
    for (uint32_t bucket = 0; bucket < hash[0]; bucket++) {
        uint32_t i = buckets[bucket];
        if (i < hash[1])
            continue;
        do {
            if (strcmp(table->strings + table->symbols[i].st_name, name) == 0)
                return (void *)(table->base + table->symbols[i].st_value);
        } while ((chains[i++ - hash[1]] & 1) == 0);
    }
    return NULL;
}

#define LOOK(pointer, name)                                                                        \
    do {                                                                                           \
        *(void **)&(pointer) = dlsym(library, name);                                               \
        if ((pointer) == NULL)                                                                     \
            return printf("no %s\n", name), 2;                                                     \
    } while (0)

#define LOOK_TWICE(field, name)                                                                    \
    do {                                                                                           \
        LOOK(seen.field, name);                                                                    \
        *(void **)&(alone.field) = symbol(&table, name);                                           \
        if (alone.field == NULL)                                                                   \
            return printf("no %s in the symbol table\n", name), 2;                                 \
    } while (0)

int main(int argc, char **argv)
{
    int blocks = argc > 1 ? atoi(argv[1]) : 21;
    __typeof__(cuInit) *init;
    __typeof__(cuDevicePrimaryCtxRetain) *retain;
    __typeof__(cuCtxSetCurrent) *set_current;
    __typeof__(cuStreamCreate) *stream_create;
    struct table table = {0};
    CUcontext context;

    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return printf("no driver\n"), 2;
    if (dl_iterate_phdr(find_driver, &table) == 0 || table.symbols == NULL ||
        table.strings == NULL || table.hash == NULL)
        return printf("no symbol table\n"), 2;
    LOOK(init, "cuInit");
    LOOK(retain, "cuDevicePrimaryCtxRetain");
    LOOK(set_current, "cuCtxSetCurrent");
    LOOK(stream_create, "cuStreamCreate");
    LOOK_TWICE(alloc, STRING(cuMemAlloc));
    LOOK_TWICE(release, STRING(cuMemFree));
    LOOK_TWICE(alloc_async, STRING(cuMemAllocAsync));
    LOOK_TWICE(release_async, STRING(cuMemFreeAsync));
    LOOK(get_proc, "cuGetProcAddress_v2");
    if (init(0) != 0 || retain(&context, 0) != 0 || set_current(context) != 0 ||
        stream_create(&stream, CU_STREAM_NON_BLOCKING) != 0)
        return printf("no context\n"), 2;

    measure("pair 4 MiB", pair_large, blocks, 100, 1);
    measure("pair 4 KiB", pair_small, blocks, 200, 1);
    measure("async pair", pair_async, blocks, 5000, 1);
    measure("dlsym of a cu name", look_dlsym_cuda, blocks, 5000, 0);
    measure("dlsym of another name", look_dlsym_other, blocks, 5000, 0);
    measure("cuGetProcAddress", look_get_proc, blocks, 2000, 0);
    return failures != 0;
}
