/* Writes a GGUF file with other tensor types; see requantize.h. One thread owns it and computes
 * with the pool. A model may be larger than memory, so a tensor is processed a few thousand rows at
 * a time and never held whole. */
#include "model/convert/requantize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/quant/quantize.h"

enum { PIECE_VALUES = 8 << 20 };

struct job {
    const struct tensor_file *file;
    const struct requantize_options *options;
    struct parallel *pool;
    struct requantize_result *result;
    FILE *out;
    struct error *err;
    uint64_t done_bytes, all_bytes; /* written */

    /* The current piece. */
    struct weight weight;
    struct row_pairs pairs;
    enum tensor_type type;
    uint32_t first_row, n_rows;
    float *floats;   /* [n_threads][cols] */
    uint8_t *blocks; /* [n_rows] rows of the type */
};

/* Whether the weight is 4-bit as in gpt-oss, which GGUF stores in its own blocks. */
static bool is_mxfp4(const struct weight *w)
{
    const struct weight_groups *g = &w->groups;
    return w->type == TENSOR_FP4 && g->scales && !g->biases && g->scale_type == TENSOR_E8M0 &&
           g->scale == 0 && g->rows == 1 && g->cols == 32 && w->cols % 32 == 0;
}

/* The type that holds a tensor unchanged; F32 and false if GGUF has none. */
static bool own_type(const struct tensor_source *t, enum tensor_type *out)
{
    const struct weight *w = &t->parts[0];
    bool is_exact = is_mxfp4(w) || (w->type < N_GGUF_TYPES && !w->groups.scales);
    bool is_f32 = !is_exact || (t->is_wide && tensor_type_is_float(w->type));
    *out = is_f32 ? TENSOR_F32 : w->type == TENSOR_FP4 ? TENSOR_MXFP4 : w->type;
    for (uint32_t i = 1; i < t->n_parts; i++)
        if (t->parts[i].type != w->type || is_mxfp4(&t->parts[i]) != is_mxfp4(w)) {
            *out = TENSOR_F32;
            is_exact = is_exact && tensor_type_is_float(w->type) &&
                       tensor_type_is_float(t->parts[i].type);
        }
    return is_exact;
}

/* The type that a tensor is converted to. */
static enum tensor_type type_for(const struct job *j, const struct tensor_source *t)
{
    enum tensor_type own;
    bool is_exact = own_type(t, &own);
    bool is_matrix = t->n_dims >= 2 && t->dims[1] > 1;
    bool matters = !strcmp(t->name, "token_embd.weight") || !strcmp(t->name, "output.weight");
    size_t len = strlen(t->name);
    bool is_weight = len > 7 && !strcmp(t->name + len - 7, ".weight");
    if (!is_matrix || !is_weight || strstr(t->name, "ffn_gate_inp") ||
        (is_mxfp4(&t->parts[0]) && is_exact && !j->options->again))
        return own;
    enum tensor_type type = quantize_choose(j->options->type, t->dims[0], matters);
    bool is_kept = type == TENSOR_F16 && is_exact && tensor_type_is_float(own) &&
                   !tensor_type_is_float(j->options->type);
    return is_kept ? own : type;
}

static int check_types(const struct job *j)
{
    for (size_t i = 0; i < j->file->n_tensors && !j->options->again; i++) {
        const struct tensor_source *t = &j->file->tensors[i];
        enum tensor_type own, type = type_for(j, t);
        bool is_exact = own_type(t, &own);
        if (is_exact ? tensor_type_is_float(own) || type == own : tensor_type_is_float(type))
            continue;
        if (is_exact && tensor_type_is_float(j->options->type))
            return error_set(j->err, ERROR_INPUT,
                             "%s: %s is already %s; converting it to %s does not bring lost "
                             "precision back. Start from a float file, or use --allow-requantize",
                             j->file->from, t->name, tensor_type_info(own)->name,
                             tensor_type_info(j->options->type)->name);
        return error_set(j->err, ERROR_INPUT,
                         "%s: %s is already %s, and quantizing it again would lose accuracy; start "
                         "from a float file, %suse --allow-requantize",
                         j->file->from, t->name, tensor_type_info(t->parts[0].type)->name,
                         is_exact ? "or " : "choose --type bf16, f16 or f32, or ");
    }
    return 0;
}

static int write_bytes(const struct job *j, const void *bytes, size_t len)
{
    if (fwrite(bytes, 1, len, j->out) == len)
        return 0;
    return error_set(j->err, ERROR_IO, "%s: %s", j->file->path, strerror(errno));
}

static size_t row_bytes(enum tensor_type type, uint64_t cols)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return cols / info->block_len * info->block_bytes;
}

/* The source of row `r`: pair i is the values i and i + n/2. */
static uint32_t row_from(const struct row_pairs *pairs, uint32_t r)
{
    uint32_t at = pairs->n ? r % pairs->period : 0;
    if (pairs->n == 0 || at < pairs->first || at >= pairs->first + pairs->n)
        return r;
    uint32_t i = at - pairs->first;
    return r - i + i / 2 + i % 2 * (pairs->n / 2);
}

/* GGUF stores a block's scale before its values, the second half of which is in the high bits. */
static void pack_mxfp4(const struct weight *w, uint32_t row, uint8_t *out)
{
    const uint8_t *from = (const uint8_t *)w->data + row * w->row_bytes;
    const uint8_t *scales = w->groups.scales;
    for (uint32_t begin = 0; begin < w->cols; begin += 32, out += 17, from += 16) {
        out[0] = scales[weight_group(w, row, begin)];
        for (uint32_t i = 0; i < 16; i++) {
            uint8_t low = from[i / 2] >> 4 * (i % 2) & 15;
            uint8_t high = from[8 + i / 2] >> 4 * (i % 2) & 15;
            out[1 + i] = (uint8_t)(low | high << 4);
        }
    }
}

static void write_share(void *context, uint32_t thread, uint32_t n_threads)
{
    struct job *j = context;
    const struct weight *w = &j->weight;
    float *floats = j->floats + (size_t)thread * w->cols;
    size_t len = row_bytes(j->type, w->cols);
    uint64_t n = j->n_rows;
    for (uint64_t r = n * thread / n_threads; r < n * (thread + 1) / n_threads; r++) {
        uint32_t row = row_from(&j->pairs, j->first_row + (uint32_t)r);
        uint8_t *out = j->blocks + r * len;
        if (w->type == j->type && !w->groups.scales) {
            memcpy(out, (const uint8_t *)w->data + row * w->row_bytes, len);
        } else if (j->type == TENSOR_MXFP4) {
            pack_mxfp4(w, row, out);
        } else {
            weight_floats(w, row, 0, w->cols, floats);
            quantize(j->type, floats, out, w->cols);
        }
    }
}

static int write_pieces(struct job *j, uint32_t most)
{
    size_t len = row_bytes(j->type, j->weight.cols);
    for (j->first_row = 0; j->first_row < j->weight.rows; j->first_row += j->n_rows) {
        uint32_t left = j->weight.rows - j->first_row;
        j->n_rows = left < most ? left : most;
        parallel_run(j->pool, write_share, j);
        if (write_bytes(j, j->blocks, j->n_rows * len))
            return -1;
        j->done_bytes += j->n_rows * len;
        if (j->options->progress)
            j->options->progress(j->options->context, (double)j->done_bytes / (double)j->all_bytes);
    }
    return 0;
}

static int write_parts(struct job *j, const struct tensor_source *t)
{
    uint32_t cols = t->parts[0].cols, most = cols < PIECE_VALUES ? PIECE_VALUES / cols : 1;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < t->n_parts; i++)
        longest = t->parts[i].rows > longest ? t->parts[i].rows : longest;
    most = most < longest ? most : longest;
    j->floats = malloc((size_t)parallel_threads(j->pool) * cols * sizeof *j->floats);
    j->blocks = malloc(most * row_bytes(j->type, cols) + 1);
    int failed = j->floats && j->blocks
                     ? 0
                     : error_set(j->err, ERROR_MEMORY, "no memory to quantize %u values", cols);
    for (uint32_t i = 0; i < t->n_parts && !failed; i++) {
        j->weight = t->parts[i];
        failed = write_pieces(j, most);
    }
    free(j->floats);
    free(j->blocks);
    return failed;
}

static uint64_t tensor_bytes(const struct tensor_source *t, enum tensor_type type)
{
    uint64_t rows = 1;
    for (uint32_t i = 1; i < t->n_dims; i++)
        rows *= t->dims[i];
    return rows * row_bytes(type, t->dims[0]);
}

static int write_tensor(struct job *j, const struct tensor_source *t)
{
    static const char zeros[GGUF_ALIGNMENT];
    enum tensor_type own;
    bool is_exact = own_type(t, &own);
    j->type = type_for(j, t);
    j->pairs = t->pairs;
    uint64_t size = tensor_bytes(t, j->type);
    if (write_parts(j, t))
        return -1;
    j->result->n_changed += !is_exact || j->type != own;
    for (uint32_t i = 0; i < t->n_parts; i++)
        j->result->bytes_before += weight_bytes(&t->parts[i]);
    j->result->bytes_after += size;
    return write_bytes(j, zeros, gguf_padded(size) - size);
}

/* llama.cpp's number for "mostly this type", which tools display. */
static uint32_t file_type(enum tensor_type type)
{
    static const struct {
        enum tensor_type type;
        uint32_t number;
    } numbers[] = {{TENSOR_F32, 0},   {TENSOR_F16, 1},   {TENSOR_Q4_0, 2}, {TENSOR_Q4_1, 3},
                   {TENSOR_Q8_0, 7},  {TENSOR_Q5_0, 8},  {TENSOR_Q5_1, 9}, {TENSOR_Q4_K, 15},
                   {TENSOR_Q5_K, 17}, {TENSOR_Q6_K, 18}, {TENSOR_BF16, 32}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].type == type)
            return numbers[i].number;
    return 0;
}

static int write_all(struct job *j)
{
    struct gguf_writer *head = j->file->head;
    gguf_add_u32(head, "general.quantization_version", 2);
    gguf_add_u32(head, "general.file_type", file_type(j->options->type));
    for (size_t i = 0; i < j->file->n_tensors; i++) {
        const struct tensor_source *t = &j->file->tensors[i];
        gguf_add_tensor(head, byte_view_of(t->name), type_for(j, t), t->n_dims, t->dims);
        j->all_bytes += tensor_bytes(t, type_for(j, t));
    }
    if (gguf_write_head(head, j->out, j->file->path, j->err))
        return -1;
    for (size_t i = 0; i < j->file->n_tensors; i++, j->result->n_tensors++)
        if (write_tensor(j, &j->file->tensors[i]))
            return -1;
    return 0;
}

int tensor_file_write(const struct tensor_file *file, struct parallel *pool,
                      const struct requantize_options *options, struct requantize_result *result,
                      struct error *err)
{
    struct job j = {file, options, pool, result, .err = err};
    char *temporary;
    *result = (struct requantize_result){0};
    if (check_types(&j))
        return -1;
    if (asprintf(&temporary, "%s.tmp", file->path) < 0)
        return error_set(err, ERROR_MEMORY, "no memory for a path");
    j.out = fopen(temporary, "wb");
    int failed = j.out ? write_all(&j)
                       : error_set(err, ERROR_IO, "%s: %s", temporary, strerror(errno));
    if (j.out && fclose(j.out) != 0 && !failed)
        failed = error_set(err, ERROR_IO, "%s: %s", file->path, strerror(errno));
    if (!failed && file->checkpoint)
        failed = checkpoint_check(file->checkpoint, err);
    if (!failed && file->check)
        failed = file->check(file->context, temporary, err);
    if (!failed && rename(temporary, file->path) != 0)
        failed = error_set(err, ERROR_IO, "%s: %s", file->path, strerror(errno));
    if (failed && j.out)
        unlink(temporary);
    free(temporary);
    return failed;
}

static bool is_own_key(struct byte_view key)
{
    static const char *const own[] = {"general.file_type", "general.quantization_version",
                                      "general.alignment", "split.no",
                                      "split.count",       "split.tensors.count"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (byte_view_is(key, own[i]))
            return true;
    return false;
}

int requantize(const struct checkpoint *from, const char *to_path, struct parallel *pool,
               const struct requantize_options *options, struct requantize_result *result,
               struct error *err)
{
    struct gguf_writer head = {0};
    struct tensor_source *tensors = calloc(from->n_tensors + 1, sizeof *tensors);
    struct weight *weights = calloc(from->n_tensors + 1, sizeof *weights);
    struct tensor_file file = {from->path,      to_path, &head, tensors,
                               from->n_tensors, NULL,    NULL,  from};
    int failed = tensors && weights ? 0 : error_set(err, ERROR_MEMORY, "no memory for tensors");
    for (size_t i = 0; i < from->gguf->n_values && !failed; i++)
        if (!is_own_key(from->gguf->values[i].key))
            gguf_add_value(&head, &from->gguf->values[i]);
    for (size_t i = 0; i < from->n_tensors && !failed; i++) {
        const struct checkpoint_tensor *t = &from->tensors[i];
        uint64_t rows = 1;
        tensors[i] = (struct tensor_source){t->name, &weights[i], 1, t->n_dims, {0}, {0}, false};
        for (uint32_t d = 0; d < t->n_dims; d++) {
            tensors[i].dims[d] = t->dims[t->n_dims - 1 - d];
            rows *= d ? tensors[i].dims[d] : 1;
        }
        weights[i] = weight_make(t->type, (uint32_t)rows, (uint32_t)tensors[i].dims[0], t->data);
    }
    if (!failed)
        failed = tensor_file_write(&file, pool, options, result, err);
    gguf_writer_free(&head);
    free(weights);
    free(tensors);
    return failed;
}
