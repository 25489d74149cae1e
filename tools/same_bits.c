/* Checks on a whole model that results are bit-identical: same_bits MODEL [CASES [KERNELS]]. A case
 * is a prompt whose last rows' logits are computed plainly (one thread, one chunk, pages in order),
 * then again by one or two threads, split at random, in scattered pages, after another sequence's
 * prefix, and in batches with other sequences. memcmp must find no difference. The unit tests do
 * this for small random models on every kernel path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/cpu/cpu_engine.h"

enum { MAX_PROMPT = 200, N_COMPARED = 3, N_PAGES = 4096, MAX_ROWS = 256, N_OTHERS = 2 };
enum { MAX_OUTPUTS = (1 + N_OTHERS) * N_COMPARED };

/* A sequence with its own pages, and how much of it is computed. */
struct walker {
    int32_t tokens[MAX_PROMPT];
    struct page_run runs[MAX_PROMPT]; /* one page each, scattered */
    uint32_t n_tokens, n_done;
};

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = hash_mix(seed);
    return (uint32_t)(seed % n);
}

static void fail(const char *what)
{
    fprintf(stderr, "same_bits: %s\n", what);
    exit(1);
}

static void walker_init(struct walker *w, uint32_t first_page, uint32_t n_vocab)
{
    w->n_tokens = N_COMPARED + 1 + below(MAX_PROMPT - N_COMPARED);
    w->n_done = 0;
    for (uint32_t i = 0; i < w->n_tokens; i++) {
        w->tokens[i] = (int32_t)below(n_vocab);
        w->runs[i] = (struct page_run){first_page + i, 1};
    }
    for (uint32_t i = w->n_tokens - 1; i > 0; i--) {
        uint32_t j = below(i + 1);
        struct page_run swap = w->runs[i];
        w->runs[i] = w->runs[j];
        w->runs[j] = swap;
    }
}

/* For a batch's rows with logits, in order. */
static struct row_output outputs[MAX_OUTPUTS];

/* Adds the next `n` rows of a sequence to the batch; the last N_COMPARED positions give logits. */
static uint32_t walker_add_rows(struct walker *w, uint32_t n, uint32_t seq, struct batch_row *rows,
                                struct batch_seq *out, uint32_t *n_outputs)
{
    n = n < w->n_tokens - w->n_done ? n : w->n_tokens - w->n_done;
    for (uint32_t i = 0; i < n; i++, w->n_done++) {
        rows[i] = (struct batch_row){.value = w->tokens[w->n_done],
                                     .seq = seq,
                                     .position = w->n_done,
                                     .rope = {w->n_done},
                                     .pages = {w->runs[w->n_done].first}};
        if (w->n_done + N_COMPARED >= w->n_tokens)
            rows[i].output = &outputs[(*n_outputs)++];
    }
    *out = (struct batch_seq){.pages = {{w->runs, w->n_done, 0}}, .length = w->n_done};
    return n;
}

static void forward(struct engine *e, const struct batch *batch)
{
    struct error err;
    if (engine_forward(e, batch, &err))
        fail(err.message);
}

static void outputs_open(float *logits, size_t n_vocab)
{
    for (size_t i = 0; i < MAX_OUTPUTS; i++)
        outputs[i] = (struct row_output){.wants = OUTPUT_LOGITS, .logits = logits + i * n_vocab};
}

/* Computes the whole prompt in one batch. */
static void run_plain(struct engine *e, struct walker *w, float *logits)
{
    struct batch_row rows[MAX_ROWS];
    struct batch_seq seq;
    uint32_t n_outputs = 0, n = walker_add_rows(w, w->n_tokens, 0, rows, &seq, &n_outputs);
    outputs_open(logits, e->info.n_vocab);
    forward(e, &(struct batch){.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = n});
}

/* Splits at random, with rows of other sequences before and after; compares each requested row. */
static void run_mixed(struct engine *e, struct walker *w, struct walker *others, const float *plain,
                      float *logits)
{
    size_t n_vocab = e->info.n_vocab;
    uint32_t compared = 0;
    while (w->n_done < w->n_tokens) {
        struct batch_row rows[MAX_ROWS];
        struct batch_seq seqs[1 + N_OTHERS];
        uint32_t n_rows = 0, n_seqs = 0, n_before = 0, n_mine = 0, place = below(1 + N_OTHERS);
        uint32_t n_outputs = 0;
        for (uint32_t i = 0; i <= N_OTHERS; i++) {
            struct walker *who = i == place ? w : &others[i < place ? i : i - 1];
            uint32_t n = who == w ? 1 + below(below(4) ? 64 : 2) : below(3) * below(20);
            uint32_t from = n_outputs;
            if (n == 0 || who->n_done == who->n_tokens)
                continue;
            n_rows += walker_add_rows(who, n, n_seqs, rows + n_rows, &seqs[n_seqs], &n_outputs);
            n_seqs++;
            n_mine = who == w ? n_outputs - from : n_mine;
            n_before += i < place ? n_outputs - from : 0;
        }
        outputs_open(logits, n_vocab);
        forward(e, &(struct batch){.seqs = seqs, .rows = rows, .n_seqs = n_seqs, .n_rows = n_rows});
        if (memcmp(logits + n_before * n_vocab, plain + compared * n_vocab,
                   n_mine * n_vocab * sizeof *logits) != 0)
            fail("other bits");
        compared += n_mine;
    }
}

static void run_case(struct engine *engines[2], float *plain, float *logits)
{
    static struct walker whole, mixed, others[N_OTHERS];
    uint32_t n_vocab = engines[0]->info.n_vocab;
    walker_init(&whole, 0, n_vocab);
    run_plain(engines[0], &whole, plain);
    struct engine *e = engines[below(2)];
    mixed = whole;
    mixed.n_done = 0;
    for (uint32_t i = 0; i < whole.n_tokens; i++)
        mixed.runs[i].first += MAX_PROMPT;
    for (uint32_t i = 0; i < N_OTHERS; i++)
        walker_init(&others[i], (2 + i) * MAX_PROMPT, n_vocab);
    if (below(2)) { /* a cached prefix: the pages of a plain run */
        uint32_t cached = below(whole.n_tokens - N_COMPARED);
        whole.n_done = 0;
        run_plain(e, &whole, logits);
        if (memcmp(logits, plain, N_COMPARED * (size_t)n_vocab * sizeof *logits) != 0)
            fail("other bits with other threads");
        memcpy(mixed.runs, whole.runs, cached * sizeof *mixed.runs);
        mixed.n_done = cached;
    }
    run_mixed(e, &mixed, others, plain, logits);
}

int main(int argc, char **argv)
{
    struct error err;
    struct model model;
    struct engine *engines[2];
    if (argc < 2)
        fail("usage: same_bits MODEL [CASES [KERNELS]]");
    uint32_t n_cases = argc > 2 ? (uint32_t)atoi(argv[2]) : 300;
    if (model_open(&model, argv[1], NULL, &err))
        fail(err.message);
    for (uint32_t i = 0; i < 2; i++) {
        struct engine_limits limits = {
            .n_pages = {N_PAGES}, .max_rows = MAX_ROWS, .max_seqs = 8, .max_length = 512};
        struct cpu_options options = {.n_threads = i + 1, .kernels = argc > 3 ? argv[3] : NULL};
        if (cpu_engine_open(&engines[i], &model, &limits, &options, &err))
            fail(err.message);
    }
    size_t bytes = MAX_OUTPUTS * (size_t)model.hparams.n_vocab * sizeof(float);
    float *plain = malloc(bytes), *logits = malloc(bytes);
    if (!plain || !logits)
        fail("no memory");
    for (uint32_t i = 0; i < n_cases; i++) {
        seed = i;
        run_case(engines, plain, logits);
    }
    printf("%u cases, all the same bits (%s)\n", n_cases, engines[1]->info.name);
    free(plain);
    free(logits);
    engine_close(engines[0]);
    engine_close(engines[1]);
    model_close(&model);
    return 0;
}
