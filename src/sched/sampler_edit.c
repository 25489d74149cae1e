/* The logits as one request may use them: with its biases, its penalties and its mask. Owned by the
 * scheduler's thread. The model's own logits are never written, because log probabilities are
 * computed from them later. A mask touches every logit, in one pass that also finds the best of
 * each block. All other edits touch only a few, and may come before or after the mask because -inf
 * stays -inf. */
#include "sched/sampler_parts.h"

#include <math.h>
#include <string.h>

static bool has_penalties(const struct sampler_input *in)
{
    const struct sampling *o = in->sampling;
    return in->n_generated > 0 && (o->presence_penalty != 0 || o->frequency_penalty != 0 ||
                                   (o->repetition_penalty != 1 && o->repetition_penalty > 0));
}

static float penalise(float logit, uint32_t count, const struct sampling *o)
{
    if (o->repetition_penalty > 0)
        logit = logit > 0 ? logit / o->repetition_penalty : logit * o->repetition_penalty;
    return logit - (float)count * o->frequency_penalty - o->presence_penalty;
}

/* Lowers the logits of tokens that were generated before, each of them once. */
static void apply_penalties(struct sampler *s, const struct sampler_input *in)
{
    uint32_t last_n = in->sampling->repeat_last_n, n = in->n_generated;
    const int32_t *generated = in->generated;
    if (last_n && last_n < n) {
        generated += n - last_n;
        n = last_n;
    }
    for (uint32_t i = 0; i < n; i++)
        s->counts[generated[i]]++;
    for (uint32_t i = 0; i < n; i++) {
        int32_t id = generated[i];
        if (s->counts[id] == 0)
            continue;
        s->logits[id] = penalise(s->logits[id], s->counts[id], in->sampling);
        s->counts[id] = 0;
    }
}

static void apply_biases(struct sampler *s, const struct sampler_input *in)
{
    for (uint32_t i = 0; i < in->n_biases; i++) {
        const struct logit_bias *b = &in->biases[i];
        if (b->token >= 0 && (uint32_t)b->token < s->n_vocab)
            s->logits[b->token] = b->bias <= BIAS_BAN ? -INFINITY : s->logits[b->token] + b->bias;
    }
}

static void apply_bans(struct sampler *s, const struct sampler_input *in)
{
    for (uint32_t i = 0; i < in->n_banned; i++)
        s->logits[in->banned[i]] = -INFINITY;
}

/* Copies the logits, setting masked-out ones to -inf, and finds the best of each block. */
static void copy_masked(struct sampler *s, const float *logits, const struct sampler_input *in)
{
    s->scan->mask(logits, s->n_vocab, in->mask, in->n_tokens, s->logits, s->block_best);
}

const float *sampler_edit(struct sampler *s, const float *logits, const struct sampler_input *in,
                          float *best)
{
    bool has_few = in->n_biases || in->n_banned || has_penalties(in) || sampler_has_dry(in);
    if (!in->mask && !has_few) {
        *best = sampler_find_best(s, logits);
        return logits;
    }
    if (in->mask)
        copy_masked(s, logits, in);
    else
        memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    if (!has_few) {
        *best = sampler_best_block(s);
        return s->logits;
    }
    apply_biases(s, in);
    if (has_penalties(in))
        apply_penalties(s, in);
    if (sampler_has_dry(in))
        sampler_apply_dry(s, in);
    apply_bans(s, in);
    *best = sampler_find_best(s, s->logits);
    return s->logits;
}

bool sampler_allows_any(struct sampler *s, const struct sampler_input *in)
{
    memset(s->weights, 0, s->n_vocab * sizeof *s->weights);
    if (in->mask)
        copy_masked(s, s->weights, in);
    else
        memcpy(s->logits, s->weights, s->n_vocab * sizeof *s->logits);
    apply_biases(s, in);
    apply_bans(s, in);
    return sampler_find_best(s, s->logits) > -INFINITY;
}
