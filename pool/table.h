/*
 * A table of host records, known by number from 1 on: chunks that never move and are never given
 * back, so that a reader without a lock may look at a stale number and find some record there.
 * Numbers that were given back are handed out again, the last one first. The owner's lock guards
 * take and give; at() needs none.
 */
#ifndef VS_POOL_TABLE_H
#define VS_POOL_TABLE_H

#include <stdatomic.h>

#include "pool/ops.h"

#define VS_TABLE_CHUNK_BITS 10
#define VS_TABLE_CHUNK (1u << VS_TABLE_CHUNK_BITS) /* records per chunk */
#define VS_TABLE_CHUNKS (1u << 14)                 /* so 16 Mi records */

struct vs_table {
    _Atomic(char *) *chunks; /* VS_TABLE_CHUNKS of them */
    uint32_t
        record_bytes; /* whole words of eight; a free record's first four bytes link the next */
    /* Away from the line that all readers need. */
    uint32_t used __attribute__((aligned(64))); /* the highest number ever handed out */
    uint32_t free;                              /* 0 = none */
    uint64_t host_bytes;                        /* of the chunks */
};

/* A record, whose size the caller knows as a constant. */
static inline void *vs_table_at(const struct vs_table *table, uint32_t number, uint32_t bytes)
{
    char *chunk =
        atomic_load_explicit(&table->chunks[number >> VS_TABLE_CHUNK_BITS], memory_order_acquire);
    return chunk + (uint64_t)(number & (VS_TABLE_CHUNK - 1)) * bytes;
}

/* record_bytes: a multiple of 8. */
int vs_table_init(struct vs_table *table, uint32_t record_bytes, const struct vs_pool_ops *ops,
                  void *world);
void vs_table_fini(struct vs_table *table, const struct vs_pool_ops *ops, void *world);

/* A zeroed record's number, or 0 where there is no host memory. */
uint32_t vs_table_take(struct vs_table *table, const struct vs_pool_ops *ops, void *world);
void vs_table_give(struct vs_table *table, uint32_t number);

#endif
