#ifndef RADISH_SERVE_API_ACCESS_H
#define RADISH_SERVE_API_ACCESS_H

#include "serve/api/api_error.h"
#include "serve/api/api_keys.h"
#include "serve/http/http_server.h"

/* What is known about a request besides its text: who asks, its id, what it uses. It lies in the
 * exchange's memory, and becomes the request's line in the log:
 *
 *   12:34:56.789 info  POST /v1/chat/completions 200 31.4 ms: tenant acme, prompt 12, cached 8,
 *                      generated 3, first token 4.2 ms, key alice, id req-4f...
 *
 * or, in JSON, an object with a member for each. The line has no part of the body or the query. */
enum { REQUEST_ID_MAX = 128 };

struct route;

struct access {
    const struct route *route; /* the router's */
    struct requester who;      /* not known for open routes */
    bool is_admitted;          /* counted as a running request by the limiter */
    bool has_usage;            /* the next four are known */
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
    float first_token_ms;               /* 0: none yet */
    char key_name[TENANT_MAX_NAME + 1]; /* "": none */
    char id[REQUEST_ID_MAX + 1];        /* also sent as x-request-id */
};

struct access *access_of(struct http_exchange *x);
/* Gives the request an id, if it has none yet, and adds it to the answer's fields: the client's own
 * x-request-id if that is up to 128 visible characters, or a random one, "req-...". */
void access_identify(struct http_exchange *x);
/* The id for the body of an answer: with this prefix, and as random as the request's own. */
void access_answer_id(struct http_exchange *x, const char *prefix, char *out, size_t size);
/* Writes the line. `keys` knows the tenants' names; NULL: there are no tenants. */
void access_log(const struct api_keys *keys, struct http_exchange *x,
                const struct http_outcome *outcome);

/* Counts a request at the limiter. If a limit forbids it, returns -1 with the error 429. Adds
 * OpenAI's x-ratelimit-* fields, and Retry-After to an error. */
int access_admit(struct limiter *l, struct http_exchange *x, struct api_error *e);

#endif
