/* prefix_tree_check and page_pool_check find every lie: a tree with a bit of everything is
 * corrupted one field at a time, in each number and link that it stores twice, and must pass again
 * when the field is restored. */
#include "cache/tree_node.h"

#include <fcntl.h>
#include <unistd.h>

#include "test.h"
#include "tree_lookup.h"
#include "test_death.h"

enum { PAGES = 200, NODES = 64, NOW = 1000 };

static struct page_pool pool;
static struct image_table *images;
static struct prefix_tree *tree;
/* A path, one that was withdrawn with what is below it, one of an invalid namespace, an image. */
enum { PATH, WITHDRAWN, BELOW, INVALID, IMAGE, N_HELD };
static node_id held[N_HELD];

/* The checks log what they find; nobody needs to see that here. */
static bool is_believed(void)
{
    fflush(stderr);
    int saved = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
    CHECK(saved >= 0 && nowhere >= 0);
    dup2(nowhere, STDERR_FILENO);
    bool yes = (!tree || prefix_tree_check(tree)) && page_pool_check(&pool);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(nowhere);
    return yes;
}

#define CHECK_LIE(what, value) CHECK_LIE_TO(is_believed, what, value)
#define CHECK_LIE_TO(asked, what, value)                                                           \
    do {                                                                                           \
        uint64_t truth_ = (what);                                                                  \
        CHECK(asked());                                                                            \
        (what) = (value);                                                                          \
        CHECK(truth_ != (what));                                                                   \
        bool believed_ = asked();                                                                  \
        (what) = (truth_);                                                                         \
        if (believed_)                                                                             \
            test_fail(__FILE__, __LINE__, "believed that %s is %s", #what, #value);                \
    } while (0)

static node_id hold(uint64_t ns, const uint64_t *tokens, uint32_t n)
{
    uint32_t pages[PAGES], length, claimed;
    enum match_kind kind;
    node_id node = tree_acquire(tree, ns, tokens, n, NOW, &length, &kind);
    for (uint32_t i = length; i < n; i++)
        pages[i] = page_pool_take(&pool, 1, PAGE_NONE).first;
    node = prefix_tree_insert(tree, node, tokens + length, pages + length, NULL, n - length, NOW,
                              &claimed);
    CHECK(node != NODE_NONE && claimed == n - length);
    return node;
}

static node_id hold_text(uint64_t ns, const char *text)
{
    uint64_t tokens[PAGES];
    uint32_t n = 0;
    for (; text[n]; n++)
        tokens[n] = cache_token_text(text[n]);
    return hold(ns, tokens, n);
}

static void store(uint64_t ns, const char *text)
{
    prefix_tree_unlock(tree, hold_text(ns, text), NOW);
}

/* The node in which the text ends. */
static node_id find(uint64_t ns, const char *text)
{
    uint64_t tokens[PAGES];
    uint32_t n = 0;
    for (; text[n]; n++)
        tokens[n] = cache_token_text(text[n]);
    struct tree_match m = tree_walk(tree, edge_table_find(&tree->edges, NODE_NONE, ns), tokens, n);
    CHECK_INT(m.length, n);
    return m.node;
}

static node_id root_of(uint64_t ns)
{
    return edge_table_find(&tree->edges, NODE_NONE, ns);
}

static void setup(void)
{
    struct error err;
    CHECK_INT(page_pool_open(&pool, PAGES, &err), 0);
    CHECK_INT(image_table_open(&images, 4, &err), 0);
    struct prefix_tree_options options = {
        .pool = &pool, .images = images, .max_nodes = NODES, .max_pinned = PAGES};
    CHECK_INT(prefix_tree_open(&tree, &options, &err), 0);

    store(1, "abcdef");
    store(1, "abcxyz"); /* abc ─┬─ def
                         *      └─ xyz */
    store(1, "going");
    CHECK_INT(prefix_tree_clear(tree, &(uint64_t){99}, 1, NOW), 0);
    node_id pinned = hold_text(2, "pinned");
    CHECK(prefix_tree_pin(tree, pinned, UINT64_MAX));
    prefix_tree_unlock(tree, pinned, NOW);
    pinned = hold_text(2, "pinned too");
    CHECK(prefix_tree_pin(tree, pinned, UINT64_MAX));
    prefix_tree_unlock(tree, pinned, NOW);
    pinned = hold_text(4, "and pinned here");
    CHECK(prefix_tree_pin(tree, pinned, UINT64_MAX));
    prefix_tree_unlock(tree, pinned, NOW);
    store(2, "other");

    held[PATH] = hold_text(1, "locked");
    held[WITHDRAWN] = hold_text(1, "withdrawn");
    held[BELOW] = hold_text(1, "withdrawn and more");
    prefix_tree_withdraw(tree, held[WITHDRAWN], 4);
    held[INVALID] = hold_text(3, "old and in use");
    store(3, "old and not in use");
    prefix_tree_invalidate(tree, &(uint64_t){3});

    struct image_key key = {.sha256 = {1}};
    struct image_shape shape = {.length = 3};
    uint32_t image = image_table_intern(images, &key, &shape);
    held[IMAGE] = hold(1,
                       (uint64_t[]){cache_token_image(image, 0, 3), cache_token_image(image, 1, 3),
                                    cache_token_image(image, 2, 3)},
                       3);
    image_table_release(images, image);
    /* A node in two runs of pages. */
    uint32_t page = page_pool_take(&pool, 1, PAGE_NONE).first, claimed = 0;
    held[PATH] = prefix_tree_insert(tree, held[PATH], &(uint64_t){cache_token_text('!')}, &page,
                                    NULL, 1, NOW, &claimed);
    CHECK_INT(claimed, 1);
    /* A node that was used and no longer is. */
    node_id gone = hold_text(5, "gone");
    prefix_tree_unlock(tree, gone, NOW);
    CHECK_INT(prefix_tree_clear(tree, &(uint64_t){5}, 9, NOW), 4);
    CHECK(tree->unused != NODE_NONE);
}

static void teardown(void)
{
    CHECK(is_believed());
    for (int i = 0; i < N_HELD; i++)
        prefix_tree_unlock(tree, held[i], NOW);
    CHECK(is_believed());
    prefix_tree_close(tree);
    image_table_close(images);
    CHECK_INT(pool.n_free, PAGES);
    page_pool_close(&pool);
}

TEST(tree_check, finds_lies_about_pages)
{
    setup();
    struct tree_node *x = &tree->nodes[find(1, "abcdef")], *image = &tree->nodes[held[IMAGE]];
    struct tree_node *other = &tree->nodes[find(1, "abcxyz")];
    uint32_t first = x->first, second = pool.next[first];
    CHECK_LIE(x->length, 0);
    CHECK_LIE(x->length, PAGES + 1);
    CHECK_LIE(x->length, 2);
    CHECK_LIE(x->first, PAGES);
    CHECK_LIE(x->first, second);
    CHECK_LIE(x->last, first);
    CHECK_LIE(x->depth, 5);
    CHECK_LIE(pool.prev[second], PAGE_NONE);
    CHECK_LIE(pool.next[first], PAGES);
    CHECK_LIE(pool.next[first], x->last);
    CHECK_LIE(pool.next[x->last], first);
    CHECK_LIE(pool.token[second], cache_token_text('?'));
    CHECK_LIE(pool.digest[second], 7);
    CHECK_LIE(pool.free_map[first / 64], pool.free_map[first / 64] ^ (uint64_t)1 << first % 64);
    CHECK_LIE(tree->nodes[held[PATH]].is_run, 1);
    CHECK_LIE(other->first, first); /* two nodes with one page */
    CHECK_LIE(tree->n_images, 0);
    CHECK_LIE(x->first, other->first);
    /* A node that ends inside an image. */
    uint32_t last = image->last, before = pool.prev[last];
    image->last = before;
    image->length--;
    image->depth--;
    pool.next[before] = PAGE_NONE;
    CHECK(!is_believed());
    image->last = last;
    image->length++;
    image->depth++;
    pool.next[before] = last;
    teardown();
}

TEST(tree_check, finds_images_that_are_none)
{
    setup();
    uint32_t image = cache_token_image_index(pool.token[tree->nodes[held[IMAGE]].first]);
    node_id node = hold(8, (uint64_t[]){cache_token_text(1), cache_token_image(image, 0, 1)}, 2);
    CHECK(!is_believed()); /* another length */
    prefix_tree_unlock(tree, node, NOW);
    CHECK_INT(prefix_tree_clear(tree, &(uint64_t){8}, 9, NOW), 2);
    /* One that breaks off is not taken at all. */
    CHECK_ABORTS(hold(8, (uint64_t[]){cache_token_image(image, 0, 3), cache_token_text(1)}, 2));
    teardown();
}

TEST(tree_check, finds_lies_about_shape)
{
    setup();
    node_id abc = find(1, "abc"), def = find(1, "abcdef"), xyz = find(1, "abcxyz");
    struct tree_node *nodes = tree->nodes, *root = &nodes[root_of(1)];
    CHECK_LIE(nodes[abc].first_child, tree->n_made + 1);
    CHECK_LIE(nodes[abc].first_child, def); /* the one that was used first */
    CHECK_LIE(nodes[def].parent, xyz);
    CHECK_LIE(nodes[def].prev_sibling, NODE_NONE);
    CHECK_LIE(nodes[xyz].next_sibling, NODE_NONE);
    CHECK_LIE(nodes[xyz].stamp, nodes[def].stamp);
    CHECK_LIE(nodes[abc].stamp, nodes[xyz].stamp - 1);
    CHECK_LIE(nodes[xyz].stamp, tree->now + 1);
    CHECK_LIE(nodes[def].space, nodes[def].space + 1);
    CHECK_LIE(nodes[held[PATH]].locks, 3);
    CHECK_LIE(nodes[held[PATH]].gone, 1);
    CHECK_LIE(nodes[held[PATH]].cut, 1);
    CHECK_LIE(nodes[held[WITHDRAWN]].cut, 0);
    CHECK_LIE(nodes[def].gone, 1);
    CHECK_LIE(nodes[held[BELOW]].gone, 0);
    CHECK_LIE(root->length, 1);
    CHECK_LIE(root->depth, 1);
    CHECK_LIE(root->pins, 1);
    CHECK_LIE(root->gone, 1);
    CHECK_LIE(root->cut, 1);
    CHECK_LIE(root->space, 0);
    CHECK_LIE(root->space, tree->n_spaces_made + 1);
    CHECK_LIE(root->space, nodes[root_of(2)].space);
    CHECK_LIE(tree->edges.count, 1);
    CHECK_LIE(tree->n_made, tree->n_made + 1);
    CHECK_LIE(tree->n_made, 2);
    CHECK_LIE(tree->max_nodes, 3);
    CHECK_LIE(tree->unused, nodes[tree->unused].parent);
    CHECK_LIE(tree->unused, def);
    CHECK_LIE(nodes[tree->unused].parent, tree->unused);
    edge_table_remove(&tree->edges, abc, cache_token_text('d'));
    CHECK(!is_believed());
    edge_table_put(&tree->edges, abc, cache_token_text('d'), def);
    /* A root that nothing needs. */
    node_id idle = node_make_root(tree, 77);
    tree_begin_touch(tree, NOW);
    node_touch(tree, idle);
    CHECK(!is_believed());
    root_remove_if_idle(tree, idle);
    teardown();
}

TEST(tree_check, finds_lies_about_recency)
{
    setup();
    node_id def = find(1, "abcdef"), going = find(1, "going"), pinned = find(2, "pinned");
    struct tree_node *nodes = tree->nodes;
    struct tree_space *one = &tree->spaces[nodes[def].space];
    struct recency_list *list = &one->lists[UNPINNED];
    CHECK_INT(list->oldest, def);
    CHECK_LIE(list->oldest, nodes[def].newer);
    CHECK_LIE(list->oldest, NODE_NONE);
    CHECK_LIE(list->newest, def);
    CHECK_LIE(list->at, list->at + 1);
    CHECK_LIE(nodes[def].newer, nodes[nodes[def].newer].newer);
    CHECK_LIE(nodes[def].newer, held[PATH]);
    CHECK_LIE(nodes[def].newer, pinned);
    CHECK_LIE(nodes[going].newer, def);
    CHECK_LIE(nodes[nodes[def].newer].older, NODE_NONE);
    CHECK_LIE(one->n_pages, 0);
    CHECK_LIE(one->n_gone, 0);
    CHECK_LIE(one->cap, 3);
    CHECK_LIE(one->n_pinned, one->n_pinned + 1);
    CHECK_LIE(one->is_valid, false);
    for (int which = 0; which < RECENCY_LISTS; which++) {
        struct space_heap *heap = &tree->heaps[which];
        CHECK(heap->count >= 2);
        CHECK_LIE(heap->count, heap->count - 1);
        /* Swaps the first and the last, consistently. */
        uint32_t last = heap->count - 1, a = heap->items[0], b = heap->items[last];
        heap->items[0] = b;
        heap->items[last] = a;
        CHECK(!is_believed());
        tree->spaces[b].lists[which].at = 0;
        tree->spaces[a].lists[which].at = last;
        CHECK(!is_believed());
        heap->items[0] = a;
        heap->items[last] = b;
        tree->spaces[a].lists[which].at = 0;
        tree->spaces[b].lists[which].at = last;
    }
    teardown();
}

/* Puts a node after another in a list, consistently on both sides. */
static void link_behind(node_id older, node_id newer)
{
    tree->nodes[older].newer = newer;
    tree->nodes[newer].older = older;
}

TEST(tree_check, finds_lists_that_are_linked_well_and_wrong)
{
    setup();
    struct tree_node *nodes = tree->nodes;
    node_id def = find(1, "abcdef"), xyz = find(1, "abcxyz"), other = find(2, "other");
    node_id abc = nodes[xyz].newer, pinned = tree->spaces[nodes[other].space].lists[PINNED].oldest;
    struct recency_list *list = &tree->spaces[nodes[def].space].lists[UNPINNED];
    CHECK(list->oldest == def && nodes[def].newer == xyz && nodes[abc].newer != NODE_NONE);
    struct tree_node saved[] = {nodes[def], nodes[xyz], nodes[abc], nodes[other], nodes[pinned]};
    const node_id saved_ids[] = {def, xyz, abc, other, pinned};

    for (int lie = 0; lie < 4; lie++) {
        struct recency_list saved_list = *list;
        if (lie == 0) { /* one of another namespace */
            link_behind(def, other);
        } else if (lie == 1) { /* a pinned one */
            link_behind(other, pinned);
        } else if (lie == 2) { /* the second before the first */
            list->oldest = xyz;
            nodes[xyz].older = NODE_NONE;
            link_behind(xyz, def);
            link_behind(def, abc);
        } else { /* the list ends early */
            list->newest = xyz;
            nodes[xyz].newer = NODE_NONE;
        }
        CHECK(!is_believed());
        *list = saved_list;
        for (int i = 0; i < 5; i++)
            nodes[saved_ids[i]] = saved[i];
        CHECK(is_believed());
    }
    struct space_heap *heap = &tree->heaps[PINNED];
    CHECK_LIE(heap->items[heap->count - 1], nodes[def].space); /* nothing is pinned there */
    teardown();
}

TEST(tree_check, finds_lies_about_pins)
{
    setup();
    node_id pinned = find(2, "pinned");
    struct tree_node *nodes = tree->nodes;
    CHECK_LIE(nodes[pinned].pins, nodes[pinned].pins + 1);
    CHECK_LIE(tree->stats.n_pins, TREE_MAX_PINS + 1);
    CHECK_LIE(tree->stats.n_pins, 1);
    CHECK_LIE(tree->max_pinned, 3);
    CHECK_LIE(tree->pins[0].node, NODE_NONE);
    CHECK_LIE(tree->pins[0].node, tree->n_made + 1);
    CHECK_LIE(tree->pins[0].node, root_of(2));
    CHECK_LIE(tree->pins[0].node, tree->pins[1].node);
    CHECK_LIE(tree->pins[0].node, held[WITHDRAWN]);
    teardown();
}

TEST(tree_check, finds_lies_about_numbers)
{
    setup();
    struct tree_stats *s = &tree->stats;
    CHECK_LIE(s->n_nodes, s->n_nodes - 1);
    CHECK_LIE(s->n_nodes, s->n_nodes + 1);
    CHECK_LIE(s->n_namespaces, 1);
    CHECK_LIE(s->n_evictable, 0);
    CHECK_LIE(s->n_pinned, 1);
    CHECK_LIE(s->n_invalid, 0);
    CHECK_LIE(s->n_entries, 0);
    CHECK_LIE(s->entries_by_depth[3], 99);
    CHECK_LIE(tree->n_invalid_spaces, 0);
    CHECK_LIE(pool.n_owned, pool.n_owned - 1);
    teardown();
}

/* Runs only the pool's check; the tree's would run first and fail. */
static bool pool_is_believed(void)
{
    struct prefix_tree *whole = tree;
    tree = NULL;
    bool yes = is_believed();
    tree = whole;
    return yes;
}

TEST(tree_check, finds_lies_about_the_pool)
{
    setup();
    CHECK_LIE_TO(pool_is_believed, pool.n_free, pool.n_free + 1);
    CHECK_LIE_TO(pool_is_believed, pool.n_free, 0);
    CHECK_LIE_TO(pool_is_believed, pool.n_owned, PAGES);
    CHECK_LIE_TO(pool_is_believed, pool.any_map[0], pool.any_map[0] ^ 1);
    CHECK_LIE_TO(pool_is_believed, pool.cursor, PAGES);
    /* A bit past the last page, counted and not. */
    uint64_t *word = &pool.free_map[PAGES / 64];
    CHECK_LIE_TO(pool_is_believed, *word, *word | (uint64_t)1 << 63);
    *word |= (uint64_t)1 << 63;
    pool.n_free++;
    CHECK(!pool_is_believed());
    pool.n_free--;
    *word ^= (uint64_t)1 << 63;
    teardown();
}
