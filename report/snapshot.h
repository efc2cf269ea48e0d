/*
 * A snapshot: everything the writers print, taken from the ledger at one moment and handed to them
 * as one structure without pointers into it. Tests fill one by hand.
 *
 * Large (about 600 KiB): it lives in a mapping or in static memory, never on a stack.
 */
#ifndef VS_REPORT_SNAPSHOT_H
#define VS_REPORT_SNAPSHOT_H

#include "report/layout.h"
#include "report/leaks.h"
#include "report/report.h"

struct vs_snapshot_gauge {
    uint64_t now;
    uint64_t peak;
    uint64_t peak_at_ns; /* where the report has it */
};

struct vs_snapshot_device {
    uint32_t index;
    struct vs_ledger_device info;
    struct vs_snapshot_gauge live, pool_live, reserved, used, host_pinned;
    struct vs_snapshot_gauge by_kind[VS_KIND_COUNT];
    uint64_t live_count;
    uint64_t alloc_count, free_count, alloc_bytes, failed_count;
    struct vs_ledger_pool_stats pool;
};

struct vs_snapshot {
    struct vs_process process;
    uint64_t start_unix_ns;
    uint64_t duration_ns;
    enum vs_end end;
    int exit_code; /* < 0: null */
    int signal;    /* 0: null */
    const struct vs_report_option *options;
    size_t option_count;
    uint32_t device_count;
    uint32_t oom_count;
    uint64_t ooms_seen;
    uint32_t note_count;
    uint32_t row_count;
    struct vs_snapshot_device devices[VS_LEDGER_MAX_DEVICES];
    struct vs_leaks leaks;
    struct vs_ledger_oom ooms[VS_LEDGER_OOMS];
    struct vs_ledger_note notes[VS_LEDGER_NOTES + 4]; /* and what the snapshot itself has to say */
    struct vs_timeline_row rows[VS_TIMELINE_ROWS];
};

/* Fills *snapshot from this process's ledger; false when none is open. The caller sets end,
 * exit_code, signal and options. */
bool vs_snapshot_take(struct vs_snapshot *snapshot);

#endif
