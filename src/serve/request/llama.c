/* Readers of fields that only llama-server's own API has: prompts that mix texts and ids, and the
 * parts of an infill. Pure; they run on the workers. */
#include <stdio.h>

#include "serve/request/request_internal.h"

/* Checks an array of texts and ids in any order, which is one prompt. */
static int check_mixed(struct field_reader *r, const struct json *array, const char *path)
{
    json_each (item, array) {
        int64_t id;
        if (item->type != JSON_STRING && (!json_to_int64(item, &id) || id < 0 || id > INT32_MAX))
            return wrong_integer(r, path, "made of texts and token ids", item);
    }
    return 0;
}

static bool has_ids(const struct json *array)
{
    json_each (item, array)
        if (item->type == JSON_NUMBER)
            return true;
    return false;
}

/* {"prompt_string": "...", "multimodal_data": [...]}: the text, if there is no multimodal data. */
static const struct json *prompt_text_of(struct field_reader *r, const struct json *value,
                                         const char *path)
{
    const struct json *text = json_get(value, "prompt_string");
    const struct json *media = json_get(value, "multimodal_data");
    if (!json_is(text, JSON_STRING)) {
        api_error_set(r->err, 400, path, "'%s' must have a prompt_string", path);
        return NULL;
    }
    if (media && media->type != JSON_NULL && !(media->type == JSON_ARRAY && media->count == 0)) {
        api_error_set(r->err, 400, path, "'%s' has multimodal_data, but this model reads text only",
                      path);
        return NULL;
    }
    return text;
}

/* Reads one prompt into `out`: a text, or an array of texts and ids. */
static int read_one(struct field_reader *r, const struct json *value, const char *path,
                    const struct json **out)
{
    *out = value;
    if (value->type == JSON_OBJECT)
        return (*out = prompt_text_of(r, value, path)) ? 0 : -1;
    if (value->type == JSON_ARRAY)
        return check_mixed(r, value, path);
    return value->type == JSON_STRING
               ? 0
               : wrong_type(r, path, "a string, an array or an object with a prompt_string", value);
}

/* A text, an array of ids and texts, or an array of such prompts, none of which is a lone id. */
int read_llama_prompt(struct field_reader *r, const struct json *value, const char *path)
{
    struct request_params *p = r->params;
    if (value->type != JSON_ARRAY || has_ids(value))
        return read_one(r, value, path, &p->prompt);
    if (value->count == 0 || value->count > REQUEST_MAX_PROMPTS)
        return api_error_set(r->err, 400, path, "'%s' must have 1 to %d prompts, not %zu", path,
                             REQUEST_MAX_PROMPTS, value->count);
    struct json *prompts = json_new(&p->arena, JSON_ARRAY);
    size_t i = 0;
    json_each (item, value) {
        char item_path[MAX_PATH];
        const struct json *prompt;
        snprintf(item_path, sizeof item_path, "%s[%zu]", path, i++);
        if (read_one(r, item, item_path, &prompt))
            return -1;
        if (!prompts)
            return no_memory(r);
        json_append(&p->arena, prompts, NULL, json_share(&p->arena, prompt));
    }
    p->prompt = prompts;
    return 0;
}

/* ---- fill-in-the-middle ---- */

int read_infill_prompt(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->prompt = value;
    return 0;
}

int read_input_prefix(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->input_prefix = value;
    return 0;
}

int read_input_suffix(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->input_suffix = value;
    return 0;
}

static int read_extra(struct field_reader *r, const struct json *value, const char *path)
{
    const struct json *name = json_get(value, "filename");
    if (!json_is(json_get(value, "text"), JSON_STRING))
        return api_error_set(r->err, 400, path, "'%s' must have a text", path);
    if (name && !json_is(name, JSON_STRING))
        return wrong_type(r, path, "an object whose filename is a string", name);
    return read_members(r, SCOPE_EXTRA, value, path);
}

int read_input_extra(struct field_reader *r, const struct json *value, const char *path)
{
    if (value->count > REQUEST_MAX_EXTRA)
        return api_error_set(r->err, 400, path, "'%s' may have at most %d strings, not %zu", path,
                             REQUEST_MAX_EXTRA, value->count);
    r->params->input_extra = value;
    return read_objects(r, value, path, read_extra);
}

/* OpenAI's name for the text after the gap. */
int read_suffix(struct field_reader *r, const struct json *value, const char *path)
{
    (void)path;
    r->params->suffix = value->text_len ? value : NULL;
    return 0;
}

/* ---- /tokenize ---- */

int read_tokenized(struct field_reader *r, const struct json *value, const char *path)
{
    r->params->text = value;
    if (value->type == JSON_ARRAY)
        return check_mixed(r, value, path);
    return value->type == JSON_STRING ? 0 : wrong_type(r, path, "a string or an array", value);
}
