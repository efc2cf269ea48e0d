/*
 * The table of active captures (see capture.h). It lies on the process's page, since captures do
 * not outlive a fork.
 *
 * Invariant: page->active_captures = begun + lost. Rows are born in order, so a row that was seen
 * before a driver's call is known again after it, whoever has begun anew on that stream meanwhile.
 *
 * Locks: page->gate while one begins (see fence.h), and captures.lock, a leaf, around the table.
 */
#include "shim/capture.h"

#include "report/sys.h"
#include "shim/fence.h"
#include "shim/fence_streams.h"

#include <stdatomic.h>

#define PATIENCE_NS UINT64_C(1000000000)

static struct vs_captures *table(void)
{
    return &vs_process_page()->captures;
}

/* With the lock. */
static void tell(const struct vs_captures *captures)
{
    atomic_store_explicit(&vs_process_page()->active_captures,
                          (int32_t)(captures->begun + captures->lost), memory_order_relaxed);
}

static bool is_default_of_thread(CUstream stream, enum vs_capture_default_stream twin)
{
    return stream == CU_STREAM_PER_THREAD || (stream == NULL && twin == VS_CAPTURE_PER_THREAD);
}

static bool is_row_of(const struct vs_capture_row *row, CUstream stream,
                      enum vs_capture_default_stream twin)
{
    if (is_default_of_thread(stream, twin)) {
        return row->thread == &vs_guard_depth;
    }
    return row->thread == NULL && row->stream == (const void *)stream;
}

/* With the lock. Returns when it was born; 0: there is no room. */
static uint32_t add(struct vs_captures *captures, CUstream stream,
                    enum vs_capture_default_stream twin, CUcontext context, bool joined)
{
    if (captures->count == VS_CAPTURE_ROWS) {
        return 0;
    }
    if (++captures->born == 0) {
        captures->born = 1;
    }
    captures->row[captures->count++] = (struct vs_capture_row){
        .stream = stream,
        .thread = is_default_of_thread(stream, twin) ? &vs_guard_depth : NULL,
        .context = context,
        .born = captures->born,
        .joined = joined,
    };
    captures->begun += joined ? 0 : 1;
    tell(captures);
    return captures->born;
}

/* With the lock. What joined stays until the last capture has ended: whose it was is not known. So
 * do those that found no room, unless there is nothing else that they could be. */
static void drop(struct vs_captures *captures, uint32_t i)
{
    captures->begun -= captures->row[i].joined ? 0 : 1;
    captures->row[i] = captures->row[--captures->count];
    if (captures->begun + captures->lost == 0) {
        captures->count = 0;
        captures->lost_joined = false;
    }
    tell(captures);
}

/* With the lock. */
static uint32_t find(const struct vs_captures *captures, CUstream stream,
                     enum vs_capture_default_stream twin)
{
    uint32_t i = 0;

    while (i < captures->count &&
           (captures->row[i].joined || !is_row_of(&captures->row[i], stream, twin))) {
        i++;
    }
    return i;
}

static bool find_born(const struct vs_captures *captures, uint32_t born, uint32_t *i)
{
    for (*i = 0; *i < captures->count; ++*i) {
        if (captures->row[*i].born == born) {
            return true;
        }
    }
    return false;
}

static bool driver_says_capturing(const struct vs_entries *real, CUstream stream,
                                  enum vs_capture_default_stream twin, bool unknown)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult (*query)(CUstream, CUstreamCaptureStatus *) =
        twin == VS_CAPTURE_PER_THREAD ? real->cuStreamIsCapturing_ptsz : real->cuStreamIsCapturing;

    if (query == NULL || query(stream, &status) != CUDA_SUCCESS) {
        return unknown;
    }
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool vs_capture_records(const struct vs_guard *guard, CUstream stream,
                        enum vs_capture_default_stream twin)
{
    return vs_capture_active() && guard->driver != NULL &&
           driver_says_capturing(&guard->driver->real, stream, twin, false);
}

bool vs_capture_in(CUcontext context)
{
    struct vs_captures *captures = table();
    bool found;

    if (!vs_capture_active()) {
        return false;
    }
    vs_lock_take(&captures->lock);
    found = captures->lost != 0 || captures->lost_joined;
    for (uint32_t i = 0; i < captures->count && !found; i++) {
        found = captures->row[i].context == NULL || captures->row[i].context == (void *)context;
    }
    vs_lock_drop(&captures->lock);
    return found;
}

static void open_call(struct vs_capture_call *call, const struct vs_guard *guard, CUstream stream,
                      enum vs_capture_default_stream twin)
{
    *call = (struct vs_capture_call){
        .guard = guard->counts ? guard : NULL, .stream = stream, .twin = twin};
}

/* Old drivers: a free under way may be synchronising, which would break the capture. Once a capture
 * was begun no other does (fence.c). One that waits for what this thread has yet to submit is not
 * waited for. */
static void let_frees_synchronize(void)
{
    struct vs_process_page *page = vs_process_page();
    uint64_t deadline;

    if (!atomic_load_explicit(&page->captures_seen, memory_order_relaxed)) {
        atomic_store_explicit(&page->captures_seen, true, memory_order_seq_cst);
    }
    if (atomic_load_explicit(&page->synchronising, memory_order_seq_cst) == 0) {
        return;
    }
    deadline = vs_sys_clock(CLOCK_MONOTONIC) + PATIENCE_NS;
    while (atomic_load_explicit(&page->synchronising, memory_order_seq_cst) != 0 &&
           vs_sys_clock(CLOCK_MONOTONIC) < deadline) {
        struct timespec step = {0, 50000};

        VS_SYS(SYS_nanosleep, &step, NULL);
    }
}

void vs_capture_begins(struct vs_capture_call *call, const struct vs_guard *guard, CUstream stream,
                       enum vs_capture_default_stream twin)
{
    open_call(call, guard, stream, twin);
    /* The first capture may come before we are armed, where cuInit went by unseen. */
    if (call->guard == NULL || vs_process_prepare() != 0) {
        call->guard = NULL;
        return;
    }
    if (atomic_load_explicit(&vs_process_page()->unclosed, memory_order_acquire) != VS_CLOSED) {
        vs_fence_close_all();
    }
    let_frees_synchronize();
    vs_lock_take(&vs_process_page()->gate);
}

void vs_capture_begun(const struct vs_capture_call *call, CUresult result)
{
    struct vs_captures *captures = table();
    CUcontext context;

    if (call->guard == NULL) {
        return;
    }
    if (result == CUDA_SUCCESS) {
        context = vs_fence_stream_context(&call->guard->driver->real, call->stream,
                                          call->twin == VS_CAPTURE_PER_THREAD);
        vs_lock_take(&captures->lock);
        if (add(captures, call->stream, call->twin, context, false) == 0) {
            captures->lost++;
            tell(captures);
        }
        vs_lock_drop(&captures->lock);
    }
    vs_lock_drop(&vs_process_page()->gate);
}

/* A capture is over: what was freed in its context meanwhile can have its fence. */
static void after_end(void)
{
    vs_fence_reopen();
    vs_fence_close_all();
}

void vs_capture_ends(struct vs_capture_call *call, const struct vs_guard *guard, CUstream stream,
                     enum vs_capture_default_stream twin)
{
    struct vs_captures *captures = table();
    uint32_t i;

    open_call(call, guard, stream, twin);
    if (call->guard == NULL || !vs_capture_active()) {
        call->guard = NULL;
        return;
    }
    vs_lock_take(&captures->lock);
    i = find(captures, stream, twin);
    call->born = i < captures->count ? captures->row[i].born : 0;
    if (call->born == 0 && captures->lost == 0) {
        call->guard = NULL;
    }
    vs_lock_drop(&captures->lock);
    if (call->guard != NULL && call->born == 0 &&
        !driver_says_capturing(&guard->driver->real, stream, twin, false)) {
        call->guard = NULL;
    }
}

void vs_capture_ended(const struct vs_capture_call *call)
{
    struct vs_captures *captures = table();
    bool over;
    uint32_t i;

    if (call->guard == NULL) {
        return;
    }
    /* With the gate none begins on this stream between the question and what it changes. */
    vs_lock_take(&vs_process_page()->gate);
    over = !driver_says_capturing(&call->guard->driver->real, call->stream, call->twin, true);
    vs_lock_take(&captures->lock);
    if (over && call->born != 0) {
        over = find_born(captures, call->born, &i);
        if (over) {
            drop(captures, i);
        }
    } else if (over && captures->lost != 0) {
        captures->lost--;
        tell(captures);
    }
    vs_lock_drop(&captures->lock);
    vs_lock_drop(&vs_process_page()->gate);
    if (over) {
        after_end();
    }
}

void vs_capture_stream_goes(struct vs_capture_call *call, const struct vs_guard *guard,
                            CUstream stream)
{
    vs_capture_ends(call, guard, stream, VS_CAPTURE_LEGACY);
}

void vs_capture_stream_gone(const struct vs_capture_call *call, CUresult result)
{
    struct vs_captures *captures = table();
    bool over;
    uint32_t i;

    if (call->guard == NULL || result != CUDA_SUCCESS || call->born == 0) {
        return; /* one of those that found no row stays: it may only have joined */
    }
    vs_lock_take(&captures->lock);
    over = find_born(captures, call->born, &i);
    if (over) {
        drop(captures, i);
    }
    vs_lock_drop(&captures->lock);
    if (over) {
        after_end();
    }
}

void vs_capture_joins(struct vs_capture_call *call, const struct vs_guard *guard, CUstream stream,
                      enum vs_capture_default_stream twin)
{
    struct vs_captures *captures = table();
    CUcontext context;

    open_call(call, guard, stream, twin);
    if (call->guard == NULL || !vs_capture_active()) {
        call->guard = NULL;
        return;
    }
    context = vs_fence_stream_context(&guard->driver->real, stream, twin == VS_CAPTURE_PER_THREAD);
    if (vs_capture_in(context)) {
        call->guard = NULL; /* nothing changes for its context */
        return;
    }
    vs_lock_take(&vs_process_page()->gate);
    vs_lock_take(&captures->lock);
    call->born = add(captures, stream, twin, context, true);
    captures->lost_joined = captures->lost_joined || call->born == 0;
    vs_lock_drop(&captures->lock);
    vs_lock_drop(&vs_process_page()->gate);
}

void vs_capture_joined(const struct vs_capture_call *call)
{
    struct vs_captures *captures = table();
    uint32_t i;

    if (call->guard == NULL || call->born == 0 ||
        driver_says_capturing(&call->guard->driver->real, call->stream, call->twin, true)) {
        return;
    }
    vs_lock_take(&captures->lock);
    if (find_born(captures, call->born, &i)) {
        drop(captures, i);
    }
    vs_lock_drop(&captures->lock);
    vs_fence_reopen(); /* what was freed meanwhile has no fence; the next submission sees to it */
}

/* The youngest row when the context began to go. */
static __thread uint32_t context_mark __attribute__((tls_model("initial-exec")));

void vs_capture_context_goes(void)
{
    context_mark = table()->born;
}

void vs_capture_context_gone(CUcontext context)
{
    struct vs_captures *captures = table();

    if (context == NULL || !vs_capture_active()) {
        return;
    }
    vs_lock_take(&captures->lock);
    for (uint32_t i = captures->count; i-- > 0 && i < captures->count;) {
        if (captures->row[i].context == (void *)context &&
            (int32_t)(captures->row[i].born - context_mark) <= 0) {
            drop(captures, i);
        }
    }
    vs_lock_drop(&captures->lock);
    vs_fence_reopen();
}
