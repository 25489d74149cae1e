/* Readers of messages: roles, contents, calls. They rebuild the conversation in one form, so that
 * templates see only supported fields. Pure; they run on the workers. */
#include <stdio.h>
#include <string.h>

#include "serve/request/request_internal.h"

enum { MAX_MESSAGES = 65536, MAX_CALLS = 1024 };

static int append_string(struct field_reader *r, struct json *object, const char *key,
                         const struct json *value)
{
    struct arena *arena = &r->params->arena;
    json_append(arena, object, key, json_new_string(arena, value->text, value->text_len));
    return 0;
}

int read_role(struct field_reader *r, const struct json *value, const char *path)
{
    static const char *const roles[][2] = {{"system", "system"}, {"developer", "system"},
                                           {"user", "user"},     {"assistant", "assistant"},
                                           {"tool", "tool"},     {"function", "tool"}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (json_equals(value, roles[i][0])) {
            json_append(&r->params->arena, r->message, "role",
                        json_new_string(&r->params->arena, roles[i][1], strlen(roles[i][1])));
            return 0;
        }
    }
    return api_error_set(r->err, 400, path,
                         "'%s' must be system, developer, user, assistant, tool or function, not "
                         "\"%.40s\"",
                         path, value->text);
}

int read_part_type(struct field_reader *r, const struct json *value, const char *path)
{
    if (json_equals(value, "text") || json_equals(value, "refusal"))
        return 0;
    if (json_equals(value, "image_url") || json_equals(value, "image") ||
        json_equals(value, "input_image"))
        return api_error_set(r->err, 400, path,
                             "'%s' is \"%s\", but this model has no vision: it reads text only",
                             path, value->text);
    return api_error_set(r->err, 400, path, "'%s' is \"%.40s\", but this model reads text only",
                         path, value->text);
}

int read_part_text(struct field_reader *r, const struct json *value, const char *path)
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
        /* The type comes first: for an unsupported part, the error must name the type. */
        char type_path[MAX_PATH];
        snprintf(type_path, sizeof type_path, "%s.type", part_path);
        if (read_part_type(r, type, type_path))
            return -1;
        const char *subject = json_equals(type, "refusal") ? "refusal" : "text";
        if (!json_is(json_get(part, subject), JSON_STRING))
            return api_error_set(r->err, 400, part_path, "'%s' must have a %s", part_path, subject);
        if (read_members(r, SCOPE_PART, part, part_path))
            return -1;
    }
    return 0;
}

int read_content(struct field_reader *r, const struct json *value, const char *path)
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

int read_reasoning(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    struct arena *arena = &r->params->arena;
    if (!json_get(r->message, "reasoning_content")) /* the first of two spellings wins */
        json_append(arena, r->message, "reasoning_content",
                    json_new_string(arena, value->text, value->text_len));
    return 0;
}

/* The refusal of an earlier answer becomes its text. */
int read_refusal(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    if (value->text_len == 0 || json_get(r->message, "content"))
        return 0;
    return append_string(r, r->message, "content", value);
}

int read_prefix(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->ends_with_prefix = value->boolean;
    return 0;
}

int read_continue(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->continues |= value->boolean;
    r->params->must_not_continue = !value->boolean;
    return 0;
}

int read_generation_prompt(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->add_generation_prompt = r->must_begin = value->boolean;
    return 0;
}

/* ---- calls and their results -------------------------------------------------------------- */

int read_tool_call_id(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    return append_string(r, r->message, "tool_call_id", value);
}

int read_call_id(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    return append_string(r, r->call, "id", value);
}

int read_call_type(struct field_reader *r, const struct json *value, const char *path)
{
    if (!json_equals(value, "function"))
        return api_error_set(r->err, 400, path, "'%s' must be function, not \"%.40s\"", path,
                             value->text);
    return 0;
}

int read_called_name(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    return append_string(r, r->call->last, "name", value);
}

/* Kept as text, to preserve the answer's order of keys and spelling of numbers. */
int read_called_arguments(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type == JSON_STRING)
        return append_string(r, r->call->last, "arguments", value);
    if (value->type != JSON_OBJECT)
        return wrong_type(r, path, "the text of an object", value);
    struct arena *arena = &r->params->arena;
    struct strbuf text = STRBUF_INIT;
    json_write(&text, value);
    json_append(arena, r->call->last, "arguments",
                text.failed ? NULL : json_new_string(arena, strbuf_str(&text), text.len));
    bool failed = text.failed;
    strbuf_free(&text);
    return failed ? no_memory(r) : 0;
}

int read_call_function(struct field_reader *r, const struct json *value, const char *path)
{
    struct arena *arena = &r->params->arena;
    struct json *function = json_new(arena, JSON_OBJECT);
    if (!function)
        return no_memory(r);
    json_append(arena, r->call, "type", json_new_string(arena, "function", 8));
    json_append(arena, r->call, "function", function);
    if (read_members(r, SCOPE_CALLED, value, path))
        return -1;
    if (!json_get(function, "name"))
        return api_error_set(r->err, 400, path, "'%s' must have a name", path);
    if (!json_get(function, "arguments"))
        json_append(arena, function, "arguments", json_new_string(arena, "{}", 2));
    return 0;
}

static int read_call(struct field_reader *r, const struct json *value, const char *path)
{
    struct json *calls = r->message->last;
    if (!(r->call = json_new(&r->params->arena, JSON_OBJECT)))
        return no_memory(r);
    if (read_members(r, SCOPE_CALL, value, path))
        return -1;
    if (!json_get(r->call, "function"))
        return api_error_set(r->err, 400, path, "'%s' must have a function", path);
    json_link(calls, r->call);
    return 0;
}

int read_tool_calls(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->count > MAX_CALLS)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d calls, not %zu", path,
                             MAX_CALLS, value->count);
    if (value->count == 0)
        return 0;
    struct json *calls = json_new(&r->params->arena, JSON_ARRAY);
    if (!calls)
        return no_memory(r);
    json_append(&r->params->arena, r->message, "tool_calls", calls);
    if (r->message->last != calls)
        return no_memory(r);
    return read_objects(r, value, path, read_call);
}

/* Makes an id for a call in the older form, which has none, to match it with its result. */
static struct json *function_call_id(struct field_reader *r)
{
    char id[24];
    int len = snprintf(id, sizeof id, "call_%u", r->n_function_calls);
    return json_new_string(&r->params->arena, id, (size_t)len);
}

/* {"name": "f", "arguments": "{}"}: the older form of `tool_calls`. */
int read_message_function_call(struct field_reader *r, const struct json *value, const char *path)
{
    struct arena *arena = &r->params->arena;
    struct json *calls = json_new(arena, JSON_ARRAY);
    if (!calls || !(r->call = json_new(arena, JSON_OBJECT)))
        return no_memory(r);
    if (json_get(r->message, "tool_calls"))
        return api_error_set(r->err, 400, path,
                             "'%s' and 'tool_calls' mean the same: send only one", path);
    r->n_function_calls++;
    json_append(arena, r->call, "id", function_call_id(r));
    if (read_call_function(r, value, path))
        return -1;
    json_link(calls, r->call);
    json_append(arena, r->message, "tool_calls", calls);
    return 0;
}

/* ---- messages ----------------------------------------------------------------------------- */

/* Checks that involve several fields of a message. */
static int check_message(struct field_reader *r, const struct json *value, const char *path)
{
    struct arena *arena = &r->params->arena;
    const struct json *role = json_get(r->message, "role");
    if (!role)
        return api_error_set(r->err, 400, path, "'%s' must have a role (at byte %zu)", path,
                             value->position);
    if (json_equals(json_get(value, "role"), "function") && r->n_function_calls)
        json_append(arena, r->message, "tool_call_id", function_call_id(r));
    bool calls = json_get(r->message, "tool_calls");
    if (calls && !json_equals(role, "assistant"))
        return api_error_set(r->err, 400, path,
                             "'%s' has tool_calls, which only assistant messages may have", path);
    if (json_get(r->message, "content"))
        return 0;
    if (!calls && !json_equals(role, "assistant") && r->message_scope == SCOPE_MESSAGE)
        return api_error_set(r->err, 400, path, "'%s' must have content (at byte %zu)", path,
                             value->position);
    json_append(arena, r->message, "content",
                calls ? json_new(arena, JSON_NULL) : json_new_string(arena, "", 0));
    return 0;
}

static int read_message(struct field_reader *r, const struct json *value, const char *path)
{
    struct request_params *p = r->params;
    if (!(r->message = json_new(&p->arena, JSON_OBJECT)))
        return no_memory(r);
    p->ends_with_prefix = false; /* only that of the last message counts */
    if (read_members(r, r->message_scope, value, path) || check_message(r, value, path))
        return -1;
    json_link(p->messages, r->message);
    return 0;
}

int read_messages(struct field_reader *r, const struct json *value, const char *path)
{
    struct request_params *p = r->params;
    if (value->count == 0 || value->count > MAX_MESSAGES)
        return api_error_set(r->err, 400, path, "'%s' must have 1 to %d messages, not %zu", path,
                             MAX_MESSAGES, value->count);
    if (!(p->messages = json_new(&p->arena, JSON_ARRAY)))
        return no_memory(r);
    return read_objects(r, value, path, read_message);
}
