/* The naive model of the cache; see cache_model.h. Nothing here is clever, on purpose, but for one
 * thing: a call that frees looks through all positions once, not once for each that goes, and keeps
 * what it found in a heap. */
#include "cache_model.h"

#include <stdlib.h>

#include "base/hash.h"
#include "test.h"

enum { GONE_TABLE = 1 << 17 };

/* What goes first has the smaller rank: the invalid, the unpinned, the pinned; then by stamp. */
struct candidate {
    uint32_t rank;
    int at;
    uint64_t stamp;
};

void naive_open(struct naive *m, uint32_t n_pages, uint32_t max_pinned)
{
    *m = (struct naive){.n_pages = n_pages, .max_pinned = max_pinned, .gone_mask = GONE_TABLE - 1};
    m->positions = calloc(n_pages + NAIVE_MAX_ROOTS, sizeof *m->positions);
    m->heap = calloc(2 * (size_t)n_pages, sizeof *m->heap);
    m->gone = calloc(GONE_TABLE, sizeof *m->gone);
    CHECK(m->positions && m->heap && m->gone);
}

void naive_close(struct naive *m)
{
    free(m->positions);
    free(m->heap);
    free(m->gone);
}

/* ---- shape ---- */

int naive_root(const struct naive *m, uint64_t ns)
{
    for (int i = (int)m->n_pages; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++)
        if (m->positions[i].used && m->positions[i].valid && m->positions[i].ns == ns)
            return i;
    return NOWHERE;
}

int naive_make_root(struct naive *m, uint64_t ns)
{
    int at = (int)m->n_pages;
    while (m->positions[at].used)
        CHECK(++at < (int)m->n_pages + NAIVE_MAX_ROOTS);
    m->positions[at] = (struct position){.used = true,
                                         .valid = true,
                                         .parent = NOWHERE,
                                         .root = at,
                                         .first_child = NOWHERE,
                                         .next_sibling = NOWHERE,
                                         .path = hash_pair(17, ns),
                                         .ns = ns,
                                         .cap = UINT32_MAX};
    return at;
}

static void root_remove_if_idle(struct naive *m, int root)
{
    struct position *r = &m->positions[root];
    if (r->locks == 0 && r->n_children == 0)
        r->used = false;
}

int naive_child(const struct naive *m, int at, uint64_t token)
{
    const struct position *p = &m->positions[at];
    for (int c = p->first_child; c != NOWHERE; c = m->positions[c].next_sibling)
        if (m->positions[c].token == token && m->positions[c].gone == p->gone)
            return c;
    return NOWHERE;
}

int naive_walk(const struct naive *m, int at, const uint64_t *tokens, uint32_t n, uint32_t *length)
{
    int whole = at;
    *length = 0;
    for (uint32_t i = 0; i < n && (at = naive_child(m, at, tokens[i])) != NOWHERE; i++)
        if (cache_token_is_whole(tokens[i])) {
            whole = at;
            *length = i + 1;
        }
    return whole;
}

enum match_kind naive_kind(const struct naive *m, int at, uint32_t length, uint32_t n)
{
    if (length == 0)
        return MATCH_MISS;
    if (m->positions[at].end || m->positions[at].n_children == 0)
        return MATCH_PREFIX;
    return length == n ? MATCH_SUPERSEQUENCE : MATCH_COMMON;
}

int naive_add(struct naive *m, int parent, uint64_t token, uint32_t page)
{
    struct position *p = &m->positions[page], *up = &m->positions[parent];
    CHECK(!p->used);
    *p = (struct position){.used = true,
                           .gone = up->gone,
                           .parent = parent,
                           .root = up->root,
                           .first_child = NOWHERE,
                           .next_sibling = up->first_child,
                           .depth = up->depth + 1,
                           .token = token,
                           .path = hash_pair(up->path, token)};
    up->first_child = (int)page;
    up->n_children++;
    m->n_used++;
    m->positions[p->root].n_pages++;
    return (int)page;
}

static bool is_invalid(const struct naive *m, int at)
{
    const struct position *p = &m->positions[at];
    return p->gone || !m->positions[p->root].valid;
}

bool naive_ends_node(const struct naive *m, int at)
{
    const struct position *p = &m->positions[at];
    if (p->n_children != 1)
        return true;
    const struct position *c = &m->positions[p->first_child];
    return c->locks != p->locks || c->pins != p->pins || c->stamp != p->stamp || c->gone != p->gone;
}

int naive_node_begin(const struct naive *m, int at)
{
    int up;
    while (!naive_is_root(m, up = m->positions[at].parent) && !naive_ends_node(m, up))
        at = up;
    return at;
}

bool naive_is_found(const struct naive *m, int at)
{
    return !is_invalid(m, at);
}

/* ---- use ---- */

void naive_lock(struct naive *m, int at, int by)
{
    for (; at != NOWHERE; at = m->positions[at].parent)
        m->positions[at].locks += (uint32_t)by;
}

static void begin_touch(struct naive *m, uint64_t now_ns)
{
    m->now = now_ns > m->now ? now_ns : m->now + 1;
}

void naive_touch(struct naive *m, int at, uint64_t now_ns)
{
    begin_touch(m, now_ns);
    for (; at != NOWHERE; at = m->positions[at].parent)
        m->positions[at].stamp = m->now;
}

void naive_hit(struct naive *m, int at)
{
    for (; at != NOWHERE; at = m->positions[at].parent)
        m->positions[at].hits++;
}

/* ---- going ---- */

static struct gone *gone_slot(const struct naive *m, uint64_t path)
{
    uint32_t at = (uint32_t)path & m->gone_mask;
    while (m->gone[at].path && m->gone[at].path != path)
        at = (at + 1) & m->gone_mask;
    return &m->gone[at];
}

const struct gone *naive_gone(const struct naive *m, uint64_t path)
{
    const struct gone *slot = gone_slot(m, path);
    return slot->path ? slot : NULL;
}

bool naive_is_full(const struct naive *m)
{
    return m->n_gone > m->gone_mask / 2;
}

/* The table never forgets; a world that would fill it is started anew. */
static void note_gone(struct naive *m, const struct position *p, enum miss_reason why,
                      uint64_t now_ns)
{
    struct gone *slot = gone_slot(m, p->path);
    m->n_gone += slot->path == 0;
    CHECK(m->n_gone < GONE_TABLE * 3 / 4);
    *slot = (struct gone){p->path, why, now_ns, p->stamp};
}

static void position_remove(struct naive *m, int at, enum miss_reason why, uint64_t now_ns)
{
    struct position *p = &m->positions[at], *up = &m->positions[p->parent];
    CHECK(p->used && p->locks == 0 && p->pins == 0 && p->n_children == 0);
    if (is_invalid(m, at))
        why = MISS_CLEARED;
    note_gone(m, p, why, now_ns);
    *(why == MISS_CLEARED   ? &m->went.cleared_pages
      : why == MISS_EXPIRED ? &m->went.expired_pages
                            : &m->went.evicted_pages) += 1;
    int *link = &up->first_child;
    while (*link != at)
        link = &m->positions[*link].next_sibling;
    *link = p->next_sibling;
    up->n_children--;
    m->n_used--;
    m->positions[p->root].n_pages--;
    int root = p->root;
    *p = (struct position){0};
    root_remove_if_idle(m, root);
}

/* Frees positions from the end of the node that ends at a leaf: `need` of them, or all, or some
 * more so that no image is cut. Moves `*leaf` up to what is left. What counts as a node that went
 * is one that went whole. */
static uint32_t node_free(struct naive *m, int *leaf, uint32_t need, enum miss_reason why,
                          uint64_t now_ns)
{
    uint32_t freed = 0;
    if (is_invalid(m, *leaf))
        why = MISS_CLEARED;
    for (;;) {
        int at = *leaf, up = *leaf = m->positions[at].parent;
        bool unit = cache_token_image_begun(m->positions[at].token) <= 1;
        bool last = naive_is_root(m, up) || naive_ends_node(m, up);
        position_remove(m, at, why, now_ns);
        freed++;
        if (last) {
            *(why == MISS_CLEARED   ? &m->went.cleared_nodes
              : why == MISS_EXPIRED ? &m->went.expired_nodes
                                    : &m->went.evicted_nodes) += 1;
            return freed;
        }
        if (unit && freed >= need)
            return freed;
    }
}

static bool is_before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->stamp < b->stamp;
}

static bool may_go(const struct naive *m, int at)
{
    const struct position *p = &m->positions[at];
    return p->used && p->locks == 0 && p->n_children == 0;
}

static struct candidate candidate_of(const struct naive *m, int at)
{
    const struct position *p = &m->positions[at];
    return (struct candidate){is_invalid(m, at) ? 0 : p->pins == 0 ? 1 : 2, at, p->stamp};
}

static void heap_push(struct naive *m, int at)
{
    struct candidate c = candidate_of(m, at);
    uint32_t i = m->n_heap++;
    for (; i > 0 && is_before(&c, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = c;
}

static struct candidate heap_pop(struct naive *m)
{
    struct candidate top = m->heap[0], c = m->heap[--m->n_heap];
    uint32_t i = 0;
    for (uint32_t k; (k = 2 * i + 1) < m->n_heap; i = k) {
        if (k + 1 < m->n_heap && is_before(&m->heap[k + 1], &m->heap[k]))
            k++;
        if (!is_before(&m->heap[k], &c))
            break;
        m->heap[i] = m->heap[k];
    }
    m->heap[i] = c;
    return top;
}

/* Every position that could go now, of one namespace or (NOWHERE) of all. */
static void collect(struct naive *m, int root)
{
    m->n_heap = 0;
    for (int i = 0; i < (int)m->n_pages; i++)
        if (may_go(m, i) && (root == NOWHERE || m->positions[i].root == root))
            heap_push(m, i);
}

/* What may go and what stops it, for one call. */
struct sweep {
    int root;           /* of one namespace, or (NOWHERE) of all */
    uint32_t max_rank;  /* what has a greater one stays */
    uint64_t before_ns; /* what is valid and was used then or later stays */
    uint32_t need, max_nodes;
    enum miss_reason why;
    uint64_t now_ns;
};

static uint32_t sweep(struct naive *m, const struct sweep *s)
{
    struct pressure_event *e = &m->last;
    *e = (struct pressure_event){.at_ns = s->now_ns, .wanted = s->need};
    collect(m, s->root);
    while (e->n_nodes < s->max_nodes && e->freed < s->need && m->n_heap > 0) {
        struct candidate c = heap_pop(m);
        if (c.rank > s->max_rank || (c.rank > 0 && c.stamp >= s->before_ns))
            break;
        const struct position p = m->positions[c.at];
        uint32_t n = node_free(m, &c.at, s->need - e->freed, s->why, s->now_ns);
        if (e->n_nodes < PRESSURE_NODES) {
            e->nodes[e->n_nodes].digest = p.path;
            e->nodes[e->n_nodes].depth = p.depth;
            e->nodes[e->n_nodes].freed = n;
            e->nodes[e->n_nodes].used_ns = p.stamp;
        }
        e->n_nodes++;
        e->freed += n;
        if (!naive_is_root(m, c.at) && may_go(m, c.at))
            heap_push(m, c.at);
    }
    return e->freed;
}

uint32_t naive_evict(struct naive *m, uint32_t n_pages, uint32_t max_nodes, uint64_t now_ns)
{
    return sweep(m,
                 &(struct sweep){NOWHERE, 2, UINT64_MAX, n_pages, max_nodes, MISS_EVICTED, now_ns});
}

uint32_t naive_expire(struct naive *m, uint64_t before_ns, uint32_t max_nodes, uint64_t now_ns)
{
    return sweep(
        m, &(struct sweep){NOWHERE, 1, before_ns, UINT32_MAX, max_nodes, MISS_EXPIRED, now_ns});
}

uint32_t naive_clear(struct naive *m, const uint64_t *ns, uint32_t max_nodes, uint64_t now_ns)
{
    int root = ns ? naive_root(m, *ns) : NOWHERE;
    if (ns && root == NOWHERE)
        return 0;
    return sweep(m,
                 &(struct sweep){root, 2, UINT64_MAX, UINT32_MAX, max_nodes, MISS_CLEARED, now_ns});
}

void naive_keep_cap(struct naive *m, int root, uint64_t now_ns)
{
    const struct position *r = &m->positions[root];
    if (r->used && r->n_pages > r->cap)
        sweep(m, &(struct sweep){root, 2, UINT64_MAX, r->n_pages - r->cap, UINT32_MAX, MISS_EVICTED,
                                 now_ns});
}

void naive_unlock(struct naive *m, int at, uint64_t now_ns)
{
    int root = m->positions[at].root;
    if (!naive_is_root(m, at) && m->positions[at].n_children == 0)
        m->positions[at].end = true;
    begin_touch(m, now_ns);
    while (at != NOWHERE) {
        struct position *p = &m->positions[at];
        int up = p->parent;
        bool ends = naive_is_root(m, at) || naive_ends_node(m, at);
        CHECK(p->locks > 0);
        p->locks--;
        p->stamp = m->now;
        at = up;
        (void)ends;
    }
    root_remove_if_idle(m, root);
    naive_keep_cap(m, root, now_ns);
}

/* ---- counting ---- */

void naive_count(const struct naive *m, struct tree_stats *out)
{
    *out = m->went;
    for (int i = 0; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++) {
        const struct position *p = &m->positions[i];
        if (!p->used)
            continue;
        if (naive_is_root(m, i)) {
            out->n_nodes++;
            out->n_namespaces++;
            continue;
        }
        out->n_nodes += naive_ends_node(m, i);
        out->n_evictable += p->locks == 0;
        out->n_pinned += p->pins > 0;
        out->n_invalid += is_invalid(m, i);
        if (p->end) {
            uint32_t digits = 0;
            while (digits < TREE_DEPTH_BUCKETS - 1 && p->depth >> digits)
                digits++;
            out->entries_by_depth[digits]++;
            out->n_entries++;
        }
    }
    out->n_pins = m->n_pins;
}
