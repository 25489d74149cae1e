#ifndef RADISH_TEST_NAIVE_DECODER_H
#define RADISH_TEST_NAIVE_DECODER_H

#include "model/model.h"

/* The decoder as defined in model/model.h, in double precision, one token after the other and with
 * nothing clever: engines are compared with it. */
enum { NAIVE_MAX_TOKENS = 300, NAIVE_MAX_WIDTH = 1024, NAIVE_MAX_LAYERS = 8 };

/* The logits of the last of n tokens. */
void naive_logits(const struct model *m, const int32_t *tokens, uint32_t n, double *logits);

#endif
