/* From logits to a token; see sampler.h for the order of things. Owned by the scheduler's thread.
 * Nothing here sorts a vocabulary. Every logit is seen once or twice, in passes that are SIMD
 * (sampler_scan.h): the best of each block of 256, and where it is needed the sum of its weights.
 * What a cut may keep is then gathered from the blocks that can have it: a little below the best at
 * first, and further down as long as the cut is not reached. Many candidates are counted in
 * buckets of likeliness, and only the bucket where the cut falls is put in order. The draw goes by
 * id, so that it is the same on every way.
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
#include "sched/sampler_scan.h"

enum {
    N_BUCKETS = 2048,
    BUCKETS_PER_E = 16, /* buckets for a factor of e in likeliness */
    BLOCK = SCAN_BLOCK,
    FEW = 64, /* candidates that are put in order without buckets */
};

#define FIRST_REACH  4.0f /* how far below the best is looked at first: a factor of e^4 */
#define REACH_GROWTH 1.5f
#define LAST_REACH   128.0f /* further down every weight is 0 */

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
    const struct sampler_scan *scan;
    uint32_t n_vocab, n_blocks;
    float *logits;                /* [n_vocab] a copy with penalties */
    uint32_t *counts;             /* [n_vocab] how often each was generated; zero between calls */
    float *block_best;            /* [n_blocks] the largest logit of each */
    float *block_weight;          /* [n_blocks] the sum of each */
    uint32_t *ids;                /* [n_vocab] what is being gathered, */
    float *near, *weights;        /* [n_vocab] its logits and weights */
    struct candidate *candidates; /* [n_vocab] in order of id */
    struct candidate *heap;       /* [n_vocab] what is being put in order */
    struct bucket buckets[N_BUCKETS];
};

int sampler_open(struct sampler **out, uint32_t n_vocab, struct error *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->scan = sampler_scan_select();
        s->n_vocab = n_vocab;
        s->n_blocks = (n_vocab + BLOCK - 1) / BLOCK;
        s->logits = malloc(n_vocab * sizeof *s->logits);
        s->counts = calloc(n_vocab, sizeof *s->counts);
        s->block_best = malloc(s->n_blocks * sizeof *s->block_best);
        s->block_weight = malloc(s->n_blocks * sizeof *s->block_weight);
        s->ids = malloc(n_vocab * sizeof *s->ids);
        s->near = malloc(n_vocab * sizeof *s->near);
        s->weights = malloc(n_vocab * sizeof *s->weights);
        s->candidates = malloc(n_vocab * sizeof *s->candidates);
        s->heap = malloc(n_vocab * sizeof *s->heap);
    }
    if (!s || !s->logits || !s->counts || !s->block_best || !s->block_weight || !s->ids ||
        !s->near || !s->weights || !s->candidates || !s->heap) {
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
    free(s->block_best);
    free(s->block_weight);
    free(s->ids);
    free(s->near);
    free(s->weights);
    free(s->candidates);
    free(s->heap);
    free(s);
}

static uint32_t block_end(const struct sampler *s, uint32_t block)
{
    uint32_t end = (block + 1) * BLOCK;
    return end < s->n_vocab ? end : s->n_vocab;
}

static float find_best(struct sampler *s, const float *logits)
{
    s->scan->best(logits, s->n_vocab, s->block_best);
    float best = -INFINITY;
    for (uint32_t b = 0; b < s->n_blocks; b++)
        best = s->block_best[b] > best ? s->block_best[b] : best;
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

/* A row of logits as one request sees it. */
struct view {
    const float *logits;        /* [n_vocab] */
    float best;                 /* of them */
    float temperature, inverse; /* and 1 / temperature */
};

static float weight_of(const struct view *v, uint32_t id)
{
    return exp_negative((v->logits[id] - v->best) * v->inverse);
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

/* The sum of all weights, and of each block. */
static double weigh_all(struct sampler *s, const struct view *v)
{
    s->scan->sum(v->logits, s->n_vocab, v->best, v->inverse, s->block_weight);
    double total = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++)
        total += s->block_weight[b];
    return total;
}

/* The candidates whose weight is e^-reach or more, in order of id, and perhaps a few that weigh
 * less. Zero (masked, or too small) is none. */
static uint32_t gather(struct sampler *s, const struct view *v, float reach)
{
    const float least = v->best - reach * v->temperature;
    uint32_t n_ids = 0, n = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        if (!(s->block_best[b] >= least))
            continue;
        for (uint32_t i = b * BLOCK; i < block_end(s, b); i++) {
            s->ids[n_ids] = i;
            s->near[n_ids] = v->logits[i];
            n_ids += v->logits[i] >= least; /* no branch to mispredict */
        }
    }
    s->scan->weigh(s->near, n_ids, v->best, v->inverse, s->weights);
    for (uint32_t k = 0; k < n_ids; k++) {
        s->candidates[n] = (struct candidate){s->near[k], s->weights[k], (int32_t)s->ids[k]};
        n += s->weights[k] > 0;
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

/* The best first, until the cut is reached: its last token. `count` and `weight` are what is better
 * than the `m` in the heap. */
static struct candidate pop_to_last(struct sampler *s, uint32_t m, uint32_t count, double weight,
                                    const struct cut *cut)
{
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

/* The last token that the cut keeps, of the `n` candidates: found in its bucket with a heap. */
static struct candidate find_last(struct sampler *s, const struct view *v, uint32_t n,
                                  const struct cut *cut)
{
    const float best = v->best, scale = BUCKETS_PER_E * v->inverse;
    if (n <= FEW) {
        memcpy(s->heap, s->candidates, n * sizeof *s->heap);
        return pop_to_last(s, n, 0, 0, cut);
    }
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
    return pop_to_last(s, m, count, weight, cut);
}

static uint32_t apply_cut(struct sampler *s, const struct view *v, uint32_t n,
                          const struct cut *cut)
{
    struct candidate last = find_last(s, v, n, cut);
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

/* The candidates that the cut keeps of all tokens, in order of id. */
static uint32_t gather_cut(struct sampler *s, const struct view *v, const struct cut *cut)
{
    float reach = FIRST_REACH;
    uint32_t n = gather(s, v, reach);
    while (reach < LAST_REACH && !cut_reached(cut, n, total_weight(s->candidates, n)))
        n = gather(s, v, reach *= REACH_GROWTH);
    return apply_cut(s, v, n, cut);
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
static int32_t draw_all(const struct sampler *s, const struct view *v, double left)
{
    int32_t last = -1;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        if (left >= s->block_weight[b] || s->block_weight[b] <= 0) {
            left -= s->block_weight[b];
            continue;
        }
        for (uint32_t i = b * BLOCK; i < block_end(s, b); i++) {
            float weight = weight_of(v, i);
            left -= weight;
            if (weight > 0)
                last = (int32_t)i;
            if (left < 0 && weight > 0)
                return last;
        }
    }
    return last >= 0 ? last : find_id(s, v->logits, v->best); /* rounding left a crumb */
}

static uint32_t apply_min_p(struct sampler *s, uint32_t n, float best, float min_p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s->candidates[i].weight >= min_p || s->candidates[i].logit == best)
            s->candidates[kept++] = s->candidates[i];
    return kept;
}

/* How far down the tokens are that min_p keeps, and a little more for the rounding. */
static float min_p_reach(float min_p)
{
    float reach = 1e-3f - logf(min_p);
    return reach < 0 ? 0 : reach < LAST_REACH ? reach : LAST_REACH;
}

static int32_t pick_random(struct sampler *s, const struct view *v, const struct sampling *o,
                           double u)
{
    bool has_top_k = o->top_k > 0 && (uint32_t)o->top_k < s->n_vocab;
    bool has_top_p = o->top_p < 1;
    bool has_min_p = o->min_p > 0;
    if (!has_top_k && !has_top_p && !has_min_p)
        return draw_all(s, v, u * weigh_all(s, v));
    uint32_t n;
    if (has_top_k) {
        struct cut cut = {(uint32_t)o->top_k, INFINITY};
        n = gather_cut(s, v, &cut);
        cut = (struct cut){UINT32_MAX, (double)o->top_p * total_weight(s->candidates, n)};
        n = has_top_p ? apply_cut(s, v, n, &cut) : n;
    } else if (has_top_p) {
        struct cut cut = {UINT32_MAX, (double)o->top_p * weigh_all(s, v)};
        n = gather_cut(s, v, &cut);
    } else {
        n = gather(s, v, min_p_reach(o->min_p));
    }
    if (has_min_p)
        n = apply_min_p(s, n, v->best, o->min_p);
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
    float temperature = o->temperature > 1e-6f ? o->temperature : 1e-6f;
    struct view view = {logits, best, temperature, 1.0f / temperature};
    return pick_random(s, &view, o, uniform(o->seed, o->choice, n_generated));
}
