/* Parses regular expressions by recursive descent, to a bounded depth. The result describes whole
 * texts: anchors are resolved at the end (regex_anchor.c), so callers never see them. Lazy
 * quantifiers are read like greedy ones: they change what a search prefers, not which texts match.
 * Classes are ECMAScript's, as in JSON Schema: \d and \w are ASCII. */
#include "prompt/grammar/regex_internal.h"

#include <string.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "prompt/unicode/unicode_tables.h"

enum {
    DEPTH_MAX = 100,
    TEXT_MAX_BYTES = 64 << 10,
    COUNT_MAX = 1000000, /* of a quantifier */
    RANGES_MAX = 4096,   /* of one class */
};

/* The ranges of a class being read. */
struct range_list {
    size_t n;
    struct code_range ranges[RANGES_MAX];
};

struct reader {
    struct arena *arena;
    const char *text, *at, *end;
    unsigned depth;
    struct error *err;
    struct range_list list; /* classes do not nest */
};

static struct regex *choice_read(struct reader *r);

static void *fail_at(struct reader *r, const char *at, const char *what)
{
    size_t position = (size_t)(at - r->text);
    error_set_at(r->err, ERROR_INPUT, position, "regular expression: %s at byte %zu", what,
                 position);
    return NULL;
}

static void *fail(struct reader *r, const char *what)
{
    return fail_at(r, r->at, what);
}

static struct regex *node_new(struct reader *r, enum regex_kind kind)
{
    struct regex *e = regex_new(r->arena, kind);
    if (e)
        e->position = (size_t)(r->at - r->text);
    else
        error_set(r->err, ERROR_MEMORY, "no memory for a regular expression");
    return e;
}

static struct regex *set_node(struct reader *r, const struct code_range *ranges, size_t n,
                              bool negated)
{
    struct regex *e = node_new(r, REGEX_SET);
    if (!e)
        return NULL;
    e->set = code_set_new(r->arena, ranges, n, negated);
    if (e->set.n == 0)
        e->kind = REGEX_NEVER;
    return e;
}

static bool is_at(const struct reader *r, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(r->end - r->at) >= len && memcmp(r->at, word, len) == 0;
}

static bool take(struct reader *r, const char *word)
{
    if (!is_at(r, word))
        return false;
    r->at += strlen(word);
    return true;
}

static bool hex_read(struct reader *r, int n_digits, uint32_t *code)
{
    *code = 0;
    if (r->end - r->at < n_digits)
        return fail(r, "the escape needs more hexadecimal digits"), false;
    for (int i = 0; i < n_digits; i++, r->at++) {
        int digit = ascii_hex_value(*r->at);
        if (digit < 0)
            return fail(r, "not a hexadecimal digit"), false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

/* After \u: {1F600}, four digits, or two times four that form a surrogate pair. */
static bool unicode_escape_read(struct reader *r, uint32_t *code)
{
    if (take(r, "{")) {
        *code = 0;
        const char *from = r->at;
        for (int digit; r->at < r->end && (digit = ascii_hex_value(*r->at)) >= 0; r->at++)
            if ((*code = *code << 4 | (uint32_t)digit) > CODE_MAX)
                return fail(r, "there is no such code point"), false;
        if (r->at == from || !take(r, "}"))
            return fail(r, "expected hexadecimal digits and '}'"), false;
        return true;
    }
    if (!hex_read(r, 4, code))
        return false;
    uint32_t low;
    if (*code >= 0xd800 && *code < 0xdc00 && take(r, "\\u")) {
        if (!hex_read(r, 4, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, "half of a surrogate pair"), false;
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    }
    return true;
}

/* An escape for one character, with `at` after the backslash. */
static bool character_escape_read(struct reader *r, uint32_t *code)
{
    static const char names[] = "nrtfv0a", values[] = "\n\r\t\f\v\0\a";
    char c = *r->at;
    const char *found = c ? memchr(names, c, sizeof names - 1) : NULL;
    if (c == '0' && r->at + 1 < r->end && ascii_is_digit(r->at[1]))
        return fail(r, "octal escapes are not supported"), false;
    if (found) {
        r->at++;
        *code = (unsigned char)values[found - names];
        return true;
    }
    if (c == 'x') {
        r->at++;
        return hex_read(r, 2, code);
    }
    if (c == 'u') {
        r->at++;
        return unicode_escape_read(r, code);
    }
    if (c == 'U') {
        r->at++;
        return hex_read(r, 8, code);
    }
    if (c == 'c' && r->at + 1 < r->end && ascii_is_alpha(r->at[1])) {
        *code = (unsigned char)r->at[1] & 31u;
        r->at += 2;
        return true;
    }
    if (ascii_is_digit(c) || c == 'k')
        return fail(r, "back references are not supported"), false;
    if (ascii_is_alpha(c))
        return fail(r, "unknown or unsupported escape"), false;
    size_t width = utf8_valid_prefix(r->at, (size_t)(r->end - r->at));
    if (!width)
        return fail(r, "the text is not valid UTF-8"), false;
    *code = utf8_decode(r->at, width);
    r->at += width;
    return true;
}

static bool ranges_add(struct reader *r, struct range_list *list, const struct code_range *more,
                       size_t n)
{
    if (n > RANGES_MAX - list->n) {
        error_set(r->err, ERROR_LIMIT, "regular expression: a class has more than %d ranges",
                  RANGES_MAX);
        return false;
    }
    if (n)
        memcpy(list->ranges + list->n, more, n * sizeof *more);
    list->n += n;
    return true;
}

/* \p{L} and \P{L}, with `at` on the letter. */
static bool property_read(struct reader *r, struct range_list *list)
{
    const char *from = r->at;
    bool negated = *r->at++ == 'P';
    char name[32] = "";
    size_t len = 0;
    if (!take(r, "{"))
        return fail_at(r, from, "\\p needs a name in braces"), false;
    while (r->at < r->end && *r->at != '}' && len + 1 < sizeof name)
        name[len++] = *r->at++;
    if (!take(r, "}"))
        return fail_at(r, from, "\\p needs a name in braces"), false;
    bool is_letter = !strcmp(name, "L") || !strcmp(name, "Letter");
    struct code_set set = is_letter ? letter_set : number_set;
    if (!is_letter && strcmp(name, "N") != 0 && strcmp(name, "Number") != 0)
        return fail_at(r, from, "this \\p{...} is not supported (only L, N and their long names)"),
               false;
    if (negated)
        set = code_set_new(r->arena, set.ranges, set.n, true);
    return ranges_add(r, list, set.ranges, set.n);
}

/* A class escape (\d \w \s and their opposites, \p) at `at`, after the backslash, into `list`.
 * Returns 1, 0 if it is not one, or -1. */
static int class_escape_read(struct reader *r, struct range_list *list)
{
    static const struct code_range digits[] = {{'0', '9'}};
    static const struct code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct code_range spaces[] = {
        {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff},
    };
    const struct code_range *ranges;
    size_t n;
    switch (*r->at) {
    case 'd':
    case 'D': ranges = digits, n = 1; break;
    case 'w':
    case 'W': ranges = words, n = 4; break;
    case 's':
    case 'S':
        ranges = spaces;
        n = sizeof spaces / sizeof *spaces;
        break;
    case 'p':
    case 'P': return property_read(r, list) ? 1 : -1;
    default: return 0;
    }
    bool negated = *r->at++ < 'a';
    struct code_set set = code_set_new(r->arena, ranges, n, negated);
    return ranges_add(r, list, set.ranges, set.n) ? 1 : -1;
}

/* Reads one end of a range, or one character, of a class. Returns 0 for a character, 1 for a class
 * escape, which is added to `list`, or -1. */
static int class_atom_read(struct reader *r, struct range_list *list, uint32_t *code)
{
    if (take(r, "\\")) {
        if (r->at == r->end)
            return fail(r, "a backslash at the end"), -1;
        if (take(r, "b")) {
            *code = '\b';
            return 0;
        }
        int found = class_escape_read(r, list);
        if (found)
            return found;
        return character_escape_read(r, code) ? 0 : -1;
    }
    size_t width = utf8_valid_prefix(r->at, (size_t)(r->end - r->at));
    if (!width)
        return fail(r, "the text is not valid UTF-8"), -1;
    *code = utf8_decode(r->at, width);
    r->at += width;
    return 0;
}

/* The items of a class up to its closing bracket. */
static bool class_items_read(struct reader *r, struct range_list *list)
{
    while (r->at < r->end && *r->at != ']') {
        if (is_at(r, "[:"))
            return fail(r, "POSIX classes ([:alpha:]) are not supported"), false;
        struct code_range range;
        const char *from = r->at;
        int kind = class_atom_read(r, list, &range.first);
        if (kind < 0)
            return false;
        if (kind > 0)
            continue; /* a hyphen after \d is a hyphen */
        range.last = range.first;
        if (r->end - r->at >= 2 && *r->at == '-' && r->at[1] != ']') {
            r->at++;
            kind = class_atom_read(r, list, &range.last);
            if (kind < 0)
                return false;
            if (kind > 0) { /* [a-\d] is a, the hyphen and the digits */
                range.last = range.first;
                if (!ranges_add(r, list, &(struct code_range){'-', '-'}, 1))
                    return false;
            }
            if (range.last < range.first)
                return fail_at(r, from, "a range of a class is the wrong way round"), false;
        }
        if (!ranges_add(r, list, &range, 1))
            return false;
    }
    return true;
}

/* A class, with `at` after its opening bracket. */
static struct regex *class_read(struct reader *r)
{
    const char *from = r->at - 1;
    struct range_list *list = &r->list;
    list->n = 0;
    bool negated = take(r, "^");
    if (!class_items_read(r, list))
        return NULL;
    if (!take(r, "]"))
        return fail_at(r, from, "this class has no closing ']'");
    return set_node(r, list->ranges, list->n, negated);
}

/* A group, with `at` after its opening parenthesis. */
static struct regex *group_read(struct reader *r)
{
    const char *from = r->at - 1;
    if (is_at(r, "?=") || is_at(r, "?!") || is_at(r, "?<=") || is_at(r, "?<!"))
        return fail_at(r, from, "look-around is not supported");
    if (is_at(r, "?>"))
        return fail_at(r, from, "atomic groups are not supported");
    if (is_at(r, "?P=") || is_at(r, "?("))
        return fail_at(r, from, "back references are not supported");
    if (take(r, "?P<") || take(r, "?<")) {
        while (r->at < r->end && *r->at != '>')
            r->at++;
        if (!take(r, ">"))
            return fail_at(r, from, "the name of this group has no '>'");
    } else if (!take(r, "?:") && is_at(r, "?")) {
        return fail_at(r, from, "inline flags are not supported");
    }
    if (++r->depth > DEPTH_MAX) {
        error_set_at(r->err, ERROR_LIMIT, (size_t)(from - r->text),
                     "regular expression: groups are nested more than %d deep", DEPTH_MAX);
        return NULL;
    }
    struct regex *e = choice_read(r);
    r->depth--;
    if (e && !take(r, ")"))
        return fail_at(r, from, "this group has no closing ')'");
    return e;
}

/* An escape outside classes, with `at` after the backslash. */
static struct regex *escape_read(struct reader *r)
{
    if (r->at == r->end)
        return fail(r, "a backslash at the end");
    if (*r->at == 'b' || *r->at == 'B')
        return fail(r, "word boundaries (\\b, \\B) are not supported");
    if (*r->at == 'G' || *r->at == 'K' || *r->at == 'R' || *r->at == 'X')
        return fail(r, "this escape is not supported");
    if (*r->at == 'A' || *r->at == 'Z' || *r->at == 'z')
        return node_new(r, *r->at++ == 'A' ? REGEX_BEGIN : REGEX_END);
    struct range_list *list = &r->list;
    list->n = 0;
    int found = class_escape_read(r, list);
    if (found < 0)
        return NULL;
    if (found)
        return set_node(r, list->ranges, list->n, false);
    struct code_range one;
    if (!character_escape_read(r, &one.first))
        return NULL;
    one.last = one.first;
    return set_node(r, &one, 1, false);
}

static struct regex *atom_read(struct reader *r)
{
    static const struct code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    switch (*r->at) {
    case '(': r->at++; return group_read(r);
    case '[': r->at++; return class_read(r);
    case '\\': r->at++; return escape_read(r);
    case '.': r->at++; return set_node(r, line_ends, 3, true);
    case '^': r->at++; return node_new(r, REGEX_BEGIN);
    case '$': r->at++; return node_new(r, REGEX_END);
    case '*':
    case '+':
    case '?': return fail(r, "a quantifier has nothing before it to repeat");
    default: break;
    }
    size_t width = utf8_valid_prefix(r->at, (size_t)(r->end - r->at));
    if (!width)
        return fail(r, "the text is not valid UTF-8");
    uint32_t code = utf8_decode(r->at, width);
    r->at += width;
    return set_node(r, &(struct code_range){code, code}, 1, false);
}

static bool count_read(struct reader *r, uint32_t *count)
{
    *count = 0;
    for (; r->at < r->end && ascii_is_digit(*r->at); r->at++)
        if ((*count = *count * 10 + (uint32_t)(*r->at - '0')) > COUNT_MAX) {
            error_set_at(r->err, ERROR_LIMIT, (size_t)(r->at - r->text),
                         "regular expression: a quantifier is over %d", COUNT_MAX);
            return false;
        }
    return true;
}

/* True if {m}, {m,} or {m,n} ({,n} in Python) is at `at`. Any other brace is a character. */
static bool braces_are_count(const struct reader *r)
{
    const char *at = r->at + 1;
    size_t n_digits = 0;
    for (; at < r->end && ascii_is_digit(*at); at++)
        n_digits++;
    if (at < r->end && *at == ',')
        for (at++; at < r->end && ascii_is_digit(*at); at++)
            n_digits++;
    return n_digits && at < r->end && *at == '}';
}

/* Reads a quantifier at `at`. 1: read, 0: none, -1: error. */
static int quantifier_read(struct reader *r, uint32_t *min, uint32_t *max)
{
    if (r->at == r->end)
        return 0;
    const char *from = r->at;
    *min = 0, *max = REGEX_NO_MAX;
    if (take(r, "+")) {
        *min = 1;
    } else if (take(r, "?")) {
        *max = 1;
    } else if (*r->at == '{' && braces_are_count(r)) {
        r->at++;
        if (!count_read(r, min))
            return -1;
        *max = *min;
        if (take(r, ",")) {
            *max = REGEX_NO_MAX;
            if (*r->at != '}' && !count_read(r, max))
                return -1;
        }
        r->at++;
        if (*max < *min)
            return fail_at(r, from, "a quantifier's numbers are the wrong way round"), -1;
    } else if (!take(r, "*")) {
        return 0;
    }
    if (take(r, "?"))
        return 1; /* lazy: the same texts */
    if (r->at < r->end && *r->at == '+')
        return fail_at(r, from, "possessive quantifiers are not supported"), -1;
    if (r->at < r->end &&
        (*r->at == '*' || *r->at == '?' || (*r->at == '{' && braces_are_count(r))))
        return fail(r, "a quantifier cannot follow another"), -1;
    return 1;
}

static struct regex *sequence_read(struct reader *r)
{
    struct regex *sequence = node_new(r, REGEX_SEQUENCE);
    if (!sequence)
        return NULL;
    struct regex **link = &sequence->first;
    while (r->at < r->end && *r->at != '|' && *r->at != ')') {
        const char *from = r->at;
        struct regex *e = atom_read(r);
        if (!e)
            return NULL;
        uint32_t min, max;
        int quantified = quantifier_read(r, &min, &max);
        if (quantified < 0)
            return NULL;
        if (quantified && e->has_anchor)
            return fail_at(r, from, "an anchor (^ or $) that is repeated is not supported");
        if (quantified) {
            struct regex *repeat = node_new(r, REGEX_REPEAT);
            if (!repeat)
                return NULL;
            repeat->min = min;
            repeat->max = max;
            repeat->first = e;
            e = repeat;
        }
        sequence->has_anchor |= e->has_anchor;
        *link = e;
        link = &e->next;
    }
    if (!sequence->first)
        sequence->kind = REGEX_EMPTY;
    return sequence;
}

static struct regex *choice_read(struct reader *r)
{
    struct regex *e = sequence_read(r);
    if (!e || r->at == r->end || *r->at != '|')
        return e;
    struct regex *choice = node_new(r, REGEX_CHOICE);
    if (!choice)
        return NULL;
    choice->first = e;
    choice->has_anchor = e->has_anchor;
    while (take(r, "|")) {
        e->next = sequence_read(r);
        e = e->next;
        if (!e)
            return NULL;
        choice->has_anchor |= e->has_anchor;
    }
    return choice;
}

struct regex *regex_read(struct arena *arena, const char *text, size_t len, enum regex_mode mode,
                         struct error *err)
{
    struct reader r;
    r.arena = arena;
    r.text = r.at = text;
    r.end = text + len;
    r.depth = 0;
    r.err = err;
    if (len > TEXT_MAX_BYTES) {
        error_set(err, ERROR_LIMIT, "a regular expression is over %d bytes", TEXT_MAX_BYTES);
        return NULL;
    }
    struct regex *e = choice_read(&r);
    if (e && r.at < r.end)
        return fail(&r, "unmatched ')'");
    if (e)
        e = regex_resolve_anchors(arena, e, mode, err);
    if (e && arena->failed) {
        error_set(err, ERROR_MEMORY, "no memory for a regular expression");
        return NULL;
    }
    return e;
}
