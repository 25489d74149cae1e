/* Pins: paths that are evicted last. Owned by the scheduler's thread.
 *
 *   pins  [node, until][node, until] ...      in order of creation, at most one per node
 *
 * A pin ends at a node, as a handle does, and counts on the whole path except the root. It belongs
 * to the tenant whose tokens it ends with. While unlocked, a pinned node is in its namespace's
 * second list. Careful: ending a pin counts as a
 * touch, so the path becomes the most recently used one, and may merge into one node. */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "cache/tree_node.h"

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

/* ---- shares -------------------------------------------------------------------------------- */

enum { PAGE_PARTS = 1 << 16 };

/* What a tenant has pinned. A page that several pins cover counts for each in equal parts. */
struct holding {
    uint32_t tenant, n_pins;
    uint64_t n_parts;
};

struct holdings {
    struct holding of[TREE_MAX_PINS + 1]; /* the first is the one that wants to pin */
    uint32_t n;
};

static uint32_t tenant_of(const struct prefix_tree *t, node_id node)
{
    const struct tree_node *x = &t->nodes[node];
    return cache_tenant(t->spaces[x->space].ns, t->pool->token[x->last]);
}

static struct holding *holding_of(struct holdings *all, uint32_t tenant)
{
    uint32_t i = 0;
    while (i < all->n && all->of[i].tenant != tenant)
        i++;
    if (i == all->n)
        all->of[all->n++] = (struct holding){.tenant = tenant};
    return &all->of[i];
}

/* Parts of pages that a pin covers. */
static uint64_t pin_parts(const struct prefix_tree *t, uint32_t i)
{
    uint64_t n = 0;
    for (node_id x = t->pins[i].node; !node_is_root(t, x); x = t->nodes[x].parent)
        n += (uint64_t)t->nodes[x].length * (PAGE_PARTS / t->nodes[x].pins);
    return n;
}

static void holdings_count(const struct prefix_tree *t, uint32_t tenant, struct holdings *all)
{
    all->n = 0;
    holding_of(all, tenant);
    for (uint32_t i = 0; i < t->stats.n_pins; i++) {
        struct holding *h = holding_of(all, t->pins[i].tenant);
        h->n_pins++;
        h->n_parts += pin_parts(t, i);
    }
}

/* Of the other tenants, the one that holds most. */
static struct holding *find_largest(struct holdings *all, bool by_pins)
{
    struct holding *most = &all->of[1];
    for (uint32_t i = 2; i < all->n; i++) {
        struct holding *h = &all->of[i];
        if (by_pins ? h->n_pins > most->n_pins : h->n_parts > most->n_parts)
            most = h;
    }
    return most;
}

/* The pin of a tenant whose time is over first. */
static uint32_t find_first(const struct prefix_tree *t, uint32_t tenant)
{
    uint32_t first = TREE_MAX_PINS;
    for (uint32_t i = 0; i < t->stats.n_pins; i++)
        if (t->pins[i].tenant == tenant &&
            (first == TREE_MAX_PINS || t->pins[i].until_ns < t->pins[first].until_ns))
            first = i;
    return first;
}

/* Pages that a pin would add. */
static uint32_t count_new(const struct prefix_tree *t, node_id node)
{
    uint32_t n = 0;
    for (node_id x = node; !node_is_root(t, x); x = t->nodes[x].parent)
        n += t->nodes[x].pins ? 0 : t->nodes[x].length;
    return n;
}

static bool has_room(const struct prefix_tree *t, node_id node)
{
    return count_new(t, node) <= t->max_pinned - t->stats.n_pinned &&
           t->stats.n_pins < TREE_MAX_PINS;
}

/* The path fits, or it is made to fit: while its tenant stays within its share, which is an equal
 * part for everyone who pins, pins of those who hold most end. What a tenant holds is counted anew
 * only when the largest is down to its share: that walks every pinned path. */
static bool make_room(struct prefix_tree *t, node_id node)
{
    const uint32_t tenant = tenant_of(t, node);
    struct holdings all;
    while (!has_room(t, node)) {
        const bool by_pins = t->stats.n_pins == TREE_MAX_PINS;
        holdings_count(t, tenant, &all);
        const uint64_t share = (uint64_t)t->max_pinned * PAGE_PARTS / all.n;
        const uint32_t share_pins = TREE_MAX_PINS / all.n;
        const uint64_t n_parts = all.of[0].n_parts + (uint64_t)count_new(t, node) * PAGE_PARTS;
        if (all.n == 1 || n_parts > share || all.of[0].n_pins + 1 > share_pins)
            return false;
        struct holding *most = find_largest(&all, by_pins);
        do {
            const uint32_t first = find_first(t, most->tenant);
            most->n_parts -= min_u64(most->n_parts, pin_parts(t, first));
            most->n_pins--;
            end_pin(t, first, t->now);
        } while (most->n_pins && !has_room(t, node) &&
                 (by_pins ? most->n_pins > share_pins : most->n_parts > share));
    }
    return true;
}

/* ---- beginning and ending ------------------------------------------------------------------ */

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
    if (space->n_pinned + count_new(t, node) > space->cap / 2 || !make_room(t, node))
        return false;
    const uint32_t n_new = count_new(t, node);
    for (node_id x = node; !node_is_root(t, x); x = t->nodes[x].parent)
        t->nodes[x].pins++;
    t->stats.n_pinned += n_new;
    space->n_pinned += n_new;
    t->pins[t->stats.n_pins++] = (struct tree_pin){until_ns, node, tenant_of(t, node)};
    return true;
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
