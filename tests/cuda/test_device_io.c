/* What a device's engine does besides computing rows: outputs, pages that move through memory,
 * cancelling, and starting again. */
#include "device.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "batch_rows.h"
#include "schedule.h"

enum { N = 90, HALF = 50, FAR = 1000, N_BEST = 9, MAX_VOCAB = 1024, MAX_EMBD = 1024 };

static struct shaped_model model;
static float plain[N * MAX_VOCAB];
static int32_t tokens[N];

static struct engine *open_plain(const char *shape, const char *type)
{
    device_shape_open(&model, shape, type);
    struct engine_limits limits = device_limits(&model.model, KV_F16);
    struct engine *e = device_engine(&model.model, &limits);
    CHECK(e->info.n_vocab <= MAX_VOCAB && e->info.n_embd <= MAX_EMBD);
    device_tokens(tokens, N, e->info.n_vocab, 3);
    schedule_plain(e, tokens, N, plain);
    return e;
}

static void close_plain(struct engine *e)
{
    engine_close(e);
    shaped_model_close(&model);
}

/* Computes positions begin .. end - 1 in pages first + position of both groups, and compares. */
static void check_part(struct engine *e, uint32_t first, uint32_t begin, uint32_t end)
{
    static float logits[N * MAX_VOCAB];
    struct batch_row rows[N];
    struct page_run run = {first, end};
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = end};
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = end - begin};
    struct error err;
    for (uint32_t p = begin; p < end; p++)
        rows[p - begin] = token_row(tokens[p], p, first + p, 0, WANTS_LOGITS);
    if (forward_rows(e, &batch, rows, logits, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    size_t n_vocab = e->info.n_vocab;
    CHECK(memcmp(logits, plain + begin * n_vocab, (end - begin) * n_vocab * sizeof *logits) == 0);
}

static void move_pages(struct engine *e, const struct page_io *io)
{
    uint64_t ticket;
    struct error err;
    int done;
    if (engine_page_io(e, io, &ticket, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    while ((done = engine_io_poll(e, ticket, false, &err)) == 0)
        done = engine_io_poll(e, ticket, true, &err) == 1 ? 1 : -1;
    if (done < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

/* Noise written to pages is read back; a sequence's pages written elsewhere continue it. */
static void check_io(const char *shape, const char *type)
{
    struct engine *e = open_plain(shape, type);
    for (uint32_t g = 0; g < e->info.n_groups; g++) {
        size_t bytes = (size_t)HALF * e->info.groups[g].page_bytes;
        uint8_t *noise = malloc(bytes), *back = malloc(bytes);
        CHECK(noise && back);
        for (size_t i = 0; i < bytes; i++)
            noise[i] = (uint8_t)hash_pair(g, i);
        const struct page_run scattered[] = {{700, 20}, {500, 7}, {900, HALF - 27}};
        struct page_io io = {.group = g, .runs = scattered, .n_runs = 3, .data = noise};
        io.is_write = true;
        move_pages(e, &io);
        io.is_write = false;
        io.data = back;
        move_pages(e, &io);
        CHECK(memcmp(noise, back, bytes) == 0);
        /* From pages 0, 1, ..., where the prompt is, to others. */
        const struct page_run from = {0, HALF}, to = {FAR, HALF};
        move_pages(e, &(struct page_io){.group = g, .runs = &from, .n_runs = 1, .data = back});
        move_pages(e, &(struct page_io){
                          .group = g, .runs = &to, .n_runs = 1, .data = back, .is_write = true});
        free(noise);
        free(back);
    }
    check_part(e, FAR, HALF, N);
    close_plain(e);
}

TEST(io, pages_go_and_come)
{
    check_io("heads64", "f16");
    check_io("window128", "q4_k");
}

TEST(io, outputs)
{
    static float hidden[N][MAX_EMBD], normed[N][MAX_EMBD], logits[N][MAX_VOCAB], log_sums[N];
    static struct row_best best[N][N_BEST];
    static struct row_output outputs[N];
    struct engine *e = open_plain("heads64", "bf16");
    struct batch_row rows[N];
    struct page_run run = {0, N};
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = N};
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = N};
    struct error err;
    uint32_t n_vocab = e->info.n_vocab;
    for (uint32_t p = 0; p < N; p++) {
        uint32_t wants = p % 3 == 2 ? 0
                                    : OUTPUT_BEST | OUTPUT_HIDDEN | OUTPUT_NORMED |
                                          (p % 3 ? OUTPUT_LOGITS : 0);
        outputs[p] = (struct row_output){.wants = wants,
                                         .logits = logits[p],
                                         .best = best[p],
                                         .n_best = N_BEST,
                                         .log_sum = &log_sums[p],
                                         .hidden = hidden[p],
                                         .normed = normed[p]};
        rows[p] = token_row(tokens[p], p, p, 0, wants ? &outputs[p] : NULL);
    }
    if (engine_forward(e, &batch, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    for (uint32_t p = 0; p < N; p++) {
        const float *row = plain + (size_t)p * n_vocab;
        double sum = 0, squares = 0;
        if (p % 3 == 2)
            continue;
        CHECK(p % 3 == 0 || memcmp(logits[p], row, n_vocab * sizeof *row) == 0);
        for (uint32_t i = 0; i < n_vocab; i++)
            sum += exp((double)row[i]);
        CHECK(fabs(log(sum) - (double)log_sums[p]) < 1e-4);
        for (uint32_t k = 0; k < N_BEST; k++) {
            uint32_t rank = 0;
            int32_t token = best[p][k].token;
            CHECK(best[p][k].logit == row[token]);
            for (int32_t i = 0; i < (int32_t)n_vocab; i++)
                rank += row[i] > row[token] || (i < token && row[i] == row[token]);
            CHECK_INT(rank, k);
        }
        for (uint32_t i = 0; i < e->info.n_embd; i++)
            squares += (double)hidden[p][i] * hidden[p][i] / e->info.n_embd;
        for (uint32_t i = 0; i < e->info.n_embd; i++) {
            double want = hidden[p][i] / sqrt(squares + 1e-5) * model.model.output_norm[i];
            CHECK(fabs(normed[p][i] - want) < 1e-3 * (1 + fabs(want)));
        }
    }
    close_plain(e);
}

/* Rows begin .. end - 1 of a sequence in pages 0, 1, ..., in batches of up to `most`: all logits,
 * and the best. */
static void compute_many(struct engine *e, const int32_t *prompt, uint32_t begin, uint32_t end,
                         uint32_t most, float *logits, struct row_best (*best)[N_BEST])
{
    enum { MOST = 128 };
    struct batch_row rows[MOST];
    struct row_output outputs[MOST];
    float log_sums[MOST];
    struct error err;
    for (uint32_t n; begin < end; begin += n, logits += (size_t)n * e->info.n_vocab, best += n) {
        n = most < end - begin ? most : end - begin;
        struct page_run run = {0, begin + n};
        struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = begin + n};
        struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = n};
        for (uint32_t i = 0; i < n; i++) {
            outputs[i] = (struct row_output){.wants = OUTPUT_LOGITS | OUTPUT_BEST,
                                             .logits = logits + (size_t)i * e->info.n_vocab,
                                             .best = best[i],
                                             .n_best = N_BEST,
                                             .log_sum = &log_sums[i]};
            rows[i] = token_row(prompt[begin + i], begin + i, begin + i, 0, &outputs[i]);
        }
        if (engine_forward(e, &batch, &err))
            test_fail(__FILE__, __LINE__, "%s", err.message);
    }
}

/* More outputs than the head computes at a time, of a vocabulary so large that a row too many would
 * be written over other memory. Later rows see whether the KV is still right. */
TEST(io, many_outputs_of_a_large_vocabulary)
{
    enum { LATER = 8, MOST = 128, ALL = MOST + LATER, LARGE_VOCAB = 128256 };
    static const uint32_t counts[] = {MOST, 100, 81, 80, 79, 65, 64, 41};
    static struct row_best want_best[ALL][N_BEST], got_best[ALL][N_BEST];
    struct shaped_options options = {2, 256, 768, 4, 2, 64, LARGE_VOCAB, .seed = 9};
    int32_t prompt[ALL];
    struct error err;
    size_t row_bytes = LARGE_VOCAB * sizeof(float);
    float *want = malloc(ALL * row_bytes), *got = malloc(ALL * row_bytes);
    CHECK(want && got && shaped_types_named("q8_0", &options.types));
    if (shaped_model_open(&model, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    struct engine_limits limits = device_limits(&model.model, KV_F16);
    limits.max_rows = MOST;
    struct engine *e = device_engine(&model.model, &limits);
    device_tokens(prompt, ALL, LARGE_VOCAB, 5);
    compute_many(e, prompt, 0, ALL, LATER, want, want_best);
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t n = counts[i], all = n + LATER;
        compute_many(e, prompt, 0, n, n, got, got_best);
        compute_many(e, prompt, n, all, LATER, got + (size_t)n * LARGE_VOCAB, got_best + n);
        CHECK(memcmp(got, want, all * row_bytes) == 0);
        CHECK(memcmp(got_best, want_best, all * sizeof *want_best) == 0);
    }
    free(want);
    free(got);
    close_plain(e);
}

TEST(io, a_cancelled_batch_leaves_the_engine_usable)
{
    struct engine *e = open_plain("experts", "q4_k");
    struct error err = {0};
    struct page_run run = {FAR, 1};
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = 1};
    struct batch_row row = token_row(1, 0, FAR, 0, NULL);
    atomic_int live = 0;
    const struct batch batch = {
        .seqs = &seq, .rows = &row, .n_seqs = 1, .n_rows = 1, .live = &live};
    CHECK(engine_forward(e, &batch, &err) == -1);
    CHECK_INT(err.code, ERROR_CANCELED);
    check_part(e, 0, HALF, N); /* the prompt is still in its pages */
    close_plain(e);
}

TEST(io, reopened_and_opened_again)
{
    struct engine *e = open_plain("gemma256", "q8_0");
    struct engine_limits limits = e->limits;
    struct error err;
    if (e->ops->reopen) {
        if (engine_reopen(e, &err))
            test_fail(__FILE__, __LINE__, "%s", err.message);
        check_part(e, 0, 0, N);
    }
    struct engine *second = device_engine(&model.model, &limits); /* beside the first */
    check_part(second, 0, 0, N);
    check_part(e, FAR, 0, N);
    engine_close(second);
    check_part(e, FAR, HALF, N);
    engine_close(e);
    e = device_engine(&model.model, &limits);
    check_part(e, 0, 0, N);
    close_plain(e);
}

TEST(io, figures_of_the_engine)
{
    struct engine *e = open_plain("heads96", "q4_k_m");
    const struct engine_info *i = &e->info;
    struct machine_limits best = {0};
    struct error err;
    printf("%s, %s: weights %llu, buffers %llu, kv %llu bytes\n", i->name, i->fingerprint,
           (unsigned long long)i->weight_bytes, (unsigned long long)i->buffer_bytes,
           (unsigned long long)i->kv_bytes);
    CHECK(i->name[0] && i->fingerprint[0]);
    CHECK(i->weight_bytes > 0 && i->kv_bytes > 0 && i->cost.layer_bytes > 0);
    if (engine_measure(e, 50, &best, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    printf("reads %.0f GB/s, %.1f Tflop/s\n", best.read_bytes_per_s * 1e-9,
           2 * best.float_macs_per_s * 1e-12);
    close_plain(e);
}
