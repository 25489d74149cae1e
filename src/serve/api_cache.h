#ifndef RADISH_SERVE_API_CACHE_H
#define RADISH_SERVE_API_CACHE_H

#include "serve/api/api.h"
#include "serve/request/query_params.h"

/* The cache's own endpoints, for the operator. What they ask is asked of the scheduler's thread:
 *
 *   request ─► cache_query ──► scheduler, between two steps ──► is_done ─► pump: the answer
 *                  └── a hang-up meanwhile: the query is freed when it is done
 *
 * All of it on the event loop's thread. */

extern const struct query_param cache_list_params[], cache_tree_params[], cache_clear_params[];

void cache_list_begin(struct api *api, struct http_exchange *x, const struct requester *who);
void cache_tree_begin(struct api *api, struct http_exchange *x, const struct requester *who);
void cache_clear_begin(struct api *api, struct http_exchange *x, const struct requester *who);

/* Answers what the scheduler has ready. */
void cache_answers_pump(struct api *api);
/* The exchange's client is gone; nothing happens if it waits for no answer of these. */
void cache_answer_hangup(struct api *api, struct http_exchange *x);
/* After the scheduler is closed. */
void cache_answers_free(struct api *api);

#endif
