/*
 * A trace made ready to be replayed (see replay_plan.h).
 */
#include "report/cli/replay_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define uthash_fatal(text) abort() /* out of host memory, in a command */
#include <uthash.h>

struct block {
    uint64_t address;
    uint64_t bytes;
    uint32_t slot;
    UT_hash_handle hh;
};

struct reader {
    struct vs_replay_plan *plan;
    struct block *live;
    uint64_t live_bytes, live_count;
    uint32_t *spare; /* slots that are free again, the last one goes first */
    size_t spare_count, spare_room;
};

static FILE *nameless_file(void)
{
    const char *folder = getenv("TMPDIR");
    int fd = open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? tmpfile() : fdopen(fd, "w+b");

    if (!file && fd >= 0) {
        close(fd);
    }
    return file;
}

static bool put(struct reader *reader, uint32_t slot, uint64_t bytes)
{
    const struct vs_replay_op op = {.bytes = bytes, .slot = slot};

    reader->plan->operations++;
    return fwrite(&op, sizeof(op), 1, reader->plan->file) == 1;
}

static bool release(struct reader *reader, struct block *block)
{
    if (reader->spare_count == reader->spare_room) {
        size_t room = reader->spare_room ? 2 * reader->spare_room : 256;
        uint32_t *grown = realloc(reader->spare, room * sizeof(*grown));

        if (!grown) {
            return false;
        }
        reader->spare = grown;
        reader->spare_room = room;
    }
    reader->spare[reader->spare_count++] = block->slot;
    reader->live_bytes -= block->bytes;
    reader->live_count--;
    return put(reader, block->slot, 0);
}

static bool hold(struct reader *reader, const struct vs_trace_row *row)
{
    struct vs_replay_plan *plan = reader->plan;
    struct block *block = calloc(1, sizeof(*block));

    if (!block || (reader->spare_count == 0 && plan->slots == UINT32_MAX)) {
        free(block);
        return false;
    }
    block->address = row->address;
    block->bytes = row->bytes;
    block->slot = reader->spare_count > 0 ? reader->spare[--reader->spare_count] : plan->slots++;
    HASH_ADD(hh, reader->live, address, sizeof(block->address), block);
    plan->allocations++;
    reader->live_bytes += row->bytes;
    reader->live_count++;
    if (reader->live_bytes > plan->live_peak) {
        plan->live_peak = reader->live_bytes;
    }
    if (reader->live_count > plan->count_peak) {
        plan->count_peak = reader->live_count;
    }
    return put(reader, block->slot, row->bytes);
}

static bool take_row(struct reader *reader, const struct vs_trace_row *row)
{
    struct block *known;
    bool fine = true;

    HASH_FIND(hh, reader->live, &row->address, sizeof(row->address), known);
    if (row->kind != VS_TRACE_FREE && (row->bytes == 0 || row->address == 0)) {
        reader->plan->skipped++;
        return true;
    }
    if (!known && row->kind == VS_TRACE_FREE) {
        reader->plan->skipped++;
        return true;
    }
    if (known) {
        HASH_DEL(reader->live, known);
        fine = release(reader, known);
        free(known);
        if (row->kind == VS_TRACE_FREE) {
            return fine;
        }
        reader->plan->implied++;
    }
    return fine && hold(reader, row);
}

static int read_rows(struct reader *reader, struct vs_trace *trace, const char *path,
                     char message[VS_TRACE_MESSAGE])
{
    struct vs_trace_row row;
    int got;

    while ((got = vs_trace_next(trace, &row)) > 0) {
        if (row.bytes > INT64_MAX - reader->live_bytes) {
            snprintf(message, VS_TRACE_MESSAGE, "%s: the live bytes do not fit in 63 bits", path);
            return -1;
        }
        if (!take_row(reader, &row)) {
            snprintf(message, VS_TRACE_MESSAGE, "%s: keeping its operations: %s", path,
                     strerror(errno));
            return -1;
        }
    }
    if (got < 0) {
        memcpy(message, vs_trace_message(trace), VS_TRACE_MESSAGE);
        return -1;
    }
    reader->plan->passed_over = vs_trace_passed_over(trace);
    if (reader->plan->allocations == 0) {
        snprintf(message, VS_TRACE_MESSAGE,
                 "%s: no allocation in %ju lines; accepted: lines of op,ptr,size,stream with op i "
                 "or a",
                 path, (uintmax_t)vs_trace_lines(trace));
        return -1;
    }
    if (fflush(reader->plan->file)) {
        snprintf(message, VS_TRACE_MESSAGE, "%s: keeping its operations: %s", path,
                 strerror(errno));
        return -1;
    }
    return 0;
}

int vs_replay_plan_read(struct vs_replay_plan *plan, const char *path,
                        char message[VS_TRACE_MESSAGE])
{
    struct reader reader = {.plan = plan};
    struct vs_trace *trace = vs_trace_open(path, message);
    struct block *block, *next;
    int result;

    memset(plan, 0, sizeof(*plan));
    if (!trace) {
        return -1;
    }
    plan->file = nameless_file();
    if (!plan->file) {
        snprintf(message, VS_TRACE_MESSAGE, "a temporary file: %s", strerror(errno));
        vs_trace_close(trace);
        return -1;
    }
    result = read_rows(&reader, trace, path, message);
    HASH_ITER(hh, reader.live, block, next)
    {
        HASH_DEL(reader.live, block);
        free(block);
    }
    free(reader.spare);
    vs_trace_close(trace);
    if (result) {
        vs_replay_plan_fini(plan);
    }
    return result;
}

void vs_replay_plan_fini(struct vs_replay_plan *plan)
{
    if (plan->file) {
        fclose(plan->file);
        plan->file = NULL;
    }
}
