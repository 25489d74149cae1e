/* Scans a JSON value byte by byte: a state and one bit for each open container, nothing else. Only
 * the byte after a number shows that it has ended, so that byte is processed twice. */
#include "prompt/answer/json_scan.h"

#include <string.h>

#include "base/ascii.h"

enum scan_state {
    SCAN_VALUE,
    SCAN_ITEM_OR_END, /* after [ */
    SCAN_KEY_OR_END,  /* after { */
    SCAN_KEY,
    SCAN_COLON,
    SCAN_NEXT, /* after a value in a container */
    SCAN_STRING,
    SCAN_ESCAPE,
    SCAN_HEX,
    SCAN_LITERAL,
    SCAN_MINUS,
    SCAN_ZERO,
    SCAN_DIGITS,
    SCAN_POINT,
    SCAN_FRACTION,
    SCAN_E,
    SCAN_E_SIGN,
    SCAN_EXPONENT,
};

void json_scan_begin(struct json_scan *s)
{
    *s = (struct json_scan){.state = SCAN_VALUE};
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool in_object(const struct json_scan *s)
{
    uint32_t at = s->depth - 1;
    return s->objects[at / 64] >> (at % 64) & 1;
}

static enum json_scan_result open_container(struct json_scan *s, bool object)
{
    if (s->depth == JSON_MAX_DEPTH)
        return JSON_SCAN_BAD;
    uint64_t bit = (uint64_t)1 << (s->depth % 64);
    uint64_t *word = &s->objects[s->depth++ / 64];
    *word = object ? *word | bit : *word & ~bit;
    s->state = object ? SCAN_KEY_OR_END : SCAN_ITEM_OR_END;
    return JSON_SCAN_MORE;
}

static enum json_scan_result value_ended(struct json_scan *s)
{
    s->state = SCAN_NEXT;
    return s->depth ? JSON_SCAN_MORE : JSON_SCAN_LAST;
}

static enum json_scan_result close_container(struct json_scan *s)
{
    s->depth--;
    return value_ended(s);
}

static enum json_scan_result begin_string(struct json_scan *s, bool key)
{
    s->state = SCAN_STRING;
    s->in_string = true;
    s->in_key = key;
    return JSON_SCAN_MORE;
}

static enum json_scan_result begin_value(struct json_scan *s, char c)
{
    switch (c) {
    case '{': return open_container(s, true);
    case '[': return open_container(s, false);
    case '"': return begin_string(s, false);
    case 't': s->literal = "rue"; break;
    case 'f': s->literal = "alse"; break;
    case 'n': s->literal = "ull"; break;
    case '-': s->state = SCAN_MINUS; return JSON_SCAN_MORE;
    case '0': s->state = SCAN_ZERO; return JSON_SCAN_MORE;
    default: s->state = SCAN_DIGITS; return ascii_is_digit(c) ? JSON_SCAN_MORE : JSON_SCAN_BAD;
    }
    s->state = SCAN_LITERAL;
    return JSON_SCAN_MORE;
}

static enum json_scan_result string_byte(struct json_scan *s, char c)
{
    switch (s->state) {
    case SCAN_ESCAPE:
        s->state = c == 'u' ? SCAN_HEX : SCAN_STRING;
        s->n_hex = 4;
        return c != '\0' && strchr("\"\\/bfnrtu", c) ? JSON_SCAN_MORE : JSON_SCAN_BAD;
    case SCAN_HEX:
        if (--s->n_hex == 0)
            s->state = SCAN_STRING;
        return ascii_hex_value(c) >= 0 ? JSON_SCAN_MORE : JSON_SCAN_BAD;
    default: break;
    }
    if (c == '\\')
        s->state = SCAN_ESCAPE;
    if (c != '"')
        return JSON_SCAN_MORE;
    s->in_string = false;
    if (!s->in_key)
        return value_ended(s);
    s->state = SCAN_COLON;
    return JSON_SCAN_MORE;
}

/* The state of a number after `c`, or SCAN_VALUE if `c` is not part of it. */
static enum scan_state number_next(enum scan_state state, char c)
{
    bool digit = ascii_is_digit(c), e = c == 'e' || c == 'E';
    switch (state) {
    case SCAN_MINUS: return c == '0' ? SCAN_ZERO : digit ? SCAN_DIGITS : SCAN_VALUE;
    case SCAN_ZERO: return c == '.' ? SCAN_POINT : e ? SCAN_E : SCAN_VALUE;
    case SCAN_DIGITS: return digit ? SCAN_DIGITS : c == '.' ? SCAN_POINT : e ? SCAN_E : SCAN_VALUE;
    case SCAN_POINT: return digit ? SCAN_FRACTION : SCAN_VALUE;
    case SCAN_FRACTION: return digit ? SCAN_FRACTION : e ? SCAN_E : SCAN_VALUE;
    case SCAN_E: return digit ? SCAN_EXPONENT : c == '+' || c == '-' ? SCAN_E_SIGN : SCAN_VALUE;
    default: return digit ? SCAN_EXPONENT : SCAN_VALUE;
    }
}

static enum json_scan_result between_byte(struct json_scan *s, char c)
{
    if (is_space(c))
        return JSON_SCAN_MORE;
    switch (s->state) {
    case SCAN_KEY_OR_END:
        if (c == '}')
            return close_container(s);
        return c == '"' ? begin_string(s, true) : JSON_SCAN_BAD;
    case SCAN_KEY: return c == '"' ? begin_string(s, true) : JSON_SCAN_BAD;
    case SCAN_COLON: s->state = SCAN_VALUE; return c == ':' ? JSON_SCAN_MORE : JSON_SCAN_BAD;
    case SCAN_ITEM_OR_END: return c == ']' ? close_container(s) : begin_value(s, c);
    case SCAN_NEXT:
        if (c == (in_object(s) ? '}' : ']'))
            return close_container(s);
        if (c != ',')
            return JSON_SCAN_BAD;
        s->state = in_object(s) ? SCAN_KEY : SCAN_VALUE;
        return JSON_SCAN_MORE;
    default: return begin_value(s, c);
    }
}

enum json_scan_result json_scan_byte(struct json_scan *s, char c)
{
    if (s->in_string)
        return string_byte(s, c);
    if (s->state < SCAN_STRING)
        return between_byte(s, c);
    if (s->state == SCAN_LITERAL) {
        if (c != *s->literal++)
            return JSON_SCAN_BAD;
        return *s->literal ? JSON_SCAN_MORE : value_ended(s);
    }
    enum scan_state next = number_next(s->state, c);
    if (next == SCAN_VALUE) {
        bool whole = s->state == SCAN_ZERO || s->state == SCAN_DIGITS ||
                     s->state == SCAN_FRACTION || s->state == SCAN_EXPONENT;
        if (!whole)
            return JSON_SCAN_BAD;
        return value_ended(s) == JSON_SCAN_LAST ? JSON_SCAN_BEHIND : between_byte(s, c);
    }
    s->state = (uint8_t)next;
    return JSON_SCAN_MORE;
}

bool json_scan_lacks_brace(const struct json_scan *s)
{
    return s->state == SCAN_NEXT && s->depth == 1 && in_object(s);
}

bool json_scan_is_object(const char *text, size_t len)
{
    struct json_scan s;
    size_t i = 0;
    json_scan_begin(&s);
    while (i < len && is_space(text[i]))
        i++;
    if (i == len || text[i] != '{')
        return false;
    enum json_scan_result result = JSON_SCAN_MORE;
    while (i < len && result == JSON_SCAN_MORE)
        result = json_scan_byte(&s, text[i++]);
    while (i < len && is_space(text[i]))
        i++;
    return result == JSON_SCAN_LAST && i == len;
}
