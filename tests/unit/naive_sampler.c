/* See naive_sampler.h. */
#include "naive_sampler.h"

#include <math.h>
#include <stdlib.h>

int naive_order(const void *a, const void *b)
{
    const struct naive *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static bool has_bit(const uint64_t *bits, uint32_t n, uint32_t i)
{
    return i < n && bits[i / 64] >> i % 64 & 1;
}

/* The penalised logits as documented, in the precision of the sampler. */
static float naive_penalty(float logit, int32_t id, const struct sampler_input *in)
{
    const struct sampling *o = in->sampling;
    uint32_t count = 0;
    for (uint32_t k = 0; k < in->n_generated; k++)
        if (o->repeat_last_n == 0 || k + o->repeat_last_n >= in->n_generated)
            count += in->generated[k] == id;
    if (count == 0)
        return logit;
    logit = logit > 0 ? logit / o->repetition_penalty : logit * o->repetition_penalty;
    return logit - (float)count * o->frequency_penalty - o->presence_penalty;
}

static bool is_text(uint64_t token)
{
    return token >> 56 == 0;
}

/* The length of the repetition that `id` at position `at` of the context continued. */
static uint32_t repetition_at(const struct sampler_input *in, uint32_t first, uint32_t at)
{
    uint32_t n = in->n_context, len = 0;
    while (at > first + len &&
           (uint32_t)in->context[at - 1 - len] == (uint32_t)in->context[n - 1 - len] &&
           is_text(in->context[at - 1 - len]) && is_text(in->context[n - 1 - len]) &&
           !(in->dry_breakers &&
             has_bit(in->dry_breakers, in->n_tokens, (uint32_t)in->context[n - 1 - len])))
        len++;
    return len;
}

static float naive_dry(int32_t id, const struct sampler_input *in)
{
    const struct sampling *o = in->sampling;
    uint32_t n = in->n_context, longest = 0;
    uint32_t first = o->dry_last_n && o->dry_last_n < n ? n - o->dry_last_n : 0;
    if (!(o->dry_multiplier > 0) || o->dry_base < 1 ||
        (in->dry_breakers && has_bit(in->dry_breakers, in->n_tokens, (uint32_t)id)))
        return 0;
    for (uint32_t at = first; at < n; at++) {
        uint32_t len = is_text(in->context[at]) && (int32_t)in->context[at] == id
                           ? repetition_at(in, first, at)
                           : 0;
        longest = len > longest ? len : longest;
    }
    if (longest == 0 || longest < o->dry_allowed_length)
        return 0;
    double penalty = o->dry_multiplier * pow(o->dry_base, longest - o->dry_allowed_length);
    return (float)fmin(penalty, 1e30);
}

static float naive_logit(float logit, int32_t id, const struct sampler_input *in)
{
    for (uint32_t i = 0; i < in->n_biases; i++)
        if (in->biases[i].token == id)
            logit = in->biases[i].bias <= -100 ? -INFINITY : logit + in->biases[i].bias;
    logit = naive_penalty(logit, id, in) - naive_dry(id, in);
    for (uint32_t i = 0; i < in->n_banned; i++)
        if (in->banned[i] == id)
            return -INFINITY;
    return in->mask && !has_bit(in->mask, in->n_tokens, (uint32_t)id) ? -INFINITY : logit;
}

static uint32_t cut_sigma(struct naive *sorted, uint32_t n, float n_sigma)
{
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += sorted[i].logit / n;
    for (uint32_t i = 0; i < n; i++)
        variance += (sorted[i].logit - mean) * (sorted[i].logit - mean) / n;
    uint32_t kept = 1;
    while (kept < n && sorted[kept].logit >= sorted[0].logit - n_sigma * sqrt(variance))
        kept++;
    return kept;
}

struct typical {
    double distance;
    struct naive token;
};

static int typical_order(const void *a, const void *b)
{
    const struct typical *x = a, *y = b;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return x->token.id < y->token.id ? -1 : 1;
}

static uint32_t cut_typical(struct naive *sorted, uint32_t n, double typical_p)
{
    struct typical *all = calloc(n, sizeof *all);
    double total = 0, entropy = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        total += sorted[i].p;
    for (uint32_t i = 0; i < n; i++)
        if (sorted[i].p > 0)
            entropy -= sorted[i].p / total * log(sorted[i].p / total);
    for (uint32_t i = 0; i < n; i++)
        all[i] = (struct typical){fabs(-log(sorted[i].p / total) - entropy), sorted[i]};
    qsort(all, n, sizeof *all, typical_order);
    uint32_t kept = 0;
    while (kept < n && sum < typical_p) {
        sum += all[kept].token.p / total;
        sorted[kept] = all[kept].token;
        kept++;
    }
    free(all);
    qsort(sorted, kept, sizeof *sorted, naive_order);
    return kept;
}

static uint32_t cut_xtc(struct naive *sorted, uint32_t n, double threshold)
{
    double total = 0;
    uint32_t n_likely = 0;
    for (uint32_t i = 0; i < n; i++)
        total += sorted[i].p;
    while (n_likely < n && sorted[n_likely].p / total >= threshold)
        n_likely++;
    uint32_t n_gone = n_likely > 1 ? n_likely - 1 : 0;
    for (uint32_t i = n_gone; i < n; i++)
        sorted[i - n_gone] = sorted[i];
    return n - n_gone;
}

uint32_t naive_distribution(const float *logits, uint32_t n_vocab, const struct sampler_input *in,
                            struct naive *sorted)
{
    const struct sampling *o = in->sampling;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        float logit = naive_logit(logits[i], (int32_t)i, in);
        if (isfinite(logit))
            sorted[n++] = (struct naive){(int32_t)i, logit, 0};
    }
    qsort(sorted, n, sizeof *sorted, naive_order);
    if (n == 0 || !(o->temperature > 0))
        return n ? 1 : 0;
    if (o->top_n_sigma > 0)
        n = cut_sigma(sorted, n, o->top_n_sigma);
    if (o->top_k > 0 && (uint32_t)o->top_k < n)
        n = (uint32_t)o->top_k;
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sorted[i].p = exp((sorted[i].logit - sorted[0].logit) / o->temperature);
    if (o->typical_p > 0 && o->typical_p < 1)
        n = cut_typical(sorted, n, o->typical_p);
    for (uint32_t i = 0; i < n; i++)
        total += sorted[i].p;
    for (uint32_t i = 0; i < n && o->top_p < 1; i++) {
        sum += sorted[i].p / total;
        if (sum >= o->top_p)
            n = i + 1;
    }
    for (uint32_t i = 1; i < n && o->min_p > 0; i++)
        if (sorted[i].p < o->min_p * sorted[0].p)
            n = i;
    if (o->xtc_probability >= 1 && o->xtc_threshold <= 0.5)
        n = cut_xtc(sorted, n, o->xtc_threshold);
    total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += sorted[i].p;
    for (uint32_t i = 0; i < n; i++)
        sorted[i].p /= total;
    return n;
}
