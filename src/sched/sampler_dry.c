/* DRY, "don't repeat yourself": penalizes tokens that would continue a repetition, the more the
 * longer it is. Owned by the scheduler's thread.
 *
 *   context   ... a b c X ... b c Y ... a b c │ ?       X would extend a repetition of 3 to 4,
 *                 └───┘       └─┘       └───┘           Y one of 2 to 3
 *
 * The repetition at a position is the longest suffix of the context that also ends there: the Z
 * function of the reversed context, computed in linear time. No repetition extends back over a
 * breaker (a newline, a quotation mark, ...). */
#include "sched/sampler_parts.h"

#include <assert.h>

#include "cache/cache_token.h"

#define MOST_PENALTY 1e30 /* finite, so that a token can still be chosen if it is the only one */

bool sampler_has_dry(const struct sampler_input *in)
{
    const struct sampling *o = in->sampling;
    return o->dry_multiplier > 0 && o->dry_base >= 1 && in->n_context > 1;
}

/* The context in reverse: the last token is at 0. */
static uint64_t token_at(const struct sampler_input *in, uint32_t i)
{
    return in->context[in->n_context - 1 - i];
}

/* Compares text tokens, whatever their owners. Anything but text never repeats. */
static bool is_same(uint64_t a, uint64_t b)
{
    return (uint32_t)a == (uint32_t)b && cache_token_is_text(a) && cache_token_is_text(b);
}

static bool is_breaker(const struct sampler_input *in, uint64_t token)
{
    uint32_t id = (uint32_t)token;
    return !cache_token_is_text(token) ||
           (in->dry_breakers && id < in->n_tokens && in->dry_breakers[id / 64] >> id % 64 & 1);
}

/* repeats[k]: how many tokens from k on equal those from 0 on. [left, right) is the repetition
 * found so far that extends furthest; inside it, the results of its copy at 0 apply. */
static void find_repeats(const struct sampler_input *in, uint32_t n, uint32_t *repeats)
{
    uint32_t left = 0, right = 0;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t len = 0;
        if (k < right)
            len = repeats[k - left] < right - k ? repeats[k - left] : right - k;
        while (k + len < n && is_same(token_at(in, len), token_at(in, k + len)))
            len++;
        repeats[k] = len;
        if (k + len > right) {
            left = k;
            right = k + len;
        }
    }
}

/* By squaring instead of pow, whose results differ between C libraries. */
static float penalty_of(const struct sampling *o, uint32_t length)
{
    double penalty = o->dry_multiplier, power = o->dry_base;
    uint32_t exponent = length > o->dry_allowed_length ? length - o->dry_allowed_length : 0;
    for (; exponent && penalty < MOST_PENALTY; exponent >>= 1) {
        if (exponent & 1)
            penalty *= power;
        power *= power;
    }
    return (float)(penalty < MOST_PENALTY ? penalty : MOST_PENALTY);
}

void sampler_apply_dry(struct sampler *s, const struct sampler_input *in)
{
    const struct sampling *o = in->sampling;
    uint32_t n = o->dry_last_n && o->dry_last_n < in->n_context ? o->dry_last_n : in->n_context;
    uint32_t least = o->dry_allowed_length ? o->dry_allowed_length : 1, most = 0;
    assert(n <= s->max_context);
    while (most < n && !is_breaker(in, token_at(in, most)))
        most++;
    if (most < least)
        return;
    find_repeats(in, n, s->repeats);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t len = s->repeats[k] < most ? s->repeats[k] : most;
        uint64_t token = token_at(in, k - 1);
        uint32_t id = (uint32_t)token;
        s->repeats[k] = len;
        if (len >= least && id < s->n_vocab && s->counts[id] < len && !is_breaker(in, token))
            s->counts[id] = len;
    }
    for (uint32_t k = 1; k < n; k++) {
        uint32_t id = (uint32_t)token_at(in, k - 1);
        if (s->repeats[k] < least || id >= s->n_vocab || s->counts[id] == 0)
            continue;
        s->logits[id] -= penalty_of(o, s->counts[id]);
        s->counts[id] = 0;
    }
}
