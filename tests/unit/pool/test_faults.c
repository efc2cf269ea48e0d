/*
 * What the random programs would notice: each fault that a test build can switch on (enum
 * vs_pool_fault) is found by some of them, on each backing that has it.
 */
#include "tests/unit/pool/drive.h"
#include "tests/unit/report/testing.h"

#define PROGRAMS 200
#define STEPS 600

static const struct scenario vmm = {
    .name = "vmm", .cap = UINT64_C(64) << 20, .captures = true, .holds = true};
static const struct scenario native = {.name = "native",
                                       .backing = VS_POOL_NATIVE,
                                       .cap = UINT64_C(64) << 20,
                                       .captures = true,
                                       .holds = true};

static const struct scenario giants = {
    .name = "giants", .cap = UINT64_C(768) << 20, .sizes = DRIVE_GIANT, .captures = true};

/* Nothing plain: what is found is found of streams. */
static const struct scenario vmm_streams = {.name = "vmm, streams",
                                            .cap = UINT64_C(64) << 20,
                                            .streams = true,
                                            .ordered = true,
                                            .holds = true};
static const struct scenario native_streams = {.name = "native, streams",
                                               .backing = VS_POOL_NATIVE,
                                               .cap = UINT64_C(64) << 20,
                                               .streams = true,
                                               .ordered = true,
                                               .holds = true};

static const char *run(const struct scenario *scenario, uint64_t seed, uint32_t faults)
{
    struct choices choices = {.state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1};

    return drive(scenario, &choices, STEPS, faults);
}

/* A program that breaks with the fault, and does not without. */
static void finds(const struct scenario *scenario, enum vs_pool_fault fault)
{
    uint64_t seed = testing_seed();

    for (unsigned i = 0; i < PROGRAMS; i++) {
        const char *breach = run(scenario, seed + i, fault);

        if (breach[0]) {
            printf("%s, program %u: %s\n", scenario->name, i, breach);
            breach = run(scenario, seed + i, 0);
            if (breach[0]) {
                fail_msg("and without the fault: %s", breach);
            }
            return;
        }
    }
    fail_msg("%d programs with the fault, and none breaks", PROGRAMS);
}

static void no_fences(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_NO_FENCES);
    finds(&giants, VS_POOL_NO_FENCES);
    finds(&native, VS_POOL_NO_FENCES);
    finds(&vmm_streams, VS_POOL_NO_FENCES);
    finds(&native_streams, VS_POOL_NO_FENCES);
}

static void late_fences(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_LATE_FENCES);
    finds(&native, VS_POOL_LATE_FENCES);
    finds(&vmm_streams, VS_POOL_LATE_FENCES);
    finds(&native_streams, VS_POOL_LATE_FENCES);
}

static void unmap_ordered(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_UNMAP_ORDERED);
    finds(&giants, VS_POOL_UNMAP_ORDERED);
    finds(&vmm_streams, VS_POOL_UNMAP_ORDERED);
}

/* This one is not the pool's but of what is below it; the world plays that. */
static void record_in_capture(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_RECORD_IN_CAPTURE);
    finds(&native, VS_POOL_RECORD_IN_CAPTURE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_fences),
        cmocka_unit_test(late_fences),
        cmocka_unit_test(unmap_ordered),
        cmocka_unit_test(record_in_capture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
