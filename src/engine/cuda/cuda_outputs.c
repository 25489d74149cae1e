/* From the device to what rows want. Logits come in chunks of HEAD_ROWS outputs through pinned
 * memory; the first chunk is on its way when submit returns. Owner thread. */
#include <string.h>

#include "base/minmax.h"
#include "engine/cuda/cuda_internal.h"
#include "engine/row_best.h"

static size_t logits_bytes(const struct cuda_engine *e)
{
    return (size_t)e->model->hparams.n_vocab * sizeof(float);
}

static int copy_back(struct cuda_engine *e, void *to, CUdeviceptr from, size_t bytes,
                     struct error *err)
{
    return cuda_check(&e->driver, e->driver.copy_to_host(to, from, bytes, e->stream),
                      "copy results from the device", err);
}

static int finish(struct cuda_engine *e, struct error *err)
{
    return cuda_check(&e->driver, e->driver.stream_synchronize(e->stream), "compute a batch", err);
}

int cuda_outputs_copy_begin(struct cuda_engine *e, struct error *err)
{
    uint32_t n = min_u32(e->pinned.plan.step->n_outputs, HEAD_ROWS);
    return n == 0 ? 0
                  : copy_back(e, e->pinned.logits, e->buffers.logits, n * logits_bytes(e), err);
}

static void give_logits(struct cuda_engine *e, uint32_t first, uint32_t n)
{
    uint32_t n_vocab = e->model->hparams.n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = e->pinned.plan.outputs[first + i];
        const struct row_output *out = e->batch->rows[row].output;
        float *logits = e->pinned.logits + (size_t)i * n_vocab;
        if (out->wants & OUTPUT_LOGITS)
            memcpy(out->logits, logits, logits_bytes(e));
        if (out->wants & OUTPUT_BEST)
            row_best_pick(logits, n_vocab, out);
    }
}

/* Copies the row's x, before or after the last norm, straight to the caller. */
static int give_hidden(struct cuda_engine *e, uint32_t row, CUdeviceptr from, size_t stride,
                       float *to, struct error *err)
{
    return copy_back(e, to, from + row * stride * sizeof(float),
                     e->model->hparams.n_embd * sizeof(float), err);
}

static int give_all_hidden(struct cuda_engine *e, struct error *err)
{
    bool has_normed = false;
    for (uint32_t r = 0; r < e->batch->n_rows; r++) {
        const struct row_output *out = e->batch->rows[r].output;
        has_normed |= out && out->wants & OUTPUT_NORMED;
        if (out && out->wants & OUTPUT_HIDDEN &&
            give_hidden(e, r, e->buffers.x, e->model->hparams.n_embd, out->hidden, err))
            return -1;
    }
    if (!has_normed)
        return 0;
    struct cuda_activations normed = e->buffers.normed;
    normed.f16 = normed.bf16 = 0;
    if (cuda_launch_norm(e, e->output_norm, &normed, e->batch->n_rows, err))
        return -1;
    for (uint32_t r = 0; r < e->batch->n_rows; r++) {
        const struct row_output *out = e->batch->rows[r].output;
        if (out && out->wants & OUTPUT_NORMED &&
            give_hidden(e, r, normed.f32, normed.stride, out->normed, err))
            return -1;
    }
    return 0;
}

int cuda_outputs_finish(struct cuda_engine *e, struct error *err)
{
    uint32_t n_outputs = e->pinned.plan.step->n_outputs;
    if (give_all_hidden(e, err) || finish(e, err))
        return -1;
    give_logits(e, 0, min_u32(n_outputs, HEAD_ROWS));
    for (uint32_t first = HEAD_ROWS; first < n_outputs; first += HEAD_ROWS) {
        uint32_t n = min_u32(n_outputs - first, HEAD_ROWS);
        if (cuda_launch_head(e, first, n, err) ||
            copy_back(e, e->pinned.logits, e->buffers.logits, n * logits_bytes(e), err) ||
            finish(e, err))
            return -1;
        give_logits(e, first, n);
    }
    return 0;
}
