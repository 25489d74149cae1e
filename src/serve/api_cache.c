/* Inspecting and clearing the cache, for admins. Runs on the event loop's thread.
 *
 * A query belongs to the scheduler until `is_done`, even if the client hangs up. So the answer's
 * memory outlives its exchange, and only the pump frees it. */
#include "serve/api_cache.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "prompt/replay_store.h"
#include "serve/cache_json.h"

enum { LIST_LIMIT, LIST_AFTER };
const struct query_param cache_list_params[] = {
    [LIST_LIMIT] = {"limit", "the number of entries on a page", true, 1, 200, 50},
    [LIST_AFTER] = {"after", "the `next` of the previous page", true, 1, UINT32_MAX, 0},
    {0},
};

enum { TREE_DEPTH, TREE_LIMIT };
const struct query_param cache_tree_params[] = {
    [TREE_DEPTH] = {"depth", "the number of levels below the namespaces", true, 0, 32, 3},
    [TREE_LIMIT] = {"limit", "the most nodes to return", true, 1, 1000, 200},
    {0},
};

enum { CLEAR_TENANT };
const struct query_param cache_clear_params[] = {
    [CLEAR_TENANT] = {"tenant", "clear only this tenant's part; absent: everything", false, 0, 0,
                      0},
    {0},
};

struct cache_answer {
    struct cache_query query;
    struct cache_answer *next;
    struct http_exchange *x;              /* NULL: the client hung up */
    uint32_t limit;                       /* of nodes in an outline */
    uint64_t n_cleared, n_cleared_window; /* by the previous query */
    bool clears_shared;                   /* next, clear the namespace of shared prompts */
    bool is_asked;                        /* the query was submitted to the scheduler */
    struct tree_entry entries[];
};

static bool values_read(struct http_exchange *x, const struct query_param *params,
                        struct query_value *values)
{
    struct api_error e;
    if (query_read(http_request(x), params, values, &e) == 0)
        return true;
    api_reply_error(x, &e);
    return false;
}

static void reply_busy(struct http_exchange *x)
{
    struct api_error e;
    api_error_set(&e, 503, NULL, "too many requests about the cache at once; try again soon");
    http_add_field(x, "Retry-After", "1");
    api_reply_error(x, &e);
}

/* Submits the query of an exchange. */
static void answer_begin(struct api *api, struct http_exchange *x, struct cache_answer begin)
{
    struct cache_answer *a = calloc(1, sizeof *a + begin.query.max_entries * sizeof *a->entries);
    if (a) {
        *a = begin;
        a->x = x;
        a->query.entries = a->entries;
        a->is_asked = scheduler_query(api->scheduler, &a->query);
    }
    if (!a || !a->is_asked) {
        free(a);
        reply_busy(x);
        return;
    }
    a->next = api->cache_answers;
    api->cache_answers = a;
    api_tick_soon(api);
}

void cache_list_begin(struct api *api, struct http_exchange *x, const struct requester *who)
{
    struct query_value values[QUERY_MAX_PARAMS];
    if (values_read(x, cache_list_params, values))
        answer_begin(api, x,
                     (struct cache_answer){.query = {.type = QUERY_ENTRIES,
                                                     .tenant = who->is_admin ? 0 : who->tenant,
                                                     .cursor = values[LIST_AFTER].number,
                                                     .max_entries = values[LIST_LIMIT].number}});
}

/* Asks for one more than the limit, to see whether there are more. */
void cache_tree_begin(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct query_value values[QUERY_MAX_PARAMS];
    if (values_read(x, cache_tree_params, values))
        answer_begin(
            api, x,
            (struct cache_answer){.limit = values[TREE_LIMIT].number,
                                  .query = {.type = QUERY_OUTLINE,
                                            .max_level = values[TREE_DEPTH].number,
                                            .max_entries = values[TREE_LIMIT].number + 1}});
}

/* A tenant's entries are in its namespace and, after shared prompts, in everyone's. */
static int clear_tenant(const struct api *api, const char *name, struct cache_answer *a,
                        struct api_error *e)
{
    uint32_t tenant = api_keys_tenant(api->options->keys, name);
    if (tenant == 0)
        return api_error_set(e, 404, "tenant", "no tenant '%s'", name);
    if (api->tenants.share_cache)
        return api_error_set(e, 400, "tenant",
                             "with --share-cache, tenants share one cache: clear all of it");
    a->query.in_one_namespace = true;
    a->query.ns = cache_namespace(tenant, -1, -1);
    a->clears_shared = api->tenants.n_shared > 0;
    return 0;
}

/* Sampled tokens of answers are removed together with their prompts. */
static void clear_replay(struct api *api, const struct cache_query *q)
{
    if (api->replay && q->in_one_namespace)
        replay_store_clear(api->replay, q->ns);
    else if (api->replay)
        replay_store_clear_all(api->replay);
}

void cache_clear_begin(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct query_value values[QUERY_MAX_PARAMS];
    struct cache_answer a = {.query = {.type = QUERY_CLEAR}};
    struct api_error e;
    if (!values_read(x, cache_clear_params, values))
        return;
    if (values[CLEAR_TENANT].is_given && clear_tenant(api, values[CLEAR_TENANT].text, &a, &e)) {
        api_reply_error(x, &e);
        return;
    }
    clear_replay(api, &a.query);
    answer_begin(api, x, a);
}

/* ---- answered ----------------------------------------------------------------------------- */

static void clear_write(struct strbuf *out, const struct cache_view *v, uint64_t n_cleared,
                        uint64_t n_window)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_add_string(&w, "object", "cache.cleared");
    json_add_int(&w, "cleared_tokens", (int64_t)n_cleared);
    json_add_int(&w, "cleared_bytes",
                 (int64_t)(n_cleared * v->page_bytes + n_window * v->window_page_bytes));
    json_object_end(&w);
}

static void reply_done(struct api *api, struct cache_answer *a)
{
    struct strbuf json = STRBUF_INIT;
    const struct kv_group *groups = api->options->engine->info.groups;
    struct cache_view v = {.model_name = api->options->model_name,
                           .tokenizer = api->options->prompt->tokenizer,
                           .keys = api->options->keys,
                           .page_bytes = groups[0].page_bytes,
                           .window_page_bytes = groups[1].page_bytes,
                           .now_ns = clock_now_ns(),
                           .now_unix = clock_unix_seconds()};
    scheduler_read_stats(api->scheduler, &v.stats);
    switch (a->query.type) {
    case QUERY_ENTRIES: cache_list_write(&json, &v, &a->query); break;
    case QUERY_OUTLINE: cache_tree_write(&json, &v, &a->query, a->limit); break;
    case QUERY_CLEAR:
        clear_write(&json, &v, a->n_cleared + a->query.n_cleared,
                    a->n_cleared_window + a->query.n_cleared_side[0]);
        http_note(a->x, "cleared %" PRIu64 " tokens", a->n_cleared + a->query.n_cleared);
        break;
    }
    api_reply_json(a->x, 200, &json);
    strbuf_free(&json);
}

/* True if everything was asked and answered. Clearing a tenant has a second part, which is
 * submitted here, repeatedly if the queue is full. */
static bool answer_is_ready(struct api *api, struct cache_answer *a)
{
    if (a->is_asked && !atomic_load_explicit(&a->query.is_done, memory_order_acquire))
        return false;
    if (a->is_asked && a->clears_shared) {
        a->is_asked = a->clears_shared = false;
        a->n_cleared = a->query.n_cleared;
        a->n_cleared_window = a->query.n_cleared_side[0];
        a->query.ns = cache_namespace(0, -1, -1);
    }
    if (a->is_asked)
        return true;
    a->is_asked = scheduler_query(api->scheduler, &a->query);
    return false;
}

void cache_answers_pump(struct api *api)
{
    for (struct cache_answer **at = &api->cache_answers, *a; (a = *at);) {
        if (!answer_is_ready(api, a)) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        if (a->x)
            reply_done(api, a);
        free(a);
    }
}

void cache_answer_hangup(struct api *api, struct http_exchange *x)
{
    for (struct cache_answer *a = api->cache_answers; a; a = a->next)
        if (a->x == x)
            a->x = NULL;
}

void cache_answers_free(struct api *api)
{
    for (struct cache_answer *a; (a = api->cache_answers);) {
        api->cache_answers = a->next;
        free(a);
    }
}
