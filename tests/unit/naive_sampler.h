#ifndef RADISH_TEST_NAIVE_SAMPLER_H
#define RADISH_TEST_NAIVE_SAMPLER_H

#include "sched/sampler.h"

/* The sampler as its header says it, in plain words: everything is sorted, in double precision. */
struct naive {
    int32_t id;
    double logit, p;
};

/* For qsort: the larger logit first, of equals the smaller id. */
int naive_order(const void *a, const void *b);
/* Fills `sorted` ([n]) with the tokens that may be drawn, best first, their p summing to 1; how
 * many there are. XTC cuts where its probability is 1, and else does not. */
uint32_t naive_distribution(const float *logits, uint32_t n, const struct sampler_input *in,
                            struct naive *sorted);

#endif
