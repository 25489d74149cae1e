/* Directories and files as checkpoints: which files are used, the errors for incomplete ones, names
 * and their prefixes, config.json. */
#include "model/files/checkpoint.h"

#include <fcntl.h>
#include <math.h>

#include "checkpoint_builder.h"
#include "gguf_builder.h"
#include "test_memory.h"

TEST(checkpoint, real_directory)
{
    const char *path = test_shared_path("data/models/TinyStories-656K");
    if (!path)
        SKIP("no shared data");
    struct checkpoint *c;
    struct error err = {0};
    float norm[128];
    if (checkpoint_open(&c, path, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_INT(c->kind, CHECKPOINT_SAFETENSORS);
    CHECK(c->text_config == c->config && c->gguf == NULL);
    struct weight w = get_weight(c, "model.layers.1.self_attn.k_proj", 64, 128);
    CHECK_INT(w.type, TENSOR_F32);
    CHECK_INT(w.row_bytes, 512);
    CHECK_INT(w.rows, 64);
    CHECK(w.groups.scales == NULL);
    CHECK_INT(checkpoint_vector(c, "model.norm.weight", norm, 128, &err), 0);
    CHECK(isfinite(norm[127]) && norm[127] != 0);
    checkpoint_close(c);
}

TEST(checkpoint, paths_that_are_no_model)
{
    check_refused(dir_path("paths", "none"), "No such file or directory; expected a GGUF file, or");
    mkfifo(dir_path("paths", "fifo"), 0600);
    check_refused(dir_path("paths", "fifo"), "not a regular file; expected a GGUF file, or");
    dir_text("paths", "m.safetensors", "x");
    check_refused(dir_path("paths", "m.safetensors"),
                  "give its directory, which must also have config.json");
    dir_text("paths", "text.gguf", "hello, world");
    check_refused(dir_path("paths", "text.gguf"), "not a GGUF file");
    dir_text("paths", "empty.gguf", "");
    check_refused(dir_path("paths", "empty.gguf"), "the file is empty");
    dir_text("paths", "lfs.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    check_refused(dir_path("paths", "lfs.gguf"), "a Git LFS pointer, not the file itself");
}

TEST(checkpoint, directories_that_are_no_model)
{
    dir_text("empty", "README.md", "hello");
    check_dir_refused("empty", "no model in this directory; expected a GGUF file, or config.json");
    dir_text("torch", "config.json", "{}");
    dir_text("torch", "pytorch_model-00001-of-00002.bin", "x");
    check_dir_refused(
        "torch", "(pytorch_model-00001-of-00002.bin) are in PyTorch's format, which radish does"
                 " not read; convert them to safetensors");
    dir_text("bare", "model.safetensors", "x");
    check_dir_refused("bare", "config.json is missing beside its safetensors");
    dir_text("adapter", "adapter_model.safetensors", "x");
    dir_text("adapter", "adapter_config.json", "{}");
    check_dir_refused("adapter", "this is an adapter, not a model");
    dir_text("mistral", "consolidated.safetensors", "x");
    dir_text("mistral", "params.json", "{}");
    check_dir_refused("mistral", "this is Mistral's own layout");
    dir_text("mistral", "config.json", "{}");
    check_dir_refused("mistral", "consolidated.safetensors uses Mistral's own tensor names");
    dir_text("odd", "config.json", "{}");
    dir_text("odd", "a.safetensors", "x");
    dir_text("odd", "b.safetensors", "x");
    check_dir_refused("odd", "none of its 2 safetensors files is named model.safetensors");
    dir_text("lfs", "config.json", "{}");
    dir_text("lfs", "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid x\n");
    check_dir_refused("lfs", "model.safetensors: a Git LFS pointer");
}

TEST(checkpoint, configs_that_are_none)
{
    struct st_builder b = {0};
    st_add(&b, "model.embed_tokens.weight", "F32", "[2, 2]", 16);
    dir_tensors("config", "model.safetensors", &b);
    dir_text("config", "config.json", "{\"a\":");
    check_dir_refused("config", "config.json: unexpected end of JSON");
    dir_text("config", "config.json", "[1]");
    check_dir_refused("config", "config.json: not a JSON object");
    dir_text("config", "config.json", "");
    check_dir_refused("config", "config.json: unexpected end of JSON");
    unlink(dir_path("config", "config.json"));
    dir_text("config", "config.json/x", "a directory in its place");
    check_dir_refused("config", "config.json");
}

/* Shards by an index, by their numbers, and the ways in which they are incomplete. */
TEST(checkpoint, shards)
{
    static const char first[] = "model-00001-of-00002.safetensors";
    static const char second[] = "model-00002-of-00002.safetensors";
    static const char index[] = "model.safetensors.index.json";
    struct st_builder b = {0};
    char text[512];
    dir_text("shards", "config.json", "{}");
    st_add(&b, "a", "F32", "[2, 2]", 16);
    dir_tensors("shards", first, &b);
    check_dir_refused("shards", "it has 1 of the 2 files that model-00001-of-00002.safetensors"
                                " belongs to; is the download incomplete?");
    st_add(&b, "b", "BF16", "[2, 2]", 8);
    st_add(&b, "c", "BF16", "[0]", 0);
    dir_tensors("shards", second, &b);
    struct checkpoint *c = open_dir("shards");
    CHECK_INT(c->n_tensors, 3);
    CHECK(checkpoint_find(c, "a") && checkpoint_find(c, "b") && !checkpoint_find(c, "d"));
    checkpoint_close(c);

    snprintf(text, sizeof text,
             "{\"metadata\":{\"total_size\":24},\"weight_map\":{\"a\":\"%s\",\"b\":\"%s\","
             "\"c\":\"%s\"}}",
             first, second, second);
    dir_text("shards", index, text);
    c = open_dir("shards");
    CHECK_INT(c->n_tensors, 3);
    struct stat st1, st2;
    stat(dir_path("shards", first), &st1);
    stat(dir_path("shards", second), &st2);
    CHECK_INT(c->file_bytes, st1.st_size + st2.st_size);
    checkpoint_close(c);

    snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\",\"b\":\"%s\"}}", first, first);
    dir_text("shards", index, text);
    check_dir_refused("shards", "the tensor b is not in model-00001-of-00002.safetensors, where"
                                " model.safetensors.index.json places it");
    snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\",\"b\":\"%s\"}}", second, second);
    dir_text("shards", index, text);
    check_dir_refused("shards", "the tensor a is not in model-00002-of-00002.safetensors, where");
    dir_text("shards", index, "{\"weight_map\":{\"a\":\"model-00009.safetensors\"}}");
    check_dir_refused("shards", "model-00009.safetensors is missing, but model.safetensors.index"
                                ".json lists it; is the download incomplete?");
    dir_text("shards", index, "{\"weight_map\":{\"a\":\"../paths/m.safetensors\"}}");
    check_dir_refused("shards",
                      "places the tensor a in a file that is not named like a safetensors file");
    dir_text("shards", index, "{\"weight_map\":{\"a\":7}}");
    check_dir_refused("shards", "places the tensor a in a file that is not named like");
    dir_text("shards", index, "{\"weight_map\":{}}");
    check_dir_refused("shards", "names no files");
    dir_text("shards", index, "{\"weight_map\":[]}");
    check_dir_refused("shards", "model.safetensors.index.json: it has no weight_map");
    dir_text("shards", index, "{");
    check_dir_refused("shards", "model.safetensors.index.json: unexpected end of JSON");

    unlink(dir_path("shards", index));
    st_add(&b, "a", "F32", "[2, 2]", 16);
    dir_tensors("shards", second, &b);
    check_dir_refused("shards", "the tensor a is in two of its files");
    dir_write("shards", second, "\x40\0\0\0\0\0\0\0{", 9);
    check_dir_refused("shards", "model-00002-of-00002.safetensors: the file ends (9 bytes) inside");
}

TEST(checkpoint, files_of_other_names)
{
    struct st_builder b = {0};
    st_add(&b, "a", "F32", "[2, 2]", 16);
    dir_text("mlx-old", "config.json", "{}");
    dir_tensors("mlx-old", "weights.00.safetensors", &b);
    st_add(&b, "b", "F32", "[2, 2]", 16);
    dir_tensors("mlx-old", "weights.01.safetensors", &b);
    st_add(&b, "c", "F32", "[2, 2]", 16);
    dir_tensors("mlx-old", ".hidden.safetensors", &b);
    struct checkpoint *c = open_dir("mlx-old");
    CHECK_INT(c->n_tensors, 2);
    checkpoint_close(c);
    st_add(&b, "a", "F32", "[2, 2]", 16);
    dir_text("single", "config.json", "{}");
    dir_tensors("single", "tiny.safetensors", &b);
    c = open_dir("single");
    CHECK_INT(c->n_tensors, 1);
    checkpoint_close(c);
}

/* GGUF, split: part `no` of `count` with a tensor of that name. */
static void write_part(const char *dir, const char *file, int no, int count, int told,
                       const char *tensor)
{
    struct gguf_builder b = {0};
    build_key_u32(&b, "split.no", (uint32_t)no);
    build_key_u32(&b, "split.count", (uint32_t)count);
    build_key_u32(&b, "split.tensors.count", (uint32_t)told);
    build_tensor(&b, tensor, TENSOR_F32, 4, 3);
    gguf_builder_finish(&b);
    dir_write(dir, file, b.file.data, b.file.len);
    gguf_builder_free(&b);
}

TEST(checkpoint, split_gguf)
{
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    static const char *const tensors[] = {"x", "y", "z"};
    struct checkpoint *c;
    struct error err = {0};
    for (int i = 0; i < 3; i++)
        write_part("split", names[i], i, 3, 3, tensors[i]);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(checkpoint_open(&c, dir_path("split", names[i]), &err), 0);
        CHECK_INT(c->kind, CHECKPOINT_GGUF);
        CHECK_INT(c->n_tensors, 3);
        CHECK(strstr(c->gguf->path, names[0]));
        for (int k = 0; k < 3; k++)
            CHECK_INT(get_weight(c, tensors[k], 3, 4).row_bytes, 16);
        check_weight_refused(c, "x", 4, 3, "the tensor x has the shape [4, 3], expected [3, 4]");
        checkpoint_close(c);
    }
    c = open_dir("split");
    CHECK_INT(c->n_tensors, 3);
    checkpoint_close(c);

    write_part("split", names[2], 2, 3, 3, "x");
    check_dir_refused("split", "the tensor x is in two of its files");
    write_part("split", names[2], 1, 3, 3, "z");
    check_dir_refused("split", "its metadata says part 2 of 3, its name part 3 of 3");
    write_part("split", names[2], 2, 3, 3, "z");
    write_part("split", names[0], 0, 3, 4, "x");
    check_dir_refused("split", "its parts have 3 tensors, but split.tensors.count is 4");
    write_part("split", names[0], 0, 3, 3, "x");
    unlink(dir_path("split", names[1]));
    check_refused(dir_path("split", names[2]), "m-00002-of-00003.gguf: No such file or directory"
                                               " (part 2 of 3)");
    check_dir_refused("split", "it has 2 GGUF files; give one of them");
    write_part("split", "renamed.gguf", 1, 3, 3, "y");
    check_refused(dir_path("split", "renamed.gguf"),
                  "it is part 2 of 3 but is not named NAME-00002-of-00003.gguf");
    write_part("split", "renamed.gguf", 7, 3, 3, "y");
    check_refused(dir_path("split", "renamed.gguf"), "it is part 8 of 3");
    write_part("split", "mmproj-x.gguf", 0, 1, 1, "v");
    write_part("lone", "mmproj-x.gguf", 0, 1, 1, "v");
    write_part("lone", "m.gguf", 0, 1, 1, "x");
    c = open_dir("lone");
    CHECK(checkpoint_find(c, "x"));
    checkpoint_close(c);
}

TEST(checkpoint, prefixes)
{
    static const struct {
        const char *text, *head;
    } cases[] = {
        {"model.", ""},
        {"", ""},
        {"transformer.", ""},
        {"language_model.model.", "language_model."},
        {"model.language_model.", ""},
        {"model.language_model.", "model."},
        {"language_model.", "language_model."},
        {"model.text_model.", ""},
        {"thinker.model.", "thinker."},
        {"llm.model.", "llm."},
        {"language.model.", "language."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct st_builder b = {0};
        char name[128];
        static const char *const parts[] = {"embed_tokens.weight", "layers.0.mlp.up_proj.weight",
                                            "layers.1.mlp.up_proj.weight", "norm.weight"};
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%s%s", cases[i].text, parts[k]);
            st_add(&b, name, "F32", k == 3 ? "[4]" : "[2, 4]", k == 3 ? 16 : 32);
        }
        snprintf(name, sizeof name, "%slm_head.weight", cases[i].head);
        st_add(&b, name, "F32", "[2, 4]", 32);
        struct checkpoint *c = open_tensors("prefix", "{}", &b);
        get_weight(c, "model.embed_tokens", 2, 4);
        get_weight(c, "model.layers.1.mlp.up_proj.weight", 2, 4);
        get_weight(c, "lm_head", 2, 4);
        float norm[4];
        struct error err = {0};
        CHECK_INT(checkpoint_vector(c, "model.norm.weight", norm, 4, &err), 0);
        CHECK(norm[1] == 0.25f && norm[2] == 0.5f);
        CHECK(checkpoint_find(c, name) != NULL);
        CHECK_INT(count_unused(c), 1);
        struct weight w;
        CHECK_INT(checkpoint_weight(c, "model.layers.2.mlp.up_proj", 2, 4, &w, &err), 1);
        checkpoint_close(c);
    }
}

/* Tensors outside the text model are marked; unknown ones are not. */
TEST(checkpoint, ignored_tensors)
{
    static const char *const ignored[] = {
        "vision_tower.blocks.0.weight",
        "model.visual.patch_embed.proj.weight",
        "model.vision_tower.vision_model.encoder.layers.0.weight",
        "multi_modal_projector.linear_1.weight",
        "audio_tower.layers.0.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.2.eh_proj.weight",
        "model.layers.10.mlp.up_proj.weight",
        "mtp.layers.0.weight",
        "model.layers.0.self_attn.q_proj.input_scale",
        "model.layers.0.self_attn.k_scale",
    };
    static const char *const kept[] = {"model.layers.1.mlp.up_proj.weight",
                                       "model.layers.0.mlp.visual.weight", "model.layers.x.weight",
                                       "model.embed_tokens.weight"};
    struct st_builder b = {0};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        st_add(&b, ignored[i], "F32", "[1, 2, 3, 1, 1]", 24);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        st_add(&b, kept[i], "F32", "[6]", 24);
    struct checkpoint *c = open_tensors("ignored", "{\"text_config\":{\"num_hidden_layers\":2}}",
                                        &b);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (!checkpoint_find(c, ignored[i])->is_ignored)
            test_fail(__FILE__, __LINE__, "%s is not ignored", ignored[i]);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (checkpoint_find(c, kept[i])->is_ignored)
            test_fail(__FILE__, __LINE__, "%s is ignored", kept[i]);
    checkpoint_close(c);
}

static const char *text_of(const struct checkpoint *c, const char *key)
{
    const struct json *value = json_get(c->text_config, key);
    return value ? value->text : "none";
}

TEST(checkpoint, text_config)
{
    struct st_builder b = {0};
    st_add(&b, "a", "F32", "[1]", 4);
    struct checkpoint *c = open_tensors(
        "text",
        "{\"model_type\":\"outer\",\"torch_dtype\":\"float16\",\"eos_token_id\":7,\"hidden_size\":"
        "1,"
        "\"text_config\":{\"model_type\":\"inner\",\"hidden_size\":64,\"eos_token_id\":3,"
        "\"torch_dtype\":\"bfloat16\",\"dtype\":null},\"dtype\":\"float32\"}",
        &b);
    CHECK_STR(text_of(c, "model_type"), "inner");
    CHECK_STR(text_of(c, "hidden_size"), "64");
    CHECK_STR(text_of(c, "torch_dtype"), "bfloat16");
    CHECK_STR(text_of(c, "eos_token_id"), "7"); /* as transformers generates */
    CHECK_STR(text_of(c, "dtype"), "float32");
    CHECK_INT(c->text_config->count, 5);
    CHECK(json_equals(json_get(c->config, "model_type"), "outer"));
    checkpoint_close(c);
    dir_text("text", "config.json",
             "{\"thinker_config\":{\"text_config\":{\"x\":1},\"tie_word_embeddings\":1},"
             "\"eos_token_id\":2}");
    c = open_dir("text");
    CHECK_STR(text_of(c, "x"), "1");
    CHECK_STR(text_of(c, "tie_word_embeddings"), "1");
    CHECK_STR(text_of(c, "eos_token_id"), "2");
    checkpoint_close(c);
    dir_text("text", "config.json", "{\"text_config\":null,\"x\":4,\"llm_config\":[]}");
    c = open_dir("text");
    CHECK_STR(text_of(c, "x"), "4");
    checkpoint_close(c);
}

TEST(checkpoint, other_quantisations)
{
    static const struct {
        const char *config, *why; /* NULL: it opens */
    } cases[] = {
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128}", "quantized with AWQ, which"},
        {"{\"quant_method\":\"gptq\",\"bits\":4}",
         "quantized with GPTQ, which radish does not read;"
         " use a GGUF, MLX or FP8 version"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}", "with bitsandbytes, which"},
        {"{\"load_in_8bit\":true}", "with bitsandbytes, which"},
        {"{\"quant_method\":\"fbgemm_fp8\"}", "with fbgemm_fp8, which"},
        {"{\"quant_method\":\"hqq\"}", "with HQQ, which"},
        {"{\"quant_method\":\"some\\u001bthing\"}", "with some?thing, which"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}",
         "with compressed-tensors (pack-quantized), which"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\","
         "\"config_groups\":{\"group_0\":{\"weights\":{\"type\":\"float\",\"num_bits\":8,"
         "\"strategy\":\"group\"}}}}",
         "with compressed-tensors (float-quantized, but not plain FP8"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\","
         "\"config_groups\":{\"group_0\":{\"weights\":{\"type\":\"float\",\"num_bits\":8,"
         "\"strategy\":\"channel\"}}}}",
         NULL},
        {"{\"quant_method\":\"compressed-tensors\"}", "with compressed-tensors, which"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}", "with ModelOpt, which"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}", NULL},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":\"no\"}", NULL},
        {"{\"bits\":4,\"group_size\":64}", NULL},
        {"{\"quant_method\":7}", NULL},
        {"null", NULL},
    };
    struct st_builder b = {0};
    st_add(&b, "a", "F32", "[1]", 4);
    dir_tensors("methods", "model.safetensors", &b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512];
        snprintf(config, sizeof config, "{\"quantization_config\":%s}", cases[i].config);
        dir_text("methods", "config.json", config);
        if (cases[i].why)
            check_dir_refused("methods", cases[i].why);
        else
            checkpoint_close(open_dir("methods"));
    }
    dir_text("methods", "config.json", "{}");
    st_add(&b, "model.layers.0.mlp.up_proj.qweight", "I32", "[1]", 4);
    dir_tensors("methods", "model.safetensors", &b);
    check_dir_refused("methods", "quantized with AWQ or GPTQ (it has a tensor model.layers.0.mlp"
                                 ".up_proj.qweight), which");
}

/* The hash changes with any name, shape, type, time or byte that is sampled, and only with those.
 */
TEST(checkpoint, hash)
{
    static const char *const variants[][2] = {{"a.weight", "[4, 2]"},
                                              {"a.weight", "[2, 4]"},
                                              {"b.weight", "[2, 4]"},
                                              {"a.weight", "[2, 4]"}};
    uint64_t hashes[5];
    for (int i = 0; i < 5; i++) {
        struct st_builder b = {0};
        st_add(&b, variants[i % 4][0], i == 4 ? "F16" : "F32", variants[i % 4][1],
               i == 4 ? 16 : 32);
        if (i == 3)
            b.data.data[31] ^= 1;
        struct checkpoint *c = open_tensors("hash", "{}", &b);
        struct timespec times[2] = {{7, 0}, {7, 0}};
        checkpoint_close(c);
        utimensat(AT_FDCWD, dir_path("hash", "model.safetensors"), times, 0);
        c = open_dir("hash");
        hashes[i] = checkpoint_hash(c);
        CHECK(hashes[i] == checkpoint_hash(c));
        checkpoint_close(c);
        c = open_dir("hash");
        CHECK(hashes[i] == checkpoint_hash(c));
        checkpoint_close(c);
        times[1].tv_nsec = 1;
        utimensat(AT_FDCWD, dir_path("hash", "model.safetensors"), times, 0);
        c = open_dir("hash");
        CHECK(hashes[i] != checkpoint_hash(c));
        checkpoint_close(c);
        for (int k = 0; k < i; k++)
            CHECK(hashes[k] != hashes[i]);
        times[1].tv_nsec = 0;
        utimensat(AT_FDCWD, dir_path("hash", "model.safetensors"), times, 0);
        dir_text("hash", "config.json", "{\"a\":1}");
        c = open_dir("hash");
        CHECK(hashes[i] != checkpoint_hash(c));
        checkpoint_close(c);
    }
}

TEST(checkpoint, out_of_memory)
{
    struct st_builder b = {0};
    int n = 0, rc = -1;
    st_add(&b, "model.embed_tokens.weight", "F32", "[2, 2]", 16);
    dir_text("memory", "config.json", "{\"text_config\":{\"a\":1},\"dtype\":\"float32\"}");
    dir_tensors("memory", "model-00001-of-00001.safetensors", &b);
    dir_text(
        "memory", "model.safetensors.index.json",
        "{\"weight_map\":{\"model.embed_tokens.weight\":\"model-00001-of-00001.safetensors\"}}");
    for (; rc; n++) {
        struct checkpoint *c = NULL;
        struct error err = {0};
        memory_ends_after((uint32_t)n);
        rc = checkpoint_open(&c, dir_path("memory", ""), &err);
        memory_is_back();
        CHECK(rc == 0 || (c == NULL && strstr(err.message, "memory")));
        checkpoint_close(c);
        CHECK(n < 100);
    }
    CHECK(n > 8);
}

/* A hundred thousand tensors in shards are opened and hashed quickly. */
TEST(checkpoint, many_tensors)
{
    dir_text("many", "config.json", "{\"num_hidden_layers\":2000}");
    for (int shard = 1; shard <= 4; shard++) {
        struct st_builder b = {0};
        char name[96];
        for (int i = 0; i < 25000; i++) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight",
                     (shard - 1) * 400 + i / 64, i % 64);
            st_add(&b, name, "BF16", "[1, 2]", 4);
        }
        snprintf(name, sizeof name, "model-0000%d-of-00004.safetensors", shard);
        dir_tensors("many", name, &b);
    }
    struct checkpoint *c = open_dir("many");
    CHECK_INT(c->n_tensors, 100000);
    get_weight(c, "model.layers.1200.mlp.experts.63.up_proj", 1, 2);
    CHECK(checkpoint_hash(c) != 0);
    checkpoint_close(c);
}
