/*
 * Lines about what the pool decided (see decisions.h).
 */
#include "shim/decisions.h"

#include "shim/arena_inner.h"
#include "shim/arm.h"
#include "shim/say.h"
#include "shim/size.h"
#include "shim/text.h"

enum kind { TOOK, MOVED, GAVE, WAITED, REFUSED, FREE_WAITS, COPY_WAITS, KINDS };

/* Is a line of this kind to be said? */
static bool says(enum kind kind)
{
    static _Atomic uint64_t last[KINDS];

    return vs_say_shows(VS_SAY_DECISION) && vs_say_seldom(&last[kind]);
}

static const char *why(const struct vs_arena *arena)
{
    switch (vs_arm_resolved()->backing) {
    case VS_BACKING_VMM:
        return arena->backing == VS_POOL_VMM ? "as VRAMSHIM_BACKING says"
                                             : "vmm was asked for, but the device cannot map "
                                               "memory in pages of 2 MiB";
    case VS_BACKING_NATIVE:
        return "as VRAMSHIM_BACKING says";
    default:
        return "auto: its memory can be shared with other processes and devices";
    }
}

void vs_decisions_backing(const struct vs_arena *arena)
{
    vs_say(VS_SAY_DECISION, "device %d: pool with %s backing (%s)", arena->device,
           arena->backing == VS_POOL_VMM ? "vmm" : "native", why(arena));
}

/* "for a request of 3MiB" and the like. */
static const char *occasion(char out[VS_SIZE_TEXT + 24], uint64_t asked)
{
    char size[VS_SIZE_TEXT];

    if (asked == 0) {
        return "after a free, or by decay";
    }
    vs_text_format(out, VS_SIZE_TEXT + 24, "for a request of %s", vs_size_text(size, asked));
    return out;
}

static void say_done(const struct vs_arena *arena, const struct vs_arena_tally *tally,
                     uint64_t asked)
{
    char size[VS_SIZE_TEXT], held[VS_SIZE_TEXT], text[VS_SIZE_TEXT + 24];
    const char *when = occasion(text, asked);
    int64_t reserved = atomic_load_explicit(&arena->reserved, memory_order_relaxed);

    vs_size_text(held, reserved > 0 ? (uint64_t)reserved : 0);
    if (tally->took != 0 && says(TOOK)) {
        vs_say(VS_SAY_DECISION, "device %d: %s more from the driver %s; the pool holds %s",
               arena->device, vs_size_text(size, tally->took), when, held);
    }
    if (tally->moved != 0 && says(MOVED)) {
        vs_say(VS_SAY_DECISION, "device %d: %s of free pages mapped where they are needed, %s",
               arena->device, vs_size_text(size, tally->moved), when);
    }
    if (tally->gave != 0 && says(GAVE)) {
        vs_say(VS_SAY_DECISION, "device %d: %s back to the driver %s; the pool holds %s",
               arena->device, vs_size_text(size, tally->gave), when, held);
    }
    if (tally->waits != 0 && says(WAITED)) {
        vs_say(VS_SAY_DECISION, "device %d: the host waited %llu us for work on the device, %s",
               arena->device, (unsigned long long)(tally->wait_ns / 1000), when);
    }
}

void vs_decisions_done(const struct vs_arena *arena, uint64_t asked)
{
    struct vs_arena_tally tally = vs_arena_here.tally;

    vs_arena_here.tally = (struct vs_arena_tally){0};
    if (vs_say_shows(VS_SAY_DECISION)) {
        say_done(arena, &tally, asked);
    }
}

static const char *reason(enum vs_verdict verdict)
{
    switch (verdict) {
    case VS_VERDICT_OVER_LIMIT:
        return "over the limit";
    case VS_VERDICT_FRAGMENTED:
        return "enough is free, but not in one piece";
    case VS_VERDICT_PENDING:
        return "enough is free, but a running capture keeps it aside";
    default:
        return "the device is full";
    }
}

void vs_decisions_refused(struct vs_arena *arena, uint64_t asked, enum vs_verdict verdict)
{
    char size[VS_SIZE_TEXT], held[VS_SIZE_TEXT], live[VS_SIZE_TEXT];
    struct vs_pool_stats stats;

    if (says(REFUSED)) {
        vs_pool_stats(arena->pool, &stats);
        vs_say(VS_SAY_DECISION, "device %d: %s refused: %s; the pool holds %s, %s of it live",
               arena->device, vs_size_text(size, asked), reason(verdict),
               vs_size_text(held, stats.reserved_bytes), vs_size_text(live, stats.live_bytes));
    }
}

void vs_decisions_free_waits(bool whole_context)
{
    if (says(FREE_WAITS)) {
        vs_say(VS_SAY_DECISION, whole_context ? "a free waited for all work of its context"
                                              : "a free waited for copies to host memory");
    }
}

void vs_decisions_copy_waits(void)
{
    if (says(COPY_WAITS)) {
        vs_say(VS_SAY_DECISION, "a synchronous copy waits for what frees before it owe");
    }
}
