/* The models of tests/cuda: every type and kind of shape gives logits of sane size. */
#include "test.h"

#include <math.h>

#include "../cuda/shaped_model.h"
#include "engine/cpu/cpu_engine.h"
#include "schedule.h"

enum { N_TOKENS = 12, N_VOCAB = 1000 };

static void check_logits(const struct shaped_options *o)
{
    static float logits[N_TOKENS * N_VOCAB];
    struct shaped_model m;
    struct engine *e;
    struct error err;
    int32_t tokens[N_TOKENS];
    const struct engine_limits limits = {.n_pages = {N_TOKENS, o->window ? N_TOKENS : 0},
                                         .max_rows = N_TOKENS,
                                         .max_seqs = 1,
                                         .max_length = N_TOKENS};
    if (shaped_model_open(&m, o, &err) ||
        cpu_engine_open(&e, &m.model, &limits, &(struct cpu_options){.n_threads = 1}, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = i * 7;
    schedule_plain(e, tokens, N_TOKENS, logits);
    double squares = 0;
    for (uint32_t i = 0; i < N_TOKENS * N_VOCAB; i++)
        squares += (double)logits[i] * logits[i] / (N_TOKENS * N_VOCAB);
    if (!(squares > 0.2 && squares < 5))
        test_fail(__FILE__, __LINE__, "%s: logits of size %g", o->types.name, sqrt(squares));
    engine_close(e);
    shaped_model_close(&m);
}

TEST(shaped_model, logits_are_neither_large_nor_small)
{
    static const char *const types[] = {"f32",  "f16",  "bf16", "q8_0", "q6_k",  "q5_k",  "q5_0",
                                        "q5_1", "q4_k", "q4_1", "q4_0", "mxfp4", "q4_k_m"};
    struct shaped_options o;
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
        CHECK(shaped_options_named(i % 2 ? "tiny" : "tiny-moe", &o));
        CHECK(shaped_types_named(types[i], &o.types));
        check_logits(&o);
    }
    o.window = 5;
    o.has_biases = o.has_sinks = o.norms_qk = true;
    o.shares_layers = false;
    check_logits(&o);
    o.is_gemma = true;
    check_logits(&o);
}

TEST(shaped_model, says_what_it_does_not_know)
{
    struct shaped_options o = {0};
    struct shaped_model m;
    struct error err;
    CHECK(!shaped_options_named("llama9b", &o));
    CHECK(!shaped_types_named("q9_k", &o.types));
    CHECK(shaped_options_named("tiny", &o) && shaped_types_named("q4_k", &o.types));
    o.n_embd = 96;
    CHECK(shaped_model_open(&m, &o, &err) == -1);
    CHECK_STR(err.message, "Q4_K has no rows of 96 values");
}
