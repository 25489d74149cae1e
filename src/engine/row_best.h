#ifndef RADISH_ENGINE_ROW_BEST_H
#define RADISH_ENGINE_ROW_BEST_H

#include "engine/engine.h"

/* Fills in out->best and out->log_sum from the row's logits, [n]. */
void row_best_pick(const float *logits, uint32_t n, const struct row_output *out);

#endif
