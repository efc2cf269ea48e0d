/*
 * Reading loaded ELF objects (see elf.h).
 *
 * Runs before sanitizers are ready and inside other people's dlsym calls, so it is built without
 * instrumentation and calls nothing but getauxval, and dl_iterate_phdr where its comment says so.
 */
#include "shim/elf.h"

#include <stddef.h>
#include <sys/auxv.h>

extern const ElfW(Dyn) vs_elf_our_dynamic[] __asm__("_DYNAMIC")
    __attribute__((visibility("hidden")));
extern const ElfW(Ehdr) vs_elf_our_header __asm__("__ehdr_start")
    __attribute__((visibility("hidden")));

/* The last object that was there at program start: what comes behind it was dlopened later, may
 * vanish, and is not in the global scope. */
static struct link_map *startup_last;

bool vs_elf_same(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* glibc adds the load bias to these entries in place, except in read-only ones (the vDSO). */
static const void *pointer_of(const struct vs_elf_object *object, const ElfW(Dyn) * entry)
{
    uintptr_t value = entry->d_un.d_ptr;

    return (const void *)(value < object->base ? value + object->base : value);
}

static void read_dynamic(struct vs_elf_object *object)
{
    ElfW(Xword) soname = 0;
    size_t data_bytes = 0, function_bytes = 0, relative = 0;
    bool has_soname = false;

    object->strings = NULL;
    object->symbols = NULL;
    object->versions = NULL;
    object->gnu_hash = NULL;
    object->sysv_hash = NULL;
    object->relocations[0] = NULL;
    object->relocations[1] = NULL;
    for (const ElfW(Dyn) *d = object->dynamic; d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_STRTAB:
            object->strings = pointer_of(object, d);
            break;
        case DT_SYMTAB:
            object->symbols = pointer_of(object, d);
            break;
        case DT_VERSYM:
            object->versions = pointer_of(object, d);
            break;
        case DT_GNU_HASH:
            object->gnu_hash = pointer_of(object, d);
            break;
        case DT_HASH:
            object->sysv_hash = pointer_of(object, d);
            break;
        case DT_RELA:
            object->relocations[0] = pointer_of(object, d);
            break;
        case DT_RELASZ:
            data_bytes = d->d_un.d_val;
            break;
        case DT_RELACOUNT:
            relative = d->d_un.d_val;
            break;
        case DT_JMPREL:
            object->relocations[1] = pointer_of(object, d);
            break;
        case DT_PLTRELSZ:
            function_bytes = d->d_un.d_val;
            break;
        case DT_SONAME:
            soname = d->d_un.d_val;
            has_soname = true;
            break;
        default:
            break;
        }
    }
    /* Relative relocations come first and are by far the most. */
    object->relocation_counts[0] = data_bytes / sizeof(ElfW(Rela));
    relative = relative < object->relocation_counts[0] ? relative : object->relocation_counts[0];
    if (object->relocations[0] != NULL) {
        object->relocations[0] += relative;
    }
    object->relocation_counts[0] -= relative;
    object->relocation_counts[1] = function_bytes / sizeof(ElfW(Rela));
    object->soname = has_soname && object->strings != NULL ? object->strings + soname : NULL;
}

/* 2: default version or unversioned; 1: a hidden (older) version; 0: not it. */
static int match(const struct vs_elf_object *object, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &object->symbols[index];
    unsigned type = symbol->st_info & 0xf;

    if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0 || type != STT_FUNC ||
        !vs_elf_same(object->strings + symbol->st_name, name)) {
        return 0;
    }
    return object->versions != NULL && (object->versions[index] & 0x8000) != 0 ? 1 : 2;
}

static uint32_t find_gnu(const struct vs_elf_object *object, const char *name)
{
    const uint32_t *table = object->gnu_hash;
    uint32_t bucket_count = table[0], first = table[1], bloom_size = table[2], shift = table[3];
    const ElfW(Addr) *bloom = (const void *)(table + 4);
    const uint32_t *buckets = (const void *)(bloom + bloom_size);
    const uint32_t *chains = buckets + bucket_count;
    const unsigned bits = 8 * sizeof(ElfW(Addr));
    uint32_t hash = 5381, hidden = 0;

    for (const char *c = name; *c != '\0'; c++) {
        hash = hash * 33 + (unsigned char)*c;
    }
    if (bucket_count == 0 || bloom_size == 0) {
        return 0;
    }
    ElfW(Addr) word = bloom[(hash / bits) & (bloom_size - 1)];
    if ((word >> (hash % bits) & word >> ((hash >> shift) % bits) & 1) == 0) {
        return 0;
    }
    uint32_t index = buckets[hash % bucket_count];
    if (index < first) {
        return 0;
    }
    for (;; index++) {
        uint32_t entry = chains[index - first];

        if ((entry | 1) == (hash | 1)) {
            int found = match(object, index, name);

            if (found == 2) {
                return index;
            }
            if (found == 1) {
                hidden = index;
            }
        }
        if ((entry & 1) != 0) {
            return hidden;
        }
    }
}

static uint32_t find_sysv(const struct vs_elf_object *object, const char *name)
{
    const uint32_t *table = object->sysv_hash;
    uint32_t bucket_count = table[0], chain_count = table[1], hash = 0, hidden = 0;

    for (const char *c = name; *c != '\0'; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash ^= (hash & 0xf0000000) >> 24;
        hash &= 0x0fffffff;
    }
    if (bucket_count == 0) {
        return 0;
    }
    for (uint32_t index = table[2 + hash % bucket_count]; index != 0 && index < chain_count;
         index = table[2 + bucket_count + index]) {
        int found = match(object, index, name);

        if (found == 2) {
            return index;
        }
        if (found == 1) {
            hidden = index;
        }
    }
    return hidden;
}

void *vs_elf_symbol(const struct vs_elf_object *object, const char *name)
{
    uint32_t index = 0;

    if (object->symbols == NULL || object->strings == NULL) {
        return NULL;
    }
    if (object->gnu_hash != NULL) {
        index = find_gnu(object, name);
    } else if (object->sysv_hash != NULL) {
        index = find_sysv(object, name);
    }
    return index == 0 ? NULL : (void *)(object->base + object->symbols[index].st_value);
}

#if defined(__x86_64__)
#define IMPORT_DATA R_X86_64_GLOB_DAT
#define IMPORT_FUNCTION R_X86_64_JUMP_SLOT
#elif defined(__aarch64__)
#define IMPORT_DATA R_AARCH64_GLOB_DAT
#define IMPORT_FUNCTION R_AARCH64_JUMP_SLOT
#else
#error "only x86_64 and aarch64 are supported"
#endif

const char *vs_elf_import(const struct vs_elf_object *object, const ElfW(Rela) * relocation,
                          void *const **slot)
{
    uint32_t type = ELF64_R_TYPE(relocation->r_info);

    if ((type != IMPORT_DATA && type != IMPORT_FUNCTION) || object->symbols == NULL ||
        object->strings == NULL) {
        return NULL;
    }
    *slot = (void *const *)(object->base + relocation->r_offset);
    return object->strings + object->symbols[ELF64_R_SYM(relocation->r_info)].st_name;
}

struct each {
    int (*visit)(const struct vs_elf_object *object, void *arg);
    void *arg;
};

static int each_phdr(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct each *each = arg;
    struct vs_elf_object object = {.base = info->dlpi_addr, .name = info->dlpi_name};

    (void)size;
    object.start = UINTPTR_MAX;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = object.base + p->p_vaddr;

        if (p->p_type == PT_DYNAMIC) {
            object.dynamic = (const void *)start;
        } else if (p->p_type == PT_LOAD) {
            object.start = start < object.start ? start : object.start;
            object.end = start + p->p_memsz > object.end ? start + p->p_memsz : object.end;
        }
    }
    if (object.dynamic == NULL) {
        return 0;
    }
    read_dynamic(&object);
    return each->visit(&object, each->arg);
}

int vs_elf_each(int (*visit)(const struct vs_elf_object *object, void *arg), void *arg)
{
    struct each each = {visit, arg};

    return dl_iterate_phdr(each_phdr, &each);
}

static struct link_map *last_at_startup(void)
{
    struct link_map *last = __atomic_load_n(&startup_last, __ATOMIC_RELAXED);

    if (last == NULL) {
        for (last = _r_debug.r_map; last->l_next != NULL;) {
            last = last->l_next;
        }
        __atomic_store_n(&startup_last, last, __ATOMIC_RELAXED);
    }
    return last;
}

void vs_elf_remember_startup(void)
{
    last_at_startup();
}

static void *symbol_in(const struct link_map *map, const char *name)
{
    struct vs_elf_object object = {.base = map->l_addr, .name = map->l_name, .dynamic = map->l_ld};

    if (map->l_ld == NULL) {
        return NULL;
    }
    read_dynamic(&object);
    return vs_elf_symbol(&object, name);
}

void *vs_elf_next(const char *name)
{
    struct link_map *map = _r_debug.r_map;
    struct link_map *last = last_at_startup();

    while (map != NULL && map->l_ld != vs_elf_our_dynamic) {
        map = map->l_next;
    }
    while (map != NULL && map != last) {
        /* A last one that was dlopened after all, by some constructor, may be gone by now. */
        map = map->l_next;
        void *found = map != NULL ? symbol_in(map, name) : NULL;
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static bool covers(const ElfW(Phdr) * headers, unsigned count, uintptr_t base, uintptr_t address)
{
    for (unsigned i = 0; i < count; i++) {
        if (headers[i].p_type == PT_LOAD &&
            address - base - headers[i].p_vaddr < headers[i].p_memsz) {
            return true;
        }
    }
    return false;
}

/* The program's headers are where the kernel says; any other object begins with them. */
static bool map_covers(const struct link_map *map, uintptr_t address)
{
    const ElfW(Ehdr) *header = (const void *)map->l_addr;

    if (map == _r_debug.r_map) {
        return covers((const void *)getauxval(AT_PHDR), (unsigned)getauxval(AT_PHNUM), map->l_addr,
                      address);
    }
    return header != NULL && covers((const void *)(map->l_addr + header->e_phoff), header->e_phnum,
                                    map->l_addr, address);
}

bool vs_elf_is_before_us(const void *address)
{
    for (const struct link_map *map = _r_debug.r_map;
         map != NULL && map->l_ld != vs_elf_our_dynamic; map = map->l_next) {
        if (map_covers(map, (uintptr_t)address)) {
            return true;
        }
    }
    return false;
}

bool vs_elf_defined_before_us(const char *name, const void *except)
{
    for (const struct link_map *map = _r_debug.r_map;
         map != NULL && map->l_ld != vs_elf_our_dynamic; map = map->l_next) {
        if (!map_covers(map, (uintptr_t)except) && symbol_in(map, name) != NULL) {
            return true;
        }
    }
    return false;
}

struct search {
    uintptr_t address;
    const ElfW(Dyn) * last;
    bool past_last;
    bool later;
};

static int visit_place(const struct vs_elf_object *object, void *arg)
{
    struct search *search = arg;

    if (search->address - object->start < object->end - object->start) {
        search->later = search->past_last;
        return 1;
    }
    search->past_last = search->past_last || object->dynamic == search->last;
    return 0;
}

bool vs_elf_came_later(const void *address)
{
    struct search search = {
        .address = (uintptr_t)address, .last = last_at_startup()->l_ld, .later = true};

    vs_elf_each(visit_place, &search);
    return search.later;
}

struct own {
    uintptr_t address;
    const char *name;
    void *found;
};

static int visit_own(const struct vs_elf_object *object, void *arg)
{
    struct own *own = arg;

    if (own->address - object->start >= object->end - object->start) {
        return 0;
    }
    own->found = vs_elf_symbol(object, own->name);
    return 1;
}

void *vs_elf_own_symbol(const void *address, const char *name)
{
    struct own own = {.address = (uintptr_t)address, .name = name};

    vs_elf_each(visit_own, &own);
    return own.found;
}

bool vs_elf_is_ours(const void *address)
{
    uintptr_t start = (uintptr_t)&vs_elf_our_header;

    return covers((const void *)(start + vs_elf_our_header.e_phoff), vs_elf_our_header.e_phnum,
                  start, (uintptr_t)address);
}

/* The loader's list of namespaces, from glibc 2.35 on (r_version 2 and up). */
struct namespaces {
    struct r_debug base;
    const struct namespaces *next;
};

bool vs_elf_other_namespace_has(const char *file)
{
    /* volatile: the compiler knows the older, shorter type and would reason with its size. */
    const void *volatile head = &_r_debug;
    const struct namespaces *space = head;

    if (_r_debug.r_version < 2) {
        return false;
    }
    for (space = space->next; space != NULL; space = space->next) {
        for (const struct link_map *map = space->base.r_map; map != NULL; map = map->l_next) {
            const char *name = map->l_name != NULL ? map->l_name : "";

            for (const char *c = name; *c != '\0'; c++) {
                name = *c == '/' ? c + 1 : name;
            }
            const char *rest = file;
            while (*rest != '\0' && *rest == *name) {
                rest++;
                name++;
            }
            if (*rest == '\0') {
                return true;
            }
        }
    }
    return false;
}
