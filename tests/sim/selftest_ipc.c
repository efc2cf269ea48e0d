/*
 * Self-tests of memory and events that cross processes: IPC handles, shareable handles. Children
 * are this program again.
 */
#include "selftest.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- IPC ---------------------------------------------------------------------------------------
 */
static unsigned char peek(CUdeviceptr p)
{
    unsigned char byte = 0;
    OK(cuMemcpyDtoH(&byte, p, 1));
    return byte;
}

struct ipc_words {
    CUipcMemHandle base, inside, gone;
    CUipcEventHandle event;
};

static void case_ipc_child(void)
{
    struct ipc_words words;
    CUdeviceptr p, q, base;
    CUevent event;
    size_t size;
    char c;
    start();
    get(PEER, &words, sizeof words);
    IS(cuIpcOpenMemHandle(&p, words.base, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenMemHandle(&p, words.base, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle(&q, words.inside, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK(p == q);
    OK(cuMemGetAddressRange(&base, &size, p + 5));
    CHECK(base == p && size == 4 * MIB && peek(p) == 0x11 && peek(p + MIB) == 0x22);
    IS(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    IS(cuIpcCloseMemHandle(p + 512), CUDA_ERROR_INVALID_VALUE);
    CUipcMemHandle again;
    IS(cuIpcGetMemHandle(&again, p), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(p));
    OK(cuMemsetD8(p + 1, 0x33, 1));
    IS(cuIpcOpenMemHandle(&q, words.gone, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
       CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenEventHandle(&event, words.event));
    put(PEER, "1", 1);
    get(PEER, &c, 1); /* recorded behind a value */
    IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuStreamWaitEvent(NULL, event, 0));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    put(PEER, "2", 1);
    OK(cuEventSynchronize(event));
    OK(cuCtxSynchronize());
    put(PEER, "3", 1);
    CHECK(recv(PEER, &c, 1, MSG_WAITALL) == 0); /* the exporter has ended */
    CHECK(peek(p) == 0x11);
    OK(cuIpcOpenMemHandle(&q, words.base, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcCloseMemHandle(p));
    OK(cuIpcCloseMemHandle(p));
    IS(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
    IS(cuIpcOpenMemHandle(&q, words.base, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
       CUDA_ERROR_INVALID_HANDLE);
}

/* The exporter: a child too, since its end is part of the test. PEER is the importer. */
static void case_ipc_exporter(void)
{
    struct ipc_words words;
    CUdeviceptr p, q, flag, managed;
    CUstream stream;
    CUevent event, plain;
    char c;
    start();
    OK(cuMemAlloc(&p, 4 * MIB));
    OK(cuMemAlloc(&q, MIB));
    OK(cuMemAlloc(&flag, 4));
    OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8(p, 0x11, MIB));
    OK(cuMemsetD8(p + MIB, 0x22, MIB));
    OK(cuMemsetD32(flag, 0, 1));
    OK(cuIpcGetMemHandle(&words.base, p));
    OK(cuIpcGetMemHandle(&words.inside, p + MIB));
    OK(cuIpcGetMemHandle(&words.gone, q));
    IS(cuIpcGetMemHandle(&words.gone, managed), CUDA_ERROR_INVALID_VALUE);
    IS(cuIpcOpenMemHandle(&q, words.base, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
       CUDA_ERROR_INVALID_CONTEXT);
    OK(cuMemFree(q));
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    IS(cuIpcGetEventHandle(&words.event, plain), CUDA_ERROR_INVALID_HANDLE);
    OK(cuIpcGetEventHandle(&words.event, event));
    OK(cuCtxSynchronize());
    put(PEER, &words, sizeof words);
    get(PEER, &c, 1);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuEventRecord(event, stream));
    put(PEER, "r", 1);
    get(PEER, &c, 1);
    OK(cuStreamWriteValue32(NULL, flag, 1, 0));
    get(PEER, &c, 1);
    CHECK(peek(p + 1) == 0x33);
    OK(cuEventQuery(event));
    OK(cuMemFree(p)); /* the importer keeps what it has open */
}

static void test_ipc(void)
{
    int importer;
    pid_t child = spawn("ipc_child", &importer);
    dup2(importer, PEER);
    close(importer);
    pid_t exporter = fork();
    if (exporter == 0) {
        execl("/proc/self/exe", "selftest", "ipc_exporter", (char *)NULL);
        _exit(127);
    }
    close(PEER);
    ended_well(exporter);
    ended_well(child);
}

/* ---- shareable handles -------------------------------------------------------------------------
 */
static void send_fd(int to, int fd)
{
    char byte = 0;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } room = {.bytes = {0}};
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmsg(to, &message, 0) == 1);
}

static int take_fd(int from)
{
    char byte;
    int fd;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } room;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    CHECK(recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static const CUmemAccessDesc both_ways = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr at;
    OK(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 2 * MIB, 0, handle, 0));
    OK(cuMemSetAccess(at, 2 * MIB, &both_ways, 1));
    return at;
}

static void case_shareable_child(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUmemPoolPtrExportData data;
    CUdeviceptr p, q;
    char c;
    start();
    int fd = take_fd(PEER), pool_fd = take_fd(PEER), copy;
    get(PEER, &data, sizeof data);
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    IS(cuMemExportToShareableHandle(&copy, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
       CUDA_ERROR_INVALID_VALUE);
    p = map(handle);
    CHECK(peek(p) == 0x21);
    OK(cuMemsetD8(p + 1, 0x22, 1));
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)pool_fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemPoolImportPointer(&p, pool, &data));
    OK(cuMemPoolImportPointer(&q, pool, &data));
    CHECK(p == q && peek(p) == 0x31);
    IS(cuMemAllocFromPoolAsync(&q, 4096, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(p, NULL));
    OK(cuStreamSynchronize(NULL));
    IS(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolDestroy(pool));
    OK(cuCtxSynchronize());
    put(PEER, "1", 1);
    CHECK(recv(PEER, &c, 1, MSG_WAITALL) == 0);
}

static void test_shareable(void)
{
    const CUmemAllocationHandleType posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle, again;
    CUmemoryPool pool;
    CUmemPoolPtrExportData data;
    CUdeviceptr p, q;
    int end, fd, pool_fd;
    char c;
    pid_t child = spawn("shareable_child", &end);
    start();
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    IS(cuMemExportToShareableHandle(&fd, handle, posix, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(handle));
    prop.requestedHandleTypes = posix;
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, posix, 0));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, posix));
    CHECK(again != handle);
    OK(cuMemRelease(again));
    IS(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)777, posix), CUDA_ERROR_UNKNOWN);
    p = map(handle);
    OK(cuMemsetD8(p, 0x21, 2 * MIB));
    props.handleTypes = posix;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolExportToShareableHandle(&pool_fd, pool, posix, 0));
    OK(cuMemAllocFromPoolAsync(&q, 10000, pool, NULL));
    OK(cuMemsetD8(q, 0x31, 10000));
    OK(cuCtxSynchronize());
    IS(cuMemPoolExportPointer(&data, q + 512), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolExportPointer(&data, q));
    IS(cuMemPoolImportPointer(&q, pool, &data), CUDA_ERROR_INVALID_VALUE);
    send_fd(end, fd);
    send_fd(end, pool_fd);
    put(end, &data, sizeof data);
    get(end, &c, 1);
    CHECK(peek(p + 1) == 0x22);
    close(end);
    ended_well(child);
}

const struct test selftest_ipc[] = {
    {"ipc", test_ipc},
    {"ipc_child", case_ipc_child},
    {"ipc_exporter", case_ipc_exporter},
    {"shareable", test_shareable},
    {"shareable_child", case_shareable_child},
    {NULL, NULL},
};
