/*
 * Where the report goes (see report.h): the targets claimed at cuInit, and writing them at the end.
 *
 * Nothing is written by a process that has not claimed: a forked child has its parent's memory, but
 * not its targets. Descriptor 2 is used only while it is what it was at the claim.
 */
#include "report/report.h"

#include <string.h>

#include "report/document.h"
#include "report/pattern.h"
#include "report/quiet.h"
#include "report/self.h"
#include "report/sink.h"
#include "report/sys.h"

static struct {
    int pid; /* of the process that claimed; 0: none has */
    void (*say)(const char *line);
    struct vs_snapshot *snapshot;
    bool on_stderr;
    size_t sink_count;
    bool json[VS_PATTERN_ITEMS];
    struct vs_sink sink[VS_PATTERN_ITEMS];
    char line[VS_PATTERN_PATH + 256];
    char buffer[16384];
} state;

static void say(const char *before, const char *path, const char *between, int error,
                const char *after)
{
    struct vs_out out;
    if (!state.say) {
        return;
    }
    vs_out_to_memory(&out, state.line, sizeof state.line - 1);
    vs_out_str(&out, before);
    vs_out_foreign(&out, path);
    vs_out_str(&out, between);
    if (error) {
        vs_out_str(&out, vs_sink_error(error));
    }
    vs_out_str(&out, after);
    state.say(state.line);
}

static void stand_in(const char *path, int error)
{
    say("VRAMSHIM_REPORT: cannot write ", path, ": ", error, "; the report goes to stderr instead");
    state.on_stderr = true;
}

/* Makes path absolute within the present folder. 0 or -errno. */
static int make_absolute(char path[VS_PATTERN_PATH])
{
    static char folder[VS_PATTERN_PATH];
    if (path[0] == '/') {
        return 0;
    }
    long length = vs_sys_getcwd(folder, sizeof folder);
    if (length < 0) {
        return (int)length;
    }
    if (folder[0] != '/') { /* "(unreachable)/…" */
        return -ENOENT;
    }
    size_t relative = strlen(path);
    length--;
    if ((size_t)length + 1 + relative >= VS_PATTERN_PATH) {
        return -ENAMETOOLONG;
    }
    memmove(path + length + 1, path, relative + 1);
    memcpy(path, folder, (size_t)length);
    path[length] = '/';
    return 0;
}

static bool named_before(const char *path)
{
    for (size_t i = 0; i < state.sink_count; i++) {
        if (strcmp(state.sink[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

static void claim_path(const struct vs_pattern_item *item)
{
    struct vs_sink *sink = &state.sink[state.sink_count];
    const struct vs_process *process = &vs_ledger_self()->process;
    struct vs_pattern_facts facts = {state.pid, process->host, process->executable};

    int rc = vs_pattern_expand(item, &facts, sink->path);
    if (rc == 0) {
        rc = make_absolute(sink->path);
    }
    if (rc == 0 && named_before(sink->path)) {
        return;
    }
    if (rc == 0) {
        rc = vs_sink_claim(sink, state.pid, state.sink, state.sink_count);
    }
    if (rc < 0) {
        stand_in(sink->path, rc);
    }
    if (rc != 0) {
        return;
    }
    state.json[state.sink_count++] = item->type == VS_PATTERN_JSON;
}

static void forget_claims(void)
{
    bool own = state.pid == vs_sys_getpid();
    for (size_t i = 0; i < state.sink_count; i++) {
        vs_sink_release(&state.sink[i], own);
    }
    state.sink_count = 0;
    state.on_stderr = false;
    state.pid = 0;
}

void vs_report_claim(const char *spec, void (*say_line)(const char *line))
{
    struct vs_pattern_item item[VS_PATTERN_ITEMS];
    size_t count = 0;

    forget_claims();
    state.say = say_line;
    if (!vs_ledger_self()) {
        return;
    }
    if (!state.snapshot) {
        state.snapshot = vs_sys_map(sizeof *state.snapshot);
    }
    state.pid = vs_sys_getpid();
    vs_quiet_remember_stderr();
    if (vs_pattern_parse(spec, item, &count) != NULL) {
        state.on_stderr = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (item[i].type == VS_PATTERN_STDERR) {
            state.on_stderr = true;
        } else if (item[i].type != VS_PATTERN_NONE) {
            claim_path(&item[i]);
        }
    }
}

static int write_sink(struct vs_sink *sink, bool json)
{
    struct vs_out out;
    int fd = vs_sink_begin(sink, state.pid);
    if (fd < 0) {
        vs_sink_abandon(sink);
        return fd;
    }
    vs_out_to_fd(&out, fd, state.buffer, sizeof state.buffer);
    if (json) {
        vs_document_json(&out, state.snapshot);
    } else {
        vs_document_text(&out, state.snapshot);
    }
    int rc = vs_out_flush(&out);
    if (rc < 0) {
        vs_sink_abandon(sink);
        return rc;
    }
    return vs_sink_commit(sink);
}

void vs_report_write(enum vs_end end, int exit_code, const struct vs_report_option *options,
                     size_t option_count)
{
    if (state.pid == 0 || state.pid != vs_sys_getpid() || !state.snapshot) {
        return;
    }
    if (state.sink_count == 0 && !state.on_stderr) {
        return;
    }
    if (!vs_snapshot_take(state.snapshot)) {
        return;
    }
    state.snapshot->end = end;
    state.snapshot->exit_code = exit_code;
    state.snapshot->options = options;
    state.snapshot->option_count = option_count;

    for (size_t i = 0; i < state.sink_count; i++) {
        int rc = write_sink(&state.sink[i], state.json[i]);
        if (rc < 0) {
            stand_in(state.sink[i].path, rc);
        }
    }
    if (state.on_stderr && vs_quiet_is_stderr()) {
        struct vs_out out;
        vs_out_to_fd(&out, 2, state.buffer, sizeof state.buffer);
        vs_document_text(&out, state.snapshot);
        vs_out_flush(&out);
    }
}

void vs_report_reclaim(void)
{
    if (state.pid != vs_sys_getpid()) {
        return;
    }
    /* Where it can't be had again, the report will be written without a claim. */
    for (size_t i = 0; i < state.sink_count; i++) {
        if (state.sink[i].fd < 0) {
            vs_sink_claim(&state.sink[i], state.pid, state.sink, i);
        }
    }
}
