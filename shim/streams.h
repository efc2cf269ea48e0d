/*
 * Streams: which of them have a number in which pool, for memory that is freed in their order.
 *
 * A stream gets a number in an arena's pool when memory is first taken or freed in its order there,
 * and keeps it until it is destroyed. Its home is the arena of its own context (of a green
 * context's stream, the primary's); memory of another context or device may be freed on it too, and
 * then it has a number in that arena as well. Default streams are told apart by the current
 * context, those of threads by the thread. Where there is no number to be had, the driver serves.
 *
 * A free that wants a fence before the stream's next work (vs_pool_stream_open) is announced: the
 * count of closings (process.h) changes, so that every thread's next submission looks whether it is
 * to the stream. While nothing is announced, submissions cost what they did.
 *
 * The driver must know context events (12.5): late fences of default streams, and of streams that
 * are no more, are such.
 *
 * streams.c gives numbers and finds them, stream_ends.c takes them back, stream_learn.c has what
 * the program itself knows of streams' work, stream_fences.c the fences that pools ask for. Any
 * thread may call any of it, with no lock held, unless it says otherwise.
 */
#ifndef VS_SHIM_STREAMS_H
#define VS_SHIM_STREAMS_H

#include "shim/guard.h"
#include "shim/process.h"

struct vs_arena;

/* A stream in an arena, which is held. */
struct vs_stream_ref {
    struct vs_arena *arena;
    uint32_t number;
};

/* Has any stream ever had a number? */
static inline bool vs_streams_used(void)
{
    return atomic_load_explicit(&vs_process_page()->streams_used, memory_order_relaxed);
}

/* The stream in its home, which is to be left. give: a number, where it has none and the home is
 * the arena of a primary context. False: it has none. */
bool vs_streams_home(const struct vs_guard *guard, CUstream stream, bool per_thread, bool give,
                     struct vs_stream_ref *ref);

/* The stream's number in an arena that is held, given where it has none. 0: there is none to be
 * had. */
uint32_t vs_streams_number(const struct vs_guard *guard, struct vs_arena *arena, CUstream stream,
                           bool per_thread);

/* Memory was freed in the order of a stream: announces that, where it wants a fence. The arena is
 * held. */
void vs_streams_freed(struct vs_arena *arena, uint32_t number);

/* Work is about to be submitted to a stream: frees on it get their fence. */
void vs_streams_close(const struct vs_guard *guard, CUstream stream, bool per_thread);

/* Is there any stream whose frees want one? */
static inline bool vs_streams_announced(void)
{
    return atomic_load_explicit(&vs_process_page()->streams_announced, memory_order_acquire) != 0;
}

static inline void vs_streams_submit(const struct vs_guard *guard, CUstream stream, bool per_thread)
{
    if (__builtin_expect(vs_streams_announced(), 0)) {
        vs_streams_close(guard, stream, per_thread);
    }
}

/* Frees on all streams get their fence: a capture is about to begin. */
void vs_streams_close_all(void);

/*
 * What was freed on a stream up to a moment. Taken before the stream's work is recorded or waited
 * for by the program; told afterwards, where that succeeded.
 */
struct vs_stream_mark {
    struct vs_arena *arena; /* the stream's home, not held; NULL: there is nothing to tell */
    uint64_t identity;
    uint32_t number;
    uint64_t mark;
};

void vs_streams_mark(const struct vs_guard *guard, CUstream stream, bool per_thread,
                     struct vs_stream_mark *mark);
/* Before the host asks for a stream, or waits for it. */
void vs_streams_mark_asked(const struct vs_guard *guard, CUstream stream, bool per_thread,
                           struct vs_stream_mark *mark);
/* The host has seen the stream's work up to the mark pass. */
void vs_streams_seen(const struct vs_stream_mark *mark);
/* The program made this stream wait for it. */
void vs_streams_after(const struct vs_guard *guard, CUstream waiter, bool per_thread,
                      const struct vs_stream_mark *mark);

/* The same of all streams of a context (NULL: the current one), around a wait for all of it. */
struct vs_stream_marks {
    struct vs_arena *arena;
    uint64_t identity;
    uint64_t known;    /* a bit each: streams with a mark */
    uint64_t mark[64]; /* by number - 1 */
};

void vs_streams_marks(const struct vs_guard *guard, CUcontext context,
                      struct vs_stream_marks *marks);
void vs_streams_all_seen(const struct vs_stream_marks *marks);

/* Before the driver destroys a stream, or a green context with all of its streams. */
void vs_streams_stream_goes(CUstream stream);
void vs_streams_green_goes(CUgreenCtx green);

/* Around the end of a context whose streams may be known to other contexts' arenas. gone: it ended;
 * else it did not, and its streams are what they were. */
void vs_streams_context_goes(CUcontext context);
void vs_streams_context_gone(CUcontext context, bool gone);

/* The arena ends, and its context with it: nobody else is in it any more. */
void vs_streams_arena_gone(struct vs_arena *arena);

/* The ops of pool/ops.h: 0, positive, or -EIO with *error set to the driver's code. */
int vs_stream_fence_record(struct vs_arena *arena, uint32_t number, uint32_t fence,
                           CUresult *error);
int vs_stream_fence_order(struct vs_arena *arena, uint32_t waiter, uint32_t number, uint32_t fence,
                          CUresult *error);
int vs_stream_fence_query(struct vs_arena *arena, uint32_t number, uint32_t fence, CUresult *error);
int vs_stream_fence_wait(struct vs_arena *arena, uint32_t number, uint32_t fence, bool patient,
                         CUresult *error);

#endif
