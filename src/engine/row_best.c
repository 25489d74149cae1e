/* The best logits of a row, and the sum that turns them into probabilities; see row_best.h. Any
 * thread. One loop in order of the tokens, so that engines agree on every bit. */
#include "engine/row_best.h"

#include <math.h>

void row_best_pick(const float *logits, uint32_t n, const struct row_output *out)
{
    struct row_best *best = out->best;
    uint32_t n_best = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (n_best == out->n_best && !(logits[i] > best[n_best - 1].logit))
            continue;
        uint32_t at = n_best < out->n_best ? n_best++ : n_best - 1;
        for (; at > 0 && logits[i] > best[at - 1].logit; at--)
            best[at] = best[at - 1];
        best[at] = (struct row_best){(int32_t)i, logits[i]};
    }
    double sum = 0, most = best[0].logit;
    for (uint32_t i = 0; i < n; i++)
        sum += logits[i] == most ? 1 : exp(logits[i] - most); /* even if both are infinite */
    /* cppcheck-suppress invalidFunctionArg ; the largest adds 1 */
    *out->log_sum = (float)(most + log(sum));
}
