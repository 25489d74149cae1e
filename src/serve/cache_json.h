#ifndef RADISH_SERVE_CACHE_JSON_H
#define RADISH_SERVE_CACHE_JSON_H

#include "base/strbuf.h"
#include "prompt/tokenizer/tokenizer.h"
#include "sched/scheduler.h"
#include "serve/api/api_keys.h"

/* The cache as JSON, for admins. Pure functions of their arguments. */
struct cache_view {
    struct scheduler_stats stats;
    const char *model_name;
    const struct tokenizer *tokenizer;
    const struct api_keys *keys;
    uint32_t page_bytes, window_page_bytes; /* the second: 0 if no layer has a window */
    uint64_t now_ns;                        /* of the tree's clock */
    int64_t now_unix;                       /* the same moment, in seconds */
};

/* A page of the cache's entries and, unless they are those of one tenant, its statistics. `q` is an
 * answered QUERY_ENTRIES. */
void cache_list_write(struct strbuf *out, const struct cache_view *v, const struct cache_query *q);
/* An answered QUERY_OUTLINE as nested nodes, at most `limit` of them. If the query found more than
 * `limit`, the answer says that it is truncated. */
void cache_tree_write(struct strbuf *out, const struct cache_view *v, const struct cache_query *q,
                      uint32_t limit);

#endif
