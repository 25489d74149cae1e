#ifndef RADISH_SCHED_SAMPLER_H
#define RADISH_SCHED_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Picks a token from a row of logits. Random numbers are a function of (seed, choice, index of the
 * token), so a preempted or repeated sequence draws the same ones. Ties go to the smaller id.
 *
 *   logits ─► bias ─► penalties ─► DRY ─► mask and bans ─► temperature
 *          ─► top-n-sigma ─► top-k ─► typical-p ─► top-p ─► min-p ─► XTC ─► draw
 *
 * Penalties are repetition, then frequency and presence; they count generated tokens only, as in
 * OpenAI's API and vLLM (llama.cpp also counts the prompt). DRY also looks at the prompt.
 * Temperature comes before the cuts, as in vLLM and transformers: top_p is a share of the
 * distribution after temperature, over the tokens that the earlier cuts kept. With temperature_last
 * the cuts see the model's own distribution, and temperature applies to the draw only, as in
 * llama.cpp. Each cut sees what the one before it left:
 *
 * - top_n_sigma: logits at most this many standard deviations (of all allowed ones) below the best
 * - top_k: the k most likely
 * - typical_p: the smallest set that reaches the share, tokens with information (-log p) closest to
 *   the mean first
 * - top_p: the smallest set of most likely tokens that reaches the share
 * - min_p: tokens at least this fraction as likely as the most likely one
 * - XTC, with xtc_probability: of the tokens at or above xtc_threshold, if there are two or more,
 *   only the least likely, and all tokens below
 * - infill, for editors: the tokens that the model is sure of, or an end token
 *
 * Every cut keeps at least one token. Typical-p and XTC may remove the most likely token, by
 * design; the others never do. At temperature 0 or top_k 1 the best logit after bias, penalties,
 * DRY and mask is taken, without any cuts. */
struct sampling {
    float temperature;        /* 0: greedy */
    bool temperature_last;    /* after the cuts, not before them */
    bool infill;              /* end where the continuation is unclear: sampler_infill.c */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float typical_p;          /* 0 or 1: off */
    float top_n_sigma;        /* 0 or less: off */
    int32_t top_k;            /* 0: off */
    float xtc_probability;    /* 0: off */
    float xtc_threshold;      /* above 0.5: off */
    float presence_penalty;   /* 0: off; over the tokens generated so far */
    float frequency_penalty;  /* 0: off */
    float repetition_penalty; /* 1: off */
    uint32_t repeat_last_n;   /* tokens that penalties look back; 0: the whole answer */
    /* DRY: a token that would extend a repetition of the text's end loses multiplier * base^(length
     * of the repetition - allowed_length), if that length is at least allowed_length. */
    float dry_multiplier; /* 0: off */
    float dry_base;       /* below 1: off */
    uint32_t dry_allowed_length;
    uint32_t dry_last_n; /* tokens that it looks back; 0: to the start of the prompt */
    uint64_t seed;
    uint32_t choice;
};

#define SAMPLING_DEFAULT                                                                           \
    {                                                                                              \
        .temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .xtc_threshold = 0.1f,              \
        .repetition_penalty = 1.0f, .dry_base = 1.75f, .dry_allowed_length = 2                     \
    }

/* A value added to a token's logit. BIAS_BAN or less: the token is never chosen. */
struct logit_bias {
    int32_t token; /* ids that the model does not have are ignored */
    float bias;
};

#define BIAS_BAN (-100.0f)

/* Everything a pick sees besides the logits. Zero fields are absent. */
struct sampler_input {
    const struct sampling *sampling;
    const int32_t *generated; /* [n_generated] sampled so far */
    uint32_t n_generated;     /* also the index of the random number */
    /* For DRY: the prompt and the generated tokens, as cache tokens. Anything that is not text ends
     * a repetition. */
    const uint64_t *context; /* [n_context] */
    uint32_t n_context;
    uint32_t n_tokens;            /* size of the two bitmaps below: bit i % 64 of word i / 64 */
    const uint64_t *dry_breakers; /* tokens that end a repetition; NULL: none */
    const uint64_t *mask;         /* allowed tokens, none from n_tokens on; NULL: all are allowed */
    const struct logit_bias *biases; /* [n_biases] */
    uint32_t n_biases;
    /* For `infill`, which is skipped without them: the tokens' texts, whether each ends an answer,
     * and one end token (-1: the answer must not end here). */
    const char *const *bytes; /* [n_tokens] */
    const uint32_t *lengths;  /* [n_tokens] */
    const bool *is_end;       /* [n_tokens] */
    int32_t end;
    const int32_t *banned; /* [n_banned] the model's ids, forbidden whatever the mask says */
    uint32_t n_banned;
};

enum {
    SAMPLER_NO_NUMBER = -1, /* no allowed token has a logit that is a number */
    SAMPLER_NO_TOKEN = -2,  /* mask, bans and biases allow no token */
};

/* Scratch space for one thread, allocated up front so that sampling allocates nothing. */
struct sampler;

/* `max_context` is the longest context that DRY will see. */
int sampler_open(struct sampler **out, uint32_t n_vocab, uint32_t max_context, struct error *err);
void sampler_close(struct sampler *s);

/* Returns a token, or one of the two values above. Does not change `logits` ([n_vocab]). A logit of
 * -inf (masked) or NaN is never chosen. */
int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampler_input *in);

/* Log probabilities are those of the model's own distribution: log softmax of the unchanged logits,
 * at temperature 1, before bias, penalties, masks and cuts (vLLM's raw_logprobs). They do not
 * depend on how the token was chosen. */
enum { REQUEST_MAX_TOP_LOGPROBS = 20 };

struct token_logprob {
    int32_t token;
    float logprob;
};

struct token_logprobs {
    float logprob; /* of the token itself; NaN: it has none; -inf: the model rules it out */
    uint32_t n_top;
    struct token_logprob top[REQUEST_MAX_TOP_LOGPROBS]; /* best first; ties: smaller id first */
};

/* Fills in `out` for a token and the `n_top` best ones, or fewer if fewer logits are numbers.
 * False: no logit is a number. */
bool sampler_logprobs(struct sampler *s, const float *logits, int32_t token, uint32_t n_top,
                      struct token_logprobs *out);
/* The same for the distribution that the last sampler_pick drew from, after everything that changed
 * it; the row of logits must still be there. Tokens that could not be drawn are not among the best.
 */
void sampler_drawn_logprobs(struct sampler *s, int32_t token, uint32_t n_top,
                            struct token_logprobs *out);

#endif
