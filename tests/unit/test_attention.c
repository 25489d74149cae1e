/* Attention over pages: against a plain double-precision one, and against itself, bit for bit,
 * however rows are batched, pages scattered and work cut among threads. The threads' shares are run
 * one after the other here; that they may run at once is for the engine's tests. */
#include "test.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/cpu/attention_internal.h"
#include "engine/cpu/kernels.h"

enum { MAX_SEQS = 8, MAX_ROWS = 64, MAX_LENGTH = 700, N_PAGES = 6000 };

static uint64_t seed;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)((hash_mix(seed++) >> 32) * n >> 32);
}

static float random_float(float scale)
{
    return ((float)(hash_mix(seed++) >> 40) / (1 << 23) - 1.0f) * scale;
}

/* Sequences with their pages, the rows to compute, and everything that attention reads. */
struct fixture {
    struct attention_shape shape;
    const struct vector_kernels *kernels;
    uint32_t n_seqs, lengths[MAX_SEQS];
    uint32_t parents[MAX_SEQS], n_inherited[MAX_SEQS]; /* positions that begin as the parent's do */
    uint32_t pages[MAX_SEQS][MAX_LENGTH];
    struct page_run runs[MAX_SEQS][MAX_LENGTH];
    struct batch_seq seqs[MAX_SEQS];
    struct batch_row rows[MAX_ROWS];
    uint32_t n_rows;
    uint8_t *keys, *values;
    float *q, *out;
};

static size_t kv_bytes(const struct fixture *f)
{
    return (size_t)f->shape.n_kv_heads * f->shape.head_dim * (f->shape.kv_type == KV_F32 ? 4 : 2);
}

/* A permutation of the pages; runs of them stay together where `scatter` is 0. Sequences either use
 * the pages of those that they inherit from, or have a copy. */
static void give_pages(struct fixture *f, bool scatter, bool share)
{
    static uint32_t order[N_PAGES];
    for (uint32_t i = 0; i < N_PAGES; i++)
        order[i] = i;
    for (uint32_t i = N_PAGES - 1; scatter && i > 0; i--) {
        uint32_t j = i - random_below(i < 20 ? i : 20), page = order[i];
        order[i] = order[j];
        order[j] = page;
    }
    uint32_t next = scatter ? random_below(50) : 0;
    for (uint32_t s = 0; s < f->n_seqs; s++) {
        struct batch_seq *seq = &f->seqs[s];
        *seq = (struct batch_seq){.runs = f->runs[s], .length = f->lengths[s]};
        for (uint32_t p = 0; p < f->lengths[s]; p++) {
            bool is_shared = share && p < f->n_inherited[s];
            uint32_t page = is_shared ? f->pages[f->parents[s]][p] : order[next++];
            f->pages[s][p] = page;
            struct page_run *last = seq->n_runs ? &f->runs[s][seq->n_runs - 1] : NULL;
            if (last && last->first + last->count == page)
                last->count++;
            else
                f->runs[s][seq->n_runs++] = (struct page_run){page, 1};
        }
    }
}

static void fixture_open(struct fixture *f)
{
    size_t n_q = (size_t)MAX_ROWS * f->shape.n_heads * f->shape.head_dim;
    f->keys = malloc(N_PAGES * kv_bytes(f));
    f->values = malloc(N_PAGES * kv_bytes(f));
    f->q = malloc(n_q * sizeof(float));
    f->out = malloc(n_q * sizeof(float));
    CHECK(f->keys && f->values && f->q && f->out);
}

static void fixture_close(struct fixture *f)
{
    free(f->keys);
    free(f->values);
    free(f->q);
    free(f->out);
}

/* The KV of a position is a function of its place and the sequence that it is inherited from; other
 * pages hold NaN. */
static void fill_kv(struct fixture *f, uint64_t kv_seed)
{
    memset(f->keys, 0xff, N_PAGES * kv_bytes(f));
    memset(f->values, 0xff, N_PAGES * kv_bytes(f));
    float x[512];
    uint32_t n = f->shape.n_kv_heads * f->shape.head_dim;
    CHECK(n <= 512);
    for (uint32_t s = 0; s < f->n_seqs; s++) {
        for (uint32_t p = 0; p < f->lengths[s]; p++) {
            for (int side = 0; side < 2; side++) {
                uint32_t from = s;
                while (p < f->n_inherited[from])
                    from = f->parents[from];
                seed = hash_pair(kv_seed + from, p * 2 + side);
                for (uint32_t i = 0; i < n; i++)
                    x[i] = random_float(2.0f);
                uint8_t *page = (side ? f->values : f->keys) + f->pages[s][p] * kv_bytes(f);
                f->kernels->kv_store(f->shape.kv_type, x, page, n);
            }
        }
    }
}

/* The query of a row is a function of its sequence and position alone. */
static void fill_q(struct fixture *f, uint64_t kv_seed)
{
    uint32_t n = f->shape.n_heads * f->shape.head_dim;
    for (uint32_t r = 0; r < f->n_rows; r++) {
        seed = hash_pair(kv_seed + 100 + f->rows[r].seq, f->rows[r].position);
        for (uint32_t i = 0; i < n; i++)
            f->q[r * n + i] = random_float(2.0f);
    }
}

static void compute(struct fixture *f, uint32_t n_threads)
{
    struct attention *a;
    struct error err;
    f->shape.n_threads = n_threads;
    CHECK_INT(attention_open(&a, &f->shape, f->kernels, &err), 0);
    struct batch batch = {
        .seqs = f->seqs, .rows = f->rows, .n_seqs = f->n_seqs, .n_rows = f->n_rows};
    struct attention_io io = {f->keys, f->values, f->q, f->out};
    memset(f->out, 0xff, (size_t)f->n_rows * f->shape.n_heads * f->shape.head_dim * sizeof(float));
    attention_plan(a, &batch);
    for (uint32_t t = n_threads; t-- > 0;)
        attention_run(a, &io, t);
    for (uint32_t t = 0; t < n_threads && attention_must_combine(a); t++)
        attention_combine(a, &io, t);
    attention_close(a);
}

static struct attention_shape random_shape(void)
{
    static const uint32_t heads[][3] = {{9, 3, 64}, {8, 4, 8},  {4, 4, 32}, {6, 1, 80},
                                        {2, 2, 16}, {4, 2, 96}, {40, 1, 4}, {2, 1, 128}};
    const uint32_t *h = heads[random_below(8)];
    return (struct attention_shape){.n_heads = h[0],
                                    .n_kv_heads = h[1],
                                    .head_dim = h[2],
                                    .kv_type = random_below(3),
                                    .max_rows = MAX_ROWS,
                                    .max_length = MAX_LENGTH};
}

static uint32_t random_length(uint32_t max)
{
    static const uint32_t edges[] = {1, 127, 128, 129, 255, 256, 257, 31, 32, 33};
    uint32_t edge = edges[random_below(10)];
    return random_below(2) && edge <= max ? edge : 1 + random_below(max);
}

/* One to eight sequences, some of which begin as an earlier one does; each gives its last few
 * positions as rows. */
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
        uint32_t most = MAX_ROWS / MAX_SEQS;
        uint32_t n = random_below(2) ? 1 : 1 + random_below(s == 0 ? most : 3);
        uint32_t own = f->lengths[s] - f->n_inherited[s];
        n = n < own ? n : own;
        for (uint32_t p = f->lengths[s] - n; p < f->lengths[s]; p++)
            f->rows[f->n_rows++] = (struct batch_row){.position = p, .seq = s};
    }
}

/* One head of a position as floats. */
static void load_row(const struct fixture *f, const void *row, float *out)
{
    static _Alignas(64) float tile[128 * KEY_TILE];
    vector_kernels_ref.kv_load(f->shape.kv_type, &row, 1, f->shape.head_dim, tile);
    for (uint32_t d = 0; d < f->shape.head_dim; d++)
        out[d] = tile[d / VECTOR_LANES * KEY_TILE * VECTOR_LANES + d % VECTOR_LANES];
}

static void check_against_double(const struct fixture *f, uint32_t row, uint32_t head)
{
    uint32_t dim = f->shape.head_dim, kv = head / (f->shape.n_heads / f->shape.n_kv_heads);
    const struct batch_row *r = &f->rows[row];
    const float *q = f->q + ((size_t)row * f->shape.n_heads + head) * dim;
    const float *out = f->out + ((size_t)row * f->shape.n_heads + head) * dim;
    size_t head_bytes = kv_bytes(f) / f->shape.n_kv_heads;
    float row_values[128];
    double weights[MAX_LENGTH], max = -INFINITY, sum = 0, want[128] = {0};
    for (uint32_t p = 0; p <= r->position; p++) {
        size_t at = f->pages[r->seq][p] * kv_bytes(f) + kv * head_bytes;
        load_row(f, f->keys + at, row_values);
        weights[p] = 0;
        for (uint32_t d = 0; d < dim; d++)
            weights[p] += (double)q[d] * row_values[d] / sqrt(dim);
        max = fmax(max, weights[p]);
    }
    for (uint32_t p = 0; p <= r->position; p++) {
        size_t at = f->pages[r->seq][p] * kv_bytes(f) + kv * head_bytes;
        load_row(f, f->values + at, row_values);
        double w = exp(weights[p] - max);
        sum += w;
        for (uint32_t d = 0; d < dim; d++)
            want[d] += w * row_values[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        if (!(fabs(out[d] - want[d] / sum) < 2e-5))
            test_fail(__FILE__, __LINE__, "row at %u, head %u, %u: %g is not %g", r->position, head,
                      d, out[d], want[d] / sum);
}

TEST(attention, equals_double_precision)
{
    static struct fixture f;
    for (uint64_t round = 0; round < 60; round++) {
        seed = hash_mix(round);
        f.shape = random_shape();
        unsigned n_paths = 0;
        while (kernels_at(n_paths))
            n_paths++;
        f.kernels = kernels_at(random_below(n_paths))->vector;
        fixture_open(&f);
        random_batch(&f);
        give_pages(&f, random_below(2), true);
        uint32_t n_threads = 1 + random_below(5);
        fill_kv(&f, round);
        fill_q(&f, round);
        compute(&f, n_threads);
        for (int i = 0; i < 20; i++)
            check_against_double(&f, random_below(f.n_rows), random_below(f.shape.n_heads));
        fixture_close(&f);
    }
}

/* Every row alone, on one thread, with pages in order, gives the same bits on every path. */
TEST(attention, same_bits_alone)
{
    static struct fixture f, alone;
    for (uint64_t round = 0; round < 80; round++) {
        seed = hash_mix(round + 1000);
        f.shape = random_shape();
        f.kernels = kernels_select(NULL)->vector;
        fixture_open(&f);
        random_batch(&f);
        give_pages(&f, true, true);
        uint32_t n_threads = 1 + random_below(7);
        fill_kv(&f, round);
        fill_q(&f, round);
        compute(&f, n_threads);
        alone = f;
        fixture_open(&alone);
        give_pages(&alone, false, false);
        fill_kv(&alone, round);
        size_t n = (size_t)f.shape.n_heads * f.shape.head_dim;
        for (uint32_t r = 0; r < f.n_rows; r += 1 + r % 3) {
            unsigned path = round % 4;
            alone.kernels = kernels_at(path) ? kernels_at(path)->vector : f.kernels;
            alone.rows[0] = f.rows[r];
            alone.n_rows = 1;
            fill_q(&alone, round);
            for (uint32_t s = 0; s < alone.n_seqs; s++)
                alone.seqs[s].runs = alone.runs[s];
            compute(&alone, 1);
            CHECK(memcmp(alone.out, f.out + r * n, n * sizeof(float)) == 0);
        }
        fixture_close(&f);
        fixture_close(&alone);
    }
}

TEST(attention, infinite_values_reach_no_earlier_row)
{
    static struct fixture f;
    f.shape = (struct attention_shape){.n_heads = 2,
                                       .n_kv_heads = 1,
                                       .head_dim = 16,
                                       .kv_type = KV_F32,
                                       .max_rows = 8,
                                       .max_length = 300};
    for (unsigned p = 0; kernels_at(p); p++) {
        f.kernels = kernels_at(p)->vector;
        fixture_open(&f);
        f.n_seqs = 1;
        f.lengths[0] = 140;
        f.n_inherited[0] = 0;
        give_pages(&f, true, false);
        f.n_rows = 8;
        for (uint32_t i = 0; i < 8; i++)
            f.rows[i] = (struct batch_row){.position = 132 + i};
        fill_kv(&f, 5);
        fill_q(&f, 5);
        float *value = (float *)(void *)f.values + (size_t)f.pages[0][136] * 16;
        for (int d = 0; d < 16; d++)
            value[d] = d % 2 ? INFINITY : NAN;
        compute(&f, 2);
        for (uint32_t r = 0; r < 8; r++)
            for (uint32_t d = 0; d < 32; d++)
                CHECK(isfinite(f.out[r * 32 + d]) == (f.rows[r].position < 136));
        fixture_close(&f);
    }
}

/* Sequences with a prefix in common read it once, on one thread or several. */
TEST(attention, common_blocks_are_one_tile)
{
    static struct fixture f;
    f.shape = (struct attention_shape){.n_heads = 6,
                                       .n_kv_heads = 2,
                                       .head_dim = 16,
                                       .kv_type = KV_F16,
                                       .max_rows = MAX_ROWS,
                                       .max_length = MAX_LENGTH,
                                       .n_threads = 1};
    f.kernels = kernels_select(NULL)->vector;
    /* A: 5 blocks. B and C begin as A does for 3 of them, D as B does for 4. E is a stranger. */
    static const uint32_t inherited[] = {0, 390, 384, 520, 0}, parents[] = {0, 0, 0, 1, 0};
    static const uint32_t lengths[] = {640, 530, 400, 540, 140};
    f.n_seqs = f.n_rows = 5;
    for (uint32_t s = 0; s < 5; s++) {
        f.lengths[s] = lengths[s];
        f.n_inherited[s] = inherited[s];
        f.parents[s] = parents[s];
        f.rows[s] = (struct batch_row){.position = lengths[s] - 1, .seq = s};
    }
    give_pages(&f, true, true);
    struct attention *a;
    struct error err;
    CHECK_INT(attention_open(&a, &f.shape, f.kernels, &err), 0);
    struct batch batch = {.seqs = f.seqs, .rows = f.rows, .n_seqs = f.n_seqs, .n_rows = f.n_rows};
    attention_plan(a, &batch);
    CHECK_INT(a->n_tiles, 7);
    uint32_t blocks_read = 0, blocks_seen = 0;
    for (uint32_t i = 0; i < a->n_tiles; i++) {
        uint32_t n = a->tiles[i].end_block - a->tiles[i].first_block;
        blocks_read += n;
        blocks_seen += n * a->tiles[i].n_rows;
    }
    CHECK_INT(blocks_read, 3 + 2 + 1 + 1 + 1 + 1 + 2);
    CHECK_INT(blocks_seen, 5 + 5 + 4 + 5 + 2);
    attention_close(a);
}

/* A sequence that goes on behind another's last positions shares a block that the other's rows do
 * not see to its end; what lies behind them must not reach them either. */
TEST(attention, infinite_values_reach_no_row_through_a_common_block)
{
    enum { OTHER, PARENT, CHILD };
    static struct fixture f;
    f.shape = (struct attention_shape){.n_heads = 2,
                                       .n_kv_heads = 1,
                                       .head_dim = 16,
                                       .kv_type = KV_F32,
                                       .max_rows = 16,
                                       .max_length = 300};
    f.kernels = kernels_select(NULL)->vector;
    fixture_open(&f);
    f.n_seqs = 3;
    f.lengths[OTHER] = 50, f.lengths[PARENT] = 260, f.lengths[CHILD] = 270;
    f.n_inherited[OTHER] = f.n_inherited[PARENT] = 0;
    f.n_inherited[CHILD] = 256, f.parents[CHILD] = PARENT;
    give_pages(&f, false, true);
    for (uint32_t p = 256; p < 270; p++) /* so that the child comes before its parent */
        f.pages[CHILD][p] = p - 256;
    f.runs[CHILD][1] = (struct page_run){0, 14};
    CHECK_INT(f.seqs[CHILD].n_runs, 2);
    f.n_rows = 11;
    for (uint32_t i = 0; i < 10; i++)
        f.rows[i] = (struct batch_row){.position = 250 + i, .seq = PARENT};
    f.rows[10] = (struct batch_row){.position = 269, .seq = CHILD};
    fill_kv(&f, 6);
    fill_q(&f, 6);
    float *value = (float *)(void *)f.values + (size_t)f.pages[PARENT][254] * 16;
    for (int d = 0; d < 16; d++)
        value[d] = INFINITY;
    compute(&f, 1);
    for (uint32_t r = 0; r < 11; r++)
        for (uint32_t d = 0; d < 32; d++)
            CHECK(isfinite(f.out[r * 32 + d]) == (f.rows[r].position < 254));
    fixture_close(&f);
}
