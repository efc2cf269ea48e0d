/*
 * Stream captures: which are active, and where.
 *
 * While a stream of a context captures, a context event would invalidate the capture; while any
 * captures in the process, plain allocations may be illegal. And a stream-ordered call on a
 * capturing stream is recorded instead of done. So active captures are counted for the process (one
 * load where there is none) and kept in a table by stream and context.
 *
 * Exact: every way to begin a capture, its end by cuStreamEndCapture (the driver is asked
 * afterwards whether the stream still captures, so failed ends count where they ended it), by the
 * end of its stream and of its context. A stream of another context that joins a capture counts as
 * a capture in that context until no capture is active. Conservative: a capture whose context the
 * driver does not tell, or that finds the table full, counts in every context.
 */
#ifndef VS_SHIM_CAPTURE_H
#define VS_SHIM_CAPTURE_H

#include "shim/guard.h"
#include "shim/process.h"

enum vs_capture_default_stream { VS_CAPTURE_LEGACY, VS_CAPTURE_PER_THREAD };

/* Is this call being recorded into a graph? twin: how the entry point reads stream 0. */
bool vs_capture_records(const struct vs_guard *guard, CUstream stream,
                        enum vs_capture_default_stream twin);

/* Is any capture active in the process? */
static inline bool vs_capture_active(void)
{
    return __builtin_expect(
        atomic_load_explicit(&vs_process_page()->active_captures, memory_order_relaxed) != 0, 0);
}

/* Is one active in this context, or may be? With page->gate held none begins meanwhile. */
bool vs_capture_in(CUcontext context);

/* A call about captures, from before the driver's answer to after it. */
struct vs_capture_call {
    const struct vs_guard *guard; /* NULL: nothing is to be done */
    CUstream stream;
    enum vs_capture_default_stream twin;
    uint32_t born; /* of the capture that may end, or the mark that joining set; 0: none */
};

/* Around every call that begins a capture: open epochs get their fences first, and no context event
 * is recorded meanwhile. */
void vs_capture_begins(struct vs_capture_call *call, const struct vs_guard *guard, CUstream stream,
                       enum vs_capture_default_stream twin);
void vs_capture_begun(const struct vs_capture_call *call, CUresult result);

/* Around every call that may end one. */
void vs_capture_ends(struct vs_capture_call *call, const struct vs_guard *guard, CUstream stream,
                     enum vs_capture_default_stream twin);
void vs_capture_ended(const struct vs_capture_call *call);

/* Around the end of a stream. */
void vs_capture_stream_goes(struct vs_capture_call *call, const struct vs_guard *guard,
                            CUstream stream);
void vs_capture_stream_gone(const struct vs_capture_call *call, CUresult result);

/* Around a stream's wait for an event, by which it may join a capture. */
void vs_capture_joins(struct vs_capture_call *call, const struct vs_guard *guard, CUstream stream,
                      enum vs_capture_default_stream twin);
void vs_capture_joined(const struct vs_capture_call *call);

/* Around the end of a context, on one thread: its captures are gone with it, but not those of a new
 * context that got its handle. */
void vs_capture_context_goes(void);
void vs_capture_context_gone(CUcontext context);

#endif
