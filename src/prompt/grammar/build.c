/* Expressions of a grammar, built by front ends.
 *
 * They are numbered elements of growing arrays. Parts come before the expressions that use them
 * (except for the bodies of rules), so the compiler can visit them in order. A failure is sticky:
 * every later call returns GRAMMAR_NONE, and grammar_compile reports the reason. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/grammar/grammar_internal.h"

bool grammar_grow(void **items, size_t *capacity, size_t n, size_t extra, size_t size)
{
    if (n + extra <= *capacity)
        return true;
    size_t wanted = *capacity * 2 > 64 ? *capacity * 2 : 64;
    while (wanted < n + extra)
        wanted *= 2;
    void *grown = malloc(wanted * size);
    if (grown == NULL)
        return false;
    if (n > 0)
        memcpy(grown, *items, n * size);
    free(*items);
    *items = grown;
    *capacity = wanted;
    return true;
}

static grammar_expr fail(struct grammar_builder *b, enum error_code code, const char *message)
{
    if (b->failure.code == ERROR_NONE)
        error_set(&b->failure, code, "%s", message);
    return GRAMMAR_NONE;
}

static grammar_expr fail_size(struct grammar_builder *b)
{
    return fail(b, ERROR_LIMIT,
                "the grammar is too large: make it smaller or use rules for "
                "repeated parts");
}

static grammar_expr fail_memory(struct grammar_builder *b)
{
    return fail(b, ERROR_MEMORY, "no memory for the grammar");
}

static grammar_expr add_expr(struct grammar_builder *b, struct expr e)
{
    if (b->failure.code != ERROR_NONE)
        return GRAMMAR_NONE;
    if (b->n_exprs >= EXPR_COUNT_MAX)
        return fail_size(b);
    if (e.depth > EXPR_DEPTH_MAX)
        return fail(b, ERROR_LIMIT, "the grammar is nested too deeply: use rules for its parts");
    if (!grammar_grow((void **)&b->exprs, &b->cap_exprs, b->n_exprs, 1, sizeof *b->exprs))
        return fail_memory(b);
    b->exprs[b->n_exprs] = e;
    return (grammar_expr)b->n_exprs++;
}

static bool add_words(struct grammar_builder *b, const uint32_t *words, size_t n)
{
    if (n > EXPR_WORDS_MAX - b->n_words) {
        fail_size(b);
        return false;
    }
    if (!grammar_grow((void **)&b->words, &b->cap_words, b->n_words, n, sizeof *b->words)) {
        fail_memory(b);
        return false;
    }
    if (n > 0)
        memcpy(b->words + b->n_words, words, n * sizeof *words);
    b->n_words += n;
    return true;
}

struct grammar_builder *grammar_builder_new(void)
{
    struct grammar_builder *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    add_expr(b, (struct expr){.kind = EXPR_NONE});
    if (b->failure.code != ERROR_NONE) {
        grammar_builder_free(b);
        return NULL;
    }
    return b;
}

void grammar_builder_free(struct grammar_builder *b)
{
    if (b == NULL)
        return;
    free(b->exprs);
    free(b->words);
    free(b->bytes);
    free(b);
}

size_t grammar_builder_size(const struct grammar_builder *b)
{
    return b->n_exprs + b->n_words + b->n_bytes;
}

grammar_expr grammar_empty(struct grammar_builder *b)
{
    return add_expr(b, (struct expr){.kind = EXPR_EMPTY});
}

grammar_expr grammar_never(struct grammar_builder *b)
{
    return add_expr(b, (struct expr){.kind = EXPR_NEVER});
}

grammar_expr grammar_literal(struct grammar_builder *b, const char *bytes, size_t len)
{
    if (b->failure.code != ERROR_NONE)
        return GRAMMAR_NONE;
    if (len == 0)
        return grammar_empty(b);
    if (len > EXPR_BYTES_MAX - b->n_bytes)
        return fail_size(b);
    if (!grammar_grow((void **)&b->bytes, &b->cap_bytes, b->n_bytes, len, 1))
        return fail_memory(b);
    memcpy(b->bytes + b->n_bytes, bytes, len);
    struct expr e = {.kind = EXPR_LITERAL, .first = (uint32_t)b->n_bytes, .n = (uint32_t)len};
    b->n_bytes += len;
    return add_expr(b, e);
}

grammar_expr grammar_class(struct grammar_builder *b, const struct code_range *ranges, size_t n,
                           bool negated)
{
    struct arena arena = ARENA_INIT;
    if (b->failure.code != ERROR_NONE)
        return GRAMMAR_NONE;
    if (n > EXPR_WORDS_MAX)
        return fail_size(b);
    struct code_set set = code_set_new(&arena, ranges, n, negated);
    struct expr e = {.kind = EXPR_CLASS, .first = (uint32_t)b->n_words, .n = (uint32_t)set.n};
    if (arena.failed)
        fail_memory(b);
    for (size_t i = 0; i < set.n; i++)
        if (!add_words(b, (uint32_t[]){set.ranges[i].first, set.ranges[i].last}, 2))
            break;
    arena_free(&arena);
    return set.n ? add_expr(b, e) : grammar_never(b);
}

grammar_expr grammar_token(struct grammar_builder *b, int32_t id)
{
    assert(id >= 0);
    return add_expr(b, (struct expr){.kind = EXPR_TOKEN, .first = (uint32_t)id});
}

static grammar_expr add_list(struct grammar_builder *b, enum expr_kind kind,
                             const grammar_expr *parts, size_t n)
{
    struct expr e = {.kind = (uint8_t)kind, .first = (uint32_t)b->n_words};
    if (b->failure.code != ERROR_NONE)
        return GRAMMAR_NONE;
    if (n == 1)
        return parts[0];
    for (size_t i = 0; i < n; i++) {
        assert(parts[i] < b->n_exprs);
        if (parts[i] == GRAMMAR_NONE)
            return GRAMMAR_NONE;
        uint16_t depth = b->exprs[parts[i]].depth;
        e.depth = depth + 1 > e.depth ? (uint16_t)(depth + 1) : e.depth;
    }
    if (!add_words(b, parts, n))
        return GRAMMAR_NONE;
    e.n = (uint32_t)n;
    return add_expr(b, e);
}

grammar_expr grammar_sequence(struct grammar_builder *b, const grammar_expr *parts, size_t n)
{
    return n == 0 ? grammar_empty(b) : add_list(b, EXPR_SEQUENCE, parts, n);
}

grammar_expr grammar_choice(struct grammar_builder *b, const grammar_expr *parts, size_t n)
{
    return n == 0 ? grammar_never(b) : add_list(b, EXPR_CHOICE, parts, n);
}

grammar_expr grammar_repeat(struct grammar_builder *b, grammar_expr e, uint32_t min, uint32_t max)
{
    if (b->failure.code != ERROR_NONE || e == GRAMMAR_NONE)
        return GRAMMAR_NONE;
    assert(e < b->n_exprs);
    if (min > max)
        return grammar_never(b);
    if (max == 0)
        return grammar_empty(b);
    if (min == 1 && max == 1)
        return e;
    return add_expr(b, (struct expr){.kind = EXPR_REPEAT,
                                     .depth = (uint16_t)(b->exprs[e].depth + 1),
                                     .first = e,
                                     .min = min,
                                     .max = max});
}

grammar_expr grammar_rule(struct grammar_builder *b)
{
    return add_expr(b, (struct expr){.kind = EXPR_RULE});
}

grammar_expr grammar_distinct(struct grammar_builder *b, enum grammar_distinct part,
                              grammar_expr body)
{
    grammar_expr rule = grammar_rule(b);
    grammar_define(b, rule, body);
    if (rule != GRAMMAR_NONE)
        b->exprs[rule].n = part;
    return rule;
}

void grammar_define(struct grammar_builder *b, grammar_expr rule, grammar_expr body)
{
    if (b->failure.code != ERROR_NONE || rule == GRAMMAR_NONE || body == GRAMMAR_NONE)
        return;
    assert(rule < b->n_exprs && b->exprs[rule].kind == EXPR_RULE);
    assert(body < b->n_exprs && b->exprs[rule].first == GRAMMAR_NONE);
    b->exprs[rule].first = body;
}
