/* The cache's laws, one small case each, by the names they were asked for under.
 *
 * "Alone" is the tree over its pool, with the letters of a string as tokens; cases about rows,
 * suffixes and answers run the scheduler on the mock engine; cases about logits drive an engine by
 * hand, as a sequence would: match, compute the rest into private pages, insert. */
#include "cache/prefix_tree.h"

#include <stdlib.h>

#include "batch_rows.h"
#include "engine/cpu/cpu_engine.h"
#include "scheduler_fixture.h"
#include "test.h"
#include "tree_lookup.h"
#include "test_death.h"

enum { MAX_TOKENS = 1024, PAGES = 2048, NODES = 256 };

/* ---- the tree alone ---- */

struct alone {
    struct page_pool pool;
    struct image_table *images;
    struct prefix_tree *tree;
    uint64_t now_ns;
};

static void alone_open(struct alone *a)
{
    struct error err;
    *a = (struct alone){0};
    CHECK_INT(page_pool_open(&a->pool, PAGES, &err), 0);
    CHECK_INT(image_table_open(&a->images, 8, &err), 0);
    struct prefix_tree_options options = {
        .pool = &a->pool, .images = a->images, .max_nodes = NODES, .max_pinned = PAGES};
    CHECK_INT(prefix_tree_open(&a->tree, &options, &err), 0);
}

static void check_conserved(const struct alone *a, uint32_t n_private)
{
    CHECK_INT(page_pool_private(&a->pool), n_private);
    CHECK_INT(a->pool.n_free + a->pool.n_owned + n_private, PAGES);
    CHECK(page_pool_check(&a->pool));
    CHECK(prefix_tree_check(a->tree));
}

static void alone_close(struct alone *a)
{
    check_conserved(a, 0);
    prefix_tree_close(a->tree);
    CHECK_INT(a->pool.n_free, PAGES);
    image_table_close(a->images);
    page_pool_close(&a->pool);
}

static uint32_t spell(const char *text, uint64_t *tokens)
{
    uint32_t n = (uint32_t)strlen(text);
    CHECK(n <= MAX_TOKENS);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = cache_token_text((unsigned char)text[i]);
    return n;
}

static void take_pages(struct page_pool *pool, uint32_t n, uint32_t *pages)
{
    for (uint32_t i = 0; i < n; i++) {
        struct page_run run = page_pool_take(pool, 1, i ? pages[i - 1] : PAGE_NONE);
        CHECK_INT(run.count, 1);
        pages[i] = run.first;
    }
}

static void give_pages(struct page_pool *pool, uint32_t n, const uint32_t *pages)
{
    for (uint32_t i = 0; i < n; i++)
        page_pool_give(pool, (struct page_run){pages[i], 1});
}

static node_id acquire_in(struct alone *a, uint64_t ns, const char *text, uint32_t *length)
{
    uint64_t tokens[MAX_TOKENS];
    uint32_t n = spell(text, tokens);
    enum match_kind kind;
    node_id node = tree_acquire(a->tree, ns, tokens, n, ++a->now_ns, length, &kind);
    CHECK(node != NODE_NONE);
    return node;
}

static node_id acquire(struct alone *a, const char *text)
{
    uint32_t length;
    return acquire_in(a, 0, text, &length);
}

/* Computes nothing, but takes a page for each token, and gives back what is not claimed. */
static node_id insert_tokens(struct alone *a, node_id node, const uint64_t *tokens, uint32_t n,
                             uint32_t *claimed)
{
    uint32_t pages[MAX_TOKENS];
    take_pages(&a->pool, n, pages);
    node_id end = prefix_tree_insert(a->tree, node, tokens, pages, NULL, n, ++a->now_ns, claimed);
    CHECK(end != NODE_NONE);
    give_pages(&a->pool, n - *claimed, pages);
    return end;
}

static node_id insert(struct alone *a, node_id node, const char *text, uint32_t *claimed)
{
    uint64_t tokens[MAX_TOKENS];
    return insert_tokens(a, node, tokens, spell(text, tokens), claimed);
}

static void unlock(struct alone *a, node_id node)
{
    prefix_tree_unlock(a->tree, node, ++a->now_ns);
}

static node_id hold_in(struct alone *a, uint64_t ns, const char *text)
{
    uint32_t length, claimed;
    node_id node = acquire_in(a, ns, text, &length);
    return insert(a, node, text + length, &claimed);
}

static void store(struct alone *a, const char *text)
{
    unlock(a, hold_in(a, 0, text));
}

static uint32_t cached(const struct alone *a, uint64_t ns, const char *text)
{
    uint64_t tokens[MAX_TOKENS];
    uint32_t n = spell(text, tokens);
    return prefix_tree_match(a->tree, ns, tokens, n).length;
}

static uint32_t evict(struct alone *a, uint32_t n)
{
    return prefix_tree_evict(a->tree, n, UINT32_MAX, a->now_ns);
}

static uint32_t pages_of(const struct alone *a, node_id node, uint32_t *pages)
{
    struct page_run runs[MAX_TOKENS];
    uint32_t n_runs = prefix_tree_pages(a->tree, node, runs, MAX_TOKENS), n = 0;
    for (uint32_t r = 0; r < n_runs; r++)
        for (uint32_t i = 0; i < runs[r].count; i++)
            pages[n++] = runs[r].first + i;
    return n;
}

/* The locks on the node whose path ends there, as the outline shows them. */
static uint32_t locks_at(const struct alone *a, node_id node)
{
    static struct tree_entry entries[NODES];
    uint32_t n = prefix_tree_outline(a->tree, UINT32_MAX, entries, NODES);
    for (uint32_t i = 0; i < n; i++)
        if (entries[i].node == node)
            return entries[i].locks;
    test_fail(__FILE__, __LINE__, "node %u is not in the outline", node);
}

TEST(cache_laws, split)
{
    struct alone a;
    uint32_t length, whole_pages[MAX_TOKENS], half_pages[MAX_TOKENS];
    alone_open(&a);
    node_id whole = hold_in(&a, 0, "abcdef");
    prefix_tree_lock(a.tree, whole);
    CHECK_INT(pages_of(&a, whole, whole_pages), 6);
    uint32_t n_nodes = prefix_tree_stats(a.tree)->n_nodes;

    node_id half = acquire_in(&a, 0, "abcx", &length);
    CHECK_INT(length, 3);
    CHECK_INT(prefix_tree_stats(a.tree)->n_nodes, n_nodes + 1);
    CHECK_INT(prefix_tree_depth(a.tree, whole), 6); /* the handle still means the same */
    CHECK_INT(prefix_tree_depth(a.tree, half), 3);
    CHECK_INT(locks_at(&a, whole), 2);
    CHECK_INT(locks_at(&a, half), 3); /* the upper half took the two locks along */
    CHECK_INT(pages_of(&a, half, half_pages), 3);
    CHECK(memcmp(half_pages, whole_pages, 3 * sizeof *half_pages) == 0);
    CHECK_INT(pages_of(&a, whole, half_pages), 6);
    CHECK(memcmp(half_pages, whole_pages, 6 * sizeof *half_pages) == 0);
    CHECK_INT(a.pool.n_owned, 6); /* nothing was copied */
    unlock(&a, half);
    unlock(&a, whole);
    unlock(&a, whole);
    CHECK_INT(prefix_tree_stats(a.tree)->n_nodes, n_nodes); /* and it is one node again */
    alone_close(&a);
}

TEST(cache_laws, image_length_accounting)
{
    enum { LENGTH = 729, BEFORE = 3, AFTER = 5, ALL = BEFORE + LENGTH + AFTER };
    struct alone a;
    struct image_key key = {.sha256 = {7}};
    struct image_shape shape = {LENGTH, 27, 27, 27};
    uint64_t tokens[MAX_TOKENS];
    uint32_t claimed, length;
    enum match_kind kind;
    alone_open(&a);
    uint32_t image = image_table_intern(a.images, &key, &shape);
    spell("say", tokens);
    for (uint32_t i = 0; i < LENGTH; i++)
        tokens[BEFORE + i] = cache_token_image(image, i, LENGTH);
    spell("what?", tokens + BEFORE + LENGTH);

    node_id node = insert_tokens(&a, acquire(&a, ""), tokens, ALL, &claimed);
    CHECK_INT(claimed, ALL);
    CHECK_INT(prefix_tree_depth(a.tree, node), ALL);
    CHECK_INT(a.pool.n_owned, ALL);
    unlock(&a, node);
    image_table_release(a.images, image);
    CHECK_INT(image_table_count(a.images), 1); /* the tree holds it */
    struct tree_entry entry;
    node_id cursor = 0;
    CHECK_INT(prefix_tree_list(a.tree, 0, &cursor, &entry, 1, NODES), 1);
    CHECK_INT(entry.depth, ALL);
    CHECK_INT(entry.n_images, 1);

    /* A query that ends inside the image, or diverges there, matches only up to it. */
    CHECK_INT(prefix_tree_match(a.tree, 0, tokens, BEFORE + LENGTH - 1).length, BEFORE);
    CHECK_INT(prefix_tree_match(a.tree, 0, tokens, BEFORE + LENGTH).length, BEFORE + LENGTH);
    node = tree_acquire(a.tree, 0, tokens, BEFORE + 100, ++a.now_ns, &length, &kind);
    CHECK_INT(length, BEFORE);
    unlock(&a, node);

    /* The text after it is trimmed token by token; then the image is freed whole. */
    CHECK_INT(evict(&a, 2), 2);
    CHECK_INT(evict(&a, 4), 3 + LENGTH);
    CHECK_INT(a.pool.n_owned, BEFORE);
    CHECK_INT(image_table_count(a.images), 0);
    alone_close(&a);
}

TEST(cache_laws, lock_invariants)
{
    struct alone a;
    alone_open(&a);
    node_id chef = hold_in(&a, 0, "You are a chef"), pirate = hold_in(&a, 0, "You are a pirate");
    node_id both = acquire(&a, "You are a ");
    CHECK_INT(locks_at(&a, both), 3); /* its own and those of the paths below it */
    CHECK_INT(evict(&a, PAGES), 0);
    prefix_tree_lock(a.tree, pirate); /* one lock more, up to the root */
    CHECK_INT(locks_at(&a, pirate), 2);
    CHECK_INT(locks_at(&a, both), 4);
    unlock(&a, both);
    CHECK_INT(evict(&a, PAGES), 0);
    unlock(&a, chef);
    CHECK_INT(prefix_tree_stats(a.tree)->n_evictable, 4);
    CHECK_INT(evict(&a, PAGES), 4);
    CHECK_INT(cached(&a, 0, "You are a chef"), 10);
    unlock(&a, pirate);
    CHECK_INT(cached(&a, 0, "You are a pirate"), 16);
    CHECK_INT(evict(&a, PAGES), 0); /* the second lock is there still */
    unlock(&a, pirate);
    CHECK_ABORTS(unlock(&a, pirate));
    CHECK_INT(evict(&a, PAGES), 16);
    alone_close(&a);
}

TEST(cache_laws, ownership_on_miss)
{
    struct alone a;
    uint64_t tokens[MAX_TOKENS];
    uint32_t pages[MAX_TOKENS], claimed, length, n = spell("hello world", tokens);
    alone_open(&a);
    node_id node = acquire_in(&a, 0, "hello world", &length);
    CHECK_INT(length, 0);
    take_pages(&a.pool, n, pages);
    check_conserved(&a, n);
    node = prefix_tree_insert(a.tree, node, tokens, pages, NULL, n, 1, &claimed);
    CHECK_INT(claimed, n);
    CHECK_INT(a.pool.n_owned, n);
    check_conserved(&a, 0);
    uint32_t owned[MAX_TOKENS];
    CHECK_INT(pages_of(&a, node, owned), n);
    CHECK(memcmp(owned, pages, n * sizeof *pages) == 0);
    unlock(&a, node);
    alone_close(&a);
}

TEST(cache_laws, ownership_on_partial_hit)
{
    struct alone a;
    uint64_t tokens[MAX_TOKENS];
    uint32_t before[MAX_TOKENS], pages[MAX_TOKENS], claimed, n = spell("hello there", tokens);
    alone_open(&a);
    node_id first = hold_in(&a, 0, "hello world"), second = acquire(&a, "");
    pages_of(&a, first, before);
    take_pages(&a.pool, n, pages);
    second = prefix_tree_insert(a.tree, second, tokens, pages, NULL, n, ++a.now_ns, &claimed);
    CHECK_INT(claimed, 5);
    check_conserved(&a, 6); /* the caller keeps what it computed twice */
    uint32_t owned[MAX_TOKENS];
    CHECK_INT(pages_of(&a, second, owned), n);
    CHECK(memcmp(owned, before, 6 * sizeof *owned) == 0);
    CHECK(memcmp(owned + 6, pages + 6, 5 * sizeof *owned) == 0);
    give_pages(&a.pool, 6, pages);
    unlock(&a, first);
    unlock(&a, second);
    alone_close(&a);
}

TEST(cache_laws, insert_idempotency)
{
    struct alone a;
    uint32_t claimed;
    alone_open(&a);
    node_id root = acquire(&a, ""), again = acquire(&a, "");
    node_id node = insert(&a, root, "the same", &claimed);
    CHECK_INT(claimed, 8);
    struct tree_stats before = *prefix_tree_stats(a.tree);
    CHECK_INT(insert(&a, again, "the same", &claimed), node);
    CHECK_INT(claimed, 0);
    CHECK_INT(a.pool.n_owned, 8);
    CHECK_INT(prefix_tree_stats(a.tree)->n_nodes, before.n_nodes);
    CHECK_INT(insert(&a, node, "", &claimed), node); /* inserts nothing, after its end */
    CHECK_INT(claimed, 0);
    unlock(&a, node);
    unlock(&a, again = node);
    alone_close(&a);
}

TEST(cache_laws, lock_transfer)
{
    struct alone a;
    uint32_t claimed;
    alone_open(&a);
    node_id other = hold_in(&a, 0, "prefix"), node = acquire(&a, "prefix");
    CHECK_INT(locks_at(&a, other), 2);
    node = insert(&a, node, " and more", &claimed);
    CHECK(node != other);
    CHECK_INT(locks_at(&a, node), 1);
    CHECK_INT(locks_at(&a, other), 2); /* it is on both paths */
    unlock(&a, other);
    CHECK_INT(evict(&a, PAGES),
              0); /* one unlock was enough for the first; the second still holds it */
    unlock(&a, node);
    CHECK_INT(evict(&a, PAGES), 15);
    alone_close(&a);
}

TEST(cache_laws, pages_shared_by_many)
{
    enum { READERS = 10 };
    static const char *const prefix = "a system prompt that ten agents share: ";
    uint32_t n = (uint32_t)strlen(prefix), claimed, pages[MAX_TOKENS], other[MAX_TOKENS];
    struct alone a;
    node_id nodes[READERS];
    alone_open(&a);
    store(&a, prefix);
    for (uint32_t i = 0; i < READERS; i++) {
        char own[2] = {(char)('A' + i), 0};
        nodes[i] = insert(&a, acquire(&a, prefix), own, &claimed);
        CHECK_INT(claimed, 1);
    }
    CHECK_INT(a.pool.n_owned, n + READERS);
    CHECK_INT(pages_of(&a, nodes[0], pages), n + 1);
    for (uint32_t i = 0; i < READERS; i++) {
        CHECK_INT(pages_of(&a, nodes[i], other), n + 1);
        CHECK(memcmp(pages, other, n * sizeof *pages) == 0);
        CHECK(i == 0 || pages[n] != other[n]);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        CHECK_INT(evict(&a, PAGES), i > 0); /* the last reader's own page; what is shared stays */
        unlock(&a, nodes[i]);
    }
    CHECK_INT(evict(&a, PAGES), n + 1);
    alone_close(&a);
}

TEST(cache_laws, pressure_with_all_locked)
{
    struct alone a;
    uint64_t tokens[MAX_TOKENS];
    alone_open(&a);
    node_id nodes[4];
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t claimed;
        for (uint32_t k = 0; k < PAGES / 4; k++)
            tokens[k] = cache_token_text((int32_t)(i * PAGES + k));
        nodes[i] = insert_tokens(&a, acquire(&a, ""), tokens, PAGES / 4, &claimed);
        CHECK_INT(claimed, PAGES / 4);
    }
    CHECK_INT(a.pool.n_free, 0);
    CHECK_INT(prefix_tree_stats(a.tree)->n_evictable, 0);
    CHECK_INT(evict(&a, 1), 0);
    CHECK_INT(prefix_tree_expire(a.tree, UINT64_MAX, UINT32_MAX, a.now_ns), 0);
    CHECK_INT(prefix_tree_clear(a.tree, NULL, UINT32_MAX, a.now_ns), 0);
    CHECK_INT(page_pool_take(&a.pool, 1, PAGE_NONE).count, 0);
    unlock(&a, nodes[2]);
    CHECK_INT(evict(&a, 1), 1); /* as soon as one lets go, there is room */
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            unlock(&a, nodes[i]);
    alone_close(&a);
}

TEST(cache_laws, no_double_free)
{
    struct alone a;
    uint64_t tokens[MAX_TOKENS];
    uint32_t pages[MAX_TOKENS], claimed, n = spell("twice", tokens);
    alone_open(&a);
    node_id node = acquire(&a, "");
    take_pages(&a.pool, n, pages);
    node = prefix_tree_insert(a.tree, node, tokens, pages, NULL, n, 1, &claimed);
    CHECK_ABORTS(give_pages(&a.pool, 1, pages)); /* they are the tree's now */
    prefix_tree_lock(a.tree, node);
    unlock(&a, node);
    unlock(&a, node);
    CHECK_INT(evict(&a, PAGES), n);
    CHECK_INT(evict(&a, PAGES), 0); /* freed once */
    CHECK_ABORTS(give_pages(&a.pool, 1, pages));
    CHECK_INT(a.pool.n_free, PAGES);
    alone_close(&a);
}

TEST(cache_laws, namespace_pruning)
{
    struct alone a;
    alone_open(&a);
    uint64_t adapter = cache_namespace(0, 0, -1), none = cache_namespace(0, -1, -1);
    CHECK(adapter != none);
    unlock(&a, hold_in(&a, none, "shared text"));
    unlock(&a, hold_in(&a, adapter, "shared text"));
    CHECK_INT(prefix_tree_stats(a.tree)->n_namespaces, 2);
    CHECK_INT(evict(&a, 11), 11);
    CHECK_INT(prefix_tree_stats(a.tree)->n_namespaces, 1);
    CHECK_INT(cached(&a, none, "shared text"), 0);
    CHECK_INT(cached(&a, adapter, "shared text"), 11);
    CHECK_INT(evict(&a, 10), 10); /* one position keeps its namespace */
    CHECK_INT(prefix_tree_stats(a.tree)->n_namespaces, 1);
    CHECK_INT(evict(&a, 1), 1);
    CHECK_INT(prefix_tree_stats(a.tree)->n_namespaces, 0);
    CHECK_INT(prefix_tree_stats(a.tree)->n_nodes, 0);
    alone_close(&a);
}

TEST(cache_laws, match_creates_no_root)
{
    struct alone a;
    uint64_t tokens[MAX_TOKENS];
    uint32_t n = spell("who is there", tokens), length;
    struct miss miss;
    alone_open(&a);
    CHECK_INT(prefix_tree_match(a.tree, 99, tokens, n).length, 0);
    tree_explain(a.tree, 99, tokens, n, true, &miss);
    CHECK_INT(miss.reason, MISS_NEVER_SEEN);
    CHECK_INT(prefix_tree_stats(a.tree)->n_nodes, 0);
    CHECK_INT(prefix_tree_stats(a.tree)->n_namespaces, 0);
    /* A caller that goes on to compute needs a root to insert under; the root is freed if nothing
     * was inserted. */
    node_id root = acquire_in(&a, 99, "who is there", &length);
    CHECK_INT(prefix_tree_stats(a.tree)->n_namespaces, 1);
    unlock(&a, root);
    CHECK_INT(prefix_tree_stats(a.tree)->n_nodes, 0);
    alone_close(&a);
}

/* Page i is the page of token i: after splits, trims and coalescing, and in scattered pages. */
TEST(cache_laws, page_index_alignment)
{
    static const char *const text = "the quick brown fox jumps over the lazy dog";
    uint32_t n = (uint32_t)strlen(text), claimed, pages[MAX_TOKENS], now[MAX_TOKENS], every[64];
    uint64_t tokens[MAX_TOKENS];
    struct alone a;
    alone_open(&a);
    /* Every other page belongs to another, so that no two pages of the text are adjacent. */
    take_pages(&a.pool, 64, every);
    for (uint32_t i = 0; i < 64; i += 2)
        give_pages(&a.pool, 1, every + i);
    spell(text, tokens);
    node_id node = acquire(&a, "");
    take_pages(&a.pool, n, pages);
    for (uint32_t at = 0; at < n; at += 9) /* in chunks */
        node = prefix_tree_insert(a.tree, node, tokens + at, pages + at, NULL,
                                  n - at < 9 ? n - at : 9, ++a.now_ns, &claimed);
    for (uint32_t cut = n; cut > 0; cut -= cut < 7 ? cut : 7) { /* splits */
        uint32_t length;
        enum match_kind kind;
        node_id part = tree_acquire(a.tree, 0, tokens, cut, ++a.now_ns, &length, &kind);
        CHECK_INT(pages_of(&a, part, now), cut);
        CHECK(memcmp(now, pages, cut * sizeof *now) == 0);
        CHECK_INT(pages_of(&a, node, now), n);
        CHECK(memcmp(now, pages, n * sizeof *now) == 0);
        unlock(&a, part);
    }
    unlock(&a, node); /* one node again */
    CHECK_INT(prefix_tree_stats(a.tree)->n_nodes, 2);
    CHECK_INT(evict(&a, 10), 10); /* trimmed */
    node = acquire(&a, text);
    CHECK_INT(pages_of(&a, node, now), n - 10);
    CHECK(memcmp(now, pages, (n - 10) * sizeof *now) == 0);
    for (uint32_t i = 0; i < n - 10; i++)
        CHECK(a.pool.token[now[i]] == tokens[i]);
    unlock(&a, node);
    for (uint32_t i = 1; i < 64; i += 2)
        give_pages(&a.pool, 1, every + i);
    alone_close(&a);
}

/* ---- sequences ---- */

/* Runs one request to its end and checks its answer; the caller frees it. */
static struct client *ask(struct fixture *f, uint32_t n_prompt, uint32_t max_tokens)
{
    int32_t prompt[MAX_TOKENS];
    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)(i * 7 % 61);
    struct client *c = client_make(prompt, n_prompt, max_tokens);
    c->request.ignore_end = true;
    client_submit(f, c);
    fixture_run(f, &c, 1);
    check_answer(c, fixture_defaults().max_length);
    return c;
}

TEST(cache_laws, full_match_suffix)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    client_free(ask(&f, 730, 1));
    CHECK_INT(fixture_stats(&f).rows, 730);
    struct client *c = ask(&f, 730, 1); /* all of it: only the last token, for its logits */
    CHECK_INT(fixture_stats(&f).rows, 730 + 1);
    CHECK_INT(c->request.prompt_cached, 729);
    client_free(c);
    c = ask(&f, 750, 1); /* twenty tokens more are twenty rows */
    CHECK_INT(fixture_stats(&f).rows, 730 + 1 + 20);
    CHECK_INT(c->request.prompt_cached, 730);
    client_free(c);
    fixture_close(&f);
}

/* Records which page each row of a batch is written to, then calls the engine. */
static struct {
    const struct engine_ops *ops;
    struct batch_row rows[MAX_TOKENS];
    uint32_t n_rows;
    uint32_t first_page; /* of the batch's first sequence */
} spy;

static int spy_submit(struct engine *e, const struct batch *batch, struct error *err)
{
    for (uint32_t i = 0; i < batch->n_rows && spy.n_rows < MAX_TOKENS; i++)
        spy.rows[spy.n_rows++] = batch->rows[i];
    spy.first_page = batch->seqs[0].pages[0].runs[0].first;
    return spy.ops->submit(e, batch, err);
}

static int spy_wait(struct engine *e, struct error *err)
{
    return spy.ops->wait(e, err);
}

static void spy_on(struct engine *e)
{
    static struct engine_ops ops;
    spy.ops = e->ops;
    spy.n_rows = 0;
    ops = (struct engine_ops){
        .abi = ENGINE_ABI, .submit = spy_submit, .wait = spy_wait, .close = e->ops->close};
    e->ops = &ops;
}

TEST(cache_laws, full_match_ownership)
{
    enum { N = 100 };
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    uint32_t owned[N];
    fixture_open(&f, &o);
    spy_on(f.engine);
    client_free(ask(&f, N, 1));
    CHECK_INT(spy.n_rows, N);
    for (uint32_t i = 0; i < N; i++)
        owned[i] = spy.rows[i].pages[0];
    CHECK_INT(fixture_stats(&f).n_owned, N);

    spy.n_rows = 0;
    client_free(ask(&f, N, 1));
    CHECK_INT(spy.n_rows, 1);
    CHECK_INT(spy.rows[0].position, N - 1);
    CHECK_INT(spy.first_page, owned[0]); /* read from where it is */
    for (uint32_t i = 0; i < N; i++)
        CHECK(spy.rows[0].pages[0] != owned[i]); /* and written where nobody else reads */
    CHECK_INT(fixture_stats(&f).n_owned, N);
    CHECK_INT(fixture_stats(&f).n_private, 0);
    fixture_close(&f);
}

/* A cached prefix is used however short it is: here one token. */
TEST(cache_laws, tiny_hit_text_only)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *first = client_make_text("abcdefgh", 1), *second = client_make_text("axyz", 1);
    client_submit(&f, first);
    fixture_run(&f, &first, 1);
    client_submit(&f, second);
    fixture_run(&f, &second, 1);
    check_answer(second, o.max_length);
    CHECK_INT(second->request.prompt_cached, 1);
    CHECK_INT(fixture_stats(&f).rows, 8 + 3);
    CHECK_INT(fixture_stats(&f).n_owned, 8 + 3);
    client_free(first);
    client_free(second);
    fixture_close(&f);
}

/* Free + cached + private pages are all pages, after every step, while more is requested than fits.
 */
TEST(cache_laws, conservation)
{
    enum { CLIENTS = 24 };
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 200;
    o.max_length = 120;
    fixture_open(&f, &o);
    struct client *c[CLIENTS];
    uint32_t n_done = 0, n_steps = 0, most_private = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        char prompt[64];
        snprintf(prompt, sizeof prompt, "%s number %c",
                 i % 3 ? "a beginning that most of them share," : "another,", (char)('a' + i));
        c[i] = client_make_text(prompt, 30);
        client_submit(&f, c[i]);
    }
    while (n_done < CLIENTS) {
        scheduler_step(f.scheduler);
        struct scheduler_stats stats = fixture_stats(&f);
        CHECK_INT(stats.n_free + stats.n_owned + stats.n_private, o.n_pages);
        most_private = stats.n_private > most_private ? stats.n_private : most_private;
        n_done = 0;
        for (uint32_t i = 0; i < CLIENTS; i++) {
            client_read(&f, c[i], UINT32_MAX);
            n_done += c[i]->n_done;
        }
        if (++n_steps == 10)
            scheduler_cancel(f.scheduler, &c[1]->request);
        CHECK(n_steps < 100000);
    }
    fixture_run(&f, c, CLIENTS);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.n_private, 0);
    CHECK_INT(stats.n_free + stats.n_owned, o.n_pages);
    CHECK(most_private > 0 && stats.tree.evicted_pages > 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        (i == 1 ? check_beginning : check_answer)(c[i], o.max_length);
        client_free(c[i]);
    }
    fixture_close(&f);
}

/* ---- logits ---- */

/* Computes the logits of a sequence's last token, in one batch; returns how many rows that took. */
static uint32_t last_logits(struct alone *a, struct engine *e, const int32_t *ids, uint32_t n,
                            float *logits)
{
    uint64_t tokens[MAX_TOKENS] = {0};
    uint32_t pages[MAX_TOKENS], length, claimed;
    struct page_run runs[MAX_TOKENS];
    struct batch_row rows[MAX_TOKENS];
    enum match_kind kind;
    struct error err;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = cache_token_text(ids[i]);
    node_id node = tree_acquire(a->tree, 0, tokens, n, ++a->now_ns, &length, &kind);
    pages_of(a, node, pages);
    uint32_t from = length < n ? length : n - 1, n_rows = n - from;
    take_pages(&a->pool, n_rows, pages + from);
    for (uint32_t i = 0; i < n; i++)
        runs[i] = (struct page_run){pages[i], 1};
    for (uint32_t i = from; i < n; i++)
        rows[i - from] = token_row(ids[i], i, pages[i], 0, i + 1 == n ? WANTS_LOGITS : NULL);
    struct batch_seq seq = {.pages = {{runs, n, 0}}, .length = n};
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = n_rows};
    CHECK_INT(forward_rows(e, &batch, rows, logits, &err), 0);
    claimed = 0;
    if (length < n)
        node = prefix_tree_insert(a->tree, node, tokens + length, pages + length, NULL, n - length,
                                  ++a->now_ns, &claimed);
    give_pages(&a->pool, n_rows - claimed, pages + from);
    unlock(a, node);
    return n_rows;
}

static void check_three_paths(struct engine *e)
{
    enum { N = 150, SHARED = 133 };
    size_t bytes = e->info.n_vocab * sizeof(float);
    float *plain = malloc(bytes), *got = malloc(bytes);
    int32_t ids[N], other[N];
    struct alone a;
    CHECK(plain && got);
    for (uint32_t i = 0; i < N; i++) {
        ids[i] = (int32_t)(i * i * 31 % e->info.n_vocab);
        other[i] = i < SHARED ? ids[i] : (ids[i] + 1) % (int32_t)e->info.n_vocab;
    }
    alone_open(&a);
    CHECK_INT(last_logits(&a, e, ids, N, plain), N);
    CHECK_INT(prefix_tree_clear(a.tree, NULL, UINT32_MAX, a.now_ns), N);
    CHECK_INT(last_logits(&a, e, other, N, got), N);
    CHECK(memcmp(got, plain, bytes) != 0);
    CHECK_INT(last_logits(&a, e, ids, N, got), N - SHARED);
    CHECK(memcmp(got, plain, bytes) == 0);
    CHECK_INT(last_logits(&a, e, ids, N, got), 1);
    CHECK(memcmp(got, plain, bytes) == 0);
    alone_close(&a);
    free(plain);
    free(got);
    engine_close(e);
}

TEST(cache_laws, equal_logits_on_three_paths)
{
    struct engine *e;
    struct error err;
    struct engine_limits limits = {
        .n_pages = {PAGES}, .max_rows = 256, .max_seqs = 1, .max_length = 256};
    struct mock_options mock = {.n_vocab = 1000, .fail_token = -1, .end_token = -1};
    CHECK_INT(mock_engine_open(&e, &mock, &limits, &err), 0);
    check_three_paths(e);

    const char *path = test_model_path();
    struct model model;
    if (!path)
        SKIP("the default model is not here; the mock engine agreed");
    CHECK_INT(model_open(&model, path, NULL, &err), 0);
    model.hparams.n_layers = 6; /* a fifth of it is as good for this, and sooner done */
    CHECK_INT(cpu_engine_open(&e, &model, &limits, &(struct cpu_options){.n_threads = 1}, &err), 0);
    check_three_paths(e);
    model_close(&model);
}
