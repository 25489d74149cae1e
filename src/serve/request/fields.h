#ifndef RADISH_SERVE_REQUEST_FIELDS_H
#define RADISH_SERVE_REQUEST_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "sched/scheduler.h"
#include "serve/api/api_error.h"

/* serve/request/ reads requests: bodies and query strings become checked values. Nothing here
 * acts on them. */

/* The one table of what a request may say. A field that stands in it is served, inert (accepted,
 * without meaning here) or refused (400, unless null or neutral: it carries or constrains the
 * conversation in a way that cannot be honoured). One that does not is unknown: ignored and named
 * in the answer's x-radish-ignored header, or refused by --strict-fields. null is absent. */
enum field_scope {
    SCOPE_REQUEST,
    SCOPE_TEXT,     /* of a text completion: these rows come before those of SCOPE_REQUEST */
    SCOPE_LLAMA,    /* of a request to llama-server's /completion: the same */
    SCOPE_INFILL,   /* of one to its /infill: these come before those of SCOPE_LLAMA */
    SCOPE_EXTRA,    /* an element of input_extra */
    SCOPE_WARM,     /* of a warming: the same */
    SCOPE_RENDER,   /* of a request to /apply-template: the same */
    SCOPE_TOKENIZE, /* of a request to /tokenize */
    SCOPE_DETOKENIZE,
    SCOPE_MESSAGE,
    SCOPE_PART,
    SCOPE_CALL, /* an element of a message's tool_calls */
    SCOPE_CALLED,
    SCOPE_TOOL, /* an element of tools */
    SCOPE_FUNCTION,
    SCOPE_RESPONSE_FORMAT,
    SCOPE_JSON_SCHEMA, /* ... and its json_schema */
    SCOPE_STRUCTURED,  /* structured_outputs */
    SCOPE_THINKING,
    SCOPE_REASONING,
    SCOPE_STREAM_OPTIONS,
    SCOPE_RADISH,
    SCOPE_OLLAMA, /* of Ollama's chats and generations */
    SCOPE_OLLAMA_CHAT,
    SCOPE_OLLAMA_GENERATE,
    SCOPE_OLLAMA_OPTIONS,
    SCOPE_OLLAMA_MESSAGE,
    SCOPE_OLLAMA_SHOW,
    FIELD_SCOPES
};
enum field_class { FIELD_SERVED, FIELD_INERT, FIELD_REFUSED };
enum field_kind {
    KIND_ANY,
    KIND_BOOL,
    KIND_INT,
    KIND_NUMBER,
    KIND_STRING,
    KIND_ARRAY,
    KIND_OBJECT
};

struct field_reader;

struct request_field {
    enum field_scope scope;
    enum field_class class;
    const char *name;
    const char *text; /* for the documentation */
    enum field_kind kind;
    double min, max;     /* of numbers, when max > min; above FIELD_NO_MAX an integer is clamped */
    size_t offset;       /* served, without `read`: where in request_params the value goes */
    const char *neutral; /* refused: JSON texts, with spaces between them, that ask for nothing */
    int (*read)(struct field_reader *r, const struct json *value, const char *path);
};

extern const struct request_field request_fields[];
extern const size_t n_request_fields;

enum {
    REQUEST_MAX_CHOICES = 128,
    REQUEST_MAX_BIASES = 4096,
    REQUEST_MAX_PROMPTS = 128,
    REQUEST_MAX_TOOLS = 512,
    REQUEST_MAX_STOP_BYTES = 1024,
    REQUEST_MAX_STOP_TOKENS = 128,
    REQUEST_MAX_EXTRA = 1024, /* files of a fill-in-the-middle */
    REQUEST_MAX_PIN_S = 7 * 24 * 3600,
    REQUEST_NO_TOKENS = -1,   /* max_tokens: none are to be generated */
    REQUEST_TEXT_TOKENS = 16, /* what OpenAI's text completions have when nothing is said */
    FIELD_NO_MAX = INT32_MAX,
};

/* What a request asks for. */
enum request_kind {
    REQUEST_CHAT,       /* an answer to a conversation */
    REQUEST_TEXT,       /* a text to be continued */
    REQUEST_LLAMA,      /* the same, in llama-server's form */
    REQUEST_INFILL,     /* the middle of a text, in llama-server's form */
    REQUEST_WARM,       /* a conversation to be in the cache when it is asked for */
    REQUEST_RENDER,     /* a conversation as the template renders it */
    REQUEST_TOKENIZE,   /* the tokens of a text */
    REQUEST_DETOKENIZE, /* the text of tokens */
    /* Ollama's; the first two turn out to be a chat or a text. */
    REQUEST_OLLAMA_CHAT,
    REQUEST_OLLAMA_GENERATE,
    REQUEST_OLLAMA_SHOW, /* what is known of the model */
    REQUEST_KINDS
};

/* Whether the request is for a text, not for an answer to a conversation. */
static inline bool request_is_text(enum request_kind kind)
{
    return kind == REQUEST_TEXT || kind == REQUEST_LLAMA || kind == REQUEST_INFILL;
}

/* Whether it gets its answer in the form of llama-server's own API. */
static inline bool request_is_llama(enum request_kind kind)
{
    return kind == REQUEST_LLAMA || kind == REQUEST_INFILL;
}

enum tool_choice { TOOL_CHOICE_AUTO, TOOL_CHOICE_NONE, TOOL_CHOICE_REQUIRED };

/* What the text of an answer is held to. */
enum constraint_kind {
    CONSTRAINT_NONE,
    CONSTRAINT_JSON,    /* any JSON object */
    CONSTRAINT_SCHEMA,  /* `value`: a JSON schema */
    CONSTRAINT_GBNF,    /* `value`: a string */
    CONSTRAINT_REGEX,   /* `value`: a string */
    CONSTRAINT_CHOICES, /* `value`: an array of strings */
};

struct constraint {
    enum constraint_kind kind;
    const char *field;        /* the name of the field that asked for it */
    const struct json *value; /* of its kind */
};

struct text_bias {
    struct byte_view text;
    float bias;
};

/* A request as it was made. Everything points into the arena. */
struct request_params {
    struct arena arena;
    enum request_kind kind;    /* what it is, whichever API asks: REQUEST_CHAT, ... */
    bool is_load;              /* there is nothing to answer: Ollama's way to have a model loaded */
    bool is_unload;            /* ... or unloaded */
    const char *model;         /* NULL: not given */
    struct json *messages;     /* an array of objects; contents are strings or null */
    const struct json *prompt; /* of a text completion: a string or an array */
    const struct json *suffix; /* of a text completion: what stands behind it; NULL: nothing */
    const struct json *input_prefix, *input_suffix; /* of an infill: strings */
    const struct json *input_extra;                 /* ... an array of checked objects, or NULL */
    const struct json *text;   /* to be tokenised: a string, or an array of strings and ids */
    const struct json *tokens; /* to be made text: an array of ids */
    struct json *extra;        /* an object of variables for the template, or NULL */

    const struct json *tools; /* OpenAI's array, checked; NULL: none */
    enum tool_choice tool_choice;
    struct json *allowed_tools; /* an array of the names that may be called; NULL: all */
    bool parallel_calls;
    /* What `functions` had, in the form of `tools`; NULL: it was not used. If it was, calls are
     * given in the form of that time. */
    const struct json *functions;
    bool functions_asked; /* ... which stays known */
    struct constraint constraint;
    bool no_thinking;        /* thinking is switched off */
    bool must_think;         /* an error where the model cannot */
    int64_t thinking_tokens; /* most tokens of thinking; -1: any */
    bool continues;          /* the last message is the beginning of the answer */
    bool ends_with_prefix;   /* ... and says so itself */
    bool must_not_continue;  /* ... and said not to be */

    struct sampling sampling;
    bool seeded;
    int64_t n;
    int64_t best_of; /* of a text completion: so many are made, and the `n` best of them given */
    int64_t top_k;
    uint32_t samplers; /* bits of enum sampler_name; 0: all that the sampling has */
    int64_t n_probs;   /* llama-server's name of logprobs and top_logprobs */
    int64_t dry_allowed_length, dry_penalty_last_n, repeat_last_n;
    const struct json *dry_breakers; /* an array of strings, or NULL: the usual ones */
    struct logit_bias *biases;       /* [n_biases] */
    uint32_t n_biases;
    struct text_bias *text_biases; /* [n_text_biases] for each token of a text */
    uint32_t n_text_biases;
    bool logprobs;
    int64_t top_logprobs;
    int64_t max_tokens;            /* 0: not given; or REQUEST_NO_TOKENS */
    int64_t max_completion_tokens; /* the newer name; wins */
    int64_t default_max_tokens;    /* where neither is given; 0: the server's */
    int64_t min_tokens;
    struct byte_view stops[REQUEST_MAX_STOPS];
    uint32_t n_stops;
    int32_t *stop_tokens; /* [n_stop_tokens] */
    uint32_t n_stop_tokens;
    int64_t n_indent, t_max_predict_ms;
    bool timings_per_token, return_progress, return_tokens;
    const struct json *response_fields; /* an array of strings; NULL: all */
    bool stream, include_usage, ignore_end, cache_prompt;
    bool echo;                  /* of a text completion: the prompt comes first */
    bool explain;               /* say why no more of the prompt was cached */
    bool replay;                /* earlier answers as the tokens that were sampled */
    bool add_generation_prompt; /* of a warming and a rendering; an answer is always begun */
    bool adds_special, parses_special, with_pieces; /* of a tokenisation */
    float pin_s;                                    /* of a warming */
    struct strbuf ignored; /* unknown fields, fit for a header: "foo, messages.bar" */
};

/* Reads a request's body; `sampling` is what it does not say. -1 and `err` for one that is wrong;
 * free it in any case. */
int request_params_read(struct request_params *out, enum request_kind kind, const char *body,
                        size_t len, bool strict, const struct sampling *sampling,
                        struct api_error *err);
void request_params_free(struct request_params *p);
/* The samplers that the request has, in their order, in llama-server's names. */
void samplers_write(struct json_writer *w, const char *key, const struct request_params *p);
/* Whether the last message is the beginning of the answer: when it is the assistant's, unless the
 * request says otherwise. -1 and `err` where it asks for what cannot be. */
int request_find_continuation(struct request_params *p, enum request_kind kind,
                              struct api_error *err);

#endif
