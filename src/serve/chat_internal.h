#ifndef RADISH_SERVE_CHAT_INTERNAL_H
#define RADISH_SERVE_CHAT_INTERNAL_H

#include <stdatomic.h>

#include "prompt/prompt.h"
#include "serve/chat_completion.h"
#include "serve/request_fields.h"
#include "serve/sse.h"
#include "serve/token_text.h"

/* What the files of a chat completion share: chat_completion.c has its life, chat_prepare.c the
 * worker's part of it, chat_answer.c what is said at its end, chat_explain.c why the prompt was not
 * cached. A warming of the cache (POST /v1/cache/warm) is a completion that generates nothing. */

/* One of the n answers. */
struct choice {
    struct request request;
    struct token_text text;    /* the answer so far, or of a stream what is not sent yet */
    struct token_list sampled; /* for the replay of this answer */
    bool lost_ids;             /* there was no memory for all of them; the first ones will do */
    uint32_t n_tokens;
    uint32_t cached; /* of the prompt, once it is done */
    bool live;       /* the scheduler has it */
    enum finish_reason finish;
};

struct role_name {
    char name[12];
};

struct completion {
    struct api *api;
    enum chat_kind kind;
    struct requester requester;
    struct completion *prev, *next;
    struct http_exchange *x; /* NULL: nobody waits for the answer */
    struct job job;
    struct event *deadline; /* NULL: none (--timeout) */
    bool preparing;
    atomic_bool unwanted; /* tells the worker not to begin */

    /* The worker's part: in, then out. */
    struct strbuf body;
    size_t body_bytes; /* the loop's: counted by the server until the body is freed */
    struct chat_params params;
    struct strbuf stops; /* the bytes of params.stops, once the rest of the request is let go */
    struct prompt prompt;
    bool explain;   /* the answer is to say why it was not cached; the header may ask too */
    bool wants_map; /* it, or a log for debugging, needs to know who wrote what */
    bool replays;   /* answers are kept and replayed: no one switched it off */
    struct role_name *roles; /* [n_roles] of the messages, if it wants a map */
    size_t n_roles;
    bool failed;
    struct api_error error;

    char id[40];
    int64_t created;
    uint64_t began_ns, sent_ns; /* sent: the last byte of a stream */
    struct sse_encoder sse;
    bool streaming;
    bool lost_events; /* there was no memory for a piece of the stream */
    struct choice *choices;
    uint32_t n_choices, n_live;
};

/* A worker's job: from the body to the prompt's tokens, or to `failed` and `error`. */
void completion_prepare(struct job *job);

/* Too long a conversation: says both numbers and names the option that is in the way. `how` stands
 * before the conversation's: "" or "at least ". Returns -1. */
int context_error_set(struct api_error *e, const struct completion *c, const char *how,
                      size_t n_tokens);

/* Whose answers are replayed: never another tenant's, whatever else tenants share. */
uint64_t replay_namespace(const struct completion *c);

/* The end of an answer whose choices are all done; the exchange is over. */
void answer_send(struct completion *c);
const char *finish_name(enum finish_reason finish);
/* The counts, for the exchange's line in the log. */
void answer_note(struct completion *c);

/* "radish":{...}: of the first choice, which is done. */
void explain_add(struct json_writer *w, const struct completion *c);
void explain_log(const struct completion *c);

static inline struct completion *completion_of(struct job *job)
{
    return (struct completion *)((char *)job - offsetof(struct completion, job));
}

#endif
