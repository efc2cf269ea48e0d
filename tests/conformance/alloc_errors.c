/* cuMemAlloc and cuMemFree with everything that they refuse. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUdeviceptr p, q, unset = 0x5a5a5a5a;

    cu_start(argc, argv);
    TELL(cuMemAlloc, &unset, 0);
    FACT(unset == 0);
    TELL(cuMemAlloc, NULL, 4096);
    TELL(cuMemAlloc, NULL, 0);
    TELL(cuMemFree, 0);

    TELL(cuMemAlloc, &p, 1);
    FACT(p != 0);
    FACT(p % 256 == 0);
    TELL(cuMemFree, p);
    TELL(cuMemFree, p);

    TELL(cuMemAlloc, &p, 1 << 20);
    TELL(cuMemAlloc, &q, 3 << 20);
    FACT(p % 512 == 0 && q % 512 == 0);
    TELL(cuMemFree, p + 1);
    TELL(cuMemFree, p + 512);
    TELL(cuMemFree, p + (1 << 19));
    TELL(cuMemFree, 12345);
    TELL(cuMemFree, (CUdeviceptr)(uintptr_t)&p);
    TELL(cuMemFree, ~(CUdeviceptr)0);
    /* The refused ones changed nothing. */
    TELL(cuMemsetD8, p, 7, 1 << 20);
    FACT(cu_all_bytes(p, 1 << 20, 7));
    TELL(cuMemFree, p);
    TELL(cuMemFree, q);
    TELL(cuMemFree, p);
    TELL(cuMemFree, q);
    return cu_end();
}
