/*
 * The simulated driver, internal types.
 *
 * What it is: a libcuda.so.1 whose devices are host memory. Programs written against the driver API
 * run on it unmodified, with real asynchrony, and it watches them for races.
 *
 * Execution model. All state sits behind one mutex (sim_lock). Work is a `struct sim_work` (what to
 * do: a value, can be copied, recorded by a capture, kept in a graph node). Submitting it makes a
 * `struct sim_op`: work plus its place in one dependency graph of the process. An op waits for
 *   - the op before it in its stream,
 *   - legacy default stream rules (NULL stream against blocking streams, both ways),
 *   - what cuStreamWaitEvent and cuCtxWaitEvent asked for,
 * all known when it is submitted. When the last of them is done it goes to the run queue; a worker
 * thread takes it, checks its accesses (race.c) under the lock, does the work without the lock and
 * completes it. Workers are started on demand, so work that spins or sleeps blocks nobody else.
 * Everything that waits (cuMemFree, cuStreamSynchronize, ...) waits for ops.
 *
 * Happens-before. Every stream has a slot in a vector clock; slot 0 is the host. All host threads
 * are one party, since nothing shows us how they order each other. An op's clock is the join of its
 * dependencies, of the host's clock at submission and of what it acquired (a flag it waited for),
 * plus a tick of its own. When the host learns that an op is done, its clock joins the host's.
 *
 * Memory. A `sim_phys` is physical memory (bytes, accounting, race shadow), a `sim_range` is what
 * an address means. Device addresses lie in one reserved, inaccessible region, so a host
 * dereference faults; ops reach the bytes through translation. Bytes come into being at first
 * touch.
 *
 * Lock order: sim_lock, then the machine's own lock (machine.c). No callback into the program and
 * no wait on anything but sim_done happens with sim_lock held.
 */
#ifndef SIM_H
#define SIM_H

#define __CUDA_API_VERSION_INTERNAL 1
#pragma GCC visibility push(default)
#include <cuda.h>
/* All that is simulated of cudaProfiler.h, a package of its own: cuda.h is to be all that is
 * needed. */
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);
#pragma GCC visibility pop
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entries.h"

/* ---- entry points ------------------------------------------------------------------------- */
enum sim_entry {
#define E(name, base, since, twin) SIM_E_##name,
    SIM_ENTRIES(E)
#undef E
        SIM_E_COUNT
};

/* First statement of every exported function: not initialised, forked, too new, injected fault. */
CUresult sim_enter(enum sim_entry entry);
#define SIM_ENTRY(name)                                                                            \
    do {                                                                                           \
        CUresult enter_ = sim_enter(SIM_E_##name);                                                 \
        if (enter_ != CUDA_SUCCESS)                                                                \
            return enter_;                                                                         \
    } while (0)

/* Defines an entry point and its per-thread-default-stream twin; `pt` says which one was called. */
#define SIM_TWINS(legacy, twin, params, expression)                                                \
    CUresult CUDAAPI legacy params                                                                 \
    {                                                                                              \
        const bool pt = false;                                                                     \
        SIM_ENTRY(legacy);                                                                         \
        (void)pt;                                                                                  \
        return expression;                                                                         \
    }                                                                                              \
    CUresult CUDAAPI twin params                                                                   \
    {                                                                                              \
        const bool pt = true;                                                                      \
        SIM_ENTRY(twin);                                                                           \
        (void)pt;                                                                                  \
        return expression;                                                                         \
    }

const char *sim_entry_base(enum sim_entry entry);
int sim_entry_since(enum sim_entry entry);
bool sim_entry_named(enum sim_entry entry, const char *name); /* export or base name */
void sim_registry_hide(int api); /* takes newer entries out of the dynamic symbol table */

/* ---- config.c, fault.c -------------------------------------------------------------------- */
struct sim_config {
    int devices;         /* VRAMSIM_DEVICES, or what the shared machine has */
    size_t memory;       /* VRAMSIM_MEMORY, per device */
    size_t context;      /* VRAMSIM_CONTEXT, taken by each context */
    int api;             /* VRAMSIM_API */
    const char *share;   /* VRAMSIM_SHARE: file of the shared machine, or NULL */
    unsigned latency_us; /* VRAMSIM_LATENCY: added to each op */
    bool race;           /* VRAMSIM_RACE: on (default) or off */
    bool peer;           /* VRAMSIM_PEER: devices reach each other */
    bool poison;         /* VRAMSIM_POISON: fresh device memory holds 0xa5 */
    bool reuse;          /* VRAMSIM_REUSE: a freed address or handle comes back soon */
    bool ghosts;         /* VRAMSIM_GHOSTS: destroyed contexts answer questions */
};
extern struct sim_config sim_config;
bool sim_config_load(void); /* false: a variable is bad, a line on stderr says which */
bool sim_parse_size(const char *text, size_t *bytes);
/* Reads VRAMSIM_FAULT before the first call, since some entry points work before cuInit. */
void sim_fault_preload(void);
bool sim_fault_load(const char *spec);     /* false: bad spec, said */
CUresult sim_fault(enum sim_entry entry);  /* the error to inject now, or CUDA_SUCCESS */
bool sim_cost_load(const char *spec);      /* VRAMSIM_COST; false: bad, said */
void sim_cost_spend(enum sim_entry entry); /* busy for what the entry point costs */
extern bool sim_cost_any;
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- core ---------------------------------------------------------------------------------- */
extern pthread_mutex_t sim_mutex;
void sim_lock(void);
void sim_unlock(void);
uint64_t sim_now_ns(void);
extern _Thread_local bool sim_in_callback; /* in a host function: no entry point is permitted */

/* ---- machine.c: how much of each device is taken; the one thing that VRAMSIM_SHARE shares ---- */
bool sim_machine_open(void);
bool sim_machine_charge(int physical, size_t bytes); /* false: does not fit */
void sim_machine_uncharge(int physical, size_t bytes);
void sim_machine_info(int physical, size_t *free_bytes, size_t *total);

/* ---- race.c --------------------------------------------------------------------------------- */
struct sim_clock { /* immutable once shared; reference counted under sim_lock */
    unsigned refs;
    unsigned count;
    uint32_t tick[];
};
struct sim_shadow; /* who touched which bytes of one sim_phys last */
struct sim_op;

unsigned sim_slot_new(void);           /* a slot for a stream or a graph branch */
uint32_t sim_slot_tick(unsigned slot); /* its next tick */
void sim_slot_free(unsigned slot);     /* used again once the host has seen its last tick */
struct sim_clock *sim_clock_ref(struct sim_clock *clock);
void sim_clock_unref(struct sim_clock *clock);
/* *to = join(*to, from); NULL is the empty clock */
void sim_clock_join(struct sim_clock **to, const struct sim_clock *from);
void sim_clock_tick(struct sim_clock **to, unsigned slot, uint32_t value);
struct sim_clock *sim_host_clock(void);              /* borrowed */
void sim_host_learns(const struct sim_clock *clock); /* the host has seen this clock pass */

struct sim_phys;
struct sim_range;
/* Records an access by op (NULL: by the host) and reports a conflict. what: static string. */
void sim_race_access(struct sim_phys *phys, size_t offset, size_t size, bool write,
                     const struct sim_op *op, const char *what);
/* The same of a mapping: what went through it, for its unmapping. Reports nothing itself. */
void sim_race_through(struct sim_range *map, size_t inside, size_t size, bool write,
                      const struct sim_op *op, const char *what);
void sim_race_unmap(struct sim_range *map);
void sim_race_forget(struct sim_shadow **shadow);
/* An op touched memory that is freed, unmapped or never was: reported, fails the run. */
void sim_race_bad_address(struct sim_op *op, CUdeviceptr address, size_t size, bool write,
                          const char *what);
void sim_race_remember_freed(CUdeviceptr base, size_t size, const char *how);
unsigned sim_race_count(void);

/* ---- handle.c -------------------------------------------------------------------------------- */
extern _Thread_local enum sim_entry sim_calling; /* the entry point that the thread is in */
void sim_handle_stale(const char *kind, const void *handle, bool with_context); /* with the lock */
unsigned sim_handle_stale_count(void);

/* ---- memory: physical ------------------------------------------------------------------------ */
struct sim_device;
struct sim_phys {
    unsigned refs; /* ranges, handles and running ops */
    size_t size;
    size_t charged;       /* bytes held of the machine */
    int physical;         /* device number on the machine, -1 = host memory */
    unsigned char *bytes; /* alias for ops, NULL until the first touch (sim_phys_bytes) */
    CUdeviceptr home;     /* address of offset 0 where it was last mapped or touched, for reports */
    bool borrowed;        /* bytes belong to the program (registered) */
    int fd;               /* memfd behind it, or -1 */
    struct sim_shadow *shadow;
};
/* Takes bytes of the machine; CUDA_ERROR_OUT_OF_MEMORY if they do not fit. physical -1: host. */
CUresult sim_phys_new(int physical, size_t size, struct sim_phys **out);
struct sim_phys *sim_phys_ref(struct sim_phys *phys);
void sim_phys_unref(struct sim_phys *phys);
unsigned char *sim_phys_bytes(struct sim_phys *phys);
/* Moves the bytes into a memfd (once), so that they can be shared or exported. Nothing may be
 * running on it. Returns the descriptor (owned by phys) or -1. */
int sim_phys_share(struct sim_phys *phys);

/* ---- memory: addresses ------------------------------------------------------------------------
 */
enum sim_kind {
    SIM_ALLOC,      /* cuMemAlloc, cuMemAllocPitch */
    SIM_MANAGED,    /* cuMemAllocManaged */
    SIM_ASYNC,      /* stream-ordered */
    SIM_HOST,       /* cuMemHostAlloc, cuMemAllocHost */
    SIM_REGISTERED, /* cuMemHostRegister */
    SIM_RESERVED,   /* cuMemAddressReserve */
    SIM_MAPPED,     /* cuMemMap, lies in a SIM_RESERVED one */
    SIM_GLOBAL,     /* module variable */
    SIM_IMPORTED,   /* opened from IPC */
    SIM_GRAPH,      /* of a graph's allocation node; `dying` while it is not allocated */
};
struct sim_pool;
struct sim_range {
    CUdeviceptr base;
    size_t size; /* as asked for; what the tree occupies is `span` */
    size_t span;
    enum sim_kind kind;
    struct sim_phys *phys; /* NULL for SIM_RESERVED */
    size_t offset;         /* of base in phys */
    CUcontext ctx;         /* owner, NULL where none */
    struct sim_device *device;
    unsigned long long id; /* buffer id, unique in the process */
    unsigned flags;        /* host and managed flags */
    unsigned access[16];   /* SIM_MAPPED: CUmemAccess_flags per visible device; others: by owner */
    struct sim_handle *handle; /* SIM_MAPPED */
    struct sim_shadow *shadow; /* SIM_MAPPED: who went through it */
    struct sim_pool *pool;     /* SIM_ASYNC */
    bool dying;                /* SIM_ASYNC: cuMemFreeAsync was called */
    bool absent;               /* SIM_GRAPH: not allocated at this point of the device's work */
    bool sync_memops;
    int prefetched;                 /* SIM_MANAGED: where to, last, plus 2; 0 = never */
    struct sim_range *left, *right; /* treap */
    uint32_t rank;
};
struct sim_tree {
    struct sim_range *root;
};
void sim_tree_insert(struct sim_tree *tree, struct sim_range *range);
void sim_tree_remove(struct sim_tree *tree, struct sim_range *range);
struct sim_range *sim_tree_floor(const struct sim_tree *tree, CUdeviceptr at); /* base <= at */
struct sim_range *sim_tree_next(const struct sim_tree *tree, CUdeviceptr at);  /* base > at */
extern struct sim_tree sim_va;   /* every address in use; never overlapping */
extern struct sim_tree sim_maps; /* SIM_MAPPED, inside SIM_RESERVED ones of sim_va */

bool sim_va_open(void);
bool sim_va_device(CUdeviceptr address); /* in the device region */
/* Free device addresses, 0 if none. hint: tried first, 0 = none. Addresses are reused late. */
CUdeviceptr sim_va_find(size_t span, size_t align, CUdeviceptr hint);
struct sim_range *sim_range_new(enum sim_kind kind, CUdeviceptr base, size_t size, size_t span,
                                struct sim_phys *phys); /* takes over the phys reference */
void sim_range_free(struct sim_range *range);           /* out of its tree, phys unreferenced */
/* What lies at this address: a mapping inside a reservation, else the range; NULL if nothing. */
struct sim_range *sim_range_at(CUdeviceptr address);
CUresult sim_memory_alloc(CUcontext ctx, size_t size, enum sim_kind kind, struct sim_range **out);
void sim_memory_context_gone(CUcontext ctx);

/* One contiguous piece of an access, held (phys referenced) until sim_pieces_release. */
struct sim_piece {
    struct sim_phys *phys; /* NULL: pageable host memory */
    unsigned char *bytes;
    size_t size;
};
struct sim_pieces {
    struct sim_piece *list;
    unsigned count, room;
    /* While it is held: whose access it is, and of what; in a list (work.c). */
    struct sim_op *op;
    CUdeviceptr address;
    size_t size;
    bool write;
    const char *what;
    struct sim_pieces *next;
};
/* Resolves, checks for races and pins [address, address+size). false: not accessible, reported.
 * host_ok: an unknown address outside the device region is pageable host memory. */
bool sim_access(struct sim_op *op, CUdeviceptr address, size_t size, bool write, bool host_ok,
                const char *what, struct sim_pieces *pieces);
void sim_pieces_release(struct sim_pieces *pieces);
void sim_pieces_copy(struct sim_pieces *to, const struct sim_pieces *from); /* byte by byte */
/* These addresses mean nothing any more: whatever holds pieces of them has faulted. With the lock.
 */
void sim_pieces_gone(CUdeviceptr address, size_t size);

/* Bytes of simulated memory (bytes.c): a value of `element` bytes again and again, and how many
 * words of 4 bytes are others than value. */
void sim_bytes_fill(unsigned char *to, size_t bytes, unsigned element, unsigned value);
void sim_bytes_move(unsigned char *to, const unsigned char *from, size_t bytes);
uint32_t sim_bytes_others(const unsigned char *at, size_t bytes, uint32_t value);

/* ---- devices and contexts -------------------------------------------------------------------- */
#define SIM_MAX_DEVICES 16
struct sim_device {
    int index;    /* as the program counts */
    int physical; /* as the machine counts: its unit (machine.h) */
    int gpu;      /* the GPU it is, or is a MIG instance of */
    CUuuid uuid;
    char name[64];
    char pci[24];
    size_t total;
    CUcontext primary;
    unsigned primary_refs;
    unsigned primary_flags;
    struct sim_pool *pool, *default_pool;
};
extern struct sim_device sim_devices[SIM_MAX_DEVICES];
extern int sim_device_count;
CUresult sim_devices_open(void);                /* visible.c: CUDA_VISIBLE_DEVICES */
struct sim_device *sim_device(CUdevice device); /* NULL: no such device */

#define SIM_MAGIC_CTX 0x53494d43u
#define SIM_MAGIC_STREAM 0x53494d53u
#define SIM_MAGIC_EVENT 0x53494d45u
#define SIM_MAGIC_POOL 0x53494d50u
#define SIM_MAGIC_MODULE 0x53494d4du
#define SIM_MAGIC_FUNCTION 0x53494d46u
#define SIM_MAGIC_GREEN 0x53494d47u
#define SIM_MAGIC_DEAD 0xdeadc0deu

struct CUctx_st {
    uint32_t magic;
    unsigned long long id;
    struct sim_device *device;
    CUcontext owner; /* green contexts: the primary behind it; others: itself */
    bool is_primary;
    bool is_green;
    bool ending;      /* somebody destroys it, and waits for its work */
    CUgreenCtx green; /* is_green: whose form as a CUcontext this is */
    unsigned flags;
    unsigned api_version;
    unsigned attach_count;
    CUresult sticky; /* set by a faulted op, returned by everything until the context goes */
    size_t charged;
    size_t limits[16];
    CUfunc_cache cache_config;
    CUstream null_stream;
    struct sim_stream_list {
        CUstream first;
    } streams;                 /* live and draining, without null_stream */
    unsigned pending;          /* ops submitted and not done, over all streams */
    struct sim_clock *retired; /* clocks of streams that are gone */
    bool unseen;               /* ops finished that the host clock has not joined yet */
    struct sim_op *barrier;    /* cuCtxWaitEvent: all later work waits for it */
    unsigned capturing;        /* streams of this context in capture */
    unsigned freeing;          /* threads whose cuMemFree waits for work */
    uint32_t peers;            /* bit per visible device: cuCtxEnablePeerAccess */
    CUevent events;            /* live ones */
    CUcontext next;            /* all contexts */
    CUcontext spare;           /* free list */
};
extern CUcontext sim_contexts;
/* A green context. Its work, memory and errors are its primary's; what it has of its own are SMs, a
 * default stream, the streams made in it and a barrier. */
struct CUgreenCtx_st {
    uint32_t magic;
    struct CUctx_st ctx; /* as a CUcontext; of its fields only null_stream and barrier are used */
    unsigned sms;        /* how many SMs it has */
    CUgreenCtx next;     /* all there ever were */
};
/* All need sim_lock. */
/* INVALID_CONTEXT, CONTEXT_IS_DESTROYED, sticky. While a green context is current: its primary. */
CUresult sim_ctx_current(CUcontext *out);
CUresult sim_ctx_asked(CUcontext *out); /* the same for a question: VRAMSIM_GHOSTS */
bool sim_ctx_alive(CUcontext ctx);
bool sim_ctx_named(CUcontext ctx); /* the same of one that the call names; not NULL */
CUcontext sim_ctx_peek(void);      /* the thread's current context, whatever its state */
CUresult sim_ctx_create(struct sim_device *device, unsigned flags, bool primary, CUcontext *out);
void sim_ctx_destroy(CUcontext ctx); /* waits for its work; drops the lock meanwhile */
void sim_ctx_push(CUcontext ctx);
CUgreenCtx sim_green_current(void);                /* the thread's green context, or NULL */
void sim_green_primary_gone(CUcontext ctx);        /* its green contexts go with it */
struct sim_op *sim_green_marker(CUgreenCtx green); /* like sim_ctx_marker, of its streams only */
CUstream sim_null_stream(CUcontext ctx, CUgreenCtx green); /* the default stream of either */
void sim_stream_list(CUstream stream);                     /* into its context's list */
void sim_ctx_unretain(struct sim_device *device);          /* one reference to the primary less */

/* ---- work, ops, streams ---------------------------------------------------------------------- */
enum sim_work_kind {
    SIM_W_NOP, /* marker: event records, waits, empty nodes */
    SIM_W_MEMSET,
    SIM_W_COPY,
    SIM_W_HOST,     /* cuLaunchHostFunc */
    SIM_W_CALLBACK, /* cuStreamAddCallback */
    SIM_W_WAIT_VALUE,
    SIM_W_WRITE_VALUE,
    SIM_W_KERNEL,
    SIM_W_ALLOC, /* stream-ordered allocation takes effect */
    SIM_W_FREE,
};
/* One side of a copy. Rows of `pitch`, slices of pitch * height; for arrays phys is set and address
 * is the offset in it. */
struct sim_end {
    CUdeviceptr address;
    struct sim_phys *phys; /* NULL: by address; else a reference that the work owns */
    size_t pitch, height;
    bool host_ok; /* may be pageable host memory */
};
/* peer.c: whether the op may touch this memory. by: for a copy the work's from_peer or to_peer,
 * else -1 (copies are staged by the driver where kernels fault). */
bool sim_peer_reach(CUdevice from, CUdevice to); /* not the same, and able to */
bool sim_peer_allowed(const struct sim_range *range, const struct sim_op *op, int by, bool write);

#define SIM_KERNEL_PARAMS 12
struct sim_kernel; /* built-in kernel, kernel.c */
struct sim_work {
    enum sim_work_kind kind;
    const char *what; /* entry point, for reports */
    union {
        struct {
            CUdeviceptr address;
            size_t pitch, width /* elements */, height;
            unsigned element, value;
        } set;
        struct {
            struct sim_end from, to;
            size_t width /* bytes */, height, depth;
            int from_peer, to_peer; /* peer copies: 1 + the device that reaches that end, or 0 */
            unsigned char
                *staging; /* owned copy of pageable source, or NULL (from is then unused) */
        } copy;
        struct {
            CUhostFn fn;
            void *arg;
        } host;
        struct {
            CUstreamCallback fn;
            void *arg;
            CUstream stream;
        } callback;
        struct {
            CUdeviceptr address;
            uint64_t value;
            unsigned flags;
            unsigned bytes; /* 4 or 8 */
        } value;
        struct {
            const struct sim_kernel *kernel;
            uint64_t arg[SIM_KERNEL_PARAMS];
            CUfunction function; /* as launched, for graph nodes */
            unsigned grid[3], block[3], shared;
        } launch;
        struct {
            CUdeviceptr address;
            unsigned long long id; /* of the range */
        } memory;                  /* alloc, free */
    };
};
void sim_work_fini(struct sim_work *work);                   /* frees what it owns; with the lock */
struct sim_work sim_work_clone(const struct sim_work *work); /* for graph nodes; with the lock */

struct sim_op {
    unsigned refs;
    CUcontext ctx;
    CUstream stream; /* NULL: a marker of a context */
    unsigned slot;   /* clock slot its tick is taken in */
    struct sim_work work;
    bool ready, running, done;
    unsigned waits; /* dependencies not done */
    struct sim_op **dependents;
    unsigned dependent_count, dependent_room;
    struct sim_clock *clock; /* joins of dependencies so far; final once ready */
    uint32_t tick;
    uint64_t serial;
    uint64_t done_ns;
    struct sim_op *next; /* run queue */
};

/* Graph nodes that the next node of a capturing stream depends on. */
struct sim_tips {
    CUgraphNode *node;
    unsigned count;
};
void sim_tips_add(struct sim_tips *tips, CUgraphNode node);

struct CUstream_st {
    uint32_t magic;
    unsigned long long id;
    CUcontext ctx;
    unsigned flags; /* CU_STREAM_NON_BLOCKING */
    int priority;
    bool null_stream; /* the legacy default stream */
    uint64_t thread;  /* != 0: per-thread default stream of that thread */
    bool destroyed;   /* by the program; stays listed until its last op is done */
    bool gone;        /* dead, and that with its context */
    unsigned slot;
    struct sim_op *last; /* newest op, held */
    CUstream next;
    CUgreenCtx green;                                  /* stream of a green context */
#define SIM_POLICY_UNSET ((CUsynchronizationPolicy)-1) /* what a new stream has (measured) */
    struct sim_stream_hints {
        CUaccessPolicyWindow window;
        CUsynchronizationPolicy policy;
        CUlaunchMemSyncDomainMap map;
        CUlaunchMemSyncDomain domain;
    } hints; /* cuStreamSetAttribute; change nothing here */
    /* capture.c */
    CUstreamCaptureStatus capture_status;
    struct sim_capture *capture;
    struct sim_tips tips;
};
struct CUevent_st {
    uint32_t magic;
    unsigned flags;
    CUcontext ctx;
    struct sim_op *op;           /* the record, NULL if never recorded */
    struct sim_ipc_event *ipc;   /* CU_EVENT_INTERPROCESS: what processes share of it */
    struct sim_capture *capture; /* recorded inside a capture */
    struct sim_tips tips;        /* where in it */
    bool gone;                   /* dead, and that with its context */
    CUevent next, *previous;     /* its context's, or (next) free list */
    CUevent older; /* all there ever were, so that one the program forgot is no leak of ours */
};

/* All need sim_lock. */
/* The stream behind a handle as the entry point sees it; checks its context (sticky, destroyed). */
CUresult sim_stream_get(CUstream handle, bool pt, CUstream *out);
CUstream sim_stream_new(CUcontext ctx, unsigned flags, int priority);
/* Queues work (taken over, also on failure) on the stream, or records it if the stream captures.
 * *out: the op, referenced; may be NULL. */
CUresult sim_submit(CUstream stream, struct sim_work *work, struct sim_op **out);
CUresult sim_submit_after(CUstream stream, struct sim_op *dependency); /* a marker after it */
/* The lower half, for graph launches: an op with no dependencies yet, then edges, then start. */
struct sim_op *sim_op_new(CUcontext ctx, CUstream stream, unsigned slot, struct sim_work *work);
void sim_op_after(struct sim_op *op, struct sim_op *dependency); /* NULL-safe */
void sim_op_stream_order(struct sim_op *op, CUstream stream);    /* all implied dependencies */
/* Makes op the stream's newest: what the stream does next comes after it. Before sim_op_start. */
void sim_stream_follow(CUstream stream, struct sim_op *op);
void sim_op_start(struct sim_op *op); /* drops the caller's hold on it */
struct sim_op *sim_op_ref(struct sim_op *op);
void sim_op_unref(struct sim_op *op);
/* Waits (drops the lock meanwhile); the host learns its clock. */
void sim_op_wait(struct sim_op *op);
/* A marker after everything submitted in the context so far (NULL: nothing pending). */
struct sim_op *sim_ctx_marker(CUcontext ctx);
/* What cuMemFree does: waits for all work of the context submitted so far. */
void sim_ctx_wait_all(CUcontext ctx);
/* The same for plain memory. Meanwhile other threads submit nothing to the context, take nothing
 * from it and make no streams (measured; they may ask and wait, take stream-ordered memory and
 * write and await values). */
void sim_ctx_wait_to_free(CUcontext ctx);
/* Waits until nobody frees so. */
void sim_ctx_wait_for_frees(CUcontext ctx);
CUresult sim_stream_wait(CUstream stream); /* sticky error of the context afterwards */
void sim_stream_op_done(CUstream stream, struct sim_op *op); /* lets a destroyed stream go */
void sim_streams_context_gone(CUcontext ctx); /* idle; its streams and events become invalid */
void sim_exec_fault(struct sim_op *op, CUresult error); /* sets the context's sticky error */

/* Runs one op's work; called by workers without the lock. */
void sim_work_run(struct sim_op *op);
void sim_kernel_run(struct sim_op *op);
void sim_pool_op_run(struct sim_op *op); /* SIM_W_ALLOC, SIM_W_FREE */
/* array.c: an array's side of a copy, as a box (x and width in bytes) or as a run of its bytes
 * (takes a phys reference); false: no such array, or not inside it. */
bool sim_array_end(CUarray array, size_t x, size_t y, size_t z, size_t width, size_t height,
                   size_t depth, struct sim_end *end);
bool sim_array_linear(CUarray array, size_t offset, size_t size, struct sim_end *end);
void sim_arrays_context_gone(CUcontext ctx);
CUresult sim_kernel_work(CUfunction function, const unsigned *grid, const unsigned *block,
                         void **params, void **extra, struct sim_work *work);
/* Checks a copy and submits it (taken over), without the lock; wait: a synchronous entry point. */
CUresult sim_copy_submit(CUstream handle, bool pt, struct sim_work *work, bool wait);
CUresult sim_copy_3d_work(const CUDA_MEMCPY3D *box, struct sim_work *work); /* for graph nodes */
/* Whether a copy's addresses are fit for the call; node: it becomes one. With the lock. */
bool sim_copy_reachable(const struct sim_work *work, bool node);
/* Flags: values with release and acquire (work.c). */
void sim_flag_release(struct sim_op *op, CUdeviceptr address);
void sim_flag_wait(struct sim_op *op, CUdeviceptr address, uint64_t wanted, unsigned bytes,
                   unsigned how);
void sim_flag_set(struct sim_op *op, CUdeviceptr address, uint64_t value, unsigned bytes);
void sim_pool_free_now(struct sim_range *range); /* plain free of stream-ordered memory */
void sim_pools_context_gone(CUcontext ctx); /* idle; frees that its loss kept from taking effect */
unsigned sim_pool_access(const struct sim_pool *pool, int device); /* CUmemAccess_flags */
void sim_pools_synchronised(void); /* host synchronised: cached memory above thresholds goes back */

/* ---- graph_memory.c: memory of allocation nodes ---------------------------------------------- */
void sim_graph_memory_op_run(struct sim_op *op, struct sim_range *range); /* ALLOC, FREE; locked */
void sim_graph_memory_freed(struct sim_range *range, struct sim_op *op);  /* NULL: done already */
void sim_graph_memory_context_gone(CUcontext ctx);
CUevent sim_event_new(CUcontext ctx, unsigned flags);
void sim_events_context_gone(CUcontext ctx);
/* ipc_event.c: records and waits as work; the last waits here, dropping the lock. */
struct sim_ipc_event;
struct sim_ipc_event *sim_ipc_event_new(void); /* NULL: no room */
bool sim_ipc_event_pending(const struct sim_ipc_event *event);
struct sim_work sim_ipc_event_record(struct sim_ipc_event *event);
struct sim_work sim_ipc_event_wait(struct sim_ipc_event *event);
void sim_ipc_event_synchronize(struct sim_ipc_event *event);
/* vmm.c, for what crosses processes: the memory of a handle (NULL: no handle), one more handle. */
struct sim_phys *sim_handle_phys(CUmemGenericAllocationHandle value, CUmemAllocationProp *prop);
CUmemGenericAllocationHandle sim_handle_new(struct sim_phys *phys, const CUmemAllocationProp *prop);

/* ---- capture.c: hooks ------------------------------------------------------------------------ */
static inline bool sim_capturing(CUstream stream)
{
    return stream->capture_status != CU_STREAM_CAPTURE_STATUS_NONE;
}
/* Records work as a node of the capture (taken over). */
CUresult sim_capture_work(CUstream stream, struct sim_work *work);
CUresult sim_capture_event_record(CUstream stream, CUevent event);
CUresult sim_capture_event_ask(CUevent event); /* whether it may be queried or waited for */
CUresult sim_capture_event_wait(CUstream stream, CUevent event); /* joins stream to the capture */
void sim_capture_stream_gone(CUstream stream);                   /* destroyed while it captures */
CUresult sim_capture_event_node(CUstream stream, CUevent event, bool wait); /* EXTERNAL flags */
CUresult sim_capture_graph(CUstream stream, CUgraph graph); /* launch: child graph */
/* Stream-ordered calls on a capturing stream: nodes. */
CUresult sim_capture_mem_alloc(CUstream stream, const CUmemPoolProps *props, size_t size,
                               CUdeviceptr *out);
CUresult sim_capture_mem_free(CUstream stream, CUdeviceptr address);
/* Calls that are not allowed while a capture is active (cuMemAlloc, cuMemFree, cuEventQuery, ...):
 * CUDA_SUCCESS, or the error after invalidating what has to be invalidated. */
CUresult sim_capture_unsafe(CUcontext ctx); /* ctx may be NULL */
/* A call that synchronises or touches the legacy stream or the whole context. */
CUresult sim_capture_context_op(CUcontext ctx);
/* Work on the legacy stream: refused while a blocking stream of the context captures. */
CUresult sim_capture_legacy(CUcontext ctx);

#endif
