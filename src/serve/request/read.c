/* Reads a request by the table of its fields. Pure; runs on the workers. A field's row decides what
 * happens to it. Its name is looked up first in the scope of the request's own kind, then among the
 * fields that all requests have. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "serve/request/request_internal.h"

enum { MAX_IGNORED_BYTES = 1000 };

static const struct request_field *field_find(enum field_scope scope, const struct json *member)
{
    for (size_t i = 0; i < n_request_fields; i++) {
        const struct request_field *f = &request_fields[i];
        if (f->scope == scope && strlen(f->name) == member->key_len &&
            memcmp(f->name, member->key, member->key_len) == 0)
            return f;
    }
    return NULL;
}

/* ---- errors ------------------------------------------------------------------------------- */

int wrong_type(struct field_reader *r, const char *path, const char *wanted,
               const struct json *value)
{
    return api_error_set(r->err, 400, path, "'%s' must be %s, not %s (at byte %zu)", path, wanted,
                         json_type_name(value->type), value->position);
}

int wrong_integer(struct field_reader *r, const char *path, const char *wanted,
                  const struct json *value)
{
    if (value->type != JSON_NUMBER)
        return wrong_type(r, path, wanted, value);
    return api_error_set(r->err, 400, path, "'%s' must be %s, not %.40s", path, wanted,
                         value->text);
}

int no_memory(struct field_reader *r)
{
    return api_error_set(r->err, 413, NULL,
                         "reading the request takes too much memory (the limit is %d MiB)",
                         REQUEST_ARENA_BYTES >> 20);
}

static bool is_neutral(const struct request_field *f, const struct json *value)
{
    if (!f->neutral)
        return false;
    struct strbuf text = STRBUF_INIT;
    json_write(&text, value);
    bool neutral = false;
    for (const char *at = f->neutral; *at && !neutral;) {
        size_t len = strcspn(at, " ");
        char *end;
        double number = strtod(at, &end);
        neutral = value->type == JSON_NUMBER
                      ? end == at + len && value->number == number
                      : text.len == len && memcmp(strbuf_str(&text), at, len) == 0;
        at += len + (at[len] == ' ');
    }
    strbuf_free(&text);
    return neutral;
}

/* True if the name is an element of the list "a, b, c". */
static bool list_has(const char *list, const char *name, size_t len)
{
    for (const char *at = list; *at;) {
        size_t element = strcspn(at, ",");
        if (element == len && memcmp(at, name, len) == 0)
            return true;
        at += element + strspn(at + element, ", ");
    }
    return false;
}

/* Records an unknown field. Its name goes into a header and a log line, so only safe bytes are
 * kept. */
static int unknown_field(struct field_reader *r, const struct json *member, const char *path)
{
    if (r->strict)
        return api_error_set(r->err, 400, path,
                             "unknown field '%s' (at byte %zu; the server runs with "
                             "--strict-fields)",
                             path, member->position);
    char clean[MAX_PATH];
    size_t len = 0;
    for (const char *p = path; *p && len + 1 < sizeof clean; p++) {
        if (len && clean[len - 1] == '[' && *p >= '0' && *p <= '9')
            continue; /* the message's index does not matter */
        clean[len++] = (*p > ' ' && *p < 0x7f && *p != ',') ? *p : '?';
    }
    clean[len] = '\0';
    struct strbuf *out = &r->params->ignored;
    if (out->len + len + 2 < MAX_IGNORED_BYTES && !list_has(strbuf_str(out), clean, len))
        strbuf_addf(out, "%s%s", out->len ? ", " : "", clean);
    return 0;
}

/* ---- reading by the table ----------------------------------------------------------------- */

int integer_of(struct field_reader *r, const struct json *value, const char *path, int64_t *out)
{
    if (json_to_int64(value, out))
        return 0;
    if (value->type != JSON_NUMBER || trunc(value->number) != value->number)
        return wrong_integer(r, path, "an integer", value);
    *out = value->number < 0 ? INT64_MIN : INT64_MAX;
    return 0;
}

static int read_bool(struct field_reader *r, const struct request_field *f,
                     const struct json *value, const char *path)
{
    if (value->type != JSON_BOOL)
        return wrong_type(r, path, "true or false", value);
    *(bool *)((char *)r->params + f->offset) = value->boolean;
    return 0;
}

static int read_int(struct field_reader *r, const struct request_field *f, const struct json *value,
                    const char *path)
{
    int64_t integer, min = (int64_t)f->min, max = (int64_t)f->max;
    if (integer_of(r, value, path, &integer))
        return -1;
    if (integer > max && max == FIELD_NO_MAX)
        integer = max;
    if (integer < min && max == FIELD_NO_MAX)
        return api_error_set(r->err, 400, path, "'%s' must be at least %lld, not %.40s", path,
                             (long long)min, value->text);
    if (integer < min || integer > max)
        return api_error_set(r->err, 400, path, "'%s' must be from %lld to %lld, not %.40s", path,
                             (long long)min, (long long)max, value->text);
    *(int64_t *)((char *)r->params + f->offset) = integer;
    return 0;
}

static int read_number(struct field_reader *r, const struct request_field *f,
                       const struct json *value, const char *path)
{
    if (value->type != JSON_NUMBER)
        return wrong_type(r, path, "a number", value);
    if (!(value->number >= f->min && value->number <= f->max))
        return api_error_set(r->err, 400, path, "'%s' must be from %g to %g, not %.40s", path,
                             f->min, f->max, value->text);
    float number = (float)value->number;
    memcpy((char *)r->params + f->offset, &number, sizeof number);
    return 0;
}

/* Reads a served field that has no special reader. */
static int read_plain(struct field_reader *r, const struct request_field *f,
                      const struct json *value, const char *path)
{
    if (f->kind == KIND_BOOL)
        return read_bool(r, f, value, path);
    if (f->kind == KIND_INT)
        return read_int(r, f, value, path);
    assert(f->kind == KIND_NUMBER);
    return read_number(r, f, value, path);
}

static int kind_check(struct field_reader *r, const struct request_field *f,
                      const struct json *value, const char *path)
{
    if (f->kind == KIND_STRING && value->type != JSON_STRING)
        return wrong_type(r, path, "a string", value);
    if (f->kind == KIND_ARRAY && value->type != JSON_ARRAY)
        return wrong_type(r, path, "an array", value);
    if (f->kind == KIND_OBJECT && value->type != JSON_OBJECT)
        return wrong_type(r, path, "an object", value);
    if (f->kind == KIND_BOOL && value->type != JSON_BOOL)
        return wrong_type(r, path, "true or false", value);
    return 0;
}

/* Reads one member that is not null by its row of the table; `f` is NULL if it has no row. */
static int read_member(struct field_reader *r, const struct request_field *f,
                       const struct json *member, const char *path)
{
    if (!f)
        return unknown_field(r, member, path);
    switch (f->class) {
    case FIELD_INERT: return 0;
    case FIELD_REFUSED:
        if (is_neutral(f, member))
            return 0;
        return api_error_set(r->err, 400, path, "'%s' is not supported: %s", path, f->text);
    case FIELD_SERVED: break;
    }
    if (!f->read)
        return read_plain(r, f, member, path);
    return kind_check(r, f, member, path) || f->read(r, member, path) ? -1 : 0;
}

/* The row of a field. Scopes of whole requests also have the fields of a more general one. */
static const struct request_field *field_look_up(enum field_scope scope, const struct json *member)
{
    const struct request_field *f = field_find(scope, member);
    if (!f && scope == SCOPE_INFILL)
        f = field_find(scope = SCOPE_LLAMA, member);
    if (!f && (scope == SCOPE_TEXT || scope == SCOPE_LLAMA || scope == SCOPE_WARM ||
               scope == SCOPE_RENDER))
        f = field_find(SCOPE_REQUEST, member);
    if (!f && (scope == SCOPE_OLLAMA_CHAT || scope == SCOPE_OLLAMA_GENERATE))
        f = field_find(SCOPE_OLLAMA, member);
    return f;
}

int read_members(struct field_reader *r, enum field_scope scope, const struct json *object,
                 const char *prefix)
{
    json_each (member, object) {
        if (!task_goes_on(64))
            return -1;
        if (member->type == JSON_NULL)
            continue;
        char path[MAX_PATH];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", member->key);
        if (read_member(r, field_look_up(scope, member), member, path))
            return -1;
    }
    return 0;
}

int read_objects(struct field_reader *r, const struct json *array, const char *path,
                 int (*read)(struct field_reader *r, const struct json *object, const char *path))
{
    size_t i = 0;
    json_each (item, array) {
        if (!task_goes_on(64))
            return -1;
        char item_path[MAX_PATH];
        snprintf(item_path, sizeof item_path, "%s[%zu]", path, i++);
        if (item->type != JSON_OBJECT)
            return wrong_type(r, item_path, "an object", item);
        if (read(r, item, item_path))
            return -1;
    }
    return 0;
}

/* ---- the request -------------------------------------------------------------------------- */

static const struct {
    enum field_scope scope;
    const char *subject;                   /* the required field (NULL: none), */
    const char *what;                      /* and its description */
    int (*finish)(struct field_reader *r); /* NULL: nothing to do */
} kinds[] = {
    [REQUEST_CHAT] = {SCOPE_REQUEST, "messages", "the conversation"},
    [REQUEST_TEXT] = {SCOPE_TEXT, "prompt", "the text to continue"},
    [REQUEST_LLAMA] = {SCOPE_LLAMA, "prompt", "the text to continue"},
    [REQUEST_INFILL] = {SCOPE_INFILL, "input_prefix", "the text before the cursor"},
    [REQUEST_WARM] = {SCOPE_WARM, "messages", "the conversation"},
    [REQUEST_RENDER] = {SCOPE_RENDER, "messages", "the conversation"},
    [REQUEST_COUNT] = {SCOPE_RENDER, "messages", "the conversation"},
    [REQUEST_TOKENIZE] = {SCOPE_TOKENIZE, "content", "the text"},
    [REQUEST_DETOKENIZE] = {SCOPE_DETOKENIZE, "tokens", "the tokens' ids"},
    [REQUEST_OLLAMA_CHAT] = {SCOPE_OLLAMA_CHAT, .finish = finish_ollama},
    [REQUEST_OLLAMA_GENERATE] = {SCOPE_OLLAMA_GENERATE, .finish = finish_ollama},
    [REQUEST_OLLAMA_SHOW] = {SCOPE_OLLAMA_SHOW},
};

/* True if a request has the field that its kind requires. Other kinds' subjects do not count: an
 * infill may have a prompt, but still needs its prefix. */
static bool has_subject(enum request_kind kind, const struct request_params *p)
{
    switch (kind) {
    case REQUEST_TEXT:
    case REQUEST_LLAMA: return p->prompt;
    case REQUEST_INFILL: return p->input_prefix;
    case REQUEST_TOKENIZE: return p->text;
    case REQUEST_DETOKENIZE: return p->tokens;
    default: return p->messages;
    }
}

/* Checks how many texts are generated and how many are returned. */
static int check_best_of(struct field_reader *r)
{
    const struct request_params *p = r->params;
    if (!p->best_of)
        return 0;
    if (p->best_of < p->n)
        return api_error_set(r->err, 400, "best_of",
                             "'best_of' must be at least 'n', which is %lld, not %lld",
                             (long long)p->n, (long long)p->best_of);
    if (p->best_of > p->n && p->stream)
        return api_error_set(
            r->err, 400, "best_of",
            "'best_of' cannot be streamed: the best answer is known only at the end");
    return 0;
}

/* Checks that the field that the request's kind requires is there. */
static int check_subject(struct field_reader *r, const struct json *root)
{
    const char *subject = kinds[r->kind].subject;
    if (!subject || has_subject(r->kind, r->params))
        return 0;
    bool is_text = r->kind == REQUEST_CHAT && json_get(root, "prompt");
    return api_error_set(r->err, 400, subject, "'%s' is missing: it holds %s%s", subject,
                         kinds[r->kind].what, is_text ? "; for 'prompt' use /v1/completions" : "");
}

/* Checks that involve several fields. */
static int check_whole(struct field_reader *r)
{
    struct request_params *p = r->params;
    if (p->n_probs) {
        p->logprobs = true;
        p->top_logprobs = p->n_probs;
    }
    if (p->top_logprobs && !p->logprobs)
        return api_error_set(r->err, 400, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (r->kind == REQUEST_INFILL && !p->input_suffix)
        return api_error_set(r->err, 400, "input_suffix",
                             "'input_suffix' is missing: it holds the text after the cursor");
    if (check_tool_choice(r) || check_best_of(r))
        return -1;
    if (p->tool_choice == TOOL_CHOICE_REQUIRED) /* then there is no text to constrain */
        p->constraint = (struct constraint){0};
    if (r->must_begin && p->continues)
        return api_error_set(r->err, 400, "add_generation_prompt",
                             "'add_generation_prompt' and 'continue_final_message' cannot both be "
                             "true: an answer is either begun or continued");
    bool is_answer = p->kind == REQUEST_CHAT || request_is_text(p->kind);
    if (is_answer && !p->add_generation_prompt && !p->continues)
        return api_error_set(r->err, 400, "add_generation_prompt",
                             "'add_generation_prompt' can be false only with "
                             "'continue_final_message'");
    p->add_generation_prompt |= is_answer;
    return 0;
}

static void params_finish(struct request_params *p)
{
    if (p->best_of == 0)
        p->best_of = p->n;
    p->sampling.top_k = p->top_k > 0 ? (int32_t)p->top_k : 0;
    p->sampling.dry_allowed_length = (uint32_t)p->dry_allowed_length;
    p->sampling.dry_last_n = p->dry_penalty_last_n > 0 ? (uint32_t)p->dry_penalty_last_n : 0;
    if (p->dry_penalty_last_n == 0)
        p->sampling.dry_multiplier = 0;
    p->sampling.repeat_last_n = p->repeat_last_n > 0 ? (uint32_t)p->repeat_last_n : 0;
    if (p->repeat_last_n == 0)
        p->sampling.repetition_penalty = 1;
    samplers_finish(p);
    if (p->max_completion_tokens)
        p->max_tokens = p->max_completion_tokens;
    if (p->no_thinking)
        p->thinking_tokens = 0;
    p->continues |= p->ends_with_prefix;
}

int request_params_read(struct request_params *out, enum request_kind kind, const char *body,
                        size_t len, bool strict, const struct sampling *sampling,
                        struct api_error *err)
{
    bool is_ollama = kind == REQUEST_OLLAMA_CHAT || kind == REQUEST_OLLAMA_GENERATE;
    *out = (struct request_params){.kind = kind,
                                   .sampling = *sampling,
                                   .top_k = sampling->top_k,
                                   .n = 1,
                                   .thinking_tokens = -1,
                                   .dry_allowed_length = 2,
                                   .dry_penalty_last_n = -1,
                                   .repeat_last_n = -1,
                                   .default_max_tokens = kind == REQUEST_TEXT ? REQUEST_TEXT_TOKENS
                                                                              : 0,
                                   .stream = is_ollama, /* the default */
                                   .parallel_calls = true,
                                   .cache_prompt = true,
                                   .replay = true,
                                   .parses_special = true,
                                   .add_generation_prompt = kind != REQUEST_WARM};
    out->arena.limit_bytes = REQUEST_ARENA_BYTES;
    struct field_reader r = {.params = out,
                             .err = err,
                             .kind = kind,
                             .message_scope = is_ollama ? SCOPE_OLLAMA_MESSAGE : SCOPE_MESSAGE,
                             .strict = strict};
    struct error parse;
    const struct json *root = json_parse(&out->arena, body, len, &parse);
    if (!root && parse.code != ERROR_INPUT)
        return no_memory(&r);
    if (!root)
        return api_error_set(err, 400, NULL, "cannot read the request body as JSON: %s",
                             parse.message);
    if (root->type != JSON_OBJECT)
        return api_error_set(err, 400, NULL, "the request body must be a JSON object, not %s",
                             json_type_name(root->type));
    int rc = read_members(&r, kinds[kind].scope, root, "");
    strbuf_free(&r.text);
    if (out->arena.failed)
        return no_memory(&r); /* some allocation failed */
    if (rc || (kinds[kind].finish && kinds[kind].finish(&r)) || check_subject(&r, root) ||
        check_whole(&r))
        return -1;
    params_finish(out);
    return out->arena.failed ? no_memory(&r) : 0;
}

int request_find_continuation(struct request_params *p, enum request_kind kind,
                              struct api_error *err)
{
    const struct json *last = p->messages->last;
    bool can = json_equals(json_get(last, "role"), "assistant") && !json_get(last, "tool_calls") &&
               json_is(json_get(last, "content"), JSON_STRING) &&
               json_get(last, "content")->text_len > 0;
    if (p->continues && !can)
        return api_error_set(err, 400, "messages",
                             "only a last message from the assistant that has content can be "
                             "continued");
    p->continues = can && !p->must_not_continue && kind != REQUEST_WARM;
    return 0;
}

void request_params_free(struct request_params *p)
{
    arena_free(&p->arena);
    strbuf_free(&p->ignored);
}
