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
    world.stream[0].alive = world.stream[1].alive = world.stream[2].alive = true;
    world.stream[2].foreign = true;
    memset(world.column, 0xff, sizeof(world.column));
    for (uint32_t i = 0; i < 3; i++) { /* known to the device alone */
        world.column[i + 1] = i;
    }
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
static void work_on(struct world_block *block, uint32_t stream)
{
    world_work(&world, stream, &block, 1, false);
}

static void work(struct world_block *block)
{
    work_on(block, 0);
}

/* Handed out to a stream, or (WORLD_PLAIN) to anybody. */
static void take_on(const struct world_block *block, uint32_t stream)
{
    struct world_clock justified = {{0}}, allowed = stream == WORLD_PLAIN
                                                        ? world.barrier
                                                        : world_before(&world, stream);

    world_join(&allowed, &world.seen);
    world_own(&world, block, &allowed, &justified);
}

static void take(const struct world_block *block)
{
    take_on(block, WORLD_PLAIN);
}

static void drop(const struct world_block *block)
{
    world_disown(&world, block, world.capturing, &world.seen);
}

/* Freed on a stream, which nobody has asked the pool about. */
static void drop_on(struct world_block *block, uint32_t stream)
{
    block->uses.of[stream] = world.stream[stream].last;
    world.stream[stream].freed = world_before(&world, stream);
    world.stream[stream].open = true;
    world_disown(&world, block, false, &world.stream[stream].freed);
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
    take(&one);
    take(&other); /* beside it */
    assert_string_equal(world.breach, "");
    assert_int_equal(world.pages_live, 1); /* of memory */
    other = block(view + 2048, 2048);
    take(&other);
    says("shares memory with another");
}

/* A freed block waits for its fence, whatever the address under which it comes again. */
static void waits_for_its_fence(void **state)
{
    struct world_block one = block(home, 4096), other = block(view, 4096);

    (void)state;
    take(&one);
    work(&one);
    drop(&one);
    assert_int_equal(world_ops.record(&world, 0), 0);
    assert_int_equal(world_ops.order(&world, 0), 0);
    take(&other);
    assert_string_equal(world.breach, "");
    work(&other);
    drop(&other);
    take(&one);
    says("submission 2 used it, up to 1 are ordered");
}

/* Each address waits for what went through it. */
static void unmaps_what_is_unused(void **state)
{
    struct world_block one = block(home, 4096);

    (void)state;
    take(&one);
    work(&one);
    assert_int_equal(world_ops.unmap(&world, view, PAGE), 0);
    assert_string_equal(world.breach, "");
}

static void unmaps_early(void **state)
{
    struct world_block one = block(home, 4096), other = block(view, 4096);

    (void)state;
    take(&one);
    work(&one);
    drop(&one);
    assert_int_equal(world_ops.record(&world, 0), 0);
    assert_int_equal(world_ops.order(&world, 0), 0);
    /* Used since through the other one; ordered is not seen. */
    take(&other);
    work(&other);
    world_ops.unmap(&world, home, PAGE);
    says("submission 1 went through there, up to 0 are seen");
}

static void unmaps_live(void **state)
{
    struct world_block one = block(view, 4096);

    (void)state;
    take(&one);
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
    take(&one);
    work(&one);
    drop(&one);
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
    take(&one);
    work(&one);
    drop(&one);
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
    take(&one);
    world.capturing = true;
    drop(&one);
    take(&other);
    says("shares memory with another");
    world.breach[0] = '\0';
    world_ops.unmap(&world, home, PAGE);
    says("a just freed block is unmapped");
}

/* A stream may have what it freed at once, nobody else before it knows better. */
static void streams_wait_for_each_other(void **state)
{
    struct world_block one = block(home, 4096);

    (void)state;
    take_on(&one, 0);
    work_on(&one, 0);
    drop_on(&one, 0);
    take_on(&one, 0);
    assert_string_equal(world.breach, "");
    drop_on(&one, 0);
    take_on(&one, 1);
    says("submission 1 used it, up to 0 are ordered");
}

/* What comes after an event comes after all that the event's stream waited for. */
static void order_is_passed_on(void **state)
{
    struct world_block one = block(home, 4096), other = block(home + 4096, 4096);

    (void)state;
    take_on(&one, 0);
    work_on(&one, 0);
    drop_on(&one, 0);
    world.event[0] = (struct world_event){.recorded = true, .covers = world_before(&world, 0)};
    world_event_wait(&world, 0, 1, false);
    work_on(&other, 1);
    world.event[1] =
        (struct world_event){.recorded = true, .stream = 1, .covers = world_before(&world, 1)};
    world_event_wait(&world, 1, 2, false);
    take_on(&one, 2);
    assert_string_equal(world.breach, "");
    /* And what the host sees of the last, it sees of all. */
    drop_on(&one, 2);
    world_event_sync(&world, 1, false, false);
    take_on(&one, WORLD_PLAIN);
    assert_string_equal(world.breach, "");
    assert_int_equal(world.finished, 2);
}

/* An event says nothing of what was submitted after it. */
static void an_event_is_a_moment(void **state)
{
    struct world_block one = block(home, 4096);

    (void)state;
    take_on(&one, 0);
    world.event[0] = (struct world_event){.recorded = true, .covers = world_before(&world, 0)};
    work_on(&one, 0);
    drop_on(&one, 0);
    world_event_wait(&world, 0, 1, false);
    take_on(&one, 1);
    says("submission 1 used it, up to 0 are ordered");
}

/* A fence of the context covers its own streams. */
static void fences_cover_the_context(void **state)
{
    struct world_block one = block(home, 4096), other = block(home + 4096, 4096);

    (void)state;
    take_on(&one, 1);
    work_on(&one, 1);
    drop_on(&one, 1);
    take_on(&other, 2);
    work_on(&other, 2);
    drop_on(&other, 2);
    assert_int_equal(world_ops.record(&world, 0), 0);
    assert_int_equal(world_ops.order(&world, 0), 0);
    take_on(&one, 0);
    assert_string_equal(world.breach, "");
    take_on(&other, 0);
    says("submission 2 used it, up to 0 are ordered");
}

/* The fence of a stream is to be for its frees alone where something waits for it. */
static void late_fences_are_not_waited_for(void **state)
{
    struct world_block one = block(home, 4096), other = block(home + 4096, 4096);

    (void)state;
    take_on(&one, 0);
    work_on(&one, 0);
    drop_on(&one, 0);
    assert_int_equal(world_ops.stream_record(&world, 1, 3), 0);
    work_on(&other, 0);
    assert_int_equal(world_ops.stream_order(&world, 2, 1, 3), 0);
    assert_string_equal(world.breach, "");
    take_on(&one, 1);
    work_on(&one, 1);
    drop_on(&one, 1);
    work_on(&other, 1);
    assert_int_equal(world_ops.stream_record(&world, 2, 0), 0);
    world_finish(&world, &world.stream[1].before);
    assert_int_equal(world_ops.stream_query(&world, 2, 0), 0); /* asking is fine */
    assert_string_equal(world.breach, "");
    take_on(&one, 0);
    work_on(&one, 0);
    drop_on(&one, 0);
    work_on(&other, 0);
    assert_int_equal(world_ops.stream_record(&world, 1, 4), 0);
    assert_int_equal(world_ops.stream_wait(&world, 1, 4, true), 0);
    says("a late fence of stream 1 is waited for");
}

/* A stream that was made to wait since the free has no exact fence either. */
static void waiting_makes_late(void **state)
{
    struct world_block one = block(home, 4096), other = block(home + 4096, 4096);

    (void)state;
    work_on(&other, 1);
    world.event[0] =
        (struct world_event){.recorded = true, .stream = 1, .covers = world_before(&world, 1)};
    take_on(&one, 0);
    drop_on(&one, 0);
    world_join(&world.stream[0].before, &world.event[0].covers);
    assert_int_equal(world_ops.stream_record(&world, 1, 0), 0);
    assert_int_equal(world_ops.stream_order(&world, 3, 1, 0), 0);
    says("it covers submission 1 of stream 1, its frees came after 0");
}

/* Work that only later work can end: nobody is to wait for it, unless the free came after it. */
static void deadlocks(void **state)
{
    struct world_block one = block(home, 4096);
    struct world_block *none = NULL;

    (void)state;
    take_on(&one, 0);
    drop_on(&one, 0);
    world_work(&world, 0, &none, 0, true);
    assert_int_equal(world_ops.stream_record(&world, 1, 0), 0);
    assert_true(world_ops.stream_wait(&world, 1, 0, false) > 0); /* it doesn't pass */
    assert_string_equal(world.breach, "");
    assert_int_equal(world_ops.stream_wait(&world, 1, 0, true), 0);
    says("a late fence of stream 1 is waited for: it covers submission 1");
    world.breach[0] = '\0';
    world_work(&world, 1, &none, 0, true);
    take_on(&one, 1);
    drop_on(&one, 1);
    assert_int_equal(world_ops.stream_record(&world, 2, 0), 0);
    assert_int_equal(world_ops.stream_wait(&world, 2, 0, true), 0);
    assert_string_equal(world.breach, "");
    assert_int_equal(world.waited, 2);
}

/* Destroyed streams record nothing; a stream that captures can't. */
static void streams_end(void **state)
{
    (void)state;
    world.capturing = true;
    world.captured = 1;
    assert_int_equal(world_ops.stream_record(&world, 1, 0), 0);
    assert_true(world_ops.stream_record(&world, 2, 0) > 0);
    assert_true(world_ops.stream_order(&world, 2, 1, 0) > 0);
    assert_string_equal(world.breach, "");
    world.column[1] = WORLD_PLAIN;
    assert_int_equal(world_ops.stream_query(&world, 1, 0), 0); /* what was recorded stays */
    assert_string_equal(world.breach, "");
    assert_true(world_ops.stream_record(&world, 1, 0) < 0);
    says("number 1 is no stream's");
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
        cmocka_unit_test_setup_teardown(streams_wait_for_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(order_is_passed_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_event_is_a_moment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fences_cover_the_context, set_up, tear_down),
        cmocka_unit_test_setup_teardown(late_fences_are_not_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waiting_makes_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deadlocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(streams_end, set_up, tear_down),
        cmocka_unit_test(lends_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
