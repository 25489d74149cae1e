/* The law of the same bits on a device: random schedules (schedule.h), engines with other limits,
 * and an engine opened again. */
#include "device.h"
#include "test.h"

#include <stdlib.h>

#include "base/hash.h"
#include "schedule.h"

enum { N_SCHEDULES = 300, N_TOKENS = 160, N_SHARED = 70 };

struct bits {
    struct shaped_model model;
    struct engine *engine;
    struct schedule_world world;
    int32_t tokens[SCHEDULE_PROMPTS][N_TOKENS];
    float *plain[SCHEDULE_PROMPTS];
};

static void bits_open(struct bits *b, const char *shape, const char *type, enum kv_type kv)
{
    device_shape_open(&b->model, shape, type);
    struct engine_limits limits = device_limits(&b->model.model, kv);
    struct error err;
    if (engine_source_supports(&device_source, &b->model.model, &limits, &err)) {
        shaped_model_close(&b->model);
        SKIP(err.message);
    }
    b->engine = device_engine(&b->model.model, &limits);
    CHECK(b->engine->info.bit_exact);
    uint32_t n_vocab = b->engine->info.n_vocab;
    b->world = (struct schedule_world){.n_tokens = N_TOKENS,
                                       .n_vocab = n_vocab,
                                       .n_shared = N_SHARED,
                                       .n_pages = DEVICE_PAGES,
                                       .max_seqs = DEVICE_MAX_SEQS,
                                       .max_rows = DEVICE_MAX_ROWS};
    for (uint32_t i = 0; i < SCHEDULE_PROMPTS; i++) {
        device_tokens(b->tokens[i], N_TOKENS, n_vocab, i);
        device_tokens(b->tokens[i], N_SHARED, n_vocab, 0);
        b->plain[i] = malloc(sizeof(float) * N_TOKENS * n_vocab);
        CHECK(b->plain[i] != NULL);
        schedule_plain(b->engine, b->tokens[i], N_TOKENS, b->plain[i]);
        b->world.prompts[i] = (struct schedule_prompt){b->tokens[i], b->plain[i]};
    }
}

static void bits_close(struct bits *b)
{
    engine_close(b->engine);
    shaped_model_close(&b->model);
    for (uint32_t i = 0; i < SCHEDULE_PROMPTS; i++)
        free(b->plain[i]);
}

/* Of an engine for fewer rows, sequences and pages. */
static void check_other_limits(const struct bits *b, enum kv_type kv)
{
    struct engine_limits limits = device_limits(&b->model.model, kv);
    limits.max_rows = 37;
    limits.max_seqs = 3;
    limits.n_pages[0] = N_TOKENS;
    limits.n_pages[1] = limits.n_pages[1] ? N_TOKENS : 0;
    struct engine *e = device_engine(&b->model.model, &limits);
    size_t n = (size_t)N_TOKENS * b->world.n_vocab;
    float *logits = malloc(n * sizeof *logits);
    CHECK(logits != NULL);
    for (uint32_t i = 0; i < 2; i++) { /* the second time its pages are not new */
        schedule_plain(e, b->tokens[1], N_TOKENS, logits);
        CHECK(memcmp(logits, b->plain[1], n * sizeof *logits) == 0);
    }
    free(logits);
    engine_close(e);
}

static void check_bits(const char *shape, const char *type, enum kv_type kv)
{
    static const uint32_t chunks[] = {20, 64, DEVICE_MAX_ROWS, 3};
    static struct bits b;
    struct schedule_counts counts = {0};
    bits_open(&b, shape, type, kv);
    for (uint32_t i = 0; i < N_SCHEDULES; i++) {
        b.world.max_chunk = chunks[i / 2 % 4];
        b.world.max_rows = i % 5 ? DEVICE_MAX_ROWS : 64;
        schedule_run(&b.world, b.engine, hash_pair(77, i), i % 2, &counts);
    }
    check_other_limits(&b, kv);
    printf("%-30s %d schedules, %u rows: the same bits\n", test_name(), N_SCHEDULES,
           counts.compared);
    fflush(stdout);
    bits_close(&b);
}

TEST(bits, f32)
{
    check_bits("heads64", "f32", KV_F32);
}

TEST(bits, bf16_window)
{
    check_bits("window128", "bf16", KV_F16);
}

TEST(bits, f16)
{
    check_bits("heads96", "f16", KV_BF16);
}

TEST(bits, q4_k)
{
    check_bits("heads96", "q4_k_m", KV_F16);
}

TEST(bits, q4_k_window)
{
    check_bits("window128", "q4_k", KV_F16);
}

TEST(bits, q8_0_gemma)
{
    check_bits("gemma256", "q8_0", KV_F16);
}

TEST(bits, q4_k_experts)
{
    check_bits("experts", "q4_k", KV_F16);
}

TEST(bits, mxfp4_oss)
{
    check_bits("oss", "mxfp4", KV_F16);
}
