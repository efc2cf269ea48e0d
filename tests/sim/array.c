/*
 * Arrays: the hook for copies. None can be created yet.
 */
#include "sim.h"

bool sim_array_end(CUarray array, size_t x, size_t y, size_t z, struct sim_end *end)
{
    (void)array, (void)x, (void)y, (void)z, (void)end;
    return false;
}
