/* Readers of `tools` and `tool_choice`. Functions are checked but kept as the client wrote them,
 * because templates show them to the model. Pure; they run on the workers. */
#include <stdio.h>
#include <string.h>

#include "serve/request/request_internal.h"

enum { MAX_NAME = 128 };

int read_checked(struct field_reader *r, const struct json *value, const char *path)
{
    (void)r, (void)value, (void)path;
    return 0;
}

int read_tool_type(struct field_reader *r, const struct json *value, const char *path)
{
    if (!json_equals(value, "function"))
        return api_error_set(r->err, 400, path,
                             "'%s' is \"%.40s\", but only \"function\" is supported", path,
                             value->text);
    return 0;
}

/* Names appear in prompts and grammars in many formats, so only plain ones are guaranteed to come
 * back unchanged. */
int read_function_name(struct field_reader *r, const struct json *value, const char *path)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-.:/";
    if (value->text_len == 0 || value->text_len > MAX_NAME ||
        strspn(value->text, allowed) != value->text_len)
        return api_error_set(r->err, 400, path,
                             "'%s' must have 1 to %d letters, digits or any of _ - . : /, not "
                             "\"%.60s\"",
                             path, MAX_NAME, value->text);
    return 0;
}

int read_tool_function(struct field_reader *r, const struct json *value, const char *path)
{
    if (read_members(r, SCOPE_FUNCTION, value, path))
        return -1;
    if (!json_is(json_get(value, "name"), JSON_STRING))
        return api_error_set(r->err, 400, path, "'%s' must have a name", path);
    return 0;
}

static int read_tool(struct field_reader *r, const struct json *value, const char *path)
{
    if (read_members(r, SCOPE_TOOL, value, path))
        return -1;
    if (!json_is(json_get(value, "function"), JSON_OBJECT))
        return api_error_set(r->err, 400, path,
                             "'%s' must be {\"type\": \"function\", \"function\": {...}}", path);
    return 0;
}

static const struct json *name_of(const struct json *tool)
{
    return json_get(json_get(tool, "function"), "name");
}

/* Two functions with the same name could not be distinguished. */
static int check_names(struct field_reader *r, const struct json *tools, const char *path)
{
    json_each (tool, tools)
        for (const struct json *other = tool->next; other; other = other->next)
            if (byte_view_equal(json_bytes(name_of(tool)), json_bytes(name_of(other))))
                return api_error_set(r->err, 400, path, "'%s' has two functions named \"%s\"", path,
                                     name_of(tool)->text);
    return 0;
}

int read_tools(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->count > REQUEST_MAX_TOOLS)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d functions, not %zu", path,
                             REQUEST_MAX_TOOLS, value->count);
    if (read_objects(r, value, path, read_tool) || check_names(r, value, path))
        return -1;
    r->params->tools = value->count ? value : NULL;
    return 0;
}

/* The older form, without an object with `type` around each function. */
int read_functions(struct field_reader *r, const struct json *value, const char *path)
{
    struct request_params *p = r->params;
    struct json *tools = json_new(&p->arena, JSON_ARRAY);
    if (value->count > REQUEST_MAX_TOOLS)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d functions, not %zu", path,
                             REQUEST_MAX_TOOLS, value->count);
    if (!tools)
        return no_memory(r);
    if (read_objects(r, value, path, read_tool_function))
        return -1;
    json_each (function, value) {
        struct json *tool = json_new(&p->arena, JSON_OBJECT);
        if (!tool)
            return no_memory(r);
        json_append(&p->arena, tool, "type", json_new_string(&p->arena, "function", 8));
        json_append(&p->arena, tool, "function", json_share(&p->arena, function));
        json_link(tools, tool);
    }
    if (p->arena.failed)
        return no_memory(r);
    if (check_names(r, tools, path))
        return -1;
    if (tools->count == 0)
        return 0;
    p->functions = tools;
    return 0;
}

/* ---- the choice --------------------------------------------------------------------------- */

static int choose_mode(struct field_reader *r, const struct json *mode, const char *path)
{
    static const struct {
        const char *name;
        enum tool_choice choice;
    } modes[] = {{"auto", TOOL_CHOICE_AUTO},
                 {"none", TOOL_CHOICE_NONE},
                 {"required", TOOL_CHOICE_REQUIRED},
                 {"any", TOOL_CHOICE_REQUIRED}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (json_equals(mode, modes[i].name)) {
            r->params->tool_choice = modes[i].choice;
            return 0;
        }
    }
    return api_error_set(r->err, 400, path,
                         "'%s' must be none, auto, required, or an object that names a function",
                         path);
}

static int allow_name(struct field_reader *r, const struct json *name)
{
    struct request_params *p = r->params;
    if (!p->allowed_tools && !(p->allowed_tools = json_new(&p->arena, JSON_ARRAY)))
        return no_memory(r);
    json_append(&p->arena, p->allowed_tools, NULL,
                json_new_string(&p->arena, name->text, name->text_len));
    return 0;
}

/* {"type": "function", "function": {"name": "f"}} */
static int allow_tool(struct field_reader *r, const struct json *value, const char *path)
{
    const struct json *name = name_of(value);
    if (!json_is(name, JSON_STRING))
        return api_error_set(r->err, 400, path,
                             "'%s' must be {\"type\": \"function\", \"function\": {\"name\": ...}}",
                             path);
    return allow_name(r, name);
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [...]}} */
static int allow_tools(struct field_reader *r, const struct json *value, const char *path)
{
    const struct json *allowed = json_get(value, "allowed_tools");
    const struct json *tools = json_get(allowed, "tools");
    if (!json_is(tools, JSON_ARRAY) || tools->count == 0 || tools->count > REQUEST_MAX_TOOLS)
        return api_error_set(r->err, 400, path,
                             "'%s.allowed_tools' must have a mode and 1 to %d tools", path,
                             REQUEST_MAX_TOOLS);
    char tools_path[MAX_PATH];
    snprintf(tools_path, sizeof tools_path, "%.40s.allowed_tools.tools", path);
    return choose_mode(r, json_get(allowed, "mode"), path) ||
                   read_objects(r, tools, tools_path, allow_tool)
               ? -1
               : 0;
}

int read_tool_choice(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->type != JSON_OBJECT)
        return choose_mode(r, value, path);
    const struct json *type = json_get(value, "type");
    if (json_equals(type, "allowed_tools"))
        return allow_tools(r, value, path);
    if (!json_equals(type, "function"))
        return api_error_set(r->err, 400, path, "'%s.type' must be function or allowed_tools",
                             path);
    r->params->tool_choice = TOOL_CHOICE_REQUIRED;
    r->params->parallel_calls = false; /* only the named one */
    return allow_tool(r, value, path);
}

/* The choice among `functions`: none, auto or {"name": "f"}. */
int read_function_call(struct field_reader *r, const struct json *value, const char *path)
{
    const struct json *name = json_get(value, "name");
    r->chose_function = true;
    if (json_equals(value, "none") || json_equals(value, "auto"))
        return choose_mode(r, value, path);
    if (!json_is(name, JSON_STRING))
        return api_error_set(r->err, 400, path,
                             "'%s' must be none, auto or {\"name\": ...}, the name of a function",
                             path);
    r->params->tool_choice = TOOL_CHOICE_REQUIRED;
    return allow_name(r, name);
}

/* Called at the end, because the choice may come before or after the tools. */
int check_tool_choice(struct field_reader *r)
{
    struct request_params *p = r->params;
    if (p->functions && p->tools)
        return api_error_set(r->err, 400, "functions",
                             "'functions' and 'tools' mean the same: send only 'tools'");
    if (p->functions) { /* the older form has at most one call */
        p->tools = p->functions;
        p->functions_asked = true;
        p->parallel_calls = false;
    }
    const char *choice = r->chose_function ? "function_call" : "tool_choice";
    const char *tools = r->chose_function ? "functions" : "tools";
    if (p->tool_choice == TOOL_CHOICE_REQUIRED && !p->tools)
        return api_error_set(r->err, 400, choice, "'%s' requires a call, but there are no '%s'",
                             choice, tools);
    if (!p->allowed_tools)
        return 0;
    json_each (name, p->allowed_tools) {
        bool found = false;
        for (const struct json *tool = p->tools ? p->tools->first : NULL; tool; tool = tool->next)
            found |= byte_view_equal(json_bytes(name_of(tool)), json_bytes(name));
        if (!found)
            return api_error_set(r->err, 400, choice,
                                 "'%s' names the function \"%.60s\", which is not in '%s'", choice,
                                 name->text, tools);
    }
    return 0;
}
