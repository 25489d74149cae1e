/* JSON as grammars: white space, strings, numbers, any value. White space and the digits of numbers
 * are bounded, unlike in JSON itself, because small models may never stop. In canonical style each
 * value has one text, the one that Python writes. */
#include "prompt/schema/json_text.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "prompt/grammar/regex.h"

enum {
    INDENT_MAX = 32,
    FRACTION_DIGITS = 40, /* of numbers in relaxed style */
};

/* ---- short names --------------------------------------------------------------------------- */

grammar_expr grammar_pair(struct grammar_builder *b, grammar_expr first, grammar_expr second)
{
    return grammar_sequence(b, (grammar_expr[]){first, second}, 2);
}

grammar_expr grammar_either(struct grammar_builder *b, grammar_expr one, grammar_expr other)
{
    return grammar_choice(b, (grammar_expr[]){one, other}, 2);
}

grammar_expr grammar_optional(struct grammar_builder *b, grammar_expr e)
{
    return grammar_repeat(b, e, 0, 1);
}

grammar_expr grammar_text(struct grammar_builder *b, const char *text)
{
    return grammar_literal(b, text, strlen(text));
}

grammar_expr grammar_one_of(struct grammar_builder *b, const char *characters)
{
    struct code_range ranges[32];
    size_t n = strlen(characters);
    assert(n <= sizeof ranges / sizeof *ranges);
    for (size_t i = 0; i < n; i++)
        ranges[i].first = ranges[i].last = (unsigned char)characters[i];
    return grammar_class(b, ranges, n, false);
}

grammar_expr grammar_digits(struct grammar_builder *b, char first, char last, uint32_t min,
                            uint32_t max)
{
    struct code_range range = {(unsigned char)first, (unsigned char)last};
    grammar_expr digit = grammar_class(b, &range, 1, false);
    return min == 1 && max == 1 ? digit : grammar_repeat(b, digit, min, max);
}

/* ---- punctuation --------------------------------------------------------------------------- */

static void punctuation_init(struct json_text *t)
{
    struct grammar_builder *b = t->b;
    t->quote = grammar_text(b, "\"");
    if (t->style == JSON_CANONICAL) {
        t->space = grammar_empty(b);
        t->comma = grammar_text(b, ", ");
        t->colon = grammar_text(b, ": ");
        return;
    }
    grammar_expr indent = grammar_repeat(b, grammar_one_of(b, " \t"), 0, INDENT_MAX);
    t->space = grammar_rule(b);
    grammar_define(b, t->space,
                   grammar_choice(b,
                                  (grammar_expr[]){grammar_empty(b), grammar_text(b, " "),
                                                   grammar_pair(b, grammar_text(b, "\n"), indent)},
                                  3));
    t->comma = grammar_pair(b, grammar_text(b, ","), t->space);
    t->colon = grammar_pair(b, grammar_text(b, ":"), grammar_optional(b, grammar_text(b, " ")));
}

grammar_expr json_text_brackets(struct json_text *t, char open, char close, grammar_expr content)
{
    return grammar_sequence(t->b,
                            (grammar_expr[]){grammar_literal(t->b, &open, 1), t->space, content,
                                             t->space, grammar_literal(t->b, &close, 1)},
                            5);
}

grammar_expr json_text_empty(struct json_text *t, char open, char close)
{
    return grammar_sequence(t->b,
                            (grammar_expr[]){grammar_literal(t->b, &open, 1), t->space,
                                             grammar_literal(t->b, &close, 1)},
                            3);
}

grammar_expr json_text_quoted(struct json_text *t, grammar_expr content)
{
    return grammar_sequence(t->b, (grammar_expr[]){t->quote, content, t->quote}, 3);
}

grammar_expr json_text_member(struct json_text *t, grammar_expr key, grammar_expr value)
{
    return grammar_sequence(t->b, (grammar_expr[]){key, t->colon, value}, 3);
}

/* ---- strings ------------------------------------------------------------------------------- */

/* \uXXXX: any code point of the basic plane, or a surrogate pair. */
static grammar_expr unicode_escape(struct grammar_builder *b)
{
    grammar_expr hex = grammar_one_of(b, "0123456789abcdefABCDEF");
    grammar_expr hex2 = grammar_repeat(b, hex, 2, 2), d = grammar_one_of(b, "dD");
    grammar_expr plain = grammar_pair(b, grammar_one_of(b, "0123456789abcefABCEF"),
                                      grammar_repeat(b, hex, 3, 3));
    grammar_expr below = grammar_sequence(
        b, (grammar_expr[]){d, grammar_one_of(b, "01234567"), hex2}, 3);
    grammar_expr pair = grammar_sequence(b,
                                         (grammar_expr[]){d, grammar_one_of(b, "89abAB"), hex2,
                                                          grammar_text(b, "\\u"), d,
                                                          grammar_one_of(b, "cdefCDEF"), hex2},
                                         7);
    return grammar_pair(b, grammar_text(b, "u"),
                        grammar_choice(b, (grammar_expr[]){plain, below, pair}, 3));
}

static void strings_init(struct json_text *t)
{
    struct grammar_builder *b = t->b;
    struct code_set all = code_set_new(t->arena, NULL, 0, true);
    grammar_expr plain = code_set_to_grammar(b, t->arena, all, TEXT_JSON_KEY);
    grammar_expr one;
    if (t->style == JSON_CANONICAL)
        one = code_set_to_grammar(b, t->arena, all, TEXT_JSON);
    else
        one = grammar_either(
            b, plain,
            grammar_pair(b, grammar_text(b, "\\"),
                         grammar_either(b, grammar_one_of(b, "\"\\/bfnrt"), unicode_escape(b))));
    t->character = one;
    t->characters = grammar_rule(b);
    grammar_define(b, t->characters, grammar_repeat(b, one, 0, GRAMMAR_NO_MAX));
    t->key_characters = grammar_repeat(b, plain, 0, GRAMMAR_NO_MAX);
    t->string = grammar_rule(b);
    grammar_define(b, t->string, json_text_quoted(t, t->characters));
}

grammar_expr json_text_string(struct json_text *t, const char *bytes, size_t len)
{
    struct strbuf text = STRBUF_INIT;
    json_write_string(&text, bytes, len);
    grammar_expr e = GRAMMAR_NONE;
    if (text.failed)
        t->arena->failed = true;
    else
        e = grammar_literal(t->b, text.data, text.len);
    strbuf_free(&text);
    return e;
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* Python writes 0.0001 but 1e-05, at most 17 digits, no trailing zero except in "1.0", and never
 * the integer -0. Decimals with up to 15 digits survive a round trip. */
static void canonical_numbers_init(struct json_text *t)
{
    struct grammar_builder *b = t->b;
    grammar_expr minus = grammar_optional(b, grammar_text(b, "-"));
    grammar_expr zero = grammar_text(b, "0"), nonzero = grammar_digits(b, '1', '9', 1, 1);
    grammar_expr integer = grammar_pair(b, nonzero,
                                        grammar_digits(b, '0', '9', 0, JSON_INTEGER_DIGITS - 1));
    t->integer = grammar_rule(b);
    grammar_define(b, t->integer, grammar_either(b, zero, grammar_pair(b, minus, integer)));
    grammar_expr tail = grammar_either(b, zero,
                                       grammar_pair(b, grammar_digits(b, '0', '9', 0, 5), nonzero));
    grammar_expr large = grammar_sequence(
        b, (grammar_expr[]){nonzero, grammar_digits(b, '0', '9', 0, 8), grammar_text(b, "."), tail},
        4);
    grammar_expr more = grammar_pair(b, grammar_digits(b, '0', '9', 0, 9), nonzero);
    grammar_expr small = grammar_sequence(b,
                                          (grammar_expr[]){grammar_text(b, "0."),
                                                           grammar_repeat(b, zero, 0, 3), nonzero,
                                                           grammar_optional(b, more)},
                                          4);
    t->number = grammar_rule(b);
    grammar_define(
        b, t->number,
        grammar_either(b, t->integer, grammar_pair(b, minus, grammar_either(b, large, small))));
}

/* A three-digit exponent after one digit and a fraction. No such number is larger than 1.7e308, so
 * none becomes infinite as a double. */
static grammar_expr large_exponents(struct grammar_builder *b, grammar_expr fraction)
{
    grammar_expr digit = grammar_digits(b, '0', '9', 1, 1);
    grammar_expr e = grammar_one_of(b, "eE"), sign = grammar_optional(b, grammar_one_of(b, "+-"));
    grammar_expr hundreds = grammar_either(
        b, grammar_pair(b, grammar_one_of(b, "12"), grammar_digits(b, '0', '9', 2, 2)),
        grammar_pair(b, grammar_text(b, "30"), grammar_digits(b, '0', '7', 1, 1)));
    grammar_expr most = grammar_sequence(
        b,
        (grammar_expr[]){grammar_text(b, "."), grammar_digits(b, '0', '6', 1, 1),
                         grammar_repeat(b, digit, 0, FRACTION_DIGITS - 1)},
        3);
    return grammar_either(
        b,
        grammar_sequence(b,
                         (grammar_expr[]){grammar_digits(b, '1', '9', 1, 1),
                                          grammar_optional(b, fraction), e, sign, hundreds},
                         5),
        grammar_sequence(b,
                         (grammar_expr[]){grammar_text(b, "1"), grammar_optional(b, most), e, sign,
                                          grammar_text(b, "308")},
                         5));
}

static void relaxed_numbers_init(struct json_text *t)
{
    struct grammar_builder *b = t->b;
    grammar_expr minus = grammar_optional(b, grammar_text(b, "-"));
    grammar_expr magnitude = grammar_either(
        b, grammar_text(b, "0"),
        grammar_pair(b, grammar_digits(b, '1', '9', 1, 1),
                     grammar_digits(b, '0', '9', 0, JSON_INTEGER_DIGITS - 1)));
    grammar_expr fraction = grammar_pair(b, grammar_text(b, "."),
                                         grammar_digits(b, '0', '9', 1, FRACTION_DIGITS));
    grammar_expr exponent = grammar_sequence(
        b,
        (grammar_expr[]){grammar_one_of(b, "eE"), grammar_optional(b, grammar_one_of(b, "+-")),
                         grammar_digits(b, '0', '9', 1, 2)},
        3);
    t->integer = grammar_rule(b);
    grammar_define(b, t->integer, grammar_pair(b, minus, magnitude));
    t->number = grammar_rule(b);
    grammar_define(
        b, t->number,
        grammar_either(b,
                       grammar_sequence(b,
                                        (grammar_expr[]){t->integer, grammar_optional(b, fraction),
                                                         grammar_optional(b, exponent)},
                                        3),
                       grammar_pair(b, minus, large_exponents(b, fraction))));
}

/* ---- values -------------------------------------------------------------------------------- */

/* item (comma item)*, or nothing. */
static grammar_expr container(struct json_text *t, char open, char close, grammar_expr item)
{
    grammar_expr more = grammar_repeat(t->b, grammar_pair(t->b, t->comma, item), 0, GRAMMAR_NO_MAX);
    return grammar_either(t->b, json_text_empty(t, open, close),
                          json_text_brackets(t, open, close, grammar_pair(t->b, item, more)));
}

void json_text_init(struct json_text *t, struct grammar_builder *b, struct arena *arena,
                    enum json_style style)
{
    *t = (struct json_text){.b = b, .arena = arena, .style = style};
    punctuation_init(t);
    strings_init(t);
    if (style == JSON_CANONICAL)
        canonical_numbers_init(t);
    else
        relaxed_numbers_init(t);
    t->null = grammar_text(b, "null");
    t->boolean = grammar_either(b, grammar_text(b, "true"), grammar_text(b, "false"));
    t->value = grammar_rule(b);
    t->object = grammar_rule(b);
    t->array = grammar_rule(b);
    grammar_define(b, t->object, container(t, '{', '}', json_text_member(t, t->string, t->value)));
    grammar_define(b, t->array, container(t, '[', ']', t->value));
    grammar_define(b, t->value,
                   grammar_choice(b,
                                  (grammar_expr[]){t->object, t->array, t->string, t->number,
                                                   t->boolean, t->null},
                                  6));
}

static grammar_expr number_literal(struct json_text *t, const struct json *value)
{
    bool is_integer = !memchr(value->text, '.', value->text_len) &&
                      !memchr(value->text, 'e', value->text_len) &&
                      !memchr(value->text, 'E', value->text_len);
    if (t->style == JSON_RELAXED || is_integer)
        return strcmp(value->text, "-0") == 0 && t->style == JSON_CANONICAL
                   ? grammar_text(t->b, "0")
                   : grammar_literal(t->b, value->text, value->text_len);
    if (!isfinite(value->number))
        return grammar_never(t->b); /* Python reads it as infinity, which is not JSON */
    struct strbuf text = STRBUF_INIT;
    json_write_double(&text, value->number);
    grammar_expr e = GRAMMAR_NONE;
    if (text.failed)
        t->arena->failed = true;
    else
        e = grammar_literal(t->b, text.data, text.len);
    strbuf_free(&text);
    return e;
}

static grammar_expr container_literal(struct json_text *t, const struct json *value)
{
    bool is_array = value->type == JSON_ARRAY;
    char open = is_array ? '[' : '{', close = is_array ? ']' : '}';
    if (!value->first)
        return json_text_empty(t, open, close);
    grammar_expr *parts = arena_alloc_array(t->arena, 2 * value->count, sizeof *parts);
    size_t n = 0;
    if (!parts)
        return GRAMMAR_NONE;
    json_each (child, value) {
        if (n)
            parts[n++] = t->comma;
        grammar_expr item = json_text_value(t, child);
        parts[n++] = is_array ? item
                              : json_text_member(t, json_text_string(t, child->key, child->key_len),
                                                 item);
    }
    return json_text_brackets(t, open, close, grammar_sequence(t->b, parts, n));
}

grammar_expr json_text_value(struct json_text *t, const struct json *value)
{
    switch (value->type) {
    case JSON_NULL: return t->null;
    case JSON_BOOL: return grammar_text(t->b, value->boolean ? "true" : "false");
    case JSON_NUMBER: return number_literal(t, value);
    case JSON_STRING: return json_text_string(t, value->text, value->text_len);
    default: return container_literal(t, value);
    }
}

/* A single piece, for a builder that needs no others. */
static grammar_expr piece_add(struct grammar_builder *b, enum json_style style, bool is_object)
{
    struct arena arena = ARENA_INIT;
    struct json_text t;
    json_text_init(&t, b, &arena, style);
    grammar_expr e = arena.failed ? GRAMMAR_NONE : is_object ? t.object : t.value;
    arena_free(&arena);
    return e;
}

grammar_expr json_value_add(struct grammar_builder *b, enum json_style style)
{
    return piece_add(b, style, false);
}

grammar_expr json_object_add(struct grammar_builder *b, enum json_style style)
{
    return piece_add(b, style, true);
}
