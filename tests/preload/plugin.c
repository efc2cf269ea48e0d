/* A library linked against the driver that takes device memory itself. */
#include <cuda.h>

#include <stddef.h>

int plugin_take(size_t bytes);

__attribute__((visibility("default"))) int plugin_take(size_t bytes)
{
    CUdeviceptr p;
    CUcontext context = NULL;
    CUdevice device;

    /* A copy of the driver in a namespace of its own starts from nothing. */
    cuInit(0);
    if (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context == NULL &&
        cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
        cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) {
        cuCtxSetCurrent(context);
    }
    return (int)cuMemAlloc(&p, bytes);
}
