/* What cuGetProcAddress returns works, whichever version was asked for. */
#include "cu.h"

static void *ask(const char *name, int version)
{
    void *pointer = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult result = CU(cuGetProcAddress)(name, &pointer, version, 0, &status);
    if (result != CUDA_SUCCESS || pointer == NULL)
        cu_say("%s %d: %s", name, version, cu_result_name(result));
    return pointer;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUdeviceptr p = 0;
    CUcontext context = NULL;
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    CUresult (*release)(CUdeviceptr) = NULL;
    CUresult (*create_v2)(CUcontext *, unsigned, CUdevice) = NULL;
    CUresult (*create_v3)(CUcontext *, void *, int, unsigned, CUdevice) = NULL;
    CUresult (*alloc_v1)(unsigned *, unsigned) = NULL;

    cu_start(argc, argv);
    MUST(cuDeviceGet, &device, 0);
    *(void **)&alloc = ask("cuMemAlloc", 12000);
    *(void **)&release = ask("cuMemFree", 12000);
    if (alloc == NULL || release == NULL)
        return cu_end();
    cu_told("alloc(&p, 1 << 20)", alloc(&p, 1 << 20));
    /* Mixed ways: allocated by one, freed by another. */
    TELL(cuMemFree, p);
    MUST(cuMemAlloc, &p, 1 << 20);
    cu_told("release(p)", release(p));
    TELL(cuMemFree, p);

    /* One name, several signatures: each version has to be its own. */
    *(void **)&create_v2 = ask("cuCtxCreate", 3020);
    *(void **)&create_v3 = ask("cuCtxCreate", 11040);
    if (create_v2 != NULL) {
        cu_told("cuCtxCreate of 3.2", create_v2(&context, CU_CTX_SCHED_AUTO, device));
        MUST(cuMemAlloc, &p, 4096);
        TELL(cuCtxDestroy, context);
    }
    if (create_v3 != NULL) {
        cu_told("cuCtxCreate of 11.4", create_v3(&context, NULL, 0, CU_CTX_SCHED_AUTO, device));
        MUST(cuMemAlloc, &p, 4096);
        TELL(cuCtxDestroy, context);
    }
    /* 32-bit device pointers of the 2.x API: an error natively, and to be left alone. */
    *(void **)&alloc_v1 = ask("cuMemAlloc", 2000);
    FACT(alloc_v1 != NULL);
    return cu_end();
}
