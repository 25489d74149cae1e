/* Arranges 16 rows as tiles; see cuda_format.h and cuda_pack_internal.h. Any thread.
 *
 * Lane l = 4 g + t at step j takes columns 16 t + 4 j .. + 3 of rows g and g + 8. With i = 4 t + j,
 * these are the i-th four columns of a tile, and i counts words of a row. The functions below take
 * the four codes of both rows as words `a` and `b`, in the order of columns, and make of them the
 * pairs p = 0 (a0 a1), 1 (b0 b1), 2 (a2 a3), 3 (b2 b3). */
#include <string.h>

#include "engine/cuda/cuda_pack_internal.h"

enum { WORDS = TILE_COLUMNS / 4, HIGH_BYTES = 512 /* where bits beyond the fourth begin */ };

static uint32_t load_word(const uint8_t *codes, uint32_t i)
{
    uint32_t word;
    memcpy(&word, codes + 4 * i, sizeof word);
    return word;
}

/* 16-bit values: [step j][lane][pair p][h] */
static void tile_halves(const uint16_t *restrict a, const uint16_t *restrict b, uint32_t g,
                        uint8_t *restrict out)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint16_t *from_a = a + 4 * i, *from_b = b + 4 * i;
        uint16_t values[8] = {from_a[0], from_a[1], from_b[0], from_b[1],
                              from_a[2], from_a[3], from_b[2], from_b[3]};
        memcpy(out + i % 4 * 512 + (4 * g + i / 4) * 16, values, sizeof values);
    }
}

/* Bytes: [step pair j/2][lane][step j%2][pair p][h] */
static void tile_bytes(const uint8_t *restrict a, const uint8_t *restrict b, uint32_t g,
                       uint8_t *restrict out)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        uint64_t from_a = load_word(a, i), from_b = load_word(b, i);
        uint64_t values = (from_a & 0xffff) | (from_b & 0xffff) << 16 | from_a >> 16 << 32 |
                          from_b >> 16 << 48;
        memcpy(out + i % 4 / 2 * 512 + (4 * g + i / 4) * 16 + i % 2 * 8, &values, sizeof values);
    }
}

/* The low four bits: [lane][step j] a word; pair p in bits 4 p (h = 0) and 16 + 4 p (h = 1) */
static void tile_nibbles(const uint8_t *restrict a, const uint8_t *restrict b, uint32_t g,
                         uint8_t *restrict out)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t both = (load_word(a, i) & 0x0f0f0f0f) | (load_word(b, i) & 0x0f0f0f0f) << 4;
        uint32_t word = (both & 0xff0000ff) | (both & 0xff00) << 8 | (both >> 8 & 0xff00);
        memcpy(out + (WORDS * g + i) * sizeof word, &word, sizeof word);
    }
}

/* The fifth bits: [lane] a word; step j, pair p in bit 4 j + p (h = 0) and 16 + 4 j + p (h = 1) */
static void tile_fifth_bits(const uint8_t *a, const uint8_t *b, uint32_t g, uint8_t *out)
{
    for (uint32_t t = 0; t < 4; t++) {
        uint32_t word = 0;
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t both = (load_word(a, 4 * t + j) >> 4 & 0x01010101) |
                            (load_word(b, 4 * t + j) >> 3 & 0x02020202);
            uint32_t first = (both & 3) | (both >> 14 & 12);
            uint32_t second = (both >> 8 & 3) | (both >> 22 & 12);
            word |= (first | second << 16) << 4 * j;
        }
        memcpy(out + HIGH_BYTES + (4 * g + t) * sizeof word, &word, sizeof word);
    }
}

/* Bits 4 and 5: [lane][step pair j/2] a word; step j, pair p in bits 8 (j%2) + 2 p (h = 0) and
 * 16 + 8 (j%2) + 2 p (h = 1) */
static void tile_sixth_bits(const uint8_t *restrict a, const uint8_t *restrict b, uint32_t g,
                            uint8_t *restrict out)
{
    for (uint32_t s = 0; s < WORDS / 2; s++) {
        uint32_t word = 0;
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t both = (load_word(a, 2 * s + j) >> 4 & 0x03030303) |
                            (load_word(b, 2 * s + j) >> 2 & 0x0c0c0c0c);
            uint32_t first = (both & 15) | (both >> 12 & 0xf0);
            uint32_t second = (both >> 8 & 15) | (both >> 20 & 0xf0);
            word |= (first | second << 16) << 8 * j;
        }
        memcpy(out + HIGH_BYTES + (WORDS / 2 * g + s) * sizeof word, &word, sizeof word);
    }
}

/* [g][output g, g + 8][group], with minimums beside them if the format has them */
static void tile_scales(enum cuda_format format, const struct strip_row *rows, uint32_t tile,
                        uint8_t *scales)
{
    uint32_t n_groups = format == FORMAT_Q6 ? 4 : 2;
    bool has_minimum = format == FORMAT_Q5 || format == FORMAT_Q4;
    for (uint32_t i = 0; i < TILE_OUTPUTS; i++) {
        const struct strip_row *row = &rows[i / 2 + i % 2 * 8];
        for (uint32_t k = 0; k < n_groups; k++) {
            memcpy(scales, &row->scales[tile * n_groups + k], 2);
            scales += 2;
            if (!has_minimum)
                continue;
            memcpy(scales, &row->minimums[tile * n_groups + k], 2);
            scales += 2;
        }
    }
}

void pack_tile(enum cuda_format format, const struct strip_row *rows, uint32_t tile, uint8_t *data,
               uint8_t *scales)
{
    for (uint32_t g = 0; g < 8; g++) {
        const struct strip_row *row_a = &rows[g], *row_b = &rows[g + 8];
        uint32_t at = tile * TILE_COLUMNS;
        const uint8_t *a = row_a->codes + at, *b = row_b->codes + at;
        if (format == FORMAT_F16 || format == FORMAT_BF16) {
            tile_halves(row_a->halves + at, row_b->halves + at, g, data);
            continue;
        }
        if (format == FORMAT_Q8) {
            tile_bytes(a, b, g, data);
            continue;
        }
        tile_nibbles(a, b, g, data);
        if (format == FORMAT_Q5)
            tile_fifth_bits(a, b, g, data);
        if (format == FORMAT_Q6)
            tile_sixth_bits(a, b, g, data);
    }
    if (format_scale_bytes(format) > 0)
        tile_scales(format, rows, tile, scales);
}
