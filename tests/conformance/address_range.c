/* cuMemGetAddressRange: the program's own allocation, at every address inside it. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdeviceptr p, q, base = 0;
    size_t size = 0;

    cu_start(argc, argv);
    MUST(cuMemAlloc, &p, 5 << 20);
    MUST(cuMemAlloc, &q, 1000);
    TELL(cuMemGetAddressRange, &base, &size, p);
    FACT(base == p && size == 5 << 20);
    TELL(cuMemGetAddressRange, &base, &size, p + 12345);
    FACT(base == p && size == 5 << 20);
    TELL(cuMemGetAddressRange, &base, &size, p + (5 << 20) - 1);
    FACT(base == p && size == 5 << 20);
    TELL(cuMemGetAddressRange, &base, &size, q + 999);
    FACT(base == q);
    FACT(size == 1000);

    base = 0, size = 0;
    TELL(cuMemGetAddressRange, &base, NULL, p + 1);
    FACT(base == p);
    TELL(cuMemGetAddressRange, NULL, &size, p + 1);
    FACT(size == 5 << 20);
    TELL(cuMemGetAddressRange, NULL, NULL, p + 1);

    TELL(cuMemGetAddressRange, &base, &size, 0);
    TELL(cuMemGetAddressRange, &base, &size, 12345);
    TELL(cuMemGetAddressRange, &base, &size, (CUdeviceptr)(uintptr_t)&base);
    TELL(cuMemFree, p);
    TELL(cuMemGetAddressRange, &base, &size, p);
    TELL(cuMemFree, q);
    return cu_end();
}
