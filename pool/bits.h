/* Maps of VS_BITS bits in words: ranges set, cleared and found. */
#ifndef VS_POOL_BITS_H
#define VS_POOL_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define VS_BITS_WORDS 8u
#define VS_BITS (64 * VS_BITS_WORDS)

/* The part of a word of a map that lies in [from, to). */
static inline uint64_t vs_bits_mask(unsigned word, unsigned from, unsigned to)
{
    unsigned low = word * 64;
    uint64_t bits = from > low ? ~UINT64_C(0) << (from - low) : ~UINT64_C(0);
    return to < low + 64 ? bits & ~(~UINT64_C(0) << (to - low)) : bits;
}

static inline void vs_bits_set(uint64_t *map, unsigned from, unsigned to)
{
    for (unsigned word = from / 64; word * 64 < to; word++) {
        map[word] |= vs_bits_mask(word, from, to);
    }
}

static inline void vs_bits_clear(uint64_t *map, unsigned from, unsigned to)
{
    for (unsigned word = from / 64; word * 64 < to; word++) {
        map[word] &= ~vs_bits_mask(word, from, to);
    }
}

static inline bool vs_bits_test(const uint64_t *map, unsigned at)
{
    return map[at / 64] >> at % 64 & 1;
}

/* The first bit from `from` on that is set (flip: that is not), or VS_BITS. */
static inline unsigned vs_bits_next(const uint64_t *map, unsigned from, uint64_t flip)
{
    for (unsigned word = from / 64; word < VS_BITS_WORDS; word++, from = word * 64) {
        uint64_t bits = (map[word] ^ flip) & ~UINT64_C(0) << from % 64;
        if (bits) {
            return word * 64 + (unsigned)__builtin_ctzll(bits);
        }
    }
    return VS_BITS;
}

#endif
