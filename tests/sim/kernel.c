/*
 * Modules and kernels.
 *
 * A module is PTX text; the simulator takes from it the names of its entry functions and the layout
 * of their parameters, so that one binary with PTX in it runs here and on a GPU. What a kernel does
 * is built in, by name (tests/sim/kernels.h has PTX that does the same): fill, verify, copy, saxpy,
 * spin_us, spin_flag, set_flag, fault. A name without a built-in is not found, and said so.
 *
 * Built-ins do all their work whatever the launch shape, once it covers the data as the PTX would.
 */
#include "module.h"
#include "sim.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sim_kernel {
    const char *name;
    unsigned params;
    void (*run)(struct sim_op *op, const uint64_t *arg);
};

static CUmodule all_modules;

/* ---- built-in kernels ---------------------------------------------------------------------------
 */
static float as_float(uint64_t bits)
{
    uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* fill(u32 *p, u32 value, u32 count) */
static void run_fill(struct sim_op *op, const uint64_t *arg)
{
    struct sim_pieces pieces;
    uint32_t value = (uint32_t)arg[1];
    if (!sim_access(op, arg[0], (uint32_t)arg[2] * (size_t)4, true, false, "fill", &pieces))
        return;
    for (unsigned i = 0; i < pieces.count; i++)
        sim_bytes_fill(pieces.list[i].bytes, pieces.list[i].size, 4, value);
    sim_pieces_release(&pieces);
}

/* verify(u32 *p, u32 value, u32 count, u32 *bad): adds the number of words that differ to *bad */
static void run_verify(struct sim_op *op, const uint64_t *arg)
{
    struct sim_pieces pieces;
    uint32_t value = (uint32_t)arg[1], bad = 0;
    if (!sim_access(op, arg[0], (uint32_t)arg[2] * (size_t)4, false, false, "verify", &pieces))
        return;
    for (unsigned i = 0; i < pieces.count; i++)
        bad += sim_bytes_others(pieces.list[i].bytes, pieces.list[i].size, value);
    sim_pieces_release(&pieces);
    /* An atomic add, so no race with other verifies: not checked. */
    if (bad > 0 && sim_access(op, arg[3], 4, true, false, NULL, &pieces)) {
        __atomic_fetch_add((uint32_t *)(void *)pieces.list[0].bytes, bad, __ATOMIC_RELAXED);
        sim_pieces_release(&pieces);
    }
}

/* copy(u32 *to, const u32 *from, u32 count) */
static void run_copy(struct sim_op *op, const uint64_t *arg)
{
    size_t size = (uint32_t)arg[2] * (size_t)4;
    struct sim_pieces to, from;
    if (!sim_access(op, arg[1], size, false, false, "copy", &from))
        return;
    if (sim_access(op, arg[0], size, true, false, "copy", &to)) {
        sim_pieces_copy(&to, &from);
        sim_pieces_release(&to);
    }
    sim_pieces_release(&from);
}

/* saxpy(u32 n, float a, const float *x, float *y): y = a x + y */
static void run_saxpy(struct sim_op *op, const uint64_t *arg)
{
    size_t size = (uint32_t)arg[0] * (size_t)4;
    float a = as_float(arg[1]);
    for (size_t at = 0; at < size;) {
        /* Page by page, so that the pieces of both sides fit each other. */
        size_t length = size - at < 4096 ? size - at : 4096;
        struct sim_pieces x, y;
        unsigned char xs[4096], ys[4096];
        struct sim_piece x_row = {NULL, xs, length}, y_row = {NULL, ys, length};
        struct sim_pieces x_copy = {.list = &x_row, .count = 1, .room = 1};
        struct sim_pieces y_copy = {.list = &y_row, .count = 1, .room = 1};
        if (!sim_access(op, arg[2] + at, length, false, false, "saxpy", &x))
            return;
        sim_pieces_copy(&x_copy, &x);
        sim_pieces_release(&x);
        if (!sim_access(op, arg[3] + at, length, true, false, "saxpy", &y))
            return;
        sim_pieces_copy(&y_copy, &y);
        for (size_t i = 0; i < length; i += 4) {
            float xv, yv;
            memcpy(&xv, xs + i, 4);
            memcpy(&yv, ys + i, 4);
            yv += a * xv;
            memcpy(ys + i, &yv, 4);
        }
        sim_pieces_copy(&y, &y_copy);
        sim_pieces_release(&y);
        at += length;
    }
}

/* spin_us(u64 microseconds) */
static void run_spin_us(struct sim_op *op, const uint64_t *arg)
{
    (void)op;
    struct timespec left = {(time_t)(arg[0] / 1000000), (long)(arg[0] % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0)
        ;
}

/* spin_flag(u32 *flag, u32 value): until *flag >= value */
static void run_spin_flag(struct sim_op *op, const uint64_t *arg)
{
    sim_flag_wait(op, arg[0], arg[1], 4, CU_STREAM_WAIT_VALUE_GEQ);
}

/* set_flag(u32 *flag, u32 value) */
static void run_set_flag(struct sim_op *op, const uint64_t *arg)
{
    sim_flag_set(op, arg[0], arg[1], 4);
}

/* fault(): writes where nothing is; on purpose, so no finding of the race detector */
static void run_fault(struct sim_op *op, const uint64_t *arg)
{
    (void)arg;
    sim_lock();
    sim_exec_fault(op, CUDA_ERROR_ILLEGAL_ADDRESS);
    sim_unlock();
}

static const struct sim_kernel kernels[] = {
    {"fill", 3, run_fill},         {"verify", 4, run_verify},   {"copy", 3, run_copy},
    {"saxpy", 4, run_saxpy},       {"spin_us", 1, run_spin_us}, {"spin_flag", 2, run_spin_flag},
    {"set_flag", 2, run_set_flag}, {"fault", 0, run_fault},
};

void sim_kernel_run(struct sim_op *op)
{
    op->work.launch.kernel->run(op, op->work.launch.arg);
}

/* ---- PTX
 * ----------------------------------------------------------------------------------------- */
static bool word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static const char *skip(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

/* Parameters of an entry: `.param .u64 name, .param .u32 name)`. */
static void parse_params(const char *at, CUfunction function)
{
    const char *end = strchr(at, ')');
    unsigned offset = 0;
    while (end != NULL && (at = strstr(at, ".param")) != NULL && at < end &&
           function->params < SIM_KERNEL_PARAMS) {
        at = skip(at + 6);
        if (*at != '.')
            break;
        unsigned bits = (unsigned)strtoul(at + 2, NULL, 10); /* .u64, .f32, .b8 */
        unsigned size = bits >= 8 ? bits / 8 : 4;
        offset = (offset + size - 1) / size * size;
        function->size[function->params] = size;
        function->offset[function->params++] = offset;
        offset += size;
    }
}

static CUresult load(CUmodule *out, const char *text, CUcontext ctx)
{
    if (strncmp(text, "\177ELF", 4) == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const char *start = skip(text);
    if (strncmp(start, ".version", 8) != 0 && strncmp(start, "//", 2) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    if (strstr(start, ".version") == NULL || strstr(start, ".target") == NULL)
        return CUDA_ERROR_INVALID_PTX;
    CUmodule module = calloc(1, sizeof *module);
    if (module == NULL)
        abort();
    module->magic = SIM_MAGIC_MODULE;
    module->ctx = ctx;
    module->older = all_modules;
    all_modules = module;
    for (const char *at = start; (at = strstr(at, ".entry")) != NULL;) {
        at = skip(at + 6);
        size_t length = 0;
        while (word(at[length]))
            length++;
        CUfunction function = calloc(1, sizeof *function);
        if (function == NULL)
            abort();
        function->magic = SIM_MAGIC_FUNCTION;
        function->module = module;
        if (length >= sizeof function->name)
            length = sizeof function->name - 1;
        memcpy(function->name, at, length);
        at = skip(at + length);
        if (*at == '(')
            parse_params(at, function);
        for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
            if (strcmp(kernels[i].name, function->name) == 0 &&
                kernels[i].params == function->params)
                function->kernel = &kernels[i];
        }
        function->next = module->functions;
        module->functions = function;
    }
    sim_module_globals(module, start);
    *out = module;
    return CUDA_SUCCESS;
}

CUresult sim_module_load(CUmodule *out, const void *image, bool needs_ctx)
{
    if (out == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx = NULL;
    CUresult result = needs_ctx ? sim_ctx_current(&ctx) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = load(out, image, ctx);
    sim_unlock();
    return result;
}

static bool alive(CUmodule module)
{
    return module != NULL && module->magic == SIM_MAGIC_MODULE;
}

static CUresult module_unload(CUmodule module)
{
    sim_lock();
    bool good = alive(module);
    if (good) {
        /* Structs stay: work that is queued, and stale handles, may refer to them. */
        sim_module_globals_gone(module);
        module->magic = SIM_MAGIC_DEAD;
        for (CUfunction function = module->functions; function != NULL; function = function->next)
            function->magic = SIM_MAGIC_DEAD;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_function(CUfunction *out, CUmodule module, const char *name)
{
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = alive(module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
    CUfunction function = result == CUDA_ERROR_NOT_FOUND ? module->functions : NULL;
    while (function != NULL && strcmp(function->name, name) != 0)
        function = function->next;
    if (function != NULL && function->kernel != NULL) {
        *out = function;
        result = CUDA_SUCCESS;
    } else if (function != NULL) {
        sim_say("no built-in kernel %s with %u parameters", name, function->params);
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *out, const void *image)
{
    SIM_ENTRY(cuModuleLoadData);
    return sim_module_load(out, image, true);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count,
                                    CUjit_option *options, void **values)
{
    SIM_ENTRY(cuModuleLoadDataEx);
    (void)count, (void)options, (void)values;
    return sim_module_load(out, image, true);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
    SIM_ENTRY(cuModuleUnload);
    return module_unload(module);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    SIM_ENTRY(cuModuleGetFunction);
    return get_function(out, module, name);
}

/* Libraries are modules without a context, kernels of theirs are functions. */
CUresult CUDAAPI cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit,
                                   void **jit_values, unsigned int jit_count,
                                   CUlibraryOption *options, void **values, unsigned int count)
{
    SIM_ENTRY(cuLibraryLoadData);
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return sim_module_load((CUmodule *)(void *)out, code, false);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
    SIM_ENTRY(cuLibraryUnload);
    return module_unload((CUmodule)(void *)library);
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    SIM_ENTRY(cuLibraryGetKernel);
    return get_function((CUfunction *)(void *)out, (CUmodule)(void *)library, name);
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
    SIM_ENTRY(cuLibraryGetModule);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUmodule)(void *)library;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
    SIM_ENTRY(cuKernelGetFunction);
    if (out == NULL || kernel == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUfunction)(void *)kernel;
    return CUDA_SUCCESS;
}

/* ---- launches
 * ------------------------------------------------------------------------------------ */
CUresult sim_kernel_work(CUfunction function, const unsigned *grid, const unsigned *block,
                         void **params, void **extra, struct sim_work *work)
{
    if (function == NULL || function->magic != SIM_MAGIC_FUNCTION)
        return CUDA_ERROR_INVALID_HANDLE;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || block[0] == 0 || block[1] == 0 ||
        block[2] == 0 || (uint64_t)block[0] * block[1] * block[2] > 1024 || grid[1] > 65535 ||
        grid[2] > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned char *buffer = NULL;
    for (void **at = extra; at != NULL && at[0] != CU_LAUNCH_PARAM_END; at += 2) {
        if (at[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = at[1];
    }
    if (params == NULL && buffer == NULL && function->params > 0)
        return CUDA_ERROR_INVALID_VALUE;
    *work = (struct sim_work){.kind = SIM_W_KERNEL, .what = function->kernel->name};
    work->launch.kernel = function->kernel;
    work->launch.function = function;
    memcpy(work->launch.grid, grid, sizeof work->launch.grid);
    memcpy(work->launch.block, block, sizeof work->launch.block);
    for (unsigned i = 0; i < function->params; i++) {
        const void *from = params != NULL ? params[i] : buffer + function->offset[i];
        memcpy(&work->launch.arg[i], from, function->size[i] <= 8 ? function->size[i] : 8);
    }
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, const unsigned *grid, const unsigned *block,
                       CUstream handle, bool pt, void **params, void **extra)
{
    sim_lock();
    CUstream stream;
    struct sim_work work;
    CUresult result = sim_stream_get(handle, pt, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_kernel_work(function, grid, block, params, extra, &work);
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, &work, NULL);
    sim_unlock();
    return result;
}

SIM_TWINS(cuLaunchKernel, cuLaunchKernel_ptsz,
          (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
           unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
           void **extra),
          ((void)shared, launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, stream, pt,
                                params, extra)))
SIM_TWINS(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
          (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
           unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params),
          ((void)shared,
           launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, stream, pt, params, NULL)))

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, bool pt, void **params,
                          void **extra)
{
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    return launch(f, grid, block, config->hStream, pt, params, extra);
}
SIM_TWINS(cuLaunchKernelEx, cuLaunchKernelEx_ptsz,
          (const CUlaunchConfig *config, CUfunction f, void **params, void **extra),
          launch_ex(config, f, pt, params, extra))
