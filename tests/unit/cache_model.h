#ifndef RADISH_TEST_CACHE_MODEL_H
#define RADISH_TEST_CACHE_MODEL_H

#include "cache/prefix_tree.h"

/* The cache as one would write it if memory and time were free: a trie of single positions.
 *
 *   root of a namespace ── Y ── o ── u ── … ─┬─ p ── i ── r ── a ── t ── e
 *                                            └─ c ── h ── e ── f
 *
 * A position is identified by its page. It has its own lock count, pins, stamp and end mark, so
 * there is nothing to split, merge or sort: eviction scans all positions for the least recently
 * used one that may be freed. The tree's nodes are derived from the positions: consecutive ones
 * that nothing distinguishes.
 *
 * With side groups, a position may also have a page in each of them. Interior pages are found by
 * scanning all nodes, least recently used first. The model records how far that has come, because
 * pages that become interior before that point are freed at once.
 *
 * The model knows nothing of the tree's code, only its header. */
enum { NAIVE_MAX_ROOTS = 64, NAIVE_MAX_PINS = 256, NOWHERE = -1 };

struct position {
    bool used, end;
    bool gone;  /* withdrawn, with all below it */
    bool cut;   /* ... and the first withdrawn one: no edge leads here */
    bool valid; /* of roots: the namespace is found */
    int parent; /* a position or a root; NOWHERE for roots */
    int root;
    int first_child, next_sibling;
    uint32_t n_children, depth, locks, pins, hits;
    uint64_t token, stamp, path;   /* path: a hash of the namespace and the tokens up to here */
    uint32_t side[TREE_MAX_SIDES]; /* its pages in the sides, or PAGE_NONE */
    uint32_t n_forks;              /* its end is kept: how many sequences continued from it */
    uint64_t forked, fork_order;   /* the last of them */
    uint64_t ns, invalid_ns;       /* of roots, as the rest */
    uint32_t n_pages, cap;
};

struct naive_pin {
    int at;
    uint64_t until_ns;
};

/* What was removed, and why: every position that ever was, as of the last time. */
struct gone {
    uint64_t path; /* 0: nothing is noted here */
    enum miss_reason why;
    uint32_t side; /* MISS_WINDOW: for whose pages */
    bool sure; /* the first of those freed at once, or after a stored end: the tree records these */
    uint64_t gone_ns, used_ns;
};

struct naive {
    uint32_t n_pages, max_pinned, n_used;
    struct position *positions; /* [n_pages], then the roots */
    struct naive_pin pins[NAIVE_MAX_PINS];
    uint32_t n_pins;
    uint64_t n_taken;           /* pins that ended because another tenant claimed its share */
    uint64_t now;               /* the stamp given last */
    struct tree_stats went;     /* only the counts of removed pages and nodes */
    struct pressure_event last; /* what the last freeing call freed, with paths as digests */
    struct gone *gone;          /* a hash table of `gone_mask` + 1 */
    uint32_t gone_mask, n_gone;
    struct candidate *heap;
    uint32_t n_heap;
    int *order;      /* [n_pages] room for a list of positions */
    uint64_t n_kept; /* times that an end was kept */
    uint32_t n_sides;
    struct naive_side {
        uint32_t before, n; /* positions needed to resume, and pages in use */
        /* The last node that lost interior pages; nodes before it have none left. */
        uint64_t passed_stamp;
        uint32_t passed_depth;
    } sides[TREE_MAX_SIDES];
};

/* A side's pages are needed for the last `n` positions up to this one. */
struct naive_need {
    int at;
    uint32_t n;
};

/* `befores`: one for each side. */
void naive_open(struct naive *m, uint32_t n_pages, uint32_t max_pinned, uint32_t n_sides,
                const uint32_t *befores);
void naive_close(struct naive *m);

static inline bool naive_is_root(const struct naive *m, int at)
{
    return at >= (int)m->n_pages;
}

int naive_root(const struct naive *m, uint64_t ns); /* or NOWHERE */
int naive_make_root(struct naive *m, uint64_t ns);
/* Follows the tokens down; ends where a sequence may be cut. From a position that is gone,
 * positions that were withdrawn before it may be `met` again if nothing keeps the two apart. */
int naive_walk_gone(const struct naive *m, int at, const uint64_t *tokens, uint32_t n, bool met,
                    uint32_t *length);
int naive_walk(const struct naive *m, int at, const uint64_t *tokens, uint32_t n, uint32_t *length);
/* The last position up to `at` where a sequence may be cut and resumed; shortens `*length`
 * accordingly. */
int naive_resume(const struct naive *m, int at, uint32_t *length);
/* The same in one side alone; returns how many positions before `at` that is. */
uint32_t naive_lacks(const struct naive *m, uint32_t side, int at);
/* Both in one, from a root. */
int naive_find(const struct naive *m, int root, const uint64_t *tokens, uint32_t n,
               uint32_t *length);
enum match_kind naive_kind(const struct naive *m, int at, uint32_t length, uint32_t n);

void naive_lock(struct naive *m, int at, int by);
void naive_touch(struct naive *m, int at, uint64_t now_ns);
void naive_hit(struct naive *m, int at);
int naive_add(struct naive *m, int parent, uint64_t token, uint32_t page);
/* Called before a sequence continues from there: if others did, the end is kept. */
void naive_fork(struct naive *m, int at);
void naive_unlock(struct naive *m, int at, uint64_t now_ns);
bool naive_pin(struct naive *m, int at, uint64_t until_ns);
/* Ends the pin that would be the first to be broken when everything is pinned. */
void naive_break_pin(struct naive *m, uint64_t now_ns);

/* These say how many pages went. */
uint32_t naive_evict(struct naive *m, uint32_t n_pages, uint32_t max_nodes, uint64_t now_ns);
/* Pages of a side. */
uint32_t naive_evict_interior(struct naive *m, uint32_t side, uint32_t n_pages, uint64_t now_ns);
uint32_t naive_evict_tails(struct naive *m, uint32_t side, uint32_t n_pages,
                           const struct naive_need *needs, uint32_t n_needs, uint64_t now_ns);
uint32_t naive_expire(struct naive *m, uint64_t before_ns, uint32_t max_nodes, uint64_t now_ns);
uint32_t naive_clear(struct naive *m, const uint64_t *ns, uint32_t max_nodes, uint64_t now_ns);
void naive_invalidate(struct naive *m, const uint64_t *ns);
/* The first position that is removed when a path is withdrawn from `depth` on, or NOWHERE. */
int naive_withdraw_top(const struct naive *m, int at, uint32_t depth);
void naive_withdraw(struct naive *m, int top);
void naive_keep_cap(struct naive *m, int root, uint64_t now_ns);

/* The pages that could be evicted if the positions `ats` each had one lock less, and the path of
 * `kept` (or NOWHERE) were locked. */
uint32_t naive_evictable_without(struct naive *m, const int *ats, uint32_t n, int kept);
/* Counted from nothing; `went` is copied. */
void naive_count(const struct naive *m, struct tree_stats *out);
/* Whether the tree must keep a node that ends at this position. */
bool naive_ends_node(const struct naive *m, int at);
int naive_node_begin(const struct naive *m, int at); /* the first position of the node that ends */
bool naive_is_found(const struct naive *m, int at);  /* a query can lead here */
/* Nearly as much was removed as the model can remember. */
bool naive_is_full(const struct naive *m);
const struct gone *naive_gone(const struct naive *m, uint64_t path); /* or NULL */

#endif
