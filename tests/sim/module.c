/*
 * Modules and libraries beyond loading and launching (kernel.c): variables, enumeration, names,
 * parameters, files.
 *
 * A variable gets its memory, zeroed, when it is first asked for: a module's in its context, a
 * library's once in each context that asks. PTX initialisers are not read. Managed variables and
 * unified functions are not there.
 */
#include "module.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place { /* a variable in one context */
    CUcontext ctx;
    CUdeviceptr address;
    unsigned long long id; /* of its range, which goes with the context */
    struct place *next;
};
struct sim_global {
    char name[64];
    size_t size;
    struct place *places;
    struct sim_global *next;
};

static bool alive(CUmodule module)
{
    return module != NULL && module->magic == SIM_MAGIC_MODULE;
}

static bool function_alive(CUfunction function)
{
    return function != NULL && function->magic == SIM_MAGIC_FUNCTION;
}

/* ---- variables --------------------------------------------------------------------------------
 */
/* `.align 4 .v2 .u32 name[4][2]` up to `;`, `=` or `,`; NULL where it is none. */
static struct sim_global *parse(const char *at)
{
    size_t size = 0, count = 1;
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        if (strncmp(at, ".align", 6) == 0) {
            strtoul(at + 6, (char **)(uintptr_t)&at, 10);
        } else if (strncmp(at, ".v2", 3) == 0 || strncmp(at, ".v4", 3) == 0) {
            count *= (size_t)(at[2] - '0');
            at += 3;
        } else if (*at == '.' && strchr("usbf", at[1]) != NULL) {
            size = strtoul(at + 2, (char **)(uintptr_t)&at, 10) / 8;
        } else {
            break;
        }
    }
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_' || at[length] == '$')
        length++;
    struct sim_global *global = calloc(1, sizeof *global);
    if (global == NULL)
        abort();
    if (size == 0 || length == 0 || length >= sizeof global->name) {
        free(global);
        return NULL;
    }
    memcpy(global->name, at, length);
    for (at += length; *at == '['; at++) {
        count *= strtoul(at + 1, (char **)(uintptr_t)&at, 10);
        if (*at != ']')
            break;
    }
    global->size = size * count;
    return global;
}

static void find_in(CUmodule module, const char *text, const char *space)
{
    const size_t length = strlen(space);
    for (const char *at = text; (at = strstr(at, space)) != NULL; at += length) {
        /* ld.global.u32 is no declaration, and an extern one is somebody else's. */
        if (!isspace((unsigned char)at[length]) ||
            (at - text >= 8 && strncmp(at - 8, ".extern ", 8) == 0))
            continue;
        struct sim_global *global = parse(at + length);
        if (global != NULL) {
            global->next = module->globals;
            module->globals = global;
        }
    }
}

void sim_module_globals(CUmodule module, const char *text)
{
    find_in(module, text, ".global");
    find_in(module, text, ".const");
}

static struct sim_range *range_of(const struct place *place)
{
    struct sim_range *range = sim_range_at(place->address);
    return range != NULL && range->kind == SIM_GLOBAL && range->id == place->id ? range : NULL;
}

void sim_module_globals_gone(CUmodule module)
{
    while (module->globals != NULL) {
        struct sim_global *global = module->globals;
        module->globals = global->next;
        while (global->places != NULL) {
            struct place *place = global->places;
            global->places = place->next;
            struct sim_range *range = range_of(place);
            if (range != NULL) {
                sim_race_remember_freed(range->base, range->size, "the end of its module");
                sim_range_free(range);
            }
            free(place);
        }
        free(global);
    }
}

static CUresult locate(struct sim_global *global, CUcontext ctx, CUdeviceptr *address)
{
    struct place *place = global->places;
    while (place != NULL && (place->ctx != ctx || range_of(place) == NULL))
        place = place->next;
    if (place == NULL) {
        struct sim_range *range;
        CUresult result = sim_memory_alloc(ctx, global->size, SIM_GLOBAL, &range);
        if (result != CUDA_SUCCESS)
            return result;
        unsigned char *bytes = sim_phys_bytes(range->phys);
        place = calloc(1, sizeof *place);
        if (bytes == NULL || place == NULL)
            abort();
        memset(bytes, 0, global->size);
        *place = (struct place){ctx, range->base, range->id, global->places};
        global->places = place;
    }
    *address = place->address;
    return CUDA_SUCCESS;
}

static CUresult get_global(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    if (name == NULL || (address == NULL && bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx = NULL;
    CUresult result = alive(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        result = sim_ctx_current(&ctx);
        if (result == CUDA_SUCCESS && module->ctx != NULL)
            ctx = module->ctx;
    }
    struct sim_global *global = result == CUDA_SUCCESS ? module->globals : NULL;
    while (global != NULL && strcmp(global->name, name) != 0)
        global = global->next;
    if (result == CUDA_SUCCESS && global == NULL)
        result = CUDA_ERROR_NOT_FOUND;
    CUdeviceptr found;
    if (result == CUDA_SUCCESS)
        result = locate(global, ctx, &found);
    if (result == CUDA_SUCCESS && address != NULL)
        *address = found;
    if (result == CUDA_SUCCESS && bytes != NULL)
        *bytes = global->size;
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                      const char *name)
{
    SIM_ENTRY(cuModuleGetGlobal_v2);
    return get_global(address, bytes, module, name);
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                    const char *name)
{
    SIM_ENTRY(cuLibraryGetGlobal);
    return get_global(address, bytes, (CUmodule)(void *)library, name);
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                     const char *name)
{
    SIM_ENTRY(cuLibraryGetManaged);
    (void)address, (void)bytes;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return alive((CUmodule)(void *)library) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuLibraryGetUnifiedFunction(void **out, CUlibrary library, const char *name)
{
    SIM_ENTRY(cuLibraryGetUnifiedFunction);
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return alive((CUmodule)(void *)library) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- what is in it ----------------------------------------------------------------------------
 */
static CUresult enumerate(CUfunction *list, unsigned room, unsigned *count, CUmodule module)
{
    sim_lock();
    bool good = alive(module);
    unsigned found = 0;
    for (CUfunction at = good ? module->functions : NULL; at != NULL; at = at->next) {
        if (at->kernel == NULL)
            continue;
        if (list != NULL && found < room)
            list[found] = at;
        found++;
    }
    if (good && count != NULL)
        *count = found;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    SIM_ENTRY(cuModuleGetFunctionCount);
    return count != NULL ? enumerate(NULL, 0, count, module) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction *list, unsigned int room, CUmodule module)
{
    SIM_ENTRY(cuModuleEnumerateFunctions);
    return list != NULL && room > 0 ? enumerate(list, room, NULL, module)
                                    : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    SIM_ENTRY(cuLibraryGetKernelCount);
    return count != NULL ? enumerate(NULL, 0, count, (CUmodule)(void *)library)
                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel *list, unsigned int room, CUlibrary library)
{
    SIM_ENTRY(cuLibraryEnumerateKernels);
    return list != NULL && room > 0
               ? enumerate((CUfunction *)(void *)list, room, NULL, (CUmodule)(void *)library)
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult param_info(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    if (!function_alive(function))
        return CUDA_ERROR_INVALID_HANDLE;
    if (offset == NULL || index >= function->params)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->offset[index];
    if (size != NULL)
        *size = function->size[index];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
    SIM_ENTRY(cuFuncGetParamInfo);
    return param_info(function, index, offset, size);
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    SIM_ENTRY(cuKernelGetParamInfo);
    return param_info((CUfunction)(void *)kernel, index, offset, size);
}

static CUresult name_of(const char **name, CUfunction function)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function_alive(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *name = function->name;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction function)
{
    SIM_ENTRY(cuFuncGetName);
    return name_of(name, function);
}

CUresult CUDAAPI cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_ENTRY(cuKernelGetName);
    return name_of(name, (CUfunction)(void *)kernel);
}

static CUresult module_of(CUmodule *out, CUfunction function)
{
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function_alive(function))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = function->module;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule *out, CUfunction function)
{
    SIM_ENTRY(cuFuncGetModule);
    return module_of(out, function);
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary *out, CUkernel kernel)
{
    SIM_ENTRY(cuKernelGetLibrary);
    return module_of((CUmodule *)(void *)out, (CUfunction)(void *)kernel);
}

CUresult CUDAAPI cuFuncLoad(CUfunction function)
{
    SIM_ENTRY(cuFuncLoad);
    return function_alive(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_ENTRY(cuFuncIsLoaded);
    if (state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return function_alive(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- files ------------------------------------------------------------------------------------
 */
static CUresult from_file(CUmodule *out, const char *name, bool needs_ctx)
{
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(name, "re");
    if (file == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    size_t used = 0, room = 65536;
    char *text = malloc(room);
    for (size_t got; text != NULL && (got = fread(text + used, 1, room - used - 1, file)) > 0;) {
        used += got;
        if (room - used < 2)
            text = realloc(text, room *= 2);
    }
    fclose(file);
    if (text == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    text[used] = '\0';
    CUresult result = sim_module_load(out, text, needs_ctx);
    free(text);
    return result;
}

CUresult CUDAAPI cuModuleLoad(CUmodule *out, const char *name)
{
    SIM_ENTRY(cuModuleLoad);
    return from_file(out, name, true);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *out, const char *name, CUjit_option *jit,
                                       void **jit_values, unsigned int jit_count,
                                       CUlibraryOption *options, void **values, unsigned int count)
{
    SIM_ENTRY(cuLibraryLoadFromFile);
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return from_file((CUmodule *)(void *)out, name, false);
}

/* A fat binary holds machine code; PTX text is taken as it is. */
CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    SIM_ENTRY(cuModuleLoadFatBinary);
    return sim_module_load(out, image, true);
}
