#ifndef RADISH_TEST_NAIVE_SAMPLER_H
#define RADISH_TEST_NAIVE_SAMPLER_H

#include "sched/sampler.h"

/* The sampler as its header describes it, in the simplest way: everything is sorted, in double
 * precision. */
struct naive {
    int32_t id;
    double logit, p;
};

/* For qsort: the larger logit first; of equal ones, the smaller id. */
int naive_order(const void *a, const void *b);
/* Fills `sorted` ([n]) with the tokens that may be drawn, best first, with probabilities that sum
 * to 1; returns how many. XTC cuts if its probability is 1, otherwise not. */
uint32_t naive_distribution(const float *logits, uint32_t n, const struct sampler_input *in,
                            struct naive *sorted);

#endif
