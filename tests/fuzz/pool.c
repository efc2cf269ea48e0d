/*
 * Fuzz entry of the pool: the first byte picks a scenario (tests/unit/pool/drive.h), the others are
 * the choices: what the program does, in which order the device finishes, what fails. World and
 * validate check each step.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/pool/drive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices choices = {.bytes = data + 1, .left = size - 1};
    const struct scenario *scenario;
    const char *breach;

    if (size < 2) {
        return 0;
    }
    scenario = &drive_scenarios[data[0] % drive_scenario_count];
    breach = drive(scenario, &choices, 2000, 0);
    if (breach[0]) {
        fprintf(stderr, "%s: %s\n", scenario->name, breach);
        abort();
    }
    return 0;
}
