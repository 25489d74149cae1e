/* Floats to blocks and back: the small types bit for bit as llama.cpp writes them (by checksums
 * from gguf-py's quantize for the same floats), all of them within the error that their bits allow,
 * and files written again. */
#include "test.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "model/convert/requantize.h"
#include "model/model.h"
#include "model/quant/quantize.h"

enum { N = 4096 };

/* Values of different sizes in each run of 256; some blocks are zeros. */
static void fill(float *x)
{
    for (int i = 0; i < N; i++) {
        float u = (float)(hash_mix((uint64_t)i) >> 40) / (1 << 23) - 1.0f;
        x[i] = i / 32 % 7 == 3 ? 0 : u * (float)(1 << i / 256 % 6);
    }
}

static uint64_t checksum(const uint8_t *bytes, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static const struct {
    enum tensor_type type;
    double error;  /* of a value, at most, over the largest of its block of 32 */
    uint64_t hash; /* as gguf-py; 0: it does not write the type */
} cases[] = {
    {TENSOR_F32, 0, 0},
    {TENSOR_F16, 0x1p-11, 0x4c20fbb644684e03u},
    {TENSOR_BF16, 0x1p-8, 0xa60a5b351e65668fu},
    {TENSOR_Q8_0, 0.6 / 127, 0x89ee8f328076ffe8u},
    {TENSOR_Q6_K, 1.3 / 32, 0},
    {TENSOR_Q5_K, 2.0 / 31, 0},
    {TENSOR_Q5_1, 1.1 / 31, 0xc934275e1bd80129u},
    {TENSOR_Q5_0, 1.1 / 16, 0xf9667f0dae30ed97u},
    {TENSOR_Q4_K, 2.2 / 15, 0},
    {TENSOR_Q4_1, 1.1 / 15, 0x46c0dee8e56a3f26u},
    {TENSOR_Q4_0, 1.1 / 8, 0xb3d7a9aa4ac3e394u},
};

TEST(quantize, keeps_what_the_bits_allow)
{
    static float x[N], back[N];
    static uint8_t blocks[N * 4];
    fill(x);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct tensor_type_info *info = tensor_type_info(cases[c].type);
        enum tensor_type named;
        CHECK(quantize_type(info->name, &named) && named == cases[c].type);
        quantize(cases[c].type, x, blocks, N);
        size_t len = N / info->block_len * info->block_bytes;
        if (cases[c].hash && checksum(blocks, len) != cases[c].hash)
            test_fail(__FILE__, __LINE__, "%s is not as gguf-py writes it", info->name);
        dequantize(cases[c].type, blocks, back, N);
        for (int b = 0; b < N; b += 32) {
            double largest = 0, worst = 0;
            for (int i = b; i < b + 32; i++) {
                largest = fmax(largest, fabs((double)x[i]));
                worst = fmax(worst, fabs((double)x[i] - (double)back[i]));
            }
            if (worst > cases[c].error * largest + 1e-9)
                test_fail(__FILE__, __LINE__, "%s: block %d is off by %g of %g", info->name, b / 32,
                          worst, largest);
        }
    }
}

/* NaNs and infinities in the second half leave the blocks of the first half unchanged. */
TEST(quantize, survives_what_is_no_number)
{
    static float x[N], back[N];
    static uint8_t clean[N * 4], blocks[N * 4];
    for (size_t c = 3; c < sizeof cases / sizeof *cases; c++) {
        const struct tensor_type_info *info = tensor_type_info(cases[c].type);
        fill(x);
        quantize(cases[c].type, x, clean, N);
        for (int i = N / 2; i < N; i += 5)
            x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -3e38f;
        quantize(cases[c].type, x, blocks, N);
        CHECK(memcmp(blocks, clean, N / 2 / info->block_len * info->block_bytes) == 0);
        dequantize(cases[c].type, blocks, back, N);
        for (int i = 0; i < N / 2; i++)
            CHECK(isfinite(back[i]));
    }
}

TEST(quantize, names_are_known_or_not)
{
    enum tensor_type type;
    CHECK(quantize_type("Q4_K", &type) && type == TENSOR_Q4_K);
    CHECK(quantize_type("q4_k", &type));
    CHECK(!quantize_type("q3_k", &type) && !quantize_type("", &type) &&
          !quantize_type("q4", &type));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        CHECK(strcasestr(quantize_names(), tensor_type_info(cases[c].type)->name));
}

TEST(quantize, chooses_a_type_that_fits)
{
    CHECK_INT(quantize_choose(TENSOR_Q4_K, 512, false), TENSOR_Q4_K);
    CHECK_INT(quantize_choose(TENSOR_Q4_K, 576, false), TENSOR_Q5_0);
    CHECK_INT(quantize_choose(TENSOR_Q4_0, 512, true), TENSOR_Q6_K);
    CHECK_INT(quantize_choose(TENSOR_Q4_0, 96, true), TENSOR_Q8_0);
    CHECK_INT(quantize_choose(TENSOR_Q8_0, 512, true), TENSOR_Q8_0);
    CHECK_INT(quantize_choose(TENSOR_Q8_0, 20, false), TENSOR_F16);
}

TEST(quantize, writes_a_file_again)
{
    const char *from = test_shared_path(
        "data/models/stories260K/stories260K-f32.converted-v3.gguf");
    if (!from)
        SKIP("the shared data are not there");
    char to[256];
    struct checkpoint *c;
    struct parallel *pool;
    struct model before, after;
    struct requantize_options options = {.type = TENSOR_Q8_0};
    struct requantize_result result;
    struct error err;
    snprintf(to, sizeof to, "%s/again.gguf", test_scratch_dir());
    CHECK_INT(checkpoint_open(&c, from, &err), 0);
    CHECK_INT(parallel_open(&pool, 2, NULL, &err), 0);
    if (requantize(c, to, pool, &options, &result, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_INT(result.n_tensors, c->n_tensors);
    CHECK(result.n_changed > 5 && result.bytes_after < result.bytes_before / 2);
    CHECK_INT(model_open(&before, from, NULL, &err), 0);
    if (model_open(&after, to, NULL, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_INT(after.layers[1].attn_q.type, TENSOR_Q8_0);
    CHECK_STR(after.hparams.name, before.hparams.name);
    CHECK(after.layers[1].attn_norm[3] == before.layers[1].attn_norm[3]);
    float x[64], y[64];
    weight_floats(&before.layers[4].attn_q, 5, 0, 64, x);
    weight_floats(&after.layers[4].attn_q, 5, 0, 64, y);
    for (int i = 0; i < 64; i++)
        CHECK(fabsf(x[i] - y[i]) < 0.01f);
    model_close(&after);
    model_close(&before);
    checkpoint_close(c);

    /* Quantised weights are not silently quantised again; a bad path leaves nothing behind. */
    CHECK_INT(checkpoint_open(&c, to, &err), 0);
    options.type = TENSOR_Q4_0;
    CHECK_INT(requantize(c, "/nowhere/at/all.gguf", pool, &options, &result, &err), -1);
    CHECK(strstr(err.message, "would lose accuracy") && strstr(err.message, "--allow-requantize"));
    options.type = TENSOR_F16;
    CHECK_INT(requantize(c, "/nowhere/at/all.gguf", pool, &options, &result, &err), -1);
    CHECK(strstr(err.message, "is already Q8_0; converting it to F16 does not bring lost precision "
                              "back. Start from a float file, or use --allow-requantize"));
    options.type = TENSOR_Q4_0;
    options.again = true;
    CHECK_INT(requantize(c, "/nowhere/at/all.gguf", pool, &options, &result, &err), -1);
    CHECK(strstr(err.message, "/nowhere/at/all.gguf"));
    checkpoint_close(c);
    parallel_close(pool);
    unlink(to);
}
