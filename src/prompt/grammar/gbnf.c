/* llama.cpp's GBNF as a grammar: recursive descent over the text, one grammar rule for each name.
 * Outside parentheses a line end closes the rule, except after '::=' and '|'. */
#include "prompt/grammar/text_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/ascii.h"
#include "base/hash.h"
#include "base/utf8.h"

enum {
    DEPTH_MAX = 100, /* of parentheses */
    TEXT_MAX_BYTES = 1 << 20,
    COUNT_MAX = 1000000, /* of a repetition */
};

/* A named rule, in a table by name (open addressing) and in order of appearance. */
struct gbnf_rule {
    const char *name;
    size_t len;
    const char *used_at; /* where it appeared first */
    grammar_expr rule;
    bool is_defined;
    struct gbnf_rule *next;
};

/* Expressions of a sequence or a choice being read. */
struct expr_list {
    grammar_expr *items;
    size_t n, capacity;
};

struct reader {
    struct grammar_builder *b;
    struct arena arena;
    const char *text, *at, *end;
    unsigned depth;
    struct gbnf_rule **table; /* n_slots is a power of two */
    size_t n_slots, n_rules;
    struct gbnf_rule *first, **last;
    struct error *err;
};

static bool choice_read(struct reader *r, bool nested, grammar_expr *out);

static bool fail_at(struct reader *r, const char *at, const char *what)
{
    size_t line = 1, position = (size_t)(at - r->text);
    for (const char *c = r->text; c < at; c++)
        line += *c == '\n';
    error_set_at(r->err, ERROR_INPUT, position, "grammar: %s, line %zu (byte %zu)", what, line,
                 position);
    return false;
}

static bool fail(struct reader *r, const char *what)
{
    return fail_at(r, r->at, what);
}

static bool fail_memory(struct reader *r)
{
    error_set(r->err, ERROR_MEMORY, "no memory for a grammar");
    return false;
}

/* ---- lists and names ----------------------------------------------------------------------- */

static bool list_add(struct reader *r, struct expr_list *list, grammar_expr e)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 8;
        grammar_expr *items = realloc(list->items, capacity * sizeof *items);
        if (!items)
            return fail_memory(r);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = e;
    return true;
}

static bool table_grow(struct reader *r)
{
    size_t n_slots = r->n_slots ? r->n_slots * 2 : 64;
    struct gbnf_rule **table = arena_alloc_array(&r->arena, n_slots, sizeof *table);
    if (!table)
        return fail_memory(r);
    for (struct gbnf_rule *rule = r->first; rule; rule = rule->next) {
        size_t slot = hash_bytes(rule->name, rule->len) & (n_slots - 1);
        while (table[slot])
            slot = (slot + 1) & (n_slots - 1);
        table[slot] = rule;
    }
    r->table = table;
    r->n_slots = n_slots;
    return true;
}

/* The rule with that name, created if new; NULL: out of memory. */
static struct gbnf_rule *rule_get(struct reader *r, const char *name, size_t len)
{
    if (2 * r->n_rules >= r->n_slots && !table_grow(r))
        return NULL;
    size_t slot = hash_bytes(name, len) & (r->n_slots - 1);
    for (; r->table[slot]; slot = (slot + 1) & (r->n_slots - 1))
        if (r->table[slot]->len == len && memcmp(r->table[slot]->name, name, len) == 0)
            return r->table[slot];
    struct gbnf_rule *rule = arena_alloc(&r->arena, sizeof *rule);
    if (!rule)
        return fail_memory(r), NULL;
    *rule = (struct gbnf_rule){name, len, name, grammar_rule(r->b), false, NULL};
    r->table[slot] = rule;
    *r->last = rule;
    r->last = &rule->next;
    r->n_rules++;
    return rule;
}

/* ---- characters ---------------------------------------------------------------------------- */

static void space_skip(struct reader *r, bool lines)
{
    while (r->at < r->end) {
        char c = *r->at;
        if (c == '#') {
            while (r->at < r->end && *r->at != '\n' && *r->at != '\r')
                r->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            r->at++;
        } else {
            return;
        }
    }
}

static bool is_name_char(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) || c == '-' || c == '_';
}

static size_t name_length(const struct reader *r)
{
    const char *at = r->at;
    while (at < r->end && is_name_char(*at))
        at++;
    return (size_t)(at - r->at);
}

static bool hex_read(struct reader *r, int n_digits, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < n_digits; i++, r->at++) {
        int digit = r->at < r->end ? ascii_hex_value(*r->at) : -1;
        if (digit < 0)
            return fail(r, "the escape needs more hexadecimal digits");
        *code = *code << 4 | (uint32_t)digit;
    }
    if (*code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
        return fail(r, "the escape is not a code point");
    return true;
}

/* One character of a string or a class. */
static bool character_read(struct reader *r, uint32_t *code)
{
    if (*r->at != '\\') {
        size_t width = utf8_valid_prefix(r->at, (size_t)(r->end - r->at));
        if (!width)
            return fail(r, "the text is not valid UTF-8");
        *code = utf8_decode(r->at, width);
        r->at += width;
        return true;
    }
    r->at++;
    if (r->at == r->end)
        return fail(r, "a backslash at the end");
    switch (*r->at++) {
    case 'x': return hex_read(r, 2, code);
    case 'u': return hex_read(r, 4, code);
    case 'U': return hex_read(r, 8, code);
    case 't': *code = '\t'; return true;
    case 'r': *code = '\r'; return true;
    case 'n': *code = '\n'; return true;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
    case '/': *code = (unsigned char)r->at[-1]; return true;
    default:
        r->at -= 2;
        return fail(r, "unknown escape (known: \\n \\t \\r \\\\ \\\" \\[ \\] \\xNN \\uNNNN "
                       "\\UNNNNNNNN)");
    }
}

/* ---- expressions --------------------------------------------------------------------------- */

/* A string, with `at` on its opening quote. */
static bool string_read(struct reader *r, grammar_expr *out)
{
    const char *from = r->at++;
    char *bytes = arena_alloc(&r->arena, 64);
    size_t len = 0, capacity = 64;
    while (bytes && r->at < r->end && *r->at != '"') {
        uint32_t code;
        if (!character_read(r, &code))
            return false;
        if (len + 4 > capacity) {
            char *more = arena_alloc(&r->arena, capacity * 2);
            if (more)
                memcpy(more, bytes, len);
            bytes = more;
            capacity *= 2;
        }
        if (bytes)
            len += utf8_encode(code, bytes + len);
    }
    if (!bytes)
        return fail_memory(r);
    if (r->at == r->end)
        return fail_at(r, from, "this string has no closing quote");
    r->at++;
    *out = len ? grammar_literal(r->b, bytes, len) : grammar_empty(r->b);
    return true;
}

/* A class, with `at` on its opening bracket. */
static bool class_read(struct reader *r, grammar_expr *out)
{
    const char *from = r->at++;
    size_t n = 0, capacity = 16;
    struct code_range *ranges = arena_alloc_array(&r->arena, capacity, sizeof *ranges);
    bool negated = r->at < r->end && *r->at == '^';
    r->at += negated;
    while (ranges && r->at < r->end && *r->at != ']') {
        const char *range_at = r->at;
        struct code_range range;
        if (!character_read(r, &range.first))
            return false;
        range.last = range.first;
        if (r->end - r->at >= 2 && *r->at == '-' && r->at[1] != ']') {
            r->at++;
            if (!character_read(r, &range.last))
                return false;
            if (range.last < range.first)
                return fail_at(r, range_at, "a range of a class is the wrong way round");
        }
        if (n == capacity) {
            struct code_range *more = arena_alloc_array(&r->arena, capacity * 2, sizeof *ranges);
            if (more)
                memcpy(more, ranges, n * sizeof *ranges);
            ranges = more;
            capacity *= 2;
        }
        if (ranges)
            ranges[n++] = range;
    }
    if (!ranges)
        return fail_memory(r);
    if (r->at == r->end)
        return fail_at(r, from, "this class has no closing ']'");
    r->at++;
    *out = n || negated ? grammar_class(r->b, ranges, n, negated) : grammar_never(r->b);
    return true;
}

static bool group_read(struct reader *r, grammar_expr *out)
{
    const char *from = r->at++;
    if (++r->depth > DEPTH_MAX) {
        error_set_at(r->err, ERROR_LIMIT, (size_t)(from - r->text),
                     "grammar: parentheses are nested more than %d deep", DEPTH_MAX);
        return false;
    }
    space_skip(r, true);
    if (!choice_read(r, true, out))
        return false;
    r->depth--;
    if (r->at == r->end || *r->at != ')')
        return fail_at(r, from, "this group has no closing ')'");
    r->at++;
    return true;
}

/* Reads one item without its repetition. 1: read, 0: none, -1: error. */
static int item_read(struct reader *r, grammar_expr *out)
{
    if (r->at == r->end)
        return 0;
    size_t name_len = name_length(r);
    if (name_len) {
        struct gbnf_rule *rule = rule_get(r, r->at, name_len);
        if (!rule)
            return -1;
        r->at += name_len;
        *out = rule->rule;
        return 1;
    }
    switch (*r->at) {
    case '"': return string_read(r, out) ? 1 : -1;
    case '[': return class_read(r, out) ? 1 : -1;
    case '(': return group_read(r, out) ? 1 : -1;
    case '.':
        r->at++;
        *out = grammar_class(r->b, NULL, 0, true);
        return 1;
    case '<':
    case '!':
        return fail(r, "references to tokens (<token>, <[id]>, !<token>) are not supported"), -1;
    default: return 0;
    }
}

static bool count_read(struct reader *r, uint32_t *count)
{
    const char *from = r->at;
    *count = 0;
    for (; r->at < r->end && ascii_is_digit(*r->at); r->at++) {
        *count = *count * 10 + (uint32_t)(*r->at - '0');
        if (*count > COUNT_MAX) {
            error_set_at(r->err, ERROR_LIMIT, (size_t)(from - r->text),
                         "grammar: a repetition is over %d", COUNT_MAX);
            return false;
        }
    }
    return r->at > from || fail(r, "expected a number");
}

/* {m}, {m,} or {m,n}, with `at` on the brace. */
static bool braces_read(struct reader *r, bool nested, uint32_t *min, uint32_t *max)
{
    const char *from = r->at++;
    space_skip(r, nested);
    if (!count_read(r, min))
        return false;
    space_skip(r, nested);
    *max = *min;
    if (r->at < r->end && *r->at == ',') {
        r->at++;
        space_skip(r, nested);
        *max = GRAMMAR_NO_MAX;
        if (r->at < r->end && ascii_is_digit(*r->at) && !count_read(r, max))
            return false;
        space_skip(r, nested);
    }
    if (r->at == r->end || *r->at != '}')
        return fail(r, "expected '}'");
    r->at++;
    return *min <= *max ||
           fail_at(r, from, "the numbers of this repetition are the wrong way round");
}

static bool repetition_read(struct reader *r, bool nested, grammar_expr *item)
{
    for (;;) {
        uint32_t min = 0, max = GRAMMAR_NO_MAX;
        if (r->at == r->end)
            return true;
        if (*r->at == '{') {
            if (!braces_read(r, nested, &min, &max))
                return false;
        } else if (*r->at == '*' || *r->at == '+' || *r->at == '?') {
            min = *r->at == '+';
            max = *r->at == '?' ? 1 : GRAMMAR_NO_MAX;
            r->at++;
        } else {
            return true;
        }
        *item = grammar_repeat(r->b, *item, min, max);
        space_skip(r, nested);
    }
}

static bool sequence_read(struct reader *r, bool nested, grammar_expr *out)
{
    struct expr_list list = {0};
    bool ok = true;
    for (;;) {
        grammar_expr item;
        int found = item_read(r, &item);
        if (found <= 0) {
            ok = found == 0;
            break;
        }
        space_skip(r, nested);
        if (!repetition_read(r, nested, &item) || !list_add(r, &list, item)) {
            ok = false;
            break;
        }
    }
    if (ok && r->at < r->end && strchr("*+?{", *r->at))
        ok = fail(r, "a repetition has nothing before it to repeat");
    if (ok)
        *out = list.n ? grammar_sequence(r->b, list.items, list.n) : grammar_empty(r->b);
    free(list.items);
    return ok;
}

static bool choice_read(struct reader *r, bool nested, grammar_expr *out)
{
    struct expr_list list = {0};
    grammar_expr part;
    bool ok = sequence_read(r, nested, &part) && list_add(r, &list, part);
    while (ok && r->at < r->end && *r->at == '|') {
        r->at++;
        space_skip(r, true);
        ok = sequence_read(r, nested, &part) && list_add(r, &list, part);
    }
    if (ok)
        *out = list.n == 1 ? part : grammar_choice(r->b, list.items, list.n);
    free(list.items);
    return ok;
}

static bool rule_read(struct reader *r)
{
    const char *name = r->at;
    size_t len = name_length(r);
    if (!len)
        return fail(r, "expected the name of a rule (letters, digits and hyphens)");
    r->at += len;
    space_skip(r, false);
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3) != 0)
        return fail(r, "expected '::='");
    r->at += 3;
    space_skip(r, true);
    struct gbnf_rule *rule = rule_get(r, name, len);
    if (!rule)
        return false;
    if (rule->is_defined)
        return fail_at(r, name, "this rule was defined before");
    grammar_expr body;
    if (!choice_read(r, false, &body))
        return false;
    if (r->at < r->end && *r->at != '\n' && *r->at != '\r')
        return fail(r, *r->at == ')' ? "unmatched ')'"
                                     : "expected the end of the line, '|' or an item");
    rule->is_defined = true;
    grammar_define(r->b, rule->rule, body);
    space_skip(r, true);
    return true;
}

static bool rules_read(struct reader *r)
{
    space_skip(r, true);
    while (r->at < r->end)
        if (!rule_read(r))
            return false;
    for (const struct gbnf_rule *rule = r->first; rule; rule = rule->next) {
        if (rule->is_defined)
            continue;
        char what[128];
        snprintf(what, sizeof what, "the rule '%.*s' is not defined",
                 (int)(rule->len < 64 ? rule->len : 64), rule->name);
        return fail_at(r, rule->used_at, what);
    }
    return true;
}

grammar_expr gbnf_add(struct grammar_builder *b, const char *text, size_t len, struct error *err)
{
    struct reader r = {.b = b, .text = text, .at = text, .end = text + len, .err = err};
    r.last = &r.first;
    r.arena.limit_bytes = 256u << 20;
    if (len > TEXT_MAX_BYTES) {
        error_set(err, ERROR_LIMIT, "a grammar is over %d bytes", TEXT_MAX_BYTES);
        return GRAMMAR_NONE;
    }
    grammar_expr root = GRAMMAR_NONE;
    if (rules_read(&r)) {
        struct gbnf_rule *rule = rule_get(&r, "root", 4);
        if (rule && !rule->is_defined)
            error_set_at(err, ERROR_INPUT, 0, "grammar: there is no rule 'root' to begin at");
        else if (rule && (root = rule->rule) == GRAMMAR_NONE)
            error_set(err, ERROR_LIMIT, "a grammar is too large");
    }
    arena_free(&r.arena);
    return root;
}
