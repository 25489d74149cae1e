#ifndef RADISH_SERVE_API_CACHE_H
#define RADISH_SERVE_API_CACHE_H

#include "serve/api/api.h"
#include "serve/request/query_params.h"

/* The cache's endpoints, for admins. The scheduler's thread answers their queries:
 *
 *   request ─► cache_query ──► scheduler, between two steps ──► is_done ─► pump: the answer
 *                  └── if the client hangs up: the query is freed when it is done
 *
 * Everything here runs on the event loop's thread. */

extern const struct query_param cache_list_params[], cache_tree_params[], cache_clear_params[];

void cache_list_begin(struct api *api, struct http_exchange *x, const struct requester *who);
void cache_tree_begin(struct api *api, struct http_exchange *x, const struct requester *who);
void cache_clear_begin(struct api *api, struct http_exchange *x, const struct requester *who);

/* Sends the answers that the scheduler has ready. */
void cache_answers_pump(struct api *api);
/* The exchange's client has hung up. Does nothing if the exchange has no query here. */
void cache_answer_hangup(struct api *api, struct http_exchange *x);
/* Call this after the scheduler is closed. */
void cache_answers_free(struct api *api);

#endif
