/*
 * Epochs (see epochs.h).
 *
 * fence_epoch[] and `closed` change under the lock; the fence of epoch e lies under number e modulo
 * VS_POOL_FENCES, so the one that it replaces must have passed before: with that many outstanding
 * the host waits for the oldest, as the driver's own free would have.
 */
#include "pool/epochs.h"

#include "pool/pool.h"

static uint64_t load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_seq_cst);
}

static bool raise(_Atomic uint64_t *word, uint64_t to)
{
    uint64_t now = load(word);
    while (now < to) {
        if (atomic_compare_exchange_weak(word, &now, to)) {
            return true;
        }
    }
    return false;
}

void vs_epochs_init(struct vs_epochs *epochs, uint32_t faults)
{
    epochs->open = 1;
    epochs->faults = faults;
    if (faults & VS_POOL_NO_FENCES) {
        epochs->available = epochs->seen = UINT64_MAX / 2;
    }
}

void vs_epochs_freed(struct vs_epochs *epochs, uint64_t epoch)
{
    if (__builtin_expect(load(&epochs->freed) < epoch, 0)) {
        raise(&epochs->freed, epoch);
    }
}

uint64_t vs_epochs_seen(const struct vs_epochs *epochs)
{
    return epochs->faults & VS_POOL_UNMAP_ORDERED ? load(&epochs->available) : load(&epochs->seen);
}

static bool saw(struct vs_epochs *epochs, uint64_t epoch)
{
    bool more = raise(&epochs->seen, epoch);
    raise(&epochs->available, epoch);
    return more;
}

/* The first epoch from `from` on that has a fence of its own, up to closed; 0 if there is none. The
 * lock is held. Epochs without one are rare (captures), so this looks at one or two. */
static uint64_t fence_from(const struct vs_epochs *epochs, uint64_t from)
{
    uint64_t closed = load(&epochs->closed);
    for (uint64_t e = from; e <= closed; e++) {
        if (epochs->fence_epoch[e % VS_POOL_FENCES] == e) {
            return e;
        }
    }
    return 0;
}

static uint64_t find_fence(struct vs_epochs *epochs, uint64_t from, const struct vs_pool_ops *ops,
                           void *world)
{
    vs_pool_lock(&epochs->lock, ops, world);
    uint64_t epoch = fence_from(epochs, from);
    vs_pool_unlock(&epochs->lock);
    return epoch;
}

int vs_epochs_wait_some(struct vs_epochs *epochs, uint64_t until, const struct vs_pool_ops *ops,
                        void *world)
{
    uint64_t seen = load(&epochs->seen), closed = load(&epochs->closed);
    until = until < closed ? until : closed;
    if (until <= seen) {
        return 0;
    }
    uint64_t epoch = find_fence(epochs, seen + (until - seen + 1) / 2, ops, world);
    if (!epoch) {
        return 0;
    }
    atomic_fetch_add(&epochs->waits, 1);
    int rc = ops->wait(world, (uint32_t)(epoch % VS_POOL_FENCES));
    if (rc < 0) {
        return rc;
    }
    saw(epochs, epoch);
    return 1;
}

int vs_epochs_close(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world)
{
    uint64_t epoch;
    if (epochs->faults & VS_POOL_NO_FENCES) {
        raise(&epochs->closed, load(&epochs->freed));
        return 0;
    }
    for (;;) {
        uint64_t none = 0;
        if (!vs_epochs_unclosed(epochs)) {
            return 0;
        }
        if (!atomic_compare_exchange_strong(&epochs->recording, &none, 1)) {
            ops->nap(
                world); /* what another thread records now covers our frees, or it is our turn */
            continue;
        }
        if (!vs_epochs_unclosed(epochs)) {
            atomic_store(&epochs->recording, 0);
            return 0;
        }
        epoch = load(&epochs->open);
        if (epoch <= load(&epochs->seen) + VS_POOL_FENCES - 1) {
            break;
        }
        /* Every number is in use. */
        atomic_store(&epochs->recording, 0);
        int rc = vs_epochs_poll(epochs, ops, world);
        if (rc == 0) {
            rc = vs_epochs_wait_some(epochs, load(&epochs->seen) + 1, ops, world);
        }
        if (rc < 0) {
            return rc;
        }
    }
    atomic_store(&epochs->open, epoch + 1);
    uint32_t number = (uint32_t)(epoch % VS_POOL_FENCES);
    int rc = ops->record(world, number);
    vs_pool_lock(&epochs->lock, ops, world);
    epochs->fence_epoch[number] = rc == 0 ? epoch : 0;
    if (rc == 0) {
        atomic_store(&epochs->closed, epoch);
    }
    vs_pool_unlock(&epochs->lock);
    atomic_store(&epochs->recording, 0);
    atomic_fetch_add_explicit(&epochs->records, 1, memory_order_relaxed);
    return rc;
}

int vs_epochs_order(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world)
{
    uint64_t closed = load(&epochs->closed);
    if (closed <= load(&epochs->available)) {
        return 0;
    }
    int rc = ops->order(world, (uint32_t)(closed % VS_POOL_FENCES));
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    atomic_fetch_add_explicit(&epochs->orders, 1, memory_order_relaxed);
    return raise(&epochs->available, closed);
}

int vs_epochs_poll(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world)
{
    uint64_t start = load(&epochs->seen), seen = start, step = 1;
    /* Outwards from what is known, in growing steps: a fence that has passed says the same of all
     * before it, and one that has not ends the search. */
    for (;;) {
        uint64_t closed = load(&epochs->closed);
        uint64_t epoch =
            seen < closed
                ? find_fence(epochs, seen + step < closed ? seen + step : closed, ops, world)
                : 0;
        if (!epoch) {
            break;
        }
        atomic_fetch_add_explicit(&epochs->polls, 1, memory_order_relaxed);
        int rc = ops->query(world, (uint32_t)(epoch % VS_POOL_FENCES));
        if (rc < 0) {
            return rc;
        }
        if (rc > 0) {
            break;
        }
        seen = epoch;
        step *= 2;
        saw(epochs, epoch);
    }
    return seen > start;
}
