/* Directories written as GGUF files: the file gives the same logits as the directory, bit for bit
 * if the rows of q and k keep their order; and models that GGUF cannot hold are rejected. */
#include "golden_model.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "batch_rows.h"
#include "engine/cpu/cpu_engine.h"
#include "model/convert/gguf_export.h"
#include "test.h"
#include "test_memory.h"

enum { MAX_TOKENS = 64, TOKENS_AT_MOST = 24 };

static struct parallel *open_pool(void)
{
    struct parallel *pool;
    struct error err;
    CHECK_INT(parallel_open(&pool, 2, NULL, &err), 0);
    return pool;
}

static const char *scratch(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_scratch_dir(), name);
    return path;
}

/* Without a tokenizer. */
static int export_to(const struct model *m, const char *to,
                     const struct requantize_options *options, struct requantize_result *result,
                     struct error *err)
{
    struct parallel *pool = open_pool();
    struct gguf_writer none = {0};
    gguf_add_string(&none, "tokenizer.ggml.model", "none", 4);
    int failed = gguf_export(m, &none, to, pool, options, result, err);
    gguf_writer_free(&none);
    parallel_close(pool);
    return failed;
}

static void run_prompt(const struct model *m, const int32_t *tokens, uint32_t n, float *logits)
{
    struct batch_row rows[MAX_TOKENS];
    struct page_run run = {0, n};
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = n};
    struct batch batch = {.seqs = &seq, .n_seqs = 1, .rows = rows, .n_rows = n};
    struct engine_limits limits = {.n_pages = {MAX_TOKENS, MAX_TOKENS},
                                   .max_rows = MAX_TOKENS,
                                   .max_seqs = 1,
                                   .max_length = MAX_TOKENS,
                                   .kv_type = KV_F32};
    struct engine *e;
    struct error err;
    if (cpu_engine_open(&e, m, &limits, &(struct cpu_options){.n_threads = 1}, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    for (uint32_t p = 0; p < n; p++)
        rows[p] = token_row(tokens[p], p, p, 0, WANTS_LOGITS);
    if (forward_rows(e, &batch, rows, logits, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    engine_close(e);
}

static void open_form(struct model *m, const struct golden_form *form, uint32_t context)
{
    struct model_options options = {.context = context};
    struct error err;
    golden_write(form, GOLDEN_F32, 1, scratch("from"));
    if (model_open(m, scratch("from"), &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

static void check_form(const struct golden *g, const char *name, const struct golden_form *form,
                       bool same_bits)
{
    struct requantize_options options = {.type = TENSOR_F32};
    struct model_options again = {.context = g->context};
    struct requantize_result result = {0};
    struct model before, after;
    struct error err;
    const char *to = scratch("to.gguf");
    uint32_t n = g->n_tokens < TOKENS_AT_MOST ? g->n_tokens : TOKENS_AT_MOST;
    size_t count = (size_t)n * g->n_vocab;
    float *x = malloc(2 * count * sizeof *x), *y = x + count;
    open_form(&before, form, g->context);
    if (export_to(&before, to, &options, &result, &err))
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.message);
    if (model_open(&after, to, &again, &err))
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.message);
    run_prompt(&before, g->tokens, n, x);
    run_prompt(&after, g->tokens, n, y);
    double diff = 0, max = 0;
    for (size_t i = 0; i < count; i++) {
        diff = fmax(diff, fabs((double)x[i] - y[i]));
        max = fmax(max, fabs((double)x[i]));
    }
    if (same_bits ? memcmp(x, y, count * sizeof *x) != 0 : !(diff <= 1e-5 * max))
        test_fail(__FILE__, __LINE__, "%s: off by %g", name, diff / max);
    free(x);
    model_close(&after);
    model_close(&before);
    unlink(to);
}

TEST(gguf_export, a_file_gives_the_logits_of_its_directory)
{
    static const struct {
        const char *name;
        bool same_bits; /* the others' q and k have their rows in another order */
    } rows[] = {{"deepseek_v3", true},        {"gemma3", true},        {"gemma4", true},
                {"gemma4_moe", true},         {"phi3_longrope", true}, {"gpt_oss", true},
                {"qwen2_window", true},       {"qwen3_moe", true},     {"glm4_moe_lite", true},
                {"gemma2_scale", true},       {"mistral4", true},      {"cohere2", true},
                {"granitehybrid_moe", false}, {"llama3", false},       {"llama_bias", false},
                {"mixtral", false},           {"mistral", false},      {"ministral3", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct golden g;
        golden_open(&g, rows[i].name);
        check_form(&g, rows[i].name, &g.plain, rows[i].same_bits);
        check_form(&g, rows[i].name, &g.hub, rows[i].same_bits);
        golden_close(&g);
    }
}

/* 4-bit weights that GGUF supports are kept, unless another type is requested. */
TEST(gguf_export, mxfp4_is_kept)
{
    struct requantize_options options = {.type = TENSOR_Q8_0};
    struct requantize_result result = {0};
    struct golden g;
    struct model m, after;
    struct error err;
    golden_open(&g, "gpt_oss");
    open_form(&m, &g.hub, 0);
    CHECK_INT(m.layers[0].experts[1].down.type, TENSOR_FP4);
    for (int again = 0; again < 2; again++) {
        options.again = again;
        if (export_to(&m, scratch("to.gguf"), &options, &result, &err) ||
            model_open(&after, scratch("to.gguf"), NULL, &err))
            test_fail(__FILE__, __LINE__, "%s", err.message);
        CHECK_INT(after.layers[0].experts[1].down.type, again ? TENSOR_Q8_0 : TENSOR_MXFP4);
        CHECK_INT(after.layers[0].attn_q.type, TENSOR_Q8_0);
        CHECK_INT(after.layers[0].router.type, TENSOR_F32);
        CHECK(result.n_changed > 0 && result.n_changed < result.n_tensors);
        float x[256], y[256];
        const struct weight *a = &m.layers[1].experts[2].gate,
                            *b = &after.layers[1].experts[2].gate;
        CHECK(a->cols <= 256 && a->rows == b->rows && a->cols == b->cols);
        weight_floats(a, 3, 0, a->cols, x);
        weight_floats(b, 3, 0, b->cols, y);
        for (uint32_t k = 0; k < a->cols; k++)
            CHECK(again || x[k] == y[k]);
        model_close(&after);
    }
    model_close(&m);
    golden_close(&g);
    unlink(scratch("to.gguf"));
}

/* Weights that GGUF has no type for can become floats; any other type needs --allow-requantize. */
TEST(gguf_export, eight_bit_floats)
{
    uint8_t values[64] = {0};
    const struct weight w = weight_make(TENSOR_F8_E4M3, 2, 32, values);
    const struct tensor_source source = {
        .name = "blk.0.attn_q.weight", .parts = &w, .n_parts = 1, .n_dims = 2, .dims = {32, 2}};
    struct requantize_options options = {.type = TENSOR_Q8_0};
    struct requantize_result result = {0};
    struct parallel *pool = open_pool();
    struct error err = {0};
    for (size_t i = 0; i < sizeof values; i++)
        values[i] = (uint8_t)(i * 2);
    for (int i = 0; i < 3; i++) {
        struct gguf_writer head = {0};
        struct tensor_file file = {"from", scratch("to.gguf"), &head, &source, 1, NULL, NULL};
        options.type = i == 1 ? TENSOR_BF16 : TENSOR_Q8_0;
        options.again = i == 2;
        CHECK_INT(tensor_file_write(&file, pool, &options, &result, &err), i == 0 ? -1 : 0);
        gguf_writer_free(&head);
        if (i == 0) {
            CHECK(strstr(err.message, "--allow-requantize") && strstr(err.message, "bf16"));
            CHECK(access(scratch("to.gguf"), F_OK) != 0 && err.code == ERROR_INPUT);
            continue;
        }
        struct gguf g;
        CHECK_INT(gguf_open(&g, scratch("to.gguf"), &err), 0);
        CHECK_INT(gguf_tensor(&g, source.name)->type, options.type);
        gguf_close(&g);
        unlink(scratch("to.gguf"));
    }
    parallel_close(pool);
}

/* Rewrites config.json. */
static void change_config(const char *from, const char *to)
{
    char path[600];
    struct strbuf text = STRBUF_INIT;
    struct error err;
    snprintf(path, sizeof path, "%s/config.json", scratch("from"));
    CHECK_INT(file_read(path, 0, &text, &err), 0);
    char *at = strstr(text.data, from);
    CHECK(at != NULL);
    FILE *out = fopen(path, "w");
    CHECK(out &&
          fprintf(out, "%.*s%s%s", (int)(at - text.data), text.data, to, at + strlen(from)) > 0);
    CHECK_INT(fclose(out), 0);
    strbuf_free(&text);
}

TEST(gguf_export, what_gguf_cannot_say_is_refused)
{
    struct requantize_options options = {.type = TENSOR_F32};
    struct requantize_result result = {0};
    struct golden g;
    struct model m;
    struct error err = {0};
    golden_open(&g, "llama2");
    golden_write(&g.plain, GOLDEN_F32, 1, scratch("from"));
    change_config("\"silu\"", "\"gelu\"");
    if (model_open(&m, scratch("from"), NULL, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK_INT(export_to(&m, scratch("to.gguf"), &options, &result, &err), -1);
    CHECK(strstr(err.message, "cannot describe its activation") && strstr(err.message, "from"));
    CHECK(access(scratch("to.gguf"), F_OK) != 0 && access(scratch("to.gguf.tmp"), F_OK) != 0);
    model_close(&m);
    golden_close(&g);
}

TEST(gguf_export, bad_places_and_full_disks)
{
    struct requantize_options options = {.type = TENSOR_F32};
    struct requantize_result result = {0};
    struct golden g;
    struct model m;
    struct error err = {0};
    golden_open(&g, "llama2");
    open_form(&m, &g.plain, 0);
    CHECK_INT(export_to(&m, "/nowhere/at/all.gguf", &options, &result, &err), -1);
    CHECK(strstr(err.message, "/nowhere/at/all.gguf") && err.code == ERROR_IO);
    /* A device that is always full, under the file's temporary name. */
    char link[600];
    snprintf(link, sizeof link, "%s.tmp", scratch("full.gguf"));
    unlink(link);
    CHECK_INT(symlink("/dev/full", link), 0);
    CHECK_INT(export_to(&m, scratch("full.gguf"), &options, &result, &err), -1);
    CHECK(strstr(err.message, "full.gguf") && strstr(err.message, "No space left"));
    CHECK(access(scratch("full.gguf"), F_OK) != 0);
    model_close(&m);
    golden_close(&g);
}

TEST(gguf_export, no_memory)
{
    struct requantize_options options = {.type = TENSOR_F16};
    struct requantize_result result = {0};
    struct parallel *pool = open_pool();
    struct gguf_writer none = {0};
    struct golden g;
    struct model m;
    int failed = -1;
    gguf_add_string(&none, "tokenizer.ggml.model", "none", 4);
    golden_open(&g, "gemma4_moe");
    open_form(&m, &g.plain, 0);
    for (uint32_t n = 0; failed && n < 20000; n += n < 30 ? 1 : 37) {
        struct error err = {0};
        memory_ends_after(n);
        failed = gguf_export(&m, &none, scratch("to.gguf"), pool, &options, &result, &err);
        memory_is_back();
        if (failed)
            CHECK_INT(err.code, ERROR_MEMORY);
    }
    CHECK_INT(failed, 0);
    unlink(scratch("to.gguf"));
    model_close(&m);
    golden_close(&g);
    gguf_writer_free(&none);
    parallel_close(pool);
}
