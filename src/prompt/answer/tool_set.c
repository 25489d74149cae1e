/* The functions of a request. Made on a worker, then read only by the event loop. The request's own
 * JSON tree is gone by the time the answer is parsed, so everything here lives in the set's
 * arena. */
#include "prompt/answer/tool_set.h"

#include <stdlib.h>
#include <string.h>

struct tool_set {
    struct arena arena;
    const struct json *json;
    struct tool *tools; /* [n] */
    size_t n;
};

static const struct json *member_of_type(const struct json *object, const char *key,
                                         enum json_type type)
{
    const struct json *member = json_get(object, key);
    return json_is(member, type) ? member : NULL;
}

static struct tool tool_read(const struct json *item)
{
    const struct json *function = member_of_type(item, "function", JSON_OBJECT);
    const struct json *name = member_of_type(function, "name", JSON_STRING);
    const struct json *strict = member_of_type(function, "strict", JSON_BOOL);
    return (struct tool){
        .name = name ? name->text : "",
        .name_len = name ? name->text_len : 0,
        .description = member_of_type(function, "description", JSON_STRING),
        .parameters = member_of_type(function, "parameters", JSON_OBJECT),
        .strict = strict && strict->boolean,
    };
}

/* A copy of the tree in the set's own memory. */
static bool copy_json(struct tool_set *set, const struct json *tools)
{
    struct strbuf text = STRBUF_INIT;
    struct error err;
    json_write(&text, tools);
    if (!text.failed)
        set->json = json_parse(&set->arena, strbuf_str(&text), text.len, &err);
    strbuf_free(&text);
    return set->json;
}

struct tool_set *tool_set_new(const struct json *tools)
{
    struct tool_set *set = calloc(1, sizeof *set);
    if (!set)
        return NULL;
    if (copy_json(set, tools))
        set->tools = arena_alloc_array(&set->arena, tools->count ? tools->count : 1,
                                       sizeof *set->tools);
    if (!set->tools) {
        tool_set_free(set);
        return NULL;
    }
    json_each (item, set->json)
        set->tools[set->n++] = tool_read(item);
    return set;
}

void tool_set_free(struct tool_set *set)
{
    if (!set)
        return;
    arena_free(&set->arena);
    free(set);
}

size_t tool_set_size(const struct tool_set *set)
{
    return set ? set->n : 0;
}

const struct tool *tool_set_at(const struct tool_set *set, size_t i)
{
    return &set->tools[i];
}

const struct tool *tool_set_find(const struct tool_set *set, const char *name, size_t len)
{
    for (size_t i = 0; i < tool_set_size(set); i++)
        if (set->tools[i].name_len == len && memcmp(set->tools[i].name, name, len) == 0)
            return &set->tools[i];
    return NULL;
}

const struct json *tool_set_json(const struct tool_set *set)
{
    return set->json;
}

const struct json *tool_parameter(const struct tool *tool, const char *name, size_t len)
{
    const struct json *properties = member_of_type(tool->parameters, "properties", JSON_OBJECT);
    if (!properties)
        return NULL;
    json_each (property, properties)
        if (property->key_len == len && memcmp(property->key, name, len) == 0)
            return property;
    return NULL;
}
