/* Log probabilities of a token and of the best ones; see sampler.h for the distribution. Owned by
 * the scheduler's thread. Blocks are summed in a fixed order, so the result is the same on every
 * machine and in every batch. The best tokens are searched only in blocks that can contain them: at
 * least `n_top` logits are not below the best of the n_top-th best block. */
#include "sched/sampler_parts.h"

#include <assert.h>
#include <math.h>

/* Inserts a token into the `n` best so far, at most `most`, by its logit or its weight; returns how
 * many there are now. Tokens come in order of id, so of two equal ones the smaller id stays first.
 */
static uint32_t add_best(struct token_logprob *best, uint32_t n, uint32_t most, int32_t token,
                         float value)
{
    if (n == most && !(value > best[n - 1].logprob))
        return n;
    uint32_t at = n < most ? n : most - 1;
    for (; at > 0 && value > best[at - 1].logprob; at--)
        best[at] = best[at - 1];
    best[at] = (struct token_logprob){token, value};
    return n < most ? n + 1 : n;
}

/* The best logit of the n_top-th best block, or -inf if there are fewer blocks. */
static float find_least(const struct sampler *s, uint32_t n_top)
{
    struct token_logprob blocks[REQUEST_MAX_TOP_LOGPROBS] = {{0, 0}};
    uint32_t n = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++)
        n = add_best(blocks, n, n_top, (int32_t)b, s->block_best[b]);
    return n == n_top ? blocks[n - 1].logprob : -INFINITY;
}

/* The tokens with the largest logits, and those logits. */
static uint32_t find_top(const struct sampler *s, const float *logits, uint32_t n_top,
                         struct token_logprob *top)
{
    float least = find_least(s, n_top);
    uint32_t n = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        if (s->block_best[b] < least || (n == n_top && s->block_best[b] <= top[n - 1].logprob))
            continue;
        for (uint32_t i = b * SCAN_BLOCK; i < sampler_block_end(s, b); i++)
            if (logits[i] >= least && logits[i] > -INFINITY)
                n = add_best(top, n, n_top, (int32_t)i, logits[i]);
    }
    return n;
}

/* A logit of +inf leaves no probability to others; -inf has none itself. */
static float log_share(const struct view *v, float logit, double log_total)
{
    if (v->best == INFINITY)
        return logit == INFINITY ? 0 : -INFINITY;
    return logit > -INFINITY ? (float)(((double)logit - v->best) * v->inverse - log_total)
                             : -INFINITY;
}

/* The shares of all tokens. The best of each block must be known. */
static void share_all(struct sampler *s, const struct view *v, int32_t token, uint32_t n_top,
                      struct token_logprobs *out)
{
    double log_total = v->best < INFINITY ? log(sampler_weigh_all(s, v)) : 0;
    float logit = (uint32_t)token < s->n_vocab ? v->logits[token] : -INFINITY;
    out->logprob = log_share(v, logit, log_total);
    out->n_top = n_top ? find_top(s, v->logits, n_top, out->top) : 0;
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = log_share(v, out->top[i].logprob, log_total);
}

bool sampler_logprobs(struct sampler *s, const float *logits, int32_t token, uint32_t n_top,
                      struct token_logprobs *out)
{
    assert(n_top <= REQUEST_MAX_TOP_LOGPROBS && token >= 0);
    struct view view = {logits, sampler_find_best(s, logits), 1, 1};
    *out = (struct token_logprobs){.logprob = NAN};
    if (view.best == -INFINITY)
        return false;
    share_all(s, &view, token, n_top, out);
    return true;
}

void sampler_drawn_logprobs(struct sampler *s, int32_t token, uint32_t n_top,
                            struct token_logprobs *out)
{
    assert(n_top <= REQUEST_MAX_TOP_LOGPROBS && token >= 0);
    *out = (struct token_logprobs){.logprob = -INFINITY};
    if (s->n_drawn_from == 0) {
        share_all(s, &s->drawn_from, token, n_top, out);
        return;
    }
    const double total = sampler_total_weight(s->candidates, s->n_drawn_from);
    for (uint32_t i = 0; i < s->n_drawn_from; i++) {
        const struct candidate *c = &s->candidates[i];
        if (c->id == token)
            out->logprob = (float)log((double)c->weight / total);
        if (n_top && c->weight > 0)
            out->n_top = add_best(out->top, out->n_top, n_top, c->id, c->weight);
    }
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)log((double)out->top[i].logprob / total);
}
