/*
 * The bookkeeping device says so when one of the driver's rules is broken: what the pool's tests
 * rely on.
 */
#include "report/cli/replay_device.h"
#include "tests/unit/report/testing.h"

#include <errno.h>

#define PAGE VS_POOL_PAGE

static const struct vs_pool_ops *const ops = &vs_replay_device_ops;
static struct vs_replay_device device;
static uint64_t range, one, two; /* a range of 16 pages; handles of one page and of two */

static int set_up(void **state)
{
    (void)state;
    vs_replay_device_init(&device, 8 * PAGE);
    assert_int_equal(ops->reserve(&device, 16 * PAGE, &range), 0);
    assert_int_equal(ops->create(&device, PAGE, &one), 0);
    assert_int_equal(ops->create(&device, 2 * PAGE, &two), 0);
    assert_int_equal(ops->map(&device, range, PAGE, one), 0);
    assert_int_equal(ops->map(&device, range + PAGE, 2 * PAGE, two), 0);
    assert_int_equal(ops->access(&device, range, 3 * PAGE), 0);
    assert_null(device.breach);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vs_replay_device_fini(&device);
    return 0;
}

static void keeps_books(void **state)
{
    (void)state;
    assert_true(vs_replay_device_usable(&device, range + 5, 3 * PAGE - 5));
    assert_false(vs_replay_device_usable(&device, range, 3 * PAGE + 1));
    assert_int_equal(device.charged, 3 * PAGE);
    assert_int_equal(ops->unmap(&device, range, 3 * PAGE), 0);
    assert_false(vs_replay_device_usable(&device, range, 1));
    /* Access does not survive, and any handle may go anywhere. */
    assert_int_equal(ops->map(&device, range + 7 * PAGE, 2 * PAGE, two), 0);
    assert_false(vs_replay_device_usable(&device, range + 7 * PAGE, 1));
    assert_string_equal(vs_replay_device_leak(&device), "a reserved range was not given back");
    assert_int_equal(ops->unmap(&device, range + 7 * PAGE, 2 * PAGE), 0);
    ops->unreserve(&device, range, 16 * PAGE);
    assert_string_equal(vs_replay_device_leak(&device), "a handle was not released");
    ops->release(&device, one, PAGE);
    ops->release(&device, two, 2 * PAGE);
    assert_null(vs_replay_device_leak(&device));
    assert_null(device.breach);
    assert_int_equal(device.peak, 3 * PAGE);
}

static void has_a_cap(void **state)
{
    uint64_t handle, address;

    (void)state;
    assert_int_equal(ops->create(&device, 6 * PAGE, &handle), -ENOMEM);
    assert_int_equal(ops->take(&device, 6 * PAGE, &address), -ENOMEM);
    assert_int_equal(ops->create(&device, UINT64_MAX / PAGE * PAGE, &handle), -ENOMEM);
    assert_int_equal(ops->take(&device, 5 * PAGE, &address), 0);
    assert_int_equal(ops->create(&device, PAGE, &handle), -ENOMEM);
    assert_int_equal(ops->give(&device, address, 5 * PAGE), 0);
    assert_null(device.breach);
}

static void whole_allocations_touch(void **state)
{
    uint64_t first, second, third;

    (void)state;
    assert_int_equal(ops->take(&device, PAGE, &first), 0);
    assert_int_equal(ops->take(&device, PAGE, &second), 0);
    assert_int_equal(second, first + PAGE);
    assert_true(vs_replay_device_usable(&device, first, PAGE));
    assert_false(vs_replay_device_usable(&device, first, PAGE + 1)); /* two allocations */
    assert_int_equal(ops->give(&device, first, PAGE), 0);
    assert_false(vs_replay_device_usable(&device, first, 1));
    assert_int_equal(ops->take(&device, PAGE, &third), 0);
    assert_int_equal(third, first);
    assert_null(device.breach);
}

/* The same memory at several addresses: each mapping is one of its own, also beside another. */
static void maps_again(void **state)
{
    uint64_t other, handle, offset;

    (void)state;
    assert_int_equal(ops->reserve(&device, 4 * PAGE, &other), 0);
    assert_int_equal(ops->map(&device, other, 2 * PAGE, two), 0);
    assert_int_equal(ops->map(&device, other + 2 * PAGE, 2 * PAGE, two), 0);
    assert_int_equal(ops->map(&device, range + 3 * PAGE, PAGE, one), 0);
    assert_int_equal(device.charged, 3 * PAGE);
    assert_int_equal(device.mapped_bytes, 8 * PAGE);
    assert_true(vs_replay_device_behind(&device, other + 3 * PAGE + 7, &handle, &offset));
    assert_int_equal(handle, two);
    assert_int_equal(offset, PAGE + 7);
    /* Access is each mapping's own. */
    assert_true(vs_replay_device_usable(&device, range + PAGE, 2 * PAGE));
    assert_false(vs_replay_device_usable(&device, other, 1));
    assert_int_equal(ops->access(&device, other, 4 * PAGE), 0);
    assert_int_equal(ops->unmap(&device, other, 2 * PAGE), 0);
    assert_false(vs_replay_device_behind(&device, other, &handle, &offset));
    assert_true(vs_replay_device_usable(&device, other + 2 * PAGE, 2 * PAGE));
    assert_true(vs_replay_device_usable(&device, range + PAGE, 2 * PAGE));
    /* Memory that is mapped once more goes when its last mapping went. */
    assert_int_equal(ops->unmap(&device, range, 4 * PAGE), 0);
    ops->release(&device, one, PAGE);
    assert_int_equal(ops->unmap(&device, other + 2 * PAGE, 2 * PAGE), 0);
    ops->release(&device, two, 2 * PAGE);
    assert_int_equal(device.charged, 0);
    ops->unreserve(&device, other, 4 * PAGE);
    ops->unreserve(&device, range, 16 * PAGE);
    assert_null(device.breach);
    assert_null(vs_replay_device_leak(&device));
}

static int map_over(void)
{
    uint64_t handle;

    assert_int_equal(ops->create(&device, PAGE, &handle), 0);
    return ops->map(&device, range + PAGE, PAGE, handle);
}

static int map_outside(void)
{
    uint64_t handle;

    assert_int_equal(ops->create(&device, 2 * PAGE, &handle), 0);
    return ops->map(&device, range + 15 * PAGE, 2 * PAGE, handle);
}

static int map_off_pages(void)
{
    uint64_t handle;

    assert_int_equal(ops->create(&device, PAGE, &handle), 0);
    return ops->map(&device, range + 5 * PAGE + 512, PAGE, handle);
}

static int map_in_part(void)
{
    return ops->map(&device, range + 5 * PAGE, PAGE, two);
}

static int unmap_part(void)
{
    return ops->unmap(&device, range + PAGE, PAGE);
}

static int unmap_hole(void)
{
    return ops->unmap(&device, range, 4 * PAGE);
}

/* The end of one mapping and the beginning of the next of the same handle are no mapping. */
static int unmap_between(void)
{
    assert_int_equal(ops->map(&device, range + 3 * PAGE, 2 * PAGE, two), 0);
    return ops->unmap(&device, range + 2 * PAGE, 2 * PAGE);
}

static int release_mapped_elsewhere(void)
{
    assert_int_equal(ops->map(&device, range + 5 * PAGE, PAGE, one), 0);
    assert_int_equal(ops->unmap(&device, range, PAGE), 0);
    ops->release(&device, one, PAGE);
    return -EINVAL;
}

static int access_hole(void)
{
    return ops->access(&device, range + 2 * PAGE, 2 * PAGE);
}

static int release_mapped(void)
{
    ops->release(&device, one, PAGE);
    return -EINVAL;
}

static int release_twice(void)
{
    assert_int_equal(ops->unmap(&device, range, PAGE), 0);
    ops->release(&device, one, PAGE);
    assert_null(device.breach);
    ops->release(&device, one, PAGE);
    return -EINVAL;
}

static int unreserve_mapped(void)
{
    ops->unreserve(&device, range, 16 * PAGE);
    return -EINVAL;
}

static int give_part(void)
{
    uint64_t address;

    assert_int_equal(ops->take(&device, 2 * PAGE, &address), 0);
    return ops->give(&device, address, PAGE);
}

static int give_mapped(void)
{
    return ops->give(&device, range, PAGE);
}

static int create_half(void)
{
    uint64_t handle;

    return ops->create(&device, PAGE / 2, &handle);
}

static void breaks(void **state)
{
    int (*breach)(void) = *(int (**)(void)) * state;

    set_up(NULL);
    assert_int_equal(breach(), -EINVAL);
    assert_non_null(device.breach);
    printf("%s\n", device.breach);
    tear_down(NULL);
}

int main(void)
{
#define BREAKS(name) static int (*call_##name)(void) = name
    BREAKS(map_over);
    BREAKS(map_outside);
    BREAKS(map_off_pages);
    BREAKS(map_in_part);
    BREAKS(unmap_part);
    BREAKS(unmap_hole);
    BREAKS(unmap_between);
    BREAKS(access_hole);
    BREAKS(release_mapped);
    BREAKS(release_mapped_elsewhere);
    BREAKS(release_twice);
    BREAKS(unreserve_mapped);
    BREAKS(give_part);
    BREAKS(give_mapped);
    BREAKS(create_half);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keeps_books, set_up, tear_down),
        cmocka_unit_test_setup_teardown(maps_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(has_a_cap, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whole_allocations_touch, set_up, tear_down),
        cmocka_unit_test_prestate(breaks, &call_map_over),
        cmocka_unit_test_prestate(breaks, &call_map_outside),
        cmocka_unit_test_prestate(breaks, &call_map_off_pages),
        cmocka_unit_test_prestate(breaks, &call_map_in_part),
        cmocka_unit_test_prestate(breaks, &call_unmap_part),
        cmocka_unit_test_prestate(breaks, &call_unmap_hole),
        cmocka_unit_test_prestate(breaks, &call_unmap_between),
        cmocka_unit_test_prestate(breaks, &call_access_hole),
        cmocka_unit_test_prestate(breaks, &call_release_mapped),
        cmocka_unit_test_prestate(breaks, &call_release_mapped_elsewhere),
        cmocka_unit_test_prestate(breaks, &call_release_twice),
        cmocka_unit_test_prestate(breaks, &call_unreserve_mapped),
        cmocka_unit_test_prestate(breaks, &call_give_part),
        cmocka_unit_test_prestate(breaks, &call_give_mapped),
        cmocka_unit_test_prestate(breaks, &call_create_half),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
