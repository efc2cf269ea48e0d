/*
 * Stream captures: which stream-ordered calls are recorded instead of done.
 *
 * Active captures are counted per process, so that a process without one pays a single load. The
 * count may be too high (a capture that ended with its stream), which costs a query; never too low.
 */
#ifndef VS_SHIM_CAPTURE_H
#define VS_SHIM_CAPTURE_H

#include "shim/guard.h"

enum vs_capture_default_stream { VS_CAPTURE_LEGACY, VS_CAPTURE_PER_THREAD };

/* Is this call being recorded into a graph? twin: how the entry point reads stream 0. */
bool vs_capture_records(const struct vs_guard *guard, CUstream stream,
                        enum vs_capture_default_stream twin);

/* What the driver said to a call that begins a capture, or ends one. */
void vs_capture_begun(CUresult result);
void vs_capture_ended(CUresult result);

#endif
