#ifndef RADISH_SCHED_SAMPLER_PARTS_H
#define RADISH_SCHED_SAMPLER_PARTS_H

#include "sched/sampler.h"
#include "sched/sampler_scan.h"

/* The inside of the sampler, shared by its own files only.
 *
 *   pick:   edit the logits ─► find the best ─► cut ─► draw
 *           sampler_edit.c     sampler.c        sampler_cuts.c
 *           sampler_dry.c
 */
enum { N_BUCKETS = 2048 };

struct candidate {
    float key;    /* what it is put in order by: its logit, unless a cut says otherwise */
    float weight; /* exp((logit - best) / temperature), in 0..1 */
    int32_t id;
};

struct bucket {
    double weight;
    uint32_t count;
};

struct sampler {
    const struct sampler_scan *scan;
    uint32_t n_vocab, n_blocks, max_context;
    float *logits;                /* [n_vocab] an edited copy, with room for whole blocks */
    uint32_t *counts;             /* [n_vocab] a number for each token; zero between calls */
    uint32_t *repeats;            /* [max_context] */
    float *block_best;            /* [n_blocks] the largest logit of each */
    float *block_weight;          /* [n_blocks] the sum of each */
    struct scan_spread *spreads;  /* [n_blocks] */
    uint32_t *ids;                /* [n_vocab] what is being gathered, */
    float *near, *weights;        /* [n_vocab] its logits and weights */
    struct candidate *candidates; /* [n_vocab] in order of id */
    struct candidate *heap;       /* [n_vocab] what is being put in order */
    struct bucket buckets[N_BUCKETS];
};

/* A row of logits as one request sees it. */
struct view {
    const float *logits;        /* [n_vocab] */
    float best;                 /* of them */
    float temperature, inverse; /* and 1 / temperature */
};

static inline uint32_t sampler_block_end(const struct sampler *s, uint32_t block)
{
    uint32_t end = (block + 1) * SCAN_BLOCK;
    return end < s->n_vocab ? end : s->n_vocab;
}

/* The largest logit, -inf when none is a number; and of each block. */
float sampler_find_best(struct sampler *s, const float *logits);
/* The same where that of each block is known. */
float sampler_best_block(const struct sampler *s);
/* The sum of all weights, and of each block. */
double sampler_weigh_all(struct sampler *s, const struct view *v);

/* sampler_edit.c: the logits after bias, penalties, DRY, mask and bans, either those given or a
 * copy in the sampler; and the largest of them, as sampler_find_best. */
const float *sampler_edit(struct sampler *s, const float *logits, const struct sampler_input *in,
                          float *best);
/* Whether mask, bans and biases allow any token, whatever its logit. */
bool sampler_allows_any(struct sampler *s, const struct sampler_input *in);

/* sampler_dry.c: lowers s->logits of tokens that would go on with a repetition. */
bool sampler_has_dry(const struct sampler_input *in);
void sampler_apply_dry(struct sampler *s, const struct sampler_input *in);

/* sampler_infill.c: cuts the first `n` candidates further, of which there may be so many; how many
 * stay. */
enum { SAMPLER_INFILL_MOST = 128 };
uint32_t sampler_infill(struct sampler *s, const struct sampler_input *in, uint32_t n);

/* sampler_cuts.c */
bool sampler_has_cuts(const struct sampler *s, const struct sampling *o, bool has_xtc);
/* Leaves what the cuts keep in s->candidates, in order of id; how many, one at least. */
uint32_t sampler_cut(struct sampler *s, const struct view *v, const struct sampling *o,
                     bool has_xtc);
double sampler_total_weight(const struct candidate *candidates, uint32_t n);

#endif
