/*
 * Events between processes: cuIpcGetEventHandle, cuIpcOpenEventHandle.
 *
 * An event made with CU_EVENT_INTERPROCESS has a shared page with two numbers: the last record's
 * serial and the highest serial whose work is done. A record is an op that raises the second; a
 * wait is an op that watches for the serial that was the last one when it was submitted. If the
 * process that recorded dies first, its work is over and waits for it end.
 *
 * As measured: a handle can be had of interprocess events only, not of opened ones; opening it in
 * its own process is INVALID_CONTEXT, junk is MAP_FAILED; each open gives another event; it can be
 * opened after the exporter has destroyed its event.
 *
 * Lock order: sim_lock, then `lock` here. Records and waits run without sim_lock.
 */
#include "graph.h"
#include "ipc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct page {
    _Atomic uint64_t recorded, done;
    _Atomic uint64_t recorder; /* process of the last record */
};

struct sim_ipc_event {
    struct page *page;
    int fd;
    int pid; /* who made it */
    uint64_t inode;
    struct sim_ipc_event *next; /* all there ever were: ops and handles may outlive the event */
};

/* What an op carries; listed so that work which never ran is no leak. */
struct mark {
    struct sim_ipc_event *event;
    uint64_t serial;
    int recorder;
    struct mark *next;
};

static struct sim_ipc_event *events; /* sim_lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mark *marks, *spare_marks;

static struct mark *mark_new(struct sim_ipc_event *event, uint64_t serial)
{
    pthread_mutex_lock(&lock);
    struct mark *mark = spare_marks;
    if (mark != NULL)
        spare_marks = mark->next;
    else if ((mark = calloc(1, sizeof *mark)) == NULL)
        abort();
    *mark = (struct mark){event, serial, (int)atomic_load(&event->page->recorder), marks};
    marks = mark;
    pthread_mutex_unlock(&lock);
    return mark;
}

static void mark_free(struct mark *mark)
{
    pthread_mutex_lock(&lock);
    struct mark **at = &marks;
    while (*at != mark)
        at = &(*at)->next;
    *at = mark->next;
    mark->next = spare_marks;
    spare_marks = mark;
    pthread_mutex_unlock(&lock);
}

static struct sim_ipc_event *adopt(int fd, int pid, uint64_t inode)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct sim_ipc_event *event = page != MAP_FAILED ? calloc(1, sizeof *event) : NULL;
    if (event == NULL) {
        if (page != MAP_FAILED)
            munmap(page, 4096);
        close(fd);
        return NULL;
    }
    *event = (struct sim_ipc_event){page, fd, pid, inode, events};
    events = event;
    return event;
}

struct sim_ipc_event *sim_ipc_event_new(void)
{
    struct sim_ipc_note note = {.size = 4096, .unit = -1};
    int fd = memfd_create("vramsim-event", MFD_CLOEXEC);
    if (fd < 0 || !sim_ipc_seal(fd, SIM_IPC_EVENT, &note)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    return adopt(fd, getpid(), 0);
}

bool sim_ipc_event_pending(const struct sim_ipc_event *event)
{
    return atomic_load(&event->page->done) < atomic_load(&event->page->recorded) &&
           sim_ipc_process_lives((int)atomic_load(&event->page->recorder));
}

static void CUDA_CB done(void *arg)
{
    struct mark *mark = arg;
    _Atomic uint64_t *at = &mark->event->page->done;
    for (uint64_t seen = atomic_load(at);
         seen < mark->serial && !atomic_compare_exchange_weak(at, &seen, mark->serial);) {
    }
    mark_free(mark);
}

static void CUDA_CB watch(void *arg)
{
    struct mark *mark = arg;
    for (unsigned turn = 1; atomic_load(&mark->event->page->done) < mark->serial; turn++) {
        usleep(50);
        if (turn % 1000 == 0 && !sim_ipc_process_lives(mark->recorder))
            break;
    }
    mark_free(mark);
}

struct sim_work sim_ipc_event_record(struct sim_ipc_event *event)
{
    uint64_t serial = atomic_fetch_add(&event->page->recorded, 1) + 1;
    atomic_store(&event->page->recorder, (uint64_t)getpid());
    struct sim_work work = {.kind = SIM_W_HOST, .what = "cuEventRecord"};
    work.host.fn = done;
    work.host.arg = mark_new(event, serial);
    return work;
}

struct sim_work sim_ipc_event_wait(struct sim_ipc_event *event)
{
    struct sim_work work = {.kind = SIM_W_HOST, .what = "cuStreamWaitEvent"};
    work.host.fn = watch;
    work.host.arg = mark_new(event, atomic_load(&event->page->recorded));
    return work;
}

void sim_ipc_event_synchronize(struct sim_ipc_event *event)
{
    struct mark *mark = mark_new(event, atomic_load(&event->page->recorded));
    sim_unlock();
    watch(mark);
    sim_lock();
}

/* ---- the entry points --------------------------------------------------------------------------
 */
CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    SIM_ENTRY(cuIpcGetEventHandle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    struct sim_ipc_note note;
    struct sim_ipc_handle handle;
    if (result == CUDA_SUCCESS) {
        if (!sim_event_alive(event) || event->ipc == NULL || event->ipc->pid != getpid() ||
            sim_ipc_read(event->ipc->fd, SIM_IPC_EVENT, &note) != 0 ||
            !sim_ipc_handle_make(event->ipc->fd, SIM_IPC_EVENT, &note, &handle))
            result = CUDA_ERROR_INVALID_HANDLE;
        else
            memcpy(out, &handle, sizeof handle);
    }
    sim_unlock();
    return result;
}

static CUresult find_or_open(const struct sim_ipc_handle *handle, struct sim_ipc_event **out)
{
    for (*out = events; *out != NULL; *out = (*out)->next) {
        if ((*out)->pid == handle->note.pid && (*out)->inode == handle->inode)
            return CUDA_SUCCESS;
    }
    int fd = sim_ipc_handle_open(handle, SIM_IPC_EVENT);
    if (fd < 0)
        return fd == -ESRCH ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_MAP_FAILED;
    *out = adopt(fd, handle->note.pid, handle->inode);
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle given)
{
    SIM_ENTRY(cuIpcOpenEventHandle);
    struct sim_ipc_handle handle;
    memcpy(&handle, &given, sizeof handle);
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result == CUDA_SUCCESS && !sim_ipc_handle_good(&handle, SIM_IPC_EVENT))
        result = CUDA_ERROR_MAP_FAILED;
    if (result == CUDA_SUCCESS && handle.note.pid == getpid())
        result = CUDA_ERROR_INVALID_CONTEXT;
    struct sim_ipc_event *ipc;
    if (result == CUDA_SUCCESS)
        result = find_or_open(&handle, &ipc);
    if (result == CUDA_SUCCESS) {
        *out = sim_event_new(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
        (*out)->ipc = ipc;
    }
    sim_unlock();
    return result;
}
