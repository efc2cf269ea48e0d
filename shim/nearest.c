/*
 * The distance of two words (see nearest.h): optimal string alignment over three rolling rows.
 */
#include "shim/nearest.h"

#include <string.h>

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned vs_nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    unsigned before[VS_NEAREST_MAX + 1], last[VS_NEAREST_MAX + 1], row[VS_NEAREST_MAX + 1];

    a_length = a_length > VS_NEAREST_MAX ? VS_NEAREST_MAX : a_length;
    b_length = b_length > VS_NEAREST_MAX ? VS_NEAREST_MAX : b_length;
    memset(before, 0, sizeof(before));
    for (size_t j = 0; j <= b_length; j++) {
        last[j] = (unsigned)j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned replace = last[j - 1] + (a[i - 1] != b[j - 1]);

            row[j] = least(replace, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = least(row[j], before[j - 2] + 1);
            }
        }
        memcpy(before, last, sizeof(before));
        memcpy(last, row, sizeof(last));
    }
    return last[b_length];
}
