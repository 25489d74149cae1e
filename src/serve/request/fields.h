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

/* serve/request/ reads requests: it turns bodies and query strings into checked values, and does
 * not act on them. */

/* The table of all request fields. A field in it is served (supported), inert (accepted without
 * effect) or refused (400, unless its value is null or neutral, because it would change the answer
 * in a way that is not supported). A field that is not in it is unknown: it is ignored and listed
 * in the x-radish-ignored response header, or an error with --strict-fields. null means absent. */
enum field_scope {
    SCOPE_REQUEST,
    SCOPE_TEXT,     /* text completions: these rows override those of SCOPE_REQUEST */
    SCOPE_LLAMA,    /* llama-server's /completion: the same */
    SCOPE_INFILL,   /* llama-server's /infill: these rows override those of SCOPE_LLAMA */
    SCOPE_EXTRA,    /* an element of input_extra */
    SCOPE_WARM,     /* /v1/cache/warm: these rows override those of SCOPE_REQUEST */
    SCOPE_RENDER,   /* /apply-template, and counting tokens: the same */
    SCOPE_TOKENIZE, /* /tokenize */
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
    SCOPE_OLLAMA, /* /api/chat and /api/generate */
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
    double min, max;     /* of numbers, if max > min; above FIELD_NO_MAX an integer is clamped */
    size_t offset;       /* served, without `read`: where in request_params the value goes */
    const char *neutral; /* refused: space-separated JSON texts of values without effect */
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
    REQUEST_MAX_EXTRA = 1024, /* other files sent with an infill */
    REQUEST_MAX_PIN_S = 7 * 24 * 3600,
    REQUEST_NO_TOKENS = -1,          /* max_tokens: generate none */
    REQUEST_ARENA_BYTES = 256 << 20, /* the most memory that reading a request may take */
    REQUEST_TEXT_TOKENS = 16,        /* OpenAI's default max_tokens for text completions */
    FIELD_NO_MAX = INT32_MAX,
};

/* What a request asks for. */
enum request_kind {
    REQUEST_CHAT,       /* an answer to a conversation */
    REQUEST_TEXT,       /* the continuation of a text */
    REQUEST_LLAMA,      /* the same, in llama-server's form */
    REQUEST_INFILL,     /* the middle of a text, in llama-server's form */
    REQUEST_WARM,       /* a conversation to compute and cache */
    REQUEST_RENDER,     /* a conversation as the template renders it */
    REQUEST_COUNT,      /* the number of its tokens */
    REQUEST_TOKENIZE,   /* the tokens of a text */
    REQUEST_DETOKENIZE, /* the text of tokens */
    /* Ollama's; the first two become a chat or a text. */
    REQUEST_OLLAMA_CHAT,
    REQUEST_OLLAMA_GENERATE,
    REQUEST_OLLAMA_SHOW, /* facts about the model */
    REQUEST_KINDS
};

/* True if the request continues a text instead of answering a conversation. */
static inline bool request_is_text(enum request_kind kind)
{
    return kind == REQUEST_TEXT || kind == REQUEST_LLAMA || kind == REQUEST_INFILL;
}

/* True if the answer has the form of llama-server's own API. */
static inline bool request_is_llama(enum request_kind kind)
{
    return kind == REQUEST_LLAMA || kind == REQUEST_INFILL;
}

enum tool_choice { TOOL_CHOICE_AUTO, TOOL_CHOICE_NONE, TOOL_CHOICE_REQUIRED };

/* The constraint on the text of an answer. */
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

/* A request after reading. Everything points into the arena. */
struct request_params {
    struct arena arena;
    enum request_kind kind;    /* independent of the API: REQUEST_CHAT, ... */
    bool is_load;              /* no answer: Ollama's way to load a model */
    bool is_unload;            /* the same for unloading one */
    const char *model;         /* NULL: not given */
    struct json *messages;     /* an array of objects; contents are strings or null */
    const struct json *prompt; /* of a text completion: a string or an array */
    const struct json *suffix; /* of a text completion: the text after the gap; NULL: none */
    const struct json *input_prefix, *input_suffix; /* of an infill: strings */
    const struct json *input_extra;                 /* ... an array of checked objects, or NULL */
    const struct json *text;   /* to tokenize: a string, or an array of strings and ids */
    const struct json *tokens; /* to detokenize: an array of ids */
    struct json *extra;        /* an object of variables for the template, or NULL */

    const struct json *tools; /* OpenAI's array, checked; NULL: none */
    enum tool_choice tool_choice;
    struct json *allowed_tools; /* an array of the names that may be called; NULL: all */
    bool parallel_calls;
    /* The `functions` in the form of `tools`; NULL: not given. If given, calls are returned in the
     * older form. */
    const struct json *functions;
    bool functions_asked; /* ... kept after `functions` is freed */
    struct constraint constraint;
    bool no_thinking;        /* thinking is off */
    bool must_think;         /* an error if the model cannot think */
    int64_t thinking_tokens; /* limit for thinking; -1: none */
    bool continues;          /* the last message is the start of the answer */
    bool ends_with_prefix;   /* ... because of its "prefix" */
    bool must_not_continue;  /* continue_final_message is false */

    struct sampling sampling;
    bool seeded;
    int64_t n;
    int64_t best_of; /* of a text completion: how many are generated; the `n` best are returned */
    int64_t top_k;
    uint32_t samplers; /* bits of enum sampler_name; 0: all of the sampling's */
    int64_t n_probs;   /* llama-server's name of logprobs and top_logprobs */
    int64_t dry_allowed_length, dry_penalty_last_n, repeat_last_n;
    const struct json *dry_breakers; /* an array of strings, or NULL: the default ones */
    struct logit_bias *biases;       /* [n_biases] */
    uint32_t n_biases;
    struct text_bias *text_biases; /* [n_text_biases] for each token of a text */
    uint32_t n_text_biases;
    bool logprobs;
    int64_t top_logprobs;
    bool post_sampling_probs;      /* ... as they were drawn from */
    bool verbose;                  /* a whole answer has llama-server's in it, too */
    int64_t max_tokens;            /* 0: not given; or REQUEST_NO_TOKENS */
    int64_t max_completion_tokens; /* the newer name; wins */
    int64_t default_max_tokens;    /* if neither is given; 0: the server's */
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
    bool explain;               /* report why no more of the prompt was cached */
    bool replay;                /* reuse the sampled tokens of earlier answers */
    bool add_generation_prompt; /* of a warming and a rendering; an answer always has it */
    bool adds_special, parses_special, with_pieces; /* of /tokenize */
    float pin_s;                                    /* of a warming */
    struct strbuf ignored; /* unknown fields, safe for a header: "foo, messages.bar" */
};

/* Reads a request's body; `sampling` has the defaults. Returns -1 and sets `err` if the request is
 * wrong. Free `out` in any case. */
int request_params_read(struct request_params *out, enum request_kind kind, const char *body,
                        size_t len, bool strict, const struct sampling *sampling,
                        struct api_error *err);
void request_params_free(struct request_params *p);
/* Writes the request's samplers in order, by llama-server's names. */
void samplers_write(struct json_writer *w, const char *key, const struct request_params *p);
/* Decides whether the last message is the start of the answer: yes if it is the assistant's, unless
 * the request says otherwise. -1 and `err` if what it asks is impossible. */
int request_find_continuation(struct request_params *p, enum request_kind kind,
                              struct api_error *err);

#endif
