/*
 * A planted fault: a kernel writes to memory that was freed. compute-sanitizer must find it, with
 * the shim as without: a pool that keeps freed memory mapped would hide it. Prints what the runtime
 * says.
 */
#include <cuda_runtime.h>
#include <stdio.h>

__global__ void touch(unsigned *at)
{
    at[threadIdx.x] = threadIdx.x;
}

int main(void)
{
    unsigned *p = NULL;

    printf("cudaMalloc: %s\n", cudaGetErrorName(cudaMalloc((void **)&p, 4 << 20)));
    touch<<<1, 32>>>(p);
    printf("live: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    printf("cudaFree: %s\n", cudaGetErrorName(cudaFree(p)));
    touch<<<1, 32>>>(p);
    printf("freed: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    fflush(stdout);
    return 0;
}
