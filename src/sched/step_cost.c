/* Learning the cost of a step: normalised least mean squares on three terms, scaled so that one
 * decoded token says something about the batch and little about the row, and a chunk of a prompt
 * the other way round. Owned by the scheduler's thread. A prediction need not be exact: it sizes
 * the next chunk, and the step after that knows better. */
#include "sched/step_cost.h"

#include <math.h>

#define ROW_SCALE      64.0
#define POSITION_SCALE (64.0 * 1024.0)
#define RATE           0.3  /* how much of an error is corrected at once */
#define MIN_ROW_NS     10.0 /* no row is free: bounds the size of a chunk */

void step_cost_init(struct step_cost *c, double row_ns)
{
    *c = (struct step_cost){.row_ns = row_ns};
}

double step_cost_predict(const struct step_cost *c, const struct step_work *work)
{
    return c->batch_ns + work->rows * c->row_ns + (double)work->positions * c->position_ns;
}

void step_cost_learn(struct step_cost *c, const struct step_work *work, double took_ns)
{
    double rows = work->rows / ROW_SCALE, positions = (double)work->positions / POSITION_SCALE;
    double error = took_ns - step_cost_predict(c, work);
    double rate = 1.0 / ++c->n_seen;
    double part = (rate > RATE ? rate : RATE) * error / (1 + rows * rows + positions * positions);
    c->batch_ns = fmax(c->batch_ns + part, 0);
    c->row_ns = fmax(c->row_ns + part * rows / ROW_SCALE, MIN_ROW_NS);
    c->position_ns = fmax(c->position_ns + part * positions / POSITION_SCALE, 0);
}

uint32_t step_cost_rows(const struct step_cost *c, uint32_t position, double time_ns)
{
    if (!(time_ns > 0))
        return 0;
    /* n rows from position p take n * (row + p * position) + n^2 / 2 * position. */
    double first = c->row_ns + position * c->position_ns;
    double rows = 2 * time_ns / (first + sqrt(first * first + 2 * c->position_ns * time_ns));
    return rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}
