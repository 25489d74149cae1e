/* States in the tree, and two sides at once, one small case each. Tokens are the characters of
 * strings. A picture has a character for each position: '#' has a page of the side, '.' has none.
 */
#include <stdlib.h>

#include "cache/prefix_tree.h"

#include "cache/tree_node.h"
#include "test.h"
#include "test_death.h"
#include "tree_lookup.h"

enum { N_PAGES = 4096, N_SIDE = 64, MAX_TEXT = 2048, STATE = 1 };

struct sided {
    struct page_pool pool, sides[TREE_MAX_SIDES];
    struct prefix_tree *tree;
    uint64_t now_ns;
    uint32_t length; /* of the last acquire */
};

/* `before0` and `before1`: the sides; UINT32_MAX: there is no second one. */
static void open_sided(struct sided *f, uint32_t before0, uint32_t before1)
{
    struct error err;
    *f = (struct sided){0};
    CHECK_INT(page_pool_open(&f->pool, N_PAGES, &err), 0);
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++)
        CHECK_INT(page_pool_open(&f->sides[i], N_SIDE, &err), 0);
    struct prefix_tree_options options = {
        .pool = &f->pool,
        .max_nodes = 64,
        .max_pinned = N_PAGES / 2,
        .sides = {{&f->sides[0], before0}, {&f->sides[1], before1}},
        .n_sides = before1 == UINT32_MAX ? 1 : 2,
    };
    CHECK_INT(prefix_tree_open(&f->tree, &options, &err), 0);
}

static void check_laws(const struct sided *f)
{
    CHECK(prefix_tree_check(f->tree));
    CHECK(page_pool_check(&f->pool));
    CHECK_INT(page_pool_private(&f->pool), 0);
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++) {
        CHECK(page_pool_check(&f->sides[i]));
        CHECK_INT(page_pool_private(&f->sides[i]), 0);
    }
}

static void close_sided(struct sided *f)
{
    check_laws(f);
    prefix_tree_close(f->tree);
    CHECK_INT(f->pool.n_free, N_PAGES);
    page_pool_close(&f->pool);
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++) {
        CHECK_INT(f->sides[i].n_free, N_SIDE);
        page_pool_close(&f->sides[i]);
    }
}

static uint32_t spell(const char *text, uint64_t *tokens)
{
    uint32_t n = (uint32_t)strlen(text);
    CHECK(n <= MAX_TEXT);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = cache_token_text((unsigned char)text[i]);
    return n;
}

static struct tree_match match(const struct sided *f, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = spell(text, tokens);
    return prefix_tree_match(f->tree, 0, tokens, n);
}

static uint32_t peek(const struct sided *f, const char *text)
{
    return match(f, text).length;
}

static node_id acquire_as(struct sided *f, const char *text, struct tree_match m)
{
    uint64_t tokens[MAX_TEXT];
    enum match_kind kind;
    uint32_t n = spell(text, tokens), cached = peek(f, text);
    node_id node = prefix_tree_acquire(f->tree, 0, tokens, n, ++f->now_ns, &m, &kind);
    CHECK(node != NODE_NONE);
    CHECK_INT(m.length, cached);
    CHECK_INT(prefix_tree_depth(f->tree, node), cached);
    f->length = m.length;
    check_laws(f);
    return node;
}

static node_id acquire(struct sided *f, const char *text)
{
    return acquire_as(f, text, match(f, text));
}

/* Computes the text after a handle, with pages of the sides as in the pictures ("": none). */
static node_id insert(struct sided *f, node_id node, const char *text, const char *picture0,
                      const char *picture1)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t pages[MAX_TEXT], sides[TREE_MAX_SIDES][MAX_TEXT], n = spell(text, tokens), claimed = 0;
    uint32_t *const side_pages[TREE_MAX_SIDES] = {sides[0], sides[1]};
    const char *const pictures[TREE_MAX_SIDES] = {picture0, picture1};
    for (uint32_t i = 0; i < n; i++) {
        pages[i] = page_pool_take(&f->pool, 1, PAGE_NONE).first;
        for (uint32_t k = 0; k < TREE_MAX_SIDES; k++) {
            bool has = i < strlen(pictures[k]) && pictures[k][i] == '#';
            sides[k][i] = has ? page_pool_take(&f->sides[k], 1, PAGE_NONE).first : PAGE_NONE;
        }
    }
    node_id end = prefix_tree_insert(f->tree, node, tokens, pages, side_pages, n, ++f->now_ns,
                                     &claimed);
    CHECK(end != NODE_NONE);
    for (uint32_t i = 0; i < n - claimed; i++)
        page_pool_give(&f->pool, (struct page_run){pages[i], 1});
    check_laws(f);
    return end;
}

static void unlock(struct sided *f, node_id node)
{
    prefix_tree_unlock(f->tree, node, ++f->now_ns);
    check_laws(f);
}

/* The pictures are of the whole text; what the tree has of it is not computed. */
static node_id hold(struct sided *f, const char *text, const char *picture0, const char *picture1)
{
    node_id node = acquire(f, text);
    uint32_t at = f->length;
    return insert(f, node, text + at, *picture0 ? picture0 + at : "",
                  *picture1 ? picture1 + at : "");
}

static void store(struct sided *f, const char *text, const char *picture0, const char *picture1)
{
    unlock(f, hold(f, text, picture0, picture1));
}

static uint32_t evict_interior(struct sided *f, uint32_t side, uint32_t n)
{
    uint32_t freed = prefix_tree_evict_interior(f->tree, side, n, f->now_ns);
    check_laws(f);
    return freed;
}

static uint32_t evict_tails(struct sided *f, uint32_t side, uint32_t n)
{
    uint32_t freed = prefix_tree_evict_tails(f->tree, side, n, NULL, 0, f->now_ns);
    check_laws(f);
    return freed;
}

/* Which positions of a stored text have pages of a side. */
static void check_picture(struct sided *f, uint32_t side, const char *text, const char *want)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t pages[MAX_TEXT], n = spell(text, tokens);
    char got[MAX_TEXT + 1] = "";
    node_id node = prefix_tree_lock_path(f->tree, 0, tokens, n, ++f->now_ns);
    CHECK_INT(prefix_tree_depth(f->tree, node), n);
    prefix_tree_side_pages(f->tree, side, node, n, pages);
    for (uint32_t i = 0; i < n; i++)
        got[i] = pages[i] == PAGE_NONE ? '.' : '#';
    got[n] = '\0';
    CHECK_STR(got, want);
    unlock(f, node);
}

static struct miss explain(const struct sided *f, const char *text)
{
    uint64_t tokens[MAX_TEXT];
    uint32_t n = spell(text, tokens);
    struct miss miss;
    struct tree_match m = prefix_tree_match(f->tree, 0, tokens, n);
    prefix_tree_explain(f->tree, 0, tokens, n, &m, false, &miss);
    CHECK_INT(miss.position, m.length);
    return miss;
}

TEST(tree_state, a_match_ends_at_a_copy)
{
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    store(&f, "0123456789abcdef", "...#......#....#", "");
    CHECK_INT(peek(&f, "0123456789abcdef"), 16);
    CHECK_INT(peek(&f, "0123456789abcdefgh"), 16);
    CHECK_INT(peek(&f, "0123456789abcde"), 11);
    CHECK_INT(peek(&f, "0123456789ax"), 11);
    CHECK_INT(peek(&f, "0123456789x"), 4);
    CHECK_INT(peek(&f, "0123"), 4);
    CHECK_INT(peek(&f, "012x"), 0); /* the root is always one */
    struct tree_match m = match(&f, "0123456789x");
    CHECK(m.length == 4 && m.walked == 10);
    struct miss miss = explain(&f, "0123456789x");
    CHECK(miss.reason == MISS_WINDOW && miss.side == 0 && miss.gone_length == 6);
    close_sided(&f);
}

/* The last token of a prompt is always computed, for its logits. So a repeated prompt needs the
 * copy before it. */
TEST(tree_state, a_copy_before_the_last_token_serves_an_identical_prompt)
{
    struct sided f;
    const char *prompt = "0123456789", *all_but_one = "012345678";
    open_sided(&f, STATE, UINT32_MAX);
    store(&f, prompt, "....#...##", "");
    CHECK_INT(peek(&f, all_but_one), 9);
    CHECK_INT(peek(&f, "0123456789 and more"), 10);
    CHECK_INT(evict_interior(&f, 0, 100), 1); /* both of the last are its tail */
    check_picture(&f, 0, prompt, "........##");
    CHECK_INT(peek(&f, all_but_one), 9);
    CHECK_INT(peek(&f, "0123456789 and more"), 10);
    close_sided(&f);
}

TEST(tree_state, interior_copies_go_first)
{
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    store(&f, "aaaaaaaaaa", "#..#..#..#", "");
    store(&f, "bbbbbbbbbb", "..#..#..##", "");
    unlock(&f, acquire(&f, "aaaaaaaaaa"));
    CHECK_INT(evict_interior(&f, 0, 3), 3); /* two of b, one of a */
    check_picture(&f, 0, "bbbbbbbbbb", "........##");
    check_picture(&f, 0, "aaaaaaaaaa", "...#..#..#");
    CHECK_INT(evict_interior(&f, 0, 100), 2);
    check_picture(&f, 0, "aaaaaaaaaa", ".........#");
    CHECK_INT(prefix_tree_stats(f.tree)->sides[0].evicted_interior, 5);
    CHECK_INT(f.pool.n_owned, 20);       /* no position went */
    CHECK_INT(evict_tails(&f, 0, 1), 2); /* then the leaf that was used longest ago */
    CHECK_INT(peek(&f, "bbbbbbbbbb"), 0);
    CHECK_INT(explain(&f, "bbbbbbbbbb").reason, MISS_WINDOW);
    CHECK_INT(f.pool.n_owned, 10);
    CHECK_INT(prefix_tree_stats(f.tree)->sides[0].evicted_tails, 2);
    close_sided(&f);
}

/* A node that loses its last copy leaves the list, and comes back with the next one. */
TEST(tree_state, interior_copies_may_be_all_there_are)
{
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    store(&f, "0123456789", "..#.......", "");
    store(&f, "another", "#......", "");
    CHECK_INT(peek(&f, "0123456789"), 3);
    CHECK_INT(evict_interior(&f, 0, 1), 1);
    CHECK_INT(peek(&f, "0123456789"), 0);
    store(&f, "0123456789", ".....#....", "");
    CHECK_INT(peek(&f, "0123456789"), 6);
    CHECK_INT(evict_interior(&f, 0, 1), 1); /* the other is older */
    CHECK_INT(peek(&f, "another"), 0);
    CHECK_INT(evict_interior(&f, 0, 9), 1);
    CHECK_INT(f.sides[0].n_owned, 0);
    close_sided(&f);
}

TEST(tree_state, nothing_goes_on_in_a_leaf_without_copies)
{
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    store(&f, "01234", "....#", "");
    store(&f, "01234abcdef", "", "");
    store(&f, "younger", "......#", "");
    CHECK_INT(peek(&f, "01234abcdef"), 5);
    struct miss miss = explain(&f, "01234abcdef");
    CHECK(miss.reason == MISS_WINDOW && miss.gone_ns == 0 && miss.gone_length == 6);
    /* Where it diverges from others nothing changes: they resume from 01234. */
    store(&f, "01234abcXYZ", "..........#", "");
    CHECK_INT(f.length, 5);
    CHECK_INT(peek(&f, "01234abcXYZ"), 11);
    CHECK_INT(peek(&f, "01234abcdef"), 5);
    /* It is useless, and is freed with the first whose copies are wanted; and for its pages. */
    CHECK_INT(f.pool.n_owned, 11 + 3 + 7);
    CHECK_INT(prefix_tree_evict(f.tree, 1, UINT32_MAX, f.now_ns), 3);
    check_laws(&f);
    CHECK_INT(peek(&f, "01234abcXYZ"), 11);
    close_sided(&f);
}

TEST(tree_state, a_leaf_is_trimmed_to_a_copy)
{
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    store(&f, "0123456789", "..#...#..#", "");
    CHECK_INT(prefix_tree_evict(f.tree, 1, UINT32_MAX, f.now_ns), 3);
    check_picture(&f, 0, "0123456", "..#...#");
    CHECK_INT(prefix_tree_evict(f.tree, 4, UINT32_MAX, f.now_ns), 4);
    check_picture(&f, 0, "012", "..#");
    CHECK_INT(prefix_tree_evict(f.tree, 1, UINT32_MAX, f.now_ns), 3);
    CHECK_INT(f.sides[0].n_owned, 0);
    CHECK_INT(prefix_tree_stats(f.tree)->sides[0].evicted_tails, 3);
    close_sided(&f);
}

TEST(tree_state, copies_are_adopted_where_positions_are_computed_again)
{
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    store(&f, "0123456789", "#.........", "");
    CHECK_INT(peek(&f, "0123456789"), 1);
    store(&f, "012345678X", "#..#.#...#", ""); /* splits, and brings copies of what was there */
    CHECK_INT(f.pool.n_owned, 11);
    check_picture(&f, 0, "0123456789", "#..#.#....");
    check_picture(&f, 0, "012345678X", "#..#.#...#");
    CHECK_INT(peek(&f, "0123456789"), 6);
    /* A duplicate copy is given back. */
    node_id node = insert(&f, acquire(&f, "0"), "12345678X", "..#.#.#.#", "");
    unlock(&f, node);
    check_picture(&f, 0, "012345678X", "#..#.#.#.#");
    CHECK_INT(f.sides[0].n_owned, 5);
    close_sided(&f);
}

/* A match inside a node with few copies is cut to the nearest one, wherever that is: far from the
 * match and near the node's end, or the other way round. */
TEST(tree_state, copies_in_a_long_node)
{
    enum { LENGTH = 2000, EVERY = 50 };
    static char text[LENGTH + 1], picture[LENGTH + 1];
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    for (uint32_t i = 0; i < LENGTH; i++) {
        text[i] = (char)('a' + i % 26);
        picture[i] = (i + 1) % EVERY == 0 && (i + 1) % 300 != 0 ? '#' : '.';
    }
    store(&f, text, picture, "");
    for (uint32_t n = LENGTH; n > 0; n--) {
        uint32_t want = n / EVERY * EVERY;
        want -= want % 300 ? 0 : want ? EVERY : 0;
        text[n] = '\0';
        CHECK_INT(peek(&f, text), want);
        if (n % 97 == 0) /* acquired, so that it is split there, and what is above it grows */
            unlock(&f, acquire(&f, text));
    }
    close_sided(&f);
}

/* Position  1  2  3  4  5  6  7  8  9 10 11 12
 * state     .  .  #  .  .  .  #  .  .  .  #  .      12 is cut to 11, which the window cuts to 9
 * window    .  #  #  #  #  .  #  #  #  .  #  #      (10 has none), which is cut to 7, to 5, to 3 */
TEST(tree_state, a_match_ends_where_every_side_can_go_on)
{
    struct sided f;
    const char *text = "0123456789ab", *state = "..#...#...#.", *window = ".####.###.##";
    for (int swapped = 0; swapped < 2; swapped++) {
        open_sided(&f, swapped ? 2 : STATE, swapped ? STATE : 2);
        store(&f, text, swapped ? window : state, swapped ? state : window);
        struct tree_match m = match(&f, text);
        CHECK(m.length == 3 && m.walked == 12);
        CHECK_INT(peek(&f, "01"), 0);
        struct miss miss = explain(&f, text);
        CHECK(miss.reason == MISS_WINDOW && miss.gone_length == 9);
        CHECK_INT(miss.side,
                  swapped); /* alone, the window could resume from 12, the state from 11 */
        unlock(&f, acquire(&f, text));
        CHECK_INT(f.length, 3);
        /* Three more, and 7 is one in both. */
        store(&f, text, swapped ? "...#.##....." : "", swapped ? "" : "...#.##.....");
        CHECK_INT(peek(&f, text), 7);
        close_sided(&f);
    }
}

/* Under pressure on one side, a node that is freed whole gives back pages of both. */
TEST(tree_state, leaves_go_with_the_pages_of_all_sides)
{
    struct sided f;
    open_sided(&f, 2, STATE);
    store(&f, "systemAAAA", "##########", ".....#...#");
    store(&f, "systemBBBB", "##########", ".....#...#");
    CHECK_INT(evict_tails(&f, 1, 1), 1);
    CHECK_INT(peek(&f, "systemAAAA"), 6);
    CHECK_INT(peek(&f, "systemBBBB"), 10);
    struct miss miss = explain(&f, "systemAAAA");
    CHECK(miss.reason == MISS_WINDOW && miss.side == 1 && miss.gone_length == 4);
    struct pressure_event event;
    CHECK_INT(prefix_tree_events(f.tree, &event, 1), 1);
    CHECK(event.group == 2 && event.wanted == 1 && event.freed == 1 && event.n_nodes == 1);
    const struct side_stats *stats = prefix_tree_stats(f.tree)->sides;
    CHECK(stats[0].evicted_tails == 4 && stats[1].evicted_tails == 1);
    CHECK_INT(evict_tails(&f, 0, 1), 10); /* one node by now */
    CHECK_INT(explain(&f, "systemBBBB").side, 0);
    CHECK_INT(prefix_tree_events(f.tree, &event, 1), 1);
    CHECK_INT(event.group, 1);
    CHECK(stats[0].evicted_tails == 14 && stats[1].evicted_tails == 3);
    close_sided(&f);
}

/* Where sequences diverged, what is needed to resume is kept in both sides, as long as there is
 * pressure on neither. */
TEST(tree_state, ends_are_kept_in_all_sides)
{
    for (uint32_t side = 0; side < TREE_MAX_SIDES; side++) {
        struct sided f;
        open_sided(&f, 2, STATE);
        store(&f, "0123456789Aaaa", "##############", ".........#...#");
        store(&f, "0123456789Bbbb", "##############", ".........#...#");
        CHECK_INT(prefix_tree_evict(f.tree, 4, UINT32_MAX, f.now_ns), 4);
        evict_interior(&f, 0, 100);
        evict_interior(&f, 1, 100);
        CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 3);
        check_picture(&f, 0, "0123456789Bbbb", ".......###.###");
        check_picture(&f, 1, "0123456789Bbbb", ".........#...#");
        CHECK_INT(peek(&f, "0123456789x"), 10);
        store(&f, "younger", "#######", "......#");
        unlock(&f, acquire(&f, "0123456789Bbbb"));
        evict_interior(&f, 0, 100);
        evict_interior(&f, 1, 100);
        /* The end is older than either leaf: it is evicted first, and then only what is needed. */
        CHECK_INT(evict_tails(&f, side, 1), side == 0 ? 3 : 1);
        CHECK_INT(peek(&f, "0123456789x"), 0);
        CHECK_INT(peek(&f, "0123456789Bbbb"), 14);
        CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 3);
        close_sided(&f);
    }
}

/* An end is kept on request, once, and only where there is something to keep. */
TEST(tree_state, an_end_is_kept_on_request)
{
    struct sided f;
    open_sided(&f, STATE, UINT32_MAX);
    node_id node = acquire(&f, "0123456789");
    prefix_tree_keep_end(f.tree, node); /* of a root */
    node = insert(&f, node, "01234", "....#", "");
    prefix_tree_keep_end(f.tree, node);
    prefix_tree_keep_end(f.tree, node);
    CHECK_INT(f.tree->ends.nodes[node].n_forks, 1);
    node = insert(&f, node, "56789", "....#", "");
    CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, 3);
    prefix_tree_withdraw(f.tree, node, 5);
    prefix_tree_keep_end(f.tree, node); /* of what is found no more */
    CHECK_INT(f.tree->ends.nodes[node].n_forks, 0);
    unlock(&f, node);
    CHECK_INT(evict_interior(&f, 0, 9), 0);
    CHECK_INT(peek(&f, "0123456789"), 5);
    close_sided(&f);
}

/* The upper node of three loses its only copy, and with it its place in the list. What becomes
 * interior when they become one is still found, though it comes before what is looked at next:
 * nothing, a node that was used later, or the node above. */
TEST(tree_state, what_becomes_interior_at_the_border_is_found)
{
    enum { NOTHING, LATER, ABOVE, CASES };
    for (int next = NOTHING; next < CASES; next++) {
        struct sided f;
        open_sided(&f, STATE, 2);
        node_id above = acquire(&f, "");
        prefix_tree_lock(f.tree, above);
        node_id top = next == ABOVE ? insert(&f, above, "wxyz", "...#", "####") : above;
        if (next == ABOVE) {
            prefix_tree_lock(f.tree, top);
            prefix_tree_unlock(f.tree, above, ++f.now_ns);
            above = top;
        }
        top = insert(&f, top, "0123", "#...", "####");
        prefix_tree_lock(f.tree, top);
        node_id middle = insert(&f, top, "4567", "...#", "####");
        prefix_tree_lock(f.tree, middle);
        node_id low = insert(&f, middle, "89ab", "...#", "####");
        prefix_tree_keep_end(f.tree, top);
        prefix_tree_keep_end(f.tree, middle);
        prefix_tree_keep_end(f.tree, above);
        unlock(&f, above);
        unlock(&f, top);
        unlock(&f, middle);
        unlock(&f, low);
        if (next == LATER)
            store(&f, "later", "....#", "#####");
        uint32_t n_nodes = prefix_tree_stats(f.tree)->n_nodes, n_copies = f.sides[0].n_owned;
        CHECK_INT(evict_interior(&f, 0, 1), 1); /* of the upper one */
        evict_interior(&f, 1, 99);
        CHECK_INT(evict_tails(&f, 1, 6), 6); /* the ends of two, and no leaf */
        CHECK_INT(prefix_tree_stats(f.tree)->n_nodes, n_nodes - 2);
        CHECK_INT(f.sides[0].n_owned, n_copies - 1);
        CHECK_INT(evict_interior(&f, 0, 99), 1);
        check_picture(&f, 0, next == ABOVE ? "wxyz0123456789ab" : "0123456789ab",
                      next == ABOVE ? "...#...........#" : "...........#");
        close_sided(&f);
    }
}

TEST(tree_state, what_a_lock_needs_stays_in_the_side_that_is_asked)
{
    struct sided f;
    open_sided(&f, 2, STATE);
    node_id top = hold(&f, "01234567", "########", ".......#");
    prefix_tree_lock(f.tree, top);
    node_id end = insert(&f, top, "abcd", "####", "...#");
    evict_interior(&f, 0, 100);
    struct side_need needs[] = {{end, 1}, {top, 0}}; /* one has its state elsewhere */
    CHECK_INT(prefix_tree_evict_tails(f.tree, 1, 100, needs, 2, ++f.now_ns), 1);
    check_picture(&f, 1, "01234567abcd", "...........#");
    check_picture(&f, 0, "01234567abcd", ".....###.###");
    needs[0].n = 2;
    CHECK_INT(prefix_tree_evict_tails(f.tree, 0, 100, needs, 2, ++f.now_ns), 4);
    check_picture(&f, 0, "01234567abcd", "..........##");
    CHECK_INT(peek(&f, "01234567abcd"), 12);
    unlock(&f, end);
    unlock(&f, top);
    close_sided(&f);
}

TEST(tree_state, what_is_withdrawn_invalid_or_old_gives_back_all)
{
    struct sided f;
    open_sided(&f, 2, STATE);
    node_id node = hold(&f, "0123456789", "##########", "....#....#");
    prefix_tree_withdraw(f.tree, node, 5);
    check_laws(&f);
    CHECK_INT(peek(&f, "0123456789"), 5);
    unlock(&f, node);
    const struct side_stats *stats = prefix_tree_stats(f.tree)->sides;
    CHECK(stats[0].cleared == 5 && stats[1].cleared == 1);
    store(&f, "another", "#######", "......#");
    CHECK_INT(prefix_tree_expire(f.tree, f.now_ns - 1, UINT32_MAX, f.now_ns), 5);
    CHECK(stats[0].expired == 5 && stats[1].expired == 1);
    prefix_tree_invalidate(f.tree, NULL);
    CHECK_INT(evict_interior(&f, 1, 1), 1); /* the invalid first, as a whole */
    CHECK(stats[0].cleared == 12 && stats[1].cleared == 2);
    CHECK_INT(f.sides[0].n_owned + f.sides[1].n_owned + f.pool.n_owned, 0);
    close_sided(&f);
}

/* A match is looked up again if the tree has changed since, whatever changed. */
TEST(tree_state, a_match_of_another_time_is_renewed)
{
    struct sided f;
    const char *text = "0123456789";
    open_sided(&f, STATE, UINT32_MAX);
    struct tree_match none = match(&f, text);
    CHECK(none.length == 0 && none.walked == 0);
    store(&f, text, "....#....#", "");
    unlock(&f, acquire_as(&f, text, none)); /* there was no root, and no node */
    CHECK_INT(f.length, 10);

    struct tree_match whole = match(&f, text), cut = match(&f, "012345");
    unlock(&f, acquire_as(&f, text, whole)); /* nothing has changed since */
    CHECK_INT(f.length, 10);
    store(&f, "01234X", "....##", ""); /* splits the node */
    unlock(&f, acquire_as(&f, text, whole));
    CHECK_INT(f.length, 10);
    unlock(&f, acquire_as(&f, "012345", cut));
    CHECK_INT(f.length, 5);

    struct tree_match before = match(&f, text);
    CHECK_INT(prefix_tree_evict(f.tree, 1, UINT32_MAX, f.now_ns), 1); /* X */
    CHECK_INT(prefix_tree_evict(f.tree, 1, UINT32_MAX, f.now_ns), 5); /* 5 to 9 */
    unlock(&f, acquire_as(&f, text, before));
    CHECK_INT(f.length, 5);

    before = match(&f, text);
    node_id node = acquire(&f, text);
    prefix_tree_withdraw(f.tree, node, 0);
    unlock(&f, acquire_as(&f, text, before));
    CHECK_INT(f.length, 0);
    unlock(&f, node);

    store(&f, text, "....#....#", "");
    before = match(&f, "01234567");
    CHECK_INT(evict_interior(&f, 0, 1), 1); /* no node changed, but the copy has gone */
    unlock(&f, acquire_as(&f, "01234567", before));
    CHECK_INT(f.length, 0);

    before = match(&f, text);
    prefix_tree_invalidate(f.tree, NULL);
    struct miss miss;
    uint64_t tokens[MAX_TEXT];
    uint32_t n = spell(text, tokens);
    prefix_tree_explain(f.tree, 0, tokens, n, &before, false, &miss);
    CHECK_INT(miss.reason, MISS_CLEARED);
    unlock(&f, acquire_as(&f, text, before));
    CHECK_INT(f.length, 0);
    close_sided(&f);
}

/* The same for each kind of change by itself: a split, a node that grows, a copy that comes. */
TEST(tree_state, a_match_is_renewed_after_any_single_change)
{
    struct sided f;
    open_sided(&f, 0, UINT32_MAX); /* a side without which any position can be resumed */
    store(&f, "0123456789", "", "");
    struct tree_match first = match(&f, "01234x"), second = match(&f, "01234x");
    node_id node = acquire_as(&f, "01234x", first); /* splits */
    unlock(&f, acquire_as(&f, "01234x", second));
    unlock(&f, node);
    CHECK_INT(f.length, 5);
    node = hold(&f, "abcde", "", "");
    first = match(&f, "abcdefghij");
    node = insert(&f, node, "fghij", "", ""); /* grows */
    unlock(&f, acquire_as(&f, "abcdefghij", first));
    CHECK_INT(f.length, 10);
    unlock(&f, node);
    close_sided(&f);

    open_sided(&f, STATE, UINT32_MAX);
    store(&f, "0123456789", "", "");
    first = match(&f, "0123456789");
    CHECK_INT(first.length, 0);
    node = insert(&f, acquire(&f, ""), "0123456789", ".........#", ""); /* brings a copy alone */
    unlock(&f, acquire_as(&f, "0123456789", first));
    CHECK_INT(f.length, 10);
    unlock(&f, node);
    close_sided(&f);
}

/* Every position is needed: nothing is interior, and nothing resumes after a gap. */
TEST(tree_state, a_side_may_need_all_positions)
{
    struct sided f;
    open_sided(&f, UINT32_MAX, UINT32_MAX);
    store(&f, "0123456789", "##########", "");
    CHECK_INT(peek(&f, "0123456789"), 10);
    CHECK_INT(evict_interior(&f, 0, 100), 0);
    store(&f, "abcdefghij", "###.######", "");
    CHECK_INT(peek(&f, "abcdefghij"), 3);
    close_sided(&f);
}

TEST(tree_state, a_node_takes_no_more_memory_than_a_window_did)
{
    uint32_t none = prefix_tree_page_bytes(0);
    CHECK_INT(sizeof(struct tree_node), 64);
    CHECK_INT(prefix_tree_page_bytes(1) - none, 52);
    CHECK_INT(prefix_tree_page_bytes(2) - none, 52 + 28);
}

/* One lie at a time, in the data about the second side: the check finds it. */
#define CHECK_LIE(what, value)                                                                     \
    do {                                                                                           \
        uint64_t truth_ = (what);                                                                  \
        CHECK(prefix_tree_check(f.tree));                                                          \
        (what) = (value);                                                                          \
        CHECK_SAYS_NO(prefix_tree_check(f.tree));                                                  \
        (what) = truth_;                                                                           \
    } while (0)

TEST(tree_state, the_check_finds_lies_in_the_second_side)
{
    struct sided f;
    open_sided(&f, 2, STATE);
    store(&f, "another one", "", "..........#");
    node_id node = hold(&f, "0123456789", "##########", "..#..#...#");
    struct tree_side *s = &f.tree->sides[1];
    struct node_side *x = &s->nodes[node];
    uint32_t second = f.sides[1].next[x->first];
    CHECK_LIE(x->n, x->n + 1);
    CHECK_LIE(x->n_gaps, 0);
    CHECK_LIE(x->first, second);
    CHECK_LIE(f.sides[1].prev[second], PAGE_NONE);
    CHECK_LIE(f.sides[1].token[second], f.sides[1].token[x->first]);
    CHECK_LIE(s->page[f.tree->nodes[node].last], PAGE_NONE);
    CHECK_LIE(f.sides[1].n_owned, f.sides[1].n_owned - 1);
    CHECK_LIE(s->oldest, s->newest);
    CHECK_LIE(s->next, NODE_NONE);
    CHECK(prefix_tree_check(f.tree));
    unlock(&f, node);
    close_sided(&f);
}

TEST(tree_state, misuse_asserts)
{
    struct sided f;
    uint32_t page;
    struct prefix_tree *tree;
    struct error err;
    open_sided(&f, STATE, UINT32_MAX);
    CHECK_ABORTS(prefix_tree_evict_interior(f.tree, 1, 1, 1));
    CHECK_ABORTS(prefix_tree_evict_tails(f.tree, 1, 1, NULL, 0, 1));
    node_id node = hold(&f, "01", "##", "");
    CHECK_ABORTS(prefix_tree_side_pages(f.tree, 1, node, 1, &page));
    CHECK_ABORTS(prefix_tree_side_pages(f.tree, 0, node, 3, &page));
    unlock(&f, node);
    struct prefix_tree_options options = {
        .pool = &f.pool, .max_nodes = 4, .n_sides = TREE_MAX_SIDES + 1};
    CHECK_ABORTS(prefix_tree_open(&tree, &options, &err));
    close_sided(&f);
}
