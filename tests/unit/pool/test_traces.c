/*
 * usage: test_traces [FOLDER [AVERAGE [EACH]]]
 *
 * The traces of a folder (*.csv, *.csv.gz), by the replay of the command: how much of what the pool
 * holds is live, and that each fits a cap of 3% over its live peak. Without a folder: skipped.
 */
#include "report/cli/replay_run.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EACH 0.98
#define AVERAGE 0.99
#define SKIPPED 77

static int is_trace(const struct dirent *entry)
{
    const char *name = entry->d_name;
    size_t length = strlen(name);

    return (length > 4 && strcmp(name + length - 4, ".csv") == 0) ||
           (length > 7 && strcmp(name + length - 7, ".csv.gz") == 0);
}

static bool run(const struct vs_replay_plan *plan, const char *what, bool tight, uint64_t cap,
                struct vs_replay_result *result)
{
    struct vs_pool_config config;
    int error;

    vs_pool_config_default(&config, VS_POOL_VMM, vs_replay_device_bytes(plan));
    if (tight) {
        config.slack_permille = 0;
        config.slack_bytes = 0;
    }
    error = vs_replay_run(plan, &config, cap, false, result);
    if (error || result->fault || result->failed) {
        printf("%s: error %d, %ju refused, %s\n", what, error, (uintmax_t)result->failed,
               result->fault ? result->fault : "no rule broken");
        return false;
    }
    return true;
}

/* The efficiency of one trace; 0 where it failed. */
static double one(const char *folder, const char *name)
{
    char path[4096], message[VS_TRACE_MESSAGE];
    struct vs_replay_plan plan;
    struct vs_replay_result tight, shipped, capped;
    uint64_t device, cap;
    double share = 0;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (vs_replay_plan_read(&plan, path, message)) {
        printf("%s\n", message);
        return 0;
    }
    device = vs_replay_device_bytes(&plan);
    cap = plan.live_peak + plan.live_peak * 3 / 100;
    if (run(&plan, name, true, device, &tight) && run(&plan, name, false, device, &shipped) &&
        run(&plan, name, false, cap, &capped)) {
        share = (double)plan.live_peak / (double)tight.reserved_peak;
        printf("%s: %.4f, as shipped %.4f, %.0f ns an operation\n", name, share,
               (double)plan.live_peak / (double)shipped.reserved_peak,
               (double)shipped.ns / (double)plan.operations);
    }
    vs_replay_plan_fini(&plan);
    return share;
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int count, failed = 0;
    double sum = 0, average = argc > 2 ? strtod(argv[2], NULL) : AVERAGE;
    double each = argc > 3 ? strtod(argv[3], NULL) : EACH;

    if (argc < 2 || argv[1][0] == '\0') {
        printf("no folder of traces is given (meson setup -Dtraces=FOLDER): skipped\n");
        return SKIPPED;
    }
    count = scandir(argv[1], &entries, is_trace, alphasort);
    if (count < 0) {
        perror(argv[1]);
        return 1;
    }
    if (count == 0) {
        printf("%s: no traces there: skipped\n", argv[1]);
        return SKIPPED;
    }
    for (int i = 0; i < count; i++) {
        double share = one(argv[1], entries[i]->d_name);

        failed |= share < each;
        sum += share;
        free(entries[i]);
    }
    free(entries);
    printf("%d traces, %.4f on average\n", count, sum / count);
    return failed || sum / count < average;
}
