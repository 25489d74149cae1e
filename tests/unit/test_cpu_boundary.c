/* The CPU engine's inputs and outputs besides logits: the best of them, hidden states, any order of
 * buffers, and pages that move through memory; and what it says it cannot do. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "batch_rows.h"
#include "engine/cpu/cpu_engine.h"
#include "random_model.h"
#include "test_death.h"

enum { N = 40, N_PAGES = 256, MAX_VOCAB = 512, MAX_EMBD = 256, N_BEST = 7 };

static struct engine *open_engine(const struct model *m, uint32_t n_threads, enum kv_type kv_type)
{
    struct engine *e;
    struct error err;
    struct engine_limits limits = {.n_pages = {N_PAGES, N_PAGES},
                                   .max_rows = N,
                                   .max_seqs = 2,
                                   .max_length = N,
                                   .kv_type = kv_type};
    if (cpu_engine_open(&e, m, &limits, &(struct cpu_options){.n_threads = n_threads}, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK(e->info.n_vocab <= MAX_VOCAB && e->info.n_embd <= MAX_EMBD);
    CHECK_INT(e->info.rope_axes, 1);
    CHECK_INT(e->info.n_heads + e->info.max_region + e->info.max_rollback + e->info.is_async, 0);
    return e;
}

static int32_t token_at(const struct engine *e, uint32_t p)
{
    return (int32_t)(hash_pair(9, p) % e->info.n_vocab);
}

/* Positions begin .. end - 1 in pages first, first + 1, ... of both groups, which are that many
 * further on in group 1. */
struct prompt {
    struct batch_row rows[N];
    struct page_run runs[2];
    struct batch_seq seq;
    struct batch batch;
};

static void prompt_make(struct prompt *p, const struct engine *e, uint32_t first, uint32_t begin,
                        uint32_t end, int32_t shift)
{
    *p = (struct prompt){.runs = {{first, end}, {first + 5, end}}};
    p->seq = (struct batch_seq){.pages = {{&p->runs[0], 1, 0}, {&p->runs[1], 1, 0}}, .length = end};
    p->batch = (struct batch){.seqs = &p->seq, .rows = p->rows, .n_seqs = 1, .n_rows = end - begin};
    for (uint32_t i = begin; i < end; i++) {
        int32_t token = (token_at(e, i) + shift) % (int32_t)e->info.n_vocab;
        p->rows[i - begin] = token_row(token, i, first + i, 0, NULL);
        p->rows[i - begin].pages[1] = first + 5 + i;
    }
}

static void compute(struct engine *e, const struct prompt *p)
{
    struct error err;
    if (engine_forward(e, &p->batch, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

/* ---- outputs ---- */

/* All that a row can give. */
struct given {
    float logits[MAX_VOCAB], hidden[MAX_EMBD], normed[MAX_EMBD], log_sum;
    struct row_best best[N_BEST];
};

static struct row_output output_to(struct given *g, uint32_t wants)
{
    return (struct row_output){.wants = wants,
                               .logits = g->logits,
                               .best = g->best,
                               .n_best = N_BEST,
                               .log_sum = &g->log_sum,
                               .hidden = g->hidden,
                               .normed = g->normed};
}

/* The same as a plain loop has it. */
static void check_best(const struct given *g, const float *logits, uint32_t n_vocab)
{
    double sum = exp((double)logits[0]);
    for (uint32_t i = 1; i < n_vocab; i++)
        sum += exp((double)logits[i]);
    CHECK(fabs(log(sum) - (double)g->log_sum) < 1e-4);
    for (uint32_t k = 0; k < N_BEST; k++) {
        uint32_t rank = 0;
        int32_t token = g->best[k].token;
        CHECK(g->best[k].logit == logits[token]);
        for (int32_t i = 0; i < (int32_t)n_vocab; i++)
            rank += logits[i] > logits[token] || (i < token && logits[i] == logits[token]);
        CHECK_INT(rank, k);
    }
}

/* Rows with any outputs, in any order of buffers, split anywhere, by any number of threads, give
 * the same as a row that wants all outputs. */
static void check_outputs(const struct model *m, uint64_t seed)
{
    static struct given all[N], some[N];
    static struct row_output outputs[N];
    struct prompt p;
    struct engine *e = open_engine(m, 1, KV_F32);
    uint32_t n_vocab = e->info.n_vocab, n_embd = e->info.n_embd;
    prompt_make(&p, e, 0, 0, N, 0);
    for (uint32_t i = 0; i < N; i++) {
        outputs[i] = output_to(&all[i],
                               OUTPUT_LOGITS | OUTPUT_BEST | OUTPUT_HIDDEN | OUTPUT_NORMED);
        p.rows[i].output = &outputs[i];
    }
    compute(e, &p);
    for (uint32_t i = 0; i < N; i++)
        check_best(&all[i], all[i].logits, n_vocab);
    engine_close(e);

    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        e = open_engine(m, n_threads, KV_F32);
        for (uint32_t round = 0; round < 6; round++) {
            uint32_t cut = 1 + (uint32_t)(hash_mix(seed++) % (N - 1));
            for (uint32_t part = 0; part < 2; part++) {
                uint32_t begin = part ? cut : 0, end = part ? N : cut;
                prompt_make(&p, e, 100, begin, end, 0);
                memset(some, 0, sizeof some);
                for (uint32_t i = begin; i < end; i++) {
                    /* Upwards, downwards, or here and there. */
                    uint32_t at = round % 3 == 0 ? i : round % 3 == 1 ? N - 1 - i : i * 7 % N;
                    uint32_t wants = round == 5 ? OUTPUT_BEST : (uint32_t)hash_mix(seed++) % 16;
                    outputs[i] = output_to(&some[at], wants);
                    p.rows[i - begin].output = hash_mix(seed++) % 5 ? &outputs[i] : NULL;
                }
                compute(e, &p);
                for (uint32_t i = begin; i < end; i++) {
                    const struct row_output *out = p.rows[i - begin].output;
                    if (!out)
                        continue;
                    if (out->wants & OUTPUT_LOGITS)
                        CHECK(memcmp(out->logits, all[i].logits, n_vocab * sizeof(float)) == 0);
                    if (out->wants & OUTPUT_BEST) {
                        CHECK(memcmp(out->best, all[i].best, sizeof all[i].best) == 0);
                        CHECK(*out->log_sum == all[i].log_sum);
                    }
                    if (out->wants & OUTPUT_HIDDEN)
                        CHECK(memcmp(out->hidden, all[i].hidden, n_embd * sizeof(float)) == 0);
                    if (out->wants & OUTPUT_NORMED)
                        CHECK(memcmp(out->normed, all[i].normed, n_embd * sizeof(float)) == 0);
                }
            }
        }
        engine_close(e);
    }
}

TEST(cpu_boundary, every_output_is_the_same_however_it_is_asked_for)
{
    for (int kind = 0; kind < RANDOM_KINDS; kind++) {
        struct tiny_model t;
        random_model_open(&t, (enum random_kind)kind, kind % 2 ? TENSOR_Q8_0 : TENSOR_F32,
                          300 + (uint64_t)kind);
        check_outputs(&t.model, (uint64_t)kind * 1000);
        tiny_close(&t);
    }
}

static const struct tiny_options small = {2,         32, 4, 2,     16,    48,         50,
                                          ROPE_NORM, 16, 0, false, false, TENSOR_F32, 7};

/* normed is the last norm of hidden, and the head's product with it is the logits. */
TEST(cpu_boundary, hidden_states_are_what_logits_come_from)
{
    static struct given g;
    struct tiny_model t;
    struct prompt p;
    tiny_open(&t, &small);
    struct engine *e = open_engine(&t.model, 1, KV_F32);
    struct row_output out = output_to(&g, OUTPUT_LOGITS | OUTPUT_HIDDEN | OUTPUT_NORMED);
    prompt_make(&p, e, 0, 0, 9, 0);
    p.rows[8].output = &out;
    compute(e, &p);
    double squares = 0;
    for (int i = 0; i < 32; i++)
        squares += (double)g.hidden[i] * (double)g.hidden[i];
    for (int i = 0; i < 32; i++) {
        double norm = (double)g.hidden[i] / sqrt(squares / 32 + 1e-5) *
                      (double)t.model.output_norm[i];
        CHECK(fabs(norm - (double)g.normed[i]) < 1e-4);
    }
    for (uint32_t v = 0; v < 50; v++) {
        float row[32];
        double dot = 0;
        weight_floats(&t.model.output, v, 0, 32, row);
        for (int i = 0; i < 32; i++)
            dot += (double)row[i] * (double)g.normed[i];
        CHECK(fabs(dot - (double)g.logits[v]) < 1e-3);
    }
    engine_close(e);
    tiny_close(&t);
}

/* Rope uses row.rope, not the position in the KV: if all positions are moved, scores are the same
 * up to rounding; if a single row is moved, they differ. */
TEST(cpu_boundary, rope_positions_are_not_the_position)
{
    static struct given g[3];
    struct tiny_model t;
    struct prompt p;
    tiny_open(&t, &small);
    struct engine *e = open_engine(&t.model, 1, KV_F32);
    for (uint32_t i = 0; i < 3; i++) {
        struct row_output out = output_to(&g[i], OUTPUT_LOGITS);
        prompt_make(&p, e, 0, 0, 9, 0);
        for (uint32_t r = 0; r < 9; r++)
            p.rows[r].rope[0] += i == 1 ? 1000 : i == 2 && r == 4 ? 3 : 0;
        p.rows[8].output = &out;
        compute(e, &p);
    }
    double moved = 0, other = 0;
    for (int v = 0; v < 50; v++) {
        moved = fmax(moved, fabs((double)g[0].logits[v] - (double)g[1].logits[v]));
        other = fmax(other, fabs((double)g[0].logits[v] - (double)g[2].logits[v]));
    }
    CHECK(moved < 1e-4 && other > 1e-4);
    engine_close(e);
    tiny_close(&t);
}

/* ---- pages ---- */

static void move(struct engine *e, uint32_t group, struct page_run *runs, uint32_t n_runs,
                 void *data, bool is_write)
{
    struct page_io io = {
        .group = group, .runs = runs, .n_runs = n_runs, .data = data, .is_write = is_write};
    uint64_t ticket = 0;
    struct error err;
    CHECK_INT(engine_page_io(e, &io, &ticket, &err), 0);
    CHECK_INT(engine_io_poll(e, ticket, false, &err), 1);
}

/* A prompt's pages go through memory into other pages, while the first ones get another prompt; the
 * next token has the same logits. */
static void check_moved(const struct model *m, enum kv_type kv_type)
{
    static struct given plain, got;
    struct prompt p;
    struct engine *e = open_engine(m, 2, kv_type);
    uint32_t n_groups = e->info.n_groups;
    struct row_output out = output_to(&plain, OUTPUT_LOGITS);
    prompt_make(&p, e, 0, 0, N, 0);
    p.rows[N - 1].output = &out;
    compute(e, &p);

    uint8_t *data[2] = {NULL, NULL};
    struct page_run from[] = {{0, 3}, {3, 20}, {23, N - 1 - 23}};
    for (uint32_t g = 0; g < n_groups; g++) {
        size_t bytes = (size_t)(N - 1) * e->info.groups[g].page_bytes;
        data[g] = malloc(bytes + 1);
        CHECK(data[g] != NULL);
        data[g][bytes] = 0x5a;
        for (int i = 0; i < 3; i++)
            from[i].first += g * 5;
        move(e, g, from, 3, data[g], false);
        CHECK_INT(data[g][bytes], 0x5a); /* and not a byte more */
    }
    prompt_make(&p, e, 0, 0, N, 1);
    compute(e, &p);
    prompt_make(&p, e, 100, N - 1, N, 0);
    for (uint32_t g = 0; g < n_groups; g++) {
        struct page_run to[] = {{100 + g * 5, N - 1}};
        move(e, g, to, 1, data[g], true);
        free(data[g]);
    }
    out = output_to(&got, OUTPUT_LOGITS);
    p.rows[0].output = &out;
    compute(e, &p);
    CHECK(memcmp(got.logits, plain.logits, e->info.n_vocab * sizeof(float)) == 0);
    engine_close(e);
}

TEST(cpu_boundary, pages_that_were_moved_give_the_same_bits)
{
    for (int kind = 0; kind < RANDOM_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            struct tiny_model t;
            random_model_open(&t, (enum random_kind)kind, TENSOR_F32, 100 + seed);
            check_moved(&t.model, (enum kv_type)seed);
            tiny_close(&t);
        }
    }
}

/* Requests between submit and wait see what the batch wrote. */
TEST(cpu_boundary, calls_take_effect_in_order)
{
    struct tiny_model t;
    struct prompt p;
    struct error err;
    uint8_t before[4096], between[4096], after[4096];
    struct page_run run = {0, 2};
    tiny_open(&t, &small);
    struct engine *e = open_engine(&t.model, 1, KV_F32);
    CHECK(2 * e->info.groups[0].page_bytes <= sizeof before);
    size_t bytes = 2 * (size_t)e->info.groups[0].page_bytes;
    prompt_make(&p, e, 0, 0, 2, 0);
    compute(e, &p);
    move(e, 0, &run, 1, before, false);
    prompt_make(&p, e, 0, 0, 2, 1);
    CHECK_INT(engine_submit(e, &p.batch, &err), 0);
    move(e, 0, &run, 1, between, false);
    CHECK_INT(engine_wait(e, &err), 0);
    move(e, 0, &run, 1, after, false);
    CHECK(memcmp(before, between, bytes) != 0 && memcmp(between, after, bytes) == 0);
    CHECK_INT(engine_io_poll(e, 1, true, &err), 1);
    CHECK_ABORTS(engine_io_poll(e, 100, true, &err));
    engine_close(e);
    tiny_close(&t);
}

TEST(cpu_boundary, says_what_it_cannot_do)
{
    struct tiny_model t;
    struct error err = {0};
    uint32_t image;
    uint64_t adapter;
    tiny_open(&t, &small);
    struct engine *e = open_engine(&t.model, 1, KV_F32);
    CHECK_INT(engine_copy_states(e, NULL, 0, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK(strstr(err.message, "cpu (") && strstr(err.message, "cannot keep recurrent states"));
    CHECK_INT(engine_roll_back(e, 0, 0, &err), -1);
    CHECK(strstr(err.message, "cannot roll back a state"));
    CHECK_INT(engine_encode(e, NULL, &image, &err), -1);
    CHECK(strstr(err.message, "cannot encode images"));
    CHECK_INT(engine_encode_step(e, 0, 0, &err), -1);
    CHECK_INT(engine_load_adapter(e, "x", &adapter, &err), -1);
    CHECK(strstr(err.message, "cannot load adapters"));
    CHECK_INT(engine_reopen(e, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK_ABORTS(engine_encode_free(e, 1));
    CHECK_ABORTS(engine_unload_adapter(e, 1));
    static const struct engine_ops none = {.abi = ENGINE_ABI};
    struct engine bare = {.ops = &none, .info = {.name = "bare"}};
    CHECK_INT(engine_page_io(&bare, NULL, NULL, &err), -1);
    CHECK_STR(err.message, "the engine bare cannot read or write pages");
    CHECK_INT(engine_io_poll(&bare, 1, true, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    engine_close(e);
    tiny_close(&t);
}
