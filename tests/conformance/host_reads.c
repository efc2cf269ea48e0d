/*
 * What the host may rely on after a free, without synchronising, for the free has waited: it reads
 * what an asynchronous copy brought, by whatever call that was submitted; and it copies results
 * from the device, or new input to it, by calls that wait for no other stream themselves.
 *
 * The work waits behind a stop that another thread lifts after a while. Where there are two
 * devices, peers are another one's; else the same device is its own peer.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cu.h"

#define SIZE ((size_t)1 << 20)
enum { SIDE = 1024 }; /* SIDE x SIDE bytes are SIZE */

static CUcontext context, peer_context;
static CUstream stream, other;
static CUdeviceptr source; /* of the copies, freed after most of them */
static CUdeviceptr result, peer_result;
static CUarray array; /* 8-bit, SIDE x SIDE */
static unsigned char *pinned;

static void by_dtoh(void *host)
{
    MUST(cuMemcpyDtoHAsync, host, source, SIZE, stream);
}

static void by_address(void *host)
{
    MUST(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)host, source, SIZE, stream);
}

static void by_2d(void *host)
{
    const CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = source,
                               .srcPitch = SIDE,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = host,
                               .dstPitch = SIDE,
                               .WidthInBytes = SIDE,
                               .Height = SIDE};
    MUST(cuMemcpy2DAsync, &box, stream);
}

static void by_2d_unified(void *host)
{
    const CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                               .srcDevice = source,
                               .srcPitch = SIDE,
                               .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                               .dstDevice = (CUdeviceptr)(uintptr_t)host,
                               .dstPitch = SIDE,
                               .WidthInBytes = SIDE,
                               .Height = SIDE};
    MUST(cuMemcpy2DAsync, &box, stream);
}

static void by_3d(void *host)
{
    const CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = source,
                               .srcPitch = SIDE,
                               .srcHeight = SIDE / 2,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = host,
                               .dstPitch = SIDE,
                               .dstHeight = SIDE / 2,
                               .WidthInBytes = SIDE,
                               .Height = SIDE / 2,
                               .Depth = 2};
    MUST(cuMemcpy3DAsync, &box, stream);
}

static void by_array(void *host)
{
    const CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcArray = array,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = host,
                               .dstPitch = SIDE,
                               .WidthInBytes = SIDE,
                               .Height = SIDE};
    MUST(cuMemcpy2DAsync, &box, stream);
}

static void by_3d_peer(void *host)
{
    const CUDA_MEMCPY3D_PEER box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = source,
                                    .srcContext = context,
                                    .srcPitch = SIDE,
                                    .srcHeight = SIDE,
                                    .dstMemoryType = CU_MEMORYTYPE_HOST,
                                    .dstHost = host,
                                    .dstContext = peer_context,
                                    .dstPitch = SIDE,
                                    .dstHeight = SIDE,
                                    .WidthInBytes = SIDE,
                                    .Height = SIDE,
                                    .Depth = 1};
    MUST(cuMemcpy3DPeerAsync, &box, stream);
}

static void launch(CUgraph graph)
{
    CUgraphExec exec;

    MUST(cuGraphInstantiate, &exec, graph, 0);
    MUST(cuGraphLaunch, exec, stream);
    MUST(cuGraphExecDestroy, exec);
    MUST(cuGraphDestroy, graph);
}

static void by_captured_graph(void *host)
{
    CUgraph graph;

    /* On another stream: the one with the stop in it could not be captured twice over. */
    MUST(cuStreamBeginCapture, other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    MUST(cuMemcpyDtoHAsync, host, source, SIZE, other);
    MUST(cuStreamEndCapture, other, &graph);
    launch(graph);
}

static void by_built_graph(void *host)
{
    const CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = source,
                               .srcPitch = SIZE,
                               .srcHeight = 1,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = host,
                               .dstPitch = SIZE,
                               .dstHeight = 1,
                               .WidthInBytes = SIZE,
                               .Height = 1,
                               .Depth = 1};
    CUgraph graph;
    CUgraphNode node;

    MUST(cuGraphCreate, &graph, 0);
    MUST(cuGraphAddMemcpyNode, &node, graph, NULL, 0, &box, context);
    launch(graph);
}

static void behind_another_stream(void *host)
{
    CUevent event;

    MUST(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventRecord, event, stream);
    MUST(cuStreamWaitEvent, other, event, 0);
    MUST(cuMemcpyDtoHAsync, host, source, SIZE, other);
    MUST(cuEventDestroy, event);
}

static void on_a_stream_that_goes(void *host)
{
    CUevent event;
    CUstream gone;

    MUST(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventRecord, event, stream);
    MUST(cuStreamCreate, &gone, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamWaitEvent, gone, event, 0);
    MUST(cuMemcpyDtoHAsync, host, source, SIZE, gone);
    MUST(cuEventDestroy, event);
    MUST(cuStreamDestroy, gone);
}

static void twice_with_a_wait_for_the_first(void *host)
{
    MUST(cuMemcpyDtoHAsync, host, source, SIZE / 2, other);
    MUST(cuStreamSynchronize, other);
    MUST(cuMemcpyDtoHAsync, (char *)host + SIZE / 2, source + SIZE / 2, SIZE / 2, stream);
}

static void *copy_elsewhere(void *host)
{
    MUST(cuCtxSetCurrent, context);
    by_dtoh(host);
    return NULL;
}

static void on_another_thread(void *host)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, copy_elsewhere, host) == 0)
        pthread_join(thread, NULL);
}

static bool arrived(const unsigned char *host)
{
    for (size_t i = 0; i < SIZE; i++) {
        if (((const volatile unsigned char *)host)[i] != 77)
            return false;
    }
    return true;
}

/* What is freed is the source, or memory that has nothing to do with the copy. */
static void read_after(const char *name, void (*copy)(void *host), void *host, bool unrelated)
{
    struct gate *gate = gate_new();
    CUdeviceptr freed;

    memset(host, 1, SIZE);
    MUST(cuMemAlloc, &source, SIZE);
    MUST(cuMemsetD8, source, 77, SIZE);
    if (unrelated)
        MUST(cuMemAlloc, &freed, SIZE);
    else
        freed = source;
    MUST(cuCtxSynchronize);
    gate_wait(gate, stream);
    copy(host);
    gate_open_later(gate);
    MUST(cuMemFree, freed);
    cu_say("%s: %s", name, arrived(host) ? "all is there" : "not there yet");
    MUST(cuStreamSynchronize, stream);
    MUST(cuStreamSynchronize, other);
    MUST(cuCtxSynchronize);
    if (unrelated)
        MUST(cuMemFree, source);
    gate_free(gate);
}

/* ---- synchronous copies ---------------------------------------------------------------------- */

static void result_by_dtoh(void)
{
    MUST(cuMemcpyDtoH, pinned, result, SIZE);
}

static void result_by_address(void)
{
    MUST(cuMemcpy, (CUdeviceptr)(uintptr_t)pinned, result, SIZE);
}

static CUDA_MEMCPY2D box_of_result(void)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = result,
                           .srcPitch = SIDE,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = pinned,
                           .dstPitch = SIDE,
                           .WidthInBytes = SIDE,
                           .Height = SIDE};
}

static void result_by_2d(void)
{
    const CUDA_MEMCPY2D box = box_of_result();

    MUST(cuMemcpy2D, &box);
}

static void result_by_2d_unaligned(void)
{
    const CUDA_MEMCPY2D box = box_of_result();

    MUST(cuMemcpy2DUnaligned, &box);
}

static void result_by_3d(void)
{
    const CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                               .srcDevice = result,
                               .srcPitch = SIDE,
                               .srcHeight = SIDE,
                               .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                               .dstDevice = (CUdeviceptr)(uintptr_t)pinned,
                               .dstPitch = SIDE,
                               .dstHeight = SIDE,
                               .WidthInBytes = SIDE,
                               .Height = SIDE,
                               .Depth = 1};
    MUST(cuMemcpy3D, &box);
}

/* The input of the work is replaced: by then it has been read. */
static void new_input(void)
{
    memset(pinned, 5, SIZE);
    MUST(cuMemcpyHtoD, source, pinned, SIZE);
    MUST(cuCtxSynchronize);
    MUST(cuMemcpyDtoH, pinned, result, SIZE);
}

static void *copy_result(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent, context);
    result_by_dtoh();
    return NULL;
}

static void result_by_another_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, copy_result, NULL) == 0)
        pthread_join(thread, NULL);
}

static void peer_result_in_its_context(void)
{
    MUST(cuCtxSetCurrent, peer_context);
    MUST(cuMemcpyDtoH, pinned, peer_result, SIZE);
    MUST(cuCtxSetCurrent, context);
}

/* The work is a copy from the source to the result, and on to the peer; what is freed has nothing
 * to do with either. */
static void copy_after(const char *name, void (*copy)(void))
{
    struct gate *gate = gate_new();
    CUdeviceptr unrelated;

    MUST(cuMemAlloc, &unrelated, SIZE);
    MUST(cuMemsetD8, source, 77, SIZE);
    MUST(cuMemsetD8, result, 1, SIZE);
    MUST(cuCtxSetCurrent, peer_context);
    MUST(cuMemsetD8, peer_result, 1, SIZE);
    MUST(cuCtxSynchronize);
    MUST(cuCtxSetCurrent, context);
    MUST(cuCtxSynchronize);
    memset(pinned, 1, SIZE);
    gate_wait(gate, stream);
    MUST(cuMemcpyDtoDAsync, result, source, SIZE, stream);
    MUST(cuMemcpyPeerAsync, peer_result, peer_context, result, context, SIZE, stream);
    gate_open_later(gate);
    MUST(cuMemFree, unrelated);
    copy();
    cu_say("%s: %s", name, arrived(pinned) ? "all is there" : "not there yet");
    MUST(cuStreamSynchronize, stream);
    gate_free(gate);
}

static void synchronous_copies(void)
{
    MUST(cuMemAlloc, &source, SIZE);
    MUST(cuMemAlloc, &result, SIZE);
    MUST(cuCtxSetCurrent, peer_context);
    MUST(cuMemAlloc, &peer_result, SIZE);
    MUST(cuCtxSetCurrent, context);
    copy_after("cuMemcpyDtoH", result_by_dtoh);
    copy_after("cuMemcpy", result_by_address);
    copy_after("cuMemcpy2D", result_by_2d);
    copy_after("cuMemcpy2DUnaligned", result_by_2d_unaligned);
    copy_after("cuMemcpy3D", result_by_3d);
    copy_after("cuMemcpyHtoD over the input", new_input);
    copy_after("cuMemcpyDtoH by another thread", result_by_another_thread);
    copy_after("cuMemcpyDtoH from a peer", peer_result_in_its_context);
    MUST(cuMemFree, source);
    MUST(cuMemFree, result);
    MUST(cuMemFree, peer_result);
}

static void find_peer(void)
{
    CUdevice device;
    int count;

    peer_context = context;
    MUST(cuDeviceGetCount, &count);
    if (count > 1) {
        MUST(cuDeviceGet, &device, 1);
        MUST(cuDevicePrimaryCtxRetain, &peer_context, device);
    }
}

int main(int argc, char **argv)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {SIDE, SIDE, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    void *registered;

    cu_start(argc, argv);
    MUST(cuCtxGetCurrent, &context);
    find_peer();
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAllocHost, (void **)&pinned, SIZE);
    if (posix_memalign(&registered, (size_t)sysconf(_SC_PAGESIZE), SIZE) != 0)
        abort();
    MUST(cuMemHostRegister, registered, SIZE, 0);
    memset(pinned, 77, SIZE);
    MUST(cuArrayCreate, &array, &shape);
    const CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = pinned,
                              .srcPitch = SIDE,
                              .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                              .dstArray = array,
                              .WidthInBytes = SIDE,
                              .Height = SIDE};
    MUST(cuMemcpy2D, &in);

    read_after("cuMemcpyDtoHAsync", by_dtoh, pinned, false);
    read_after("into registered memory", by_dtoh, registered, false);
    read_after("cuMemcpyAsync", by_address, pinned, false);
    read_after("cuMemcpyAsync into registered memory", by_address, registered, false);
    read_after("cuMemcpy2DAsync", by_2d, pinned, false);
    read_after("cuMemcpy2DAsync by address", by_2d_unified, pinned, false);
    read_after("cuMemcpy3DAsync", by_3d, pinned, false);
    read_after("from an array", by_array, pinned, true);
    read_after("cuMemcpy3DPeerAsync", by_3d_peer, pinned, false);
    read_after("a captured graph", by_captured_graph, pinned, false);
    read_after("a built graph", by_built_graph, pinned, false);
    read_after("behind another stream", behind_another_stream, pinned, false);
    read_after("on a stream that is gone", on_a_stream_that_goes, pinned, false);
    read_after("a second copy after a wait for the first", twice_with_a_wait_for_the_first, pinned,
               false);
    read_after("copied by another thread", on_another_thread, pinned, false);
    read_after("something else is freed", by_dtoh, pinned, true);

    synchronous_copies();

    MUST(cuArrayDestroy, array);
    MUST(cuMemHostUnregister, registered);
    MUST(cuMemFreeHost, pinned);
    MUST(cuStreamDestroy, stream);
    MUST(cuStreamDestroy, other);
    free(registered);
    return cu_end();
}
