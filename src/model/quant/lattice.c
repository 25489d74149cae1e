/* The IQ types of GGUF: where a super-block keeps its indices, signs and scales; see lattice.h.
 * Blocks are read byte by byte, because they may begin at any address. Any thread. Seven sign bits
 * encode eight signs; the eighth makes the number of negative ones even. */
#include "model/quant/lattice.h"

#include <stddef.h>

#include "model/quant/grids.h"

const int8_t iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

static uint16_t load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t load_u32(const uint8_t *at)
{
    return load_u16(at) | (uint32_t)load_u16(at + 2) << 16;
}

static uint8_t even_signs(uint32_t seven)
{
    seven &= 0x7f;
    return (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

/* Eight values of a point with 2-bit coordinates, which are indices into `of`. */
static void put_eight(uint16_t point, const int8_t of[4], uint8_t signs, int8_t *values)
{
    for (int i = 0; i < 8; i++) {
        int8_t value = of[point >> 2 * i & 3];
        values[i] = signs >> i & 1 ? (int8_t)-value : value;
    }
}

/* Four values of a point with 4-bit coordinates; `signs` starts at its lowest bit. */
static void put_four(uint16_t point, const int8_t of[8], uint8_t signs, int8_t *values)
{
    for (int i = 0; i < 4; i++) {
        int8_t value = of[point >> 4 * i & 7];
        values[i] = signs >> i & 1 ? (int8_t)-value : value;
    }
}

/* Scales in the file are s + 1/2; doubling makes them whole. */
static int8_t odd_scale(uint32_t s)
{
    return (int8_t)(2 * s + 1);
}

static const int8_t iq2_numbers[4] = {8, 25, 43};

/* d:2 | 8 x (indices:4, four times 7 signs and 4 bits of scale:4) */
static void read_iq2_xxs(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    const uint8_t *at = block + 2 + part * 8;
    uint32_t signs = load_u32(at + 4);
    out->d = load_u16(block);
    out->scale[0] = out->scale[1] = odd_scale(signs >> 28);
    for (int i = 0; i < 4; i++)
        put_eight(iq2_xxs_grid[at[i]], iq2_numbers, even_signs(signs >> 7 * i),
                  out->values + 8 * i);
}

/* d:2 | 32 x (9 bits of index, 7 signs):2 | 16 scales of 4 bits:8 */
static void read_iq2_xs(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    const uint8_t *at = block + 2 + part * 8;
    uint8_t scales = block[66 + part];
    out->d = load_u16(block);
    out->scale[0] = odd_scale(scales & 15);
    out->scale[1] = odd_scale(scales >> 4);
    for (int i = 0; i < 4; i++) {
        uint16_t q = load_u16(at + 2 * i);
        put_eight(iq2_xs_grid[q & 511], iq2_numbers, even_signs(q >> 9), out->values + 8 * i);
    }
}

/* d:2 | low bits of 32 indices:32 | signs:32 | their high 2 bits:8 | 16 scales of 4 bits:8 */
static void read_iq2_s(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    const uint8_t *low = block + 2 + part * 4, *signs = low + 32;
    uint8_t high = block[66 + part], scales = block[74 + part];
    out->d = load_u16(block);
    out->scale[0] = odd_scale(scales & 15);
    out->scale[1] = odd_scale(scales >> 4);
    for (int i = 0; i < 4; i++)
        put_eight(iq2_s_grid[low[i] | (high >> 2 * i & 3) << 8], iq2_numbers, signs[i],
                  out->values + 8 * i);
}

/* d:2 | 64 indices:64 | 8 x (four times 7 signs and 4 bits of scale):4 */
static void read_iq3_xxs(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    static const int8_t numbers[8] = {2, 6, 10, 14, 18, 22, 26, 31};
    const uint8_t *at = block + 2 + part * 8;
    uint32_t signs = load_u32(block + 66 + part * 4);
    out->d = load_u16(block);
    out->scale[0] = out->scale[1] = odd_scale(signs >> 28);
    for (int i = 0; i < 8; i++)
        put_four(iq3_xxs_grid[at[i]], numbers,
                 (uint8_t)(even_signs(signs >> i / 2 * 7) >> i % 2 * 4), out->values + 4 * i);
}

/* d:2 | low bits of 64 indices:64 | their ninth bits:8 | signs:32 | 8 scales of 4 bits:4 */
static void read_iq3_s(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    static const int8_t numbers[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    const uint8_t *low = block + 2 + part * 8, *signs = block + 74 + part * 4;
    uint8_t high = block[66 + part];
    out->d = load_u16(block);
    out->scale[0] = out->scale[1] = odd_scale(block[106 + part / 2] >> part % 2 * 4 & 15);
    for (int i = 0; i < 8; i++)
        put_four(iq3_s_grid[low[i] | (high >> i & 1) << 8], numbers,
                 (uint8_t)(signs[i / 2] >> i % 2 * 4), out->values + 4 * i);
}

/* The values of IQ1 are -1, 0 and 1, plus or minus an eighth: in eighths they are whole. */
static void put_iq1(uint16_t point, bool less, int8_t *values)
{
    static const int8_t more_numbers[4] = {-7, 1, 9}, less_numbers[4] = {-9, -1, 7};
    put_eight(point, less ? less_numbers : more_numbers, 0, values);
}

/* d:2 | low bits of 32 indices:32 | 8 x (four times 3 high bits, 3 bits of scale, less):2 */
static void read_iq1_s(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    const uint8_t *low = block + 2 + part * 4;
    uint32_t high = load_u16(block + 34 + part * 2);
    out->d = load_u16(block);
    out->scale[0] = out->scale[1] = odd_scale(high >> 12 & 7);
    for (int i = 0; i < 4; i++)
        put_iq1(iq1_grid[low[i] | (high >> 3 * i & 7) << 8], high >> 15, out->values + 8 * i);
}

/* low bits of 32 indices:32 | 32 x (3 high bits, less) in 4 bits:16 | 4 x (four scales of 3 bits,
 * 4 bits of d, the lowest first):2 */
static void read_iq1_m(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    const uint8_t *low = block + part * 4, *high = block + 32 + part * 2, *scales = block + 48;
    out->d = 0;
    for (int i = 0; i < 4; i++)
        out->d |= (uint16_t)(load_u16(scales + 2 * i) >> 12 << 4 * i);
    uint32_t pair = load_u16(scales + part / 2 * 2) >> part % 2 * 6;
    out->scale[0] = odd_scale(pair & 7);
    out->scale[1] = odd_scale(pair >> 3 & 7);
    for (int i = 0; i < 4; i++) {
        uint32_t four = high[i / 2] >> i % 2 * 4;
        put_iq1(iq1_grid[low[i] | (four & 7) << 8], four >> 3 & 1, out->values + 8 * i);
    }
}

/* d:2 | high 2 bits of 8 scales:2 | their low 4:4 | 8 x nibbles:16 */
static void read_iq4_xs(const uint8_t *block, uint32_t part, struct lattice_part *out)
{
    const uint8_t *nibbles = block + 8 + part * 16;
    int low = block[4 + part / 2] >> part % 2 * 4 & 15, high = load_u16(block + 2) >> part * 2 & 3;
    out->d = load_u16(block);
    out->scale[0] = out->scale[1] = (int8_t)((low | high << 4) - 32);
    for (int i = 0; i < 16; i++) {
        out->values[i] = iq4_numbers[nibbles[i] & 15];
        out->values[16 + i] = iq4_numbers[nibbles[i] >> 4];
    }
}

#define PLUS_MINUS_IQ2                                                                             \
    {                                                                                              \
        -43, -25, -8, 8, 25, 43                                                                    \
    }
#define IQ1_NUMBERS                                                                                \
    {                                                                                              \
        -9, -7, -1, 1, 7, 9                                                                        \
    }

static const struct lattice lattices[N_TENSOR_TYPES] = {
    [TENSOR_IQ2_XXS] = {0.125f, PLUS_MINUS_IQ2, read_iq2_xxs},
    [TENSOR_IQ2_XS] = {0.125f, PLUS_MINUS_IQ2, read_iq2_xs},
    [TENSOR_IQ2_S] = {0.125f, PLUS_MINUS_IQ2, read_iq2_s},
    [TENSOR_IQ3_XXS] = {0.5f,
                        {-31, -26, -22, -18, -14, -10, -6, -2, 2, 6, 10, 14, 18, 22, 26, 31},
                        read_iq3_xxs},
    [TENSOR_IQ3_S] = {1,
                      {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15},
                      read_iq3_s},
    [TENSOR_IQ1_S] = {0.125f, IQ1_NUMBERS, read_iq1_s},
    [TENSOR_IQ1_M] = {0.125f, IQ1_NUMBERS, read_iq1_m},
    [TENSOR_IQ4_XS] = {1,
                       {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
                       read_iq4_xs},
};

const struct lattice *lattice_of(enum tensor_type type)
{
    return lattices[type].read ? &lattices[type] : NULL;
}
