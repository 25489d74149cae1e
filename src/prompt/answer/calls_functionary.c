/* Functionary 3.2 writes parts, each with a line that says to whom:
 *
 *   all\nI look.>>>get_weather\n{"city": "Paris"}>>>python\nprint(1)
 *
 * What is for all is content, the rest are calls. The prompt ends in the first part's >>>. A line
 * that names nobody is content, and is held only as long as it may still become a name. */
#include "prompt/answer/answer_internal.h"

enum { PART_RECIPIENT, PART_ARGUMENTS, PART_CODE };

/* Whether the text starts with a recipient's line: its length and function (NULL: all). */
static enum match recipient_match(const struct answer_parser *p, const char *text, size_t left,
                                  size_t *len, const struct tool **tool)
{
    enum match best = literal_match(text, left, FUNCTIONARY_TEXT);
    *len = strlen(FUNCTIONARY_TEXT);
    *tool = NULL;
    for (size_t i = 0; best != MATCH_YES && i < tool_set_size(p->options.tools); i++) {
        const struct tool *t = tool_set_at(p->options.tools, i);
        size_t n = left < t->name_len ? left : t->name_len;
        if (memcmp(text, t->name, n) != 0 || (left > t->name_len && text[t->name_len] != '\n'))
            continue;
        *len = t->name_len + 1;
        *tool = t;
        best = left < *len ? MATCH_MORE : MATCH_YES;
    }
    return best == MATCH_MORE && p->ended ? MATCH_NO : best;
}

static enum call_result read_recipient(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left, len;
    const char *text = call_rest(p, &left);
    enum match match = recipient_match(p, text, left, &len, &c->tool);
    if (match != MATCH_YES)
        return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
    c->token = c->pos += len;
    c->state = PART_ARGUMENTS;
    return c->tool ? CALL_ON : CALL_TEXT;
}

static bool is_python(const struct tool *tool)
{
    return tool->name_len == strlen("python") && memcmp(tool->name, "python", 6) == 0;
}

/* At a {: Python's code may start with one, too. */
static enum match json_match(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left, i = c->scanned + 1;
    const char *text = call_rest(p, &left);
    if (!is_python(c->tool))
        return MATCH_YES;
    while (i < left && answer_is_space(text[i]))
        i++;
    c->scanned = i - 1;
    if (i == left)
        return p->ended ? MATCH_YES : MATCH_MORE;
    return text[i] == '"' || text[i] == '}' ? MATCH_YES : MATCH_NO;
}

/* Whether the next part begins here. In Python's code >>> alone does not begin one. */
static enum match next_part_match(const struct answer_parser *p)
{
    const size_t mark_len = strlen(FUNCTIONARY_MARK);
    const struct tool *tool;
    size_t left, line;
    const char *text = call_rest(p, &left);
    enum match match = literal_match(text, left, FUNCTIONARY_MARK);
    if (match == MATCH_YES && is_python(p->call.tool))
        match = recipient_match(p, text + mark_len, left - mark_len, &line, &tool);
    return match == MATCH_MORE && p->ended ? MATCH_NO : match;
}

static bool requires_arguments(const struct tool *tool)
{
    const struct json *required = json_get(tool->parameters, "required");
    return json_is(required, JSON_ARRAY) && required->count > 0;
}

/* The arguments are JSON; but Python may be called with its code as it is. */
static enum call_result read_part_arguments(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left;
    if (c->has_arguments)
        return read_arguments(p);
    bool more = call_skip_space(p);
    if (!more && !p->ended)
        return CALL_MORE;
    enum match json = more && call_rest(p, &left)[0] == '{' ? json_match(p) : MATCH_NO;
    if (json != MATCH_NO)
        return json == MATCH_YES ? read_arguments(p) : CALL_MORE;
    enum match none = more ? next_part_match(p) : MATCH_YES;
    if (none == MATCH_MORE)
        return CALL_MORE;
    if (none == MATCH_YES) {
        if (!more && requires_arguments(c->tool)) /* cut off */
            return CALL_BAD;
        call_add_arguments(p, "{}", 2);
        return CALL_DONE;
    }
    if (!is_python(c->tool))
        return CALL_BAD;
    c->pos = c->token; /* white space belongs to the code */
    c->state = PART_CODE;
    call_add_arguments(p, "{\"code\": \"", strlen("{\"code\": \""));
    return CALL_ON;
}

/* The length of code before the next part. MORE: what follows may begin one. */
static enum match code_find_end(const struct answer_parser *p, const char *text, size_t left,
                                size_t *len)
{
    const struct tool *tool;
    const size_t mark_len = strlen(FUNCTIONARY_MARK);
    for (*len = 0; *len < left; ++*len) {
        const char *next = memchr(text + *len, FUNCTIONARY_MARK[0], left - *len);
        if (!next)
            break;
        *len = (size_t)(next - text);
        enum match match = literal_match(next, left - *len, FUNCTIONARY_MARK);
        size_t line;
        if (match == MATCH_YES)
            match = recipient_match(p, next + mark_len, left - *len - mark_len, &line, &tool);
        if (match == MATCH_YES || (match == MATCH_MORE && !p->ended))
            return match;
    }
    *len = left;
    return MATCH_NO;
}

static enum call_result read_code(struct answer_parser *p)
{
    size_t left, len;
    const char *text = call_rest(p, &left);
    enum match end = code_find_end(p, text, left, &len);
    strbuf_clear(&p->scratch);
    json_write_escaped(&p->scratch, text, len);
    p->call.pos += len;
    if (end != MATCH_YES && !p->ended) {
        call_add_scratch(p);
        return CALL_MORE;
    }
    strbuf_adds(&p->scratch, "\"}");
    call_add_scratch(p);
    return CALL_DONE;
}

enum call_result read_functionary_part(struct answer_parser *p)
{
    switch (p->call.state) {
    case PART_RECIPIENT: return read_recipient(p);
    case PART_ARGUMENTS: return read_part_arguments(p);
    default: return read_code(p);
    }
}
