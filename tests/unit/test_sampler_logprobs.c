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

/* The share of each token in many draws is the one that is reported. */
TEST(sampler_logprobs, of_the_draw)
{
    enum { N = 600, DRAWS = 20000, BANNED = 7 };
    static float logits[N];
    static uint32_t counts[N];
    static const struct sampling cases[] = {
        {.temperature = 0.7f, .top_p = 1},
        {.temperature = 1.5f, .top_p = 1, .top_k = 8},
        {.temperature = 0.6f, .top_p = 0.9f, .min_p = 0.02f, .temperature_last = true},
        {.temperature = 0, .top_p = 1},
    };
    const struct logit_bias ban = {BANNED, BIAS_BAN};
    struct sampler *s;
    struct error err;
    uint64_t state = 5;
    for (uint32_t i = 0; i < N; i++)
        logits[i] = random_float(&state, -6, 3);
    logits[BANNED] = 9;
    CHECK(sampler_open(&s, N, 0, &err) == 0);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct token_logprobs out = {0};
        for (uint32_t i = 0; i < N; i++)
            counts[i] = 0;
        for (uint32_t i = 0; i < DRAWS; i++) {
            struct sampling sampling = cases[k];
            sampling.typical_p = sampling.repetition_penalty = 1;
            sampling.seed = i;
            struct sampler_input in = {.sampling = &sampling, .biases = &ban, .n_biases = 1};
            int32_t token = sampler_pick(s, logits, &in);
            CHECK(token >= 0);
            counts[token]++;
            sampler_drawn_logprobs(s, token, REQUEST_MAX_TOP_LOGPROBS, &out);
            CHECK(out.logprob > -INFINITY && out.logprob <= 1e-6f);
        }
        double sum = 0;
        for (uint32_t i = 0; i < out.n_top; i++) {
            double p = exp((double)out.top[i].logprob), seen = (double)counts[out.top[i].token];
            sum += p;
            CHECK(out.top[i].token != BANNED && p > 0);
            CHECK(i == 0 || out.top[i].logprob <= out.top[i - 1].logprob);
            CHECK(fabs(seen / DRAWS - p) < 5 * sqrt(p * (1 - p) / DRAWS) + 1e-9);
        }
        CHECK(k == 0 ? sum < 1 && out.n_top == REQUEST_MAX_TOP_LOGPROBS
                     : out.n_top == REQUEST_MAX_TOP_LOGPROBS || fabs(sum - 1) < 1e-5);
        CHECK_INT(cases[k].top_k == 8 ? out.n_top : 8, 8);
        CHECK_INT(cases[k].temperature > 0 ? 1 : out.n_top, 1);
    }
    sampler_close(s);
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
