/*
 * vramshim: the command. Finds the verb in a table and hands the rest of the arguments to it.
 */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/cli/cli.h"
#include "shim/nearest.h"

/* argp looks for this symbol in the program: it must not be hidden. */
__attribute__((visibility("default"))) const char *argp_program_version = "vramshim " VS_VERSION;

struct verb {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct verb verbs[] = {
    {"options", "list the options, and check those of the present environment", vs_cli_options},
    {"replay", "run an allocation trace through the pool, without a GPU", vs_cli_replay},
};

#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

/* Ends the program: the nearest verb if there is one near, else all of them. */
static _Noreturn void refuse(const char *name)
{
    size_t length = strlen(name);
    unsigned least = ~0U;
    const char *nearest = "";

    for (size_t i = 0; i < VERB_COUNT; i++) {
        unsigned distance = vs_nearest_distance(name, length, verbs[i].name, strlen(verbs[i].name));

        if (distance < least) {
            least = distance;
            nearest = verbs[i].name;
        }
    }
    if (least <= length / 2) {
        fprintf(stderr, "vramshim: unknown verb '%s'; nearest: %s\n", name, nearest);
    } else {
        fprintf(stderr, "vramshim: unknown verb '%s'; verbs are:", name);
        for (size_t i = 0; i < VERB_COUNT; i++) {
            fprintf(stderr, " %s", verbs[i].name);
        }
        fprintf(stderr, "\n");
    }
    exit(VS_CLI_USAGE);
}

/* The verb list belongs to --help, and comes from the table. argp frees what this returns. */
static char *help_text(int key, const char *text, void *input)
{
    char *all = NULL;
    size_t size;
    FILE *out;

    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC || !(out = open_memstream(&all, &size))) {
        return (char *)(uintptr_t)text;
    }
    fprintf(out, "Verbs:\n");
    for (size_t i = 0; i < VERB_COUNT; i++) {
        fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    }
    fprintf(out, "\n`vramshim VERB --help' tells more about one. Exit codes: 0 fine, 1 failure, "
                 "2 usage.\n");
    fclose(out);
    return all;
}

struct call {
    const struct verb *verb;
    int argc;
    char **argv;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct call *call = state->input;

    switch (key) {
    case 'h':
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        if (strcmp(argument, "help") == 0) {
            argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
        }
        call->verb = find_verb(argument);
        if (!call->verb) {
            refuse(argument);
        }
        /* The rest is the verb's, from its own name on. */
        call->argc = state->argc - state->next + 1;
        call->argv = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {.key = 'h', .flags = OPTION_HIDDEN},
        {0},
    };
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "VERB [ARGUMENT...]",
        .doc = "Works with libvramshim.so: counts, caps and reports the GPU memory of unmodified "
               "processes.\v",
        .help_filter = help_text,
    };
    struct call call = {NULL, 0, NULL};
    char title[64];
    int result;

    argp_err_exit_status = VS_CLI_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &call)) {
        return VS_CLI_USAGE;
    }
    snprintf(title, sizeof(title), "vramshim %s", call.verb->name);
    call.argv[0] = title;
    result = call.verb->run(call.argc, call.argv);
    if (fflush(stdout) || ferror(stdout)) {
        perror("vramshim: standard output");
        return VS_CLI_FAILURE;
    }
    return result;
}
