/* The table of request fields and the walk over a request that is driven by it. Pure; runs on the
 * workers. To serve a new field, add its row: docs and checks follow from it. What a newcomer gets
 * wrong: a field that changes the answer and cannot be honoured is refused, never ignored. */
#include "serve/request_fields.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/prompt.h"

enum {
    MAX_PATH = 96,
    MAX_IGNORED_BYTES = 1000,
    MAX_MESSAGES = 65536,
    MAX_VARIABLES = 64,
    ARENA_LIMIT = 256 << 20, /* what one request may take, however it is built */
};

struct field_reader {
    struct chat_params *params;
    struct api_error *err;
    struct json *message; /* the one being built */
    struct strbuf text;   /* the content being built */
    size_t n_parts;       /* in it */
    bool strict;
};

static int read_model(struct field_reader *r, const struct json *value, const char *path);
static int read_messages(struct field_reader *r, const struct json *value, const char *path);
static int read_seed(struct field_reader *r, const struct json *value, const char *path);
static int read_stop(struct field_reader *r, const struct json *value, const char *path);
static int read_stream_options(struct field_reader *r, const struct json *value, const char *path);
static int read_radish(struct field_reader *r, const struct json *value, const char *path);
static int read_template_kwargs(struct field_reader *r, const struct json *value, const char *path);
static int read_variable(struct field_reader *r, const struct json *value, const char *path);
static int read_max_tokens(struct field_reader *r, const struct json *value, const char *path);
static int read_role(struct field_reader *r, const struct json *value, const char *path);
static int read_content(struct field_reader *r, const struct json *value, const char *path);
static int read_reasoning(struct field_reader *r, const struct json *value, const char *path);
static int read_part_type(struct field_reader *r, const struct json *value, const char *path);
static int read_part_text(struct field_reader *r, const struct json *value, const char *path);

#define AT(member) .offset = offsetof(struct chat_params, member)

/* clang-format off */
#define SERVED(scope_, name_, kind_, ...)                                                          \
    {.scope = SCOPE_##scope_, .class = FIELD_SERVED, .name = name_, .kind = KIND_##kind_, __VA_ARGS__}
#define INERT(scope_, name_, text_)                                                                \
    {.scope = SCOPE_##scope_, .class = FIELD_INERT, .name = name_, .text = text_}
#define REFUSED(scope_, name_, neutral_, text_)                                                    \
    {.scope = SCOPE_##scope_, .class = FIELD_REFUSED, .name = name_, .neutral = neutral_, .text = text_}

const struct request_field request_fields[] = {
    SERVED(REQUEST, "model", STRING, .read = read_model, .text =
        "Any name is served by the model that is loaded, unless --strict-model."),
    SERVED(REQUEST, "messages", ARRAY, .read = read_messages, .text =
        "The whole conversation; rendered with the model's own chat template."),
    SERVED(REQUEST, "stream", BOOL, AT(stream), .text =
        "Send the answer as server-sent events while it is made."),
    SERVED(REQUEST, "stream_options", OBJECT, .read = read_stream_options, .text =
        "Options of a stream."),
    SERVED(REQUEST, "max_tokens", INT, .read = read_max_tokens, .text =
        "Most tokens to generate; clamped to what the context leaves. Absent or -1: the server's "
        "default, which is the rest of the context."),
    SERVED(REQUEST, "max_completion_tokens", INT, .read = read_max_tokens, .text =
        "The newer name of max_tokens; wins when both are given."),
    SERVED(REQUEST, "n", INT, .min = 1, .max = CHAT_MAX_CHOICES, AT(n), .text =
        "How many answers; they share the prompt's computation."),
    SERVED(REQUEST, "temperature", NUMBER, .min = 0, .max = 2, AT(sampling.temperature), .text =
        "0 is greedy. Default 1."),
    SERVED(REQUEST, "top_p", NUMBER, .min = 0, .max = 1, AT(sampling.top_p), .text =
        "Draw from the fewest most likely tokens that reach this share. Default 1."),
    SERVED(REQUEST, "top_k", INT, .min = -1, .max = FIELD_NO_MAX, AT(top_k), .text =
        "Draw from so many most likely tokens; 0 or -1: all."),
    SERVED(REQUEST, "min_p", NUMBER, .min = 0, .max = 1, AT(sampling.min_p), .text =
        "Leave out tokens below this share of the most likely one. Default 0."),
    SERVED(REQUEST, "presence_penalty", NUMBER, .min = -2, .max = 2, AT(sampling.presence_penalty),
        .text = "Taken off the logit of each token that the answer already has. Default 0."),
    SERVED(REQUEST, "frequency_penalty", NUMBER, .min = -2, .max = 2,
        AT(sampling.frequency_penalty), .text = "The same, times how often. Default 0."),
    SERVED(REQUEST, "repetition_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text =
        "Divides positive and multiplies negative logits of such tokens. Default 1."),
    SERVED(REQUEST, "repeat_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text = "Another name of repetition_penalty."),
    SERVED(REQUEST, "seed", INT, .read = read_seed, .text =
        "Equal requests with equal seeds get equal answers. Absent or -1: a new one each time."),
    SERVED(REQUEST, "stop", ANY, .read = read_stop, .text =
        "A string, or up to 16, before which the answer ends."),
    SERVED(REQUEST, "ignore_eos", BOOL, AT(ignore_end), .text =
        "Go on past the model's end tokens, up to max_tokens."),
    SERVED(REQUEST, "cache_prompt", BOOL, AT(cache_prompt), .text =
        "false: neither read the prefix cache nor add to it. Default true."),
    SERVED(REQUEST, "radish", OBJECT, .read = read_radish, .text =
        "Options of radish's own."),
    SERVED(REQUEST, "replay", BOOL, AT(replay), .text =
        "false: earlier answers in `messages` are tokenised like any text, not given the very "
        "tokens that were sampled. Default true."),
    SERVED(REQUEST, "chat_template_kwargs", OBJECT, .read = read_template_kwargs, .text =
        "Variables for the chat template, such as enable_thinking."),
    SERVED(REQUEST, "enable_thinking", BOOL, .read = read_variable, .text =
        "Handed to the chat template."),
    SERVED(REQUEST, "reasoning_effort", STRING, .read = read_variable, .text =
        "Handed to the chat template."),

    INERT(REQUEST, "user", "A name for the end user."),
    INERT(REQUEST, "safety_identifier", "A name for the end user."),
    INERT(REQUEST, "metadata", "Labels for a dashboard."),
    INERT(REQUEST, "store", "Nothing is stored but the cache."),
    INERT(REQUEST, "service_tier", "There is one tier."),
    INERT(REQUEST, "prompt_cache_key", "The cache finds every shared prefix by itself."),
    INERT(REQUEST, "prompt_cache_retention", "The cache keeps what is used."),
    INERT(REQUEST, "prediction", "A hint for speed that needs none here."),
    INERT(REQUEST, "verbosity", "A hint for other models."),
    INERT(REQUEST, "parallel_tool_calls", "Without meaning while there are no tools."),
    INERT(REQUEST, "priority", "First come, first served."),
    INERT(REQUEST, "id_slot", "There are no slots."),
    INERT(REQUEST, "timings_per_token", "Timings are in the log."),
    INERT(REQUEST, "return_progress", "Progress is not reported."),

    REFUSED(REQUEST, "tools", "[]", "Tool calls are not served yet."),
    REFUSED(REQUEST, "tool_choice", "\"none\" \"auto\"", "Tool calls are not served yet."),
    REFUSED(REQUEST, "functions", "[]", "Function calls are not served."),
    REFUSED(REQUEST, "function_call", "\"none\" \"auto\"", "Function calls are not served."),
    REFUSED(REQUEST, "response_format", "{\"type\":\"text\"}",
        "Only text answers are served; JSON and grammars are not yet."),
    REFUSED(REQUEST, "grammar", "\"\"", "Grammars are not served yet."),
    REFUSED(REQUEST, "json_schema", "{}", "JSON schemas are not served yet."),
    REFUSED(REQUEST, "guided_json", "{}", "Guided decoding is not served yet."),
    REFUSED(REQUEST, "guided_regex", "\"\"", "Guided decoding is not served yet."),
    REFUSED(REQUEST, "guided_choice", "[]", "Guided decoding is not served yet."),
    REFUSED(REQUEST, "guided_grammar", "\"\"", "Guided decoding is not served yet."),
    REFUSED(REQUEST, "structured_outputs", "{}", "Guided decoding is not served yet."),
    REFUSED(REQUEST, "logprobs", "false 0", "Log probabilities are not served yet."),
    REFUSED(REQUEST, "top_logprobs", "0", "Log probabilities are not served yet."),
    REFUSED(REQUEST, "prompt_logprobs", "0", "Log probabilities are not served yet."),
    REFUSED(REQUEST, "logit_bias", "{} []", "Logit biases are not served yet."),
    REFUSED(REQUEST, "modalities", "[] [\"text\"]", "Only text answers are served."),
    REFUSED(REQUEST, "audio", NULL, "Only text answers are served."),
    REFUSED(REQUEST, "web_search_options", NULL, "There is no web search."),
    REFUSED(REQUEST, "documents", "[]", "Documents are not served; put them into a message."),
    REFUSED(REQUEST, "chat_template", NULL, "The template is chosen when the server starts."),
    REFUSED(REQUEST, "add_generation_prompt", "true", "An answer is always begun."),
    REFUSED(REQUEST, "continue_final_message", "false", "Prefilled answers are not served yet."),
    REFUSED(REQUEST, "best_of", "1", "Answers are not ranked."),
    REFUSED(REQUEST, "use_beam_search", "false", "Beam search is not served."),
    REFUSED(REQUEST, "min_tokens", "0", "A least length is not served."),
    REFUSED(REQUEST, "stop_token_ids", "[]", "Give stop strings in stop."),
    REFUSED(REQUEST, "include_stop_str_in_output", "false", "Answers end before the stop string."),
    REFUSED(REQUEST, "skip_special_tokens", "true", "Control tokens are never shown."),
    REFUSED(REQUEST, "bad_words", "[]", "Banned words are not served."),
    REFUSED(REQUEST, "typical_p", "1", "This sampler is not served."),
    REFUSED(REQUEST, "mirostat", "0", "This sampler is not served."),
    REFUSED(REQUEST, "dry_multiplier", "0", "This sampler is not served."),
    REFUSED(REQUEST, "xtc_probability", "0", "This sampler is not served."),

    SERVED(WARM, "pin", NUMBER, .min = 0, .max = CHAT_MAX_PIN_S, AT(pin_s), .text =
        "Keep the prompt for so many seconds: it goes only when nothing unpinned is left to go. "
        "Default 0: it is kept like any other."),
    SERVED(WARM, "add_generation_prompt", BOOL, AT(add_generation_prompt), .text =
        "true: warm the beginning of the answer too. Default false, so that what is warmed is a "
        "prefix of longer conversations."),
    REFUSED(WARM, "stream", "false", "The answer is one object."),
    REFUSED(WARM, "cache_prompt", "true", "Filling the cache is what a warming is for."),
    INERT(WARM, "stream_options", "Nothing is generated."),
    INERT(WARM, "max_tokens", "Nothing is generated."),
    INERT(WARM, "max_completion_tokens", "Nothing is generated."),
    INERT(WARM, "n", "Nothing is generated."),
    INERT(WARM, "temperature", "Nothing is generated."),
    INERT(WARM, "top_p", "Nothing is generated."),
    INERT(WARM, "top_k", "Nothing is generated."),
    INERT(WARM, "min_p", "Nothing is generated."),
    INERT(WARM, "presence_penalty", "Nothing is generated."),
    INERT(WARM, "frequency_penalty", "Nothing is generated."),
    INERT(WARM, "repetition_penalty", "Nothing is generated."),
    INERT(WARM, "repeat_penalty", "Nothing is generated."),
    INERT(WARM, "seed", "Nothing is generated."),
    INERT(WARM, "stop", "Nothing is generated."),
    INERT(WARM, "ignore_eos", "Nothing is generated."),

    SERVED(RADISH, "explain", BOOL, AT(explain), .text =
        "Say in a member `radish` of the answer how much of the prompt was cached, and why not "
        "more. The same as the header `x-radish-explain: true`."),
    SERVED(RADISH, "replay", BOOL, AT(replay), .text = "The same as `replay` of the request."),

    SERVED(STREAM_OPTIONS, "include_usage", BOOL, AT(include_usage), .text =
        "Send a last chunk with the token counts."),
    INERT(STREAM_OPTIONS, "include_obfuscation", "Chunks are not padded."),

    SERVED(MESSAGE, "role", STRING, .read = read_role, .text =
        "system, developer (the same as system), user or assistant."),
    SERVED(MESSAGE, "content", ANY, .read = read_content, .text =
        "A string, or an array of text parts, which are joined with line feeds."),
    SERVED(MESSAGE, "reasoning_content", STRING, .read = read_reasoning, .text =
        "An earlier answer's thinking; handed to the chat template."),
    INERT(MESSAGE, "name", "Templates know roles, not names."),
    INERT(MESSAGE, "annotations", "Notes on an earlier answer."),
    INERT(MESSAGE, "id", "A client's own mark."),
    REFUSED(MESSAGE, "tool_calls", "[]", "Tool calls are not served yet."),
    REFUSED(MESSAGE, "tool_call_id", "\"\"", "Tool calls are not served yet."),
    REFUSED(MESSAGE, "function_call", NULL, "Function calls are not served."),
    REFUSED(MESSAGE, "refusal", "\"\"", "Refusals have no place in the template."),
    REFUSED(MESSAGE, "audio", NULL, "This model does not hear."),

    SERVED(PART, "type", STRING, .read = read_part_type, .text = "text."),
    SERVED(PART, "text", STRING, .read = read_part_text, .text = "The part's text."),
    INERT(PART, "cache_control", "The cache finds every shared prefix by itself."),
};
/* clang-format on */

const size_t n_request_fields = sizeof request_fields / sizeof *request_fields;

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

static int wrong_type(struct field_reader *r, const char *path, const char *wanted,
                      const struct json *value)
{
    return api_error_set(r->err, 400, path, "'%s' must be %s, not %s (at byte %zu)", path, wanted,
                         json_type_name(value->type), value->position);
}

/* A number that is not one of the integers which are wanted: the client sees its own text. */
static int wrong_integer(struct field_reader *r, const char *path, const char *wanted,
                         const struct json *value)
{
    if (value->type != JSON_NUMBER)
        return wrong_type(r, path, wanted, value);
    return api_error_set(r->err, 400, path, "'%s' must be %s, not %.40s", path, wanted,
                         value->text);
}

static int no_memory(struct field_reader *r)
{
    return api_error_set(r->err, 413, NULL,
                         "the request takes too much memory to be read (at most %d MiB)",
                         ARENA_LIMIT >> 20);
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

/* Is the name an element of the list "a, b, c"? */
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

/* An unknown field: its name goes into a header and a log line, so only harmless bytes do. */
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
            continue; /* which message it was does not matter */
        clean[len++] = (*p > ' ' && *p < 0x7f && *p != ',') ? *p : '?';
    }
    clean[len] = '\0';
    struct strbuf *out = &r->params->ignored;
    if (out->len + len + 2 < MAX_IGNORED_BYTES && !list_has(strbuf_str(out), clean, len))
        strbuf_addf(out, "%s%s", out->len ? ", " : "", clean);
    return 0;
}

/* ---- the walk ----------------------------------------------------------------------------- */

/* Any integer; what 64 bits cannot hold becomes the largest or least that they can. */
static int integer_of(struct field_reader *r, const struct json *value, const char *path,
                      int64_t *out)
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

/* A served field without a reader of its own. */
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

/* Reads one member that is not null by its row of the table; `f` is NULL for one that has none. */
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
        return api_error_set(r->err, 400, path, "'%s' cannot be honoured: %s", path, f->text);
    case FIELD_SERVED: break;
    }
    if (!f->read)
        return read_plain(r, f, member, path);
    return kind_check(r, f, member, path) || f->read(r, member, path) ? -1 : 0;
}

/* Reads every member of an object by the table. */
static int read_members(struct field_reader *r, enum field_scope scope, const struct json *object,
                        const char *prefix)
{
    json_each (member, object) {
        if (member->type == JSON_NULL)
            continue;
        char path[MAX_PATH];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", member->key);
        const struct request_field *f = field_find(scope, member);
        if (!f && scope == SCOPE_WARM) /* else as in a completion */
            f = field_find(SCOPE_REQUEST, member);
        if (read_member(r, f, member, path))
            return -1;
    }
    return 0;
}

/* ---- fields with a reader of their own ---------------------------------------------------- */

static int read_model(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->model = value->text;
    return 0;
}

static int read_stream_options(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_STREAM_OPTIONS, value, path);
}

static int read_radish(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_RADISH, value, path);
}

static int read_max_tokens(struct field_reader *r, const struct json *value, const char *path)
{
    int64_t n;
    if (integer_of(r, value, path, &n))
        return -1;
    if (n == -1) /* what llama-server's users write for "no limit" */
        n = 0;
    else if (n < 1)
        return wrong_integer(r, path, "at least 1, or -1 for no limit", value);
    *(strcmp(path, "max_tokens") == 0 ? &r->params->max_tokens
                                      : &r->params->max_completion_tokens) = n;
    return 0;
}

static int read_seed(struct field_reader *r, const struct json *value, const char *path)
{
    int64_t with_sign = 0;
    uint64_t seed;
    if (json_to_int64(value, &with_sign))
        seed = (uint64_t)with_sign;
    else if (!json_to_uint64(value, &seed))
        return wrong_integer(r, path, "an integer of 64 bits", value);
    if (with_sign == -1) /* what llama-server's clients write for "any" */
        return 0;
    r->params->sampling.seed = seed;
    r->params->seeded = true;
    return 0;
}

static int add_stop(struct field_reader *r, const struct json *value, const char *path)
{
    struct chat_params *p = r->params;
    if (value->type != JSON_STRING)
        return wrong_type(r, path, "a string", value);
    if (value->text_len == 0 || value->text_len > CHAT_MAX_STOP_BYTES)
        return api_error_set(r->err, 400, path, "'%s' must have from 1 to %d bytes, not %zu", path,
                             CHAT_MAX_STOP_BYTES, value->text_len);
    p->stops[p->n_stops++] = (struct stop_string){value->text, (uint32_t)value->text_len};
    return 0;
}

static int read_stop(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type == JSON_STRING)
        return add_stop(r, value, path);
    if (value->type != JSON_ARRAY)
        return wrong_type(r, path, "a string or an array of strings", value);
    if (value->count > REQUEST_MAX_STOPS)
        return api_error_set(r->err, 400, path, "'%s' may have up to %d strings, not %zu", path,
                             REQUEST_MAX_STOPS, value->count);
    size_t i = 0;
    json_each (item, value) {
        char item_path[MAX_PATH];
        snprintf(item_path, sizeof item_path, "%s[%zu]", path, i++);
        if (add_stop(r, item, item_path))
            return -1;
    }
    return 0;
}

/* A value of the client's becomes a variable of the template. */
static int add_variable(struct field_reader *r, const char *name, const struct json *value)
{
    struct chat_params *p = r->params;
    if (!p->extra && !(p->extra = json_new(&p->arena, JSON_OBJECT)))
        return no_memory(r);
    if (json_get(p->extra, name))
        return 0; /* the first of two spellings stays */
    struct json *copy = json_new(&p->arena, value->type);
    if (!copy)
        return no_memory(r);
    *copy = *value; /* children are shared: they are never changed */
    copy->next = NULL;
    json_append(&p->arena, p->extra, name, copy);
    return 0;
}

static int read_variable(struct field_reader *r, const struct json *value, const char *path)
{
    return add_variable(r, path, value);
}

static int read_template_kwargs(struct field_reader *r, const struct json *value, const char *path)
{
    static const char *const taken[] = {"tools", "add_generation_prompt"};
    if (value->count > MAX_VARIABLES)
        return api_error_set(r->err, 400, path, "'%s' may have up to %d members", path,
                             MAX_VARIABLES);
    json_each (member, value) {
        if (strlen(member->key) != member->key_len)
            return api_error_set(r->err, 400, path, "a name in '%s' has a NUL in it", path);
        bool owned = prompt_owns_name(member->key, member->key_len);
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
            owned |= strcmp(member->key, taken[i]) == 0;
        if (owned)
            return api_error_set(r->err, 400, path, "'%s' may not set '%.60s'", path, member->key);
        if (add_variable(r, member->key, member))
            return -1;
    }
    return 0;
}

/* ---- messages ----------------------------------------------------------------------------- */

static int read_role(struct field_reader *r, const struct json *value, const char *path)
{
    static const char *const roles[][2] = {{"system", "system"},
                                           {"developer", "system"},
                                           {"user", "user"},
                                           {"assistant", "assistant"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (json_equals(value, roles[i][0])) {
            json_append(&r->params->arena, r->message, "role",
                        json_new_string(&r->params->arena, roles[i][1], strlen(roles[i][1])));
            return 0;
        }
    }
    if (json_equals(value, "tool") || json_equals(value, "function"))
        return api_error_set(r->err, 400, path, "'%s' is \"%s\", but tool calls are not served yet",
                             path, value->text);
    return api_error_set(r->err, 400, path,
                         "'%s' must be system, developer, user or assistant, not \"%.40s\"", path,
                         value->text);
}

static int read_part_type(struct field_reader *r, const struct json *value, const char *path)
{
    if (json_equals(value, "text"))
        return 0;
    if (json_equals(value, "image_url") || json_equals(value, "image") ||
        json_equals(value, "input_image"))
        return api_error_set(r->err, 400, path,
                             "'%s' is \"%s\", but this model has no vision: it reads text only",
                             path, value->text);
    return api_error_set(r->err, 400, path,
                         "'%s' is \"%.40s\", but this model reads parts of type text only", path,
                         value->text);
}

static int read_part_text(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    if (r->n_parts++)
        strbuf_addc(&r->text, '\n');
    strbuf_add(&r->text, value->text, value->text_len);
    return 0;
}

static int read_parts(struct field_reader *r, const struct json *parts, const char *path)
{
    size_t i = 0;
    json_each (part, parts) {
        char part_path[MAX_PATH - 8];
        snprintf(part_path, sizeof part_path, "%s[%zu]", path, i++);
        if (part->type != JSON_OBJECT)
            return wrong_type(r, part_path, "an object", part);
        const struct json *type = json_get(part, "type");
        if (!json_is(type, JSON_STRING))
            return api_error_set(r->err, 400, part_path, "'%s' must have a type", part_path);
        /* The type first: of an unserved part, its type is what is wrong. */
        char type_path[MAX_PATH];
        snprintf(type_path, sizeof type_path, "%s.type", part_path);
        if (read_part_type(r, type, type_path))
            return -1;
        if (!json_is(json_get(part, "text"), JSON_STRING))
            return api_error_set(r->err, 400, part_path, "'%s' must have a text", part_path);
        if (read_members(r, SCOPE_PART, part, part_path))
            return -1;
    }
    return 0;
}

static int read_content(struct field_reader *r, const struct json *value, const char *path)
{
    struct arena *arena = &r->params->arena;
    struct json *content;
    if (value->type == JSON_STRING) {
        content = json_new_string(arena, value->text, value->text_len);
    } else if (value->type == JSON_ARRAY) {
        strbuf_clear(&r->text);
        r->n_parts = 0;
        if (read_parts(r, value, path))
            return -1;
        content = r->text.failed ? NULL : json_new_string(arena, strbuf_str(&r->text), r->text.len);
    } else {
        return wrong_type(r, path, "a string or an array of parts", value);
    }
    if (!content)
        return no_memory(r);
    json_append(arena, r->message, "content", content);
    return 0;
}

static int read_reasoning(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    struct arena *arena = &r->params->arena;
    json_append(arena, r->message, "reasoning_content",
                json_new_string(arena, value->text, value->text_len));
    return 0;
}

static int read_message(struct field_reader *r, const struct json *value, const char *path)
{
    struct chat_params *p = r->params;
    if (value->type != JSON_OBJECT)
        return wrong_type(r, path, "an object", value);
    if (!(r->message = json_new(&p->arena, JSON_OBJECT)))
        return no_memory(r);
    if (read_members(r, SCOPE_MESSAGE, value, path))
        return -1;
    if (!json_get(r->message, "role"))
        return api_error_set(r->err, 400, path, "'%s' must have a role (at byte %zu)", path,
                             value->position);
    if (!json_get(r->message, "content"))
        return api_error_set(r->err, 400, path, "'%s' must have a content (at byte %zu)", path,
                             value->position);
    json_link(p->messages, r->message);
    return 0;
}

static int read_messages(struct field_reader *r, const struct json *value, const char *path)
{
    struct chat_params *p = r->params;
    size_t i = 0;
    if (value->count == 0 || value->count > MAX_MESSAGES)
        return api_error_set(r->err, 400, path, "'%s' must have from 1 to %d messages, not %zu",
                             path, MAX_MESSAGES, value->count);
    if (!(p->messages = json_new(&p->arena, JSON_ARRAY)))
        return no_memory(r);
    json_each (message, value) {
        char message_path[MAX_PATH];
        snprintf(message_path, sizeof message_path, "%s[%zu]", path, i++);
        if (read_message(r, message, message_path))
            return -1;
    }
    return 0;
}

/* ---- the request -------------------------------------------------------------------------- */

int chat_params_read(struct chat_params *out, enum chat_kind kind, const char *body, size_t len,
                     bool strict, struct api_error *err)
{
    *out = (struct chat_params){.sampling = SAMPLING_DEFAULT,
                                .n = 1,
                                .cache_prompt = true,
                                .replay = true,
                                .add_generation_prompt = kind == CHAT_COMPLETION};
    out->arena.limit_bytes = ARENA_LIMIT;
    struct field_reader r = {.params = out, .err = err, .strict = strict};
    struct error parse;
    const struct json *root = json_parse(&out->arena, body, len, &parse);
    if (!root && parse.code != ERROR_INPUT)
        return no_memory(&r);
    if (!root)
        return api_error_set(err, 400, NULL, "the request's body: %s", parse.message);
    if (root->type != JSON_OBJECT)
        return api_error_set(err, 400, NULL, "the request's body must be a JSON object, not %s",
                             json_type_name(root->type));
    int rc = read_members(&r, kind == CHAT_WARM ? SCOPE_WARM : SCOPE_REQUEST, root, "");
    strbuf_free(&r.text);
    if (out->arena.failed)
        return no_memory(&r); /* whatever it was that could not be kept */
    if (rc)
        return -1;
    if (!out->messages)
        return api_error_set(err, 400, "messages", "'messages' is missing: the conversation");
    out->sampling.top_k = out->top_k > 0 ? (int32_t)out->top_k : 0;
    if (out->max_completion_tokens)
        out->max_tokens = out->max_completion_tokens;
    return 0;
}

void chat_params_free(struct chat_params *p)
{
    arena_free(&p->arena);
    strbuf_free(&p->ignored);
}
