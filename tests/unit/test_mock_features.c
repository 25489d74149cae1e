/* The mock engine, feature by feature: what it returns, what it rejects, what becomes garbage, and
 * which mistakes of a caller it catches. test_mock_world.c mixes all of it. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "batch_rows.h"
#include "mock_oracle.h"
#include "test.h"
#include "test_death.h"
#include "test_memory.h"

enum { VOCAB = 31, WINDOW = 4, GRAIN = 4, MAX_N = 32 };

/* A full, a windowed and a state group. */
static struct mock_options three_groups(void)
{
    return (struct mock_options){
        .n_vocab = VOCAB,
        .end_token = -1,
        .fail_token = -1,
        .max_region = 6,
        .max_rollback = 3,
        .n_groups = 3,
        .groups = {{KV_FULL},
                   {.kind = KV_WINDOW, .window = WINDOW, .sees_regions = true},
                   {.kind = KV_STATE, .grain = GRAIN}},
    };
}

static struct engine *open_mock(const struct mock_options *o)
{
    struct engine_limits limits = {.n_pages = {128, 128, 16},
                                   .n_slots = 4,
                                   .max_rows = MAX_N,
                                   .max_seqs = 4,
                                   .max_length = 64,
                                   .max_image_rows = 10};
    struct engine *e;
    struct error err;
    if (mock_engine_open(&e, o, &limits, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

/* One sequence: its position p is in page first + p of each group, its state in a slot. */
struct seq {
    struct engine *engine;
    struct oracle oracle;
    uint32_t first;
    struct page_run run;
    struct batch_seq batch_seq;
    struct batch_row rows[MAX_N];
    struct row_output output;
    float logits[VOCAB];
    struct batch batch;
};

static void copy_state(struct engine *e, enum state_place from_place, uint32_t from,
                       enum state_place to_place, uint32_t to)
{
    struct error err;
    CHECK_INT(engine_copy_states(e, &(struct state_copy){from_place, to_place, from, to}, 1, &err),
              0);
}

static void seq_open(struct seq *s, struct engine *e, const struct mock_options *o, uint32_t slot)
{
    *s = (struct seq){.engine = e, .first = slot * 32, .batch_seq = {.slot = slot}};
    oracle_open(&s->oracle, o, NULL);
    if (o->n_groups == 3)
        copy_state(e, STATE_ZERO, 0, STATE_SLOT, slot);
}

/* A batch of the next n tokens; the last gives logits. Regions and everything else come from
 * s->batch_seq. */
static void seq_make(struct seq *s, const int32_t *tokens, uint32_t n)
{
    uint32_t begin = s->oracle.n;
    s->output = (struct row_output){.wants = OUTPUT_LOGITS, .logits = s->logits};
    s->run = (struct page_run){s->first, begin + n};
    s->batch_seq.length = begin + n;
    s->batch_seq.pages[0] = s->batch_seq.pages[1] = (struct page_view){&s->run, 1, 0};
    s->batch = (struct batch){.seqs = &s->batch_seq, .rows = s->rows, .n_seqs = 1, .n_rows = n};
    for (uint32_t i = 0; i < n; i++) {
        s->rows[i] = token_row(tokens[i], begin + i, s->first + begin + i, 0,
                               i + 1 == n ? &s->output : NULL);
        s->rows[i].pages[2] = PAGE_NONE;
    }
}

static void oracle_tokens(struct seq *s, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        oracle_token(&s->oracle, tokens[i]);
}

static void seq_run(struct seq *s, const int32_t *tokens, uint32_t n)
{
    struct error err;
    seq_make(s, tokens, n);
    if (engine_forward(s->engine, &s->batch, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    oracle_tokens(s, tokens, n);
}

/* Whether the last batch gave the oracle's result. */
static bool seq_is_right(const struct seq *s)
{
    float want[VOCAB] = {0}, scratch[VOCAB];
    const struct oracle_cell *c = &s->oracle.cells[s->oracle.n - 1];
    struct row_output out = {.wants = OUTPUT_LOGITS, .logits = want};
    mock_give_output(s->oracle.options, c->digest, c->last, scratch, &out);
    return memcmp(want, s->logits, sizeof want) == 0;
}

static const int32_t text[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};

/* ---- what it is ---- */

TEST(mock_features, tells_what_it_is)
{
    struct mock_options o = three_groups();
    o.groups[0].page_bytes = 24;
    o.n_heads = 2;
    o.rope_axes = 3;
    struct engine *e = open_mock(&o);
    CHECK_STR(e->info.name, "mock");
    CHECK_STR(e->info.fingerprint, "");
    CHECK_INT(e->ops->abi, ENGINE_ABI);
    CHECK_INT(e->info.n_groups, 3);
    CHECK_INT(e->info.groups[0].page_bytes, 24);
    CHECK_INT(e->info.groups[1].page_bytes, 8);
    CHECK_INT(e->info.groups[2].grain, GRAIN);
    CHECK(e->info.groups[1].sees_regions && !e->info.is_async && e->info.bit_exact);
    CHECK_INT(e->info.rope_axes, 3);
    CHECK_INT(e->info.max_region, 6);
    CHECK_INT(e->info.max_rollback, 3);
    CHECK_INT(e->info.n_heads, 2);
    CHECK_STR(e->info.heads[0].name, "score");
    CHECK_INT(e->info.heads[1].n_values, 8);
    CHECK_INT(e->info.kv_bytes, 128 * 24 + 128 * 8 + 16 * 8 + 4 * 8);
    engine_close(e);
}

TEST(mock_features, refuses_what_cannot_be)
{
    struct engine_limits limits = {.n_pages = {8, 8, 8}, .max_rows = 2, .max_seqs = 1};
    for (int i = 0; i < 11; i++) {
        struct mock_options o = three_groups();
        struct engine *e;
        struct error err = {0};
        switch (i) {
        case 0: o.groups[0].kind = KV_WINDOW, o.groups[0].window = 3; break;
        case 1: o.groups[1].kind = KV_FULL; break;
        case 2: o.groups[1] = o.groups[2]; break; /* two states */
        case 3: o.groups[1].window = 0; break;
        case 4: o.groups[2].grain = 0; break;
        case 5: o.groups[1].page_bytes = 12; break;
        case 6: o.n_groups = 4; break;
        case 7: o.rope_axes = 5; break;
        case 8: o.n_heads = 3; break;
        case 9: o.n_groups = 1, o.no_full_layers = true; break;
        case 10: o.groups[2].sees_regions = true; break;
        }
        CHECK_INT(mock_engine_open(&e, &o, &limits, &err), -1);
        CHECK_INT(err.code, ERROR_INPUT);
    }
    struct mock_options o = three_groups();
    for (uint32_t n = 0; n < 8; n++) {
        struct engine *e;
        struct error err = {0};
        memory_ends_after(n);
        int rc = mock_engine_open(&e, &o, &limits, &err);
        memory_is_back();
        CHECK_INT(rc, -1);
        CHECK_INT(err.code, ERROR_MEMORY);
    }
}

/* ---- states ---- */

/* Copies that a batch made, and the slot, are valid until it fails or is stopped. */
TEST(mock_features, states_of_a_failed_batch_are_rubbish)
{
    for (int stops = 0; stops < 2; stops++) {
        struct mock_options o = three_groups();
        o.fail_token = 30;
        struct engine *e = open_mock(&o);
        struct error err;
        struct seq s;
        atomic_int live = 0;
        seq_open(&s, e, &o, 0);
        seq_make(&s, text, 8);
        s.rows[3].pages[2] = 5; /* after 4 and after 8 positions */
        s.rows[7].pages[2] = 6;
        CHECK_INT(engine_forward(e, &s.batch, &err), 0);
        oracle_tokens(&s, text, 8);
        CHECK(seq_is_right(&s));

        seq_make(&s, stops ? text : (const int32_t[]){30, 1}, 2);
        s.rows[1].pages[2] = 6;
        s.batch.live = stops ? &live : NULL;
        CHECK_INT(engine_forward(e, &s.batch, &err), -1);
        CHECK_INT(err.code, stops ? ERROR_CANCELED : ERROR_FAILED);
        seq_run(&s, text + 8, 1);
        CHECK(!seq_is_right(&s)); /* the slot */
        oracle_cut(&s.oracle, 8);
        copy_state(e, STATE_PAGE, 6, STATE_SLOT, 0);
        seq_run(&s, text + 8, 1);
        CHECK(!seq_is_right(&s)); /* the copy that was asked for */
        oracle_cut(&s.oracle, 4);
        copy_state(e, STATE_PAGE, 5, STATE_SLOT, 0);
        seq_run(&s, text + 4, 4);
        CHECK(seq_is_right(&s)); /* the one before */
        oracle_close(&s.oracle);
        engine_close(e);
    }
}

TEST(mock_features, drafts_are_rolled_back)
{
    struct mock_options o = three_groups();
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    seq_open(&s, e, &o, 1);
    s.batch_seq.n_drafts = 3;
    seq_run(&s, text, 8);
    for (uint32_t left = 3; left-- > 0;) { /* one after the other, then all over again */
        CHECK_INT(engine_roll_back(e, 1, 5 + left, &err), 0);
        oracle_cut(&s.oracle, 5 + left);
    }
    CHECK_INT(engine_roll_back(e, 1, 5, &err), 0);
    seq_run(&s, text + 1, 6);
    CHECK(seq_is_right(&s));
    CHECK_ABORTS(engine_roll_back(e, 1, 7, &err)); /* it had 3 drafts, of 11 positions */
    CHECK_ABORTS(engine_roll_back(e, 1, 12, &err));
    copy_state(e, STATE_SLOT, 1, STATE_SLOT, 2);
    CHECK_ABORTS(engine_roll_back(e, 2, 10, &err)); /* a copy has no drafts */
    s.batch_seq.slot = 2;
    seq_run(&s, text, 3);
    CHECK(seq_is_right(&s));
    CHECK_ABORTS(engine_roll_back(e, 1, 10, &err)); /* another batch came between */
    oracle_close(&s.oracle);
    engine_close(e);
}

/* ---- mistakes of callers ---- */

static void submit_aborts(struct seq *s)
{
    struct error err;
    CHECK_ABORTS(engine_submit(s->engine, &s->batch, &err));
}

TEST(mock_features, mistakes_are_caught)
{
    struct mock_options o = three_groups();
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    struct region regions[] = {{2, 3}, {5, 2}};
    seq_open(&s, e, &o, 0);
    seq_run(&s, text, 1);
    seq_make(&s, text, 6); /* positions 1 .. 6 */
    s.batch_seq.regions = regions;
    s.batch_seq.n_regions = 2;
    CHECK_INT(engine_forward(e, &s.batch, &err), 0);
    static const struct region wrong[][2] = {
        {{0, 3}, {5, 2}}, /* cut at its beginning */
        {{2, 3}, {5, 3}}, /* cut at its end */
        {{2, 3}, {4, 2}}, /* two at once */
        {{1, 0}, {5, 2}}, {{5, 2}, {2, 3}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s.batch_seq.regions = wrong[i];
        submit_aborts(&s);
    }
    s.batch_seq.n_regions = 0;
    s.rows[1].pages[2] = 3; /* neither at the grain nor the last */
    submit_aborts(&s);
    s.rows[1].pages[2] = PAGE_NONE;
    s.rows[2].pages[2] = 16; /* no such page */
    submit_aborts(&s);
    s.rows[2].pages[2] = PAGE_NONE;
    s.rows[1].pages[1]++;
    CHECK_ABORTS(engine_forward(e, &s.batch, &err));
    s.rows[1].pages[1]--;
    s.rows[1].pages[0]++;
    CHECK_ABORTS(engine_forward(e, &s.batch, &err));
    s.rows[1].pages[0]--;
    s.rows[3].position++;
    submit_aborts(&s);
    s.rows[3].position--;
    s.rows[3].seq = 1;
    submit_aborts(&s);
    s.rows[3].seq = 0;
    s.batch_seq.n_drafts = 4;
    submit_aborts(&s);
    s.batch_seq.n_drafts = 0;
    s.batch_seq.slot = 4;
    submit_aborts(&s);
    s.batch_seq.slot = 0;
    s.batch_seq.length--;
    submit_aborts(&s);
    s.batch_seq.length++;
    s.output.wants = OUTPUT_HIDDEN; /* without a buffer */
    submit_aborts(&s);
    s.output = (struct row_output){.wants = OUTPUT_HEAD, .head_values = s.logits}; /* no heads */
    submit_aborts(&s);
    s.output.wants = 0;
    s.batch.n_rows = 0;
    submit_aborts(&s);
    s.batch.n_rows = 6;
    CHECK_INT(engine_submit(e, &s.batch, &err), 0);
    submit_aborts(&s); /* one at a time */
    CHECK_ABORTS(engine_roll_back(e, 0, 3, &err));
    CHECK_INT(engine_wait(e, &err), 0);
    CHECK_ABORTS(engine_wait(e, &err));
    struct state_copy copies[] = {{STATE_SLOT, STATE_SLOT, 4, 0},
                                  {STATE_PAGE, STATE_SLOT, 16, 0},
                                  {STATE_SLOT, STATE_ZERO, 0, 0},
                                  {STATE_SLOT, STATE_PAGE, 0, 16}};
    for (int i = 0; i < 4; i++)
        CHECK_ABORTS(engine_copy_states(e, &copies[i], 1, &err));
    oracle_close(&s.oracle);
    engine_close(e);
}

TEST(mock_features, a_slot_is_in_a_batch_once)
{
    struct mock_options o = three_groups();
    struct engine *e = open_mock(&o);
    struct error err;
    struct page_run runs[] = {{0, 1}, {32, 1}};
    struct batch_seq seqs[] = {
        {.pages = {{&runs[0], 1, 0}, {&runs[0], 1, 0}}, .length = 1, .slot = 0},
        {.pages = {{&runs[1], 1, 0}, {&runs[1], 1, 0}}, .length = 1, .slot = 1}};
    struct batch_row rows[] = {token_row(1, 0, 0, 0, NULL), token_row(1, 0, 32, 1, NULL)};
    rows[0].pages[2] = rows[1].pages[2] = PAGE_NONE;
    struct batch batch = {.seqs = seqs, .rows = rows, .n_seqs = 2, .n_rows = 2};
    CHECK_INT(engine_forward(e, &batch, &err), 0);
    seqs[1].slot = 0;
    CHECK_ABORTS(engine_submit(e, &batch, &err));
    engine_close(e);
}

/* ---- images ---- */

TEST(mock_features, images_are_encoded_in_slices_and_kept_within_a_budget)
{
    struct mock_options o = three_groups();
    o.image_row_cost_us = 100;
    struct engine *e = open_mock(&o);
    struct error err;
    struct image_input in = {.n_rows = 6};
    uint32_t first, second, steps = 0;
    uint64_t start_ns = clock_now_ns();
    CHECK_INT(engine_encode(e, &in, &first, &err), 0);
    for (int rc = 0; rc == 0; steps++)
        CHECK((rc = engine_encode_step(e, first, 250, &err)) >= 0);
    CHECK_INT(steps, 3); /* 250, 250, 100 */
    CHECK(clock_now_ns() - start_ns >= 600 * 1000);
    CHECK_INT(engine_encode(e, &in, &second, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    in.n_rows = 4;
    CHECK_INT(engine_encode(e, &in, &second, &err), 0);
    CHECK(second != first);
    in.n_rows = 11;
    CHECK_INT(engine_encode(e, &in, &second, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    engine_encode_free(e, first);
    engine_encode_free(e, first); /* harmless */
    in.n_rows = 6;
    CHECK_INT(engine_encode(e, &in, &second, &err), 0);
    CHECK(second != first);
    engine_encode_free(e, second); /* while it is being encoded */
    CHECK_ABORTS(engine_encode_step(e, second, 1, &err));
    engine_close(e);
}

TEST(mock_features, there_is_a_largest_number_of_images)
{
    struct mock_options o = three_groups();
    struct engine_limits limits = {
        .n_pages = {8, 8, 8}, .max_rows = 2, .max_seqs = 1, .max_image_rows = 1000};
    struct engine *e;
    struct error err;
    struct image_input in = {.n_rows = 1};
    uint32_t image, n = 0;
    CHECK_INT(mock_engine_open(&e, &o, &limits, &err), 0);
    while (engine_encode(e, &in, &image, &err) == 0)
        n++;
    CHECK_INT(n, 64);
    CHECK_INT(err.code, ERROR_LIMIT);
    engine_encode_free(e, image);
    CHECK_INT(engine_encode(e, &in, &image, &err), 0);
    engine_close(e);
}

TEST(mock_features, only_encoded_images_are_used)
{
    struct mock_options o = three_groups();
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    struct image_input in = {.sha256 = {1, 2, 3}, .n_rows = 2};
    struct oracle_input inputs[3] = {{.source = ROW_IMAGE, .value = 0},
                                     {.source = ROW_IMAGE, .value = 1, .rope = {1, 1, 1, 1}},
                                     {.value = 7, .rope = {2, 2, 2, 2}}};
    uint32_t image;
    seq_open(&s, e, &o, 0);
    CHECK_INT(engine_encode(e, &in, &image, &err), 0);
    seq_make(&s, (const int32_t[]){0, 1, 7}, 3);
    struct region region = {0, 2};
    s.batch_seq.regions = &region;
    s.batch_seq.n_regions = 1;
    for (int i = 0; i < 2; i++) {
        s.rows[i].source = ROW_IMAGE;
        s.rows[i].image = image;
        memcpy(inputs[i].sha256, in.sha256, sizeof in.sha256);
    }
    submit_aborts(&s); /* not yet encoded */
    CHECK_INT(engine_encode_step(e, image, 0, &err), 1);
    CHECK_INT(engine_forward(e, &s.batch, &err), 0);
    oracle_append(&s.oracle, inputs, 2, true);
    oracle_append(&s.oracle, inputs + 2, 1, false);
    CHECK(seq_is_right(&s));
    s.rows[1].value = 2; /* no such row */
    submit_aborts(&s);
    s.rows[1].value = 1;
    engine_encode_free(e, image);
    submit_aborts(&s);
    CHECK_INT(engine_encode(e, &in, &image, &err), 0); /* the same again, under another handle */
    CHECK_INT(engine_encode_step(e, image, 0, &err), 1);
    submit_aborts(&s);
    s.rows[0].image = s.rows[1].image = image;
    copy_state(e, STATE_ZERO, 0, STATE_SLOT, 0);
    CHECK_INT(engine_forward(e, &s.batch, &err), 0);
    CHECK(seq_is_right(&s));
    oracle_close(&s.oracle);
    engine_close(e);
}

TEST(mock_features, images_fail_as_told)
{
    struct mock_options o = three_groups();
    o.fail_image_every = 2;
    struct engine *e = open_mock(&o);
    struct error err;
    for (int i = 1; i <= 6; i++) {
        uint32_t image;
        CHECK_INT(engine_encode(e, &(struct image_input){.n_rows = 5}, &image, &err), 0);
        CHECK_INT(engine_encode_step(e, image, 1, &err), i % 2 ? 1 : -1);
        engine_encode_free(e, image);
    }
    CHECK_INT(err.code, ERROR_FAILED);
    engine_close(e);
}

/* ---- adapters ---- */

TEST(mock_features, adapters_have_numbers_of_their_own)
{
    struct mock_options o = three_groups();
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    uint64_t first, again, other;
    CHECK_INT(engine_load_adapter(e, "", &first, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK_INT(engine_load_adapter(e, "a", &first, &err), 0);
    seq_open(&s, e, &o, 0);
    oracle_open(&s.oracle, &o, "a");
    s.batch_seq.adapter = first;
    seq_run(&s, text, 5);
    CHECK(seq_is_right(&s));
    engine_unload_adapter(e, first);
    engine_unload_adapter(e, first); /* harmless */
    seq_make(&s, text, 2);
    CHECK_INT(engine_submit(e, &s.batch, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK_INT(engine_load_adapter(e, "a", &again, &err), 0);
    CHECK(again != first);
    CHECK_INT(engine_submit(e, &s.batch, &err), -1);
    s.batch_seq.adapter = again; /* the same weights */
    seq_run(&s, text, 2);
    CHECK(seq_is_right(&s));
    CHECK_INT(engine_load_adapter(e, "b", &other, &err), 0);
    s.batch_seq.adapter = other;
    seq_run(&s, text, 2);
    CHECK(!seq_is_right(&s));
    for (int i = 2; i < 64; i++)
        CHECK_INT(engine_load_adapter(e, "c", &other, &err), 0);
    CHECK_INT(engine_load_adapter(e, "c", &other, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    oracle_close(&s.oracle);
    engine_close(e);
}

/* ---- outputs ---- */

TEST(mock_features, rows_without_numbers_say_so_in_the_sum)
{
    struct mock_options o = three_groups();
    o.nan_every = 2;
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    struct row_best best[2][3];
    float sums[2] = {0, 0}, hidden[16] = {NAN};
    struct row_output outputs[] = {
        {.wants = OUTPUT_BEST, .best = best[0], .n_best = 3, .log_sum = &sums[0]},
        {.wants = OUTPUT_BEST | OUTPUT_LOGITS, .best = best[1], .n_best = 3, .log_sum = &sums[1]}};
    seq_open(&s, e, &o, 0);
    seq_make(&s, text, 3);
    outputs[1].logits = s.logits;
    s.rows[0].output = &outputs[0];
    s.rows[1].output = &(struct row_output){.wants = OUTPUT_HIDDEN, .hidden = hidden};
    s.rows[2].output = &outputs[1];
    CHECK_INT(engine_forward(e, &s.batch, &err), 0);
    CHECK(!isnan(sums[0]) && isnan(sums[1]) && isnan(s.logits[0]) && !isnan(hidden[0]));
    CHECK(best[0][0].logit >= best[0][1].logit && best[0][1].logit >= best[0][2].logit);
    CHECK(best[0][0].token >= 0 && best[0][0].token < VOCAB);
    for (int i = 0; i < 6; i++) {
        seq_run(&s, text, 1);
        CHECK_INT(isnan(s.logits[0]) != 0, i % 2);
    }
    oracle_close(&s.oracle);
    engine_close(e);
}

/* ---- moving pages ---- */

static uint64_t ask(struct engine *e, uint32_t group, uint32_t page, uint32_t n, void *data,
                    bool is_write)
{
    struct error err;
    uint64_t ticket;
    struct page_run runs[] = {{page, 1}, {page + 1, n - 1}};
    struct page_io io = {
        .group = group, .runs = runs, .n_runs = n > 1 ? 2 : 1, .data = data, .is_write = is_write};
    CHECK_INT(engine_page_io(e, &io, &ticket, &err), 0);
    return ticket;
}

/* One full group, whose pages have three numbers. */
static struct mock_options one_group(bool is_async)
{
    return (struct mock_options){.n_vocab = VOCAB,
                                 .end_token = -1,
                                 .fail_token = -1,
                                 .is_async = is_async,
                                 .n_groups = 1,
                                 .groups = {{.page_bytes = 24}},
                                 .io_polls = 2,
                                 .io_page_cost_us = is_async};
}

/* Whatever is computed between the call and the end of its ticket: a read returns the data at the
 * time of the call, and a write takes effect then. */
static void check_order(bool is_async)
{
    struct mock_options o = one_group(is_async);
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s, moved;
    uint64_t old[6][3], other[6][3], n_polls = 0;
    seq_open(&s, e, &o, 0);
    seq_run(&s, text, 6);
    uint64_t first = ask(e, 0, 0, 6, old, false);
    CHECK_INT(((uint8_t *)old)[0], 0xa5); /* not there yet */
    oracle_cut(&s.oracle, 0);
    seq_make(&s, text + 5, 6); /* over the same pages */
    CHECK_INT(engine_submit(e, &s.batch, &err), 0);
    uint64_t second = ask(e, 0, 0, 6, other, false);
    CHECK_INT(engine_wait(e, &err), 0);
    oracle_tokens(&s, text + 5, 6);
    CHECK(seq_is_right(&s));
    while (engine_io_poll(e, first, false, &err) == 0)
        n_polls++;
    CHECK(n_polls >= 2);
    CHECK_INT(engine_io_poll(e, second, true, &err), 1);
    CHECK(memcmp(old, other, sizeof old) != 0);

    for (int damaged = 0; damaged < 2; damaged++) { /* the first text in other pages */
        seq_open(&moved, e, &o, 0);
        moved.first = 64;
        oracle_tokens(&moved, text, 6);
        old[4][2] += damaged;
        first = ask(e, 0, 64, 6, old, true);
        seq_run(&moved, text, 1);
        CHECK_INT(seq_is_right(&moved), !damaged);
        CHECK_INT(engine_io_poll(e, first, true, &err), 1);
        oracle_close(&moved.oracle);
    }
    oracle_close(&s.oracle);
    engine_close(e);
}

TEST(mock_features, moved_pages_keep_their_order_with_batches)
{
    check_order(false);
}

TEST(mock_threads, moved_pages_keep_their_order_with_batches)
{
    check_order(true);
}

/* Tickets end in order: waiting for one ends those before it. */
TEST(mock_features, tickets_end_in_order)
{
    struct mock_options o = one_group(false);
    struct engine *e = open_mock(&o);
    struct error err;
    uint64_t data[3][2][3], tickets[3];
    for (int i = 0; i < 3; i++)
        tickets[i] = ask(e, 0, 0, 2, data[i], false);
    CHECK_INT(engine_io_poll(e, tickets[1], true, &err), 1);
    CHECK_INT(engine_io_poll(e, tickets[0], false, &err), 1); /* any poll counts for the next one */
    CHECK_INT(engine_io_poll(e, tickets[2], false, &err), 0);
    CHECK_INT(((uint8_t *)data[2])[0], 0xa5);
    CHECK_INT(engine_io_poll(e, tickets[2], false, &err), 1);
    CHECK(((uint8_t *)data[2])[0] != 0xa5);
    CHECK_ABORTS(engine_io_poll(e, tickets[2], true, &err)); /* it was done */
    tickets[0] = ask(e, 0, 0, 2, data[0], true);
    data[0][1][0]++; /* too early */
    CHECK_ABORTS(engine_io_poll(e, tickets[0], true, &err));
    data[0][1][0]--;
    CHECK_INT(engine_io_poll(e, tickets[0], true, &err), 1);
    CHECK_ABORTS(ask(e, 0, 127, 2, data[0], true)); /* no such page */
    CHECK_ABORTS(ask(e, 1, 0, 2, data[0], true));   /* nor group */
    engine_close(e);
}

TEST(mock_features, transfers_are_limited_and_may_fail)
{
    struct mock_options o = one_group(false);
    o.fail_io_every = 3;
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    uint64_t data[3], ticket, n = 0;
    struct page_run run = {0, 1};
    struct page_io io = {.runs = &run, .n_runs = 1, .data = data};
    while (engine_page_io(e, &io, &ticket, &err) == 0)
        n++;
    CHECK_INT(err.code, ERROR_LIMIT);
    CHECK_INT(n, 64);
    for (uint64_t i = 1; i <= n; i++) {
        CHECK_INT(engine_io_poll(e, i, true, &err), i % 3 ? 1 : -1);
        CHECK(i % 3 || err.code == ERROR_FAILED);
    }
    seq_open(&s, e, &o, 0);
    seq_run(&s, text, 2); /* 64 transfers were made: the next but one fails */
    CHECK_INT(engine_io_poll(e, ask(e, 0, 0, 1, data, false), true, &err), 1);
    CHECK_INT(engine_io_poll(e, ask(e, 0, 0, 1, data, true), true, &err), -1);
    seq_run(&s, text, 1);
    CHECK(!seq_is_right(&s)); /* what a failed write leaves is rubbish */
    for (uint32_t i = 0; i < 2; i++) {
        memory_ends_after(i);
        int rc = engine_page_io(e, &io, &ticket, &err);
        memory_is_back();
        CHECK_INT(rc, -1);
        CHECK_INT(err.code, ERROR_MEMORY);
    }
    ask(e, 0, 0, 1, data, false); /* not waited for when it is closed */
    oracle_close(&s.oracle);
    engine_close(e);
}

/* Without full layers, group 0 has no bytes, and its pages still represent positions. */
TEST(mock_features, group_0_may_keep_nothing)
{
    struct mock_options o = three_groups();
    o.no_full_layers = true;
    o.groups[0].page_bytes = 16;
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    CHECK_INT(e->info.groups[0].page_bytes + e->info.groups[0].n_layers, 0);
    seq_open(&s, e, &o, 0);
    for (uint32_t i = 0; i < 6; i++) {
        seq_run(&s, text + i, 1);
        CHECK(seq_is_right(&s));
    }
    CHECK_INT(engine_io_poll(e, ask(e, 0, 0, 3, NULL, false), true, &err), 1);
    CHECK_INT(engine_io_poll(e, ask(e, 0, 0, 3, NULL, true), true, &err), 1);
    oracle_close(&s.oracle);
    engine_close(e);
}

/* ---- a lost device ---- */

static void check_lost(bool is_async)
{
    struct mock_options o = three_groups();
    o.lose_every = 2;
    o.is_async = is_async;
    o.io_polls = 1;
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    struct image_input in = {.n_rows = 10};
    struct state_copy copy = {STATE_SLOT, STATE_PAGE, 0, 3};
    uint64_t adapter, again, data[4], before, between, ticket;
    uint32_t image;
    seq_open(&s, e, &o, 0);
    seq_run(&s, text, 4);
    CHECK_INT(engine_encode(e, &in, &image, &err), 0);
    CHECK_INT(engine_load_adapter(e, "a", &adapter, &err), 0);
    before = ask(e, 0, 0, 2, data, false);
    seq_make(&s, text, 1);
    CHECK_INT(engine_submit(e, &s.batch, &err), 0);
    CHECK_INT(engine_copy_states(e, &copy, 1, &err), 0); /* nobody knows yet */
    between = ask(e, 0, 0, 2, data + 2, false);
    CHECK_INT(engine_io_poll(e, between, true, &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    CHECK_INT(engine_wait(e, &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);

    struct page_io io = {.data = data};
    CHECK_INT(engine_submit(e, &s.batch, &err), -1);
    CHECK_INT(engine_copy_states(e, &copy, 1, &err), -1);
    CHECK_INT(engine_roll_back(e, 0, 4, &err), -1);
    CHECK_INT(engine_encode(e, &in, &image, &err), -1);
    CHECK_INT(engine_encode_step(e, image, 1, &err), -1);
    CHECK_INT(engine_load_adapter(e, "a", &again, &err), -1);
    CHECK_INT(engine_page_io(e, &io, &ticket, &err), -1);
    CHECK_INT(engine_io_poll(e, before, true, &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    engine_unload_adapter(e, adapter); /* harmless */

    CHECK_INT(engine_reopen(e, &err), 0);
    CHECK_INT(engine_io_poll(e, before, true, &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    CHECK_INT(engine_encode(e, &in, &image, &err), 0); /* there is all the room */
    s.batch_seq.adapter = adapter;
    CHECK_INT(engine_submit(e, &s.batch, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    s.batch_seq.adapter = 0;
    seq_run(&s, text, 1);
    CHECK(!seq_is_right(&s));                         /* pages and slots are rubbish */
    CHECK_INT(engine_forward(e, &s.batch, NULL), -1); /* and so on */
    CHECK_INT(engine_reopen(e, &err), 0);
    oracle_cut(&s.oracle, 0);
    copy_state(e, STATE_ZERO, 0, STATE_SLOT, 0);
    seq_run(&s, text, 5);
    CHECK(seq_is_right(&s));
    oracle_close(&s.oracle);
    engine_close(e);
}

TEST(mock_features, a_lost_device_is_lost_with_all_that_it_had)
{
    check_lost(false);
}

TEST(mock_threads, a_lost_device_is_lost_with_all_that_it_had)
{
    check_lost(true);
}

/* Also everything outside the lost batch: pages without states, states without pages. */
TEST(mock_features, nothing_outlives_the_device)
{
    for (int has_state = 0; has_state < 2; has_state++) {
        struct mock_options o = one_group(false);
        o.lose_every = 2;
        if (has_state) {
            o.n_groups = 2;
            o.no_full_layers = true;
            o.groups[1] = (struct kv_group){.kind = KV_STATE, .grain = 1};
        }
        struct engine *e = open_mock(&o);
        struct error err;
        struct seq s;
        seq_open(&s, e, &o, 0);
        if (has_state)
            copy_state(e, STATE_ZERO, 0, STATE_SLOT, 0);
        seq_make(&s, text, 4);
        for (int i = 0; i < 4; i++)
            s.rows[i].pages[1] = PAGE_NONE;
        CHECK_INT(engine_forward(e, &s.batch, &err), 0);
        oracle_tokens(&s, text, 4);
        CHECK(seq_is_right(&s));
        if (has_state)
            copy_state(e, STATE_SLOT, 0, STATE_SLOT, 1);
        seq_make(&s, text, 1);
        s.rows[0].pages[1] = PAGE_NONE;
        CHECK_INT(engine_forward(e, &s.batch, &err), -1);
        CHECK_INT(engine_reopen(e, &err), 0);
        s.batch_seq.slot = 1;
        CHECK_INT(engine_forward(e, &s.batch, &err), 0);
        oracle_tokens(&s, text, 1);
        CHECK(!seq_is_right(&s));
        oracle_close(&s.oracle);
        engine_close(e);
    }
}

/* ---- time ---- */

/* Submit returns while the batch takes its time: it can be stopped, and the caller's own time is
 * the device's too. */
TEST(mock_threads, computes_while_the_caller_does_other_work)
{
    enum { BATCH_MS = 40 };
    struct mock_options o = three_groups();
    o.is_async = true;
    o.batch_cost_us = BATCH_MS * 1000;
    o.image_row_cost_us = 1000;
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    atomic_int live = 1;
    CHECK(e->info.is_async);
    seq_open(&s, e, &o, 0);
    seq_run(&s, text, 4);
    CHECK(seq_is_right(&s));
    seq_make(&s, text, 1);
    s.batch.live = &live;
    CHECK_INT(engine_submit(e, &s.batch, &err), 0);
    atomic_store(&live, 0);
    CHECK_INT(engine_wait(e, &err), -1);
    CHECK_INT(err.code, ERROR_CANCELED);

    uint64_t start_ns = clock_now_ns();
    uint32_t image;
    oracle_cut(&s.oracle, 0);
    copy_state(e, STATE_ZERO, 0, STATE_SLOT, 0);
    seq_make(&s, text, 5);
    CHECK_INT(engine_submit(e, &s.batch, &err), 0);
    CHECK_INT(engine_encode(e, &(struct image_input){.n_rows = 10}, &image, &err), 0);
    int steps = 0;
    for (int rc = 0; rc == 0; steps++)
        CHECK((rc = engine_encode_step(e, image, 1000, &err)) >= 0);
    CHECK_INT(steps, 10);
    copy_state(e, STATE_SLOT, 0, STATE_SLOT, 1); /* the state after the batch */
    CHECK_INT(engine_wait(e, &err), 0);
    CHECK(clock_now_ns() - start_ns >= BATCH_MS * 1000 * 1000);
    oracle_tokens(&s, text, 5);
    CHECK(seq_is_right(&s));
    s.batch_seq.slot = 1;
    seq_run(&s, text, 2);
    CHECK(seq_is_right(&s));
    CHECK(clock_now_ns() - start_ns >= (2 * BATCH_MS + 10) * 1000 * 1000);
    oracle_close(&s.oracle);
    engine_close(e);
}

/* More requests than the queue holds: the caller waits for room. */
TEST(mock_threads, the_queue_may_be_full)
{
    struct mock_options o = three_groups();
    o.is_async = true;
    o.batch_cost_us = 5000;
    struct engine *e = open_mock(&o);
    struct error err;
    struct seq s;
    seq_open(&s, e, &o, 0);
    seq_make(&s, text, 4);
    CHECK_INT(engine_submit(e, &s.batch, &err), 0);
    for (uint32_t i = 0; i < 1000; i++)
        copy_state(e, i % 2 ? STATE_PAGE : STATE_SLOT, i % 2, i % 2 ? STATE_SLOT : STATE_PAGE, 1);
    CHECK_INT(engine_wait(e, &err), 0);
    oracle_tokens(&s, text, 4);
    s.batch_seq.slot = 1;
    seq_run(&s, text, 2);
    CHECK(seq_is_right(&s));
    copy_state(e, STATE_SLOT, 0, STATE_SLOT, 1); /* not waited for when it is closed */
    oracle_close(&s.oracle);
    engine_close(e);
}
