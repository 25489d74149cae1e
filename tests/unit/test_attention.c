/* Attention over pages: against a plain double-precision one, and against itself, bit for bit,
 * however rows are batched, pages scattered, and work cut among threads; with windows, caps, sinks,
 * and keys and values of all sizes. What no row sees is NaN, and what has no page is not allocated.
 * The threads' shares are run one after the other here; that they may run at once is for the
 * engine's tests. */
#include "test.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/cpu/attention_internal.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/kv_groups.h"

enum { MAX_SEQS = 8, MAX_ROWS = 64, MAX_LENGTH = 700, N_PAGES = 6000, MAX_HEADS = 128 };
enum { MAX_DIM = 576, NO_PAGE = UINT32_MAX, N_GROUPS = 2 };

static uint64_t seed;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)((hash_mix(seed++) >> 32) * n >> 32);
}

static float random_float(float scale)
{
    return ((float)(hash_mix(seed++) >> 40) / (1 << 23) - 1.0f) * scale;
}

/* Sequences with their pages in both groups, the rows to compute, and everything that attention
 * reads. */
struct fixture {
    struct attention_shape shape;
    const struct vector_kernels *kernels;
    float scale, softcap, sinks[MAX_HEADS];
    bool has_sinks;
    uint32_t max_tiles, raw_blocks; /* room left for attention; 0: all of it */
    uint32_t n_seqs, lengths[MAX_SEQS];
    uint32_t parents[MAX_SEQS], n_inherited[MAX_SEQS]; /* positions that begin as the parent's do */
    uint32_t pages[N_GROUPS][MAX_SEQS][MAX_LENGTH];
    struct page_run runs[N_GROUPS][MAX_SEQS][MAX_LENGTH];
    uint32_t n_pages[N_GROUPS]; /* after the last one in use */
    struct batch_seq seqs[MAX_SEQS];
    struct batch_row rows[MAX_ROWS];
    uint32_t n_rows;
    uint8_t *keys, *values;
    float *q, *out;
};

static size_t key_bytes(const struct fixture *f)
{
    return (size_t)f->shape.n_kv_heads * f->shape.key_dim * kv_type_bytes(f->shape.kv_type);
}

static size_t value_bytes(const struct fixture *f)
{
    return (size_t)f->shape.n_kv_heads * f->shape.value_dim * kv_type_bytes(f->shape.kv_type);
}

static size_t out_floats(const struct fixture *f)
{
    return (size_t)f->shape.n_heads * f->shape.value_dim;
}

static bool sees(const struct fixture *f, const struct batch_row *row, uint32_t position)
{
    uint32_t window = f->shape.window;
    return position <= row->position && (window == 0 || row->position - position < window);
}

/* One table: a page for each position from `first` on, as runs. */
static uint32_t make_table(struct fixture *f, uint32_t group, uint32_t s, uint32_t first,
                           const uint32_t *order, uint32_t *next, bool share)
{
    uint32_t n_runs = 0, *pages = f->pages[group][s];
    struct page_run *runs = f->runs[group][s];
    for (uint32_t p = 0; p < f->lengths[s]; p++) {
        pages[p] = NO_PAGE;
        if (p < first)
            continue;
        if (share && p < f->n_inherited[s])
            pages[p] = f->pages[group][f->parents[s]][p];
        if (pages[p] == NO_PAGE)
            pages[p] = order[(*next)++];
        if (pages[p] >= f->n_pages[group])
            f->n_pages[group] = pages[p] + 1;
        struct page_run *last = n_runs ? &runs[n_runs - 1] : NULL;
        if (last && last->first + last->count == pages[p])
            last->count++;
        else
            runs[n_runs++] = (struct page_run){pages[p], 1};
    }
    return n_runs;
}

/* The first position that some row of a sequence sees. */
static uint32_t first_position(const struct fixture *f, uint32_t s)
{
    for (uint32_t p = 0; p < f->lengths[s]; p++)
        for (uint32_t r = 0; r < f->n_rows; r++)
            if (f->rows[r].seq == s && sees(f, &f->rows[r], p))
                return p;
    return 0;
}

/* A permutation of the pages; runs of them stay together where `scatter` is 0. Sequences either use
 * the pages of those that they inherit from, or have a copy. In the group of windows the first ones
 * have no page any more. */
static void give_pages(struct fixture *f, bool scatter, bool share)
{
    static uint32_t order[N_PAGES];
    for (uint32_t group = 0; group < N_GROUPS; group++) {
        for (uint32_t i = 0; i < N_PAGES; i++)
            order[i] = i;
        for (uint32_t i = N_PAGES - 1; scatter && i > 0; i--) {
            uint32_t j = i - random_below(i < 20 ? i : 20), page = order[i];
            order[i] = order[j];
            order[j] = page;
        }
        uint32_t next = scatter ? random_below(50) : 0;
        f->n_pages[group] = 0;
        for (uint32_t s = 0; s < f->n_seqs; s++) {
            uint32_t first = group == 1 ? first_position(f, s) : 0;
            if (scatter && random_below(2))
                first = random_below(first + 1);
            uint32_t n_runs = make_table(f, group, s, first, order, &next, share);
            const struct page_run *runs = f->runs[group][s];
            struct batch_seq *seq = &f->seqs[s];
            if (group == 0)
                *seq = (struct batch_seq){.length = f->lengths[s]};
            seq->pages[group] = (struct page_view){runs, n_runs, first};
        }
    }
}

/* The KV of a position is a function of its place and the sequence that it is inherited from. */
static void fill_position(struct fixture *f, uint64_t kv_seed, uint32_t s, uint32_t p)
{
    static float x[4 * MAX_DIM];
    uint32_t from = s, page = f->pages[f->shape.group][s][p];
    while (p < f->n_inherited[from])
        from = f->parents[from];
    for (int side = 0; side < (f->shape.values_in_keys ? 1 : 2); side++) {
        uint32_t n = f->shape.n_kv_heads * (side ? f->shape.value_dim : f->shape.key_dim);
        CHECK(n <= 4 * MAX_DIM && page != NO_PAGE);
        seed = hash_pair(kv_seed + from, p * 2 + side);
        for (uint32_t i = 0; i < n; i++)
            x[i] = random_float(2.0f);
        f->kernels->kv_store(
            f->shape.kv_type, x,
            side ? f->values + page * value_bytes(f) : f->keys + page * key_bytes(f), n);
    }
}

/* Pages that no row sees, or that no sequence has, hold NaN. The query of a row is a function of
 * its sequence and position alone. */
static void fill(struct fixture *f, uint64_t kv_seed)
{
    uint32_t n_q = f->shape.n_heads * f->shape.key_dim, n_pages = f->n_pages[f->shape.group];
    f->keys = malloc(n_pages * key_bytes(f));
    f->values = f->shape.values_in_keys ? NULL : malloc(n_pages * value_bytes(f));
    f->q = malloc((size_t)f->n_rows * n_q * sizeof(float));
    f->out = malloc(f->n_rows * out_floats(f) * sizeof(float));
    CHECK(f->keys && f->q && f->out);
    memset(f->keys, 0xff, n_pages * key_bytes(f));
    if (f->values)
        memset(f->values, 0xff, n_pages * value_bytes(f));
    for (uint32_t r = 0; r < f->n_rows; r++) {
        const struct batch_row *row = &f->rows[r];
        for (uint32_t p = 0; p <= row->position; p++)
            if (sees(f, row, p) && (r == 0 || row[-1].seq != row->seq || !sees(f, row - 1, p)))
                fill_position(f, kv_seed, row->seq, p);
        seed = hash_pair(kv_seed + 100 + row->seq, row->position);
        for (uint32_t i = 0; i < n_q; i++)
            f->q[(size_t)r * n_q + i] = random_float(2.0f);
    }
}

static void fixture_close(struct fixture *f)
{
    free(f->keys);
    free(f->values);
    free(f->q);
    free(f->out);
}

/* Every row has each block that it sees in one tile, with the pages of its own sequence there. */
static void check_plan(const struct fixture *f, const struct attention *a)
{
    static uint8_t covered[MAX_ROWS][MAX_LENGTH / ATTENTION_BLOCK + 1];
    uint32_t n_covered = 0, n_seen = 0;
    memset(covered, 0, sizeof covered);
    for (const struct tile *t = a->tiles; t < a->tiles + a->n_tiles; t++) {
        const uint32_t *pages = f->pages[f->shape.group][t->seq - f->seqs];
        for (uint32_t i = 0; i < t->n_rows; i++) {
            uint32_t r = a->order[t->first + i], seq = f->rows[r].seq;
            for (uint32_t b = t->first_block; b < t->end_block; b++) {
                bool any = false;
                for (uint32_t p = b * ATTENTION_BLOCK; p < (b + 1) * ATTENTION_BLOCK; p++) {
                    if (p >= f->lengths[seq] || !sees(f, &f->rows[r], p))
                        continue;
                    any = true;
                    CHECK_INT(pages[p], f->pages[f->shape.group][seq][p]);
                }
                CHECK(!any || !covered[r][b]);
                covered[r][b] |= any;
                n_covered += any;
            }
        }
    }
    for (uint32_t r = 0; r < f->n_rows; r++)
        n_seen += row_end_block(&f->rows[r]) - row_first_block(a, &f->rows[r]);
    CHECK_INT(n_covered, n_seen);
}

static void compute(struct fixture *f, uint32_t n_threads)
{
    struct attention *a;
    struct error err;
    f->shape.n_threads = n_threads;
    CHECK_INT(attention_open(&a, &f->shape, f->kernels, &err), 0);
    if (f->max_tiles)
        a->max_tiles = f->max_tiles;
    if (f->raw_blocks)
        a->raw_blocks = f->raw_blocks;
    struct batch batch = {
        .seqs = f->seqs, .rows = f->rows, .n_seqs = f->n_seqs, .n_rows = f->n_rows};
    struct attention_io io = {.keys = f->keys,
                              .values = f->values,
                              .q = f->q,
                              .out = f->out,
                              .scale = f->scale,
                              .softcap = f->softcap,
                              .sinks = f->has_sinks ? f->sinks : NULL};
    memset(f->out, 0xff, f->n_rows * out_floats(f) * sizeof(float));
    attention_plan(a, &batch);
    check_plan(f, a);
    for (uint32_t t = n_threads; t-- > 0;)
        attention_run(a, &io, t);
    for (uint32_t t = 0; t < n_threads && attention_must_combine(a); t++)
        attention_combine(a, &io, t);
    attention_close(a);
}

static void random_shape(struct fixture *f)
{
    static const struct {
        uint32_t n_heads, n_kv_heads, key_dim, value_dim;
        bool values_in_keys;
    } shapes[] = {{9, 3, 64, 64, false},   {8, 4, 8, 8, false},     {4, 4, 32, 32, false},
                  {6, 1, 80, 80, false},   {2, 2, 16, 16, false},   {4, 2, 96, 96, false},
                  {40, 1, 4, 4, false},    {2, 1, 128, 128, false}, {16, 2, 64, 64, false},
                  {4, 2, 40, 24, false},   {3, 1, 20, 50, false},   {2, 2, 100, 7, false},
                  {5, 1, 40, 33, true},    {4, 2, 24, 24, true},    {128, 1, 24, 16, true},
                  {16, 1, 576, 512, true}, {4, 2, 512, 512, false}, {100, 1, 16, 8, false}};
    uint32_t i = random_below(sizeof shapes / sizeof *shapes);
    static const uint32_t windows[] = {0, 0, 0, 1, 2, 5, 127, 128, 129, 300, 1000};
    f->shape = (struct attention_shape){.n_heads = shapes[i].n_heads,
                                        .n_kv_heads = shapes[i].n_kv_heads,
                                        .key_dim = shapes[i].key_dim,
                                        .value_dim = shapes[i].value_dim,
                                        .values_in_keys = shapes[i].values_in_keys,
                                        .window = windows[random_below(11)],
                                        .group = random_below(2),
                                        .kv_type = random_below(3),
                                        .max_rows = MAX_ROWS,
                                        .max_length = MAX_LENGTH};
    f->scale = (random_below(2) ? 1.0f : 0.3f) / sqrtf((float)f->shape.key_dim);
    static const float caps[] = {0.0f, 0.0f, 0.01f, 2.0f, 50.0f};
    f->softcap = caps[random_below(5)];
    f->has_sinks = random_below(2);
    for (uint32_t h = 0; h < f->shape.n_heads; h++) {
        static const float large[] = {1e4f, -1e4f, 1e30f, -1e30f};
        f->sinks[h] = random_below(3) ? random_float(5.0f) : large[random_below(4)];
    }
    f->max_tiles = f->raw_blocks = 0;
}

static uint32_t random_length(uint32_t max)
{
    static const uint32_t edges[] = {1, 127, 128, 129, 255, 256, 257, 31, 32, 33};
    uint32_t edge = edges[random_below(10)];
    return random_below(2) && edge <= max ? edge : 1 + random_below(max);
}

/* One to eight sequences, some of which begin as an earlier one does; each gives its last few
 * positions as rows, at times with gaps between them. */
static void random_batch(struct fixture *f)
{
    f->n_seqs = 1 + random_below(MAX_SEQS);
    f->n_rows = 0;
    for (uint32_t s = 0; s < f->n_seqs; s++) {
        f->lengths[s] = random_length(s == 0 ? MAX_LENGTH : 300);
        f->n_inherited[s] = 0;
        if (s > 0 && random_below(3)) {
            f->parents[s] = random_below(s);
            f->n_inherited[s] = random_length(f->lengths[f->parents[s]]);
            f->lengths[s] = f->n_inherited[s] + random_length(100);
            f->lengths[s] = f->lengths[s] < MAX_LENGTH ? f->lengths[s] : MAX_LENGTH;
            f->n_inherited[s] -= f->n_inherited[s] == f->lengths[s];
        }
        uint32_t n = random_below(2) ? 1 : 1 + random_below(s == 0 ? MAX_ROWS / 2 : 4);
        uint32_t own = f->lengths[s] - f->n_inherited[s];
        n = n < own ? n : own;
        bool has_gaps = random_below(8) == 0;
        for (uint32_t p = f->lengths[s] - n; p < f->lengths[s]; p++)
            if (p + 1 == f->lengths[s] || !has_gaps || random_below(3) == 0)
                f->rows[f->n_rows++] = (struct batch_row){.position = p, .seq = s};
    }
}

/* The first n elements of one head of a position as doubles. */
static void load_row(const struct fixture *f, const void *row, uint32_t n, double *out)
{
    for (uint32_t d = 0; d < n; d++) {
        uint16_t half;
        memcpy(&half, (const uint8_t *)row + 2 * (size_t)d, sizeof half);
        float x = f->shape.kv_type == KV_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        if (f->shape.kv_type == KV_F32)
            memcpy(&x, (const uint8_t *)row + 4 * (size_t)d, sizeof x);
        out[d] = x;
    }
}

static void check_against_double(const struct fixture *f, uint32_t row, uint32_t head)
{
    uint32_t kv = head / (f->shape.n_heads / f->shape.n_kv_heads);
    uint32_t key_dim = f->shape.key_dim, value_dim = f->shape.value_dim;
    const struct batch_row *r = &f->rows[row];
    const float *q = f->q + ((size_t)row * f->shape.n_heads + head) * key_dim;
    const float *out = f->out + ((size_t)row * f->shape.n_heads + head) * value_dim;
    static double x[MAX_DIM], scores[MAX_LENGTH], want[MAX_DIM];
    double max = f->has_sinks ? f->sinks[head] : -INFINITY, sum = 0;
    const uint32_t *pages = f->pages[f->shape.group][r->seq];
    for (uint32_t p = 0; p <= r->position; p++) {
        if (!sees(f, r, p))
            continue;
        load_row(f, f->keys + pages[p] * key_bytes(f) + kv * key_bytes(f) / f->shape.n_kv_heads,
                 key_dim, x);
        scores[p] = 0;
        for (uint32_t d = 0; d < key_dim; d++)
            scores[p] += q[d] * x[d] * f->scale;
        if (f->softcap > 0)
            scores[p] = f->softcap * tanh(scores[p] / f->softcap);
        max = fmax(max, scores[p]);
    }
    if (f->has_sinks)
        sum = exp(f->sinks[head] - max);
    memset(want, 0, sizeof want);
    size_t bytes = f->values ? value_bytes(f) : key_bytes(f);
    const uint8_t *values = f->values ? f->values : f->keys;
    for (uint32_t p = 0; p <= r->position; p++) {
        if (!sees(f, r, p))
            continue;
        load_row(f, values + pages[p] * bytes + kv * bytes / f->shape.n_kv_heads, value_dim, x);
        double w = exp(scores[p] - max);
        sum += w;
        for (uint32_t d = 0; d < value_dim; d++)
            want[d] += w * x[d];
    }
    for (uint32_t d = 0; d < value_dim; d++)
        if (!(fabs(out[d] - want[d] / sum) < 2e-5))
            test_fail(__FILE__, __LINE__, "row at %u, head %u, %u: %g is not %g", r->position, head,
                      d, out[d], want[d] / sum);
}

static const struct vector_kernels *random_kernels(void)
{
    unsigned n_paths = 0;
    while (kernels_at(n_paths))
        n_paths++;
    return kernels_at(random_below(n_paths))->vector;
}

TEST(attention, equals_double_precision)
{
    static struct fixture f;
    for (uint64_t round = 0; round < 100; round++) {
        seed = hash_mix(round);
        random_shape(&f);
        f.kernels = random_kernels();
        random_batch(&f);
        give_pages(&f, random_below(2), true);
        uint32_t n_threads = 1 + random_below(5);
        fill(&f, round);
        compute(&f, n_threads);
        for (int i = 0; i < 12; i++)
            check_against_double(&f, random_below(f.n_rows), random_below(f.shape.n_heads));
        fixture_close(&f);
    }
}

/* Some of the rows that were computed in f, each alone, with the pages of `alone`. */
static void check_rows_alone(const struct fixture *f, struct fixture *alone, uint64_t kv_seed)
{
    size_t n = out_floats(f);
    for (uint32_t r = 0; r < f->n_rows; r += 1 + r % 3 * 2) {
        alone->rows[0] = f->rows[r];
        alone->n_rows = 1;
        give_pages(alone, false, false);
        fill(alone, kv_seed);
        compute(alone, 1);
        CHECK(memcmp(alone->out, f->out + r * n, n * sizeof(float)) == 0);
        fixture_close(alone);
    }
}

/* Every row alone, on one thread, with pages in order, in either group of pages, gives the same
 * bits on every path; however little room there is to store partials and for tiles. */
TEST(attention, same_bits_alone)
{
    static struct fixture f, alone;
    for (uint64_t round = 0; round < 120; round++) {
        seed = hash_mix(round + 1000);
        random_shape(&f);
        f.kernels = kernels_select(NULL)->vector;
        random_batch(&f);
        give_pages(&f, true, random_below(8) > 0);
        uint32_t n_threads = 1 + random_below(7);
        f.max_tiles = random_below(4) ? 0 : MAX_ROWS + n_threads + random_below(10);
        f.raw_blocks = random_below(4) ? 0 : 1 + random_below(20);
        alone = f;
        alone.shape.group = random_below(2);
        alone.kernels = kernels_at(round % 4) ? kernels_at(round % 4)->vector : f.kernels;
        fill(&f, round);
        compute(&f, n_threads);
        check_rows_alone(&f, &alone, round);
        fixture_close(&f);
    }
}

/* A sink far below all scores changes no bit; one far above them leaves nothing. */
TEST(attention, far_sinks)
{
    static struct fixture f;
    for (unsigned round = 0; kernels_at(round); round++) {
        seed = hash_mix(round + 2000);
        random_shape(&f);
        f.kernels = kernels_at(round)->vector;
        random_batch(&f);
        give_pages(&f, true, true);
        fill(&f, round);
        f.has_sinks = false;
        compute(&f, 2);
        size_t n = f.n_rows * out_floats(&f);
        float *without = f.out;
        f.out = malloc(n * sizeof(float));
        CHECK(f.out);
        f.has_sinks = true;
        for (uint32_t h = 0; h < f.shape.n_heads; h++)
            f.sinks[h] = h % 2 ? -200.0f : -1e30f;
        compute(&f, 2);
        CHECK(memcmp(f.out, without, n * sizeof(float)) == 0);
        for (uint32_t h = 0; h < f.shape.n_heads; h++)
            f.sinks[h] = h % 2 ? 200.0f : 1e30f;
        compute(&f, 3);
        for (size_t i = 0; i < n; i++)
            CHECK(f.out[i] == 0.0f);
        free(without);
        fixture_close(&f);
    }
}

/* Heads of 16 floats, with nothing special except perhaps a window. */
static void simple_shape(struct fixture *f, uint32_t n_heads, uint32_t n_kv_heads, uint32_t window)
{
    f->shape = (struct attention_shape){.n_heads = n_heads,
                                        .n_kv_heads = n_kv_heads,
                                        .key_dim = 16,
                                        .value_dim = 16,
                                        .window = window,
                                        .group = window ? 1 : 0,
                                        .kv_type = KV_F32,
                                        .max_rows = MAX_ROWS,
                                        .max_length = MAX_LENGTH,
                                        .n_threads = 1};
    f->scale = 0.25f;
    seed = 7;
}

/* A sequence of 140 positions whose last 8 are rows. */
static void open_rows(struct fixture *f, uint32_t n_heads, uint32_t window)
{
    simple_shape(f, n_heads, 1, window);
    f->n_seqs = 1;
    f->lengths[0] = 140;
    f->n_inherited[0] = 0;
    f->n_rows = 8;
    for (uint32_t i = 0; i < 8; i++)
        f->rows[i] = (struct batch_row){.position = 132 + i};
    give_pages(f, true, false);
    fill(f, 5);
}

/* Rows of one tile whose windows begin in different blocks: each begins with its own state. */
TEST(attention, same_bits_where_windows_begin_in_two_blocks)
{
    static const uint32_t windows[] = {1, 3, 20, 129, 150};
    static struct fixture f, alone;
    for (uint32_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        simple_shape(&f, 1, 1, windows[i]);
        f.kernels = random_kernels();
        f.n_seqs = 1;
        f.lengths[0] = 128 + windows[i] + 30;
        f.n_inherited[0] = 0;
        f.n_rows = 60;
        for (uint32_t r = 0; r < f.n_rows; r++)
            f.rows[r] = (struct batch_row){.position = f.lengths[0] - f.n_rows + r};
        give_pages(&f, true, false);
        alone = f;
        fill(&f, i);
        compute(&f, 1);
        check_rows_alone(&f, &alone, i);
        fixture_close(&f);
    }
}

/* NaN keys and values at one position reach only the rows that see it: neither those before it nor
 * those whose window is past it. */
TEST(attention, infinite_values_reach_no_other_row)
{
    static const struct {
        uint32_t window, position;
    } cases[] = {{0, 136}, {5, 136}, {1, 135}, {7, 129}, {10, 127}, {129, 7}, {128, 10}, {139, 0}};
    static struct fixture f;
    for (unsigned p = 0; kernels_at(p); p++) {
        f.kernels = kernels_at(p)->vector;
        for (uint32_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
            uint32_t bad = cases[i / 2].position, heads = i % 2 ? 2 : 1, n_seeing = 0;
            open_rows(&f, heads, cases[i / 2].window);
            size_t at = f.pages[f.shape.group][0][bad] * (size_t)16;
            for (int d = 0; d < 16; d++) {
                ((float *)(void *)f.values)[at + d] = d % 2 ? INFINITY : NAN;
                ((float *)(void *)f.keys)[at + d] = i % 4 < 2 ? 0.5f : NAN;
            }
            compute(&f, 1 + i % 3);
            for (uint32_t r = 0; r < 8; r++) {
                n_seeing += sees(&f, &f.rows[r], bad);
                for (uint32_t d = 0; d < 16 * heads; d++)
                    CHECK(isfinite(f.out[r * 16 * heads + d]) != sees(&f, &f.rows[r], bad));
            }
            CHECK(n_seeing > 0 && n_seeing < 8);
            fixture_close(&f);
        }
    }
}

/* Sequences with a row each, of which some begin as an earlier one does. */
static void open_family(struct fixture *f, uint32_t n_seqs, const uint32_t *lengths,
                        const uint32_t *parents, const uint32_t *inherited, uint32_t window)
{
    simple_shape(f, 6, 2, window);
    f->kernels = kernels_select(NULL)->vector;
    f->n_seqs = f->n_rows = n_seqs;
    for (uint32_t s = 0; s < n_seqs; s++) {
        f->lengths[s] = lengths[s];
        f->n_inherited[s] = inherited[s];
        f->parents[s] = parents[s];
        f->rows[s] = (struct batch_row){.position = lengths[s] - 1, .seq = s};
    }
    give_pages(f, true, true);
}

struct plan_counts {
    uint32_t tiles, blocks_read, blocks_seen;
};

static struct plan_counts count_plan(struct fixture *f)
{
    struct attention *a;
    struct error err;
    CHECK_INT(attention_open(&a, &f->shape, f->kernels, &err), 0);
    struct batch batch = {
        .seqs = f->seqs, .rows = f->rows, .n_seqs = f->n_seqs, .n_rows = f->n_rows};
    attention_plan(a, &batch);
    check_plan(f, a);
    struct plan_counts counts = {.tiles = a->n_tiles};
    for (uint32_t i = 0; i < a->n_tiles; i++) {
        uint32_t n = a->tiles[i].end_block - a->tiles[i].first_block;
        counts.blocks_read += n;
        counts.blocks_seen += n * a->tiles[i].n_rows;
    }
    attention_close(a);
    return counts;
}

/* Sequences with a prefix in common read it once, on one thread or several. */
TEST(attention, common_blocks_are_one_tile)
{
    static struct fixture f;
    /* A: 5 blocks. B and C share 3 of them with A, D shares 4 with B. E shares nothing. */
    static const uint32_t inherited[] = {0, 390, 384, 520, 0}, parents[] = {0, 0, 0, 1, 0};
    static const uint32_t lengths[] = {640, 530, 400, 540, 140};
    open_family(&f, 5, lengths, parents, inherited, 0);
    struct plan_counts counts = count_plan(&f);
    CHECK_INT(counts.tiles, 7);
    CHECK_INT(counts.blocks_read, 3 + 2 + 1 + 1 + 1 + 1 + 2);
    CHECK_INT(counts.blocks_seen, 5 + 5 + 4 + 5 + 2);
}

/* Blocks before a window cost nothing, and of those in it the ones that all see whole are shared.
 */
TEST(attention, common_blocks_in_a_window_are_one_tile)
{
    static struct fixture f;
    /* With a window of 300, A sees 250 .. 549 (blocks 1 to 4), B 270 .. 569 (2 to 4) and C
     * 230 .. 529 (1 to 4). Common are blocks up to 3, of which they see 3 whole, not 2. */
    static const uint32_t inherited[] = {0, 520, 515}, parents[] = {0, 0, 0};
    static const uint32_t lengths[] = {550, 570, 530};
    open_family(&f, 3, lengths, parents, inherited, 300);
    struct plan_counts counts = count_plan(&f);
    CHECK_INT(counts.tiles, 3 + 1 + 3);
    CHECK_INT(counts.blocks_read, (2 + 1 + 2) + 1 + (1 + 1 + 1));
    CHECK_INT(counts.blocks_seen, 4 + 3 + 4);

    /* The group of all positions gives the same. */
    f.shape.group = 0;
    struct plan_counts full = count_plan(&f);
    CHECK(memcmp(&full, &counts, sizeof full) == 0);
}

/* A sequence that is far ahead sees none of what the others share, and does not keep them from
 * sharing it. */
TEST(attention, a_window_far_ahead_shares_nothing)
{
    static struct fixture f;
    static const uint32_t inherited[] = {0, 400, 400}, parents[] = {0, 0, 1};
    static const uint32_t lengths[] = {700, 410, 415};
    open_family(&f, 3, lengths, parents, inherited, 260);
    struct plan_counts counts = count_plan(&f);
    /* A: 440 .. 699 is blocks 3 to 5, B: 150 .. 409 and C: 155 .. 414 are 1 to 3, with 2 whole. */
    CHECK_INT(counts.blocks_seen, 3 + 3 + 3);
    CHECK_INT(counts.blocks_read, 3 + 1 + 2 + 2);
}

/* The same pages at other positions, or other pages in the windows' group, are not shared. */
TEST(attention, only_the_same_pages_at_the_same_positions_are_shared)
{
    static struct fixture f;
    static const uint32_t inherited[] = {0, 520}, parents[] = {0, 0}, lengths[] = {550, 570};
    open_family(&f, 2, lengths, parents, inherited, 400);
    uint32_t shared = count_plan(&f).blocks_read;
    CHECK_INT(shared, 4 + 4 - 2);
    uint32_t first = f.seqs[1].pages[1].first; /* one page further on: as if moved by a position */
    for (uint32_t p = first; p < 520; p++)
        f.pages[1][1][p] = f.pages[1][0][p + 1];
    f.seqs[1].pages[1].n_runs = 0;
    struct page_run *runs = f.runs[1][1];
    for (uint32_t p = first; p < 570; p++)
        runs[f.seqs[1].pages[1].n_runs++] = (struct page_run){f.pages[1][1][p], 1};
    CHECK_INT(count_plan(&f).blocks_read, 4 + 4);
}

/* A sequence that continues after another's last positions shares a block that the other's rows do
 * not see to its end; what comes after them must not reach them either. */
TEST(attention, infinite_values_reach_no_row_through_a_common_block)
{
    enum { OTHER, PARENT, CHILD };
    static struct fixture f;
    simple_shape(&f, 2, 1, 0);
    f.kernels = kernels_select(NULL)->vector;
    f.n_seqs = 3;
    f.lengths[OTHER] = 50, f.lengths[PARENT] = 260, f.lengths[CHILD] = 270;
    f.n_inherited[OTHER] = f.n_inherited[PARENT] = 0;
    f.n_inherited[CHILD] = 256, f.parents[CHILD] = PARENT;
    give_pages(&f, false, true);
    for (uint32_t p = 256; p < 270; p++) /* so that the child comes before its parent */
        f.pages[0][CHILD][p] = p - 256;
    f.runs[0][CHILD][1] = (struct page_run){0, 14};
    CHECK_INT(f.seqs[CHILD].pages[0].n_runs, 2);
    f.n_rows = 11;
    for (uint32_t i = 0; i < 10; i++)
        f.rows[i] = (struct batch_row){.position = 250 + i, .seq = PARENT};
    f.rows[10] = (struct batch_row){.position = 269, .seq = CHILD};
    fill(&f, 6);
    float *value = (float *)(void *)f.values + (size_t)f.pages[0][PARENT][254] * 16;
    for (int d = 0; d < 16; d++)
        value[d] = INFINITY;
    compute(&f, 1);
    for (uint32_t r = 0; r < 11; r++)
        for (uint32_t d = 0; d < 32; d++)
            CHECK(isfinite(f.out[r * 32 + d]) == (f.rows[r].position < 254));
    fixture_close(&f);
}
