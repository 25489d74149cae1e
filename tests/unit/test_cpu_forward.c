/* What the CPU engine computes: against a forward pass in double precision written from the model's
 * definition, and against the text that llama2.c's run.c wrote for the same weights. */
#include "test.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "batch_rows.h"
#include "engine/cpu/cpu_engine.h"
#include "naive_decoder.h"
#include "random_model.h"
#include "tiny_model.h"

enum { MAX_TOKENS = 140, MAX_WIDTH = 256 };

static struct engine *open_with(const struct model *m, enum kv_type kv_type,
                                enum activation_type activations, uint32_t n_threads)
{
    struct engine *e;
    struct error err;
    struct engine_limits limits = {
        .n_pages = {600}, .max_rows = 160, .max_seqs = 4, .max_length = 512, .kv_type = kv_type};
    struct cpu_options options = {.n_threads = n_threads, .activations = activations};
    if (cpu_engine_open(&e, m, &limits, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

static struct engine *open_engine(const struct model *m, enum kv_type kv_type, uint32_t n_threads)
{
    return open_with(m, kv_type, ACTIVATIONS_Q8, n_threads);
}

/* Positions begin .. end - 1 of one sequence in pages 0, 1, ...; the logits of the last. */
static void forward(struct engine *e, const int32_t *tokens, uint32_t begin, uint32_t end,
                    float *logits)
{
    struct batch_row rows[160];
    struct page_run run = {0, end};
    struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = end};
    struct error err;
    CHECK(end - begin <= 160);
    for (uint32_t p = begin; p < end; p++)
        rows[p - begin] = token_row(tokens[p], p, p, 0, p + 1 == end ? WANTS_LOGITS : NULL);
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = end - begin};
    CHECK_INT(forward_rows(e, &batch, rows, logits, &err), 0);
}

static double relative_error(const float *got, const double *want, uint32_t n)
{
    double diff = 0, max = 0;
    for (uint32_t i = 0; i < n; i++) {
        diff = fmax(diff, fabs(got[i] - want[i]));
        max = fmax(max, fabs(want[i]));
    }
    return diff / max;
}

static const struct tiny_options shapes[] = {
    {2, 48, 4, 2, 16, 64, 100, ROPE_NORM, 16, 0, false, false, TENSOR_F32, 1},
    {2, 48, 4, 2, 16, 64, 101, ROPE_NEOX, 16, 0, true, false, TENSOR_F32, 2},
    {2, 40, 3, 1, 24, 56, 99, ROPE_NORM, 12, 0.5f, false, true, TENSOR_F32, 3},
    {1, 33, 5, 5, 10, 50, 77, ROPE_NEOX, 6, 0, true, true, TENSOR_F32, 4},
    {2, 64, 6, 2, 16, 96, 96, ROPE_NORM, 16, 0, false, false, TENSOR_Q8_0, 5},
    {2, 64, 6, 2, 32, 96, 96, ROPE_NEOX, 32, 0, false, false, TENSOR_Q4_1, 6},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void check_shapes(enum activation_type activations, double quantised_limit)
{
    static const uint32_t lengths[] = {1, 17, 128, 130};
    for (int i = 0; i < N_SHAPES; i++) {
        struct tiny_model t;
        tiny_open(&t, &shapes[i]);
        struct engine *e = open_with(&t.model, KV_F32, activations, 2);
        int32_t tokens[MAX_TOKENS];
        float got[MAX_WIDTH];
        double want[MAX_WIDTH];
        for (int p = 0; p < MAX_TOKENS; p++)
            tokens[p] = (int32_t)(hash_pair(i, p) % shapes[i].n_vocab);
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            forward(e, tokens, 0, lengths[j], got);
            naive_logits(&t.model, tokens, lengths[j], want);
            double error = relative_error(got, want, shapes[i].n_vocab);
            double limit = shapes[i].matrix == TENSOR_F32 ? 5e-6 : quantised_limit;
            if (!(error < limit))
                test_fail(__FILE__, __LINE__, "shape %d, %u tokens: error %g", i, lengths[j],
                          error);
        }
        engine_close(e);
        tiny_close(&t);
    }
}

/* 8-bit activations lose some precision; 16-bit ones and floats must not. */
TEST(cpu_forward, equals_double_precision)
{
    check_shapes(ACTIVATIONS_Q8, 0.05);
}

TEST(cpu_forward, of_16_bit_activations_equals_double_precision)
{
    check_shapes(ACTIVATIONS_Q16, 5e-4);
}

/* Everything that a model may have, in dozens of combinations; quantised ones with activations of
 * 16 bits. */
static void check_random(enum random_kind kind, enum tensor_type matrix, uint32_t n_models,
                         double limit)
{
    static const uint32_t lengths[] = {1, 48}; /* windows are of up to 45 */
    for (uint32_t i = 0; i < n_models; i++) {
        struct tiny_model t;
        random_model_open(&t, kind, matrix, i);
        struct engine *e = open_with(&t.model, KV_F32, ACTIVATIONS_Q16, 1 + i % 3);
        int32_t tokens[MAX_TOKENS];
        float got[MAX_WIDTH];
        double want[MAX_WIDTH];
        for (uint32_t p = 0; p < MAX_TOKENS; p++)
            tokens[p] = (int32_t)(hash_pair(i, p) % t.model.hparams.n_vocab);
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            forward(e, tokens, 0, lengths[j], got);
            naive_logits(&t.model, tokens, lengths[j], want);
            double error = relative_error(got, want, t.model.hparams.n_vocab);
            if (!(error < limit))
                test_fail(__FILE__, __LINE__, "model %u of kind %d, %u tokens: error %g: %s", i,
                          kind, lengths[j], error, random_model_text(&t));
        }
        engine_close(e);
        tiny_close(&t);
    }
}

TEST(cpu_forward, random_dense_models)
{
    check_random(RANDOM_DENSE, TENSOR_F32, 40, 5e-6);
}

TEST(cpu_forward, random_mixtures_of_experts)
{
    check_random(RANDOM_EXPERTS, TENSOR_F32, 40, 5e-6);
}

TEST(cpu_forward, random_latent_attention)
{
    check_random(RANDOM_LATENT, TENSOR_F32, 30, 5e-6);
}

TEST(cpu_forward, random_models_like_gemma)
{
    check_random(RANDOM_GEMMA, TENSOR_F32, 40, 5e-6);
}

TEST(cpu_forward, random_quantised_models)
{
    for (enum random_kind kind = 0; kind < RANDOM_KINDS; kind++)
        check_random(kind, TENSOR_Q8_0, 10, 1e-3);
}

/* More threads than panels, than rows, than groups of the barrier; pieces that anyone may take. */
TEST(cpu_forward, same_bits_with_any_number_of_threads)
{
    static const uint32_t counts[] = {1, 2, 5, 9, 16, 33}, lengths[] = {1, 5, 24, 25, 140};
    struct tiny_model t;
    int32_t tokens[MAX_TOKENS];
    float want[sizeof lengths / sizeof *lengths][MAX_WIDTH] = {{0}}, got[MAX_WIDTH] = {0};
    tiny_open(&t, &shapes[5]);
    for (int p = 0; p < MAX_TOKENS; p++)
        tokens[p] = (p * 29 + 7) % 96;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct engine *e = open_engine(&t.model, KV_F16, counts[c]);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            forward(e, tokens, 0, lengths[i], c == 0 ? want[i] : got);
            if (c > 0)
                CHECK(memcmp(want[i], got, 96 * sizeof *got) == 0);
        }
        engine_close(e);
    }
    tiny_close(&t);
}

TEST(cpu_forward, kv_types_differ_only_in_precision)
{
    struct tiny_model t;
    tiny_open(&t, &shapes[0]);
    int32_t tokens[130];
    float got[MAX_WIDTH];
    double want[MAX_WIDTH];
    for (int p = 0; p < 130; p++)
        tokens[p] = (p * 37 + 11) % 100;
    naive_logits(&t.model, tokens, 130, want);
    static const double limits[][2] = {
        [KV_F16] = {1e-5, 2e-3}, [KV_F32] = {0, 5e-6}, [KV_BF16] = {1e-4, 2e-2}};
    for (int type = KV_F16; type <= KV_BF16; type++) {
        struct engine *e = open_engine(&t.model, type, 2);
        CHECK_INT(e->info.groups[0].page_bytes, 2 * 2 * 2 * 16 * (type == KV_F32 ? 4 : 2));
        CHECK_INT(e->info.kv_bytes, 600 * e->info.groups[0].page_bytes);
        forward(e, tokens, 0, 130, got);
        double error = relative_error(got, want, 100);
        CHECK(error >= limits[type][0] && error < limits[type][1]);
        engine_close(e);
    }
    tiny_close(&t);
}

/* The vocabulary of a SentencePiece model in a GGUF file. */
struct vocab {
    const struct gguf_value *tokens, *scores;
};

static int32_t vocab_find(const struct vocab *v, const char *text, size_t len)
{
    for (uint64_t i = 0; i < v->tokens->count; i++)
        if (v->tokens->strings[i].len == len && memcmp(v->tokens->strings[i].bytes, text, len) == 0)
            return (int32_t)i;
    return -1;
}

/* Starts with one token for each letter and merges the best pair while there is one. */
static uint32_t vocab_encode(const struct vocab *v, const char *text, int32_t *tokens)
{
    uint32_t n = 0;
    tokens[n++] = 1;
    for (size_t i = 0; text[0] && i <= strlen(text); i++) {
        char letter = i == 0 ? ' ' : text[i - 1];
        tokens[n++] = letter == ' ' ? vocab_find(v, "\xe2\x96\x81", 3) : vocab_find(v, &letter, 1);
        CHECK(tokens[n - 1] >= 0);
    }
    for (;;) {
        double best = -INFINITY;
        uint32_t at = 0;
        int32_t merged = -1;
        for (uint32_t i = 1; i + 1 < n; i++) {
            char pair[64];
            struct byte_view a = v->tokens->strings[tokens[i]];
            struct byte_view b = v->tokens->strings[tokens[i + 1]];
            CHECK(a.len + b.len <= sizeof pair);
            memcpy(pair, a.bytes, a.len);
            memcpy(pair + a.len, b.bytes, b.len);
            int32_t id = vocab_find(v, pair, a.len + b.len);
            if (id < 0 || gguf_array_f64(v->scores, id) <= best)
                continue;
            best = gguf_array_f64(v->scores, id);
            at = i;
            merged = id;
        }
        if (merged < 0)
            return n;
        tokens[at] = merged;
        memmove(&tokens[at + 1], &tokens[at + 2], (n - at - 2) * sizeof *tokens);
        n--;
    }
}

static void vocab_decode(const struct vocab *v, int32_t token, struct strbuf *out)
{
    struct byte_view piece = v->tokens->strings[token];
    unsigned byte;
    if (piece.len == 6 && sscanf(piece.bytes, "<0x%02X>", &byte) == 1) {
        strbuf_add(out, &(char){(char)byte}, 1);
        return;
    }
    for (size_t i = 0; i < piece.len; i++) {
        bool is_space = piece.len - i >= 3 && memcmp(piece.bytes + i, "\xe2\x96\x81", 3) == 0;
        strbuf_add(out, is_space ? " " : piece.bytes + i, 1);
        i += is_space ? 2 : 0;
    }
}

static void check_greedy(struct engine *e, const struct vocab *v, const struct json *golden)
{
    int32_t tokens[600];
    float logits[512];
    struct strbuf text = STRBUF_INIT;
    const char *prompt = json_get(golden, "prompt")->text;
    uint32_t n_steps = (uint32_t)json_get(golden, "steps")->number;
    uint32_t n = vocab_encode(v, prompt, tokens), begin = 0;
    for (; n <= n_steps; begin = n++) {
        forward(e, tokens, begin, n, logits);
        tokens[n] = 0;
        for (int32_t i = 1; i < 512; i++)
            if (logits[i] > logits[tokens[n]])
                tokens[n] = i;
        if (tokens[n] == 1)
            break;
    }
    for (uint32_t i = 1; i < n; i++)
        vocab_decode(v, tokens[i], &text);
    const char *got = text.data ? text.data : "";
    CHECK_STR(got[0] == ' ' ? got + 1 : got, json_get(golden, "output")->text);
    strbuf_free(&text);
}

TEST(cpu_forward, writes_the_text_of_llama2_c)
{
    struct model m;
    struct error err;
    const char *path = test_shared_path(
        "data/models/stories260K/stories260K-f32.converted-v3.gguf");
    if (!path)
        SKIP("shared data is not here");
    if (model_open(&m, path, NULL, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    struct vocab v = {gguf_find(m.checkpoint->gguf, "tokenizer.ggml.tokens"),
                      gguf_find(m.checkpoint->gguf, "tokenizer.ggml.scores")};
    struct engine *e = open_engine(&m, KV_F32, 2);
    FILE *goldens = fopen(test_shared_path("data/models/stories260K/runc_greedy_goldens.jsonl"),
                          "r");
    CHECK(goldens != NULL);
    static char line[8192];
    int n_goldens = 0;
    while (fgets(line, sizeof line, goldens)) {
        struct arena arena = ARENA_INIT;
        struct json *golden = json_parse(&arena, line, strlen(line), &err);
        CHECK(golden != NULL);
        check_greedy(e, &v, golden);
        arena_free(&arena);
        n_goldens++;
    }
    CHECK_INT(n_goldens, 10);
    fclose(goldens);
    engine_close(e);
    model_close(&m);
}
