/* Dicts of a template, and the conversion of the context's JSON to values. Keys are equal as in
 * Python: 1, 1.0 and true are one key. Entries are never removed. */
#include "prompt/jinja/value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { INDEX_FROM = 8, MAX_CONTEXT_DEPTH = 256 };

bool value_is_hashable(struct jinja *j, const struct value *key)
{
    if (key->type == V_LIST || key->type == V_DICT || key->type == V_VIEW)
        return false;
    if (key->type != V_TUPLE)
        return true;
    if (j->depth >= JINJA_MAX_DEPTH)
        return false;
    j->depth++;
    bool hashable = true;
    for (size_t i = 0; i < key->list->len && hashable; i++)
        hashable = value_is_hashable(j, &key->list->items[i]);
    j->depth--;
    return hashable;
}

static uint64_t value_hash(const struct value *v)
{
    switch (v->type) {
    case V_BOOL: return hash_mix((uint64_t)v->boolean);
    case V_INT: return hash_mix((uint64_t)v->integer);
    case V_FLOAT:
        if (v->real == floor(v->real) && fabs(v->real) < 9e18)
            return hash_mix((uint64_t)(int64_t)v->real);
        return hash_bytes(&v->real, sizeof v->real);
    case V_STRING: return hash_bytes(v->text->data, v->text->len);
    case V_TUPLE: {
        uint64_t hash = v->list->len;
        for (size_t i = 0; i < v->list->len; i++)
            hash = hash_pair(hash, value_hash(&v->list->items[i]));
        return hash;
    }
    default: return (uint64_t)v->type;
    }
}

struct dict *dict_new(struct jinja *j, size_t capacity)
{
    struct dict *dict = jinja_alloc(j, sizeof *dict);
    if (!dict || capacity == 0)
        return dict;
    dict->entries = jinja_alloc_array(j, capacity, sizeof *dict->entries);
    dict->capacity = capacity;
    return dict->entries ? dict : NULL;
}

struct value *dict_find(struct jinja *j, const struct dict *dict, const struct value *key)
{
    if (key->type == V_STRING)
        return dict_find_text(dict, key->text->data, key->text->len);
    if (!dict->index) {
        for (size_t i = 0; i < dict->len; i++)
            if (value_equal(j, &dict->entries[i].key, key))
                return &dict->entries[i].value;
        return NULL;
    }
    for (size_t at = value_hash(key) & dict->index_mask; dict->index[at];
         at = (at + 1) & dict->index_mask) {
        struct dict_entry *entry = &dict->entries[dict->index[at] - 1];
        if (value_equal(j, &entry->key, key))
            return &entry->value;
    }
    return NULL;
}

static bool key_is(const struct value *key, const char *bytes, size_t len)
{
    return key->type == V_STRING && key->text->len == len &&
           memcmp(key->text->data, bytes, len) == 0;
}

struct value *dict_find_text(const struct dict *dict, const char *bytes, size_t len)
{
    if (!dict->index) {
        for (size_t i = 0; i < dict->len; i++)
            if (key_is(&dict->entries[i].key, bytes, len))
                return &dict->entries[i].value;
        return NULL;
    }
    for (size_t at = hash_bytes(bytes, len) & dict->index_mask; dict->index[at];
         at = (at + 1) & dict->index_mask) {
        struct dict_entry *entry = &dict->entries[dict->index[at] - 1];
        if (key_is(&entry->key, bytes, len))
            return &entry->value;
    }
    return NULL;
}

static void index_add(struct dict *dict, size_t entry)
{
    size_t at = value_hash(&dict->entries[entry].key) & dict->index_mask;
    while (dict->index[at])
        at = (at + 1) & dict->index_mask;
    dict->index[at] = (uint32_t)(entry + 1);
}

static bool dict_grow(struct jinja *j, struct dict *dict)
{
    if (dict->len == dict->capacity) {
        size_t capacity = dict->capacity ? dict->capacity * 2 : 4;
        struct dict_entry *entries = jinja_alloc_array(j, capacity, sizeof *entries);
        if (!entries)
            return false;
        if (dict->len)
            memcpy(entries, dict->entries, dict->len * sizeof *entries);
        dict->entries = entries;
        dict->capacity = capacity;
    }
    if (dict->len < INDEX_FROM || (dict->index && dict->len * 2 < dict->index_mask))
        return true;
    size_t size = 32;
    while (size < dict->len * 4)
        size *= 2;
    if (!(dict->index = jinja_alloc_array(j, size, sizeof *dict->index)))
        return false;
    dict->index_mask = size - 1;
    for (size_t i = 0; i < dict->len; i++)
        index_add(dict, i);
    return true;
}

bool dict_set(struct jinja *j, struct dict *dict, const struct value *key,
              const struct value *value)
{
    if (!value_is_hashable(j, key))
        return jinja_fail(j, "unhashable type: '%s'", value_type_name(key));
    struct value *found = dict_find(j, dict, key);
    if (found) {
        *found = *value;
        return true;
    }
    if (!dict_grow(j, dict))
        return false;
    dict->entries[dict->len++] = (struct dict_entry){*key, *value};
    if (dict->index)
        index_add(dict, dict->len - 1);
    return true;
}

bool dict_view(struct jinja *j, const struct dict *dict, const char *type_name, struct value *out)
{
    struct view *view = jinja_alloc(j, sizeof *view);
    if (!view || !(view->items = list_new(j, dict->len)))
        return false;
    view->type_name = type_name;
    for (size_t i = 0; i < dict->len; i++) {
        const struct dict_entry *entry = &dict->entries[i];
        struct value item = type_name[5] == 'k'   ? entry->key
                            : type_name[5] == 'v' ? entry->value
                                                  : list_pair(j, &entry->key, &entry->value);
        if (item.type == V_MISSING)
            return false;
        view->items->items[view->items->len++] = item;
    }
    *out = (struct value){.type = V_VIEW, .view = view};
    return true;
}

static bool number_from_json(struct jinja *j, const struct json *json, struct value *out)
{
    if (memchr(json->text, '.', json->text_len) || memchr(json->text, 'e', json->text_len) ||
        memchr(json->text, 'E', json->text_len)) {
        *out = value_real(json->number);
        return true;
    }
    errno = 0;
    *out = value_int(strtoll(json->text, NULL, 10));
    if (errno == 0)
        return true;
    *out = value_text(text_view(j, json->text, json->text_len, RENDER_TEMPLATE));
    out->type = V_BIGINT;
    return out->text != NULL;
}

bool value_from_json(struct jinja *j, const struct json *json, int32_t source, unsigned depth,
                     struct value *out)
{
    if (depth > MAX_CONTEXT_DEPTH)
        return jinja_fail(j, "the context is nested too deeply");
    switch (json->type) {
    case JSON_NULL: *out = value_none(); return true;
    case JSON_BOOL: *out = value_bool(json->boolean); return true;
    case JSON_NUMBER: return number_from_json(j, json, out);
    case JSON_STRING: return value_set_text(text_view(j, json->text, json->text_len, source), out);
    case JSON_ARRAY: {
        struct list *list = list_new(j, json->count);
        if (!list)
            return false;
        *out = value_list(list);
        json_each (child, json) {
            struct value item;
            if (!value_from_json(j, child, source, depth + 1, &item) || !list_add(j, list, &item))
                return false;
        }
        return true;
    }
    case JSON_OBJECT: {
        struct dict *dict = dict_new(j, json->count);
        if (!dict)
            return false;
        *out = (struct value){.type = V_DICT, .dict = dict};
        json_each (child, json) {
            struct value item, key = value_text(text_view(j, child->key, child->key_len, source));
            if (!key.text || !value_from_json(j, child, source, depth + 1, &item) ||
                !dict_set(j, dict, &key, &item))
                return false;
        }
        return true;
    }
    }
    return true;
}

/* Templates write <|user|> as "<|" + role + "|>", so the usual roles count as the template's text;
 * any other role is text from the client. */
static bool role_is_known(const struct text *role)
{
    static const char *const known[] = {"system",    "user",     "assistant", "tool",
                                        "developer", "function", "model",     "ipython"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (text_is(role, known[i]))
            return true;
    return false;
}

static bool messages_from_json(struct jinja *j, const struct json *messages, struct value *out)
{
    struct list *list = list_new(j, messages->count);
    if (!list)
        return false;
    *out = value_list(list);
    json_each (child, messages) {
        struct value message;
        if (!value_from_json(j, child, (int32_t)list->len, 2, &message) ||
            !list_add(j, list, &message))
            return false;
        struct value *role = message.type == V_DICT ? dict_find_text(message.dict, "role", 4)
                                                    : NULL;
        if (role && role->type == V_STRING && role_is_known(role->text) &&
            !value_set_text(text_view(j, role->text->data, role->text->len, RENDER_TEMPLATE), role))
            return false;
    }
    return true;
}

struct dict *context_from_json(struct jinja *j, const struct json *context)
{
    struct dict *dict = dict_new(j, context->count);
    if (!dict)
        return NULL;
    json_each (child, context) {
        static const char suffix[] = "_token";
        const size_t n = sizeof suffix - 1;
        bool is_token = child->type == JSON_STRING && child->key_len >= n &&
                        memcmp(child->key + child->key_len - n, suffix, n) == 0;
        bool is_messages = child->type == JSON_ARRAY && child->key_len == 8 &&
                           memcmp(child->key, "messages", 8) == 0;
        struct value key = value_text(text_view(j, child->key, child->key_len, RENDER_TEMPLATE));
        struct value item;
        bool ok = key.text &&
                  (is_messages ? messages_from_json(j, child, &item)
                               : value_from_json(j, child, is_token ? RENDER_TEMPLATE : RENDER_DATA,
                                                 1, &item)) &&
                  dict_set(j, dict, &key, &item);
        if (!ok)
            return NULL;
    }
    return dict;
}
