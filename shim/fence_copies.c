/*
 * Copies to host memory that the host may rely on (see fence_copies.h).
 *
 * A context has a few entries, one for each stream with a copy of which nothing is known to have
 * waited: a later copy on the same stream takes over the entry's event, which then covers the
 * earlier one too. An entry in use (its event being recorded, or waited for) is not taken over, so
 * that nobody waits for more than what was submitted before its free. Where no entry is left the
 * context is marked `whole`: its next free waits for all of it, as the driver's would.
 *
 * Exact: copies by the driver's copy calls to pageable, pinned and managed memory. Conservative: a
 * graph launch counts as such a copy once any graph may hold one; a destination that the driver
 * does not know is the host's. Not seen: kernels, fills and host functions that write what the host
 * reads (VRAMSHIM_STRICT_FREE=on is for them).
 *
 * Locks: one per context and one for who has which record, leaves, never held across a driver call.
 * Contexts' records are static and reused, so a thread may hold on to one whose context is gone:
 * what it then notes concerns nobody.
 */
#include "shim/fence_copies.h"

#include "report/lock.h"
#include "report/sys.h"
#include "shim/arm.h"
#include "shim/capture.h"
#include "shim/fence_driver.h"
#include "shim/fence_streams.h"
#include "shim/process.h"

enum { CONTEXTS = 64, STREAMS = 16 };
#define HIDE_NS UINT64_C(200000000) /* for those that record, at most */

struct copy {
    CUevent event;
    CUstream stream; /* NULL: of no stream that could take it over */
    uint32_t stamp;  /* when it was recorded */
    uint16_t users;  /* threads that record or ask the event */
    bool set;        /* recorded, and not known to have passed */
};

struct vs_fence_copies {
    struct vs_lock lock;
    _Atomic(CUcontext) context; /* NULL: free, or hidden */
    _Atomic(CUcontext) hidden;  /* about to go */
    _Atomic uint32_t pending;   /* entries that are set, and `whole` */
    bool whole;
    uint32_t life; /* how many contexts it has served */
    struct copy copy[STREAMS];
};

_Atomic uint32_t vs_copies_state;
_Atomic uint32_t vs_copies_pending;
_Atomic bool vs_copies_in_graphs;

static struct vs_fence_copies records[CONTEXTS];
static struct vs_lock records_lock;
static _Atomic uint32_t stamps;

/* With the lock. */
static void change(struct vs_fence_copies *copies, bool *flag, bool value)
{
    if (*flag != value) {
        *flag = value;
        atomic_fetch_add_explicit(&copies->pending, value ? 1 : UINT32_MAX, memory_order_release);
        atomic_fetch_add_explicit(&vs_copies_pending, value ? 1 : UINT32_MAX, memory_order_relaxed);
    }
}

static void mark_whole(struct vs_fence_copies *copies)
{
    vs_lock_take(&copies->lock);
    change(copies, &copies->whole, true);
    vs_lock_drop(&copies->lock);
}

struct vs_fence_copies *vs_copies_of(CUcontext context)
{
    struct vs_fence_copies *found = NULL;
    uint32_t state = VS_COPIES_NOTED;
    bool early;

    if (vs_arm_resolved()->strict_free != VS_STRICT_FREE_AUTO) {
        atomic_store_explicit(&vs_copies_state, VS_COPIES_OFF, memory_order_relaxed);
        return NULL;
    }
    state = atomic_exchange_explicit(&vs_copies_state, state, memory_order_relaxed);
    early = state == VS_COPIES_EARLY;
    vs_lock_take(&records_lock);
    for (unsigned i = 0; i < CONTEXTS && found == NULL; i++) {
        if (atomic_load_explicit(&records[i].context, memory_order_relaxed) == NULL &&
            atomic_load_explicit(&records[i].hidden, memory_order_relaxed) == NULL) {
            found = &records[i];
            atomic_store_explicit(&found->context, context, memory_order_release);
        }
    }
    vs_lock_drop(&records_lock);
    if (found != NULL && early) {
        mark_whole(found);
    }
    return found;
}

void vs_copies_forget(struct vs_fence_copies *copies, const struct vs_entries *real, bool alive)
{
    CUevent events[STREAMS] = {NULL};

    if (copies == NULL) {
        return;
    }
    vs_lock_take(&copies->lock);
    copies->life++;
    for (unsigned i = 0; i < STREAMS; i++) {
        struct copy *copy = &copies->copy[i];

        change(copies, &copy->set, false);
        events[i] = copy->event;
        *copy = (struct copy){.users = copy->users};
    }
    change(copies, &copies->whole, false);
    vs_lock_drop(&copies->lock);
    for (unsigned i = 0; i < STREAMS && alive; i++) {
        vs_fence_event_free(real, events[i]);
    }
    vs_lock_take(&records_lock);
    atomic_store_explicit(&copies->context, NULL, memory_order_release);
    atomic_store_explicit(&copies->hidden, NULL, memory_order_release);
    vs_lock_drop(&records_lock);
}

static void swap(_Atomic(CUcontext) *from, _Atomic(CUcontext) *to)
{
    vs_lock_take(&records_lock);
    atomic_store_explicit(to, atomic_load_explicit(from, memory_order_relaxed),
                          memory_order_release);
    atomic_store_explicit(from, NULL, memory_order_release);
    vs_lock_drop(&records_lock);
}

static bool in_use(struct vs_fence_copies *copies)
{
    bool used = false;

    vs_lock_take(&copies->lock);
    for (unsigned i = 0; i < STREAMS && !used; i++) {
        used = copies->copy[i].users != 0;
    }
    vs_lock_drop(&copies->lock);
    return used;
}

/* Whoever notes a copy looks at the handle with the lock, and is then a user: nobody begins after
 * this, and events do not go while one is being recorded, which takes but a moment. */
void vs_copies_hide(struct vs_fence_copies *copies)
{
    const struct timespec nap = {.tv_nsec = 20000};
    uint64_t until;

    if (copies == NULL) {
        return;
    }
    swap(&copies->context, &copies->hidden);
    until = vs_sys_clock(CLOCK_MONOTONIC) + HIDE_NS;
    while (in_use(copies) && vs_sys_clock(CLOCK_MONOTONIC) < until) {
        VS_SYS(SYS_nanosleep, &nap, NULL);
    }
}

void vs_copies_show(struct vs_fence_copies *copies)
{
    if (copies != NULL) {
        swap(&copies->hidden, &copies->context);
    }
}

static struct vs_fence_copies *record_of(CUcontext context)
{
    for (unsigned i = 0; i < CONTEXTS && context != NULL; i++) {
        if (atomic_load_explicit(&records[i].context, memory_order_acquire) == context) {
            return &records[i];
        }
    }
    return NULL;
}

const _Atomic uint32_t *vs_copies_pending_of(const struct vs_fence_copies *copies)
{
    static const _Atomic uint32_t always = 1;

    return copies == NULL ? &always : &copies->pending;
}

CUresult vs_copies_wait(struct vs_fence_copies *copies, const struct vs_entries *real,
                        CUcontext context, bool *whole_context)
{
    CUresult result = CUDA_SUCCESS;

    *whole_context = copies == NULL;
    if (copies == NULL) {
        return CUDA_SUCCESS;
    }
    vs_lock_take(&copies->lock);
    *whole_context = copies->whole;
    change(copies, &copies->whole, false);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct copy *copy = &copies->copy[i];
        uint32_t stamp = copy->stamp;

        if (!copy->set) {
            continue;
        }
        if (!*whole_context) {
            CUevent event = copy->event;

            copy->users++;
            vs_lock_drop(&copies->lock);
            result = vs_fence_event_query(real, context, event);
            if (result == CUDA_ERROR_NOT_READY) {
                result = vs_fence_event_ask(real, context, real->cuEventSynchronize, event);
            }
            vs_lock_take(&copies->lock);
            copy->users--;
        }
        if (result != CUDA_SUCCESS && vs_fence_is_sticky(result)) {
            break;
        }
        result = CUDA_SUCCESS; /* an event that is no more has passed */
        if (copy->set && copy->stamp == stamp && !*whole_context) {
            change(copies, &copy->set, false);
        }
    }
    vs_lock_drop(&copies->lock);
    return result;
}

/* With the lock. An entry for a copy on this stream: that of an earlier one, or a free one. */
static struct copy *entry_for(struct vs_fence_copies *copies, CUstream stream)
{
    struct copy *found = NULL;

    for (unsigned i = 0; i < STREAMS; i++) {
        struct copy *copy = &copies->copy[i];

        if (copy->users != 0) {
            continue;
        }
        if (copy->set && copy->stream == stream && stream != NULL) {
            return copy;
        }
        if (!copy->set && (found == NULL || (found->event == NULL && copy->event != NULL))) {
            found = copy;
        }
    }
    return found;
}

/* With the lock, which it drops meanwhile. Whether the oldest entry's copy has passed: then that is
 * free. */
static struct copy *oldest_if_passed(struct vs_fence_copies *copies, const struct vs_entries *real,
                                     CUcontext context)
{
    struct copy *oldest = NULL;
    uint32_t life = copies->life;
    CUresult result;
    CUevent event;

    for (unsigned i = 0; i < STREAMS; i++) {
        struct copy *copy = &copies->copy[i];

        if (copy->set && copy->users == 0 &&
            (oldest == NULL || (int32_t)(copy->stamp - oldest->stamp) < 0)) {
            oldest = copy;
        }
    }
    if (oldest == NULL) {
        return NULL;
    }
    event = oldest->event;
    oldest->users++;
    vs_lock_drop(&copies->lock);
    result = vs_fence_event_query(real, context, event);
    vs_lock_take(&copies->lock);
    oldest->users--;
    if (result != CUDA_SUCCESS || oldest->users != 0 || copies->life != life) {
        return NULL;
    }
    change(copies, &oldest->set, false);
    return oldest;
}

static bool is_of_thread(CUstream stream, bool per_thread)
{
    return stream == CU_STREAM_PER_THREAD || (stream == NULL && per_thread);
}

/* The handle by which an entry is known. A thread's default stream has none: another thread's would
 * look the same. */
static CUstream key_of(CUstream stream, bool per_thread)
{
    if (is_of_thread(stream, per_thread)) {
        return NULL;
    }
    return stream == NULL ? CU_STREAM_LEGACY : stream;
}

static void note(struct vs_fence_copies *copies, const struct vs_entries *real, CUcontext context,
                 CUstream stream, bool per_thread)
{
    CUstream on = is_of_thread(stream, per_thread) ? CU_STREAM_PER_THREAD : stream;
    CUresult result = CUDA_SUCCESS;
    struct copy *copy;
    CUevent event;
    uint32_t life;

    vs_lock_take(&copies->lock);
    life = copies->life;
    if (atomic_load_explicit(&copies->context, memory_order_relaxed) != context) {
        vs_lock_drop(&copies->lock);
        return; /* it has just gone */
    }
    copy = entry_for(copies, key_of(stream, per_thread));
    if (copy == NULL) {
        copy = oldest_if_passed(copies, real, context);
    }
    if (copy == NULL) {
        change(copies, &copies->whole, copies->whole || copies->life == life);
        vs_lock_drop(&copies->lock);
        return;
    }
    copy->users++;
    event = copy->event;
    vs_lock_drop(&copies->lock);

    if (event == NULL) {
        result = vs_fence_event_new(real, context, &event);
    }
    if (result == CUDA_SUCCESS) {
        result = real->cuEventRecord(event, on);
    }
    vs_lock_take(&copies->lock);
    copy->users--;
    if (copies->life == life) { /* else the event has gone with its context */
        copy->event = event;
        copy->stream = key_of(stream, per_thread);
        copy->stamp = 1 + atomic_fetch_add_explicit(&stamps, 1, memory_order_relaxed);
        change(copies, result == CUDA_SUCCESS ? &copy->set : &copies->whole, true);
    }
    vs_lock_drop(&copies->lock);
}

void vs_copies_submitted(const struct vs_guard *guard, CUstream stream, bool per_thread)
{
    const struct vs_entries *real = &guard->driver->real;
    struct vs_fence_copies *copies;
    uint32_t state = atomic_load_explicit(&vs_copies_state, memory_order_relaxed);
    CUcontext context;

    if (vs_capture_records(guard, stream, per_thread ? VS_CAPTURE_PER_THREAD : VS_CAPTURE_LEGACY)) {
        vs_copies_graph_node(guard);
        return;
    }
    if (state == VS_COPIES_NONE) {
        atomic_compare_exchange_strong(&vs_copies_state, &state, VS_COPIES_EARLY);
    }
    if (state != VS_COPIES_NOTED || real->cuEventRecord == NULL) {
        return;
    }
    context = vs_fence_stream_context(real, stream, per_thread);
    copies = record_of(context);
    if (copies != NULL) {
        note(copies, real, context, stream, per_thread);
        return;
    }
    /* Its context may be about to go, and stay. Or the driver does not tell whose it is: it may be
     * anybody's. */
    for (unsigned i = 0; i < CONTEXTS; i++) {
        CUcontext here = atomic_load_explicit(&records[i].context, memory_order_relaxed);
        CUcontext hidden = atomic_load_explicit(&records[i].hidden, memory_order_relaxed);

        if (context == NULL ? here != NULL || hidden != NULL : hidden == context) {
            mark_whole(&records[i]);
        }
    }
}

bool vs_copies_to_host(const struct vs_guard *guard, CUdeviceptr to)
{
    const struct vs_entries *real = &guard->driver->real;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_IS_MANAGED};
    unsigned int type = 0, managed = 0;
    void *answers[] = {&type, &managed};
    CUstreamCaptureMode mode;
    CUresult result;

    if (real->cuPointerGetAttributes == NULL) {
        return true;
    }
    mode = vs_fence_relax(real);
    result = real->cuPointerGetAttributes(2, wanted, answers, to);
    vs_fence_unrelax(real, mode);
    return result != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE || managed != 0;
}

static bool type_to_host(const struct vs_guard *guard, CUmemorytype type, CUdeviceptr to)
{
    return type == CU_MEMORYTYPE_HOST ||
           (type != CU_MEMORYTYPE_ARRAY && vs_copies_to_host(guard, to));
}

bool vs_copies_2d_to_host(const struct vs_guard *guard, const CUDA_MEMCPY2D *copy)
{
    return type_to_host(guard, copy->dstMemoryType, copy->dstDevice);
}

bool vs_copies_3d_to_host(const struct vs_guard *guard, const CUDA_MEMCPY3D *copy)
{
    return type_to_host(guard, copy->dstMemoryType, copy->dstDevice);
}

bool vs_copies_3d_peer_to_host(const struct vs_guard *guard, const CUDA_MEMCPY3D_PEER *copy)
{
    return type_to_host(guard, copy->dstMemoryType, copy->dstDevice);
}

bool vs_copies_2d_touches_host(const struct vs_guard *guard, const CUDA_MEMCPY2D *copy)
{
    return vs_copies_2d_to_host(guard, copy) ||
           type_to_host(guard, copy->srcMemoryType, copy->srcDevice);
}

bool vs_copies_3d_touches_host(const struct vs_guard *guard, const CUDA_MEMCPY3D *copy)
{
    return vs_copies_3d_to_host(guard, copy) ||
           type_to_host(guard, copy->srcMemoryType, copy->srcDevice);
}

bool vs_copies_3d_peer_touches_host(const struct vs_guard *guard, const CUDA_MEMCPY3D_PEER *copy)
{
    return vs_copies_3d_peer_to_host(guard, copy) ||
           type_to_host(guard, copy->srcMemoryType, copy->srcDevice);
}

bool vs_copies_batch_to_host(const struct vs_guard *guard, const CUdeviceptr *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (vs_copies_to_host(guard, to[i])) {
            return true;
        }
    }
    return false;
}

uint32_t vs_copies_waits(void)
{
    return atomic_load_explicit(&stamps, memory_order_relaxed);
}

/* stream NULL: all. */
static void waited(struct vs_fence_copies *copies, CUstream stream, uint32_t since)
{
    vs_lock_take(&copies->lock);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct copy *copy = &copies->copy[i];

        if (copy->set && (stream == NULL || copy->stream == stream) &&
            (int32_t)(copy->stamp - since) <= 0) {
            change(copies, &copy->set, false);
        }
    }
    vs_lock_drop(&copies->lock);
}

void vs_copies_waited_stream(const struct vs_guard *guard, CUstream stream, bool per_thread,
                             uint32_t since)
{
    struct vs_fence_copies *copies;
    CUstream key = key_of(stream, per_thread);

    if (key == NULL || !guard->counts ||
        atomic_load_explicit(&vs_copies_pending, memory_order_relaxed) == 0) {
        return;
    }
    copies = record_of(vs_fence_stream_context(&guard->driver->real, stream, per_thread));
    if (copies != NULL) {
        waited(copies, key, since);
    }
}

void vs_copies_waited_context(const struct vs_guard *guard, CUcontext context, uint32_t since)
{
    struct vs_fence_copies *copies;

    if (!guard->counts || atomic_load_explicit(&vs_copies_pending, memory_order_relaxed) == 0) {
        return;
    }
    if (context == NULL) { /* of a green one nothing is known */
        guard->driver->real.cuCtxGetCurrent(&context);
    }
    copies = record_of(context);
    if (copies != NULL) {
        waited(copies, NULL, since);
    }
}

void vs_copies_stream_goes(CUstream stream)
{
    if (stream == NULL ||
        atomic_load_explicit(&vs_copies_state, memory_order_relaxed) != VS_COPIES_NOTED) {
        return;
    }
    for (unsigned i = 0; i < CONTEXTS; i++) {
        struct vs_fence_copies *copies = &records[i];

        if (atomic_load_explicit(&copies->context, memory_order_acquire) == NULL &&
            atomic_load_explicit(&copies->hidden, memory_order_acquire) == NULL) {
            continue;
        }
        vs_lock_take(&copies->lock);
        for (unsigned k = 0; k < STREAMS; k++) {
            if (copies->copy[k].stream == stream) {
                copies->copy[k].stream = NULL;
            }
        }
        vs_lock_drop(&copies->lock);
    }
}
