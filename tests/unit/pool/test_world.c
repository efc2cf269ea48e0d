/*
 * What the naive model (world.h) would notice of memory that is mapped at several addresses: played
 * by hand, without a pool, and by a pool whose device lends memory twice.
 */
#include "tests/unit/pool/drive.h"
#include "tests/unit/pool/world_internal.h"
#include "tests/unit/report/testing.h"

#include <string.h>

#define PAGE VS_POOL_PAGE

static struct world world;
static struct choices choices;
static uint64_t home, view; /* one handle of a page, mapped at both */
static uint64_t handle;

static int set_up(void **state)
{
    (void)state;
    memset(&world, 0, sizeof(world));
    choices = (struct choices){.state = 1};
    vs_replay_device_init(&world.base, 64 * PAGE);
    world.choices = &choices;
    world.streams = 1;
    assert_int_equal(world_ops.reserve(&world, 8 * PAGE, &home), 0);
    assert_int_equal(world_ops.reserve(&world, 8 * PAGE, &view), 0);
    assert_int_equal(world_ops.create(&world, PAGE, &handle), 0);
    assert_int_equal(world_ops.map(&world, home, PAGE, handle), 0);
    assert_int_equal(world_ops.map(&world, view, PAGE, handle), 0);
    assert_int_equal(world_ops.access(&world, home, PAGE), 0);
    assert_int_equal(world_ops.access(&world, view, PAGE), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_abandon(&world);
    return 0;
}

static struct world_block block(uint64_t start, uint64_t bytes)
{
    return (struct world_block){.start = start, .asked = bytes, .occupied = bytes};
}

/* Work on a block, submitted and not finished. */
static void work(const struct world_block *on)
{
    uint32_t slot = ++world.submitted % WORLD_AHEAD;

    world.ahead[slot].number = world.submitted;
    world.ahead[slot].done = false;
    world_use(&world, on);
}

static void says(const char *words)
{
    if (!strstr(world.breach, words)) {
        fail_msg("\"%s\" is not in \"%s\"", words, world.breach);
    }
}

static void shares(void **state)
{
    struct world_block one = block(home, 4096), other = block(view + 4096, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    world_own(&world, &other, WORLD_OWNED); /* beside it */
    assert_string_equal(world.breach, "");
    assert_int_equal(world.pages_live, 1); /* of memory */
    other = block(view + 2048, 2048);
    world_own(&world, &other, WORLD_OWNED);
    says("shares memory with another");
}

/* A freed block waits for its fence, whatever the address under which it comes again. */
static void waits_for_its_fence(void **state)
{
    struct world_block one = block(home, 4096), other = block(view, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    work(&one);
    world_own(&world, &one, 0);
    assert_int_equal(world_ops.record(&world, 0), 0);
    assert_int_equal(world_ops.order(&world, 0), 0);
    world_own(&world, &other, WORLD_OWNED);
    assert_string_equal(world.breach, "");
    work(&other);
    world_own(&world, &other, 0);
    world_own(&world, &one, WORLD_OWNED);
    says("submission 2 used it, up to 1 are ordered");
}

/* Each address waits for what went through it. */
static void unmaps_what_is_unused(void **state)
{
    struct world_block one = block(home, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    work(&one);
    assert_int_equal(world_ops.unmap(&world, view, PAGE), 0);
    assert_string_equal(world.breach, "");
}

static void unmaps_early(void **state)
{
    struct world_block one = block(home, 4096), other = block(view, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    work(&one);
    world_own(&world, &one, 0);
    assert_int_equal(world_ops.record(&world, 0), 0);
    assert_int_equal(world_ops.order(&world, 0), 0);
    /* Used since through the other one; ordered is not seen. */
    world_own(&world, &other, WORLD_OWNED);
    work(&other);
    world_ops.unmap(&world, home, PAGE);
    says("submission 1 went through there, up to 0 are seen");
}

static void unmaps_live(void **state)
{
    struct world_block one = block(view, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    assert_int_equal(world_ops.unmap(&world, home, PAGE), 0);
    assert_string_equal(world.breach, "");
    world_ops.unmap(&world, view, PAGE);
    says("a live block is unmapped");
}

/* What went through one of the addresses is a use of the memory. */
static void releases_early(void **state)
{
    struct world_block one = block(view, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    work(&one);
    world_own(&world, &one, 0);
    world_ops.unmap(&world, view, PAGE);
    assert_int_equal(world_ops.unmap(&world, home, PAGE), 0);
    world.breach[0] = '\0'; /* of the unmapping */
    world_ops.release(&world, handle, PAGE);
    says("memory is released: submission 1 used it, up to 0 are seen");
}

static void releases_seen(void **state)
{
    struct world_block one = block(view, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    work(&one);
    world_own(&world, &one, 0);
    assert_int_equal(world_ops.record(&world, 0), 0);
    assert_int_equal(world_ops.wait(&world, 0), 0);
    assert_int_equal(world_ops.unmap(&world, view, PAGE), 0);
    assert_int_equal(world_ops.unmap(&world, home, PAGE), 0);
    world_ops.release(&world, handle, PAGE);
    assert_string_equal(world.breach, "");
    assert_null(world.base.breach);
    assert_int_equal(world.base.charged, 0);
}

/* Freed in a capture: it is neither anybody's nor to be had, at both addresses. */
static void kept_aside(void **state)
{
    struct world_block one = block(home, 4096), other = block(view, 4096);

    (void)state;
    world_own(&world, &one, WORLD_OWNED);
    world.capturing = true;
    world_own(&world, &one, 0);
    world_own(&world, &other, WORLD_OWNED);
    says("shares memory with another");
    world.breach[0] = '\0';
    world_ops.unmap(&world, home, PAGE);
    says("a just freed block is unmapped");
}

/* Some pool's programs, on a device that now and then maps memory which is mapped already. */
static void lends_twice(void **state)
{
    static const struct scenario scenario = {
        .name = "lends twice", .cap = UINT64_C(64) << 20, .lend_permille = 50};
    uint64_t seed = testing_seed();
    unsigned found = 0;

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        struct choices own = {.state = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1};

        found += strstr(drive(&scenario, &own, 600, 0), "shares memory with another") != NULL;
    }
    printf("%u of 20\n", found);
    assert_true(found > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waits_for_its_fence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unmaps_what_is_unused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unmaps_early, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unmaps_live, set_up, tear_down),
        cmocka_unit_test_setup_teardown(releases_early, set_up, tear_down),
        cmocka_unit_test_setup_teardown(releases_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kept_aside, set_up, tear_down),
        cmocka_unit_test(lends_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
