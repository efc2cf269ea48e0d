/*
 * Which streams submit work: for the question whether a barrier across streams would cost anything
 * (vs_fences_one_stream, vs_fence_stream_seen of fence.h), and whose a stream is.
 */
#ifndef VS_SHIM_FENCE_STREAMS_H
#define VS_SHIM_FENCE_STREAMS_H

#include "shim/driver.h"

/* The context that owns a stream: of a green context's stream, the primary one. NULL where the
 * driver does not tell. Legal during every capture. */
CUcontext vs_fence_stream_context(const struct vs_entries *real, CUstream stream, bool per_thread);
/* The same, and *green is the green context; NULL: none. */
CUcontext vs_fence_stream_owner(const struct vs_entries *real, CUstream stream, bool per_thread,
                                CUgreenCtx *green);

/* A stream is about to go: its handle may come back elsewhere. */
void vs_fence_stream_goes(CUstream stream);

#endif
