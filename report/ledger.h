/*
 * The ledger: what is counted, and where it is kept.
 *
 * One process has one ledger. It lives in mappings of its own (never malloc), so that it stays
 * readable at the very end of the process. It knows devices by index, contexts by an opaque number,
 * memory by address; it makes no CUDA call and knows nothing of the shim.
 *
 * Units: bytes and nanoseconds. Addresses and contexts are plain integers.
 * Threads: every function may be called from any thread unless its comment says otherwise. The
 * functions on the allocation path take the lock of one part of the live table and that of the
 * device's gauges or of the thread's lane in them (gauges.h), and the timeline's when a time bucket
 * begins or sees a new peak; no malloc, and no system call but for the rare growth of the table or
 * a nap where a lock stays held. Fork: a child must not use the ledger of its parent; it calls
 * vs_ledger_open again and gets a fresh one (no lock of the parent's is touched).
 */
#ifndef VS_REPORT_LEDGER_H
#define VS_REPORT_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VS_LEDGER_MAX_DEVICES 64

/* The kinds of memory of the report's by_kind[] (schema vramshim.report/1). */
enum vs_kind {
    VS_KIND_POOL,     /* held by the arena, whoever asked; see vs_ledger_reserved */
    VS_KIND_PLAIN,    /* cuMemAlloc left to the driver */
    VS_KIND_ASYNC,    /* held by the driver's stream-ordered pools */
    VS_KIND_VMM,      /* cuMemCreate */
    VS_KIND_MANAGED,  /* unified memory */
    VS_KIND_ARRAY,    /* arrays and mipmaps */
    VS_KIND_GRAPH,    /* graph memory nodes */
    VS_KIND_OVERFLOW, /* past the cap, in unified memory; not charged */
    VS_KIND_CONTEXT,  /* the context's own */
    VS_KIND_COUNT
};

const char *vs_kind_name(enum vs_kind kind); /* "plain", … as in the report */

struct vs_ledger_device {
    char uuid[64];  /* "GPU-xxxxxxxx-…" */
    char name[256]; /* as the driver says */
    uint64_t total_bytes;
    uint64_t limit_bytes; /* 0 = none */
    int driver_version;   /* as cuDriverGetVersion: 13000 */
};

/* One live allocation. */
struct vs_alloc {
    uint64_t address;
    uint64_t bytes;   /* what the program asked for */
    uint64_t context; /* who takes it along when it dies; 0 = nobody */
    uint8_t device;   /* index, < VS_LEDGER_MAX_DEVICES */
    uint8_t tag;      /* of the caller's own, kept as it is */
    uint8_t kind;     /* enum vs_kind */
    /* Set by the ledger: */
    uint8_t frees;   /* begun and not ended */
    uint32_t serial; /* tells two at one address apart */
    uint64_t at_ns;  /* CLOCK_MONOTONIC (coarse) when it was taken */
};

/*
 * Opens this process's ledger. start_ns is CLOCK_MONOTONIC at process start: all times of the
 * report count from it. Returns 0 or -errno (mapping refused). Call once per process (again after
 * fork); not concurrently with itself. Nothing else here may be called before it.
 */
int vs_ledger_open(uint64_t start_ns);

/* Announces a device. Before its first allocation; index < VS_LEDGER_MAX_DEVICES else -EINVAL. */
int vs_ledger_add_device(uint32_t index, const struct vs_ledger_device *device);

/* An allocation that succeeded: counts it and remembers it. Of kind VS_KIND_POOL it counts as live
 * only: what is charged for it follows vs_ledger_reserved. One that still stands at the same
 * address is gone then, for the driver knows better: freed, if a free of it is under way, else
 * taken along by something that was not seen (a leak, as if its context had died). What can't be
 * remembered (no memory; a device or kind out of range) is not counted, but said in a note. */
void vs_ledger_alloc(const struct vs_alloc *alloc);

/* A free in two steps, because the driver may hand an address out again before its own free
 * returns. begin: copies the allocation that starts at this address to *out; false if none does.
 * Then the caller frees, and calls exactly one of done / undo. Of two that free the same at once,
 * whichever the driver says yes to counts. */
bool vs_ledger_free_begin(uint64_t address, struct vs_alloc *out);
void vs_ledger_free_done(const struct vs_alloc *alloc);
void vs_ledger_free_undo(const struct vs_alloc *alloc);

/*
 * A whole free in one step, at half the price: for memory whose address nobody can be given before
 * this has returned, and of which nobody will refuse the free. So, for a pool: first this, then the
 * pool's own free. Copies what it was to *out, counts the free, and forgets it. False: no
 * allocation starts there, or another thread was quicker; nothing is counted.
 */
bool vs_ledger_free_at_once(uint64_t address, struct vs_alloc *out);

/* The allocation that starts at this address; false if there is none. */
bool vs_ledger_find(uint64_t address, struct vs_alloc *out);

/* What the pools hold from the driver: a change, in bytes, up or down. Moves `reserved`, and what
 * is charged: `used` and the kind "pool". */
void vs_ledger_reserved(uint32_t device, int64_t delta);

/* Pinned host memory, likewise. */
void vs_ledger_host_pinned(uint32_t device, int64_t delta);

enum vs_ledger_backing { VS_LEDGER_NO_POOL, VS_LEDGER_VMM, VS_LEDGER_NATIVE };

/* The pools of one device, summed: what they did since they were made, and how they stand. */
struct vs_ledger_pool_stats {
    uint32_t backing; /* enum vs_ledger_backing */
    uint32_t spare;
    uint64_t hits, misses;   /* requests served without, and with, new memory of the driver */
    uint64_t waits, wait_ns; /* of the host, for fences */
    uint64_t orders;         /* of later work after a fence, on the device */
    uint64_t trims, released_bytes, remapped_bytes;
    uint64_t live_bytes;  /* in live blocks: what was asked for (vs_ledger_pool sees to it), … */
    uint64_t block_bytes; /* … and what the blocks occupy */
    uint64_t free_bytes;  /* reserved and not in live blocks; pending_bytes included */
    uint64_t pending_bytes;
    uint64_t largest_free_bytes;
    uint64_t pinned_bytes; /* free bytes in pages that a live block keeps in place */
};

/* How the pools of a device stand now: the latest call wins, and is what the report says;
 * live_bytes is not read, for only the ledger knows what was asked for. Before vs_ledger_oom too:
 * its entry takes largest_free_bytes from here. Not for the allocation path. */
void vs_ledger_pool(uint32_t device, const struct vs_ledger_pool_stats *stats);

/* About what the pools of a device hold beyond what is live in them: what threads hold back while
 * the gauges collect counts as idle. A few loads. */
uint64_t vs_ledger_pool_idle(uint32_t device);

/* A request that the program saw fail, for whatever reason. */
void vs_ledger_alloc_failed(uint32_t device, uint64_t bytes);

enum vs_verdict {
    VS_VERDICT_OVER_LIMIT,
    VS_VERDICT_DEVICE_FULL,
    VS_VERDICT_FRAGMENTED,
    VS_VERDICT_PENDING
};

/* A request that failed for lack of memory, with the driver's free memory at that moment
 * (UINT64_MAX = unknown). Kept for the report's ooms[] (bounded: the first 64, then counted). Also
 * counts as vs_ledger_alloc_failed. */
void vs_ledger_oom(uint32_t device, uint64_t bytes, uint64_t driver_free_bytes,
                   enum vs_verdict verdict);

/* A context died and took its memory along: it is no longer live, but what the program had not
 * freed by then stays a leak. Returns the number of allocations dropped. Slow (walks everything).
 */
size_t vs_ledger_context_gone(uint64_t context);

/* One sentence for the report's notes[], with a short machine-readable code ("deepbind", …). The
 * same code and text twice is kept once; bounded. Both strings are copied. For the end of the
 * process too: a lock that cannot be had within a second costs the note. */
void vs_ledger_note(const char *code, const char *text);

#endif
