/* Looking into the tree and into the model: lists, outlines, explanations; see cache_world.h. */
#include "cache_world_parts.h"

#include "cache/tree_node.h"

enum { NEVER_FORGOTTEN = 100 };

/* An entry describes the node that ends at a position correctly. */
static void check_entry(struct world *w, const struct tree_entry *e, int at)
{
    const struct naive *m = &w->naive;
    const struct position *p = &m->positions[at];
    bool root = naive_is_root(m, at);
    uint32_t length = 0, n_images = 0, n_children = 0, n_side[TREE_MAX_SIDES] = {0};
    for (int c = p->first_child; c != NOWHERE; c = m->positions[c].next_sibling)
        n_children += !m->positions[c].cut;
    if (!root) {
        uint32_t depth = path_of(w, at),
                 from = (uint32_t)m->positions[naive_node_begin(m, at)].depth;
        length = depth - from + 1;
        for (uint32_t i = from - 1; i < depth; i++) {
            n_images += cache_token_image_begun(m->positions[w->path[i]].token) == 1;
            for (uint32_t k = 0; k < m->n_sides; k++)
                n_side[k] += m->positions[w->path[i]].side[k] != PAGE_NONE;
        }
        CHECK_INT(e->n_tokens, length < ENTRY_PREVIEW ? length : ENTRY_PREVIEW);
        for (uint32_t i = 0; i < e->n_tokens; i++)
            CHECK(e->tokens[i] == m->positions[w->path[from - 1 + i]].token);
    }
    CHECK_INT(e->depth, p->depth);
    CHECK_INT(e->length, length);
    CHECK_INT(e->n_images, n_images);
    for (uint32_t k = 0; k < TREE_MAX_SIDES; k++)
        CHECK_INT(e->n_side[k], n_side[k]);
    CHECK_INT(e->n_children, n_children);
    CHECK_INT(e->ns, m->positions[p->root].ns);
    CHECK_INT(e->locks, p->locks);
    CHECK_INT(e->pins, p->pins);
    CHECK_INT(e->used_ns, p->stamp);
    /* A node takes its hits along when it grows or is split, so they are a bound, not a count. */
    CHECK(e->hits <= m->positions[root ? at : (int)w->path[0]].hits);
    CHECK(e->created_ns <= e->used_ns);
}

/* The position at which a node ends, according to its pages. */
static int end_of(struct world *w, const struct tree_entry *e)
{
    struct page_run runs[MAX_QUERY];
    uint32_t n = prefix_tree_pages(w->tree, e->node, runs, MAX_QUERY);
    if (n == 0)
        return naive_root(&w->naive, e->ns);
    CHECK(n <= MAX_QUERY);
    return (int)(runs[n - 1].first + runs[n - 1].count - 1);
}

/* Every end of a stored sequence at which a node ends is listed, once, in pages of any size. */
void check_list(struct world *w)
{
    const struct naive *m = &w->naive;
    struct tree_entry entries[8];
    uint32_t want = 0, got = 0, calls = 0;
    node_id cursor = 0, last = 0;
    for (int i = 0; i < (int)m->n_pages; i++)
        want += m->positions[i].used && naive_is_found(m, i) && naive_ends_node(m, i) &&
                (m->positions[i].end || m->positions[i].n_children == 0);
    do {
        uint32_t max = 1 + below(w, 8), visits = 1 + below(w, 30);
        uint32_t n = prefix_tree_list(w->tree, 0, &cursor, entries, max, visits);
        CHECK(n <= max && n <= visits && ++calls <= w->config->max_nodes + 1);
        for (uint32_t i = 0; i < n; i++) {
            int at = end_of(w, &entries[i]);
            CHECK(entries[i].node > last);
            last = entries[i].node;
            CHECK(!naive_is_root(m, at) && naive_is_found(m, at) && naive_ends_node(m, at));
            CHECK(m->positions[at].end || m->positions[at].n_children == 0);
            check_entry(w, &entries[i], at);
        }
        got += n;
    } while (cursor);
    CHECK_INT(got, want);
}

/* The outline has every node that can be found down to its level, level by level, and the most
 * recently used sibling first. */
void check_outline(struct world *w)
{
    enum { MAX = 64 };
    const struct naive *m = &w->naive;
    static struct tree_entry entries[MAX];
    uint32_t levels[MAX], max_level = below(w, 5), max = 1 + below(w, MAX), want = 0;
    uint32_t n = prefix_tree_outline(w->tree, max_level, entries, max);
    CHECK(n <= max);
    for (uint32_t i = 0; i < n; i++) {
        const struct tree_entry *e = &entries[i];
        int at = end_of(w, e);
        CHECK(at != NOWHERE && naive_is_found(m, at));
        CHECK(naive_is_root(m, at) || naive_ends_node(m, at));
        check_entry(w, e, at);
        levels[i] = 0;
        for (uint32_t k = 0; k < i; k++) {
            CHECK(entries[k].node != e->node);
            if (entries[k].node == e->parent)
                levels[i] = levels[k] + 1;
        }
        CHECK(levels[i] > 0 || naive_is_root(m, at));
        CHECK(levels[i] <= max_level && (i == 0 || levels[i] >= levels[i - 1]));
        if (i > 0 && entries[i - 1].parent == e->parent)
            CHECK(entries[i - 1].used_ns > e->used_ns);
    }
    if (n == max)
        return;
    for (int i = 0; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++) {
        if (!m->positions[i].used || !naive_is_found(m, i))
            continue;
        if (!naive_is_root(m, i) && !naive_ends_node(m, i))
            continue;
        uint32_t level = 0;
        for (int at = i; !naive_is_root(m, at); level++)
            at = m->positions[naive_node_begin(m, at)].parent;
        want += level <= max_level;
    }
    CHECK_INT(n, want);
}

/* Draws from numbers of its own, so that the world goes on as without it. */
void check_evictable(struct world *w)
{
    const uint64_t random = w->random;
    w->random = hash_mix(random);
    const struct query *q = make_query(w, false);
    const struct tree_match m = prefix_tree_match(w->tree, q->ns, q->tokens, q->n);
    node_id nodes[MAX_HANDLES];
    int ats[MAX_HANDLES], root = naive_root(&w->naive, q->ns), kept = root;
    uint32_t n = 0, length;
    bool all = below(w, 2);
    for (uint32_t i = 0; i < w->n_handles; i++) {
        if (!all && below(w, 2))
            continue;
        nodes[n] = w->handles[i].node;
        ats[n++] = w->handles[i].at;
    }
    if (root != NOWHERE)
        kept = naive_find(&w->naive, root, q->tokens, q->n, &length);
    CHECK_INT(prefix_tree_evictable_without(w->tree, nodes, n, &m),
              naive_evictable_without(&w->naive, ats, n, kept));
    for (uint32_t i = 0; i < w->n_handles; i++)
        CHECK_INT(w->tree->nodes[w->handles[i].node].locks,
                  w->naive.positions[w->handles[i].at].locks);
    query_end(w);
    w->random = random;
}

/* ---- explanations ---- */

/* How the most recently used path continues after a position. */
static uint32_t way_on(const struct naive *m, int at, uint64_t *tokens)
{
    uint32_t n = 0;
    while (n < MISS_MAX_TOKENS) {
        int newest = NOWHERE;
        for (int c = m->positions[at].first_child; c != NOWHERE; c = m->positions[c].next_sibling)
            if (!m->positions[c].cut &&
                (newest == NOWHERE || m->positions[c].stamp > m->positions[newest].stamp))
                newest = c;
        if (newest == NOWHERE)
            break;
        at = newest;
        tokens[n++] = m->positions[at].token;
    }
    return n;
}

/* The most that any namespace has of a query. */
static uint32_t longest_anywhere(const struct naive *m, const struct query *q, uint32_t n)
{
    uint32_t longest = 0, length;
    for (int i = (int)m->n_pages; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++)
        if (m->positions[i].used && m->positions[i].valid) {
            naive_find(m, i, q->tokens, n, &length);
            longest = length > longest ? length : longest;
        }
    return longest;
}

/* Whether an invalid namespace with this number has more of the query, and became invalid at that
 * time. */
static bool has_invalid(const struct naive *m, const struct query *q, uint32_t n, uint32_t than,
                        const uint64_t *invalid_ns)
{
    uint32_t length;
    for (int i = (int)m->n_pages; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++) {
        const struct position *r = &m->positions[i];
        if (!r->used || r->valid || r->ns != q->ns || (invalid_ns && r->invalid_ns != *invalid_ns))
            continue;
        naive_find(m, i, q->tokens, n, &length);
        if (length > than)
            return true;
    }
    return false;
}

/* What the model knows about removals in the query after the match: the first that the tree must
 * have recorded, and whether any of them was removed as the tree says. */
struct losses {
    const struct gone *sure;
    bool as_told;
};

static struct losses find_losses(const struct world *w, const struct query *q, uint32_t n,
                                 uint64_t path, const struct miss *miss)
{
    bool is_tight = w->config->max_nodes < w->config->n_pages;
    struct losses found = {0};
    for (uint32_t i = miss->position; i < n; i++) {
        path = hash_pair(path, q->tokens[i]);
        const struct gone *gone = naive_gone(&w->naive, path);
        if (!gone)
            continue;
        found.as_told |= !gone->sure; /* may be removed twice, but recorded the first time */
        /* Used later than the model thinks: where a pin was broken to get a node, a touch. */
        found.as_told |= gone->why == miss->reason && gone->gone_ns == miss->gone_ns &&
                         (gone->why != MISS_WINDOW || gone->side == miss->side) &&
                         (is_tight ? gone->used_ns <= miss->last_used_ns
                                   : gone->used_ns == miss->last_used_ns);
        if (!found.sure && gone->sure)
            found.sure = gone;
    }
    return found;
}

/* It was removed, as the tree says, so it must have been there. The tree's memory is small and may
 * have lost what the model knows, but not while little has been removed. */
static void check_gone(struct world *w, const struct query *q, uint32_t n, uint64_t path,
                       const struct miss *miss)
{
    struct losses losses = find_losses(w, q, n, path, miss);
    if (miss->reason == MISS_EVICTED || miss->reason == MISS_EXPIRED ||
        miss->reason == MISS_CLEARED || miss->reason == MISS_WINDOW) {
        w->totals.n_explained++;
        CHECK(miss->gone_length > 0 && miss->gone_length <= n - miss->position);
        CHECK(losses.as_told || (miss->reason == MISS_CLEARED &&
                                 has_invalid(&w->naive, q, n, miss->position, &miss->gone_ns)));
        return;
    }
    CHECK(!has_invalid(&w->naive, q, n, miss->position, NULL));
    w->totals.n_forgotten += losses.sure != NULL;
    CHECK(!losses.sure || w->naive.n_gone > NEVER_FORGOTTEN);
}

/* The side that lacks most of a walked path, the first of those. */
static uint32_t most_lacking(const struct naive *m, int at)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < m->n_sides; i++)
        if (naive_lacks(m, i, at) > naive_lacks(m, most, at))
            most = i;
    return most;
}

void do_explain(struct world *w)
{
    struct query *q = make_query(w, false);
    const struct naive *m = &w->naive;
    struct tree_match match = match_early(w, q);
    bool others = below(w, 2);
    uint32_t n = q->n, length = 0, walked = 0, n_tokens = 0, side = 0;
    uint64_t path = hash_pair(17, q->ns), tokens[MISS_MAX_TOKENS];
    int root = naive_root(m, q->ns);
    struct miss miss;
    prefix_tree_explain(w->tree, q->ns, q->tokens, q->n, &match, others, &miss);
    while (n > 0 && !cache_token_is_whole(q->tokens[n - 1]))
        n--;
    if (root != NOWHERE) {
        int at = naive_walk(m, root, q->tokens, n, &walked);
        length = walked;
        side = most_lacking(m, at);
        at = naive_resume(m, at, &length);
        path = m->positions[at].path;
        n_tokens = way_on(m, at, tokens);
    }
    w->totals.misses[miss.reason]++;
    CHECK_INT(miss.position, length);
    CHECK((miss.reason == MISS_NONE) == (length == n));
    if (length < walked) {
        CHECK_INT(miss.reason, MISS_WINDOW);
        CHECK_INT(miss.side, side);
        w->totals.lacking[side]++;
        CHECK_INT(miss.gone_length, walked - length);
        CHECK_INT(miss.gone_ns, 0);
    } else if (length < n) {
        uint32_t longest = others ? longest_anywhere(m, q, n) : length;
        check_gone(w, q, n, path, &miss);
        if (miss.reason == MISS_NAMESPACE) {
            uint32_t there = 0;
            CHECK(others && miss.ns != q->ns && naive_root(m, miss.ns) != NOWHERE);
            naive_find(m, naive_root(m, miss.ns), q->tokens, n, &there);
            CHECK(there == longest && there > length && there == miss.ns_length);
        }
        if (miss.reason == MISS_DIVERGED) {
            CHECK(n_tokens > 0 && n_tokens == miss.n_tokens);
            CHECK(memcmp(tokens, miss.tokens, n_tokens * sizeof *tokens) == 0);
        }
        CHECK(miss.reason != MISS_NEVER_SEEN || n_tokens == 0);
        CHECK((miss.reason != MISS_NEVER_SEEN && miss.reason != MISS_DIVERGED) ||
              longest <= length);
    }
    query_end(w);
}
