/* Host records by number, and the wait of the pool's lock (see table.h, lock.h). */
#include "pool/table.h"

#include <errno.h>
#include <string.h>

#include "pool/lock.h"

void vs_pool_lock_wait(struct vs_pool_lock *lock, const struct vs_pool_ops *ops, void *world)
{
    for (unsigned spins = 0;; spins++) {
        if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0 &&
            atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0) {
            break;
        }
        vs_pool_pause(spins, ops, world);
    }
    lock->waits++;
}

int vs_table_init(struct vs_table *table, uint32_t record_bytes, const struct vs_pool_ops *ops,
                  void *world)
{
    *table = (struct vs_table){.record_bytes = record_bytes};
    table->chunks = ops->host_map(world, VS_TABLE_CHUNKS * sizeof *table->chunks);
    return table->chunks ? 0 : -ENOMEM;
}

void vs_table_fini(struct vs_table *table, const struct vs_pool_ops *ops, void *world)
{
    if (!table->chunks) {
        return;
    }
    for (uint32_t i = 0; i < VS_TABLE_CHUNKS; i++) {
        char *chunk = atomic_load_explicit(&table->chunks[i], memory_order_relaxed);
        if (!chunk) {
            break;
        }
        ops->host_unmap(world, chunk, (size_t)VS_TABLE_CHUNK * table->record_bytes);
    }
    ops->host_unmap(world, table->chunks, VS_TABLE_CHUNKS * sizeof *table->chunks);
    table->chunks = NULL;
}

/* In whole words: who looks at a stale number without a lock sees the old one or nothing. */
static void wipe(const struct vs_table *table, void *record)
{
    uint64_t *words = record;
    for (uint32_t i = 0; i < table->record_bytes / sizeof *words; i++) {
        __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
    }
}

uint32_t vs_table_take(struct vs_table *table, const struct vs_pool_ops *ops, void *world)
{
    uint32_t number = table->free;
    if (number) {
        char *record = vs_table_at(table, number, table->record_bytes);
        memcpy(&table->free, record, sizeof table->free);
        wipe(table, record);
        return number;
    }
    number = table->used + 1;
    uint32_t at = number >> VS_TABLE_CHUNK_BITS;
    if (at == VS_TABLE_CHUNKS) {
        return 0;
    }
    if (!atomic_load_explicit(&table->chunks[at], memory_order_relaxed)) {
        size_t bytes = (size_t)VS_TABLE_CHUNK * table->record_bytes;
        char *chunk = ops->host_map(world, bytes);
        if (!chunk) {
            return 0;
        }
        table->host_bytes += bytes;
        atomic_store_explicit(&table->chunks[at], chunk, memory_order_release);
    }
    table->used = number;
    return number;
}

void vs_table_give(struct vs_table *table, uint32_t number)
{
    memcpy(vs_table_at(table, number, table->record_bytes), &table->free, sizeof table->free);
    table->free = number;
}
