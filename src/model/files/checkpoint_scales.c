/* Weights whose scales are in a separate tensor.
 *
 *   NAME.weight  F8_E4M3    NAME.weight_scale_inv ...  FP8: a scale for a block, a row or all
 *   NAME_blocks  U8         NAME_scales   U8           MXFP4 as in gpt-oss: 1 x 32 values a scale
 *   NAME.weight  U32        NAME.scales   floats       MLX, affine, with NAME.biases
 *                           NAME.scales   U8           MLX, mxfp4, mxfp8, nvfp4; the last may have
 *                                                      a NAME.global_scale
 *
 * Careful: the same suffix means different things in different formats. The types of both tensors
 * decide, and every size is checked against the requested shape. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/files/checkpoint_files.h"

enum { MAX_NAME_BYTES = 512, COLS_STEP = 32 /* of groups, but for nvfp4: see weight_floats */ };

/* MLX's global scale is the value of the largest product of a scale (448) and a quant (6). */
#define NVFP4_GLOBAL_UNIT (1.0f / (448 * 6))

static struct shown_name shown(const struct checkpoint_tensor *t)
{
    return shown_name(t->name, strlen(t->name));
}

static bool name_ends(const struct checkpoint_tensor *t, const char *suffix)
{
    size_t len = strlen(t->name), n = strlen(suffix);
    return len > n && strcmp(t->name + len - n, suffix) == 0;
}

/* The tensor with `t`'s name, ending in `to` instead of `from`, or NULL. */
static struct checkpoint_tensor *beside(const struct checkpoint_files *f,
                                        const struct checkpoint_tensor *t, const char *from,
                                        const char *to)
{
    char name[MAX_NAME_BYTES];
    size_t len = strlen(t->name), n = strlen(from);
    if (!name_ends(t, from) || len - n + strlen(to) >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int)(len - n), t->name, to);
    return checkpoint_lookup(f, name);
}

static int refuse_pair(const struct checkpoint_files *f, const struct checkpoint_tensor *t,
                       const struct checkpoint_tensor *other, const char *what, struct error *err)
{
    return checkpoint_refuse(&f->c, err, "%s %s %s cannot be the %s of %s, %s %s",
                             shown(other).text, tensor_type_info(other->type)->name,
                             checkpoint_shape_text(&f->c, other->dims, other->n_dims).text, what,
                             shown(t).text, tensor_type_info(t->type)->name,
                             checkpoint_shape_text(&f->c, t->dims, t->n_dims).text);
}

/* Sets the addresses of a weight's data and scales; its groups' sizes are already set. */
static int place(struct checkpoint_files *f, struct checkpoint_tensor *t,
                 struct checkpoint_tensor *scales, struct weight *w, struct error *err)
{
    if (checkpoint_align(f, t, err) || checkpoint_align(f, scales, err))
        return -1;
    w->data = t->data;
    w->groups.scales = scales->data;
    w->groups.row_step = 1;
    return 0;
}

int checkpoint_whole_scale(struct checkpoint_files *f, struct checkpoint_tensor *t, const char *end,
                           float unit, struct weight *out, struct error *err)
{
    struct checkpoint_tensor *scale = beside(f, t, ".weight", end);
    float value;
    if (!scale || (checkpoint_rows(scale, 0) > 1 && f->c.kind == CHECKPOINT_GGUF))
        return 0;
    if (checkpoint_rows(scale, 0) != 1 || scale->type != TENSOR_F32)
        return refuse_pair(f, t, scale, "scale", err);
    memcpy(&value, scale->data, sizeof value);
    if (!isfinite(value * unit) || value * unit == 0)
        return checkpoint_refuse(&f->c, err, "the tensor %s holds %g, which is not a valid scale",
                                 shown(scale).text, (double)value);
    out->groups.scale = value * unit;
    scale->is_used = true;
    return 0;
}

/* The supported types of scales; bytes are exponents. */
static bool read_scale_type(const struct checkpoint_tensor *scales, enum tensor_type *out)
{
    *out = scales->type == TENSOR_U8 ? TENSOR_E8M0 : scales->type;
    return tensor_type_is_float(*out) || *out == TENSOR_E8M0;
}

static uint64_t div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* How FP8 scales cover a matrix, or a stack of them: in blocks as given in config.json, or evenly,
 * such as one for each row or matrix.
 *
 *   weight [n, r, c]    scales [n, r / rows, c / cols], where 1s at the end may be missing */
static bool read_grid(const struct checkpoint_files *f, const struct checkpoint_tensor *t,
                      const struct checkpoint_tensor *scales, struct weight_groups *out)
{
    uint64_t cols = t->dims[t->n_dims - 1], rows = t->n_dims > 1 ? t->dims[t->n_dims - 2] : 1;
    uint64_t n_stack = checkpoint_rows(t, 2), group_rows, group_cols;
    if (checkpoint_rows(scales, 0) == 1) {
        *out = (struct weight_groups){
            .rows = (uint32_t)(n_stack * rows), .cols = (uint32_t)cols, .per_row = 1};
        return true;
    }
    if (t->n_dims < 2 || scales->n_dims > t->n_dims)
        return false;
    uint64_t across = scales->dims[t->n_dims - 1], down = scales->dims[t->n_dims - 2], n = 1;
    for (uint32_t i = 0; i + 2 < t->n_dims; i++)
        n *= scales->dims[i];
    if (n != n_stack || across == 0 || down == 0)
        return false;
    if (down == div_up(rows, f->block_rows) && across == div_up(cols, f->block_cols)) {
        group_rows = down == 1 ? rows : f->block_rows;
        group_cols = across == 1 ? cols : f->block_cols;
    } else {
        group_rows = rows / down;
        group_cols = cols / across;
        if (rows % down || cols % across)
            return false;
    }
    *out = (struct weight_groups){
        .rows = (uint32_t)group_rows, .cols = (uint32_t)group_cols, .per_row = (uint32_t)across};
    return (group_cols % COLS_STEP == 0 || group_cols >= cols) &&
           (n_stack == 1 || rows % group_rows == 0);
}

int checkpoint_fp8_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                          uint32_t cols, struct weight *out, struct error *err)
{
    uint64_t n_rows = checkpoint_rows(t, 1);
    struct checkpoint_tensor *scales = beside(f, t, "", "_scale_inv");
    scales = scales ? scales : beside(f, t, "", "_scale");
    scales = scales ? scales : beside(f, t, ".weight", ".scale");
    if (t->dims[t->n_dims - 1] != cols || !checkpoint_fits(n_rows, rows))
        return checkpoint_refuse_shape(&f->c, t, rows ? rows : n_rows, cols, err);
    if (!scales)
        return checkpoint_refuse(&f->c, err, "the tensor %s is F8_E4M3 and has no scales beside it",
                                 shown(t).text);
    *out = (struct weight){
        .type = TENSOR_F8_E4M3, .rows = (uint32_t)n_rows, .cols = cols, .row_bytes = cols};
    if (!read_grid(f, t, scales, &out->groups) || !read_scale_type(scales, &out->groups.scale_type))
        return refuse_pair(f, t, scales, "scales", err);
    return place(f, t, scales, out, err);
}

/* MXFP4: [..., groups, 16] bytes of two values each, the low half first. */
int checkpoint_blocks_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                             uint32_t cols, struct weight *out, struct error *err)
{
    struct checkpoint_tensor *scales = beside(f, t, "_blocks", "_scales");
    if (!scales)
        return checkpoint_refuse(&f->c, err,
                                 "the tensor %s is U8, which radish reads only with scales, as"
                                 " NAME_blocks and NAME_scales",
                                 shown(t).text);
    uint64_t groups = t->n_dims > 1 ? t->dims[t->n_dims - 2] : 0, n_rows = checkpoint_rows(t, 2);
    if (t->dims[t->n_dims - 1] != 16 || groups == 0 || cols % 32 || groups != cols / 32 ||
        !checkpoint_fits(n_rows, rows))
        return checkpoint_refuse_shape(&f->c, t, rows ? rows : n_rows, cols, err);
    if (scales->type != TENSOR_U8 || scales->dims[scales->n_dims - 1] != groups ||
        checkpoint_rows(scales, 1) != n_rows)
        return refuse_pair(f, t, scales, "scales", err);
    *out = (struct weight){
        .type = TENSOR_FP4,
        .rows = (uint32_t)n_rows,
        .cols = cols,
        .row_bytes = cols / 2,
        .groups = {.scale_type = TENSOR_E8M0, .rows = 1, .cols = 32, .per_row = (uint32_t)groups}};
    return place(f, t, scales, out, err);
}

static const enum tensor_type affine_types[9] = {
    [1] = TENSOR_AFFINE_1, [2] = TENSOR_AFFINE_2, [3] = TENSOR_AFFINE_3, [4] = TENSOR_AFFINE_4,
    [5] = TENSOR_AFFINE_5, [6] = TENSOR_AFFINE_6, [8] = TENSOR_AFFINE_8};

/* The sizes of its tensors tell how MLX quantised a weight, once its columns are known. */
struct mlx_format {
    uint64_t bits, group_size;
    const char *mode;
    enum tensor_type type, scale_type;
};

static bool infer_format(const struct checkpoint_tensor *t, const struct checkpoint_tensor *scales,
                         uint64_t cols, struct mlx_format *out)
{
    static const struct mlx_format others[] = {{4, 16, "nvfp4", TENSOR_FP4, TENSOR_F8_E4M3},
                                               {4, 32, "mxfp4", TENSOR_FP4, TENSOR_E8M0},
                                               {8, 32, "mxfp8", TENSOR_F8_E4M3, TENSOR_E8M0}};
    uint64_t words = t->dims[t->n_dims - 1], per_row = scales->dims[scales->n_dims - 1];
    if (cols == 0 || words > cols || words * 32 % cols || per_row == 0 || cols % per_row)
        return false;
    uint64_t bits = words * 32 / cols, group_size = cols / per_row;
    if (scales->type != TENSOR_U8) {
        *out = (struct mlx_format){bits, group_size, "affine", TENSOR_F32, scales->type};
        if (bits > 8 || !affine_types[bits] || group_size % COLS_STEP)
            return false;
        out->type = affine_types[bits];
        return tensor_type_is_float(scales->type);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].bits == bits && others[i].group_size == group_size) {
            *out = others[i];
            return true;
        }
    return false;
}

/* What config.json says about this module must agree with its sizes. */
static int check_override(const struct checkpoint_files *f, const struct checkpoint_tensor *t,
                          const struct mlx_format *format, struct error *err)
{
    char module[MAX_NAME_BYTES];
    size_t len = strlen(t->name) - (name_ends(t, ".weight") ? strlen(".weight") : 0);
    if (len >= sizeof module)
        return 0;
    snprintf(module, sizeof module, "%.*s", (int)len, t->name);
    const struct json *own = json_get(f->mlx, module), *mode = json_get(own, "mode");
    uint64_t bits = format->bits, group_size = format->group_size;
    json_to_uint64(json_get(own, "bits"), &bits);
    json_to_uint64(json_get(own, "group_size"), &group_size);
    if ((json_is(own, JSON_BOOL) && !own->boolean) || bits != format->bits ||
        group_size != format->group_size ||
        (json_is(mode, JSON_STRING) && !json_equals(mode, format->mode)))
        return checkpoint_refuse(&f->c, err,
                                 "the tensor %s is quantised (%s, %" PRIu64
                                 " bits, groups of %" PRIu64 "), but config.json says otherwise",
                                 shown(t).text, format->mode, format->bits, format->group_size);
    return 0;
}

static int take_biases(struct checkpoint_files *f, struct checkpoint_tensor *t,
                       const struct checkpoint_tensor *scales, struct weight *out,
                       struct error *err)
{
    struct checkpoint_tensor *biases = beside(f, t, ".weight", ".biases");
    if (!biases)
        return checkpoint_refuse(&f->c, err, "the tensor %s has scales, but no biases beside it",
                                 shown(t).text);
    if (biases->type != scales->type || biases->n_dims != scales->n_dims ||
        memcmp(biases->dims, scales->dims, sizeof biases->dims) != 0)
        return refuse_pair(f, t, biases, "biases", err);
    if (checkpoint_align(f, biases, err))
        return -1;
    out->groups.biases = biases->data;
    return 0;
}

int checkpoint_mlx_weight(struct checkpoint_files *f, struct checkpoint_tensor *t, uint32_t rows,
                          uint32_t cols, struct weight *out, struct error *err)
{
    struct checkpoint_tensor *scales = beside(f, t, ".weight", ".scales");
    struct mlx_format format;
    uint64_t n_rows = checkpoint_rows(t, 1);
    if (!scales || !f->mlx)
        return checkpoint_refuse(&f->c, err,
                                 "the tensor %s is U32, which radish reads only as MLX's, with"
                                 " scales and config.json's \"quantization\"",
                                 shown(t).text);
    if (!checkpoint_fits(n_rows, rows))
        return checkpoint_refuse_shape(&f->c, t, rows ? rows : n_rows, cols, err);
    if (!infer_format(t, scales, cols, &format) || checkpoint_rows(scales, 1) != n_rows)
        return checkpoint_refuse(
            &f->c, err,
            "%s, U32 %s with scales %s %s, is in no format of MLX for %" PRIu32 " columns",
            shown(t).text, checkpoint_shape_text(&f->c, t->dims, t->n_dims).text,
            tensor_type_info(scales->type)->name,
            checkpoint_shape_text(&f->c, scales->dims, scales->n_dims).text, cols);
    if (check_override(f, t, &format, err))
        return -1;
    *out = (struct weight){.type = format.type,
                           .rows = (uint32_t)n_rows,
                           .cols = cols,
                           .row_bytes = (size_t)t->dims[t->n_dims - 1] * 4,
                           .groups = {.scale_type = format.scale_type,
                                      .rows = 1,
                                      .cols = (uint32_t)format.group_size,
                                      .per_row = (uint32_t)(cols / format.group_size)}};
    if (strcmp(format.mode, "affine") == 0 && take_biases(f, t, scales, out, err))
        return -1;
    return place(f, t, scales, out, err) ||
                   checkpoint_whole_scale(f, t, ".global_scale", NVFP4_GLOBAL_UNIT, out, err)
               ? -1
               : 0;
}
