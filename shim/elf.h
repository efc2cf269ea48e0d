/*
 * Loaded ELF objects, read straight from memory: which are there, and what they define.
 *
 * The shim overrides dlsym and dlvsym, so it cannot ask them for the real ones, and a failed dlsym
 * would leave a message for the program's next dlerror. Here a look-up has no side effect: no
 * malloc, no dlerror, and no lock but the loader's own, which is recursive (vs_elf_each and what
 * says so).
 *
 * Symbol versions are ignored: the first definition that the object offers under the name wins, the
 * default version before hidden ones.
 */
#ifndef VS_SHIM_ELF_H
#define VS_SHIM_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vs_elf_object {
    uintptr_t base; /* load bias */
    const ElfW(Dyn) * dynamic;
    const char *name;     /* as the loader knows it; "" for the program */
    uintptr_t start, end; /* extent of what is loaded; 0, 0 where unknown (see vs_elf_each) */
    const char *strings;
    const ElfW(Sym) * symbols;
    const ElfW(Versym) * versions; /* NULL if unversioned */
    const uint32_t *gnu_hash;      /* either hash may be NULL */
    const uint32_t *sysv_hash;
    const char *soname; /* NULL if none */
    /* Relocations that are not relative ones: what the object imports, and where it landed. */
    const ElfW(Rela) * relocations[2]; /* data and functions; either may be NULL */
    size_t relocation_counts[2];
};

/* Are two strings equal? Calls nothing. */
bool vs_elf_same(const char *a, const char *b);

/* The object's definition of this function, or NULL. */
void *vs_elf_symbol(const struct vs_elf_object *object, const char *name);

/* The name of a relocation's symbol, and the slot that holds what it was bound to; NULL for kinds
 * of relocation that are not plain imports. */
const char *vs_elf_import(const struct vs_elf_object *object, const ElfW(Rela) * relocation,
                          void *const **slot);

/* Calls visit for every loaded object of our namespace, start and end known, until it returns
 * non-zero, and returns that. Holds the loader's lock meanwhile: visit must not call into it. */
int vs_elf_each(int (*visit)(const struct vs_elf_object *object, void *arg), void *arg);

/* Remembers which objects were loaded at program start: those that are there now. For the
 * constructor; a look-up that comes earlier does it itself. */
void vs_elf_remember_startup(void);

/* The first object behind this library in search order, among those loaded at program start, that
 * defines name: what RTLD_NEXT would find for us. NULL if none does. Takes no lock: such objects
 * are never unloaded. Works before any constructor has run. */
void *vs_elf_next(const char *name);

/* Is this address in the program or in a preload before us? Takes no lock and calls nothing that a
 * sanitizer's runtime might stand in for: it may be asked before that is ready. */
bool vs_elf_is_before_us(const void *address);

/* Was the object that holds this address loaded later than program start (or is there none)? Such
 * an object is not in the global scope by itself, and may go away. Takes the loader's lock. */
bool vs_elf_came_later(const void *address);

/* This name's function in the object that holds an address, or NULL. Takes the loader's lock. */
void *vs_elf_own_symbol(const void *address, const char *name);

/* Does an object before us, other than the one with this address in it, define name? As
 * vs_elf_is_before_us. */
bool vs_elf_defined_before_us(const char *name, const void *except);

/* Does another namespace (dlmopen) hold an object whose file name starts so? Takes no lock; false
 * on a loader too old to say. */
bool vs_elf_other_namespace_has(const char *file);

/* Is this address inside this library? */
bool vs_elf_is_ours(const void *address);

#endif
