/* GGUF files of architectures other than Llama, with the keys and names of llama.cpp's converter:
 * what each row makes of them. Llama's own are in test_model.c. */
#include "test.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gguf_builder.h"
#include "model/model.h"
#include "model/rope_scaling.h"

enum { EMBD = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, FF = 64, VOCAB = 6, EXPERTS = 4 };

/* A key with its value: a whole number, or a float if `type` says so. */
struct key {
    const char *name;
    double number;
    enum gguf_type type; /* GGUF_U8: a whole number */
    const char *string;
};

/* A tensor, of the model or of each of its two layers ("blk."). */
struct tensor {
    const char *name;
    uint64_t cols, rows; /* rows 0: a vector */
    enum tensor_type type;
};

static void add_key(struct gguf_builder *b, const char *arch, const struct key *k)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, k->name);
    if (k->string)
        build_key_string(b, name, k->string);
    else if (k->type == GGUF_F32)
        build_key_f32(b, name, (float)k->number);
    else
        build_key_u32(b, name, (uint32_t)k->number);
}

static void add_sizes(struct gguf_builder *b, const char *arch)
{
    static const struct key sizes[] = {
        {"block_count", 2},
        {"context_length", 128},
        {"embedding_length", EMBD},
        {"feed_forward_length", FF},
        {"attention.head_count", HEADS},
        {"attention.layer_norm_rms_epsilon", 1e-5, GGUF_F32},
    };
    build_key_string(b, "general.architecture", arch);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        add_key(b, arch, &sizes[i]);
    build_key_array(b, "tokenizer.ggml.tokens", GGUF_STRING, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        build_string(&b->pairs, (char[]){(char)('a' + i), 0});
    build_tensor(b, "token_embd.weight", TENSOR_F32, EMBD, VOCAB);
    build_tensor(b, "output_norm.weight", TENSOR_F32, EMBD, 1);
}

static void add_tensors(struct gguf_builder *b, const struct tensor *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int layer = 0; layer < 2; layer++) {
            char name[96];
            bool is_layer = strncmp(tensors[i].name, "blk.", 4) == 0;
            if (is_layer)
                snprintf(name, sizeof name, "blk.%d.%s", layer, tensors[i].name + 4);
            else
                snprintf(name, sizeof name, "%s", tensors[i].name);
            if (is_layer || layer == 0)
                build_tensor(b, name, tensors[i].type, tensors[i].cols,
                             tensors[i].rows ? tensors[i].rows : 1);
        }
}

/* Makes every float of the data different, to see where each one went. */
static void number_floats(struct gguf_builder *b)
{
    for (size_t i = 0; i < b->data.len / sizeof(float); i++)
        memcpy(b->data.data + i * sizeof(float), &(float){(float)i + 1}, sizeof(float));
}

static void open_built(struct model *m, struct gguf_builder *b, uint32_t context, int line)
{
    struct error err = {0};
    struct model_options options = {.context = context};
    char path[64];
    gguf_builder_finish(b);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, b->file.data, b->file.len) == (ssize_t)b->file.len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (model_open(m, path, &options, &err))
        test_fail(__FILE__, line, "%s", err.message);
    close(fd);
    gguf_builder_free(b);
}

#define LEN(array) (sizeof(array) / sizeof *(array))

static void open_model(struct model *m, const char *arch, const struct key *keys, size_t n_keys,
                       const struct tensor *tensors, size_t n_tensors, uint32_t context, int line)
{
    struct gguf_builder b = {0};
    add_sizes(&b, arch);
    for (size_t i = 0; i < n_keys; i++)
        add_key(&b, arch, &keys[i]);
    add_tensors(&b, tensors, n_tensors);
    open_built(m, &b, context, line);
}
#define OPEN(m, arch, keys, tensors, context)                                                      \
    open_model(m, arch, keys, LEN(keys), tensors, LEN(tensors), context, __LINE__)

#define ATTENTION                                                                                  \
    {"blk.attn_norm.weight", EMBD}, {"blk.attn_q.weight", EMBD, HEADS * HEAD_DIM},                 \
        {"blk.attn_k.weight", EMBD, KV_HEADS * HEAD_DIM},                                          \
        {"blk.attn_v.weight", EMBD, KV_HEADS * HEAD_DIM},                                          \
    {                                                                                              \
        "blk.attn_output.weight", HEADS *HEAD_DIM, EMBD                                            \
    }
#define DENSE                                                                                      \
    {"blk.ffn_gate.weight", EMBD, FF}, {"blk.ffn_up.weight", EMBD, FF},                            \
    {                                                                                              \
        "blk.ffn_down.weight", FF, EMBD                                                            \
    }

TEST(model_gguf, gemma3_has_two_ropes_and_norms_around_blocks)
{
    static const struct key keys[] = {
        {"attention.head_count_kv", KV_HEADS},     {"attention.sliding_window", 16},
        {"attention.sliding_window_pattern", 2},   {"rope.freq_base", 1e6, GGUF_F32},
        {"rope.scaling.type", .string = "linear"}, {"rope.scaling.factor", 8, GGUF_F32},
    };
    static const struct tensor tensors[] = {
        ATTENTION,
        DENSE,
        {"blk.attn_q_norm.weight", HEAD_DIM},
        {"blk.attn_k_norm.weight", HEAD_DIM},
        {"blk.post_attention_norm.weight", EMBD},
        {"blk.ffn_norm.weight", EMBD},
        {"blk.post_ffw_norm.weight", EMBD},
    };
    struct model m;
    OPEN(&m, "gemma3", keys, tensors, 0);
    const struct hparams *h = &m.hparams;
    CHECK_STR(h->arch, "gemma3_text");
    CHECK_INT(h->n_ropes, 2);
    CHECK_INT(h->layers[0].window, 16);
    CHECK_INT(h->layers[1].window, 0);
    const struct rope *local = &h->ropes[h->layers[0].rope], *full = &h->ropes[h->layers[1].rope];
    CHECK(local->frequencies[0] == 1 && full->frequencies[0] == 0.125);
    CHECK(fabs(local->frequencies[1] - pow(10000, -0.25)) < 1e-12);
    CHECK(fabs(full->frequencies[1] - pow(1e6, -0.25) / 8) < 1e-12);
    CHECK(m.layers[0].attn_post_norm && m.layers[0].ffn_norm && m.layers[0].ffn_post_norm);
    CHECK(m.layers[0].attn_norm[0] == 0.5f); /* as it is: GGUF has the 1 in it */
    CHECK(h->activation == ACTIVATION_GELU_TANH && h->embd_scale == sqrtf(EMBD));
    model_close(&m);
}

TEST(model_gguf, gpt_oss_has_biases_for_each_expert)
{
    static const struct key keys[] = {
        {"attention.head_count_kv", KV_HEADS},
        {"attention.key_length", HEAD_DIM},
        {"attention.value_length", HEAD_DIM},
        {"attention.sliding_window", 16},
        {"expert_count", EXPERTS},
        {"expert_used_count", 2},
        {"expert_feed_forward_length", FF},
        {"rope.scaling.type", .string = "yarn"},
        {"rope.scaling.factor", 4, GGUF_F32},
        {"rope.scaling.original_context_length", 32},
        {"rope.scaling.yarn_attn_factor", 0.878, GGUF_F32}, /* not the amplitude */
    };
    static const struct tensor tensors[] = {
        ATTENTION,
        {"output.weight", EMBD, VOCAB},
        {"blk.attn_q.bias", HEADS * HEAD_DIM},
        {"blk.attn_k.bias", KV_HEADS * HEAD_DIM},
        {"blk.attn_v.bias", KV_HEADS * HEAD_DIM},
        {"blk.attn_output.bias", EMBD},
        {"blk.attn_sinks.weight", HEADS},
        {"blk.post_attention_norm.weight", EMBD},
        {"blk.ffn_gate_inp.weight", EMBD, EXPERTS},
        {"blk.ffn_gate_inp.bias", EXPERTS},
        {"blk.ffn_gate_exps.weight", EMBD, FF * EXPERTS},
        {"blk.ffn_up_exps.weight", EMBD, FF * EXPERTS},
        {"blk.ffn_down_exps.weight", FF, EMBD * EXPERTS},
        {"blk.ffn_gate_exps.bias", FF, EXPERTS},
        {"blk.ffn_up_exps.bias", FF, EXPERTS},
        {"blk.ffn_down_exps.bias", EMBD, EXPERTS},
        {"blk.ffn_down_exps.scale", EXPERTS},
    };
    struct gguf_builder b = {0};
    struct model m;
    add_sizes(&b, "gpt-oss");
    for (size_t i = 0; i < LEN(keys); i++)
        add_key(&b, "gpt-oss", &keys[i]);
    add_tensors(&b, tensors, LEN(tensors));
    number_floats(&b);
    open_built(&m, &b, 0, __LINE__);
    const struct layer_weights *l = &m.layers[1];
    const float *scales = checkpoint_find(m.checkpoint, "blk.1.ffn_down_exps.scale")->data;
    for (uint32_t e = 0; e < EXPERTS; e++)
        CHECK(l->experts[e].down.groups.scale == scales[e] && l->experts[e].up.groups.scale == 0);
    CHECK_INT(m.hparams.layers[0].n_ff, 0);
    CHECK_INT(m.hparams.layers[0].window, 16);
    CHECK_INT(m.hparams.layers[1].window, 0);
    CHECK_INT(m.hparams.router.scores, ROUTER_SOFTMAX_CHOSEN);
    CHECK(l->ffn_norm && !l->attn_post_norm && l->sinks && l->router_bias);
    CHECK_INT(l->experts[3].up.rows, FF);
    CHECK(l->experts[3].up.data ==
          (const char *)l->experts[0].up.data + (size_t)3 * FF * EMBD * sizeof(float));
    CHECK(l->experts[3].down_bias == l->experts[0].down_bias + 3 * EMBD);
    CHECK(fabs(m.hparams.ropes[0].amplitude - yarn_mscale(4, 1)) < 1e-6);
    model_close(&m);
}

/* Old converters wrote one matrix where new ones write two, one of them transposed. */
TEST(model_gguf, deepseek2_of_old_converters_is_taken_apart)
{
    enum { RANK = 4, NOPE = 6, ROPE = 2, VALUE = 3 };
    static const struct key keys[] = {
        {"attention.head_count_kv", HEADS},
        {"attention.kv_lora_rank", RANK},
        {"attention.key_length", NOPE + ROPE},
        {"attention.value_length", VALUE},
        {"rope.dimension_count", ROPE},
        {"expert_count", EXPERTS},
        {"expert_used_count", 2},
        {"expert_feed_forward_length", FF},
        {"expert_shared_count", 1},
        {"leading_dense_block_count", 2},
    };
    static const struct tensor tensors[] = {
        {"blk.attn_norm.weight", EMBD},
        {"blk.attn_q.weight", EMBD, HEADS * (NOPE + ROPE)},
        {"blk.attn_kv_a_mqa.weight", EMBD, RANK + ROPE},
        {"blk.attn_kv_a_norm.weight", RANK},
        {"blk.attn_kv_b.weight", RANK, HEADS * (NOPE + VALUE)},
        {"blk.attn_output.weight", HEADS * VALUE, EMBD},
        {"blk.ffn_norm.weight", EMBD},
        DENSE,
    };
    struct gguf_builder b = {0};
    struct model m;
    add_sizes(&b, "deepseek2");
    for (size_t i = 0; i < LEN(keys); i++)
        add_key(&b, "deepseek2", &keys[i]);
    add_tensors(&b, tensors, LEN(tensors));
    number_floats(&b);
    open_built(&m, &b, 0, __LINE__);
    CHECK_STR(m.hparams.arch, "deepseek_v2");
    CHECK_INT(m.hparams.mla.nope_dim, NOPE);
    CHECK_INT(m.hparams.layers[0].key_dim, RANK + ROPE);
    CHECK_INT(m.hparams.layers[0].n_kv_heads, 1);
    const float *kv_b = checkpoint_find(m.checkpoint, "blk.1.attn_kv_b.weight")->data;
    const struct layer_weights *l = &m.layers[1];
    CHECK_INT(l->k_b.rows, HEADS * RANK);
    CHECK_INT(l->v_b.rows, HEADS * VALUE);
    for (uint32_t head = 0; head < HEADS; head++)
        for (uint32_t r = 0; r < RANK; r++) {
            float row[NOPE], value[RANK];
            weight_floats(&l->k_b, head * RANK + r, 0, NOPE, row);
            for (uint32_t i = 0; i < NOPE; i++)
                CHECK(row[i] == kv_b[(head * (NOPE + VALUE) + i) * RANK + r]);
            for (uint32_t i = 0; i < VALUE; i++) {
                weight_floats(&l->v_b, head * VALUE + i, 0, RANK, value);
                CHECK(value[r] == kv_b[(head * (NOPE + VALUE) + NOPE + i) * RANK + r]);
            }
        }
    model_close(&m);
}

/* Copies of quantised matrices take more memory than the file, which is no reason to reject it. */
TEST(model_gguf, a_quantised_kv_b_is_taken_apart)
{
    enum { RANK = 1024, NOPE = 6, ROPE = 2, VALUE = 2 };
    static const struct key keys[] = {
        {"attention.head_count_kv", HEADS},    {"attention.kv_lora_rank", RANK},
        {"attention.key_length", NOPE + ROPE}, {"attention.value_length", VALUE},
        {"rope.dimension_count", ROPE},
    };
    static const struct tensor tensors[] = {
        {"blk.attn_norm.weight", EMBD},
        {"blk.attn_q.weight", EMBD, HEADS * (NOPE + ROPE)},
        {"blk.attn_kv_a_mqa.weight", EMBD, RANK + ROPE, TENSOR_Q4_0},
        {"blk.attn_kv_a_norm.weight", RANK},
        {"blk.attn_kv_b.weight", RANK, HEADS * (NOPE + VALUE), TENSOR_Q4_0},
        {"blk.attn_output.weight", HEADS * VALUE, EMBD},
        {"blk.ffn_norm.weight", EMBD},
        DENSE,
    };
    struct model m;
    uint64_t bytes = 0;
    OPEN(&m, "deepseek2", keys, tensors, 0);
    CHECK(weight_bytes(&m.layers[0].k_b) > m.checkpoint->file_bytes / 2);
    for (size_t i = 0; i < m.checkpoint->n_tensors; i++)
        bytes += m.checkpoint->tensors[i].size_bytes;
    CHECK_INT(m.weight_bytes, bytes);
    model_close(&m);
}

/* The scoring of experts, or a tensor that only V3 has, tells whether a deepseek2 is V2 or V3. */
TEST(model_gguf, deepseek2_is_v3_where_choices_are_corrected)
{
    enum { RANK = 4, NOPE = 6, ROPE = 2, VALUE = 3 };
    static const struct key keys[] = {
        {"attention.temperature_scale", 0.25, GGUF_F32},
        {"attention.temperature_length", 64},
        {"attention.head_count_kv", 1},
        {"attention.kv_lora_rank", RANK},
        {"attention.key_length", RANK + ROPE},
        {"attention.value_length", RANK},
        {"attention.key_length_mla", NOPE + ROPE},
        {"attention.value_length_mla", VALUE},
        {"rope.dimension_count", ROPE},
        {"expert_count", EXPERTS},
        {"expert_used_count", 2},
        {"expert_feed_forward_length", FF},
    };
    static const struct tensor tensors[] = {
        {"blk.attn_norm.weight", EMBD},
        {"blk.attn_q.weight", EMBD, HEADS * (NOPE + ROPE)},
        {"blk.attn_kv_a_mqa.weight", EMBD, RANK + ROPE},
        {"blk.attn_kv_a_norm.weight", RANK},
        {"blk.attn_k_b.weight", NOPE, HEADS * RANK},
        {"blk.attn_v_b.weight", RANK, HEADS * VALUE},
        {"blk.attn_output.weight", HEADS * VALUE, EMBD},
        {"blk.ffn_norm.weight", EMBD},
        {"blk.ffn_gate_inp.weight", EMBD, EXPERTS},
        {"blk.ffn_gate_up_exps.weight", EMBD, 2 * FF * EXPERTS},
        {"blk.ffn_down_exps.weight", FF, EMBD * EXPERTS},
        {"blk.exp_probs_b.bias", EXPERTS},
    };
    struct model m;
    OPEN(&m, "deepseek2", keys, tensors, 0);
    CHECK_STR(m.hparams.arch, "deepseek_v3");
    CHECK_INT(m.hparams.router.scores, ROUTER_SIGMOID);
    CHECK(m.hparams.temperature_scale == 0.25f && m.hparams.temperature_length == 64);
    const struct layer_weights *l = &m.layers[0];
    CHECK(l->router_correction && l->k_b.rows == HEADS * RANK && l->v_b.rows == HEADS * VALUE);
    CHECK(l->experts[1].up.data ==
          (const char *)l->experts[0].gate.data + (size_t)3 * FF * EMBD * sizeof(float));
    model_close(&m);
}

TEST(model_gguf, phi3_is_fused_and_its_factors_go_by_the_context)
{
    static const struct key keys[] = {
        {"attention.head_count_kv", KV_HEADS},
        {"rope.scaling.original_context_length", 32},
        {"rope.scaling.attn_factor", 1.5, GGUF_F32},
    };
    static const struct tensor tensors[] = {
        {"output.weight", EMBD, VOCAB},
        {"rope_factors_long.weight", HEAD_DIM / 2},
        {"rope_factors_short.weight", HEAD_DIM / 2},
        {"blk.attn_norm.weight", EMBD},
        {"blk.attn_qkv.weight", EMBD, (HEADS + 2 * KV_HEADS) * HEAD_DIM},
        {"blk.attn_output.weight", HEADS * HEAD_DIM, EMBD},
        {"blk.ffn_norm.weight", EMBD},
        {"blk.ffn_up.weight", EMBD, 2 * FF},
        {"blk.ffn_down.weight", FF, EMBD},
    };
    for (uint32_t context = 32; context <= 33; context++) {
        struct gguf_builder b = {0};
        struct model m;
        add_sizes(&b, "phi3");
        for (size_t i = 0; i < LEN(keys); i++)
            add_key(&b, "phi3", &keys[i]);
        add_tensors(&b, tensors, LEN(tensors));
        number_floats(&b);
        open_built(&m, &b, context, __LINE__);
        const float *factors = checkpoint_find(m.checkpoint, context > 32
                                                                 ? "rope_factors_long.weight"
                                                                 : "rope_factors_short.weight")
                                   ->data;
        CHECK(fabs(m.hparams.ropes[0].frequencies[0] - 1 / factors[0]) < 1e-7);
        CHECK(m.hparams.ropes[0].amplitude == 1.5f);
        const struct layer_weights *l = &m.layers[0];
        const char *qkv = l->attn_q.data, *up = l->ffn_gate.data;
        CHECK(l->attn_k.data == qkv + (size_t)HEADS * HEAD_DIM * EMBD * sizeof(float));
        CHECK(l->attn_v.data == qkv + (size_t)(HEADS + KV_HEADS) * HEAD_DIM * EMBD * sizeof(float));
        CHECK(l->ffn_up.data == up + (size_t)FF * EMBD * sizeof(float));
        CHECK_INT(l->ffn_up.rows, FF);
        model_close(&m);
    }
}

TEST(model_gguf, mixtral_hides_behind_llama_in_tensors_for_each_expert)
{
    static const struct key keys[] = {
        {"attention.head_count_kv", KV_HEADS},
        {"expert_count", 2},
        {"expert_used_count", 1},
    };
    static const struct tensor tensors[] = {
        ATTENTION,
        {"blk.ffn_norm.weight", EMBD},
        {"blk.ffn_gate_inp.weight", EMBD, 2},
        {"blk.ffn_gate.0.weight", EMBD, FF},
        {"blk.ffn_up.0.weight", EMBD, FF},
        {"blk.ffn_down.0.weight", FF, EMBD},
        {"blk.ffn_gate.1.weight", EMBD, FF},
        {"blk.ffn_up.1.weight", EMBD, FF},
        {"blk.ffn_down.1.weight", FF, EMBD},
    };
    struct model m;
    OPEN(&m, "llama", keys, tensors, 0);
    CHECK_STR(m.hparams.arch, "mixtral");
    CHECK(m.hparams.router.normalizes && m.hparams.ropes[0].kind == ROPE_NORM);
    CHECK(m.layers[1].experts[1].down.data ==
          checkpoint_find(m.checkpoint, "blk.1.ffn_down.1.weight")->data);
    model_close(&m);
}

/* GGUF counts prediction layers (MTP), which are not used. */
TEST(model_gguf, layers_for_guessing_ahead_are_left_alone)
{
    static const struct key keys[] = {
        {"attention.head_count_kv", KV_HEADS},
        {"nextn_predict_layers", 1},
    };
    static const struct tensor tensors[] = {
        ATTENTION,
        DENSE,
        {"blk.ffn_norm.weight", EMBD},
        {"blk.nextn.eh_proj.weight", 2 * EMBD, EMBD},
    };
    struct gguf_builder b = {0};
    struct model m;
    struct error err = {0};
    char path[64];
    add_sizes(&b, "llama");
    for (size_t i = 0; i < LEN(keys); i++)
        add_key(&b, "llama", &keys[i]);
    add_tensors(&b, tensors, LEN(tensors));
    gguf_builder_finish(&b);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, b.file.data, b.file.len) == (ssize_t)b.file.len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* The first layer has one, too, which is wrong. */
    CHECK_INT(model_open(&m, path, NULL, &err), -1);
    CHECK(strstr(err.message, "no use for the tensor blk.0.nextn.eh_proj.weight"));
    close(fd);
    gguf_builder_free(&b);
}
