/* Values of MiniMax-M3's calls, which nest tags: a list has <item>s, an object its members' names.
 * Each tag follows a mark that occurs in no text. A member of a value may have the value's own
 * name, so ends must be counted. */
#include "prompt/answer/answer_internal.h"

enum {
    MAX_MEMBERS = 256, /* of one object, because they are compared with each other */
    MAX_NESTING = 32,
};

/* <key> (YES, with `begin`), </key> (YES), or neither, at the start of the text. */
static enum match tag_match(const char *text, size_t left, const char *begin, const char *key,
                            size_t key_len)
{
    size_t n = strlen(begin);
    enum match match = literal_match(text, left, begin);
    if (match != MATCH_YES)
        return match;
    size_t rest = left - n, same = rest < key_len ? rest : key_len;
    if (memcmp(text + n, key, same) != 0)
        return MATCH_NO;
    if (rest <= key_len)
        return MATCH_MORE;
    return text[n + key_len] == '>' ? MATCH_YES : MATCH_NO;
}

enum match nested_end(const char *text, size_t left, const char *key, size_t key_len, size_t *len,
                      struct open_tags *open)
{
    static const char calls[] = "tool_call";
    const size_t calls_len = sizeof calls - 1;
    for (; *len < left; ++*len) {
        const char *at = memchr(text + *len, M3_MARK[0], left - *len);
        *len = at ? (size_t)(at - text) : left;
        if (!at)
            break;
        size_t rest = left - *len;
        enum match begins = tag_match(at, rest, M3_MARK "<", key, key_len);
        enum match ends = tag_match(at, rest, M3_MARK "</", key, key_len);
        enum match call_begins = tag_match(at, rest, M3_MARK "<", calls, calls_len);
        enum match call_ends = tag_match(at, rest, M3_MARK "</", calls, calls_len);
        if (ends == MATCH_YES && open->same == 0)
            return MATCH_YES;
        /* The mark after the last call: whoever wrote it forgot to close the value. */
        if (call_ends == MATCH_YES && open->calls == 0 && ends != MATCH_YES)
            return MATCH_NO;
        if (begins == MATCH_MORE || ends == MATCH_MORE || call_begins == MATCH_MORE ||
            call_ends == MATCH_MORE)
            return MATCH_MORE;
        open->same += begins == MATCH_YES;
        open->same -= ends == MATCH_YES;
        open->calls += call_begins == MATCH_YES;
        open->calls -= call_ends == MATCH_YES;
    }
    return MATCH_MORE;
}

struct member {
    const char *key, *text;
    size_t key_len, len;
};

/* Reads the member at `*at` and moves `*at` past it. False: there is none. */
static bool member_read(const char **at, const char *end, struct member *m)
{
    while (*at < end && answer_is_space(**at))
        ++*at;
    if (literal_match(*at, (size_t)(end - *at), M3_MARK "<") != MATCH_YES)
        return false;
    m->key = *at + strlen(M3_MARK "<");
    m->text = memchr(m->key, '>', (size_t)(end - m->key));
    if (!m->text || m->text == m->key || *m->key == '/' || m->text - m->key > CALL_MAX_NAME)
        return false;
    m->key_len = (size_t)(m->text++ - m->key);
    m->len = 0;
    struct open_tags open = {0};
    if (nested_end(m->text, (size_t)(end - m->text), m->key, m->key_len, &m->len, &open) !=
        MATCH_YES)
        return false;
    *at = m->text + m->len + strlen(M3_MARK "</>") + m->key_len;
    return true;
}

/* The number of members; 0: the text is a plain value. */
static size_t members_count(const char *text, const char *end)
{
    struct member m;
    size_t n = 0;
    while (member_read(&text, end, &m))
        n++;
    while (text < end && answer_is_space(*text))
        text++;
    return text == end ? n : 0;
}

static bool same_key(const struct member *a, const struct member *b)
{
    return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

static void write_value(struct strbuf *out, const struct json *schema, const char *text, size_t len,
                        int depth);

static void write_list(struct strbuf *out, const struct json *schema, const char *text,
                       const char *end, int depth)
{
    const struct json *items = json_get(schema, "items");
    struct member m;
    strbuf_addc(out, '[');
    for (size_t n = 0; member_read(&text, end, &m); n++) {
        if (n)
            strbuf_adds(out, ", ");
        write_value(out, items, m.text, m.len, depth);
    }
    strbuf_addc(out, ']');
}

static const struct json *member_schema(const struct json *schema, const struct member *m)
{
    const struct json *properties = json_get(schema, "properties");
    if (json_is(properties, JSON_OBJECT))
        json_each (p, properties)
            if (p->key_len == m->key_len && memcmp(p->key, m->key, m->key_len) == 0)
                return p;
    return json_get(schema, "additionalProperties");
}

static bool is_among(const struct member *m, const char *text, const char *end)
{
    struct member other;
    while (text < end && member_read(&text, end, &other))
        if (same_key(&other, m))
            return true;
    return false;
}

/* Members with the same name become a list, at the place of the first. */
static void write_object(struct strbuf *out, const struct json *schema, const char *text,
                         const char *end, int depth)
{
    const char *at = text, *begin = text;
    struct member m, other;
    strbuf_addc(out, '{');
    for (; member_read(&at, end, &m); begin = at) {
        const struct json *own = member_schema(schema, &m);
        if (is_among(&m, text, begin))
            continue;
        bool is_list = is_among(&m, at, end);
        if (begin != text)
            strbuf_adds(out, ", ");
        value_write_string(out, m.key, m.key_len);
        strbuf_adds(out, is_list ? ": [" : ": ");
        write_value(out, own, m.text, m.len, depth);
        for (const char *rest = at; is_list && member_read(&rest, end, &other);)
            if (same_key(&other, &m)) {
                strbuf_adds(out, ", ");
                write_value(out, own, other.text, other.len, depth);
            }
        if (is_list)
            strbuf_addc(out, ']');
    }
    strbuf_addc(out, '}');
}

static void write_value(struct strbuf *out, const struct json *schema, const char *text, size_t len,
                        int depth)
{
    const char *end = text + len, *at = text;
    size_t n = depth < MAX_NESTING ? members_count(text, end) : 0;
    struct member first;
    unsigned types = value_types(schema);
    if (n == 0 || !member_read(&at, end, &first)) {
        value_write_text(out, schema, text, len);
        return;
    }
    bool has_items = first.key_len == 4 && memcmp(first.key, "item", 4) == 0;
    if (types >> JSON_ARRAY & 1 && (has_items || !(types >> JSON_OBJECT & 1)))
        write_list(out, schema, text, end, depth + 1);
    else if (n <= MAX_MEMBERS)
        write_object(out, schema, text, end, depth + 1);
    else
        value_write_string(out, text, len);
}

void value_write_nested(struct strbuf *out, const struct json *schema, const char *text, size_t len)
{
    write_value(out, schema, text, len, 0);
}
