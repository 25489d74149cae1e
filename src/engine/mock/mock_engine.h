#ifndef RADISH_ENGINE_MOCK_MOCK_ENGINE_H
#define RADISH_ENGINE_MOCK_MOCK_ENGINE_H

#include "engine/engine.h"

/* An engine without weights that does everything in engine.h, for tests and for trying the server.
 * What a row gives follows from the inputs of its sequence alone, through digests: a page holds
 * one, a slot holds one, and a row reads exactly those that its groups show it. So a wrong, stale
 * or reused page, slot, image or adapter gives wrong logits. tests/unit/mock_oracle.h computes the
 * right ones without pages.
 *
 * All options may be zero but n_vocab, fail_token and end_token. */
struct mock_options {
    uint32_t n_vocab;
    uint32_t n_tokens;   /* that prompts may have, if more than n_vocab */
    int32_t end_token;   /* made likely now and then, so that answers end; -1: never */
    uint32_t rope_axes;  /* 0: 1 */
    uint32_t max_region; /* and so on: as in engine_info */
    uint32_t max_rollback;
    uint32_t n_heads; /* 0 .. 2 */
    /* kind, window, grain, sees_regions, and page_bytes: a multiple of 8, or 0 for 8. n_groups 0:
     * group 0 alone. */
    uint32_t n_groups;
    struct kv_group groups[KV_MAX_GROUPS];
    bool no_full_layers; /* group 0 keeps nothing, as in a model whose layers are all in the others
                          */

    bool is_async;          /* a thread of its own computes */
    uint32_t row_cost_us;   /* time that each row takes */
    uint32_t batch_cost_us; /* time that each batch takes */
    uint32_t image_row_cost_us;
    uint32_t io_page_cost_us;
    uint32_t io_polls; /* how often io_poll says 0 before a ticket is done */

    int32_t fail_token;        /* a batch with this token fails; -1: none */
    uint32_t fail_every;       /* every n-th batch fails; 0: none */
    uint32_t fail_io_every;    /* every n-th page_io fails; 0: none */
    uint32_t fail_image_every; /* every n-th image cannot be encoded; 0: none */
    uint32_t nan_every;        /* every n-th row of logits is NaN; 0: none */
    uint32_t lose_every;       /* every n-th batch loses the device; 0: none */
};

int mock_engine_open(struct engine **out, const struct mock_options *options,
                     const struct engine_limits *limits, struct error *err);

/* What a row with that digest wants, as the engine would give it: for oracles. `last` is its token,
 * or -1 where it has another source. */
void mock_give_output(const struct mock_options *o, uint64_t digest, int32_t last, float *scratch,
                      const struct row_output *out); /* scratch: [n_vocab] */

#endif
