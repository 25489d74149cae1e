/* The cost of constraining an answer to a grammar.
 *
 *   build/bench_grammar [MODEL.gguf]
 *
 * The grammar, built by hand, is an object with 30 properties (strings, strings of at most 40
 * characters, numbers, enumerations, arrays of at most 100 numbers, any JSON value). Documents are
 * split into the longest tokens, and each token is masked and accepted, as in an answer:
 *   cold   by a vocabulary that was just opened
 *   other  a second grammar (its keys are different) with that vocabulary
 *   warm   the first document once more, by a new matcher
 *   again  another document of the first grammar
 * There are two vocabularies: the model's own, and one of 151,936 tokens made from it by appending
 * short tokens, as merges do. Times are processor time of one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/strbuf.h"
#include "prompt/grammar/grammar.h"
#include "prompt/tokenizer/tokenizer.h"

enum { N_PROPERTIES = 30, N_LARGE = 151936, MAX_STRING = 40, MAX_ITEMS = 100, ROUNDS = 5 };

static void fail(const char *what)
{
    fprintf(stderr, "bench_grammar: %s\n", what);
    exit(1);
}

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- the grammar ---- */

struct json_rules {
    grammar_expr character, string, number, value;
};

static grammar_expr text(struct grammar_builder *b, const char *s)
{
    return grammar_literal(b, s, strlen(s));
}

#define SEQUENCE(b, ...)                                                                           \
    grammar_sequence(b, (grammar_expr[]){__VA_ARGS__},                                             \
                     sizeof((grammar_expr[]){__VA_ARGS__}) / sizeof(grammar_expr))
#define CHOICE(b, ...)                                                                             \
    grammar_choice(b, (grammar_expr[]){__VA_ARGS__},                                               \
                   sizeof((grammar_expr[]){__VA_ARGS__}) / sizeof(grammar_expr))

static grammar_expr any_of(struct grammar_builder *b, const char *chars)
{
    struct code_range ranges[64];
    size_t n = strlen(chars);
    for (size_t i = 0; i < n; i++)
        ranges[i] = (struct code_range){(uint8_t)chars[i], (uint8_t)chars[i]};
    return grammar_class(b, ranges, n, false);
}

static grammar_expr list_of(struct grammar_builder *b, grammar_expr item, const char *open,
                            const char *close, uint32_t max)
{
    grammar_expr more = grammar_repeat(b, SEQUENCE(b, text(b, ", "), item), 0, max);
    return SEQUENCE(b, text(b, open), grammar_repeat(b, SEQUENCE(b, item, more), 0, 1),
                    text(b, close));
}

static void add_rules(struct grammar_builder *b, struct json_rules *r)
{
    const struct code_range plain[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    const struct code_range digits[] = {{'0', '9'}}, leading[] = {{'1', '9'}};
    grammar_expr hex = any_of(b, "0123456789abcdefABCDEF"),
                 digit = grammar_class(b, digits, 1, false);
    grammar_expr many = grammar_repeat(b, digit, 1, GRAMMAR_NO_MAX);
    grammar_expr escape = SEQUENCE(b, text(b, "\\"),
                                   CHOICE(b, any_of(b, "\"\\/bfnrt"),
                                          SEQUENCE(b, text(b, "u"), grammar_repeat(b, hex, 4, 4))));
    r->character = CHOICE(b, grammar_class(b, plain, 3, true), escape);
    r->string = grammar_rule(b);
    grammar_define(b, r->string,
                   SEQUENCE(b, text(b, "\""), grammar_repeat(b, r->character, 0, GRAMMAR_NO_MAX),
                            text(b, "\"")));
    r->number = grammar_rule(b);
    grammar_expr whole = CHOICE(b, text(b, "0"),
                                SEQUENCE(b, grammar_class(b, leading, 1, false),
                                         grammar_repeat(b, digit, 0, GRAMMAR_NO_MAX)));
    grammar_define(b, r->number,
                   SEQUENCE(b, grammar_repeat(b, text(b, "-"), 0, 1), whole,
                            grammar_repeat(b, SEQUENCE(b, text(b, "."), many), 0, 1),
                            grammar_repeat(b,
                                           SEQUENCE(b, any_of(b, "eE"),
                                                    grammar_repeat(b, any_of(b, "+-"), 0, 1), many),
                                           0, 1)));
    r->value = grammar_rule(b);
    grammar_expr member = SEQUENCE(b, r->string, text(b, ": "), r->value);
    grammar_define(b, r->value,
                   CHOICE(b, r->string, r->number, text(b, "true"), text(b, "false"),
                          text(b, "null"), list_of(b, r->value, "[", "]", GRAMMAR_NO_MAX),
                          list_of(b, member, "{", "}", GRAMMAR_NO_MAX)));
}

/* The kinds of properties, in turn. */
enum { FREE, SHORT, NUMBER, NAMES, NUMBERS, ANY, KINDS };

static grammar_expr property(struct grammar_builder *b, const struct json_rules *r, int kind)
{
    switch (kind) {
    case SHORT:
        return SEQUENCE(b, text(b, "\""), grammar_repeat(b, r->character, 0, MAX_STRING),
                        text(b, "\""));
    case NUMBER: return r->number;
    case NAMES:
        return CHOICE(b, text(b, "\"red\""), text(b, "\"green\""), text(b, "\"blue\""),
                      text(b, "\"very dark grey\""));
    case NUMBERS: return list_of(b, r->number, "[", "]", MAX_ITEMS);
    case ANY: return r->value;
    default: return r->string;
    }
}

static struct grammar *make_grammar(const char *prefix, uint64_t *compile_ns)
{
    struct grammar_builder *b = grammar_builder_new();
    struct json_rules r;
    struct error err = {0};
    grammar_expr parts[2 * N_PROPERTIES + 1];
    uint64_t begin = thread_ns();
    add_rules(b, &r);
    for (int i = 0; i < N_PROPERTIES; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s\"%s_%d\": ", i == 0 ? "{" : ", ", prefix, i);
        parts[2 * i] = text(b, key);
        parts[2 * i + 1] = property(b, &r, i % KINDS);
    }
    parts[2 * N_PROPERTIES] = text(b, "}");
    struct grammar *g = grammar_compile(b, grammar_sequence(b, parts, 2 * N_PROPERTIES + 1), &err);
    *compile_ns = thread_ns() - begin;
    grammar_builder_free(b);
    if (g == NULL)
        fail(err.message);
    return g;
}

/* ---- documents ---- */

static void add_words(struct strbuf *out, uint64_t *seed, size_t len)
{
    static const char *const words[] = {"the ", "quick ", "answer, ", "of ",  "\\n", "caf\xc3\xa9 ",
                                        "12 ",  "\\\"",   "Berlin ",  "and ", "x: ", "(see) "};
    size_t end = out->len + len;
    while (out->len + 10 < end)
        strbuf_adds(out, words[hash_mix(++*seed) % (sizeof words / sizeof *words)]);
}

static void add_property(struct strbuf *out, uint64_t *seed, int kind)
{
    switch (kind) {
    case NUMBER: strbuf_addf(out, "-%u.5e7", (unsigned)(hash_mix(++*seed) % 100000)); return;
    case NAMES: strbuf_adds(out, "\"very dark grey\""); return;
    case NUMBERS:
        for (int i = 0; i < 12; i++)
            strbuf_addf(out, "%s%u", i == 0 ? "[" : ", ", (unsigned)(hash_mix(++*seed) % 1000));
        strbuf_adds(out, "]");
        return;
    case ANY:
        strbuf_adds(out, "{\"list\": [true, null, \"");
        add_words(out, seed, 40);
        strbuf_adds(out, "\"], \"n\": {\"m\": 1}}");
        return;
    default:
        strbuf_adds(out, "\"");
        add_words(out, seed, kind == SHORT ? 30 : 120);
        strbuf_adds(out, "\"");
    }
}

static void make_document(struct strbuf *out, const char *prefix, uint64_t seed)
{
    strbuf_clear(out);
    for (int i = 0; i < N_PROPERTIES; i++) {
        strbuf_addf(out, "%s\"%s_%d\": ", i == 0 ? "{" : ", ", prefix, i);
        add_property(out, &seed, i % KINDS);
    }
    strbuf_adds(out, "}");
}

/* ---- vocabularies ---- */

struct vocabulary {
    struct grammar_token_info *tokens;
    uint32_t n;
    struct strbuf bytes;
};

/* A normal token of at most `most` bytes. */
static const struct grammar_token_info *random_token(const struct vocabulary *v, uint32_t n,
                                                     uint64_t *seed, uint32_t most)
{
    for (;;) {
        const struct grammar_token_info *t = &v->tokens[hash_mix(++*seed) % n];
        if (!t->is_special && t->len > 0 && t->len <= most)
            return t;
    }
}

static struct vocabulary make_vocabulary(const struct tokenizer *t, uint32_t n)
{
    struct vocabulary v = {.n = n, .tokens = calloc(n, sizeof *v.tokens)};
    uint32_t own = tokenizer_size(t);
    uint64_t seed = 1;
    if (v.tokens == NULL || !strbuf_reserve(&v.bytes, (size_t)n * 64))
        fail("no memory");
    for (uint32_t i = 0; i < n; i++) {
        size_t begin = v.bytes.len, len;
        if (i < own) {
            const char *bytes = tokenizer_bytes(t, (int32_t)i, &len);
            strbuf_add(&v.bytes, bytes, len > 30 ? 30 : len);
        } else {
            const struct grammar_token_info *a = random_token(&v, i, &seed, 12);
            const struct grammar_token_info *b = random_token(&v, own, &seed, 3);
            strbuf_add(&v.bytes, a->bytes, a->len);
            strbuf_add(&v.bytes, b->bytes, b->len);
        }
        v.tokens[i] = (struct grammar_token_info){
            .bytes = v.bytes.data + begin,
            .len = (uint32_t)(v.bytes.len - begin),
            .is_special = i < own && tokenizer_is_special(t, (int32_t)i),
            .is_end = i < own && tokenizer_is_end(t, (int32_t)i)};
    }
    return v;
}

/* The longest token in the mask that is a prefix of the text. */
static int32_t longest_token(const struct vocabulary *v, const uint64_t *mask, const char *at,
                             size_t len)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct grammar_token_info *t = &v->tokens[i];
        if (!t->is_special && !t->is_end && t->len > 0 && t->len <= len &&
            (best < 0 || t->len > v->tokens[best].len) && memcmp(t->bytes, at, t->len) == 0)
            best = (int32_t)i;
    }
    if (best >= 0 && !(mask[best / 64] >> (best % 64) & 1))
        fail("a token of the document is not allowed");
    return best;
}

/* ---- running ---- */

struct times {
    uint64_t total, worst, accept;
    uint32_t n;
};

static void run(const struct grammar *g, const struct vocabulary *v, struct grammar_vocabulary *gv,
                const struct strbuf *document, struct times *t)
{
    struct grammar_matcher *m;
    struct error err = {0};
    *t = (struct times){0};
    if (grammar_matcher_open(&m, g, gv, &err) != 0)
        fail(err.message);
    for (size_t at = 0; at < document->len; t->n++) {
        uint64_t begin = thread_ns();
        const uint64_t *mask = grammar_matcher_mask(m, 100000);
        uint64_t took = thread_ns() - begin;
        t->total += took;
        t->worst = took > t->worst ? took : t->worst;
        int32_t token = longest_token(v, mask, document->data + at, document->len - at);
        begin = thread_ns();
        if (token < 0 || !grammar_matcher_accept(m, token))
            fail("a token was refused");
        t->accept += thread_ns() - begin;
        at += v->tokens[token].len;
    }
    if (!grammar_matcher_must_end(m))
        fail("the document is complete, but the matcher does not know");
    grammar_matcher_close(m);
}

static void keep_best(struct times *best, const struct times *t)
{
    if (best->n == 0 || t->total < best->total)
        *best = *t;
}

static void print(const char *name, const struct times *t)
{
    printf("  %-6s %5u tokens   mask %8.2f us on average, %8.1f at worst   accept %6.2f us\n", name,
           t->n, (double)t->total / t->n / 1e3, (double)t->worst / 1e3,
           (double)t->accept / t->n / 1e3);
}

static void bench(const struct vocabulary *v)
{
    struct times cold = {0}, other = {0}, warm = {0}, again = {0};
    struct strbuf document = STRBUF_INIT;
    struct error err = {0};
    uint64_t compile_ns, open_ns = UINT64_MAX, best_compile = UINT64_MAX, other_ns;
    size_t bytes = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct grammar *g = make_grammar("property", &compile_ns);
        struct grammar *g2 = make_grammar("another", &other_ns);
        struct grammar_vocabulary *gv;
        struct times t;
        uint64_t begin = thread_ns();
        if (grammar_vocabulary_open(&gv, v->tokens, v->n, &err) != 0)
            fail(err.message);
        begin = thread_ns() - begin;
        open_ns = begin < open_ns ? begin : open_ns;
        best_compile = compile_ns < best_compile ? compile_ns : best_compile;
        bytes = grammar_bytes(g);
        make_document(&document, "property", 1);
        run(g, v, gv, &document, &t);
        keep_best(&cold, &t);
        make_document(&document, "another", 2);
        run(g2, v, gv, &document, &t);
        keep_best(&other, &t);
        make_document(&document, "property", 1);
        run(g, v, gv, &document, &t);
        keep_best(&warm, &t);
        make_document(&document, "property", 3);
        run(g, v, gv, &document, &t);
        keep_best(&again, &t);
        grammar_vocabulary_close(gv);
        grammar_free(g);
        grammar_free(g2);
    }
    printf("%u tokens: opened in %.1f ms; grammar compiled in %.2f ms, %zu KiB\n", v->n,
           (double)open_ns / 1e6, (double)best_compile / 1e6, bytes / 1024);
    print("cold", &cold);
    print("other", &other);
    print("warm", &warm);
    print("again", &again);
    strbuf_free(&document);
}

static const char *default_model(void)
{
    static char path[4096];
    const char *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/.cache/radish/SmolLM2-135M-Instruct.Q4_1.gguf",
             home ? home : "");
    return path;
}

int main(int argc, char **argv)
{
    const char *model = argc > 1 ? argv[1] : default_model();
    struct gguf gguf;
    struct tokenizer *t;
    struct error err = {0};
    if (argc < 2 && access(model, R_OK) != 0) {
        printf("there is no model at %s; name one\n", model);
        return 0;
    }
    if (gguf_open(&gguf, model, &err) != 0 || tokenizer_open(&t, NULL, &gguf, &err) != 0)
        fail(err.message);
    const uint32_t sizes[] = {tokenizer_size(t), N_LARGE};
    for (int i = 0; i < 2; i++) {
        struct vocabulary v = make_vocabulary(t, sizes[i]);
        bench(&v);
        strbuf_free(&v.bytes);
        free(v.tokens);
    }
    tokenizer_close(t);
    gguf_close(&gguf);
    return 0;
}
