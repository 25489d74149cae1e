/* The cost of constraining answers to JSON schemas, for each schema.
 *
 *   build/bench_schemas PAIRS.jsonl VOCABULARY.gguf...
 *
 * A line of PAIRS is {"schema": ..., "text": "an answer that matches it"}, as bench/schemas.py
 * writes them. With each file's vocabulary, every text is tokenised, and each token is masked and
 * accepted, as in an answer: first cold, then once more warm. Times are processor time of one
 * thread. Without arguments it prints a note and measures nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"
#include "prompt/grammar/grammar.h"
#include "prompt/schema/json_schema.h"
#include "prompt/token_table.h"
#include "prompt/tokenizer/tokenizer.h"

enum { MAX_PAIRS_BYTES = 256 << 20 };

struct times {
    double sum_us, worst_us;
    size_t n, n_over_2_ms;
};

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void times_add(struct times *t, uint64_t begin_ns)
{
    double us = (double)(thread_ns() - begin_ns) * 1e-3;
    t->sum_us += us;
    t->n++;
    t->worst_us = us > t->worst_us ? us : t->worst_us;
    t->n_over_2_ms += us > 2000;
}

static void times_print(const char *name, const struct times *t)
{
    printf("  %-8s %8zu  %9.2f us on average  %10.1f at worst  %zu over 2 ms\n", name, t->n,
           t->n ? t->sum_us / (double)t->n : 0, t->worst_us, t->n_over_2_ms);
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_schemas: %s\n", what);
    exit(1);
}

static struct grammar *schema_compile(const struct json *schema, struct times *times)
{
    struct error err;
    uint64_t begin_ns = thread_ns();
    struct grammar_builder *b = grammar_builder_new();
    grammar_expr root = json_schema_add(b, schema, schema, JSON_RELAXED, SCHEMA_EXACT, &err);
    struct grammar *g = root == GRAMMAR_NONE ? NULL : grammar_compile(b, root, &err);
    grammar_builder_free(b);
    if (!g)
        fail(err.message);
    times_add(times, begin_ns);
    return g;
}

/* One answer; false if one of its tokens is not allowed. */
static bool text_run(const struct grammar *g, struct grammar_vocabulary *v,
                     const struct token_list *tokens, struct times *masks, struct times *accepts)
{
    struct grammar_matcher *m;
    struct error err;
    bool is_fine = true;
    if (grammar_matcher_open(&m, g, v, &err))
        fail(err.message);
    for (size_t i = 0; i < tokens->len && is_fine; i++) {
        int32_t id = tokens->ids[i];
        uint64_t begin_ns = thread_ns();
        const uint64_t *mask = grammar_matcher_mask(m, UINT32_MAX);
        times_add(masks, begin_ns);
        is_fine = mask[id / 64] >> (id % 64) & 1;
        begin_ns = thread_ns();
        is_fine = is_fine && grammar_matcher_accept(m, id);
        times_add(accepts, begin_ns);
    }
    is_fine = is_fine && grammar_matcher_may_end(m);
    grammar_matcher_close(m);
    return is_fine;
}

static void pair_run(const struct json *pair, const struct tokenizer *t,
                     struct grammar_vocabulary *v, struct times *times, size_t *n_wrong)
{
    struct token_list tokens = {0};
    struct error err;
    const struct json *text = json_get(pair, "text"), *schema = json_get(pair, "schema");
    if (!json_is(text, JSON_STRING) || !schema)
        fail("a line has no schema or no text");
    if (tokenizer_encode(t, text->text, text->text_len, TOKENIZE_CONTINUES, &tokens, &err))
        fail(err.message);
    struct grammar *g = schema_compile(schema, &times[0]);
    bool is_fine = text_run(g, v, &tokens, &times[1], &times[3]) &&
                   text_run(g, v, &tokens, &times[2], &times[3]);
    *n_wrong += !is_fine;
    grammar_free(g);
    token_list_free(&tokens);
}

static void vocabulary_run(const struct strbuf *pairs, const char *path)
{
    static const char *const names[] = {"compiled", "cold", "warm", "accepted"};
    struct times times[4] = {0};
    struct gguf gguf;
    struct tokenizer *t;
    struct error err;
    size_t n_wrong = 0;
    struct grammar_vocabulary *v;
    if (gguf_open(&gguf, path, &err) || tokenizer_open(&t, NULL, &gguf, &err) ||
        token_vocabulary_open(&v, t, &err))
        fail(err.message);
    const char *line = strbuf_str(pairs), *end = line + pairs->len;
    while (line < end) {
        struct arena arena = ARENA_INIT;
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)((next ? next : end) - line);
        const struct json *pair = json_parse(&arena, line, len, &err);
        if (!pair)
            fail(err.message);
        pair_run(pair, t, v, times, &n_wrong);
        arena_free(&arena);
        line += len + 1;
    }
    printf("%s: %u tokens; answers that do not fit: %zu\n", path, tokenizer_size(t), n_wrong);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        times_print(names[i], &times[i]);
    grammar_vocabulary_close(v);
    tokenizer_close(t);
    gguf_close(&gguf);
}

int main(int argc, char **argv)
{
    struct strbuf pairs = STRBUF_INIT;
    struct error err;
    if (argc < 3) {
        printf("usage: bench_schemas PAIRS.jsonl VOCABULARY.gguf... (bench/schemas.py writes "
               "PAIRS)\n");
        return 0;
    }
    if (file_read(argv[1], MAX_PAIRS_BYTES, &pairs, &err))
        fail(err.message);
    for (int i = 2; i < argc; i++)
        vocabulary_run(&pairs, argv[i]);
    strbuf_free(&pairs);
    return 0;
}
