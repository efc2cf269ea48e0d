/*
 * Several devices: who may reach whose memory, and copies between them.
 *
 * Kernels and fills need the right: cuCtxEnablePeerAccess for plain memory of another device, the
 * pool's or the mapping's own access list for stream-ordered and VMM memory. Plain copies reach
 * plain memory of any device, since the driver stages them, but need the list's right for the other
 * kinds; cuMemcpyPeer names both sides, so each is reached by its own device. VRAMSIM_PEER=off
 * plays a machine whose devices do not reach each other.
 *
 * An access list refuses a device that cannot reach the memory (INVALID_DEVICE; not measured).
 * Rights are kept per pair of device and context, not of contexts.
 */
#include "sim.h"

static bool permits(unsigned flags, bool write)
{
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
           (flags == CU_MEM_ACCESS_FLAGS_PROT_READ && !write);
}

bool sim_peer_allowed(const struct sim_range *range, const struct sim_op *op, int by, bool write)
{
    CUcontext ctx = op->ctx;
    int device = by > 0 ? by - 1 : ctx->device->index;
    bool staged = by >= 0;
    switch (range->kind) {
    case SIM_RESERVED:
        return false;
    case SIM_MAPPED:
        return permits(range->access[device], write);
    case SIM_ASYNC:
        return permits(sim_pool_access(range->pool, device), write);
    case SIM_ALLOC:
    case SIM_GRAPH:
    case SIM_GLOBAL:
    case SIM_IMPORTED:
        return staged || range->device == NULL || range->device->index == device ||
               (ctx->peers >> range->device->index & 1) != 0;
    default: /* host memory and managed memory: everybody's */
        return true;
    }
}

/* Instances of one GPU never reach each other. */
bool sim_peer_reach(CUdevice from, CUdevice to)
{
    return sim_config.peer && sim_devices[from].gpu != sim_devices[to].gpu;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    SIM_ENTRY(cuDeviceCanAccessPeer);
    if (can == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(dev) == NULL || sim_device(peer) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = sim_peer_reach(dev, peer);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute name, CUdevice from,
                                         CUdevice to)
{
    SIM_ENTRY(cuDeviceGetP2PAttribute);
    if (value == NULL || name < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        name > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(from) == NULL || sim_device(to) == NULL || from == to)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = name == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
                     name == CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED
                 ? 0
                 : sim_peer_reach(from, to);
    return CUDA_SUCCESS;
}

/* The current context and a living other one. */
static CUresult pair(CUcontext peer, CUcontext *ctx)
{
    CUresult result = sim_ctx_current(ctx);
    if (result == CUDA_SUCCESS &&
        (!sim_ctx_alive(peer) || !sim_ctx_alive(peer->owner) || peer->owner == *ctx))
        result = CUDA_ERROR_INVALID_CONTEXT;
    return result;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    SIM_ENTRY(cuCtxEnablePeerAccess);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = pair(peer, &ctx);
    if (result == CUDA_SUCCESS && !sim_peer_reach(ctx->device->index, peer->device->index))
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (result == CUDA_SUCCESS) {
        uint32_t bit = 1u << peer->device->index;
        if ((ctx->peers & bit) != 0)
            result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        ctx->peers |= bit;
    }
    sim_unlock();
    return result;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_ENTRY(cuCtxDisablePeerAccess);
    sim_lock();
    CUcontext ctx;
    CUresult result = pair(peer, &ctx);
    if (result == CUDA_SUCCESS) {
        uint32_t bit = 1u << peer->device->index;
        if ((ctx->peers & bit) == 0)
            result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        ctx->peers &= ~bit;
    }
    sim_unlock();
    return result;
}

/* ---- copies -----------------------------------------------------------------------------------
 */
struct peers {
    CUcontext to, from;
};

/* A synchronous peer copy comes after all work of three contexts and before all that is submitted
 * to them later; the host does not wait. */
static CUresult fence(CUstream handle, bool pt, const struct peers *peers, bool before)
{
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, pt, &stream);
    const CUcontext contexts[] = {peers->to, peers->from};
    for (int i = 0; i < 2 && result == CUDA_SUCCESS && !sim_capturing(stream); i++) {
        CUcontext ctx =
            contexts[i] != NULL && sim_ctx_alive(contexts[i]) ? contexts[i]->owner : NULL;
        if (ctx == NULL || ctx->capturing > 0)
            continue;
        if (before) {
            struct sim_op *marker = sim_ctx_marker(ctx);
            result = sim_submit_after(stream, marker);
            sim_op_unref(marker);
        } else {
            sim_op_unref(ctx->barrier);
            ctx->barrier = sim_op_ref(stream->last);
        }
    }
    sim_unlock();
    return result;
}

static CUresult check(const struct peers *peers, struct sim_work *work)
{
    sim_lock();
    bool good = (peers->to == NULL || sim_ctx_alive(peers->to)) &&
                (peers->from == NULL || sim_ctx_alive(peers->from));
    if (good && peers->to != NULL)
        work->copy.to_peer = 1 + peers->to->device->index;
    if (good && peers->from != NULL)
        work->copy.from_peer = 1 + peers->from->device->index;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult submit(const struct peers *peers, struct sim_work *work, CUstream stream, bool pt,
                       bool wait)
{
    CUresult result = check(peers, work);
    if (result == CUDA_SUCCESS && wait)
        result = fence(stream, pt, peers, true);
    if (result != CUDA_SUCCESS) {
        sim_lock();
        sim_work_fini(work);
        sim_unlock();
        return result;
    }
    result = sim_copy_submit(stream, pt, work, wait);
    if (result == CUDA_SUCCESS && wait)
        result = fence(stream, pt, peers, false);
    return result;
}

static CUresult linear(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                       size_t size, CUstream stream, bool pt, bool wait)
{
    if (to_ctx == NULL || from_ctx == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct peers peers = {to_ctx, from_ctx};
    struct sim_work work = {.kind = SIM_W_COPY,
                            .what = wait ? "cuMemcpyPeer" : "cuMemcpyPeerAsync"};
    work.copy.from = (struct sim_end){.address = from, .pitch = size, .height = 1};
    work.copy.to = (struct sim_end){.address = to, .pitch = size, .height = 1};
    work.copy.width = size;
    work.copy.height = work.copy.depth = 1;
    return submit(&peers, &work, stream, pt, wait);
}

SIM_TWINS(cuMemcpyPeer, cuMemcpyPeer_ptds,
          (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t size),
          linear(to, to_ctx, from, from_ctx, size, NULL, pt, true))
SIM_TWINS(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
          (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t size,
           CUstream stream),
          linear(to, to_ctx, from, from_ctx, size, stream, pt, false))

static CUresult box(const CUDA_MEMCPY3D_PEER *peer, CUstream stream, bool pt, bool wait)
{
    if (peer == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D plain = {.srcXInBytes = peer->srcXInBytes,
                                 .srcY = peer->srcY,
                                 .srcZ = peer->srcZ,
                                 .srcLOD = peer->srcLOD,
                                 .srcMemoryType = peer->srcMemoryType,
                                 .srcHost = peer->srcHost,
                                 .srcDevice = peer->srcDevice,
                                 .srcArray = peer->srcArray,
                                 .srcPitch = peer->srcPitch,
                                 .srcHeight = peer->srcHeight,
                                 .dstXInBytes = peer->dstXInBytes,
                                 .dstY = peer->dstY,
                                 .dstZ = peer->dstZ,
                                 .dstLOD = peer->dstLOD,
                                 .dstMemoryType = peer->dstMemoryType,
                                 .dstHost = peer->dstHost,
                                 .dstDevice = peer->dstDevice,
                                 .dstArray = peer->dstArray,
                                 .dstPitch = peer->dstPitch,
                                 .dstHeight = peer->dstHeight,
                                 .WidthInBytes = peer->WidthInBytes,
                                 .Height = peer->Height,
                                 .Depth = peer->Depth};
    /* The context is ignored for a side in host memory. */
    struct peers peers = {
        peer->dstMemoryType == CU_MEMORYTYPE_HOST ? NULL : peer->dstContext,
        peer->srcMemoryType == CU_MEMORYTYPE_HOST ? NULL : peer->srcContext,
    };
    struct sim_work work;
    CUresult result = sim_copy_3d_work(&plain, &work);
    if (result != CUDA_SUCCESS)
        return result;
    work.what = wait ? "cuMemcpy3DPeer" : "cuMemcpy3DPeerAsync";
    return submit(&peers, &work, stream, pt, wait);
}

SIM_TWINS(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *peer),
          box(peer, NULL, pt, true))
SIM_TWINS(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz,
          (const CUDA_MEMCPY3D_PEER *peer, CUstream stream), box(peer, stream, pt, false))
