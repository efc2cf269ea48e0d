/* Built-in kernels. */
#include "sim.h"
void sim_kernel_run(struct sim_op *op)
{
    (void)op;
}
