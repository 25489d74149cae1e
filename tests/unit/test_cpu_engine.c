/* The law of the same bits, on random schedules: sequences of known prompts are computed in chunks,
 * next to others, in scattered pages, from prefixes that another sequence left in the cache, by
 * one, two or three threads, on every kernel path; and every logit must equal, by memcmp, that of
 * the prompt computed in one batch alone on one thread. Then what happens at the engine's edges. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/minmax.h"
#include "batch_rows.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/cpu_engine.h"
#include "random_model.h"

enum {
    N_PROMPTS = 3,
    MAX_PROMPT = 300,
    MAX_SEQS = 4,
    MAX_ROWS = 320,
    N_PAGES = 2000,
    MAX_THREADS = 3,
};

static uint64_t seed;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)((hash_mix(seed++) >> 32) * n >> 32);
}

/* Prompts 1 and 2 share a beginning with prompt 0, and their logits on the plain run. */
struct world {
    const struct model *model;
    uint32_t n_vocab, length; /* of the prompts */
    int32_t prompts[N_PROMPTS][MAX_PROMPT];
    uint32_t shared[N_PROMPTS]; /* tokens that a prompt shares with prompt 0 */
    float *plain[N_PROMPTS];    /* [length][n_vocab] */
    struct engine *engines[MAX_THREADS];
};

/* What engines keep and compute with. */
struct types {
    enum kv_type kv;
    enum activation_type activations;
};

static struct engine *open_with_windows(const struct model *m, uint32_t n_window_pages,
                                        uint32_t n_threads, const char *kernels, struct types types)
{
    struct engine *e;
    struct error err;
    struct engine_limits limits = {.n_pages = {N_PAGES, n_window_pages},
                                   .max_rows = MAX_ROWS,
                                   .max_seqs = MAX_SEQS,
                                   .max_length = MAX_PROMPT,
                                   .kv_type = types.kv};
    struct cpu_options options = {
        .n_threads = n_threads, .activations = types.activations, .kernels = kernels};
    if (cpu_engine_open(&e, m, &limits, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

static struct engine *open_engine(const struct model *m, uint32_t n_threads, const char *kernels,
                                  enum kv_type kv_type)
{
    return open_with_windows(m, 0, n_threads, kernels, (struct types){kv_type, ACTIVATIONS_Q8});
}

/* The whole prompt in one batch, in pages 0, 1, ..., with the logits of rows first .. n - 1. */
static void run_plain_from(struct engine *e, const int32_t *tokens, uint32_t n, uint32_t first,
                           float *logits)
{
    static struct batch_row rows[MAX_ROWS];
    struct page_run run = {0, n};
    struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = n};
    struct error err;
    for (uint32_t p = 0; p < n; p++)
        rows[p] = token_row(tokens[p], p, p, 0, p < first ? NULL : WANTS_LOGITS);
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = n};
    CHECK_INT(forward_rows(e, &batch, rows, logits, &err), 0);
}

static void run_plain(struct engine *e, const int32_t *tokens, uint32_t n, float *logits)
{
    run_plain_from(e, tokens, n, 0, logits);
}

static void world_open(struct world *w, const struct model *m, uint32_t length, const char *kernels,
                       struct types types)
{
    *w = (struct world){.model = m, .n_vocab = m->hparams.n_vocab, .length = length};
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        w->shared[i] = i == 0 ? length : length * i / 3;
        for (uint32_t p = 0; p < length; p++)
            w->prompts[i][p] = p < w->shared[i] && i > 0 ? w->prompts[0][p]
                                                         : (int32_t)(hash_pair(i, p) % w->n_vocab);
        w->plain[i] = malloc((size_t)length * w->n_vocab * sizeof(float));
        CHECK(w->plain[i] != NULL);
    }
    /* If layers have windows, schedules run with window pages and the plain run without. */
    for (uint32_t t = 0; t < MAX_THREADS; t++)
        w->engines[t] = open_with_windows(m, N_PAGES, t + 1, kernels, types);
    struct engine *plain = open_with_windows(m, 0, 1, kernels, types);
    for (uint32_t i = 0; i < N_PROMPTS; i++)
        run_plain(plain, w->prompts[i], length, w->plain[i]);
    engine_close(plain);
}

static void world_close(struct world *w)
{
    for (uint32_t t = 0; t < MAX_THREADS; t++)
        engine_close(w->engines[t]);
    for (uint32_t i = 0; i < N_PROMPTS; i++)
        free(w->plain[i]);
}

struct test_seq {
    uint32_t prompt;
    uint32_t length, target; /* computed or from the cache so far; in the end */
    uint32_t pages[MAX_PROMPT];
    struct page_run runs[MAX_PROMPT], window_runs[MAX_PROMPT];
};

/* A schedule under way. */
struct schedule {
    const struct world *world;
    struct engine *engine;
    struct test_seq seqs[MAX_SEQS];
    uint32_t n_seqs;
    uint32_t free_pages[N_PAGES], n_free;
    uint64_t n_compared;
};

/* Shuffles the pages: not at all, within neighbourhoods, or all. */
static void shuffle_pages(struct schedule *s)
{
    uint32_t distance = (uint32_t[]){1, 8, N_PAGES}[random_below(3)];
    s->n_free = N_PAGES;
    for (uint32_t i = 0; i < N_PAGES; i++)
        s->free_pages[i] = N_PAGES - 1 - i;
    for (uint32_t i = N_PAGES - 1; i > 0; i--) {
        uint32_t j = i - random_below(min_u32(i, distance)), page = s->free_pages[i];
        s->free_pages[i] = s->free_pages[j];
        s->free_pages[j] = page;
    }
}

/* A new sequence, empty or with the pages of a prefix that another has computed. */
static void add_seq(struct schedule *s)
{
    const struct world *w = s->world;
    struct test_seq *seq = &s->seqs[s->n_seqs++];
    *seq = (struct test_seq){.prompt = random_below(N_PROMPTS)};
    seq->target = 1 + random_below(random_below(4) ? w->length / 4 : w->length);
    if (s->n_seqs == 1 || random_below(3) == 0)
        return;
    const struct test_seq *from = &s->seqs[random_below(s->n_seqs - 1)];
    uint32_t common = from->prompt == seq->prompt
                          ? w->length
                          : min_u32(w->shared[from->prompt], w->shared[seq->prompt]);
    common = min_u32(min_u32(common, from->length), seq->target - 1);
    seq->length = common ? random_below(common + 1) : 0;
    memcpy(seq->pages, from->pages, seq->length * sizeof *seq->pages);
}

/* A position's page in the second group is another one than in the first. */
static uint32_t window_page(uint32_t page)
{
    return (page * 7 + 13) % N_PAGES;
}

static uint32_t add_run(struct page_run *runs, uint32_t n, uint32_t page)
{
    if (n > 0 && runs[n - 1].first + runs[n - 1].count == page) {
        runs[n - 1].count++;
        return n;
    }
    runs[n] = (struct page_run){page, 1};
    return n + 1;
}

/* A sequence of which the rows from first_row on are in the batch. */
static struct batch_seq make_seq(struct test_seq *seq, uint32_t first_row, uint32_t window)
{
    uint32_t n = 0, n_window = 0, first = first_row + 1 > window ? first_row + 1 - window : 0;
    first = first ? first - random_below(min_u32(first, 3)) : 0;
    for (uint32_t p = 0; p < seq->length; p++)
        n = add_run(seq->runs, n, seq->pages[p]);
    for (uint32_t p = first; p < seq->length; p++)
        n_window = add_run(seq->window_runs, n_window, window_page(seq->pages[p]));
    return (struct batch_seq){.pages = {{seq->runs, n, 0}, {seq->window_runs, n_window, first}},
                              .length = seq->length};
}

/* One batch: a chunk of random size of some of the sequences. False when all are complete. */
static bool step(struct schedule *s)
{
    static struct batch_row rows[MAX_ROWS];
    static float logits[64 * 512];
    const float *want[64];
    struct batch_seq batch_seqs[MAX_SEQS];
    struct batch batch = {.seqs = batch_seqs, .rows = rows};
    uint32_t n_outputs = 0, n_vocab = s->world->n_vocab;
    bool one_by_one = random_below(3) == 0;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        struct test_seq *seq = &s->seqs[i];
        uint32_t left = seq->target - seq->length, n = one_by_one ? 1 : 1 + random_below(left + 1);
        n = min_u32(min_u32(n, left), MAX_ROWS - batch.n_rows);
        if (n == 0 || (i > 0 && random_below(4) == 0))
            continue;
        uint32_t first_row = seq->length;
        for (uint32_t j = 0; j < n; j++, seq->length++) {
            uint32_t p = seq->length, page = seq->pages[p] = s->free_pages[--s->n_free];
            struct batch_row *row = &rows[batch.n_rows++];
            bool wants = n_outputs < 64 && (j + 1 == n || random_below(8) == 0);
            *row = token_row(s->world->prompts[seq->prompt][p], p, page, batch.n_seqs,
                             wants ? WANTS_LOGITS : NULL);
            row->pages[1] = window_page(page);
            if (wants)
                want[n_outputs++] = s->world->plain[seq->prompt] + (size_t)p * n_vocab;
        }
        batch_seqs[batch.n_seqs] = make_seq(seq, first_row, s->engine->info.groups[1].window);
        batch.n_seqs++;
    }
    if (batch.n_rows == 0)
        return false;
    struct error err;
    CHECK_INT(forward_rows(s->engine, &batch, rows, logits, &err), 0);
    for (uint32_t i = 0; i < n_outputs; i++, s->n_compared++)
        if (memcmp(logits + (size_t)i * n_vocab, want[i], n_vocab * sizeof(float)) != 0)
            test_fail(__FILE__, __LINE__, "%s: other bits in output %u of %u, batch of %u rows",
                      s->engine->info.name, i, n_outputs, batch.n_rows);
    return true;
}

static uint64_t run_schedule(const struct world *w)
{
    static struct schedule s;
    s = (struct schedule){.world = w, .engine = w->engines[random_below(MAX_THREADS)]};
    shuffle_pages(&s);
    uint32_t n_seqs = 1 + random_below(MAX_SEQS);
    add_seq(&s);
    for (bool busy = true; busy || s.n_seqs < n_seqs;) {
        busy = step(&s);
        if (s.n_seqs < n_seqs && random_below(2))
            add_seq(&s);
    }
    return s.n_compared;
}

static void check_law(const struct model *m, uint64_t law_seed, struct types types,
                      uint32_t n_schedules, uint32_t length)
{
    static struct world scalar, w;
    for (unsigned path = 0; kernels_at(path); path++) {
        struct world *here = path == 0 ? &scalar : &w;
        /* The scalar path is slow, so this is just over one block of attention. */
        world_open(here, m, path == 0 ? 135 : length, kernels_at(path)->name, types);
        uint64_t n_compared = 0;
        for (uint32_t i = 0; i < n_schedules; i++) {
            seed = hash_pair(law_seed, path * 1000 + i);
            n_compared += run_schedule(here);
        }
        CHECK(n_compared > n_schedules);
        if (here == &scalar)
            continue;
        /* The paths also agree with each other. */
        CHECK(memcmp(w.plain[0], scalar.plain[0], 135 * w.n_vocab * sizeof(float)) == 0);
        world_close(&w);
    }
    world_close(&scalar);
}

static void check_plain_law(const struct tiny_options *options, enum kv_type kv_type,
                            uint32_t n_schedules)
{
    struct tiny_model t;
    tiny_open(&t, options);
    check_law(&t.model, options->seed, (struct types){kv_type, ACTIVATIONS_Q8}, n_schedules, 265);
    tiny_close(&t);
}

TEST(cpu_engine, same_bits_f32)
{
    check_plain_law(&(struct tiny_options){2, 20, 4, 2, 8, 36, 40, ROPE_NEOX, 8, 0, true, false,
                                           TENSOR_F32, 11},
                    KV_F32, 40);
}

TEST(cpu_engine, same_bits_q8_0)
{
    check_plain_law(&(struct tiny_options){3, 32, 4, 2, 16, 64, 40, ROPE_NORM, 16, 0, false, false,
                                           TENSOR_Q8_0, 12},
                    KV_BF16, 30);
}

TEST(cpu_engine, same_bits_q4_1)
{
    check_plain_law(&(struct tiny_options){2, 64, 6, 2, 64, 64, 40, ROPE_NORM, 64, 0, false, true,
                                           TENSOR_Q4_1, 13},
                    KV_F16, 10);
}

/* All other features of models. The seeds are of small models that together have nearly everything
 * that the generator can draw for their kind. */
static void check_random_law(enum random_kind kind)
{
    static const uint64_t seeds[RANDOM_KINDS][3] = {
        [RANDOM_DENSE] = {100, 115, 118},
        [RANDOM_EXPERTS] = {106, 105, 114},
        [RANDOM_LATENT] = {116, 103, 128},
        [RANDOM_GEMMA] = {110, 123, 118},
    };
    for (uint32_t i = 0; i < 3; i++) {
        struct tiny_model t;
        enum tensor_type matrix = i % 2 ? TENSOR_Q8_0 : TENSOR_F32;
        random_model_open(&t, kind, matrix, seeds[kind][i]);
        struct types stored = {(enum kv_type)i, ACTIVATIONS_Q8};
        check_law(&t.model, kind * 10 + i, stored, 4, 140);
        tiny_close(&t);
    }
}

TEST(cpu_engine, same_bits_of_random_dense_models)
{
    check_random_law(RANDOM_DENSE);
}

TEST(cpu_engine, same_bits_of_random_mixtures)
{
    check_random_law(RANDOM_EXPERTS);
}

TEST(cpu_engine, same_bits_of_random_latents)
{
    check_random_law(RANDOM_LATENT);
}

TEST(cpu_engine, same_bits_of_random_models_like_gemma)
{
    check_random_law(RANDOM_GEMMA);
}

/* Experts and latent heads have their own buffers for quantised inputs. */
TEST(cpu_engine, same_bits_of_16_bit_activations)
{
    static const enum random_kind kinds[] = {RANDOM_EXPERTS, RANDOM_LATENT};
    for (int i = 0; i < 2; i++) {
        struct tiny_model t;
        random_model_open(&t, kinds[i], TENSOR_Q8_0, 200 + (uint32_t)i);
        check_law(&t.model, 50 + (uint32_t)i, (struct types){KV_F16, ACTIVATIONS_Q16}, 6, 140);
        tiny_close(&t);
    }
}

/* The default model: one prompt, whole, and cut, scattered, next to another, by two threads. */
TEST(cpu_engine, same_bits_default_model)
{
    enum { N = 136, CUT = 131 };
    struct model m;
    struct error err;
    const char *path = test_model_path();
    if (!path)
        SKIP("the default model is not here");
    if (model_open(&m, path, NULL, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    m.hparams.n_layers = 6; /* a fifth of it is as good for this, and sooner done */
    struct engine *one = open_engine(&m, 1, NULL, KV_F16), *two = open_engine(&m, 2, NULL, KV_F16);
    size_t n_vocab = m.hparams.n_vocab;
    float *plain = malloc((N - CUT + 1) * n_vocab * sizeof(float)),
          *got = malloc(2 * n_vocab * sizeof(float));
    CHECK(plain && got);
    int32_t tokens[N];
    struct batch_row rows[N];
    for (uint32_t p = 0; p < N; p++)
        tokens[p] = (int32_t)(hash_mix(p) % n_vocab);
    run_plain_from(one, tokens, N, CUT - 1, plain);

    /* Sequence 0 begins at page 1000 and sequence 1 shares its first 128 positions. */
    const struct page_run runs[][2] = {{{1000, 128}, {7, 100}}, {{1000, 128}, {300, 100}}};
    struct batch_seq seqs[] = {{.pages = {{runs[0], 2, 0}}, .length = CUT},
                               {.pages = {{runs[1], 2, 0}}, .length = N}};
    struct batch batch = {.seqs = seqs, .rows = rows, .n_seqs = 1, .n_rows = CUT};
    for (uint32_t p = 0; p < CUT; p++)
        rows[p] = token_row(tokens[p], p, p < 128 ? 1000 + p : 7 + p - 128, 0,
                            p + 1 == CUT ? WANTS_LOGITS : NULL);
    CHECK_INT(forward_rows(two, &batch, rows, got, &err), 0);
    CHECK(memcmp(got, plain, n_vocab * sizeof(float)) == 0);
    seqs[0].length = CUT + 1;
    rows[0] = token_row(tokens[CUT], CUT, 7 + CUT - 128, 0, WANTS_LOGITS);
    for (uint32_t p = 128; p < N; p++)
        rows[1 + p - 128] = token_row(tokens[p], p, 300 + p - 128, 1,
                                      p + 1 == N ? WANTS_LOGITS : NULL);
    batch = (struct batch){.seqs = seqs, .rows = rows, .n_seqs = 2, .n_rows = 1 + N - 128};
    CHECK_INT(forward_rows(two, &batch, rows, got, &err), 0);
    CHECK(memcmp(got, plain + n_vocab, n_vocab * sizeof(float)) == 0);
    CHECK(memcmp(got + n_vocab, plain + (N - CUT) * n_vocab, n_vocab * sizeof(float)) == 0);
    free(plain);
    free(got);
    engine_close(one);
    engine_close(two);
    model_close(&m);
}

static const struct tiny_options small = {2,         32, 4, 2,     16,    48,         50,
                                          ROPE_NORM, 16, 0, false, false, TENSOR_F32, 7};

TEST(cpu_engine, stops_when_no_one_waits)
{
    struct tiny_model t;
    tiny_open(&t, &small);
    struct engine *e = open_engine(&t.model, 2, NULL, KV_F16);
    float plain[50], got[50] = {0};
    run_plain(e, (const int32_t[]){3}, 1, plain);
    struct page_run run = {0, 1};
    struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = 1};
    struct row_output output = {.wants = OUTPUT_LOGITS, .logits = got};
    struct batch_row row = token_row(3, 0, 0, 0, &output);
    atomic_int live = 0;
    struct batch batch = {.seqs = &seq, .rows = &row, .n_seqs = 1, .n_rows = 1, .live = &live};
    struct error err = {0};
    CHECK_INT(engine_submit(e, &batch, &err), 0);
    CHECK_INT(engine_wait(e, &err), -1);
    CHECK_INT(err.code, ERROR_CANCELED);
    CHECK(got[0] == 0.0f && got[49] == 0.0f);
    live = 1;
    CHECK_INT(engine_forward(e, &batch, &err), 0);
    CHECK(memcmp(got, plain, sizeof got) == 0);
    engine_close(e);
    tiny_close(&t);
}

static void *hang_up(void *live)
{
    nanosleep(&(struct timespec){.tv_nsec = 300 * 1000}, NULL);
    atomic_store((atomic_int *)live, 0);
    return NULL;
}

/* The count may fall at any moment of a batch: the batch is stopped or completed, and the next one
 * is right. */
TEST(cpu_engine, stops_at_any_moment)
{
    enum { N = 256 };
    struct tiny_model t;
    tiny_open(&t, &small);
    struct engine *e = open_engine(&t.model, 2, NULL, KV_F16);
    static float plain[N * 50], got[N * 50];
    static struct batch_row rows[N];
    int32_t tokens[N];
    for (int p = 0; p < N; p++) {
        tokens[p] = p % 50;
        rows[p] = token_row(tokens[p], (uint32_t)p, (uint32_t)p, 0, WANTS_LOGITS);
    }
    run_plain(e, tokens, N, plain);
    struct page_run run = {0, N};
    struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = N};
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = N};
    for (int i = 0; i < 20; i++) {
        atomic_int live = 1;
        struct error err = {0};
        pthread_t client;
        memset(got, 0, sizeof got);
        CHECK_INT(pthread_create(&client, NULL, hang_up, &live), 0);
        batch.live = &live;
        int failed = forward_rows(e, &batch, rows, got, &err);
        pthread_join(client, NULL);
        CHECK(failed ? err.code == ERROR_CANCELED : memcmp(got, plain, sizeof got) == 0);
    }
    batch.live = NULL;
    CHECK_INT(forward_rows(e, &batch, rows, got, NULL), 0);
    CHECK(memcmp(got, plain, sizeof got) == 0);
    engine_close(e);
    tiny_close(&t);
}

/* A batch may ask for nothing but KV. */
TEST(cpu_engine, computes_without_outputs)
{
    struct tiny_model t;
    tiny_open(&t, &small);
    struct engine *e = open_engine(&t.model, 2, NULL, KV_F32);
    float plain[2 * 50], got[50];
    run_plain(e, (const int32_t[]){3, 4}, 2, plain);
    struct page_run run = {40, 2};
    struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = 1};
    struct batch_row row = token_row(3, 0, 40, 0, NULL);
    struct batch batch = {.seqs = &seq, .rows = &row, .n_seqs = 1, .n_rows = 1};
    CHECK_INT(engine_forward(e, &batch, NULL), 0);
    row = token_row(4, 1, 41, 0, WANTS_LOGITS);
    seq.length = 2;
    CHECK_INT(forward_rows(e, &batch, &row, got, NULL), 0);
    CHECK(memcmp(got, plain + 50, sizeof got) == 0);
    engine_close(e);
    tiny_close(&t);
}

/* Weights that are not finite give logits that are not finite, and nothing worse. */
TEST(cpu_engine, survives_weights_that_are_not_finite)
{
    for (unsigned path = 0; kernels_at(path); path++) {
        for (int type = KV_F16; type <= KV_BF16; type++) {
            struct tiny_model t;
            tiny_open(&t, &small);
            float *k = (float *)(uintptr_t)t.model.layers[0].attn_k.data;
            float *v = (float *)(uintptr_t)t.model.layers[0].attn_v.data;
            k[5] = 3e38f;
            v[7] = type == KV_F32 ? INFINITY : NAN;
            struct engine *e = open_engine(&t.model, 2, kernels_at(path)->name, type);
            static float plain[200 * 50];
            int32_t tokens[200];
            for (int p = 0; p < 200; p++)
                tokens[p] = p % 50;
            run_plain(e, tokens, 200, plain);
            CHECK(isnan(plain[199 * 50]));
            engine_close(e);
            tiny_close(&t);
        }
    }
}

struct progress {
    int n_calls;
    double last;
    bool falls;
};

static void note_progress(void *context, double done)
{
    struct progress *p = context;
    p->falls |= done < p->last || done > 1;
    p->last = done;
    p->n_calls++;
}

TEST(cpu_engine, tells_what_it_is)
{
    struct tiny_model t;
    tiny_open(&t, &small);
    struct engine *e;
    struct error err;
    struct progress progress = {0};
    struct engine_limits limits = {.n_pages = {10}, .max_rows = 4, .max_seqs = 1, .max_length = 10};
    struct cpu_options options = {.n_threads = 1,
                                  .kernels = "scalar",
                                  .progress = note_progress,
                                  .progress_context = &progress};
    CHECK_INT(cpu_engine_open(&e, &t.model, &limits, &options, &err), 0);
    CHECK_STR(e->info.name, "cpu (scalar, 1 thread)");
    CHECK_STR(e->info.fingerprint, "scalar");
    CHECK_INT(e->info.n_threads, 1);
    CHECK(e->info.bit_exact);
    CHECK_INT(e->info.n_vocab, 50);
    CHECK_INT(e->info.n_groups, 1);
    CHECK_INT(e->info.groups[0].n_layers, 2);
    CHECK_INT(e->info.groups[0].window, 0);
    CHECK(e->info.weight_bytes > 50 * 32 * sizeof(float));
    CHECK_INT(progress.n_calls, 1 + 7 * 2);
    CHECK(progress.last == 1 && !progress.falls);
    engine_close(e);
    CHECK_INT(cpu_engine_open(&e, &t.model, &limits, &(struct cpu_options){0}, &err), 0);
    CHECK(e->info.n_threads >= 1);
    engine_close(e);
    tiny_close(&t);
}

/* Twice the operations and memory for quantised weights; floats are unchanged. */
TEST(cpu_engine, tells_of_16_bit_activations)
{
    struct engine_limits limits = {
        .n_pages = {10}, .max_rows = 48, .max_seqs = 1, .max_length = 10};
    struct cpu_options cpu = {.n_threads = 1, .kernels = "scalar"};
    for (int i = 0; i < 2; i++) {
        struct tiny_options options = small;
        struct tiny_model t;
        struct engine *eight, *sixteen;
        struct error err;
        options.matrix = i ? TENSOR_Q8_0 : TENSOR_F32;
        options.n_ff = 64;
        tiny_open(&t, &options);
        cpu.activations = ACTIVATIONS_Q8;
        CHECK_INT(cpu_engine_open(&eight, &t.model, &limits, &cpu, &err), 0);
        cpu.activations = ACTIVATIONS_Q16;
        CHECK_INT(cpu_engine_open(&sixteen, &t.model, &limits, &cpu, &err), 0);
        CHECK_STR(sixteen->info.fingerprint, "scalar/q16");
        CHECK_STR(sixteen->info.name, "cpu (scalar, 1 thread, 16-bit activations)");
        CHECK_INT(sixteen->info.weight_bytes, eight->info.weight_bytes);
        CHECK(sixteen->info.buffer_bytes > eight->info.buffer_bytes &&
              sixteen->info.buffer_bytes < 2 * eight->info.buffer_bytes);
        const struct engine_cost *cost = &sixteen->info.cost, *less = &eight->info.cost;
        int times = i ? 2 : 1;
        CHECK_INT(cost->layer_bytes, less->layer_bytes);
        CHECK_INT(cost->layer_macs.int8, times * less->layer_macs.int8);
        CHECK_INT(cost->head_macs.int8, times * less->head_macs.int8);
        CHECK_INT(cost->layer_macs.floats, times * less->layer_macs.floats);
        CHECK_INT(cost->position_macs, less->position_macs);
        engine_close(eight);
        engine_close(sixteen);
        tiny_close(&t);
    }
}

TEST(cpu_engine, refuses_with_a_message)
{
    struct tiny_model t;
    tiny_open(&t, &small);
    struct engine *e = NULL;
    struct error err;
    struct engine_limits limits = {.n_pages = {10}, .max_rows = 4, .max_seqs = 1, .max_length = 10};
    struct cpu_options options = {.n_threads = 2, .kernels = "avx1024"};
    CHECK_INT(cpu_engine_open(&e, &t.model, &limits, &options, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK(strstr(err.message, "avx1024") && strstr(err.message, "scalar"));
    options.kernels = NULL;
    limits.n_pages[0] = UINT32_MAX;
    t.model.hparams.layers[0].n_kv_heads = 1 << 24; /* the cache is refused first */
    CHECK_INT(cpu_engine_open(&e, &t.model, &limits, &options, &err), -1);
    CHECK(err.code == ERROR_MEMORY || err.code == ERROR_LIMIT);
    CHECK(strstr(err.message, "KV cache") || strstr(err.message, "positions"));
    CHECK(e == NULL);
    tiny_close(&t);
}
