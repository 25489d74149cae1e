#ifndef RADISH_TEST_SCHEDULE_H
#define RADISH_TEST_SCHEDULE_H

#include "engine/engine.h"

/* The law of the same bits, for any engine: sequences computed by random schedules (chunks of any
 * size, neighbours in the batch, scattered pages, prefixes of other sequences, pages of the window
 * group given back and reused) have the logits that each prompt has alone. */
enum { SCHEDULE_PROMPTS = 2 };

struct schedule_prompt {
    const int32_t *tokens; /* [n_tokens] */
    const float *plain;    /* [n_tokens][n_vocab], as schedule_plain computes them */
};

struct schedule_world {
    uint32_t n_tokens, n_vocab;
    uint32_t n_shared; /* first tokens that the prompts have in common */
    struct schedule_prompt prompts[SCHEDULE_PROMPTS];
    uint32_t n_pages; /* of each group; a sequence has pages for all its tokens */
    uint32_t max_seqs, max_rows, max_chunk;
};

struct schedule_counts {
    uint32_t compared, shared, released; /* rows; positions from others; pages given back */
};

/* All tokens, in pages 0, 1, ... of both groups, with every row's logits. In one batch if the
 * engine takes as many rows. */
void schedule_plain(struct engine *e, const int32_t *tokens, uint32_t n, float *logits);

/* One schedule. `releases`: pages that left the window are reused, so no sequence begins with
 * another's. Adds to `counts`. */
void schedule_run(const struct schedule_world *w, struct engine *e, uint64_t seed, bool releases,
                  struct schedule_counts *counts);

/* max|a - b| / max|b|; infinite if a value is not finite. */
double logits_error(const float *got, const float *want, uint32_t n);

#endif
