/* From logits to a token; see sampler.h for the order of things. Owned by the scheduler's thread.
 * Nothing here sorts a vocabulary: a cut (top-k, top-p) counts tokens in buckets of likeliness,
 * finds the bucket where the cut falls, and orders only that one. The draw walks the survivors in
 * order of id, so that it is the same whichever cuts were made on the way.
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
    uint32_t n_vocab;
    float *logits;                /* [n_vocab] a copy with penalties */
    uint32_t *counts;             /* [n_vocab] how often each was generated; zero between calls */
    struct candidate *candidates; /* [n_vocab] in order of id */
    struct candidate *boundary;   /* [n_vocab] a heap of the bucket where a cut falls */
    struct bucket buckets[N_BUCKETS];
};

int sampler_open(struct sampler **out, uint32_t n_vocab, struct error *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->n_vocab = n_vocab;
        s->logits = malloc(n_vocab * sizeof *s->logits);
        s->counts = calloc(n_vocab, sizeof *s->counts);
        s->candidates = malloc(n_vocab * sizeof *s->candidates);
        s->boundary = malloc(n_vocab * sizeof *s->boundary);
    }
    if (!s || !s->logits || !s->counts || !s->candidates || !s->boundary) {
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
    free(s->candidates);
    free(s->boundary);
    free(s);
}

/* The largest of logits[n]; NaN loses every comparison. In lanes, so that it becomes SIMD. */
static float logits_max(const float *logits, uint32_t n)
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

static int32_t logits_find(const float *logits, uint32_t n, float value)
{
    for (uint32_t i = 0; i < n; i++)
        if (logits[i] == value)
            return (int32_t)i;
    return -1;
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

/* exp(x) for x <= 0 within 2e-7 of itself, 0 below -87; the same bits on every machine, and
 * without branches, so that the loop around it becomes SIMD. x = k ln 2 + r, |r| <= ln 2 / 2. */
static inline float exp_negative(float x)
{
    const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer */
    float clamped = x > -87.0f ? x : -87.0f;
    float shifted = clamped * 1.44269504f + rounder;
    float k = shifted - rounder;
    float r = (clamped - k * 0.693359375f) - k * -2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23; /* rounder's own bits above the integer are shifted out */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x > -87.0f ? p * scale : 0.0f;
}

/* Every token that can be drawn at all, in order of id. */
static uint32_t gather(struct sampler *s, const float *logits, float best, float temperature)
{
    const float inverse = 1.0f / temperature;
    struct candidate *out = s->candidates;
    uint32_t n = 0;
    for (uint32_t start = 0; start < s->n_vocab; start += 256) {
        uint32_t end = start + 256 < s->n_vocab ? start + 256 : s->n_vocab;
        float block[256];
        for (uint32_t i = start; i < end; i++)
            block[i - start] = exp_negative((logits[i] - best) * inverse);
        for (uint32_t i = start; i < end; i++) {
            out[n] = (struct candidate){logits[i], block[i - start], (int32_t)i};
            n += block[i - start] > 0; /* false for NaN and for what underflows */
        }
    }
    return n;
}

static uint32_t bucket_of(const struct candidate *c, float best, float scale)
{
    float x = (best - c->logit) * scale;
    return x < N_BUCKETS - 1 ? (uint32_t)x : N_BUCKETS - 1;
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
            s->boundary[m++] = s->candidates[i];
    for (uint32_t i = m / 2; i-- > 0;)
        heap_sink(s->boundary, m, i);
    for (;;) {
        struct candidate top = s->boundary[0];
        if (m == 1 || cut_reached(cut, ++count, weight += top.weight))
            return top;
        s->boundary[0] = s->boundary[--m];
        heap_sink(s->boundary, m, 0);
    }
}

static uint32_t apply_cut(struct sampler *s, uint32_t n, float best, float scale,
                          const struct cut *cut)
{
    struct candidate last = find_last(s, n, best, scale, cut);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!is_better(&last, &s->candidates[i]))
            s->candidates[kept++] = s->candidates[i];
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

int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampling *o,
                     const int32_t *generated, uint32_t n_generated)
{
    if (has_penalties(o) && n_generated)
        logits = apply_penalties(s, logits, o, generated, n_generated);
    float best = logits_max(logits, s->n_vocab);
    if (best == -INFINITY)
        return -1;
    if (!(o->temperature > 0) || o->top_k == 1 || best == INFINITY)
        return logits_find(logits, s->n_vocab, best);

    float temperature = o->temperature > 1e-6f ? o->temperature : 1e-6f;
    float scale = BUCKETS_PER_E / temperature;
    uint32_t n = gather(s, logits, best, temperature);
    if (o->top_k > 0 && (uint32_t)o->top_k < n) {
        struct cut cut = {(uint32_t)o->top_k, INFINITY};
        n = apply_cut(s, n, best, scale, &cut);
    }
    if (o->top_p < 1) {
        struct cut cut = {UINT32_MAX, (double)o->top_p * total_weight(s->candidates, n)};
        n = apply_cut(s, n, best, scale, &cut);
    }
    if (o->min_p > 0) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n; i++)
            if (s->candidates[i].weight >= o->min_p || s->candidates[i].logit == best)
                s->candidates[kept++] = s->candidates[i];
        n = kept;
    }
    return draw(s->candidates, n, uniform(o->seed, o->choice, n_generated));
}
