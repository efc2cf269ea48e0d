/* Modules, functions and their variables: what kernel.c and module.c share. */
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "sim.h"

struct CUfunc_st {
    uint32_t magic;
    CUmodule module;
    char name[64];
    const struct sim_kernel *kernel; /* NULL: no built-in of that name */
    unsigned params;
    unsigned size[SIM_KERNEL_PARAMS], offset[SIM_KERNEL_PARAMS];
    CUfunction next;
};

struct CUmod_st { /* also behind CUlibrary */
    uint32_t magic;
    CUcontext ctx; /* NULL: a library */
    CUfunction functions;
    struct sim_global *globals;
    CUmodule older; /* all there ever were */
};

/* Loads PTX; without the lock. needs_ctx: a module, else a library. */
CUresult sim_module_load(CUmodule *out, const void *image, bool needs_ctx);
/* With the lock. */
void sim_module_globals(CUmodule module, const char *text); /* finds the variables in the PTX */
void sim_module_globals_gone(CUmodule module);

#endif
