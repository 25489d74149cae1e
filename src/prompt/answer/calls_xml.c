/* One reader for the formats that write a call's parameters as text between tags: Qwen3-Coder, GLM,
 * MiniMax, DeepSeek's DSML. A form defines the spelling of the tags.
 *
 * Values are raw text, so the function's schema decides whether 5 is a number or a string. Strings
 * are passed on as they arrive, other values once they are complete. */
#include "prompt/answer/answer_internal.h"

struct xml_form {
    const char *const *before;    /* marks before the name that are skipped; NULL: none */
    const char *name_begin;       /* NULL: the name comes first */
    const char *const *name_ends; /* the first, and `n_more_skipped` others, are skipped */
    size_t n_more_skipped;
    const char *head_end;   /* text after the name is skipped up to here; NULL: nothing */
    const char *json_begin; /* all arguments follow as JSON; NULL: never */
    size_t n_closing;       /* how many of name_ends, the last ones, end the call */
    const char *key_begin;
    const char *key_begin_too;      /* NULL: none */
    const char *const *key_ends;    /* skipped */
    const char *value_begin;        /* NULL: the value comes first */
    const char *const *value_ends;  /* the first two end the value and are skipped; others start the
                                       next part, if the value's own end is missing */
    const char *const *call_ends;   /* each is skipped */
    bool nested;                    /* MiniMax-M3: values end with </key> and may contain tags */
    const char *quote_begin;        /* starts a value in which tags are text; NULL: none */
    const char *const *quoted_ends; /* ... and what ends it, with the value's own end */
    bool lines;                     /* values are on separate lines */
    bool marks_strings;             /* string="true" or "false" decides, not the schema */
    bool has_entities;              /* names are written with &amp; and &quot; */
};

#define ESCAPED_LINE "\\n" /* some models escape a whole call as if it were in a string */
#define LIST(...)    ((const char *const[]){__VA_ARGS__, NULL})

const struct xml_form xml_qwen = {
    .name_begin = "<function=",
    .name_ends = LIST(">"),
    .key_begin = "<parameter=",
    .key_ends = LIST(">"),
    .value_ends = LIST("\n</parameter>", "</parameter>", "\n<parameter=", "\n</function>"),
    .call_ends = LIST("</function>", "</tool_call>"),
    .lines = true,
};
const struct xml_form xml_glm = {
    .name_ends = LIST("\n", "<tool_sep>", ESCAPED_LINE, "<arg_key>", "</tool_call>"),
    .n_more_skipped = 2,
    .key_begin = "<arg_key>",
    .key_ends = LIST("</arg_key>"),
    .value_begin = "<arg_value>",
    .value_ends = LIST("</arg_value>"),
    .call_ends = LIST("</tool_call>"),
};
const struct xml_form xml_minimax = {
    .name_begin = "<invoke name=\"",
    .name_ends = LIST("\">"),
    .key_begin = "<parameter name=\"",
    .key_ends = LIST("\">"),
    .value_ends = LIST("</parameter>"),
    .call_ends = LIST("</invoke>"),
};
const struct xml_form xml_minimax3 = {
    .name_begin = M3_MARK "<invoke name=\"",
    .name_ends = LIST("\">"),
    .key_begin = M3_MARK "<",
    .key_ends = LIST(">"),
    .call_ends = LIST(M3_MARK "</invoke>", M3_MARK "</tool_call>"),
    .nested = true,
};
const struct xml_form xml_dsml = {
    .name_begin = "<｜DSML｜invoke name=\"",
    .name_ends = LIST("\">", "\"/>", "\" />"),
    .n_closing = 2,
    .key_begin = "<｜DSML｜parameter name=\"",
    .key_ends = LIST("\">", "\" string=\"true\">", "\" string=\"false\">"),
    .value_ends = LIST("</｜DSML｜parameter>"),
    .call_ends = LIST("</｜DSML｜invoke>"),
    .marks_strings = true,
};

const struct xml_form xml_step = {
    .before = LIST("<｜tool_call_begin｜>", "function", "<｜tool_sep｜>"),
    .name_begin = "<steptml:invoke name=\"",
    .name_ends = LIST("\">"),
    .key_begin = "<steptml:parameter name=\"",
    .key_ends = LIST("\">"),
    .value_ends = LIST("</steptml:parameter>"),
    .call_ends = LIST("</steptml:invoke>"),
};
const struct xml_form xml_minicpm = {
    .name_begin = "<function name=\"",
    .name_ends = LIST("\">", "\"/>", "\" />"),
    .n_closing = 2,
    .key_begin = "<param name=\"",
    .key_begin_too = "<paramname=\"", /* it sometimes omits the space */
    .key_ends = LIST("\">"),
    .value_ends = LIST("</param>"),
    .call_ends = LIST("</function>"),
    .quote_begin = "<![CDATA[",
    .quoted_ends = LIST("]]></param>"),
};
const struct xml_form xml_hunyuan = {
    .before = LIST("<tool_call>"),
    .name_ends = LIST("<tool_sep>", "<arg_key>", "</tool_call>"),
    .key_begin = "<arg_key>",
    .key_ends = LIST("</arg_key>"),
    .value_begin = "<arg_value>",
    .value_ends = LIST("</arg_value>"),
    .call_ends = LIST("</tool_call>"),
};
/* The same in the published model, whose marks have a suffix. */
const struct xml_form xml_hunyuan_open = {
    .before = LIST("<tool_call:opensource>"),
    .name_ends = LIST("<tool_sep:opensource>", "<arg_key:opensource>", "</tool_call:opensource>"),
    .key_begin = "<arg_key:opensource>",
    .key_ends = LIST("</arg_key:opensource>"),
    .value_begin = "<arg_value:opensource>",
    .value_ends = LIST("</arg_value:opensource>"),
    .call_ends = LIST("</tool_call:opensource>"),
};

const struct xml_form xml_kimi3 = {
    .name_begin = "<|open|>call tool=\"",
    .name_ends = LIST("\""),
    .head_end = "<|sep|>",
    .json_begin = "<|open|>json type=\"object\"<|sep|>",
    .key_begin = "<|open|>argument key=\"",
    .key_ends = LIST("\"<|sep|>", "\" type=\"string\"<|sep|>", "\" type=\"number\"<|sep|>",
                     "\" type=\"boolean\"<|sep|>", "\" type=\"null\"<|sep|>",
                     "\" type=\"array\"<|sep|>", "\" type=\"object\"<|sep|>"),
    .value_ends = LIST("<|close|>argument<|sep|>"),
    .call_ends = LIST("<|close|>call<|sep|>"),
    .marks_strings = true,
    .has_entities = true,
};

enum { TYPE_STRING, TYPE_OTHER, TYPE_QUOTED }; /* of the value being read */

static enum call_result as_result(enum match match)
{
    return match == MATCH_YES ? CALL_ON : match == MATCH_MORE ? CALL_MORE : CALL_BAD;
}

/* A function's or parameter's name, as the request spells it. */
struct name {
    char bytes[CALL_MAX_NAME];
    size_t len;
};

static struct name name_read(const struct xml_form *f, const char *text, size_t len)
{
    static const char *const entities[] = {"&amp;", "&quot;", NULL};
    struct name name = {.len = 0};
    for (size_t i = 0, n; i < len && name.len < sizeof name.bytes; i += n) {
        char c = text[i];
        n = 1;
        for (size_t e = 0; f->has_entities && entities[e]; e++)
            if (literal_match(text + i, len - i, entities[e]) == MATCH_YES) {
                c = "&\""[e];
                n = strlen(entities[e]);
            }
        name.bytes[name.len++] = c;
    }
    return name;
}

static enum call_result xml_name(struct answer_parser *p, const struct xml_form *f)
{
    size_t len, which, left, n = 0;
    enum match match = call_find(p, f->name_ends, &len, &which);
    if (match != MATCH_YES)
        return as_result(match);
    struct name name = name_read(f, call_rest(p, &left), len);
    if (!call_set_name(p, name.bytes, name.len))
        return CALL_BAD;
    if (f->head_end) {
        size_t begin = p->call.pos, head, skipped = len + strlen(f->name_ends[which]);
        p->call.pos += skipped;
        match = call_find(p, LIST(f->head_end), &head, &n);
        p->call.pos = begin;
        if (match != MATCH_YES)
            return as_result(match);
        p->call.pos += skipped + head + strlen(f->head_end);
        p->call.state = XML_NEXT;
        return CALL_ON;
    }
    while (f->name_ends[n])
        n++;
    bool closes = which + f->n_closing >= n;
    p->call.pos += len + (which <= f->n_more_skipped || closes ? strlen(f->name_ends[which]) : 0);
    if (closes) {
        call_add_arguments(p, "{}", 2);
        return CALL_DONE;
    }
    p->call.state = XML_NEXT;
    return CALL_ON;
}

/* A parameter starts, or the call ends. */
static enum call_result xml_next(struct answer_parser *p, const struct xml_form *f)
{
    size_t left;
    if (!call_skip_space(p))
        return CALL_MORE;
    if (p->call.n_arguments == 0 && call_rest(p, &left)[0] == '{') { /* JSON instead of tags */
        p->call.state = XML_JSON;
        return CALL_ON;
    }
    enum match match = call_match(p, ESCAPED_LINE);
    if (match == MATCH_NO && f->json_begin)
        match = call_match(p, f->json_begin);
    if (match != MATCH_NO)
        return as_result(match);
    for (size_t i = 0; match == MATCH_NO && f->call_ends[i]; i++) {
        match = call_match(p, f->call_ends[i]);
        if (match != MATCH_YES)
            continue;
        const char *rest = p->call.n_arguments ? "}" : "{}";
        call_add_arguments(p, rest, strlen(rest));
        return CALL_DONE;
    }
    if (match == MATCH_NO) /* last, because M3's ends start like its keys */
        match = call_match(p, f->key_begin);
    if (match == MATCH_NO && f->key_begin_too)
        match = call_match(p, f->key_begin_too);
    if (match == MATCH_YES)
        p->call.state = XML_KEY;
    return as_result(match);
}

/* Some models put all arguments into one parameter that the function does not have. */
static const char *const wrappers[] = {"arguments", "input", "properties", NULL};

static bool is_wrapper(const struct tool *tool, const char *key, size_t len)
{
    const struct json *properties = json_get(tool->parameters, "properties");
    if (!json_is(properties, JSON_OBJECT) || !properties->count || tool_parameter(tool, key, len))
        return false;
    for (size_t i = 0; wrappers[i]; i++)
        if (strlen(wrappers[i]) == len && memcmp(wrappers[i], key, len) == 0)
            return true;
    return false;
}

static void key_write(struct answer_parser *p, const char *key, size_t len)
{
    strbuf_adds(&p->scratch, p->call.n_arguments++ ? ", " : "{");
    value_write_string(&p->scratch, key, len);
    strbuf_adds(&p->scratch, ": ");
}

/* The type of the value. If a mark contradicts the schema, the schema wins. */
static int value_type(struct open_call *c, const struct xml_form *f, const char *key, size_t len,
                      size_t which)
{
    c->schema = tool_parameter(c->tool, key, len);
    unsigned types = c->schema ? value_types(c->schema) : VALUE_ANY;
    bool only_string = types == 1u << JSON_STRING;
    if (!f->marks_strings || which == 0)
        return c->schema && only_string ? TYPE_STRING : TYPE_OTHER;
    if (which == 1)
        return types >> JSON_STRING & 1 ? TYPE_STRING : TYPE_OTHER;
    if (only_string)
        return TYPE_QUOTED;
    c->schema = NULL;
    return TYPE_OTHER;
}

/* A wrapper's value is complete: the members of its object are the arguments. */
static void wrapped_write(struct answer_parser *p, const struct xml_form *f, const char *text,
                          size_t len)
{
    struct open_call *c = &p->call;
    struct arena arena = ARENA_INIT;
    struct strbuf json = STRBUF_INIT;
    const struct json *object = json_parse(&arena, text, len, NULL);
    if (!object && value_write_python(&json, text, len)) /* {'a': 1} */
        object = json_parse(&arena, strbuf_str(&json), json.len, NULL);
    c->wrapped = false;
    if (json_is(object, JSON_OBJECT)) {
        json_each (member, object) {
            key_write(p, member->key, member->key_len);
            value_write_json(&p->scratch, member);
        }
    } else {
        struct name key = name_read(f, call_at(p, c->token), c->token_len);
        key_write(p, key.bytes, key.len);
        value_write_text(&p->scratch, NULL, text, len);
    }
    p->failed |= arena.failed || json.failed;
    strbuf_free(&json);
    arena_free(&arena);
}

/* A value marked as JSON: the text of a string, or any other value. */
static void quoted_write(struct strbuf *out, const char *text, size_t len)
{
    struct arena arena = ARENA_INIT;
    const struct json *value = json_parse(&arena, text, len, NULL);
    if (json_is(value, JSON_STRING))
        value_write_json(out, value);
    else
        value_write_string(out, text, len);
    out->failed |= arena.failed;
    arena_free(&arena);
}

/* A parameter begins: its name is certain, and so is the quote of a string. */
static void key_report(struct answer_parser *p, const struct xml_form *f)
{
    struct open_call *c = &p->call;
    if (c->wrapped)
        return;
    struct name key = name_read(f, call_at(p, c->token), c->token_len);
    strbuf_clear(&p->scratch);
    key_write(p, key.bytes, key.len);
    if (c->value == TYPE_STRING)
        strbuf_addc(&p->scratch, '"');
    call_add_scratch(p);
}

/* A parameter's name. */
static enum call_result xml_key(struct answer_parser *p, const struct xml_form *f)
{
    struct open_call *c = &p->call;
    size_t len, which, left;
    enum match match = call_find(p, f->key_ends, &len, &which);
    if (match != MATCH_YES)
        return as_result(match);
    struct name key = name_read(f, call_rest(p, &left), len);
    c->value = value_type(c, f, key.bytes, key.len, which);
    c->token = c->pos;
    c->pos += len + strlen(f->key_ends[which]);
    c->state = XML_VALUE_BEGIN;
    c->wrapped = c->n_arguments == 0 && is_wrapper(c->tool, key.bytes, key.len);
    c->token_len = len;
    if (c->wrapped)
        c->value = TYPE_OTHER;
    if (!f->value_begin)
        key_report(p, f);
    return CALL_ON;
}

static enum call_result xml_value_begin(struct answer_parser *p, const struct xml_form *f)
{
    enum match match = MATCH_YES;
    size_t left;
    if (f->value_begin) {
        match = call_skip_space(p) ? call_match(p, ESCAPED_LINE) : MATCH_MORE;
        if (match != MATCH_NO)
            return as_result(match);
        match = call_match(p, f->value_begin);
        if (match == MATCH_NO) { /* a key without a value is dropped */
            p->call.state = XML_NEXT;
            return CALL_ON;
        }
        if (match == MATCH_YES)
            key_report(p, f);
    } else if (f->lines) { /* the line feed before the value is not part of it */
        call_rest(p, &left);
        match = left ? MATCH_YES : MATCH_MORE;
        call_match(p, "\n");
    }
    p->call.quote = 0;
    if (f->quote_begin) {
        match = call_match(p, f->quote_begin);
        p->call.quote = match == MATCH_YES;
        if (match == MATCH_NO)
            match = MATCH_YES;
    }
    p->call.state = match == MATCH_YES ? XML_VALUE : XML_VALUE_BEGIN;
    p->call.scanned = 0;
    p->call.tags = (struct open_tags){0};
    return as_result(match);
}

/* How much of the value is certain: up to its end (YES, and which one), or to where an end may
 * start. */
static enum match xml_value_end(struct answer_parser *p, const struct xml_form *f, const char *text,
                                size_t left, size_t *len, size_t *which)
{
    *len = p->call.scanned;
    *which = 0;
    if (f->nested)
        return nested_end(text, left, call_at(p, p->call.token), p->call.token_len, len,
                          &p->call.tags);
    const char *const *ends = p->call.quote ? f->quoted_ends : f->value_ends;
    for (; *len < left; ++*len) {
        if (text[*len] != '<' && text[*len] != '\n' && text[*len] != ']')
            continue;
        for (*which = 0; ends[*which]; ++*which) {
            enum match match = literal_match(text + *len, left - *len, ends[*which]);
            if (match != MATCH_NO)
                return match;
        }
    }
    return MATCH_MORE;
}

static enum call_result xml_value(struct answer_parser *p, const struct xml_form *f)
{
    struct open_call *c = &p->call;
    size_t len, which, left;
    const char *text = call_rest(p, &left);
    enum match match = xml_value_end(p, f, text, left, &len, &which);
    strbuf_clear(&p->scratch);
    if (c->value == TYPE_STRING)
        json_write_escaped(&p->scratch, text, len);
    if (match == MATCH_YES) {
        if (c->value == TYPE_STRING)
            strbuf_addc(&p->scratch, '"');
        else if (c->wrapped)
            wrapped_write(p, f, text, len);
        else if (c->value == TYPE_QUOTED)
            quoted_write(&p->scratch, text, len);
        else if (f->nested)
            value_write_nested(&p->scratch, c->schema, text, len);
        else
            value_write_text(&p->scratch, c->schema, text, len);
        c->state = XML_NEXT;
    }
    if (c->value == TYPE_STRING || match == MATCH_YES)
        c->pos += len;
    else
        c->scanned = len;
    if (match == MATCH_YES && f->nested)
        c->pos += strlen(M3_MARK "</>") + c->token_len;
    else if (match == MATCH_YES && c->quote)
        c->pos += strlen(f->quoted_ends[which]);
    else if (match == MATCH_YES)
        c->pos += which < 2 ? strlen(f->value_ends[which]) : 0;
    if (p->scratch.len)
        call_add_scratch(p);
    return as_result(match);
}

enum call_result read_xml_call(struct answer_parser *p)
{
    const struct xml_form *f = p->call.form;
    enum match match = MATCH_YES;
    switch (p->call.state) {
    case XML_OUTER:
        if (!call_skip_space(p))
            return CALL_MORE;
        for (size_t i = 0; f->before && f->before[i]; i++) {
            match = call_match(p, f->before[i]);
            if (match != MATCH_NO)
                return as_result(match);
        }
        match = f->name_begin ? call_match(p, f->name_begin) : MATCH_YES;
        p->call.state = match == MATCH_YES ? XML_NAME : XML_OUTER;
        return as_result(match);
    case XML_NAME: return xml_name(p, f);
    case XML_NEXT: return xml_next(p, f);
    case XML_KEY: return xml_key(p, f);
    case XML_VALUE_BEGIN: return xml_value_begin(p, f);
    case XML_JSON: return read_arguments(p);
    default: return xml_value(p, f);
    }
}
