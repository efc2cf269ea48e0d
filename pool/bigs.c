/*
 * Handles of several pages: quick to map, but they move only as a whole.
 *
 * So that free memory is never stuck, such a handle lies in one block entirely, whatever state that
 * is in: a request that would end inside one takes the rest of it along where that is less than a
 * page, and otherwise has it cut into handles of one page first.
 */
#include <errno.h>

#include "pool/supply.h"

uint32_t vs_big_fit(const struct vs_pool *pool, const struct vs_block *block, uint32_t *units)
{
    uint64_t end = block->address + ((uint64_t)*units << UNIT_BITS);
    const struct vs_page *page;
    if (!block->big || !(page = vs_page_find(pool, end - 1)) || !page->handle) {
        return 0;
    }
    const struct vs_handle *handle = handle_at(pool, page->handle);
    uint64_t handle_end = handle->address + handle->pages * VS_POOL_PAGE;
    if (handle->pages == 1 || handle_end <= end) {
        return 0;
    }
    if (handle_end - end < VS_POOL_PAGE) {
        *units = (uint32_t)((handle_end - block->address) >> UNIT_BITS);
        return 0;
    }
    return page->handle;
}

int vs_big_cut(struct vs_pool *pool, uint32_t number)
{
    struct vs_handle old = *handle_at(pool, number);
    uint64_t end = old.address + old.pages * VS_POOL_PAGE;
    unsigned zone = vs_page_find(pool, old.address)->zone;
    int rc = pool->ops.unmap(pool->world, old.address, old.pages * VS_POOL_PAGE);
    if (rc) {
        return rc;
    }
    for (uint64_t at = old.address; at < end; at += VS_POOL_PAGE) {
        vs_page_find(pool, at)->handle = 0;
    }
    vs_supply_release(pool, number);
    struct vs_stock stock = {0, 0};
    uint64_t at = old.address;
    while (at < end && rc == 0) {
        rc = vs_supply_create(pool, 1, &number);
        if (rc == 0 && (rc = vs_supply_map(pool, number, at, zone)) != 0) {
            vs_supply_release(pool, number);
        }
        at += rc == 0 ? VS_POOL_PAGE : 0;
    }
    if (at > old.address) {
        int set = vs_supply_open(pool, old.address, at - old.address, &stock);
        rc = rc ? rc : set;
        vs_supply_put_back(pool, &stock);
    }
    return rc;
}
