/*
 * What the random programs would notice: each fault that a test build can switch on (enum
 * vs_pool_fault) is found by some of them, on each backing that has it.
 */
#include "tests/unit/pool/drive.h"
#include "tests/unit/report/testing.h"

#include <string.h>

#define PROGRAMS 200
#define STEPS 600

static const struct scenario vmm = {
    .name = "vmm", .cap = UINT64_C(64) << 20, .captures = true, .holds = true};
static const struct scenario native = {.name = "native",
                                       .backing = VS_POOL_NATIVE,
                                       .cap = UINT64_C(64) << 20,
                                       .captures = true,
                                       .holds = true};

static void finds(const struct scenario *scenario, enum vs_pool_fault fault, const char *text)
{
    uint64_t seed = testing_seed();
    unsigned found = 0;

    for (unsigned i = 0; i < PROGRAMS && !found; i++) {
        struct choices choices = {.state = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1};
        const char *breach = drive(scenario, &choices, STEPS, fault);

        if (breach[0]) {
            printf("%s, program %u: %s\n", scenario->name, i, breach);
            /* Another breach than the one that the fault must lead to is a bug. */
            if (!strstr(breach, text)) {
                fail_msg("expected a breach with \"%s\" in it", text);
            }
            found++;
        }
    }
    assert_int_equal(found, 1);
}

static void no_fences(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_NO_FENCES, "used it");
    finds(&native, VS_POOL_NO_FENCES, "used it");
}

static void late_fences(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_LATE_FENCES, "made after a free");
    finds(&native, VS_POOL_LATE_FENCES, "made after a free");
}

static void unmap_ordered(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_UNMAP_ORDERED, "leaves its address");
}

/* This one is not the pool's but of what is below it; the world plays that. */
static void record_in_capture(void **state)
{
    (void)state;
    finds(&vmm, VS_POOL_RECORD_IN_CAPTURE, "recorded in a capture");
    finds(&native, VS_POOL_RECORD_IN_CAPTURE, "recorded in a capture");
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
