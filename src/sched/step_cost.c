/* Learns the cost of a step: normalized least mean squares on three terms, scaled so that a decoded
 * token says much about the cost per batch and little about the cost per row, and a chunk of a
 * prompt the opposite. Owned by the scheduler's thread. A prediction need not be exact: it sizes
 * the next chunk, and the step after that knows better. Careful: do not fit the last steps as
 * closely as possible. On a busy machine most of their differences are noise; a close fit then
 * finds rows that cost nothing, and the next chunk takes seconds. */
#include "sched/step_cost.h"

#include <math.h>
#include <stdbool.h>

#define ROW_SCALE      16.0
#define POSITION_SCALE (16.0 * 1024.0)
#define RATE           0.3  /* the part of an error that is corrected at once */
#define MIN_ROW_NS     10.0 /* no row is free: bounds the size of a chunk */
#define OUTLIER        2.0  /* times the prediction: the machine was busy with something else */

/* A row's attention to one position costs less than this fraction of the rest of the row: it reads
 * two vectors, the rest whole matrices. Without this bound, noise would be mistaken for attention.
 */
#define MAX_POSITION_PART (1.0 / 256)

enum { TRUSTED_AFTER = 4, FIRST_ROWS = 32 };

void step_cost_init(struct step_cost *c, double row_ns)
{
    *c = (struct step_cost){.row_ns = row_ns, .max_rows = FIRST_ROWS};
}

double step_cost_predict(const struct step_cost *c, const struct step_work *work)
{
    return c->batch_ns + work->rows * c->row_ns + (double)work->positions * c->position_ns;
}

/* The limit on rows doubles while steps stay within their prediction, and shrinks when one does
 * not. */
static void learn_max_rows(struct step_cost *c, uint32_t rows, bool is_outlier)
{
    if (is_outlier && rows >= FIRST_ROWS)
        c->max_rows = rows;
    else if (!is_outlier && rows > c->max_rows / 2)
        c->max_rows = rows < UINT32_MAX / 2 ? 2 * rows : UINT32_MAX;
}

void step_cost_learn(struct step_cost *c, const struct step_work *work, double took_ns)
{
    double rows = work->rows / ROW_SCALE, positions = (double)work->positions / POSITION_SCALE;
    double predicted_ns = step_cost_predict(c, work);
    bool is_outlier = took_ns > OUTLIER * predicted_ns;
    learn_max_rows(c, work->rows, is_outlier);
    if (c->n_seen++ >= TRUSTED_AFTER && is_outlier)
        took_ns = OUTLIER * predicted_ns;
    double rate = fmax(1.0 / c->n_seen, RATE);
    double part = rate * (took_ns - predicted_ns) / (1 + rows * rows + positions * positions);
    c->batch_ns = fmax(c->batch_ns + part, 0);
    c->row_ns = fmax(c->row_ns + part * rows / ROW_SCALE, MIN_ROW_NS);
    c->position_ns = fmax(c->position_ns + part * positions / POSITION_SCALE, 0);
    c->position_ns = fmin(c->position_ns, c->row_ns * MAX_POSITION_PART);
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
