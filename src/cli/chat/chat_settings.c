/* Settings are stored as JSON text and parsed by the server's own reader for each answer, so names,
 * bounds and messages are defined in one table. */
#include "cli/chat/chat_settings.h"

#include <stdlib.h>
#include <string.h>

#include "cli/foreign_options.h"

/* Fields that make sense for one answer in a terminal. */
static const char *const names[] = {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "repetition_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
    "min_tokens",
    "stop",
    "ignore_eos",
    "enable_thinking",
    "reasoning_effort",
    NULL,
};
enum { N_NAMES = sizeof names / sizeof *names - 1 };
_Static_assert((int)N_NAMES <= (int)SETTINGS_MAX, "settings have no room");

const struct request_field *chat_settings_field(size_t index)
{
    for (size_t i = 0; index < N_NAMES && i < n_request_fields; i++)
        if (request_fields[i].scope == SCOPE_REQUEST &&
            strcmp(request_fields[i].name, names[index]) == 0)
            return &request_fields[i];
    return NULL;
}

static size_t name_find(const char *name)
{
    size_t i = 0;
    while (i < N_NAMES && strcmp(names[i], name) != 0)
        i++;
    return i;
}

const char *name_nearest(const char *given, const char *const *all)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (; *all; all++) {
        bool is_beginning = *given && strncmp(*all, given, strlen(given)) == 0;
        size_t distance = is_beginning ? 0 : name_distance(given, *all);
        if (distance < best_distance && (is_beginning || name_is_near(given, distance))) {
            best = *all;
            best_distance = distance;
        }
    }
    return best;
}

static int name_error(const char *name, struct error *err)
{
    const char *nearest = name_nearest(name, names);
    if (nearest)
        return error_set(err, ERROR_INPUT, "unknown setting '%s'. Did you mean %s?", name, nearest);
    return error_set(err, ERROR_INPUT, "unknown setting '%s': /set lists them", name);
}

/* The body of a request with these settings. */
static void body_write(const struct chat_settings *s, struct strbuf *out)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    chat_settings_write(s, &w);
    json_array_begin(&w, "messages");
    json_object_begin(&w, NULL);
    json_add_string(&w, "role", "user");
    json_add_string(&w, "content", "?");
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
}

int chat_settings_read(const struct chat_settings *s, const struct sampling *sampling,
                       struct request_params *out, struct error *err)
{
    struct strbuf body = STRBUF_INIT;
    struct api_error problem = {0};
    body_write(s, &body);
    int failed = request_params_read(out, REQUEST_CHAT, strbuf_str(&body), body.len, false,
                                     sampling, &problem);
    strbuf_free(&body);
    if (failed) {
        request_params_free(out);
        return error_set(err, ERROR_INPUT, "%s", problem.message);
    }
    return 0;
}

/* Converts what a person typed to JSON. Text is quoted only if the field takes a string. */
static int value_make(const struct request_field *f, const char *text, struct strbuf *out,
                      struct error *err)
{
    struct arena arena = ARENA_INIT;
    const struct json *value = json_parse(&arena, text, strlen(text), NULL);
    bool is_number = f->kind == KIND_NUMBER || f->kind == KIND_INT;
    int failed = 0;
    if (f->kind == KIND_BOOL && (strcmp(text, "on") == 0 || strcmp(text, "off") == 0))
        strbuf_adds(out, text[1] == 'n' ? "true" : "false");
    else if (f->kind == KIND_BOOL && !json_is(value, JSON_BOOL))
        failed = error_set(err, ERROR_INPUT, "'%s' must be true or false, not '%s'", f->name, text);
    else if (is_number && !json_is(value, JSON_NUMBER))
        failed = error_set(err, ERROR_INPUT, "'%s' must be a number, not '%s'", f->name, text);
    else if (is_number || f->kind == KIND_BOOL || json_is(value, JSON_STRING) ||
             json_is(value, JSON_ARRAY))
        strbuf_adds(out, text);
    else
        json_write_string(out, text, strlen(text));
    arena_free(&arena);
    return failed;
}

/* Rejects values that the request reader accepts but a chat cannot use. */
static int value_check(const struct prompt_maker *prompt, const struct request_field *f,
                       const struct request_params *p, struct error *err)
{
    if (p->max_tokens < 0)
        return error_set(err, ERROR_INPUT,
                         "'max_tokens' must be at least 1, or -1 for the rest of the context");
    if (strcmp(f->name, "enable_thinking") == 0 && !prompt->traits.has_thinking_switch)
        return error_set(err, ERROR_INPUT,
                         "this model's chat template cannot switch thinking on or off");
    return 0;
}

int chat_settings_set(struct chat_settings *s, const struct prompt_maker *prompt, const char *name,
                      const char *value, struct error *err)
{
    static const struct sampling any = SAMPLING_DEFAULT;
    struct strbuf json = STRBUF_INIT;
    struct request_params params;
    size_t i = name_find(name);
    if (i == N_NAMES)
        return name_error(name, err);
    const struct request_field *f = chat_settings_field(i);
    if (strcmp(value, "default") == 0) {
        free(s->values[i]);
        s->values[i] = NULL;
        return 0;
    }
    int failed = value_make(f, value, &json, err);
    if (!failed) {
        struct chat_settings alone = {0};
        alone.values[i] = json.data;
        failed = chat_settings_read(&alone, &any, &params, err);
        if (!failed) {
            failed = value_check(prompt, f, &params, err);
            request_params_free(&params);
        }
    }
    char *kept = failed ? NULL : strdup(strbuf_str(&json));
    strbuf_free(&json);
    if (!failed && !kept)
        failed = error_set(err, ERROR_MEMORY, "no memory for a setting");
    if (!failed) {
        free(s->values[i]);
        s->values[i] = kept;
    }
    return failed;
}

void chat_settings_show(const struct chat_settings *s, size_t index,
                        const struct sampling *sampling, struct strbuf *out)
{
    const struct request_field *f = chat_settings_field(index);
    struct request_params p;
    if (s->values[index]) {
        strbuf_adds(out, s->values[index]);
        return;
    }
    if (f->read || chat_settings_read(s, sampling, &p, NULL)) {
        strbuf_adds(out, "default");
        return;
    }
    const char *at = (const char *)&p + f->offset;
    float number;
    int64_t integer;
    if (f->kind == KIND_NUMBER) {
        memcpy(&number, at, sizeof number);
        strbuf_addf(out, "%g", (double)number);
    } else if (f->kind == KIND_INT) {
        memcpy(&integer, at, sizeof integer);
        strbuf_addf(out, "%lld", (long long)integer);
    } else {
        strbuf_adds(out, *at ? "true" : "false");
    }
    strbuf_adds(out, " (default)");
    request_params_free(&p);
}

void chat_settings_write(const struct chat_settings *s, struct json_writer *w)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        struct arena arena = ARENA_INIT;
        const struct json *value = s->values[i] ? json_parse(&arena, s->values[i],
                                                             strlen(s->values[i]), NULL)
                                                : NULL;
        if (value)
            json_add_value(w, names[i], value);
        arena_free(&arena);
    }
}

int chat_settings_take(struct chat_settings *s, const struct prompt_maker *prompt,
                       const struct json *request, struct error *err)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct json *value = json_get(request, names[i]);
        if (!value || value->type == JSON_NULL)
            continue;
        struct strbuf text = STRBUF_INIT;
        json_write(&text, value);
        int failed = chat_settings_set(s, prompt, names[i], strbuf_str(&text), err);
        strbuf_free(&text);
        if (failed)
            return -1;
    }
    return 0;
}

void chat_settings_free(struct chat_settings *s)
{
    for (size_t i = 0; i < N_NAMES; i++)
        free(s->values[i]);
    *s = (struct chat_settings){0};
}
