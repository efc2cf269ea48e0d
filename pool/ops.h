/*
 * The boundary of the pool: everything that it needs from outside, as one struct of functions.
 *
 * The pool is pure logic above this header: no CUDA, no environment, no clock, no stdio. Bytes are
 * bytes, addresses are device addresses as integers, `world` is whatever the owner of the pool gave
 * with the struct.
 *
 * Unless it says otherwise a function returns 0 or a negative errno. -ENOMEM means that the device
 * has no such memory now (the pool then tries otherwise); anything else is a fault of the device or
 * its context, and goes to the caller of the pool unchanged. Functions are called from any thread,
 * several at once, and with no lock of the pool held, except host_map, host_unmap, nap and
 * reserved, which must not call the pool.
 */
#ifndef VS_POOL_OPS_H
#define VS_POOL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VS_POOL_PAGE ((uint64_t)2 << 20) /* the unit of mapped memory */

struct vs_pool_ops {
    /*
     * Mapped memory (the vmm backing). Sizes and addresses are multiples of VS_POOL_PAGE.
     * reserve: a range of addresses with nothing behind it. create: physical memory, as one handle
     * (never 0), charged by the implementation to the cap: -ENOMEM where that or the device says
     * no; release gives it back. map puts a whole handle at an address where nothing is; access
     * makes a range usable that any number of handles was mapped to; unmap takes whole handles
     * out of a range.
     */
    int (*reserve)(void *world, uint64_t bytes, uint64_t *address);
    void (*unreserve)(void *world, uint64_t address, uint64_t bytes);
    int (*create)(void *world, uint64_t bytes, uint64_t *handle);
    void (*release)(void *world, uint64_t handle, uint64_t bytes);
    int (*map)(void *world, uint64_t address, uint64_t bytes, uint64_t handle);
    int (*access)(void *world, uint64_t address, uint64_t bytes);
    int (*unmap)(void *world, uint64_t address, uint64_t bytes);

    /* Whole allocations (the native backing), charged like create. Any size that is a multiple of
     * VS_POOL_PAGE; the address is a multiple of VS_POOL_PAGE too. */
    int (*take)(void *world, uint64_t bytes, uint64_t *address);
    int (*give)(void *world, uint64_t address, uint64_t bytes);

    /*
     * Fences. A fence covers the work that the program has submitted to the context before it was
     * recorded. There are VS_POOL_FENCES of them, known by number; recording one again forgets what
     * it was.
     * record: closes what came before. Positive where it cannot be recorded now (a stream of the
     *   context is capturing): nothing has happened, the pool asks again later.
     * order: all later work of the context waits for the fence, on the device. Positive where that
     *   cannot be had (capturing, or a driver that cannot).
     * query: 0 = passed, positive = not yet.
     * wait: the host waits until it has passed.
     */
    int (*record)(void *world, uint32_t fence);
    int (*order)(void *world, uint32_t fence);
    int (*query)(void *world, uint32_t fence);
    int (*wait)(void *world, uint32_t fence);

    /*
     * Fences of single streams, VS_POOL_STREAM_FENCES to each, by the stream's number (pool.h): as
     * above, but they cover the work of that stream alone, and stream_order makes only the waiter's
     * later work wait. stream_wait: where it is not patient, for about a second; positive: it has
     * not passed.
     * room: how much more could be taken before the cap says no; UINT64_MAX where none is set. May
     *   be called with locks held.
     */
    int (*stream_record)(void *world, uint32_t stream, uint32_t fence);
    int (*stream_order)(void *world, uint32_t waiter, uint32_t stream, uint32_t fence);
    int (*stream_query)(void *world, uint32_t stream, uint32_t fence);
    int (*stream_wait)(void *world, uint32_t stream, uint32_t fence, bool patient);
    uint64_t (*room)(void *world);

    /* May the pool make later work of the context wait without cost? False where several streams
     * are busy: then order serialises them, and comes later in the ladder. */
    bool (*one_stream)(void *world);

    /* Zeroed host memory, page-aligned, touched lazily; NULL where there is none. Never malloc. */
    void *(*host_map)(void *world, size_t bytes);
    void (*host_unmap)(void *world, void *at, size_t bytes);

    /* Gives the processor away for a moment, while another thread is about to finish something. */
    void (*nap)(void *world);

    /* The pool holds this much more, or less, from the device. */
    void (*reserved)(void *world, int64_t delta);
};

#define VS_POOL_FENCES 2048u
#define VS_POOL_STREAM_FENCES 32u

#endif
