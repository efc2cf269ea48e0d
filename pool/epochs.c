/*
 * Epochs (see epochs.h).
 *
 * The ring and `closed` change under the lock, and only whoever is `recording` adds to it. A number
 * is used again only when its fence has been seen.
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

/* The first fence of an epoch from `from` on: its epoch, and *number; 0 if there is none
 * outstanding. Epochs without a fence of their own (captures) are covered by the next. */
static uint64_t find_fence(struct vs_epochs *epochs, uint64_t from, uint32_t *number,
                           const struct vs_pool_ops *ops, void *world)
{
    uint64_t seen = load(&epochs->seen), epoch = 0;
    vs_pool_lock(&epochs->lock, ops, world);
    while (epochs->oldest < epochs->recorded &&
           epochs->fence_epoch[epochs->oldest % VS_POOL_FENCES] <= seen) {
        epochs->oldest++;
    }
    uint64_t low = epochs->oldest, high = epochs->recorded;
    if (high - low > 1 && epochs->fence_epoch[(high - 2) % VS_POOL_FENCES] < from) {
        low = high - 1; /* mostly it is the last one that is asked for */
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (epochs->fence_epoch[middle % VS_POOL_FENCES] < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < epochs->recorded) {
        *number = (uint32_t)(low % VS_POOL_FENCES);
        epoch = epochs->fence_epoch[*number];
    }
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
    uint32_t number;
    uint64_t epoch = find_fence(epochs, seen + (until - seen + 1) / 2, &number, ops, world);
    if (!epoch) {
        return 0;
    }
    atomic_fetch_add(&epochs->waits, 1);
    int rc = ops->wait(world, number);
    if (rc < 0) {
        return rc;
    }
    saw(epochs, epoch);
    return 1;
}

static bool has_room(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world)
{
    vs_pool_lock(&epochs->lock, ops, world);
    bool room = epochs->recorded - epochs->oldest < VS_POOL_FENCES;
    vs_pool_unlock(&epochs->lock);
    return room;
}

/* Is there a number whose fence nobody needs any more? Otherwise the host waits for the oldest, as
 * the driver's own free would have. */
static int make_number(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world)
{
    for (;;) {
        uint32_t number;
        if (has_room(epochs, ops, world)) {
            return 0;
        }
        uint64_t epoch = find_fence(epochs, 0, &number, ops, world);
        if (!epoch || has_room(epochs, ops, world)) {
            return 0;
        }
        int rc = vs_epochs_poll(epochs, ops, world);
        if (rc == 0) {
            rc = ops->wait(world, number);
            saw(epochs, rc == 0 ? epoch : 0);
        }
        if (rc < 0) {
            return rc;
        }
    }
}

int vs_epochs_close(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world)
{
    if (epochs->faults & VS_POOL_NO_FENCES) {
        raise(&epochs->closed, load(&epochs->freed));
        return 0;
    }
    /* Those that meet here share fences: what one records covers what the others freed before it
     * began. */
    bool mine = false;
    uint64_t freed = load(&epochs->freed);
    for (unsigned spins = 0; !mine; spins++) {
        uint64_t none = 0;
        if (load(&epochs->closed) >= freed) {
            return 0;
        }
        mine = load(&epochs->recording) == 0 &&
               atomic_compare_exchange_strong(&epochs->recording, &none, 1);
        if (!mine) {
            vs_pool_pause(spins, ops, world);
        }
    }
    int rc = load(&epochs->closed) < freed ? make_number(epochs, ops, world) : 1;
    if (rc == 1) {
        rc = 0; /* done by the one before us */
    } else if (rc == 0) {
        uint64_t epoch = load(&epochs->open);
        atomic_store(&epochs->open, epoch + 1);
        rc = ops->record(world, (uint32_t)(epochs->recorded % VS_POOL_FENCES));
        if (rc == 0) {
            vs_pool_lock(&epochs->lock, ops, world);
            epochs->fence_epoch[epochs->recorded++ % VS_POOL_FENCES] = epoch;
            /* Whoever reads an old number closes once more, for nothing: no barrier is needed. */
            atomic_store_explicit(&epochs->closed, epoch, memory_order_release);
            vs_pool_unlock(&epochs->lock);
            atomic_fetch_add_explicit(&epochs->records, 1, memory_order_relaxed);
        }
    }
    atomic_store_explicit(&epochs->recording, 0, memory_order_release);
    return rc;
}

int vs_epochs_order(struct vs_epochs *epochs, const struct vs_pool_ops *ops, void *world)
{
    uint64_t closed = load(&epochs->closed);
    if (closed <= load(&epochs->available)) {
        return 0;
    }
    uint32_t number;
    if (!find_fence(epochs, closed, &number, ops, world)) {
        return 0; /* seen meanwhile */
    }
    int rc = ops->order(world, number);
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
        uint64_t from = seen + step < closed ? seen + step : closed;
        uint32_t number;
        uint64_t epoch = seen < closed ? find_fence(epochs, from, &number, ops, world) : 0;
        if (!epoch) {
            break;
        }
        atomic_fetch_add_explicit(&epochs->polls, 1, memory_order_relaxed);
        int rc = ops->query(world, number);
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
