/*
 * Facts about this process for the report's process{}: collected once, kept in the ledger.
 * Plain system calls and getenv; a fact that can't be had is empty.
 */
#ifndef VS_REPORT_PROCESS_H
#define VS_REPORT_PROCESS_H

#include <stdint.h>

struct vs_process {
    int32_t pid;
    int32_t ppid;
    uint32_t argv_bytes; /* of argv in use; each argument is closed by a NUL */
    uint32_t argv_cut;   /* 1: there was more than fits */
    char rank[32];       /* from the launcher; empty: none */
    char host[128];
    char executable[1024];
    char argv[8192];
};

void vs_process_collect(struct vs_process *process);

/* CLOCK_MONOTONIC at the start of this process, from the kernel's own record (to a clock tick);
 * where that can't be read, now. */
uint64_t vs_process_start_ns(void);

#endif
