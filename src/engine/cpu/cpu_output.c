/* The outputs of rows, from x after the last layer: the norm, the head's product and the logits'
 * scales, by all threads.
 *
 * Logits go directly into the callers' buffers, and the product needs rows at equal distances. So
 * outputs are split into runs of such rows; most batches are one run. The head's weights are read
 * again for each run. */
#include <string.h>

#include "engine/cpu/cpu_pass.h"
#include "engine/row_best.h"

/* Outputs first .. first + n - 1, whose logits go to out[n][stride]. */
struct output_run {
    uint32_t first, n;
    float *out;
    size_t stride;
    bool wants_best;
};

static const struct row_output *output_of(const struct cpu_engine *e, uint32_t i)
{
    return e->batch->rows[e->state.outputs[i]].output;
}

static bool has_logits(const struct cpu_engine *e, uint32_t i)
{
    return output_of(e, i)->wants & OUTPUT_LOGITS;
}

/* The distance in floats from the buffer of output i to the next one; 0 if that is not after it. */
static size_t next_buffer(const struct cpu_engine *e, uint32_t i)
{
    if (i + 1 >= e->n_outputs || !has_logits(e, i + 1))
        return 0;
    uintptr_t here = (uintptr_t)output_of(e, i)->logits;
    uintptr_t next = (uintptr_t)output_of(e, i + 1)->logits;
    size_t floats = (next - here) / sizeof(float);
    bool is_behind = next > here && (next - here) % sizeof(float) == 0;
    return is_behind && floats >= e->engine.info.n_vocab ? floats : 0;
}

static struct output_run run_at(const struct cpu_engine *e, uint32_t first)
{
    uint32_t end = first + 1;
    struct output_run run = {first, 1, e->state.best_logits, e->engine.info.n_vocab, false};
    if (has_logits(e, first)) {
        size_t stride = next_buffer(e, first);
        for (; stride > 0 && next_buffer(e, end - 1) == stride; end++)
            run.stride = stride;
        run.out = output_of(e, first)->logits;
    } else {
        while (end < e->n_outputs && end - first < BEST_ROWS && !has_logits(e, end))
            end++;
    }
    run.n = end - first;
    for (uint32_t i = first; i < end; i++)
        run.wants_best |= output_of(e, i)->wants & OUTPUT_BEST;
    return run;
}

/* Writes the normed x of a row to `out`. */
static void norm_output(const struct pass *p, uint32_t row, float *out)
{
    const float *weight = p->e->model->output_norm;
    uint32_t n = p->hp->n_embd;
    const float *x = p->e->state.x + (size_t)row * n;
    if (weight)
        p->elementwise->norm(p->hp->norm, x, weight, out, n, p->hp->norm_eps);
    else
        memcpy(out, x, n * sizeof *x);
}

static void finish_logits(const struct pass *p, const struct product *head,
                          const struct work_part *part)
{
    struct range columns = part_columns(head->matrix, part);
    uint32_t n = columns.end - columns.begin;
    for (size_t r = part->rows.begin; r < part->rows.end; r++) {
        float *logits = head->out + r * head->stride + columns.begin;
        if (p->hp->logit_scale != 1.0f)
            p->elementwise->scale(logits, p->hp->logit_scale, n);
        if (p->hp->logit_softcap != 0.0f)
            p->vector->softcap(logits, n, p->hp->logit_softcap);
    }
}

static void multiply_head(const struct pass *p, const struct output_run *run)
{
    struct cpu_engine *e = p->e;
    const struct product head = {e->head, run->out, run->stride, NULL};
    uint32_t n = p->hp->n_embd;
    struct range rows = pass_rows_to_prepare(p, run->n);
    for (uint32_t i = rows.begin; i < rows.end; i++)
        norm_output(p, e->state.outputs[run->first + i], p->input->normed + (size_t)i * n);
    struct rows_in in = {p->input->normed, n, p->input->quantized};
    pass_prepare(p, &head, 1, &in, run->n);
    pass_lap(p, &e->engine.times.other_ns);
    struct work work = pass_work(p, p->hp->n_layers, PHASE_OUTPUT, matrix_panels(e->head), run->n);
    for (struct work_part part; work_next(&work, &part);) {
        pass_multiply_part(p, &head, &in, &part);
        finish_logits(p, &head, &part);
    }
}

static void pick_best(const struct pass *p, const struct output_run *run)
{
    struct range rows = pass_share(p, run->n);
    pass_meet(p);
    pass_lap(p, &p->e->engine.times.products_ns);
    for (uint32_t i = rows.begin; i < rows.end; i++) {
        const struct row_output *out = output_of(p->e, run->first + i);
        if (out->wants & OUTPUT_BEST)
            row_best_pick(run->out + i * run->stride, p->e->engine.info.n_vocab, out);
    }
}

/* Prepares the head's phase for another run, after all threads have finished the previous one. */
static void begin_again(const struct pass *p)
{
    pass_meet(p);
    if (p->thread == 0)
        atomic_store_explicit(&p->e->taken[p->hp->n_layers * PHASES_OF_LAYER + PHASE_OUTPUT], 0,
                              memory_order_relaxed);
    pass_meet(p);
}

static void give_hidden(const struct pass *p)
{
    struct range rows = pass_share(p, p->n_rows);
    uint32_t n = p->hp->n_embd;
    for (uint32_t r = rows.begin; r < rows.end; r++) {
        const struct row_output *out = p->e->batch->rows[r].output;
        if (out && out->wants & OUTPUT_HIDDEN)
            memcpy(out->hidden, p->e->state.x + (size_t)r * n, n * sizeof(float));
        if (out && out->wants & OUTPUT_NORMED)
            norm_output(p, r, out->normed);
    }
}

void pass_outputs(struct cpu_engine *e, uint32_t thread)
{
    if (e->wants_hidden) {
        struct pass p = pass_together(e, thread, e->batch->n_rows);
        give_hidden(&p);
    }
    for (uint32_t first = 0; first < e->n_outputs;) {
        struct output_run run = run_at(e, first);
        struct pass p = pass_together(e, thread, run.n);
        if (first > 0)
            begin_again(&p);
        multiply_head(&p, &run);
        if (run.wants_best)
            pick_best(&p, &run);
        first += run.n;
    }
}
