#ifndef RADISH_SCHED_SAMPLER_SCAN_H
#define RADISH_SCHED_SAMPLER_SCAN_H

#include <stdint.h>
#include <string.h>

/* The sampler's passes over all logits, or many of them, in blocks of SCAN_BLOCK. They are compiled
 * for several instruction sets and give bit-identical results on each. */
enum { SCAN_BLOCK = 256 };

/* Statistics of the finite logits of a block, relative to `best`. */
struct scan_spread {
    float count, sum, squares;
};

struct sampler_scan {
    /* The largest logit of each block of logits[n]; -inf if all are masked or NaN. */
    void (*best)(const float *logits, uint32_t n, float *block_best);
    /* The sum of exp((logit - best) * inverse) over each block. */
    void (*sum)(const float *logits, uint32_t n, float best, float inverse, float *block_weight);
    /* The same terms, one by one. */
    void (*weigh)(const float *logits, uint32_t n, float best, float inverse, float *weights);
    /* Copies logits[n] to out (whole blocks) with -inf for those whose bit is not set in `mask`
     * (n_masked bits; logits past them are masked), and finds the largest of each block of the
     * copy. */
    void (*mask)(const float *logits, uint32_t n, const uint64_t *mask, uint32_t n_masked,
                 float *out, float *block_best);
    /* Per block: the number of finite logits, and the sums of (logit - best) and of its square. */
    void (*spread)(const float *logits, uint32_t n, float best, struct scan_spread *blocks);
};

/* The fastest version that this machine supports. */
const struct sampler_scan *sampler_scan_select(void);
/* All versions that it supports, plain C first, for tests; NULL past the last. */
const struct sampler_scan *sampler_scan_at(uint32_t i);

#if defined(__x86_64__)
extern const struct sampler_scan sampler_scan_avx2, sampler_scan_avx512;
#endif

/* exp(x) for x <= 0, with a relative error of at most 2e-7; 0 below -87 and for NaN. Gives the same
 * bits on every machine. It has no branches, so that compilers vectorise the loop around it:
 * results below -87 are garbage and are masked out. x = k ln 2 + r, |r| <= ln 2 / 2. */
static inline float exp_negative(float x)
{
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float shifted = x * 1.44269504f + rounder;
    float k = shifted - rounder;
    float r = (x - k * 0.693359375f) - k * -2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits, mask = -(uint32_t)(x > -87.0f);
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23; /* rounder's own bits above the integer are shifted out */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    p *= scale;
    memcpy(&bits, &p, sizeof bits);
    bits &= mask;
    memcpy(&p, &bits, sizeof p);
    return p;
}

#endif
