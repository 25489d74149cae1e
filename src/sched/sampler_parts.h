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
    float key;    /* the sort key: its logit, unless a cut says otherwise */
    float weight; /* exp((logit - best) / temperature), in 0..1 */
    int32_t id;
};

struct bucket {
    double weight;
    uint32_t count;
};

/* A row of logits as one request sees it. */
struct view {
    const float *logits;        /* [n_vocab] */
    float best;                 /* of them */
    float temperature, inverse; /* and 1 / temperature */
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
    uint32_t *ids;                /* [n_vocab] tokens being gathered, */
    float *near, *weights;        /* [n_vocab] their logits and weights */
    struct candidate *candidates; /* [n_vocab] in order of id */
    struct candidate *heap;       /* [n_vocab] being sorted */
    struct bucket buckets[N_BUCKETS];
    /* What the last pick drew from. */
    uint32_t n_drawn_from; /* candidates; 0: all tokens, as `drawn_from` has them */
    struct view drawn_from;
};

static inline uint32_t sampler_block_end(const struct sampler *s, uint32_t block)
{
    uint32_t end = (block + 1) * SCAN_BLOCK;
    return end < s->n_vocab ? end : s->n_vocab;
}

/* Finds the largest logit (-inf if none is a number), and the largest of each block. */
float sampler_find_best(struct sampler *s, const float *logits);
/* The same, from the largest of each block. */
float sampler_best_block(const struct sampler *s);
/* The sum of all weights, and of each block. */
double sampler_weigh_all(struct sampler *s, const struct view *v);

/* sampler_edit.c: the logits after bias, penalties, DRY, mask and bans: the given array, or a copy
 * in the sampler. `best` gets the largest, as from sampler_find_best. */
const float *sampler_edit(struct sampler *s, const float *logits, const struct sampler_input *in,
                          float *best);
/* Whether mask, bans and biases allow any token, whatever its logit. */
bool sampler_allows_any(struct sampler *s, const struct sampler_input *in);

/* sampler_dry.c: lowers s->logits of tokens that would extend a repetition. */
bool sampler_has_dry(const struct sampler_input *in);
void sampler_apply_dry(struct sampler *s, const struct sampler_input *in);

/* sampler_infill.c: cuts the first `n` candidates (at most SAMPLER_INFILL_MOST) further; returns
 * how many are left. */
enum { SAMPLER_INFILL_MOST = 128 };
uint32_t sampler_infill(struct sampler *s, const struct sampler_input *in, uint32_t n);

/* sampler_cuts.c */
bool sampler_has_cuts(const struct sampler *s, const struct sampling *o, bool has_xtc);
/* Leaves the tokens that survive the cuts in s->candidates, ordered by id; returns how many, at
 * least one. */
uint32_t sampler_cut(struct sampler *s, const struct view *v, const struct sampling *o,
                     bool has_xtc);
double sampler_total_weight(const struct candidate *candidates, uint32_t n);

#endif
