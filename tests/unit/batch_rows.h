#ifndef RADISH_TEST_BATCH_ROWS_H
#define RADISH_TEST_BATCH_ROWS_H

#include "engine/engine.h"

/* Batches of plain tokens, for tests that look at logits. */

/* A mark for a row whose logits are wanted; forward_rows finds the buffer. */
extern const struct row_output wants_logits;
#define WANTS_LOGITS (&wants_logits)

/* A token's row, at its position in any rope; in group 1 it has the same page. */
struct batch_row token_row(int32_t token, uint32_t position, uint32_t page, uint32_t seq,
                           const struct row_output *output);

/* Computes a batch of these rows. The logits of those with WANTS_LOGITS go to logits[][n_vocab], in
 * order. */
int forward_rows(struct engine *e, const struct batch *batch, struct batch_row *rows, float *logits,
                 struct error *err);

#endif
