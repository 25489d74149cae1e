#ifndef RADISH_TEST_TREE_FIXTURE_H
#define RADISH_TEST_TREE_FIXTURE_H

/* A tree and its pool for tests. Tokens are the characters of strings; "store" is what a request
 * does: acquire, compute the rest, insert, unlock. Time is a counter that each operation moves. The
 * laws are checked after every one. */
#include "cache/prefix_tree.h"

#include <stdlib.h>

#include "test.h"
#include "tree_lookup.h"

enum { MAX_TEXT = 512 };

struct fixture {
    struct page_pool pool;
    struct prefix_tree *tree;
    uint64_t now_ns;
    enum match_kind kind; /* of the last acquire */
    uint32_t length;      /* of the last acquire */
    uint32_t claimed;     /* by the last insert */
};

/* The tree keeps a pointer to the pool, so the fixture must not move. */
static inline void setup(struct fixture *f, uint32_t n_pages, uint32_t max_nodes)
{
    struct error err;
    *f = (struct fixture){0};
    CHECK_INT(page_pool_open(&f->pool, n_pages, &err), 0);
    struct prefix_tree_options options = {
        .pool = &f->pool, .max_nodes = max_nodes, .max_pinned = n_pages / 2};
    CHECK_INT(prefix_tree_open(&f->tree, &options, &err), 0);
}

static inline void check_laws(const struct fixture *f)
{
    CHECK(prefix_tree_check(f->tree));
    CHECK(page_pool_check(&f->pool));
}

/* Everything is given back: nothing private is left, and closing the tree frees the rest. */
static inline void teardown(struct fixture *f)
{
    check_laws(f);
    CHECK_INT(page_pool_private(&f->pool), 0);
    prefix_tree_close(f->tree);
    CHECK_INT(f->pool.n_free, f->pool.n_pages);
    CHECK(page_pool_check(&f->pool));
    page_pool_close(&f->pool);
}

static inline uint32_t to_tokens(const char *text, uint64_t *tokens)
{
    uint32_t n = (uint32_t)strlen(text);
    CHECK(n <= MAX_TEXT);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = cache_token_text((unsigned char)text[i]);
    return n;
}

static inline uint32_t peek_in(const struct fixture *f, uint64_t ns, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_tokens(text, tokens);
    return prefix_tree_match(f->tree, ns, tokens, n).length;
}

static inline uint32_t peek(const struct fixture *f, const char *text)
{
    return peek_in(f, 0, text);
}

static inline node_id acquire_in(struct fixture *f, uint64_t ns, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_tokens(text, tokens), cached = prefix_tree_match(f->tree, ns, tokens, n).length;
    f->length = UINT32_MAX;
    node_id node = tree_acquire(f->tree, ns, tokens, n, ++f->now_ns, &f->length, &f->kind);
    if (node != NODE_NONE) {
        CHECK_INT(f->length, cached);
        CHECK_INT(prefix_tree_depth(f->tree, node), f->length);
    }
    check_laws(f);
    return node;
}

static inline node_id acquire(struct fixture *f, const char *text)
{
    return acquire_in(f, 0, text);
}

/* Takes pages, inserts, gives back those that were not claimed. */
static inline node_id insert(struct fixture *f, node_id node, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t pages[MAX_TEXT], n = to_tokens(text, tokens), got = 0;
    uint32_t depth = prefix_tree_depth(f->tree, node);
    while (got < n) {
        struct page_run run = page_pool_take(&f->pool, n - got, got ? pages[got - 1] : PAGE_NONE);
        CHECK(run.count > 0);
        for (uint32_t i = 0; i < run.count; i++)
            pages[got++] = run.first + i;
    }
    f->claimed = 0;
    node_id end = prefix_tree_insert(f->tree, node, tokens, pages, NULL, n, ++f->now_ns,
                                     &f->claimed);
    for (uint32_t i = 0; i < n - f->claimed; i++)
        page_pool_give(&f->pool, (struct page_run){pages[i], 1});
    if (end != NODE_NONE)
        CHECK_INT(prefix_tree_depth(f->tree, end), depth + n);
    check_laws(f);
    return end;
}

static inline void unlock(struct fixture *f, node_id node)
{
    prefix_tree_unlock(f->tree, node, ++f->now_ns);
    check_laws(f);
}

static inline uint32_t evict(struct fixture *f, uint32_t n_pages)
{
    uint32_t freed = prefix_tree_evict(f->tree, n_pages, UINT32_MAX, f->now_ns);
    check_laws(f);
    return freed;
}

static inline uint32_t expire(struct fixture *f, uint64_t before_ns)
{
    uint32_t freed = prefix_tree_expire(f->tree, before_ns, UINT32_MAX, f->now_ns);
    check_laws(f);
    return freed;
}

/* Leaves the sequence locked at its end. */
static inline node_id hold_in(struct fixture *f, uint64_t ns, const char *text)
{
    node_id node = acquire_in(f, ns, text);
    CHECK(node != NODE_NONE);
    node_id end = insert(f, node, text + f->length);
    CHECK(end != NODE_NONE);
    return end;
}

static inline node_id hold(struct fixture *f, const char *text)
{
    return hold_in(f, 0, text);
}

static inline void store_in(struct fixture *f, uint64_t ns, const char *text)
{
    unlock(f, hold_in(f, ns, text));
}

static inline void store(struct fixture *f, const char *text)
{
    store_in(f, 0, text);
}

/* Acquires, returns the kind of match, unlocks. */
static inline enum match_kind look(struct fixture *f, const char *text)
{
    node_id node = acquire(f, text);
    CHECK(node != NODE_NONE);
    unlock(f, node);
    return f->kind;
}

static inline uint32_t n_nodes(const struct fixture *f)
{
    return prefix_tree_stats(f->tree)->n_nodes;
}

static inline uint32_t n_evictable(const struct fixture *f)
{
    return prefix_tree_stats(f->tree)->n_evictable;
}

/* The pages of a handle spell its text. */
static inline void check_pages(const struct fixture *f, node_id node, const char *text)
{
    struct page_run runs[MAX_TEXT];
    uint64_t tokens[MAX_TEXT];
    uint32_t n = to_tokens(text, tokens), at = 0;
    uint32_t n_runs = prefix_tree_pages(f->tree, node, runs, MAX_TEXT);
    for (uint32_t r = 0; r < n_runs; r++) {
        CHECK(runs[r].count > 0);
        CHECK(r == 0 || runs[r - 1].first + runs[r - 1].count != runs[r].first);
        for (uint32_t i = 0; i < runs[r].count; i++, at++) {
            CHECK(at < n);
            CHECK(f->pool.token[runs[r].first + i] == tokens[at]);
            CHECK(!page_pool_is_free(&f->pool, runs[r].first + i));
        }
    }
    CHECK_INT(at, n);
}

#endif
