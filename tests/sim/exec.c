/*
 * Execution: the graph of ops, the run queue, the workers. See sim.h for the model.
 *
 * An op becomes ready when its last dependency is done; markers (SIM_W_NOP) then complete on the
 * spot, all else goes through a worker. A worker that runs out of work stays for a while; a new one
 * is started whenever work is ready and nobody idles, so ops that block (spinning kernels, host
 * functions, waits for a value) never hold up others.
 */
#include "sim.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static struct sim_op *queue_first, **queue_end = &queue_first;
static pthread_cond_t work_cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t done_cond = PTHREAD_COND_INITIALIZER;
static pthread_cond_t freed_cond = PTHREAD_COND_INITIALIZER;
static unsigned idle, waiting;
static uint64_t serial;
static struct sim_op *spare_ops;

struct sim_op *sim_op_ref(struct sim_op *op)
{
    if (op != NULL)
        op->refs++;
    return op;
}

void sim_op_unref(struct sim_op *op)
{
    if (op == NULL || --op->refs > 0)
        return;
    sim_clock_unref(op->clock);
    free(op->dependents);
    op->next = spare_ops;
    spare_ops = op;
}

struct sim_op *sim_op_new(CUcontext ctx, CUstream stream, unsigned slot, struct sim_work *work)
{
    struct sim_op *op = spare_ops;
    if (op != NULL)
        spare_ops = op->next;
    else
        op = malloc(sizeof *op);
    if (op == NULL)
        abort();
    *op = (struct sim_op){.refs = 2, /* the caller's, and the graph's until it is done */
                          .ctx = ctx,
                          .stream = stream,
                          .slot = slot,
                          .work = *work,
                          .waits = 1, /* until sim_op_start */
                          .serial = ++serial};
    if (slot != 0)
        op->tick = sim_slot_tick(slot);
    sim_clock_join(&op->clock, sim_host_clock());
    ctx->pending++;
    return op;
}

void sim_op_after(struct sim_op *op, struct sim_op *dependency)
{
    if (dependency == NULL || dependency == op)
        return;
    if (dependency->done) {
        sim_clock_join(&op->clock, dependency->clock);
        return;
    }
    if (dependency->dependent_count == dependency->dependent_room) {
        dependency->dependent_room =
            dependency->dependent_room == 0 ? 2 : 2 * dependency->dependent_room;
        dependency->dependents = realloc(
            dependency->dependents, dependency->dependent_room * sizeof dependency->dependents[0]);
        if (dependency->dependents == NULL)
            abort();
    }
    dependency->dependents[dependency->dependent_count++] = op;
    op->waits++;
}

/* Completes op and every marker that becomes ready by it. A list instead of recursion: a chain of
 * markers can be long. */
static void complete(struct sim_op *op);

static void settle(struct sim_op *op, struct sim_op ***completed_end)
{
    if (--op->waits > 0)
        return;
    op->ready = true;
    if (op->slot != 0)
        sim_clock_tick(&op->clock, op->slot, op->tick);
    if (op->work.kind == SIM_W_NOP) {
        op->next = NULL;
        **completed_end = op;
        *completed_end = &op->next;
    } else {
        op->next = NULL;
        *queue_end = op;
        queue_end = &op->next;
    }
}

static void *worker(void *unused);

static void wake_workers(void)
{
    unsigned ready = 0;
    for (const struct sim_op *op = queue_first; op != NULL; op = op->next)
        ready++;
    unsigned woken = ready < idle ? ready : idle;
    for (unsigned i = 0; i < woken; i++)
        pthread_cond_signal(&work_cond);
    for (unsigned i = woken; i < ready; i++) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 2u << 20);
        /* The program's signals are for the program's threads. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_t thread;
        int failed = pthread_create(&thread, &attributes, worker, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        if (failed) {
            sim_say("cannot start a worker thread");
            break;
        }
        idle++; /* counted before it runs, so that nobody starts another for the same op */
    }
}

static void complete(struct sim_op *first)
{
    struct sim_op *list = first, **end = &first->next;
    first->next = NULL;
    uint64_t now = sim_now_ns();
    for (struct sim_op *op; (op = list) != NULL;) {
        op->done = true;
        op->done_ns = now;
        for (unsigned i = 0; i < op->dependent_count; i++) {
            sim_clock_join(&op->dependents[i]->clock, op->clock);
            settle(op->dependents[i], &end);
        }
        list = op->next; /* after settling: it may have been appended to */
        op->dependent_count = 0;
        op->ctx->pending--;
        op->ctx->unseen = true;
        sim_work_fini(&op->work);
        if (op->stream != NULL)
            sim_stream_op_done(op->stream, op);
        sim_op_unref(op);
    }
    if (waiting > 0)
        pthread_cond_broadcast(&done_cond);
}

static void *worker(void *unused)
{
    (void)unused;
    sim_lock();
    for (;;) {
        while (queue_first == NULL) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += 2;
            if (pthread_cond_timedwait(&work_cond, &sim_mutex, &until) == ETIMEDOUT &&
                queue_first == NULL) {
                idle--;
                sim_unlock();
                return NULL;
            }
        }
        struct sim_op *op = queue_first;
        queue_first = op->next;
        if (queue_first == NULL)
            queue_end = &queue_first;
        idle--;
        op->running = true;
        bool skip = op->ctx->sticky != CUDA_SUCCESS && op->work.kind != SIM_W_CALLBACK;
        sim_unlock();
        if (!skip) {
            if (sim_config.latency_us > 0) {
                struct timespec latency = {sim_config.latency_us / 1000000,
                                           (long)(sim_config.latency_us % 1000000) * 1000};
                nanosleep(&latency, NULL);
            }
            sim_work_run(op);
        }
        sim_lock();
        idle++;
        complete(op);
        /* One of the ready ones is ours. */
        if (queue_first != NULL && queue_first->next != NULL)
            wake_workers();
    }
}

void sim_op_start(struct sim_op *op)
{
    struct sim_op *marker = NULL, **end = &marker;
    settle(op, &end);
    if (marker != NULL)
        complete(marker);
    if (queue_first != NULL)
        wake_workers();
    sim_op_unref(op);
}

void sim_op_wait(struct sim_op *op)
{
    if (op == NULL)
        return;
    sim_op_ref(op);
    while (!op->done) {
        waiting++;
        pthread_cond_wait(&done_cond, &sim_mutex);
        waiting--;
    }
    sim_host_learns(op->clock);
    sim_op_unref(op);
}

void sim_exec_fault(struct sim_op *op, CUresult error)
{
    if (op->ctx->sticky == CUDA_SUCCESS)
        op->ctx->sticky = error;
}

struct sim_op *sim_ctx_marker(CUcontext ctx)
{
    struct sim_work nop = {.kind = SIM_W_NOP, .what = "marker"};
    struct sim_op *op = sim_op_new(ctx, NULL, 0, &nop);
    sim_op_ref(op);
    sim_clock_join(&op->clock, ctx->retired);
    sim_op_after(op, ctx->null_stream->last);
    sim_op_after(op, ctx->barrier);
    for (CUstream stream = ctx->streams.first; stream != NULL; stream = stream->next)
        sim_op_after(op, stream->last);
    sim_op_start(op);
    return op;
}

void sim_ctx_wait_all(CUcontext ctx)
{
    if (ctx == NULL || ctx->magic != SIM_MAGIC_CTX || (ctx->pending == 0 && !ctx->unseen))
        return;
    bool idle_now = ctx->pending == 0;
    struct sim_op *marker = sim_ctx_marker(ctx);
    sim_op_wait(marker);
    sim_op_unref(marker);
    if (idle_now)
        ctx->unseen = false;
}

void sim_ctx_wait_to_free(CUcontext ctx)
{
    if (ctx == NULL || ctx->magic != SIM_MAGIC_CTX)
        return;
    unsigned long long id = ctx->id;
    ctx->freeing++;
    sim_ctx_wait_all(ctx);
    if (ctx->magic == SIM_MAGIC_CTX && ctx->id == id)
        ctx->freeing--;
    pthread_cond_broadcast(&freed_cond);
}

void sim_ctx_wait_for_frees(CUcontext ctx)
{
    ctx = ctx->owner;
    while (ctx->magic == SIM_MAGIC_CTX && ctx->freeing > 0)
        pthread_cond_wait(&freed_cond, &sim_mutex);
}
