/* A GGUF file with other types; see requantize.h. One thread owns it and computes with the pool.
 * What a newcomer gets wrong: a model may be larger than memory, so a tensor goes through in pieces
 * of a few thousand rows and is never whole. */
#include "model/requantize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gguf_write.h"
#include "model/quantize.h"

enum { PIECE_VALUES = 8 << 20 };

struct job {
    const struct checkpoint *from;
    const struct requantize_options *options;
    struct parallel *pool;
    struct requantize_result *result;
    FILE *out;
    const char *path;
    struct error *err;
    uint64_t done_bytes, all_bytes;

    /* The piece at hand. */
    struct weight weight;
    enum tensor_type type;
    uint32_t first_row, n_rows;
    float *floats;   /* [n_threads][cols] */
    uint8_t *blocks; /* [n_rows] rows of the type */
};

enum tensor_type requantize_choose(enum tensor_type type, uint64_t cols, bool matters)
{
    bool is_small = type == TENSOR_Q4_0 || type == TENSOR_Q4_1 || type == TENSOR_Q4_K ||
                    type == TENSOR_Q5_0 || type == TENSOR_Q5_1 || type == TENSOR_Q5_K;
    if (matters && is_small)
        type = TENSOR_Q6_K;
    if (cols % tensor_type_info(type)->block_len)
        type = type == TENSOR_Q4_K ? TENSOR_Q5_0 : type == TENSOR_Q5_K ? TENSOR_Q5_1 : TENSOR_Q8_0;
    return cols % tensor_type_info(type)->block_len ? TENSOR_F16 : type;
}

/* What a tensor becomes. */
static enum tensor_type type_for(const struct job *j, const struct checkpoint_tensor *t)
{
    bool is_matrix = t->n_dims >= 2 && t->dims[t->n_dims - 2] > 1;
    bool matters = !strcmp(t->name, "token_embd.weight") || !strcmp(t->name, "output.weight");
    size_t len = strlen(t->name);
    bool is_weight = len > 7 && !strcmp(t->name + len - 7, ".weight");
    if (!is_matrix || !is_weight || strstr(t->name, "ffn_gate_inp"))
        return t->type;
    enum tensor_type type = requantize_choose(j->options->type, t->dims[t->n_dims - 1], matters);
    bool fits_no_blocks = type == TENSOR_F16 && !tensor_type_is_float(j->options->type);
    return fits_no_blocks && tensor_type_is_float(t->type) ? t->type : type;
}

static int check_types(const struct job *j)
{
    for (size_t i = 0; i < j->from->n_tensors && !j->options->again; i++) {
        const struct checkpoint_tensor *t = &j->from->tensors[i];
        if (!tensor_type_is_float(t->type) && type_for(j, t) != t->type)
            return error_set(j->err, ERROR_INPUT,
                             "%s: %s is %s already and would lose by being quantised again; start "
                             "from a float file, or say --allow-requantize",
                             j->from->path, t->name, tensor_type_info(t->type)->name);
    }
    return 0;
}

static int write_bytes(const struct job *j, const void *bytes, size_t len)
{
    if (fwrite(bytes, 1, len, j->out) == len)
        return 0;
    return error_set(j->err, ERROR_IO, "%s: %s", j->path, strerror(errno));
}

static size_t row_bytes(enum tensor_type type, uint64_t cols)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return cols / info->block_len * info->block_bytes;
}

static void quantize_share(void *context, uint32_t thread, uint32_t n_threads)
{
    struct job *j = context;
    float *row = j->floats + (size_t)thread * j->weight.cols;
    uint64_t n = j->n_rows;
    for (uint64_t r = n * thread / n_threads; r < n * (thread + 1) / n_threads; r++) {
        weight_floats(&j->weight, j->first_row + (uint32_t)r, 0, j->weight.cols, row);
        quantize(j->type, row, j->blocks + r * row_bytes(j->type, j->weight.cols), j->weight.cols);
    }
}

static int write_pieces(struct job *j)
{
    uint32_t cols = j->weight.cols, rows = j->weight.rows;
    uint32_t most = cols < PIECE_VALUES ? PIECE_VALUES / cols : 1;
    size_t len = row_bytes(j->type, cols);
    j->floats = malloc((size_t)parallel_threads(j->pool) * cols * sizeof *j->floats);
    j->blocks = malloc((most < rows ? most : rows) * len);
    int failed = j->floats && j->blocks
                     ? 0
                     : error_set(j->err, ERROR_MEMORY, "no memory to quantise %u values", cols);
    for (j->first_row = 0; j->first_row < rows && !failed; j->first_row += j->n_rows) {
        j->n_rows = rows - j->first_row < most ? rows - j->first_row : most;
        parallel_run(j->pool, quantize_share, j);
        failed = write_bytes(j, j->blocks, j->n_rows * len);
        j->done_bytes += j->n_rows * j->weight.row_bytes;
        if (j->options->progress)
            j->options->progress(j->options->context, (double)j->done_bytes / (double)j->all_bytes);
    }
    free(j->floats);
    free(j->blocks);
    return failed;
}

static int write_tensor(struct job *j, const struct checkpoint_tensor *t)
{
    static const char zeros[GGUF_ALIGNMENT];
    uint64_t cols = t->dims[t->n_dims - 1], rows = 1, size;
    for (uint32_t i = 0; i + 1 < t->n_dims; i++)
        rows *= t->dims[i];
    j->type = type_for(j, t);
    if (j->type == t->type) {
        size = t->size_bytes;
        if (write_bytes(j, t->data, t->size_bytes))
            return -1;
        j->done_bytes += t->size_bytes;
    } else {
        size = rows * row_bytes(j->type, cols);
        j->weight = weight_make(t->type, (uint32_t)rows, (uint32_t)cols, t->data);
        j->result->n_changed++;
        if (write_pieces(j))
            return -1;
    }
    j->result->bytes_before += t->size_bytes;
    j->result->bytes_after += size;
    return write_bytes(j, zeros, gguf_padded(size) - size);
}

static bool is_own_key(struct gguf_string key)
{
    static const char *const own[] = {"general.file_type", "general.quantization_version",
                                      "general.alignment", "split.no",
                                      "split.count",       "split.tensors.count"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (key.len == strlen(own[i]) && !memcmp(key.bytes, own[i], key.len))
            return true;
    return false;
}

/* llama.cpp's number for "mostly of this type", by which tools show a file. */
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

static int write_head(struct job *j)
{
    const struct checkpoint *c = j->from;
    struct gguf_writer w = {0};
    for (size_t i = 0; i < c->gguf->n_values; i++)
        if (!is_own_key(c->gguf->values[i].key))
            gguf_add_value(&w, &c->gguf->values[i]);
    gguf_add_u32(&w, "general.quantization_version", 2);
    gguf_add_u32(&w, "general.file_type", file_type(j->options->type));
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        uint64_t dims[CHECKPOINT_MAX_DIMS];
        for (uint32_t d = 0; d < t->n_dims; d++)
            dims[d] = t->dims[t->n_dims - 1 - d];
        gguf_add_tensor(&w, (struct gguf_string){t->name, strlen(t->name)}, type_for(j, t),
                        t->n_dims, dims);
        j->all_bytes += t->size_bytes;
    }
    int failed = gguf_write_head(&w, j->out, j->path, j->err);
    gguf_writer_free(&w);
    return failed;
}

static int write_all(struct job *j)
{
    if (write_head(j))
        return -1;
    for (size_t i = 0; i < j->from->n_tensors; i++, j->result->n_tensors++)
        if (write_tensor(j, &j->from->tensors[i]))
            return -1;
    return 0;
}

int requantize(const struct checkpoint *from, const char *to_path, struct parallel *pool,
               const struct requantize_options *options, struct requantize_result *result,
               struct error *err)
{
    struct job j = {from, options, pool, result, .path = to_path, .err = err};
    char *temporary;
    *result = (struct requantize_result){0};
    if (from->kind != CHECKPOINT_GGUF)
        return error_set(err, ERROR_INPUT, "%s: only GGUF files can be written again so far",
                         from->path);
    if (check_types(&j))
        return -1;
    if (asprintf(&temporary, "%s.tmp", to_path) < 0)
        return error_set(err, ERROR_MEMORY, "no memory for a path");
    j.out = fopen(temporary, "wb");
    int failed = j.out ? write_all(&j)
                       : error_set(err, ERROR_IO, "%s: %s", temporary, strerror(errno));
    if (j.out && fclose(j.out) != 0 && !failed)
        failed = error_set(err, ERROR_IO, "%s: %s", temporary, strerror(errno));
    if (!failed && rename(temporary, to_path) != 0)
        failed = error_set(err, ERROR_IO, "%s: %s", to_path, strerror(errno));
    if (failed && j.out)
        unlink(temporary);
    free(temporary);
    return failed;
}
