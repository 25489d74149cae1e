/* Element-wise functions: against the same in double precision, and all kernel paths against each
 * other, bit for bit, for every length of a tail. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/cpu/kernels/kernels.h"

enum { MAX_N = 67 };

static float inputs[4 * MAX_N];

/* Numbers of all sizes and signs, the same at every call. */
static void make_inputs(float largest)
{
    for (uint32_t i = 0; i < 4 * MAX_N; i++) {
        double share = (double)(hash_mix(i) >> 40) / (1 << 24);
        inputs[i] = (float)(largest * (2 * share - 1) * pow(share, 3));
    }
}

static const struct elementwise_kernels *path_at(unsigned i)
{
    return kernels_at(i) ? kernels_at(i)->elementwise : NULL;
}

static double exact(enum activation kind, double x)
{
    switch (kind) {
    case ACTIVATION_SILU: return x / (1 + exp(-x));
    case ACTIVATION_GELU: return 0.5 * x * erfc(-x * M_SQRT1_2);
    case ACTIVATION_GELU_TANH:
        return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACTIVATION_SWIGLU_OAI: return fmin(x, 7) / (1 + exp(-1.702 * fmin(x, 7)));
    }
    return NAN;
}

/* Over the whole range in steps of a thousandth; errors are relative to x, as those of x itself. */
TEST(elementwise, activations_are_exact)
{
    for (unsigned path = 0; path_at(path); path++) {
        for (int kind = ACTIVATION_SILU; kind <= ACTIVATION_SWIGLU_OAI; kind++) {
            for (int i = -12000; i <= 12000; i += 16) {
                float x[16], y[16], up[16];
                for (int j = 0; j < 16; j++) {
                    x[j] = (float)(i + j) / 1000;
                    up[j] = kind == ACTIVATION_SWIGLU_OAI ? 1 : 2;
                }
                path_at(path)->activate(kind, 7, x, up, y, 16);
                for (int j = 0; j < 16; j++) {
                    double want = 2 * exact(kind, x[j]);
                    if (!(fabs(y[j] - want) <= 4e-7 * fabs(want) + 2e-7 * fabs(x[j])))
                        test_fail(__FILE__, __LINE__, "kind %d of %g is %g, not %g", kind, x[j],
                                  y[j], want);
                }
            }
        }
    }
}

TEST(elementwise, activations_without_a_factor_and_at_the_ends)
{
    const float x[] = {-200, 200, 0, NAN, -INFINITY, INFINITY};
    for (unsigned path = 0; path_at(path); path++) {
        for (int kind = ACTIVATION_SILU; kind <= ACTIVATION_GELU; kind++) {
            float y[6];
            path_at(path)->activate(kind, 0, x, NULL, y, 6);
            CHECK(fabsf(y[0]) < 1e-6f && y[1] == 200 && y[2] == 0);
            CHECK(isnan(y[3]) && y[5] == INFINITY);
        }
    }
}

/* gpt-oss: the gate is clamped from above only, its factor on both sides. */
TEST(elementwise, clamped_activation)
{
    const float gate[] = {100, -3, 2, 2, 2}, up[] = {0, 0, 100, -100, 0.5f};
    const double want[] = {7 / (1 + exp(-7 * 1.702)), -3 / (1 + exp(3 * 1.702)),
                           8 * 2 / (1 + exp(-2 * 1.702)), -6 * 2 / (1 + exp(-2 * 1.702)),
                           1.5 * 2 / (1 + exp(-2 * 1.702))};
    for (unsigned path = 0; path_at(path); path++) {
        float y[5];
        path_at(path)->activate(ACTIVATION_SWIGLU_OAI, 7, gate, up, y, 5);
        for (int i = 0; i < 5; i++)
            CHECK(fabs(y[i] - want[i]) < 1e-6 * fabs(want[i]));
    }
}

TEST(elementwise, norms)
{
    make_inputs(30);
    for (uint32_t n = 1; n <= MAX_N; n++) {
        for (int kind = NORM_RMS; kind <= NORM_LAYER; kind++) {
            double mean = 0, squares = 0;
            for (uint32_t i = 0; i < n && kind == NORM_LAYER; i++)
                mean += (double)inputs[i] / n;
            for (uint32_t i = 0; i < n; i++)
                squares += (inputs[i] - mean) * (inputs[i] - mean) / n;
            for (unsigned path = 0; path_at(path); path++) {
                float plain[MAX_N], weighed[MAX_N];
                path_at(path)->norm(kind, inputs, NULL, plain, n, 0.01f);
                path_at(path)->norm(kind, inputs, inputs + MAX_N, weighed, n, 0.01f);
                for (uint32_t i = 0; i < n; i++) {
                    double want = (inputs[i] - mean) / sqrt(squares + 0.01);
                    CHECK(fabs(plain[i] - want) < 2e-6);
                    CHECK(fabs(weighed[i] - want * inputs[MAX_N + i]) < 1e-4);
                }
            }
        }
    }
}

TEST(elementwise, sums_and_shares)
{
    make_inputs(5);
    for (uint32_t n = 1; n <= MAX_N; n++) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += exp(inputs[i]);
        for (unsigned path = 0; path_at(path); path++) {
            const struct elementwise_kernels *k = path_at(path);
            float soft[MAX_N], sigmoid[MAX_N], added[MAX_N], scaled[MAX_N], times[MAX_N];
            float *all[] = {soft, sigmoid, added, scaled, times};
            for (int i = 0; i < 5; i++)
                memcpy(all[i], inputs, n * sizeof *inputs);
            k->softmax(soft, n);
            k->sigmoid(sigmoid, n);
            k->add_scaled(added, inputs + MAX_N, 0.7f, n);
            k->scale(scaled, 0.7f, n);
            k->multiply(times, inputs + MAX_N, n);
            for (uint32_t i = 0; i < n; i++) {
                double x = inputs[i], other = inputs[MAX_N + i];
                CHECK(fabs(soft[i] - exp(x) / sum) < 4e-7);
                CHECK(fabs(sigmoid[i] - 1 / (1 + exp(-x))) < 2e-7);
                CHECK(added[i] == fmaf((float)other, 0.7f, (float)x));
                CHECK(scaled[i] == (float)x * 0.7f && times[i] == (float)x * (float)other);
            }
        }
    }
    float large[3] = {1000, 1001, -1000};
    path_at(0)->softmax(large, 3);
    CHECK(fabsf(large[0] + large[1] - 1) < 1e-6f && large[2] == 0);
}

/* What a function writes for a length, and that it writes nothing past it. */
static void run_all(const struct elementwise_kernels *k, uint32_t n, float out[12][MAX_N + 1])
{
    for (int i = 0; i < 12; i++)
        for (uint32_t j = 0; j <= MAX_N; j++)
            out[i][j] = inputs[j];
    for (int kind = 0; kind < 4; kind++)
        k->activate(kind, 2, inputs, inputs + MAX_N, out[kind], n);
    for (int kind = 0; kind < 2; kind++) {
        k->norm(kind, inputs, inputs + MAX_N, out[4 + kind], n, 1e-5f);
        k->norm(kind, inputs, NULL, out[6 + kind], n, 1e-5f);
    }
    k->softmax(out[8], n);
    k->sigmoid(out[9], n);
    k->add_scaled(out[10], inputs + MAX_N, 0.3f, n);
    k->activate(ACTIVATION_GELU, 0, inputs, NULL, out[11], n);
}

TEST(elementwise, paths_agree_to_the_bit)
{
    static float want[12][MAX_N + 1], got[12][MAX_N + 1];
    static const float sizes[] = {1, 20, 1e5f};
    for (int s = 0; s < 3; s++) {
        make_inputs(sizes[s]);
        for (uint32_t n = 1; n < MAX_N; n++) {
            run_all(&elementwise_kernels_ref, n, want);
            for (int i = 0; i < 12; i++)
                CHECK(want[i][n] == inputs[n]);
            for (unsigned path = 1; path_at(path); path++) {
                run_all(path_at(path), n, got);
                CHECK(memcmp(want, got, sizeof want) == 0);
            }
        }
    }
}
