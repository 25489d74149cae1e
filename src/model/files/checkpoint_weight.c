/* Makes weights and vectors from a checkpoint's tensors; checkpoint_scales.c handles those with
 * scales in a separate tensor. Used by the thread that loads the model. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/files/checkpoint_files.h"

enum { MAX_NAME_BYTES = 512 };

uint64_t checkpoint_rows(const struct checkpoint_tensor *t, uint32_t n_last)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i + n_last < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

bool checkpoint_fits(uint64_t n_rows, uint32_t rows)
{
    return rows ? n_rows == rows : n_rows > 0 && n_rows <= UINT32_MAX;
}

int checkpoint_align(struct checkpoint_files *f, struct checkpoint_tensor *t, struct error *err)
{
    size_t alignment = t->type == TENSOR_F32 || t->type == TENSOR_U32    ? 4
                       : t->type == TENSOR_F16 || t->type == TENSOR_BF16 ? 2
                                                                         : 1;
    t->is_used = true;
    if ((uintptr_t)t->data % alignment == 0)
        return 0;
    char *copy = arena_copy(&f->memory, t->data, t->size_bytes);
    if (!copy)
        return checkpoint_no_memory(&f->c, err);
    t->data = copy;
    return 0;
}

static int plain_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                        uint32_t cols, struct weight *out, struct error *err)
{
    uint64_t n_rows = checkpoint_rows(t, 1);
    if (t->dims[t->n_dims - 1] != cols || !checkpoint_fits(n_rows, rows))
        return checkpoint_refuse_shape(&f->c, t, rows ? rows : n_rows, cols, err);
    if (checkpoint_align(f, t, err))
        return -1;
    *out = weight_make(t->type, (uint32_t)n_rows, cols, t->data);
    return 0;
}

static int shard_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                        uint32_t cols, struct weight *out, struct error *err)
{
    switch (t->type) {
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16: return plain_weight(f, t, rows, cols, out, err);
    case TENSOR_F8_E4M3: return checkpoint_fp8_weight(f, t, rows, cols, out, err);
    case TENSOR_U8: return checkpoint_blocks_weight(f, t, rows, cols, out, err);
    case TENSOR_U32: return checkpoint_mlx_weight(f, t, rows, cols, out, err);
    default: break;
    }
    return checkpoint_refuse(&f->c, err,
                             "the tensor %s is %s; radish reads weights of F32, F16, BF16, F8_E4M3,"
                             " MXFP4 and MLX",
                             shown_name(t->name, strlen(t->name)).text,
                             tensor_type_info(t->type)->name);
}

/* The tensor of a module, or of that exact name. */
static struct checkpoint_tensor *find_weight(const struct checkpoint *c, const char *name)
{
    static const char *const ends[] = {"", ".weight", "_blocks"};
    char full[MAX_NAME_BYTES];
    struct checkpoint_tensor *t = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !t; i++)
        if (snprintf(full, sizeof full, "%s%s", name, ends[i]) < (int)sizeof full)
            t = checkpoint_find(c, full);
    return t;
}

int checkpoint_weight(struct checkpoint *c, const char *name, uint32_t rows, uint32_t cols,
                      struct weight *out, struct error *err)
{
    struct checkpoint_files *f = (struct checkpoint_files *)c;
    struct checkpoint_tensor *t = find_weight(c, name);
    assert(cols > 0);
    if (!t)
        return 1;
    if (c->kind == CHECKPOINT_BIN)
        return checkpoint_raw_weight(f, t, rows, cols, out, err);
    if (c->kind == CHECKPOINT_SAFETENSORS)
        return shard_weight(f, t, rows, cols, out, err);
    /* Files with NVFP4 have a separate scale. */
    return plain_weight(f, t, rows, cols, out, err) ||
                   checkpoint_whole_scale(f, t, ".scale", 1, out, err)
               ? -1
               : 0;
}

int checkpoint_vector(struct checkpoint *c, const char *name, float *out, uint64_t n,
                      struct error *err)
{
    struct checkpoint_files *f = (struct checkpoint_files *)c;
    struct checkpoint_tensor *t = checkpoint_find(c, name);
    if (!t)
        return 1;
    enum tensor_type type = t->type;
    if (c->kind == CHECKPOINT_BIN) {
        if (checkpoint_raw_type(f, t, n, &type, err))
            return -1;
    } else if (checkpoint_rows(t, 0) != n) {
        return checkpoint_refuse_shape(c, t, 1, n, err);
    }
    if (type != TENSOR_F32 && type != TENSOR_F16 && type != TENSOR_BF16 && type != TENSOR_F64)
        return checkpoint_refuse(c, err,
                                 "the tensor %s is %s; radish reads norms and biases of"
                                 " F32, F16, BF16 and F64",
                                 shown_name(t->name, strlen(t->name)).text,
                                 tensor_type_info(type)->name);
    dequantize(type, t->data, out, n);
    t->is_used = true;
    return 0;
}
