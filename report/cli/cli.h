/*
 * The verbs of the command. Each gets its own argument vector (argv[0] is "vramshim VERB", for
 * messages) and returns the exit code: 0 fine, 1 failure, 2 usage.
 */
#ifndef VS_REPORT_CLI_H
#define VS_REPORT_CLI_H

#define VS_CLI_FAILURE 1
#define VS_CLI_USAGE 2

int vs_cli_options(int argc, char **argv);
int vs_cli_replay(int argc, char **argv);

#endif
