/* Every path of the vector kernels against the reference, bit for bit, on random data of awkward
 * sizes; and the reference against double-precision arithmetic. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/cpu/kernels/kernels.h"
#include "engine/cpu/rope.h"

enum { MAX_N = 300, MAX_Q = 9, MAX_DIM = 256 };

static uint64_t seed;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)((hash_mix(seed++) >> 32) * n >> 32);
}

static float random_float(float scale)
{
    return ((float)(hash_mix(seed++) >> 40) / (1 << 23) - 1.0f) * scale;
}

static void random_fill(float *x, uint32_t n, float scale)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = random_float(scale);
}

/* The i-th other path that this machine can run, or NULL. */
static const struct vector_kernels *other_path(unsigned i)
{
    const struct kernels *k = kernels_at(i + 1);
    return k ? k->vector : NULL;
}

/* The offset of element d of row j in a tile. */
static uint32_t tile_at(uint32_t j, uint32_t d)
{
    return (d / VECTOR_LANES * KEY_TILE + j) * VECTOR_LANES + d % VECTOR_LANES;
}

static const struct vector_kernels *const ref = &vector_kernels_ref;

#define CHECK_SAME(a, b, n) CHECK(memcmp((a), (b), (n) * sizeof *(a)) == 0)

/* tanh x on every path, through a cap of 1. */
TEST(vector, softcap_is_a_hyperbolic_tangent)
{
    enum { N = 4096 + 5 };
    static float x[N], want[N], got[N];
    for (uint32_t i = 0; i < N; i++) {
        seed = i;
        x[i] = random_float(i % 4 == 0 ? 1.5f : i % 4 == 1 ? 20.0f : i % 4 == 2 ? 1e-3f : 0.7f);
    }
    static const float edges[] = {0.0f,      -0.0f,  0.625f, -0.625f, 0.62499997f, 44.0f, -9.1f,
                                  INFINITY,  1e30f,  1e-30f, -1e-38f, 1e-44f,      89.0f, -3e38f,
                                  -INFINITY, 0.549f, 10.0f,  FLT_MAX, -FLT_MIN};
    memcpy(x, edges, sizeof edges);
    memcpy(want, x, sizeof want);
    ref->softcap(want, N, 1.0f);
    for (uint32_t i = 0; i < N; i++) {
        double exact = tanh(x[i]);
        if (!(fabs(want[i] - exact) <= 2.5e-7 * fabs(exact)) || signbit(want[i]) != signbit(x[i]))
            test_fail(__FILE__, __LINE__, "tanh %.9g: %.9g is not %.9g", x[i], want[i], exact);
    }
    for (unsigned p = 0; kernels_at(p); p++) {
        for (uint32_t n = 0; n <= N; n += n < 40 ? 1 : N - 40) {
            memcpy(got, x, sizeof got);
            kernels_at(p)->vector->softcap(got, n, 1.0f);
            CHECK_SAME(got, want, n);
            CHECK_SAME(got + n, x + n, N - n);
        }
        float nan = NAN;
        kernels_at(p)->vector->softcap(&nan, 1, 1.0f);
        CHECK(isnan(nan));
    }
}

TEST(vector, softcap_holds_at_the_cap)
{
    float x[] = {1e9f, -1e9f, 25.0f, 0.5f}, want[4];
    memcpy(want, x, sizeof want);
    ref->softcap(want, 4, 50.0f);
    CHECK(want[0] == 50.0f && want[1] == -50.0f);
    CHECK(fabs(want[2] - 50 * tanh(0.5)) < 1e-5 && fabs(want[3] - 50 * tanh(0.01)) < 1e-7);
    for (unsigned p = 0; other_path(p); p++) {
        float got[] = {1e9f, -1e9f, 25.0f, 0.5f};
        other_path(p)->softcap(got, 4, 50.0f);
        CHECK_SAME(got, want, 4);
    }
}

/* Rotation must turn every pair by its own angle, and leave the rest of the head unchanged. */
TEST(vector, rope_turns_pairs)
{
    float x[MAX_DIM + 1], start[MAX_DIM + 1], got[MAX_DIM + 1], cos_[MAX_DIM], sin_[MAX_DIM];
    double frequencies[MAX_DIM / 2];
    for (uint32_t dim = 2; dim <= MAX_DIM; dim += 2 + dim / 5 / 2 * 2) {
        for (int kind = ROPE_NORM; kind <= ROPE_NEOX; kind++) {
            struct rope rope = {
                .kind = kind, .dim = dim, .frequencies = frequencies, .amplitude = 1};
            uint32_t position = random_below(100000), half = dim / 2;
            for (uint32_t i = 0; i < half; i++)
                frequencies[i] = 0.5 / pow(10000, 2.0 * i / dim);
            rope_tables(&rope, position, cos_, sin_);
            random_fill(start, dim + 1, 1.0f);
            memcpy(x, start, sizeof x);
            ref->rope(kind, cos_, sin_, dim, x);
            for (uint32_t i = 0; i < half; i++) {
                double angle = position * frequencies[i];
                uint32_t a = kind == ROPE_NORM ? 2 * i : i;
                uint32_t b = kind == ROPE_NORM ? 2 * i + 1 : i + half;
                CHECK(fabs(x[a] - (start[a] * cos(angle) - start[b] * sin(angle))) < 1e-6);
                CHECK(fabs(x[b] - (start[b] * cos(angle) + start[a] * sin(angle))) < 1e-6);
            }
            CHECK(x[dim] == start[dim]);
            for (unsigned p = 0; other_path(p); p++) {
                memcpy(got, start, sizeof got);
                other_path(p)->rope(kind, cos_, sin_, dim, got);
                CHECK_SAME(got, x, dim + 1);
            }
        }
    }
}

static const float kv_samples[] = {
    0.0f,    -0.0f,   1.0f,        65504.0f, 65520.0f,   1e30f,       INFINITY, -INFINITY, 6.1e-5f,
    5.9e-8f, 2.9e-8f, 1.00048828f, 1.00146f, 1.0039063f, 1.01171875f, 3.4e38f,  1e-40f,    -2.5f};

TEST(vector, kv_types_store_and_load)
{
    enum { N_SAMPLES = sizeof kv_samples / sizeof *kv_samples };
    float x[MAX_DIM];
    uint8_t want[MAX_DIM * 4], got[MAX_DIM * 4 + 1];
    for (uint32_t n = 1; n <= MAX_DIM; n += 1 + n / 6) {
        random_fill(x, n, 4.0f);
        for (uint32_t i = 0; i < n && i < N_SAMPLES; i++)
            x[i] = kv_samples[i];
        for (int type = KV_F16; type <= KV_BF16; type++) {
            uint32_t size = n * (type == KV_F32 ? 4 : 2);
            ref->kv_store(type, x, want, n);
            for (unsigned p = 0; other_path(p); p++) {
                got[size] = 77;
                other_path(p)->kv_store(type, x, got, n);
                CHECK_SAME(got, want, size);
                CHECK_INT(got[size], 77);
            }
        }
    }
}

/* Random rows of a head in some KV type, and pointers to them; those after n_rows repeat. */
struct rows {
    _Alignas(64) uint8_t bytes[KEY_TILE][MAX_DIM * 4 + 8];
    float exact[KEY_TILE][MAX_DIM]; /* what the stored values stand for */
    const void *at[KEY_TILE];
};

static void random_rows(struct rows *rows, enum kv_type type, uint32_t n_rows, uint32_t n)
{
    static _Alignas(64) float tile[KEY_TILE * MAX_DIM];
    for (uint32_t j = 0; j < KEY_TILE; j++)
        rows->at[j] =
            rows->bytes[j < n_rows ? (j * 7 + 3) % KEY_TILE : (n_rows * 7 - 4) % KEY_TILE];
    for (uint32_t j = 0; j < n_rows; j++) {
        random_fill(rows->exact[j], n, 2.0f);
        ref->kv_store(type, rows->exact[j], (void *)(uintptr_t)rows->at[j], n);
    }
    ref->kv_load(type, rows->at, n_rows, n, tile);
    for (uint32_t j = 0; j < n_rows; j++)
        for (uint32_t d = 0; d < n; d++) {
            CHECK(fabsf(tile[tile_at(j, d)] - rows->exact[j][d]) <= 2.0f / 256);
            rows->exact[j][d] = tile[tile_at(j, d)];
        }
}

static struct rows rows;

TEST(vector, kv_load_pads_with_zeros)
{
    static _Alignas(64) float want[KEY_TILE * MAX_DIM], got[KEY_TILE * MAX_DIM];
    for (uint32_t n = 1; n <= 128; n += 1 + n / 6) {
        for (int type = KV_F16; type <= KV_BF16; type++) {
            uint32_t n_rows = 1 + random_below(KEY_TILE);
            random_rows(&rows, type, n_rows, n);
            memset(want, 1, sizeof want);
            ref->kv_load(type, rows.at, n_rows, n, want);
            for (uint32_t d = n; d < attention_dim(n); d++)
                CHECK(want[tile_at(n_rows - 1, d)] == 0.0f);
            for (unsigned p = 0; other_path(p); p++) {
                memset(got, 1, sizeof got);
                other_path(p)->kv_load(type, rows.at, n_rows, n, got);
                CHECK_SAME(got, want, (uint32_t)(KEY_TILE * MAX_DIM));
            }
        }
    }
}

TEST(vector, kv_keeps_nan)
{
    float x[16];
    static _Alignas(64) float back[KEY_TILE * 16];
    uint8_t stored[64];
    const void *at[KEY_TILE] = {stored};
    for (int i = 0; i < 16; i++)
        x[i] = i % 2 ? NAN : 1.0f;
    uint32_t bits = 0x7f800001; /* a NaN whose upper half alone would be an infinity */
    memcpy(&x[3], &bits, sizeof bits);
    for (unsigned p = 0; kernels_at(p); p++) {
        for (int type = KV_F16; type <= KV_BF16; type++) {
            kernels_at(p)->vector->kv_store(type, x, stored, 16);
            kernels_at(p)->vector->kv_load(type, at, 1, 16, back);
            for (int i = 0; i < 16; i++)
                CHECK(i % 2 ? isnan(back[i]) : back[i] == 1.0f);
        }
    }
}

/* The scores of n_rows keys by both ways through the kernels `k`; the rest of the tile is open. */
static void check_scores(const struct vector_kernels *k, enum kv_type type, uint32_t n_rows,
                         uint32_t n, const float *q, uint32_t n_q, const float *want)
{
    static _Alignas(64) float tile[KEY_TILE * MAX_DIM], turned[KEY_TILE * MAX_DIM];
    static _Alignas(64) float few[MAX_Q * ATTENTION_BLOCK], many[MAX_Q * ATTENTION_BLOCK];
    uint32_t dim = attention_dim(n);
    k->scores_few(type, rows.at, n_rows, n, q, n_q, dim, few);
    k->kv_load(type, rows.at, n_rows, n, tile);
    k->transpose(tile, dim, turned);
    k->scores_many(q, n_q, turned, dim, many);
    for (uint32_t i = 0; i < n_q; i++) {
        CHECK_SAME(few + i * ATTENTION_BLOCK, want + i * ATTENTION_BLOCK, n_rows);
        CHECK_SAME(many + i * ATTENTION_BLOCK, want + i * ATTENTION_BLOCK, n_rows);
    }
    for (uint32_t d = 0; d < dim; d++)
        for (uint32_t j = 0; j < n_rows; j++)
            CHECK(turned[d * KEY_TILE + j] == tile[tile_at(j, d)]);
}

TEST(vector, scores_of_few_and_of_many)
{
    static _Alignas(64) float q[MAX_Q * MAX_DIM], want[MAX_Q * ATTENTION_BLOCK];
    for (uint32_t n = 1; n <= MAX_DIM; n += n % 16 == 0 ? 1 : n % 16 == 1 ? 6 : 16 - n % 16) {
        enum kv_type type = random_below(3);
        uint32_t n_q = 1 + random_below(MAX_Q), dim = attention_dim(n);
        uint32_t n_rows = random_below(2) ? KEY_TILE : 1 + random_below(KEY_TILE);
        random_rows(&rows, type, n_rows, n);
        memset(q, 0, sizeof q);
        for (uint32_t i = 0; i < n_q; i++)
            random_fill(q + i * dim, n, 1.0f);
        ref->scores_few(type, rows.at, n_rows, n, q, n_q, dim, want);
        for (uint32_t i = 0; i < n_q; i++) {
            for (uint32_t j = 0; j < n_rows; j++) {
                double exact = 0;
                for (uint32_t d = 0; d < n; d++)
                    exact += (double)q[i * dim + d] * rows.exact[j][d];
                CHECK(fabs(want[i * ATTENTION_BLOCK + j] - exact) < 2e-5);
            }
        }
        for (unsigned p = 0; kernels_at(p); p++)
            check_scores(kernels_at(p)->vector, type, n_rows, n, q, n_q, want);
    }
}

/* Only places begin .. end - 1 are visible. */
static void check_softmax(const float *start, uint32_t begin, uint32_t end)
{
    static _Alignas(64) float want[ATTENTION_BLOCK], got[ATTENTION_BLOCK];
    float want_max, want_sum, max, sum;
    memcpy(want, start, sizeof want);
    ref->softmax(want, begin, end, &want_max, &want_sum);
    double exact_sum = 0, exact_max = -INFINITY;
    for (uint32_t j = begin; j < end; j++)
        exact_max = fmax(exact_max, start[j]);
    CHECK(want_max == (float)exact_max);
    for (uint32_t j = 0; j < ATTENTION_BLOCK; j++) {
        double exact = j < begin || j >= end ? 0 : exp((double)(start[j] - want_max));
        exact_sum += exact;
        CHECK(fabs(want[j] - exact) <= 2e-7 * exact + (exact > 0 ? 2e-38 : 0)); /* e^-87 is 0 */
    }
    CHECK(fabs(want_sum - exact_sum) < 1e-5 * exact_sum);
    for (unsigned p = 0; kernels_at(p); p++) {
        memcpy(got, start, sizeof got);
        for (uint32_t j = 0; j < ATTENTION_BLOCK; j++)
            if (j < begin || j >= end)
                got[j] = j % 2 ? NAN : INFINITY;
        kernels_at(p)->vector->softmax(got, begin, end, &max, &sum);
        CHECK_SAME(got, want, ATTENTION_BLOCK);
        CHECK(max == want_max && sum == want_sum);
    }
}

TEST(vector, softmax_ignores_what_is_masked)
{
    static _Alignas(64) float start[ATTENTION_BLOCK];
    for (uint32_t n = 1; n <= ATTENTION_BLOCK; n++) {
        random_fill(start, ATTENTION_BLOCK, n % 3 ? 5.0f : 150.0f);
        check_softmax(start, 0, n);
        check_softmax(start, n - 1, n);
        check_softmax(start, n - 1, ATTENTION_BLOCK);
        check_softmax(start, random_below(n), n);
    }
}

TEST(vector, values_of_few_and_of_many)
{
    static _Alignas(64) float weights[MAX_Q * ATTENTION_BLOCK], tile[KEY_TILE * MAX_DIM];
    static _Alignas(64) float start[MAX_Q * (MAX_DIM + 16)], want[MAX_Q * (MAX_DIM + 16)],
        got[MAX_Q * (MAX_DIM + 16)];
    for (uint32_t n = 1; n <= MAX_DIM; n += n % 16 == 0 ? 1 : n % 16 == 1 ? 6 : 16 - n % 16) {
        for (uint32_t n_q = 1; n_q <= MAX_Q; n_q++) {
            enum kv_type type = random_below(3);
            uint32_t n_rows = 1 + random_below(KEY_TILE), dim = attention_dim(n);
            random_rows(&rows, type, n_rows, n);
            random_fill(weights, MAX_Q * ATTENTION_BLOCK, 1.0f);
            random_fill(start, MAX_Q * attention_stride(dim), 1.0f);
            memcpy(want, start, sizeof want);
            ref->values_few(type, rows.at, n_rows, n, weights, n_q, dim, want);
            for (uint32_t i = 0; i < n_q; i++) {
                uint32_t d = random_below(n), at = i * attention_stride(dim) + d;
                double exact = start[at];
                for (uint32_t j = 0; j < n_rows; j++)
                    exact += (double)weights[i * ATTENTION_BLOCK + j] * rows.exact[j][d];
                CHECK(fabs(want[at] - exact) < 1e-5);
            }
            for (unsigned p = 0; kernels_at(p); p++) {
                const struct vector_kernels *k = kernels_at(p)->vector;
                memcpy(got, start, sizeof got);
                k->values_few(type, rows.at, n_rows, n, weights, n_q, dim, got);
                CHECK_SAME(got, want, MAX_Q * attention_stride(dim));
                memcpy(got, start, sizeof got);
                k->kv_load(type, rows.at, n_rows, n, tile);
                k->values_many(weights, n_q, n_rows, tile, dim, got);
                CHECK_SAME(got, want, MAX_Q * attention_stride(dim));
            }
        }
    }
}

TEST(vector, merge_and_finish)
{
    static _Alignas(64) float a[MAX_DIM + 16], b[MAX_DIM + 16], want[MAX_DIM + 16],
        got[MAX_DIM + 16], out[MAX_DIM + 1], out_want[MAX_DIM + 1];
    for (uint32_t dim = 16; dim <= MAX_DIM; dim += 16) {
        random_fill(a, dim + 1, 2.0f);
        random_fill(b, dim + 1, 2.0f);
        a[dim + 1] = 1.0f + random_float(0.9f);
        b[dim + 1] = 1.0f + random_float(0.9f);
        memcpy(want, a, sizeof want);
        ref->merge(want, b, dim);
        CHECK(want[dim] == fmaxf(a[dim], b[dim]));
        uint32_t n = dim - random_below(15);
        ref->finish(want, dim, out_want, n);
        double wa = exp(a[dim] - want[dim]), wb = exp(b[dim] - want[dim]);
        for (uint32_t d = 0; d < n; d++) {
            double exact = (wa * a[d] + wb * b[d]) / (wa * a[dim + 1] + wb * b[dim + 1]);
            CHECK(fabs(out_want[d] - exact) < 1e-4);
        }
        for (unsigned p = 0; other_path(p); p++) {
            memcpy(got, a, sizeof got);
            other_path(p)->merge(got, b, dim);
            CHECK_SAME(got, want, dim + 2);
            out[n] = 77.0f;
            other_path(p)->finish(got, dim, out, n);
            CHECK_SAME(out, out_want, n);
            CHECK(out[n] == 77.0f);
        }
    }
}
