/* Kept ends: where sequences diverged. Owned by the scheduler's thread.
 *
 * An end where sequences diverged stays valuable when only one of them is left (such as a system
 * prompt of which a single conversation remains), but its side pages would then become interior
 * pages of that sequence's node. So it stays a separate node for a while: for as long as a leaf
 * would stay that was last used when the last sequence diverged. If several diverged, the time
 * starts again, with half the count each time. Demand for pages of any side ages the ends. */
#include <stdlib.h>

#include "cache/tree_node.h"

int ends_open(struct prefix_tree *t, struct error *err)
{
    t->ends.nodes = malloc(((size_t)t->max_nodes + 1) * sizeof *t->ends.nodes);
    if (!t->ends.nodes)
        return error_set(err, ERROR_MEMORY, "no memory for the ends of %u nodes", t->max_nodes);
    return 0;
}

void ends_close(struct prefix_tree *t)
{
    free(t->ends.nodes);
}

static void list_push(struct tree_ends *e, node_id node, uint64_t now)
{
    struct node_end *x = &e->nodes[node];
    x->forked = now;
    x->older = e->newest;
    x->newer = NODE_NONE;
    *(e->newest ? &e->nodes[e->newest].newer : &e->oldest) = node;
    e->newest = node;
}

static void list_remove(struct tree_ends *e, node_id node)
{
    const struct node_end *x = &e->nodes[node];
    *(x->older ? &e->nodes[x->older].newer : &e->oldest) = x->newer;
    *(x->newer ? &e->nodes[x->newer].older : &e->newest) = x->older;
}

void end_keep(struct prefix_tree *t, node_id node)
{
    if (t->ends.nodes[node].n_forks++ > 0)
        list_remove(&t->ends, node);
    list_push(&t->ends, node, t->now);
}

void prefix_tree_keep_end(struct prefix_tree *t, node_id node)
{
    if (tree_has_sides(t) && !node_is_root(t, node) && !t->nodes[node].gone &&
        !end_is_kept(t, node))
        end_keep(t, node);
}

void end_forget(struct prefix_tree *t, node_id node)
{
    if (!end_is_kept(t, node))
        return;
    list_remove(&t->ends, node);
    t->ends.nodes[node].n_forks = 0;
}

bool end_age(struct prefix_tree *t, node_id leaf)
{
    struct tree_ends *e = &t->ends;
    node_id end = e->oldest;
    if (end == NODE_NONE || node_is_invalid(t, leaf) ||
        (t->nodes[leaf].pins == 0 && t->nodes[leaf].stamp <= e->nodes[end].forked))
        return false;
    list_remove(e, end);
    e->nodes[end].n_forks /= 2;
    if (e->nodes[end].n_forks > 0)
        list_push(e, end, t->now);
    else
        node_coalesce(t, end);
    return true;
}
