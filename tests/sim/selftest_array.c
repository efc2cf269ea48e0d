/* Self-tests of arrays: what can be made, what it costs, copies of all kinds, the end. */
#include "selftest.h"

#include <string.h>

static size_t free_now(void)
{
    size_t now, total;
    OK(cuMemGetInfo(&now, &total));
    return now;
}

static void refused(size_t width, size_t height, size_t depth, unsigned format, unsigned channels,
                    unsigned flags)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR desc = {width, height, depth, (CUarray_format)format, channels, flags};
    IS(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
}

static void test_arrays(void)
{
    start();
    size_t before = free_now();
    CUarray array, other, plane;
    CUDA_ARRAY_DESCRIPTOR flat = {64, 32, CU_AD_FORMAT_FLOAT, 2}, got;
    CUDA_ARRAY3D_DESCRIPTOR deep = {16, 8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, got3;
    refused(0, 1, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    refused(64, 0, 2, CU_AD_FORMAT_FLOAT, 1, 0);
    refused(64, 1, 0, 0x77, 1, 0);
    refused(64, 1, 0, CU_AD_FORMAT_FLOAT, 3, 0);
    refused(64, 32, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
    IS(cuArrayCreate(NULL, &flat), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayCreate(&array, &flat));
    CHECK(free_now() == before - 64 * 32 * 8);
    OK(cuArray3DCreate(&other, &deep));
    OK(cuArrayGetDescriptor(&got, array));
    CHECK(got.Width == 64 && got.Height == 32 && got.NumChannels == 2);
    OK(cuArray3DGetDescriptor(&got3, other));
    CHECK(memcmp(&got3, &deep, sizeof deep) == 0);
    IS(cuArrayGetPlane(&plane, array, 0), CUDA_ERROR_INVALID_VALUE);

    /* Rows in, through the other side, out. */
    unsigned char in[64 * 32 * 8], out[sizeof in];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7 + i / 512);
    CUDA_MEMCPY2D into = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 512,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = 512,
                          .Height = 32};
    OK(cuMemcpy2D(&into));
    OK(cuMemcpyAtoH(out, array, 0, sizeof out));
    CHECK(memcmp(in, out, sizeof in) == 0);
    CUDA_MEMCPY2D inner = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = array,
                           .srcXInBytes = 8,
                           .srcY = 3,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = out,
                           .dstPitch = 16,
                           .WidthInBytes = 16,
                           .Height = 2};
    OK(cuMemcpy2D(&inner));
    CHECK(memcmp(out, in + 3 * 512 + 8, 16) == 0 && memcmp(out + 16, in + 4 * 512 + 8, 16) == 0);
    into.Height = 33; /* over the edge */
    IS(cuMemcpy2D(&into), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemcpyHtoA(array, sizeof in - 8, in, 16), CUDA_ERROR_INVALID_VALUE);

    /* One box of a 3D array, device to array to device, on a stream. */
    CUdeviceptr p;
    CUstream s;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, sizeof in));
    OK(cuMemcpyHtoDAsync(p, in, sizeof in, s));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .srcPitch = 32,
                         .srcHeight = 4,
                         .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                         .dstArray = other,
                         .dstXInBytes = 4,
                         .dstY = 1,
                         .dstZ = 2,
                         .WidthInBytes = 32,
                         .Height = 4,
                         .Depth = 2};
    OK(cuMemcpy3DAsync(&box, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyAtoH(out, other, 0, 16 * 8 * 4 * 4));
    for (size_t z = 0; z < 2; z++) {
        for (size_t y = 0; y < 4; y++)
            CHECK(memcmp(out + ((z + 2) * 8 + y + 1) * 64 + 4, in + (z * 4 + y) * 32, 32) == 0);
    }
    OK(cuMemcpyAtoA(array, 100, other, 0, 64));
    OK(cuMemcpyAtoD(p, array, 100, 64));
    OK(cuMemcpyDtoH(out + 1024, p, 64));
    CHECK(memcmp(out + 1024, out, 64) == 0);

    /* Levels share one piece of memory and have no end of their own. */
    CUmipmappedArray mipmap;
    CUarray level;
    CUDA_ARRAY3D_DESCRIPTOR square = {32, 32, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    size_t now = free_now();
    OK(cuMipmappedArrayCreate(&mipmap, &square, 3));
    CHECK(now - free_now() >= 1024 + 256 + 64);
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 2));
    OK(cuArray3DGetDescriptor(&got3, level));
    CHECK(got3.Width == 8 && got3.Height == 8);
    IS(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
    IS(cuArrayDestroy(level), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyHtoA(level, 0, in, 64));
    OK(cuMipmappedArrayDestroy(mipmap));
    IS(cuMemcpyHtoA(level, 0, in, 64), CUDA_ERROR_INVALID_VALUE);
    CHECK(free_now() == now);

    /* Planes; arrays that are mapped later. */
    CUDA_ARRAY3D_DESCRIPTOR video = {32, 16, 0, CU_AD_FORMAT_NV12, 3, 0};
    CUarray nv12;
    OK(cuArray3DCreate(&nv12, &video));
    OK(cuArrayGetPlane(&plane, nv12, 1));
    OK(cuArray3DGetDescriptor(&got3, plane));
    CHECK(got3.Width == 16 && got3.Height == 8 && got3.NumChannels == 2);
    OK(cuArrayDestroy(nv12));
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    IS(cuArrayGetMemoryRequirements(&needs, array, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR later = {
        256, 256, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING};
    now = free_now();
    OK(cuArray3DCreate(&nv12, &later));
    CHECK(free_now() == now);
    OK(cuArrayGetMemoryRequirements(&needs, nv12, 0));
    CHECK(needs.size >= 256 * 256 * 4 && needs.size % needs.alignment == 0);
    OK(cuArrayDestroy(nv12));

    /* Destruction waits for work; nothing outlives the context. */
    OK(cuLaunchHostFunc(s, sleep_ms, (void *)40));
    double begin = now_ms();
    OK(cuArrayDestroy(array));
    CHECK(now_ms() - begin > 20);
    IS(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    CUDA_ARRAY_DESCRIPTOR huge = {131072, 4096, CU_AD_FORMAT_FLOAT, 4};
    IS(cuArrayCreate(&array, &huge), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuDevicePrimaryCtxReset(0));
    start();
    IS(cuArrayGetDescriptor(&got, other), CUDA_ERROR_INVALID_HANDLE);
    CHECK(free_now() == before);
}

static void case_race_array(void)
{
    start();
    CUarray array;
    CUstream a, b;
    static unsigned char row[256];
    CUDA_ARRAY_DESCRIPTOR desc = {256, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuArrayCreate(&array, &desc));
    OK(cuMemcpyHtoAAsync(array, 0, row, sizeof row, a));
    OK(cuMemcpyHtoAAsync(array, 128, row, 128, b));
    OK(cuCtxSynchronize());
}

static void test_array_race(void)
{
    expect_child("race_array", NULL, 86, "RACE: cuMemcpyHtoAAsync");
}

const struct test selftest_array[] = {
    {"arrays", test_arrays},
    {"array_race", test_array_race},
    {"race_array", case_race_array},
    {NULL, NULL},
};
