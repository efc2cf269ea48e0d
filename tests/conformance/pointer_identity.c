/*
 * Each allocation is one of its own, whatever it is cut from: where it starts and ends, its id, its
 * alignment, and what cuMemGetInfo says of large ones.
 */
#include <stdlib.h>

#include "cu.h"

static const size_t sizes[] = {1,
                               4,
                               511,
                               512,
                               513,
                               4096,
                               60000,
                               1 << 20,
                               (2 << 20) - 1,
                               2 << 20,
                               (2 << 20) + 1,
                               5 << 20,
                               (17 << 20) + 12345};
enum { SIZES = sizeof sizes / sizeof sizes[0], COPIES = 6, ALL = SIZES * COPIES, IDS = 4 * ALL };

static struct block {
    CUdeviceptr p;
    size_t size;
    unsigned long long id;
} blocks[ALL];
static unsigned long long ids[IDS];
static unsigned id_count;

static int by_value(const void *a, const void *b)
{
    const unsigned long long *one = a, *two = b;
    return (*one > *two) - (*one < *two);
}

static int by_address(const void *a, const void *b)
{
    const struct block *one = a, *two = b;
    return (one->p > two->p) - (one->p < two->p);
}

/* Whether all that can be asked about this address says that it is in this block. */
static bool is_in(const struct block *block, CUdeviceptr at)
{
    CUdeviceptr start = 0, base = 0;
    size_t size = 0, range = 0;
    unsigned long long id = 0;
    unsigned type = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *into[] = {&start, &size, &id, &type};

    bool good = CU(cuPointerGetAttribute)(&start, names[0], at) == CUDA_SUCCESS &&
                CU(cuPointerGetAttribute)(&size, names[1], at) == CUDA_SUCCESS &&
                CU(cuPointerGetAttribute)(&id, names[2], at) == CUDA_SUCCESS &&
                CU(cuMemGetAddressRange)(&base, &range, at) == CUDA_SUCCESS;
    good = good && start == block->p && base == block->p && size == block->size &&
           range == block->size && id == block->id;
    start = 0, size = 0, id = 0;
    return good && CU(cuPointerGetAttributes)(4, names, into, at) == CUDA_SUCCESS &&
           start == block->p && size == block->size && id == block->id &&
           type == CU_MEMORYTYPE_DEVICE;
}

static void take(struct block *block, size_t size)
{
    block->size = size;
    MUST(cuMemAlloc, &block->p, size);
    MUST(cuPointerGetAttribute, &block->id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block->p);
    ids[id_count++] = block->id;
}

static void look(const char *when)
{
    unsigned whole = 0, aligned = 0, overlaps = 0;

    for (int i = 0; i < ALL; i++) {
        const struct block *block = &blocks[i];
        whole += is_in(block, block->p) && is_in(block, block->p + block->size / 2) &&
                 is_in(block, block->p + block->size - 1);
        aligned += block->p % 512 == 0;
    }
    qsort(blocks, ALL, sizeof blocks[0], by_address);
    for (int i = 1; i < ALL; i++)
        overlaps += blocks[i - 1].p + blocks[i - 1].size > blocks[i].p;
    cu_say("%s: of %d blocks %u are themselves throughout, %u aligned, %u overlap", when, ALL,
           whole, aligned, overlaps);
}

int main(int argc, char **argv)
{
    size_t before, during, after, total;
    unsigned known = 0, same = 0;

    cu_start(argc, argv);
    for (int i = 0; i < ALL; i++)
        take(&blocks[i], sizes[i % SIZES]);
    look("at first");
    /* Every other one anew, many at the same addresses. */
    for (int round = 0; round < 3; round++) {
        for (int i = round % 2; i < ALL; i += 2)
            MUST(cuMemFree, blocks[i].p);
        for (int i = round % 2; i < ALL; i += 2)
            take(&blocks[i], blocks[i].size);
        look("anew");
    }
    qsort(ids, id_count, sizeof ids[0], by_value);
    for (unsigned i = 1; i < id_count; i++)
        same += ids[i - 1] == ids[i];
    cu_say("ids that came twice: %u", same);

    cu_say("after a free");
    for (int i = 0; i < ALL; i++)
        MUST(cuMemFree, blocks[i].p);
    for (int i = 0; i < ALL; i++) {
        CUdeviceptr base;
        size_t size;
        unsigned type;
        known += CU(cuMemGetAddressRange)(&base, &size, blocks[i].p) == CUDA_SUCCESS ||
                 CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[i].p) ==
                     CUDA_SUCCESS;
    }
    cu_say("still known: %u", known);

    cu_say("free memory");
    static const size_t large[] = {32 << 20, 6 << 20, 34 << 20, 64 << 20, 10 << 20};
    CUdeviceptr p[5];
    MUST(cuMemGetInfo, &before, &total);
    size_t sum = 0, right = 0;
    for (int i = 0; i < 5; i++) {
        MUST(cuMemAlloc, &p[i], large[i]);
        sum += large[i];
        MUST(cuMemGetInfo, &during, &total);
        right += before - during == sum;
    }
    for (int i = 4; i >= 0; i--) {
        MUST(cuMemFree, p[i]);
        sum -= large[i];
        MUST(cuMemGetInfo, &after, &total);
        right += before - after == sum;
    }
    cu_say("right %zu of 10", right);
    return cu_end();
}
