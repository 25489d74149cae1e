/* Fuzzes config.json, the index of shards and what follows from both. The first byte says which of
 * the two the input is. The tensors are always the same, one of each format, and each is requested
 * as the configuration describes it. Results must lie within the files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint_builder.h"
#include "fuzz.h"

static const char shard[] = "model-00001-of-00001.safetensors";
static const char index_name[] = "model.safetensors.index.json";

static void write_tensors(void)
{
    struct st_builder b = {0};
    st_add(&b, "model.embed_tokens.weight", "BF16", "[4, 64]", 512);
    st_add(&b, "model.norm.weight", "F32", "[64]", 256);
    st_add(&b, "lm_head.weight", "U32", "[4, 8]", 128);
    st_add(&b, "lm_head.scales", "F16", "[4, 1]", 8);
    st_add(&b, "lm_head.biases", "F16", "[4, 1]", 8);
    st_add(&b, "model.layers.0.mlp.up_proj.weight", "F8_E4M3", "[4, 64]", 256);
    st_add(&b, "model.layers.0.mlp.up_proj.weight_scale_inv", "F32", "[2, 2]", 16);
    st_add(&b, "model.layers.1.mlp.experts.up_proj_blocks", "U8", "[2, 2, 2, 16]", 128);
    st_add(&b, "model.layers.1.mlp.experts.up_proj_scales", "U8", "[2, 2, 2]", 8);
    dir_tensors("m", shard, &b);
}

static volatile uint64_t touched;

static void touch(const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        touched += ((const uint8_t *)bytes)[i];
}

static void take_weights(struct checkpoint *c)
{
    static const char *const names[] = {"model.embed_tokens", "lm_head",
                                        "model.layers.0.mlp.up_proj",
                                        "model.layers.1.mlp.experts.up_proj"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct weight w;
        struct error err = {0};
        int rc = checkpoint_weight(c, names[i], 0, 64, &w, &err);
        if (rc < 0 && !strstr(err.message, test_scratch_dir()))
            abort();
        if (rc != 0)
            continue;
        touch(w.data, w.rows * w.row_bytes);
        if (w.groups.scales) {
            size_t rows = (w.rows - 1) / w.groups.rows + 1;
            size_t bytes = w.groups.scale_type == TENSOR_F32   ? 4
                           : w.groups.scale_type == TENSOR_F16 ? 2
                                                               : 1;
            touch(w.groups.scales, rows * w.groups.per_row * bytes);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static bool is_made;
    struct checkpoint *c;
    struct error err = {0};
    if (len == 0)
        return 0;
    if (!is_made)
        write_tensors();
    is_made = true;
    bool is_index = bytes[0] % 4 == 0;
    dir_text("m", "config.json", "{}");
    if (!is_index)
        unlink(dir_path("m", index_name));
    dir_write("m", is_index ? index_name : "config.json", bytes + 1, len - 1);
    if (checkpoint_open(&c, dir_path("m", ""), &err) == 0) {
        take_weights(c);
        touched += checkpoint_hash(c);
        checkpoint_close(c);
    } else if (!strstr(err.message, test_scratch_dir()) || strchr(err.message, '\n')) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return 0;
}
