/*
 * Arrays and mipmapped arrays: creation, description, what copies need to know of them.
 *
 * The bytes lie row by row without gaps (nobody can see the layout), so that the linear copies,
 * whose offsets run over rows, are plain ranges. An array is charged to its device like any other
 * memory and ends with its context. Levels of a mipmapped array and planes of a planar one share
 * its memory and cannot be destroyed by themselves. Arrays with deferred mapping can be made and
 * asked for their needs, but nothing can be mapped into them; sparse ones are refused.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC_ARRAY 0x53494d41u
#define MAGIC_MIPMAP 0x53494d4cu

struct CUarray_st {
    uint32_t magic;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUcontext ctx;
    struct sim_phys *phys; /* NULL: deferred mapping */
    size_t offset;         /* of the first byte in phys */
    size_t element, size;
    bool part; /* a level or a plane */
    CUarray plane[3];
    CUarray older; /* all there ever were */
};

struct CUmipmappedArray_st {
    uint32_t magic;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUcontext ctx;
    struct sim_phys *phys;
    size_t size;
    unsigned count;
    CUarray level[32];
    CUmipmappedArray older;
};

static CUarray all_arrays;
static CUmipmappedArray all_mipmaps;

static size_t channel_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_NV12:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static size_t rows(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    return desc->Height > 0 ? desc->Height : 1;
}

static size_t slices(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    return desc->Depth > 0 ? desc->Depth : 1;
}

static bool shape_ok(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    bool layered = (desc->Flags & CUDA_ARRAY3D_LAYERED) != 0;
    if (desc->Width == 0 || (layered && desc->Depth == 0))
        return false;
    if ((desc->Flags & CUDA_ARRAY3D_CUBEMAP) != 0 &&
        (desc->Width != desc->Height || desc->Depth == 0 || desc->Depth % 6 != 0 ||
         (!layered && desc->Depth != 6)))
        return false;
    if ((desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0)
        return desc->Width <= 32768 && desc->Height <= 32768 && desc->Depth <= 2048;
    if (desc->Depth > 0)
        return desc->Height > 0 && desc->Width <= 16384 && desc->Height <= 16384 &&
               desc->Depth <= 16384;
    return desc->Width <= 131072 && desc->Height <= 65536;
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    const unsigned all = 0x1ff;
    size_t bytes = channel_bytes(desc->Format);
    bool planar = desc->Format == CU_AD_FORMAT_NV12;
    if (bytes == 0 || (desc->Flags & ~all) != 0 || !shape_ok(desc))
        return CUDA_ERROR_INVALID_VALUE;
    if (planar ? desc->NumChannels != 3 || desc->Depth != 0 || desc->Width % 2 != 0 ||
                     desc->Height % 2 != 0 || desc->Height == 0
               : desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4)
        return CUDA_ERROR_INVALID_VALUE;
    return (desc->Flags & CUDA_ARRAY3D_SPARSE) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* The struct of an array at `offset` of phys (NULL: nothing behind it). */
static CUarray array_new(CUcontext ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc, struct sim_phys *phys,
                         size_t offset)
{
    CUarray array = calloc(1, sizeof *array);
    if (array == NULL)
        abort();
    array->magic = MAGIC_ARRAY;
    array->desc = *desc;
    array->ctx = ctx;
    array->phys = phys != NULL ? sim_phys_ref(phys) : NULL;
    array->offset = offset;
    bool planar = desc->Format == CU_AD_FORMAT_NV12;
    array->element = channel_bytes(desc->Format) * (planar ? 1 : desc->NumChannels);
    array->size = desc->Width * rows(desc) * slices(desc) * array->element;
    if (planar) {
        CUDA_ARRAY3D_DESCRIPTOR luma = *desc, chroma = *desc;
        luma.Format = chroma.Format = CU_AD_FORMAT_UNSIGNED_INT8;
        luma.NumChannels = 1;
        chroma.NumChannels = 2;
        chroma.Width /= 2;
        chroma.Height /= 2;
        array->plane[0] = array_new(ctx, &luma, phys, offset);
        array->plane[1] = array_new(ctx, &chroma, phys, offset + array->size);
        array->plane[0]->part = array->plane[1]->part = true;
        array->size += array->size / 2;
    }
    array->older = all_arrays;
    all_arrays = array;
    return array;
}

static void array_end(CUarray array)
{
    for (unsigned i = 0; i < 3; i++) {
        if (array->plane[i] != NULL)
            array_end(array->plane[i]);
    }
    sim_phys_unref(array->phys);
    array->phys = NULL;
    array->magic = SIM_MAGIC_DEAD;
}

static void mipmap_end(CUmipmappedArray mipmap)
{
    for (unsigned i = 0; i < mipmap->count; i++)
        array_end(mipmap->level[i]);
    sim_phys_unref(mipmap->phys);
    mipmap->phys = NULL;
    mipmap->magic = SIM_MAGIC_DEAD;
}

void sim_arrays_context_gone(CUcontext ctx)
{
    for (CUmipmappedArray mipmap = all_mipmaps; mipmap != NULL; mipmap = mipmap->older) {
        if (mipmap->magic == MAGIC_MIPMAP && mipmap->ctx == ctx)
            mipmap_end(mipmap);
    }
    for (CUarray array = all_arrays; array != NULL; array = array->older) {
        if (array->magic == MAGIC_ARRAY && array->ctx == ctx)
            array_end(array);
    }
}

static bool alive(CUarray array)
{
    return array != NULL && array->magic == MAGIC_ARRAY;
}

static CUresult begin_alloc(CUcontext *ctx)
{
    CUresult result = sim_ctx_current(ctx);
    return result == CUDA_SUCCESS ? sim_capture_unsafe(*ctx) : result;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    CUresult result = check(desc);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    CUcontext ctx;
    result = begin_alloc(&ctx);
    if (result == CUDA_SUCCESS) {
        CUarray array = array_new(ctx, desc, NULL, 0);
        struct sim_phys *phys = NULL;
        if ((desc->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) == 0)
            result = sim_phys_new(ctx->device->physical, array->size, &phys);
        if (result != CUDA_SUCCESS) {
            array_end(array);
        } else {
            array->phys = phys;
            for (unsigned i = 0; i < 3; i++) {
                if (array->plane[i] != NULL && phys != NULL)
                    array->plane[i]->phys = sim_phys_ref(phys);
            }
            *out = array;
        }
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    SIM_ENTRY(cuArrayCreate_v2);
    if (out == NULL || desc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {.Width = desc->Width,
                                    .Height = desc->Height,
                                    .Format = desc->Format,
                                    .NumChannels = desc->NumChannels};
    return create(out, &full);
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    SIM_ENTRY(cuArray3DCreate_v2);
    return out == NULL || desc == NULL ? CUDA_ERROR_INVALID_VALUE : create(out, desc);
}

CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
    SIM_ENTRY(cuArray3DGetDescriptor_v2);
    if (desc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = alive(array);
    if (good)
        *desc = array->desc;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
    SIM_ENTRY(cuArrayGetDescriptor_v2);
    if (desc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = alive(array);
    if (good)
        *desc = (CUDA_ARRAY_DESCRIPTOR){array->desc.Width, array->desc.Height, array->desc.Format,
                                        array->desc.NumChannels};
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuArrayDestroy(CUarray array)
{
    SIM_ENTRY(cuArrayDestroy);
    sim_lock();
    CUresult result = alive(array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && array->part)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe(array->ctx);
    if (result == CUDA_SUCCESS) {
        sim_ctx_wait_all(array->ctx);
        if (alive(array)) /* nobody was faster while we waited */
            array_end(array);
        else
            result = CUDA_ERROR_INVALID_HANDLE;
    }
    sim_unlock();
    return result;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, bool good, unsigned flags,
                             size_t size, CUdevice device)
{
    const size_t tile = 65536;
    if (!good)
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & CUDA_ARRAY3D_DEFERRED_MAPPING) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = (size + tile - 1) / tile * tile,
                                            .alignment = tile};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray array,
                                              CUdevice device)
{
    SIM_ENTRY(cuArrayGetMemoryRequirements);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = alive(array);
    CUresult result =
        requirements(out, good, good ? array->desc.Flags : 0, good ? array->size : 0, device);
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuArrayGetPlane(CUarray *out, CUarray array, unsigned int index)
{
    SIM_ENTRY(cuArrayGetPlane);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = alive(array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && (index > 2 || array->plane[index] == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = array->plane[index];
    sim_unlock();
    return result;
}

/* ---- mipmapped arrays -------------------------------------------------------------------------
 */
static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR smaller = *desc;
    bool layers = (desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    smaller.Width = desc->Width >> level > 0 ? desc->Width >> level : 1;
    if (desc->Height > 0)
        smaller.Height = desc->Height >> level > 0 ? desc->Height >> level : 1;
    if (desc->Depth > 0 && !layers)
        smaller.Depth = desc->Depth >> level > 0 ? desc->Depth >> level : 1;
    return smaller;
}

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    bool layers = (desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    size_t most = desc->Width > desc->Height ? desc->Width : desc->Height;
    if (!layers && desc->Depth > most)
        most = desc->Depth;
    unsigned count = 1;
    while (most >>= 1)
        count++;
    return count;
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                        unsigned int count)
{
    SIM_ENTRY(cuMipmappedArrayCreate);
    if (out == NULL || desc == NULL || desc->Format == CU_AD_FORMAT_NV12)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(desc);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == 0) /* clamped on both sides, as documented */
        count = 1;
    if (count > levels_of(desc))
        count = levels_of(desc);
    sim_lock();
    CUcontext ctx;
    result = begin_alloc(&ctx);
    size_t size = 0;
    for (unsigned i = 0; i < count; i++) {
        CUDA_ARRAY3D_DESCRIPTOR level = level_of(desc, i);
        size += level.Width * rows(&level) * slices(&level) * channel_bytes(level.Format) *
                level.NumChannels;
    }
    struct sim_phys *phys = NULL;
    if (result == CUDA_SUCCESS && (desc->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) == 0)
        result = sim_phys_new(ctx->device->physical, size, &phys);
    if (result == CUDA_SUCCESS) {
        CUmipmappedArray mipmap = calloc(1, sizeof *mipmap);
        if (mipmap == NULL)
            abort();
        mipmap->magic = MAGIC_MIPMAP;
        mipmap->desc = *desc;
        mipmap->ctx = ctx;
        mipmap->phys = phys;
        mipmap->size = size;
        mipmap->count = count;
        size_t offset = 0;
        for (unsigned i = 0; i < count; i++) {
            CUDA_ARRAY3D_DESCRIPTOR level = level_of(desc, i);
            mipmap->level[i] = array_new(ctx, &level, phys, offset);
            mipmap->level[i]->part = true;
            offset += mipmap->level[i]->size;
        }
        mipmap->older = all_mipmaps;
        all_mipmaps = mipmap;
        *out = mipmap;
    }
    sim_unlock();
    return result;
}

static bool mipmap_alive(CUmipmappedArray mipmap)
{
    return mipmap != NULL && mipmap->magic == MAGIC_MIPMAP;
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray mipmap, unsigned int level)
{
    SIM_ENTRY(cuMipmappedArrayGetLevel);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = mipmap_alive(mipmap) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && level >= mipmap->count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = mipmap->level[level];
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    SIM_ENTRY(cuMipmappedArrayDestroy);
    sim_lock();
    CUresult result = mipmap_alive(mipmap) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_unsafe(mipmap->ctx);
    if (result == CUDA_SUCCESS) {
        sim_ctx_wait_all(mipmap->ctx);
        if (mipmap_alive(mipmap))
            mipmap_end(mipmap);
        else
            result = CUDA_ERROR_INVALID_HANDLE;
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out,
                                                       CUmipmappedArray mipmap, CUdevice device)
{
    SIM_ENTRY(cuMipmappedArrayGetMemoryRequirements);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = mipmap_alive(mipmap);
    CUresult result =
        requirements(out, good, good ? mipmap->desc.Flags : 0, good ? mipmap->size : 0, device);
    sim_unlock();
    return result;
}

/* ---- for copies -------------------------------------------------------------------------------
 */
bool sim_array_end(CUarray array, size_t x, size_t y, size_t z, size_t width, size_t height,
                   size_t depth, struct sim_end *end)
{
    if (!alive(array) || array->phys == NULL)
        return false;
    size_t pitch = array->desc.Width * array->element;
    size_t all_rows = rows(&array->desc), all_slices = slices(&array->desc);
    if (x % array->element != 0 || x > pitch || width > pitch - x || y > all_rows ||
        height > all_rows - y || z > all_slices || depth > all_slices - z)
        return false;
    *end = (struct sim_end){.address = array->offset + (z * all_rows + y) * pitch + x,
                            .phys = sim_phys_ref(array->phys),
                            .pitch = pitch,
                            .height = all_rows};
    return true;
}

bool sim_array_linear(CUarray array, size_t offset, size_t size, struct sim_end *end)
{
    if (!alive(array) || array->phys == NULL || offset > array->size || size > array->size - offset)
        return false;
    *end = (struct sim_end){.address = array->offset + offset,
                            .phys = sim_phys_ref(array->phys),
                            .pitch = size,
                            .height = 1};
    return true;
}
