/* Stream-ordered allocation. */
#include "sim.h"
void sim_pool_op_run(struct sim_op *op)
{
    (void)op;
}
void sim_pool_free_now(struct sim_range *range)
{
    sim_range_free(range);
}
void sim_pools_synchronised(void)
{
}
