/* Matches texts against JSON schemas, with the grammars that constrain answers, for comparison with
 * validators.
 *
 *   build/schema_match < PAIRS.jsonl
 *
 * A line of input is {"schema": ..., "texts": ["...", ...]}. A line of output is {"matches": [true,
 * ...], "ms": 1.5}, or {"error": "..."} if the schema is rejected; "ms" is the processor time of
 * compiling. Texts are matched byte by byte, in relaxed style; "canonical": true and "lenient":
 * true select the other style and mode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "prompt/grammar/grammar.h"
#include "prompt/schema/json_schema.h"

static void fail(const char *what)
{
    fprintf(stderr, "schema_match: %s\n", what);
    exit(1);
}

/* One token for each byte. */
static struct grammar_vocabulary *bytes_open(void)
{
    static char bytes[256];
    static struct grammar_token_info tokens[256];
    struct grammar_vocabulary *v;
    struct error err;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token_info){.bytes = &bytes[i], .len = 1};
    }
    if (grammar_vocabulary_open(&v, tokens, 256, &err))
        fail(err.message);
    return v;
}

static bool is_true(const struct json *line, const char *key)
{
    const struct json *value = json_get(line, key);
    return json_is(value, JSON_BOOL) && value->boolean;
}

static void texts_match(const struct grammar *g, struct grammar_vocabulary *v,
                        const struct json *texts, struct strbuf *out)
{
    struct grammar_matcher *m;
    struct error err;
    if (grammar_matcher_open(&m, g, v, &err))
        fail(err.message);
    json_each (text, texts) {
        if (text->type != JSON_STRING)
            fail("a text is not a string");
        grammar_matcher_reset(m);
        bool matches = grammar_matcher_accept_bytes(m, text->text, text->text_len) &&
                       grammar_matcher_may_end(m);
        strbuf_addf(out, "%s%s", text == texts->first ? "" : ", ", matches ? "true" : "false");
    }
    grammar_matcher_close(m);
}

static void line_run(const struct json *line, struct grammar_vocabulary *v, struct strbuf *out)
{
    const struct json *schema = json_get(line, "schema"), *texts = json_get(line, "texts");
    struct error err = {0};
    if (!schema || !json_is(texts, JSON_ARRAY))
        fail("a line has no schema or no texts");
    clock_t begin = clock();
    struct grammar_builder *b = grammar_builder_new();
    grammar_expr root = json_schema_add(
        b, schema, schema, is_true(line, "canonical") ? JSON_CANONICAL : JSON_RELAXED,
        is_true(line, "lenient") ? SCHEMA_LENIENT : SCHEMA_EXACT, &err);
    struct grammar *g = root == GRAMMAR_NONE ? NULL : grammar_compile(b, root, &err);
    double ms = (double)(clock() - begin) * 1000 / CLOCKS_PER_SEC;
    grammar_builder_free(b);
    if (g) {
        strbuf_adds(out, "{\"matches\": [");
        texts_match(g, v, texts, out);
        strbuf_addf(out, "], \"ms\": %.3f}\n", ms);
    } else {
        strbuf_adds(out, "{\"error\": ");
        json_write_string(out, err.message, strlen(err.message));
        strbuf_addf(out, ", \"ms\": %.3f}\n", ms);
    }
    grammar_free(g);
}

int main(void)
{
    struct grammar_vocabulary *v = bytes_open();
    char *text = NULL;
    size_t capacity = 0;
    ssize_t len;
    while ((len = getline(&text, &capacity, stdin)) > 0) {
        struct arena arena = ARENA_INIT;
        struct strbuf out = STRBUF_INIT;
        struct error err;
        const struct json *line = json_parse(&arena, text, (size_t)len, &err);
        if (!line)
            fail(err.message);
        line_run(line, v, &out);
        fwrite(out.data, 1, out.len, stdout);
        strbuf_free(&out);
        arena_free(&arena);
    }
    free(text);
    grammar_vocabulary_close(v);
    return 0;
}
