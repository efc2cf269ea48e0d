/* Arrays: descriptions, refusals, copies to and from them, levels, what their memory counts as. */
#include <string.h>

#include "cu.h"

static void made(const char *what, size_t width, size_t height, size_t depth, CUarray_format format,
                 unsigned channels, unsigned flags)
{
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR desc = {width, height, depth, format, channels, flags}, got = {0};
    CUresult result = CU(cuArray3DCreate)(&array, &desc);
    cu_told(what, result);
    if (result != CUDA_SUCCESS)
        return;
    TELL(cuArray3DGetDescriptor, &got, array);
    FACT(got.Width == width && got.Height == height && got.Depth == depth);
    FACT(got.Format == format && got.NumChannels == channels && got.Flags == flags);
    TELL(cuArrayDestroy, array);
}

static void shapes(void)
{
    made("1D", 100, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    made("2D", 100, 50, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0);
    made("3D", 32, 16, 8, CU_AD_FORMAT_HALF, 2, 0);
    made("layered 1D", 32, 0, 8, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
    made("layered 2D", 32, 16, 8, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
    made("cube", 32, 32, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
    made("cube, not square", 32, 16, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
    made("cube of 5", 32, 32, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
    made("no width", 0, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    made("depth without height", 32, 0, 4, CU_AD_FORMAT_FLOAT, 1, 0);
    made("3 channels", 32, 16, 0, CU_AD_FORMAT_FLOAT, 3, 0);
    made("no format", 32, 16, 0, (CUarray_format)0x77, 1, 0);
    made("unknown flag", 32, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0x10000);
    made("too wide", (size_t)1 << 20, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    made("too deep", 32, 16, 1 << 20, CU_AD_FORMAT_FLOAT, 1, 0);
}

static void copies(void)
{
    enum { ROW = 64 * 4, ROWS = 32 };
    static unsigned char in[ROW * ROWS], out[ROW * ROWS];
    CUDA_ARRAY_DESCRIPTOR flat = {64, ROWS, CU_AD_FORMAT_FLOAT, 1},
                          line = {256, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUarray array, wire;
    CUdeviceptr p;
    CUstream s;

    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7 + i / ROW);
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &p, sizeof in);
    TELL(cuArrayCreate, &array, &flat);
    TELL(cuArrayCreate, &wire, &line);

    cu_say("whole, and a part of it");
    CUDA_MEMCPY2D whole = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = in,
                           .srcPitch = ROW,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = array,
                           .WidthInBytes = ROW,
                           .Height = ROWS};
    TELL(cuMemcpy2D, &whole);
    CUDA_MEMCPY2D part = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .srcXInBytes = 8,
                          .srcY = 3,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 16,
                          .WidthInBytes = 16,
                          .Height = 2};
    TELL(cuMemcpy2D, &part);
    FACT(memcmp(out, in + 3 * ROW + 8, 16) == 0);
    FACT(memcmp(out + 16, in + 4 * ROW + 8, 16) == 0);

    cu_say("to the device and back, asynchronously");
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                         .srcArray = array,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = p,
                         .dstPitch = ROW,
                         .dstHeight = ROWS,
                         .WidthInBytes = ROW,
                         .Height = ROWS,
                         .Depth = 1};
    TELL(cuMemcpy3DAsync, &box, s);
    TELL(cuStreamSynchronize, s);
    TELL(cuMemcpyDtoH, out, p, sizeof out);
    FACT(memcmp(out, in, sizeof in) == 0);

    cu_say("one row");
    TELL(cuMemcpyHtoA, wire, 16, in, 128);
    TELL(cuMemcpyAtoH, out, wire, 16, 128);
    FACT(memcmp(out, in, 128) == 0);
    TELL(cuMemcpyAtoD, p, wire, 16, 128);
    TELL(cuMemcpyDtoA, wire, 100, p, 128);
    TELL(cuMemcpyAtoA, wire, 0, wire, 200, 16);
    TELL(cuMemcpyAtoH, out, wire, 0, 16);
    FACT(memcmp(out, in + 100, 16) == 0);
    TELL(cuMemcpyHtoAAsync, wire, 0, in + 512, 256, s);
    TELL(cuMemcpyAtoHAsync, out, wire, 0, 256, s);
    TELL(cuStreamSynchronize, s);
    FACT(memcmp(out, in + 512, 256) == 0);

    cu_say("refused");
    whole.Height = ROWS + 1;
    TELL(cuMemcpy2D, &whole);
    whole.Height = ROWS;
    whole.dstXInBytes = 4;
    TELL(cuMemcpy2D, &whole);
    whole.dstXInBytes = 0;
    whole.dstArray = NULL;
    TELL(cuMemcpy2D, &whole);
    TELL(cuMemcpyHtoA, wire, 200, in, 57);
    TELL(cuMemcpyHtoA, NULL, 0, in, 16);
    TELL(cuMemcpyAtoH, NULL, wire, 0, 16);
    TELL(cuArrayDestroy, NULL);
    TELL(cuArrayGetDescriptor, &flat, NULL);
    TELL(cuArrayGetDescriptor, NULL, wire);
    TELL(cuArrayCreate, NULL, &flat);
    TELL(cuArrayCreate, &array, NULL);
    MUST(cuMemFree, p);
    TELL(cuArrayDestroy, wire);
    TELL(cuArrayDestroy, array);
    MUST(cuStreamDestroy, s);
}

static void levels(void)
{
    CUmipmappedArray mipmap = NULL;
    CUarray level = NULL;
    CUDA_ARRAY3D_DESCRIPTOR square = {32, 32, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, got = {0};
    unsigned char in[64] = {1, 2, 3}, out[64] = {0};

    cu_say("levels");
    TELL(cuMipmappedArrayCreate, &mipmap, &square, 0);
    TELL(cuMipmappedArrayCreate, &mipmap, &square, 3);
    TELL(cuMipmappedArrayGetLevel, &level, mipmap, 2);
    TELL(cuArray3DGetDescriptor, &got, level);
    cu_say("%zu x %zu", got.Width, got.Height);
    CUDA_MEMCPY2D into = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 8,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = level,
                          .WidthInBytes = 8,
                          .Height = 8};
    CUDA_MEMCPY2D from = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = level,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 8,
                          .WidthInBytes = 8,
                          .Height = 8};
    TELL(cuMemcpy2D, &into);
    TELL(cuMemcpy2D, &from);
    FACT(memcmp(in, out, sizeof in) == 0);
    TELL(cuMipmappedArrayGetLevel, &level, mipmap, 3);
    TELL(cuMipmappedArrayDestroy, mipmap);
    TELL(cuMipmappedArrayDestroy, NULL);
}

static void memory(void)
{
    size_t before, after, total;
    CUarray array = NULL, plane = NULL;
    CUDA_ARRAY_DESCRIPTOR big = {4096, 4096, CU_AD_FORMAT_FLOAT, 4};
    CUDA_ARRAY3D_DESCRIPTOR later = {
        256, 256, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING};
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
    CUgraph graph = NULL;
    CUstream s;

    cu_say("memory");
    MUST(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    MUST(cuMemGetInfo, &before, &total);
    TELL(cuArrayCreate, &array, &big);
    MUST(cuMemGetInfo, &after, &total);
    FACT(before - after >= (size_t)256 << 20);
    TELL(cuArrayGetPlane, &plane, array, 0);
    TELL(cuArrayGetMemoryRequirements, &needs, array, 0);
    MUST(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuArrayDestroy, array);
    TELL(cuStreamEndCapture, s, &graph);
    MUST(cuStreamBeginCapture, s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    TELL(cuArrayCreate, &plane, &big);
    TELL(cuStreamEndCapture, s, &graph);
    TELL(cuArrayDestroy, array);
    MUST(cuMemGetInfo, &after, &total);
    FACT(after == before);
    TELL(cuArray3DCreate, &array, &later);
    TELL(cuArrayGetMemoryRequirements, &needs, array, 0);
    FACT(needs.size >= 256 * 256 * 4 && needs.size % needs.alignment == 0);
    TELL(cuArrayDestroy, array);
    MUST(cuStreamDestroy, s);
}

int main(int argc, char **argv)
{
    cu_start(argc, argv);
    NEED(cuArrayCreate);
    shapes();
    copies();
    levels();
    memory();
    return cu_end();
}
