/* Memory and events between two processes: what a handle opens, who may open it, how long. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cu.h"

#define SIZE ((size_t)4 << 20)
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define PEER 9

struct words {
    CUipcMemHandle base, inside, freed;
    CUipcEventHandle event;
};

static void put(int fd, const void *data, size_t size)
{
    if (write(fd, data, size) != (ssize_t)size)
        cu_say("the other process is gone");
}

static void get(int fd, void *data, size_t size)
{
    if (recv(fd, data, size, MSG_WAITALL) != (ssize_t)size)
        cu_say("the other process is gone");
}

static int importer(int argc, char **argv)
{
    struct words words;
    CUdeviceptr p = 0, q = 0, base = 0;
    size_t size = 0;
    CUipcMemHandle again;
    CUevent event = NULL, second = NULL;
    char c;

    cu_start(argc, argv);
    get(PEER, &words, sizeof words);
    cu_say("in another process");
    TELL(cuIpcOpenMemHandle, &p, words.base, 0);
    TELL(cuIpcOpenMemHandle, NULL, words.base, LAZY);
    TELL(cuIpcOpenMemHandle, &p, words.base, LAZY);
    TELL(cuIpcOpenMemHandle, &q, words.inside, LAZY);
    FACT(p == q);
    TELL(cuMemGetAddressRange, &base, &size, p + 5);
    FACT(base == p && size == SIZE);
    FACT(cu_all_bytes(p, SIZE, 0x11));
    TELL(cuMemFree, p);
    TELL(cuIpcCloseMemHandle, p + 512);
    TELL(cuIpcGetMemHandle, &again, p);
    /* INVALID_VALUE or NOT_PERMITTED: both were seen on one driver. */
    FACT(CU(cuIpcOpenMemHandle)(&q, words.freed, LAZY) != CUDA_SUCCESS);
    TELL(cuIpcCloseMemHandle, p);
    FACT(cu_all_bytes(p, SIZE, 0x11));
    MUST(cuMemsetD8, p, 0x22, SIZE);
    TELL(cuIpcOpenEventHandle, &event, words.event);
    TELL(cuIpcOpenEventHandle, &second, words.event);
    FACT(event != second);
    MUST(cuCtxSynchronize);
    put(PEER, "1", 1);
    get(PEER, &c, 1); /* recorded behind a gate */
    TELL(cuEventQuery, event);
    TELL(cuStreamWaitEvent, NULL, event, 0);
    TELL(cuStreamQuery, NULL);
    put(PEER, "2", 1);
    TELL(cuEventSynchronize, event);
    MUST(cuCtxSynchronize);
    TELL(cuEventQuery, event);
    TELL(cuEventDestroy, event);
    TELL(cuEventDestroy, second);
    put(PEER, "3", 1);
    get(PEER, &c, 1); /* freed by the exporter */
    FACT(cu_all_bytes(p, SIZE, 0x22));
    TELL(cuIpcCloseMemHandle, p);
    TELL(cuIpcCloseMemHandle, p);
    return cu_end();
}

int main(int argc, char **argv)
{
    if (getenv("CONFORMANCE_IPC") != NULL)
        return importer(argc, argv);
    struct words words;
    CUdeviceptr p = 0, q = 0, managed = 0;
    CUevent event = NULL, plain = NULL;
    CUstream stream = NULL;
    CUipcMemHandle again, junk;
    char c;
    int ends[2], status = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 1;
    pid_t child = fork(); /* before the driver has begun here */
    if (child == 0) {
        close(ends[0]);
        dup2(ends[1], PEER);
        setenv("CONFORMANCE_IPC", "importer", 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    close(ends[1]);

    cu_start(argc, argv);
    MUST(cuMemAlloc, &p, SIZE);
    MUST(cuMemAlloc, &q, SIZE);
    MUST(cuMemsetD8, p, 0x11, SIZE);
    MUST(cuCtxSynchronize);
    TELL(cuIpcGetMemHandle, NULL, p);
    TELL(cuIpcGetMemHandle, &words.base, p);
    TELL(cuIpcGetMemHandle, &words.inside, p + SIZE / 2);
    TELL(cuIpcGetMemHandle, &again, p);
    FACT(memcmp(&again, &words.base, sizeof again) == 0);
    FACT(memcmp(&words.inside, &words.base, sizeof again) == 0);
    TELL(cuIpcGetMemHandle, &words.freed, q);
    TELL(cuMemFree, q);
    TELL(cuIpcGetMemHandle, &again, 0);
    TELL(cuIpcGetMemHandle, &again, 12345);
    MUST(cuMemAllocManaged, &managed, 4096, CU_MEM_ATTACH_GLOBAL);
    TELL(cuIpcGetMemHandle, &again, managed);
    TELL(cuIpcOpenMemHandle, &q, words.base, LAZY);
    memset(&junk, 0x5a, sizeof junk);
    TELL(cuIpcOpenMemHandle, &q, junk, LAZY);
    TELL(cuIpcCloseMemHandle, p);
    MUST(cuEventCreate, &plain, CU_EVENT_DISABLE_TIMING);
    TELL(cuEventCreate, &event, CU_EVENT_INTERPROCESS);
    TELL(cuEventCreate, &event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    TELL(cuIpcGetEventHandle, &words.event, plain);
    TELL(cuIpcGetEventHandle, &words.event, event);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    struct gate *gate = gate_new();
    fflush(stdout); /* from here on the other process speaks */
    put(ends[0], &words, sizeof words);
    get(ends[0], &c, 1);
    gate_wait(gate, stream);
    MUST(cuEventRecord, event, stream);
    put(ends[0], "r", 1);
    get(ends[0], &c, 1);
    gate_open(gate);
    get(ends[0], &c, 1);
    bool seen = cu_all_bytes(p, SIZE, 0x22);
    MUST(cuMemFree, p);
    put(ends[0], "f", 1);
    waitpid(child, &status, 0);
    cu_say("back in the first one");
    FACT(status == 0);
    FACT(seen);
    TELL(cuEventQuery, event);
    gate_free(gate);
    return cu_end();
}
