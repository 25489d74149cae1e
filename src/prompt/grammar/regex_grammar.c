/* Turns regular expressions and lists of choices into grammars. This only converts one tree into
 * another; the grammar's compiler makes the automaton, over bytes. */
#include "prompt/grammar/text_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "prompt/grammar/regex.h"

/* The letters of JSON's short escapes. */
static const char escaped[] = "\"\\\b\f\n\r\t", escape_names[] = "\"\\bfnrt";

/* The characters of `set` that a JSON string must escape, or GRAMMAR_NONE if there are none. */
static grammar_expr escapes_to_grammar(struct grammar_builder *b, struct code_set set)
{
    struct code_range names[sizeof escaped], low[2][16];
    size_t n_names = 0, n_low[2] = {0, 0};
    for (uint32_t c = 0; c <= 0x5c; c++) {
        if (!code_set_contains(set, c))
            continue;
        const char *found = c ? strchr(escaped, (int)c) : NULL;
        if (found) {
            uint32_t name = (unsigned char)escape_names[found - escaped];
            names[n_names++] = (struct code_range){name, name};
        } else if (c < 0x20) {
            uint32_t digit = (unsigned char)"0123456789abcdef"[c & 15];
            low[c >> 4][n_low[c >> 4]++] = (struct code_range){digit, digit};
        }
    }
    grammar_expr parts[3];
    size_t n = 0;
    if (n_names)
        parts[n++] = grammar_class(b, names, n_names, false);
    for (size_t high = 0; high < 2; high++)
        if (n_low[high])
            parts[n++] = grammar_sequence(
                b,
                (grammar_expr[]){grammar_literal(b, high ? "u001" : "u000", 4),
                                 grammar_class(b, low[high], n_low[high], false)},
                2);
    if (!n)
        return GRAMMAR_NONE;
    return grammar_sequence(
        b, (grammar_expr[]){grammar_literal(b, "\\", 1), grammar_choice(b, parts, n)}, 2);
}

grammar_expr code_set_to_grammar(struct grammar_builder *b, struct arena *arena,
                                 struct code_set set, enum text_spelling spelling)
{
    static const struct code_range special[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    if (spelling == TEXT_PLAIN)
        return grammar_class(b, set.ranges, set.n, false);
    struct code_set others = code_set_new(arena, special, 3, true);
    struct code_set plain = code_set_intersect(arena, set, others);
    grammar_expr parts[2];
    size_t n = 0;
    if (plain.n)
        parts[n++] = grammar_class(b, plain.ranges, plain.n, false);
    grammar_expr escapes = spelling == TEXT_JSON ? escapes_to_grammar(b, set) : GRAMMAR_NONE;
    if (escapes != GRAMMAR_NONE)
        parts[n++] = escapes;
    return n ? grammar_choice(b, parts, n) : grammar_never(b);
}

/* A run of single characters becomes one literal. Returns the part after it. */
static const struct regex *literal_take(struct grammar_builder *b, const struct regex *part,
                                        grammar_expr *out)
{
    char bytes[64];
    size_t len = 0;
    for (; part && part->kind == REGEX_SET && code_set_is_one(part->set); part = part->next) {
        if (len + 4 > sizeof bytes)
            break;
        len += utf8_encode(part->set.ranges[0].first, bytes + len);
    }
    *out = grammar_literal(b, bytes, len);
    return part;
}

static grammar_expr parts_to_grammar(struct grammar_builder *b, struct arena *arena,
                                     const struct regex *e, enum text_spelling spelling)
{
    size_t n = 0, capacity = 0;
    for (const struct regex *part = e->first; part; part = part->next)
        capacity++;
    grammar_expr *parts = malloc((capacity + 1) * sizeof *parts);
    if (!parts) {
        arena->failed = true;
        return GRAMMAR_NONE;
    }
    bool literals = spelling == TEXT_PLAIN && e->kind == REGEX_SEQUENCE;
    for (const struct regex *part = e->first; part;) {
        if (literals && part->kind == REGEX_SET && code_set_is_one(part->set)) {
            part = literal_take(b, part, &parts[n++]);
            continue;
        }
        parts[n++] = regex_to_grammar(b, arena, part, spelling);
        part = part->next;
    }
    grammar_expr out = e->kind == REGEX_SEQUENCE ? grammar_sequence(b, parts, n)
                                                 : grammar_choice(b, parts, n);
    free(parts);
    return out;
}

grammar_expr regex_to_grammar(struct grammar_builder *b, struct arena *arena, const struct regex *e,
                              enum text_spelling spelling)
{
    switch (e->kind) {
    case REGEX_EMPTY: return grammar_empty(b);
    case REGEX_SET: return code_set_to_grammar(b, arena, e->set, spelling);
    case REGEX_SEQUENCE:
    case REGEX_CHOICE: return parts_to_grammar(b, arena, e, spelling);
    case REGEX_REPEAT:
        return grammar_repeat(b, regex_to_grammar(b, arena, e->first, spelling), e->min, e->max);
    default: return grammar_never(b);
    }
}

grammar_expr regex_add(struct grammar_builder *b, const char *text, size_t len, struct error *err)
{
    struct arena arena = ARENA_INIT;
    arena.limit_bytes = 64u << 20;
    grammar_expr out = GRAMMAR_NONE;
    struct regex *e = regex_read(&arena, text, len, REGEX_WHOLE, err);
    if (e) {
        out = regex_to_grammar(b, &arena, e, TEXT_PLAIN);
        if (out == GRAMMAR_NONE || arena.failed) {
            out = GRAMMAR_NONE;
            error_set(err, ERROR_LIMIT, "a regular expression is too large");
        }
    }
    arena_free(&arena);
    return out;
}

grammar_expr choices_add(struct grammar_builder *b, const char *const *texts, const size_t *lens,
                         size_t n, struct error *err)
{
    if (n == 0) {
        error_set(err, ERROR_INPUT, "a list of choices is empty: give at least one text");
        return GRAMMAR_NONE;
    }
    grammar_expr *parts = malloc(n * sizeof *parts);
    if (!parts) {
        error_set(err, ERROR_MEMORY, "no memory for a grammar");
        return GRAMMAR_NONE;
    }
    for (size_t i = 0; i < n; i++)
        parts[i] = lens[i] ? grammar_literal(b, texts[i], lens[i]) : grammar_empty(b);
    grammar_expr out = grammar_choice(b, parts, n);
    free(parts);
    if (out == GRAMMAR_NONE)
        error_set(err, ERROR_LIMIT, "a list of choices is too large for a grammar");
    return out;
}
