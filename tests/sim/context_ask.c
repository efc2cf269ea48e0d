/*
 * Contexts: questions, limits, flags, and waiting for one.
 */
#include "sim.h"

/* The context an entry point means: the argument, or the current one; of a green context its own
 * form. Takes the lock if it succeeds. */
static CUresult enter(CUcontext given, CUcontext *out)
{
    sim_lock();
    CUcontext owner;
    CUresult result = CUDA_SUCCESS;
    if (given == NULL)
        result = sim_ctx_asked(&owner);
    else if (!sim_ctx_named(given) || !sim_ctx_alive(given->owner))
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else
        result = given->owner->sticky;
    *out = given != NULL ? given : sim_ctx_peek();
    if (result != CUDA_SUCCESS)
        sim_unlock();
    return result;
}

#define WITH_CURRENT(given, body)                                                                  \
    do {                                                                                           \
        CUcontext ctx;                                                                             \
        CUresult entered_ = enter(given, &ctx);                                                    \
        if (entered_ != CUDA_SUCCESS)                                                              \
            return entered_;                                                                       \
        body;                                                                                      \
        sim_unlock();                                                                              \
        return CUDA_SUCCESS;                                                                       \
    } while (0)

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTRY(cuCtxGetDevice);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CURRENT(NULL, *device = ctx->device->index);
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext given)
{
    SIM_ENTRY(cuCtxGetDevice_v2);
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CURRENT(given, *device = ctx->device->index);
}

CUresult CUDAAPI cuCtxGetId(CUcontext given, unsigned long long *id)
{
    SIM_ENTRY(cuCtxGetId);
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CURRENT(given, *id = ctx->id);
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTRY(cuCtxGetFlags);
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CURRENT(NULL, *flags = ctx->owner->flags);
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags)
{
    SIM_ENTRY(cuCtxSetFlags);
    if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CURRENT(NULL, ctx->owner->flags = flags);
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext given, unsigned int *version)
{
    SIM_ENTRY(cuCtxGetApiVersion);
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CURRENT(given, *version = ctx->owner->api_version);
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTRY(cuCtxSetLimit);
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    WITH_CURRENT(NULL, ctx->owner->limits[limit] = value);
}

CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SIM_ENTRY(cuCtxGetLimit);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    WITH_CURRENT(NULL, *value = ctx->owner->limits[limit]);
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *config)
{
    SIM_ENTRY(cuCtxGetCacheConfig);
    if (config == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CURRENT(NULL, *config = ctx->owner->cache_config);
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
    SIM_ENTRY(cuCtxSetCacheConfig);
    WITH_CURRENT(NULL, ctx->owner->cache_config = config);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTRY(cuCtxGetStreamPriorityRange);
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return sim_ctx_peek() != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult synchronise(CUcontext given)
{
    CUcontext ctx;
    CUresult result = enter(given, &ctx);
    if (result != CUDA_SUCCESS)
        return result;
    result =
        sim_ctx_alive(ctx) ? sim_capture_context_op(ctx->owner) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS) {
        if (ctx->green != NULL) {
            struct sim_op *marker = sim_green_marker(ctx->green);
            sim_op_wait(marker);
            sim_op_unref(marker);
        } else {
            sim_ctx_wait_all(ctx);
        }
        sim_pools_synchronised();
        result = ctx->owner->sticky;
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    SIM_ENTRY(cuCtxSynchronize);
    return synchronise(NULL);
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext given)
{
    SIM_ENTRY(cuCtxSynchronize_v2);
    return synchronise(given);
}
