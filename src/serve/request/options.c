/* Readers of top-level fields: limits, sampling, template variables, prompts. Pure; they run on the
 * workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/prompt.h"
#include "serve/request/request_internal.h"

enum { MAX_VARIABLES = 64, MAX_BREAKERS = 64 };

int read_model(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->model = value->text;
    return 0;
}

int read_stream_options(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_STREAM_OPTIONS, value, path);
}

int read_radish(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_RADISH, value, path);
}

int read_max_tokens(struct field_reader *r, const struct json *value, const char *path)
{
    int64_t n;
    if (integer_of(r, value, path, &n))
        return -1;
    bool is_text = request_is_text(r->kind);
    if (n == -1) /* "no limit" for llama-server's users */
        n = is_text ? FIELD_NO_MAX : 0;
    else if (n == 0 && (is_text || strcmp(path, "n_predict") == 0)) /* editors warm the cache */
        n = REQUEST_NO_TOKENS;
    else if (n < 1)
        return wrong_integer(r, path, "at least 1, or -1 for no limit", value);
    bool is_newer = strcmp(path, "max_completion_tokens") == 0;
    *(is_newer ? &r->params->max_completion_tokens : &r->params->max_tokens) = n;
    return 0;
}

int read_seed(struct field_reader *r, const struct json *value, const char *path)
{
    int64_t with_sign = 0;
    uint64_t seed;
    if (json_to_int64(value, &with_sign))
        seed = (uint64_t)with_sign;
    else if (!json_to_uint64(value, &seed))
        return wrong_integer(r, path, "an integer of 64 bits", value);
    if (with_sign == -1) /* "any" for llama-server's clients */
        return 0;
    r->params->sampling.seed = seed;
    r->params->seeded = true;
    return 0;
}

static int add_stop(struct field_reader *r, const struct json *value, const char *path)
{
    struct request_params *p = r->params;
    if (value->type != JSON_STRING)
        return wrong_type(r, path, "a string", value);
    if (value->text_len == 0 || value->text_len > REQUEST_MAX_STOP_BYTES)
        return api_error_set(r->err, 400, path, "'%s' must have 1 to %d bytes, not %zu", path,
                             REQUEST_MAX_STOP_BYTES, value->text_len);
    p->stops[p->n_stops++] = json_bytes(value);
    return 0;
}

int read_stop(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type == JSON_STRING)
        return add_stop(r, value, path);
    if (value->type != JSON_ARRAY)
        return wrong_type(r, path, "a string or an array of strings", value);
    if (value->count > REQUEST_MAX_STOPS)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d strings, not %zu", path,
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

int read_stop_tokens(struct field_reader *r, const struct json *value, const char *path)
{
    struct request_params *p = r->params;
    if (value->count > REQUEST_MAX_STOP_TOKENS)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d ids, not %zu", path,
                             REQUEST_MAX_STOP_TOKENS, value->count);
    if (check_ids(r, value, path))
        return -1;
    if (value->count == 0)
        return 0;
    if (!(p->stop_tokens = arena_alloc_array(&p->arena, value->count, sizeof *p->stop_tokens)))
        return no_memory(r);
    json_each (id, value)
        p->stop_tokens[p->n_stop_tokens++] = (int32_t)id->number;
    return 0;
}

int read_response_fields(struct field_reader *r, const struct json *value, const char *path)
{
    enum { MAX_FIELDS = 128 };
    if (value->count > MAX_FIELDS)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d names", path, MAX_FIELDS);
    json_each (name, value)
        if (name->type != JSON_STRING)
            return wrong_type(r, path, "an array of strings", name);
    r->params->response_fields = value->count ? value : NULL;
    return 0;
}

/* ---- variables of the template ------------------------------------------------------------ */

void add_variable(struct request_params *p, const char *name, const struct json *value)
{
    if (!p->extra)
        p->extra = json_new(&p->arena, JSON_OBJECT);
    if (!json_get(p->extra, name))
        json_append(&p->arena, p->extra, name, json_share(&p->arena, value));
}

int read_enable_thinking(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type != JSON_BOOL)
        return wrong_type(r, path, "true or false", value);
    if (!json_get(r->params->extra, "enable_thinking")) /* the first of two spellings wins */
        r->params->no_thinking = !value->boolean;
    add_variable(r->params, "enable_thinking", value);
    return 0;
}

int read_reasoning_effort(struct field_reader *r, const struct json *value, const char *path)
{
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!json_equals(value, known[i]))
            continue;
        if (i == 0) {
            struct json off = {.type = JSON_BOOL};
            return read_enable_thinking(r, &off, path);
        }
        add_variable(r->params, "reasoning_effort", value);
        return 0;
    }
    return api_error_set(r->err, 400, path,
                         "'%s' must be none, minimal, low, medium, high, xhigh or max, not "
                         "\"%.40s\"",
                         path, value->text);
}

/* {"type": "enabled", "budget_tokens": N}, as Anthropic's and other clients write it. */
int read_thinking(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_THINKING, value, path);
}

int read_thinking_type(struct field_reader *r, const struct json *value, const char *path)
{
    bool is_on = json_equals(value, "enabled") || json_equals(value, "adaptive");
    if (!is_on && !json_equals(value, "disabled"))
        return api_error_set(r->err, 400, path, "'%s' must be enabled or disabled, not \"%.40s\"",
                             path, value->text);
    struct json *enabled = json_new_bool(&r->params->arena, is_on);
    return enabled ? read_enable_thinking(r, enabled, path) : no_memory(r);
}

/* {"effort": "low"}, as in OpenAI's other API. */
int read_reasoning_options(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_REASONING, value, path);
}

int read_template_kwargs(struct field_reader *r, const struct json *value, const char *path)
{
    static const char *const taken[] = {"tools", "add_generation_prompt"};
    if (value->count > MAX_VARIABLES)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d members", path,
                             MAX_VARIABLES);
    json_each (member, value) {
        if (strlen(member->key) != member->key_len)
            return api_error_set(r->err, 400, path, "a name in '%s' contains a NUL character",
                                 path);
        bool owned = prompt_owns_name(member->key, member->key_len);
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
            owned |= strcmp(member->key, taken[i]) == 0;
        if (owned)
            return api_error_set(r->err, 400, path, "'%s' may not set '%.60s'", path, member->key);
        if (strcmp(member->key, "enable_thinking") != 0)
            add_variable(r->params, member->key, member);
        else if (read_enable_thinking(r, member, "chat_template_kwargs.enable_thinking"))
            return -1;
    }
    return 0;
}

/* ---- logits ------------------------------------------------------------------------------- */

static int bias_of(struct field_reader *r, const struct json *bias, const char *path, float *out)
{
    bool bans = bias->type == JSON_BOOL && !bias->boolean; /* llama-server's syntax */
    if (!bans && bias->type != JSON_NUMBER)
        return wrong_type(r, path, "a number", bias);
    if (!bans && !(bias->number >= -100 && bias->number <= 100))
        return api_error_set(r->err, 400, path,
                             "biases in '%s' must be from -100 to 100, not %.40s", path,
                             bias->text);
    *out = bans ? -100.0f : (float)bias->number;
    return 0;
}

static int add_text_bias(struct field_reader *r, struct byte_view text, float bias,
                         const char *path)
{
    struct request_params *p = r->params;
    if (text.len == 0)
        return api_error_set(r->err, 400, path, "'%s' has an empty text", path);
    p->text_biases[p->n_text_biases++] = (struct text_bias){text, bias};
    return 0;
}

/* `key` is an id in decimal or, if `may_be_text`, a text. */
static int add_bias(struct field_reader *r, struct byte_view key, bool may_be_text, float bias,
                    const char *path)
{
    struct request_params *p = r->params;
    char *end;
    long id = strtol(key.bytes, &end, 10);
    bool is_id = end > key.bytes && end == key.bytes + key.len;
    if (!is_id && may_be_text)
        return add_text_bias(r, key, bias, path);
    if (!is_id || id < 0 || id > INT32_MAX)
        return api_error_set(r->err, 400, path, "'%s' has \"%.40s\", which is not a token id", path,
                             key.bytes);
    p->biases[p->n_biases++] = (struct logit_bias){(int32_t)id, bias};
    return 0;
}

/* [15, -100], or ["text", -100]. */
static int add_bias_pair(struct field_reader *r, const struct json *pair, const char *path)
{
    const struct json *token = pair->first;
    float bias = 0;
    if (pair->type != JSON_ARRAY || pair->count != 2 ||
        (token->type != JSON_NUMBER && token->type != JSON_STRING))
        return api_error_set(r->err, 400, path,
                             "'%s' must have pairs of an id or a text and a bias", path);
    if (bias_of(r, token->next, path, &bias))
        return -1;
    return token->type == JSON_STRING ? add_text_bias(r, json_bytes(token), bias, path)
                                      : add_bias(r, json_bytes(token), false, bias, path);
}

static int add_bias_member(struct field_reader *r, const struct json *member, const char *path)
{
    const struct byte_view key = {member->key, member->key_len};
    float bias = 0;
    return bias_of(r, member, path, &bias) || add_bias(r, key, true, bias, path) ? -1 : 0;
}

/* {"15": -100, "text": 2}, or llama-server's [[15, -100], ["text", 2]]. */
int read_logit_bias(struct field_reader *r, const struct json *value, const char *path)
{
    struct request_params *p = r->params;
    if (value->type != JSON_OBJECT && value->type != JSON_ARRAY)
        return wrong_type(r, path, "an object", value);
    if (value->count > REQUEST_MAX_BIASES)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d tokens, not %zu", path,
                             REQUEST_MAX_BIASES, value->count);
    if (value->count == 0)
        return 0;
    p->biases = arena_alloc_array(&p->arena, value->count, sizeof *p->biases);
    p->text_biases = arena_alloc_array(&p->arena, value->count, sizeof *p->text_biases);
    if (!p->biases || !p->text_biases)
        return no_memory(r);
    json_each (item, value)
        if (value->type == JSON_ARRAY ? add_bias_pair(r, item, path)
                                      : add_bias_member(r, item, path))
            return -1;
    return 0;
}

int read_text_logprobs(struct field_reader *r, const struct json *value, const char *path)
{
    int64_t n;
    if (value->type == JSON_BOOL && !value->boolean)
        return 0;
    if (integer_of(r, value, path, &n))
        return -1;
    if (n < 0 || n > REQUEST_MAX_TOP_LOGPROBS)
        return wrong_integer(r, path, "from 0 to 20", value);
    r->params->logprobs = true;
    r->params->top_logprobs = n;
    return 0;
}

int read_dry_breakers(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->count > MAX_BREAKERS)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d strings", path,
                             MAX_BREAKERS);
    json_each (item, value)
        if (item->type != JSON_STRING || item->text_len == 0)
            return api_error_set(r->err, 400, path, "strings in '%s' must not be empty", path);
    r->params->dry_breakers = value;
    return 0;
}

/* ---- texts and tokens --------------------------------------------------------------------- */

int check_ids(struct field_reader *r, const struct json *ids, const char *path)
{
    json_each (id, ids) {
        int64_t n;
        if (!json_to_int64(id, &n) || n < 0 || n > INT32_MAX)
            return wrong_integer(r, path, "token ids", id);
    }
    return 0;
}

/* A text, an array of ids, or an array of these. */
int read_prompt(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type != JSON_STRING && value->type != JSON_ARRAY)
        return wrong_type(r, path, "a string or an array", value);
    r->params->prompt = value;
    if (value->type == JSON_STRING)
        return 0;
    if (value->first && value->first->type == JSON_NUMBER)
        return check_ids(r, value, path);
    if (value->count == 0 || value->count > REQUEST_MAX_PROMPTS)
        return api_error_set(r->err, 400, path, "'%s' must have 1 to %d prompts, not %zu", path,
                             REQUEST_MAX_PROMPTS, value->count);
    size_t i = 0;
    json_each (item, value) {
        char item_path[MAX_PATH];
        snprintf(item_path, sizeof item_path, "%s[%zu]", path, i++);
        if (item->type != JSON_STRING && item->type != JSON_ARRAY)
            return wrong_type(r, item_path, "a string or an array of token ids", item);
        if (item->type == JSON_ARRAY && check_ids(r, item, item_path))
            return -1;
    }
    return 0;
}

int read_tokens(struct field_reader *r, const struct json *value, const char *path)
{
    r->params->tokens = value;
    return check_ids(r, value, path);
}
