/*
 * Requests of odd and of great size: next to every boundary, larger than any piece that memory is
 * kept in, nearly all of the device again and again, then many small ones in its place.
 */
#include <stdlib.h>

#include "launch.h"

#define MIB ((size_t)1 << 20)
enum { SMALL = 1500, BOUNDARIES = 11 };

static size_t available(void)
{
    size_t now_free, total;

    MUST(cuMemGetInfo, &now_free, &total);
    return now_free;
}

/* Writes and reads both ends and the middle; leaves the rest untouched. */
static bool holds(CUdeviceptr p, size_t size, unsigned char value)
{
    size_t part = size < 4096 ? size : 4096;
    CUdeviceptr at[] = {p, p + (size - part) / 2, p + size - part};
    bool right = true;

    for (int i = 0; i < 3; i++)
        MUST(cuMemsetD8, at[i], value, part);
    MUST(cuCtxSynchronize);
    for (int i = 0; i < 3; i++)
        right = right && cu_all_bytes(at[i], part, value);
    return right;
}

static void boundaries(void)
{
    unsigned failed = 0, wrong = 0;

    for (int bit = 9; bit < 9 + 2 * BOUNDARIES; bit += 2) {
        CUdeviceptr p[3] = {0, 0, 0};
        for (int i = 0; i < 3; i++) {
            size_t size = ((size_t)1 << bit) + (size_t)i - 1;
            if (size > 160 * MIB)
                size = 160 * MIB + (size_t)i - 1;
            failed += CU(cuMemAlloc)(&p[i], size) != CUDA_SUCCESS;
            wrong += p[i] != 0 && !holds(p[i], size, (unsigned char)(bit + i));
        }
        for (int i = 0; i < 3; i++)
            failed += CU(cuMemFree)(p[i]) != CUDA_SUCCESS;
    }
    cu_say("next to powers of two: failed %u, wrong %u", failed, wrong);
}

static void nearly_all(const char *name, size_t size)
{
    CUdeviceptr p = 0, more = 0;

    cu_say("%s", name);
    if (TELL(cuMemAlloc, &p, size) != CUDA_SUCCESS)
        return;
    FACT(holds(p, size, 5));
    TELL(cuMemAlloc, &more, size);
    FACT(more == 0);
    FACT(holds(p, size, 6));
    TELL(cuMemFree, p);
}

static void many_small(void)
{
    static CUdeviceptr p[SMALL];
    unsigned failed = 0, wrong = 0;
    uint32_t bad_words = 0;
    CUdeviceptr bad;

    MUST(cuMemAlloc, &bad, 4);
    MUST(cuMemsetD32, bad, 0, 1);
    for (uint32_t i = 0; i < SMALL; i++) {
        uint32_t words = 16 + i * 37 % 15000;
        if (CU(cuMemAlloc)(&p[i], words * 4) != CUDA_SUCCESS)
            failed++;
        else
            cu_must("fill", kernel_fill(NULL, p[i], i, words));
    }
    for (uint32_t i = 0; i < SMALL; i++)
        cu_must("verify", kernel_verify(NULL, p[i], i, 16 + i * 37 % 15000, bad));
    MUST(cuCtxSynchronize);
    MUST(cuMemcpyDtoH, &bad_words, bad, 4);
    wrong = bad_words;
    for (int i = 0; i < SMALL; i++)
        failed += CU(cuMemFree)(p[i * 7 % SMALL]) != CUDA_SUCCESS;
    MUST(cuMemFree, bad);
    cu_say("many small: failed %u, wrong words %u", failed, wrong);
}

/* Half of what is there, in pieces; every other one freed; a piece that is larger than any hole. */
static void holes(size_t all)
{
    enum { PIECES = 24 };
    CUdeviceptr p[PIECES], large = 0;
    size_t piece = all / 2 / PIECES / (2 * MIB) * (2 * MIB);
    unsigned wrong = 0;

    for (int i = 0; i < PIECES; i++) {
        MUST(cuMemAlloc, &p[i], piece);
        MUST(cuMemsetD8Async, p[i], (unsigned char)i, 4096, NULL);
    }
    for (int i = 0; i < PIECES; i += 2)
        MUST(cuMemFree, p[i]);
    cu_say("holes");
    TELL(cuMemAlloc, &large, piece * (PIECES / 2));
    FACT(holds(large, piece * (PIECES / 2), 99));
    for (int i = 1; i < PIECES; i += 2) {
        wrong += !cu_all_bytes(p[i], 4096, (unsigned char)i);
        MUST(cuMemFree, p[i]);
    }
    cu_say("wrong %u", wrong);
    TELL(cuMemFree, large);
}

int main(int argc, char **argv)
{
    size_t all, total;
    CUdeviceptr p = 1;

    cu_start(argc, argv);
    kernels_load();
    MUST(cuMemGetInfo, &all, &total);
    boundaries();
    FACT(available() == all);
    size_t most = all / 10 * 9 / (2 * MIB) * (2 * MIB);
    nearly_all("nearly all", most);
    nearly_all("nearly all, again", most);
    nearly_all("and an odd size", most - 12345);
    many_small();
    nearly_all("nearly all, after many small", most);
    holes(all);
    nearly_all("nearly all, after holes", most);
    cu_say("more than all");
    TELL(cuMemAlloc, &p, total + 1);
    TELL(cuMemAlloc, &p, ~(size_t)0 - 511);
    TELL(cuMemAlloc, &p, ((size_t)1 << 63) + 1);
    FACT(available() == all);
    many_small();
    return cu_end();
}
