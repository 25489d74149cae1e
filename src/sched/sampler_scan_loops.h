/* The loops of sampler_scan.h, included once for each instruction set. They are written so that
 * compilers vectorise them at any width: every loop has a fixed length and no branches, and a block
 * is folded in halves, which fixes the order of its sum. */
#include "sched/sampler_scan.h"

#include <math.h>
#include <stdbool.h>

#define MINUS_INFINITY_BITS 0xff800000u

/* A whole block at `start`; the last one is padded in `buffer`. */
static inline const float *block_at(const float *logits, uint32_t n, uint32_t start, float *buffer)
{
    if (n - start >= SCAN_BLOCK)
        return logits + start;
    for (uint32_t i = 0; i < SCAN_BLOCK; i++)
        buffer[i] = i < n - start ? logits[start + i] : -INFINITY;
    return buffer;
}

/* NaN loses the comparisons of the first loop, so none is left after it. */
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

/* The sum of a block. Overwrites its values. */
static inline float block_fold(float *values)
{
    for (uint32_t i = 0; i < SCAN_BLOCK / 2; i++)
        values[i] += values[i + SCAN_BLOCK / 2];
    for (uint32_t i = 0; i < SCAN_BLOCK / 4; i++)
        values[i] += values[i + SCAN_BLOCK / 4];
    for (uint32_t i = 0; i < SCAN_BLOCK / 8; i++)
        values[i] += values[i + SCAN_BLOCK / 8];
    for (uint32_t i = 0; i < SCAN_BLOCK / 16; i++)
        values[i] += values[i + SCAN_BLOCK / 16];
    float sum = 0;
    for (uint32_t i = 0; i < SCAN_BLOCK / 16; i++)
        sum += values[i];
    return sum;
}

static inline float block_weight(const float *block, float best, float inverse)
{
    float weights[SCAN_BLOCK];
    for (uint32_t i = 0; i < SCAN_BLOCK; i++)
        weights[i] = exp_negative((block[i] - best) * inverse);
    return block_fold(weights);
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

/* The mask's words for a whole block; zero past its end. */
static inline void block_words(const uint64_t *mask, uint32_t n_masked, uint32_t start,
                               uint64_t words[SCAN_BLOCK / 64])
{
    for (uint32_t w = 0; w < SCAN_BLOCK / 64; w++) {
        uint32_t at = start + w * 64, left = n_masked > at ? n_masked - at : 0;
        words[w] = left ? mask[at / 64] : 0;
        if (left && left < 64)
            words[w] &= (UINT64_C(1) << left) - 1;
    }
}

/* Multiplying by a power of two shifts bit i of a word to the top, even on instruction sets without
 * per-lane shifts. Selecting bits instead of floats lets compilers vectorise both steps. */
static inline void block_mask(const float *restrict block, const uint64_t *words,
                              float *restrict out)
{
    static const uint32_t to_top[32] = {
        1u << 31, 1u << 30, 1u << 29, 1u << 28, 1u << 27, 1u << 26, 1u << 25, 1u << 24,
        1u << 23, 1u << 22, 1u << 21, 1u << 20, 1u << 19, 1u << 18, 1u << 17, 1u << 16,
        1u << 15, 1u << 14, 1u << 13, 1u << 12, 1u << 11, 1u << 10, 1u << 9,  1u << 8,
        1u << 7,  1u << 6,  1u << 5,  1u << 4,  1u << 3,  1u << 2,  1u << 1,  1u};
    for (uint32_t part = 0; part < SCAN_BLOCK / 32; part++) {
        uint32_t allowed = (uint32_t)(words[part / 2] >> part % 2 * 32);
        for (uint32_t i = 0; i < 32; i++) {
            uint32_t bits, keep = -(allowed * to_top[i] >> 31);
            memcpy(&bits, block + part * 32 + i, sizeof bits);
            bits = (bits & keep) | (MINUS_INFINITY_BITS & ~keep);
            memcpy(out + part * 32 + i, &bits, sizeof bits);
        }
    }
}

static void scan_mask(const float *logits, uint32_t n, const uint64_t *mask, uint32_t n_masked,
                      float *out, float *bests)
{
    float buffer[SCAN_BLOCK];
    uint64_t words[SCAN_BLOCK / 64];
    for (uint32_t start = 0; start < n; start += SCAN_BLOCK) {
        block_words(mask, n_masked, start, words);
        block_mask(block_at(logits, n, start, buffer), words, out + start);
        *bests++ = block_best(out + start);
    }
}

static void scan_spread(const float *logits, uint32_t n, float best, struct scan_spread *blocks)
{
    float buffer[SCAN_BLOCK], counts[SCAN_BLOCK], sums[SCAN_BLOCK], squares[SCAN_BLOCK];
    for (uint32_t start = 0; start < n; start += SCAN_BLOCK) {
        const float *block = block_at(logits, n, start, buffer);
        for (uint32_t i = 0; i < SCAN_BLOCK; i++) {
            bool is_finite = block[i] > -INFINITY && block[i] < INFINITY;
            sums[i] = is_finite ? block[i] - best : 0;
            counts[i] = is_finite ? 1 : 0;
            squares[i] = sums[i] * sums[i];
        }
        *blocks++ = (struct scan_spread){block_fold(counts), block_fold(sums), block_fold(squares)};
    }
}

#define SCAN_FUNCTIONS                                                                             \
    {                                                                                              \
        scan_best, scan_sum, scan_weigh, scan_mask, scan_spread                                    \
    }
