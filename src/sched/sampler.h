#ifndef RADISH_SCHED_SAMPLER_H
#define RADISH_SCHED_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* From a row of logits to a token. Random numbers are a function of (seed, choice, index of the
 * token), so that a preempted or repeated sequence draws the same ones. Equal logits go to the
 * smaller id.
 *
 *   logits ─► bias ─► penalties ─► DRY ─► mask and bans ─► temperature
 *          ─► top-n-sigma ─► top-k ─► typical-p ─► top-p ─► min-p ─► XTC ─► draw
 *
 * Penalties are repetition, then frequency and presence; they look at generated tokens only, as
 * OpenAI and vLLM have it (llama.cpp also counts the prompt). DRY looks at the prompt too.
 * Temperature comes before the cuts, as vLLM and transformers do it: top_p is a share of what would
 * be drawn, after temperature, from what the cuts before it left. With temperature_last the cuts
 * see the model's own distribution, and only the draw has the temperature, as in llama.cpp. Each
 * cut sees what the one before it left:
 *
 *   top_n_sigma  logits down to so many standard deviations (of all allowed logits) below the best
 *   top_k        the k most likely
 *   typical_p    the fewest whose information (-log p) is nearest to the mean, that reach the share
 *   top_p        the fewest most likely that reach the share
 *   min_p        those at least that share of the most likely one
 *   XTC          with xtc_probability: of the tokens that have xtc_threshold or more, only the
 *                least likely one, and all below; does nothing where fewer than two have it
 *   infill       for editors: the tokens that the model is sure of, or an end
 *
 * No cut leaves nothing. Typical-p and XTC may remove the most likely token, and that is what they
 * are for; the others never do. At temperature 0 and at top_k 1 the best logit is taken after bias,
 * penalties, DRY and mask, and no cut is asked. */
struct sampling {
    float temperature;        /* 0: greedy */
    bool temperature_last;    /* behind the cuts, not before them */
    bool infill;              /* end where it is not clear how to go on: sampler_infill.c */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float typical_p;          /* 0 and 1: off */
    float top_n_sigma;        /* 0 and less: off */
    int32_t top_k;            /* 0: off */
    float xtc_probability;    /* 0: off */
    float xtc_threshold;      /* above 0.5: off */
    float presence_penalty;   /* 0: off; over the tokens generated so far */
    float frequency_penalty;  /* 0: off */
    float repetition_penalty; /* 1: off */
    uint32_t repeat_last_n;   /* penalties look back so far; 0: over the whole answer */
    /* DRY: a token that would go on with a repetition of what stands at the end loses
     * multiplier * base^(length of the repetition - allowed_length), from allowed_length on. */
    float dry_multiplier; /* 0: off */
    float dry_base;       /* below 1: off */
    uint32_t dry_allowed_length;
    uint32_t dry_last_n; /* it looks back so far; 0: to the start of the prompt */
    uint64_t seed;
    uint32_t choice;
};

#define SAMPLING_DEFAULT                                                                           \
    {                                                                                              \
        .temperature = 1.0f, .top_p = 1.0f, .typical_p = 1.0f, .xtc_threshold = 0.1f,              \
        .repetition_penalty = 1.0f, .dry_base = 1.75f, .dry_allowed_length = 2                     \
    }

/* What is added to a token's logit; BIAS_BAN and less: the token is never chosen. */
struct logit_bias {
    int32_t token; /* ids that the model does not have are passed over */
    float bias;
};

#define BIAS_BAN (-100.0f)

/* All that a pick sees beside the logits. What is zero is not there. */
struct sampler_input {
    const struct sampling *sampling;
    const int32_t *generated; /* [n_generated] sampled so far */
    uint32_t n_generated;     /* the random numbers' index too */
    /* The prompt and what was generated, for DRY: cache tokens. What is not text breaks off
     * repetitions. */
    const uint64_t *context; /* [n_context] */
    uint32_t n_context;
    uint32_t n_tokens;            /* that the two below have a bit for: bit i % 64 of word i / 64 */
    const uint64_t *dry_breakers; /* those that no repetition reaches back over; NULL: none */
    const uint64_t *mask; /* those that are allowed, and none from n_tokens on; NULL: all are */
    const struct logit_bias *biases; /* [n_biases] */
    uint32_t n_biases;
    /* For `infill`, which is not done without them: the tokens' texts, which of them end an answer,
     * and one that does; -1: the answer must not end here. */
    const char *const *bytes; /* [n_tokens] */
    const uint32_t *lengths;  /* [n_tokens] */
    const bool *is_end;       /* [n_tokens] */
    int32_t end;
    const int32_t *banned; /* [n_banned] ids of the model, not allowed whatever the mask says */
    uint32_t n_banned;
};

enum {
    SAMPLER_NO_NUMBER = -1, /* what is allowed has no logit that is a number */
    SAMPLER_NO_TOKEN = -2,  /* mask, bans and biases allow none */
};

/* Scratch for one thread, sized at start so that sampling allocates nothing. */
struct sampler;

/* `max_context` is the longest context that DRY will see. */
int sampler_open(struct sampler **out, uint32_t n_vocab, uint32_t max_context, struct error *err);
void sampler_close(struct sampler *s);

/* A token, or one of the two above. Does not change `logits` ([n_vocab]). A logit of -inf (masked)
 * or NaN is never chosen. */
int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampler_input *in);

/* Log probabilities are of the model's own distribution: log softmax of the logits as they are, at
 * temperature 1, before bias, penalties, masks and cuts (what vLLM calls raw_logprobs). So they do
 * not depend on how the token was chosen. */
enum { REQUEST_MAX_TOP_LOGPROBS = 20 };

struct token_logprob {
    int32_t token;
    float logprob;
};

struct token_logprobs {
    float logprob; /* of the token itself; NaN: it has none; -inf: the model rules it out */
    uint32_t n_top;
    struct token_logprob top[REQUEST_MAX_TOP_LOGPROBS]; /* the best first, of equals the smaller */
};

/* Fills in `out` for a token and the `n_top` best ones, fewer where fewer have numbers. False when
 * no logit is a number. */
bool sampler_logprobs(struct sampler *s, const float *logits, int32_t token, uint32_t n_top,
                      struct token_logprobs *out);

#endif
