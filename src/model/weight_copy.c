/* Copies matrices that files store in another order than the decoder computes them; see
 * model_internal.h. Used by the thread that loads. Blocks and groups run along a row, so quantized
 * weights cannot be transposed; they become floats. */
#include "model/model_internal.h"

#include <string.h>

static void *make_copy(struct loader *l, enum tensor_type type, uint32_t rows, uint32_t cols,
                       struct weight *out)
{
    uint32_t bytes = tensor_type_info(type)->block_bytes;
    void *data = arena_alloc_array(&l->m->memory, (size_t)rows * cols, bytes);
    if (data)
        *out = weight_make(type, rows, cols, data);
    else
        refuse_memory(l);
    return data;
}

/* [n_stacks][in][columns] becomes [n_stacks][out][in], with the columns first, first + step, ... */
int copy_transposed(struct loader *l, const struct weight *from, uint32_t n_stacks, uint32_t first,
                    uint32_t step, struct weight *out)
{
    if (!tensor_type_is_float(from->type) || from->groups.scales)
        return refuse(l, "a stack of experts is transposed, and %s cannot be transposed back",
                      tensor_type_info(from->type)->name);
    uint32_t bytes = tensor_type_info(from->type)->block_bytes;
    uint32_t n_in = from->rows / n_stacks, n_out = from->cols / step;
    uint8_t *to = make_copy(l, from->type, n_stacks * n_out, n_in, out);
    if (!to)
        return -1;
    for (uint32_t s = 0; s < n_stacks; s++)
        for (uint32_t i = 0; i < n_in; i++) {
            const uint8_t *row = (const uint8_t *)from->data +
                                 ((size_t)s * n_in + i) * from->row_bytes;
            for (uint32_t o = 0; o < n_out; o++)
                memcpy(to + (((size_t)s * n_out + o) * n_in + i) * bytes,
                       row + ((size_t)first + (size_t)o * step) * bytes, bytes);
        }
    return 0;
}

/* Reads a row in the copy's type: unchanged, or as floats. */
static void read_row(const struct weight *from, uint32_t row, bool is_raw, void *out)
{
    if (is_raw)
        memcpy(out, (const uint8_t *)from->data + row * from->row_bytes,
               (size_t)from->cols * tensor_type_info(from->type)->block_bytes);
    else
        weight_floats(from, row, 0, from->cols, out);
}

/* For each head, kv_b has [nope_dim][kv_rank] for keys and [value_dim][kv_rank] for values. The
 * keys' part is transposed, so that it projects a query into the latent space. */
int copy_kv_b(struct loader *l, const struct weight *from, bool is_key, struct weight *out)
{
    const struct mla_shape *mla = &l->m->hparams.mla;
    uint32_t n_heads = l->m->hparams.layers[0].n_heads, rank = mla->kv_rank;
    bool is_raw = tensor_type_is_float(from->type) && !from->groups.scales;
    enum tensor_type type = is_raw ? from->type : TENSOR_F32;
    uint32_t bytes = tensor_type_info(type)->block_bytes;
    uint32_t skip = is_key ? 0 : mla->nope_dim, n = is_key ? mla->nope_dim : mla->value_dim;
    uint8_t *row = arena_alloc_array(&l->m->memory, rank, bytes);
    uint8_t *to = make_copy(l, type, n_heads * (is_key ? rank : n), is_key ? n : rank, out);
    if (!row || !to)
        return refuse_memory(l);
    for (uint32_t head = 0; head < n_heads; head++)
        for (uint32_t i = 0; i < n; i++) {
            read_row(from, head * (mla->nope_dim + mla->value_dim) + skip + i, is_raw, row);
            if (!is_key) {
                memcpy(to + ((size_t)head * n + i) * rank * bytes, row, (size_t)rank * bytes);
                continue;
            }
            for (uint32_t k = 0; k < rank; k++)
                memcpy(to + (((size_t)head * rank + k) * n + i) * bytes, row + (size_t)k * bytes,
                       bytes);
        }
    return 0;
}
