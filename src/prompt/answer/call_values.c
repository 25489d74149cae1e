/* Converts values written as text, Python or Gemma's notation to JSON, spelled like Python's
 * json.dumps(ensure_ascii=False).
 *
 * A value may arrive split inside a character, so bytes from 0x80 on are copied unchanged. */
#include <stdint.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "prompt/answer/answer_internal.h"

static const char *const gemma_quotes[] = {"<escape>", "<|\"|>", NULL};

void value_write_string(struct strbuf *out, const char *text, size_t len)
{
    strbuf_addc(out, '"');
    json_write_escaped(out, text, len);
    strbuf_addc(out, '"');
}

void value_write_json(struct strbuf *out, const struct json *value)
{
    switch (value->type) {
    case JSON_NULL: strbuf_adds(out, "null"); return;
    case JSON_BOOL: strbuf_adds(out, value->boolean ? "true" : "false"); return;
    case JSON_NUMBER: strbuf_add(out, value->text, value->text_len); return;
    case JSON_STRING: value_write_string(out, value->text, value->text_len); return;
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    strbuf_addc(out, value->type == JSON_ARRAY ? '[' : '{');
    json_each (child, value) {
        if (child != value->first)
            strbuf_adds(out, ", ");
        if (value->type == JSON_OBJECT) {
            value_write_string(out, child->key, child->key_len);
            strbuf_adds(out, ": ");
        }
        value_write_json(out, child);
    }
    strbuf_addc(out, value->type == JSON_ARRAY ? ']' : '}');
}

/* ------------------------------------------------------------------ by schema */

static unsigned types_of_name(const struct json *name)
{
    static const struct {
        const char *name;
        enum json_type type;
    } types[] = {{"null", JSON_NULL},     {"boolean", JSON_BOOL},  {"integer", JSON_NUMBER},
                 {"number", JSON_NUMBER}, {"string", JSON_STRING}, {"array", JSON_ARRAY},
                 {"object", JSON_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (json_equals(name, types[i].name))
            return 1u << types[i].type;
    return VALUE_ANY;
}

unsigned value_types(const struct json *schema)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const struct json *type = json_get(schema, "type"), *values = json_get(schema, "enum");
    unsigned types = 0;
    if (json_is(type, JSON_STRING))
        return types_of_name(type);
    if (json_is(type, JSON_ARRAY)) {
        json_each (name, type)
            types |= types_of_name(name);
    } else if (json_is(values, JSON_ARRAY)) {
        json_each (value, values)
            types |= 1u << value->type;
    } else {
        for (size_t i = 0; i < sizeof unions / sizeof unions[0]; i++) {
            const struct json *list = json_get(schema, unions[i]);
            if (json_is(list, JSON_ARRAY))
                json_each (option, list)
                    types |= value_types(option);
        }
    }
    return types ? types : VALUE_ANY;
}

static void trim(const char **text, size_t *len)
{
    while (*len && answer_is_space(**text)) {
        ++*text;
        --*len;
    }
    while (*len && answer_is_space((*text)[*len - 1]))
        --*len;
}

/* Repairs a text for a schema that allows no string, if it is a JSON string that contains JSON, or
 * the inside of such a string: [{\"a\": 1}]. `value` is the parsed text, or NULL. */
static const struct json *mended(struct arena *arena, const struct json *value, const char *text,
                                 size_t len, unsigned types)
{
    const struct json *string = value;
    if (value && value->type != JSON_STRING)
        return value;
    if (!value && len) {
        char *quoted = arena_alloc(arena, len + 2);
        if (!quoted)
            return NULL;
        quoted[0] = quoted[len + 1] = '"';
        memcpy(quoted + 1, text, len);
        string = json_parse(arena, quoted, len + 2, NULL);
    }
    const struct json *inner = string ? json_parse(arena, string->text, string->text_len, NULL)
                                      : NULL;
    return inner && types >> inner->type & 1 ? inner : value;
}

/* Writes a Python list or dictionary as JSON. False: it is neither, or a set where no list is
 * allowed. */
static bool write_container(struct strbuf *out, const char *text, size_t len, unsigned types)
{
    struct strbuf json = STRBUF_INIT;
    bool ok = len && strchr("[{", text[0]) && value_write_python(&json, text, len) && !json.failed;
    ok = ok && (json.data[0] == text[0] || types >> JSON_ARRAY & 1);
    if (ok)
        strbuf_add(out, strbuf_str(&json), json.len);
    out->failed |= json.failed;
    strbuf_free(&json);
    return ok;
}

/* Writes numbers like 018, which JSON does not allow, if the schema requires a number. */
static bool write_padded(struct strbuf *out, const char *text, size_t len, unsigned types)
{
    size_t n = 0;
    while (n + 1 < len && text[n] == '0' && ascii_is_digit(text[n + 1]))
        n++;
    struct arena arena = ARENA_INIT;
    const struct json *value = n && types >> JSON_NUMBER & 1
                                   ? json_parse(&arena, text + n, len - n, NULL)
                                   : NULL;
    bool is_number = json_is(value, JSON_NUMBER);
    if (is_number)
        strbuf_add(out, text + n, len - n);
    out->failed |= arena.failed;
    arena_free(&arena);
    return is_number;
}

void value_write_text(struct strbuf *out, const struct json *schema, const char *text, size_t len)
{
    static const char *const spellings[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *bare = text;
    size_t bare_len = len;
    unsigned types = value_types(schema);
    bool string = types >> JSON_STRING & 1;
    struct arena arena = ARENA_INIT;
    const struct json *value = NULL;
    trim(&bare, &bare_len);
    for (size_t i = 0; i < 3 && !string; i++)
        if (strlen(spellings[i][0]) == bare_len && memcmp(bare, spellings[i][0], bare_len) == 0) {
            bare = spellings[i][1];
            bare_len = strlen(bare);
        }
    if (types != 1u << JSON_STRING)
        value = json_parse(&arena, bare, bare_len, NULL);
    if (!string)
        value = mended(&arena, value, bare, bare_len, types);
    if (value && (!string || types >> value->type & 1))
        value_write_json(out, value);
    else if (string || (!write_container(out, bare, bare_len, types) &&
                        !write_padded(out, bare, bare_len, types)))
        value_write_string(out, text, len);
    out->failed |= arena.failed;
    arena_free(&arena);
}

/* ------------------------------------------------------------------ literals */

struct literal_reader {
    const char *at, *end;
    struct strbuf *out;
    const struct json *schema; /* of the whole value; NULL: its strings are strings */
    int depth;
    bool gemma;
};

static bool read_literal(struct literal_reader *r);

static void skip_space(struct literal_reader *r)
{
    while (r->at < r->end && answer_is_space(*r->at))
        r->at++;
}

static bool take(struct literal_reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool take_text(struct literal_reader *r, const char *text)
{
    if (literal_match(r->at, (size_t)(r->end - r->at), text) != MATCH_YES)
        return false;
    r->at += strlen(text);
    return true;
}

static bool read_hex(struct literal_reader *r, int digits, uint32_t *code)
{
    for (*code = 0; digits; digits--) {
        int value = r->at < r->end ? ascii_hex_value(*r->at++) : -1;
        if (value < 0)
            return false;
        *code = *code << 4 | (uint32_t)value;
    }
    return true;
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Called after a backslash. An unknown escape keeps its backslash, as in Python. */
static bool read_escape(struct literal_reader *r)
{
    static const char letters[] = "abfnrtv", codes[] = "\a\b\f\n\r\t\v";
    char c = *r->at++, text[4];
    const char *letter = c ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    if (c == '\n')
        return true;
    if (letter || c == '\\' || c == '\'' || c == '"' || c == '/') {
        json_write_escaped(r->out, letter ? &codes[letter - letters] : &c, 1);
        return true;
    }
    if (is_octal(c)) {
        code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && r->at < r->end && is_octal(*r->at); i++)
            code = code << 3 | (uint32_t)(*r->at++ - '0');
    } else if (c != 'x' && c != 'u' && c != 'U') {
        json_write_escaped(r->out, "\\", 1);
        r->at--;
        return true;
    } else if (!read_hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, &code)) {
        return false;
    }
    if (code >= 0xd800 && code <= 0xdbff) { /* the first half of a pair, as in JSON */
        uint32_t low;
        if (!take_text(r, "\\u") || !read_hex(r, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code > 0x10ffff || (code >= 0xdc00 && code <= 0xdfff))
        return false;
    json_write_escaped(r->out, text, utf8_encode(code, text));
    return true;
}

/* A Python string, written without its quotes, because adjacent strings are joined. */
static bool read_quoted(struct literal_reader *r, bool raw)
{
    char quote[4] = {*r->at, *r->at, *r->at, 0};
    if (!take_text(r, quote)) {
        quote[1] = 0;
        r->at++;
    }
    bool is_inner = false;
    while (r->at < r->end) {
        bool may_be_inner = *r->at == quote[0] && !quote[1];
        if (may_be_inner && (is_inner || (r->at + 1 < r->end && quote_opens_inside(r->at[1])))) {
            is_inner = !is_inner;
            json_write_escaped(r->out, r->at++, 1);
            continue;
        }
        if (take_text(r, quote))
            return true;
        char c = *r->at++;
        if (c == '\\' && r->at == r->end)
            return false;
        if (c == '\\' && raw) {
            json_write_escaped(r->out, r->at - 1, 2);
            r->at++;
        } else if (c != '\\') {
            json_write_escaped(r->out, &c, 1);
        } else if (!read_escape(r)) {
            return false;
        }
    }
    return false;
}

static bool at_string(const struct literal_reader *r, bool *raw)
{
    size_t left = (size_t)(r->end - r->at);
    *raw = left > 1 && (r->at[0] == 'r' || r->at[0] == 'R');
    bool prefix = *raw || (left > 1 && (r->at[0] == 'u' || r->at[0] == 'U'));
    return left && (r->at[prefix] == '"' || r->at[prefix] == '\'');
}

static bool read_strings(struct literal_reader *r)
{
    bool raw;
    strbuf_addc(r->out, '"');
    while (at_string(r, &raw)) {
        if (*r->at != '"' && *r->at != '\'')
            r->at++;
        if (!read_quoted(r, raw))
            return false;
        skip_space(r);
    }
    strbuf_addc(r->out, '"');
    return true;
}

/* A string between Gemma's marks, which has no escapes. */
static bool read_marked(struct literal_reader *r, const char *mark)
{
    const char *begin = r->at;
    for (; r->at < r->end; r->at++)
        if (*r->at == '<' && take_text(r, mark)) {
            size_t len = (size_t)(r->at - begin) - strlen(mark);
            if (r->schema)
                value_write_text(r->out, r->schema, begin, len);
            else
                value_write_string(r->out, begin, len);
            return true;
        }
    return false;
}

static const char *take_mark(struct literal_reader *r)
{
    for (size_t i = 0; r->gemma && gemma_quotes[i]; i++)
        if (take_text(r, gemma_quotes[i]))
            return gemma_quotes[i];
    return NULL;
}

/* The name of a member of an object. */
static bool read_key(struct literal_reader *r)
{
    bool raw;
    r->schema = NULL;
    const char *mark = take_mark(r), *begin = r->at;
    if (mark)
        return read_marked(r, mark);
    if (at_string(r, &raw))
        return read_strings(r);
    while (r->gemma && r->at < r->end && *r->at != ':' && *r->at != ',' && *r->at != '}')
        r->at++;
    const char *end = r->at;
    while (end > begin && answer_is_space(end[-1]))
        end--;
    value_write_string(r->out, begin, (size_t)(end - begin));
    return end > begin;
}

/* After the {: no colon follows the first item, so this is a Python set. */
static bool begins_set(struct literal_reader *r)
{
    struct strbuf item = STRBUF_INIT;
    struct literal_reader peek = *r;
    peek.out = &item;
    skip_space(&peek);
    bool is_set = !r->gemma && peek.at < r->end && !strchr("{[(", *peek.at) && read_literal(&peek);
    skip_space(&peek);
    is_set = is_set && peek.at < r->end && strchr(",}", *peek.at);
    r->out->failed |= item.failed;
    strbuf_free(&item);
    return is_set;
}

static bool read_items(struct literal_reader *r, char close)
{
    bool object = close == '}' && !begins_set(r);
    strbuf_addc(r->out, object ? '{' : '[');
    for (size_t n = 0;; n++) {
        skip_space(r);
        if (take(r, close))
            break;
        if (n)
            strbuf_adds(r->out, ", ");
        if (object) {
            if (!read_key(r))
                return false;
            skip_space(r);
            if (!take(r, ':'))
                return false;
            strbuf_adds(r->out, ": ");
        }
        r->schema = NULL;
        if (!read_literal(r))
            return false;
        skip_space(r);
        if (!take(r, ',') && (r->at == r->end || *r->at != close))
            return false;
    }
    strbuf_addc(r->out, object ? '}' : ']');
    return true;
}

/* Converts a Python number to JSON: 1_000, .5, 5., +3. */
static bool write_number(struct strbuf *out, const char *text, size_t len)
{
    char number[64];
    size_t n = 0;
    bool digit_before = false;
    struct arena arena = ARENA_INIT;
    for (size_t i = 0; i < len && n + 3 < sizeof number; i++) {
        char c = text[i];
        bool leads = c == '0' && !digit_before && (i == 0 || text[i - 1] == '-');
        if (c == '_' || (c == '+' && i == 0) ||
            (leads && i + 1 < len && ascii_is_digit(text[i + 1]))) /* 07 */
            continue;
        if (c == '.' && !digit_before)
            number[n++] = '0';
        number[n++] = c;
        digit_before = ascii_is_digit(c);
        if (c == '.' && (i + 1 == len || !ascii_is_digit(text[i + 1])))
            number[n++] = '0';
    }
    bool fits = len + 3 < sizeof number;
    const char *json = fits ? number : text;
    size_t json_len = fits ? n : len;
    const struct json *value = json_parse(&arena, json, json_len, NULL);
    bool is_number = json_is(value, JSON_NUMBER);
    if (is_number)
        strbuf_add(out, json, json_len);
    out->failed |= arena.failed;
    arena_free(&arena);
    return is_number;
}

static bool read_word(struct literal_reader *r)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    const char *begin = r->at;
    while (r->at < r->end && !strchr(r->gemma ? ",]}" : ",)]}: \t\r\n", *r->at))
        r->at++;
    size_t len = (size_t)(r->at - begin);
    while (len && answer_is_space(begin[len - 1]))
        len--;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i][0]) == len && memcmp(begin, words[i][0], len) == 0) {
            strbuf_adds(r->out, words[i][1]);
            return true;
        }
    if (len == 0)
        return false;
    if (write_number(r->out, begin, len))
        return true;
    if (r->gemma) /* it sometimes omits the marks of a string */
        value_write_string(r->out, begin, len);
    return r->gemma;
}

static bool read_literal(struct literal_reader *r)
{
    bool raw, ok;
    skip_space(r);
    if (r->at == r->end || r->depth == JSON_MAX_DEPTH)
        return false;
    const char *mark = take_mark(r);
    if (mark)
        return read_marked(r, mark);
    if (at_string(r, &raw))
        return read_strings(r);
    r->depth++;
    if (take(r, '{'))
        ok = read_items(r, '}');
    else if (take(r, '['))
        ok = read_items(r, ']');
    else if (!r->gemma && take(r, '('))
        ok = read_items(r, ')');
    else
        ok = read_word(r);
    r->depth--;
    return ok;
}

static bool write_literal(struct literal_reader *r)
{
    bool ok = read_literal(r);
    skip_space(r);
    return ok && r->at == r->end;
}

bool value_write_python(struct strbuf *out, const char *text, size_t len)
{
    struct literal_reader r = {.at = text, .end = text + len, .out = out};
    return write_literal(&r);
}

bool value_write_gemma(struct strbuf *out, const struct json *schema, const char *text, size_t len)
{
    /* A string stays one unless the function requires another type. */
    const struct json *other = value_types(schema) >> JSON_STRING & 1 ? NULL : schema;
    struct literal_reader r = {
        .at = text, .end = text + len, .out = out, .schema = other, .gemma = true};
    return write_literal(&r);
}
