/* Logits of a device against the CPU engine's in floats. The reference has the values of the packed
 * weights (device.h), so what is left is the rounding of activations, of keys and values, and of
 * sums. Each case prints a line for each type. */
#include "device.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

#include "golden_model.h"
#include "schedule.h"

/* max|a-b| / max|b| over a row's logits. The coarsest numbers have 24, 11 or 8 bits. */
static const double f32_tolerance = 1e-4, f16_tolerance = 1e-2, bf16_tolerance = 4e-2;

/* In models this narrow, sums have so few terms that their roundings do not even out. */
enum { NARROW = 128 };
static const double narrow_factor = 2;

enum { N_SHAPED = 96, MAX_LOGITS = DEVICE_MAX_TOKENS * 1024 };

static float got[MAX_LOGITS], want[MAX_LOGITS];

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *kv_name(enum kv_type type)
{
    return type == KV_F32 ? "f32" : type == KV_F16 ? "f16" : "bf16";
}

/* All of the sorted errors; or with experts, of which a rounded score may choose another, and later
 * rows see what it gave, a quarter of them, and half within five times the tolerance. */
static bool are_near(const struct model *m, const double *errors, uint32_t n, double tolerance)
{
    if (m->hparams.router.n_experts == 0)
        return errors[n - 1] <= tolerance;
    return errors[n / 4] <= tolerance && errors[n / 2] <= 5 * tolerance;
}

/* Of the case that runs: it prints all of its lines before it fails. */
static uint32_t n_too_far;

/* Prints how far off the rows are, and counts if too many are too far. */
static void check_rows(const struct model *m, const char *type, enum kv_type kv, uint32_t n,
                       double tolerance)
{
    double errors[DEVICE_MAX_TOKENS] = {0};
    uint32_t n_vocab = m->hparams.n_vocab;
    for (uint32_t p = 0; p < n; p++)
        errors[p] = logits_error(got + (size_t)p * n_vocab, want + (size_t)p * n_vocab, n_vocab);
    qsort(errors, n, sizeof *errors, compare_doubles);
    bool is_near = are_near(m, errors, n, tolerance);
    printf("%-18s %-10s kv %-4s  median %8.1e  max %8.1e  limit %7.0e  %s\n", test_name(), type,
           kv_name(kv), errors[n / 2], errors[n - 1], tolerance, is_near ? "ok" : "TOO FAR");
    fflush(stdout);
    n_too_far += !is_near;
}

/* What the type of numbers allows; or, of a model that magnifies every rounding, four times what it
 * makes of keys and values that are rounded like this. */
static double tolerance_of(const struct exact_model *x, enum kv_type kv, const int32_t *tokens,
                           uint32_t n)
{
    static float rounded[MAX_LOGITS];
    double errors[DEVICE_MAX_TOKENS];
    bool is_bf16 = x->is_bf16 || kv == KV_BF16;
    uint32_t n_vocab = x->model.hparams.n_vocab;
    double most = is_bf16 ? bf16_tolerance : f16_tolerance;
    if (x->model.hparams.n_embd < NARROW)
        most *= narrow_factor;
    if (x->is_f32 && kv == KV_F32)
        return f32_tolerance;
    exact_logits(x, is_bf16 ? KV_BF16 : KV_F16, tokens, n, rounded);
    for (uint32_t p = 0; p < n; p++) {
        size_t at = (size_t)p * n_vocab;
        errors[p] = logits_error(rounded + at, want + at, n_vocab);
    }
    qsort(errors, n, sizeof *errors, compare_doubles);
    return fmax(most, 4 * errors[x->model.hparams.router.n_experts ? n / 4 : n - 1]);
}

/* False if the engine refuses the model. */
static bool check_model(const struct model *m, const char *type, enum kv_type kv,
                        const int32_t *tokens, uint32_t n)
{
    struct exact_model x;
    struct error err;
    struct engine_limits limits = device_limits(m, kv);
    CHECK((size_t)n * m->hparams.n_vocab <= MAX_LOGITS && n <= DEVICE_MAX_TOKENS);
    if (engine_source_supports(&device_source, m, &limits, &err)) {
        printf("%-18s %-10s refused: %s\n", test_name(), type, err.message);
        return false;
    }
    struct engine *e = device_engine(m, &limits);
    schedule_plain(e, tokens, n, got);
    engine_close(e);
    exact_model_open(&x, m);
    exact_logits(&x, KV_F32, tokens, n, want);
    double tolerance = tolerance_of(&x, kv, tokens, n);
    exact_model_close(&x);
    check_rows(m, type, kv, n, tolerance);
    return true;
}

/* ---- shapes of real models ---------------------------------------------------------------- */

static void run_shape(void)
{
    static const char *const types[] = {"f32",  "f16",  "bf16", "q8_0", "q6_k",  "q5_k",  "q5_0",
                                        "q5_1", "q4_k", "q4_1", "q4_0", "mxfp4", "q4_k_m"};
    static struct shaped_model m;
    int32_t tokens[N_SHAPED];
    n_too_far = 0;
    for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
        device_shape_open(&m, test_name(), types[i]);
        device_tokens(tokens, N_SHAPED, m.model.hparams.n_vocab, i);
        check_model(&m.model, types[i], i % 2 ? KV_F16 : KV_F32, tokens, N_SHAPED);
        if (i < 3) { /* of floats, all others too */
            check_model(&m.model, types[i], i % 2 ? KV_F32 : KV_F16, tokens, N_SHAPED);
            check_model(&m.model, types[i], KV_BF16, tokens, N_SHAPED);
        }
        shaped_model_close(&m);
    }
    CHECK_INT(n_too_far, 0);
}

/* ---- every architecture ------------------------------------------------------------------- */

static bool check_golden(const struct golden *g, const struct golden_form *form,
                         enum golden_type written, const enum tensor_type *quantize,
                         const char *type, enum kv_type kv)
{
    char directory[512];
    struct model m;
    struct error err;
    struct model_options options = {.context = g->context, .quantize = quantize};
    snprintf(directory, sizeof directory, "%s/%s-%s", test_scratch_dir(), test_name(), type);
    golden_write(form, written, 1, directory);
    if (model_open(&m, directory, &options, &err)) {
        printf("%-18s %-10s not opened: %s\n", test_name(), type, err.message);
        return false;
    }
    bool is_computed = check_model(&m, type, kv, g->tokens, g->n_tokens);
    model_close(&m);
    return is_computed;
}

static void run_golden(void)
{
    static const enum tensor_type types[] = {TENSOR_F16, TENSOR_Q8_0, TENSOR_Q4_0};
    struct golden g;
    n_too_far = 0;
    golden_open(&g, test_name());
    bool is_computed = check_golden(&g, &g.plain, GOLDEN_F32, NULL, "f32", KV_F32);
    if (is_computed) {
        for (uint32_t p = 0; p < g.n_tokens; p++) {
            size_t at = (size_t)p * g.n_vocab;
            double error = logits_error(got + at, g.logits + at, g.n_vocab);
            if (!(error <= f32_tolerance))
                test_fail(__FILE__, __LINE__, "position %u is off transformers' by %g", p, error);
        }
        check_golden(&g, &g.hub, GOLDEN_BF16, NULL, "bf16 hub", KV_F16);
        for (uint32_t i = 0; i < sizeof types / sizeof *types; i++)
            check_golden(&g, &g.plain, GOLDEN_F32, &types[i], tensor_type_info(types[i])->name,
                         KV_F16);
    }
    golden_close(&g);
    CHECK_INT(n_too_far, 0);
}

/* ---- the cases ---------------------------------------------------------------------------- */

static int is_golden(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return end && strcmp(end, ".json") == 0;
}

__attribute__((constructor)) static void register_cases(void)
{
    enum { MAX_CASES = 300 };
    static struct test_case cases[MAX_CASES];
    static struct dirent **found; /* they hold the names */
    int n = 0, n_found = scandir("tests/models", &found, is_golden, alphasort);
    const struct device_shape *shape;
    for (uint32_t i = 0; (shape = device_shape_at(i)); i++, n++) {
        cases[n] = (struct test_case){"shapes", shape->name, run_shape, NULL};
        test_register(&cases[n]);
    }
    for (int i = 0; i < n_found && n < MAX_CASES; i++, n++) {
        char *name = found[i]->d_name;
        *strrchr(name, '.') = '\0';
        cases[n] = (struct test_case){"models", name, run_golden, NULL};
        test_register(&cases[n]);
    }
}
