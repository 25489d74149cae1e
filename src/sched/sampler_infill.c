/* The last cut of fill-in-the-middle, called "infill" in llama.cpp: an editor wants a short text
 * that is right, so an answer continues only while the model is sure how. Owned by the scheduler's
 * thread.
 *
 * If one token is a prefix of another, both agree on what comes next, so their probabilities are
 * added here; the draw itself uses the original probabilities. */
#include "sched/sampler_parts.h"

#include <math.h>
#include <string.h>

#define SURE 0.2f /* the least probability of a token that continues */

struct shares {
    float p[SAMPLER_INFILL_MOST]; /* 0: merged into another */
    bool is_end[SAMPLER_INFILL_MOST];
    uint32_t n;
};

static bool is_start_of(const struct sampler_input *in, int32_t a, int32_t b)
{
    uint32_t len = in->lengths[a];
    return len > 0 && len <= in->lengths[b] && memcmp(in->bytes[a], in->bytes[b], len) == 0;
}

/* If one of two tokens is a prefix of the other, adds the smaller probability to the larger. */
static void join(struct shares *shares, const struct candidate *c, const struct sampler_input *in)
{
    for (uint32_t a = 0; a < shares->n; a++)
        for (uint32_t b = 0; b < shares->n && shares->p[a] > 0; b++) {
            if (a == b || !(shares->p[b] > 0) || !is_start_of(in, c[a].id, c[b].id))
                continue;
            uint32_t to = shares->p[b] > shares->p[a] ? b : a, from = a + b - to;
            shares->p[to] += shares->p[from];
            shares->p[from] = 0;
        }
}

/* Keeps end tokens, and tokens with a probability of at least `least`; returns how many of the
 * latter there are. Rescales the kept probabilities to a sum of 1. */
static uint32_t keep(struct shares *shares, struct candidate *c, float least)
{
    uint32_t kept = 0, n_going_on = 0;
    float sum = 0;
    for (uint32_t i = 0; i < shares->n; i++) {
        if (!shares->is_end[i] && !(shares->p[i] >= least))
            continue;
        n_going_on += !shares->is_end[i];
        sum += shares->p[i];
        c[kept] = c[i];
        shares->p[kept] = shares->p[i];
        shares->is_end[kept++] = shares->is_end[i];
    }
    shares->n = kept;
    for (uint32_t i = 0; i < kept && sum > 0; i++)
        shares->p[i] /= sum;
    return n_going_on;
}

uint32_t sampler_infill(struct sampler *s, const struct sampler_input *in, uint32_t n)
{
    struct candidate *c = s->candidates;
    struct shares shares = {.n = n};
    const double total = sampler_total_weight(c, n);
    float ends = 0;
    for (uint32_t i = 0; i < n; i++) {
        if ((uint32_t)c[i].id >= in->n_tokens)
            return n; /* a padded vocabulary: this token has no text */
        shares.p[i] = (float)(c[i].weight / total);
        shares.is_end[i] = in->is_end[c[i].id];
        ends += shares.is_end[i] ? shares.p[i] : 0;
    }
    if (3 * ends * (float)n > 1 - ends) {
        keep(&shares, c, INFINITY);
        return shares.n;
    }
    join(&shares, c, in);
    uint32_t n_going_on = keep(&shares, c, SURE);
    if (n_going_on == 0) {
        c[0] = (struct candidate){.weight = 1, .id = in->end};
        return 1;
    }
    keep(&shares, c, 1.0f / (float)(n_going_on + 1));
    return shares.n;
}
