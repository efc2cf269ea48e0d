/*
 * Programs that a pool could make hang (by_hand.h). Work that comes after a free waits for what
 * only later work, or the program, can bring about; nobody else may be made to wait for it.
 */
#include "tests/unit/pool/by_hand.h"

static void later_work_is_not_waited_for(void **state)
{
    static const uint64_t sizes[] = {24 * MIB, 16 * MIB, 30 * MIB, 3000};
    static const uint32_t streams[] = {1, PLAIN};

    (void)state;
    EACH_BACKING(i)
    {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (size_t k = 0; k < 2; k++) {
                begin(both[i], 32 * MIB);
                uint64_t start = take(0, 24 * MIB);
                use(start, 0);
                drop(start, 0);
                run(0, true);
                start = take(streams[k], sizes[s]);
                use(start, 1);
                world_let_go(&world); /* as the work on stream 1 does */
                end();
            }
        }
    }
}

/* Two frees on different streams, each followed by such work, are needed for one block. */
static void two_frees_are_waited_for(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t one, other;

        begin(both[i], 32 * MIB);
        one = take(0, 14 * MIB);
        other = take(1, 14 * MIB);
        use(one, 0);
        use(other, 1);
        drop(one, 0);
        drop(other, 1);
        run(0, true);
        run(1, true);
        take(2, 28 * MIB);
        world_let_go(&world);
        end();
    }
}

/* A stream's first free is followed by held work, and that by its second: who needs the first alone
 * does not wait for the second. */
static void the_first_free_alone_is_waited_for(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t one, other;

        begin(both[i], 32 * MIB);
        one = take(0, 16 * MIB);
        take(0, 2 * MIB); /* keeps them apart */
        other = take(0, 10 * MIB);
        use(one, 0);
        use(other, 0);
        drop(one, 0);
        run(0, true);
        world.held_frees = true;
        drop(other, 0);
        run(0, false);
        take(1, 16 * MIB);
        world_let_go(&world);
        end();
    }
}

/* A free that got no fence because memory was plentiful gets none that anybody waits for. */
static void plenty_comes_to_an_end(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        begin(both[i], 256 * MIB);
        uint64_t start = take(0, 20 * MIB);
        use(start, 0);
        drop(start, 0);
        run(0, true);
        while (try(PLAIN, 16 * MIB)) {
            continue;
        }
        try(1, 20 * MIB);
        check(); /* had or not, nobody has waited for stream 0 */
        world_let_go(&world);
        finish_all();
        world_sync(&world, 0, true);
        take(1, 16 * MIB);
        end();
    }
}

/* A stream that waits for another in between: those who need what it freed before do not. */
static void waits_of_the_program_are_later_work(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t start;

        begin(both[i], 32 * MIB);
        start = take(0, 24 * MIB);
        use(start, 0);
        run(1, true);
        drop(start, 0);
        world_depend(&world, 0, 1, true);
        take(2, 24 * MIB);
        world_let_go(&world);
        end();
    }
}

/* So does one that the pool made wait for memory. */
static void waits_of_the_pool_are_later_work(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t one, other;

        begin(both[i], 32 * MIB);
        one = take(0, 14 * MIB);
        other = take(1, 14 * MIB);
        use(one, 0);
        use(other, 1);
        drop(one, 0); /* and has no fence yet */
        drop(other, 1);
        run(1, false);
        take(0, 20 * MIB); /* stream 0 waits for stream 1 */
        drop(world.live[0].start, 0);
        take(2, 20 * MIB);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_work_is_not_waited_for),
        cmocka_unit_test(two_frees_are_waited_for),
        cmocka_unit_test(the_first_free_alone_is_waited_for),
        cmocka_unit_test(plenty_comes_to_an_end),
        cmocka_unit_test(waits_of_the_program_are_later_work),
        cmocka_unit_test(waits_of_the_pool_are_later_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
