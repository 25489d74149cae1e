#ifndef RADISH_ENGINE_CPU_KERNELS_EXPONENTIAL_H
#define RADISH_ENGINE_CPU_KERNELS_EXPONENTIAL_H

/* e^x in float, with the same steps on every kernel path, so that all give identical bits:
 *
 *   t = fma(x, log2(e), EXP_MAGIC)    the low bits of t hold n = round(x * log2(e))
 *   n = t - EXP_MAGIC
 *   r = fma(n, -ln2_low, fma(n, -ln2_high, x))            |r| <= ln(2) / 2
 *   p = 1 + r + r^2 * (C0 + r * (C1 + r * (C2 + r * (C3 + r * C4))))
 *   e^x = p * 2^n
 *
 * x is clamped to EXP_MAX; below EXP_MIN the result is exactly 0, so that a masked score of minus
 * infinity adds nothing; NaN stays NaN. The polynomial was fitted for the smallest relative error
 * (3e-9, below float's rounding error) on that interval. */
#define EXP_MAX      88.0f
#define EXP_MIN      -87.0f
#define EXP_MAGIC    12582912.0f /* 1.5 * 2^23 */
#define EXP_LOG2E    1.44269504f
#define EXP_LN2_HIGH 0.693359375f /* nine bits, so that n * ln2_high is exact */
#define EXP_LN2_LOW  -2.12194440e-4f
#define EXP_C0       0x1.fffffcp-2f
#define EXP_C1       0x1.555492p-3f
#define EXP_C2       0x1.5558f2p-5f
#define EXP_C3       0x1.1239e2p-7f
#define EXP_C4       0x1.6a2434p-10f

/* tanh x in float, in the same way, with a = |x|, y = a^2:
 *
 *   a < TANH_SMALL    a + a * y * (C0 + y * (C1 + y * (C2 + y * (C3 + y * C4))))
 *   else              1 - 2 / (e^(2a) + 1)
 *
 * with the sign of x; NaN stays NaN. The relative error is below 2.5e-7. The polynomial (relative
 * error 4e-9) is needed near 0, where the difference from 1 would lose its last bits. */
#define TANH_SMALL 0.625f
#define TANH_C0    -0x1.555532p-2f
#define TANH_C1    0x1.11072ep-3f
#define TANH_C2    -0x1.b83d5p-5f
#define TANH_C3    0x1.522d2ep-6f
#define TANH_C4    -0x1.76006ep-8f

#endif
