/* The order of eviction: two recency lists for each namespace, and two heaps of namespaces that
 * tell which list has the oldest head. Owned by the scheduler's thread.
 *
 *   heap of unpinned lists        space 3          the smallest stamp on top; invalid spaces
 *                                ┌───┴───┐         before all others
 *                             space 1  space 7
 *   space 1:  oldest C ─► D ─► A newest            stamps never fall along a list, so its head
 *                                                  is the oldest of the namespace
 *
 * Careful: the stamp of a list's head decides the list's place in its heap, so never change the
 * stamp of a listed node: remove it, stamp it, and push it again. */
#include <assert.h>

#include "cache/tree_node.h"

static struct recency_list *list_of(struct prefix_tree *t, node_id node)
{
    return &t->spaces[t->nodes[node].space].lists[t->nodes[node].pins > 0];
}

static uint64_t heap_key(const struct prefix_tree *t, int which, uint32_t space)
{
    const struct tree_space *s = &t->spaces[space];
    return (uint64_t)s->is_valid << 63 | t->nodes[s->lists[which].oldest].stamp;
}

static void heap_put(struct prefix_tree *t, int which, uint32_t at, uint32_t space)
{
    t->heaps[which].items[at] = space;
    t->spaces[space].lists[which].at = at;
}

/* Moves the space at `at` up or down to its place. */
static void heap_settle(struct prefix_tree *t, int which, uint32_t at)
{
    const struct space_heap *heap = &t->heaps[which];
    uint32_t space = heap->items[at];
    uint64_t key = heap_key(t, which, space);
    while (at > 0 && heap_key(t, which, heap->items[(at - 1) / 2]) > key) {
        heap_put(t, which, at, heap->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint32_t below; (below = 2 * at + 1) < heap->count; at = below) {
        if (below + 1 < heap->count &&
            heap_key(t, which, heap->items[below + 1]) < heap_key(t, which, heap->items[below]))
            below++;
        if (heap_key(t, which, heap->items[below]) >= key)
            break;
        heap_put(t, which, at, heap->items[below]);
    }
    heap_put(t, which, at, space);
}

static void heap_remove(struct prefix_tree *t, int which, uint32_t at)
{
    struct space_heap *heap = &t->heaps[which];
    uint32_t last = heap->items[--heap->count];
    if (at == heap->count)
        return;
    heap_put(t, which, at, last);
    heap_settle(t, which, at);
}

node_id space_oldest(const struct prefix_tree *t, uint32_t space)
{
    const struct recency_list *lists = t->spaces[space].lists;
    return lists[UNPINNED].oldest ? lists[UNPINNED].oldest : lists[PINNED].oldest;
}

node_id tree_oldest(const struct prefix_tree *t)
{
    int which = t->heaps[UNPINNED].count > 0 ? UNPINNED : PINNED;
    const struct space_heap *heap = &t->heaps[which];
    return heap->count ? t->spaces[heap->items[0]].lists[which].oldest : NODE_NONE;
}

void recency_push(struct prefix_tree *t, node_id node)
{
    struct recency_list *list = list_of(t, node);
    struct tree_node *x = &t->nodes[node];
    x->older = list->newest;
    x->newer = NODE_NONE;
    t->stats.n_evictable += x->length;
    list->newest = node;
    if (x->older != NODE_NONE) {
        t->nodes[x->older].newer = node;
        return;
    }
    int which = x->pins > 0;
    list->oldest = node;
    uint32_t at = t->heaps[which].count++;
    heap_put(t, which, at, x->space);
    heap_settle(t, which, at);
}

void recency_follow(struct prefix_tree *t, node_id node, node_id older)
{
    struct recency_list *list = list_of(t, node);
    node_id newer = t->nodes[older].newer;
    t->nodes[node].older = older;
    t->nodes[node].newer = newer;
    t->nodes[older].newer = node;
    if (newer != NODE_NONE)
        t->nodes[newer].older = node;
    else
        list->newest = node;
}

void recency_unfollow(struct prefix_tree *t, node_id node)
{
    struct recency_list *list = list_of(t, node);
    const struct tree_node *x = &t->nodes[node];
    assert(x->older != NODE_NONE);
    t->nodes[x->older].newer = x->newer;
    if (x->newer != NODE_NONE)
        t->nodes[x->newer].older = x->older;
    else
        list->newest = x->older;
}

void recency_remove(struct prefix_tree *t, node_id node)
{
    struct recency_list *list = list_of(t, node);
    const struct tree_node *x = &t->nodes[node];
    int which = x->pins > 0;
    t->stats.n_evictable -= x->length;
    if (x->older != NODE_NONE) {
        recency_unfollow(t, node);
        return;
    }
    list->oldest = x->newer;
    if (x->newer != NODE_NONE) {
        t->nodes[x->newer].older = NODE_NONE;
        heap_settle(t, which, list->at);
    } else {
        list->newest = NODE_NONE;
        heap_remove(t, which, list->at);
    }
}

void recency_invalidate(struct prefix_tree *t, uint32_t space)
{
    for (int which = 0; which < RECENCY_LISTS; which++)
        if (t->spaces[space].lists[which].oldest != NODE_NONE)
            heap_settle(t, which, t->spaces[space].lists[which].at);
}
