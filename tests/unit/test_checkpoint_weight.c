/* Weights of directories in every format, with the tensors that belong to them; and everything that
 * makes one unreadable, with the error message. */
#include "checkpoint_builder.h"
#include "gguf_builder.h"

TEST(checkpoint_weight, plain_weights)
{
    struct st_builder b = {0};
    struct error err = {0};
    struct weight w;
    float v[8];
    st_add(&b, "a.weight", "F32", "[3, 4]", 48);
    st_add(&b, "b.weight", "BF16", "[2, 3, 4]", 48);
    st_add(&b, "c.weight", "F16", "[8]", 16);
    st_add(&b, "d.weight", "F64", "[1, 2]", 16);
    st_add(&b, "e.weight", "I32", "[1, 2]", 8);
    st_add(&b, "f", "F32", "[2, 4]", 32);
    st_add(&b, "g.weight", "F32", "[0, 4]", 0);
    struct checkpoint *c = open_tensors("plain", "{}", &b);
    w = get_weight(c, "b", 6, 4);
    CHECK(w.type == TENSOR_BF16 && w.rows == 6 && w.row_bytes == 8);
    CHECK_INT(get_weight(c, "b", 0, 4).rows, 6);
    CHECK_INT(get_weight(c, "c", 1, 8).rows, 1);
    CHECK_INT(get_weight(c, "f", 2, 4).rows, 2);
    CHECK(!checkpoint_find(c, "a.weight")->is_used && checkpoint_find(c, "b.weight")->is_used);
    check_weight_refused(c, "a", 4, 3, "the tensor a.weight has the shape [3, 4], expected [4, 3]");
    check_weight_refused(c, "b", 2, 4, "b.weight has the shape [2, 3, 4], expected [2, 4]");
    check_weight_refused(c, "c", 1, 4, "c.weight has the shape [8], expected [4]");
    check_weight_refused(c, "d", 1, 2, "the tensor d.weight is F64; radish reads weights of F32");
    check_weight_refused(c, "e.weight", 1, 2, "the tensor e.weight is I32; radish reads weights");
    check_weight_refused(c, "g", 0, 4, "g.weight has the shape [0, 4], expected");
    CHECK_INT(checkpoint_weight(c, "none", 1, 1, &w, &err), 1);
    CHECK_INT(checkpoint_weight(c, "", 1, 1, &w, &err), 1);
    CHECK_INT(checkpoint_vector(c, "f", v, 8, &err), 0);
    CHECK(v[0] == 0 && v[7] == 1.75f);
    CHECK_INT(checkpoint_vector(c, "d.weight", v, 2, &err), 0);
    CHECK_INT(checkpoint_vector(c, "none", v, 2, &err), 1);
    CHECK_INT(checkpoint_vector(c, "f", v, 7, &err), -1);
    CHECK(strstr(err.message, "f has the shape [2, 4], expected [7]"));
    CHECK_INT(checkpoint_vector(c, "e.weight", v, 2, &err), -1);
    CHECK(strstr(err.message, "e.weight is I32; radish reads norms and biases of"));
    checkpoint_close(c);
}

static void put(struct strbuf *out, const void *bytes, size_t len)
{
    strbuf_add(out, bytes, len);
}

/* Vectors of every float type come out with the same values. */
TEST(checkpoint_weight, vectors)
{
    static const float values[] = {1, -2.5f, 0.125f, 1024};
    struct strbuf file = STRBUF_INIT, data = STRBUF_INIT;
    static const char header[] =
        "{\"f64\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,32]},"
        "\"f32\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[32,48]},"
        "\"f16\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[48,56]},"
        "\"bf16\":{\"dtype\":\"BF16\",\"shape\":[4,1],\"data_offsets\":[56,64]}}";
    for (int i = 0; i < 4; i++)
        put(&data, &(double){(double)values[i]}, 8);
    put(&data, values, sizeof values);
    for (int i = 0; i < 4; i++)
        put(&data, &(uint16_t){f32_to_f16(values[i])}, 2);
    for (int i = 0; i < 4; i++)
        put(&data, &(uint16_t){f32_to_bf16(values[i])}, 2);
    st_file(&file, header, sizeof header - 1, data.data, data.len);
    dir_text("vectors", "config.json", "{}");
    dir_write("vectors", "model.safetensors", file.data, file.len);
    struct checkpoint *c = open_dir("vectors");
    static const char *const names[] = {"f64", "f32", "f16", "bf16"};
    for (int i = 0; i < 4; i++) {
        float got[4];
        struct error err = {0};
        CHECK_INT(checkpoint_vector(c, names[i], got, 4, &err), 0);
        CHECK(memcmp(got, values, sizeof got) == 0);
    }
    checkpoint_close(c);
    strbuf_free(&file);
    strbuf_free(&data);
}

/* Data at any address is read; weights are copied to where their type may be read from. */
TEST(checkpoint_weight, unaligned_data)
{
    for (size_t shift = 0; shift < 4; shift++) {
        struct st_builder b = {0};
        struct strbuf file = STRBUF_INIT;
        st_add(&b, "a.weight", "F32", "[2, 4]", 32);
        st_add(&b, "b.weight", "BF16", "[2, 4]", 16);
        st_finish(&b, shift, &file);
        dir_text("unaligned", "config.json", "{}");
        dir_write("unaligned", "model.safetensors", file.data, file.len);
        struct checkpoint *c = open_dir("unaligned");
        struct weight w = get_weight(c, "a", 2, 4), again = get_weight(c, "a", 2, 4);
        CHECK_INT((uintptr_t)w.data % 4, 0);
        CHECK_INT((uintptr_t)get_weight(c, "b", 2, 4).data % 2, 0);
        CHECK(memcmp(w.data, file.data + file.len - 48, 32) == 0);
        CHECK(w.data == again.data);
        float v[8];
        struct error err = {0};
        CHECK_INT(checkpoint_vector(c, "a.weight", v, 8, &err), 0);
        CHECK(v[3] == 0.75f);
        checkpoint_close(c);
        strbuf_free(&file);
    }
}

static void check_groups(const struct weight *w, uint32_t rows, uint32_t cols, uint32_t per_row,
                         enum tensor_type scale_type)
{
    CHECK_INT(w->groups.rows, rows);
    CHECK_INT(w->groups.cols, cols);
    CHECK_INT(w->groups.per_row, per_row);
    CHECK_INT(w->groups.scale_type, scale_type);
    CHECK_INT(w->groups.first_row, 0);
    CHECK_INT(w->groups.row_step, 1);
    CHECK(w->groups.scales != NULL);
}

TEST(checkpoint_weight, fp8_weights)
{
    struct st_builder b = {0};
    st_add(&b, "block.weight", "F8_E4M3", "[100, 192]", 19200);
    st_add(&b, "block.weight_scale_inv", "F32", "[2, 3]", 24);
    st_add(&b, "row.weight", "F8_E4M3", "[6, 64]", 384);
    st_add(&b, "row.weight_scale", "BF16", "[6, 1]", 12);
    st_add(&b, "row1.weight", "F8_E4M3", "[6, 64]", 384);
    st_add(&b, "row1.weight_scale", "F32", "[6]", 24);
    st_add(&b, "all.weight", "F8_E4M3", "[6, 64]", 384);
    st_add(&b, "all.weight_scale", "F32", "[]", 4);
    st_add(&b, "all.input_scale", "F32", "[]", 4);
    st_add(&b, "one.weight", "F8_E4M3", "[6, 64]", 384);
    st_add(&b, "one.scale", "F8_E8M0", "[6, 2]", 12);
    st_add(&b, "stack", "F8_E4M3", "[3, 128, 64]", 24576);
    st_add(&b, "stack_scale_inv", "F32", "[3, 2, 1]", 24);
    st_add(&b, "each.weight", "F8_E4M3", "[3, 5, 64]", 960);
    st_add(&b, "each.weight_scale", "F32", "[3]", 12);
    st_add(&b, "ragged.weight", "F8_E4M3", "[2, 100, 64]", 12800);
    st_add(&b, "ragged.weight_scale_inv", "F32", "[2, 2, 1]", 16);
    st_add(&b, "narrow.weight", "F8_E4M3", "[2, 96]", 192);
    st_add(&b, "narrow.weight_scale", "F32", "[2, 4]", 32);
    st_add(&b, "wrong.weight", "F8_E4M3", "[6, 64]", 384);
    st_add(&b, "wrong.weight_scale", "F32", "[5]", 20);
    st_add(&b, "typed.weight", "F8_E4M3", "[6, 64]", 384);
    st_add(&b, "typed.weight_scale", "I32", "[6]", 24);
    st_add(&b, "lone.weight", "F8_E4M3", "[6, 64]", 384);
    struct checkpoint *c = open_tensors(
        "fp8", "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[64,64]}}",
        &b);
    struct weight w = get_weight(c, "block", 100, 192);
    CHECK(w.type == TENSOR_F8_E4M3 && w.row_bytes == 192 && w.rows == 100);
    check_groups(&w, 64, 64, 3, TENSOR_F32);
    CHECK(w.groups.scales == checkpoint_find(c, "block.weight_scale_inv")->data);
    CHECK(checkpoint_find(c, "block.weight_scale_inv")->is_used);
    w = get_weight(c, "row", 6, 64);
    check_groups(&w, 1, 64, 1, TENSOR_BF16);
    w = get_weight(c, "row1.weight", 6, 64);
    check_groups(&w, 1, 64, 1, TENSOR_F32);
    w = get_weight(c, "all", 6, 64);
    check_groups(&w, 6, 64, 1, TENSOR_F32);
    w = get_weight(c, "one", 6, 64);
    check_groups(&w, 1, 32, 2, TENSOR_E8M0);
    w = get_weight(c, "stack", 384, 64);
    CHECK_INT(w.rows, 384);
    check_groups(&w, 64, 64, 1, TENSOR_F32);
    w = get_weight(c, "each", 15, 64);
    check_groups(&w, 5, 64, 1, TENSOR_F32);
    check_weight_refused(c, "ragged", 200, 64, "cannot be the scales of ragged.weight, F8_E4M3");
    check_weight_refused(c, "narrow", 2, 96, "cannot be the scales of narrow.weight");
    check_weight_refused(c, "wrong", 6, 64,
                         "wrong.weight_scale F32 [5] cannot be the scales of"
                         " wrong.weight, F8_E4M3 [6, 64]");
    check_weight_refused(c, "typed", 6, 64, "typed.weight_scale I32 [6] cannot be the scales");
    check_weight_refused(c, "lone", 6, 64, "lone.weight is F8_E4M3 and has no scales beside it");
    check_weight_refused(c, "row", 6, 32, "row.weight has the shape [6, 64], expected [6, 32]");
    CHECK(checkpoint_find(c, "all.input_scale")->is_ignored);
    checkpoint_close(c);
}

TEST(checkpoint_weight, mxfp4_blocks)
{
    struct st_builder b = {0};
    st_add(&b, "model.layers.0.mlp.experts.up_proj_blocks", "U8", "[2, 6, 3, 16]", 576);
    st_add(&b, "model.layers.0.mlp.experts.up_proj_scales", "U8", "[2, 6, 3]", 36);
    st_add(&b, "short_blocks", "U8", "[2, 3, 16]", 96);
    st_add(&b, "short_scales", "U8", "[2, 2]", 4);
    st_add(&b, "lone_blocks", "U8", "[2, 3, 16]", 96);
    st_add(&b, "bytes.weight", "U8", "[2, 16]", 32);
    st_add(&b, "flat_blocks", "U8", "[96]", 96);
    st_add(&b, "flat_scales", "U8", "[6]", 6);
    struct checkpoint *c = open_tensors(
        "mxfp4", "{\"quantization_config\":{\"quant_method\":\"mxfp4\"}}", &b);
    struct weight w = get_weight(c, "model.layers.0.mlp.experts.up_proj", 12, 96);
    CHECK(w.type == TENSOR_FP4 && w.rows == 12 && w.row_bytes == 48);
    check_groups(&w, 1, 32, 3, TENSOR_E8M0);
    CHECK_INT(count_unused(c), 6);
    check_weight_refused(c, "model.layers.0.mlp.experts.up_proj", 6, 96, "expected [6, 96]");
    check_weight_refused(c, "model.layers.0.mlp.experts.up_proj", 12, 64, "expected [12, 64]");
    check_weight_refused(c, "short", 2, 96, "short_scales U8 [2, 2] cannot be the scales of");
    check_weight_refused(c, "lone", 2, 96,
                         "lone_blocks is U8, which radish reads only with scales");
    check_weight_refused(c, "bytes", 2, 16, "bytes.weight is U8, which radish reads only with");
    check_weight_refused(c, "flat", 6, 32, "flat_blocks has the shape [96], expected [6, 32]");
    checkpoint_close(c);
}

static void add_mlx(struct st_builder *b, const char *name, size_t words, const char *scale_dtype,
                    size_t per_row, bool has_biases)
{
    char full[96], shape[32];
    size_t scale_bytes = strcmp(scale_dtype, "U8") == 0    ? 1
                         : strcmp(scale_dtype, "F32") == 0 ? 4
                                                           : 2;
    snprintf(full, sizeof full, "%s.weight", name);
    snprintf(shape, sizeof shape, "[3, %zu]", words);
    st_add(b, full, "U32", shape, 3 * words * 4);
    snprintf(full, sizeof full, "%s.scales", name);
    snprintf(shape, sizeof shape, "[3, %zu]", per_row);
    st_add(b, full, scale_dtype, shape, 3 * per_row * scale_bytes);
    snprintf(full, sizeof full, "%s.biases", name);
    if (has_biases)
        st_add(b, full, scale_dtype, shape, 3 * per_row * scale_bytes);
}

/* Every mode of MLX, for 128 columns. */
TEST(checkpoint_weight, mlx_weights)
{
    static const struct {
        const char *name;
        size_t words, per_row;
        const char *scales;
        enum tensor_type type, scale_type;
    } cases[] = {
        {"a2", 8, 4, "BF16", TENSOR_AFFINE_2, TENSOR_BF16},
        {"a3", 12, 2, "F16", TENSOR_AFFINE_3, TENSOR_F16},
        {"a4", 16, 1, "F32", TENSOR_AFFINE_4, TENSOR_F32},
        {"a5", 20, 2, "BF16", TENSOR_AFFINE_5, TENSOR_BF16},
        {"a6", 24, 2, "BF16", TENSOR_AFFINE_6, TENSOR_BF16},
        {"a8", 32, 2, "BF16", TENSOR_AFFINE_8, TENSOR_BF16},
        {"mxfp4", 16, 4, "U8", TENSOR_FP4, TENSOR_E8M0},
        {"mxfp8", 32, 4, "U8", TENSOR_F8_E4M3, TENSOR_E8M0},
        {"nvfp4", 16, 8, "U8", TENSOR_FP4, TENSOR_F8_E4M3},
    };
    struct st_builder b = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        add_mlx(&b, cases[i].name, cases[i].words, cases[i].scales, cases[i].per_row,
                strcmp(cases[i].scales, "U8") != 0);
    struct checkpoint *c = open_tensors(
        "mlx",
        "{\"quantization\":{\"group_size\":64,\"bits\":4,\"a2\":{\"group_size\":32,\"bits\":2},"
        "\"mxfp4\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"},\"a8\":true}}",
        &b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weight w = get_weight(c, cases[i].name, 3, 128);
        CHECK_INT(w.type, cases[i].type);
        CHECK_INT(w.row_bytes, cases[i].words * 4);
        check_groups(&w, 1, (uint32_t)(128 / cases[i].per_row), (uint32_t)cases[i].per_row,
                     cases[i].scale_type);
        CHECK((w.groups.biases != NULL) == (strcmp(cases[i].scales, "U8") != 0));
    }
    CHECK_INT(count_unused(c), 0);
    checkpoint_close(c);
}

/* One scale for all of a weight: MLX's over nvfp4, and GGUF's. */
TEST(checkpoint_weight, whole_scales)
{
    struct st_builder b = {0};
    struct gguf_builder g = {0};
    struct error err = {0};
    struct checkpoint *c;
    float value = 3;
    add_mlx(&b, "one", 16, "U8", 8, false);
    st_add(&b, "one.global_scale", "F32", "[]", 4);
    memcpy(b.data.data + b.data.len - 4, &value, 4);
    add_mlx(&b, "zero", 16, "U8", 8, false);
    st_add(&b, "zero.global_scale", "F32", "[]", 4);
    c = open_tensors("whole", "{\"quantization\":{\"group_size\":16,\"bits\":4}}", &b);
    CHECK(get_weight(c, "one", 3, 128).groups.scale == 3.0f / 2688);
    check_weight_refused(c, "zero", 3, 128,
                         "zero.global_scale holds 0, which is not a valid scale");
    checkpoint_close(c);

    build_tensor(&g, "blk.0.a.weight", TENSOR_F32, 4, 3);
    build_tensor(&g, "blk.0.a.scale", TENSOR_F32, 1, 1);
    build_tensor(&g, "blk.0.a.input_scale", TENSOR_F32, 1, 1);
    build_tensor(&g, "blk.0.exps.weight", TENSOR_F32, 4, 3);
    build_tensor(&g, "blk.0.exps.scale", TENSOR_F32, 3, 1);
    gguf_builder_finish(&g);
    dir_write("whole", "m.gguf", g.file.data, g.file.len);
    gguf_builder_free(&g);
    CHECK_INT(checkpoint_open(&c, dir_path("whole", "m.gguf"), &err), 0);
    CHECK(get_weight(c, "blk.0.a.weight", 3, 4).groups.scale == 0.5f);
    CHECK(get_weight(c, "blk.0.exps.weight", 3, 4).groups.scale == 0);
    CHECK_INT(count_unused(c), 1); /* the scales of the experts, for callers that split them */
    checkpoint_close(c);
}

TEST(checkpoint_weight, mlx_weights_refused)
{
    static const char config[] = "{\"quantization\":{\"group_size\":64,\"bits\":4,\"off\":false,"
                                 "\"bits\\u0038\":{\"bits\":8},"
                                 "\"group\":{\"group_size\":32},\"mode\":{\"mode\":\"mxfp4\"}}}";
    struct st_builder b = {0};
    add_mlx(&b, "off", 16, "BF16", 2, true);
    add_mlx(&b, "bits8", 16, "BF16", 2, true);
    add_mlx(&b, "group", 16, "BF16", 2, true);
    add_mlx(&b, "mode", 16, "BF16", 2, true);
    add_mlx(&b, "seven", 28, "BF16", 2, true);
    add_mlx(&b, "ungrouped", 16, "BF16", 3, true);
    add_mlx(&b, "bytes", 16, "U8", 2, false);
    add_mlx(&b, "unbiased", 16, "BF16", 2, false);
    add_mlx(&b, "global", 16, "U8", 8, false);
    st_add(&b, "global.global_scale", "F32", "[3]", 12);
    st_add(&b, "short.weight", "U32", "[3, 16]", 192);
    st_add(&b, "short.scales", "BF16", "[2, 2]", 8);
    st_add(&b, "short.biases", "BF16", "[2, 2]", 8);
    st_add(&b, "biases.weight", "U32", "[3, 16]", 192);
    st_add(&b, "biases.scales", "BF16", "[3, 2]", 12);
    st_add(&b, "biases.biases", "F32", "[3, 2]", 24);
    st_add(&b, "lone.weight", "U32", "[3, 16]", 192);
    struct checkpoint *c = open_tensors("mlx-bad", config, &b);
    check_weight_refused(
        c, "off", 3, 128,
        "off.weight is quantised (affine, 4 bits, groups of 64), but config.json says otherwise");
    check_weight_refused(c, "bits8", 3, 128, "bits8.weight is quantised (affine, 4 bits");
    check_weight_refused(c, "group", 3, 128, "group.weight is quantised (affine, 4 bits");
    check_weight_refused(c, "mode", 3, 128, "mode.weight is quantised (affine, 4 bits");
    check_weight_refused(c, "seven", 3, 128, "is in no format of MLX for 128 columns");
    check_weight_refused(c, "ungrouped", 3, 128, "is in no format of MLX for 128 columns");
    check_weight_refused(c, "bytes", 3, 128, "is in no format of MLX for 128 columns");
    check_weight_refused(c, "off", 3, 96, "is in no format of MLX for 96 columns");
    check_weight_refused(c, "off", 2, 128, "expected [2, 128]");
    check_weight_refused(c, "short", 3, 128, "is in no format of MLX");
    check_weight_refused(c, "unbiased", 3, 128, "has scales, but no biases beside it");
    check_weight_refused(c, "biases", 3, 128, "biases.biases F32 [3, 2] cannot be the biases of");
    check_weight_refused(c, "global", 3, 128, "global.global_scale F32 [3] cannot be the scale of");
    check_weight_refused(c, "lone", 3, 128, "lone.weight is U32, which radish reads only as MLX's");
    checkpoint_close(c);
    add_mlx(&b, "a", 16, "BF16", 2, true);
    c = open_tensors("mlx-bad", "{}", &b);
    check_weight_refused(c, "a", 3, 128,
                         "a.weight is U32, which radish reads only as MLX's, with"
                         " scales and config.json's \"quantization\"");
    checkpoint_close(c);
}

TEST(checkpoint_weight, raw_files)
{
    static const char *const files[] = {
        "embed_tokens.bin",
        "layer0.attn.q_proj.bin",
        "layer0.attn.q_proj.bias.bin",
        "layer0.attn_norm.bin",
        "layer0.post_layernorm.bin",
        "layer0.mlp.down_proj.bin",
        "layers.11.self_attn.o_proj.weight.bin",
        "layer_2.feed_forward.up_proj.bin",
        "final_norm.bin",
        "lm_head.bin",
        "model.layers.3.mlp.gate_proj.weight.bin",
        "layer4.attn.k_proj_bias.bin",
    };
    static const char *const canonical[] = {
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.11.self_attn.o_proj.weight",
        "model.layers.2.mlp.up_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.3.mlp.gate_proj.weight",
        "model.layers.4.self_attn.k_proj.bias",
    };
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[8];
    struct error err = {0};
    size_t n = sizeof files / sizeof *files;
    dir_text("raw", "config.json", "{}");
    char name[128];
    dir_text("raw", "bin_weights/README", "");
    check_dir_refused("raw", "bin_weights: no files with weights (*.bin) in it");
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "bin_weights/%s", files[i]);
        dir_write("raw", name, values, sizeof values);
    }
    struct checkpoint *c = open_dir("raw");
    CHECK_INT(c->kind, CHECKPOINT_BIN);
    CHECK_INT(c->n_tensors, n);
    CHECK_INT(c->file_bytes, n * sizeof values);
    for (size_t i = 0; i < n; i++) {
        if (!checkpoint_find(c, canonical[i]))
            test_fail(__FILE__, __LINE__, "%s is not %s", files[i], canonical[i]);
        CHECK_INT(checkpoint_vector(c, canonical[i], got, 8, &err), 0);
        CHECK(memcmp(got, values, sizeof got) == 0);
    }
    CHECK_INT(count_unused(c), 0);
    struct weight w = get_weight(c, "model.embed_tokens", 2, 4);
    CHECK(w.type == TENSOR_F32 && w.row_bytes == 16);
    CHECK_INT(get_weight(c, "model.embed_tokens", 0, 4).rows, 2);
    struct weight none;
    CHECK_INT(checkpoint_weight(c, "model.layers.9.mlp.up_proj", 2, 4, &none, &err), 1);
    CHECK_INT(checkpoint_weight(c, "lm_head", 2, 8, &none, &err), -1);
    CHECK(strstr(err.message, "bin_weights/lm_head.bin: 32 bytes, expected 64 for 16 values of"
                              " float32"));
    CHECK_INT(checkpoint_weight(c, "lm_head", 0, 64, &none, &err), -1);
    CHECK_INT(checkpoint_vector(c, "lm_head.weight", got, 3, &err), -1);
    checkpoint_close(c);

    dir_text("raw", "config.json", "{\"torch_dtype\":\"bfloat16\"}");
    c = open_dir("raw");
    CHECK_INT(get_weight(c, "lm_head", 4, 4).type, TENSOR_BF16);
    CHECK_INT(get_weight(c, "lm_head", 2, 4).type, TENSOR_F32);
    CHECK_INT(checkpoint_weight(c, "lm_head", 3, 4, &none, &err), -1);
    CHECK(strstr(err.message, "lm_head.bin: 32 bytes, expected 24 or 48 for 12 values of bfloat16"
                              " or float32"));
    checkpoint_close(c);
    dir_text("raw", "config.json", "{\"dtype\":\"float16\"}");
    c = open_dir("raw");
    CHECK_INT(get_weight(c, "lm_head", 4, 4).type, TENSOR_F16);
    checkpoint_close(c);

    dir_write("raw", "bin_weights/norm.bin", values, 4);
    check_dir_refused("raw", "the tensor model.norm.weight is in two of its files");
    unlink(dir_path("raw", "bin_weights/norm.bin"));
    dir_text("raw", "bin_weights/lm_head.bin", "");
    check_dir_refused("raw", "bin_weights/lm_head.bin: the file is empty");
}
