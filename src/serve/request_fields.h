#ifndef RADISH_SERVE_REQUEST_FIELDS_H
#define RADISH_SERVE_REQUEST_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "sched/scheduler.h"
#include "serve/api_error.h"

/* The one table of what a request may say. A field that stands in it is served, inert (accepted,
 * without meaning here) or refused (400, unless null or neutral: it carries or constrains the
 * conversation in a way that cannot be honoured). One that does not is unknown: ignored and named
 * in the answer's x-radish-ignored header, or refused by --strict-fields. null is absent. */
enum field_scope {
    SCOPE_REQUEST,
    SCOPE_WARM, /* of a warming: these rows come before those of SCOPE_REQUEST */
    SCOPE_MESSAGE,
    SCOPE_PART,
    SCOPE_STREAM_OPTIONS,
    SCOPE_RADISH,
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
    size_t offset;       /* served, without `read`: where in chat_params the value goes */
    const char *neutral; /* refused: JSON texts, with spaces between them, that ask for nothing */
    int (*read)(struct field_reader *r, const struct json *value, const char *path);
};

extern const struct request_field request_fields[];
extern const size_t n_request_fields;

enum {
    CHAT_MAX_CHOICES = 8,
    CHAT_MAX_STOP_BYTES = 1024,
    CHAT_MAX_PIN_S = 7 * 24 * 3600,
    FIELD_NO_MAX = INT32_MAX,
};

/* What a conversation was sent for: an answer, or to be in the cache when it is asked for. */
enum chat_kind { CHAT_COMPLETION, CHAT_WARM };

/* A chat completion, or a warming, as it was asked for. Everything points into the arena. */
struct chat_params {
    struct arena arena;
    const char *model;     /* NULL: not given */
    struct json *messages; /* an array of objects whose contents are strings */
    struct json *extra;    /* an object of variables for the template, or NULL */
    struct sampling sampling;
    bool seeded;
    int64_t n;
    int64_t top_k;
    int64_t max_tokens;            /* 0: not given */
    int64_t max_completion_tokens; /* the newer name; wins */
    struct stop_string stops[REQUEST_MAX_STOPS];
    uint32_t n_stops;
    bool stream, include_usage, ignore_end, cache_prompt;
    bool explain;               /* say why no more of the prompt was cached */
    bool replay;                /* earlier answers as the tokens that were sampled */
    bool add_generation_prompt; /* of a warming; an answer is always begun */
    float pin_s;                /* of a warming */
    struct strbuf ignored;      /* unknown fields, fit for a header: "foo, messages.bar" */
};

/* Reads a request's body. -1 and `err` for one that is wrong; free it in any case. */
int chat_params_read(struct chat_params *out, enum chat_kind kind, const char *body, size_t len,
                     bool strict, struct api_error *err);
void chat_params_free(struct chat_params *p);

#endif
