/*
 * The rules of stream-ordered memory, step by step (by_hand.h); the world checks the rest as
 * always.
 */
#include "tests/unit/pool/by_hand.h"

static bool is_open(uint32_t stream)
{
    return vs_pool_stream_open(world.pool, world.stream[stream].number);
}

static void close(uint32_t stream)
{
    assert_int_equal(vs_pool_stream_close(world.pool, world.stream[stream].number), 0);
    check();
}

static void the_same_stream_has_it_at_once(void **state)
{
    static const uint64_t sizes[] = {700, 40000, MIB, 24 * MIB};

    (void)state;
    EACH_BACKING(i)
    {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            begin(both[i], 32 * MIB);
            uint64_t start = take(0, sizes[s]);

            for (int n = 0; n < 20; n++) {
                uint32_t asked;

                use(start, 0);
                drop(start, 0);
                asked = fences();
                start = take(0, sizes[s]);
                assert_int_equal(fences(), asked);
            }
            assert_int_equal(waits(), 0);
            end();
        }
    }
}

/* Far from the cap no fence is wanted; the host need not do anything. */
static void nothing_is_recorded_without_need(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        begin(both[i], 1024 * MIB);
        for (int n = 0; n < 30; n++) {
            uint32_t stream = (uint32_t)n % STREAMS;
            uint64_t start = take(stream, 100000), other = take(stream, MIB);

            drop(start, stream);
            drop(other, stream);
            assert_false(is_open(stream));
        }
        assert_int_equal(world.stream_asked.records, 0);
        assert_int_equal(world.asked.records, 0);
        assert_int_equal(waits(), 0);
        end();
    }
}

static void near_the_cap_frees_get_fences(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        begin(both[i], 32 * MIB);
        uint64_t start = take(0, 24 * MIB);

        assert_false(is_open(0));
        drop(start, 0);
        assert_true(is_open(0));
        assert_false(is_open(1));
        close(0);
        assert_false(is_open(0));
        assert_int_equal(world.stream_asked.records, 1);
        close(0);
        assert_int_equal(world.stream_asked.records, 1);
        assert_int_equal(world.asked.records, 0);
        end();
    }
}

/* Another stream is made to wait for it, if it has not passed: the host isn't. */
static void another_stream_comes_after(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        for (int done = 0; done < 2; done++) {
            begin(both[i], 32 * MIB);
            take_and_drop(0, 24 * MIB);
            if (done) {
                finish_all();
            }
            take(1, 24 * MIB);
            assert_int_equal(world.stream_asked.orders, !done);
            assert_int_equal(waits(), !done);
            end();
        }
    }
}

static void anybody_has_what_is_seen(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        for (int done = 0; done < 2; done++) {
            begin(both[i], 32 * MIB);
            take_and_drop(0, 24 * MIB);
            if (done) {
                finish_all();
            }
            take(PLAIN, 24 * MIB);
            assert_int_equal(world.stream_asked.orders + world.asked.orders, 0);
            assert_int_equal(world.stream_asked.waits > 0, !done);
            end();
        }
    }
}

/* A run that was made of a stream's own memory, and of which nobody had a slot: while it was made
 * one of another run became free, and that came first. When it is given back the stream's work is
 * as unfinished as before. */
static void unused_runs_are_as_they_were(void **state)
{
    static const uint64_t kib = 1024;

    (void)state;
    EACH_BACKING(i)
    {
        uint64_t full[8], start;

        begin(both[i], 2 * MIB);
        for (size_t n = 0; n < sizeof(full) / sizeof(full[0]); n++) {
            full[n] = take(0, 64 * kib);
        }
        take(0, 56 * kib);
        take(0, 44 * kib);
        world_depend(&world, 1, 0, true);
        drop(full[0], 1);
        run(1, false);
        start = take(0, 32 * kib); /* with this run the page is full */
        use(start, 0);
        drop(start, 0);
        run(0, false);
        assert_int_equal(take(0, 64 * kib), full[0]);
        assert_true(world.stream[0].done < world.stream[0].last);
        world_stream_end(&world, 0);
        check();
        take(PLAIN, 32 * kib);
        end();
    }
}

/* What the program waits for itself needs nobody else. */
static void the_program_waits(void **state)
{
    static const uint64_t sizes[] = {40000, MIB, 24 * MIB};

    (void)state;
    EACH_BACKING(i)
    {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            uint32_t asked;

            begin(both[i], 32 * MIB);
            take_and_drop(0, sizes[s]);
            world_depend(&world, 1, 0, true);
            asked = fences();
            take(1, sizes[s]);
            assert_int_equal(fences(), asked);
            end();

            begin(both[i], 32 * MIB);
            take_and_drop(0, sizes[s]);
            world_sync(&world, 0, true);
            asked = fences();
            take(PLAIN, sizes[s]);
            assert_int_equal(fences(), asked);
            end();
        }
    }
}

/* A mark is for the frees before it. */
static void marks_are_moments(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        for (int host = 0; host < 2; host++) {
            uint64_t one, other;
            uint32_t asked;

            begin(both[i], 32 * MIB);
            one = take(0, 12 * MIB);
            take(0, 2 * MIB); /* keeps them apart */
            other = take(0, 12 * MIB);
            use(one, 0);
            use(other, 0);
            drop(one, 0);
            world_event_record(&world, 0, 0);
            use(other, 0);
            drop(other, 0);
            run(0, false);
            if (host) {
                world_event_sync(&world, 0, false, true);
            } else {
                world_event_wait(&world, 0, 1, true);
            }
            asked = waits();
            assert_int_equal(take(host ? PLAIN : 1, 12 * MIB), one);
            assert_int_equal(waits(), asked);
            assert_int_equal(take(host ? PLAIN : 1, 12 * MIB), other);
            assert_true(waits() > asked);
            end();
        }
    }
}

/* An event outlives its stream, and a number may be another's by then. */
static void marks_outlive_streams(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t mark;
        uint32_t number;

        begin(both[i], 32 * MIB);
        take_and_drop(0, 24 * MIB);
        number = world.stream[0].number;
        mark = vs_pool_stream_mark(world.pool, number);
        world_stream_end(&world, 0);
        finish_all();
        take(PLAIN, 24 * MIB); /* nothing of the old one is left */
        drop(world.live[0].start, PLAIN);
        world_sync(&world, 1, true);
        for (int n = 0; n < 64 && world.column[number] == WORLD_PLAIN; n++) {
            uint32_t stream = world_stream_begin(&world, false, true);

            if (world.stream[stream].number != number) {
                world_stream_end(&world, stream);
            }
        }
        if (world.column[number] != WORLD_PLAIN) {
            take_and_drop(world.column[number], 24 * MIB);
            vs_pool_stream_seen(world.pool, number, mark);
            vs_pool_stream_after(world.pool, world.stream[1].number, number, mark);
            try(1, 24 * MIB);
            try(PLAIN, 24 * MIB);
        }
        end();
    }
}

/* Memory goes when the host has seen it free. */
static void unmapping_waits_to_be_seen(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        begin(both[i], 64 * MIB);
        take_and_drop(0, 40 * MIB);
        world_depend(&world, 1, 0, true); /* ordered is not seen */
        world_trim(&world, 0, false);
        check();
        assert_true(world.base.charged >= 40 * MIB);
        finish_all();
        world_trim(&world, 0, false);
        check();
        assert_int_equal(world.base.charged, 0);
        end();

        begin(both[i], 64 * MIB);
        take_and_drop(0, 40 * MIB);
        world_trim(&world, 0, true);
        check();
        assert_int_equal(world.base.charged, 0);
        end();
    }
}

static void streams_end(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t kept;

        begin(both[i], 32 * MIB);
        kept = take(0, 4 * MIB);
        use(kept, 0);
        uint64_t start = take(0, 20 * MIB);
        use(start, 0);
        drop(start, 0);
        world_stream_end(&world, 0);
        check();
        assert_int_equal(world.stream_asked.records, 1);
        take(PLAIN, 20 * MIB);
        /* What is live on it stays, and may be freed in any way. */
        world_sync(&world, PLAIN, false);
        finish_all();
        world.live[index_of(kept)].anybody = true; /* the program has seen all of it end */
        world.seen = world_before(&world, WORLD_PLAIN);
        drop(kept, i ? PLAIN : 1);
        end();
    }
}

static void numbers_run_out(void **state)
{
    uint32_t numbers[VS_POOL_STREAMS];
    bool taken[VS_POOL_STREAMS + 1] = {false};

    (void)state;
    begin(VS_POOL_VMM, 64 * MIB);
    for (uint32_t i = 0; i < STREAMS; i++) {
        taken[world.stream[i].number] = true;
    }
    for (uint32_t i = STREAMS; i < VS_POOL_STREAMS; i++) {
        numbers[i] = vs_pool_stream_begin(world.pool, true);
        assert_in_range(numbers[i], 1, VS_POOL_STREAMS);
        assert_false(taken[numbers[i]]);
        taken[numbers[i]] = true;
    }
    assert_int_equal(vs_pool_stream_begin(world.pool, true), 0);
    for (uint32_t i = STREAMS; i < VS_POOL_STREAMS; i++) {
        vs_pool_stream_end(world.pool, numbers[i]);
    }
    assert_in_range(vs_pool_stream_begin(world.pool, true), 1, VS_POOL_STREAMS);
    check();
    end();
}

/* A stream that has ended, and whose memory others were handed behind its fence, holds nothing but
 * its number. */
static void numbers_come_back(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint32_t number, found = 0;

        begin(both[i], 32 * MIB);
        number = world.stream[0].number;
        take_and_drop(0, 24 * MIB);
        world_stream_end(&world, 0);
        take(1, 24 * MIB);
        assert_int_equal(world.stream_asked.orders, 1);
        finish_all();
        for (uint32_t n = STREAMS; n <= VS_POOL_STREAMS; n++) {
            found = vs_pool_stream_begin(world.pool, true);
        }
        assert_int_equal(found, number);
        end();
    }
}

/* More fences than a stream has, none of them passed: nobody waits for that, and nothing is lost.
 */
static void fences_run_out(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t blocks[5 * VS_POOL_STREAM_FENCES / 4];

        begin(both[i], sizeof(blocks) / sizeof(blocks[0]) * 2 * MIB + 4 * MIB);
        for (size_t n = 0; n < sizeof(blocks) / sizeof(blocks[0]); n++) {
            blocks[n] = take(0, 2 * MIB);
        }
        for (size_t n = 0; n < sizeof(blocks) / sizeof(blocks[0]); n++) {
            use(blocks[n], 0);
            drop(blocks[n], 0);
        }
        assert_int_equal(waits(), 0);
        finish_all();
        for (size_t n = 0; n < sizeof(blocks) / sizeof(blocks[0]); n++) {
            take(PLAIN, 2 * MIB);
        }
        assert_int_equal(waits(), 0);
        end();
    }
}

static bool decay(int ticks)
{
    bool more = true;

    for (int n = 0; n < ticks && more; n++) {
        more = vs_pool_decay(world.pool);
        check();
    }
    return more;
}

/* A release threshold: decay leaves that much, need does not. */
static void idle_memory_is_kept(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        begin(both[i], 128 * MIB);
        vs_pool_keep_idle(world.pool, 64 * MIB);
        uint64_t one = take(0, 40 * MIB), other = take(0, 40 * MIB);
        drop(one, 0);
        drop(other, 0);
        run(0, false);
        finish_all();
        world_sync(&world, 0, true);
        decay(40);
        assert_in_range(world.base.charged, 64 * MIB - 40 * MIB, 80 * MIB);
        assert_true(world.base.charged > 0);
        take(PLAIN, 120 * MIB);
        drop(world.live[0].start, PLAIN);
        vs_pool_keep_idle(world.pool, 0);
        run(0, false);
        finish_all();
        decay(40);
        assert_int_equal(world.base.charged, 0);
        end();
    }
}

/* Decay by itself asks about what streams have freed. */
static void decay_asks(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        begin(both[i], 1024 * MIB);
        take_and_drop(0, 40 * MIB);
        decay(3);
        assert_true(world.base.charged >= 40 * MIB);
        finish_all();
        assert_false(decay(40));
        assert_int_equal(world.base.charged, 0);
        assert_int_equal(waits(), 0);
        end();
    }
}

static void wrong_frees_are_refused(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint32_t number;
        uint64_t small, large;

        begin(both[i], 64 * MIB);
        number = world.stream[0].number;
        small = take(0, 5000);
        large = take(PLAIN, 9 * MIB);
        assert_int_equal(vs_pool_free_on(world.pool, 0, number), -ENOENT);
        assert_int_equal(vs_pool_free_on(world.pool, WORLD_FOREIGN, number), -ENOENT);
        assert_int_equal(vs_pool_free_on(world.pool, small + 512, number), -EINVAL);
        assert_int_equal(vs_pool_free_on(world.pool, large + 2 * MIB, number), -EINVAL);
        assert_false(is_open(0));
        drop(small, 0);
        drop(large, 0);
        assert_int_equal(vs_pool_free_on(world.pool, small, number), -EINVAL);
        assert_int_equal(vs_pool_free(world.pool, large), -EINVAL);
        check();
        end();
    }
}

/* Each kind of memory may be freed in each way. */
static void frees_cross(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint32_t asked;
        uint64_t start;

        begin(both[i], 32 * MIB);
        start = take(PLAIN, 24 * MIB);
        use(start, 0);
        drop(start, 0);
        asked = fences();
        start = take(0, 24 * MIB); /* as if it had been the stream's */
        assert_int_equal(fences(), asked);
        use(start, 0);
        drop(start, PLAIN);
        run(0, false); /* and now it is the context's */
        assert_int_equal(world.asked.records, 1);
        start = take(1, 24 * MIB);
        world_depend(&world, 2, 1, true);
        use(start, 2);
        drop(start, 2);
        run(2, false);
        take(2, 24 * MIB);
        end();
    }
}

/* While a stream captures, others go on. */
static void captures(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint32_t stream, asked;
        uint64_t start;

        begin(both[i], 32 * MIB);
        world_capture(&world, true);
        stream = (world.captured + 1) % STREAMS;
        start = take(stream, 24 * MIB);
        use(start, stream);
        drop(start, stream);
        asked = fences();
        start = take(stream, 24 * MIB);
        assert_int_equal(fences(), asked);
        use(start, stream);
        drop(start, stream);
        run(stream, false);
        take(PLAIN, 24 * MIB); /* seen, by waiting: the context's events are not touched */
        assert_int_equal(world.asked.records + world.asked.orders, 0);
        world_capture(&world, false);
        end();
    }
}

/* What was freed last stays apart from its neighbours, but for nobody else, and not for long. */
static void what_was_freed_last_is_like_all(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        begin(both[i], 8 * MIB);
        uint64_t a = take(0, MIB), b = take(0, MIB), c = take(0, MIB);

        use(b, 0);
        drop(b, 0);
        assert_int_equal(try(0, MIB), b);
        drop(b, 0);
        assert_int_equal(vs_pool_free_on(world.pool, b, world.stream[0].number), -EINVAL);
        assert_int_equal(vs_pool_free(world.pool, b), -EINVAL);
        assert_int_not_equal(try(PLAIN, MIB), b); /* not seen yet, and there is room */
        drop(a, 0);
        a = take(0, 2 * MIB - 512); /* joined with what lay apart */
        assert_true(a + 2 * MIB - 512 <= c);
        drop(a, 0);
        end();
    }
}

static uint64_t counted_host_bytes(void)
{
    struct vs_pool_stats stats;

    vs_pool_stats(world.pool, &stats);
    return stats.host_bytes;
}

static void host_memory_of_streams_counts(void **state)
{
    (void)state;
    EACH_BACKING(i)
    {
        uint64_t mapped, counted;

        begin(both[i], 64 * MIB);
        mapped = world.base.host_bytes;
        counted = counted_host_bytes();
        assert_int_not_equal(vs_pool_stream_begin(world.pool, true), 0);
        assert_true(world.base.host_bytes > mapped);
        assert_int_equal(counted_host_bytes() - counted, world.base.host_bytes - mapped);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_stream_has_it_at_once),
        cmocka_unit_test(what_was_freed_last_is_like_all),
        cmocka_unit_test(nothing_is_recorded_without_need),
        cmocka_unit_test(near_the_cap_frees_get_fences),
        cmocka_unit_test(another_stream_comes_after),
        cmocka_unit_test(anybody_has_what_is_seen),
        cmocka_unit_test(unused_runs_are_as_they_were),
        cmocka_unit_test(the_program_waits),
        cmocka_unit_test(marks_are_moments),
        cmocka_unit_test(marks_outlive_streams),
        cmocka_unit_test(unmapping_waits_to_be_seen),
        cmocka_unit_test(streams_end),
        cmocka_unit_test(numbers_run_out),
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(fences_run_out),
        cmocka_unit_test(idle_memory_is_kept),
        cmocka_unit_test(decay_asks),
        cmocka_unit_test(wrong_frees_are_refused),
        cmocka_unit_test(frees_cross),
        cmocka_unit_test(captures),
        cmocka_unit_test(host_memory_of_streams_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
