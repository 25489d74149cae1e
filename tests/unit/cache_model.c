/* The naive model of the cache; see cache_model.h. Nothing here is clever, on purpose, with one
 * exception: a call that frees scans all positions once, not once for each position it frees, and
 * keeps the result in a heap. */
#include "cache_model.h"

#include <stdlib.h>

#include "base/hash.h"
#include "test.h"

enum { GONE_TABLE = 1 << 17, GONE_TABLE_LARGE = 1 << 19, LARGE_POOL = 10000 };

/* What is evicted first has the smaller rank: invalid, unpinned, pinned; then by stamp. */
struct candidate {
    uint32_t rank;
    int at;
    uint64_t stamp;
};

void naive_open(struct naive *m, uint32_t n_pages, uint32_t max_pinned, uint32_t n_sides,
                const uint32_t *befores)
{
    uint32_t table = n_pages < LARGE_POOL ? GONE_TABLE : GONE_TABLE_LARGE;
    *m = (struct naive){
        .n_pages = n_pages, .max_pinned = max_pinned, .gone_mask = table - 1, .n_sides = n_sides};
    for (uint32_t i = 0; i < n_sides; i++)
        m->sides[i].before = befores[i];
    m->positions = calloc(n_pages + NAIVE_MAX_ROOTS, sizeof *m->positions);
    m->heap = calloc(2 * (size_t)n_pages, sizeof *m->heap);
    m->order = calloc(n_pages, sizeof *m->order);
    m->gone = calloc(table, sizeof *m->gone);
    CHECK(m->positions && m->heap && m->order && m->gone);
}

void naive_close(struct naive *m)
{
    free(m->positions);
    free(m->heap);
    free(m->order);
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

static int child_of(const struct naive *m, int at, uint64_t token, bool met)
{
    int cut = NOWHERE;
    for (int c = m->positions[at].first_child; c != NOWHERE; c = m->positions[c].next_sibling)
        if (m->positions[c].token == token) {
            if (!m->positions[c].cut)
                return c;
            cut = c;
        }
    return met && m->positions[at].gone ? cut : NOWHERE;
}

int naive_walk_gone(const struct naive *m, int at, const uint64_t *tokens, uint32_t n, bool met,
                    uint32_t *length)
{
    int whole = at;
    *length = 0;
    for (uint32_t i = 0; i < n && (at = child_of(m, at, tokens[i], met)) != NOWHERE; i++)
        if (cache_token_is_whole(tokens[i])) {
            whole = at;
            *length = i + 1;
        }
    return whole;
}

int naive_walk(const struct naive *m, int at, const uint64_t *tokens, uint32_t n, uint32_t *length)
{
    return naive_walk_gone(m, at, tokens, n, false, length);
}

/* Whether the positions up to this one that a side needs have pages. */
static bool can_go_on_in(const struct naive *m, uint32_t side, int at)
{
    for (uint32_t i = 0; i < m->sides[side].before && !naive_is_root(m, at); i++) {
        if (m->positions[at].side[side] == PAGE_NONE)
            return false;
        at = m->positions[at].parent;
    }
    return true;
}

static bool can_go_on(const struct naive *m, int at)
{
    for (uint32_t i = 0; i < m->n_sides; i++)
        if (!can_go_on_in(m, i, at))
            return false;
    return true;
}

static bool is_cuttable(const struct naive *m, int at)
{
    return naive_is_root(m, at) || cache_token_is_whole(m->positions[at].token);
}

int naive_resume(const struct naive *m, int at, uint32_t *length)
{
    for (; !can_go_on(m, at) || !is_cuttable(m, at); --*length)
        at = m->positions[at].parent;
    return at;
}

uint32_t naive_lacks(const struct naive *m, uint32_t side, int at)
{
    uint32_t n = 0;
    for (; !can_go_on_in(m, side, at) || !is_cuttable(m, at); n++)
        at = m->positions[at].parent;
    return n;
}

int naive_find(const struct naive *m, int root, const uint64_t *tokens, uint32_t n,
               uint32_t *length)
{
    return naive_resume(m, naive_walk(m, root, tokens, n, length), length);
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
                           .side = {PAGE_NONE, PAGE_NONE},
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
    if (p->n_children != 1 || p->n_forks > 0)
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

static void keep_end(struct naive *m, int at, uint32_t n_forks)
{
    struct position *p = &m->positions[at];
    p->n_forks = n_forks;
    p->forked = m->now;
    p->fork_order = ++m->n_kept;
}

void naive_fork(struct naive *m, int at)
{
    const struct position *p = &m->positions[at];
    if (m->n_sides && !naive_is_root(m, at) && !p->gone && (p->n_children > 0 || p->n_forks > 0))
        keep_end(m, at, p->n_forks + 1);
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

/* The table never forgets; a world that would fill it is restarted. */
static void note_gone(struct naive *m, int at, const struct gone *gone)
{
    struct gone *slot = gone_slot(m, m->positions[at].path);
    m->n_gone += slot->path == 0;
    CHECK(m->n_gone < m->gone_mask / 4 * 3);
    *slot = *gone;
    slot->path = m->positions[at].path;
}

static void count_page(struct naive *m, int at, enum miss_reason why)
{
    for (uint32_t i = 0; i < m->n_sides; i++) {
        struct side_stats *went = &m->went.sides[i];
        *(why == MISS_CLEARED   ? &went->cleared
          : why == MISS_EXPIRED ? &went->expired
                                : &went->evicted_tails) += m->positions[at].side[i] != PAGE_NONE;
    }
    *(why == MISS_CLEARED   ? &m->went.cleared_pages
      : why == MISS_EXPIRED ? &m->went.expired_pages
                            : &m->went.evicted_pages) += 1;
}

static void count_node(struct naive *m, enum miss_reason why)
{
    *(why == MISS_CLEARED   ? &m->went.cleared_nodes
      : why == MISS_EXPIRED ? &m->went.expired_nodes
                            : &m->went.evicted_nodes) += 1;
}

static void position_remove(struct naive *m, int at)
{
    struct position *p = &m->positions[at], *up = &m->positions[p->parent];
    CHECK(p->used && p->locks == 0 && p->pins == 0 && p->n_children == 0);
    int *link = &up->first_child, root = p->root;
    while (*link != at)
        link = &m->positions[*link].next_sibling;
    *link = p->next_sibling;
    up->n_children--;
    m->n_used--;
    for (uint32_t i = 0; i < m->n_sides; i++)
        m->sides[i].n -= p->side[i] != PAGE_NONE;
    m->positions[root].n_pages--;
    *p = (struct position){0};
    root_remove_if_idle(m, root);
}

/* ---- pins ---- */

static void pin_end(struct naive *m, uint32_t i, uint64_t now_ns)
{
    int at = m->pins[i].at;
    m->n_pins--;
    for (; i < m->n_pins; i++)
        m->pins[i] = m->pins[i + 1];
    for (int p = at; !naive_is_root(m, p); p = m->positions[p].parent)
        m->positions[p].pins--;
    naive_touch(m, at, now_ns); /* the end of a pin is a use */
}

static uint32_t tenant_at(const struct naive *m, int at)
{
    return cache_tenant(m->positions[m->positions[at].root].ns, m->positions[at].token);
}

/* What a pin covers, in parts of a page: the pins that cover one share it. */
static uint64_t pin_parts(const struct naive *m, uint32_t i)
{
    uint64_t n = 0;
    for (int p = m->pins[i].at; !naive_is_root(m, p); p = m->positions[p].parent)
        n += 65536 / m->positions[p].pins;
    return n;
}

static uint64_t tenant_parts(const struct naive *m, uint32_t tenant)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < m->n_pins; i++)
        if (tenant_at(m, m->pins[i].at) == tenant)
            n += pin_parts(m, i);
    return n;
}

static bool has_earlier_pin(const struct naive *m, uint32_t i)
{
    bool has = false;
    for (uint32_t k = 0; k < i; k++)
        has |= tenant_at(m, m->pins[k].at) == tenant_at(m, m->pins[i].at);
    return has;
}

/* The tenant that holds most, apart from one. */
static uint32_t find_largest(const struct naive *m, uint32_t tenant)
{
    uint64_t most = 0;
    int64_t from = -1;
    for (uint32_t i = 0; i < m->n_pins; i++) {
        uint32_t other = tenant_at(m, m->pins[i].at);
        if (other != tenant && !has_earlier_pin(m, i) && tenant_parts(m, other) > most) {
            most = tenant_parts(m, other);
            from = other;
        }
    }
    CHECK(from >= 0);
    return (uint32_t)from;
}

/* A tenant's pin that is over first; -1: it has none. */
static int64_t find_first(const struct naive *m, uint32_t tenant)
{
    int64_t first = -1;
    for (uint32_t i = 0; i < m->n_pins; i++)
        if (tenant_at(m, m->pins[i].at) == tenant &&
            (first < 0 || m->pins[i].until_ns < m->pins[first].until_ns))
            first = i;
    return first;
}

static bool pin_has_room(const struct naive *m, int at)
{
    uint32_t n = 0;
    for (int i = 0; i < (int)m->n_pages; i++)
        n += m->positions[i].pins > 0;
    for (int p = at; !naive_is_root(m, p); p = m->positions[p].parent)
        n += m->positions[p].pins == 0;
    return n <= m->max_pinned;
}

/* Makes room for the path as far as its tenant's share allows: takes from the one that holds most
 * until that is down to its share, by what it held when that began; then from the next. */
static bool pin_fits(struct naive *m, int at)
{
    const uint32_t tenant = tenant_at(m, at);
    while (!pin_has_room(m, at)) {
        uint32_t n_new = 0, n_tenants = 1;
        for (int p = at; !naive_is_root(m, p); p = m->positions[p].parent)
            n_new += m->positions[p].pins == 0;
        for (uint32_t i = 0; i < m->n_pins; i++)
            n_tenants += !has_earlier_pin(m, i) && tenant_at(m, m->pins[i].at) != tenant;
        const uint64_t share = 65536 * (uint64_t)m->max_pinned / n_tenants;
        if (n_tenants == 1 || tenant_parts(m, tenant) + 65536 * (uint64_t)n_new > share)
            return false;
        const uint32_t other = find_largest(m, tenant);
        uint64_t held = tenant_parts(m, other);
        for (int64_t first; (first = find_first(m, other)) >= 0;) {
            uint64_t n = pin_parts(m, (uint32_t)first);
            held -= n < held ? n : held;
            m->n_taken++;
            pin_end(m, (uint32_t)first, m->now);
            if (held <= share || pin_has_room(m, at))
                break;
        }
    }
    return true;
}

bool naive_pin(struct naive *m, int at, uint64_t until_ns)
{
    uint32_t n_pinned_there = 0;
    int root = m->positions[at].root;
    if (is_invalid(m, at))
        return false;
    if (naive_is_root(m, at))
        return true;
    for (uint32_t i = 0; i < m->n_pins; i++)
        if (m->pins[i].at == at) {
            if (m->pins[i].until_ns < until_ns)
                m->pins[i].until_ns = until_ns;
            return true;
        }
    for (int i = 0; i < (int)m->n_pages; i++)
        n_pinned_there += m->positions[i].pins > 0 && m->positions[i].root == root;
    for (int p = at; !naive_is_root(m, p); p = m->positions[p].parent)
        n_pinned_there += m->positions[p].pins == 0;
    if (n_pinned_there > m->positions[root].cap / 2 || !pin_fits(m, at))
        return false;
    CHECK(m->n_pins < NAIVE_MAX_PINS);
    m->pins[m->n_pins++] = (struct naive_pin){at, until_ns};
    for (int p = at; !naive_is_root(m, p); p = m->positions[p].parent)
        m->positions[p].pins++;
    return true;
}

static void pin_end_at(struct naive *m, int at, uint64_t now_ns)
{
    uint32_t i = 0;
    while (m->pins[i].at != at)
        CHECK(++i < m->n_pins);
    pin_end(m, i, now_ns);
    CHECK_INT(m->positions[at].pins, 0);
}

static void pins_end_over(struct naive *m, uint64_t now_ns)
{
    while (m->n_pins > 0) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < m->n_pins; i++)
            if (m->pins[i].until_ns < m->pins[first].until_ns)
                first = i;
        if (m->pins[first].until_ns > now_ns)
            return;
        pin_end(m, first, now_ns);
    }
}

/* Ends those of one namespace. */
static void pins_end_in(struct naive *m, int root)
{
    for (uint32_t i = 0; i < m->n_pins;)
        if (m->positions[m->pins[i].at].root == root)
            pin_end(m, i, m->now);
        else
            i++;
}

/* ---- what goes ---- */

/* The interior positions in a side of the node that ends at `at`, first to last, in m->order;
 * returns how many. */
static uint32_t list_interior(struct naive *m, uint32_t side, int at)
{
    uint32_t size = m->sides[side].before + 1, tail = size + size / 8, n = 0;
    uint32_t end = m->positions[at].depth;
    int begin = naive_node_begin(m, at);
    for (;; at = m->positions[at].parent) {
        if (m->positions[at].depth + tail <= end && m->positions[at].side[side] != PAGE_NONE)
            m->order[n++] = at;
        if (at == begin)
            break;
    }
    for (uint32_t i = 0; i < n / 2; i++) {
        int swap = m->order[i];
        m->order[i] = m->order[n - 1 - i];
        m->order[n - 1 - i] = swap;
    }
    return n;
}

static void side_drop(struct naive *m, uint32_t side, int at)
{
    CHECK(m->positions[at].side[side] != PAGE_NONE);
    m->positions[at].side[side] = PAGE_NONE;
    m->sides[side].n--;
}

/* Whether the node that ends at `at` comes before the last one that lost interior pages: it was
 * used before that, or by the same operation and begins deeper. */
static bool is_passed(const struct naive *m, const struct naive_side *s, int at)
{
    uint64_t stamp = m->positions[at].stamp;
    uint32_t begin = m->positions[naive_node_begin(m, at)].depth;
    return stamp < s->passed_stamp || (stamp == s->passed_stamp && begin > s->passed_depth);
}

/* If the node that ended at `at` has merged with what follows, and interior eviction has already
 * passed the merged node, frees the pages that became interior. */
static void settle(struct naive *m, int at)
{
    if (naive_is_root(m, at) || naive_ends_node(m, at))
        return;
    while (!naive_ends_node(m, at))
        at = m->positions[at].first_child;
    for (uint32_t side = 0; side < m->n_sides; side++) {
        if (!is_passed(m, &m->sides[side], at))
            continue;
        uint32_t n = list_interior(m, side, at);
        for (uint32_t k = 0; k < n; k++)
            side_drop(m, side, m->order[k]);
        m->went.sides[side].evicted_interior += n;
    }
}

/* Frees positions from the end of the node that ends at a leaf: `need` of them, or all, or some
 * more so that no image is cut. A pin that ends there is over first. Moves `*leaf` up to what is
 * left. What counts as a node that went is one that went whole. */
static uint32_t node_free(struct naive *m, int *leaf, uint32_t need, enum miss_reason why,
                          uint32_t side, uint64_t now_ns)
{
    uint32_t freed = 0;
    struct gone gone = {.why = is_invalid(m, *leaf) ? MISS_CLEARED : why,
                        .side = side,
                        .gone_ns = now_ns,
                        .used_ns = m->positions[*leaf].stamp};
    if (m->positions[*leaf].pins > 0)
        pin_end_at(m, *leaf, now_ns);
    for (;;) {
        int at = *leaf, up = *leaf = m->positions[at].parent;
        bool whole = naive_is_root(m, up) || naive_ends_node(m, up);
        bool last = whole || (freed + 1 >= need && cache_token_is_whole(m->positions[up].token) &&
                              can_go_on(m, up));
        gone.sure = last || m->positions[up].end;
        note_gone(m, at, &gone);
        count_page(m, at, gone.why);
        position_remove(m, at);
        freed++;
        if (whole)
            count_node(m, gone.why);
        if (last)
            break;
    }
    settle(m, *leaf);
    return freed;
}

/* Ages the kept end that a sequence continued from longest ago, if that was before the leaf was
 * used: halves its count, or stops keeping it. False if there is no such end. */
static bool age_end(struct naive *m, const struct candidate *leaf)
{
    int end = NOWHERE;
    for (int i = 0; i < (int)m->n_pages; i++)
        if (m->positions[i].n_forks > 0 &&
            (end == NOWHERE || m->positions[i].fork_order < m->positions[end].fork_order))
            end = i;
    if (end == NOWHERE || leaf->rank == 0 ||
        (leaf->rank == 1 && leaf->stamp <= m->positions[end].forked))
        return false;
    keep_end(m, end, m->positions[end].n_forks / 2);
    settle(m, end);
    return true;
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

/* Every position that could be freed now, of one namespace or (NOWHERE) of all. */
static void collect(struct naive *m, int root)
{
    m->n_heap = 0;
    for (int i = 0; i < (int)m->n_pages; i++)
        if (may_go(m, i) && (root == NOWHERE || m->positions[i].root == root))
            heap_push(m, i);
}

/* What one call may free, and when it stops. */
struct sweep {
    int root;           /* of one namespace, or (NOWHERE) of all */
    uint32_t max_rank;  /* what has a greater one stays */
    uint64_t before_ns; /* valid positions used then or later stay */
    uint32_t need, max_nodes;
    enum miss_reason why;
    uint64_t now_ns;
    uint32_t group; /* not 0: need counts pages of the side group - 1, and nodes are freed whole */
};

static uint32_t sweep(struct naive *m, const struct sweep *s)
{
    struct pressure_event *e = &m->last;
    *e = (struct pressure_event){.at_ns = s->now_ns, .group = s->group, .wanted = s->need};
    collect(m, s->root);
    while (e->n_nodes < s->max_nodes && e->freed < s->need && m->n_heap > 0) {
        struct candidate c = heap_pop(m);
        if (c.rank > s->max_rank || (c.rank > 0 && c.stamp >= s->before_ns))
            break;
        uint32_t before = s->group ? m->sides[s->group - 1].n : 0;
        if (s->group && age_end(m, &c)) {
            e->freed += before - m->sides[s->group - 1].n;
            heap_push(m, c.at);
            continue;
        }
        const struct position p = m->positions[c.at]; /* as it is before it goes */
        uint32_t n = node_free(m, &c.at, s->group ? UINT32_MAX : s->need - e->freed, s->why,
                               s->group ? s->group - 1 : 0, s->now_ns);
        if (s->group)
            n = before - m->sides[s->group - 1].n;
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

void naive_break_pin(struct naive *m, uint64_t now_ns)
{
    collect(m, NOWHERE);
    CHECK(m->n_heap > 0 && m->heap[0].rank == 2);
    pin_end_at(m, m->heap[0].at, now_ns);
}

uint32_t naive_evict(struct naive *m, uint32_t n_pages, uint32_t max_nodes, uint64_t now_ns)
{
    return sweep(m,
                 &(struct sweep){NOWHERE, 2, UINT64_MAX, n_pages, max_nodes, MISS_EVICTED, now_ns});
}

/* The first of the nodes that come after the one that ends at `after` (NOWHERE: of all nodes): by
 * stamp, and the deeper one of a path first. */
static int next_node(const struct naive *m, int after)
{
    const struct position *a = after == NOWHERE ? NULL : &m->positions[after];
    int next = NOWHERE;
    for (int i = 0; i < (int)m->n_pages; i++) {
        const struct position *p = &m->positions[i], *n = &m->positions[next == NOWHERE ? 0 : next];
        if (!p->used || !naive_ends_node(m, i) ||
            (a && (p->stamp < a->stamp || (p->stamp == a->stamp && p->depth >= a->depth))))
            continue;
        if (next == NOWHERE || p->stamp < n->stamp || (p->stamp == n->stamp && p->depth > n->depth))
            next = i;
    }
    return next;
}

uint32_t naive_evict_interior(struct naive *m, uint32_t side, uint32_t n_pages, uint64_t now_ns)
{
    struct naive_side *s = &m->sides[side];
    uint32_t before = s->n;
    sweep(m, &(struct sweep){NOWHERE, 0, UINT64_MAX, n_pages, UINT32_MAX, MISS_CLEARED, now_ns,
                             1 + side});
    uint32_t freed = before - s->n;
    if (freed >= n_pages)
        return freed;
    for (int at = next_node(m, NOWHERE); at != NOWHERE; at = next_node(m, at)) {
        uint32_t n = list_interior(m, side, at);
        for (uint32_t i = 0; i < n && freed < n_pages; i++, freed++) {
            side_drop(m, side, m->order[i]);
            m->went.sides[side].evicted_interior++;
        }
        s->passed_stamp = m->positions[at].stamp;
        s->passed_depth = m->positions[at].depth;
        if (freed == n_pages)
            return freed;
    }
    s->passed_stamp = m->now;
    s->passed_depth = 0;
    return freed;
}

static bool is_needed(const struct naive *m, int at, const struct naive_need *needs,
                      uint32_t n_needs)
{
    for (uint32_t i = 0; i < n_needs; i++) {
        int up = needs[i].at;
        for (uint32_t k = 0; k < needs[i].n && !naive_is_root(m, up); k++) {
            if (up == at)
                return true;
            up = m->positions[up].parent;
        }
    }
    return false;
}

/* Frees the first positions of the node from `begin` to `end`, as many as needed; returns how many.
 */
static uint32_t drop_unneeded(struct naive *m, uint32_t side, int begin, int end, uint32_t most,
                              const struct naive_need *needs, uint32_t n_needs)
{
    uint32_t n = 0, dropped = 0;
    for (int at = end;; at = m->positions[at].parent) {
        m->order[n++] = at;
        if (at == begin)
            break;
    }
    while (n-- > 0 && dropped < most) {
        int at = m->order[n];
        if (m->positions[at].side[side] == PAGE_NONE)
            continue;
        if (is_needed(m, at, needs, n_needs))
            break;
        side_drop(m, side, at);
        m->went.sides[side].evicted_tails++;
        dropped++;
    }
    return dropped;
}

uint32_t naive_evict_tails(struct naive *m, uint32_t side, uint32_t n_pages,
                           const struct naive_need *needs, uint32_t n_needs, uint64_t now_ns)
{
    uint32_t freed = sweep(m, &(struct sweep){NOWHERE, 2, UINT64_MAX, n_pages, UINT32_MAX,
                                              MISS_WINDOW, now_ns, 1 + side});
    for (uint32_t i = 0; i < n_needs; i++) {
        int end = needs[i].at;
        while (!naive_is_root(m, end) && freed < n_pages) {
            int begin = naive_node_begin(m, end);
            freed += drop_unneeded(m, side, begin, end, n_pages - freed, needs, n_needs);
            end = m->positions[begin].parent;
        }
    }
    return freed;
}

uint32_t naive_expire(struct naive *m, uint64_t before_ns, uint32_t max_nodes, uint64_t now_ns)
{
    pins_end_over(m, now_ns);
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
    for (int p = at; m->positions[p].gone && m->positions[p].locks == 1; p = m->positions[p].parent)
        if (naive_ends_node(m, p))
            count_node(m, MISS_CLEARED);
    begin_touch(m, now_ns);
    for (int up; at != NOWHERE; at = up) {
        struct position *p = &m->positions[at];
        up = p->parent;
        CHECK(p->locks > 0);
        p->locks--;
        p->stamp = m->now;
        if (p->gone && p->locks == 0) {
            count_page(m, at, MISS_CLEARED);
            position_remove(m, at);
        }
    }
    root_remove_if_idle(m, root);
    naive_keep_cap(m, root, now_ns);
}

/* ---- what must not be found ---- */

static void root_invalidate(struct naive *m, int root)
{
    pins_end_in(m, root);
    m->positions[root].valid = false;
    m->positions[root].cap = UINT32_MAX;
    m->positions[root].invalid_ns = m->now;
}

/* Ends all of them, the most recently used first, as the stamps of ended pins show. */
void naive_invalidate(struct naive *m, const uint64_t *ns)
{
    if (ns) {
        int root = naive_root(m, *ns);
        if (root != NOWHERE)
            root_invalidate(m, root);
        return;
    }
    for (uint64_t before = UINT64_MAX;;) {
        int newest = NOWHERE;
        for (int i = (int)m->n_pages; i < (int)m->n_pages + NAIVE_MAX_ROOTS; i++)
            if (m->positions[i].used && m->positions[i].valid && m->positions[i].stamp < before &&
                (newest == NOWHERE || m->positions[i].stamp > m->positions[newest].stamp))
                newest = i;
        if (newest == NOWHERE)
            return;
        before = m->positions[newest].stamp;
        root_invalidate(m, newest);
    }
}

int naive_withdraw_top(const struct naive *m, int at, uint32_t depth)
{
    if (m->positions[at].depth <= depth)
        return NOWHERE;
    while (m->positions[at].depth > depth + 1)
        at = m->positions[at].parent;
    if (m->positions[at].gone)
        return NOWHERE;
    while (!naive_is_root(m, m->positions[at].parent) &&
           !cache_token_is_whole(m->positions[m->positions[at].parent].token))
        at = m->positions[at].parent;
    return at;
}

static bool is_below(const struct naive *m, int at, int top)
{
    while (at != NOWHERE && at != top)
        at = m->positions[at].parent;
    return at == top;
}

/* Withdraws the positions of a node, from the last one to that at `depth`. */
static void withdraw_node(struct naive *m, int at, uint32_t depth, int top)
{
    bool is_locked = m->positions[at].locks > 0;
    int end = at;
    if (!is_locked)
        count_node(m, MISS_CLEARED);
    m->positions[at].n_forks = 0;
    for (int up; m->positions[at].depth >= depth; at = up) {
        struct position *p = &m->positions[at];
        struct gone gone = {
            .why = MISS_CLEARED, .sure = at == top, .gone_ns = m->now, .used_ns = p->stamp};
        up = p->parent;
        if (!p->gone)
            note_gone(m, at, &gone);
        p->gone = true;
        if (is_locked)
            continue;
        count_page(m, at, MISS_CLEARED);
        position_remove(m, at);
    }
    if (is_locked)
        settle(m, end);
}

/* Node by node, lower ones first: each may merge with what is left below it. */
void naive_withdraw(struct naive *m, int top)
{
    uint32_t n = 0, n_ends = 0, from = m->positions[top].depth;
    for (uint32_t i = 0; i < m->n_pins;)
        if (is_below(m, m->pins[i].at, top))
            pin_end(m, i, m->now);
        else
            i++;
    m->positions[top].cut = true;
    m->order[n++] = top; /* parents before their children */
    for (uint32_t i = 0; i < n; i++)
        for (int c = m->positions[m->order[i]].first_child; c != NOWHERE;
             c = m->positions[c].next_sibling)
            m->order[n++] = c;
    struct candidate *ends = m->heap; /* of nodes, with the depth that each begins at */
    for (uint32_t i = 0; i < n; i++) {
        if (!naive_ends_node(m, m->order[i]))
            continue;
        uint32_t begin = m->positions[naive_node_begin(m, m->order[i])].depth;
        ends[n_ends++] = (struct candidate){begin > from ? begin : from, m->order[i], 0};
    }
    while (n_ends-- > 0)
        withdraw_node(m, ends[n_ends].at, ends[n_ends].rank, top);
}

/* ---- counting ---- */

uint32_t naive_evictable_without(struct naive *m, const int *ats, uint32_t n, int kept)
{
    struct tree_stats stats;
    naive_lock(m, kept, 1);
    for (uint32_t i = 0; i < n; i++)
        naive_lock(m, ats[i], -1);
    naive_count(m, &stats);
    for (uint32_t i = 0; i < n; i++)
        naive_lock(m, ats[i], 1);
    naive_lock(m, kept, -1);
    return stats.n_evictable;
}

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
