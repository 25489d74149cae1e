/* See schedule.h. */
#include "schedule.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/minmax.h"
#include "batch_rows.h"
#include "test.h"

/* A sequence under way. Positions before window_first have left the window, and others have their
 * pages of that group by now. */
struct test_seq {
    uint32_t prompt, length, target, window_first;
    uint32_t *pages, *window_pages;      /* [n_tokens] */
    struct page_run *runs, *window_runs; /* [n_tokens] */
};

struct page_list {
    uint32_t *pages, count; /* [n_pages] */
};

struct schedule {
    const struct schedule_world *world;
    struct engine *engine;
    struct test_seq *seqs; /* [max_seqs] */
    uint32_t n_seqs;
    bool releases;
    struct page_list free, window_free;
    struct schedule_counts *counts;
    uint64_t seed;
    struct arena arena;
    struct batch_row *rows;       /* [max_rows] */
    struct batch_seq *batch_seqs; /* [max_seqs] */
    const float **want;           /* [max_rows] */
    float *logits;                /* [max_rows][n_vocab] */
};

static uint32_t random_below(struct schedule *s, uint32_t n)
{
    return (uint32_t)((hash_mix(s->seed++) >> 32) * n >> 32);
}

static void *take(struct schedule *s, size_t count, size_t size)
{
    void *memory = arena_alloc_array(&s->arena, count, size);
    CHECK(memory != NULL);
    return memory;
}

static void list_open(struct schedule *s, struct page_list *list)
{
    uint32_t n = s->world->n_pages, distance = (uint32_t[]){1, 8, n}[random_below(s, 3)];
    *list = (struct page_list){take(s, n, sizeof *list->pages), n};
    for (uint32_t i = 0; i < n; i++)
        list->pages[i] = n - 1 - i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = i - random_below(s, min_u32(i, distance)), page = list->pages[i];
        list->pages[i] = list->pages[j];
        list->pages[j] = page;
    }
}

static uint32_t list_take(struct page_list *list)
{
    CHECK(list->count > 0);
    return list->pages[--list->count];
}

/* A new sequence: from the start, or from the pages of another that begins alike. */
static void add_seq(struct schedule *s)
{
    const struct schedule_world *w = s->world;
    struct test_seq *seq = &s->seqs[s->n_seqs++];
    seq->prompt = random_below(s, SCHEDULE_PROMPTS);
    seq->target = w->n_tokens - random_below(s, w->n_tokens / 4);
    if (s->n_seqs == 1 || s->releases || random_below(s, 4) == 0)
        return;
    const struct test_seq *from = &s->seqs[random_below(s, s->n_seqs - 1)];
    uint32_t common = from->prompt == seq->prompt ? w->n_tokens : w->n_shared;
    seq->length = min_u32(min_u32(common, from->length), seq->target - 1);
    memcpy(seq->pages, from->pages, w->n_tokens * sizeof *seq->pages);
    memcpy(seq->window_pages, from->window_pages, w->n_tokens * sizeof *seq->window_pages);
    s->counts->shared += seq->length;
}

static uint32_t make_runs(const uint32_t *pages, uint32_t first, uint32_t end,
                          struct page_run *runs)
{
    uint32_t n = 0;
    for (uint32_t p = first; p < end; p++) {
        if (n > 0 && runs[n - 1].first + runs[n - 1].count == pages[p])
            runs[n - 1].count++;
        else
            runs[n++] = (struct page_run){pages[p], 1};
    }
    return n;
}

/* The first position that a row at `position` sees in the window group. */
static uint32_t window_begin(const struct schedule *s, uint32_t position)
{
    uint32_t window = s->engine->info.n_groups > 1 ? s->engine->info.groups[1].window : 0;
    return window && position >= window ? position + 1 - window : 0;
}

/* Appends the next n rows of a sequence; each asks for its logits. */
static void add_rows(struct schedule *s, struct test_seq *seq, uint32_t n, uint32_t index,
                     struct batch_row *rows, struct batch_seq *out)
{
    uint32_t begin = seq->length;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t p = seq->length++;
        seq->pages[p] = list_take(&s->free);
        seq->window_pages[p] = list_take(&s->window_free);
        rows[j] = token_row(s->world->prompts[seq->prompt].tokens[p], p, seq->pages[p], index,
                            WANTS_LOGITS);
        rows[j].pages[1] = seq->window_pages[p];
    }
    /* As little as the rows need, or all that exists. */
    uint32_t first = random_below(s, 2) ? window_begin(s, begin) : seq->window_first;
    uint32_t n_runs = make_runs(seq->pages, 0, seq->length, seq->runs);
    uint32_t n_window = make_runs(seq->window_pages, first, seq->length, seq->window_runs);
    *out = (struct batch_seq){
        .pages = {{seq->runs, n_runs, 0}, {seq->window_runs, n_window, first}},
        .length = seq->length};
}

static void release_windows(struct schedule *s)
{
    for (uint32_t i = 0; s->releases && i < s->n_seqs; i++) {
        struct test_seq *seq = &s->seqs[i];
        for (; seq->window_first < window_begin(s, seq->length); s->counts->released++)
            s->window_free.pages[s->window_free.count++] = seq->window_pages[seq->window_first++];
    }
}

static void forward(struct schedule *s, const struct batch *batch)
{
    uint32_t n_vocab = s->world->n_vocab;
    struct error err;
    if (forward_rows(s->engine, batch, s->rows, s->logits, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    for (uint32_t i = 0; i < batch->n_rows; i++)
        if (memcmp(s->logits + (size_t)i * n_vocab, s->want[i], n_vocab * sizeof *s->logits) != 0)
            test_fail(__FILE__, __LINE__,
                      "%s: other bits in row %u of %u (%u sequences), position %u; off by %g",
                      s->engine->info.name, i, batch->n_rows, batch->n_seqs, s->rows[i].position,
                      logits_error(s->logits + (size_t)i * n_vocab, s->want[i], n_vocab));
    s->counts->compared += batch->n_rows;
}

/* One batch: a chunk of random size of some of the sequences. False when all are complete. */
static bool step(struct schedule *s)
{
    const struct schedule_world *w = s->world;
    struct batch batch = {.seqs = s->batch_seqs, .rows = s->rows};
    bool one_by_one = random_below(s, 4) == 0;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        struct test_seq *seq = &s->seqs[i];
        uint32_t left = seq->target - seq->length;
        uint32_t n = min_u32(one_by_one ? 1 : 1 + random_below(s, w->max_chunk), left);
        n = min_u32(n, w->max_rows - batch.n_rows);
        if (n == 0 || (i > 0 && random_below(s, 4) == 0))
            continue;
        for (uint32_t j = 0; j < n; j++)
            s->want[batch.n_rows + j] = w->prompts[seq->prompt].plain +
                                        (size_t)(seq->length + j) * w->n_vocab;
        add_rows(s, seq, n, batch.n_seqs, &s->rows[batch.n_rows], &s->batch_seqs[batch.n_seqs]);
        batch.n_seqs++;
        batch.n_rows += n;
    }
    if (batch.n_rows == 0)
        return false;
    forward(s, &batch);
    release_windows(s);
    return true;
}

static void schedule_open(struct schedule *s)
{
    const struct schedule_world *w = s->world;
    list_open(s, &s->free);
    list_open(s, &s->window_free);
    s->rows = take(s, w->max_rows, sizeof *s->rows);
    s->want = take(s, w->max_rows, sizeof *s->want);
    s->logits = take(s, (size_t)w->max_rows * w->n_vocab, sizeof *s->logits);
    s->batch_seqs = take(s, w->max_seqs, sizeof *s->batch_seqs);
    s->seqs = take(s, w->max_seqs, sizeof *s->seqs);
    for (uint32_t i = 0; i < w->max_seqs; i++) {
        s->seqs[i].pages = take(s, w->n_tokens, sizeof *s->seqs[i].pages);
        s->seqs[i].window_pages = take(s, w->n_tokens, sizeof *s->seqs[i].window_pages);
        s->seqs[i].runs = take(s, w->n_tokens, sizeof *s->seqs[i].runs);
        s->seqs[i].window_runs = take(s, w->n_tokens, sizeof *s->seqs[i].window_runs);
    }
}

void schedule_run(const struct schedule_world *w, struct engine *e, uint64_t seed, bool releases,
                  struct schedule_counts *counts)
{
    struct schedule s = {
        .world = w, .engine = e, .releases = releases, .counts = counts, .seed = seed};
    schedule_open(&s);
    uint32_t n_seqs = 2 + random_below(&s, w->max_seqs - 1);
    add_seq(&s);
    for (bool busy = true; busy || s.n_seqs < n_seqs;) {
        busy = step(&s);
        if (s.n_seqs < n_seqs && (!busy || random_below(&s, 2)))
            add_seq(&s);
    }
    arena_free(&s.arena);
}

void schedule_plain(struct engine *e, const int32_t *tokens, uint32_t n, float *logits)
{
    struct batch_row *rows = malloc(n * sizeof *rows);
    struct error err;
    CHECK(rows != NULL);
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        end = min_u32(n, begin + e->limits.max_rows);
        struct page_run run = {0, end};
        struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = end};
        struct batch batch = {.seqs = &seq, .n_seqs = 1, .rows = rows, .n_rows = end - begin};
        for (uint32_t p = begin; p < end; p++)
            rows[p - begin] = token_row(tokens[p], p, p, 0, WANTS_LOGITS);
        if (forward_rows(e, &batch, rows, logits + (size_t)begin * e->info.n_vocab, &err))
            test_fail(__FILE__, __LINE__, "%s", err.message);
    }
    free(rows);
}

double logits_error(const float *got, const float *want, uint32_t n)
{
    double diff = 0, max = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(got[i]))
            return INFINITY;
        diff = fmax(diff, fabs((double)got[i] - want[i]));
        max = fmax(max, fabs((double)want[i]));
    }
    return diff / max;
}
