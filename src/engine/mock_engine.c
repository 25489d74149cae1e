/* An engine without weights, for tests and for trying the server. The KV of a page is one digest
 * of the token and the page before it; the logits of a row are made from every page of the
 * sequence up to it, as attention would read them. So a wrong, stale or reused page anywhere in a
 * page table gives wrong logits, and nothing but the tokens gives the right ones. With a window,
 * what a row keeps in either group and its logits are also made from the window pages of the
 * positions that it sees, and of no others.
 * Owner: the thread that owns the engine. Pages of a batch that failed or was stopped are filled
 * with rubbish on purpose: whoever uses them notices. */
#include "engine/mock_engine.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"

enum {
    BYTE_VOCAB = 259,           /* 256 bytes and three controls: answers then look like words */
    END_ONE_IN = 48,            /* how often an answer is led to its end */
    WORD_ONE_IN = 5,            /* how often a letter ends its word */
    STOP_ONE_IN = 8,            /* how often the end of a word ends its sentence */
    LOOK_EVERY_NS = 500 * 1000, /* how often a waiting batch looks at its live count */
};

#define DIGEST_START 0x7261646973680001u
#define SALT_END     0x656e64u
#define SALT_WORD    0x776f7264u
#define SALT_RUBBISH 0x72756262u

/* What one byte class likes to be followed by, and how much (in logits). */
enum byte_class { CLASS_VOWEL, CLASS_CONSONANT, CLASS_SPACE, CLASS_OTHER, CLASS_CONTROL };

struct mock_engine {
    struct engine engine;
    struct mock_options options;
    const struct batch *batch; /* between submit and wait */
    uint32_t window;           /* of group 1; 0: there is none */
    uint64_t *digest;          /* [n_pages[0]] */
    uint64_t *window_digest;   /* [n_pages[1]], with a window */
    uint64_t n_batches;
    uint32_t since_failure; /* batches */
    uint32_t since_nan;     /* rows of logits */
};

static bool batch_has_token(const struct batch *batch, int32_t token)
{
    for (uint32_t i = 0; i < batch->n_rows; i++)
        if (batch->rows[i].value == token)
            return true;
    return false;
}

static bool is_stopped(const struct batch *batch)
{
    return batch->live && atomic_load_explicit(batch->live, memory_order_acquire) <= 0;
}

/* Waits out the cost of the batch; false when it was stopped meanwhile. */
static bool spend_cost(const struct mock_engine *m, const struct batch *batch)
{
    uint64_t cost_ns = ((uint64_t)m->options.row_cost_us * batch->n_rows +
                        m->options.batch_cost_us) *
                       1000;
    uint64_t end_ns = clock_now_ns() + cost_ns;
    for (;;) {
        if (is_stopped(batch))
            return false;
        uint64_t now_ns = clock_now_ns();
        if (now_ns >= end_ns)
            return true;
        uint64_t left_ns = end_ns - now_ns;
        struct timespec nap = {0, (long)(left_ns < LOOK_EVERY_NS ? left_ns : LOOK_EVERY_NS)};
        nanosleep(&nap, NULL);
    }
}

static void spoil_pages(struct mock_engine *m, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        uint64_t rubbish = hash_pair(SALT_RUBBISH, m->n_batches * 4096 + i);
        m->digest[batch->rows[i].pages[0]] = rubbish;
        if (m->window)
            m->window_digest[batch->rows[i].pages[1]] = rubbish;
    }
}

static enum byte_class byte_class(int32_t token)
{
    if (token == ' ')
        return CLASS_SPACE;
    if (token >= 'a' && token <= 'z')
        return strchr("aeiou", token) ? CLASS_VOWEL : CLASS_CONSONANT;
    return token == '.' || token == ',' ? CLASS_OTHER : CLASS_CONTROL;
}

/* How much the byte vocabulary likes `next` after `last`: vowels and consonants take turns, words
 * end at a space, sentences at a full stop. */
static float byte_bias(uint64_t digest, int32_t last, int32_t next)
{
    static const char common[] = "etaoinshrdlu";
    enum byte_class from = byte_class(last), to = byte_class(next);
    uint64_t choice = hash_pair(digest, SALT_WORD);
    bool in_word = from == CLASS_VOWEL || from == CLASS_CONSONANT;
    bool ends_word = in_word && choice % WORD_ONE_IN == 0;
    bool ends_sentence = ends_word && choice / WORD_ONE_IN % STOP_ONE_IN == 0;
    if (to == CLASS_CONTROL)
        return -16.0f;
    if (to == CLASS_SPACE)
        return from == CLASS_OTHER || (ends_word && !ends_sentence) ? 16.0f : -16.0f;
    if (to == CLASS_OTHER)
        return next == '.' && ends_sentence ? 16.0f : -16.0f;
    float bias = strchr(common, next) ? 2.0f : 0.0f;
    if (in_word && from != to)
        bias += 3.0f;
    return bias;
}

/* logits [n_vocab] of a row whose pages make `digest` and whose token is `last` */
static void make_logits(struct mock_engine *m, uint64_t digest, int32_t last, float *logits)
{
    if (m->options.nan_every && ++m->since_nan >= m->options.nan_every) {
        m->since_nan = 0;
        for (uint32_t i = 0; i < m->options.n_vocab; i++)
            logits[i] = NAN;
        return;
    }
    bool is_bytes = m->options.n_vocab == BYTE_VOCAB;
    for (uint32_t i = 0; i < m->options.n_vocab; i++) {
        uint64_t noise = hash_mix(digest + i) >> 40; /* 24 bits: exact in a float */
        logits[i] = (float)noise * (4.0f / (1 << 24));
        if (is_bytes)
            logits[i] += byte_bias(digest, last, (int32_t)i);
    }
    if (m->options.end_token >= 0) {
        bool ends = hash_pair(digest, SALT_END) % END_ONE_IN == 0;
        logits[m->options.end_token] = ends ? 40.0f : -40.0f;
    }
}

/* Walks one sequence's pages from the first; the page of the next position at each call. */
struct page_walk {
    const struct page_run *run;
    uint32_t index; /* in the run */
};

static uint32_t page_walk_next(struct page_walk *walk)
{
    while (walk->index == walk->run->count) {
        walk->run++;
        walk->index = 0;
    }
    return walk->run->first + walk->index++;
}

/* What one position adds to the sum of those that a row sees. */
static uint64_t weighed(uint64_t digest, uint32_t position)
{
    return digest * (2 * (uint64_t)position + 1);
}

/* The window of the next row: the sum of its positions first .. next - 1, which slides along. */
struct window_view {
    struct page_walk front, back; /* at `next`, at `first` */
    uint32_t first, next;
    uint64_t sum;
};

static void window_view_begin(const struct mock_engine *m, struct window_view *v,
                              const struct batch_seq *seq, uint32_t position)
{
    uint32_t from = seq->pages[1].first;
    uint32_t first = position >= m->window ? position + 1 - m->window : 0;
    assert(from <= first);
    *v = (struct window_view){{seq->pages[1].runs, 0}, {seq->pages[1].runs, 0}, first, first, 0};
    for (; from < first; from++) {
        page_walk_next(&v->front);
        page_walk_next(&v->back);
    }
    for (; v->next < position; v->next++)
        v->sum += weighed(m->window_digest[page_walk_next(&v->front)], v->next);
}

/* Moves on over a row, whose own page is written: it sees itself, and the next row not its first
 * position, if that is W back. Gives the sum of all that the row sees. */
static uint64_t window_view_pass(struct mock_engine *m, struct window_view *v,
                                 const struct batch_row *row, uint64_t digest)
{
    uint32_t page = page_walk_next(&v->front);
    assert(row->pages[1] == page && v->next == row->position);
    (void)row;
    m->window_digest[page] = hash_pair(digest, v->sum);
    uint64_t sum = v->sum += weighed(m->window_digest[page], v->next++);
    if (v->next - v->first >= m->window) {
        v->sum -= weighed(m->window_digest[page_walk_next(&v->back)], v->first);
        v->first++;
    }
    return sum;
}

/* Computes the rows of one sequence, `n` of them. */
static void compute_seq(struct mock_engine *m, const struct batch_seq *seq,
                        const struct batch_row *rows, uint32_t n)
{
    struct page_walk walk = {seq->pages[0].runs, 0};
    struct window_view view = {0};
    uint64_t last = DIGEST_START, seen = 0, in_window = 0;
    uint32_t position = 0;
    for (; position < rows[0].position; position++) {
        last = m->digest[page_walk_next(&walk)];
        seen += weighed(last, position);
    }
    if (m->window)
        window_view_begin(m, &view, seq, position);
    for (uint32_t i = 0; i < n; i++, position++) {
        uint32_t page = page_walk_next(&walk);
        assert(rows[i].position == position && rows[i].pages[0] == page);
        last = hash_pair(last, (uint32_t)rows[i].value);
        if (m->window) {
            last = hash_pair(last, view.sum);
            in_window = hash_mix(window_view_pass(m, &view, &rows[i], last));
        }
        m->digest[page] = last;
        seen += weighed(last, position);
        if (rows[i].output && rows[i].output->wants & OUTPUT_LOGITS)
            make_logits(m, hash_mix(seen + in_window), rows[i].value, rows[i].output->logits);
    }
}

/* The runs name pages that there are, one for each of `length` positions. */
static void check_view(const struct page_view *view, uint32_t length, uint32_t n_pages)
{
    const struct page_run *runs = view->runs;
    uint32_t n = view->first;
    for (uint32_t i = 0; i < view->n_runs; i++) {
        assert(runs[i].count > 0 && runs[i].first < n_pages &&
               runs[i].count <= n_pages - runs[i].first);
        n += runs[i].count;
    }
    assert(n == length);
    (void)n;
    (void)length;
    (void)n_pages;
}

static void check_batch(const struct engine *e, const struct batch *batch)
{
    assert(batch->n_rows > 0 && batch->n_rows <= e->limits.max_rows);
    assert(batch->n_seqs > 0 && batch->n_seqs <= e->limits.max_seqs);
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct batch_seq *seq = &batch->seqs[i];
        assert(seq->length <= e->limits.max_length);
        assert(seq->pages[0].first == 0);
        for (uint32_t g = 0; g < e->info.n_groups; g++)
            check_view(&seq->pages[g], seq->length, e->limits.n_pages[g]);
    }
}

static int mock_submit(struct engine *e, const struct batch *batch, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    assert(!m->batch);
    check_batch(e, batch);
    uint32_t n_tokens = m->options.n_tokens > e->info.n_vocab ? m->options.n_tokens
                                                              : e->info.n_vocab;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        if (batch->rows[i].value < 0 || (uint32_t)batch->rows[i].value >= n_tokens)
            return error_set(err, ERROR_INPUT, "token %d is not in the vocabulary of %u",
                             batch->rows[i].value, n_tokens);
    m->batch = batch;
    return 0;
}

static int mock_wait(struct engine *e, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    const struct batch *batch = m->batch;
    assert(batch);
    m->batch = NULL;
    m->n_batches++;
    m->since_failure++;
    if (!spend_cost(m, batch)) {
        spoil_pages(m, batch);
        return error_set(err, ERROR_CANCELED, "the batch was stopped");
    }
    if (m->options.fail_token >= 0 && batch_has_token(batch, m->options.fail_token)) {
        spoil_pages(m, batch);
        return error_set(err, ERROR_FAILED, "the mock engine fails on token %d, as it was told",
                         m->options.fail_token);
    }
    if (m->options.fail_every && m->since_failure >= m->options.fail_every) {
        m->since_failure = 0;
        spoil_pages(m, batch);
        return error_set(err, ERROR_FAILED,
                         "the mock engine fails every %u batches, as it was told",
                         m->options.fail_every);
    }
    for (uint32_t i = 0, n; i < batch->n_rows; i += n) {
        const struct batch_row *rows = batch->rows + i;
        for (n = 1; i + n < batch->n_rows && rows[n].seq == rows[0].seq;)
            n++;
        compute_seq(m, &batch->seqs[rows[0].seq], rows, n);
    }
    return 0;
}

static void mock_close(struct engine *e)
{
    struct mock_engine *m = (struct mock_engine *)e;
    free(m->digest);
    free(m->window_digest);
    free(m);
}

static const struct engine_ops mock_ops = {
    .abi = ENGINE_ABI, .submit = mock_submit, .wait = mock_wait, .close = mock_close};

int mock_engine_open(struct engine **out, const struct mock_options *options,
                     const struct engine_limits *limits, struct error *err)
{
    if (options->n_vocab == 0 || options->end_token >= (int32_t)options->n_vocab)
        return error_set(err, ERROR_INPUT, "a mock vocabulary of %u has no end token %d",
                         options->n_vocab, options->end_token);
    struct mock_engine *m = calloc(1, sizeof *m);
    uint32_t window = options->n_groups > 1 ? options->groups[1].window : 0;
    uint32_t n_window_pages = window ? limits->n_pages[1] : 0;
    if (m) {
        m->digest = calloc(limits->n_pages[0], sizeof *m->digest);
        m->window_digest = calloc(n_window_pages + (size_t)1, sizeof *m->window_digest);
    }
    if (!m || !m->digest || !m->window_digest) {
        if (m)
            mock_close(&m->engine);
        return error_set(err, ERROR_MEMORY, "no memory for a mock engine of %u pages",
                         limits->n_pages[0]);
    }
    uint32_t page_bytes = sizeof *m->digest;
    m->options = *options;
    m->window = window;
    m->engine = (struct engine){
        .ops = &mock_ops,
        .limits = *limits,
        .info = {.name = "mock",
                 .n_vocab = options->n_vocab,
                 .n_groups = window ? 2 : 1,
                 .groups = {{.n_layers = 1, .page_bytes = page_bytes}},
                 .bit_exact = true,
                 .rope_axes = 1,
                 .kv_bytes = ((uint64_t)limits->n_pages[0] + n_window_pages) * page_bytes},
    };
    if (window)
        m->engine.info.groups[1] = (struct kv_group){
            .kind = KV_WINDOW, .n_layers = 1, .page_bytes = page_bytes, .window = window};
    *out = &m->engine;
    return 0;
}
