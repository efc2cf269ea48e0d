/*
 * Random programs (see drive.h).
 */
#include "tests/unit/pool/drive.h"

#include <errno.h>
#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define DEVICE_BYTES (1024 * MIB)

const struct scenario drive_scenarios[] = {
    {.name = "vmm, shipped policy", .cap = 256 * MIB, .captures = true, .holds = true},
    {.name = "vmm, no slack", .cap = 256 * MIB, .tight = true, .captures = true, .holds = true},
    {.name = "vmm, small sizes", .cap = 64 * MIB, .sizes = DRIVE_SMALL, .captures = true},
    {.name = "vmm, large sizes, cap tight", .cap = 64 * MIB, .sizes = DRIVE_LARGE, .tight = true},
    {.name = "vmm, large sizes", .cap = 128 * MIB, .sizes = DRIVE_LARGE, .captures = true},
    {.name = "vmm, power law", .cap = 96 * MIB, .sizes = DRIVE_POWER, .holds = true},
    {.name = "vmm, few sizes, calm", .cap = 96 * MIB, .sizes = DRIVE_FEW, .calm = true},
    {.name = "vmm, kept", .cap = 128 * MIB, .keep_bytes = 64 * MIB, .captures = true},
    {.name = "vmm, trim above", .cap = 128 * MIB, .trim_above = 16 * MIB, .captures = true},
    {.name = "vmm, a driver that cannot order", .cap = 96 * MIB, .cannot_order = true},
    {.name = "vmm, failures", .cap = 96 * MIB, .fail_permille = 30, .captures = true},
    {.name = "vmm, many failures, no slack", .cap = 64 * MIB, .fail_permille = 200, .tight = true},
    {.name = "vmm, no host memory", .cap = 96 * MIB, .sizes = DRIVE_POWER, .host_permille = 300},
    {.name = "vmm, giants",
     .cap = 1024 * MIB,
     .sizes = DRIVE_GIANT,
     .captures = true,
     .holds = true},
    {.name = "vmm, giants, cap tight, no slack",
     .cap = 512 * MIB,
     .sizes = DRIVE_GIANT,
     .tight = true,
     .captures = true},
    {.name = "vmm, giants, calm", .cap = 768 * MIB, .sizes = DRIVE_GIANT, .calm = true},
    {.name = "vmm, giants, failures",
     .cap = 640 * MIB,
     .sizes = DRIVE_GIANT,
     .fail_permille = 30,
     .captures = true},
    {.name = "vmm, giants, the context ends", .cap = 512 * MIB, .sizes = DRIVE_GIANT, .gone = true},
    {.name = "vmm, the context ends", .cap = 96 * MIB, .gone = true},
    {.name = "native, shipped policy",
     .backing = VS_POOL_NATIVE,
     .cap = 256 * MIB,
     .captures = true,
     .holds = true},
    {.name = "native, small sizes",
     .backing = VS_POOL_NATIVE,
     .cap = 64 * MIB,
     .sizes = DRIVE_SMALL,
     .captures = true},
    {.name = "native, large sizes",
     .backing = VS_POOL_NATIVE,
     .cap = 128 * MIB,
     .sizes = DRIVE_LARGE,
     .holds = true},
    {.name = "native, kept, trim above",
     .backing = VS_POOL_NATIVE,
     .cap = 128 * MIB,
     .keep_bytes = 32 * MIB,
     .trim_above = 16 * MIB},
    {.name = "native, failures",
     .backing = VS_POOL_NATIVE,
     .cap = 96 * MIB,
     .fail_permille = 50,
     .captures = true},
    {.name = "native, no host memory",
     .backing = VS_POOL_NATIVE,
     .cap = 96 * MIB,
     .sizes = DRIVE_POWER,
     .host_permille = 300},
    {.name = "native, the context ends", .backing = VS_POOL_NATIVE, .cap = 96 * MIB, .gone = true},
};
const unsigned drive_scenario_count = sizeof(drive_scenarios) / sizeof(drive_scenarios[0]);

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

static void allocate(struct world *world, enum drive_sizes sizes)
{
    uint64_t bytes = draw_size(world, sizes);
    size_t index;

    if (world_alloc(world, bytes, &index) == 0) {
        if (choose(world->choices, 2)) {
            world_submit(world, (uint32_t)choose(world->choices, world->streams), index, 1, false);
        }
    } else if (world->live_count > 0 && !world->held) {
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
        world_submit(world, (uint32_t)choose(world->choices, world->streams),
                     world->live_count ? choose(world->choices, world->live_count) : 0, 2, true);
    }
}

static void step(struct world *world, const struct scenario *scenario)
{
    uint64_t dice = choose(world->choices, 100);

    if (dice < 38) {
        allocate(world, scenario->sizes);
    } else if (dice < 60 && !world->held) {
        free_some(world);
    } else if (dice < 82) {
        if (world->submitted - world->finished < WORLD_AHEAD) {
            world_submit(world, (uint32_t)choose(world->choices, world->streams),
                         world->live_count ? choose(world->choices, world->live_count) : 0,
                         1 + choose(world->choices, 4), false);
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
