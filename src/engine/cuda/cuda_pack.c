/* Packs matrices strip by strip, and reads packed ones; see cuda_pack.h. Any thread: there is no
 * state beyond the stack. */
#include "engine/cuda/cuda_pack.h"

#include <assert.h>
#include <string.h>

#include "engine/cuda/cuda_pack_internal.h"
#include "model/quant/quantize.h"

enum { MAX_BLOCK_BYTES = 4 * STRIP_COLUMNS /* of a strip's row in any type */ };

/* What a weight is packed from: itself, or a strip of it in another type. */
static struct weight packed_source(const struct weight *w, uint32_t cols)
{
    return w->is_converted ? weight_make(w->converted_type, TILE_OUTPUTS, cols, NULL) : *w;
}

struct cuda_shape cuda_pack_shape(const struct weight *w)
{
    struct weight source = packed_source(w, w->cols);
    struct cuda_shape s = {.rows = w->rows,
                           .cols = w->cols,
                           .out_tiles = (w->rows + TILE_OUTPUTS - 1) / TILE_OUTPUTS,
                           .col_tiles = (w->cols + TILE_COLUMNS - 1) / TILE_COLUMNS};
    s.format = pack_format(&source);
    size_t n_tiles = (size_t)s.out_tiles * s.col_tiles;
    s.data_bytes = s.format == FORMAT_F32 ? (size_t)s.rows * s.cols * sizeof(float)
                                          : n_tiles * format_tile_bytes(s.format);
    s.scale_bytes = n_tiles * format_scale_bytes(s.format);
    return s;
}

static uint32_t tile_rows(const struct cuda_shape *s, uint32_t out_tile)
{
    uint32_t left = s->rows - out_tile * TILE_OUTPUTS;
    return left < TILE_OUTPUTS ? left : TILE_OUTPUTS;
}

static void pack_floats(const struct weight *w, const struct cuda_shape *s, uint32_t begin,
                        uint32_t end, uint8_t *data)
{
    for (uint32_t row = begin * TILE_OUTPUTS; row < s->rows && row < end * TILE_OUTPUTS; row++)
        for (uint32_t at = 0; at < s->cols; at += STRIP_COLUMNS) {
            float values[STRIP_COLUMNS];
            uint32_t n = s->cols - at < STRIP_COLUMNS ? s->cols - at : STRIP_COLUMNS;
            weight_floats(w, row, at, n, values);
            memcpy(data, values, n * sizeof *values);
            data += n * sizeof *values;
        }
}

/* The strip of `n_rows` rows in the type that the weight is converted to. */
static void convert_strip(const struct weight *w, uint32_t row, uint32_t n_rows, uint32_t begin,
                          struct weight *to, uint8_t *blocks)
{
    float values[STRIP_COLUMNS];
    assert(to->row_bytes <= MAX_BLOCK_BYTES);
    to->data = blocks;
    for (uint32_t r = 0; r < n_rows; r++) {
        weight_floats(w, row + r, begin, to->cols, values);
        quantize(to->type, values, blocks + r * to->row_bytes, to->cols);
    }
}

/* Columns from `begin` on, of an output tile. */
static void pack_strip(const struct weight *w, const struct cuda_shape *s, read_strip read,
                       uint32_t out_tile, uint32_t begin, struct strip_row *rows)
{
    uint8_t blocks[TILE_OUTPUTS * MAX_BLOCK_BYTES];
    uint32_t row = out_tile * TILE_OUTPUTS, n_rows = tile_rows(s, out_tile);
    uint32_t n = s->cols - begin < STRIP_COLUMNS ? s->cols - begin : STRIP_COLUMNS;
    struct weight source = packed_source(w, n);
    if (n_rows < TILE_OUTPUTS || n < STRIP_COLUMNS)
        memset(rows, 0, TILE_OUTPUTS * sizeof *rows);
    if (w->is_converted)
        convert_strip(w, row, n_rows, begin, &source, blocks);
    for (uint32_t r = 0; r < n_rows; r++)
        if (w->is_converted)
            read(&source, r, 0, n, &rows[r]);
        else
            read(w, row + r, begin, n, &rows[r]);
}

void cuda_pack(const struct weight *w, const struct cuda_shape *s, uint32_t begin, uint32_t end,
               uint8_t *data, uint8_t *scales)
{
    struct strip_row rows[TILE_OUTPUTS];
    struct weight source = packed_source(w, w->cols);
    enum cuda_format format = s->format;
    read_strip read = pack_reader(&source, format);
    assert(begin <= end && end <= s->out_tiles);
    if (format == FORMAT_F32) {
        pack_floats(w, s, begin, end, data);
        return;
    }
    for (uint32_t out_tile = begin; out_tile < end; out_tile++)
        for (uint32_t c = 0; c < s->col_tiles; c++) {
            if (c % STRIP_TILES == 0)
                pack_strip(w, s, read, out_tile, c * TILE_COLUMNS, rows);
            pack_tile(format, rows, c % STRIP_TILES, data, scales);
            data += format_tile_bytes(format);
            scales += format_scale_bytes(format);
        }
}

/* ---- reading ------------------------------------------------------------------------------ */

/* A value's place: lane, step, pair and which of the pair. */
struct place {
    uint32_t lane, step, pair, h;
};

static struct place value_place(uint32_t row, uint32_t col)
{
    uint32_t output = row % TILE_OUTPUTS, in_tile = col % TILE_COLUMNS;
    return (struct place){.lane = output % 8 * 4 + in_tile / 16,
                          .step = in_tile % 16 / 4,
                          .pair = output / 8 + in_tile % 4 / 2 * 2,
                          .h = in_tile % 2};
}

static uint32_t load_u16(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t load_u32(const uint8_t *at)
{
    return load_u16(at) | load_u16(at + 2) << 16;
}

static uint32_t unpack_code(enum cuda_format format, const uint8_t *tile, struct place at)
{
    if (format == FORMAT_Q8)
        return tile[at.step / 2 * 512 + at.lane * 16 + at.step % 2 * 8 + at.pair * 2 + at.h];
    uint32_t low = load_u32(tile + at.lane * 16 + at.step * 4) >> (16 * at.h + 4 * at.pair) & 15;
    if (format == FORMAT_Q5) {
        uint32_t high = load_u32(tile + 512 + at.lane * 4);
        low |= (high >> (16 * at.h + 4 * at.step + at.pair) & 1) << 4;
    } else if (format == FORMAT_Q6) {
        uint32_t high = load_u32(tile + 512 + at.lane * 8 + at.step / 2 * 4);
        low |= (high >> (16 * at.h + 8 * (at.step % 2) + 2 * at.pair) & 3) << 4;
    }
    return low;
}

/* Rounded once to F16. As a float, a value that is not exact gets an odd last bit, so that rounding
 * it again is rounding the value itself. */
static float round_f16(double value)
{
    float near = (float)value;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    if ((double)near != value && value == value) {
        if ((near > value) == (value > 0))
            bits--; /* towards zero */
        bits |= 1;
    }
    memcpy(&near, &bits, sizeof near);
    return f16_to_f32(f32_to_f16(near));
}

static float unpack_mxfp4(uint32_t code, uint32_t scale)
{
    static const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float value = magnitudes[code & 7] * bf16_to_f32((uint16_t)scale);
    return bf16_to_f32(f32_to_bf16(code & 8 ? -value : value));
}

float cuda_unpack(const struct cuda_shape *s, const uint8_t *data, const uint8_t *scales,
                  uint32_t row, uint32_t col)
{
    static const double zeros[N_CUDA_FORMATS] = {
        [FORMAT_Q8] = 128, [FORMAT_Q6] = 32, [FORMAT_Q4Z] = 8};
    float value;
    if (s->format == FORMAT_F32) {
        memcpy(&value, data + ((size_t)row * s->cols + col) * sizeof value, sizeof value);
        return value;
    }
    size_t tile = (size_t)(row / TILE_OUTPUTS) * s->col_tiles + col / TILE_COLUMNS;
    struct place at = value_place(row, col);
    data += tile * format_tile_bytes(s->format);
    if (format_scale_bytes(s->format) == 0) {
        uint32_t half = load_u16(data + at.step * 512 + at.lane * 16 + at.pair * 4 + at.h * 2);
        return s->format == FORMAT_BF16 ? bf16_to_f32((uint16_t)half) : f16_to_f32((uint16_t)half);
    }
    uint32_t code = unpack_code(s->format, data, at);
    bool has_minimum = s->format == FORMAT_Q5 || s->format == FORMAT_Q4;
    uint32_t n_groups = s->format == FORMAT_Q6 ? 4 : 2;
    uint32_t group = col % TILE_COLUMNS / (TILE_COLUMNS / n_groups);
    uint32_t place = (row % 8 * 2 + row % TILE_OUTPUTS / 8) * n_groups + group;
    scales += tile * format_scale_bytes(s->format) + place * (has_minimum ? 4 : 2);
    if (s->format == FORMAT_MXFP4)
        return unpack_mxfp4(code, load_u16(scales));
    double scale = f16_to_f32((uint16_t)load_u16(scales));
    double minimum = has_minimum ? (double)f16_to_f32((uint16_t)load_u16(scales + 2))
                                 : -zeros[s->format] * scale;
    return round_f16(code * scale + minimum);
}
