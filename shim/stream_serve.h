/*
 * Stream-ordered memory from the arenas: what the hooks of cuMemAllocAsync and its like ask first.
 *
 * Served is memory in the order of a stream that does not capture, of a device's primary context
 * (or a green one), from a pool that is stood in for (mempool.h), while the stream can have a
 * number (streams.h). The driver does the rest, and answers what is refused for its arguments.
 */
#ifndef VS_SHIM_STREAM_SERVE_H
#define VS_SHIM_STREAM_SERVE_H

#include "shim/guard.h"

struct vs_stream_request {
    size_t bytes;
    const CUmemoryPool *pool; /* that the program named; NULL: none */
    CUstream stream;
    bool per_thread;
};

/* False: the driver is to be asked. Else *result is the answer, and it has been counted. */
bool vs_stream_alloc(const struct vs_guard *guard, const struct vs_stream_request *request,
                     CUdeviceptr *address, CUresult *result);

/* What the driver answered instead. */
void vs_stream_count(const struct vs_guard *guard, const struct vs_stream_request *request,
                     const CUdeviceptr *address, CUresult result);

/* The same for a free, on a stream that does not capture, of what an arena claims: whether it was
 * taken in the order of a stream or not, the driver takes either. */
CUresult vs_stream_free(const struct vs_guard *guard, CUdeviceptr address, CUstream stream,
                        bool per_thread);

#endif
