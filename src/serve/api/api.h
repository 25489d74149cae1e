#ifndef RADISH_SERVE_API_API_H
#define RADISH_SERVE_API_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/scheduler.h"
#include "serve/api/access.h"
#include "serve/api/api_error.h"
#include "serve/api/api_keys.h"
#include "serve/api/server_options.h"
#include "serve/api/tenants.h"
#include "serve/api/workers.h"
#include "serve/http/host_rules.h"
#include "serve/http/http_server.h"

/* serve/api/ holds what all routes share: options, keys, tenants, workers, errors and replies. */

struct cache_answer;
struct completion;
struct event_base;
struct grammar_store;
struct grammar_vocabulary;
struct replay_store;

enum { API_SEEN_SLOTS = 1024 };

/* The state that the routes share. Owned by the event loop's thread. Workers read the options and
 * the tables of tokens, which do not change. */
struct api {
    const struct server_options *options;
    struct host_rules rules;
    struct own_names own_names;
    bool is_local_only; /* every listener is loopback or a Unix socket */
    struct limiter limiter;
    struct tenants tenants;
    struct event_base *base;
    struct event *tick; /* once a second while something is in progress */
    struct scheduler *scheduler;
    struct workers *workers;
    struct http_server *http;
    struct token_table tokens;
    uint32_t longest_token;         /* in bytes, at least 1 */
    struct replay_store *replay;    /* the ids of earlier answers; NULL: --no-token-replay */
    struct grammar_store *grammars; /* compiled constraints on answers */
    struct grammar_vocabulary *vocabulary;
    struct completion *completions; /* in progress */
    struct completion *next_pumped; /* where the next turn continues; NULL: from the first on */
    size_t answers_bytes;           /* of their answers */
    struct cache_answer *cache_answers;
    struct strbuf events; /* scratch: what a stream gets next */
    uint32_t n_completions;
    bool stopping; /* no new answers are started */
    int64_t started_unix;
    char fingerprint[160];         /* model, quantization and build */
    uint64_t seen[API_SEEN_SLOTS]; /* clients whose unknown fields were already logged */
    uint32_t n_seen;
};

/* Fills in the members that do not depend on other parts of the server. */
void api_init(struct api *api, const struct server_options *options);

/* Something is in progress: check on it in a second. */
void api_tick_soon(struct api *api);

/* Finds out from its header who sends a request, and keeps that in its access. Returns -1 and sets
 * `e` (401, or what is wrong) if keys are needed and the request has no known key.
 *
 * Without keys, an admin is whoever certainly asks from this machine: no listener can be reached
 * from another, Host is loopback, and no proxy has added its fields. */
int api_identify(struct api *api, struct http_exchange *x, struct api_error *e);

/* True if this is the model's name. Ollama's clients add ":latest" to it. */
bool api_has_model(const struct api *api, const char *name);
/* 404 for another name; returns -1. */
int api_model_not_found(const struct api *api, const char *name, struct api_error *e);

void api_reply_json(struct http_exchange *x, int status, const struct strbuf *json);
/* In the form of the API that the request's path belongs to. */
void api_reply_error(struct http_exchange *x, const struct api_error *e);

#endif
