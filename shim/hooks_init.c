/*
 * Hooks: initialisation, and look-ups through the driver's own cuGetProcAddress.
 *
 * symbolStatus and every error are the driver's; only a pointer that it returned is substituted.
 */
#include "shim/arm.h"
#include "shim/guard.h"
#include "shim/process.h"

VS_HOOK cuInit(unsigned int flags)
{
    VS_HOOK_ENTER(cuInit)
    CUresult result;

    if (!guard.counts || vs_process_state() == VS_PROCESS_ARMED) {
        return guard.entries->cuInit(flags);
    }
    if (vs_arm_options() != 0) {
        return CUDA_ERROR_INVALID_VALUE; /* a cap never fails open */
    }
    result = guard.entries->cuInit(flags);
    if (result == CUDA_SUCCESS) {
        vs_arm(guard.driver);
        if (vs_process_state() == VS_PROCESS_REFUSED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return result;
}

VS_HOOK cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    VS_HOOK_ENTER(cuGetProcAddress)
    CUresult result = guard.entries->cuGetProcAddress(symbol, pfn, version, flags);

    if (guard.counts && result == CUDA_SUCCESS && pfn != NULL) {
        *pfn = vs_driver_substitute(*pfn);
    }
    return result;
}

VS_HOOK cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *status)
{
    VS_HOOK_ENTER(cuGetProcAddress_v2)
    CUresult result = guard.entries->cuGetProcAddress_v2(symbol, pfn, version, flags, status);

    if (guard.counts && result == CUDA_SUCCESS && pfn != NULL) {
        *pfn = vs_driver_substitute(*pfn);
    }
    return result;
}
