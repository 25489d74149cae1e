/* The mock engine: logits depend on the tokens and the right pages, and on nothing else. */
#include "test.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "batch_rows.h"
#include "engine/mock/mock_engine.h"
#include "test_death.h"

enum { VOCAB = 61 };

static const struct engine_limits limits = {
    .n_pages = {256}, .max_rows = 64, .max_seqs = 4, .max_length = 128};

static struct engine *open_mock(struct mock_options options)
{
    struct engine *e;
    struct error err;
    if (options.n_vocab == 0)
        options.n_vocab = VOCAB;
    CHECK(mock_engine_open(&e, &options, &limits, &err) == 0);
    return e;
}

static const struct mock_options quiet = {.fail_token = -1, .end_token = -1};

/* Computes tokens [from, from + n) of one sequence; logits of the last go to `logits`. */
static int forward(struct engine *e, const struct page_run *runs, uint32_t n_runs,
                   const int32_t *tokens, uint32_t from, uint32_t n, float *logits,
                   const atomic_int *live, struct error *err)
{
    struct batch_row rows[64];
    struct batch_seq seq = {.pages = {{runs, n_runs, 0}}};
    uint32_t pages[256], length = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        for (uint32_t k = 0; k < runs[i].count; k++)
            pages[length++] = runs[i].first + k;
    seq.length = length;
    CHECK_INT(length, from + n);
    for (uint32_t i = 0; i < n; i++)
        rows[i] = token_row(tokens[from + i], from + i, pages[from + i], 0,
                            i == n - 1 ? WANTS_LOGITS : NULL);
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = n, .live = live};
    return forward_rows(e, &batch, rows, logits, err);
}

TEST(mock_engine, logits_do_not_depend_on_chunks_or_pages)
{
    struct engine *e = open_mock(quiet);
    struct error err;
    int32_t tokens[] = {5, 9, 33, 2, 2, 60};
    float whole[VOCAB], parts[VOCAB];
    struct page_run one = {10, 6};
    CHECK(forward(e, &one, 1, tokens, 0, 6, whole, NULL, &err) == 0);
    struct page_run scattered[] = {{200, 2}, {100, 1}, {250, 3}};
    CHECK(forward(e, scattered, 1, tokens, 0, 2, parts, NULL, &err) == 0);
    CHECK(memcmp(whole, parts, sizeof whole) != 0);
    CHECK(forward(e, scattered, 2, tokens, 2, 1, parts, NULL, &err) == 0);
    CHECK(forward(e, scattered, 3, tokens, 3, 3, parts, NULL, &err) == 0);
    CHECK(memcmp(whole, parts, sizeof whole) == 0);
    engine_close(e);
}

TEST(mock_engine, a_wrong_page_anywhere_shows)
{
    struct engine *e = open_mock(quiet);
    struct error err;
    int32_t tokens[] = {5, 9, 33, 2, 2, 60};
    float right[VOCAB], wrong[VOCAB];
    struct page_run run = {10, 6};
    CHECK(forward(e, &run, 1, tokens, 0, 6, right, NULL, &err) == 0);
    for (uint32_t bad = 0; bad < 5; bad++) {
        struct page_run runs[3];
        uint32_t n = 0;
        if (bad)
            runs[n++] = (struct page_run){10, bad};
        runs[n++] = (struct page_run){77, 1}; /* never written */
        runs[n++] = (struct page_run){11 + bad, 5 - bad};
        CHECK(forward(e, runs, n, tokens, 5, 1, wrong, NULL, &err) == 0);
        CHECK(memcmp(right, wrong, sizeof right) != 0);
    }
    engine_close(e);
}

TEST(mock_engine, rows_of_several_sequences_share_a_batch)
{
    struct engine *e = open_mock(quiet);
    struct error err;
    int32_t a[] = {1, 2, 3}, b[] = {4, 5};
    float want_a[VOCAB], want_b[VOCAB], got[2 * VOCAB];
    struct page_run run_a = {0, 3}, run_b = {8, 2};
    CHECK(forward(e, &run_a, 1, a, 0, 3, want_a, NULL, &err) == 0);
    CHECK(forward(e, &run_b, 1, b, 0, 2, want_b, NULL, &err) == 0);
    struct page_run runs[] = {{20, 3}, {30, 2}};
    struct batch_seq seqs[] = {{.pages = {{&runs[0], 1, 0}}, .length = 3},
                               {.pages = {{&runs[1], 1, 0}}, .length = 2}};
    struct batch_row rows[] = {token_row(1, 0, 20, 0, NULL), token_row(2, 1, 21, 0, NULL),
                               token_row(3, 2, 22, 0, WANTS_LOGITS), token_row(4, 0, 30, 1, NULL),
                               token_row(5, 1, 31, 1, WANTS_LOGITS)};
    struct batch batch = {.seqs = seqs, .rows = rows, .n_seqs = 2, .n_rows = 5};
    CHECK(forward_rows(e, &batch, rows, got, &err) == 0);
    CHECK(memcmp(got, want_a, sizeof want_a) == 0);
    CHECK(memcmp(got + VOCAB, want_b, sizeof want_b) == 0);
    engine_close(e);
}

TEST(mock_engine, fails_as_told_and_spoils_the_pages)
{
    struct engine *e = open_mock((struct mock_options){.fail_token = 7, .end_token = -1});
    struct error err;
    int32_t good[] = {1, 2, 3}, bad[] = {1, 2, 7};
    float want[VOCAB], got[VOCAB];
    struct page_run run = {0, 3}, two = {0, 2};
    CHECK(forward(e, &run, 1, good, 0, 3, want, NULL, &err) == 0);
    CHECK(forward(e, &two, 1, bad, 0, 2, got, NULL, &err) == 0);
    CHECK(forward(e, &run, 1, bad, 2, 1, got, NULL, &err) == -1);
    CHECK_INT(err.code, ERROR_FAILED);
    struct page_run spoiled[] = {{0, 3}, {9, 1}};
    int32_t longer[] = {1, 2, 3, 4};
    float clean[VOCAB];
    struct page_run other = {20, 4};
    CHECK(forward(e, &other, 1, longer, 0, 4, clean, NULL, &err) == 0);
    CHECK(forward(e, spoiled, 2, longer, 3, 1, got, NULL, &err) == 0);
    CHECK(memcmp(clean, got, sizeof clean) != 0);
    int32_t outside[] = {VOCAB};
    struct page_run first = {0, 1};
    CHECK(forward(e, &first, 1, outside, 0, 1, got, NULL, &err) == -1);
    engine_close(e);

    e = open_mock((struct mock_options){.fail_token = -1, .end_token = -1, .fail_every = 3});
    for (int i = 1; i <= 9; i++)
        CHECK_INT(forward(e, &run, 1, good, 0, 3, got, NULL, &err), i % 3 == 0 ? -1 : 0);
    engine_close(e);
}

static void *lower_soon(void *live)
{
    struct timespec nap = {0, 20 * 1000 * 1000};
    nanosleep(&nap, NULL);
    atomic_fetch_sub((atomic_int *)live, 1);
    return NULL;
}

TEST(mock_engine, takes_its_time_and_stops_when_nobody_is_left)
{
    struct engine *e = open_mock((struct mock_options){
        .fail_token = -1, .end_token = -1, .row_cost_us = 5000, .batch_cost_us = 10000});
    struct error err;
    int32_t tokens[64] = {0};
    float logits[VOCAB];
    struct page_run run = {0, 4}, long_run = {0, 64};
    atomic_int live = 1;
    uint64_t start_ns = clock_now_ns();
    CHECK(forward(e, &run, 1, tokens, 0, 4, logits, &live, &err) == 0);
    CHECK(clock_now_ns() - start_ns >= 30 * 1000 * 1000);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, lower_soon, &live) == 0);
    int rc = forward(e, &long_run, 1, tokens, 0, 64, logits, &live, &err);
    pthread_join(thread, NULL);
    CHECK_INT(rc, -1);
    CHECK_INT(err.code, ERROR_CANCELED);
    engine_close(e);
}

TEST(mock_engine, bytes_look_like_words_and_end)
{
    struct engine *e = open_mock(
        (struct mock_options){.n_vocab = 259, .fail_token = -1, .end_token = 257});
    struct error err;
    int32_t tokens[128] = {'h', 'i', '\n'};
    float logits[259];
    uint32_t n = 3, letters = 0, spaces = 0, ends = 0;
    for (uint32_t from = 0; n < 120; from = n++) {
        struct page_run run = {0, n};
        CHECK(forward(e, &run, 1, tokens, from, n - from, logits, NULL, &err) == 0);
        int32_t best = 0;
        for (int32_t i = 1; i < 259; i++)
            if (logits[i] > logits[best])
                best = i;
        CHECK(best == 257 || isalpha(best) || strchr(" .", best));
        letters += best < 256 && isalpha(best);
        spaces += best == ' ';
        ends += best == 257;
        tokens[n] = best == 257 ? ' ' : best;
    }
    CHECK(letters > 70 && spaces > 8 && ends > 0);
    engine_close(e);
}

TEST(mock_engine, refuses_an_end_outside_the_vocabulary)
{
    struct engine *e;
    struct error err;
    struct mock_options options = {.n_vocab = 10, .fail_token = -1, .end_token = 10};
    CHECK(mock_engine_open(&e, &options, &limits, &err) == -1);
    CHECK_INT(err.code, ERROR_INPUT);
}

TEST(mock_engine, prompts_may_have_more_tokens_than_answers)
{
    struct mock_options options = quiet;
    options.n_tokens = 1000;
    struct engine *e = open_mock(options);
    struct error err;
    int32_t tokens[] = {999, 1000, -1};
    float logits[VOCAB];
    struct page_run run = {0, 1};
    CHECK(forward(e, &run, 1, tokens, 0, 1, logits, NULL, &err) == 0);
    CHECK(forward(e, &run, 1, tokens + 1, 0, 1, logits, NULL, &err) == -1);
    CHECK(strstr(err.message, "token 1000"));
    CHECK(forward(e, &run, 1, tokens + 2, 0, 1, logits, NULL, &err) == -1);
    CHECK_INT(e->info.n_vocab, VOCAB);
    engine_close(e);
}

/* ---- with a window of four ---- */

enum { WINDOW = 4 };

static struct engine *open_windowed(void)
{
    struct engine *e;
    struct error err;
    struct engine_limits all = limits;
    struct mock_options options = quiet;
    options.n_vocab = VOCAB;
    options.n_groups = 2;
    options.groups[1] = (struct kv_group){.kind = KV_WINDOW, .window = WINDOW};
    all.n_pages[1] = 64;
    CHECK(mock_engine_open(&e, &options, &all, &err) == 0);
    CHECK_INT(e->info.n_groups, 2);
    CHECK_INT(e->info.groups[1].window, WINDOW);
    return e;
}

/* Computes the row at `p`, whose pages are those of the same number; its window pages are given for
 * positions `first` .. p. */
static void row_at(struct engine *e, const int32_t *tokens, uint32_t p, uint32_t first,
                   const uint32_t *windows, float *logits)
{
    struct page_run run = {0, p + 1}, seen[16];
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {seen, p + 1 - first, first}}, .length = p + 1};
    struct batch_row row = token_row(tokens[p], p, p, 0, WANTS_LOGITS);
    struct batch batch = {.seqs = &seq, .rows = &row, .n_seqs = 1, .n_rows = 1};
    struct error err;
    for (uint32_t i = first; i <= p; i++)
        seen[i - first] = (struct page_run){windows[i], 1};
    row.pages[1] = windows[p];
    CHECK(forward_rows(e, &batch, &row, logits, &err) == 0);
}

TEST(mock_engine, a_row_sees_exactly_its_window)
{
    enum { N = 10 };
    struct engine *e = open_windowed();
    static const int32_t tokens[N] = {5, 9, 33, 2, 2, 60, 7, 7, 1, 30};
    uint32_t windows[N];
    float right[VOCAB], got[VOCAB];
    for (uint32_t p = 0; p < N; p++) {
        windows[p] = 50 - p;
        row_at(e, tokens, p, p >= WINDOW ? p + 1 - WINDOW : 0, windows, right);
    }
    row_at(e, tokens, N - 1, 0, windows, got); /* more than it sees may be named */
    CHECK(memcmp(right, got, sizeof right) == 0);
    for (uint32_t bad = 0; bad + 1 < N; bad++) {
        uint32_t was = windows[bad];
        windows[bad] = 63; /* never written */
        row_at(e, tokens, N - 1, 0, windows, got);
        CHECK((memcmp(right, got, sizeof right) == 0) == (bad + WINDOW < N));
        windows[bad] = was;
    }
    row_at(e, tokens, N - 1, N - WINDOW, windows, got);
    CHECK(memcmp(right, got, sizeof right) == 0);
    CHECK_ABORTS(row_at(e, tokens, N - 1, N - WINDOW + 1, windows, got)); /* a hole */
    engine_close(e);
}

TEST(mock_engine, a_window_does_not_depend_on_chunks)
{
    enum { N = 10 };
    struct engine *e = open_windowed();
    static const int32_t tokens[N] = {5, 9, 33, 2, 2, 60, 7, 7, 1, 30};
    struct page_run run = {20, N}, window = {40, N};
    struct batch_row rows[N];
    float whole[VOCAB] = {0}, single[VOCAB] = {0};
    struct error err;
    for (uint32_t i = 0; i < N; i++) {
        rows[i] = token_row(tokens[i], i, 20 + i, 0, i + 1 == N ? WANTS_LOGITS : NULL);
        rows[i].pages[1] = 40 + i;
    }
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&window, 1, 0}}, .length = N};
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = N};
    CHECK(forward_rows(e, &batch, rows, whole, &err) == 0);
    uint32_t windows[N];
    for (uint32_t p = 0; p < N; p++) {
        windows[p] = p;
        row_at(e, tokens, p, p >= WINDOW ? p + 1 - WINDOW : 0, windows, single);
    }
    CHECK(memcmp(whole, single, sizeof whole) == 0);
    engine_close(e);
}
