/* Grammars from text for the tests of the front ends, over a vocabulary of the 256 bytes. */
#include "grammar_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "prompt/grammar/text_grammar.h"
#include "prompt/schema/json_schema.h"
#include "test.h"

enum { TOKEN_END = 256, N_TOKENS = 257, SAMPLE_MAX = 1 << 14 };

struct grammar_texts {
    struct grammar *grammar;
    struct grammar_vocabulary *vocabulary;
    struct grammar_matcher *matcher;
    char sample[SAMPLE_MAX];
};

static struct grammar *compile(enum texts_kind kind, const char *source, size_t len,
                               struct error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    struct arena arena = ARENA_INIT;
    grammar_expr root = GRAMMAR_NONE;
    CHECK(b);
    *err = (struct error){0};
    if (kind == TEXTS_GBNF) {
        root = gbnf_add(b, source, len, err);
    } else if (kind == TEXTS_REGEX) {
        root = regex_add(b, source, len, err);
    } else {
        struct json *schema = json_parse(&arena, source, len, err);
        if (!schema)
            test_fail(__FILE__, __LINE__, "%s in %s", err->message, source);
        root = json_schema_add(b, schema, schema,
                               kind == TEXTS_SCHEMA ? JSON_RELAXED : JSON_CANONICAL,
                               kind == TEXTS_LENIENT ? SCHEMA_LENIENT : SCHEMA_EXACT, err);
    }
    arena_free(&arena);
    if (root == GRAMMAR_NONE)
        CHECK(err->code != ERROR_NONE && err->message[0]);
    struct grammar *g = root == GRAMMAR_NONE ? NULL : grammar_compile(b, root, err);
    grammar_builder_free(b);
    return g;
}

static struct grammar_vocabulary *bytes_open(void)
{
    static char bytes[256];
    struct grammar_token_info tokens[N_TOKENS];
    struct grammar_vocabulary *v;
    struct error err;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token_info){&bytes[i], 1, false, false};
    }
    tokens[TOKEN_END] = (struct grammar_token_info){"", 0, true, true};
    CHECK(grammar_vocabulary_open(&v, tokens, N_TOKENS, &err) == 0);
    return v;
}

struct grammar_texts *texts_open(enum texts_kind kind, const char *source)
{
    struct grammar_texts *t = calloc(1, sizeof *t);
    struct error err;
    CHECK(t);
    t->grammar = compile(kind, source, strlen(source), &err);
    if (!t->grammar)
        test_fail(__FILE__, __LINE__, "%s in %s", err.message, source);
    t->vocabulary = bytes_open();
    CHECK(grammar_matcher_open(&t->matcher, t->grammar, t->vocabulary, &err) == 0);
    return t;
}

void texts_close(struct grammar_texts *t)
{
    grammar_matcher_close(t->matcher);
    grammar_vocabulary_close(t->vocabulary);
    grammar_free(t->grammar);
    free(t);
}

bool texts_take(struct grammar_texts *t, const char *text)
{
    grammar_matcher_reset(t->matcher);
    return grammar_matcher_accept_bytes(t->matcher, text, strlen(text)) &&
           grammar_matcher_may_end(t->matcher);
}

const char *texts_sample(struct grammar_texts *t, unsigned seed)
{
    uint32_t n_left = 200 + (uint32_t)hash_mix(seed) % 200;
    size_t len = 0;
    grammar_matcher_reset(t->matcher);
    for (; n_left > 0 && len + 1 < SAMPLE_MAX; n_left--) {
        const uint64_t *mask = grammar_matcher_mask(t->matcher, n_left);
        int allowed[N_TOKENS], n = 0;
        for (int i = 0; i < N_TOKENS; i++)
            if (mask[i / 64] >> (i % 64) & 1)
                allowed[n++] = i;
        CHECK(n > 0);
        int token = allowed[hash_pair(seed, len) % (uint64_t)n];
        CHECK(grammar_matcher_accept(t->matcher, token));
        if (token == TOKEN_END)
            break;
        t->sample[len++] = (char)token;
    }
    CHECK(grammar_matcher_may_end(t->matcher));
    t->sample[len] = '\0';
    return t->sample;
}

struct error texts_error(enum texts_kind kind, const char *source, size_t len)
{
    struct error err;
    struct grammar *g = compile(kind, source, len, &err);
    if (g)
        test_fail(__FILE__, __LINE__, "this should be no grammar: %s", source);
    return err;
}

void texts_check(const char *file, int line, enum texts_kind kind, const char *source,
                 const char *const *taken, const char *const *refused)
{
    struct grammar_texts *t = texts_open(kind, source);
    for (; *taken; taken++)
        if (!texts_take(t, *taken))
            test_fail(file, line, "%s does not take %s", source, *taken);
    for (; *refused; refused++)
        if (texts_take(t, *refused))
            test_fail(file, line, "%s takes %s", source, *refused);
    texts_close(t);
}
