/*
 * Handles of what is no more: of streams and events that were destroyed or went with their context,
 * and of destroyed contexts. The real driver may take one for alive, or crash; here a call with one
 * is reported, and fails the run as a race does (core.c). What the thread has current is no handle
 * that a call names. A primary context's handle stays good.
 */
#include "sim.h"

#define REPORTS 20 /* then only counted */

_Thread_local enum sim_entry sim_calling;
static unsigned stale;

void sim_handle_stale(const char *kind, const void *handle, bool with_context)
{
    if (sim_config.race && stale++ < REPORTS)
        sim_say("STALE HANDLE: %s of %s %p, which %s", sim_entry_base(sim_calling), kind, handle,
                with_context ? "went with its context" : "is destroyed");
}

unsigned sim_handle_stale_count(void)
{
    return stale;
}
