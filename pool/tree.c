/*
 * Free blocks by size: the tightest fit, and among equals the lowest address.
 *
 * Keys (the size, of a FREE block) are spread over bins, sixteen per power of two, with a bitmap of
 * those that hold any; each bin is a treap ordered by (key, address), its priorities a hash of the
 * block's number. So the order is exact, the trees are small, and the same calls give the same
 * answers. O(log n) expected.
 */
#include "pool/internal.h"

static unsigned bin_of(uint32_t units)
{
    if (units < 16) {
        return units;
    }
    unsigned top = 31u - (unsigned)__builtin_clz(units); /* at least 4 */
    return (top - 3) * 16 + ((units >> (top - 4)) & 15);
}
_Static_assert((31 - 3) * 16 + 15 < TREE_BINS, "the largest size has a bin");

static uint32_t priority(uint32_t number)
{
    number *= 0x9e3779b1u;
    number ^= number >> 15;
    return number * 0x85ebca77u;
}

static bool before(const struct vs_block *a, uint32_t key, uint64_t address)
{
    return a->key != key ? a->key < key : a->address < address;
}

static void split(const struct vs_pool *pool, uint32_t root, const struct vs_block *key,
                  uint32_t *less, uint32_t *more)
{
    while (root) {
        struct vs_block *block = block_at(pool, root);
        if (before(block, key->key, key->address)) {
            *less = root;
            less = &block->right;
            root = block->right;
        } else {
            *more = root;
            more = &block->left;
            root = block->left;
        }
    }
    *less = *more = 0;
}

static uint32_t merge(const struct vs_pool *pool, uint32_t less, uint32_t more)
{
    uint32_t root = 0, *at = &root;
    while (less && more) {
        if (priority(less) > priority(more)) {
            *at = less;
            at = &block_at(pool, less)->right;
            less = *at;
        } else {
            *at = more;
            at = &block_at(pool, more)->left;
            more = *at;
        }
    }
    *at = less ? less : more;
    return root;
}

/* Bytes in pages that the block has to itself. */
static uint64_t whole_pages(const struct vs_block *block)
{
    uint64_t from = page_up(block->address), to = page_down(block_end(block));
    return from < to ? to - from : 0;
}

void vs_tree_insert(const struct vs_pool *pool, struct vs_tree *tree, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    unsigned bin = bin_of(block->key);
    uint32_t *at = &tree->roots[bin];
    while (*at && priority(*at) > priority(number)) {
        struct vs_block *other = block_at(pool, *at);
        at = before(other, block->key, block->address) ? &other->right : &other->left;
    }
    split(pool, *at, block, &block->left, &block->right);
    *at = number;
    tree->filled[bin / 64] |= UINT64_C(1) << bin % 64;
    tree->bytes += block_bytes(block);
    tree->whole += whole_pages(block);
}

void vs_tree_remove(const struct vs_pool *pool, struct vs_tree *tree, uint32_t number)
{
    struct vs_block *block = block_at(pool, number);
    unsigned bin = bin_of(block->key);
    uint32_t *at = &tree->roots[bin];
    while (*at != number) {
        struct vs_block *other = block_at(pool, *at);
        at = before(other, block->key, block->address) ? &other->right : &other->left;
    }
    *at = merge(pool, block->left, block->right);
    tree->bytes -= block_bytes(block);
    tree->whole -= whole_pages(block);
    if (!tree->roots[bin]) {
        tree->filled[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    }
}

static uint32_t first(const struct vs_pool *pool, uint32_t root)
{
    while (block_at(pool, root)->left) {
        root = block_at(pool, root)->left;
    }
    return root;
}

uint32_t vs_tree_from(const struct vs_pool *pool, const struct vs_tree *tree, uint32_t key,
                      uint64_t address)
{
    unsigned bin = bin_of(key);
    uint32_t root = tree->roots[bin], best = 0;
    while (root) {
        struct vs_block *block = block_at(pool, root);
        if (before(block, key, address)) {
            root = block->right;
        } else {
            best = root;
            root = block->left;
        }
    }
    if (best || ++bin == TREE_BINS) {
        return best;
    }
    unsigned word = bin / 64;
    uint64_t bits = tree->filled[word] & ~UINT64_C(0) << bin % 64;
    while (!bits && ++word < TREE_BINS / 64) {
        bits = tree->filled[word];
    }
    return bits ? first(pool, tree->roots[word * 64 + (unsigned)__builtin_ctzll(bits)]) : 0;
}

uint32_t vs_tree_large(const struct vs_pool *pool, const struct vs_tree *tree, unsigned bin)
{
    for (unsigned word = TREE_BINS / 64; word-- > 0;) {
        for (uint64_t bits = tree->filled[word]; bits;) {
            unsigned top = 63u - (unsigned)__builtin_clzll(bits);
            if (bin-- == 0) {
                uint32_t root = tree->roots[word * 64 + top];
                while (block_at(pool, root)->right) {
                    root = block_at(pool, root)->right;
                }
                return root;
            }
            bits &= ~(UINT64_C(1) << top);
        }
    }
    return 0;
}
