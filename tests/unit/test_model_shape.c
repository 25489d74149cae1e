/* From config.json to hyper-parameters without any weights: frequencies of rope against those of
 * transformers (tests/unit/data/rope_goldens.json, made by tools/make_rope_goldens.py), and
 * configurations that are wrong in one thing, each of which must give one line that says which. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "model/model_internal.h"
#include "model/rope_scaling.h"

/* A model being loaded, as far as config.json goes. */
struct world {
    struct checkpoint checkpoint;
    struct model model;
    struct loader loader;
    struct arena memory;
    struct error err;
};

static int read_config(struct world *w, const struct json *config, uint32_t context)
{
    w->checkpoint = (struct checkpoint){
        .kind = CHECKPOINT_SAFETENSORS, .path = "DIR", .config = config, .text_config = config};
    w->model = (struct model){.checkpoint = &w->checkpoint};
    w->loader = (struct loader){
        .m = &w->model,
        .settings = {.checkpoint = &w->checkpoint, .prefix = "", .err = &w->err},
        .context = context};
    w->err = (struct error){0};
    w->loader.arch = architecture_find(&w->loader.settings);
    return w->loader.arch ? read_shape(&w->loader) || read_ropes(&w->loader) : -1;
}

static const struct json *parse(struct world *w, const char *text)
{
    struct error err;
    const struct json *config = json_parse(&w->memory, text, strlen(text), &err);
    if (!config)
        test_fail(__FILE__, __LINE__, "%s: %s", err.message, text);
    return config;
}

static void world_free(struct world *w)
{
    arena_free(&w->model.memory);
    arena_free(&w->memory);
}

static void check_rope(const struct rope *rope, const struct json *want, const char *name)
{
    const struct json *frequencies = json_get(want, "frequencies");
    double amplitude = json_get(want, "amplitude")->number;
    if (rope->dim / 2 != frequencies->count)
        test_fail(__FILE__, __LINE__, "%s turns %u values, not %zu", name, rope->dim,
                  2 * frequencies->count);
    if (fabs(rope->amplitude - amplitude) > 1e-6 * amplitude)
        test_fail(__FILE__, __LINE__, "%s has the amplitude %g, not %g", name,
                  (double)rope->amplitude, amplitude);
    uint32_t i = 0;
    json_each (f, frequencies) {
        /* transformers computes them in float32, and powers of a large base lose some of it */
        if (fabs(rope->frequencies[i] - f->number) > 2e-6 * fabs(f->number))
            test_fail(__FILE__, __LINE__, "%s: frequency %u is %.9g, not %.9g", name, i,
                      rope->frequencies[i], f->number);
        i++;
    }
}

TEST(model_shape, rope_is_that_of_transformers)
{
    struct strbuf text = STRBUF_INIT;
    struct world w = {0};
    struct error err;
    int n_cases = 0;
    CHECK_INT(file_read("tests/unit/data/rope_goldens.json", 1 << 20, &text, &err), 0);
    const struct json *cases = parse(&w, strbuf_str(&text));
    json_each (one, cases) {
        const char *name = json_get(one, "name")->text;
        const struct json *layers = json_get(one, "layers");
        if (read_config(&w, json_get(one, "config"), (uint32_t)json_get(one, "context")->number))
            test_fail(__FILE__, __LINE__, "%s: %s", name, w.err.message);
        for (uint32_t i = 0; i < w.model.hparams.n_layers; i++) {
            const struct layer_shape *shape = &w.model.hparams.layers[i];
            const struct json *want = json_get(layers, "all");
            if (!want)
                want = json_get(layers, w.model.hparams.layers[i].is_windowed ? "sliding_attention"
                                                                              : "full_attention");
            if (shape->rope != ROPE_NONE)
                check_rope(&w.model.hparams.ropes[shape->rope], want, name);
        }
        arena_free(&w.model.memory);
        w.model.memory = (struct arena){0};
        n_cases++;
    }
    CHECK_INT(n_cases, 23);
    strbuf_free(&text);
    world_free(&w);
}

#define SIZES                                                                                      \
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2"
#define LLAMA "{\"model_type\": \"llama\", " SIZES ", "
#define MOE                                                                                        \
    "{\"model_type\": \"deepseek_v3\", " SIZES                                                     \
    ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "        \
    "\"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8, \"v_head_dim\": 8, "
#define GEMMA4                                                                                     \
    "{\"model_type\": \"gemma4_text\", " SIZES                                                     \
    ", \"head_dim\": 8, \"global_head_dim\": 8, \"sliding_window\": 8, "                           \
    "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}, "

/* Without the keys that a case replaces, so that none appears twice. */
#define BARE "{\"model_type\": \"llama\", \"intermediate_size\": 48, "

TEST(model_shape, each_wrong_thing_is_named)
{
    static const struct {
        const char *config, *why;
    } cases[] = {
        {"{}", "the key model_type of config.json is missing"},
        {"{\"model_type\": 7}", "model_type of config.json is missing or not a string"},
        {"{\"model_type\": \"\"}", "does not support the architecture \"\""},
        {"{\"model_type\": \"unheard_of\"}", "\"unheard_of\"; it supports: llama, mistral"},
        {"{\"model_type\": \"qwen3_next\"}", "has recurrent layers, which radish cannot run yet"},
        {"{\"model_type\": \"t5\"}", "is an encoder-decoder"},
        {"{\"model_type\": \"llama\"}", "the key num_hidden_layers is missing"},
        {BARE "\"num_hidden_layers\": 1000000000}", "num_hidden_layers is 1000000000; expected"},
        {BARE "\"num_hidden_layers\": 0}", "num_hidden_layers is 0; expected 1"},
        {BARE "\"num_hidden_layers\": -1}", "num_hidden_layers is not a whole number"},
        {BARE "\"num_hidden_layers\": 1e300}", "num_hidden_layers is not a whole number"},
        {BARE "\"num_hidden_layers\": 1.5}", "num_hidden_layers is not a whole number"},
        {BARE "\"num_hidden_layers\": \"2\"}", "num_hidden_layers is not a whole number"},
        {BARE "\"num_hidden_layers\": [2]}", "num_hidden_layers is not a whole number"},
        {BARE "\"num_hidden_layers\": true}", "num_hidden_layers is not a whole number"},
        {BARE "\"num_hidden_layers\": null}", "the key num_hidden_layers is missing"},
        {BARE "\"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 0}",
         "num_attention_heads is 0; expected 1"},
        {BARE "\"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 5}",
         "an embedding of 32 is not a multiple of 5 heads, and head_dim is missing"},
        {BARE "\"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, "
              "\"num_key_value_heads\": 3}",
         "4 heads cannot share 3 key-value heads"},
        {LLAMA "\"head_dim\": 1000000}", "are wider than"},
        {LLAMA "\"head_dim\": 7}", "not an even number above 0"},
        {LLAMA "\"rms_norm_eps\": 0}", "rms_norm_eps is 0; expected a finite number above 0"},
        {LLAMA "\"rms_norm_eps\": \"small\"}", "the key rms_norm_eps is not a number"},
        {LLAMA "\"rms_norm_eps\": 1e999}", "rms_norm_eps is inf; expected a finite number"},
        {LLAMA "\"hidden_act\": \"relu\"}", "hidden_act is \"relu\"; radish supports silu"},
        {LLAMA "\"hidden_act\": 1}", "the key hidden_act is not a string"},
        {LLAMA "\"tie_word_embeddings\": 1}", "tie_word_embeddings is not true or false"},
        {LLAMA "\"num_experts\": 4}", "a mixture of experts (num_experts is 4)"},
        {LLAMA "\"use_qk_norm\": true}", "use_qk_norm is true"},
        {LLAMA "\"attention_chunk_size\": 8192}", "asks for attention in chunks"},
        {LLAMA "\"alibi\": true}", "asks for ALiBi"},
        {LLAMA "\"use_bidirectional_attention\": \"all\"}", "attention to later positions"},
        {LLAMA "\"use_bidirectional_attention\": true}", "attention to later positions"},
        {LLAMA "\"is_causal\": false}", "is_causal is false: attention to later positions"},
        {LLAMA "\"is_causal\": true}", NULL},
        {LLAMA "\"is_encoder_decoder\": true}", "an encoder and a decoder"},
        {LLAMA "\"layer_types\": [\"full_attention\"]}", "layer_types has 1 items for 2 layers"},
        {LLAMA "\"layer_types\": [1, 2]}", "layer_types[0] is not a string"},
        {LLAMA "\"layer_types\": [\"full_attention\", \"mamba\"]}", "has recurrent layers"},
        {LLAMA "\"layer_types\": [\"full_attention\", \"odd\"]}",
         "layer 1 is \"odd\", which radish does not support"},
        {LLAMA "\"rope_theta\": -1}", "rope's base is -1"},
        {LLAMA "\"rope_theta\": \"x\"}", "the key rope_theta is not a number"},
        {LLAMA "\"rope_scaling\": 4}", "the key rope_scaling is not an object"},
        {LLAMA "\"rope_scaling\": {\"type\": 1}}", "rope_scaling.rope_type is not a string"},
        {LLAMA "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         "dynamic NTK scaling, whose frequencies depend on the current length"},
        {LLAMA "\"rope_scaling\": {\"type\": \"mrope\"}}",
         "rope_type is \"mrope\"; radish supports"},
        {LLAMA "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}", "rope's factor is 0"},
        {LLAMA "\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}}",
         "rope_scaling.factor is not a finite number"},
        {LLAMA "\"rope_theta\": 1, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}}",
         "rope's base is 1; expected a finite number above 1"},
        {LLAMA "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": -1}}",
         "rope's beta_fast is -1"},
        {LLAMA "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, "
               "\"original_max_position_embeddings\": 0}}",
         "rope's original context is 0"},
        {LLAMA "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"mscale\": -1}}",
         "a factor of rope's amplitude is below 0"},
        {LLAMA "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}}",
         "rope's high_freq_factor is 0, which is not above"},
        {LLAMA "\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [1], "
               "\"short_factor\": [1, 1, 1, 1]}}",
         "rope_scaling.long_factor is not a list of 4 numbers"},
        {LLAMA "\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [1, 1, 1, 0], "
               "\"short_factor\": [1, 1, 1, 1]}}",
         "long_factor holds 0; expected a finite number above 0"},
        {LLAMA "\"partial_rotary_factor\": 0}", "partial_rotary_factor is 0"},
        {LLAMA "\"partial_rotary_factor\": 2}", "partial_rotary_factor is 2"},
        {LLAMA "\"partial_rotary_factor\": 0.1}", "0 of a head's 8 values would be turned"},
        {"{\"model_type\": \"deepseek_v2\", " SIZES ", \"num_experts_per_tok\": 1, "
         "\"qk_rope_head_dim\": 7}",
         "qk_rope_head_dim is 7, which is not even"},
        {MOE "\"n_group\": 3}", "8 experts do not make 3 equal groups"},
        {MOE "\"n_group\": 8, \"topk_group\": 2}",
         "groups cannot be chosen by their two best experts"},
        {MOE "\"n_group\": 4, \"topk_group\": 5}", "topk_group is 5; expected 1 to 4"},
        {MOE "\"n_group\": 0}", "n_group is 0; expected 1"},
        {MOE "\"n_group\": 1, \"topk_group\": 1, \"scoring_func\": \"tanh\"}",
         "scoring_func is neither softmax nor sigmoid"},
        {MOE "\"n_group\": 1, \"topk_group\": 1, \"n_shared_experts\": 16384, "
             "\"hidden_size_unused\": 1}",
         NULL},
        {MOE "\"n_group\": 1, \"topk_group\": 1, \"q_lora_rank\": 0}", "q_lora_rank is 0"},
        {MOE "\"n_group\": 1, \"topk_group\": 1, \"num_experts\": 1}",
         "num_experts_per_tok is 2; expected 1 to 1"},
        {MOE "\"n_group\": 1, \"topk_group\": 1, \"mlp_layer_types\": [\"dense\", \"odd\"]}",
         "mlp_layer_types[1] is \"odd\""},
        {"{\"model_type\": \"qwen3_moe\", " SIZES ", \"mlp_only_layers\": [\"x\"]}",
         "mlp_only_layers[0] is not a whole number"},
        {"{\"model_type\": \"qwen3_moe\", " SIZES ", \"num_experts_per_tok\": 0}",
         "num_experts_per_tok is 0; expected 1"},
        {"{\"model_type\": \"deepseek_v2\", " SIZES ", \"num_experts_per_tok\": 1, "
         "\"topk_method\": \"odd\"}",
         "topk_method is \"odd\""},
        {GEMMA4 "\"num_kv_shared_layers\": 2}", "num_kv_shared_layers is 2; expected 0 to 1"},
        {GEMMA4 "\"num_kv_shared_layers\": 1}", "no layer of its kind has any"},
        {GEMMA4 "\"per_layer_config\": 1}", "the key per_layer_config is not an object"},
        {GEMMA4 "\"per_layer_config\": {\"9\": {}}}", "per_layer_config.9 is not an object for"},
        {GEMMA4 "\"per_layer_config\": {\"1\": {\"hidden_size\": 1}}}",
         "per_layer_config.1.hidden_size is an override that radish does not support"},
        {GEMMA4 "\"hidden_size_per_layer_input\": 1000000}", "hidden_size_per_layer_input is"},
        {"{\"model_type\": \"gemma4_text\", " SIZES "}", "the key rope_parameters is missing"},
        {"{\"model_type\": \"exaone4\", " SIZES ", \"sliding_window_pattern\": \"LLX\"}",
         "sliding_window_pattern is \"LLX\"; expected only L and G"},
        {"{\"model_type\": \"exaone4\", " SIZES ", \"sliding_window_pattern\": [1]}",
         "sliding_window_pattern has 1 items for 2 layers"},
        {"{\"model_type\": \"smollm3\", " SIZES ", \"no_rope_layers\": [1]}",
         "no_rope_layers has 1 items for 2 layers"},
        {"{\"model_type\": \"granite\", " SIZES ", \"position_embedding_type\": \"alibi\"}",
         "position_embedding_type is \"alibi\""},
        {"{\"model_type\": \"granite\", " SIZES ", \"residual_multiplier\": 0}",
         "residual_multiplier is 0; expected a finite number above 0"},
        {"{\"model_type\": \"granitemoehybrid\", " SIZES "}", "the key layer_types is missing"},
        {"{\"model_type\": \"gemma2\", " SIZES ", \"final_logit_softcapping\": -1}",
         "final_logit_softcapping is -1, which is below 0"},
        {"{\"model_type\": \"gpt_oss\", " SIZES ", \"rope_scaling\": {\"rope_type\": \"default\"}, "
         "\"swiglu_alpha\": 1}",
         "swiglu_alpha is 1; radish supports only 1.702"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w = {0};
        int rc = read_config(&w, parse(&w, cases[i].config), 0);
        if (!cases[i].why) {
            if (rc)
                test_fail(__FILE__, __LINE__, "%s: %s", cases[i].config, w.err.message);
        } else if (!rc) {
            test_fail(__FILE__, __LINE__, "read, expected \"%s\"", cases[i].why);
        } else {
            CHECK_INT(w.err.code, ERROR_FORMAT);
            CHECK(strncmp(w.err.message, "DIR: ", 5) == 0 && !strchr(w.err.message, '\n'));
            if (!strstr(w.err.message, cases[i].why))
                test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", w.err.message,
                          cases[i].why);
        }
        world_free(&w);
    }
}

/* Values of every type for each key of a valid configuration: each is accepted, or rejected in one
 * line. */
TEST(model_shape, survives_every_value_of_another_type)
{
    static const char *const values[] = {
        "null",
        "true",
        "-1",
        "0",
        "1",
        "3",
        "0.5",
        "1e30",
        "4294967296",
        "\"x\"",
        "[]",
        "[1]",
        "[\"full_attention\", \"sliding_attention\"]",
        "{}",
        "{\"rope_type\": \"yarn\"}",
    };
    static const char *const types[] = {"llama",   "qwen3_moe",        "gemma4_text", "deepseek_v3",
                                        "gpt_oss", "granitemoehybrid", "exaone4",     "phi3"};
    int n_read = 0, n_refused = 0;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (enum setting id = 0; id < N_SETTINGS; id++)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                struct world w = {0};
                char text[600];
                w.checkpoint.kind = CHECKPOINT_SAFETENSORS;
                struct settings s = {.checkpoint = &w.checkpoint, .prefix = ""};
                snprintf(text, sizeof text,
                         "{\"model_type\": \"%s\", \"%s\": %s, \"hidden_size\": 32, "
                         "\"intermediate_size\": 48, \"num_hidden_layers\": 2, "
                         "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                         "\"layer_types\": [\"full_attention\", \"full_attention\"]}",
                         types[t], setting_name(&s, id).text, values[v]);
                struct error err;
                const struct json *config = json_parse(&w.memory, text, strlen(text), &err);
                if (config && read_config(&w, config, 0) == 0)
                    n_read++;
                else if (config)
                    CHECK(strncmp(w.err.message, "DIR: ", 5) == 0);
                n_refused += config && w.err.code;
                world_free(&w);
            }
    CHECK(n_read > 1000 && n_refused > 1000);
}

TEST(model_shape, yarn_stretches_the_context)
{
    struct world w = {0};
    CHECK_INT(read_config(&w,
                          parse(&w, LLAMA "\"max_position_embeddings\": 1000, \"rope_scaling\": "
                                          "{\"type\": \"yarn\", \"factor\": 4, "
                                          "\"original_max_position_embeddings\": 1000}}"),
                          0),
              0);
    CHECK_INT(w.model.hparams.n_context, 4000);
    arena_free(&w.model.memory);
    CHECK_INT(read_config(&w,
                          parse(&w, LLAMA "\"max_position_embeddings\": 1000, \"rope_scaling\": "
                                          "{\"type\": \"yarn\", \"factor\": 4}}"),
                          0),
              0);
    CHECK_INT(w.model.hparams.n_context,
              1000); /* nothing says otherwise, so this is the stretched length */
    world_free(&w);
}

TEST(model_shape, the_longer_of_two_contexts_is_trained)
{
    struct world w = {0};
    const char *text = "{\"model_type\": \"cohere\", " SIZES
                       ", \"max_position_embeddings\": 8192, \"model_max_length\": 131072}";
    CHECK_INT(read_config(&w, parse(&w, text), 0), 0);
    CHECK_INT(w.model.hparams.n_context, 131072);
    arena_free(&w.model.memory);
    text = "{\"model_type\": \"cohere\", " SIZES
           ", \"max_position_embeddings\": 8192, \"model_max_length\": 2048}";
    CHECK_INT(read_config(&w, parse(&w, text), 0), 0);
    CHECK_INT(w.model.hparams.n_context, 8192);
    world_free(&w);
}

TEST(model_shape, null_means_none_and_absent_the_default)
{
    struct world w = {0};
    CHECK_INT(read_config(&w, parse(&w, "{\"model_type\": \"mistral\", " SIZES "}"), 0), 0);
    CHECK_INT(w.model.hparams.layers[0].window, 4096);
    arena_free(&w.model.memory);
    CHECK_INT(
        read_config(
            &w, parse(&w, "{\"model_type\": \"mistral\", " SIZES ", \"sliding_window\": null}"), 0),
        0);
    CHECK_INT(w.model.hparams.layers[0].window, 0);
    arena_free(&w.model.memory);
    CHECK_INT(read_config(&w,
                          parse(&w, "{\"model_type\": \"gemma2\", " SIZES
                                    ", \"attn_logit_softcapping\": null}"),
                          0),
              0);
    CHECK(w.model.hparams.attn_softcap == 0 && w.model.hparams.logit_softcap == 30);
    world_free(&w);
}

/* The table itself: a name belongs to one row, and each has a description. */
TEST(model_shape, rows_of_the_table_make_sense)
{
    const char *words[MAX_FEATURES];
    size_t n = 0;
    for (const struct architecture *a; (a = architecture_at(n)) != NULL; n++) {
        CHECK(a->title && a->types[0] && a->norms);
        CHECK(strlen(a->types[0]) < sizeof((struct hparams *)0)->arch);
        CHECK(architecture_features(a, words) <= MAX_FEATURES);
        for (size_t other = 0; other < n; other++) {
            const struct architecture *b = architecture_at(other);
            for (size_t i = 0; i < MAX_NAMES && a->types[i]; i++)
                for (size_t k = 0; k < MAX_NAMES && b->types[k]; k++)
                    CHECK(strcmp(a->types[i], b->types[k]) != 0);
            if (a->gguf && b->gguf && strcmp(a->gguf, b->gguf) == 0)
                CHECK(a->has_when != b->has_when);
        }
    }
    CHECK(n > 0);
}
