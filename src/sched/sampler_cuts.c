/* The cuts: which tokens of a row of logits are kept; see sampler.h for what each cut means. Owned
 * by the scheduler's thread. Nothing here sorts a vocabulary. Candidates are gathered only from
 * blocks that can contain them: at first a little below the best logit, then further down until the
 * cut is reached. Many candidates are counted in buckets of likelihood, and only the bucket where
 * the cut falls is sorted. Candidates stay in order of id, so the draw is the same on every path.
 *
 *   buckets   [0: likeliest] [1] [2] ... [b] ...      keeps all of 0 .. b-1, and the best of b */
#include "sched/sampler_parts.h"

#include <math.h>
#include <string.h>

enum {
    BUCKETS_PER_E = 16, /* buckets for a factor of e in likelihood */
    FEW = 64,           /* candidates that are sorted without buckets */
};

#define FIRST_REACH  4.0f /* the first search goes this far below the best: a factor of e^4 */
#define REACH_GROWTH 1.5f
#define LAST_REACH   128.0f /* below this every weight is 0 */

static bool is_better(const struct candidate *a, const struct candidate *b)
{
    return a->key != b->key ? a->key > b->key : a->id < b->id;
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

/* The logit that is `reach` factors of e below the best one. */
static float logit_below(const struct view *v, float reach)
{
    return v->best - reach * v->temperature;
}

/* The candidates with logits of at least `least`, in order of id. A token with a weight of zero
 * (masked, or too small) is not a candidate. */
static uint32_t gather(struct sampler *s, const struct view *v, float least)
{
    uint32_t n_ids = 0, n = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        if (!(s->block_best[b] >= least))
            continue;
        for (uint32_t i = b * SCAN_BLOCK; i < sampler_block_end(s, b); i++) {
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

/* The sort key of candidates: the key of the best, and the number of buckets per unit below it. */
struct order {
    float best, scale;
};

static struct order order_of_logits(const struct view *v)
{
    return (struct order){v->best, BUCKETS_PER_E * v->inverse};
}

static uint32_t bucket_of(const struct candidate *c, struct order order)
{
    float x = (order.best - c->key) * order.scale;
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

/* Pops the best candidates until the cut is reached, and returns its last token. `count` and
 * `weight` describe the tokens better than the `m` in the heap. */
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

/* The last of the `n` candidates that the cut keeps, found in its bucket with a heap. */
static struct candidate find_last(struct sampler *s, struct order order, uint32_t n,
                                  const struct cut *cut)
{
    if (n <= FEW) {
        memcpy(s->heap, s->candidates, n * sizeof *s->heap);
        return pop_to_last(s, n, 0, 0, cut);
    }
    memset(s->buckets, 0, sizeof s->buckets);
    for (uint32_t i = 0; i < n; i++) {
        struct bucket *b = &s->buckets[bucket_of(&s->candidates[i], order)];
        b->weight += s->candidates[i].weight;
        b->count++;
    }
    /* The bucket of the cut, and the total of the buckets before it. Because of rounding, the cut
     * may seem to fall just past the last bucket; then use the last. */
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
        if (bucket_of(&s->candidates[i], order) == at)
            s->heap[m++] = s->candidates[i];
    return pop_to_last(s, m, count, weight, cut);
}

static uint32_t apply_cut(struct sampler *s, struct order order, uint32_t n, const struct cut *cut)
{
    struct candidate last = find_last(s, order, n, cut);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->candidates[kept] = s->candidates[i];
        kept += !is_better(&last, &s->candidates[i]);
    }
    return kept;
}

double sampler_total_weight(const struct candidate *candidates, uint32_t n)
{
    double total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += candidates[i].weight;
    return total;
}

/* The candidates of all tokens that the cut keeps, in order of id. */
static uint32_t gather_cut(struct sampler *s, const struct view *v, const struct cut *cut)
{
    float reach = FIRST_REACH;
    uint32_t n = gather(s, v, logit_below(v, reach));
    while (reach < LAST_REACH && !cut_reached(cut, n, sampler_total_weight(s->candidates, n)))
        n = gather(s, v, logit_below(v, reach *= REACH_GROWTH));
    return apply_cut(s, order_of_logits(v), n, cut);
}

/* The smallest logit that top_n_sigma keeps. */
static float sigma_least(struct sampler *s, const struct view *v, float top_n_sigma)
{
    s->scan->spread(v->logits, s->n_vocab, v->best, s->spreads);
    double count = 0, sum = 0, squares = 0;
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        count += s->spreads[b].count;
        sum += s->spreads[b].sum;
        squares += s->spreads[b].squares;
    }
    double mean = sum / count, variance = squares / count - mean * mean;
    double sigma = variance > 0 ? sqrt(variance) : 0;
    return (float)(v->best - top_n_sigma * sigma);
}

static uint32_t apply_least(struct sampler *s, uint32_t n, float least)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->candidates[kept] = s->candidates[i];
        kept += s->candidates[i].key >= least;
    }
    return kept;
}

/* -log p is log(total) - x with x = (logit - best) / temperature, so its distance from its mean is
 * that of x from the mean of x: no logarithm is needed. */
static uint32_t apply_typical(struct sampler *s, const struct view *v, uint32_t n, float typical_p)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double weight = s->candidates[i].weight;
        total += weight;
        sum += weight * (double)((s->candidates[i].key - v->best) * v->inverse);
    }
    float mean = (float)(sum / total);
    for (uint32_t i = 0; i < n; i++)
        s->candidates[i].key = -fabsf((s->candidates[i].key - v->best) * v->inverse - mean);
    struct cut cut = {UINT32_MAX, (double)typical_p * total};
    n = apply_cut(s, (struct order){0, BUCKETS_PER_E}, n, &cut);
    for (uint32_t i = 0; i < n; i++)
        s->candidates[i].key = v->logits[s->candidates[i].id];
    return n;
}

static uint32_t apply_min_p(struct sampler *s, uint32_t n, float min_p)
{
    float most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = s->candidates[i].weight > most ? s->candidates[i].weight : most;
    float least = min_p < 1 ? min_p * most : most;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s->candidates[i].weight >= least)
            s->candidates[kept++] = s->candidates[i];
    return kept;
}

/* How far below the best min_p keeps tokens, with some margin for rounding. */
static float min_p_reach(float min_p)
{
    float reach = 1e-3f - logf(min_p);
    return reach < 0 ? 0 : reach < LAST_REACH ? reach : LAST_REACH;
}

static uint32_t apply_xtc(struct sampler *s, uint32_t n, float threshold)
{
    double least = threshold * sampler_total_weight(s->candidates, n);
    struct candidate last = {0};
    uint32_t n_likely = 0, kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct candidate *c = &s->candidates[i];
        if (c->weight < least)
            continue;
        if (n_likely++ == 0 || is_better(&last, c))
            last = *c;
    }
    for (uint32_t i = 0; i < n; i++)
        if (n_likely < 2 || s->candidates[i].weight < least || s->candidates[i].id == last.id)
            s->candidates[kept++] = s->candidates[i];
    return kept;
}

static bool has_top_k(const struct sampler *s, const struct sampling *o)
{
    return o->top_k > 0 && (uint32_t)o->top_k < s->n_vocab;
}

static bool has_typical(const struct sampling *o)
{
    return o->typical_p > 0 && o->typical_p < 1;
}

bool sampler_has_cuts(const struct sampler *s, const struct sampling *o, bool has_xtc)
{
    return has_top_k(s, o) || has_typical(o) || has_xtc || o->top_n_sigma > 0 || o->top_p < 1 ||
           o->min_p > 0 || o->infill;
}

/* The first cut, over all tokens. `has_top_p`: whether top_p is still to be applied. */
static uint32_t first_cut(struct sampler *s, const struct view *v, const struct sampling *o,
                          bool *has_top_p)
{
    float least = logit_below(v, LAST_REACH);
    if (o->top_n_sigma > 0)
        least = fmaxf(least, sigma_least(s, v, o->top_n_sigma));
    if (has_top_k(s, o)) {
        struct cut cut = {(uint32_t)o->top_k, INFINITY};
        return apply_least(s, gather_cut(s, v, &cut), least);
    }
    if (o->top_n_sigma > 0 || has_typical(o))
        return gather(s, v, least);
    if (*has_top_p) {
        struct cut cut = {UINT32_MAX, (double)o->top_p * sampler_weigh_all(s, v)};
        *has_top_p = false;
        return gather_cut(s, v, &cut);
    }
    return gather(s, v, o->min_p > 0 ? logit_below(v, min_p_reach(o->min_p)) : least);
}

uint32_t sampler_cut(struct sampler *s, const struct view *v, const struct sampling *o,
                     bool has_xtc)
{
    bool has_top_p = o->top_p < 1;
    uint32_t n = first_cut(s, v, o, &has_top_p);
    if (has_typical(o))
        n = apply_typical(s, v, n, o->typical_p);
    if (has_top_p) {
        struct cut cut = {UINT32_MAX, (double)o->top_p * sampler_total_weight(s->candidates, n)};
        n = apply_cut(s, order_of_logits(v), n, &cut);
    }
    if (o->min_p > 0)
        n = apply_min_p(s, n, o->min_p);
    if (has_xtc)
        n = apply_xtc(s, n, o->xtc_threshold);
    if (o->infill && n > SAMPLER_INFILL_MOST) {
        struct cut cut = {SAMPLER_INFILL_MOST, INFINITY};
        n = apply_cut(s, order_of_logits(v), n, &cut);
    }
    return n;
}
