/* The loops of sampler_scan.h, included once for each instruction set. They are written so that
 * compilers turn them into SIMD of any width: every loop has a fixed length and no branches, and a
 * block is folded in halves, which fixes the order of its sum. */
#include "sched/sampler_scan.h"

#include <math.h>

/* A whole block at `start`; the last one is filled up in `buffer`. */
static inline const float *block_at(const float *logits, uint32_t n, uint32_t start, float *buffer)
{
    if (n - start >= SCAN_BLOCK)
        return logits + start;
    for (uint32_t i = 0; i < SCAN_BLOCK; i++)
        buffer[i] = i < n - start ? logits[start + i] : -INFINITY;
    return buffer;
}

/* NaN loses the comparisons of the first loop, and there is none after it. */
static inline float block_best(const float *block)
{
    float most[SCAN_BLOCK / 2];
    for (uint32_t i = 0; i < SCAN_BLOCK / 2; i++) {
        float first = block[i] > -INFINITY ? block[i] : -INFINITY;
        float second = block[i + SCAN_BLOCK / 2];
        most[i] = second > first ? second : first;
    }
    for (uint32_t i = 0; i < SCAN_BLOCK / 4; i++)
        most[i] = most[i] > most[i + SCAN_BLOCK / 4] ? most[i] : most[i + SCAN_BLOCK / 4];
    for (uint32_t i = 0; i < SCAN_BLOCK / 8; i++)
        most[i] = most[i] > most[i + SCAN_BLOCK / 8] ? most[i] : most[i + SCAN_BLOCK / 8];
    for (uint32_t i = 0; i < SCAN_BLOCK / 16; i++)
        most[i] = most[i] > most[i + SCAN_BLOCK / 16] ? most[i] : most[i + SCAN_BLOCK / 16];
    float best = most[0];
    for (uint32_t i = 1; i < SCAN_BLOCK / 16; i++)
        best = most[i] > best ? most[i] : best;
    return best;
}

static void scan_best(const float *logits, uint32_t n, float *bests)
{
    float buffer[SCAN_BLOCK];
    for (uint32_t start = 0; start < n; start += SCAN_BLOCK)
        *bests++ = block_best(block_at(logits, n, start, buffer));
}

static inline float block_weight(const float *block, float best, float inverse)
{
    float weights[SCAN_BLOCK];
    for (uint32_t i = 0; i < SCAN_BLOCK; i++)
        weights[i] = exp_negative((block[i] - best) * inverse);
    for (uint32_t i = 0; i < SCAN_BLOCK / 2; i++)
        weights[i] += weights[i + SCAN_BLOCK / 2];
    for (uint32_t i = 0; i < SCAN_BLOCK / 4; i++)
        weights[i] += weights[i + SCAN_BLOCK / 4];
    for (uint32_t i = 0; i < SCAN_BLOCK / 8; i++)
        weights[i] += weights[i + SCAN_BLOCK / 8];
    for (uint32_t i = 0; i < SCAN_BLOCK / 16; i++)
        weights[i] += weights[i + SCAN_BLOCK / 16];
    float sum = 0;
    for (uint32_t i = 0; i < SCAN_BLOCK / 16; i++)
        sum += weights[i];
    return sum;
}

static void scan_sum(const float *logits, uint32_t n, float best, float inverse, float *weights)
{
    float buffer[SCAN_BLOCK];
    for (uint32_t start = 0; start < n; start += SCAN_BLOCK)
        *weights++ = block_weight(block_at(logits, n, start, buffer), best, inverse);
}

static void scan_weigh(const float *logits, uint32_t n, float best, float inverse, float *weights)
{
    for (uint32_t i = 0; i < n; i++)
        weights[i] = exp_negative((logits[i] - best) * inverse);
}

#define SCAN_FUNCTIONS                                                                             \
    {                                                                                              \
        scan_best, scan_sum, scan_weigh                                                            \
    }
