/* The sampler against a naive one that sorts everything in double precision. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "sched/sampler.h"
#include "sched/sampler_scan.h"

static struct sampler *open_sampler(uint32_t n_vocab)
{
    struct sampler *s;
    struct error err;
    CHECK(sampler_open(&s, n_vocab, &err) == 0);
    return s;
}

static float random_float(uint64_t *state, float low, float high)
{
    *state = hash_mix(*state);
    return low + (high - low) * (float)(*state >> 40) / (float)(1 << 24);
}

TEST(sampler, greedy_takes_the_largest_and_the_smaller_id)
{
    float logits[37];
    for (int i = 0; i < 37; i++)
        logits[i] = -1.0f;
    struct sampler *s = open_sampler(37);
    struct sampling greedy = SAMPLING_DEFAULT;
    greedy.temperature = 0;
    for (int at = 36; at >= 0; at--) {
        logits[at] = 2.5f; /* now the smallest of several that are equal */
        CHECK_INT(sampler_pick(s, logits, &greedy, NULL, 0), at);
    }
    logits[0] = NAN;
    CHECK_INT(sampler_pick(s, logits, &greedy, NULL, 0), 1);
    logits[20] = INFINITY;
    CHECK_INT(sampler_pick(s, logits, &greedy, NULL, 0), 20);
    greedy.temperature = 1;
    CHECK_INT(sampler_pick(s, logits, &greedy, NULL, 0), 20);
    sampler_close(s);
}

TEST(sampler, never_takes_what_is_masked)
{
    float logits[50];
    struct sampler *s = open_sampler(50);
    for (uint32_t round = 0; round < 400; round++) {
        uint64_t state = round;
        struct sampling o = SAMPLING_DEFAULT;
        o.temperature = round % 4 ? 1.5f : 0;
        o.top_k = round % 3 ? 0 : 10;
        o.top_p = round % 5 ? 1.0f : 0.9f;
        o.presence_penalty = round % 7 ? 0 : 0.5f;
        o.repetition_penalty = round % 11 ? 1 : 1.3f;
        o.seed = round;
        int32_t generated[3] = {1, 2, 3};
        bool any = false;
        for (int i = 0; i < 50; i++) {
            bool open = (state = hash_mix(state)) % 8 == 0;
            any |= open;
            logits[i] = open ? random_float(&state, -3, 3) : i % 2 ? -INFINITY : NAN;
        }
        int32_t id = sampler_pick(s, logits, &o, generated, 3);
        CHECK(any ? id >= 0 && id < 50 && isfinite(logits[id]) : id == -1);
    }
    for (int i = 0; i < 50; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
    struct sampling o = SAMPLING_DEFAULT;
    CHECK_INT(sampler_pick(s, logits, &o, NULL, 0), -1);
    o.temperature = 0;
    CHECK_INT(sampler_pick(s, logits, &o, NULL, 0), -1);
    sampler_close(s);
}

struct naive {
    int32_t id;
    double logit, p;
};

static int naive_order(const void *a, const void *b)
{
    const struct naive *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* The penalised logits as the documentation says it, in the precision of the sampler. */
static float naive_penalty(float logit, uint32_t count, const struct sampling *o)
{
    if (count == 0)
        return logit;
    logit = logit > 0 ? logit / o->repetition_penalty : logit * o->repetition_penalty;
    return logit - (float)count * o->frequency_penalty - o->presence_penalty;
}

/* Fills `sorted` with the tokens that may be drawn, best first, their p summing to 1. */
static uint32_t naive_distribution(const float *logits, uint32_t n, const struct sampling *o,
                                   const int32_t *generated, uint32_t n_generated,
                                   struct naive *sorted)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = 0;
        for (uint32_t k = 0; k < n_generated; k++)
            count += generated[k] == (int32_t)i;
        sorted[i] = (struct naive){(int32_t)i, naive_penalty(logits[i], count, o), 0};
    }
    qsort(sorted, n, sizeof *sorted, naive_order);
    if (o->top_k > 0 && (uint32_t)o->top_k < n)
        n = (uint32_t)o->top_k;
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        total += sorted[i].p = exp((sorted[i].logit - sorted[0].logit) / o->temperature);
    for (uint32_t i = 0; i < n && o->top_p < 1; i++) {
        sum += sorted[i].p / total;
        if (sum >= o->top_p)
            n = i + 1;
    }
    for (uint32_t i = 1; i < n && o->min_p > 0; i++)
        if (sorted[i].p < o->min_p)
            n = i;
    total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += sorted[i].p;
    for (uint32_t i = 0; i < n; i++)
        sorted[i].p /= total;
    return n;
}

/* Where the draws fall, against the naive probabilities. With one option at a time, and all. */
static void check_distribution(const struct sampling *options, const float *logits, uint32_t n,
                               const int32_t *generated, uint32_t n_generated)
{
    enum { DRAWS = 4000 };
    struct sampler *s = open_sampler(n);
    struct naive *sorted = malloc(n * sizeof *sorted);
    uint32_t *drawn = calloc(n, sizeof *drawn);
    uint32_t kept = naive_distribution(logits, n, options, generated, n_generated, sorted);
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct sampling o = *options;
        o.seed = 1000 + i;
        int32_t id = sampler_pick(s, logits, &o, generated, n_generated);
        CHECK(id >= 0 && (uint32_t)id < n);
        drawn[id]++;
    }
    uint32_t outside = DRAWS;
    double chi_square = 0, rest_p = 0, rest_drawn = 0;
    uint32_t freedom = 0;
    for (uint32_t i = 0; i < kept; i++) {
        outside -= drawn[sorted[i].id];
        double want = sorted[i].p * DRAWS, got = drawn[sorted[i].id];
        if (want < 8) {
            rest_p += sorted[i].p;
            rest_drawn += got;
            continue;
        }
        chi_square += (got - want) * (got - want) / want;
        freedom++;
    }
    if (rest_p * DRAWS >= 8) {
        double want = rest_p * DRAWS;
        chi_square += (rest_drawn - want) * (rest_drawn - want) / want;
        freedom++;
    }
    free(sorted);
    free(drawn);
    sampler_close(s);
    CHECK_INT(outside, 0); /* nothing beyond the cuts is ever drawn */
    /* Five standard deviations of chi-square: the seeds are fixed, so this never flickers. */
    CHECK(chi_square <= freedom + 5 * sqrt(2.0 * (freedom + 1)));
}

TEST(sampler, draws_follow_the_naive_distribution)
{
    enum { N = 300 };
    float logits[N];
    uint64_t state = 7;
    for (int i = 0; i < N; i++)
        logits[i] = random_float(&state, -6, 3);
    int32_t generated[] = {3, 3, 3, 17, 40, 3, 120};
    struct sampling base = SAMPLING_DEFAULT, o;
    check_distribution(&base, logits, N, generated, 0);
    o = base, o.temperature = 0.6f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.temperature = 3.0f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.top_k = 12;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.top_p = 0.7f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.min_p = 0.2f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.presence_penalty = 1.5f, o.frequency_penalty = 0.5f;
    check_distribution(&o, logits, N, generated, 7);
    o = base, o.repetition_penalty = 1.8f;
    check_distribution(&o, logits, N, generated, 7);
    o = base, o.temperature = 1.4f, o.top_k = 50, o.top_p = 0.8f, o.min_p = 0.1f,
    o.presence_penalty = 0.5f, o.frequency_penalty = -0.3f, o.repetition_penalty = 1.1f;
    check_distribution(&o, logits, N, generated, 7);
}

TEST(sampler, cuts_keep_exactly_what_they_say)
{
    enum { N = 2000 };
    float logits[N];
    struct sampler *s = open_sampler(N);
    struct naive sorted[N];
    for (uint64_t round = 1; round <= 300; round++) {
        uint64_t state = round;
        float spread = round % 3 == 0 ? 0.001f : round % 3 == 1 ? 4.0f : 40.0f;
        for (int i = 0; i < N; i++) {
            logits[i] = random_float(&state, -spread, spread);
            if (round % 4 == 0)
                logits[i] = roundf(logits[i]); /* many ties */
        }
        struct sampling o = SAMPLING_DEFAULT;
        o.temperature = random_float(&state, 0.2f, 5.0f);
        o.top_k = round % 2 ? (int32_t)((state = hash_mix(state)) % N) : 0;
        o.top_p = round % 5 < 2 ? random_float(&state, 0.01f, 0.99f) : 1.0f;
        uint32_t kept = naive_distribution(logits, N, &o, NULL, 0, sorted);
        for (uint32_t draw = 0; draw < 20; draw++) {
            o.seed = draw;
            int32_t id = sampler_pick(s, logits, &o, NULL, 0);
            uint32_t rank = 0;
            while (rank < N && sorted[rank].id != id)
                rank++;
            CHECK(rank < kept + (o.top_p < 1)); /* rounding may move a share's cut by one */
        }
    }
    sampler_close(s);
}

/* Large enough that a small top_k looks only at the best blocks. Nearly flat logits, so that each
 * of the best k is drawn now and then; the best may all stand in one block, or be spread. */
TEST(sampler, a_small_top_k_of_a_large_vocabulary_is_exact)
{
    enum { N = 12000, DRAWS = 600 };
    static float logits[N];
    static struct naive sorted[N];
    struct sampler *s = open_sampler(N);
    for (uint32_t round = 0; round < 30; round++) {
        uint64_t state = round + 99;
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = random_float(&state, -0.5f, 0.5f);
            if (round % 3 == 0)
                logits[i] = roundf(logits[i] * 8) / 8; /* ties over the cut */
            if (round % 3 == 1)
                logits[i] -= (float)(i / 1000); /* the best stand together */
            if (round % 5 == 0 && i % 512 < 256)
                logits[i] = i % 2 ? NAN : -INFINITY; /* whole blocks are masked */
        }
        struct sampling o = SAMPLING_DEFAULT;
        o.top_k = 2 + (int32_t)(round % 22);
        uint32_t n = 0, n_seen = 0;
        for (uint32_t i = 0; i < N; i++)
            if (isfinite(logits[i]))
                sorted[n++] = (struct naive){(int32_t)i, logits[i], 0};
        qsort(sorted, n, sizeof *sorted, naive_order);
        bool seen[32] = {false};
        for (o.seed = 0; o.seed < DRAWS; o.seed++) {
            int32_t id = sampler_pick(s, logits, &o, NULL, 0), rank = 0;
            while (rank < o.top_k && sorted[rank].id != id)
                rank++;
            CHECK(rank < o.top_k);
            n_seen += !seen[rank];
            seen[rank] = true;
        }
        CHECK_INT(n_seen, o.top_k);
    }
    sampler_close(s);
}

TEST(sampler, equal_logits_are_cut_by_id)
{
    enum { N = 1000 };
    float logits[N] = {0};
    struct sampler *s = open_sampler(N);
    struct sampling o = SAMPLING_DEFAULT;
    bool seen[N] = {false};
    o.top_k = 10;
    for (o.seed = 0; o.seed < 300; o.seed++)
        seen[sampler_pick(s, logits, &o, NULL, 0)] = true;
    for (int i = 0; i < N; i++)
        CHECK_INT(seen[i], i < 10);
    memset(seen, 0, sizeof seen);
    o.top_k = 0, o.top_p = 0.0199f;
    for (o.seed = 0; o.seed < 600; o.seed++)
        seen[sampler_pick(s, logits, &o, NULL, 0)] = true;
    for (int i = 0; i < N; i++)
        CHECK_INT(seen[i], i < 20);
    o.top_p = 0; /* never empty */
    CHECK_INT(sampler_pick(s, logits, &o, NULL, 0), 0);
    o.top_p = 0.9999999f;
    CHECK(sampler_pick(s, logits, &o, NULL, 0) >= 0);
    sampler_close(s);
}

TEST(sampler, the_same_seed_choice_and_index_draw_the_same)
{
    enum { N = 500 };
    float logits[N] = {0};
    int32_t generated[64] = {0};
    struct sampler *s = open_sampler(N);
    struct sampling o = SAMPLING_DEFAULT;
    o.seed = 42;
    int same_choice = 0, same_index = 0, same_seed = 0;
    for (uint32_t i = 0; i < 64; i++) {
        int32_t first = sampler_pick(s, logits, &o, generated, i);
        CHECK_INT(sampler_pick(s, logits, &o, generated, i), first);
        struct sampling other = o;
        other.choice = 1;
        same_choice += sampler_pick(s, logits, &other, generated, i) == first;
        same_index += sampler_pick(s, logits, &o, generated, i + 1) == first;
        other = o, other.seed = 43;
        same_seed += sampler_pick(s, logits, &other, generated, i) == first;
    }
    CHECK(same_choice < 6 && same_index < 6 && same_seed < 6);
    sampler_close(s);
}

TEST(sampler, tiny_temperatures_are_greedy)
{
    float logits[] = {1.0f, 1.0001f, 0.5f, -3e38f, 3e37f, -2.0f};
    struct sampler *s = open_sampler(6);
    struct sampling o = SAMPLING_DEFAULT;
    for (o.temperature = 1e-3f; o.temperature > 0; o.temperature *= 1e-6f)
        for (o.seed = 0; o.seed < 10; o.seed++)
            CHECK_INT(sampler_pick(s, logits, &o, NULL, 0), 4);
    sampler_close(s);
}

/* Every way of scanning gives the bits of the plain one, which are those of a sum in double
 * precision but for the rounding; wherever the last block ends, and whatever is masked. */
TEST(sampler, scans_are_the_same_on_every_instruction_set)
{
    enum { N = 5 * SCAN_BLOCK, BLOCKS = 5 };
    static float logits[N];
    for (uint32_t round = 0; round < 200; round++) {
        uint64_t state = round;
        uint32_t n = round < 20 ? N - round : 1 + (uint32_t)((state = hash_mix(state)) % N);
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = random_float(&state, -60, 20);
            if (round % 2 && (state = hash_mix(state)) % 3 == 0)
                logits[i] = state % 2 ? NAN : -INFINITY;
            if (round % 7 == 3 && i / SCAN_BLOCK == 1)
                logits[i] = i % 2 ? NAN : -INFINITY; /* a whole block */
        }
        float plain_best[BLOCKS], plain_weight[BLOCKS];
        sampler_scan_at(0)->best(logits, n, plain_best);
        sampler_scan_at(0)->sum(logits, n, 20, 0.7f, plain_weight);
        static float plain_weights[N], weights[N];
        sampler_scan_at(0)->weigh(logits, n, 20, 0.7f, plain_weights);
        for (uint32_t b = 0; b * SCAN_BLOCK < n; b++) {
            float best = -INFINITY;
            double weight = 0;
            for (uint32_t i = b * SCAN_BLOCK; i < n && i < (b + 1) * SCAN_BLOCK; i++) {
                best = logits[i] > best ? logits[i] : best;
                weight += isnan(logits[i]) ? 0 : exp((logits[i] - 20.0) * (double)0.7f);
            }
            CHECK(plain_best[b] == best);
            CHECK(fabs(plain_weight[b] - weight) <= 1e-6 * weight + 1e-30);
        }
        for (uint32_t k = 1; sampler_scan_at(k); k++) {
            float other[BLOCKS];
            size_t bytes = (n + SCAN_BLOCK - 1) / SCAN_BLOCK * sizeof *other;
            sampler_scan_at(k)->best(logits, n, other);
            CHECK(memcmp(other, plain_best, bytes) == 0);
            sampler_scan_at(k)->sum(logits, n, 20, 0.7f, other);
            CHECK(memcmp(other, plain_weight, bytes) == 0);
            sampler_scan_at(k)->weigh(logits, n, 20, 0.7f, weights);
            CHECK(memcmp(weights, plain_weights, n * sizeof *weights) == 0);
        }
    }
}

/* Cuts that are reached far below the best, near it, and never: whatever has to be gathered is. */
TEST(sampler, cuts_reach_as_far_down_as_they_must)
{
    enum { N = 3000, DRAWS = 400 };
    static float logits[N];
    struct sampler *s = open_sampler(N);
    for (int i = 0; i < N; i++)
        logits[i] = i == 1500 ? 0.0f : i == 7 ? -3.0f : i == 2900 ? -30.0f : -70.0f;
    struct sampling o = SAMPLING_DEFAULT;
    o.top_k = 3;
    bool third = false;
    o.temperature = 40; /* nearly flat: all of the three come */
    for (o.seed = 0; o.seed < DRAWS; o.seed++) {
        int32_t id = sampler_pick(s, logits, &o, NULL, 0);
        CHECK(id == 1500 || id == 7 || id == 2900);
        third |= id == 2900;
    }
    CHECK(third);
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 0.999f; /* the second is needed, the third is not */
    bool second = false;
    for (o.seed = 0; o.seed < DRAWS; o.seed++) {
        int32_t id = sampler_pick(s, logits, &o, NULL, 0);
        CHECK(id == 1500 || id == 7);
        second |= id == 7;
    }
    CHECK(second);
    o.top_p = 1;
    o.min_p = 0.06f; /* e^-3 is 0.0498 */
    for (o.seed = 0; o.seed < DRAWS; o.seed++)
        CHECK_INT(sampler_pick(s, logits, &o, NULL, 0), 1500);
    o.min_p = 0.049f;
    second = false;
    for (o.seed = 0; o.seed < DRAWS; o.seed++)
        second |= sampler_pick(s, logits, &o, NULL, 0) == 7;
    CHECK(second);
    sampler_close(s);
}
