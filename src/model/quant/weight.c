/* Views of matrices, and the values in them; see weight.h. Any thread. A slice keeps the scales of
 * the whole matrix, so it also records the position of its rows in the groups. */
#include "model/quant/weight.h"

#include <assert.h>

struct weight weight_make(enum tensor_type type, uint32_t rows, uint32_t cols, const void *data)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    assert(cols % info->block_len == 0);
    return (struct weight){.type = type,
                           .rows = rows,
                           .cols = cols,
                           .data = data,
                           .row_bytes = (size_t)cols / info->block_len * info->block_bytes};
}

struct weight weight_slice(const struct weight *w, uint32_t first, uint32_t step, uint32_t n)
{
    assert(n > 0 && first + (uint64_t)(n - 1) * step < w->rows);
    struct weight slice = *w;
    slice.data = (const uint8_t *)w->data + first * w->row_bytes;
    slice.row_bytes = step * w->row_bytes;
    slice.rows = n;
    slice.groups.first_row += first * w->groups.row_step;
    slice.groups.row_step *= step;
    return slice;
}

static float group_number(const struct weight_groups *g, const void *numbers, size_t at)
{
    size_t bytes = tensor_type_info(g->scale_type)->block_bytes;
    float value;
    dequantize(g->scale_type, (const uint8_t *)numbers + at * bytes, &value, 1);
    return value;
}

size_t weight_group(const struct weight *w, uint32_t row, uint32_t col)
{
    const struct weight_groups *g = &w->groups;
    size_t group_row = ((size_t)g->first_row + (size_t)row * g->row_step) / g->rows;
    return group_row * g->per_row + col / g->cols;
}

float weight_scale(const struct weight *w, uint32_t row, uint32_t col, float *bias)
{
    const struct weight_groups *g = &w->groups;
    *bias = 0;
    if (!g->scales)
        return 1;
    size_t at = weight_group(w, row, col);
    if (g->biases)
        *bias = group_number(g, g->biases, at);
    return group_number(g, g->scales, at);
}

void weight_floats(const struct weight *w, uint32_t row, uint32_t begin, uint32_t n, float *out)
{
    const struct tensor_type_info *type = tensor_type_info(w->type);
    const struct weight_groups *g = &w->groups;
    const uint8_t *from = (const uint8_t *)w->data + row * w->row_bytes;
    assert(begin % type->block_len == 0 && begin + (uint64_t)n <= w->cols);
    dequantize(w->type, from + (size_t)begin / type->block_len * type->block_bytes, out, n);
    if (!g->scales && g->scale == 0)
        return;
    for (uint32_t i = 0, end; i < n; i = end) {
        float bias, scale = weight_scale(w, row, begin + i, &bias);
        uint32_t left = g->scales ? g->cols - (begin + i) % g->cols : n;
        end = n - i < left ? n : i + left;
        if (g->scale != 0)
            scale *= g->scale;
        for (uint32_t k = i; k < end; k++) {
            out[k] *= scale;
            if (g->biases)
                out[k] += bias;
        }
    }
}

struct weight_extent weight_extent(const struct weight *w)
{
    const struct tensor_type_info *type = tensor_type_info(w->type);
    size_t row = (size_t)w->cols / type->block_len * type->block_bytes, n_scales = 0;
    if (w->groups.scales)
        n_scales = weight_group(w, w->rows - 1, w->cols - 1) + 1;
    return (struct weight_extent){
        .data_bytes = (w->rows - 1) * w->row_bytes + row,
        .scale_bytes = n_scales * tensor_type_info(w->groups.scale_type)->block_bytes,
    };
}

/* The number of rows of groups that cover the weight's rows. */
static uint64_t group_rows(const struct weight *w)
{
    const struct weight_groups *g = &w->groups;
    uint64_t first = g->first_row, last = first + (uint64_t)(w->rows - 1) * g->row_step;
    uint64_t n = last / g->rows - first / g->rows + 1;
    return n < w->rows ? n : w->rows;
}

uint64_t weight_bytes(const struct weight *w)
{
    const struct tensor_type_info *type = tensor_type_info(w->type);
    uint64_t bytes = (uint64_t)w->rows * (w->cols / type->block_len) * type->block_bytes;
    if (w->groups.scales)
        bytes += group_rows(w) * w->groups.per_row * (w->groups.biases ? 2 : 1) *
                 tensor_type_info(w->groups.scale_type)->block_bytes;
    return bytes;
}
