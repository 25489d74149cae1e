/* Every architecture against transformers: the goldens of tests/models are written as Hugging Face
 * directories, opened and computed on every kernel path; each logit must be transformers', within
 * a tolerance. Then the law of the same bits on the kinds of layers that each has: chunks,
 * scattered pages, prefixes from the cache, neighbours in the batch, threads; and both forms of a
 * directory mean the same. Quantised, with activations of 16 bits, a model computes what its
 * weights say. The window group of KV is as small as an engine may ask for. */
#include "golden_model.h"

#include <dirent.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/cpu_engine.h"
#include "model/architecture.h"
#include "model/model_internal.h"
#include "model/quant/quantize.h"
#include "schedule.h"
#include "test.h"

static const double tolerance = 1e-4;        /* max|a-b| / max|b| over a row */
static const double exact_tolerance = 1e-3;  /* of quantised weights and 16-bit activations */
static const double rounded_tolerance = 0.1; /* and 8-bit ones, of half of the positions */

enum {
    MAX_TOKENS = 64,
    MAX_LOGITS = 128,
    MAX_SEQS = 4,
    MAX_ROWS = 160,
    N_PAGES = 400,
    N_SCHEDULES = 6,
    N_PROMPTS = SCHEDULE_PROMPTS,
};

struct prompt {
    int32_t tokens[MAX_TOKENS];
    float *plain; /* [n_tokens][n_vocab], computed in one batch alone */
};

/* One golden: its prompt, and another that begins alike. */
struct world {
    struct golden golden;
    uint32_t n_tokens, n_vocab, n_shared;
    struct prompt prompts[N_PROMPTS];
    struct model model;
};

/* A way to hand a golden's model over. */
struct written {
    const struct golden_form *form;
    enum golden_type type;
    uint32_t n_shards;
    const char *name;                 /* of the directory */
    const enum tensor_type *quantize; /* as it is opened, or NULL */
};

/* A made-up family, combined from parts of others: the example of docs/models.md. It is not in the
 * table, but opened with its row as model_open would. */
static const struct architecture made_up[] = {
#include "made_up_row.inc"
};

static int open_made_up(struct model *m, const char *directory, const enum tensor_type *quantize,
                        struct error *err)
{
    *m = (struct model){0};
    if (checkpoint_open(&m->checkpoint, directory, err))
        return -1;
    struct loader l = {
        .m = m,
        .arch = made_up,
        .settings = {.checkpoint = m->checkpoint, .prefix = "", .err = err},
    };
    int failed = read_shape(&l) || read_ropes(&l) || take_weights(&l);
    if (failed)
        model_close(m);
    else if (quantize)
        model_convert(m, *quantize);
    return failed;
}

static bool try_open(const struct world *w, struct model *m, const struct written *as,
                     struct error *err)
{
    char directory[512];
    struct model_options options = {.context = w->golden.context, .quantize = as->quantize};
    snprintf(directory, sizeof directory, "%s/%s", test_scratch_dir(), as->name);
    golden_write(as->form, as->type, as->n_shards, directory);
    if (json_equals(json_get(as->form->config, "model_type"), made_up->types[0]))
        return open_made_up(m, directory, as->quantize, err) == 0;
    return model_open(m, directory, &options, err) == 0;
}

static struct engine *open_with(const struct model *m, const char *kernels, uint32_t n_threads,
                                enum activation_type activations)
{
    struct engine *e;
    struct error err;
    struct engine_limits limits = {.n_pages = {N_PAGES, N_PAGES},
                                   .max_rows = MAX_ROWS,
                                   .max_seqs = MAX_SEQS,
                                   .max_length = MAX_TOKENS,
                                   .kv_type = KV_F32};
    struct cpu_options options = {
        .n_threads = n_threads, .activations = activations, .kernels = kernels};
    if (cpu_engine_open(&e, m, &limits, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

static struct engine *open_engine(const struct model *m, const char *kernels, uint32_t n_threads)
{
    return open_with(m, kernels, n_threads, ACTIVATIONS_Q8);
}

/* Every position is near. */
static void check_logits(const struct world *w, const char *what, const float *got,
                         const float *want, double most)
{
    for (uint32_t p = 0; p < w->n_tokens; p++) {
        size_t at = (size_t)p * w->n_vocab;
        double error = logits_error(got + at, want + at, w->n_vocab);
        if (!(error <= most))
            test_fail(__FILE__, __LINE__, "%s: position %u is off by %g", what, p, error);
    }
}

static void check_golden_logits(const struct world *w, const char *path, const float *got)
{
    check_logits(w, path, got, w->golden.logits, tolerance);
}

static void check_bits(const struct world *w, const char *what, const float *got)
{
    for (uint32_t p = 0; p < w->n_tokens; p++) {
        size_t at = (size_t)p * w->n_vocab;
        if (memcmp(got + at, w->prompts[0].plain + at, w->n_vocab * sizeof *got) != 0)
            test_fail(__FILE__, __LINE__, "%s: other bits at position %u", what, p);
    }
}

/* Every kernel path gives transformers' logits and the bits of the first. */
static void check_kernels(const struct world *w)
{
    static float got[MAX_TOKENS * MAX_LOGITS];
    for (unsigned path = 0; kernels_at(path); path++) {
        const char *name = kernels_at(path)->name;
        struct engine *e = open_engine(&w->model, name, 1);
        float *logits = path == 0 ? w->prompts[0].plain : got;
        CHECK_INT(e->info.n_vocab, w->n_vocab);
        schedule_plain(e, w->prompts[0].tokens, w->n_tokens, logits);
        check_golden_logits(w, name, logits);
        check_bits(w, name, logits);
        if (path == 0)
            schedule_plain(e, w->prompts[1].tokens, w->n_tokens, w->prompts[1].plain);
        engine_close(e);
    }
}

static void check_schedules(const struct world *w)
{
    struct schedule_world plain = {.n_tokens = w->n_tokens,
                                   .n_vocab = w->n_vocab,
                                   .n_shared = w->n_shared,
                                   .n_pages = N_PAGES,
                                   .max_seqs = MAX_SEQS,
                                   .max_rows = MAX_ROWS,
                                   .max_chunk = 20};
    for (uint32_t i = 0; i < N_PROMPTS; i++)
        plain.prompts[i] = (struct schedule_prompt){w->prompts[i].tokens, w->prompts[i].plain};
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
        struct engine *e = open_engine(&w->model, NULL, n_threads);
        struct schedule_counts counts = {0};
        for (uint32_t i = 0; i < N_SCHEDULES; i++)
            schedule_run(&plain, e, hash_pair(n_threads, i), i % 2, &counts);
        CHECK(counts.compared >= N_SCHEDULES * w->n_tokens && counts.shared > w->n_tokens / 2);
        CHECK(e->info.n_groups == 1 || counts.released > w->n_tokens / 2);
        engine_close(e);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* With 8-bit activations, a token occasionally goes to another expert: most positions are close. */
static void check_rounded_logits(const struct world *w, const float *got)
{
    double errors[MAX_TOKENS] = {0};
    for (uint32_t p = 0; p < w->n_tokens; p++) {
        size_t at = (size_t)p * w->n_vocab;
        errors[p] = logits_error(got + at, w->golden.logits + at, w->n_vocab);
    }
    qsort(errors, w->n_tokens, sizeof *errors, compare_doubles);
    double median = errors[w->n_tokens / 2];
    if (!(median <= rounded_tolerance))
        test_fail(__FILE__, __LINE__, "half of the positions are off by %g or more", median);
}

static bool is_quantised(const struct golden_form *form)
{
    for (uint32_t i = 0; i < form->n_tensors; i++)
        if (form->tensors[i].is_bytes)
            return true;
    return false;
}

static void compute(const struct world *w, const struct model *m, enum activation_type activations,
                    float *logits)
{
    struct engine *e = open_with(m, NULL, 1, activations);
    schedule_plain(e, w->prompts[0].tokens, w->n_tokens, logits);
    engine_close(e);
}

/* The same weights in another form: the same bits, except where numbers have another type. */
static void check_written(const struct world *w, const struct written *as)
{
    static float got[MAX_TOKENS * MAX_LOGITS];
    struct model m;
    struct error err;
    if (!try_open(w, &m, as, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    compute(w, &m, ACTIVATIONS_Q8, got);
    if (is_quantised(as->form))
        check_rounded_logits(w, got);
    else if (as->type == GOLDEN_F32)
        check_bits(w, as->name, got);
    else
        check_golden_logits(w, as->name, got);
    if (is_quantised(as->form)) {
        compute(w, &m, ACTIVATIONS_Q16, got);
        check_logits(w, as->name, got, w->golden.logits, exact_tolerance);
    }
    model_close(&m);
}

/* Replaces a weight that will be quantised by the resulting values, as floats. */
static void round_weight(struct weight *w, struct arena *arena, uint32_t *n_rounded)
{
    if (!w->is_converted)
        return;
    float *values = arena_alloc_array(arena, (size_t)w->rows * w->cols, sizeof *values);
    uint8_t *blocks = arena_alloc(arena, (size_t)w->cols * sizeof *values);
    CHECK(values && blocks);
    for (uint32_t r = 0; r < w->rows; r++) {
        float *row = values + (size_t)r * w->cols;
        weight_floats(w, r, 0, w->cols, row);
        quantize(w->converted_type, row, blocks, w->cols);
        dequantize(w->converted_type, blocks, row, w->cols);
    }
    *w = weight_make(TENSOR_F32, w->rows, w->cols, values);
    ++*n_rounded;
}

/* How many of its matrices will be quantised; they are floats afterwards. */
static uint32_t round_model(struct model *m)
{
    static const size_t matrices[] = {
        offsetof(struct layer_weights, attn_q),       offsetof(struct layer_weights, attn_k),
        offsetof(struct layer_weights, attn_v),       offsetof(struct layer_weights, attn_output),
        offsetof(struct layer_weights, q_a),          offsetof(struct layer_weights, q_b),
        offsetof(struct layer_weights, kv_a),         offsetof(struct layer_weights, k_b),
        offsetof(struct layer_weights, v_b),          offsetof(struct layer_weights, ffn_gate),
        offsetof(struct layer_weights, ffn_up),       offsetof(struct layer_weights, ffn_down),
        offsetof(struct layer_weights, shared_gate),  offsetof(struct layer_weights, shared_up),
        offsetof(struct layer_weights, shared_down),  offsetof(struct layer_weights, layer_gate),
        offsetof(struct layer_weights, layer_output),
    };
    uint32_t n_rounded = 0;
    round_weight(&m->output, &m->memory, &n_rounded);
    round_weight(&m->layer_proj, &m->memory, &n_rounded);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        struct layer_weights *l = &m->layers[i];
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++)
            round_weight((struct weight *)((char *)l + matrices[j]), &m->memory, &n_rounded);
        for (uint32_t x = 0; l->experts && x < m->hparams.router.n_experts; x++) {
            round_weight(&l->experts[x].gate, &m->memory, &n_rounded);
            round_weight(&l->experts[x].up, &m->memory, &n_rounded);
            round_weight(&l->experts[x].down, &m->memory, &n_rounded);
        }
    }
    return n_rounded;
}

/* Quantised as it is opened: the same as floats of those values. */
static void check_quantised(const struct world *w, const struct written *as)
{
    static float got[MAX_TOKENS * MAX_LOGITS], want[MAX_TOKENS * MAX_LOGITS];
    struct model m;
    struct error err;
    if (!try_open(w, &m, as, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    compute(w, &m, ACTIVATIONS_Q16, got);
    CHECK(round_model(&m) > 0);
    compute(w, &m, ACTIVATIONS_Q8, want);
    check_logits(w, as->name, got, want, exact_tolerance);
    model_close(&m);
}

static void world_open(struct world *w, const char *name)
{
    struct error err;
    *w = (struct world){0};
    golden_open(&w->golden, name);
    w->n_tokens = w->golden.n_tokens;
    w->n_vocab = w->golden.n_vocab;
    w->n_shared = w->n_tokens / 3;
    CHECK(w->n_tokens <= MAX_TOKENS && w->n_vocab <= MAX_LOGITS);
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        w->prompts[i].plain = malloc((size_t)w->n_tokens * w->n_vocab * sizeof(float));
        CHECK(w->prompts[i].plain != NULL);
        for (uint32_t p = 0; p < w->n_tokens; p++)
            w->prompts[i].tokens[p] = i == 0 || p < w->n_shared
                                          ? w->golden.tokens[p]
                                          : (int32_t)(hash_pair(i, p) % w->n_vocab);
    }
    if (try_open(w, &w->model, &(struct written){&w->golden.plain, GOLDEN_F32, 1, name}, &err))
        return;
    free(w->prompts[0].plain);
    free(w->prompts[1].plain);
    golden_close(&w->golden);
    test_fail(__FILE__, __LINE__, "%s", err.message);
}

static void world_close(struct world *w)
{
    model_close(&w->model);
    golden_close(&w->golden);
    for (uint32_t i = 0; i < N_PROMPTS; i++)
        free(w->prompts[i].plain);
}

static void check_model(const char *name)
{
    static struct world w;
    char other[128];
    world_open(&w, name);
    check_kernels(&w);
    check_schedules(&w);
    snprintf(other, sizeof other, "%s.shards", name);
    check_written(&w, &(struct written){&w.golden.plain, GOLDEN_F32, 2, other});
    snprintf(other, sizeof other, "%s.hub", name);
    check_written(&w, &(struct written){&w.golden.hub, GOLDEN_F32, 1, other});
    snprintf(other, sizeof other, "%s.bf16", name);
    check_written(&w, &(struct written){&w.golden.plain, GOLDEN_BF16, 1, other});
    enum tensor_type q8_0 = TENSOR_Q8_0;
    check_quantised(&w, &(struct written){&w.golden.plain, GOLDEN_F32, 1, name, &q8_0});
    world_close(&w);
}

/* Every golden is a test of its name. */
enum { MAX_GOLDENS = 200 };
static struct test_case goldens[MAX_GOLDENS];
static int n_goldens;

static void run_golden(void)
{
    check_model(test_name());
}

static int is_golden(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return end && strcmp(end, ".json") == 0;
}

__attribute__((constructor)) static void register_goldens(void)
{
    static struct dirent **found; /* they hold the names */
    int n = scandir("tests/models", &found, is_golden, alphasort);
    for (n_goldens = 0; n_goldens < n && n_goldens < MAX_GOLDENS; n_goldens++) {
        char *name = found[n_goldens]->d_name;
        *strrchr(name, '.') = '\0';
        goldens[n_goldens] = (struct test_case){"models", name, run_golden, NULL};
        test_register(&goldens[n_goldens]);
    }
}

TEST(models, every_row_of_the_table_has_a_golden)
{
    const struct architecture *a;
    bool has[256] = {false};
    CHECK(n_goldens > 0 && n_goldens < MAX_GOLDENS);
    for (int i = 0; i < n_goldens; i++) {
        struct golden g;
        char type[32];
        golden_open(&g, goldens[i].name);
        const struct json *name = json_get(g.plain.config, "model_type");
        CHECK(json_is(name, JSON_STRING));
        snprintf(type, sizeof type, "%s", name->text);
        golden_close(&g);
        for (size_t row = 0; (a = architecture_at(row)); row++)
            has[row] |= a == architecture_named(type);
    }
    for (size_t row = 0; (a = architecture_at(row)); row++)
        if (!has[row])
            test_fail(__FILE__, __LINE__, "%s has no golden", a->types[0]);
}
