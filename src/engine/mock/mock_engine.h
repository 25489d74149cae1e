#ifndef RADISH_ENGINE_MOCK_MOCK_ENGINE_H
#define RADISH_ENGINE_MOCK_MOCK_ENGINE_H

#include "engine/engine.h"

/* An engine without weights that does everything in engine.h, for tests and for trying the server.
 * A row's results depend only on the inputs of its sequence, through digests: a page holds one, a
 * slot holds one, and a row reads exactly those that its groups let it see. So a wrong, stale or
 * reused page, slot, image or adapter gives wrong logits. tests/unit/mock_oracle.h computes the
 * right ones without pages.
 *
 * All options except n_vocab, fail_token and end_token may be zero. */
struct mock_options {
    uint32_t n_vocab;
    uint32_t n_tokens;   /* size of the prompt's vocabulary, if more than n_vocab */
    int32_t end_token;   /* made likely at times, so that answers end; -1: never */
    uint32_t rope_axes;  /* 0: 1 */
    uint32_t max_region; /* from here on as in engine_info */
    uint32_t max_rollback;
    uint32_t n_heads; /* 0 .. 2 */
    /* Used: kind, window, grain, sees_regions, and page_bytes (a multiple of 8; 0: 8). n_groups 0:
     * only group 0. */
    uint32_t n_groups;
    struct kv_group groups[KV_MAX_GROUPS];
    bool no_full_layers; /* group 0 keeps nothing: all layers are in other groups */

    bool is_async;          /* a separate thread computes */
    uint32_t row_cost_us;   /* time that each row takes */
    uint32_t batch_cost_us; /* time that each batch takes */
    uint32_t image_row_cost_us;
    uint32_t io_page_cost_us;
    uint32_t io_polls; /* number of times io_poll returns 0 before a ticket is done */

    int32_t fail_token;        /* a batch with this token fails; -1: none */
    uint32_t fail_every;       /* every n-th batch fails; 0: none */
    uint32_t fail_io_every;    /* every n-th page_io fails; 0: none */
    uint32_t fail_image_every; /* every n-th image cannot be encoded; 0: none */
    uint32_t nan_every;        /* every n-th row of logits is NaN; 0: none */
    uint32_t lose_every;       /* every n-th batch loses the device; 0: none */
};

int mock_engine_open(struct engine **out, const struct mock_options *options,
                     const struct engine_limits *limits, struct error *err);

/* Fills in the outputs of a row with that digest as the engine would, for oracles. `last` is the
 * row's token, or -1 if it has another source. */
void mock_give_output(const struct mock_options *o, uint64_t digest, int32_t last, float *scratch,
                      const struct row_output *out); /* scratch: [n_vocab] */

#endif
