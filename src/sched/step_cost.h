#ifndef RADISH_SCHED_STEP_COST_H
#define RADISH_SCHED_STEP_COST_H

#include <stdint.h>

/* What a step will take, learnt from what steps took:
 *
 *   time = batch + rows * row + (positions that the rows attend to) * position
 *
 * Small steps teach the first term (reading the weights), large ones the second, long contexts
 * the third. */
struct step_work {
    uint32_t rows;
    uint64_t positions; /* sum over the rows of their position */
};

struct step_cost {
    double batch_ns, row_ns, position_ns;
    uint32_t n_seen;
    uint32_t max_rows; /* in the next step: twice what went well so far */
};

/* Before anything is known, `row_ns` is assumed: a careful guess, corrected by the first step. */
void step_cost_init(struct step_cost *c, double row_ns);
double step_cost_predict(const struct step_cost *c, const struct step_work *work);
void step_cost_learn(struct step_cost *c, const struct step_work *work, double took_ns);
/* How many rows that begin at `position` fit into `time_ns`, beside the cost of the batch. */
uint32_t step_cost_rows(const struct step_cost *c, uint32_t position, double time_ns);

#endif
