/* prefix_tree_check: recounts the whole tree and compares. For tests and debug builds. It allocates
 * nothing, so it can run between any two steps. It trusts no link before checking it, and visits no
 * more nodes and pages than there are. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "cache/tree_node.h"

/* The totals of a namespace, or of the whole tree. */
struct recount {
    uint32_t n_nodes, n_edges, n_listed[RECENCY_LISTS];
    uint32_t n_pages, n_evictable, n_pinned, n_gone, n_invalid, n_images, n_entries;
    uint32_t n_side[TREE_MAX_SIDES], n_sided[TREE_MAX_SIDES]; /* pages, and nodes with any */
    uint32_t entries_by_depth[TREE_DEPTH_BUCKETS];
};

#define EXPECT(condition, node)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            log_error("prefix tree: node %u breaks \"%s\"", (node), #condition);                   \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* Checks one page of a node, at position `depth` from the root. */
static bool check_page(const struct prefix_tree *t, node_id node, uint32_t page, uint32_t depth,
                       uint64_t digest_before, struct recount *count)
{
    const struct page_pool *pool = t->pool;
    uint64_t bit = (uint64_t)1 << page % 64, token = pool->token[page];
    EXPECT(!page_pool_is_free(pool, page), node);
    EXPECT(!(t->seen_map[page / 64] & bit), node);
    t->seen_map[page / 64] |= bit;
    EXPECT(pool->digest[page] == digest_next(digest_before, token), node);
    if (page_is_end(t, page)) {
        uint32_t digits = 0;
        while (digits < TREE_DEPTH_BUCKETS - 1 && depth >> digits)
            digits++;
        count->entries_by_depth[digits]++;
        count->n_entries++;
    }
    if (cache_token_image_begun(token) == 1) {
        count->n_images++;
        const struct image_shape *shape = image_table_shape(t->images,
                                                            cache_token_image_index(token));
        EXPECT(shape->length == (token & 0x3fff) + 1, node);
    }
    return true;
}

/* A node's chain in a side has exactly the side pages of its positions, in order. */
static bool check_side(const struct prefix_tree *t, uint32_t side, node_id node,
                       struct recount *count)
{
    const struct tree_side *s = &t->sides[side];
    const struct page_pool *pool = s->pool;
    const struct node_side *y = &s->nodes[node];
    const struct tree_node *x = &t->nodes[node];
    uint32_t next = y->first, before = PAGE_NONE, n = 0, n_gaps = 0;
    uint32_t page = x->first, position = x->depth - x->length + 1;
    for (uint32_t i = 0; i < x->length; i++, page = t->pool->next[page]) {
        uint32_t own = s->page[page];
        if (own == PAGE_NONE)
            continue;
        EXPECT(own == next && own < pool->n_pages && !page_pool_is_free(pool, own), node);
        EXPECT(side_owner(s, own) == page && side_position(s, own) == position + i, node);
        EXPECT(pool->prev[own] == before, node);
        n_gaps += n > 0 && side_position(s, before) + 1 != position + i;
        before = own;
        next = pool->next[own];
        n++;
    }
    EXPECT(next == PAGE_NONE && y->last == before, node);
    EXPECT(y->n == n && y->n_gaps == n_gaps, node);
    count->n_side[side] += n;
    count->n_sided[side] += n > 0;
    return true;
}

static bool check_sides(const struct prefix_tree *t, node_id node, struct recount *count)
{
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < t->n_sides; i++)
        is_right = check_side(t, i, node, count);
    EXPECT(!tree_has_sides(t) || t->ends.nodes[node].guard == 0, node);
    return is_right;
}

static bool check_chain(const struct prefix_tree *t, node_id node, struct recount *count)
{
    const struct page_pool *pool = t->pool;
    const struct tree_node *x = &t->nodes[node];
    EXPECT(x->length > 0 && x->length <= pool->n_pages, node);
    EXPECT(x->first < pool->n_pages && pool->prev[x->first] == PAGE_NONE, node);
    uint64_t digest = node_digest(t, x->parent), before = cache_token_text(0);
    uint32_t page = x->first, depth = t->nodes[x->parent].depth + 1;
    for (;; depth++) {
        if (!check_page(t, node, page, depth, digest, count))
            return false;
        EXPECT(cache_token_follows(pool->token[page], before), node);
        before = pool->token[page];
        digest = pool->digest[page];
        if (depth == x->depth)
            break;
        uint32_t next = pool->next[page];
        EXPECT(next < pool->n_pages && pool->prev[next] == page, node);
        EXPECT(!x->is_run || next == page + 1, node);
        page = next;
    }
    EXPECT(x->depth - t->nodes[x->parent].depth == x->length, node);
    EXPECT(page == x->last && pool->next[page] == PAGE_NONE, node);
    EXPECT(cache_token_is_whole(before), node);
    return true;
}

/* The node's children are linked to it and sorted by use, and their locks and pins are counted in
 * it. */
static bool check_children(const struct prefix_tree *t, node_id node)
{
    const struct tree_node *x = &t->nodes[node];
    uint64_t locks = 0, pins = 0;
    for (uint32_t i = 0; i < t->stats.n_pins; i++)
        pins += node != NODE_NONE && t->pins[i].node == node;
    node_id prev = NODE_NONE;
    for (node_id c = x->first_child; c != NODE_NONE; prev = c, c = t->nodes[c].next_sibling) {
        const struct tree_node *child = &t->nodes[c];
        EXPECT(c <= t->n_made && child->parent == node, node);
        EXPECT(child->prev_sibling == prev, node);
        EXPECT(prev == NODE_NONE || child->stamp < t->nodes[prev].stamp, node);
        locks += child->locks;
        pins += child->pins;
    }
    EXPECT(node == NODE_NONE || locks <= x->locks, node);
    EXPECT(node_is_root(t, node) || pins == x->pins, node);
    return true;
}

static bool check_node(const struct prefix_tree *t, node_id node, uint32_t space,
                       struct recount *count)
{
    const struct tree_node *x = &t->nodes[node], *parent = &t->nodes[x->parent];
    bool is_valid = t->spaces[space].is_valid;
    EXPECT(++count->n_nodes <= t->stats.n_nodes && node <= t->n_made, node);
    EXPECT(x->space == space && x->stamp <= t->now, node);
    if (!check_children(t, node))
        return false;
    if (node_is_root(t, node)) {
        EXPECT(x->length == 0 && x->depth == 0 && x->pins == 0 && !x->gone, node);
        EXPECT(x->locks > 0 || x->first_child != NODE_NONE, node);
        EXPECT(x->cut == !is_valid, node);
    } else {
        if (!check_chain(t, node, count) || !check_sides(t, node, count))
            return false;
        EXPECT(parent->stamp >= x->stamp, node);
        EXPECT(!x->gone || x->locks > 0, node);
        EXPECT(x->gone || (!parent->gone && !x->cut), node);
        EXPECT(!x->gone || parent->gone || x->cut, node);
    }
    uint64_t key = node_is_root(t, node) ? t->spaces[space].ns : t->pool->token[x->first];
    EXPECT((edge_table_find(&t->edges, x->parent, key) == node) == !x->cut, node);
    count->n_edges += !x->cut;
    count->n_pages += x->length;
    count->n_pinned += x->pins ? x->length : 0;
    count->n_gone += x->gone ? x->length : 0;
    count->n_invalid += x->gone || !is_valid ? x->length : 0;
    if (node_is_listed(t, node)) {
        count->n_listed[x->pins > 0]++;
        count->n_evictable += x->length;
    }
    return true;
}

/* Checks the nodes below a root, which all belong to its space. */
static bool check_subtree(const struct prefix_tree *t, node_id root, struct recount *count)
{
    uint32_t space = t->nodes[root].space;
    EXPECT(space > 0 && space <= t->n_spaces_made && t->spaces[space].root == root, root);
    node_id node = root;
    for (;;) {
        if (!check_node(t, node, space, count))
            return false;
        if (t->nodes[node].first_child != NODE_NONE) {
            node = t->nodes[node].first_child;
            continue;
        }
        while (node != root && t->nodes[node].next_sibling == NODE_NONE)
            node = t->nodes[node].parent;
        if (node == root)
            return true;
        node = t->nodes[node].next_sibling;
    }
}

/* Stamps never fall along a list, and nodes with equal stamps form one path upwards. Because a
 * parent's stamp is never smaller either, every parent comes after its children. */
static bool check_list(const struct prefix_tree *t, uint32_t space, int which, uint32_t n_listed)
{
    const struct recency_list *list = &t->spaces[space].lists[which];
    node_id node = list->oldest, older = NODE_NONE;
    for (; node != NODE_NONE; older = node, node = t->nodes[node].newer) {
        const struct tree_node *x = &t->nodes[node], *o = &t->nodes[older];
        EXPECT(n_listed-- > 0, node);
        EXPECT(node_is_listed(t, node) && x->older == older, node);
        EXPECT(x->space == space && (x->pins > 0) == which, node);
        EXPECT(older == NODE_NONE || o->stamp < x->stamp ||
                   (o->stamp == x->stamp && o->parent == node),
               node);
    }
    EXPECT(list->newest == older && n_listed == 0, older);
    return true;
}

static bool check_space(const struct prefix_tree *t, node_id root, struct recount *total)
{
    struct recount count = {.n_nodes = total->n_nodes};
    if (!check_subtree(t, root, &count))
        return false;
    const struct tree_space *space = &t->spaces[t->nodes[root].space];
    EXPECT(count.n_pages == space->n_pages && count.n_gone == space->n_gone &&
               count.n_pinned == space->n_pinned,
           root);
    EXPECT(count.n_pages <= space->cap || count.n_evictable == 0, root);
    total->n_nodes = count.n_nodes;
    total->n_edges += count.n_edges;
    total->n_pages += count.n_pages;
    total->n_evictable += count.n_evictable;
    total->n_pinned += count.n_pinned;
    total->n_invalid += count.n_invalid;
    total->n_images += count.n_images;
    for (uint32_t i = 0; i < t->n_sides; i++) {
        total->n_side[i] += count.n_side[i];
        total->n_sided[i] += count.n_sided[i];
    }
    total->n_entries += count.n_entries;
    for (uint32_t i = 0; i < TREE_DEPTH_BUCKETS; i++)
        total->entries_by_depth[i] += count.entries_by_depth[i];
    for (int which = 0; which < RECENCY_LISTS; which++) {
        if (!check_list(t, t->nodes[root].space, which, count.n_listed[which]))
            return false;
        total->n_listed[which] += count.n_listed[which] > 0;
    }
    return true;
}

/* Every node that has pages of a side is in the side's list, in order of use; nodes that were
 * passed have no interior pages. */
static bool check_side_list(const struct prefix_tree *t, uint32_t side, const struct recount *count)
{
    const struct tree_side *s = &t->sides[side];
    uint32_t n = 0;
    bool passed = s->next != NODE_NONE;
    node_id older = NODE_NONE;
    for (node_id node = s->oldest; node != NODE_NONE; older = node, node = s->nodes[node].newer) {
        const struct tree_node *x = &t->nodes[node], *o = &t->nodes[older];
        EXPECT(++n <= count->n_sided[side] && s->nodes[node].n > 0, node);
        EXPECT(s->nodes[node].older == older, node);
        EXPECT(older == NODE_NONE || o->stamp < x->stamp ||
                   (o->stamp == x->stamp && o->depth > x->depth),
               node);
        passed &= node != s->next;
        EXPECT((s->next != NODE_NONE && !passed) ||
                   (uint64_t)side_position(s, s->nodes[node].first) + s->tail > x->depth,
               node);
    }
    EXPECT(n == count->n_sided[side] && s->newest == older && !passed, older);
    EXPECT(count->n_side[side] == s->pool->n_owned, NODE_NONE);
    return true;
}

static bool check_side_lists(const struct prefix_tree *t, const struct recount *count)
{
    bool is_right = true;
    for (uint32_t i = 0; is_right && i < t->n_sides; i++)
        is_right = check_side_list(t, i, count);
    return is_right;
}

/* Kept ends belong to nodes in use, in the order in which a sequence last continued from them. */
static bool check_ends(const struct prefix_tree *t)
{
    const struct tree_ends *e = &t->ends;
    uint32_t n = 0;
    node_id older = NODE_NONE;
    for (node_id end = e->oldest; end != NODE_NONE; older = end, end = e->nodes[end].newer) {
        const struct node_end *x = &e->nodes[end];
        EXPECT(++n <= t->stats.n_nodes && end <= t->n_made, end);
        EXPECT(t->nodes[end].length > 0 && !t->nodes[end].gone && x->n_forks > 0, end);
        EXPECT(x->older == older && x->forked <= t->now, end);
        EXPECT(older == NODE_NONE || e->nodes[older].forked <= x->forked, end);
    }
    EXPECT(e->newest == older, older);
    return true;
}

/* Each pin ends at its own node, which is not a root and can be found. */
static bool check_pins(const struct prefix_tree *t)
{
    EXPECT(t->stats.n_pins <= TREE_MAX_PINS && t->stats.n_pinned <= t->max_pinned, NODE_NONE);
    for (uint32_t i = 0; i < t->stats.n_pins; i++) {
        node_id node = t->pins[i].node;
        EXPECT(node > 0 && node <= t->n_made && t->nodes[node].length > 0, node);
        EXPECT(!node_is_invalid(t, node), node);
        for (uint32_t k = 0; k < i; k++)
            EXPECT(t->pins[k].node != node, node);
    }
    return true;
}

/* Every list that is not empty is in the heap, and none comes above one that must be evicted
 * earlier. */
static bool check_heap(const struct prefix_tree *t, int which, uint32_t n_lists)
{
    const struct space_heap *heap = &t->heaps[which];
    EXPECT(heap->count == n_lists, NODE_NONE);
    for (uint32_t i = 0; i < heap->count; i++) {
        const struct tree_space *space = &t->spaces[heap->items[i]];
        const struct tree_space *above = &t->spaces[heap->items[i ? (i - 1) / 2 : 0]];
        EXPECT(space->lists[which].oldest != NODE_NONE && space->lists[which].at == i, space->root);
        EXPECT(above->is_valid <= space->is_valid, space->root);
        EXPECT(above->is_valid < space->is_valid || t->nodes[above->lists[which].oldest].stamp <=
                                                        t->nodes[space->lists[which].oldest].stamp,
               space->root);
    }
    return true;
}

static bool check_totals(const struct prefix_tree *t, const struct recount *count)
{
    const struct tree_stats *s = &t->stats;
    if (count->n_nodes == s->n_nodes && count->n_edges == t->edges.count &&
        count->n_pages == t->pool->n_owned && count->n_evictable == s->n_evictable &&
        count->n_pinned == s->n_pinned && count->n_invalid == s->n_invalid &&
        count->n_images == t->n_images && count->n_entries == s->n_entries &&
        memcmp(count->entries_by_depth, s->entries_by_depth, sizeof s->entries_by_depth) == 0)
        return true;
    log_error("prefix tree: counted %u nodes, %u edges, %u pages, %u evictable, %u pinned, %u "
              "invalid, %u images, %u entries; noted are %u, %u, %u, %u, %u, %u, %u, %u",
              count->n_nodes, count->n_edges, count->n_pages, count->n_evictable, count->n_pinned,
              count->n_invalid, count->n_images, count->n_entries, s->n_nodes, t->edges.count,
              t->pool->n_owned, s->n_evictable, s->n_pinned, s->n_invalid, t->n_images,
              s->n_entries);
    return false;
}

bool prefix_tree_check(const struct prefix_tree *t)
{
    struct recount count = {0};
    uint32_t n_roots = 0, n_invalid = 0, n_unused = 0;
    memset(t->seen_map, 0, ((size_t)t->pool->n_pages / 64 + 1) * sizeof *t->seen_map);
    if (!check_children(t, NODE_NONE) || !check_pins(t))
        return false;
    for (node_id root = t->nodes[NODE_NONE].first_child; root != NODE_NONE; n_roots++) {
        if (!check_space(t, root, &count))
            return false;
        n_invalid += t->nodes[root].cut;
        root = t->nodes[root].next_sibling;
    }
    for (int which = 0; which < RECENCY_LISTS; which++)
        if (!check_heap(t, which, count.n_listed[which]))
            return false;
    for (node_id node = t->unused; node != NODE_NONE; node = t->nodes[node].parent) {
        EXPECT(n_unused < t->n_made && t->nodes[node].length == 0, node);
        n_unused++;
    }
    EXPECT(n_unused + count.n_nodes == t->n_made && t->n_made <= t->max_nodes, NODE_NONE);
    EXPECT(n_roots == t->stats.n_namespaces && n_invalid == t->n_invalid_spaces, NODE_NONE);
    return check_totals(t, &count) && check_side_lists(t, &count) && check_ends(t);
}
