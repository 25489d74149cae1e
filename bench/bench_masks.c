/* The slowest masks that a request can cause.
 *
 *   build/bench_masks MODEL.gguf [TOKENS]
 *
 * Each grammar is as ambiguous as the limits allow. Its answer is a random one: before each token,
 * any of those allowed. Printed are the slowest mask and the slowest accepted token, and the
 * averages, as processor time of one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "prompt/grammar/grammar.h"
#include "prompt/grammar/text_grammar.h"
#include "prompt/schema/json_schema.h"
#include "prompt/tokenizer/tokenizer.h"

static void fail(const char *what)
{
    fprintf(stderr, "bench_masks: %s\n", what);
    exit(1);
}

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- grammars ---- */

/* Every letter starts many rules, and every rule can end anywhere. */
static void write_nested(struct strbuf *out)
{
    strbuf_adds(out, "root ::= a0*\n");
    for (int i = 0; i < 12; i++)
        strbuf_addf(out, "a%d ::= \"(\" a%d* \")\" | a%d a%d* | [a-z ]+ a%d?\n", i, (i + 1) % 13,
                    i + 1, i + 1, i + 1);
    strbuf_adds(out, "a12 ::= [a-zA-Z ]+ | \"(\" a0 \")\"\n");
}

static void write_lists(struct strbuf *out)
{
    strbuf_adds(out, "root ::= (x y)*\nx ::= w (\" \" w)* | w w* | [a-z]+ x?\n"
                     "y ::= x | x x | \" \" y | w y?\nw ::= [a-z]* [a-z ]+ w?\n");
}

static void write_wide(struct strbuf *out)
{
    strbuf_adds(out, "root ::= ((");
    for (int i = 0; i < 100; i++)
        strbuf_addf(out, "%sr%d", i ? " | " : "", i);
    strbuf_adds(out, ") \"\"?)+\n");
    for (int i = 0; i < 100; i++)
        strbuf_addf(out, "r%d ::= [a-zA-Z ,.]{1,%d} r%d? | \"<\" r%d \">\"\n", i, 20 + i,
                    (i + 1) % 100, (i * 7 + 3) % 100);
}

static void write_counted(struct strbuf *out)
{
    strbuf_adds(out, "root ::= (((([a-z ]{1,50} ){1,50}){1,50}){1,50}){1,50}\n");
}

static void write_deep(struct strbuf *out)
{
    strbuf_adds(out, "root ::= p\np ::= ([a-z ] p [a-z ] | [a-z ] p [a-z ] [a-z ] | [a-z ]+ | q)\n"
                     "q ::= [a-z ] q q | [a-z ] p q | [a-z ]\n");
}

static void write_text(struct strbuf *out)
{
    strbuf_adds(out, "root ::= s*\ns ::= t t t t t t t t\n"
                     "t ::= [^\\n]* u | u [^\\n]* | \"x\"\nu ::= [^\\n]+ t? | \"y\" s\n");
}

static const struct {
    const char *name;
    void (*write)(struct strbuf *out);
} gbnf[] = {{"nested", write_nested},   {"lists", write_lists}, {"wide", write_wide},
            {"counted", write_counted}, {"deep", write_deep},   {"text", write_text}};

static const struct {
    const char *name, *text;
} schemas[] = {
    {"object", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":"
               "\"integer\"},\"c\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}},"
               "\"required\":[\"a\",\"b\",\"c\"]}"},
    {"unique", "{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":900,\"items\":{\"type\":"
               "\"string\",\"pattern\":\"^[a-c]{1,12}$\"}}"},
    {"unique2", "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"array\",\"items\":"
                "{\"type\":\"integer\"}}}"},
    {"pattern", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^(([a-z ]{1,90}){"
                "1,90}){1,90}$\"}}"},
};

static struct grammar *compile(struct grammar_builder *b, grammar_expr root, struct error *err)
{
    struct grammar *g = root == GRAMMAR_NONE ? NULL : grammar_compile(b, root, err);
    grammar_builder_free(b);
    return g;
}

static struct grammar *make_gbnf(void (*write)(struct strbuf *), struct error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    struct strbuf text = STRBUF_INIT;
    write(&text);
    struct grammar *g = compile(b, gbnf_add(b, strbuf_str(&text), text.len, err), err);
    strbuf_free(&text);
    return g;
}

static struct grammar *make_schema(const char *text, struct error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    struct arena arena = {0};
    struct json *schema = json_parse(&arena, text, strlen(text), err);
    if (schema == NULL)
        fail(err->message);
    struct grammar *g = compile(
        b, json_schema_add(b, schema, schema, JSON_RELAXED, SCHEMA_LENIENT, err), err);
    arena_free(&arena);
    return g;
}

/* ---- running ---- */

struct vocabulary {
    struct grammar_token_info *tokens;
    uint32_t n;
    struct grammar_vocabulary *grammars;
};

static int32_t random_token(const struct vocabulary *v, const uint64_t *mask, uint64_t *seed)
{
    uint32_t begin = (uint32_t)(hash_mix(++*seed) % v->n);
    for (uint32_t k = 0; k < v->n; k++) {
        uint32_t i = (begin + k) % v->n;
        if ((mask[i / 64] >> (i % 64) & 1) && !v->tokens[i].is_end)
            return (int32_t)i;
    }
    return -1;
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void run(const char *name, struct grammar *g, const struct vocabulary *v, uint32_t n_tokens,
                const struct error *why)
{
    struct grammar_matcher *m;
    struct error err = {0};
    uint64_t seed = 7, mask_ns = 0, mask_most = 0, accept_ns = 0, accept_most = 0;
    uint32_t n = 0;
    if (g == NULL) {
        printf("  %-8s refused: %s\n", name, why->message);
        return;
    }
    if (grammar_matcher_open(&m, g, v->grammars, &err))
        fail(err.message);
    for (; n < n_tokens && mask_ns < 5e9; n++) {
        uint64_t begin = thread_ns();
        const uint64_t *mask = grammar_matcher_mask(m, 100000);
        uint64_t took = thread_ns() - begin;
        mask_ns += took;
        mask_most = max(mask_most, took);
        int32_t token = random_token(v, mask, &seed);
        if (token < 0)
            break;
        begin = thread_ns();
        if (!grammar_matcher_accept(m, token))
            fail("a token was refused");
        took = thread_ns() - begin;
        accept_ns += took;
        accept_most = max(accept_most, took);
    }
    printf("  %-8s %4u tokens   mask %8.3f ms, at most %8.3f   accept %8.3f ms, at most %8.3f\n",
           name, n, (double)mask_ns / 1e6 / (n + !n), (double)mask_most / 1e6,
           (double)accept_ns / 1e6 / (n + !n), (double)accept_most / 1e6);
    grammar_matcher_close(m);
    grammar_free(g);
}

static void open_vocabulary(struct vocabulary *v, const struct tokenizer *t)
{
    struct error err = {0};
    v->n = tokenizer_size(t);
    v->tokens = calloc(v->n, sizeof *v->tokens);
    for (uint32_t i = 0; v->tokens != NULL && i < v->n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, (int32_t)i, &len);
        v->tokens[i] = (struct grammar_token_info){
            .bytes = bytes,
            .len = (uint32_t)len,
            .is_special = tokenizer_is_special(t, (int32_t)i),
            .is_end = tokenizer_is_end(t, (int32_t)i)};
    }
    if (v->tokens == NULL || grammar_vocabulary_open(&v->grammars, v->tokens, v->n, &err))
        fail(err.message);
}

int main(int argc, char **argv)
{
    struct gguf gguf;
    struct tokenizer *t;
    struct error err = {0};
    struct vocabulary v;
    uint32_t n_tokens = argc > 2 ? (uint32_t)atoi(argv[2]) : 40;
    if (argc < 2)
        fail("usage: bench_masks MODEL.gguf [TOKENS]");
    if (gguf_open(&gguf, argv[1], &err) || tokenizer_open(&t, NULL, &gguf, &err))
        fail(err.message);
    open_vocabulary(&v, t);
    printf("%u tokens\n", v.n);
    for (size_t i = 0; i < sizeof gbnf / sizeof *gbnf; i++)
        run(gbnf[i].name, make_gbnf(gbnf[i].write, &err), &v, n_tokens, &err);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        run(schemas[i].name, make_schema(schemas[i].text, &err), &v, n_tokens, &err);
    grammar_vocabulary_close(v.grammars);
    free(v.tokens);
    tokenizer_close(t);
    gguf_close(&gguf);
    return 0;
}
