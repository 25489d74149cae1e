/* The cache as JSON. Pure functions, called on the event loop's thread with the scheduler's
 * answers. Bytes include both groups of KV: the memory that is really used.
 *
 * A page is one token, so the pool's counts of pages are counts of tokens. The tree's times come
 * from the monotonic clock and must be converted before they are shown. */
#include "serve/cache_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/minmax.h"
#include "prompt/unicode/utf8_stream.h"

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)((to_ns - from_ns) / 1000000) / 1000 : 0; /* milliseconds */
}

static int64_t unix_of(const struct cache_view *v, uint64_t at_ns)
{
    uint64_t ago_ns = v->now_ns > at_ns ? v->now_ns - at_ns : 0;
    return v->now_unix - (int64_t)(ago_ns / 1000000000u);
}

static int64_t bytes_of(const struct cache_view *v, uint64_t n_pages, uint64_t n_window)
{
    return (int64_t)(n_pages * v->page_bytes + n_window * v->window_page_bytes);
}

/* ---- statistics --------------------------------------------------------------------------- */

static void amount_add(struct json_writer *w, const char *key, const struct cache_view *v,
                       uint64_t n_pages, uint64_t n_window)
{
    json_object_begin(w, key);
    json_add_int(w, "tokens", (int64_t)n_pages);
    json_add_int(w, "bytes", bytes_of(v, n_pages, n_window));
    json_object_end(w);
}

static void gone_add(struct json_writer *w, const char *key, const struct cache_view *v,
                     uint64_t n_nodes, uint64_t n_pages, uint64_t n_window)
{
    json_object_begin(w, key);
    json_add_int(w, "nodes", (int64_t)n_nodes);
    json_add_int(w, "tokens", (int64_t)n_pages);
    json_add_int(w, "bytes", bytes_of(v, n_pages, n_window));
    json_object_end(w);
}

/* The second group, if there is one. */
static void window_add(struct json_writer *w, const struct cache_view *v)
{
    const struct pool_stats *window = &v->stats.sides[0];
    if (window->n_pages == 0)
        return;
    json_object_begin(w, "window");
    json_add_int(w, "pages", window->n_pages);
    json_add_int(w, "bytes", bytes_of(v, 0, window->n_pages));
    json_add_int(w, "free", window->n_free);
    json_add_int(w, "cached", window->n_owned);
    json_add_int(w, "in_use", window->n_private);
    json_add_int(w, "evicted_interior", (int64_t)v->stats.tree.sides[0].evicted_interior);
    json_add_int(w, "evicted_tails", (int64_t)v->stats.tree.sides[0].evicted_tails);
    json_object_end(w);
}

static void use_add(struct json_writer *w, const struct cache_view *v)
{
    const struct scheduler_stats *s = &v->stats;
    uint32_t n_used = s->n_pages - s->n_free;
    amount_add(w, "budget", v, s->n_pages, s->sides[0].n_pages);
    amount_add(w, "used", v, n_used, s->sides[0].n_pages - s->sides[0].n_free);
    json_add_double(w, "usage_percent", s->n_pages ? 100.0 * n_used / s->n_pages : 0);
    json_object_begin(w, "pages");
    json_add_int(w, "free", s->n_free);
    json_add_int(w, "cached", s->n_owned);
    json_add_int(w, "in_use", s->n_private);
    json_add_int(w, "evictable", s->tree.n_evictable);
    json_add_int(w, "pinned", s->tree.n_pinned);
    json_object_end(w);
    window_add(w, v);
    json_add_int(w, "entries", s->tree.n_entries);
    json_add_int(w, "nodes", s->tree.n_nodes);
    json_add_int(w, "namespaces", s->tree.n_namespaces);
    json_add_int(w, "pins", s->tree.n_pins);
}

static void hits_add(struct json_writer *w, const struct scheduler_stats *s)
{
    uint64_t n_lookups = 0;
    for (int kind = 0; kind < MATCH_KINDS; kind++)
        n_lookups += s->lookups[kind];
    json_object_begin(w, "hits");
    json_add_int(w, "prefix", (int64_t)s->lookups[MATCH_PREFIX]);
    json_add_int(w, "supersequence", (int64_t)s->lookups[MATCH_SUPERSEQUENCE]);
    json_add_int(w, "common", (int64_t)s->lookups[MATCH_COMMON]);
    json_object_end(w);
    json_add_int(w, "misses", (int64_t)s->lookups[MATCH_MISS]);
    json_add_int(w, "prompt_tokens", (int64_t)s->prompt_tokens);
    json_add_int(w, "cached_tokens", (int64_t)s->cached_tokens);
    json_add_int(w, "shared_in_flight_tokens", (int64_t)s->shared_tokens);
    json_add_double(w, "hit_rate",
                    s->prompt_tokens ? (double)s->cached_tokens / (double)s->prompt_tokens : 0);
    json_add_double(w, "mean_match",
                    n_lookups ? (double)(s->cached_tokens - s->shared_tokens) / (double)n_lookups
                              : 0);
}

static void depths_add(struct json_writer *w, const struct tree_stats *tree)
{
    json_array_begin(w, "entries_by_depth");
    for (int digits = 1; digits < TREE_DEPTH_BUCKETS; digits++) {
        if (tree->entries_by_depth[digits] == 0)
            continue;
        json_object_begin(w, NULL);
        json_add_int(w, "from_tokens", (int64_t)1 << (digits - 1));
        if (digits < TREE_DEPTH_BUCKETS - 1)
            json_add_int(w, "to_tokens", ((int64_t)1 << digits) - 1);
        else
            json_add_null(w, "to_tokens");
        json_add_int(w, "entries", tree->entries_by_depth[digits]);
        json_object_end(w);
    }
    json_array_end(w);
}

static void requests_add(struct json_writer *w, const struct scheduler_stats *s)
{
    json_object_begin(w, "requests");
    json_add_int(w, "running", s->n_running);
    json_add_int(w, "waiting", s->n_waiting);
    json_add_int(w, "stop", (int64_t)s->stopped);
    json_add_int(w, "length", (int64_t)s->ran_out);
    json_add_int(w, "canceled", (int64_t)s->canceled);
    json_add_int(w, "error", (int64_t)s->failed);
    json_add_int(w, "preempted", (int64_t)s->preempted);
    json_add_int(w, "retried", (int64_t)s->retried);
    json_add_int(w, "forked", (int64_t)s->forked);
    json_object_end(w);
}

static void pressure_add(struct json_writer *w, const struct cache_view *v,
                         const struct pressure_event *event)
{
    json_object_begin(w, NULL);
    json_add_double(w, "ago_s", seconds_between(event->at_ns, v->now_ns));
    if (v->stats.sides[0].n_pages)
        json_add_string(w, "group", event->group ? "window" : "full");
    json_add_int(w, "wanted_tokens", event->wanted);
    json_add_int(w, "freed_tokens", event->freed);
    json_add_int(w, "nodes", event->n_nodes);
    json_array_begin(w, "entries");
    for (uint32_t i = 0; i < event->n_nodes && i < PRESSURE_NODES; i++) {
        char digest[24];
        snprintf(digest, sizeof digest, "%016" PRIx64, event->nodes[i].digest);
        json_object_begin(w, NULL);
        json_add_string(w, "digest", digest);
        json_add_int(w, "tokens", event->nodes[i].depth);
        json_add_int(w, "freed_tokens", event->nodes[i].freed);
        json_add_int(w, "hits", event->nodes[i].hits);
        json_add_double(w, "idle_s", seconds_between(event->nodes[i].used_ns, event->at_ns));
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

/* ---- entries ------------------------------------------------------------------------------ */

/* The first tokens as text. An incomplete character at the end is omitted. */
static void text_add(struct json_writer *w, const struct cache_view *v, const struct tree_entry *e)
{
    struct strbuf text = STRBUF_INIT;
    struct utf8_stream utf8 = {0};
    for (uint32_t i = 0; i < e->n_tokens; i++) {
        uint64_t token = e->tokens[i];
        size_t len = 0;
        const char *bytes = "";
        if (cache_token_kind(token) == CACHE_TOKEN_TEXT)
            bytes = tokenizer_bytes(v->tokenizer, (int32_t)(uint32_t)token, &len);
        else if (cache_token_image_begun(token) == 1)
            bytes = "<image>", len = 7;
        utf8_stream_add(&utf8, bytes, len, &text);
    }
    json_add_bytes(w, "text", strbuf_str(&text), text.len);
    strbuf_free(&text);
}

/* null: everyone's. */
static void tenant_add(struct json_writer *w, const struct cache_view *v,
                       const struct tree_entry *e)
{
    const char *name = api_keys_tenant_name(v->keys, cache_tenant(e->ns, e->last));
    if (name)
        json_add_string(w, "tenant", name);
    else
        json_add_null(w, "tenant");
}

static void entry_add(struct json_writer *w, const struct cache_view *v, const struct tree_entry *e)
{
    json_object_begin(w, NULL);
    json_add_int(w, "id", e->node);
    json_add_string(w, "model", v->model_name);
    tenant_add(w, v, e);
    json_add_int(w, "tokens", e->depth);
    json_add_int(w, "own_tokens", e->length);
    json_add_int(w, "bytes", bytes_of(v, e->length, e->n_side[0]));
    if (v->stats.sides[0].n_pages)
        json_add_int(w, "window_tokens", e->n_side[0]);
    json_add_int(w, "hits", e->hits);
    json_add_int(w, "images", e->n_images);
    json_add_int(w, "created", unix_of(v, e->created_ns));
    json_add_int(w, "last_used", unix_of(v, e->used_ns));
    json_add_double(w, "idle_s", seconds_between(e->used_ns, v->now_ns));
    json_add_bool(w, "locked", e->locks > 0);
    json_add_bool(w, "pinned", e->pins > 0);
    text_add(w, v, e);
    json_object_end(w);
}

static void statistics_add(struct json_writer *w, const struct cache_view *v,
                           const struct cache_query *q)
{
    const struct tree_stats *tree = &v->stats.tree;
    use_add(w, v);
    hits_add(w, &v->stats);
    gone_add(w, "evicted", v, tree->evicted_nodes, tree->evicted_pages,
             tree->sides[0].evicted_interior + tree->sides[0].evicted_tails);
    gone_add(w, "expired", v, tree->expired_nodes, tree->expired_pages, tree->sides[0].expired);
    gone_add(w, "cleared", v, tree->cleared_nodes, tree->cleared_pages, tree->sides[0].cleared);
    depths_add(w, tree);
    requests_add(w, &v->stats);
    json_array_begin(w, "pressure");
    for (uint32_t i = 0; i < q->n_events; i++)
        pressure_add(w, v, &q->events[i]);
    json_array_end(w);
}

void cache_list_write(struct strbuf *out, const struct cache_view *v, const struct cache_query *q)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_add_string(&w, "object", "cache");
    json_add_string(&w, "model", v->model_name);
    if (!q->tenant) /* the statistics are about everyone */
        statistics_add(&w, v, q);
    json_array_begin(&w, "data");
    for (uint32_t i = 0; i < q->n_entries; i++)
        entry_add(&w, v, &q->entries[i]);
    json_array_end(&w);
    if (q->cursor) {
        char next[16];
        snprintf(next, sizeof next, "%u", q->cursor);
        json_add_string(&w, "next", next);
    } else {
        json_add_null(&w, "next");
    }
    json_object_end(&w);
}

/* ---- the tree ----------------------------------------------------------------------------- */

/* The list of nodes as a tree: links[i] is for node i, links[n] for the root.
 *
 *   entries  [ns][a][b][a.1][a.2]      links  [n].first ─► ns .first ─► a ─next─► b
 *                                                          a .first ─► a.1 ─next─► a.2
 */
struct outline_link {
    uint32_t first, last, next;
};
#define NO_LINK UINT32_MAX

static uint32_t parent_index(const struct tree_entry *entries, uint32_t i, uint32_t top)
{
    for (uint32_t k = i; k-- > 0;)
        if (entries[k].node == entries[i].parent)
            return k;
    return top;
}

static struct outline_link *outline_link(const struct tree_entry *entries, uint32_t n)
{
    struct outline_link *links = malloc((n + 1) * sizeof *links);
    if (!links)
        return NULL;
    for (uint32_t i = 0; i <= n; i++)
        links[i] = (struct outline_link){NO_LINK, NO_LINK, NO_LINK};
    for (uint32_t i = 0; i < n; i++) {
        struct outline_link *parent = &links[parent_index(entries, i, n)];
        *(parent->last == NO_LINK ? &parent->first : &links[parent->last].next) = i;
        parent->last = i;
    }
    return links;
}

static void nodes_add(struct json_writer *w, const struct cache_view *v, const char *key,
                      const struct tree_entry *entries, const struct outline_link *links,
                      uint32_t first)
{
    json_array_begin(w, key);
    for (uint32_t i = first; i != NO_LINK; i = links[i].next) {
        const struct tree_entry *e = &entries[i];
        json_object_begin(w, NULL);
        json_add_int(w, "id", e->node);
        tenant_add(w, v, e);
        json_add_int(w, "tokens", e->depth);
        json_add_int(w, "own_tokens", e->length);
        if (v->stats.sides[0].n_pages)
            json_add_int(w, "window_tokens", e->n_side[0]);
        json_add_int(w, "hits", e->hits);
        if (e->created_ns) /* known to about a second */
            json_add_int(w, "age_s", v->now_unix - unix_of(v, e->created_ns));
        else
            json_add_null(w, "age_s"); /* a namespace is created and dropped with its entries */
        json_add_double(w, "idle_s", seconds_between(e->used_ns, v->now_ns));
        json_add_bool(w, "locked", e->locks > 0);
        json_add_bool(w, "pinned", e->pins > 0);
        text_add(w, v, e);
        json_add_int(w, "n_children", e->n_children);
        nodes_add(w, v, "children", entries, links, links[i].first);
        json_object_end(w);
    }
    json_array_end(w);
}

void cache_tree_write(struct strbuf *out, const struct cache_view *v, const struct cache_query *q,
                      uint32_t limit)
{
    uint32_t n = min_u32(q->n_entries, limit);
    struct outline_link *links = outline_link(q->entries, n);
    struct json_writer w = {.out = out};
    if (!links) {
        out->failed = true;
        return;
    }
    json_object_begin(&w, NULL);
    json_add_string(&w, "object", "cache.tree");
    json_add_string(&w, "model", v->model_name);
    json_add_int(&w, "nodes", n);
    json_add_bool(&w, "truncated", q->n_entries > limit);
    nodes_add(&w, v, "data", q->entries, links, links[n].first);
    json_object_end(&w);
    free(links);
}
