#ifndef RADISH_SERVE_COMPLETION_COMPLETION_INTERNAL_H
#define RADISH_SERVE_COMPLETION_COMPLETION_INTERNAL_H

#include <stdatomic.h>

#include "prompt/answer/answer_filter.h"
#include "prompt/prompt.h"
#include "serve/completion/answer.h"
#include "serve/completion/completion.h"
#include "serve/request/fields.h"
#include "serve/writers/answer_writer.h"

/* Shared by the files of a completion: completion.c has its life, completion_prepare.c the worker's
 * part of it, completion_constrain.c the constraints on answers, completion_output.c what is sent,
 * completion_explain.c why the prompt was not cached, completion_budget.c the memory of answers,
 * completion_llama.c what only llama-server's API has. Warming the cache (POST /v1/cache/warm) is a
 * completion that generates nothing. Requests that only ask for text or tokens end when the worker
 * is done. */

struct role_name {
    char name[12];
};

/* The constraints on answers. */
struct answer_bounds {
    const struct grammar *grammar; /* NULL: nothing */
    const char *trigger;           /* the text after which it applies; NULL: from the start */
    const char *forbidden;         /* a text that must not appear; NULL: none */
};

/* The request, read and prepared. While the completion is `preparing`, all of it belongs to the
 * worker; then it belongs to the loop, and does not change. */
struct completion_input {
    struct strbuf body;
    size_t body_bytes; /* owned by the loop: counted by the server until the body is freed */
    struct request_params params;
    struct arena kept;             /* the parts of the request that the answer needs */
    struct prompt *prompts;        /* [n_prompts]: one, except for text completions with several */
    uint32_t n_prompts;            /* 0: the worker has made the whole reply */
    const uint64_t **cache_tokens; /* [n_prompts] the prompts' tokens in the scheduler's form */
    struct strbuf *echoes;         /* [n_prompts] their texts; NULL: not echoed */
    struct tool_set *tools;        /* shown in the prompt; NULL: none */
    struct tool_set *callable;     /* those that may be called; NULL: all */
    struct answer_bounds bounds;
    uint64_t *dry_breakers;   /* a bit for each token, or NULL */
    struct byte_view *fields; /* [n_fields] response_fields, kept */
    uint32_t n_fields;
    bool explain;   /* report why the prompt was not cached; a header can also ask for it */
    bool wants_map; /* `explain` or the debug log needs to know which message a token is from */
    bool replays;   /* answers are kept and replayed */
    struct role_name *roles; /* [n_roles] of the messages, if it wants a map */
    size_t n_roles;
    bool failed;
    struct api_error error;
};

/* One of the answers. */
struct choice {
    struct request request;
    struct answer answer;
    struct answer_filter *filter;           /* NULL: unconstrained */
    struct token_logprobs *logprobs;        /* [REQUEST_RING], or NULL */
    struct token_logprobs *prompt_logprobs; /* [its prompt's tokens], or NULL */
    struct token_list sampled;              /* for the replay of this answer */
    bool lost_ids;      /* some were lost (out of memory); the first ones are enough */
    bool is_echoed;     /* the prompt's text was sent, if requested */
    bool is_started;    /* the scheduler has admitted it */
    uint32_t cached;    /* tokens of the prompt that were not computed for it, once it started */
    double logprob_sum; /* of its tokens, to find the best of several */
    struct answer_timings timings;
    uint32_t n_tokens;
    bool live; /* the scheduler has it */
    enum finish_reason finish;
};

/* The answers in progress. The worker opens them; then they belong to the loop. */
struct completion_answers {
    struct choice *choices; /* [n_choices] of the first prompt, then of the second, ... */
    uint32_t n_choices;
    uint32_t n_live; /* the scheduler has them */
};

/* What the client gets, in its API's form. Belongs to the loop, except the reply. */
struct completion_output {
    char id[48];
    struct answer_head head;            /* n_choices and later members: set once prepared */
    const struct answer_writer *writer; /* NULL: nothing is generated */
    void *stream;                       /* the writer's state; NULL: a whole answer */
    bool lost_events;                   /* a piece of the stream was lost (out of memory) */
    struct strbuf settings;             /* of the request, in llama-server's form */
    struct strbuf reply;        /* by the worker: the answer of a request that generates nothing */
    uint64_t began_ns, sent_ns; /* sent: the last byte of a stream */
};

struct completion {
    struct api *api;
    enum request_kind route_kind;
    enum request_kind kind; /* the route's; once the request is read, the request's own */
    struct requester requester;
    struct completion *prev, *next;
    struct http_exchange *x; /* NULL: nobody waits for the answer */
    struct job job;
    bool preparing;
    bool is_too_large;    /* no room for its answers: it fails at its next turn */
    atomic_bool unwanted; /* tells the worker to stop */
    size_t n_bytes;       /* of its answers, as counted in the api's answers_bytes */

    struct completion_input input;
    struct completion_answers running;
    struct completion_output output;
};

/* A worker's job: from the body to the prompt's tokens, or to `failed` and `error`. */
void completion_prepare(struct job *job);
/* Frees what the worker has made, so that it can begin again from the body. */
void completion_unprepare(struct completion *c);

/* 503, for the worker to fail with. Returns -1. */
int no_memory_now(struct completion *c);
/* The conversation is too long: the error contains both lengths and the option that limits it.
 * `how` is written before the conversation's length: "" or "at least ". Returns -1. */
int context_error_set(struct api_error *e, const struct completion *c, const char *how,
                      size_t n_tokens);

/* The same in the words that llama-server's clients expect. */
void llama_context_error(struct api_error *e, uint32_t context, const char *how, size_t n_tokens);

/* The most tokens that an answer to the prompt may have. */
uint32_t completion_max_tokens(const struct completion *c, const struct prompt *prompt);

/* The namespace of replayed answers: never another tenant's, whatever else tenants share. */
uint64_t replay_namespace(const struct completion *c);

/* Called by the worker: read the functions of the request, then compile the grammar of its
 * answers. */
int completion_read_tools(struct completion *c);
int completion_constrain(struct completion *c);
/* Opens a choice's filter, if it needs one. */
int completion_open_filter(struct completion *c, struct choice *o);

/* The functions that answers may call; NULL: none. */
static inline const struct tool_set *callable_tools(const struct completion *c)
{
    const struct completion_input *in = &c->input;
    if (in->params.tool_choice == TOOL_CHOICE_NONE)
        return NULL;
    return in->callable ? in->callable : in->tools;
}

/* How many answers to each prompt are generated; `n` of them are returned. */
static inline uint32_t choices_per_prompt(const struct completion *c)
{
    return (uint32_t)c->input.params.best_of;
}

/* The prompt that a choice answers. */
static inline const struct prompt *prompt_of(const struct completion *c, uint32_t choice)
{
    return &c->input.prompts[choice / choices_per_prompt(c)];
}

/* Prepare prompts in llama-server's form: texts mixed with ids, and infills. */
int prepare_llama(struct completion *c);
int prepare_infill(struct completion *c);
/* The same for a text completion with a suffix. */
int prepare_suffix(struct completion *c, const struct json *prefix, uint32_t index);
/* Appends the ids of a text, or of an array of texts and ids. -1 and the completion's error. */
int encode_mixed(struct completion *c, const struct json *value, int flags, const char *field,
                 struct token_list *out);
/* The bytes of all its texts. */
size_t mixed_bytes(const struct json *value);
/* True if a `prompt` is a list of prompts, not one prompt of texts and ids. */
bool prompt_is_list(const struct json *prompt);
/* Rejects a text that cannot fit, before it is tokenized. */
int refuse_hopeless(struct completion *c, size_t n_bytes);
int prompts_alloc(struct completion *c, size_t n);

/* Counts the answers' bytes anew. If all answers together have too many, the largest of the client
 * that has most is marked. */
void answers_count(struct completion *c);
/* No longer counts them. */
void answers_forget(struct completion *c);

/* Updates how long a choice has taken. */
void choice_time(struct choice *o, uint64_t now_ns);

/* Starts the stream; false if out of memory. */
bool stream_begin(struct completion *c);
void stream_write(struct completion *c, const struct strbuf *events);
void stream_heartbeat(struct completion *c);
void stream_fail(struct completion *c, const struct api_error *e);
/* The end of an answer whose choices are all done; the exchange is over. */
void answer_send(struct completion *c);
/* Gives the counts to the exchange's log line. */
void answer_note(struct completion *c);

/* Writes "radish":{...} for the first choice, which must be done. */
void explain_add(struct json_writer *w, const struct completion *c);
void explain_log(const struct completion *c);

static inline struct completion *completion_of(struct job *job)
{
    return (struct completion *)((char *)job - offsetof(struct completion, job));
}

#endif
