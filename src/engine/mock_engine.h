#ifndef RADISH_ENGINE_MOCK_ENGINE_H
#define RADISH_ENGINE_MOCK_ENGINE_H

#include "engine/engine.h"

/* An engine without weights. Its logits follow from the tokens alone: the KV of a page is a digest
 * of the tokens up to it, so that a wrong page table gives wrong logits. In each side group a row
 * reads exactly what it may see. */
struct mock_options {
    uint32_t n_vocab;
    uint32_t n_tokens;      /* that prompts may have, if more than n_vocab */
    uint32_t row_cost_us;   /* time that each row takes */
    uint32_t batch_cost_us; /* time that each batch takes */
    int32_t fail_token;     /* a batch with this token fails; -1: none */
    uint32_t fail_every;    /* every n-th batch fails once; 0: none */
    uint32_t nan_every;     /* every n-th row of logits is NaN; 0: none */
    int32_t end_token;      /* made likely now and then, so that answers end; -1: never */
    /* Group 0 is KV_FULL; of the others, kind and window are read. n_groups 0: group 0 alone. */
    uint32_t n_groups;
    struct kv_group groups[KV_MAX_GROUPS];
};

int mock_engine_open(struct engine **out, const struct mock_options *options,
                     const struct engine_limits *limits, struct error *err);

#endif
