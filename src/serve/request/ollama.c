/* Readers of Ollama's requests: fields with other names, and what a request becomes: a chat, or,
 * for a raw prompt, a text completion. Pure; they run on the workers. */
#include <stdio.h>
#include <string.h>

#include "prompt/prompt.h"
#include "serve/request/request_internal.h"

/* ---- fields ---- */

int read_ollama_options(struct field_reader *r, const struct json *value, const char *path)
{
    return read_members(r, SCOPE_OLLAMA_OPTIONS, value, path);
}

/* Ollama has several numbers for "no limit": -1, -2 and 0. Open WebUI also puts the field outside
 * `options`; the one in `options` wins. */
int read_num_predict(struct field_reader *r, const struct json *value, const char *path)
{
    int64_t n;
    if (integer_of(r, value, path, &n))
        return -1;
    bool is_option = strcmp(path, "num_predict") != 0;
    *(is_option ? &r->params->max_tokens : &r->params->default_max_tokens) = n > 0 ? n : 0;
    return 0;
}

/* "json", a schema, or the text of a schema. */
int read_ollama_format(struct field_reader *r, const struct json *value, const char *path)
{
    if (json_equals(value, ""))
        return 0;
    if (json_equals(value, "json"))
        return constrain(r, CONSTRAINT_JSON, value, path);
    if (value->type != JSON_STRING && value->type != JSON_OBJECT)
        return wrong_type(r, path, "\"json\" or a JSON schema", value);
    return read_schema(r, value, path);
}

int read_think(struct field_reader *r, const struct json *value, const char *path)
{
    static const char *const levels[] = {"low", "medium", "high", "max"};
    const struct json on = {.type = JSON_BOOL, .boolean = true};
    if (value->type == JSON_BOOL) {
        r->params->must_think = value->boolean;
        return read_enable_thinking(r, value, path);
    }
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!json_equals(value, levels[i]))
            continue;
        r->params->must_think = true;
        add_variable(r->params, "reasoning_effort", value);
        return read_enable_thinking(r, &on, path);
    }
    return api_error_set(r->err, 400, path, "'%s' must be true, false, low, medium, high or max",
                         path);
}

/* Seconds, or a duration as Go writes it: "5m", "1h30m", "0s". */
int read_keep_alive(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type != JSON_NUMBER && value->type != JSON_STRING)
        return wrong_type(r, path, "a number or a duration such as \"5m\"", value);
    r->params->is_unload = value->type == JSON_NUMBER
                               ? value->number == 0
                               : strchr(value->text, '0') && !strpbrk(value->text, "123456789");
    return 0;
}

int read_ollama_prompt(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->prompt = value;
    return 0;
}

int read_system(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->system = value->text_len ? value : NULL;
    return 0;
}

int read_raw(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->is_raw = value->boolean;
    return 0;
}

/* Without messages, the request only loads the model. */
int read_ollama_messages(struct field_reader *r, const struct json *value, const char *path)
{
    return value->count ? read_messages(r, value, path) : 0;
}

/* Templates expect the name of a result's function in "name". */
int read_tool_name(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    struct arena *arena = &r->params->arena;
    if (value->text_len)
        json_append(arena, r->message, "name",
                    json_new_string(arena, value->text, value->text_len));
    return 0;
}

/* ---- calls and their results ---- */

static bool has_string(const struct json *object, const char *key)
{
    return json_is(json_get(object, key), JSON_STRING);
}

/* Many of Ollama's clients send calls without ids, and results at most with the function's name.
 * Templates need ids, so calls are numbered. `open` becomes the list of calls without a result. */
static int number_calls(struct field_reader *r, const struct json *calls, unsigned *n_calls,
                        struct json **open)
{
    struct arena *arena = &r->params->arena;
    struct json *list = json_new(arena, JSON_ARRAY);
    if (!list)
        return no_memory(r);
    for (struct json *call = calls->first; call; call = call->next) {
        char id[24];
        int len = snprintf(id, sizeof id, "call_%u", (*n_calls)++);
        if (!has_string(call, "id"))
            json_append(arena, call, "id", json_new_string(arena, id, (size_t)len));
        json_append(arena, list, NULL, json_share(arena, call));
    }
    *open = list->first;
    return 0;
}

/* Removes a result's call from the list: the first with the function's name, or else the first.
 * NULL: none left. */
static const struct json *take_call(struct json **open, const struct json *result)
{
    const struct json *name = json_get(result, "name");
    struct json **at = open;
    while (
        name && *at &&
        !byte_view_equal(json_bytes(json_get(json_get(*at, "function"), "name")), json_bytes(name)))
        at = &(*at)->next;
    at = *at ? at : open;
    const struct json *call = *at;
    if (call)
        *at = call->next;
    return call;
}

static int match_results(struct field_reader *r)
{
    struct arena *arena = &r->params->arena;
    struct json *open = NULL;
    unsigned n_calls = 0;
    for (struct json *message = r->params->messages->first; message; message = message->next) {
        const struct json *calls = json_get(message, "tool_calls");
        if (calls && number_calls(r, calls, &n_calls, &open))
            return -1;
        if (has_string(message, "tool_call_id") || !json_equals(json_get(message, "role"), "tool"))
            continue;
        const struct json *call = take_call(&open, message), *id = json_get(call, "id");
        if (id)
            json_append(arena, message, "tool_call_id", json_share(arena, id));
    }
    return 0;
}

/* ---- the whole ---- */

static int finish_chat(struct field_reader *r)
{
    struct request_params *p = r->params;
    p->kind = REQUEST_CHAT;
    p->is_load = !p->messages;
    return p->messages ? match_results(r) : 0;
}

static int finish_generate(struct field_reader *r)
{
    struct request_params *p = r->params;
    bool is_text = r->is_raw || p->suffix;
    p->kind = is_text ? REQUEST_TEXT : REQUEST_CHAT;
    p->is_load = !p->prompt || (p->prompt->text_len == 0 && !p->suffix);
    if (is_text && r->system)
        return api_error_set(r->err, 400, "system",
                             "'system' cannot be used with '%s', which renders no template",
                             p->suffix ? "suffix" : "raw");
    if (p->is_load || is_text)
        return 0;
    if (!(p->messages = json_new(&p->arena, JSON_ARRAY)))
        return no_memory(r);
    if (r->system)
        message_append(&p->arena, p->messages, "system", r->system->text, r->system->text_len);
    message_append(&p->arena, p->messages, "user", p->prompt->text, p->prompt->text_len);
    p->prompt = NULL;
    return 0;
}

int finish_ollama(struct field_reader *r)
{
    if (!r->params->logprobs) /* Ollama ignores it then */
        r->params->top_logprobs = 0;
    if (r->kind == REQUEST_OLLAMA_CHAT ? finish_chat(r) : finish_generate(r))
        return -1;
    r->params->is_unload &= r->params->is_load;
    return 0;
}
