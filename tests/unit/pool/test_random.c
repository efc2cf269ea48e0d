/*
 * Random programs against the naive model of world.h. The seed is printed; VS_TEST_SEED repeats a
 * run, VS_TEST_ROUNDS (programs per scenario) and VS_TEST_STEPS change its length.
 */
#include "tests/unit/pool/drive.h"
#include "tests/unit/report/testing.h"

#define ROUNDS 12
#define STEPS 600

static unsigned number(const char *name, unsigned fallback)
{
    const char *given = getenv(name);

    return given ? (unsigned)strtoul(given, NULL, 0) : fallback;
}

static void runs(void **state)
{
    const struct scenario *scenario = *state;
    uint64_t seed = testing_seed();
    unsigned rounds = number("VS_TEST_ROUNDS", ROUNDS);

    for (unsigned round = 0; round < rounds; round++) {
        uint64_t own = seed + round;
        struct choices choices = {.state = own * UINT64_C(0x9e3779b97f4a7c15) | 1};
        /* One thread never gets spans by itself: odd seeds make it have them. */
        const char *breach =
            drive(scenario, &choices, number("VS_TEST_STEPS", STEPS), own % 2 ? VS_POOL_SPANS : 0);

        if (breach[0]) {
            fail_msg("%s: VS_TEST_SEED=%ju VS_TEST_ROUNDS=1: %s", scenario->name, (uintmax_t)own,
                     breach);
        }
    }
}

int main(void)
{
    struct CMUnitTest tests[64] = {{0}};

    for (unsigned i = 0; i < drive_scenario_count; i++) {
        tests[i] = (struct CMUnitTest){
            .name = drive_scenarios[i].name,
            .test_func = runs,
            .initial_state = (void *)(uintptr_t)&drive_scenarios[i],
        };
    }
    return _cmocka_run_group_tests("pool random", tests, drive_scenario_count, NULL, NULL);
}
