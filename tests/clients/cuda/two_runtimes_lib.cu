/*
 * A library with a CUDA runtime of its own (static) inside. Opened by two_runtimes.cu, which has
 * the shared one: two libcudart in one process, each with its own error state.
 */
#include <cuda_runtime.h>

extern "C" {
__attribute__((visibility("default"))) int lib_malloc(void **out, size_t bytes)
{
    return (int)cudaMalloc(out, bytes);
}
__attribute__((visibility("default"))) int lib_free(void *p)
{
    return (int)cudaFree(p);
}
__attribute__((visibility("default"))) int lib_last_error(void)
{
    return (int)cudaGetLastError();
}
}
