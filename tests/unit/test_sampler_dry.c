/* DRY against a naive search for repetitions, and by hand. */
#include "test.h"

#include <stdlib.h>
#include <time.h>

#include "base/hash.h"
#include "cache/cache_token.h"
#include "naive_sampler.h"

enum { VOCAB = 40 };

static struct sampler *open_sampler(uint32_t n_vocab, uint32_t max_context)
{
    struct sampler *s;
    struct error err;
    CHECK(sampler_open(&s, n_vocab, max_context, &err) == 0);
    return s;
}

/* The greedy choice if token 1 is a little worse than token 0. */
static int32_t take(const char *context, const struct sampling *o, uint64_t breakers, float margin)
{
    float logits[26];
    uint64_t tokens[64];
    struct sampler_input in = {.sampling = o, .context = tokens, .n_tokens = 26};
    for (; context[in.n_context]; in.n_context++) { /* capitals are no text; owners do not matter */
        char letter = context[in.n_context];
        bool is_text = letter >= 'a';
        tokens[in.n_context] = cache_token_owned(is_text ? CACHE_TOKEN_TEXT
                                                         : CACHE_TOKEN_COORDINATE,
                                                 in.n_context, (uint32_t)(letter & 31) - 1);
    }
    for (int i = 0; i < 26; i++)
        logits[i] = i == 23 ? 10.0f : i == 24 ? 10.0f - margin : 0.0f; /* x, then y */
    in.dry_breakers = breakers ? &breakers : NULL;
    struct sampler *s = open_sampler(26, 64);
    int32_t token = sampler_pick(s, logits, &in);
    sampler_close(s);
    return token + 'a';
}

TEST(sampler_dry, longer_repetitions_cost_more)
{
    struct sampling o = SAMPLING_DEFAULT;
    o.temperature = 0, o.dry_multiplier = 1, o.dry_base = 2;
    /* "abc" came before x: 1 * 2^(3 - 2). */
    CHECK_INT(take("abcxzabc", &o, 0, 1.9f), 'y');
    CHECK_INT(take("abcxzabc", &o, 0, 2.1f), 'x');
    CHECK_INT(take("bcxzabc", &o, 0, 0.9f), 'y'); /* "bc": 2^0 */
    CHECK_INT(take("bcxzabc", &o, 0, 1.1f), 'x');
    CHECK_INT(take("cxzabc", &o, 0, 0.1f), 'x');     /* "c" is short enough */
    CHECK_INT(take("abcxbcxabc", &o, 0, 1.9f), 'y'); /* the longest counts, */
    CHECK_INT(take("abcxbcxabc", &o, 0, 2.1f), 'x'); /* and once */
    o.dry_last_n = 7;                                /* the first "a" is too far back */
    CHECK_INT(take("abcxzabc", &o, 0, 0.9f), 'y');
    CHECK_INT(take("abcxzabc", &o, 0, 1.1f), 'x');
    o.dry_last_n = 0, o.dry_allowed_length = 1;
    CHECK_INT(take("cxzabc", &o, 0, 0.9f), 'y');
    o.dry_allowed_length = 2, o.dry_base = 0.5f; /* off */
    CHECK_INT(take("abcxzabc", &o, 0, 0.1f), 'x');
}

TEST(sampler_dry, breakers_cut_repetitions)
{
    struct sampling o = SAMPLING_DEFAULT;
    const uint64_t a = 1, b = 2, c = 4, x = 1 << 23;
    o.temperature = 0, o.dry_multiplier = 1, o.dry_base = 2;
    CHECK_INT(take("abcxzabc", &o, a, 1.1f), 'x'); /* only "bc" is left of it */
    CHECK_INT(take("abcxzabc", &o, a, 0.9f), 'y');
    CHECK_INT(take("abcxzabc", &o, b, 0.1f), 'x');
    CHECK_INT(take("abcxzabc", &o, c, 0.1f), 'x');
    CHECK_INT(take("abcxzabc", &o, x, 0.1f), 'x'); /* a breaker may always come */
    CHECK_INT(take("abcxzaBc", &o, 0, 0.1f), 'x'); /* anything but text breaks, too */
    CHECK_INT(take("aBcxzaBc", &o, 0, 0.1f), 'x');
    CHECK_INT(take("Abcxzabc", &o, 0, 1.1f), 'x');
    CHECK_INT(take("AbcxzAbc", &o, 0, 1.1f), 'x');
    CHECK_INT(take("Abcxzabc", &o, 0, 0.9f), 'y');
    CHECK_INT(take("abcXzabc", &o, 0, 0.1f), 'x'); /* and does not continue one */
}

/* Random contexts of few letters, full of repetitions that overlap. */
TEST(sampler_dry, agrees_with_a_naive_search)
{
    struct sampler *s = open_sampler(VOCAB, 200);
    struct naive sorted[VOCAB];
    uint32_t n_penalised = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        uint64_t state = round, context[200], breakers = 0;
        float logits[VOCAB];
        struct sampling o = SAMPLING_DEFAULT;
        uint32_t n = (uint32_t)((state = hash_mix(state)) % 200), letters = 1 + round % 6;
        for (uint32_t i = 0; i < n; i++) {
            state = hash_mix(state);
            context[i] = state % letters | state >> 40 << 32;
            if (round % 5 == 0 && state >> 20 & 1)
                context[i] |= UINT64_C(1) << 56; /* no text */
        }
        for (uint32_t i = 0; i < n && round % 3 == 0; i++)
            context[i] = i % (2 + round % 9); /* one period */
        for (uint32_t i = 0; i < VOCAB; i++)
            logits[i] = (float)((state = hash_mix(state)) % 1000) / 100;
        if (round % 4 == 0)
            breakers = UINT64_C(1) << state % letters;
        o.temperature = 0;
        o.dry_multiplier = 0.8f;
        o.dry_base = round % 5 ? 1.75f : 1.0f;
        o.dry_allowed_length = (uint32_t)(round % 4);
        o.dry_last_n = round % 7 ? 0 : 1 + (uint32_t)(state >> 8) % 200;
        struct sampler_input in = {.sampling = &o,
                                   .context = context,
                                   .n_context = n,
                                   .dry_breakers = breakers ? &breakers : NULL,
                                   .n_tokens = VOCAB};
        naive_distribution(logits, VOCAB, &in, sorted);
        CHECK_INT(sampler_pick(s, logits, &in), sorted[0].id);
        o.dry_multiplier = 0;
        n_penalised += sampler_pick(s, logits, &in) != sorted[0].id;
    }
    CHECK(n_penalised > 100); /* the test is useful only if it changes the choice */
    sampler_close(s);
}

/* A token whose repetition is endless is still chosen if it is the only one; and ids that the model
 * has no logit for are skipped. */
TEST(sampler_dry, endless_repetitions_are_still_numbers)
{
    enum { N = 3000 };
    static uint64_t context[N];
    float logits[2] = {1, 2};
    uint64_t mask = 2;
    struct sampling o = SAMPLING_DEFAULT;
    o.temperature = 0, o.dry_multiplier = 5, o.dry_base = 4;
    for (uint32_t i = 0; i < N; i++)
        context[i] = i % 3 == 2 ? 77 : 1;
    struct sampler *s = open_sampler(2, N);
    struct sampler_input in = {
        .sampling = &o, .context = context, .n_context = N, .mask = &mask, .n_tokens = 2};
    for (uint32_t i = 0; i < 3; i++, in.n_context--) {
        CHECK_INT(sampler_pick(s, logits, &in), 1);
        in.mask = NULL;
        CHECK_INT(sampler_pick(s, logits, &in), in.n_context % 3 == 2);
        in.mask = &mask;
    }
    sampler_close(s);
}

/* The square of this context's length would take minutes. */
TEST(sampler_dry, takes_linear_time)
{
    enum { N = 200000 };
    uint64_t *context = calloc(N, sizeof *context);
    float logits[4] = {0};
    struct sampling o = SAMPLING_DEFAULT;
    o.dry_multiplier = 1;
    struct sampler *s = open_sampler(4, N);
    struct sampler_input in = {.sampling = &o, .context = context, .n_context = N};
    clock_t start = clock();
    CHECK(sampler_pick(s, logits, &in) > 0);
    CHECK(clock() - start < 2 * CLOCKS_PER_SEC);
    sampler_close(s);
    free(context);
}
