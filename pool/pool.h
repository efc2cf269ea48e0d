/*
 * The pool: one arena of device memory, for one device and one owning context.
 *
 * It hands out blocks of at least 512 bytes alignment, takes them back with the rules of fences
 * (see epochs.h), and gets its memory from a backing: vmm (a range of addresses into which physical
 * handles are mapped, and moved where they are needed) or native (whole allocations of the driver).
 *
 * Every function may be called from any thread at any time between init and fini, unless it says
 * otherwise. None allocates host memory but through ops. No lock is held across a call of ops,
 * except ops->reserved, host_map, host_unmap and nap; but threads that close an epoch wait for the
 * one that records its fence. Results are 0, a negative errno, or what is said.
 */
#ifndef VS_POOL_POOL_H
#define VS_POOL_POOL_H

#include "pool/ops.h"

struct vs_pool;

enum vs_pool_backing { VS_POOL_VMM, VS_POOL_NATIVE };

/* What test builds switch off to show that the tests would notice. 0 in a real build. */
enum vs_pool_fault {
    VS_POOL_NO_FENCES = 1,     /* freed memory is handed out at once */
    VS_POOL_LATE_FENCES = 2,   /* an epoch is closed when memory is wanted, not before work */
    VS_POOL_UNMAP_ORDERED = 4, /* ordered counts as seen */
    VS_POOL_RECORD_IN_CAPTURE = 8,
    VS_POOL_SPANS = 16, /* no fault: middle blocks come from spans, however few threads there are */
    VS_POOL_JOIN_FIRST = 32 /* no fault: no freed block is handed out but from the tree */
};

struct vs_pool_config {
    enum vs_pool_backing backing;
    uint64_t device_bytes; /* of the whole device: sizes the ranges of addresses */
    /* Memory against time: how far reserved may go over the peak of what was live, before free
     * memory is waited for or moved instead. Parts per thousand, plus a constant. 0, 0: never
     * (remapping before growing). */
    uint32_t slack_permille;
    uint64_t slack_bytes;
    uint64_t keep_bytes; /* never given back: POOL_SIZE */
    uint64_t trim_above; /* free memory beyond this goes back at once; UINT64_MAX = none */
    uint64_t view_min;   /* requests from this size on may get a view (views.c); at least a page */
    uint32_t faults;     /* enum vs_pool_fault, or'd */
};

/* The shipped policy for a device of this size. */
void vs_pool_config_default(struct vs_pool_config *config, enum vs_pool_backing backing,
                            uint64_t device_bytes);

/* A pool, or NULL with *error set. Takes no device memory; *ops and *config are copied. */
struct vs_pool *vs_pool_new(const struct vs_pool_config *config, const struct vs_pool_ops *ops,
                            void *world, int *error);

/* Ends a pool, with nobody using it any more. device_gone: the context took its work along (and,
 * for native, its memory); the vmm backing then unmaps and releases what it holds. Otherwise all
 * fences must have passed. NULL is fine. */
void vs_pool_free_all(struct vs_pool *pool, bool device_gone);

/* Streams that a pool can know at once. */
#define VS_POOL_STREAMS 64u

enum vs_pool_verdict {
    VS_POOL_FITS,       /* not out of memory */
    VS_POOL_FULL,       /* ops said -ENOMEM: the cap or the device */
    VS_POOL_FRAGMENTED, /* free memory would have sufficed, but not where it is (native) */
    VS_POOL_PENDING     /* memory freed inside a running capture would have sufficed */
};

struct vs_pool_request {
    uint64_t bytes;  /* > 0 */
    uint32_t lane;   /* of the calling thread: any number, best the same for the same thread */
    uint32_t stream; /* whose work uses it first (stream-ordered memory); 0: anybody's */
    bool capturing;  /* a capture runs in this context: only memory the host has seen free */
    enum vs_pool_verdict verdict; /* set on -ENOMEM */
};

/* Serves a request: *address, aligned to 512 bytes. -ENOMEM, or the device's error. */
int vs_pool_alloc(struct vs_pool *pool, struct vs_pool_request *request, uint64_t *address);

/* Plain free, of a block's start. -ENOENT: the address is not in this pool. -EINVAL: it is, but no
 * live block starts there. Never waits for the device. */
int vs_pool_free(struct vs_pool *pool, uint64_t address);

/*
 * Stream-ordered memory. A stream is known by a number from 1 on, which begin gives out and end
 * takes back. What was freed on it
 *   - is the stream's own at once: no call, no fence;
 *   - is another stream's when the host has seen the stream's fence, or the program made the other
 *     wait (after), or the pool does: by a fence that was recorded before the stream's next work;
 *   - is anybody's, and may be unmapped and given back, when the host has seen it.
 * Fences are wanted only where memory is short (open). One that is recorded for older frees, with
 * work behind them, is asked about, but nothing is made to wait for it.
 */

/* A number for a stream, from 1 on; 0: all are in use, or there is no host memory. own: it is one
 * of the pool's context, whose fences cover its work; of another's, memory can be freed on it, but
 * not taken. */
uint32_t vs_pool_stream_begin(struct vs_pool *pool, bool own);

/* The stream is about to be destroyed; once for each begin. Memory that was allocated on it stays.
 * Where its last fence is refused the context's next one stands in; for a stream of another context
 * nothing does, and what it freed last stays out of use. */
void vs_pool_stream_end(struct vs_pool *pool, uint32_t stream);

/* Frees a block, however it was taken, behind what was submitted to the stream so far. Results as
 * of vs_pool_free. */
int vs_pool_free_on(struct vs_pool *pool, uint64_t address, uint32_t stream);

/* Are there frees on the stream that want a fence before its next work? To be asked after each free
 * on it. A few loads. */
bool vs_pool_stream_open(const struct vs_pool *pool, uint32_t stream);

/* Records it, or waits until another thread has. Positive where that was refused (capturing): the
 * next fence is not exact then. */
int vs_pool_stream_close(struct vs_pool *pool, uint32_t stream);

/* A mark: all frees on the stream so far. To be taken before the call that seen or after tells of.
 */
uint64_t vs_pool_stream_mark(struct vs_pool *pool, uint32_t stream);

/* The host has seen pass what the stream had been given by the mark. */
void vs_pool_stream_seen(struct vs_pool *pool, uint32_t stream, uint64_t mark);

/* The program made `waiter` wait for that. The last few such streams are remembered. */
void vs_pool_stream_after(struct vs_pool *pool, uint32_t waiter, uint32_t stream, uint64_t mark);

/* Decay leaves this much reserved, as the release thresholds of memory pools want it. Under
 * pressure, and by trimming, it goes. */
void vs_pool_keep_idle(struct vs_pool *pool, uint64_t bytes);

/* The live block around an address: its start and the bytes it occupies (rounded up from what was
 * asked). 0, -ENOENT or -EINVAL as for free. */
int vs_pool_find(struct vs_pool *pool, uint64_t address, uint64_t *start, uint64_t *bytes);

/* Is there an epoch with frees that has no fence yet? One load. */
bool vs_pool_open_epoch(const struct vs_pool *pool);

/* Closes it: before the program submits work, and before a capture begins. Records at most one
 * fence; waits for the oldest first where VS_POOL_FENCES are outstanding. Positive where that was
 * refused (capturing): the frees are kept aside. */
int vs_pool_close_epoch(struct vs_pool *pool);

/* Makes sure that what was freed before is seen by the host: before an address leaves the context's
 * streams. Waits. Positive where a capture keeps some of it aside. */
int vs_pool_settle(struct vs_pool *pool);

/* Takes memory until at least this much is reserved. */
int vs_pool_reserve(struct vs_pool *pool, uint64_t bytes);

/* Gives free memory back until at most keep bytes of it are left (and POOL_SIZE is kept). wait:
 * also what has to be waited for. Returns the bytes given back. */
uint64_t vs_pool_trim(struct vs_pool *pool, uint64_t keep, bool wait);

/* Decay: called every eighth of the decay time while it returns true; gives back what lay free
 * through the last eight calls. False: nothing is left that could ever go; call again after the
 * next free. Waits for the device only as closing an epoch or ops->give does. */
bool vs_pool_decay(struct vs_pool *pool);

/* Is more free than trim_above? Then call vs_pool_trim(pool, trim_above, false). */
bool vs_pool_wants_trim(struct vs_pool *pool);

struct vs_pool_stats {
    uint64_t reserved_bytes, reserved_peak;
    uint64_t live_bytes, live_peak;  /* what live blocks occupy, rounding and size classes included;
                                      * its peak with whole runs of small ones */
    uint64_t block_bytes;            /* the same as live_bytes */
    uint64_t free_bytes;             /* reserved and not in live blocks; pending included */
    uint64_t pending_bytes;          /* freed, fence neither ordered nor seen */
    uint64_t largest_free_bytes;     /* largest request served without new memory or remapping */
    uint64_t pinned_bytes;           /* free bytes in pages that a live block keeps in place */
    uint64_t hits, misses;           /* served without, and with, asking the device for memory */
    uint64_t waits, orders, records; /* fences: host waits, device orders, recorded */
    uint64_t trims, released_bytes, remapped_bytes;
    uint64_t dead_bytes; /* reserved, but lost to a device that refused to unmap it */
    uint64_t host_bytes; /* host memory in use, what is mapped and was never touched left out where
                          * that is known */
};

void vs_pool_stats(struct vs_pool *pool, struct vs_pool_stats *out);

/* Walks every invariant; 0, or a number that names the one that does not hold (pool/validate.c).
 * For tests; nobody else may be in the pool. */
int vs_pool_validate(struct vs_pool *pool);

#endif
