/* Readers of calls in Python or in Gemma's own notation:
 *
 *   ```tool_code            [f(x=1), g()] <start_function_call>call:f{x:1}<end_function_call>
 *   print(f(x=1, y="a"))
 *   ```
 *
 * The end of an argument is found as it arrives (quotes, brackets); then it is converted as a
 * whole. */
#include "base/ascii.h"
#include "prompt/answer/answer_internal.h"

enum { PYTHON_CALLEE, PYTHON_ARGUMENT, PYTHON_AFTER };
enum { QUOTE_NONE, QUOTE_SINGLE, QUOTE_DOUBLE, QUOTE_SINGLES, QUOTE_DOUBLES };

static const char *const quote_texts[] = {"", "'", "\"", "'''", "\"\"\""};

/* ------------------------------------------------------------------ where an argument ends */

/* At a quote outside strings: finds which string it opens. False: more text is needed. */
static bool quote_open(struct answer_parser *p, const char *text, size_t left, size_t *i)
{
    struct open_call *c = &p->call;
    int one = text[*i] == '"' ? QUOTE_DOUBLE : QUOTE_SINGLE, three = one + 2;
    enum match match = literal_match(text + *i, left - *i, quote_texts[three]);
    if (match == MATCH_MORE && !p->ended)
        return false;
    c->quote = (uint8_t)(match == MATCH_YES ? three : one);
    *i += strlen(quote_texts[c->quote]);
    return true;
}

/* One byte, or one quote, of a string. False: more text is needed. */
static bool quote_step(struct answer_parser *p, const char *text, size_t left, size_t *i)
{
    struct open_call *c = &p->call;
    if (text[*i] == '\\') {
        if (left - *i < 2)
            return false;
        *i += 2;
        return true;
    }
    enum match match = literal_match(text + *i, left - *i, quote_texts[c->quote]);
    if (match == MATCH_MORE)
        return false;
    if (match == MATCH_YES && c->quote <= QUOTE_DOUBLE) {
        if (left - *i < 2 && !c->is_inner && !p->ended)
            return false;
        if (c->is_inner || (left - *i > 1 && quote_opens_inside(text[*i + 1]))) {
            c->is_inner = !c->is_inner;
            match = MATCH_NO;
        }
    }
    *i += match == MATCH_YES ? strlen(quote_texts[c->quote]) : 1;
    if (match == MATCH_YES)
        c->quote = QUOTE_NONE;
    return true;
}

/* The distance from `pos` to the `,` or `close` that ends the argument. */
static enum match argument_end(struct answer_parser *p, char close, size_t *len)
{
    struct open_call *c = &p->call;
    size_t left;
    const char *text = call_rest(p, &left);
    size_t i = c->scanned;
    for (bool more = true; more && i < left; c->scanned = i) {
        char ch = text[i];
        if (c->quote) {
            more = quote_step(p, text, left, &i);
        } else if (ch == '"' || ch == '\'') {
            more = quote_open(p, text, left, &i);
        } else if (c->depth == 0 && (ch == ',' || ch == close)) {
            *len = i;
            return MATCH_YES;
        } else if (strchr(")]}", ch) && ch) {
            if (c->depth-- == 0)
                return MATCH_NO;
            i++;
        } else {
            c->depth += ch && strchr("([{", ch);
            i++;
        }
    }
    return MATCH_MORE;
}

/* ------------------------------------------------------------------ Python */

static bool is_word(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) || c == '_' || (unsigned char)c >= 0x80;
}

/* `name=` at the start of an argument: the length of the name, 0 if there is none. */
static size_t keyword_length(const char *text, size_t len, size_t *value)
{
    size_t n = 0;
    while (n < len && is_word(text[n]))
        n++;
    size_t i = n;
    while (i < len && answer_is_space(text[i]))
        i++;
    if (i == len || text[i] != '=')
        return 0;
    *value = i + 1;
    return n;
}

/* An argument without a name is the parameter at its position in the function's schema. */
static const struct json *positional(const struct open_call *c)
{
    const struct json *properties = json_get(c->tool->parameters, "properties");
    const struct json *at = json_is(properties, JSON_OBJECT) ? properties->first : NULL;
    for (uint32_t i = 0; at && i < c->n_arguments; i++)
        at = at->next;
    return at;
}

static bool give_argument(struct answer_parser *p, const char *text, size_t len)
{
    struct open_call *c = &p->call;
    size_t value = 0, key_len = keyword_length(text, len, &value);
    const struct json *place = key_len ? NULL : positional(c);
    if (!key_len && !place)
        return false;
    strbuf_clear(&p->scratch);
    strbuf_adds(&p->scratch, c->n_arguments++ ? ", " : "{");
    value_write_string(&p->scratch, place ? place->key : text, place ? place->key_len : key_len);
    strbuf_adds(&p->scratch, ": ");
    bool ok = value_write_python(&p->scratch, text + value, len - value);
    p->failed |= p->scratch.failed;
    if (ok)
        call_add_scratch(p);
    return ok;
}

static enum call_result python_argument(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left, len;
    if (c->scanned == 0 && !call_skip_space(p))
        return CALL_MORE;
    enum match match = argument_end(p, ')', &len);
    if (match != MATCH_YES)
        return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
    const char *text = call_rest(p, &left);
    bool last = text[len] == ')';
    if ((len || !last) && !give_argument(p, text, len))
        return CALL_BAD;
    c->pos += len + 1;
    c->scanned = 0;
    if (!last)
        return CALL_ON;
    const char *rest = c->n_arguments ? "}" : "{}";
    call_add_arguments(p, rest, strlen(rest));
    call_finish(p);
    call_next(p, PYTHON_AFTER);
    return CALL_ON;
}

/* The function's name, up to its parenthesis. print( ) around calls is skipped. */
static enum call_result python_callee(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left, n = 0;
    if (!call_skip_space(p))
        return CALL_MORE;
    const char *text = call_rest(p, &left);
    if (text[0] == '[' && !c->in_list) {
        c->in_list = true;
        c->pos++;
        return CALL_ON;
    }
    while (n < left && n <= CALL_MAX_NAME && (is_word(text[n]) || strchr(".-", text[n])))
        n++;
    if (n == left)
        return CALL_MORE;
    if (n == 0 || text[n] != '(')
        return CALL_BAD;
    bool method = n > 5 && memcmp(text + n - 5, ".call", 5) == 0; /* Llama's own tools */
    if (!call_set_name(p, text, n) && !(method && call_set_name(p, text, n - 5))) {
        if (c->wrapped || n != 5 || memcmp(text, "print", 5) != 0)
            return CALL_BAD;
        c->wrapped = true;
        c->pos += n + 1;
        return CALL_ON;
    }
    c->pos += n + 1;
    c->state = PYTHON_ARGUMENT;
    return CALL_ON;
}

/* After a call: the end of the list or block, or the next call. */
static enum call_result python_after(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left;
    if (!call_skip_space(p))
        return p->ended ? CALL_DONE : CALL_MORE;
    char first = call_rest(p, &left)[0];
    if (first == ')' && c->wrapped) {
        c->wrapped = false;
    } else if (first == ']' && c->in_list) {
        c->in_list = false;
    } else if (first == ';' || (first == ',' && c->in_list)) {
        c->state = PYTHON_CALLEE;
    } else if (is_word(first) && !c->strict) {
        c->state = PYTHON_CALLEE;
        return CALL_ON;
    } else {
        return CALL_DONE;
    }
    c->pos++;
    return CALL_ON;
}

enum call_result read_python_calls(struct answer_parser *p)
{
    switch (p->call.state) {
    case PYTHON_ARGUMENT: return python_argument(p);
    case PYTHON_AFTER: return python_after(p);
    default: return python_callee(p);
    }
}

/* ------------------------------------------------------------------ Gemma's notation */

enum { GEMMA_BEGIN, GEMMA_NAME, GEMMA_MEMBER };

/* The distance to the `,` or `}` that ends the member. A string is between two marks, or in double
 * quotes if it starts with one. */
static enum match member_end(struct answer_parser *p, size_t *len)
{
    static const char *const marks[] = {"<escape>", "<|\"|>"};
    struct open_call *c = &p->call;
    size_t left, i = c->scanned;
    const char *text = call_rest(p, &left);
    for (; i < left; c->scanned = ++i) {
        char ch = text[i];
        if (ch == '<') {
            for (uint8_t m = 0; m < 2; m++) {
                enum match match = literal_match(text + i, left - i, marks[m]);
                if (match == MATCH_MORE)
                    return MATCH_MORE;
                if (match == MATCH_NO || (c->quote && c->quote != m + 1))
                    continue;
                c->quote = c->quote ? 0 : (uint8_t)(m + 1);
                i += strlen(marks[m]) - 1;
                break;
            }
        } else if (c->quote == 3 && ch == '\\') {
            if (left - i < 2)
                return MATCH_MORE;
            i++;
        } else if (ch == '"' && (c->quote == 3 || !c->quote)) {
            size_t before = i;
            while (before && answer_is_space(text[before - 1]))
                before--;
            if (c->quote || before == 0 || strchr(":,[{", text[before - 1]))
                c->quote = c->quote ? 0 : 3;
        } else if (!c->quote && c->depth == 0 && (ch == ',' || ch == '}')) {
            *len = i;
            return MATCH_YES;
        } else if (!c->quote && (ch == '}' || ch == ']')) {
            if (c->depth-- == 0)
                return MATCH_NO;
        } else if (!c->quote && (ch == '{' || ch == '[')) {
            c->depth++;
        }
    }
    return MATCH_MORE;
}

/* key:value, where the key may also be between marks or quotes. */
static bool give_member(struct answer_parser *p, const char *text, size_t len)
{
    struct open_call *c = &p->call;
    static const char *const quotes[] = {"<escape>", "<|\"|>", "\"", ""};
    const char *key = text, *end;
    size_t quote = 0, n = 0, quote_len;
    while (literal_match(text, len, quotes[quote]) != MATCH_YES)
        quote++;
    quote_len = strlen(quotes[quote]);
    key += quote_len;
    const char *stop = quote_len ? quotes[quote] : ":";
    end = memmem(key, len - quote_len, stop, strlen(stop));
    if (!end)
        return false;
    n = (size_t)(end - key);
    while (!quote_len && n && answer_is_space(key[n - 1]))
        n--;
    end += quote_len;
    while (end < text + len && answer_is_space(*end))
        end++;
    if (n == 0 || end == text + len || *end != ':')
        return false;
    strbuf_clear(&p->scratch);
    strbuf_adds(&p->scratch, c->n_arguments++ ? ", " : "{");
    value_write_string(&p->scratch, key, n);
    strbuf_adds(&p->scratch, ": ");
    bool ok = value_write_gemma(&p->scratch, tool_parameter(c->tool, key, n), end + 1,
                                (size_t)(text + len - end - 1));
    p->failed |= p->scratch.failed;
    if (ok)
        call_add_scratch(p);
    return ok;
}

static enum call_result gemma_member(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    size_t left, len;
    if (c->scanned == 0 && !call_skip_space(p))
        return CALL_MORE;
    enum match match = member_end(p, &len);
    if (match != MATCH_YES)
        return match == MATCH_MORE ? CALL_MORE : CALL_BAD;
    const char *text = call_rest(p, &left);
    bool last = text[len] == '}';
    if ((len || !last) && !give_member(p, text, len))
        return CALL_BAD;
    c->pos += len + 1;
    c->scanned = 0;
    if (!last)
        return CALL_ON;
    const char *rest = c->n_arguments ? "}" : "{}";
    call_add_arguments(p, rest, strlen(rest));
    return CALL_DONE;
}

enum call_result read_gemma_call(struct answer_parser *p)
{
    static const char *const stops[] = {"{", NULL};
    struct open_call *c = &p->call;
    size_t left, len, which;
    enum match match;
    switch (c->state) {
    case GEMMA_BEGIN:
        match = call_skip_space(p) ? call_match(p, "call:") : MATCH_MORE;
        c->state = match == MATCH_YES ? GEMMA_NAME : GEMMA_BEGIN;
        break;
    case GEMMA_NAME:
        match = call_find(p, stops, &len, &which);
        if (match == MATCH_YES && !call_set_name(p, call_rest(p, &left), len))
            return CALL_BAD;
        if (match == MATCH_YES) {
            c->pos += len + 1;
            c->state = GEMMA_MEMBER;
        }
        break;
    default: return gemma_member(p);
    }
    return match == MATCH_YES ? CALL_ON : match == MATCH_MORE ? CALL_MORE : CALL_BAD;
}
