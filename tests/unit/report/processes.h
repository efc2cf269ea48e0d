/*
 * Real processes for the tests of claiming and writing. Each test has a fresh folder as its working
 * directory; each process of a test is forked, claims, and answers by its exit status.
 */
#ifndef PROCESSES_H
#define PROCESSES_H

#include "testing.h"

#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

extern char content[1 << 20]; /* of the file read last */
extern char said[8192];       /* what this process was told in claiming */

/* In a forked process: the test's own failures must not look like success. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(1, "line %d: %s (%s)\n", __LINE__, #condition, said);                          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

int make_folder(void **unused);
int remove_folder(void **unused);

/* A process that claims, tells so, and waits to be told to go on. */
struct other {
    pid_t pid;
    int tell, hear;
};

void begin(const char *spec, uint64_t bytes);
void finish(void);
void expect_success(pid_t child);
const char *read_file(const char *path);
void expect_leak(const char *path, unsigned long long bytes);
int files(void);
struct other start_other(const char *spec, uint64_t bytes);
void let_finish(struct other *other);
void let_die(struct other *other);
const char *with_pid(const char *path, pid_t pid);
void run(const char *spec, uint64_t bytes);

#endif
