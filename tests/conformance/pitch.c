/* cuMemAllocPitch: rows start aligned, the range is whole rows, and what is refused. */
#include "cu.h"

static void rows(size_t width, size_t height, unsigned element)
{
    CUdeviceptr p = 0, base = 0;
    size_t pitch = 0, size = 0;

    cu_say("%zu x %zu, elements of %u", width, height, element);
    if (TELL(cuMemAllocPitch, &p, &pitch, width, height, element) != CUDA_SUCCESS)
        return;
    FACT(pitch >= width);
    FACT(pitch % 512 == 0);
    FACT(pitch < width + 512);
    MUST(cuMemGetAddressRange, &base, &size, p);
    FACT(base == p);
    FACT(size == pitch * height);
    MUST(cuMemsetD2D8, p, pitch, 9, width, height);
    FACT(cu_all_bytes(p + pitch * (height - 1), width, 9));
    TELL(cuMemFree, p);
}

int main(int argc, char **argv)
{
    CUdeviceptr p = 0;
    size_t pitch = 0;

    cu_start(argc, argv);
    rows(1, 1, 4);
    rows(1000, 10, 4);
    rows(1024, 7, 8);
    rows(100000, 33, 16);
    TELL(cuMemAllocPitch, &p, &pitch, 100, 10, 3);
    TELL(cuMemAllocPitch, &p, &pitch, 100, 10, 0);
    TELL(cuMemAllocPitch, &p, &pitch, 100, 10, 32);
    TELL(cuMemAllocPitch, &p, &pitch, 0, 10, 4);
    TELL(cuMemAllocPitch, &p, &pitch, 100, 0, 4);
    TELL(cuMemAllocPitch, NULL, &pitch, 100, 10, 4);
    TELL(cuMemAllocPitch, &p, NULL, 100, 10, 4);
    TELL(cuMemAllocPitch, &p, &pitch, (size_t)1 << 40, (size_t)1 << 20, 4);
    return cu_end();
}
