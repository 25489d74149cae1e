/* Readers of calls whose arguments are JSON: objects that contain a name and arguments (Hermes,
 * Llama, Mistral, bare), and names followed by an object (Mistral, DeepSeek, Kimi, Llama).
 * Arguments are passed on unchanged as they arrive. Keys may come in either order: arguments that
 * come before the name are held until it is known. */
#include "prompt/answer/answer_internal.h"

/* ------------------------------------------------------------------ arguments */

/* Feeds the call's text to its scanner, up to the end of the value, and reports it if `out`.
 * Control characters in strings, which JSON does not allow, are written as escapes. */
static enum call_result scan_value(struct answer_parser *p, bool out)
{
    struct open_call *c = &p->call;
    size_t left, i, plain = 0;
    const char *text = call_rest(p, &left);
    enum json_scan_result result = JSON_SCAN_MORE;
    for (i = 0; i < left && result == JSON_SCAN_MORE; i++) {
        bool control = (unsigned char)text[i] < 0x20 && c->scan.in_string;
        result = json_scan_byte(&c->scan, text[i]);
        if (!control || !out)
            continue;
        strbuf_clear(&p->scratch);
        json_write_escaped(&p->scratch, &text[i], 1);
        call_add_arguments(p, text + plain, i - plain);
        call_add_scratch(p);
        plain = i + 1;
    }
    size_t used = result == JSON_SCAN_BEHIND || result == JSON_SCAN_BAD ? i - 1 : i;
    if (out && used > plain)
        call_add_arguments(p, text + plain, used - plain);
    c->pos += used;
    switch (result) {
    case JSON_SCAN_MORE: return CALL_MORE;
    case JSON_SCAN_BAD: return CALL_BAD;
    default: return CALL_DONE;
    }
}

/* Writes an object that was scanned before, control characters in strings as escapes. */
static void held_write(struct strbuf *out, const char *text, size_t len)
{
    struct json_scan scan;
    json_scan_begin(&scan);
    strbuf_clear(out);
    for (size_t i = 0; i < len; i++) {
        if (scan.in_string && (unsigned char)text[i] < 0x20)
            json_write_escaped(out, &text[i], 1);
        else
            strbuf_addc(out, text[i]);
        json_scan_byte(&scan, text[i]);
    }
}

/* Reports arguments that came before the name, or as a string. False: not an object. */
static bool give_held_arguments(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    struct arena arena = ARENA_INIT;
    const char *text = call_at(p, c->arguments);
    size_t len = c->arguments_end - c->arguments;
    const struct json *string = NULL;
    if (text[0] == '"') { /* an object's text in a string, as in OpenAI's API */
        string = json_parse(&arena, text, len, NULL);
        text = string ? string->text : "";
        len = string ? string->text_len : 0;
        while (len && answer_is_space(text[len - 1]))
            len--;
        while (len && answer_is_space(text[0])) {
            text++;
            len--;
        }
    }
    p->failed |= arena.failed;
    bool none = (string && len == 0) || (len == 4 && memcmp(text, "null", 4) == 0);
    bool object = none || json_scan_is_object(text, len);
    if (none) {
        call_add_arguments(p, "{}", 2);
    } else if (object) {
        held_write(&p->scratch, text, len);
        call_add_scratch(p);
    }
    arena_free(&arena);
    c->complete = object;
    return object;
}

/* Finds the { that begins the arguments. */
static enum call_result arguments_begin(struct answer_parser *p)
{
    size_t left;
    if (!call_skip_space(p))
        return CALL_MORE;
    if (call_rest(p, &left)[0] != '{')
        return CALL_BAD;
    json_scan_begin(&p->call.scan);
    p->call.has_arguments = true;
    return CALL_DONE;
}

enum call_result read_arguments(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    if (!c->has_arguments) {
        enum call_result begun = arguments_begin(p);
        if (begun != CALL_DONE)
            return begun;
    }
    enum call_result result = scan_value(p, true);
    c->complete = result == CALL_DONE;
    return result;
}

/* ------------------------------------------------------------------ {"name": .., ..} */

enum {
    ITEM_FIRST,
    ITEM_NEXT,
    ITEM_KEY,
    ITEM_OPENED,
    ITEM_COLON,
    ITEM_VALUE,
    ITEM_SCAN,
    ITEM_COMMA,
    ITEM_SERIES, /* after an object outside a list */
};
enum { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS, KEY_FUNCTION };

/* Command's own ids are not the calls': a constrained call always has "0", and with an id twice in
 * a conversation its template gives a result to the wrong call, or drops it. */
static int key_kind(const char *text, size_t len)
{
    static const struct {
        const char *name;
        int kind;
    } keys[] = {{"\"name\"", KEY_NAME},
                {"\"tool_name\"", KEY_NAME},
                {"\"arguments\"", KEY_ARGUMENTS},
                {"\"parameters\"", KEY_ARGUMENTS},
                {"\"function\"", KEY_FUNCTION},
                {"\"type\"", KEY_OTHER},
                {"\"id\"", KEY_OTHER},
                {"\"tool_call_id\"", KEY_OTHER}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strlen(keys[i].name) == len && memcmp(keys[i].name, text, len) == 0)
            return keys[i].kind;
    return -1;
}

static enum call_result item_key(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    enum call_result result = scan_value(p, false);
    if (result != CALL_DONE)
        return result;
    int kind = key_kind(call_at(p, c->token), c->pos - c->token);
    if (kind < 0 && c->strict)
        return CALL_BAD;
    c->value = kind < 0 ? KEY_OTHER : kind;
    c->state = ITEM_COLON;
    return CALL_ON;
}

static bool take_name(struct answer_parser *p)
{
    struct arena arena = ARENA_INIT;
    struct open_call *c = &p->call;
    const struct json *name = json_parse(&arena, call_at(p, c->token), c->pos - c->token, NULL);
    bool known = !c->tool && json_is(name, JSON_STRING) &&
                 call_set_name(p, name->text, name->text_len);
    p->failed |= arena.failed;
    arena_free(&arena);
    return known && (!c->arguments_end || give_held_arguments(p));
}

static enum call_result item_value_begin(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left;
    char first = call_rest(p, &left)[0];
    c->token = c->pos;
    c->state = ITEM_SCAN;
    json_scan_begin(&c->scan);
    if (c->value == KEY_FUNCTION && first == '{' && !c->nested) {
        c->nested = true;
        c->pos++;
        c->state = ITEM_OPENED;
    } else if (c->value == KEY_FUNCTION) {
        c->value = first == '"' ? KEY_NAME : KEY_OTHER;
    } else if (c->value == KEY_ARGUMENTS) {
        if (c->has_arguments || (first != '{' && first != '"' && first != 'n'))
            return CALL_BAD;
        c->has_arguments = true;
    }
    return CALL_ON;
}

static enum call_result item_scan(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    bool goes_out = c->value == KEY_ARGUMENTS && c->tool && call_at(p, c->token)[0] == '{';
    enum call_result result = scan_value(p, goes_out);
    if (result != CALL_DONE)
        return result;
    c->state = ITEM_COMMA;
    if (c->value == KEY_NAME)
        return take_name(p) ? CALL_ON : CALL_BAD;
    if (c->value != KEY_ARGUMENTS)
        return CALL_ON;
    c->arguments = c->token;
    c->arguments_end = c->pos;
    if (goes_out)
        c->complete = true;
    else if (c->tool && !give_held_arguments(p))
        return CALL_BAD;
    return CALL_ON;
}

/* The object is closed. */
static enum call_result item_end(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    if (!c->tool || (c->strict && !c->has_arguments))
        return CALL_BAD;
    if (!c->has_arguments)
        call_add_arguments(p, "{}", 2);
    call_finish(p);
    if (c->strict && !c->in_list)
        return CALL_DONE;
    call_next(p, c->in_list ? ITEM_NEXT : ITEM_SERIES);
    return CALL_ON;
}

/* Another object may follow, with white space between them. */
static enum call_result item_series(struct answer_parser *p)
{
    size_t left;
    bool more = call_skip_space(p);
    if (!more && !p->ended)
        return CALL_MORE;
    if (more && call_rest(p, &left)[0] == '{') {
        p->call.marker_end = p->call.pos + 1;
        p->call.state = ITEM_FIRST;
        return CALL_ON;
    }
    p->call.pos = 0; /* the white space is not part of the call */
    return CALL_DONE;
}

/* After { or a member. A call without its last } is still a call. */
static enum call_result item_between(struct answer_parser *p, char first)
{
    struct open_call *c = &p->call;
    bool opened = c->state == ITEM_OPENED;
    if (first == '}') {
        c->pos++;
        if (!c->nested)
            return item_end(p);
        c->nested = false;
        c->state = ITEM_COMMA;
        return CALL_ON;
    }
    if (!opened && first != ',')
        return c->complete ? CALL_DONE : CALL_BAD;
    if (!opened) {
        size_t comma = c->pos++;
        if (!call_skip_space(p)) {
            c->pos = comma;
            return CALL_MORE;
        }
    }
    size_t left;
    if (call_rest(p, &left)[0] != '"')
        return CALL_BAD;
    c->token = c->pos;
    c->state = ITEM_KEY;
    json_scan_begin(&c->scan);
    return CALL_ON;
}

/* The first byte of a list, of a call, or between calls. */
static enum call_result item_begin(struct answer_parser *p, char first)
{
    struct open_call *c = &p->call;
    if (c->state == ITEM_NEXT && first == ',') {
        c->pos++;
        c->state = ITEM_FIRST;
        return CALL_ON;
    }
    if (c->state == ITEM_NEXT) {
        c->pos += first == ']';
        return CALL_DONE;
    }
    if (first == '[' && !c->in_list) {
        c->in_list = true;
        c->pos++;
        return CALL_ON;
    }
    if (first != '{')
        return CALL_BAD;
    c->pos++;
    c->state = ITEM_OPENED;
    return CALL_ON;
}

enum call_result read_json_calls(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left;
    if (c->state == ITEM_KEY)
        return item_key(p);
    if (c->state == ITEM_SCAN)
        return item_scan(p);
    if (c->state == ITEM_SERIES)
        return item_series(p);
    if (!call_skip_space(p))
        return p->ended && c->state == ITEM_NEXT ? CALL_DONE : CALL_MORE;
    char first = call_rest(p, &left)[0];
    switch (c->state) {
    case ITEM_FIRST:
    case ITEM_NEXT: return item_begin(p, first);
    case ITEM_COLON:
        c->pos++;
        c->state = ITEM_VALUE;
        return first == ':' ? CALL_ON : CALL_BAD;
    case ITEM_VALUE: return item_value_begin(p);
    default: return item_between(p, first);
    }
}

/* ------------------------------------------------------------------ [{"name": {..}}, ..] */

enum { KEYED_NEXT, KEYED_NAME, KEYED_COLON, KEYED_ARGUMENTS };

/* Outside names and arguments: brackets, commas, and the end of the list. */
static enum call_result keyed_next(struct answer_parser *p, char first)
{
    struct open_call *c = &p->call;
    size_t left;
    if (first == '"') {
        c->token = c->pos;
        c->state = KEYED_NAME;
        json_scan_begin(&c->scan);
        return CALL_ON;
    }
    if (c->in_list && first != ',' && first != '{' && first != '}') {
        if (first == ']')
            c->pos++;
        else
            c->pos = 0;
        return CALL_DONE;
    }
    /* There is no call yet: only [ and { are allowed. */
    const char *text = call_rest(p, &left);
    bool fits = c->in_list || first == '{' || (first == '[' && text == call_at(p, c->marker_end));
    c->pos++;
    return fits ? CALL_ON : CALL_BAD;
}

enum call_result read_keyed_calls(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    enum call_result result;
    size_t left;
    switch (c->state) {
    case KEYED_NAME:
        result = scan_value(p, false);
        if (result != CALL_DONE)
            return result;
        c->state = KEYED_COLON;
        return take_name(p) ? CALL_ON : CALL_BAD;
    case KEYED_ARGUMENTS:
        result = read_arguments(p);
        if (result != CALL_DONE)
            return result;
        call_finish(p);
        c->in_list = true; /* after a call, the rest belongs to the list */
        call_next(p, KEYED_NEXT);
        return CALL_ON;
    default: break;
    }
    if (!call_skip_space(p))
        return p->ended && c->in_list ? CALL_DONE : CALL_MORE;
    char first = call_rest(p, &left)[0];
    if (c->state == KEYED_NEXT)
        return keyed_next(p, first);
    c->pos++;
    c->state = KEYED_ARGUMENTS;
    return first == ':' ? CALL_ON : CALL_BAD;
}

/* Another reader takes over the call. */
static enum call_result hand_over(struct answer_parser *p, call_reader *reader, int state,
                                  const void *form)
{
    p->call.reader = reader;
    p->call.state = state;
    p->call.form = form;
    return CALL_ON;
}

enum call_result read_tagged_call(struct answer_parser *p)
{
    size_t left;
    if (!call_skip_space(p))
        return CALL_MORE;
    char first = call_rest(p, &left)[0];
    if (first == '{' || first == '[')
        return hand_over(p, read_json_calls, ITEM_FIRST, NULL);
    return hand_over(p, read_xml_call, XML_OUTER, p->call.form ? p->call.form : &xml_qwen);
}

enum call_result read_list(struct answer_parser *p)
{
    size_t left, i = 1;
    const char *text = call_rest(p, &left);
    while (i < left && answer_is_space(text[i]))
        i++;
    if (i == left)
        return CALL_MORE;
    return hand_over(p, text[i] == '{' ? read_json_calls : read_python_calls, ITEM_FIRST, NULL);
}

enum call_result read_python_tag(struct answer_parser *p)
{
    size_t left;
    if (!call_skip_space(p))
        return CALL_MORE;
    char first = call_rest(p, &left)[0];
    if (first == '[')
        return read_list(p);
    return hand_over(p, first == '{' ? read_json_calls : read_python_calls, ITEM_FIRST, NULL);
}

/* ------------------------------------------------------------------ name, then {..} */

enum { NAMED_BEGIN, NAMED_NAME, NAMED_FENCE, NAMED_ARGUMENTS, NAMED_NOBODY };

/* The arguments after a name. If `end` comes instead, there are none; if it comes instead of their
 * last }, they are complete all the same. */
static enum call_result named_arguments(struct answer_parser *p, const char *end)
{
    if (!p->call.has_arguments && end) {
        enum match match = call_skip_space(p) ? call_match(p, end) : MATCH_MORE;
        if (match == MATCH_MORE)
            return CALL_MORE;
        if (match == MATCH_YES) {
            call_add_arguments(p, "{}", 2);
            return CALL_DONE;
        }
    }
    enum call_result result = read_arguments(p);
    if (result != CALL_BAD || !end || !json_scan_lacks_brace(&p->call.scan))
        return result;
    enum match match = call_match(p, end);
    if (match == MATCH_YES)
        call_add_arguments(p, "}", 1);
    return match == MATCH_YES ? CALL_DONE : match == MATCH_MORE ? CALL_MORE : CALL_BAD;
}

/* Reads a name up to one of `stops`, which is not skipped. */
static enum call_result named_name(struct answer_parser *p, const char *const *stops, size_t *which)
{
    size_t len, left;
    enum match match = call_find(p, stops, &len, which);
    if (match != MATCH_YES)
        return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
    if (!call_set_name(p, call_rest(p, &left), len))
        return CALL_BAD;
    p->call.pos += len;
    p->call.state = NAMED_ARGUMENTS;
    return CALL_ON;
}

enum call_result read_mistral_calls(struct answer_parser *p)
{
    static const char *const stops[] = {"[ARGS]", "[CALL_ID]", "{", NULL};
    static const char *const arguments[] = {"[ARGS]", NULL};
    struct open_call *c = &p->call;
    size_t left, len, which;
    if (c->state == NAMED_ARGUMENTS)
        return named_arguments(p, NULL);
    if (!call_skip_space(p))
        return CALL_MORE;
    if (strchr("[{", call_rest(p, &left)[0]))
        return hand_over(p, read_json_calls, ITEM_FIRST, NULL);
    enum call_result result = named_name(p, stops, &which);
    if (result != CALL_ON)
        return result;
    size_t name_end = c->pos;
    if (which == 1) {
        enum match match = call_find(p, arguments, &len, &which);
        if (match != MATCH_YES) { /* read the name again with more text */
            c->pos = c->marker_end;
            c->state = NAMED_BEGIN;
            return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
        }
        c->pos = name_end + len;
    }
    call_match(p, "[ARGS]");
    return CALL_ON;
}

/* "function", or the function's name: up to the separator. */
static enum call_result deepseek_begin(struct answer_parser *p)
{
    static const char *const separator[] = {"<｜tool▁sep｜>", NULL};
    size_t len, left, which;
    if (call_match(p, "<｜tool▁call▁begin｜>") == MATCH_YES)
        return CALL_ON;
    enum match match = call_find(p, separator, &len, &which);
    if (match != MATCH_YES)
        return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
    const char *text = call_rest(p, &left);
    bool kind = len == strlen("function") && memcmp(text, "function", len) == 0;
    if (!kind && !call_set_name(p, text, len))
        return CALL_BAD;
    p->call.pos += len + strlen(separator[0]);
    p->call.state = kind ? NAMED_NAME : NAMED_FENCE;
    return CALL_ON;
}

enum call_result read_deepseek_call(struct answer_parser *p)
{
    static const char *const name_ends[] = {"\n", "```", "{", NULL};
    struct open_call *c = &p->call;
    enum call_result result;
    enum match match;
    size_t which;
    switch (c->state) {
    case NAMED_BEGIN: return call_skip_space(p) ? deepseek_begin(p) : CALL_MORE;
    case NAMED_NAME:
        result = named_name(p, name_ends, &which);
        c->state = result == CALL_ON ? NAMED_FENCE : NAMED_NAME;
        return result;
    case NAMED_FENCE:
        match = call_skip_space(p) ? call_match(p, "```json") : MATCH_MORE;
        if (match == MATCH_MORE)
            return CALL_MORE;
        c->state = NAMED_ARGUMENTS;
        return CALL_ON;
    default: return named_arguments(p, "<｜tool▁call▁end｜>");
    }
}

/* Whether the schema may take parameters that it does not list. */
static bool takes_any_name(const struct json *schema)
{
    static const char *const keywords[] = {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"};
    const struct json *more = json_get(schema, "additionalProperties");
    if (!schema)
        return false;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_get(schema, keywords[i]))
            return true;
    return !json_is(json_get(schema, "properties"), JSON_OBJECT) ||
           (more && !(more->type == JSON_BOOL && !more->boolean));
}

/* Whether the function has all parameters that are given, and is given all that it requires. If it
 * may take any, it fits, so that no other function is called by mistake. */
static bool tool_fits(const struct tool *tool, const struct json *given)
{
    const struct json *required = json_get(tool->parameters, "required");
    if (takes_any_name(tool->parameters))
        return true;
    json_each (member, given)
        if (!tool_parameter(tool, member->key, member->key_len))
            return false;
    if (json_is(required, JSON_ARRAY))
        json_each (name, required)
            if (json_is(name, JSON_STRING) && !json_get(given, name->text))
                return false;
    return true;
}

/* The only function that fits the arguments; NULL: none fits, or several do. */
static const struct tool *tool_of_arguments(struct answer_parser *p, const struct strbuf *text)
{
    struct arena arena = ARENA_INIT;
    const struct json *given = json_parse(&arena, text->data, text->len, NULL);
    const struct tool *found = NULL;
    size_t n = 0;
    for (size_t i = 0; given && given->count && i < tool_set_size(p->options.tools); i++) {
        const struct tool *tool = tool_set_at(p->options.tools, i);
        if (!tool_fits(tool, given))
            continue;
        found = tool;
        n++;
    }
    p->failed |= arena.failed;
    arena_free(&arena);
    return n == 1 ? found : NULL;
}

/* Arguments without a name: held until they are complete and show which function is meant. */
static enum call_result nobodys_arguments(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    if (!c->has_arguments) {
        enum call_result begun = arguments_begin(p);
        if (begun != CALL_DONE)
            return begun;
        c->token = c->pos;
    }
    enum call_result result = scan_value(p, false);
    if (result != CALL_DONE)
        return result;
    held_write(&p->scratch, call_at(p, c->token), c->pos - c->token);
    p->failed |= p->scratch.failed;
    c->tool = p->failed ? NULL : tool_of_arguments(p, &p->scratch);
    if (!c->tool)
        return CALL_BAD;
    call_add_scratch(p);
    return CALL_DONE;
}

enum call_result read_kimi_call(struct answer_parser *p)
{
    static const char *const stops[] = {"<|tool_call_argument_begin|>", NULL};
    struct open_call *c = &p->call;
    size_t len, left, which;
    if (c->state == NAMED_ARGUMENTS)
        return named_arguments(p, "<|tool_call_end|>");
    if (c->state == NAMED_NOBODY)
        return nobodys_arguments(p);
    if (!call_skip_space(p))
        return CALL_MORE;
    if (call_match(p, "<|tool_call_begin|>") == MATCH_YES)
        return CALL_ON;
    enum match match = call_find(p, stops, &len, &which);
    if (match != MATCH_YES)
        return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
    const char *name = call_rest(p, &left);
    size_t name_len = len;
    while (name_len && strchr("0123456789 \n", name[name_len - 1]))
        name_len--;
    if (!name_len || name[name_len - 1] != ':') /* functions.name:0, where 0 is the call's index */
        name_len = len + 1;
    bool counts = len && strspn(name, "0123456789") >= len; /* the name is missing */
    if (counts && tool_set_size(p->options.tools) == 1)
        c->tool = tool_set_at(p->options.tools, 0);
    else if (!call_set_name(p, name, name_len - 1) && !counts)
        return CALL_BAD;
    if (name_len <= len) { /* Kimi's template renders the id: the model must see its own */
        c->id = c->pos;
        c->id_len = len;
        while (strchr(" \n", name[c->id_len - 1]))
            c->id_len--;
    }
    c->pos += len + strlen(stops[0]);
    c->state = c->tool ? NAMED_ARGUMENTS : NAMED_NOBODY;
    return CALL_ON;
}

/* <|tool_call:begin|>id<|tool_call:name|>f<|tool_call:args|>{..} */
enum call_result read_solar_call(struct answer_parser *p)
{
    static const char *const marks[] = {"<|tool_call:name|>", "<|tool_call:args|>"};
    struct open_call *c = &p->call;
    size_t len, left, which;
    if (c->state == NAMED_ARGUMENTS)
        return named_arguments(p, "<|tool_call:end|>");
    const char *const stops[] = {marks[c->state], NULL};
    enum match match = call_find(p, stops, &len, &which);
    if (match != MATCH_YES)
        return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
    if (c->state == NAMED_NAME && !call_set_name(p, call_rest(p, &left), len))
        return CALL_BAD;
    c->pos += len + strlen(stops[0]);
    c->state = c->state == NAMED_NAME ? NAMED_ARGUMENTS : NAMED_NAME;
    return CALL_ON;
}

enum call_result read_function_json(struct answer_parser *p)
{
    static const char *const stops[] = {">", NULL};
    size_t which;
    if (p->call.state == NAMED_ARGUMENTS)
        return named_arguments(p, "</function>");
    enum call_result result = named_name(p, stops, &which);
    p->call.pos += result == CALL_ON;
    return result;
}
