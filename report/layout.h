/*
 * The ledger's counters as they lie in memory: one structure in one mapping, without pointers, of
 * fixed size, so that a file can carry it past the end of its process.
 *
 * A reader checks magic, version and the sizes in the header before it believes anything, and then
 * reads counters that their writer may have left in the middle of a change: each word is whole, but
 * sums over several words may be off by the call that was under way. Locks inside mean nothing to a
 * reader of a dead process. Every string is closed by a NUL within its array, in a ledger of ours.
 *
 * Changing the meaning or place of anything here raises VS_LEDGER_VERSION.
 */
#ifndef VS_REPORT_LAYOUT_H
#define VS_REPORT_LAYOUT_H

#include "report/gauges.h"
#include "report/ledger.h"
#include "report/lock.h"
#include "report/process.h"
#include "report/timeline.h"

#define VS_LEDGER_MAGIC UINT64_C(0x31474c4d49485356) /* "VSHIMLG1", little endian */
#define VS_LEDGER_VERSION 3u
#define VS_LEDGER_OOMS 64
#define VS_LEDGER_NOTES 32
#define VS_LEDGER_GONE 512 /* a power of two */

struct vs_ledger_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t total_bytes;
    uint32_t device_bytes;
    uint32_t device_count;
    uint64_t start_ns;      /* CLOCK_MONOTONIC at process start; other times count from it */
    uint64_t start_unix_ns; /* the same moment, CLOCK_REALTIME */
};

struct vs_ledger_counters {
    _Atomic uint32_t known; /* 0: never announced; 1: info is filled in */
    uint32_t spare;
    struct vs_gauges gauges;
    _Atomic uint64_t failed_count;
    /* Live allocations: allocs - frees - gone_count - gone_frees. */
    _Atomic uint64_t gone_count; /* dropped with their context */
    _Atomic uint64_t gone_frees; /* the same while a free was under way: freed */
    struct vs_ledger_device info;
};

struct vs_ledger_oom {
    uint64_t t_ns;
    uint64_t requested_bytes;
    uint64_t live_bytes;
    uint64_t reserved_bytes;
    uint64_t driver_free_bytes;  /* UINT64_MAX: unknown */
    uint64_t largest_free_bytes; /* in the pools; UINT64_MAX: there are none */
    uint32_t device;
    uint32_t verdict; /* enum vs_verdict */
};

struct vs_ledger_note {
    char code[32];
    char text[480];
};

/* Leaks whose context died. count 0: the place is free. */
struct vs_ledger_gone {
    uint64_t bytes; /* of each */
    uint64_t count;
    uint32_t device;
    uint32_t kind;
};

/* What found no place there, per device. */
struct vs_ledger_gone_rest {
    uint64_t bytes; /* of all */
    uint64_t count;
};

struct vs_ledger {
    struct vs_ledger_header header;
    struct vs_process process;
    _Atomic uint64_t untracked_count; /* allocations for which the live table found no memory, … */
    _Atomic uint64_t untracked_bytes;
    struct vs_lock rare; /* guards what follows, to the end of pool; a leaf */
    uint32_t oom_count;  /* kept */
    uint64_t ooms_seen;
    uint32_t note_count;
    uint32_t notes_dropped;
    struct vs_ledger_oom ooms[VS_LEDGER_OOMS];
    struct vs_ledger_note notes[VS_LEDGER_NOTES];
    struct vs_ledger_gone gone[VS_LEDGER_GONE];
    struct vs_ledger_gone_rest gone_rest[VS_LEDGER_MAX_DEVICES];
    struct vs_ledger_pool_stats pool[VS_LEDGER_MAX_DEVICES];
    struct vs_ledger_counters device[VS_LEDGER_MAX_DEVICES];
    struct vs_timeline timeline;
};

_Static_assert(sizeof(struct vs_ledger_oom) == 56, "part of the layout");
_Static_assert(sizeof(struct vs_ledger_note) == 512, "part of the layout");
_Static_assert(sizeof(struct vs_ledger_gone) == 24, "part of the layout");
_Static_assert(sizeof(struct vs_ledger_pool_stats) == 120, "part of the layout");
_Static_assert(sizeof(struct vs_timeline_bucket) == 80, "part of the layout");

#endif
