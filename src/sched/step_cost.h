#ifndef RADISH_SCHED_STEP_COST_H
#define RADISH_SCHED_STEP_COST_H

#include <stdint.h>

/* Predicts how long a step will take, from how long earlier steps took:
 *
 *   time = batch + rows * row + (positions that the rows attend to) * position
 *
 * Small steps determine the first term (reading the weights), large ones the second, long contexts
 * the third. */
struct step_work {
    uint32_t rows;
    uint64_t positions; /* sum of the rows' positions */
};

struct step_cost {
    double batch_ns, row_ns, position_ns;
    uint32_t n_seen;
    uint32_t max_rows; /* for the next step: twice what went well so far */
};

/* Before anything is known, `row_ns` is assumed: a careful guess, corrected by the first step. */
void step_cost_init(struct step_cost *c, double row_ns);
double step_cost_predict(const struct step_cost *c, const struct step_work *work);
void step_cost_learn(struct step_cost *c, const struct step_work *work, double took_ns);
/* Number of rows from `position` on that fit into `time_ns`, with the cost of the batch already
 * paid. */
uint32_t step_cost_rows(const struct step_cost *c, uint32_t position, double time_ns);

#endif
