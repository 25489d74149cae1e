/* Pins: paths that are evicted last. Owned by the scheduler's thread.
 *
 *   pins  [node, until][node, until] ...      in order of creation, at most one per node
 *
 * A pin ends at a node, as a handle does, and counts on the whole path except the root. While
 * unlocked, a pinned node is in its namespace's second list. Careful: ending a pin counts as a
 * touch, so the path becomes the most recently used one, and may merge into one node. */
#include <assert.h>
#include <string.h>

#include "cache/tree_node.h"

bool prefix_tree_pin(struct prefix_tree *t, node_id node, uint64_t until_ns)
{
    assert(node != NODE_NONE && t->nodes[node].locks > 0);
    if (node_is_invalid(t, node))
        return false;
    if (node_is_root(t, node))
        return true;
    for (uint32_t i = 0; i < t->stats.n_pins; i++) {
        if (t->pins[i].node != node)
            continue;
        if (t->pins[i].until_ns < until_ns)
            t->pins[i].until_ns = until_ns;
        return true;
    }
    struct tree_space *space = &t->spaces[t->nodes[node].space];
    uint32_t n_new = 0;
    for (node_id x = node; !node_is_root(t, x); x = t->nodes[x].parent)
        n_new += t->nodes[x].pins ? 0 : t->nodes[x].length;
    if (n_new > t->max_pinned - t->stats.n_pinned || space->n_pinned + n_new > space->cap / 2 ||
        t->stats.n_pins == TREE_MAX_PINS)
        return false;
    for (node_id x = node; !node_is_root(t, x); x = t->nodes[x].parent)
        t->nodes[x].pins++;
    t->stats.n_pinned += n_new;
    space->n_pinned += n_new;
    t->pins[t->stats.n_pins++] = (struct tree_pin){until_ns, node};
    return true;
}

/* Ends a pin. The node where it ended keeps its index. */
static void end_pin(struct prefix_tree *t, uint32_t i, uint64_t now_ns)
{
    node_id node = t->pins[i].node;
    struct tree_space *space = &t->spaces[t->nodes[node].space];
    t->stats.n_pins--;
    memmove(&t->pins[i], &t->pins[i + 1], (t->stats.n_pins - i) * sizeof *t->pins);
    tree_begin_touch(t, now_ns);
    node_id x = node;
    for (; !node_is_root(t, x); x = t->nodes[x].parent) {
        bool listed = node_is_listed(t, x);
        if (listed)
            recency_remove(t, x);
        if (--t->nodes[x].pins == 0) {
            t->stats.n_pinned -= t->nodes[x].length;
            space->n_pinned -= t->nodes[x].length;
        }
        node_touch(t, x);
        if (listed)
            recency_push(t, x);
    }
    node_touch(t, x);
    if (tree_has_sides(t))
        sides_touch(t, node);
    path_coalesce(t, node);
}

void pins_end_at(struct prefix_tree *t, node_id leaf, uint64_t now_ns)
{
    uint32_t i = 0;
    while (t->pins[i].node != leaf)
        i++;
    end_pin(t, i, now_ns);
    assert(t->nodes[leaf].pins == 0);
}

void pins_end_in_space(struct prefix_tree *t, uint32_t space)
{
    for (uint32_t i = 0; i < t->stats.n_pins;)
        if (t->nodes[t->pins[i].node].space == space)
            end_pin(t, i, t->now);
        else
            i++;
}

static bool is_below(const struct prefix_tree *t, node_id node, node_id top)
{
    while (t->nodes[node].depth > t->nodes[top].depth)
        node = t->nodes[node].parent;
    return node == top;
}

void pins_end_below(struct prefix_tree *t, node_id node, uint32_t depth)
{
    for (uint32_t i = 0; i < t->stats.n_pins;)
        if (is_below(t, t->pins[i].node, path_node_at(t, node, depth)))
            end_pin(t, i, t->now);
        else
            i++;
}

void pins_end_over(struct prefix_tree *t, uint64_t now_ns)
{
    for (;;) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < t->stats.n_pins; i++)
            if (t->pins[i].until_ns < t->pins[first].until_ns)
                first = i;
        if (t->stats.n_pins == 0 || t->pins[first].until_ns > now_ns)
            return;
        end_pin(t, first, now_ns);
    }
}
