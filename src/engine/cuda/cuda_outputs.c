/* From the device to what rows want. Logits, or the best that the device picked, come in chunks of
 * HEAD_ROWS outputs through pinned memory; the first chunk is on its way when submit returns. Owner
 * thread. */
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

static const struct row_output *output_at(const struct cuda_engine *e, uint32_t i)
{
    return e->batch->rows[e->pinned.plan.outputs[i]].output;
}

static bool is_picked_here(const struct row_output *out)
{
    return out->wants & OUTPUT_BEST && out->n_best > CUDA_MAX_BEST;
}

static bool needs_logits(const struct row_output *out)
{
    return out->wants & OUTPUT_LOGITS || is_picked_here(out);
}

static int pick_best(struct cuda_engine *e, uint32_t first, uint32_t n, struct error *err)
{
    const struct cuda_buffers *b = &e->buffers;
    const uint32_t grid[2] = {n, 1};
    struct best_params params = {
        .logits = b->logits,
        .n_best = b->n_best,
        .best = b->best,
        .log_sums = b->log_sums,
        .n_vocab = e->model->hparams.n_vocab,
        .first_row = first,
    };
    return cuda_launch(e, KERNEL_best_logits, grid, 1024, 0, &params, err) ||
           copy_back(e, e->pinned.best, b->best,
                     (size_t)n * CUDA_MAX_BEST * sizeof(struct cuda_best), err) ||
           copy_back(e, e->pinned.log_sums, b->log_sums, n * sizeof(float), err);
}

/* What outputs first .. first + n - 1 want of their logits, which have been computed. */
static int fetch(struct cuda_engine *e, uint32_t first, uint32_t n, struct error *err)
{
    bool has_best = false, has_logits = false;
    for (uint32_t i = first; i < first + n; i++) {
        has_best |= e->pinned.n_best[i] > 0;
        has_logits |= needs_logits(output_at(e, i));
    }
    if (has_best && pick_best(e, first, n, err))
        return -1;
    return has_logits ? copy_back(e, e->pinned.logits, e->buffers.logits, n * logits_bytes(e), err)
                      : 0;
}

int cuda_outputs_begin(struct cuda_engine *e, struct error *err)
{
    uint32_t n = e->pinned.plan.step->n_outputs;
    bool has_best = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct row_output *out = output_at(e, i);
        bool is_picked = out->wants & OUTPUT_BEST && !is_picked_here(out);
        e->pinned.n_best[i] = is_picked ? out->n_best : 0;
        has_best |= is_picked;
    }
    if (has_best && cuda_check(&e->driver,
                               e->driver.copy_to_device(e->buffers.n_best, e->pinned.n_best,
                                                        n * sizeof(uint32_t), e->stream),
                               "copy a batch to the device", err))
        return -1;
    return fetch(e, 0, min_u32(n, HEAD_ROWS), err);
}

static void give_best(const struct cuda_engine *e, uint32_t i, const struct row_output *out)
{
    const struct cuda_best *best = e->pinned.best + (size_t)i * CUDA_MAX_BEST;
    for (uint32_t k = 0; k < out->n_best; k++)
        out->best[k] = (struct row_best){best[k].token, best[k].logit};
    *out->log_sum = e->pinned.log_sums[i];
}

static void give(struct cuda_engine *e, uint32_t first, uint32_t n)
{
    uint32_t n_vocab = e->model->hparams.n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        const struct row_output *out = output_at(e, first + i);
        const float *logits = e->pinned.logits + (size_t)i * n_vocab;
        if (out->wants & OUTPUT_LOGITS)
            memcpy(out->logits, logits, logits_bytes(e));
        if (is_picked_here(out))
            row_best_pick(logits, n_vocab, out);
        else if (out->wants & OUTPUT_BEST)
            give_best(e, i, out);
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
    give(e, 0, min_u32(n_outputs, HEAD_ROWS));
    for (uint32_t first = HEAD_ROWS; first < n_outputs; first += HEAD_ROWS) {
        uint32_t n = min_u32(n_outputs - first, HEAD_ROWS);
        if (cuda_launch_head(e, first, n, err) || fetch(e, first, n, err) || finish(e, err))
            return -1;
        give(e, first, n);
    }
    return 0;
}
