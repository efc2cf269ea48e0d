/*
 * Random programs (see drive.h).
 */
#include "tests/unit/pool/drive.h"

#include <errno.h>
#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define DEVICE_BYTES (1024 * MIB)

/* Powers of two with something on top: as many of each magnitude. */
static uint64_t power_size(struct choices *choices, unsigned low, unsigned high)
{
    uint64_t base = UINT64_C(1) << (low + choose(choices, high - low + 1));

    return base + choose(choices, base);
}

static uint64_t draw_size(struct world *world, enum drive_sizes sizes)
{
    static const uint64_t few[] = {512, 3000, 65536, 700000, 2 * MIB, 5 * MIB, 16 * MIB};
    struct choices *choices = world->choices;

    if (choose(choices, 64) == 0) { /* what nobody expects */
        switch (choose(choices, 4)) {
        case 0:
            return 1;
        case 1:
            return world->base.cap + 1 + choose(choices, MIB);
        case 2:
            return UINT64_MAX - choose(choices, 3 * MIB);
        default:
            return world->base.cap / 2 + choose(choices, world->base.cap / 4);
        }
    }
    switch (sizes) {
    case DRIVE_SMALL:
        return 1 + choose(choices, 64 << 10);
    case DRIVE_LARGE:
        return MIB + choose(choices, world->base.cap / 8);
    case DRIVE_POWER:
        return power_size(choices, 4, 24);
    case DRIVE_FEW:
        return few[choose(choices, sizeof(few) / sizeof(few[0]))];
    case DRIVE_GIANT: /* few of them, and much between them */
        if (choose(choices, 4) == 0) {
            return 64 * MIB + choose(choices, 2) * choose(choices, 100 * MIB);
        }
        return choose(choices, 2) ? power_size(choices, 10, 21) : MIB + choose(choices, 24 * MIB);
    default:
        if (choose(choices, 2)) {
            return 1 + choose(choices, 256 << 10);
        }
        return choose(choices, 3) ? power_size(choices, 10, 22)
                                  : MIB + choose(choices, world->base.cap / 10);
    }
}

static uint32_t draw_stream(struct world *world, const struct scenario *scenario)
{
    return scenario->streams ? world_some_stream(world, scenario->foreign)
                             : (uint32_t)choose(world->choices, world->streams);
}

/* Work on live blocks from a random one on. */
static void submit(struct world *world, const struct scenario *scenario, size_t count, bool held)
{
    uint32_t stream = draw_stream(world, scenario);

    if (stream != WORLD_PLAIN) {
        world_submit(world, stream,
                     world->live_count ? choose(world->choices, world->live_count) : 0, count,
                     held);
    }
}

static void allocate_on(struct world *world, const struct scenario *scenario, uint32_t stream)
{
    uint64_t bytes = draw_size(world, scenario->sizes);
    size_t index;

    if (world_alloc_on(world, stream, bytes, &index) == 0) {
        stream = stream == WORLD_PLAIN ? draw_stream(world, scenario) : stream;
        if (stream != WORLD_PLAIN && choose(world->choices, 2)) {
            world_submit(world, stream, index, 1, false);
        }
    } else if (world->live_count > 0 && !world->held && !scenario->ordered) {
        world_free(world, choose(world->choices, world->live_count));
    }
}

/* Some at once, from anywhere or what came last. */
static void free_some(struct world *world)
{
    uint64_t count = 1 + choose(world->choices, choose(world->choices, 4) ? 3 : 20);

    while (count-- > 0 && world->live_count > 0) {
        world_free(world, choose(world->choices, 2) ? choose(world->choices, world->live_count)
                                                    : world->live_count - 1);
    }
    if (vs_pool_wants_trim(world->pool)) { /* as the owner of a pool asks */
        world_trim(world, world->config.trim_above, false);
    }
}

/* Half of the blocks, every other. */
static void checkerboard(struct world *world)
{
    for (size_t i = world->live_count; i >= 2; i -= 2) {
        world_free(world, i - 2);
    }
}

static void upkeep(struct world *world, const struct scenario *scenario)
{
    uint64_t failures = world->failures;
    int result;

    switch (choose(world->choices, scenario->calm ? 2 : 8)) {
    case 0:
        world_free_garbage(world);
        return;
    case 1:
        if (scenario->captures) {
            world_capture(world, !world->capturing);
        }
        return;
    case 2:
        if (!world->held) {
            world_settle(world);
        }
        return;
    case 3:
        world_trim(world, choose(world->choices, 2) ? 0 : choose(world->choices, 64 * MIB),
                   !world->held && choose(world->choices, 2));
        return;
    case 4:
        result = vs_pool_reserve(world->pool, choose(world->choices, 2 * world->base.cap));
        if (result && result != -ENOMEM && world->failures == failures) {
            snprintf(world->breach, sizeof(world->breach), "reserving returned %d", result);
        }
        return;
    default:
        vs_pool_decay(world->pool);
        return;
    }
}

/* Work that cannot finish before the program lets it go: nothing may be freed meanwhile, for the
 * driver's own free would wait for it. */
static void hold(struct world *world, const struct scenario *scenario)
{
    if (world->held) {
        world_let_go(world);
    } else if (scenario->holds && !world->capturing && !world->aside) {
        submit(world, scenario, 2, true);
    }
}

static bool told(struct world *world)
{
    return choose(world->choices, 4) > 0;
}

/* Streams come and go, wait for each other, and are waited for. */
static void between_streams(struct world *world, const struct scenario *scenario)
{
    uint32_t one = world_some_stream(world, scenario->foreign);
    uint32_t other = world_some_stream(world, scenario->foreign);
    uint32_t event = (uint32_t)choose(world->choices, WORLD_EVENTS);

    switch (choose(world->choices, 10)) {
    case 0:
        world_stream_begin(world, scenario->foreign && choose(world->choices, 3) == 0,
                           choose(world->choices, 2));
        return;
    case 1:
        if (one != WORLD_PLAIN && choose(world->choices, 2)) {
            world_stream_end(world, one);
        }
        return;
    case 2:
        if (!world->held && !world->capturing) {
            world_sync(world, WORLD_PLAIN, told(world));
        }
        return;
    case 3:
        if (one != WORLD_PLAIN && !world_is_held(world, one)) {
            world_sync(world, one, told(world));
        }
        return;
    case 4:
        world_event_sync(world, event, choose(world->choices, 2), told(world));
        return;
    case 5:
    case 6:
        if (one != WORLD_PLAIN) {
            world_event_record(world, event, one);
        }
        return;
    case 7:
    case 8:
        if (one != WORLD_PLAIN) {
            world_event_wait(world, event, one, told(world));
        }
        return;
    default:
        if (one != other && one != WORLD_PLAIN && other != WORLD_PLAIN) {
            world_depend(world, one, other, told(world));
        }
        return;
    }
}

/* On the stream where it was allocated, most often. */
static void free_on(struct world *world, const struct scenario *scenario)
{
    uint64_t count = 1 + choose(world->choices, choose(world->choices, 4) ? 3 : 20);

    while (count-- > 0 && world->live_count > 0) {
        size_t index = choose(world->choices, 2) ? choose(world->choices, world->live_count)
                                                 : world->live_count - 1;
        uint32_t stream = world_some_stream(world, scenario->foreign);

        for (uint32_t i = 0; choose(world->choices, 4) > 0 && i < WORLD_COLUMNS; i++) {
            if (world->live[index].since[i] && world->stream[i].alive &&
                !(world->capturing && world->captured == i)) {
                stream = i;
                break;
            }
        }
        if (stream != WORLD_PLAIN) {
            world_free_on(world, index, stream);
        }
    }
    if (vs_pool_wants_trim(world->pool)) {
        world_trim(world, world->config.trim_above, false);
    }
}

static void stream_step(struct world *world, const struct scenario *scenario)
{
    uint64_t dice = choose(world->choices, 100);
    uint32_t stream;

    if (dice < 45) {
        stream = world_some_stream(world, false);
        if (stream != WORLD_PLAIN && world_stream_number(world, stream)) {
            allocate_on(world, scenario, stream);
        }
    } else if (dice < 75) {
        free_on(world, scenario);
    } else if (dice < 98 || scenario->calm) {
        between_streams(world, scenario);
    } else {
        vs_pool_keep_idle(world->pool,
                          choose(world->choices, 2) * choose(world->choices, 32 * MIB));
    }
}

static void step(struct world *world, const struct scenario *scenario)
{
    uint64_t dice;

    if (scenario->streams && choose(world->choices, 2)) {
        stream_step(world, scenario);
        return;
    }
    /* The plain allocations and frees come first. */
    dice = scenario->ordered ? 60 + choose(world->choices, 39) : choose(world->choices, 100);
    if (dice < 38) {
        allocate_on(world, scenario, WORLD_PLAIN);
    } else if (dice < 60 && !world->held) {
        free_some(world);
    } else if (dice < 82) {
        if (world->submitted - world->finished < WORLD_AHEAD) {
            submit(world, scenario, 1 + choose(world->choices, 4), false);
        }
    } else if (dice < 92) {
        world_step(world);
    } else if (dice < 97) {
        upkeep(world, scenario);
    } else if (dice < 99) {
        hold(world, scenario);
    } else if (!world->held && choose(world->choices, 4) == 0) {
        checkerboard(world);
    }
}

const char *drive(const struct scenario *scenario, struct choices *choices, unsigned steps,
                  uint32_t faults)
{
    static struct world world;
    static char said[sizeof(world.breach) + 32];
    struct vs_pool_config config;
    unsigned at = 0;

    vs_pool_config_default(&config, scenario->backing, DEVICE_BYTES);
    if (scenario->tight) {
        config.slack_permille = 0;
        config.slack_bytes = 0;
        config.view_min = 2 * VS_POOL_PAGE; /* many views, though the device is small */
    }
    config.keep_bytes = scenario->keep_bytes;
    if (scenario->trim_above) {
        config.trim_above = scenario->trim_above;
    }
    config.faults = faults;
    if (!world_init(&world, &config, scenario->cap, choices)) {
        snprintf(said, sizeof(said), "no pool");
        return said;
    }
    world.fail_permille = scenario->fail_permille;
    world.host_permille = scenario->host_permille;
    world.cannot_order = scenario->cannot_order;
    world.lend_permille = scenario->lend_permille;
    world.uncapped = scenario->uncapped;
    world_check(&world);
    while (world.breach[0] == '\0' && at < steps && (choices->state || choices->left)) {
        step(&world, scenario);
        world_check(&world);
        at++;
    }
    if (world.breach[0]) {
        world_abandon(&world); /* nothing that follows could be relied on */
        snprintf(said, sizeof(said), "step %u: %s", at, world.breach);
        return said;
    }
    world_fini(&world, scenario->gone);
    snprintf(said, sizeof(said), "%s%s", world.breach[0] ? "the end: " : "", world.breach);
    return said;
}
