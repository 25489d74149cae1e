/* References: "#", "#/definitions/a", "#name", and the URIs of any $id in the same document.
 * References outside the document are rejected: nothing is ever fetched. A schema with a $id is its
 * own document: "#" below it refers to it, not to the root. */
#include "prompt/schema/json_schema_internal.h"

#include <string.h>

#include "base/ascii.h"

/* A part of the document that is a resource of its own. */
struct schema_resource {
    const struct schema_place *place;
    const char *uri; /* without a fragment */
    size_t len;
    struct schema_resource *next;
};

/* ---- addresses ----------------------------------------------------------------------------- */

static size_t fragment_at(const char *bytes, size_t len)
{
    const char *hash = memchr(bytes, '#', len);
    return hash ? (size_t)(hash - bytes) : len;
}

/* The length of "scheme:" at the beginning, or 0. */
static size_t scheme_length(struct byte_view uri)
{
    size_t i = 0;
    while (i < uri.len && (ascii_is_alpha(uri.bytes[i]) ||
                           (i && (ascii_is_digit(uri.bytes[i]) || strchr("+-.", uri.bytes[i])))))
        i++;
    return i && i < uri.len && uri.bytes[i] == ':' ? i + 1 : 0;
}

/* A relative address as seen from `base`. Dots in paths are not resolved: such an address is then
 * simply not found. */
static struct byte_view uri_resolve(struct schema_walker *w, struct byte_view base,
                                    struct byte_view uri)
{
    size_t scheme = scheme_length(base), keep = 0;
    if (uri.len == 0)
        return base;
    if (scheme_length(uri))
        return uri;
    size_t authority = scheme; /* where the path begins */
    if (base.len >= scheme + 2 && memcmp(base.bytes + scheme, "//", 2) == 0) {
        authority = scheme + 2;
        while (authority < base.len && base.bytes[authority] != '/')
            authority++;
    }
    if (uri.len >= 2 && memcmp(uri.bytes, "//", 2) == 0)
        keep = scheme;
    else if (uri.bytes[0] == '/')
        keep = authority;
    else
        for (size_t i = authority; i < base.len; i++)
            if (base.bytes[i] == '/')
                keep = i + 1;
    char *joined = arena_alloc(&w->arena, keep + uri.len + 1);
    if (!joined)
        return schema_step(w, 1), uri;
    memcpy(joined, base.bytes, keep);
    memcpy(joined + keep, uri.bytes, uri.len);
    return (struct byte_view){joined, keep + uri.len};
}

/* The $id of a schema without its fragment, or an empty text. Draft 4 called it id. */
static struct byte_view id_get(const struct schema_walker *w, const struct json *node)
{
    const struct json *id = json_get(node, "$id");
    const struct json *dialect = json_get(w->root, "$schema");
    if (!id && json_is(dialect, JSON_STRING) && strstr(dialect->text, "draft-04"))
        id = json_get(node, "id");
    if (!json_is(id, JSON_STRING))
        return (struct byte_view){"", 0};
    return (struct byte_view){id->text, fragment_at(id->text, id->text_len)};
}

/* ---- the index ----------------------------------------------------------------------------- */

/* Keywords whose value is a schema (0), an array of them or one (1), an object of them (2). */
static int keyword_kind(const struct json *member)
{
    static const char *const one[] = {"additionalProperties",
                                      "propertyNames",
                                      "not",
                                      "if",
                                      "then",
                                      "else",
                                      "contains",
                                      "additionalItems",
                                      "unevaluatedProperties",
                                      "unevaluatedItems",
                                      "items"};
    static const char *const several[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
    static const char *const named[] = {"properties",  "patternProperties", "$defs",
                                        "definitions", "dependentSchemas",  "dependencies"};
    if (member->type == JSON_ARRAY)
        for (size_t i = 0; i < sizeof several / sizeof *several; i++)
            if (strcmp(member->key, several[i]) == 0)
                return 1;
    if (member->type != JSON_OBJECT)
        return -1;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (strcmp(member->key, one[i]) == 0)
            return 0;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(member->key, named[i]) == 0)
            return 2;
    return -1;
}

/* Calls `visit` for a schema and, as long as it returns true, for the schemas below it. The
 * recursion is as deep as the document, which its parser has bounded. */
static void schemas_walk(struct schema_walker *w, const struct schema_place *place,
                         bool (*visit)(struct schema_walker *w, const struct schema_place *place,
                                       void *context),
                         void *context)
{
    if (!schema_step(w, 1) || !visit(w, place, context) || place->node->type != JSON_OBJECT)
        return;
    json_each (member, place->node) {
        int kind = keyword_kind(member);
        if (kind < 0)
            continue;
        const struct schema_place *at = schema_place_key(w, place, member);
        if (at && kind == 0)
            schemas_walk(w, at, visit, context);
        size_t index = 0;
        for (const struct json *child = kind ? member->first : NULL; at && child;
             child = child->next, index++) {
            const struct schema_place *below = kind == 1 ? schema_place_index(w, at, child, index)
                                                         : schema_place_key(w, at, child);
            if (below)
                schemas_walk(w, below, visit, context);
        }
    }
}

/* The resource that a place belongs to: the nearest one above it. */
static const struct schema_resource *resource_of(const struct schema_walker *w,
                                                 const struct schema_place *place)
{
    for (; place; place = place->parent)
        for (const struct schema_resource *r = w->resources; r; r = r->next)
            if (r->place->node == place->node)
                return r;
    return NULL;
}

static bool resource_visit(struct schema_walker *w, const struct schema_place *place, void *context)
{
    (void)context;
    struct byte_view id = id_get(w, place->node);
    if (id.len == 0 && place->parent)
        return true;
    const struct json *dialect = json_get(w->root, "$schema");
    if (place->parent && json_get(place->node, "$ref") &&
        !(json_is(dialect, JSON_STRING) && strstr(dialect->text, "/20")))
        return schema_fail(w, place, "$id",
                           "what this means beside $ref depends on the draft: move it, or name the "
                           "draft in $schema");
    const struct schema_resource *above = resource_of(w, place->parent);
    struct byte_view base = above ? (struct byte_view){above->uri, above->len}
                                  : (struct byte_view){"", 0};
    struct byte_view uri = uri_resolve(w, base, id);
    struct schema_resource *r = arena_alloc(&w->arena, sizeof *r);
    if (!r)
        return schema_step(w, 1);
    *r = (struct schema_resource){place, uri.bytes, uri.len, w->resources};
    w->resources = r;
    return true;
}

/* Whether unevaluatedProperties or unevaluatedItems is anywhere in a document: a $ref may lead to
 * places that are not known to be schemas. */
static bool has_unevaluated(struct schema_walker *w, const struct json *node)
{
    if ((node->type != JSON_OBJECT && node->type != JSON_ARRAY) || !schema_step(w, 1))
        return false;
    json_each (child, node)
        if ((node->type == JSON_OBJECT && strncmp(child->key, "unevaluated", 11) == 0) ||
            has_unevaluated(w, child))
            return true;
    return false;
}

bool schema_index_resources(struct schema_walker *w)
{
    const struct json *dialect = json_get(w->root, "$schema");
    w->is_old_draft = json_is(dialect, JSON_STRING) && strstr(dialect->text, "/draft-0");
    w->has_unevaluated = has_unevaluated(w, w->root);
    schemas_walk(w, w->root_place, resource_visit, NULL);
    return !w->failed;
}

/* ---- fragments ----------------------------------------------------------------------------- */

static size_t percent_decode(const char *bytes, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int high = i + 2 < len && bytes[i] == '%' ? ascii_hex_value(bytes[i + 1]) : -1;
        int low = high >= 0 ? ascii_hex_value(bytes[i + 2]) : -1;
        if (low >= 0) {
            out[n++] = (char)(high * 16 + low);
            i += 2;
        } else {
            out[n++] = bytes[i];
        }
    }
    return n;
}

/* Takes ~0 and ~1 out of a part of a pointer, in place. */
static size_t tilde_decode(char *bytes, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '~' && i + 1 < len && (bytes[i + 1] == '0' || bytes[i + 1] == '1'))
            bytes[n++] = bytes[++i] == '0' ? '~' : '/';
        else
            bytes[n++] = bytes[i];
    }
    return n;
}

static const struct schema_place *step_down(struct schema_walker *w,
                                            const struct schema_place *place, const char *token,
                                            size_t len)
{
    const struct json *node = place->node;
    size_t index = 0, wanted = 0;
    if (node->type == JSON_OBJECT) {
        json_each (member, node)
            if (member->key_len == len && memcmp(member->key, token, len) == 0)
                return schema_place_key(w, place, member);
        return NULL;
    }
    if (node->type != JSON_ARRAY || len == 0 || len > 6)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (!ascii_is_digit(token[i]))
            return NULL;
        wanted = wanted * 10 + (size_t)(token[i] - '0');
    }
    json_each (element, node)
        if (index++ == wanted)
            return schema_place_index(w, place, element, wanted);
    return NULL;
}

static const struct schema_place *pointer_follow(struct schema_walker *w,
                                                 const struct schema_place *place, char *pointer,
                                                 size_t len)
{
    while (place && len) {
        char *token = pointer + 1; /* after the slash */
        char *end = memchr(token, '/', len - 1);
        size_t token_len = end ? (size_t)(end - token) : len - 1;
        len -= token_len + 1;
        pointer = token + token_len;
        place = step_down(w, place, token, tilde_decode(token, token_len));
    }
    return place;
}

struct anchor_search {
    struct byte_view name;
    const struct schema_place *resource, *found;
};

static bool anchor_visit(struct schema_walker *w, const struct schema_place *place, void *context)
{
    struct anchor_search *search = context;
    if (search->found || (place != search->resource && id_get(w, place->node).len))
        return false;
    static const char *const keywords[] = {"$anchor", "$dynamicAnchor", "$id", "id"};
    for (size_t i = 0; i < 4; i++) {
        const struct json *value = json_get(place->node, keywords[i]);
        if (!json_is(value, JSON_STRING))
            continue;
        size_t skip = i >= 2; /* "$id": "#name" */
        if (value->text_len == search->name.len + skip && (!skip || value->text[0] == '#') &&
            memcmp(value->text + skip, search->name.bytes, search->name.len) == 0)
            search->found = place;
    }
    return true;
}

static const struct schema_place *fragment_follow(struct schema_walker *w,
                                                  const struct schema_place *resource,
                                                  const char *fragment, size_t len)
{
    char *decoded = arena_alloc(&w->arena, len + 1);
    if (!decoded)
        return schema_step(w, 1), NULL;
    len = percent_decode(fragment, len, decoded);
    if (len == 0 || decoded[0] == '/')
        return pointer_follow(w, resource, decoded, len);
    struct anchor_search search = {{decoded, len}, resource, NULL};
    schemas_walk(w, resource, anchor_visit, &search);
    return search.found;
}

const struct schema_item *schema_resolve(struct schema_walker *w, const struct schema_item *item,
                                         const struct json *ref)
{
    if (ref->type != JSON_STRING)
        return schema_fail(w, item->place, "$ref", "must be a string"), NULL;
    size_t hash = fragment_at(ref->text, ref->text_len);
    const struct schema_resource *resource = resource_of(w, item->place);
    if (hash) {
        struct byte_view base = resource ? (struct byte_view){resource->uri, resource->len}
                                         : (struct byte_view){"", 0};
        struct byte_view uri = uri_resolve(w, base, (struct byte_view){ref->text, hash});
        for (resource = w->resources; resource; resource = resource->next)
            if (resource->len == uri.len && memcmp(resource->uri, uri.bytes, uri.len) == 0)
                break;
        if (!resource)
            return schema_fail(w, item->place, "$ref",
                               "'%.100s' is not in this document, and others are not fetched",
                               ref->text),
                   NULL;
    }
    const struct schema_place *place = resource ? resource->place : w->root_place;
    if (hash < ref->text_len)
        place = fragment_follow(w, place, ref->text + hash + 1, ref->text_len - hash - 1);
    struct schema_item *target = place ? arena_alloc(&w->arena, sizeof *target) : NULL;
    if (!place)
        schema_fail(w, item->place, "$ref", "'%.100s' points to nothing", ref->text);
    else if (!target)
        schema_step(w, 1);
    else
        *target = (struct schema_item){place->node, place, NULL};
    return target;
}
