/* Models from files: a tiny Llama that the test writes, valid and then with one thing wrong at a
 * time; each wrong one must be rejected with a message that names the thing. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model_builder.h"
#include "model/model.h"

/* Opens the bytes as a file that exists only in memory. */
static int open_bytes(struct model *m, const void *bytes, size_t len, char path[64],
                      struct error *err)
{
    int fd = memfd_create("model", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    *err = (struct error){0};
    int rc = model_open(m, path, NULL, err);
    close(fd);
    return rc;
}

static int open_tweaked(struct model *m, const struct tweak *t, struct error *err)
{
    struct gguf_builder b = {0};
    char path[64];
    build_model(&b, t);
    int rc = open_bytes(m, b.file.data, b.file.len, path, err);
    gguf_builder_free(&b);
    return rc;
}

static void touch_weight(const struct weight *w)
{
    if (!w->data)
        return;
    float *row = malloc(w->cols * sizeof *row);
    CHECK(row != NULL);
    for (uint32_t r = 0; r < w->rows; r++)
        weight_floats(w, r, 0, w->cols, row);
    free(row);
}

static void touch_model(const struct model *m)
{
    touch_weight(&m->token_embd);
    touch_weight(&m->output);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const struct layer_weights *l = &m->layers[i];
        const struct weight *all[] = {
            &l->attn_q,   &l->attn_k, &l->attn_v,   &l->attn_output,
            &l->ffn_gate, &l->ffn_up, &l->ffn_down,
        };
        for (size_t w = 0; w < sizeof all / sizeof *all; w++)
            touch_weight(all[w]);
    }
}

TEST(model, reads_a_tiny_llama)
{
    struct model m;
    struct error err;
    if (open_tweaked(&m, &(struct tweak){0}, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    const struct hparams *h = &m.hparams;
    CHECK_STR(h->arch, "llama");
    CHECK_STR(h->name, "Tiny");
    CHECK_INT(h->n_layers, LAYERS);
    CHECK_INT(h->n_embd, EMBD);
    CHECK_INT(h->layers[1].n_heads, HEADS);
    CHECK_INT(h->layers[1].n_kv_heads, KV_HEADS);
    CHECK_INT(h->layers[1].key_dim, HEAD_DIM);
    CHECK_INT(h->layers[1].n_ff, FF);
    CHECK_INT(h->n_vocab, VOCAB);
    CHECK_INT(h->n_context, 128);
    CHECK_INT(h->ropes[0].kind, ROPE_NORM);
    CHECK_INT(h->ropes[0].dim, HEAD_DIM);
    CHECK(h->ropes[0].frequencies[0] == 1 && h->norm_eps == 1e-5f);
    CHECK(m.output.data == m.token_embd.data && m.output.rows == VOCAB); /* tied */
    CHECK(!m.layers[1].q_bias);
    CHECK_INT(m.layers[1].attn_k.type, TENSOR_Q4_1);
    CHECK_INT(m.layers[1].attn_k.rows, KV_HEADS * HEAD_DIM);
    CHECK_INT(m.layers[1].ffn_down.cols, FF);
    CHECK(m.layers[0].attn_norm != NULL);
    CHECK(m.layers[0].ffn_up.data == checkpoint_find(m.checkpoint, "blk.0.ffn_up.weight")->data);
    uint64_t layer = 2 * EMBD + 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 64;
    CHECK_INT(m.n_params, VOCAB * EMBD + EMBD + LAYERS * layer);
    uint64_t bytes = 0;
    for (size_t i = 0; i < m.checkpoint->n_tensors; i++)
        bytes += m.checkpoint->tensors[i].size_bytes;
    CHECK_INT(m.weight_bytes, bytes);
    touch_model(&m);
    model_close(&m);
    model_close(&m);
}

static void check_opens(struct model *m, const struct tweak *t, int line)
{
    struct error err;
    if (open_tweaked(m, t, &err))
        test_fail(__FILE__, line, "%s", err.message);
    touch_model(m);
}
#define EMBD_BY(n)          .cols = EMBD, .rows = n
#define CHECK_OPENS(m, ...) check_opens(m, &(struct tweak){__VA_ARGS__}, __LINE__)

TEST(model, reads_what_is_optional)
{
    struct model m;
    CHECK_OPENS(&m, .without = "llama.rope.dimension_count");
    CHECK_INT(m.hparams.ropes[0].dim, HEAD_DIM);
    model_close(&m);
    CHECK_OPENS(&m, .without = "llama.vocab_size");
    CHECK_INT(m.hparams.n_vocab, VOCAB);
    model_close(&m);
    CHECK_OPENS(&m, .without = "general.name");
    CHECK(m.hparams.name[0] >= '0' && m.hparams.name[0] <= '9'); /* /proc/self/fd/N */
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.rope.dimension_count", .number = 4);
    CHECK_INT(m.hparams.ropes[0].dim, 4);
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.attention.key_length", .number = HEAD_DIM);
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.rope.freq_base", .type = GGUF_F32, .number = 500000);
    CHECK(fabs(m.hparams.ropes[0].frequencies[1] - pow(500000, -2.0 / HEAD_DIM)) < 1e-12);
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.rope.scaling.factor", .type = GGUF_F32, .number = 4);
    CHECK(m.hparams.ropes[0].frequencies[0] == 0.25);
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.rope.scaling.type", .type = GGUF_STRING, .string = "none");
    CHECK(m.hparams.ropes[0].frequencies[0] == 1);
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.expert_count", .number = 0);
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.attention.sliding_window", .number = 4096);
    CHECK_INT(m.hparams.layers[1].window, 0); /* it spans the context */
    model_close(&m);
    CHECK_OPENS(&m, .key = "llama.attention.sliding_window", .number = 64);
    CHECK_INT(m.hparams.layers[1].window, 64);
    model_close(&m);
    CHECK_OPENS(&m, .tensor = "blk.0.attn_norm.weight", .tensor_type = TENSOR_F16, EMBD_BY(1));
    model_close(&m);
    CHECK_OPENS(&m, .tensor = "blk.1.attn_output.bias", .tensor_type = TENSOR_F32, EMBD_BY(1));
    CHECK(m.layers[1].output_bias && !m.layers[0].output_bias);
    model_close(&m);
    CHECK_OPENS(&m, .tensor = "output.weight", .tensor_type = TENSOR_F32, EMBD_BY(VOCAB));
    CHECK(m.output.data != m.token_embd.data && m.output.type == TENSOR_F32);
    model_close(&m);
    CHECK_OPENS(&m, .tensor = "rope_freqs.weight", .tensor_type = TENSOR_F32, .cols = 4, .rows = 1);
    model_close(&m);
    CHECK_OPENS(&m, .tensor = "blk.1.attn_q.bias", .tensor_type = TENSOR_F32, EMBD_BY(1));
    CHECK(m.layers[1].q_bias && !m.layers[0].q_bias);
    CHECK(!m.layers[1].k_bias);
    model_close(&m);
    CHECK_OPENS(&m, .tensor = "blk.0.attn_rot_embd", .tensor_type = TENSOR_F32, EMBD_BY(1));
    model_close(&m);
}

TEST(model, refuses_each_wrong_thing_by_name)
{
    static const struct {
        struct tweak tweak;
        const char *why;
    } cases[] = {
        {{.without = "general.architecture"}, "general.architecture is missing"},
        {{.key = "general.architecture", .number = 1}, "general.architecture is missing or not"},
        {{.key = "general.architecture", .type = GGUF_STRING, .string = "mamba"},
         "the architecture \"mamba\" has recurrent layers"},
        {{.key = "general.architecture", .type = GGUF_STRING, .string = "llam"}, "\"llam\""},
        {{.without = "llama.block_count"}, "the key llama.block_count is missing"},
        {{.without = "llama.context_length"}, "the key llama.context_length is missing"},
        {{.without = "llama.embedding_length"}, "the key llama.embedding_length is missing"},
        {{.without = "llama.feed_forward_length"}, "the key llama.feed_forward_length is missing"},
        {{.without = "llama.attention.head_count"},
         "the key llama.attention.head_count is missing"},
        {{.without = "llama.attention.layer_norm_rms_epsilon"},
         "layer_norm_rms_epsilon is missing"},
        {{.without = "tokenizer.ggml.tokens"}, "tokenizer.ggml.tokens is missing"},
        {{.key = "tokenizer.ggml.tokens", .number = 1}, "not an array of strings"},
        {{.key = "llama.block_count", .number = 0}, "llama.block_count is 0; expected 1"},
        {{.key = "llama.block_count", .number = 4e9}, "llama.block_count is 4000000000"},
        {{.key = "llama.block_count", .number = 3}, "blk.2.attn_norm.weight is missing"},
        {{.key = "llama.block_count", .number = 1}, "no use for the tensor blk.1.attn_norm.weight"},
        {{.key = "llama.block_count", .type = GGUF_I32, .number = -2}, "not a whole number"},
        {{.key = "llama.block_count", .type = GGUF_STRING, .string = "2"}, "not a whole number"},
        {{.key = "llama.context_length", .number = 0}, "llama.context_length is 0"},
        {{.key = "llama.embedding_length", .number = 0}, "llama.embedding_length is 0"},
        {{.key = "llama.embedding_length", .number = 34}, "not a multiple of 4 heads"},
        {{.key = "llama.embedding_length", .number = 64},
         "token_embd.weight has the shape [32, 6], expected [64, 6]"},
        {{.key = "llama.feed_forward_length", .number = 96},
         "ffn_gate.weight has the shape [32, 64], expected [32, 96]"},
        {{.key = "llama.attention.head_count", .number = 0}, "head_count is 0"},
        {{.key = "llama.attention.head_count", .number = 3}, "3 heads cannot share 2"},
        {{.key = "llama.attention.head_count_kv", .number = 0}, "head_count_kv is 0"},
        {{.key = "llama.attention.head_count_kv", .number = 8}, "4 heads cannot share 8"},
        {{.key = "llama.attention.head_count_kv", .number = 1},
         "attn_k.weight has the shape [32, 16], expected [32, 8]"},
        {{.key = "llama.attention.key_length", .number = 16},
         "attn_q.weight has the shape [32, 32], expected [32, 64]"},
        {{.key = "llama.attention.value_length", .number = 4}, "keys of 8 and values of 4 differ"},
        {{.key = "llama.attention.key_length", .number = 1 << 20}, "are wider than"},
        {{.key = "llama.attention.layer_norm_rms_epsilon", .type = GGUF_F32, .number = 0},
         "expected a finite number above 0"},
        {{.key = "llama.attention.layer_norm_rms_epsilon", .type = GGUF_F32, .number = NAN},
         "expected a finite number above 0"},
        {{.key = "llama.rope.freq_base", .type = GGUF_STRING, .string = "1"}, "is not a number"},
        {{.key = "llama.rope.freq_base", .type = GGUF_F32, .number = -1}, "freq_base is -1"},
        {{.key = "llama.rope.freq_base", .type = GGUF_F32, .number = INFINITY}, "freq_base is inf"},
        {{.key = "llama.rope.dimension_count", .number = 7}, "dimension_count is 7"},
        {{.key = "llama.rope.dimension_count", .number = 10}, "dimension_count is 10"},
        {{.key = "llama.rope.scaling.type", .type = GGUF_STRING, .string = "spiral"},
         "llama.rope.scaling.type is \"spiral\"; radish supports none, linear, yarn"},
        {{.key = "llama.rope.scaling.type", .number = 1}, "scaling.type is not a string"},
        {{.key = "llama.rope.scaling.factor", .type = GGUF_F32, .number = 1e-40}, "too small"},
        {{.key = "llama.expert_count", .number = 8}, "llama.expert_used_count is missing"},
        {{.key = "llama.expert_count", .number = 1e6}, "llama.expert_count is 1000000; expected"},
        {{.key = "llama.vocab_size", .number = 7},
         "llama.vocab_size is 7 but the tokenizer has 6 tokens"},
        {{.tensor = "token_embd.weight", .tensor_type = TENSOR_F32, EMBD_BY(5)},
         "token_embd.weight has 5 rows but the tokenizer has 6 tokens"},
        {{.without = "token_embd.weight"}, "the tensor token_embd.weight is missing"},
        {{.without = "output_norm.weight"}, "the tensor output_norm.weight is missing"},
        {{.without = "blk.1.ffn_down.weight"}, "the tensor blk.1.ffn_down.weight is missing"},
        {{.tensor = "blk.0.attn_norm.weight", .tensor_type = TENSOR_Q8_0, EMBD_BY(1)},
         "the tensor blk.0.attn_norm.weight is"},
        {{.tensor = "blk.0.attn_q.bias", .tensor_type = TENSOR_F32, .cols = 8, .rows = 1},
         "blk.0.attn_q.bias has the shape [8], expected [32]"},
        {{.tensor = "output.weight", .tensor_type = TENSOR_F32, EMBD_BY(7)},
         "output.weight has the shape [32, 7], expected [32, 6]"},
        {{.tensor = "rope_freqs.weight", .tensor_type = TENSOR_F32, .cols = 8, .rows = 1},
         "rope_freqs.weight has the shape [8], expected [4]"},
        {{.tensor = "blk.0.attn_q_norm.weight", .tensor_type = TENSOR_F32, EMBD_BY(1)},
         "no use for the tensor blk.0.attn_q_norm.weight in the architecture llama"},
        {{.tensor = "blk.0.attn_sinks.weight", .tensor_type = TENSOR_F32, .cols = HEADS, .rows = 1},
         "no use for the tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model m;
        struct error err;
        if (open_tweaked(&m, &cases[i].tweak, &err) == 0)
            test_fail(__FILE__, __LINE__, "opened, expected \"%s\"", cases[i].why);
        CHECK_INT(err.code, ERROR_FORMAT);
        CHECK(strstr(err.message, "/proc/self/fd/") == err.message);
        if (!strstr(err.message, cases[i].why))
            test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", err.message, cases[i].why);
        CHECK(!m.layers && !m.checkpoint);
        model_close(&m);
    }
}

TEST(model, refuses_rope_divisors_that_divide_by_nothing)
{
    static const float bad[] = {0, -1, INFINITY, NAN};
    struct gguf_builder b = {0};
    struct model m;
    struct error err;
    char path[64];
    build_model(&b, &(struct tweak){.tensor = "rope_freqs.weight", .cols = 4, .rows = 1});
    CHECK_INT(open_bytes(&m, b.file.data, b.file.len, path, &err), 0);
    size_t at = (size_t)((const uint8_t *)checkpoint_find(m.checkpoint, "rope_freqs.weight")->data -
                         m.checkpoint->gguf->map);
    model_close(&m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(b.file.data + at + 3 * sizeof(float), &bad[i], sizeof(float));
        CHECK_INT(open_bytes(&m, b.file.data, b.file.len, path, &err), -1);
        CHECK(strstr(err.message, "rope_freqs.weight holds"));
    }
    gguf_builder_free(&b);
}

/* The same weights under the other row of the table: keys of its own name, biases required. */
TEST(model, qwen2_needs_its_biases)
{
    struct gguf_builder b = {0};
    struct model m;
    struct error err;
    char path[64];
    build_model(&b, &(struct tweak){0});
    for (size_t at = 0; at + 5 < b.pairs.len; at++)
        if (memcmp(b.pairs.data + at, "llama", 5) == 0)
            memcpy(b.pairs.data + at, "qwen2", 5);
    gguf_builder_finish(&b);
    CHECK_INT(open_bytes(&m, b.file.data, b.file.len, path, &err), -1);
    CHECK(strstr(err.message, "the tensor blk.0.attn_q.bias is missing"));
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.attn_%c.bias", layer, "qkv"[i]);
            build_tensor(&b, name, TENSOR_F32, i == 0 ? HEADS * HEAD_DIM : KV_HEADS * HEAD_DIM, 1);
        }
    gguf_builder_finish(&b);
    if (open_bytes(&m, b.file.data, b.file.len, path, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_STR(m.hparams.arch, "qwen2");
    CHECK_INT(m.hparams.ropes[0].kind, ROPE_NEOX);
    CHECK(m.layers[1].v_bias != NULL);
    touch_model(&m);
    model_close(&m);
    gguf_builder_free(&b);
}

TEST(model, a_long_name_is_cut_between_characters)
{
    struct model m;
    char name[200];
    memset(name, 'x', sizeof name);
    strcpy(name + 126, "\xc3\xa9\xc3\xa9\n");
    CHECK_OPENS(&m, .key = "general.name", .type = GGUF_STRING, .string = name);
    CHECK_INT(strlen(m.hparams.name), 126);
    model_close(&m);
    CHECK_OPENS(&m, .key = "general.name", .type = GGUF_STRING, .string = "a\x1b[2J\nb");
    CHECK_STR(m.hparams.name, "a [2J b");
    model_close(&m);
}

TEST(model, survives_every_header_byte_changed)
{
    static const uint8_t values[] = {0x00, 0x01, 0x02, 0x09, 0x20, 0x7f, 0x80, 0xff};
    struct gguf_builder b = {0};
    int refused = 0, opened = 0;
    build_model(&b, &(struct tweak){0});
    for (size_t at = 0; at < b.header_bytes; at++) {
        char was = b.file.data[at];
        for (size_t i = 0; i < sizeof values; i++) {
            struct model m;
            struct error err;
            char path[64];
            b.file.data[at] = (char)values[i];
            if (open_bytes(&m, b.file.data, b.file.len, path, &err) == 0) {
                touch_model(&m);
                opened++;
            } else {
                CHECK(strncmp(err.message, path, strlen(path)) == 0);
                refused++;
            }
            model_close(&m);
        }
        b.file.data[at] = was;
    }
    CHECK(refused > 5000);
    CHECK(opened > 100); /* the name, the tokens, the context, the base of the rotation */
    gguf_builder_free(&b);
}

TEST(model, reads_the_default_model)
{
    struct model m;
    struct error err;
    if (!test_model_path())
        SKIP("the default model is not there");
    if (model_open(&m, test_model_path(), NULL, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_INT(m.hparams.n_layers, 30);
    CHECK_INT(m.hparams.layers[0].key_dim, 64);
    CHECK_INT(m.hparams.layers[0].n_kv_heads, 3);
    CHECK_INT(m.hparams.n_vocab, 49152);
    CHECK_INT(m.n_params, 134515008);
    CHECK(m.output.data == m.token_embd.data);
    CHECK(m.weight_bytes < m.checkpoint->file_bytes &&
          m.weight_bytes > m.checkpoint->file_bytes / 2);
    model_close(&m);
}

TEST(model, reads_stories260k)
{
    struct model m;
    struct error err;
    const char *path = test_shared_path(
        "data/models/stories260K/stories260K-f32.converted-v3.gguf");
    if (!path)
        SKIP("the shared data are not there");
    if (model_open(&m, path, NULL, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_INT(m.hparams.n_layers, 5);
    CHECK_INT(m.hparams.layers[0].key_dim, 8);
    CHECK(m.output.data != m.token_embd.data);
    touch_model(&m);
    model_close(&m);
}
