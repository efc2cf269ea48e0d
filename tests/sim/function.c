/*
 * What programs ask about kernels: attributes, occupancy, names. Fixed answers of a small kernel.
 */
#include "sim.h"

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute name, CUfunction function)
{
    SIM_ENTRY(cuFuncGetAttribute);
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    switch (name) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 16;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = 70;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        return CUDA_SUCCESS;
    default:
        if (name < 0 || name >= CU_FUNC_ATTRIBUTE_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        *value = 0;
        return CUDA_SUCCESS;
    }
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute name, int value)
{
    SIM_ENTRY(cuFuncSetAttribute);
    (void)value;
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return name >= 0 && name < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SIM_ENTRY(cuFuncSetCacheConfig);
    (void)config;
    return function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SIM_ENTRY(cuModuleGetLoadingMode);
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                             int block, size_t shared)
{
    SIM_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    (void)shared;
    if (blocks == NULL || block <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    int fit = 2048 / block;
    *blocks = block > 1024 ? 0 : fit < 32 ? fit : 32;
    return CUDA_SUCCESS;
}

/* The runtime's private tables are not imitated. */
CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *id)
{
    SIM_ENTRY(cuGetExportTable);
    (void)id;
    if (table == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

/* ---- kernels of libraries ------------------------------------------------------------------- */
CUresult CUDAAPI cuKernelGetAttribute(int *value, CUfunction_attribute name, CUkernel kernel,
                                      CUdevice device)
{
    SIM_ENTRY(cuKernelGetAttribute);
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncGetAttribute(value, name, (CUfunction)(void *)kernel);
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute name, int value, CUkernel kernel,
                                      CUdevice device)
{
    SIM_ENTRY(cuKernelSetAttribute);
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncSetAttribute((CUfunction)(void *)kernel, name, value);
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    SIM_ENTRY(cuKernelSetCacheConfig);
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncSetCacheConfig((CUfunction)(void *)kernel, config);
}

/* ---- occupancy ------------------------------------------------------------------------------ */
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                      CUfunction function,
                                                                      int block, size_t shared,
                                                                      unsigned int flags)
{
    SIM_ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    if ((flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block, shared);
}

static CUresult potential(int *grid, int *block, CUfunction function, int limit)
{
    if (grid == NULL || block == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    *grid = 132 * (2048 / *block < 32 ? 2048 / *block : 32);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                  CUoccupancyB2DSize size, size_t shared, int limit)
{
    SIM_ENTRY(cuOccupancyMaxPotentialBlockSize);
    (void)size, (void)shared;
    return potential(grid, block, function, limit);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block,
                                                           CUfunction function,
                                                           CUoccupancyB2DSize size, size_t shared,
                                                           int limit, unsigned int flags)
{
    SIM_ENTRY(cuOccupancyMaxPotentialBlockSizeWithFlags);
    (void)size, (void)shared, (void)flags;
    return potential(grid, block, function, limit);
}

CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function,
                                                         int blocks, int block)
{
    SIM_ENTRY(cuOccupancyAvailableDynamicSMemPerBlock);
    if (bytes == NULL || blocks <= 0 || block <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    size_t share = 233472 / (size_t)blocks;
    *bytes = share > 49152 ? 49152 : share;
    return CUDA_SUCCESS;
}
