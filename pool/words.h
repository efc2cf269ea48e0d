/* Words that only grow, shared by threads: stamps, epochs, peaks. */
#ifndef VS_POOL_WORDS_H
#define VS_POOL_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sequentially consistent: whoever frees and whoever records a fence each write one word and then
 * look at the other's. */
static inline uint64_t vs_word_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_seq_cst);
}

/* False: it was there already, or beyond. */
static inline bool vs_word_raise(_Atomic uint64_t *word, uint64_t to)
{
    uint64_t now = vs_word_load(word);
    while (now < to) {
        if (atomic_compare_exchange_weak(word, &now, to)) {
            return true;
        }
    }
    return false;
}

#endif
