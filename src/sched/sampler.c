/* From logits to a token; see sampler.h for the order of things. Owned by the scheduler's thread.
 * Nothing here sorts a vocabulary. The logits are seen in blocks of 256: with top_k, the k-th best
 * block's best bounds what must be looked at; with top_p, what is too small to matter even all
 * together is left out. What remains is counted in buckets of likeliness, and only the bucket
 * where a cut falls is put in order. The draw goes by id, so that it is the same on every way.
 *
 *   buckets   [0: likeliest] [1] [2] ... [b] ...      all of 0 .. b-1 stay, the best of b stay
 */
#include "sched/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
    N_BUCKETS = 2048,
    BUCKETS_PER_E = 16, /* buckets for a factor of e in likeliness */
    BLOCK = 256,
    LANES = 16,
};

struct candidate {
    float logit;  /* after penalties */
    float weight; /* exp((logit - best) / temperature), in 0..1 */
    int32_t id;
};

struct bucket {
    double weight;
    uint32_t count;
};

struct sampler {
    uint32_t n_vocab, n_blocks;
    float *logits;                /* [n_vocab] a copy with penalties */
    uint32_t *counts;             /* [n_vocab] how often each was generated; zero between calls */
    float *weights;               /* [n_vocab] */
    float *block_best;            /* [n_blocks] the largest logit of each */
    double *block_weight;         /* [n_blocks] the sum of each */
    struct candidate *candidates; /* [n_vocab] in order of id */
    struct candidate *heap;       /* [n_vocab] what is being put in order */
    struct bucket buckets[N_BUCKETS];
};

int sampler_open(struct sampler **out, uint32_t n_vocab, struct error *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->n_vocab = n_vocab;
        s->n_blocks = (n_vocab + BLOCK - 1) / BLOCK;
        s->logits = malloc(n_vocab * sizeof *s->logits);
        s->counts = calloc(n_vocab, sizeof *s->counts);
        s->weights = malloc(n_vocab * sizeof *s->weights);
        s->block_best = malloc(s->n_blocks * sizeof *s->block_best);
        s->block_weight = malloc(s->n_blocks * sizeof *s->block_weight);
        s->candidates = malloc(n_vocab * sizeof *s->candidates);
        s->heap = malloc(n_vocab * sizeof *s->heap);
    }
    if (!s || !s->logits || !s->counts || !s->weights || !s->block_best || !s->block_weight ||
        !s->candidates || !s->heap) {
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
    free(s->weights);
    free(s->block_best);
    free(s->block_weight);
    free(s->candidates);
    free(s->heap);
    free(s);
}

static uint32_t block_end(const struct sampler *s, uint32_t block)
{
    uint32_t end = (block + 1) * BLOCK;
    return end < s->n_vocab ? end : s->n_vocab;
}

/* The largest of logits[n]; NaN loses every comparison. In lanes, so that it becomes SIMD. */
static float logits_best(const float *logits, uint32_t n)
{
    float lanes[LANES], best = -INFINITY;
    for (uint32_t k = 0; k < LANES; k++)
        lanes[k] = -INFINITY;
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lanes[k] = logits[i + k] > lanes[k] ? logits[i + k] : lanes[k];
    for (; i < n; i++)
        best = logits[i] > best ? logits[i] : best;
    for (uint32_t k = 0; k < LANES; k++)
        best = lanes[k] > best ? lanes[k] : best;
    return best;
}

static float find_best(struct sampler *s, const float *logits)
{
    float best = -INFINITY;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        s->block_best[b] = logits_best(logits + b * BLOCK, block_end(s, b) - b * BLOCK);
        best = s->block_best[b] > best ? s->block_best[b] : best;
    }
    return best;
}

/* The smallest id with that logit, which there is. */
static int32_t find_id(const struct sampler *s, const float *logits, float best)
{
    uint32_t b = 0;
    while (s->block_best[b] != best)
        b++;
    uint32_t i = b * BLOCK;
    while (logits[i] != best)
        i++;
    return (int32_t)i;
}

static bool has_penalties(const struct sampling *o)
{
    return o->presence_penalty != 0 || o->frequency_penalty != 0 ||
           (o->repetition_penalty != 1 && o->repetition_penalty > 0);
}

static float penalise(float logit, uint32_t count, const struct sampling *o)
{
    if (o->repetition_penalty > 0)
        logit = logit > 0 ? logit / o->repetition_penalty : logit * o->repetition_penalty;
    return logit - (float)count * o->frequency_penalty - o->presence_penalty;
}

/* Copies the logits and lowers those of tokens that were generated before, each once. */
static const float *apply_penalties(struct sampler *s, const float *logits,
                                    const struct sampling *o, const int32_t *generated,
                                    uint32_t n_generated)
{
    memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    for (uint32_t i = 0; i < n_generated; i++)
        s->counts[generated[i]]++;
    for (uint32_t i = 0; i < n_generated; i++) {
        int32_t id = generated[i];
        if (s->counts[id] == 0)
            continue;
        s->logits[id] = penalise(s->logits[id], s->counts[id], o);
        s->counts[id] = 0;
    }
    return s->logits;
}

/* exp(x) for x <= 0 within 2e-7 of itself; 0 below -87 and for NaN. The same bits on every machine,
 * and without branches, so that the loop around it becomes SIMD: what is computed below -87 is
 * rubbish, and masked. x = k ln 2 + r, |r| <= ln 2 / 2. */
static inline float exp_negative(float x)
{
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer */
    float shifted = x * 1.44269504f + rounder;
    float k = shifted - rounder;
    float r = (x - k * 0.693359375f) - k * -2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits, mask = -(uint32_t)(x > -87.0f);
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23; /* rounder's own bits above the integer are shifted out */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    p *= scale;
    memcpy(&bits, &p, sizeof bits);
    bits &= mask;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static bool is_better(const struct candidate *a, const struct candidate *b)
{
    return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static void heap_sink(struct candidate *heap, uint32_t n, uint32_t at)
{
    struct candidate moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_better(&heap[child + 1], &heap[child]))
            child++;
        if (!is_better(&heap[child], &moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* The weights of all tokens and their sum. */
static double weigh_all(struct sampler *s, const float *logits, float best, float temperature)
{
    const float inverse = 1.0f / temperature;
    double total = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        uint32_t start = b * BLOCK, end = block_end(s, b);
        for (uint32_t i = start; i < end; i++)
            s->weights[i] = exp_negative((logits[i] - best) * inverse);
        float lanes[LANES] = {0}, rest = 0;
        uint32_t i = start;
        for (; i + LANES <= end; i += LANES)
            for (uint32_t k = 0; k < LANES; k++)
                lanes[k] += s->weights[i + k];
        for (; i < end; i++)
            rest += s->weights[i];
        for (uint32_t k = 0; k < LANES; k++)
            rest += lanes[k];
        s->block_weight[b] = rest;
        total += rest;
    }
    return total;
}

/* The candidates of at least that weight, in order of id. Zero (masked, or too small) is none. */
static uint32_t gather_heavy(struct sampler *s, const float *logits, float least)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        s->candidates[n] = (struct candidate){logits[i], s->weights[i], (int32_t)i};
        n += (s->weights[i] >= least) & (s->weights[i] > 0); /* no branch to mispredict */
    }
    return n;
}

/* The candidates among which the best `k` are, in order of id. Each of the k best blocks has a
 * logit as large as the k-th best block's best, so the best k are all at least that. */
static uint32_t gather_best(struct sampler *s, const float *logits, float best, float temperature,
                            uint32_t k)
{
    const float inverse = 1.0f / temperature;
    uint32_t n_heap = s->n_blocks, n = 0;
    for (uint32_t b = 0; b < n_heap; b++)
        s->heap[b] = (struct candidate){s->block_best[b], 0, (int32_t)b};
    for (uint32_t i = n_heap / 2; i-- > 0;)
        heap_sink(s->heap, n_heap, i);
    for (uint32_t i = 1; i < k; i++) {
        s->heap[0] = s->heap[--n_heap];
        heap_sink(s->heap, n_heap, 0);
    }
    float least = s->heap[0].logit;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        if (s->block_best[b] < least)
            continue;
        for (uint32_t i = b * BLOCK; i < block_end(s, b); i++) {
            if (!(logits[i] >= least))
                continue;
            float weight = exp_negative((logits[i] - best) * inverse);
            s->candidates[n] = (struct candidate){logits[i], weight, (int32_t)i};
            n += weight > 0;
        }
    }
    return n;
}

static uint32_t bucket_of(const struct candidate *c, float best, float scale)
{
    float x = (best - c->logit) * scale;
    return x < N_BUCKETS - 1 ? (uint32_t)x : N_BUCKETS - 1;
}

/* What a cut keeps: the fewest of the best tokens that reach `count` or, together, `weight`. */
struct cut {
    uint32_t count;
    double weight;
};

static bool cut_reached(const struct cut *cut, uint32_t count, double weight)
{
    return count >= cut->count || weight >= cut->weight;
}

/* The last token that the cut keeps, of the `n` candidates: found in its bucket with a heap. */
static struct candidate find_last(struct sampler *s, uint32_t n, float best, float scale,
                                  const struct cut *cut)
{
    memset(s->buckets, 0, sizeof s->buckets);
    for (uint32_t i = 0; i < n; i++) {
        struct bucket *b = &s->buckets[bucket_of(&s->candidates[i], best, scale)];
        b->weight += s->candidates[i].weight;
        b->count++;
    }
    /* The bucket of the cut, and what the buckets before it hold. Rounding may leave the cut just
     * past the last one; then that is the one. */
    uint32_t at = 0, count = 0;
    double weight = 0;
    for (uint32_t next = 0; next < N_BUCKETS; next++) {
        if (s->buckets[next].count == 0)
            continue;
        count += next ? s->buckets[at].count : 0;
        weight += next ? s->buckets[at].weight : 0;
        at = next;
        if (cut_reached(cut, count + s->buckets[at].count, weight + s->buckets[at].weight))
            break;
    }
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++)
        if (bucket_of(&s->candidates[i], best, scale) == at)
            s->heap[m++] = s->candidates[i];
    for (uint32_t i = m / 2; i-- > 0;)
        heap_sink(s->heap, m, i);
    for (;;) {
        struct candidate top = s->heap[0];
        if (m == 1 || cut_reached(cut, ++count, weight += top.weight))
            return top;
        s->heap[0] = s->heap[--m];
        heap_sink(s->heap, m, 0);
    }
}

static uint32_t apply_cut(struct sampler *s, uint32_t n, float best, float scale,
                          const struct cut *cut)
{
    struct candidate last = find_last(s, n, best, scale, cut);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->candidates[kept] = s->candidates[i];
        kept += !is_better(&last, &s->candidates[i]);
    }
    return kept;
}

static double total_weight(const struct candidate *candidates, uint32_t n)
{
    double total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += candidates[i].weight;
    return total;
}

/* A number in [0, 1) that depends on nothing but these three. */
static double uniform(uint64_t seed, uint32_t choice, uint32_t index)
{
    uint64_t h = hash_pair(hash_pair(seed, choice), index);
    return (double)(h >> 11) * 0x1p-53;
}

static int32_t draw(const struct candidate *candidates, uint32_t n, double u)
{
    double left = u * total_weight(candidates, n);
    for (uint32_t i = 0; i < n; i++) {
        left -= candidates[i].weight;
        if (left < 0)
            return candidates[i].id;
    }
    return candidates[n - 1].id; /* rounding left a crumb */
}

/* The same over all weights, a block at a time. */
static int32_t draw_all(const struct sampler *s, double total, double u)
{
    double left = u * total;
    int32_t last = -1;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        if (s->block_weight[b] <= 0)
            continue;
        bool skip = left >= s->block_weight[b];
        for (uint32_t i = b * BLOCK; !skip && i < block_end(s, b); i++) {
            left -= s->weights[i];
            if (s->weights[i] > 0)
                last = (int32_t)i;
            if (left < 0)
                return last;
        }
        left -= skip ? s->block_weight[b] : 0;
    }
    return last;
}

static uint32_t apply_min_p(struct sampler *s, uint32_t n, float best, float min_p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s->candidates[i].weight >= min_p || s->candidates[i].logit == best)
            s->candidates[kept++] = s->candidates[i];
    return kept;
}

static int32_t pick_random(struct sampler *s, const float *logits, float best,
                           const struct sampling *o, double u)
{
    float temperature = o->temperature > 1e-6f ? o->temperature : 1e-6f;
    float scale = BUCKETS_PER_E / temperature;
    bool has_top_k = o->top_k > 0 && (uint32_t)o->top_k < s->n_vocab;
    uint32_t n;
    double total = 0;
    if (has_top_k && (uint32_t)o->top_k <= s->n_blocks / 2) {
        n = gather_best(s, logits, best, temperature, (uint32_t)o->top_k);
    } else {
        total = weigh_all(s, logits, best, temperature);
        if (!has_top_k && !(o->top_p < 1) && !(o->min_p > 0))
            return draw_all(s, total, u);
        /* Tokens below this are, all together, less than what top_p leaves out. */
        bool only_top_p = !has_top_k && o->top_p < 1;
        double least = only_top_p ? (1 - (double)o->top_p) * total / s->n_vocab : 0;
        n = gather_heavy(s, logits, (float)least * 0.5f);
    }
    if (has_top_k && (uint32_t)o->top_k < n) {
        struct cut cut = {(uint32_t)o->top_k, INFINITY};
        n = apply_cut(s, n, best, scale, &cut);
    }
    if (o->top_p < 1) {
        total = has_top_k ? total_weight(s->candidates, n) : total;
        struct cut cut = {UINT32_MAX, (double)o->top_p * total};
        n = apply_cut(s, n, best, scale, &cut);
    }
    if (o->min_p > 0)
        n = apply_min_p(s, n, best, o->min_p);
    return draw(s->candidates, n, u);
}

int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampling *o,
                     const int32_t *generated, uint32_t n_generated)
{
    if (has_penalties(o) && n_generated)
        logits = apply_penalties(s, logits, o, generated, n_generated);
    float best = find_best(s, logits);
    if (best == -INFINITY)
        return -1;
    if (!(o->temperature > 0) || o->top_k == 1 || best == INFINITY)
        return find_id(s, logits, best);
    return pick_random(s, logits, best, o, uniform(o->seed, o->choice, n_generated));
}
