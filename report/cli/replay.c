/*
 * vramshim replay: a trace through the real pool, over a device that is nothing but bookkeeping.
 * Says how much of what the pool holds is live, what an operation costs on this machine, and
 * whether, or in how much, the trace fits.
 */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/cli/cli.h"
#include "report/cli/replay_plan.h"
#include "report/cli/replay_run.h"
#include "report/emit.h"
#include "shim/size.h"
#include "shim/text.h"

#define SPAN_NS UINT64_C(500000000) /* of all timed runs, about */
#define MOST_RUNS 15
#define OUTPUT_BYTES 8192

struct wanted {
    bool json, fit;
    uint64_t limit; /* 0: none */
    enum vs_pool_backing backing;
    const char *path;
};

struct answer {
    struct vs_replay_plan plan;
    struct vs_replay_result tight;   /* vmm, remapping before growing */
    struct vs_replay_result shipped; /* the best of several runs */
    struct vs_replay_result limited; /* with --limit */
    uint64_t fit_bytes;
};

/* One run that must do: says why not. */
static int run(const struct wanted *wanted, struct answer *answer,
               const struct vs_pool_config *config, uint64_t cap, bool stop,
               struct vs_replay_result *result)
{
    int error = vs_replay_run(&answer->plan, config, cap, stop, result);

    if (error) {
        fprintf(stderr, "vramshim replay: %s: %s\n", wanted->path, strerror(-error));
    } else if (result->fault) {
        fprintf(stderr, "vramshim replay: %s: the pool broke a rule: %s\n", wanted->path,
                result->fault);
    }
    return error || result->fault ? -1 : 0;
}

static int time_shipped(const struct wanted *wanted, struct answer *answer,
                        const struct vs_pool_config *config, uint64_t device_bytes)
{
    uint64_t spent = 0;

    for (int i = 0; i < MOST_RUNS && (i == 0 || spent < SPAN_NS); i++) {
        struct vs_replay_result result;

        if (run(wanted, answer, config, device_bytes, false, &result)) {
            return -1;
        }
        if (i == 0 || result.ns < answer->shipped.ns) {
            answer->shipped = result;
        }
        spent += result.ns;
    }
    return 0;
}

/* The smallest cap that suffices, in pages, by bisection. */
static int find_fit(const struct wanted *wanted, struct answer *answer,
                    const struct vs_pool_config *config, uint64_t device_bytes)
{
    struct vs_replay_result result;
    uint64_t low = answer->plan.live_peak / VS_POOL_PAGE; /* one page less than can do */
    uint64_t high = device_bytes / VS_POOL_PAGE;

    if (answer->plan.live_peak % VS_POOL_PAGE == 0) {
        low--;
    }
    if (answer->shipped.failed) {
        fprintf(stderr, "vramshim replay: %s: it fits no device of up to %ju bytes\n", wanted->path,
                (uintmax_t)device_bytes);
        return -1;
    }
    if (answer->shipped.reserved_peak / VS_POOL_PAGE < high) {
        high = answer->shipped.reserved_peak / VS_POOL_PAGE;
    }
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (run(wanted, answer, config, middle * VS_POOL_PAGE, true, &result)) {
            return -1;
        }
        if (result.failed) {
            low = middle;
        } else {
            high = middle;
        }
    }
    answer->fit_bytes = high * VS_POOL_PAGE;
    return 0;
}

static int work_out(const struct wanted *wanted, struct answer *answer)
{
    uint64_t device_bytes = vs_replay_device_bytes(&answer->plan);
    struct vs_pool_config tight, shipped;

    vs_pool_config_default(&tight, VS_POOL_VMM, device_bytes);
    tight.slack_permille = 0;
    tight.slack_bytes = 0;
    vs_pool_config_default(&shipped, wanted->backing, device_bytes);
    if (run(wanted, answer, &tight, device_bytes, false, &answer->tight) ||
        time_shipped(wanted, answer, &shipped, device_bytes)) {
        return -1;
    }
    if (wanted->limit && run(wanted, answer, &shipped, wanted->limit, false, &answer->limited)) {
        return -1;
    }
    return wanted->fit ? find_fit(wanted, answer, &shipped, device_bytes) : 0;
}

static uint64_t host_each(const struct answer *answer)
{
    return answer->shipped.stats.host_bytes / answer->plan.count_peak;
}

static void print_json(const struct wanted *wanted, const struct answer *answer, struct vs_out *out)
{
    const struct vs_replay_plan *plan = &answer->plan;
    const struct vs_replay_result *shipped = &answer->shipped;
    struct vs_json json;

    vs_json_init(&json, out);
    vs_json_object(&json, NULL, false);
    vs_json_str(&json, "trace", wanted->path);
    vs_json_str(&json, "backing", wanted->backing == VS_POOL_VMM ? "vmm" : "native");
    vs_json_u64(&json, "live_peak_bytes", plan->live_peak);
    vs_json_u64(&json, "live_peak_count", plan->count_peak);
    vs_json_u64(&json, "reserved_peak_bytes", answer->tight.reserved_peak);
    vs_json_ratio(&json, "efficiency", plan->live_peak, answer->tight.reserved_peak);
    vs_json_u64(&json, "reserved_peak_default_bytes", shipped->reserved_peak);
    vs_json_ratio(&json, "efficiency_default", plan->live_peak, shipped->reserved_peak);
    vs_json_ratio(&json, "ns_per_op", shipped->ns, plan->operations);
    if (wanted->limit) {
        vs_json_u64(&json, "limit_bytes", wanted->limit);
        vs_json_bool(&json, "fits", answer->limited.failed == 0);
    }
    if (wanted->fit) {
        vs_json_u64(&json, "fit_bytes", answer->fit_bytes);
    }
    vs_json_u64(&json, "operations", plan->operations);
    vs_json_u64(&json, "skipped", plan->skipped);
    vs_json_u64(&json, "implied_frees", plan->implied);
    vs_json_u64(&json, "passed_over", plan->passed_over);
    vs_json_u64(&json, "failed", wanted->limit ? answer->limited.failed : shipped->failed);
    vs_json_u64(&json, "hits", shipped->stats.hits);
    vs_json_u64(&json, "misses", shipped->stats.misses);
    vs_json_u64(&json, "remapped_bytes", answer->tight.stats.remapped_bytes);
    vs_json_u64(&json, "remapped_default_bytes", shipped->stats.remapped_bytes);
    vs_json_u64(&json, "host_bytes", shipped->stats.host_bytes);
    vs_json_u64(&json, "host_bytes_per_allocation", host_each(answer));
    vs_json_end(&json);
    vs_out_char(out, '\n');
}

static void print_share(struct vs_out *out, uint64_t live, uint64_t reserved)
{
    vs_out_bytes(out, reserved);
    if (reserved > 0 && live <= reserved) { /* else something was refused */
        vs_out_str(out, " (");
        vs_out_ratio(out, 100 * live, reserved, 1);
        vs_out_str(out, "% live)");
    }
}

static void print_count(struct vs_out *out, uint64_t count, const char *what)
{
    if (count > 0) {
        vs_out_str(out, "; ");
        vs_out_grouped(out, count);
        vs_out_str(out, what);
    }
}

static void print_verdict(const struct wanted *wanted, const struct answer *answer,
                          struct vs_out *out)
{
    char size[VS_SIZE_TEXT];

    if (wanted->fit) {
        vs_out_str(out, "fits in ");
        vs_out_str(out, vs_size_text(size, answer->fit_bytes));
        vs_out_str(out, ", not in less\n");
    }
    if (wanted->limit) {
        vs_out_str(out, answer->limited.failed ? "does not fit in " : "fits in ");
        vs_out_str(out, vs_size_text(size, wanted->limit));
        print_count(out, answer->limited.failed, " allocations refused");
        vs_out_char(out, '\n');
    }
}

static void print_text(const struct wanted *wanted, const struct answer *answer, struct vs_out *out)
{
    const struct vs_replay_plan *plan = &answer->plan;
    const struct vs_replay_result *shipped = &answer->shipped;

    print_verdict(wanted, answer, out);
    vs_out_bytes(out, plan->live_peak);
    vs_out_str(out, " live at most, in ");
    vs_out_grouped(out, plan->count_peak);
    vs_out_str(out, " blocks; the pool needs ");
    print_share(out, plan->live_peak, answer->tight.reserved_peak);
    vs_out_str(out, "\nas shipped, ");
    vs_out_str(out, wanted->backing == VS_POOL_VMM ? "vmm: " : "native: ");
    print_share(out, plan->live_peak, shipped->reserved_peak);
    vs_out_str(out, ", ");
    vs_out_ratio(out, shipped->ns, plan->operations, 0);
    vs_out_str(out, " ns an operation\n");
    vs_out_grouped(out, plan->operations);
    vs_out_str(out, " operations");
    print_count(out, shipped->failed, " allocations refused for want of memory");
    print_count(out, plan->skipped, " skipped (frees of unknown pointers, allocations of nothing)");
    print_count(out, plan->implied, " frees put in (the address was handed out again)");
    print_count(out, plan->passed_over, " lines of other operations passed over");
    vs_out_char(out, '\n');
    vs_out_grouped(out, shipped->stats.hits);
    vs_out_str(out, " served from what the pool held, ");
    vs_out_grouped(out, shipped->stats.misses);
    vs_out_str(out, " from the device; ");
    vs_out_bytes(out, shipped->stats.remapped_bytes);
    vs_out_str(out, " remapped; ");
    vs_out_bytes(out, shipped->stats.host_bytes);
    vs_out_str(out, " of host memory\n");
}

static void parse_limit(struct wanted *wanted, const char *text, struct argp_state *state)
{
    char shown[VS_TEXT_SHOWN];
    const char *why = vs_size_parse(text, strlen(text), &wanted->limit);

    if (!why && wanted->limit == 0) {
        why = "0 would allow nothing";
    }
    if (why) {
        argp_error(state, "--limit=\"%s\" refused: %s; accepted: a size (512MiB, 8G, bytes)",
                   vs_text_escape(shown, sizeof(shown), text, strlen(text)), why);
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct wanted *wanted = state->input;
    char shown[VS_TEXT_SHOWN];

    switch (key) {
    case 'j':
        wanted->json = true;
        return 0;
    case 'f':
        wanted->fit = true;
        return 0;
    case 'l':
        parse_limit(wanted, argument, state);
        return 0;
    case 'b':
        if (strcmp(argument, "vmm") && strcmp(argument, "native")) {
            argp_error(state, "--backing=\"%s\" refused; accepted: vmm, native",
                       vs_text_escape(shown, sizeof(shown), argument, strlen(argument)));
        }
        wanted->backing = argument[0] == 'v' ? VS_POOL_VMM : VS_POOL_NATIVE;
        return 0;
    case ARGP_KEY_ARG:
        if (wanted->path) {
            argp_error(state, "one trace at a time");
        }
        wanted->path = argument;
        return 0;
    case ARGP_KEY_END:
        if (!wanted->path) {
            argp_error(state, "no trace is named");
        }
        if (wanted->fit && wanted->limit) {
            argp_error(state, "--limit and --fit exclude each other");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int vs_cli_replay(int argc, char **argv)
{
    static const struct argp_option accepted[] = {
        {"json", 'j', NULL, 0, "One JSON object", 0},
        {"limit", 'l', "SIZE", 0, "Say whether the trace fits under this cap", 0},
        {"fit", 'f', NULL, 0, "Find the smallest cap that the trace fits under", 0},
        {"backing", 'b', "vmm|native", 0, "The backing of the shipped policy (vmm)", 0},
        {NULL, 0, NULL, 0, NULL, 0},
    };
    static const struct argp argp = {
        .options = accepted,
        .parser = parse,
        .args_doc = "TRACE",
        .doc = "Runs an allocation trace through the pool on a device that is only simulated, and "
               "says how much memory it takes.\vA trace is CSV, plain or gzip: op,ptr,size,stream "
               "with i (live before), a (allocation), f (free); other letters are passed over. "
               "Pointers are hex, sizes bytes.\n\nThe first figure is of the vmm backing with "
               "memory remapped before more is taken; the second of the policy as shipped.",
    };
    static struct answer answer;
    static char memory[OUTPUT_BYTES + 1];
    struct wanted wanted = {.backing = VS_POOL_VMM};
    char message[VS_TRACE_MESSAGE];
    struct vs_out out;
    int failed;

    argp_parse(&argp, argc, argv, 0, NULL, &wanted);
    if (vs_replay_plan_read(&answer.plan, wanted.path, message)) {
        fprintf(stderr, "vramshim replay: %s\n", message);
        return VS_CLI_FAILURE;
    }
    failed = work_out(&wanted, &answer);
    if (!failed) {
        vs_out_to_memory(&out, memory, OUTPUT_BYTES);
        if (wanted.json) {
            print_json(&wanted, &answer, &out);
        } else {
            print_text(&wanted, &answer, &out);
        }
        fputs(memory, stdout);
    }
    vs_replay_plan_fini(&answer.plan);
    return failed ? VS_CLI_FAILURE : 0;
}
