/* Window pages in the tree, one small case each. Tokens are the characters of strings, the window
 * is W = 4: to go on takes the window pages of three positions, and a node's last four are its
 * tail. A '.' in a picture of window pages is a position that has none any more. */
#include "cache/prefix_tree.h"

#include "cache/tree_node.h"
#include "test.h"
#include "tree_lookup.h"
#include "test_death.h"

enum { W = 4, N_PAGES = 256, N_WINDOW = 64, MAX_TEXT = 128 };

struct windowed {
    struct page_pool pool, window_pool;
    struct image_table *images;
    struct prefix_tree *tree;
    uint64_t now_ns;
    uint32_t length; /* of the last acquire */
};

static void open_windowed(struct windowed *f, uint32_t window)
{
    struct error err;
    *f = (struct windowed){0};
    CHECK_INT(page_pool_open(&f->pool, N_PAGES, &err), 0);
    CHECK_INT(page_pool_open(&f->window_pool, N_WINDOW, &err), 0);
    CHECK_INT(image_table_open(&f->images, 4, &err), 0);
    struct prefix_tree_options options = {.pool = &f->pool,
                                          .images = f->images,
                                          .max_nodes = 64,
                                          .max_pinned = N_PAGES / 2,
                                          .sides = {{&f->window_pool, window - 1}},
                                          .n_sides = 1};
    CHECK_INT(prefix_tree_open(&f->tree, &options, &err), 0);
}

static void check_laws(const struct windowed *f)
{
    CHECK(prefix_tree_check(f->tree));
    CHECK(page_pool_check(&f->pool) && page_pool_check(&f->window_pool));
    CHECK_INT(page_pool_private(&f->pool) + page_pool_private(&f->window_pool), 0);
}

static void close_windowed(struct windowed *f)
{
    check_laws(f);
    prefix_tree_close(f->tree);
    CHECK_INT(f->pool.n_free, N_PAGES);
    CHECK_INT(f->window_pool.n_free, N_WINDOW);
    image_table_close(f->images);
    page_pool_close(&f->pool);
    page_pool_close(&f->window_pool);
}

static uint32_t spell(const char *text, uint64_t *tokens)
{
    uint32_t n = (uint32_t)strlen(text);
    CHECK(n <= MAX_TEXT);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = cache_token_text((unsigned char)text[i]);
    return n;
}

static uint32_t peek(const struct windowed *f, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = spell(text, tokens);
    return prefix_tree_match(f->tree, 0, tokens, n).length;
}

static node_id acquire(struct windowed *f, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    enum match_kind kind;
    uint32_t n = spell(text, tokens), cached = peek(f, text);
    node_id node = tree_acquire(f->tree, 0, tokens, n, ++f->now_ns, &f->length, &kind);
    CHECK(node != NODE_NONE);
    CHECK_INT(f->length, cached);
    CHECK_INT(prefix_tree_depth(f->tree, node), cached);
    check_laws(f);
    return node;
}

/* Computes the text after a handle: pages of both kinds, the last `n_window` of the second. */
static node_id insert(struct windowed *f, node_id node, const char *text, uint32_t n_window)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t pages[MAX_TEXT], windows[MAX_TEXT], n = spell(text, tokens), claimed = 0;
    for (uint32_t i = 0; i < n; i++) {
        pages[i] = page_pool_take(&f->pool, 1, PAGE_NONE).first;
        windows[i] = PAGE_NONE;
        if (i + n_window >= n) {
            struct page_run run = page_pool_take(&f->window_pool, 1, PAGE_NONE);
            CHECK_INT(run.count, 1);
            windows[i] = run.first;
        }
    }
    node_id end = prefix_tree_insert(f->tree, node, tokens, pages, (uint32_t *const[]){windows}, n,
                                     ++f->now_ns, &claimed);
    CHECK(end != NODE_NONE);
    for (uint32_t i = 0; i < n - claimed; i++)
        page_pool_give(&f->pool, (struct page_run){pages[i], 1});
    for (uint32_t i = 0; i < n; i++) /* what it says it has, it has */
        CHECK(windows[i] == PAGE_NONE || !page_pool_is_free(&f->window_pool, windows[i]));
    check_laws(f);
    return end;
}

static void unlock(struct windowed *f, node_id node)
{
    prefix_tree_unlock(f->tree, node, ++f->now_ns);
    check_laws(f);
}

static node_id hold(struct windowed *f, const char *text)
{
    node_id node = acquire(f, text);
    return insert(f, node, text + f->length, UINT32_MAX / 2);
}

static void store(struct windowed *f, const char *text)
{
    unlock(f, hold(f, text));
}

static uint32_t evict_interior(struct windowed *f, uint32_t n)
{
    uint32_t freed = prefix_tree_evict_interior(f->tree, 0, n, f->now_ns);
    check_laws(f);
    return freed;
}

static uint32_t evict_tails(struct windowed *f, uint32_t n)
{
    uint32_t freed = prefix_tree_evict_tails(f->tree, 0, n, NULL, 0, f->now_ns);
    check_laws(f);
    return freed;
}

/* Which positions of a handle's path have window pages. */
static void check_windows(const struct windowed *f, node_id node, const char *want)
{
    uint32_t pages[MAX_TEXT], n = prefix_tree_depth(f->tree, node);
    char got[MAX_TEXT + 1] = "";
    prefix_tree_side_pages(f->tree, 0, node, n, pages);
    for (uint32_t i = 0; i < n; i++)
        got[i] = pages[i] == PAGE_NONE ? '.' : '#';
    got[n] = '\0';
    CHECK_STR(got, want);
}

static enum miss_reason why(const struct windowed *f, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = spell(text, tokens);
    struct miss miss;
    tree_explain(f->tree, 0, tokens, n, false, &miss);
    CHECK_INT(miss.position, peek(f, text));
    return miss.reason;
}

TEST(tree_side, a_match_ends_at_a_resume_point)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789abcdef");
    CHECK_INT(peek(&f, "01234567x"), 8); /* anywhere, while all are there */
    CHECK_INT(evict_interior(&f, 4), 4);
    node_id node = acquire(&f, "0123456789abcdef");
    check_windows(&f, node, "....############");
    unlock(&f, node);
    CHECK_INT(peek(&f, "0123456x"), 7); /* 4, 5 and 6 are there */
    CHECK_INT(peek(&f, "012345x"), 0);
    CHECK_INT(peek(&f, "01x"), 0);
    CHECK_INT(why(&f, "012345x"), MISS_WINDOW);
    CHECK_INT(evict_interior(&f, 100), 8);
    node = acquire(&f, "0123456789abcdef");
    check_windows(&f, node, "............####");
    unlock(&f, node);
    CHECK_INT(peek(&f, "0123456789abcdef"), 16);
    CHECK_INT(peek(&f, "0123456789abcdeX"), 15); /* a prompt that comes again */
    CHECK_INT(peek(&f, "0123456789abcdXX"), 0);
    CHECK_INT(prefix_tree_stats(f.tree)->sides[0].evicted_interior, 12);
    CHECK_INT(f.pool.n_owned, 16); /* no position went */
    close_windowed(&f);
}

TEST(tree_side, a_short_node_needs_what_is_above_it)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789ab");
    store(&f, "0123456789");
    store(&f, "01234567AB"); /* three nodes: 0-7, 89ab, AB */
    CHECK_INT(evict_interior(&f, 100), 4);
    CHECK_INT(peek(&f, "01234567AB"), 10);
    CHECK_INT(peek(&f, "01234567Ax"), 9);
    CHECK_INT(peek(&f, "01234567xx"), 8);
    CHECK_INT(peek(&f, "0123456xxx"), 7);
    CHECK_INT(peek(&f, "012345xxxx"), 0);
    CHECK_INT(peek(&f, "0123456789ab"), 12);
    close_windowed(&f);
}

TEST(tree_side, interior_pages_of_the_least_recently_used_go_first)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "aaaaaaaaaa");
    store(&f, "bbbbbbbbbb");
    store(&f, "cccccccccc");
    unlock(&f, acquire(&f, "aaaaaaaaaa"));
    CHECK_INT(evict_interior(&f, 8), 8); /* six of b, two of c */
    node_id a = acquire(&f, "aaaaaaaaaa"), b = acquire(&f, "bbbbbbbbbb"),
            c = acquire(&f, "cccccccccc");
    check_windows(&f, a, "##########");
    check_windows(&f, b, "......####");
    check_windows(&f, c, "..########");
    /* All are locked now, which keeps their positions. */
    CHECK_INT(evict_interior(&f, 100), 10);
    check_windows(&f, a, "......####");
    unlock(&f, a);
    unlock(&f, b);
    unlock(&f, c);
    close_windowed(&f);
}

TEST(tree_side, leaves_go_whole_with_their_tails)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "systemAAAAAAAAAA");
    store(&f, "systemBBBBBBBBBB");
    store(&f, "systemCCCCCCCCCC");
    evict_interior(&f, 100);
    CHECK_INT(evict_tails(&f, 1), 4);
    CHECK_INT(peek(&f, "systemAAAAAAAAAA"), 6); /* the system prompt can still be resumed */
    CHECK_INT(why(&f, "systemAAAAAAAAAA"), MISS_WINDOW);
    CHECK_INT(peek(&f, "systemBBBBBBBBBB"), 16);
    CHECK_INT(f.pool.n_owned, 26);
    struct pressure_event event;
    CHECK_INT(prefix_tree_events(f.tree, &event, 1), 1);
    CHECK(event.group == 1 && event.wanted == 1 && event.freed == 4 && event.n_nodes == 1);
    CHECK_INT(prefix_tree_stats(f.tree)->sides[0].evicted_tails, 4);
    close_windowed(&f);
}

TEST(tree_side, pinned_tails_go_last)
{
    struct windowed f;
    open_windowed(&f, W);
    node_id node = hold(&f, "pinned text");
    CHECK(prefix_tree_pin(f.tree, node, 1000000));
    unlock(&f, node);
    store(&f, "another text, which is younger");
    evict_interior(&f, 100);
    CHECK_INT(evict_tails(&f, 1), 4);
    CHECK_INT(peek(&f, "pinned text"), 11);
    CHECK_INT(peek(&f, "another text, which is younger"), 0);
    CHECK_INT(evict_tails(&f, 1), 4);
    CHECK_INT(peek(&f, "pinned text"), 0);
    close_windowed(&f);
}

TEST(tree_side, what_a_lock_needs_stays)
{
    struct windowed f;
    open_windowed(&f, W);
    node_id top = hold(&f, "0123456789");
    prefix_tree_lock(f.tree, top);
    node_id end = insert(&f, top, "ab", 2);
    struct side_need needs[] = {{end, 3}, {top, 1}};
    evict_interior(&f, 100);
    check_windows(&f, end, "......######");
    CHECK_INT(prefix_tree_evict_tails(f.tree, 0, 2, needs, 2, ++f.now_ns), 2);
    check_windows(&f, end, "........####");
    CHECK_INT(prefix_tree_evict_tails(f.tree, 0, 100, needs, 2, ++f.now_ns), 1);
    check_windows(&f, end, ".........###"); /* 9 for one, 9ab for the other */
    check_laws(&f);
    CHECK_INT(peek(&f, "0123456789ab"), 12);
    unlock(&f, end);
    unlock(&f, top);
    close_windowed(&f);
}

TEST(tree_side, what_is_computed_again_brings_its_window_back)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789abcdef");
    evict_interior(&f, 100);
    CHECK_INT(peek(&f, "01234567"), 0);
    node_id node = acquire(&f, "01234567");
    node = insert(&f, node, "01234567", 8);
    check_windows(&f, node, "########");
    CHECK_INT(f.pool.n_owned, 16); /* the positions were there */
    CHECK_INT(f.window_pool.n_owned, 12);
    unlock(&f, node);
    CHECK_INT(peek(&f, "01234567"), 8);
    /* A duplicate window page is given back, and the tree's page is returned. */
    node = acquire(&f, "0123");
    node = insert(&f, node, "456789abcdef", 12);
    check_windows(&f, node, "################");
    CHECK_INT(f.window_pool.n_owned, 16);
    unlock(&f, node);
    close_windowed(&f);
}

TEST(tree_side, what_was_passed_may_be_missing)
{
    struct windowed f;
    open_windowed(&f, W);
    node_id node = insert(&f, hold(&f, "0123456789"), "abcdefgh", 4);
    check_windows(&f, node, "##########....####");
    unlock(&f, node);
    CHECK_INT(peek(&f, "0123456789abcdefgh"), 18);
    CHECK_INT(peek(&f, "0123456789abcdefgx"), 17);
    CHECK_INT(peek(&f, "0123456789abcdefxx"), 10); /* where there is a gap */
    CHECK_INT(peek(&f, "0123456789xx"), 10);
    node = acquire(&f, "0123456789x"); /* split at the gap */
    check_windows(&f, node, "##########");
    unlock(&f, node);
    CHECK_INT(evict_interior(&f, 7), 6);
    CHECK_INT(peek(&f, "0123456789"), 10); /* it is a node's end now */
    close_windowed(&f);
}

TEST(tree_side, a_leaf_is_trimmed_to_a_resume_point)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789abcdef");
    CHECK_INT(prefix_tree_evict(f.tree, 2, UINT32_MAX, f.now_ns), 2);
    CHECK_INT(peek(&f, "0123456789abcdef"), 14);
    CHECK_INT(f.window_pool.n_owned, 14);
    evict_interior(&f, 100);
    CHECK_INT(prefix_tree_evict(f.tree, 1, UINT32_MAX, f.now_ns), 1);
    CHECK_INT(peek(&f, "0123456789abcdef"), 13);
    /* One more, and nothing could resume from it. */
    CHECK_INT(prefix_tree_evict(f.tree, 1, UINT32_MAX, f.now_ns), 13);
    check_laws(&f);
    CHECK_INT(f.window_pool.n_owned, 0);
    close_windowed(&f);
}

TEST(tree_side, images_are_not_cut)
{
    enum { LENGTH = 5 };
    struct windowed f;
    struct image_key key = {.sha256 = {7}};
    struct image_shape shape = {.length = LENGTH};
    uint64_t tokens[16];
    uint32_t pages[16], windows[16], claimed, n = 0;
    enum match_kind kind;
    open_windowed(&f, W);
    uint32_t image = image_table_intern(f.images, &key, &shape);
    n += spell("0123", tokens);
    for (uint32_t i = 0; i < LENGTH; i++)
        tokens[n++] = cache_token_image(image, i, LENGTH);
    n += spell("abc", tokens + n);
    node_id node = acquire(&f, "");
    for (uint32_t i = 0; i < n; i++) {
        pages[i] = page_pool_take(&f.pool, 1, PAGE_NONE).first;
        windows[i] = i == 7 ? PAGE_NONE : page_pool_take(&f.window_pool, 1, PAGE_NONE).first;
    }
    node = prefix_tree_insert(f.tree, node, tokens, pages, (uint32_t *const[]){windows}, n, 2,
                              &claimed);
    image_table_release(f.images, image);
    unlock(&f, node);
    CHECK_INT(prefix_tree_match(f.tree, 0, tokens, n).length, n);
    CHECK_INT(prefix_tree_match(f.tree, 0, tokens, n - 1).length, n - 1);
    /* After 7, which has none, nothing can resume up to 10; before it is the image. */
    CHECK_INT(prefix_tree_match(f.tree, 0, tokens, n - 2).length, 4);
    CHECK_INT(prefix_tree_match(f.tree, 0, tokens, 9).length, 4);
    node = tree_acquire(f.tree, 0, tokens, 9, 3, &n, &kind);
    CHECK_INT(n, 4);
    unlock(&f, node);
    close_windowed(&f);
}

/* If nodes merge after eviction has passed them, what was a tail is evicted too. */
TEST(tree_side, nodes_that_become_one_have_one_tail)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789A");
    store(&f, "0123456789bcdefgh"); /* 0-9 has two children, the first of which is older */
    CHECK_INT(evict_interior(&f, 100), 6 + 3);
    CHECK_INT(f.window_pool.n_owned, 4 + 1 + 4);
    CHECK_INT(prefix_tree_evict(f.tree, 1, 1, f.now_ns), 1);
    check_laws(&f);
    CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 3); /* the end of 0-9 is kept, */
    CHECK_INT(peek(&f, "0123456789x"), 10);
    CHECK_INT(evict_tails(&f, 1), 4);                 /* but not for longer than a leaf */
    CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 2); /* the root, and one */
    CHECK_INT(f.window_pool.n_owned, 4);
    CHECK_INT(peek(&f, "0123456789bcdefgh"), 17);
    CHECK_INT(peek(&f, "0123456789x"), 0);
    close_windowed(&f);
}

/* An end that three sequences continued from outlives two of them, and everything else as old. */
TEST(tree_side, where_sequences_parted_others_go_on)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789Aaaaa");
    store(&f, "0123456789Bbbbb");
    store(&f, "0123456789Ccccc");
    store(&f, "another one");
    store(&f, "0123456789Ccccccccccc");
    evict_interior(&f, 100);
    CHECK_INT(evict_tails(&f, 1), 4); /* A */
    CHECK_INT(evict_tails(&f, 1), 4); /* B */
    store(&f, "0123456789Cccccccccccccccc");
    evict_interior(&f, 100);
    CHECK_INT(peek(&f, "0123456789x"), 10);
    CHECK_INT(evict_tails(&f, 1), 4); /* the other one, which was used after the last fork */
    CHECK_INT(peek(&f, "another one"), 0);
    CHECK_INT(peek(&f, "0123456789x"), 10);
    /* Its time was extended once, because there were several. */
    store(&f, "later");
    store(&f, "0123456789Ccccccccccccccccccccc");
    evict_interior(&f, 100);
    CHECK_INT(evict_tails(&f, 1), 4);
    CHECK_INT(peek(&f, "later"), 5);
    CHECK_INT(peek(&f, "0123456789x"), 0);
    CHECK_INT(peek(&f, "0123456789Ccccccccccccccccccccc"), 31);
    close_windowed(&f);
}

/* The end stays an end when nothing is left after it, and when something is inserted there again.
 */
TEST(tree_side, an_end_is_kept_without_followers)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789Aaaaa");
    store(&f, "0123456789Bbbbb");
    CHECK_INT(prefix_tree_evict(f.tree, 10, UINT32_MAX, f.now_ns), 10);
    check_laws(&f);
    CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 2);
    store(&f, "0123456789Ccccc");
    CHECK_INT(f.length, 10);
    CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 3);
    evict_interior(&f, 100);
    CHECK_INT(peek(&f, "0123456789x"), 10);
    CHECK_INT(prefix_tree_evict(f.tree, 6, UINT32_MAX, f.now_ns), 6); /* and one of 0-9 */
    CHECK_INT(peek(&f, "012345678x"), 9);
    store(&f, "012345678Ddddddd"); /* grows: what was kept has gone */
    CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 2);
    close_windowed(&f);
}

TEST(tree_side, what_is_invalid_or_withdrawn_gives_back_both)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789");
    node_id node = hold(&f, "0123456789abcdef");
    prefix_tree_withdraw(f.tree, node, 10);
    check_laws(&f);
    CHECK_INT(peek(&f, "0123456789abcdef"), 10);
    unlock(&f, node);
    CHECK_INT(f.window_pool.n_owned, 10);
    store(&f, "another");
    prefix_tree_invalidate(f.tree, NULL);
    CHECK_INT(evict_interior(&f, 1), 10); /* the invalid first, as a whole */
    CHECK_INT(f.pool.n_owned, 7);
    CHECK_INT(prefix_tree_clear(f.tree, NULL, UINT32_MAX, f.now_ns), 7);
    CHECK_INT(prefix_tree_stats(f.tree)->sides[0].cleared, 6 + 10 + 7);
    CHECK_INT(f.window_pool.n_owned, 0);
    close_windowed(&f);
}

/* Positions are withdrawn even if nobody can resume from them: what is below them could be found.
 */
TEST(tree_side, what_cannot_be_gone_on_with_can_be_withdrawn)
{
    struct windowed f;
    uint64_t tokens[MAX_TEXT];
    open_windowed(&f, W);
    store(&f, "another one");
    store(&f, "0123456789abcdef");
    evict_interior(&f, 100);
    uint32_t n = spell("01234567xx", tokens);
    CHECK_INT(peek(&f, "01234567xx"), 0);
    CHECK_INT(peek(&f, "0123456789abcdef"), 16);
    node_id node = prefix_tree_lock_path(f.tree, 0, tokens, n, ++f.now_ns);
    CHECK(node != NODE_NONE);
    CHECK_INT(prefix_tree_depth(f.tree, node), 8);
    check_laws(&f);
    prefix_tree_withdraw(f.tree, node, 0);
    unlock(&f, node);
    CHECK_INT(peek(&f, "0123456789abcdef"), 0);
    CHECK_INT(peek(&f, "another one"), 11);
    CHECK_INT(f.pool.n_owned, 11);
    CHECK_INT(prefix_tree_lock_path(f.tree, 0, tokens, n, ++f.now_ns), NODE_NONE);
    CHECK_INT(prefix_tree_lock_path(f.tree, 1, tokens, n, ++f.now_ns), NODE_NONE);
    close_windowed(&f);
}

/* One lie at a time, in the data about windows: the check finds it. */
#define CHECK_LIE(what, value)                                                                     \
    do {                                                                                           \
        uint64_t truth_ = (what);                                                                  \
        CHECK(prefix_tree_check(f.tree));                                                          \
        (what) = (value);                                                                          \
        CHECK_SAYS_NO(prefix_tree_check(f.tree));                                                  \
        (what) = truth_;                                                                           \
    } while (0)

TEST(tree_side, the_check_finds_lies)
{
    struct windowed f;
    open_windowed(&f, W);
    store(&f, "0123456789A");
    store(&f, "0123456789bcdefgh");
    node_id node = insert(&f, hold(&f, "another one"), "0123456", 4); /* with a gap */
    evict_interior(&f, 2);
    struct tree_side *w = f.tree->sides;
    struct node_side *x = &w->nodes[node], *old = &w->nodes[w->oldest];
    struct tree_ends *e = &f.tree->ends;
    uint32_t second = f.window_pool.next[x->first];
    CHECK_LIE(x->n, x->n + 1);
    CHECK_LIE(x->n_gaps, 0);
    CHECK_LIE(e->nodes[node].guard, 1);
    CHECK_LIE(x->first, second);
    CHECK_LIE(x->last, x->first);
    CHECK_LIE(f.window_pool.prev[second], PAGE_NONE);
    CHECK_LIE(f.window_pool.next[x->first], PAGE_NONE);
    CHECK_LIE(f.window_pool.token[second], f.window_pool.token[x->first]);
    CHECK_LIE(w->page[f.tree->nodes[node].first], PAGE_NONE);
    CHECK_LIE(f.window_pool.n_owned, f.window_pool.n_owned - 1);
    CHECK_LIE(f.window_pool.free_map[0], UINT64_MAX);
    CHECK_LIE(w->oldest, w->newest);
    CHECK_LIE(w->newest, w->oldest);
    CHECK_LIE(w->next, NODE_NONE); /* there still are interior ones */
    CHECK_LIE(old->newer, NODE_NONE);
    CHECK_LIE(w->nodes[old->newer].older, NODE_NONE);
    CHECK_LIE(e->nodes[e->oldest].n_forks, 0);
    CHECK_LIE(e->nodes[e->oldest].forked, UINT64_MAX);
    CHECK_LIE(e->newest, NODE_NONE);
    CHECK_LIE(e->oldest, NODE_NONE);
    CHECK(prefix_tree_check(f.tree));
    unlock(&f, node);
    close_windowed(&f);
}
