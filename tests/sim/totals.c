/*
 * vramsim-totals [FILE]: what a shared simulated machine (VRAMSIM_SHARE) holds and ever held, as
 * one JSON object. It takes no memory and changes nothing but the slots of dead processes, so it
 * can prove after the fact, kills included, that a cap was never exceeded. Exit 1: no such machine.
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct sim_knobs knobs = {.share = argc > 1 ? argv[1] : getenv("VRAMSIM_SHARE")};
    if (argc > 2 || knobs.share == NULL || knobs.share[0] == '\0') {
        fprintf(stderr, "usage: vramsim-totals FILE\n");
        return 2;
    }
    struct sim_shape shape;
    struct sim_share *share = sim_share_open(&knobs, false, false, &shape);
    if (share == NULL)
        return 1;
    printf("{\"gpus\": %d, \"mig_instances\": %d, \"units\": [", shape.gpus, shape.instances);
    bool good = true;
    for (int unit = 0; unit < sim_shape_units(&shape); unit++) {
        struct sim_totals totals;
        static struct sim_holder holder[1024];
        good &= sim_share_totals(share, unit, &totals);
        unsigned count = sim_share_holders(share, unit, holder, 1024);
        printf("%s\n  {\"total_bytes\": %zu, \"used_bytes\": %llu, \"peak_bytes\": %llu, "
               "\"process_peak_bytes\": %llu, \"processes\": [",
               unit > 0 ? "," : "", sim_shape_unit_memory(&shape), (unsigned long long)totals.used,
               (unsigned long long)totals.peak, (unsigned long long)totals.process_peak);
        for (unsigned i = 0; i < count && i < 1024; i++)
            printf("%s{\"pid\": %d, \"bytes\": %llu}", i > 0 ? ", " : "", (int)holder[i].pid,
                   (unsigned long long)holder[i].bytes);
        printf("]}");
    }
    printf("]}\n");
    sim_share_close(share);
    return good && fflush(stdout) == 0 ? 0 : 1;
}
