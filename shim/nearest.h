/*
 * How far apart two words are, for "did you mean". No malloc, no locale.
 */
#ifndef VS_SHIM_NEAREST_H
#define VS_SHIM_NEAREST_H

#include <stddef.h>

/* Only this many characters of a word are looked at. */
#define VS_NEAREST_MAX 64

/* Insertions, removals, replacements and swaps of neighbours that lead from a to b. */
unsigned vs_nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length);

#endif
