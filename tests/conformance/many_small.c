/* Twenty thousand live blocks of mixed sizes: none overlaps another, and all come back. */
#include <stdlib.h>

#include "cu.h"

enum { BLOCKS = 20000 };

struct block {
    CUdeviceptr p;
    size_t size;
};

static int by_address(const void *a, const void *b)
{
    const struct block *one = a, *two = b;
    return (one->p > two->p) - (one->p < two->p);
}

int main(int argc, char **argv)
{
    struct block *blocks = calloc(BLOCKS, sizeof *blocks);
    size_t before, after, total;
    unsigned state = 1, failed = 0, overlaps = 0, refused = 0, unaligned = 0;

    cu_start(argc, argv);
    if (blocks == NULL)
        return 1;
    MUST(cuMemGetInfo, &before, &total);
    for (int i = 0; i < BLOCKS; i++) {
        state = state * 1664525u + 1013904223u;
        blocks[i].size = 1 + (state >> 8) % 16384;
        if (CU(cuMemAlloc)(&blocks[i].p, blocks[i].size) != CUDA_SUCCESS)
            failed++;
        unaligned += blocks[i].p % 256 != 0;
    }
    qsort(blocks, BLOCKS, sizeof *blocks, by_address);
    for (int i = 1; i < BLOCKS; i++)
        overlaps += blocks[i - 1].p + blocks[i - 1].size > blocks[i].p;
    /* Every other one, then the rest backwards. */
    for (int i = 0; i < BLOCKS; i += 2)
        refused += CU(cuMemFree)(blocks[i].p) != CUDA_SUCCESS;
    for (int i = BLOCKS - 1; i > 0; i -= 2)
        refused += CU(cuMemFree)(blocks[i].p) != CUDA_SUCCESS;
    MUST(cuMemGetInfo, &after, &total);
    cu_say("failed %u, unaligned %u, overlaps %u, frees refused %u", failed, unaligned, overlaps,
           refused);
    FACT(after == before);
    free(blocks);
    return cu_end();
}
