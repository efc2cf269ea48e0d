/*
 * The live table: address -> allocation, for every allocation that the program still holds.
 *
 * 8,192 parts by address, each a line of its own with a lock and room for one allocation. The
 * others that come to it are entries in chains, which lie in mapped slabs; entries that one part
 * gives back serve the others. No malloc; a system call only when the table grows. Host memory: 64
 * bytes for each part that is used, and for each further allocation in it 48 for the entry and 8 to
 * 16 for its share of the chains.
 *
 * Every function may be called from any thread. No lock is held on return, and visitors are the
 * only thing that is called with one held.
 */
#ifndef VS_REPORT_LIVE_H
#define VS_REPORT_LIVE_H

#include "report/ledger.h"

#include <stdatomic.h>

struct vs_live;

#define VS_LIVE_PARTS 8192

/* An empty table, or NULL when the mapping is refused. There is no close: a table lives as long as
 * its process, and a forked child just makes a new one. */
struct vs_live *vs_live_open(void);

/* Remembers *alloc. 0: done. 1: it took the place of another at that address, copied to *replaced
 * (with frees > 0 if a free of it was under way). -ENOMEM: not remembered. */
int vs_live_put(struct vs_live *live, const struct vs_alloc *alloc, struct vs_alloc *replaced);

/* A free is under way: counts it in the entry and copies that to *out; false if none starts there.
 */
bool vs_live_free_begin(struct vs_live *live, uint64_t address, struct vs_alloc *out);

/* It was done: forgets the allocation. False if that has happened already
 * (another free of the same was quicker, or the address is somebody else's by now). */
bool vs_live_free_done(struct vs_live *live, const struct vs_alloc *alloc);

/* Both at once: forgets what starts at this address and copies it to *out; false if nothing does.
 */
bool vs_live_free_at_once(struct vs_live *live, uint64_t address, struct vs_alloc *out);

/* It was refused. */
void vs_live_free_undo(struct vs_live *live, const struct vs_alloc *alloc);

/* Copies it to *out and keeps it. */
bool vs_live_get(struct vs_live *live, uint64_t address, struct vs_alloc *out);

/* Calls visit for each allocation with its part locked (visit must not call back into the table);
 * those for which it returns true are forgotten. Not a snapshot when others work meanwhile. at_end:
 * a part whose lock can't be had within a second is left out, for the process may be ending inside
 * one. Returns how many were. */
typedef bool vs_live_visit(const struct vs_alloc *alloc, void *context);
unsigned vs_live_each(struct vs_live *live, bool at_end, vs_live_visit *visit, void *context);

/* Host memory mapped so far, in bytes, touched or not. */
size_t vs_live_mapped_bytes(struct vs_live *live);

#endif
