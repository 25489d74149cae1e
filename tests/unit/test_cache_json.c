/* The cache as JSON: numbers, times, texts and nesting, from what a scheduler could report. */
#include "test.h"

#include <stdlib.h>

#include "base/json.h"
#include "serve/cache_json.h"

static struct error err;
static struct arena arena;
static struct strbuf out;
static struct api_keys keys;
static struct tokenizer *tokenizer;

static struct cache_view view_open(void)
{
    CHECK_INT(tokenizer_open_bytes(&tokenizer, NULL, &err), 0);
    CHECK_INT(api_keys_add(&keys, "acme:k", &err), 0);
    return (struct cache_view){.model_name = "m",
                               .tokenizer = tokenizer,
                               .keys = &keys,
                               .page_bytes = 100,
                               .now_ns = 1000000000000,
                               .now_unix = 1700000000};
}

static void view_close(void)
{
    tokenizer_close(tokenizer);
    api_keys_free(&keys);
    strbuf_free(&out);
    arena_free(&arena);
}

static const struct json *written(void)
{
    const struct json *root = json_parse(&arena, strbuf_str(&out), out.len, &err);
    CHECK(root && root->type == JSON_OBJECT);
    return root;
}

/* The value at "a.b.0.c", which must be there. */
static const struct json *at(const struct json *value, const char *path)
{
    char copy[128], *rest = copy;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *part; (part = strsep(&rest, "."));) {
        const struct json *child = value->first;
        if (value->type == JSON_ARRAY)
            for (int i = atoi(part); child && i > 0; i--)
                child = child->next;
        else
            child = json_get(value, part);
        if (!child)
            test_fail(__FILE__, __LINE__, "there is no %s in %s (%s)", part, path, out.data);
        value = child;
    }
    return value;
}

#define CHECK_AT(root, path, want) CHECK_STR(at(root, path)->text, want)

static struct tree_entry entry(node_id node, node_id parent, const char *text)
{
    struct tree_entry e = {.node = node, .parent = parent, .ns = cache_namespace(1, -1, -1)};
    for (; *text && e.n_tokens < ENTRY_PREVIEW; text++)
        e.tokens[e.n_tokens++] = cache_token_text((unsigned char)*text);
    e.length = e.n_tokens;
    return e;
}

TEST(cache_json, bytes_are_those_of_both_groups)
{
    struct cache_view v = view_open();
    v.window_page_bytes = 1000;
    v.stats = (struct scheduler_stats){
        .n_pages = 200,
        .n_free = 50,
        .sides[0] = {.n_pages = 40, .n_free = 10, .n_owned = 25, .n_private = 5}};
    v.stats.tree = (struct tree_stats){
        .evicted_pages = 11,
        .cleared_pages = 2,
        .sides[0] = {.evicted_interior = 3, .evicted_tails = 4, .cleared = 1}};
    struct tree_entry e = entry(5, 1, "abcdef");
    e.n_side[0] = 4;
    struct cache_query q = {
        .type = QUERY_ENTRIES, .entries = &e, .n_entries = 1, .max_entries = 1, .n_events = 2};
    q.events[0] = (struct pressure_event){.group = 1, .wanted = 7, .freed = 9};
    cache_list_write(&out, &v, &q);
    const struct json *root = written();
    CHECK_AT(root, "budget.bytes", "60000");
    CHECK_AT(root, "used.bytes", "45000");
    CHECK_AT(root, "window.pages", "40");
    CHECK_AT(root, "window.bytes", "40000");
    CHECK_AT(root, "window.free", "10");
    CHECK_AT(root, "window.cached", "25");
    CHECK_AT(root, "window.in_use", "5");
    CHECK_AT(root, "window.evicted_interior", "3");
    CHECK_AT(root, "window.evicted_tails", "4");
    CHECK_AT(root, "evicted.bytes", "8100");
    CHECK_AT(root, "expired.bytes", "0");
    CHECK_AT(root, "cleared.bytes", "1200");
    CHECK_AT(root, "data.0.bytes", "4600");
    CHECK_AT(root, "data.0.window_tokens", "4");
    CHECK_AT(root, "pressure.0.group", "window");
    CHECK_AT(root, "pressure.1.group", "full");
    view_close();
}

TEST(cache_json, list_has_the_numbers)
{
    struct cache_view v = view_open();
    v.stats = (struct scheduler_stats){.n_pages = 200,
                                       .n_free = 50,
                                       .n_owned = 130,
                                       .n_private = 20,
                                       .prompt_tokens = 80,
                                       .cached_tokens = 60,
                                       .shared_tokens = 10,
                                       .stopped = 1,
                                       .ran_out = 2,
                                       .canceled = 3,
                                       .failed = 4,
                                       .preempted = 5,
                                       .retried = 6,
                                       .forked = 7};
    v.stats.lookups[MATCH_MISS] = 1;
    v.stats.lookups[MATCH_COMMON] = 2;
    v.stats.lookups[MATCH_SUPERSEQUENCE] = 3;
    v.stats.lookups[MATCH_PREFIX] = 4;
    v.stats.tree = (struct tree_stats){.evicted_pages = 11,
                                       .evicted_nodes = 12,
                                       .n_entries = 9,
                                       .n_nodes = 15,
                                       .n_namespaces = 2,
                                       .n_pinned = 8};
    v.stats.tree.entries_by_depth[1] = 1;
    v.stats.tree.entries_by_depth[5] = 2;
    v.stats.tree.entries_by_depth[TREE_DEPTH_BUCKETS - 1] = 6;
    struct cache_query q = {.type = QUERY_ENTRIES, .cursor = 33};
    cache_list_write(&out, &v, &q);
    const struct json *root = written();
    CHECK_AT(root, "budget.tokens", "200");
    CHECK_AT(root, "budget.bytes", "20000");
    CHECK_AT(root, "used.tokens", "150");
    CHECK_AT(root, "used.bytes", "15000");
    CHECK_AT(root, "usage_percent", "75.0");
    CHECK_AT(root, "pages.free", "50");
    CHECK_AT(root, "pages.cached", "130");
    CHECK_AT(root, "pages.in_use", "20");
    CHECK_AT(root, "pages.pinned", "8");
    CHECK_AT(root, "hits.prefix", "4");
    CHECK_AT(root, "hits.supersequence", "3");
    CHECK_AT(root, "hits.common", "2");
    CHECK_AT(root, "misses", "1");
    CHECK_AT(root, "hit_rate", "0.75");
    CHECK_AT(root, "mean_match", "5.0");
    CHECK_AT(root, "shared_in_flight_tokens", "10");
    CHECK_AT(root, "evicted.nodes", "12");
    CHECK_AT(root, "evicted.bytes", "1100");
    CHECK_AT(root, "entries", "9");
    CHECK_AT(root, "namespaces", "2");
    CHECK_INT(at(root, "entries_by_depth")->count, 3);
    CHECK_AT(root, "entries_by_depth.1.from_tokens", "16");
    CHECK_AT(root, "entries_by_depth.1.to_tokens", "31");
    CHECK_AT(root, "entries_by_depth.1.entries", "2");
    CHECK(at(root, "entries_by_depth.2.to_tokens")->type == JSON_NULL);
    CHECK_AT(root, "requests.stop", "1");
    CHECK_AT(root, "requests.length", "2");
    CHECK_AT(root, "requests.canceled", "3");
    CHECK_AT(root, "requests.error", "4");
    CHECK_AT(root, "requests.preempted", "5");
    CHECK_AT(root, "requests.retried", "6");
    CHECK_AT(root, "requests.forked", "7");
    CHECK_AT(root, "next", "33");
    view_close();
}

TEST(cache_json, an_empty_cache_divides_by_nothing)
{
    struct cache_view v = view_open();
    struct cache_query q = {.type = QUERY_ENTRIES};
    cache_list_write(&out, &v, &q);
    const struct json *root = written();
    CHECK_AT(root, "hit_rate", "0.0");
    CHECK_AT(root, "mean_match", "0.0");
    CHECK_AT(root, "usage_percent", "0.0");
    CHECK(at(root, "next")->type == JSON_NULL && at(root, "data")->count == 0);
    view_close();
}

TEST(cache_json, entries_have_times_owners_and_text)
{
    struct cache_view v = view_open();
    struct tree_entry entries[3] = {entry(7, 1, "caf\xc3\xa9\x80 \xe2\x82"), entry(8, 1, ""),
                                    entry(9, 1, "x")};
    entries[0].depth = 40;
    entries[0].hits = 3;
    entries[0].locks = 2;
    entries[0].created_ns = v.now_ns - 90 * UINT64_C(1000000000);
    entries[0].used_ns = v.now_ns - 1500000000;
    entries[1].ns = cache_namespace(0, -1, -1);
    entries[1].pins = 1;
    entries[1].n_tokens = 4;
    entries[1].tokens[0] = cache_token_image(5, 0, 2);
    entries[1].tokens[1] = cache_token_image(5, 1, 2);
    entries[1].tokens[2] = cache_token_text('?');
    entries[1].tokens[3] = cache_token_text('!');
    entries[1].last = cache_token_owned(CACHE_TOKEN_TEXT, 1, '.');
    entries[2].ns = cache_namespace(0, -1, -1);
    entries[2].used_ns = v.now_ns + 5; /* by a step after the clock was read */
    struct cache_query q = {.type = QUERY_ENTRIES, .entries = entries, .n_entries = 3};
    cache_list_write(&out, &v, &q);
    const struct json *root = written();
    CHECK_AT(root, "data.0.id", "7");
    CHECK_AT(root, "data.0.tenant", "acme");
    CHECK_AT(root, "data.0.tokens", "40");
    CHECK_AT(root, "data.0.own_tokens", "9");
    CHECK_AT(root, "data.0.bytes", "900");
    CHECK_AT(root, "data.0.created", "1699999910");
    CHECK_AT(root, "data.0.last_used", "1699999999");
    CHECK_AT(root, "data.0.idle_s", "1.5");
    CHECK(at(root, "data.0.locked")->boolean && !at(root, "data.0.pinned")->boolean);
    CHECK_AT(root, "data.0.text", "caf\xc3\xa9\xef\xbf\xbd ");
    CHECK_AT(root, "data.1.text", "<image>?!");
    CHECK_AT(root, "data.1.tenant", "acme");
    CHECK(!at(root, "data.1.locked")->boolean && at(root, "data.1.pinned")->boolean);
    CHECK(at(root, "data.2.tenant")->type == JSON_NULL);
    CHECK_AT(root, "data.2.idle_s", "0.0");
    view_close();
}

TEST(cache_json, pressure_is_told)
{
    struct cache_view v = view_open();
    struct cache_query q = {.type = QUERY_ENTRIES, .n_events = 1};
    q.events[0] = (struct pressure_event){
        .at_ns = v.now_ns - 2000000000, .wanted = 10, .freed = 12, .n_nodes = PRESSURE_NODES + 3};
    q.events[0].nodes[0].digest = 0xabc;
    q.events[0].nodes[0].depth = 30;
    q.events[0].nodes[0].freed = 11;
    q.events[0].nodes[0].hits = 4;
    q.events[0].nodes[0].used_ns = v.now_ns - 5000000000;
    cache_list_write(&out, &v, &q);
    const struct json *root = written();
    CHECK_AT(root, "pressure.0.ago_s", "2.0");
    CHECK_AT(root, "pressure.0.wanted_tokens", "10");
    CHECK_AT(root, "pressure.0.freed_tokens", "12");
    CHECK_AT(root, "pressure.0.nodes", "7");
    CHECK_INT(at(root, "pressure.0.entries")->count, PRESSURE_NODES);
    CHECK_AT(root, "pressure.0.entries.0.digest", "0000000000000abc");
    CHECK_AT(root, "pressure.0.entries.0.tokens", "30");
    CHECK_AT(root, "pressure.0.entries.0.freed_tokens", "11");
    CHECK_AT(root, "pressure.0.entries.0.hits", "4");
    CHECK_AT(root, "pressure.0.entries.0.idle_s", "3.0");
    view_close();
}

/* Parents before children, but not as a walk would meet them. */
TEST(cache_json, nodes_are_nested)
{
    struct cache_view v = view_open();
    struct tree_entry entries[] = {entry(1, 0, ""),   entry(2, 0, ""),   entry(30, 1, "a"),
                                   entry(20, 1, "b"), entry(10, 2, "c"), entry(5, 20, "d"),
                                   entry(6, 30, "e"), entry(4, 20, "f"), entry(3, 5, "g")};
    uint32_t n = sizeof entries / sizeof *entries;
    entries[2].pins = 1;
    entries[3].locks = 1;
    entries[3].n_children = 3;
    entries[4].ns = cache_namespace(0, -1, -1);
    struct cache_query q = {.type = QUERY_OUTLINE, .entries = entries, .n_entries = n};
    cache_tree_write(&out, &v, &q, n);
    const struct json *root = written();
    CHECK(!at(root, "truncated")->boolean);
    CHECK_AT(root, "object", "cache.tree");
    CHECK_AT(root, "model", v.model_name);
    CHECK_AT(root, "nodes", "9");
    CHECK(at(root, "data.0.children.0.pinned")->boolean);
    CHECK(!at(root, "data.0.children.1.pinned")->boolean);
    CHECK(!at(root, "data.0.children.0.locked")->boolean);
    CHECK(at(root, "data.0.children.1.locked")->boolean);
    CHECK_INT(at(root, "data")->count, 2);
    CHECK_AT(root, "data.0.children.0.id", "30");
    CHECK_AT(root, "data.0.children.0.text", "a");
    CHECK_AT(root, "data.0.children.0.tenant", "acme");
    CHECK_AT(root, "data.0.children.0.children.0.id", "6");
    CHECK_AT(root, "data.0.children.1.id", "20");
    CHECK_AT(root, "data.0.children.1.n_children", "3");
    CHECK_INT(at(root, "data.0.children.1.children")->count, 2);
    CHECK_AT(root, "data.0.children.1.children.0.id", "5");
    CHECK_AT(root, "data.0.children.1.children.0.children.0.text", "g");
    CHECK_AT(root, "data.0.children.1.children.1.id", "4");
    CHECK_AT(root, "data.1.children.0.id", "10");
    CHECK(at(root, "data.1.children.0.tenant")->type == JSON_NULL);
    strbuf_clear(&out);
    cache_tree_write(&out, &v, &q, n - 1);
    root = written();
    CHECK(at(root, "truncated")->boolean);
    CHECK_INT(at(root, "data.0.children.1.children.0.children")->count, 0);
    view_close();
}
