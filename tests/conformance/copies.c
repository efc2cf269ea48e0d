/* Memsets and copies of every shape that the other programs rely on, and past the end. */
#include <string.h>

#include "cu.h"

int main(int argc, char **argv)
{
    CUdeviceptr p, q;
    CUstream s;
    unsigned char host[4096], back[4096];

    cu_start(argc, argv);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &p, 4096);
    MUST(cuMemAlloc, &q, 4096);
    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (unsigned char)(i * 31 + i / 256);

    TELL(cuMemcpyHtoD, p, host, 4096);
    TELL(cuMemcpyDtoD, q, p, 4096);
    TELL(cuMemcpyDtoH, back, q, 4096);
    FACT(memcmp(host, back, 4096) == 0);
    TELL(cuMemsetD8, q + 1, 0xab, 3);
    TELL(cuMemcpyDtoH, back, q, 8);
    FACT(back[0] == host[0] && back[1] == 0xab && back[3] == 0xab && back[4] == host[4]);
    TELL(cuMemsetD16, q, 0x1234, 2);
    TELL(cuMemsetD32, q + 4, 0xdeadbeef, 1);
    TELL(cuMemcpyDtoH, back, q, 8);
    FACT(memcmp(back, "\x34\x12\x34\x12\xef\xbe\xad\xde", 8) == 0);
    TELL(cuMemsetD16, q + 1, 0, 1);
    TELL(cuMemsetD32, q + 2, 0, 1);

    memset(back, 0, sizeof back);
    TELL(cuMemcpyHtoDAsync, q, host, 4096, s);
    TELL(cuMemsetD32Async, p, 0x01010101, 1024, s);
    TELL(cuMemcpyDtoDAsync, p + 2048, q, 1024, s);
    TELL(cuMemcpyDtoHAsync, back, p, 4096, s);
    TELL(cuStreamSynchronize, s);
    FACT(back[0] == 1 && back[2047] == 1 && back[3072] == 1);
    FACT(memcmp(back + 2048, host, 1024) == 0);
    TELL(cuMemcpy, p, q, 4096);
    TELL(cuMemcpy, (CUdeviceptr)(uintptr_t)back, p, 4096);
    FACT(memcmp(host, back, 4096) == 0);

    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .srcPitch = 64,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = back,
                         .dstPitch = 16,
                         .WidthInBytes = 16,
                         .Height = 64};
    TELL(cuMemcpy2D, &box);
    FACT(memcmp(back, host, 16) == 0 && memcmp(back + 16 * 63, host + 64 * 63, 16) == 0);

    cu_say("nothing, and nowhere");
    TELL(cuMemcpyHtoD, p, host, 0);
    TELL(cuMemsetD8, p, 0, 0);
    TELL(cuMemcpyHtoD, 0, host, 16);
    TELL(cuMemcpyDtoH, back, 0, 16);
    TELL(cuMemsetD8, 0, 0, 16);
    MUST(cuMemFree, p);
    MUST(cuMemFree, q);
    MUST(cuStreamDestroy, s);
    return cu_end();
}
