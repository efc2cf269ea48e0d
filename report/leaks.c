/* Grouping leaks (see leaks.h): a mapped hash table of groups, of which the largest are kept. */
#include "report/leaks.h"

#include <string.h>

#include "report/sys.h"

#define MOST_PLACES ((size_t)1 << 18)

void vs_leaks_open(struct vs_leaks_grouping *grouping, size_t expected)
{
    size_t places = 64;
    memset(grouping, 0, sizeof *grouping);
    while (places < MOST_PLACES && places < expected * 2) {
        places *= 2;
    }
    grouping->group = vs_sys_map(places * sizeof *grouping->group);
    grouping->places = grouping->group ? places : 0;
}

void vs_leaks_add_rest(struct vs_leaks_grouping *grouping, uint32_t device, uint64_t total_bytes,
                       uint64_t count)
{
    struct vs_leak *rest = &grouping->rest[device % VS_LEDGER_MAX_DEVICES];
    rest->device = device;
    rest->kind = VS_KIND_COUNT;
    rest->total_bytes += total_bytes;
    rest->count += count;
}

void vs_leaks_add(struct vs_leaks_grouping *grouping, uint32_t device, uint32_t kind,
                  uint64_t size_bytes, uint64_t count, bool with_context)
{
    uint64_t hash = size_bytes * UINT64_C(0x9e3779b97f4a7c15) +
                    ((uint64_t)device << 8 | kind << 1 | with_context);
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    size_t mask = grouping->places - 1;
    for (size_t i = hash >> 40; grouping->places; i++) {
        struct vs_leak *group = &grouping->group[i & mask];
        if (group->count == 0) {
            if (grouping->used >= grouping->places / 4 * 3) {
                break;
            }
            grouping->used++;
            *group = (struct vs_leak){size_bytes, 0, 0, device, kind, with_context};
        } else if (group->size_bytes != size_bytes || group->device != device ||
                   group->kind != kind || group->with_context != with_context) {
            continue;
        }
        group->count += count;
        group->total_bytes += size_bytes * count;
        return;
    }
    vs_leaks_add_rest(grouping, device, size_bytes * count, count);
}

/* A total order, so that equal ledgers give equal reports. */
static bool larger(const struct vs_leak *a, const struct vs_leak *b)
{
    if (a->total_bytes != b->total_bytes) {
        return a->total_bytes > b->total_bytes;
    }
    if (a->size_bytes != b->size_bytes) {
        return a->size_bytes > b->size_bytes;
    }
    if (a->device != b->device) {
        return a->device < b->device;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind;
    }
    return a->with_context < b->with_context;
}

/* The listed groups form a heap with the smallest on top while they are chosen. */
static void sift(struct vs_leak *heap, size_t count, size_t at)
{
    for (;;) {
        size_t smallest = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (larger(&heap[smallest], &heap[child])) {
                smallest = child;
            }
        }
        if (smallest == at) {
            return;
        }
        struct vs_leak held = heap[at];
        heap[at] = heap[smallest];
        heap[smallest] = held;
        at = smallest;
    }
}

static void to_rest(struct vs_leaks_grouping *grouping, const struct vs_leak *leak)
{
    vs_leaks_add_rest(grouping, leak->device, leak->total_bytes, leak->count);
}

void vs_leaks_close(struct vs_leaks_grouping *grouping, struct vs_leaks *leaks)
{
    struct vs_leak *heap = leaks->leak;
    size_t count = 0;

    for (size_t i = 0; i < grouping->places; i++) {
        const struct vs_leak *group = &grouping->group[i];
        if (group->count == 0) {
            continue;
        }
        if (count < VS_LEAKS_LISTED) {
            heap[count++] = *group;
            if (count == VS_LEAKS_LISTED) {
                for (size_t at = count / 2; at-- > 0;) {
                    sift(heap, count, at);
                }
            }
        } else if (larger(group, &heap[0])) {
            to_rest(grouping, &heap[0]);
            heap[0] = *group;
            sift(heap, count, 0);
        } else {
            to_rest(grouping, group);
        }
    }
    if (count < VS_LEAKS_LISTED) {
        for (size_t at = count / 2; at-- > 0;) {
            sift(heap, count, at);
        }
    }
    for (size_t end = count; end > 1; end--) {
        struct vs_leak smallest = heap[0];
        heap[0] = heap[end - 1];
        heap[end - 1] = smallest;
        sift(heap, end - 1, 0);
    }
    for (uint32_t d = 0; d < VS_LEDGER_MAX_DEVICES; d++) {
        if (grouping->rest[d].count) {
            heap[count++] = grouping->rest[d];
        }
    }
    leaks->count = (uint32_t)count;
    if (grouping->places) {
        vs_sys_unmap(grouping->group, grouping->places * sizeof *grouping->group);
    }
    memset(grouping, 0, sizeof *grouping);
}
