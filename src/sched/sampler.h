#ifndef RADISH_SCHED_SAMPLER_H
#define RADISH_SCHED_SAMPLER_H

#include <stdint.h>

#include "base/error.h"

/* From a row of logits to a token. Random numbers are a function of (seed, choice, index of the
 * token), so that a preempted or repeated sequence draws the same ones. Equal logits go to the
 * smaller id.
 *
 * Order: penalties (repetition, then frequency and presence), temperature, top-k, top-p, min-p.
 * Temperature comes before the cuts, as vLLM and transformers do it (llama.cpp's default puts it
 * last): top_p is a share of what would be drawn, after temperature, from the top_k. top_p keeps
 * the fewest most likely tokens that reach it; min_p keeps those at least that share of the most
 * likely one. A cut never removes the most likely token. */
struct sampling {
    float temperature;        /* 0: greedy */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    int32_t top_k;            /* 0: off */
    float presence_penalty;   /* 0: off; over the tokens generated so far */
    float frequency_penalty;  /* 0: off */
    float repetition_penalty; /* 1: off */
    uint64_t seed;
    uint32_t choice;
};

#define SAMPLING_DEFAULT                                                                           \
    {                                                                                              \
        .temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f                             \
    }

/* Scratch for one thread, sized at start so that sampling allocates nothing. */
struct sampler;

int sampler_open(struct sampler **out, uint32_t n_vocab, struct error *err);
void sampler_close(struct sampler *s);

/* `generated` are the tokens sampled so far ([n_generated]), which penalties and the random
 * number's index are made from. Does not change `logits` ([n_vocab]). A logit of -inf (masked) or
 * NaN is never chosen; -1 when there is nothing else. */
int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampling *sampling,
                     const int32_t *generated, uint32_t n_generated);

#endif
