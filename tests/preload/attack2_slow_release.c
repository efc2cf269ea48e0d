/* A preload behind us: a release of the primary context takes a while to return. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <unistd.h>

__attribute__((visibility("default"))) CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult (*real)(CUdevice) =
        (CUresult(*)(CUdevice))dlsym(RTLD_NEXT, "cuDevicePrimaryCtxRelease_v2");
    CUresult result = real(device);

    usleep(200000);
    return result;
}
