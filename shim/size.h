/*
 * Numbers that people write: sizes, whole numbers, fractions, and amounts (a size or a percentage).
 *
 * Parsers take a slice (not NUL-terminated) and return NULL if all of it was understood, else a
 * static phrase that says what is wrong with it; then the result is untouched. They are strict: no
 * blanks, no sign where none makes sense, nothing behind the number. No malloc, no locale.
 */
#ifndef VS_SHIM_SIZE_H
#define VS_SHIM_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Fractions are kept as whole parts per billion; digits beyond that are rounded down. */
#define VS_SIZE_WHOLE 1000000000U

/* Part of something: bytes, or where bytes is 0 a fraction of the whole. Both 0: not set. */
struct vs_amount {
    uint64_t bytes;
    uint32_t ppb; /* 1 … VS_SIZE_WHOLE */
};

/* 512MiB, 8G, 4096: K M G T and KiB MiB GiB TiB are binary, in either case; KB and the like are
 * refused, for nobody knows which one is meant. 0 … INT64_MAX, so that sums stay in range. */
const char *vs_size_parse(const char *text, size_t length, uint64_t *bytes);

/* A whole decimal number, low … high. */
const char *vs_size_parse_integer(const char *text, size_t length, int64_t low, int64_t high,
                                  int64_t *value);

/* A decimal number in (0,1], with a point whatever the locale: 0.5, .25, 1. */
const char *vs_size_parse_fraction(const char *text, size_t length, uint32_t *ppb);

/* A size above 0, or N% in (0,100]. */
const char *vs_size_parse_amount(const char *text, size_t length, struct vs_amount *amount);

/* What an amount comes to, of total bytes: at least 1 (0 would read as "no cap"), at most total. */
uint64_t vs_size_of_amount(struct vs_amount amount, uint64_t total);

/* Texts that the parsers read back to the same value. Room for any of them: */
#define VS_SIZE_TEXT 32

/* In the largest binary unit that divides it: 8GiB, 1536MiB, 1000. Returns out. */
const char *vs_size_text(char out[VS_SIZE_TEXT], uint64_t bytes);
const char *vs_size_fraction_text(char out[VS_SIZE_TEXT], uint32_t ppb);          /* 0.5 */
const char *vs_size_amount_text(char out[VS_SIZE_TEXT], struct vs_amount amount); /* 8GiB, 12.5% */

#endif
