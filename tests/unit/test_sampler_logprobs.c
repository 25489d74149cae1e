/* Log probabilities against a naive log softmax that sorts everything. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "naive_sampler.h"

static float random_float(uint64_t *state, float low, float high)
{
    *state = hash_mix(*state);
    return low + (high - low) * (float)(*state >> 40) / (float)(1 << 24);
}

/* For any size, with ties and NaN. */
TEST(sampler_logprobs, are_the_naive_ones)
{
    enum { N = 3000 };
    static float logits[N];
    static struct naive sorted[N];
    for (uint32_t round = 0; round < 400; round++) {
        uint64_t state = round;
        uint32_t n = round % 4 == 0 ? 1 + round % 30 : 1 + (uint32_t)(hash_mix(round) % N), m = 0;
        float spread = round % 3 == 0 ? 0.01f : round % 3 == 1 ? 8.0f : 60.0f;
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = random_float(&state, -spread, spread);
            if (round % 5 == 0)
                logits[i] = roundf(logits[i]); /* many ties */
            if (round % 7 == 0 && (state = hash_mix(state)) % 2)
                logits[i] = state % 4 < 2 ? NAN : -INFINITY;
            if (round % 11 == 0)
                logits[i] = (float)i * 0.001f; /* the best come last */
            if (isfinite(logits[i]))
                sorted[m++] = (struct naive){(int32_t)i, logits[i], 0};
        }
        qsort(sorted, m, sizeof *sorted, naive_order);
        double total = 0;
        for (uint32_t i = 0; i < m; i++)
            total += exp(sorted[i].logit - sorted[0].logit);
        struct sampler *s;
        struct error err;
        struct token_logprobs out;
        CHECK(sampler_open(&s, n, 0, &err) == 0);
        uint32_t n_top = round % (REQUEST_MAX_TOP_LOGPROBS + 1);
        int32_t token = (int32_t)((state = hash_mix(state)) % n);
        CHECK_INT(sampler_logprobs(s, logits, token, n_top, &out), m > 0);
        CHECK_INT(out.n_top, m < n_top ? m : n_top);
        for (uint32_t i = 0; i < out.n_top; i++) {
            CHECK_INT(out.top[i].token, sorted[i].id);
            double want = sorted[i].logit - sorted[0].logit - log(total);
            CHECK(fabs(out.top[i].logprob - want) <= 2e-6 * (1 + fabs(want)));
        }
        double want = (double)logits[token] - sorted[0].logit - log(total);
        if (m == 0)
            CHECK(isnan(out.logprob));
        else if (isfinite(logits[token]))
            CHECK(fabs(out.logprob - want) <= 2e-6 * (1 + fabs(want)));
        else
            CHECK(out.logprob == -INFINITY);
        for (uint32_t i = 0; i < out.n_top; i++) /* the same number for the same token */
            CHECK(out.top[i].token != token || out.top[i].logprob == out.logprob);
        sampler_close(s);
    }
}

TEST(sampler_logprobs, edges)
{
    float logits[3] = {1, INFINITY, -2};
    struct sampler *s;
    struct error err;
    struct token_logprobs out;
    CHECK(sampler_open(&s, 3, 0, &err) == 0);
    CHECK(sampler_logprobs(s, logits, 1, 2, &out));
    CHECK(out.logprob == 0 && out.top[0].logprob == 0 && out.top[0].token == 1);
    CHECK(out.top[1].token == 0 && out.top[1].logprob == -INFINITY);
    logits[1] = 3;
    CHECK(sampler_logprobs(s, logits, 3, 0, &out)); /* an id that the model has no logit for */
    CHECK(out.logprob == -INFINITY && out.n_top == 0);
    logits[0] = logits[1] = NAN, logits[2] = -INFINITY;
    CHECK(!sampler_logprobs(s, logits, 1, 3, &out));
    CHECK(isnan(out.logprob) && out.n_top == 0);
    sampler_close(s);
}
