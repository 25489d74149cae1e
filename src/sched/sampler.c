/* From logits to a token; see sampler.h for the order of the steps and sampler_parts.h for where
 * each one is. Owned by the scheduler's thread. Every logit is read once or twice, in SIMD passes
 * (sampler_scan.h): the best of each block of 256 and, if needed, the sum of its weights. The draw
 * goes in order of id, so the result is the same on every path. */
#include "sched/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "sched/sampler_parts.h"

int sampler_open(struct sampler **out, uint32_t n_vocab, uint32_t max_context, struct error *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->scan = sampler_scan_select();
        s->n_vocab = n_vocab;
        s->n_blocks = (n_vocab + SCAN_BLOCK - 1) / SCAN_BLOCK;
        s->max_context = max_context;
        s->logits = malloc(s->n_blocks * (size_t)SCAN_BLOCK * sizeof *s->logits);
        s->counts = calloc(n_vocab, sizeof *s->counts);
        s->repeats = malloc((max_context + (size_t)1) * sizeof *s->repeats);
        s->block_best = malloc(s->n_blocks * sizeof *s->block_best);
        s->block_weight = malloc(s->n_blocks * sizeof *s->block_weight);
        s->spreads = malloc(s->n_blocks * sizeof *s->spreads);
        s->ids = malloc(n_vocab * sizeof *s->ids);
        s->near = malloc(n_vocab * sizeof *s->near);
        s->weights = malloc(n_vocab * sizeof *s->weights);
        s->candidates = malloc(n_vocab * sizeof *s->candidates);
        s->heap = malloc(n_vocab * sizeof *s->heap);
    }
    if (!s || !s->logits || !s->counts || !s->repeats || !s->block_best || !s->block_weight ||
        !s->spreads || !s->ids || !s->near || !s->weights || !s->candidates || !s->heap) {
        sampler_close(s);
        return error_set(err, ERROR_MEMORY, "no memory to sample from %u tokens", n_vocab);
    }
    *out = s;
    return 0;
}

void sampler_close(struct sampler *s)
{
    if (!s)
        return;
    free(s->logits);
    free(s->counts);
    free(s->repeats);
    free(s->block_best);
    free(s->block_weight);
    free(s->spreads);
    free(s->ids);
    free(s->near);
    free(s->weights);
    free(s->candidates);
    free(s->heap);
    free(s);
}

float sampler_best_block(const struct sampler *s)
{
    float best = -INFINITY;
    for (uint32_t b = 0; b < s->n_blocks; b++)
        best = s->block_best[b] > best ? s->block_best[b] : best;
    return best;
}

float sampler_find_best(struct sampler *s, const float *logits)
{
    s->scan->best(logits, s->n_vocab, s->block_best);
    return sampler_best_block(s);
}

double sampler_weigh_all(struct sampler *s, const struct view *v)
{
    s->scan->sum(v->logits, s->n_vocab, v->best, v->inverse, s->block_weight);
    double total = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++)
        total += s->block_weight[b];
    return total;
}

/* The smallest id with that logit; there must be one. */
static int32_t find_id(const struct sampler *s, const float *logits, float best)
{
    uint32_t b = 0;
    while (s->block_best[b] != best)
        b++;
    uint32_t i = b * SCAN_BLOCK;
    while (logits[i] != best)
        i++;
    return (int32_t)i;
}

static float weight_of(const struct view *v, uint32_t id)
{
    return exp_negative((v->logits[id] - v->best) * v->inverse);
}

enum random_stream { STREAM_DRAW, STREAM_XTC };

/* A number in [0, 1) that depends only on the arguments. */
static double uniform(const struct sampling *o, uint32_t index, enum random_stream stream)
{
    uint64_t h = hash_pair(hash_pair(o->seed, o->choice), index);
    if (stream != STREAM_DRAW)
        h = hash_pair(h, stream);
    return (double)(h >> 11) * 0x1p-53;
}

static int32_t draw(const struct candidate *candidates, uint32_t n, double u)
{
    double left = u * sampler_total_weight(candidates, n);
    for (uint32_t i = 0; i < n; i++) {
        left -= candidates[i].weight;
        if (left < 0)
            return candidates[i].id;
    }
    return candidates[n - 1].id; /* rounding error */
}

/* The same over all weights, a block at a time. */
static int32_t draw_all(const struct sampler *s, const struct view *v, double left)
{
    int32_t last = -1;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        if (left >= s->block_weight[b] || s->block_weight[b] <= 0) {
            left -= s->block_weight[b];
            continue;
        }
        for (uint32_t i = b * SCAN_BLOCK; i < sampler_block_end(s, b); i++) {
            float weight = weight_of(v, i);
            left -= weight;
            if (weight > 0)
                last = (int32_t)i;
            if (left < 0 && weight > 0)
                return last;
        }
    }
    return last >= 0 ? last : find_id(s, v->logits, v->best); /* rounding error */
}

/* Recomputes the weights of the remaining candidates with another temperature. The cuts may have
 * dropped the best logit, so weights are relative to the best remaining one. */
static void weigh_again(struct sampler *s, uint32_t n, float inverse)
{
    float best = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        best = fmaxf(best, s->candidates[i].key);
    for (uint32_t i = 0; i < n; i++)
        s->candidates[i].weight = exp_negative((s->candidates[i].key - best) * inverse);
}

/* Without a draw, the token has all of the probability. */
static int32_t take_only(struct sampler *s, int32_t token)
{
    s->candidates[0] = (struct candidate){.weight = 1, .id = token};
    s->n_drawn_from = 1;
    return token;
}

/* Whether XTC applies to this token. */
static bool has_xtc(const struct sampling *o, uint32_t index)
{
    return o->xtc_probability > 0 && o->xtc_threshold <= 0.5f &&
           uniform(o, index, STREAM_XTC) < o->xtc_probability;
}

int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampler_input *in)
{
    const struct sampling *o = in->sampling;
    float best;
    logits = sampler_edit(s, logits, in, &best);
    if (best == -INFINITY)
        return sampler_allows_any(s, in) ? SAMPLER_NO_NUMBER : SAMPLER_NO_TOKEN;
    if (!(o->temperature > 0) || o->top_k == 1 || best == INFINITY)
        return take_only(s, find_id(s, logits, best));
    float temperature = o->temperature > 1e-6f ? o->temperature : 1e-6f;
    struct view view = {logits, best, temperature, 1.0f / temperature};
    double u = uniform(o, in->n_generated, STREAM_DRAW);
    bool cuts_xtc = has_xtc(o, in->n_generated);
    s->drawn_from = view;
    s->n_drawn_from = 0;
    if (!sampler_has_cuts(s, o, cuts_xtc))
        return draw_all(s, &view, u * sampler_weigh_all(s, &view));
    const struct view own = {logits, best, 1, 1};
    uint32_t n = sampler_cut(s, o->temperature_last ? &own : &view, o, cuts_xtc);
    if (o->infill && in->bytes && in->end >= 0)
        n = sampler_infill(s, in, n);
    if (o->temperature_last)
        weigh_again(s, n, view.inverse);
    s->n_drawn_from = n;
    return draw(s->candidates, n, u);
}
