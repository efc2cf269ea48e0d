/* cuPointerGetAttribute(s) of device, pinned, managed, freed and foreign pointers. */
#include <stdlib.h>

#include "cu.h"

static void describe(const char *what, CUdeviceptr p)
{
    unsigned type = 0;
    CUcontext context = NULL, now = NULL;
    int ordinal = -1, managed = -1;
    void *start = NULL;
    size_t size = 0;
    CUresult result;

    cu_say("%s", what);
    result = CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    cu_say("type: %s, %u", cu_result_name(result), result == CUDA_SUCCESS ? type : 0);
    result = CU(cuPointerGetAttribute)(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p);
    MUST(cuCtxGetCurrent, &now);
    cu_say("context: %s, %s", cu_result_name(result), context == now ? "the current" : "another");
    result = CU(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
    cu_say("device: %s, %d", cu_result_name(result), result == CUDA_SUCCESS ? ordinal : 0);
    result = CU(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
    cu_say("managed: %s, %d", cu_result_name(result), result == CUDA_SUCCESS ? managed : 0);
    result = CU(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p);
    cu_say("start: %s", cu_result_name(result));
    if (result == CUDA_SUCCESS)
        cu_say("at distance %lld", (long long)(p - (CUdeviceptr)(uintptr_t)start));
    result = CU(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p);
    cu_say("size: %s, %zu", cu_result_name(result), result == CUDA_SUCCESS ? size : 0);
}

int main(int argc, char **argv)
{
    CUdeviceptr p, q, managed;
    void *pinned = NULL, *plain = malloc(4096);
    unsigned long long id = 0, id_inside = 0, id_other = 0, id_again = 0;

    cu_start(argc, argv);
    MUST(cuMemAlloc, &p, 1 << 20);
    MUST(cuMemAlloc, &q, 1 << 20);
    MUST(cuMemAllocHost, &pinned, 4096);
    MUST(cuMemAllocManaged, &managed, 1 << 20, CU_MEM_ATTACH_GLOBAL);
    describe("device memory", p);
    describe("inside it", p + 4321);
    describe("pinned memory", (CUdeviceptr)(uintptr_t)pinned);
    describe("managed memory", managed + 4321);
    describe("plain memory", (CUdeviceptr)(uintptr_t)plain);
    describe("nothing", 0);

    cu_say("identity");
    TELL(cuPointerGetAttribute, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
    TELL(cuPointerGetAttribute, &id_inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 99);
    TELL(cuPointerGetAttribute, &id_other, CU_POINTER_ATTRIBUTE_BUFFER_ID, q);
    FACT(id == id_inside && id != id_other);
    MUST(cuMemFree, q);
    describe("freed memory", q);
    MUST(cuMemAlloc, &q, 1 << 20);
    TELL(cuPointerGetAttribute, &id_again, CU_POINTER_ATTRIBUTE_BUFFER_ID, q);
    FACT(id_again != id_other && id_again != id);

    cu_say("several at once");
    unsigned type = 0;
    size_t size = 0;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *into[] = {&type, &size};
    TELL(cuPointerGetAttributes, 2, wanted, into, p + 5);
    FACT(type == CU_MEMORYTYPE_DEVICE && size == 1 << 20);
    type = 77, size = 77;
    TELL(cuPointerGetAttributes, 2, wanted, into, (CUdeviceptr)(uintptr_t)plain);
    cu_say("type %u, size %zu", type, size);
    TELL(cuPointerGetAttribute, NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    MUST(cuMemFree, p);
    MUST(cuMemFree, q);
    MUST(cuMemFree, managed);
    MUST(cuMemFreeHost, pinned);
    free(plain);
    return cu_end();
}
